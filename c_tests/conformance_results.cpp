// Results of every size and kind arrive, byte for byte.
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
constexpr uint64_t MiB = 1 << 20;
constexpr uint64_t sizes[] = {1, 8, 63, 64, 4095, 4096, 65535, 65536, MiB, 5 * MiB + 3};
}  // namespace

// size, seed: a result of that size.
ACT(fill) {
  p.result = p.write(p.a(0));
  EXPECT(p.result);
  EXPECT(p.result.size() == p.a(0));
  pattern_fill(p.result.data(), p.a(0), p.a(1) + p.index(), 0);
}

TEST_CASE("plain results of every size") {
  Cluster cluster(2);
  for (const uint64_t size : sizes) {
    CAPTURE(size);
    Job job("fill", {size, 100}, size);
    std::atomic<int> wrong{0};
    job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
      if (nrdma_buffer_get_size(b) != size || r->size != size || r->count != 4) wrong++;
      if (!pattern_holds(nrdma_buffer_get_const_data(b), size, 100 + r->index, 0)) wrong++;
      job.keep(received_head(r));
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, 4) == NRDMA_OK);
    CHECK(wrong == 0);
    REQUIRE(job.results.size() == 4);
    std::set<uint64_t> indices;
    for (const Received& r : job.results) {
      indices.insert(r.index);
      CHECK(r.final);
      CHECK(r.sequence == 0);
      CHECK((r.host == 2 || r.host == 3));
      CHECK(r.path != NRDMA_PATH_NONE);
    }
    CHECK(indices.size() == 4);
    CHECK(job.failures.empty());
  }
}

TEST_CASE("a result smaller than its buffer: received length, and capacity as the buffer's size") {
  Cluster cluster(1);
  for (const uint64_t capacity : {uint64_t(1000), uint64_t(65536), MiB}) {
    for (const uint64_t size : {uint64_t(1), capacity / 2, capacity - 1}) {
      CAPTURE(size);
      Job job("fill", {size, 7}, capacity);
      REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
      REQUIRE(job.results.size() == 1);
      CHECK(job.results[0].size == size);
      CHECK(job.results[0].capacity == capacity);
      CHECK(pattern_holds(job.results[0].bytes.data(), size, 7, 0));
    }
  }
}

ACT(nothing) {}

TEST_CASE("a NULL result is not received") {
  Cluster cluster(1);
  Job job("nothing");
  CHECK(job.run(cluster.node, 10) == NRDMA_OK);
  CHECK(job.results.empty());
  CHECK(job.failures.empty());
}

// capacity: asks for too much first.
ACT(too_large) {
  const uint64_t capacity = p.a(0);
  nrdma_clear_error();
  EXPECT(nrdma_context_get_write_memory(p.context, capacity + 1, -1) == nullptr);
  EXPECT(contains(last_error(), std::to_string(capacity)));
  EXPECT(contains(last_error(), std::to_string(capacity + 1)));
  // Bounded is only what can become the result.
  EXPECT(Buffer(nrdma_context_get_read_memory(p.context, capacity * 2, -1)));
  p.result = p.write(capacity);
  EXPECT(p.result);
  pattern_fill(p.result.data(), capacity, 3, 0);
}

TEST_CASE("get_write_memory beyond the result buffer is NULL and names both sizes") {
  Cluster cluster(1);
  for (const uint64_t capacity : {uint64_t(1000), uint64_t(65536), uint64_t(70001)}) {
    CAPTURE(capacity);
    Job job("too_large", {capacity}, capacity);
    REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
    REQUIRE(job.results.size() == 1);
    CHECK(pattern_holds(job.results[0].bytes.data(), capacity, 3, 0));
  }
}

