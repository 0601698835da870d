// Callbacks that throw or fail: a failed fragment with the text, and a host that lives on.
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

ACT(throw_execute) { throw std::runtime_error("boom execute 4711"); }
ACT(throw_other) { throw 42; }
ACT(throw_after_flush) {
  p.result = p.write(64);
  pattern_fill(p.result.data(), 64, 1, 0);
  EXPECT(nrdma_context_flush(p.context, p.result.get()) == 0);
  throw std::runtime_error("boom after flush");
}

namespace {
void still_works(Cluster& cluster) {
  Job job("fill", {5000, 3}, 5000);
  REQUIRE(job.run(cluster.node, 4) == NRDMA_OK);
  REQUIRE(job.results.size() == 4);
  for (const Received& r : job.results) CHECK(pattern_holds(r.bytes.data(), 5000, 3 + r.index, 0));
}

// Every fragment failed once, with the text.
void check_failures(Job& job, uint64_t count, const std::string& text) {
  REQUIRE(job.failures.size() == count);
  std::set<uint64_t> indices;
  for (const Job::Failure& f : job.failures) {
    indices.insert(f.index);
    CHECK(f.why < 0);
    CHECK(contains(f.text, text));
  }
  CHECK(indices.size() == count);
}
}  // namespace

TEST_CASE("execute_remote throws") {
  Cluster cluster(2);
  for (const bool cluster_mode : {true, false}) {
    CAPTURE(cluster_mode);
    Job job("throw_execute");
    if (!cluster_mode) job.to(3);
    nrdma_clear_error();
    CHECK(job.run(cluster.node, 5) == NRDMA_FRAGMENT_FAILED);
    CHECK(contains(last_error(), "boom execute 4711"));
    CHECK(job.results.empty());
    check_failures(job, 5, "boom execute 4711");
    still_works(cluster);
  }
}

TEST_CASE("execute_remote throws something that is no std::exception") {
  Cluster cluster(1);
  Job job("throw_other");
  CHECK(job.to(2).run(cluster.node, 1) == NRDMA_FRAGMENT_FAILED);
  REQUIRE(job.failures.size() == 1);
  CHECK(!job.failures[0].text.empty());
  still_works(cluster);
}

TEST_CASE("execute_remote throws after an intermediate result") {
  Cluster cluster(1);
  Job job("throw_after_flush");
  CHECK(job.to(2).run(cluster.node, 1) == NRDMA_FRAGMENT_FAILED);
  REQUIRE(job.results.size() == 1);
  CHECK(!job.results[0].final);
  check_failures(job, 1, "boom after flush");
  still_works(cluster);
}

TEST_CASE("create throws") {
  Cluster cluster(1);
  Job job("throw_create");
  CHECK(job.to(2).run(cluster.node, 3) == NRDMA_FRAGMENT_FAILED);
  check_failures(job, 3, "boom create");
  still_works(cluster);
}

TEST_CASE("create fails") {
  Cluster cluster(1);
  Job job("nothing");
  job.table.payload_size = 3;  // play_create refuses it
  CHECK(job.to(2).run(cluster.node, 2) == NRDMA_FRAGMENT_FAILED);
  CHECK(job.failures.size() == 2);
  still_works(cluster);
}

TEST_CASE("receive_result throws, or says no") {
  Cluster cluster(1);
  SUBCASE("throws") {
    Job job("fill", {100, 1}, 100);
    job.receive = [](nrdma_buffer*, const nrdma_result*) -> nrdma_status { throw std::runtime_error("boom receive"); };
    CHECK(job.to(2).run(cluster.node, 2) == NRDMA_FRAGMENT_FAILED);
    check_failures(job, 2, "boom receive");
  }
  SUBCASE("says no") {
    Job job("fill", {100, 1}, 100);
    job.receive = [](nrdma_buffer*, const nrdma_result*) -> nrdma_status { return NRDMA_NOT_SUPPORTED; };
    CHECK(job.to(2).run(cluster.node, 2) == NRDMA_FRAGMENT_FAILED);
    CHECK(job.failures.size() == 2);
  }
  SUBCASE("bytes") {
    Job job("write_bytes", {2, 100, 5});
    job.bytes();
    job.receive_bytes = [](const uint8_t*, const nrdma_result*) -> nrdma_status { throw std::runtime_error("boom bytes"); };
    CHECK(job.to(2).run(cluster.node, 1) == NRDMA_FRAGMENT_FAILED);
    check_failures(job, 1, "boom bytes");
  }
  still_works(cluster);
}

