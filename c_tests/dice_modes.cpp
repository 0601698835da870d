// Where the fragments of a real job go, how many at once, and what execute returns.
#include <doctest/doctest.h>

#include "rig_dice.hpp"

using namespace rig;

TEST_CASE("return codes, in DiCE's order") {
  Cluster cluster(1);
  Handle<Dice_job> job(new Dice_job);
  const auto run = [&](Size count) { return nrdma::execute(cluster.node.get(), *job.get(), count); };
  const auto start = [&](Size count) {
    IFragmented_job* real = job.get();
    return nrdma_node_execute_fragmented_async(cluster.node, real, nullptr, count, nullptr);
  };
  CHECK(nrdma_node_execute_fragmented(cluster.node, nullptr, nullptr, 1) == -1);
  CHECK(nrdma_node_execute_fragmented_async(cluster.node, nullptr, nullptr, 1, nullptr) == -1);
  job->priority = -1;
  for (const Uint32 mode : {0u, 1u, 3u}) {
    job->mode = mode;
    CHECK(run(0) == -1);
  }
  for (const Uint32 mode : {0u, 1u, 2u, 3u}) {
    job->mode = mode;
    CHECK(start(0) == -1);
    CHECK(run(1) == -3);
    CHECK(start(1) == (mode == 0 ? -3 : -2));
  }
  job->priority = 0;
  job->mode = 4;
  CHECK(run(1) == -1);
  job->mode = IFragmented_job::LOCAL;
  CHECK(nrdma_node_execute_fragmented_abi(cluster.node, static_cast<IFragmented_job*>(job.get()), nullptr, 1,
                                          NRDMA_CXX_ABI_MSVC) == -1);
  CHECK(nrdma_node_execute_fragmented(nullptr, static_cast<IFragmented_job*>(job.get()), nullptr, 1) == -1);
  CHECK(job->results.empty());
}

TEST_CASE("each fragment runs exactly once") {
  Cluster cluster(2);
  for (const Uint32 mode : {0u, 1u}) {
    Handle<Dice_job> job(new Dice_job);
    job->mode = mode;
    REQUIRE(nrdma::execute(cluster.node.get(), *job.get(), 300) == NRDMA_OK);
    CHECK(job->results.size() == 300);
    for (const auto& entry : job->results) CHECK(entry.second.size() == 1);
  }
}

TEST_CASE("ONCE_PER_HOST: count 0 is as many as there are remote hosts, more are skipped") {
  Cluster cluster(3);
  for (const Size count : {Size(0), Size(2), Size(10)}) {
    CAPTURE(count);
    Handle<Dice_job> job(new Dice_job);
    job->mode = IFragmented_job::ONCE_PER_HOST;
    REQUIRE_MESSAGE(nrdma::execute(cluster.node.get(), *job.get(), count) == NRDMA_OK, last_error());
    CHECK(job->results.size() == (count == 2 ? 2 : 3));
    CHECK(job->runs_here.empty());
  }
}

TEST_CASE("ONCE_PER_HOST without remote hosts has nothing to do") {
  Node alone;
  Handle<Dice_job> job(new Dice_job);
  job->mode = IFragmented_job::ONCE_PER_HOST;
  CHECK(nrdma::execute(alone.get(), *job.get(), 0) == NRDMA_OK);
  CHECK(job->results.empty());
}

TEST_CASE("USER_DEFINED: 0 and the own id are here, an unknown id skips, a host without the class fails") {
  Cluster cluster(1);
  Handle<Dice_job> job(new Dice_job);
  job->mode = IFragmented_job::USER_DEFINED;
  job->assigned = {0, 1, cluster.hosts[0], 4711, cluster.hosts[0]};
  REQUIRE_MESSAGE(nrdma::execute(cluster.node.get(), *job.get(), 5) == NRDMA_OK, last_error());
  CHECK(job->results.size() == 4);
  CHECK(job->results.count(3) == 0);
  CHECK(job->runs_here.size() == 2);

  struct Nowhere : Dice_job {
    mi::base::Uuid get_class_id() const override { return {9, 9, 9, 9}; }
  };
  Handle<Dice_job> nowhere(new Nowhere);
  nowhere->mode = IFragmented_job::USER_DEFINED;
  nowhere->assigned = {cluster.hosts[0], 0};
  CHECK(nrdma::execute(cluster.node.get(), *nowhere.get(), 2) == NRDMA_FRAGMENT_FAILED);
  CHECK(contains(last_error(), "not registered"));
  CHECK(nowhere->results.size() == 1);
  // CLUSTER does without such a host.
  nowhere->mode = IFragmented_job::CLUSTER;
  CHECK(nrdma::execute(cluster.node.get(), *nowhere.get(), 4) == NRDMA_OK);
}

