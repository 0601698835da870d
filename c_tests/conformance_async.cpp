// Jobs that are started, cancelled, timed out, or overtaken by shutdown.
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

// Says that it runs by an intermediate result, then waits to be cancelled (or 20 s); the result says which.
ACT(wait_cancelled) {
  p.result = p.write(8);
  EXPECT(p.result);
  std::memset(p.result.data(), 1, 8);
  if (nrdma_context_flush(p.context, p.result.get()) != 0) return;  // cancelled before it really began
  for (const double end = now() + 20; now() < end; sleep_ms(1))
    if (nrdma_fragment_cancelled(p.fragment) != 0) return;
  EXPECT(!"was never cancelled");
}

// milliseconds: a fragment that takes its time and looks at nothing.
ACT(pause) { sleep_ms(static_cast<unsigned>(p.a(0))); }

TEST_CASE("async: done exactly once, after the last result") {
  Cluster cluster(2);
  for (int round = 0; round < 20; ++round) {
    Job job("fill", {3000, 5}, 3000);
    std::atomic<int> late{0}, calls{0};
    job.receive = [&](nrdma_buffer*, const nrdma_result*) {
      calls++;
      sleep_ms(1);
      if (job.dones != 0) late++;
      return NRDMA_OK;
    };
    uint64_t id = 0;
    REQUIRE(job.start(cluster.node, 10, &id) == NRDMA_OK);
    CHECK(id != 0);
    REQUIRE(job.done.wait());
    CHECK(job.done_status == NRDMA_OK);
    CHECK(calls == 10);
    CHECK(late == 0);
    CHECK(job.dones == 1);
    CHECK(job.cancels == 0);
  }
}

TEST_CASE("async jobs have ids of their own; a failed one says so") {
  Cluster cluster(1);
  std::set<uint64_t> ids;
  for (int i = 0; i < 10; ++i) {
    Job job("throw_execute");
    job.to(2);
    uint64_t id = 0;
    REQUIRE(job.start(cluster.node, 1, &id) == NRDMA_OK);
    ids.insert(id);
    REQUIRE(job.done.wait());
    CHECK(job.done_status == NRDMA_FRAGMENT_FAILED);
    CHECK(job.dones == 1);
  }
  CHECK(ids.size() == 10);
}

TEST_CASE("async with nothing to do or a bad job: refused, and done is not called") {
  Cluster cluster(1);
  for (const int32_t mode : {NRDMA_CLUSTER, NRDMA_ONCE_PER_HOST}) {
    Job job("nothing");
    job.table.mode = mode;
    CHECK(job.start(cluster.node, 0) == NRDMA_INVALID_PARAMETER);
    sleep_ms(20);
    CHECK(job.dones == 0);
  }
  Job negative("nothing");
  negative.table.priority = -1;
  CHECK(negative.start(cluster.node, 1) == NRDMA_INVALID_PRIORITY);
  CHECK(negative.dones == 0);
}

TEST_CASE("cancel: fragments are told, done comes once with CANCELLED") {
  Cluster cluster(1);
  Job job("wait_cancelled", {}, 8);
  Gate started;
  job.receive = [&](nrdma_buffer*, const nrdma_result*) {
    started.open();
    return NRDMA_OK;
  };
  uint64_t id = 0;
  REQUIRE(job.start(cluster.node, 20, &id) == NRDMA_OK);
  REQUIRE(started.wait());
  const double start = now();
  CHECK(nrdma_node_cancel(cluster.node, id) == NRDMA_OK);
  REQUIRE(job.done.wait());
  CHECK(job.done_status == NRDMA_CANCELLED);
  CHECK(now() - start < 5.0 * stretch());
  CHECK(job.cancels == 1);
  sleep_ms(20);
  CHECK(job.dones == 1);
  // It is over, so there is nothing left to cancel; and the worker is free again.
  CHECK(nrdma_node_cancel(cluster.node, id) < 0);
  Job after("fill", {100, 1}, 100);
  CHECK(after.run(cluster.node, 4) == NRDMA_OK);
  CHECK(after.results.size() == 4);
}

TEST_CASE("cancel of LOCAL fragments") {
  Cluster cluster(0);
  Job job("nothing");
  job.table.mode = NRDMA_LOCAL;
  Gate started;
  std::atomic<int> told{0}, ran{0};
  job.execute = [&](const nrdma_fragment* f) {
    ran++;
    started.open();
    if (eventually([&] { return nrdma_fragment_cancelled(f) != 0; })) told++;
    return NRDMA_OK;
  };
  uint64_t id = 0;
  REQUIRE(job.start(cluster.node, 100, &id) == NRDMA_OK);
  REQUIRE(started.wait());
  CHECK(nrdma_node_cancel(cluster.node, id) == NRDMA_OK);
  REQUIRE(job.done.wait());
  CHECK(job.done_status == NRDMA_CANCELLED);
  CHECK(told == ran);
  CHECK(ran < 100);
}

TEST_CASE("cancel of a job that does not exist") {
  Cluster cluster(0);
  nrdma_clear_error();
  CHECK(nrdma_node_cancel(cluster.node, 123456789) < 0);
  CHECK(contains(last_error(), "123456789"));
}

TEST_CASE("timeout_ms: TIMED_OUT, soon, and the fragments are told") {
  Cluster cluster(1);
  Job job("wait_cancelled", {}, 8);
  job.table.timeout_ms = 200;
  const double start = now();
  CHECK(job.run(cluster.node, 3) == NRDMA_TIMED_OUT);
  CHECK(now() - start >= 0.19);
  CHECK(now() - start < 5.0 * stretch());
  CHECK(contains(last_error(), "200"));
  CHECK(job.cancels == 1);
  // One that is quick enough is not touched by its deadline.
  Job quick("fill", {100, 1}, 100);
  quick.table.timeout_ms = 20000;
  CHECK(quick.run(cluster.node, 4) == NRDMA_OK);
  CHECK(quick.cancels == 0);
}