// pieces, piece size, bytes after the last flush.
ACT(write_bytes) {
  std::vector<uint8_t> piece(p.a(1));
  for (uint64_t i = 0; i < p.a(0); ++i) {
    pattern_fill(piece.data(), piece.size(), p.index(), i * piece.size());
    // In two parts: one flush may follow several writes.
    const uint64_t half = piece.size() / 2;
    EXPECT(nrdma_writer_write(p.writer, piece.data(), half) == NRDMA_OK);
    EXPECT(nrdma_writer_write(p.writer, piece.data() + half, piece.size() - half) == NRDMA_OK);
    EXPECT(nrdma_writer_flush(p.writer) == NRDMA_OK);
  }
  std::vector<uint8_t> rest(p.a(2));
  pattern_fill(rest.data(), rest.size(), p.index(), p.a(0) * piece.size());
  if (!rest.empty()) EXPECT(nrdma_writer_write(p.writer, rest.data(), rest.size()) == NRDMA_OK);
}

TEST_CASE("bytes: one call per flush with what was written since, and a last one on return") {
  Cluster cluster(1);
  struct Shape {
    uint64_t pieces, piece, rest;
  };
  for (const Shape& s :
       {Shape{0, 0, 0}, Shape{0, 0, 1}, Shape{5, 1000, 0}, Shape{20, 17, 33}, Shape{3, 300000, 3 * MiB}}) {
    CAPTURE(s.pieces);
    CAPTURE(s.rest);
    Job job("write_bytes", {s.pieces, s.piece, s.rest});
    job.bytes();
    REQUIRE(job.run(cluster.node, 3) == NRDMA_OK);
    for (uint64_t index = 0; index < 3; ++index) {
      const auto got = job.of(index);
      REQUIRE(got.size() == s.pieces + 1);
      uint64_t start = 0;
      for (uint64_t i = 0; i < got.size(); ++i) {
        const bool last = i == s.pieces;
        CHECK(got[i]->sequence == i);
        CHECK(got[i]->final == last);
        REQUIRE(got[i]->size == (last ? s.rest : s.piece));
        CHECK(pattern_holds(got[i]->bytes.data(), got[i]->size, index, start));
        start += got[i]->size;
      }
    }
  }
}

TEST_CASE("get_result_buffer that returns NULL asks for bytes") {
  Cluster cluster(1);
  Job job("write_bytes", {2, 100, 5});
  job.bytes();
  job.result_buffer = [](nrdma_context*, uint64_t) -> nrdma_buffer* { return nullptr; };
  job.receive = [](nrdma_buffer*, const nrdma_result*) { return NRDMA_FRAGMENT_FAILED; };
  CHECK(job.run(cluster.node, 1) == NRDMA_OK);
  CHECK(job.of(0).size() == 3);
}

// size, rounds: the buffer changes right after each flush.
ACT(flush_many) {
  const uint64_t size = p.a(0), rounds = p.a(1);
  p.result = p.write(size);
  EXPECT(p.result);
  for (uint64_t i = 0; i < rounds; ++i) {
    pattern_fill(p.result.data(), size, i, 0);
    EXPECT(nrdma_context_flush(p.context, p.result.get()) == 0);
    std::memset(p.result.data(), 0xEE, size);
  }
  pattern_fill(p.result.data(), size, rounds, 0);
}

TEST_CASE("100 flushes in order, each with its own bytes") {
  Cluster cluster(1);
  for (const uint64_t size : {uint64_t(8), uint64_t(4096), uint64_t(65536), uint64_t(300001)}) {
    CAPTURE(size);
    Job job("flush_many", {size, 100}, size);
    std::atomic<int> wrong{0};
    job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
      if (r->size != size || !pattern_holds(nrdma_buffer_get_data(b), size, r->sequence, 0)) wrong++;
      job.keep(received_head(r));
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, 2) == NRDMA_OK);
    CHECK(wrong == 0);
    for (uint64_t index = 0; index < 2; ++index) {
      const auto got = job.of(index);
      REQUIRE(got.size() == 101);
      for (uint64_t i = 0; i < got.size(); ++i) {
        CHECK(got[i]->sequence == i);
        CHECK(got[i]->final == (i == 100));
      }
    }
  }
}

TEST_CASE("flush returns only after the requester's callback has returned") {
  Cluster cluster(1);
  Job job("flush_many", {4096, 20}, 4096);
  std::atomic<int> inside{0}, overlaps{0}, torn{0};
  job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
    if (inside++ != 0) overlaps++;
    sleep_ms(3);  // had flush returned early, the buffer would have changed by now
    if (!pattern_holds(nrdma_buffer_get_const_data(b), 4096, r->sequence, 0)) torn++;
    inside--;
    return NRDMA_OK;
  };
  CHECK(job.run(cluster.node, 1) == NRDMA_OK);
  CHECK(overlaps == 0);
  CHECK(torn == 0);
}

