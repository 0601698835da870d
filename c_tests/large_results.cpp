// Results beyond 4 GiB: windows around 2^31 and 2^32 exact, neighbours untouched, memory bounded.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/mman.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
constexpr uint64_t KiB = 1 << 10, MiB = 1 << 20, GiB = 1 << 30;
constexpr uint64_t half = 32 * KiB + 5;  // a window reaches so far to both sides of its middle
constexpr uint64_t middles[] = {half, 2 * GiB, 4 * GiB};

// Memory of the host's own that takes room only where it is written; a page on both sides belongs to others.
class Sparse {
 public:
  explicit Sparse(uint64_t size) : size_(size), whole_(size + 2 * page) {
    memory_ = static_cast<uint8_t*>(mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory_ == MAP_FAILED) throw std::runtime_error("mmap");
    std::memset(memory_, 0xEE, page);
    std::memset(data() + size_, 0xEE, page);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  ~Sparse() { munmap(memory_, whole_); }
  uint8_t* data() const { return memory_ + page; }
  bool neighbours_untouched() const {
    for (uint64_t i = 0; i < page; ++i)
      if (memory_[i] != 0xEE || data()[size_ + i] != 0xEE) return false;
    return true;
  }

 private:
  static constexpr uint64_t page = 4096;
  uint64_t size_, whole_;
  uint8_t* memory_;
};

// A line of /proc/self/status in bytes.
uint64_t memory_now(const char* what) {
  uint64_t kib = 0;
  char line[256];
  FILE* file = std::fopen("/proc/self/status", "r");
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
    if (std::strncmp(line, what, std::strlen(what)) == 0) kib = std::strtoull(line + std::strlen(what) + 1, nullptr, 10);
  if (file != nullptr) std::fclose(file);
  return kib * KiB;
}
// From here on VmHWM is the most from here on.
uint64_t forget_peak() {
  if (FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", file);
    std::fclose(file);
  }
  return memory_now("VmRSS:");
}
uint64_t grown_since(uint64_t base) {
  const uint64_t peak = memory_now("VmHWM:");
  return peak > base ? peak - base : 0;
}

std::unique_ptr<Sparse> source;
uint64_t base_here = 0;
}  // namespace

// size: windows in a sea of zeros
ACT(windows) {
  source = std::make_unique<Sparse>(p.a(0));
  for (const uint64_t middle : middles) pattern_fill(source->data() + middle - half, 2 * half, middle, 0);
  pattern_fill(source->data() + p.a(0) - half, half, 1, 0);
  p.result = Buffer(nrdma_context_wrap_user_buffer(p.context, source->data(), p.a(0), -1));
  EXPECT(p.result);
}

// size: all of it
ACT(solid) {
  source = std::make_unique<Sparse>(p.a(0));
  pattern_fill(source->data(), p.a(0), 7, 0);
  base_here = forget_peak();
  p.result = Buffer(nrdma_context_wrap_user_buffer(p.context, source->data(), p.a(0), -1));
  EXPECT(p.result);
}

ACT(grown) { p.say(std::to_string(grown_since(base_here))); }

TEST_CASE("5 GiB: windows around 2^31 and 2^32") {
  constexpr uint64_t size = 5 * GiB + 77;
  Cluster cluster(1);
  Sparse target(size);
  // What must become zero, and what comes right after a window.
  for (const uint64_t middle : middles) std::memset(target.data() + middle - half, 0xAA, 4 * half);
  std::memset(target.data() + size - 2 * half, 0xAA, 2 * half);
  Job job("windows", {size});
  job.result_buffer = [&](nrdma_context* c, uint64_t) {
    return nrdma_context_wrap_user_buffer(c, target.data(), size, -1);
  };
  uint64_t received = 0;
  job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
    CHECK(nrdma_buffer_get_size(b) == size);
    received = r->size;
    return NRDMA_OK;
  };
  const double start = now();
  REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
  std::printf("%s: 5 GiB in %.2f s\n", engine.c_str(), now() - start);
  CHECK(received == size);
  for (const uint64_t middle : middles) {
    CAPTURE(middle);
    CHECK(pattern_holds(target.data() + middle - half, 2 * half, middle, 0));
    for (uint64_t i = 0; i < half; ++i)
      if (target.data()[middle + half + i] != 0) FAIL("byte " << i << " behind the window is not zero");
  }
  CHECK(pattern_holds(target.data() + size - half, half, 1, 0));
  CHECK(target.neighbours_untouched());
  CHECK(cluster.node.stats().fragments_retried == 0);
}

TEST_CASE("1 GiB: at most 64 MiB beyond the two buffers") {
  constexpr uint64_t size = GiB;
  Cluster cluster(1);
  Sparse target(size);
  std::memset(target.data(), 1, size);
  const uint64_t base = forget_peak();
  Job job("solid", {size});
  job.result_buffer = [&](nrdma_context* c, uint64_t) {
    return nrdma_context_wrap_user_buffer(c, target.data(), size, -1);
  };
  uint64_t wrong = 1, here = 0;
  job.receive = [&](nrdma_buffer*, const nrdma_result*) {
    here = grown_since(base);
    wrong = pattern_holds(target.data(), size, 7, 0) ? 0 : 1;
    return NRDMA_OK;
  };
  REQUIRE(job.run(cluster.node, 1) == NRDMA_OK);
  CHECK(wrong == 0);
  CHECK(target.neighbours_untouched());
  Job ask("grown");
  REQUIRE(ask.run(cluster.node, 1) == NRDMA_OK);
  const uint64_t there = std::strtoull(ask.text().c_str(), nullptr, 10);
  std::printf("%s: 1 GiB took %.1f MiB more here, %.1f MiB more there\n", engine.c_str(),
              static_cast<double>(here) / MiB, static_cast<double>(there) / MiB);
  CHECK(here <= 64 * MiB);
  CHECK(there <= 64 * MiB);
}

int main(int argc, char** argv) {
  int code = 0;
  engine = "shm";  // or by --engine
  if (start_program(argc, argv, &code, 400.0)) return code;
  watch_case(&watch, "large results", 400.0);
  // Both ends of the larger one, and some for others.
  char line[128];
  uint64_t available = 0;
  if (FILE* file = std::fopen("/proc/meminfo", "r")) {
    while (std::fgets(line, sizeof line, file) != nullptr)
      if (std::sscanf(line, "MemAvailable: %lu", &available) == 1) break;
    std::fclose(file);
  }
  if (sanitized || available < 7 * MiB) {
    std::printf("skipped: %lu KiB of memory are too few\n", available);
    Scratch::remove();
    return 77;
  }
  doctest::Context context;
  return verdict(context.run());
}
