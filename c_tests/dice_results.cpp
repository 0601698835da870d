// Results of a real job are those of its LOCAL run, bit for bit, whichever way they take.
#include <doctest/doctest.h>

#include "rig_dice.hpp"

using namespace rig;

namespace {

Handle<Dice_job> make_job(bool rdma) {
  Handle<Dice_job> job(new Dice_job);
  job->rdma = rdma;
  job->seed = 42;
  job->tree = Leaf::tree(7, 3);
  return job;
}

// Without the fragments that were received, but empty.
std::map<Size, std::vector<Bytes>> filled(std::map<Size, std::vector<Bytes>> results) {
  for (auto at = results.begin(); at != results.end();) at = at->second.empty() ? results.erase(at) : std::next(at);
  return results;
}

}  // namespace

TEST_CASE("CLUSTER gives what LOCAL gives, by both ways, with pieces, objects inside and fragments without a result") {
  Cluster cluster(2);
  for (const bool rdma : {true, false})
    for (const Uint64 size : {Uint64(1), Uint64(1000), Uint64(200000)}) {
      CAPTURE(rdma);
      CAPTURE(size);
      auto job = make_job(rdma);
      job->most_pieces = 4;
      job->nulls = true;
      job->piece_bytes = size;
      const Uint64 serialized = here.serialized;
      REQUIRE_MESSAGE(nrdma::execute(cluster.node.get(), *job.get(), 40) == NRDMA_OK, last_error());
      CHECK(here.serialized == serialized + 1);
      CHECK(filled(job->results) == local_results(cluster.node, *job.get(), 40));
    }
  CHECK(cluster.node.stats().fragments_remote > 0);
}

TEST_CASE("every fragment on one remote host, every overload of both streams") {
  Cluster cluster(1);
  for (const bool rdma : {true, false}) {
    CAPTURE(rdma);
    auto job = make_job(rdma);
    job->mode = IFragmented_job::USER_DEFINED;
    job->assigned.assign(12, cluster.hosts[0]);
    job->most_pieces = 3;
    REQUIRE_MESSAGE(nrdma::execute(cluster.node.get(), *job.get(), 12) == NRDMA_OK, last_error());
    CHECK(job->runs_here.empty());
    CHECK(job->results == local_results(cluster.node, *job.get(), 12));
    for (Size i = 0; i < 12; ++i) CHECK(job->results[i].size() == job->pieces(i));
  }
}

TEST_CASE("a NULL result is not received; an empty stream is") {
  Cluster cluster(1);
  auto job = make_job(true);
  job->mode = IFragmented_job::USER_DEFINED;
  job->assigned.assign(9, cluster.hosts[0]);
  job->nulls = true;
  REQUIRE(nrdma::execute(cluster.node.get(), *job.get(), 9) == NRDMA_OK);
  CHECK(job->results.size() == 6);
  CHECK(job->results.count(3) == 0);

  auto stream = make_job(false);
  stream->mode = IFragmented_job::USER_DEFINED;
  stream->assigned = job->assigned;
  stream->nulls = true;
  REQUIRE(nrdma::execute(cluster.node.get(), *stream.get(), 9) == NRDMA_OK);
  CHECK(stream->results.size() == 9);  // called for all
  CHECK(stream->results[3].empty());
}

TEST_CASE("retained results stay as they were while other jobs run") {
  Cluster cluster(1);
  auto job = make_job(true);
  job->mode = IFragmented_job::USER_DEFINED;
  job->assigned.assign(8, cluster.hosts[0]);
  job->act = Dice_job::KEEP;
  job->piece_bytes = 70000;
  REQUIRE_MESSAGE(nrdma::execute(cluster.node.get(), *job.get(), 8) == NRDMA_OK, last_error());
  auto other = make_job(true);
  other->seed = 99;
  other->piece_bytes = 70000;
  REQUIRE(nrdma::execute(cluster.node.get(), *other.get(), 20) == NRDMA_OK);
  REQUIRE(job->kept.size() == 8);
  for (auto& entry : job->kept) {
    const Bytes want = job->piece(entry.first, 0);
    CHECK(std::memcmp(entry.second->get_data(), want.data(), want.size()) == 0);
  }
  job->kept.clear();
}

TEST_CASE("one buffer may be the result of several fragments") {
  Cluster cluster(1);
  for (const Uint64 size : {Uint64(500), Uint64(131072)}) {
    auto job = make_job(true);
    job->mode = IFragmented_job::USER_DEFINED;
    job->assigned.assign(10, cluster.hosts[0]);
    job->act = Dice_job::SHARED;
    job->piece_bytes = size;
    REQUIRE_MESSAGE(nrdma::execute(cluster.node.get(), *job.get(), 10) == NRDMA_OK, last_error());
    for (Size i = 0; i < 10; ++i) CHECK(job->results[i] == std::vector<Bytes>{job->piece(0, 0)});
  }
}

TEST_CASE("the transaction is the host's on both sides") {
  Cluster cluster(1);
  auto job = make_job(true);
  job->expected = transaction_of(777);
  IFragmented_job* real = job.get();
  REQUIRE_MESSAGE(nrdma_node_execute_fragmented(cluster.node, real, job->expected, 12) == NRDMA_OK, last_error());
  CHECK(job->results.size() == 12);
}

TEST_CASE("jobs run both ways between two hosts at once") {
  Pair pair;
  auto one = make_job(true), two = make_job(false);
  nrdma_status second = 1;
  std::thread other([&] { second = nrdma::execute(pair.b.get(), *two.get(), 30); });
  const nrdma_status first = nrdma::execute(pair.a.get(), *one.get(), 30);
  other.join();
  CHECK(first == NRDMA_OK);
  CHECK(second == NRDMA_OK);
  CHECK(one->results == local_results(pair.a, *one.get(), 30));
  CHECK(two->results == local_results(pair.b, *two.get(), 30));
}

namespace {

// Derives from nothing, has only what it needs.
struct Plain {
  std::atomic<Uint64> sum{0};
  mi::base::Uuid get_class_id() const { return {0x706c6e, 1, 2, 3}; }
  int get_scheduling_mode() const { return IFragmented_job::CLUSTER; }
  void execute_fragment(IDice_transaction*, Size index, Size, const IJob_execution_context*) { sum += index; }
  void execute_fragment_remote(ISerializer* to, IDice_transaction*, Size index, Size, const IJob_execution_context*) {
    if (!to->write(&index)) throw std::runtime_error("write");
  }
  void receive_remote_result(IDeserializer* from, IDice_transaction*, Size, Size) {
    Size index = 0;
    if (!from->read(&index)) throw std::runtime_error("read");
    sum += index;
  }
};
const bool plain_opened = (openers().push_back([](nrdma_node* node) { nrdma::register_job<Plain>(node); }), true);

}  // namespace

TEST_CASE("a class of the host's own with DiCE's method names") {
  Cluster cluster(1);
  Plain plain;
  REQUIRE_MESSAGE(nrdma::execute(cluster.node.get(), plain, 101) == NRDMA_OK, last_error());
  CHECK(plain.sum == 5050);
  CHECK(plain_opened);
}