TEST_CASE("after a time-out, wrapped result memory is the host's again") {
  Cluster cluster(1);
  std::vector<uint8_t> memory(1 << 20, 0);
  Job job("late_fill", {memory.size(), 600});
  job.table.timeout_ms = 100;
  job.result_buffer = [&](nrdma_context* c, uint64_t) {
    return nrdma_context_wrap_user_buffer(c, memory.data(), memory.size(), -1);
  };
  CHECK(job.run(cluster.node, 1) == NRDMA_TIMED_OUT);
  std::memset(memory.data(), 0x77, memory.size());
  sleep_ms(900);  // the fragment ends meanwhile
  CHECK(bytes_differ(memory.data(), memory.size(), 0x77) == memory.size());
  Job after("fill", {100, 1}, 100);
  CHECK(after.run(cluster.node, 1) == NRDMA_OK);
}
// size, milliseconds: blind to cancellation.
ACT(late_fill) {
  p.result = p.write(p.a(0));
  if (!p.result) return;
  sleep_ms(static_cast<unsigned>(p.a(1)));
  std::memset(p.result.data(), 0xEE, p.a(0));
}

TEST_CASE("shutdown ends running jobs") {
  Pair pair;
  Job job("wait_cancelled", {}, 8);
  Gate started;
  job.receive = [&](nrdma_buffer*, const nrdma_result*) {
    started.open();
    return NRDMA_OK;
  };
  std::atomic<nrdma_status> sync_status{1};
  Job sync("wait_cancelled", {}, 8);
  std::thread thread([&] { sync_status = sync.run(pair.a, 2); });
  REQUIRE(job.start(pair.a, 2) == NRDMA_OK);
  REQUIRE(started.wait());
  const double start = now();
  nrdma_node_shutdown(pair.a, 0);
  CHECK(now() - start < 5.0 * stretch());
  thread.join();
  REQUIRE(job.done.wait());
  CHECK(job.dones == 1);
  for (const nrdma_status status : {job.done_status.load(), sync_status.load()})
    CHECK((status == NRDMA_CANCELLED || status == NRDMA_SHUT_DOWN));
  CHECK(job.cancels == 1);
}

TEST_CASE("shutdown of the responder in the middle: CLUSTER fragments run here instead") {
  Pair pair;
  Job job("pause", {5});
  std::mutex lock;
  std::map<uint64_t, int> here;
  Gate some;
  job.execute = [&](const nrdma_fragment* f) {
    {
      std::lock_guard<std::mutex> guard(lock);
      here[f->index]++;
    }
    sleep_ms(2);
    some.open();
    return NRDMA_OK;
  };
  REQUIRE(job.start(pair.a, 100) == NRDMA_OK);
  REQUIRE(some.wait());
  nrdma_node_shutdown(pair.b, 0);
  REQUIRE(job.done.wait());
  CHECK(job.done_status == NRDMA_OK);
  CHECK(job.failures.empty());
  for (const auto& [index, times] : here) CHECK(times == 1);
}

TEST_CASE("a callback that never returns: shutdown is bounded, says so, and can be repeated") {
  Cluster cluster(0);
  Gate started, gate;
  Job job("nothing");
  job.table.mode = NRDMA_LOCAL;
  job.execute = [&](const nrdma_fragment*) {
    started.open();
    gate.wait();
    return NRDMA_OK;
  };
  REQUIRE(job.start(cluster.node, 1) == NRDMA_OK);
  REQUIRE(started.wait());
  const double start = now();
  CHECK(nrdma_node_shutdown(cluster.node, 150) == NRDMA_TIMED_OUT);
  CHECK(now() - start >= 0.14);
  CHECK(now() - start < 5.0 * stretch());
  CHECK(!last_error().empty());
  gate.open();
  REQUIRE(job.done.wait());
  CHECK(job.dones == 1);
  CHECK(eventually([&] { return nrdma_node_shutdown(cluster.node, 0) == NRDMA_OK; }));
}

TEST_CASE("shutdown, destroy and unregister from a callback are refused") {
  Pair pair;
  std::atomic<int> wrong{0}, calls{0};
  const auto refused = [&](nrdma_node* node) {
    calls++;
    if (nrdma_node_shutdown(node, 10) != NRDMA_INVALID_PARAMETER) wrong++;
    if (nrdma_node_unregister_class(node, play_class, 10) != NRDMA_INVALID_PARAMETER) wrong++;
    nrdma_clear_error();
    nrdma_node_destroy(node);  // no status: it must do nothing but say so
    if (last_error().empty()) wrong++;
  };
  Job local("nothing");
  local.table.mode = NRDMA_LOCAL;
  local.execute = [&](const nrdma_fragment*) {
    refused(pair.a);
    return NRDMA_OK;
  };
  CHECK(local.run(pair.a, 1) == NRDMA_OK);
  Job remote("fill", {100, 1}, 100);
  remote.receive = [&](nrdma_buffer*, const nrdma_result*) {
    refused(pair.a);
    return NRDMA_OK;
  };
  CHECK(remote.run(pair.a, 1) == NRDMA_OK);
  CHECK(calls == 2);
  CHECK(wrong == 0);
  Job after("fill", {100, 1}, 100);
  CHECK(after.run(pair.a, 2) == NRDMA_OK);
}
