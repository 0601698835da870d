// Who is inside a fragment: the fragment's own context object on any thread, the per-peer object by thread.
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

// key: the fragment's context is kept beyond the return.
ACT(keep_context) {
  p.result = p.write(64);
  EXPECT(p.result);
  pattern_fill(p.result.data(), 64, 1, 0);
  EXPECT(nrdma_context_flush(p.context, p.result.get()) == 0);
  EXPECT(nrdma_context_retain(p.context) >= 2);
  std::lock_guard<std::mutex> guard(p.site.lock);
  p.site.contexts.emplace(p.a(0), p.context);
}

// key, capacity of the kept context's fragment: it now behaves as outside, although this runs inside another one.
ACT(use_kept_context) {
  nrdma_context* kept = nullptr;
  {
    std::lock_guard<std::mutex> guard(p.site.lock);
    kept = p.site.contexts.at(p.a(0));
    p.site.contexts.erase(p.a(0));
  }
  EXPECT(kept != p.context);
  const Context owner(kept);
  Buffer b(nrdma_context_get_write_memory(kept, p.a(1) * 3, -1));
  EXPECT(b);  // not bounded
  std::memset(b.data(), 0xAA, b.size());
  EXPECT(nrdma_context_flush(kept, b.get()) == NRDMA_NOT_IN_FRAGMENT);
  EXPECT(nrdma_context_flush(kept, nullptr) == NRDMA_INVALID_PARAMETER);
  p.result = p.write(64);
  EXPECT(p.result);
  pattern_fill(p.result.data(), 64, 2, 0);
}

TEST_CASE("a fragment's context that is kept after the return behaves as outside") {
  Cluster cluster(1);
  for (uint64_t key = 0; key < 3; ++key) {
    Job keep("keep_context", {key}, 64);
    REQUIRE(keep.run(cluster.node, 1) == NRDMA_OK);
    CHECK(keep.results.size() == 2);
    Job use("use_kept_context", {key, 64}, 64);
    REQUIRE(use.run(cluster.node, 1) == NRDMA_OK);
    REQUIRE(use.results.size() == 1);
    CHECK(pattern_holds(use.results[0].bytes.data(), 64, 2, 0));
  }
}

// capacity: the per-peer object on the fragment's thread is inside, on another thread outside.
ACT(peer_context) {
  const uint64_t capacity = p.a(0);
  const Context peer(p.site.node, p.fragment->host_id);
  EXPECT(peer);
  EXPECT(peer.get() != p.context);
  EXPECT(nrdma_context_get_write_memory(peer.get(), capacity + 1, -1) == nullptr);
  Buffer b(nrdma_context_get_write_memory(peer.get(), capacity, -1));
  EXPECT(b);
  pattern_fill(b.data(), capacity, 10, 0);
  EXPECT(nrdma_context_flush(peer.get(), b.get()) == 0);
  std::string complaint;
  std::thread([&] {
    const Buffer large(nrdma_context_get_write_memory(peer.get(), capacity + 1, -1));
    if (!large) complaint = "bounded on another thread";
    if (nrdma_context_flush(peer.get(), b.get()) != NRDMA_NOT_IN_FRAGMENT) complaint = "flush on another thread";
    // The fragment's own object is inside on every thread.
    if (nrdma_context_get_write_memory(p.context, capacity + 1, -1) != nullptr) complaint = "own context unbounded";
    pattern_fill(b.data(), capacity, 11, 0);
    if (nrdma_context_flush(p.context, b.get()) != 0) complaint = "own context's flush on another thread";
  }).join();
  if (!complaint.empty()) throw Complaint(complaint);
  pattern_fill(b.data(), capacity, 12, 0);
  p.result = std::move(b);
}

TEST_CASE("the per-peer context goes by the thread, the fragment's own by the object") {
  Cluster cluster(1);
  for (const uint64_t capacity : {uint64_t(512), uint64_t(1) << 20}) {
    CAPTURE(capacity);
    Job job("peer_context", {capacity}, capacity);
    REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
    REQUIRE(job.results.size() == 3);
    for (uint64_t i = 0; i < 3; ++i) CHECK(pattern_holds(job.results[i].bytes.data(), capacity, 10 + i, 0));
  }
}

// size, threads, flushes per thread: with threads of its own, or with OpenMP's where the compiler has it.
ACT(parallel) {
  const uint64_t size = p.a(0);
  std::atomic<int> wrong{0};
  const auto work = [&](uint64_t t) {
    Buffer b(nrdma_context_get_write_memory(p.context, size, -1));
    if (!b) {
      wrong++;
      return;
    }
    for (uint64_t i = 0; i < p.a(2); ++i) {
      const uint64_t seed = t * 1000 + i;
      std::memcpy(b.data(), &seed, sizeof seed);
      pattern_fill(b.data() + 8, size - 8, seed, 0);
      if (nrdma_context_flush(p.context, b.get()) != 0) wrong++;
    }
  };
#ifdef _OPENMP
  const int team_size = static_cast<int>(p.a(1));
#pragma omp parallel for num_threads(team_size) schedule(static, 1)
  for (int t = 0; t < team_size; ++t) work(static_cast<uint64_t>(t));
#else
  std::vector<std::thread> team;
  for (uint64_t t = 0; t < p.a(1); ++t) team.emplace_back(work, t);
  for (std::thread& thread : team) thread.join();
#endif
  EXPECT(wrong == 0);
}

