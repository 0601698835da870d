// The programs that break a library which hands out result memory as write memory without care: after a fragment
// neither side can reach the other's memory, and every pointer a side still has stays good.
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
constexpr uint64_t MiB = 1 << 20;
// Whole pages, not whole pages, slab.
constexpr uint64_t sizes[] = {3000, 65536, 100001, MiB};

Setup with_zero_copy(uint32_t mode) {
  Setup setup;
  setup.zero_copy = mode;
  return setup;
}

// Runs a one-fragment job; the result buffer stays with the caller.
Buffer hold(Cluster& cluster, const char* act, std::vector<uint64_t> numbers, uint64_t capacity,
            uint64_t expected_size, uint64_t seed) {
  Job job(act, std::move(numbers), capacity);
  Buffer held;
  bool good = false;
  job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
    good = r->size == expected_size && pattern_holds(nrdma_buffer_get_data(b), expected_size, seed, 0);
    held = Buffer::retained(b);
    return NRDMA_OK;
  };
  CHECK(job.run(cluster.node, 1) == NRDMA_OK);
  CHECK(good);
  REQUIRE(held);
  return held;
}
}  // namespace

// key, size, seed: fills write memory, returns it and keeps it.
ACT(keep) {
  nrdma_buffer* b = nrdma_context_get_write_memory(p.context, p.a(1), -1);
  EXPECT(b != nullptr);
  pattern_fill(nrdma_buffer_get_data(b), p.a(1), p.a(2), 0);
  p.result = Buffer::retained(b);
  std::lock_guard<std::mutex> guard(p.site.lock);
  EXPECT(p.site.kept.emplace(p.a(0), b).second);
}

// key, size, seed: the kept buffer must still hold the seed's bytes; it is returned as it is.
ACT(give_kept) {
  std::lock_guard<std::mutex> guard(p.site.lock);
  nrdma_buffer* b = p.site.kept.at(p.a(0));
  EXPECT(pattern_holds(nrdma_buffer_get_data(b), p.a(1), p.a(2), 0));
  p.result = Buffer::retained(b);
}

// key, size, seed: changes the kept buffer and returns it.
ACT(change_kept) {
  std::lock_guard<std::mutex> guard(p.site.lock);
  nrdma_buffer* b = p.site.kept.at(p.a(0));
  pattern_fill(nrdma_buffer_get_data(b), p.a(1), p.a(2), 0);
  p.result = Buffer::retained(b);
}

// key, size: changes the kept buffer and sends nothing.
ACT(scribble_kept) {
  std::lock_guard<std::mutex> guard(p.site.lock);
  std::memset(nrdma_buffer_get_data(p.site.kept.at(p.a(0))), 0xEE, p.a(1));
}

// key: lets it go.
ACT(drop_kept) {
  std::lock_guard<std::mutex> guard(p.site.lock);
  nrdma_buffer_release(p.site.kept.at(p.a(0)));
  p.site.kept.erase(p.a(0));
}

TEST_CASE("aliasing 1: a replica keeps its write buffer and returns it for a later fragment") {
  for (const uint32_t mode : {0u, 1u, 2u}) {
    CAPTURE(mode);
    Cluster cluster(1, with_zero_copy(mode));
    for (const uint64_t size : sizes) {
      CAPTURE(size);
      Buffer first = hold(cluster, "keep", {size, size, 1}, size, size, 1);
      // Ours to write: the replica's copy must not change.
      std::memset(first.data(), 0xD1, size);
      Buffer second = hold(cluster, "give_kept", {size, size, 1}, size, size, 1);
      CHECK(bytes_differ(first.data(), size, 0xD1) == size);
      // The replica's to write: what we hold must not change.
      Buffer third = hold(cluster, "change_kept", {size, size, 2}, size, size, 2);
      CHECK(bytes_differ(first.data(), size, 0xD1) == size);
      CHECK(pattern_holds(second.data(), size, 1, 0));
      Job scribble("scribble_kept", {size, size});
      CHECK(scribble.run(cluster.node, 1) == NRDMA_OK);
      CHECK(pattern_holds(second.data(), size, 1, 0));
      CHECK(pattern_holds(third.data(), size, 2, 0));
      Job drop("drop_kept", {size});
      CHECK(drop.run(cluster.node, 1) == NRDMA_OK);
      CHECK(pattern_holds(third.data(), size, 2, 0));
    }
  }
}