TEST_CASE("get_result_buffer throws") {
  Cluster cluster(1);
  Job job("fill", {100, 1});
  job.result_buffer = [](nrdma_context*, uint64_t) -> nrdma_buffer* { throw std::runtime_error("boom buffer"); };
  CHECK(job.to(2).run(cluster.node, 2) == NRDMA_FRAGMENT_FAILED);
  check_failures(job, 2, "boom buffer");
  still_works(cluster);
}

TEST_CASE("get_result_buffer gives another peer's buffer") {
  Cluster cluster(2);
  Job job("fill", {100, 1});
  const Context other(cluster.node, 3);
  job.result_buffer = [&](nrdma_context*, uint64_t) { return other.read(100).detach(); };
  CHECK(job.to(2).run(cluster.node, 1) == NRDMA_FRAGMENT_FAILED);
  CHECK(job.results.empty());
  REQUIRE(job.failures.size() == 1);
  CHECK(!job.failures[0].text.empty());
  still_works(cluster);
}

TEST_CASE("execute_fragment throws here") {
  Cluster cluster(0);
  Job job("nothing");
  job.table.mode = NRDMA_LOCAL;
  job.execute = [](const nrdma_fragment* f) -> nrdma_status {
    if (f->index == 2) throw std::runtime_error("boom local");
    return NRDMA_OK;
  };
  CHECK(job.run(cluster.node, 5) == NRDMA_FRAGMENT_FAILED);
  check_failures(job, 1, "boom local");
  CHECK(job.failures[0].index == 2);
}

TEST_CASE("fragment_failed, assign_hosts and done throw: said to the log at most, the host lives") {
  Cluster cluster(1);
  SUBCASE("fragment_failed") {
    Job job("throw_execute");
    job.failed = [](uint64_t, nrdma_status, const char*) { throw std::runtime_error("boom failed"); };
    CHECK(job.to(2).run(cluster.node, 2) == NRDMA_FRAGMENT_FAILED);
  }
  SUBCASE("assign_hosts") {
    Job job("nothing");
    job.to(2);
    job.assign = [](uint32_t*, uint64_t) { throw std::runtime_error("boom assign"); };
    CHECK(job.run(cluster.node, 2) < 0);
    CHECK(contains(last_error(), "boom assign"));
  }
  still_works(cluster);
}

TEST_CASE("one failing fragment does not take the others with it") {
  Cluster cluster(2);
  Job job("fail_some");
  CHECK(job.run(cluster.node, 30) == NRDMA_FRAGMENT_FAILED);
  CHECK(job.results.size() == 20);
  REQUIRE(job.failures.size() == 10);
  for (const Job::Failure& f : job.failures) CHECK(f.index % 3 == 0);
  for (const Received& r : job.results) CHECK(pattern_holds(r.bytes.data(), 64, r.index, 0));
}
ACT(fail_some) {
  if (p.index() % 3 == 0) throw std::runtime_error("every third");
  p.result = p.write(64);
  pattern_fill(p.result.data(), 64, p.index(), 0);
}

// the number of a first try: that one fails.
ACT(fail_first) {
  if (p.fragment->attempt == p.a(0)) throw std::runtime_error("first try");
  p.result = p.write(64);
  pattern_fill(p.result.data(), 64, p.index(), 0);
}

TEST_CASE("a failed CLUSTER fragment runs once more, others do not") {
  Cluster cluster(2);
  Job plain("fill", {64, 1});
  REQUIRE(plain.run(cluster.node, 1) == NRDMA_OK);
  REQUIRE(plain.results.size() == 1);
  const uint64_t first = plain.results[0].attempt;
  Job twice("fail_first", {first});
  CHECK(twice.run(cluster.node, 6) == NRDMA_OK);
  CHECK(twice.results.size() == 6);
  CHECK(twice.failures.empty());
  for (const Received& r : twice.results) CHECK(r.attempt > first);
  Job once("fail_first", {first});
  CHECK(once.to(2).run(cluster.node, 2) == NRDMA_FRAGMENT_FAILED);
  CHECK(once.failures.size() == 2);
}
