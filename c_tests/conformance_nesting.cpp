// Jobs inside jobs, both ways at once, with one executor per node: always progress, never a hang.
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
Setup one_worker() {
  Setup setup;
  setup.worker_threads = 1;
  return setup;
}
}  // namespace

// depth left: runs the same on the host that asked, one less deep; the result is the depth that was reached.
ACT(nest) {
  uint64_t depth = 1;
  if (p.a(0) > 1) {
    Job inner("nest", {p.a(0) - 1}, 8);
    EXPECT(inner.to(p.fragment->host_id).run(p.site.node, 1) == NRDMA_OK);
    EXPECT(inner.results.size() == 1 && inner.results[0].size == 8);
    std::memcpy(&depth, inner.results[0].bytes.data(), 8);
    depth++;
  }
  p.result = p.write(8);
  EXPECT(p.result);
  std::memcpy(p.result.data(), &depth, 8);
}

TEST_CASE("a job nested 8 deep between two nodes with one worker each") {
  const double start = now();
  Cluster cluster(1, one_worker(), one_worker());
  Job job("nest", {8}, 8);
  REQUIRE(job.to(2).run(cluster.node, 1) == NRDMA_OK);
  REQUIRE(job.results.size() == 1);
  uint64_t depth = 0;
  std::memcpy(&depth, job.results[0].bytes.data(), 8);
  CHECK(depth == 8);
  CHECK(now() - start < 5.0 * stretch());
}

TEST_CASE("several fragments nest at once") {
  Cluster cluster(1, one_worker(), one_worker());
  Job job("nest", {4}, 8);
  CHECK(job.to(2).run(cluster.node, 6) == NRDMA_OK);
  CHECK(job.results.size() == 6);
}

namespace {
nrdma_status nest_here(nrdma_node* node, int depth, std::atomic<int>& reached) {
  reached++;
  if (depth <= 1) return NRDMA_OK;
  Job inner("nothing");
  inner.table.mode = NRDMA_LOCAL;
  inner.execute = [&, node, depth](const nrdma_fragment*) { return nest_here(node, depth - 1, reached); };
  return inner.run(node, 2);
}
}  // namespace

TEST_CASE("LOCAL jobs nested 8 deep, two fragments each, one worker") {
  Cluster cluster(0, one_worker(), one_worker());
  std::atomic<int> reached{0};
  CHECK(nest_here(cluster.node, 8, reached) == NRDMA_OK);
  CHECK(reached == 255);
}

TEST_CASE("a receive callback runs a job") {
  Cluster cluster(1, one_worker(), one_worker());
  Job job("fill", {4096, 1}, 4096);
  std::atomic<int> inner_good{0}, good{0};
  job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
    Job inner("fill", {2000, 50}, 2000);
    if (inner.run(cluster.node, 2) == NRDMA_OK && inner.results.size() == 2 &&
        pattern_holds(inner.results[0].bytes.data(), 2000, 50 + inner.results[0].index, 0))
      inner_good++;
    if (pattern_holds(nrdma_buffer_get_data(b), 4096, 1 + r->index, 0)) good++;
    return NRDMA_OK;
  };
  CHECK(job.run(cluster.node, 4) == NRDMA_OK);
  CHECK(inner_good == 4);
  CHECK(good == 4);
}

TEST_CASE("receiving an intermediate result runs a job on the flushing host, which has one worker") {
  Cluster cluster(1, one_worker(), one_worker());
  Job job("flush_many", {512, 5}, 512);
  std::atomic<int> inner_good{0}, good{0};
  job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
    Job inner("fill", {64, 9}, 64);
    if (inner.to(2).run(cluster.node, 1) == NRDMA_OK && inner.results.size() == 1) inner_good++;
    if (pattern_holds(nrdma_buffer_get_data(b), 512, r->sequence, 0)) good++;
    return NRDMA_OK;
  };
  CHECK(job.run(cluster.node, 1) == NRDMA_OK);
  CHECK(inner_good == 6);
  CHECK(good == 6);
}

namespace {
// A job whose fragments flush 100 times, run against one host; "" or what went wrong.
std::string flush_storm(nrdma_node* node, uint32_t host) {
  constexpr uint64_t size = 2048, fragments = 4, rounds = 100;
  Job job("flush_many", {size, rounds}, size);
  std::atomic<int> torn{0}, calls{0}, disorder{0};
  std::vector<uint32_t> next(fragments, 0);
  job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
    calls++;
    if (r->sequence != next.at(r->index)++) disorder++;
    if (!pattern_holds(nrdma_buffer_get_data(b), size, r->sequence, 0)) torn++;
    return NRDMA_OK;
  };
  (void)host;  // CLUSTER, remote only: the other node is the only one that can
  if (job.run(node, fragments) != NRDMA_OK) return "execute: " + last_error();
  if (calls != fragments * (rounds + 1)) return "calls: " + std::to_string(calls);
  if (torn != 0 || disorder != 0) return "torn " + std::to_string(torn) + " disorder " + std::to_string(disorder);
  return "";
}
}  // namespace

// key: the worker starts the same storm the other way, on a thread of its own.
ACT(storm_back) {
  std::lock_guard<std::mutex> guard(p.site.lock);
  Site* site = &p.site;
  const uint64_t key = p.a(0);
  const uint32_t host = p.fragment->host_id;
  p.site.threads.emplace(key, std::thread([site, key, host] {
                           const std::string found = flush_storm(site->node, host);
                           std::lock_guard<std::mutex> inner(site->lock);
                           site->notes[key] = found;
                         }));
}

// key: waits for it and says what it found.
ACT(storm_result) {
  std::thread thread;
  {
    std::lock_guard<std::mutex> guard(p.site.lock);
    thread = std::move(p.site.threads.at(p.a(0)));
    p.site.threads.erase(p.a(0));
  }
  thread.join();
  std::lock_guard<std::mutex> guard(p.site.lock);
  p.say(p.site.notes[p.a(0)]);
}

TEST_CASE("two nodes with one worker each: CLUSTER jobs with 100 flushes per fragment, both ways at once") {
  Cluster cluster(1, one_worker(), one_worker());
  const double start = now();
  Job back("storm_back", {1});
  REQUIRE(back.to(2).run(cluster.node, 1) == NRDMA_OK);
  CHECK(flush_storm(cluster.node, 2) == "");
  Job result("storm_result", {1});
  REQUIRE(result.to(2).run(cluster.node, 1) == NRDMA_OK);
  CHECK(result.text() == "");
  CHECK(now() - start < 5.0 * stretch());
}

TEST_CASE("nesting beyond any depth is an error, not a hang") {
  Cluster cluster(0, one_worker(), one_worker());
  // Each level waits inside execute() for the next: 300 is past the bound of 256.
  std::atomic<int> deepest{0}, refused{0};
  std::function<nrdma_status(int)> level = [&](int depth) -> nrdma_status {
    deepest = std::max(deepest.load(), depth);
    if (depth == 300) return NRDMA_OK;
    Job inner("nothing");
    inner.table.mode = NRDMA_LOCAL;
    inner.execute = [&, depth](const nrdma_fragment*) { return level(depth + 1); };
    const nrdma_status status = inner.run(cluster.node, 1);
    if (status != NRDMA_OK && deepest == depth) refused++;
    return status;
  };
  CHECK(level(0) != NRDMA_OK);
  CHECK(deepest >= 8);
  CHECK(deepest < 300);
  CHECK(refused == 1);
  std::atomic<int> reached{0};
  CHECK(nest_here(cluster.node, 3, reached) == NRDMA_OK);
}