// size, seed: within one job; the first fragment's buffer is the result of all.
ACT(keep_in_job) {
  std::lock_guard<std::mutex> guard(p.site.lock);
  nrdma_buffer*& kept = p.site.kept[p.a(1)];
  const uint64_t size = p.a(0);
  if (kept == nullptr) {
    kept = nrdma_context_get_write_memory(p.context, size, -1);
    EXPECT(kept != nullptr);
    pattern_fill(nrdma_buffer_get_data(kept), size, p.a(1), 0);
  } else {
    // Write memory of this fragment, written and thrown away.
    Buffer other = p.write(size);
    EXPECT(other);
    std::memset(other.data(), 0xEE, size);
  }
  EXPECT(pattern_holds(nrdma_buffer_get_data(kept), size, p.a(1), 0));
  p.result = Buffer::retained(kept);
}

TEST_CASE("aliasing 1 within one job, the requester writing over each result") {
  for (const uint32_t mode : {0u, 1u, 2u}) {
    CAPTURE(mode);
    Cluster cluster(1, with_zero_copy(mode));
    for (const uint64_t size : sizes) {
      CAPTURE(size);
      Job job("keep_in_job", {size, size}, size);
      job.table.thread_limit = 1;
      std::atomic<int> wrong{0}, calls{0};
      job.receive = [&](nrdma_buffer* b, const nrdma_result*) {
        calls++;
        if (!pattern_holds(nrdma_buffer_get_data(b), size, size, 0)) wrong++;
        std::memset(nrdma_buffer_get_data(b), 0xD1, size);
        return NRDMA_OK;
      };
      CHECK(job.run(cluster.node, 20) == NRDMA_OK);
      CHECK(calls == 20);
      CHECK(wrong == 0);
    }
  }
}

// size, seed: a second buffer is flushed while the first is half done.
ACT(flush_second) {
  const uint64_t size = p.a(0), half = size / 2;
  Buffer first = p.write(size);
  EXPECT(first);
  pattern_fill(first.data(), half, p.a(1), 0);
  Buffer second = p.write(size);
  EXPECT(second);
  EXPECT(second.data() != first.data());
  pattern_fill(second.data(), size, p.a(1) + 1, 0);
  EXPECT(nrdma_context_flush(p.context, second.get()) == 0);
  EXPECT(pattern_holds(first.data(), half, p.a(1), 0));
  pattern_fill(first.data() + half, size - half, p.a(1), half);
  p.result = std::move(first);
}

TEST_CASE("aliasing 2: flush of a second buffer while the first is half computed") {
  for (const uint32_t mode : {0u, 1u, 2u}) {
    CAPTURE(mode);
    Cluster cluster(1, with_zero_copy(mode));
    for (const uint64_t size : sizes) {
      CAPTURE(size);
      Job job("flush_second", {size, 70}, size);
      REQUIRE(job.run(cluster.node, 3) == NRDMA_OK);
      for (uint64_t i = 0; i < 3; ++i) {
        const auto got = job.of(i);
        REQUIRE(got.size() == 2);
        CHECK(pattern_holds(got[0]->bytes.data(), size, 71, 0));
        CHECK(pattern_holds(got[1]->bytes.data(), size, 70, 0));
      }
    }
  }
}