TEST_CASE("the thread limit bounds the fragments at once on one host") {
  Setup many;
  many.worker_threads = 4;
  Cluster cluster(0, {}, many);
  Handle<Dice_job> job(new Dice_job);
  job->mode = IFragmented_job::LOCAL;
  job->act = Dice_job::SLOW;
  job->thread_limit = 2;
  here.most = 0;
  REQUIRE(nrdma::execute(cluster.node.get(), *job.get(), 12) == NRDMA_OK);
  CHECK(here.most == 2);
  job->thread_limit = 0;
  here.most = 0;
  REQUIRE(nrdma::execute(cluster.node.get(), *job.get(), 12) == NRDMA_OK);
  CHECK(here.most > 2);
}

TEST_CASE("the loads of all jobs together bound the fragments at once on one host") {
  Setup many;
  many.worker_threads = 4;
  Cluster cluster(0, {}, many);
  const auto run = [&](Float32 cpu, Float32 gpu) {
    const auto make = [&] {
      Handle<Dice_job> job(new Dice_job);
      job->mode = IFragmented_job::LOCAL;
      job->act = Dice_job::SLOW;
      job->cpu_load = cpu;
      job->gpu_load = gpu;
      return job;
    };
    auto one = make(), two = make();
    here.most = 0;
    nrdma_status status = 1;
    std::thread other([&] { status = nrdma::execute(cluster.node.get(), *one.get(), 8); });
    CHECK(nrdma::execute(cluster.node.get(), *two.get(), 8) == NRDMA_OK);
    other.join();
    CHECK(status == NRDMA_OK);
    return here.most.load();
  };
  CHECK(run(2.0f, 0.0f) == 2);
  CHECK(run(100.0f, 0.0f) == 1);
  CHECK(run(0.0f, 1.0f) == 1);
  CHECK(run(1.0f, 0.0f) <= 4);
}

TEST_CASE("a responder admits by load, too") {
  Setup worker;
  worker.worker_threads = 4;
  Cluster cluster(1, worker);
  Handle<Dice_job> job(new Dice_job);
  job->mode = IFragmented_job::USER_DEFINED;
  job->assigned.assign(8, cluster.hosts[0]);
  job->act = Dice_job::SLOW;
  job->cpu_load = 4.0f;
  here.most = 0;
  const double begin = now();
  REQUIRE_MESSAGE(nrdma::execute(cluster.node.get(), *job.get(), 8) == NRDMA_OK, last_error());
  CHECK(now() - begin >= 8 * 0.020);  // one after the other, in whichever process
  CHECK(job->results.size() == 8);
}

TEST_CASE("fragments that wait for each other through threads of their own go on in spite of their loads") {
  Setup one;
  one.worker_threads = 1;
  Node node(one);
  struct Parent : Dice_job {
    nrdma_node* node = nullptr;
    std::atomic<int> done{0};
    void execute_fragment(IDice_transaction*, Size, Size, const IJob_execution_context*) override {
      std::thread([this] {
        Handle<Dice_job> child(new Dice_job);
        child->mode = LOCAL;
        child->cpu_load = 1;
        if (nrdma::execute(node, *child.get(), 3) == NRDMA_OK) done++;
      }).join();
    }
  };
  Handle<Parent> parent(new Parent);
  parent->mode = IFragmented_job::LOCAL;
  parent->cpu_load = 1;
  parent->node = node;
  CHECK(nrdma::execute(node.get(), *parent.get(), 2) == NRDMA_OK);
  CHECK(parent->done == 2);
}

TEST_CASE("a host lost in ONCE_PER_HOST or USER_DEFINED: done without a result; in CLUSTER its fragments run again") {
  if (!processes()) return;
  for (const Uint32 mode : {1u, 2u, 3u}) {
    CAPTURE(mode);
    Cluster cluster(2);
    struct Killer : Dice_job {
      Cluster* cluster = nullptr;
      std::atomic<bool> killed{false};
      IRDMA_buffer* get_rdma_result_buffer(IRDMA_context* context, Size index) override {
        if (!killed.exchange(true)) cluster->process(2).signal(SIGKILL);
        return Dice_job::get_rdma_result_buffer(context, index);
      }
    };
    Handle<Killer> job(new Killer);
    job->cluster = &cluster;
    job->mode = mode;
    job->act = Dice_job::SLOW;
    job->assigned = {2, 2, 2, 3, 3, 3};
    const Size count = mode == 2 ? 0 : 6;
    CHECK_MESSAGE(nrdma::execute(cluster.node.get(), *job.get(), count) == NRDMA_OK, last_error());
    if (mode == 1) CHECK(job->results.size() == 6);
    if (mode == 2) CHECK(job->results.size() >= 1);
    if (mode == 3) CHECK(job->results.size() >= 3);
    CHECK(cluster.events.wait(2, NRDMA_PEER_EVENT_LOST));
  }
}