// size, key: returns one kept buffer from every fragment.
ACT(share) {
  std::lock_guard<std::mutex> guard(p.site.lock);
  nrdma_buffer*& kept = p.site.kept[p.a(1)];
  if (kept == nullptr) {
    kept = p.write(p.a(0)).detach();
    EXPECT(kept != nullptr);
    pattern_fill(nrdma_buffer_get_data(kept), p.a(0), p.a(1), 0);
  }
  EXPECT(pattern_holds(nrdma_buffer_get_data(kept), p.a(0), p.a(1), 0));
  p.result = Buffer::retained(kept);
}

TEST_CASE("one buffer returned by several fragments and by different jobs") {
  Cluster cluster(1);
  for (const uint64_t size : {uint64_t(100), uint64_t(65536), MiB}) {
    CAPTURE(size);
    for (int round = 0; round < 3; ++round) {
      Job job("share", {size, size}, size);
      REQUIRE(job.run(cluster.node, 8) == NRDMA_OK);
      REQUIRE(job.results.size() == 8);
      for (const Received& r : job.results) {
        CHECK(r.size == size);
        CHECK(pattern_holds(r.bytes.data(), size, size, 0));
      }
    }
  }
}

TEST_CASE("retained results stay whole while later fragments run, and after execute") {
  Cluster cluster(2);
  for (const uint64_t size : {uint64_t(500), uint64_t(65536), MiB}) {
    CAPTURE(size);
    std::mutex lock;
    std::map<uint64_t, Buffer> held;
    for (uint64_t round = 0; round < 3; ++round) {
      Job job("fill", {size, 1000 * round}, size);
      job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
        std::lock_guard<std::mutex> guard(lock);
        held[1000 * round + r->index] = Buffer::retained(b);
        return NRDMA_OK;
      };
      REQUIRE(job.run(cluster.node, 8) == NRDMA_OK);
    }
    REQUIRE(held.size() == 24);
    std::set<const uint8_t*> places;
    for (auto& [seed, buffer] : held) {
      CHECK(pattern_holds(buffer.data(), size, seed, 0));
      places.insert(buffer.data());
    }
    CHECK(places.size() == 24);
  }
}

namespace {
// The host's own memory with guards around it.
struct Guarded {
  std::vector<uint8_t> all;
  uint64_t size;
  explicit Guarded(uint64_t n) : all(n + 131, 0xC5), size(n) {}
  uint8_t* data() { return all.data() + 67; }  // odd on purpose
  bool intact() { return bytes_differ(all.data(), 67, 0xC5) == 67 && bytes_differ(data() + size, 64, 0xC5) == 64; }
};
}  // namespace

// size, seed, flushes: intermediate results first.
ACT(fill_flush) {
  p.result = p.write(p.a(0));
  EXPECT(p.result);
  for (uint64_t i = 0; i < p.a(2); ++i) {
    pattern_fill(p.result.data(), p.a(0), 5000 + i, 0);
    EXPECT(nrdma_context_flush(p.context, p.result.get()) == 0);
  }
  pattern_fill(p.result.data(), p.a(0), p.a(1) + p.index(), 0);
}