// size, offset, length, keep key (0: the parent is released).
ACT(return_view) {
  Buffer parent = p.write(p.a(0));
  EXPECT(parent);
  pattern_fill(parent.data(), p.a(0), 80, 0);
  p.result = Buffer(nrdma_buffer_duplicate(parent.get(), p.a(1), p.a(2)));
  EXPECT(p.result);
  if (p.a(3) != 0) {
    std::lock_guard<std::mutex> guard(p.site.lock);
    p.site.kept[p.a(3)] = parent.detach();
  }
}

TEST_CASE("aliasing 3: a view at an offset as the result") {
  for (const uint32_t mode : {0u, 1u, 2u}) {
    CAPTURE(mode);
    Cluster cluster(1, with_zero_copy(mode));
    uint64_t key = 1;
    for (const uint64_t size : sizes) {
      for (const uint64_t offset : {uint64_t(0), uint64_t(1), uint64_t(64), size / 2}) {
        CAPTURE(size);
        CAPTURE(offset);
        const uint64_t length = size - offset - (offset == 0 ? 0 : 1);
        for (const bool kept : {false, true}) {
          Job job("return_view", {size, offset, length, kept ? key : 0}, size);
          REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
          REQUIRE(job.results.size() == 1);
          CHECK(job.results[0].size == length);
          CHECK(pattern_holds(job.results[0].bytes.data(), length, 80, offset));
        }
        // The kept parent is still whole.
        Buffer again = hold(cluster, "give_kept", {key, size, 80}, size, size, 80);
        Job scribble("scribble_kept", {key, size});
        CHECK(scribble.run(cluster.node, 1) == NRDMA_OK);
        CHECK(pattern_holds(again.data(), size, 80, 0));
        ++key;
      }
    }
  }
}

// key, size, how (0 NULL, 1 an error, 2 another buffer): writes, keeps what it wrote, and does not deliver it.
ACT(write_and_withhold) {
  Buffer b = p.write(p.a(1));
  EXPECT(b);
  pattern_fill(b.data(), p.a(1), 90, 0);
  if (p.a(2) == 2) {
    p.result = Buffer(nrdma_context_get_read_memory(p.context, p.a(1), -1));
    EXPECT(p.result);
    pattern_fill(p.result.data(), p.a(1), 91, 0);
  }
  {
    std::lock_guard<std::mutex> guard(p.site.lock);
    EXPECT(p.site.kept.emplace(p.a(0), b.detach()).second);
  }
  if (p.a(2) == 1) throw std::runtime_error("on purpose");
}

TEST_CASE("aliasing 4: NULL, an error, or another buffer after having written") {
  for (const uint32_t mode : {0u, 1u, 2u}) {
    CAPTURE(mode);
    Cluster cluster(1, with_zero_copy(mode));
    uint64_t key = 1;
    for (const uint64_t size : sizes) {
      for (const uint64_t how : {uint64_t(0), uint64_t(1), uint64_t(2)}) {
        CAPTURE(size);
        CAPTURE(how);
        Job job("write_and_withhold", {key, size, how}, size);
        job.to(2);  // no second try
        Buffer lent;
        job.result_buffer = [&](nrdma_context* c, uint64_t) {
          nrdma_buffer* b = nrdma_context_get_read_memory(c, size, -1);
          lent = Buffer::retained(b);
          return b;
        };
        CHECK(job.run(cluster.node, 1) == (how == 1 ? NRDMA_FRAGMENT_FAILED : NRDMA_OK));
        REQUIRE(job.results.size() == (how == 2 ? 1u : 0u));
        if (how == 2) CHECK(pattern_holds(job.results[0].bytes.data(), size, 91, 0));
        REQUIRE(lent);
        // Ours again, and cut off from the replica in both directions.
        std::memset(lent.data(), 0xD2, size);
        Job scribble("scribble_kept", {key, size});
        Buffer still = hold(cluster, "give_kept", {key, size, 90}, size, size, 90);
        CHECK(scribble.run(cluster.node, 1) == NRDMA_OK);
        CHECK(bytes_differ(lent.data(), size, 0xD2) == size);
        CHECK(pattern_holds(still.data(), size, 90, 0));
        // The same memory, recycled for another fragment, is out of the replica's reach too.
        lent.reset();
        Buffer recycled = hold(cluster, "fill", {size, 95}, size, size, 95);
        CHECK(scribble.run(cluster.node, 1) == NRDMA_OK);
        CHECK(pattern_holds(recycled.data(), size, 95, 0));
        ++key;
      }
    }
  }
}