TEST_CASE("threads inside a fragment call get_write_memory and flush at once") {
  Cluster cluster(1);
  for (const uint64_t size : {uint64_t(64), uint64_t(65536), uint64_t(200001)}) {
    CAPTURE(size);
    const double start = now();
    Job job("parallel", {size, 4, 25}, size);
    std::atomic<int> torn{0};
    std::vector<uint64_t> seeds;
    std::vector<uint32_t> sequences;
    job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
      uint64_t seed = 0;
      std::memcpy(&seed, nrdma_buffer_get_data(b), sizeof seed);
      if (r->size != size || !pattern_holds(nrdma_buffer_get_data(b) + 8, size - 8, seed, 0)) torn++;
      std::lock_guard<std::mutex> guard(job.lock);
      seeds.push_back(seed);
      sequences.push_back(r->sequence);
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
    CHECK(torn == 0);
    CHECK(seeds.size() == 100);
    for (uint32_t i = 0; i < sequences.size(); ++i) CHECK(sequences[i] == i);
    // Each thread's own flushes are in its order, and none is lost.
    std::map<uint64_t, uint64_t> next;
    for (const uint64_t seed : seeds) CHECK(seed % 1000 == next[seed / 1000]++);
    CHECK(next.size() == 4);
    CHECK(now() - start < 5.0 * stretch());
  }
}

// capacity: every way flush can refuse.
ACT(flush_table) {
  const uint64_t capacity = p.a(0);
  p.result = p.write(capacity);
  EXPECT(p.result);
  pattern_fill(p.result.data(), capacity, 20, 0);
  EXPECT(nrdma_context_flush(p.context, nullptr) == NRDMA_INVALID_PARAMETER);
  const Context self(p.site.node, 0);
  EXPECT(self);
  const Buffer foreign = self.read(capacity);
  EXPECT(foreign);
  EXPECT(nrdma_context_flush(p.context, foreign.get()) == NRDMA_INVALID_PARAMETER);
  const Buffer large(nrdma_context_get_read_memory(p.context, capacity + 1, -1));
  EXPECT(large);
  nrdma_clear_error();
  EXPECT(nrdma_context_flush(p.context, large.get()) == NRDMA_INVALID_PARAMETER);
  EXPECT(contains(last_error(), std::to_string(capacity)));
  EXPECT(contains(last_error(), std::to_string(capacity + 1)));
  // A view of the large one that fits is fine.
  const Buffer part(nrdma_buffer_duplicate(large.get(), 1, capacity));
  EXPECT(part);
  pattern_fill(part.data(), capacity, 21, 0);
  EXPECT(nrdma_context_flush(p.context, part.get()) == 0);
  // Of the right peer, taken through the per-peer object, it is no foreigner.
  const Context peer(p.site.node, p.fragment->host_id);
  const Buffer same = peer.read(capacity);
  EXPECT(same);
  pattern_fill(same.data(), capacity, 22, 0);
  EXPECT(nrdma_context_flush(p.context, same.get()) == 0);
  // This host's context runs no fragment: -2, but -1 wins.
  EXPECT(nrdma_context_flush(self.get(), foreign.get()) == NRDMA_NOT_IN_FRAGMENT);
  EXPECT(nrdma_context_flush(self.get(), nullptr) == NRDMA_INVALID_PARAMETER);
  EXPECT(nrdma_context_flush(self.get(), p.result.get()) == NRDMA_INVALID_PARAMETER);
}

TEST_CASE("flush inside: NULL, foreign and too large are -1 and send nothing") {
  Cluster cluster(1);
  for (const uint64_t capacity : {uint64_t(300), uint64_t(65536)}) {
    CAPTURE(capacity);
    Job job("flush_table", {capacity}, capacity);
    REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
    REQUIRE(job.results.size() == 3);
    CHECK(pattern_holds(job.results[0].bytes.data(), capacity, 21, 0));
    CHECK(pattern_holds(job.results[1].bytes.data(), capacity, 22, 0));
    CHECK(pattern_holds(job.results[2].bytes.data(), capacity, 20, 0));
  }
}

ACT(return_large) { p.result = Buffer(nrdma_context_get_read_memory(p.context, p.a(0), -1)); }
ACT(return_foreign) {
  const Context self(p.site.node, 0);
  p.result = self.read(p.a(0));
}

TEST_CASE("a returned buffer that is too large or another peer's fails the fragment, in words") {
  Cluster cluster(1);
  SUBCASE("too large") {
    Job job("return_large", {70007}, 70000);
    CHECK(job.to(2).run(cluster.node, 1) == NRDMA_FRAGMENT_FAILED);
    CHECK(job.results.empty());
    REQUIRE(job.failures.size() == 1);
    CHECK(contains(job.failures[0].text, "70007"));
    CHECK(contains(job.failures[0].text, "70000"));
  }
  SUBCASE("another peer's") {
    Job job("return_foreign", {100}, 70000);
    CHECK(job.to(2).run(cluster.node, 1) == NRDMA_FRAGMENT_FAILED);
    CHECK(job.results.empty());
    REQUIRE(job.failures.size() == 1);
    CHECK(!job.failures[0].text.empty());
  }
  // The host goes on.
  Job after("nothing");
  CHECK(after.run(cluster.node, 3) == NRDMA_OK);
}

TEST_CASE("the requester's get_result_buffer is outside a fragment") {
  Cluster cluster(1);
  Job job("nothing");
  std::atomic<int> wrong{0};
  job.result_buffer = [&](nrdma_context* c, uint64_t) {
    const Buffer any(nrdma_context_get_write_memory(c, 1 << 20, -1));
    if (!any) wrong++;
    if (nrdma_context_flush(c, any.get()) != NRDMA_NOT_IN_FRAGMENT) wrong++;
    if (nrdma_context_flush(c, nullptr) != NRDMA_INVALID_PARAMETER) wrong++;
    return nrdma_context_get_read_memory(c, 4096, -1);
  };
  CHECK(job.run(cluster.node, 2) == NRDMA_OK);
  CHECK(wrong == 0);
}