TEST_CASE("wrapped result memory: exact, guarded, free when execute returns") {
  Cluster cluster(1);
  for (const uint64_t size : {uint64_t(1), uint64_t(4096), uint64_t(100003), MiB + 7, 5 * MiB + 3}) {
    CAPTURE(size);
    std::vector<Guarded> memory(3, Guarded(size));
    std::atomic<uint64_t> wrong{0}, done{0}, calls{0};
    Job job("fill_flush", {size, 40, 2}, 0);
    job.result_buffer = [&](nrdma_context* c, uint64_t i) {
      return nrdma_context_wrap_user_buffer_with(
          c, memory[i].data(), size, -1, [](void* n) { ++*static_cast<std::atomic<uint64_t>*>(n); }, &done);
    };
    job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
      const uint64_t seed = (r->flags & NRDMA_RESULT_FINAL) != 0 ? 40 + r->index : 5000 + r->sequence;
      if (nrdma_buffer_get_data(b) != memory[r->index].data() || r->size != size) wrong++;
      if (!pattern_holds(memory[r->index].data(), size, seed, 0)) wrong++;
      if (r->path != NRDMA_PATH_STAGED && r->path != NRDMA_PATH_COPIED) wrong++;
      if (nrdma_buffer_get_path(b) != r->path) wrong++;
      calls++;
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, 3) == NRDMA_OK);
    CHECK(wrong == 0);
    CHECK(calls == 9);
    for (uint64_t i = 0; i < 3; ++i) {
      CHECK(memory[i].intact());
      CHECK(pattern_holds(memory[i].data(), size, 40 + i, 0));
      std::memset(memory[i].data(), 0x11, size);  // ours again
    }
    CHECK(eventually([&] { return done == 3; }));
    sleep_ms(20);
    CHECK(done == 3);
    for (Guarded& m : memory) CHECK(bytes_differ(m.data(), size, 0x11) == size);
  }
}

// size: returns the responder's own memory, wrapped.
ACT(return_wrapped) {
  auto* memory = new std::vector<uint8_t>(p.a(0) + 3);
  pattern_fill(memory->data() + 3, p.a(0), 8, 0);
  p.result = Buffer(nrdma_context_wrap_user_buffer_with(
      p.context, memory->data() + 3, p.a(0), -1, [](void* m) { delete static_cast<std::vector<uint8_t>*>(m); },
      memory));
  EXPECT(p.result);
  EXPECT(nrdma_context_flush(p.context, p.result.get()) == 0);
}

TEST_CASE("a responder may flush and return its own wrapped memory") {
  Cluster cluster(1);
  for (const uint64_t size : {uint64_t(10), uint64_t(100003), 2 * MiB}) {
    CAPTURE(size);
    Job job("return_wrapped", {size}, size);
    REQUIRE(job.run(cluster.node, 2) == NRDMA_OK);
    REQUIRE(job.results.size() == 4);
    for (const Received& r : job.results) CHECK(pattern_holds(r.bytes.data(), size, 8, 0));
  }
}

TEST_CASE("results in views of one big buffer fill it and nothing else") {
  Cluster cluster(1);
  for (const uint64_t stride : {uint64_t(100), uint64_t(4096), uint64_t(65536), uint64_t(70001)}) {
    CAPTURE(stride);
    constexpr uint64_t count = 16;
    const Context context(cluster.node, 2);
    Buffer big = context.read(stride * count + 200);
    REQUIRE(big);
    std::memset(big.data(), 0xC5, big.size());
    Job job("fill", {stride, 60});
    std::atomic<int> wrong{0};
    job.result_buffer = [&](nrdma_context*, uint64_t i) {
      return nrdma_buffer_duplicate(big.get(), 100 + i * stride, stride);
    };
    job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
      if (nrdma_buffer_get_data(b) != big.data() + 100 + r->index * stride || r->size != stride) wrong++;
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, count) == NRDMA_OK);
    CHECK(wrong == 0);
    for (uint64_t i = 0; i < count; ++i) CHECK(pattern_holds(big.data() + 100 + i * stride, stride, 60 + i, 0));
    CHECK(bytes_differ(big.data(), 100, 0xC5) == 100);
    CHECK(bytes_differ(big.data() + 100 + count * stride, 100, 0xC5) == 100);
  }
}