TEST_CASE("aliasing 5: wrapped result memory and a replica that keeps its write buffer") {
  for (const uint32_t mode : {0u, 1u, 2u}) {
    CAPTURE(mode);
    Cluster cluster(1, with_zero_copy(mode));
    uint64_t key = 1;
    for (const uint64_t size : sizes) {
      CAPTURE(size);
      std::vector<uint8_t> memory(size + 128, 0xC5);
      const auto run = [&](const char* act, uint64_t seed) {
        Job job(act, {key, size, seed}, size);
        std::atomic<int> good{0};
        job.result_buffer = [&](nrdma_context* c, uint64_t) {
          return nrdma_context_wrap_user_buffer(c, memory.data() + 64, size, -1);
        };
        job.receive = [&](nrdma_buffer*, const nrdma_result* r) {
          if (r->size == size && pattern_holds(memory.data() + 64, size, seed, 0)) good++;
          return NRDMA_OK;
        };
        CHECK(job.run(cluster.node, 1) == NRDMA_OK);
        CHECK(good == 1);
      };
      run("keep", 1);
      std::memset(memory.data() + 64, 0xD3, size);
      Job scribble("scribble_kept", {key, size});
      CHECK(scribble.run(cluster.node, 1) == NRDMA_OK);
      CHECK(bytes_differ(memory.data() + 64, size, 0xD3) == size);
      run("change_kept", 2);
      std::memset(memory.data() + 64, 0xD4, size);
      run("give_kept", 2);
      CHECK(bytes_differ(memory.data(), 64, 0xC5) == 64);
      CHECK(bytes_differ(memory.data() + 64 + size, 64, 0xC5) == 64);
      ++key;
    }
  }
}

// key, size: a thread of the job's own goes on writing after the return.
ACT(late_writer) {
  nrdma_buffer* b = nrdma_context_get_write_memory(p.context, p.a(1), -1);
  EXPECT(b != nullptr);
  pattern_fill(nrdma_buffer_get_data(b), p.a(1), 99, 0);
  p.result = Buffer::retained(b);
  const uint64_t size = p.a(1);
  std::lock_guard<std::mutex> guard(p.site.lock);
  p.site.threads.emplace(p.a(0), std::thread([b, size] {
                           for (int i = 0; i < 50; ++i) {
                             sleep_ms(2);
                             std::memset(nrdma_buffer_get_data(b), 0x40 + i, size);
                           }
                           nrdma_buffer_release(b);
                         }));
}

ACT(join) {
  std::thread thread;
  {
    std::lock_guard<std::mutex> guard(p.site.lock);
    thread = std::move(p.site.threads.at(p.a(0)));
    p.site.threads.erase(p.a(0));
  }
  thread.join();
}

TEST_CASE("a thread of the job that still writes after the return cannot change what was received") {
  Cluster cluster(1);
  for (const uint64_t size : {uint64_t(65536), MiB}) {
    CAPTURE(size);
    Job job("late_writer", {size, size}, size);
    Buffer held;
    job.receive = [&](nrdma_buffer* b, const nrdma_result*) {
      held = Buffer::retained(b);
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
    REQUIRE(held);
    // What exactly was delivered is the job's own race; from now on it is fixed.
    const std::vector<uint8_t> seen(held.data(), held.data() + size);
    Job join("join", {size});
    CHECK(join.run(cluster.node, 1) == NRDMA_OK);
    CHECK(std::memcmp(seen.data(), held.data(), size) == 0);
  }
}