TEST_CASE("one result buffer lent to job after job") {
  Cluster cluster(1);
  const Context context(cluster.node, 2);
  Buffer only = context.read(MiB);
  REQUIRE(only);
  for (uint64_t round = 0; round < 10; ++round) {
    Job job("fill", {MiB, 10 * round});
    job.result_buffer = [&](nrdma_context*, uint64_t) { return Buffer::retained(only.get()).detach(); };
    std::atomic<int> wrong{0}, calls{0};
    job.receive = [&](nrdma_buffer* b, const nrdma_result*) {
      calls++;
      if (b != only.get() || !pattern_holds(only.data(), MiB, 10 * round, 0)) wrong++;
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
    CHECK(calls == 1);
    CHECK(wrong == 0);
  }
}

// The worker's counters.
ACT(stats) {
  nrdma_stats value{};
  value.struct_size = sizeof value;
  EXPECT(nrdma_node_stats(p.site.node, &value) == NRDMA_OK);
  p.result = p.write(sizeof value);
  EXPECT(p.result);
  std::memcpy(p.result.data(), &value, sizeof value);
}

namespace {
nrdma_stats worker_stats(Cluster& cluster) {
  Job job("stats", {}, sizeof(nrdma_stats));
  nrdma_stats value{};
  REQUIRE(job.to(2).run(cluster.node, 1) == NRDMA_OK);
  REQUIRE(job.results.size() == 1);
  REQUIRE(job.results[0].size == sizeof value);
  std::memcpy(&value, job.results[0].bytes.data(), sizeof value);
  return value;
}
uint64_t touched(const nrdma_stats& s) { return s.bytes_copied + s.bytes_staged; }
}  // namespace

TEST_CASE("shm: whole-page results travel mapped and nobody copies a byte") {
  if (engine != "shm") return;
  Cluster cluster(1);
  for (const uint64_t size : {uint64_t(65536), MiB, 16 * MiB}) {
    CAPTURE(size);
    // Asking is a small result by itself, which may be copied: the second question shows what one costs.
    const nrdma_stats first = worker_stats(cluster);
    const nrdma_stats before = worker_stats(cluster);
    const nrdma_stats here = cluster.node.stats();
    Job job("fill", {size, 5}, size);
    std::atomic<int> wrong{0};
    job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
      if (r->path != NRDMA_PATH_MAPPED || nrdma_buffer_get_path(b) != NRDMA_PATH_MAPPED) wrong++;
      if (!pattern_holds(nrdma_buffer_get_data(b), size, 5 + r->index, 0)) wrong++;
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, 4) == NRDMA_OK);
    CHECK(wrong == 0);
    CHECK(touched(cluster.node.stats()) == touched(here));
    CHECK(cluster.node.stats().bytes_mapped >= here.bytes_mapped + 4 * size);
    CHECK(touched(worker_stats(cluster)) - touched(before) <= touched(before) - touched(first));
  }
}

namespace {
// What lies at an address: device, inode and offset in that file.
std::string place_of(const void* address) {
  FILE* maps = std::fopen("/proc/self/maps", "r");
  if (maps == nullptr) return "no maps";
  std::string found = "not mapped";
  char line[512];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long from = 0, to = 0, offset = 0, inode = 0;
    char mode[8], device[16];
    if (std::sscanf(line, "%lx-%lx %7s %lx %15s %lu", &from, &to, mode, &offset, device, &inode) != 6) continue;
    const auto at = reinterpret_cast<unsigned long>(address);
    if (at < from || at >= to) continue;
    found = inode == 0 ? "anonymous memory"
                       : std::string(device) + " inode " + std::to_string(inode) + " offset " +
                             std::to_string(offset + at - from);
  }
  std::fclose(maps);
  return found;
}
}  // namespace

ACT(place) {
  p.result = p.write(p.a(0));
  EXPECT(p.result);
  const std::string where = place_of(p.result.data());
  std::memcpy(p.result.data(), where.c_str(), where.size() + 1);
}

TEST_CASE("shm: the responder's get_data() and the requester's are the same pages") {
  if (engine != "shm") return;
  Cluster cluster(1);
  for (const uint64_t size : {uint64_t(65536), MiB, 64 * MiB}) {
    CAPTURE(size);
    Job job("place", {size}, size);
    std::string there, here;
    job.receive = [&](nrdma_buffer* b, const nrdma_result*) {
      there = reinterpret_cast<const char*>(nrdma_buffer_get_data(b));
      here = place_of(nrdma_buffer_get_data(b));
      return NRDMA_OK;
    };
    REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
    CHECK(contains(here, "inode"));
    CHECK(here == there);
  }
}
