// Memory and descriptors that cannot be had: NULL or a status with the numbers, nothing lost, no crash.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
constexpr uint64_t MiB = 1 << 20;

// Leaves `more` descriptors to be had; lifts the limit at the end.
class Descriptors {
 public:
  explicit Descriptors(unsigned more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min<rlim_t>(before_.rlim_max, end_of(more));
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~Descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  static unsigned open_now() {
    unsigned count = 0;
    scan([&](unsigned) { ++count; });
    return count;
  }

 private:
  // The least number that so many free descriptors are below of.
  static unsigned end_of(unsigned wanted) {
    std::set<unsigned> taken;
    scan([&](unsigned fd) { taken.insert(fd); });
    unsigned end = 0;
    for (; wanted > 0 || taken.count(end) != 0; ++end) wanted -= taken.count(end) == 0;
    return end;
  }
  template <class Each>
  static void scan(Each each) {
    DIR* dir = opendir("/proc/self/fd");
    if (dir == nullptr) return;
    const auto own = static_cast<unsigned>(dirfd(dir));
    while (dirent* entry = readdir(dir)) {
      if (entry->d_name[0] == '.') continue;
      const auto fd = static_cast<unsigned>(std::strtoul(entry->d_name, nullptr, 10));
      if (fd != own) each(fd);
    }
    closedir(dir);
  }
  rlimit before_{};
};

struct AddressSpace {
  explicit AddressSpace(uint64_t more) { limit_address_space(more); }
  ~AddressSpace() { lift_address_space(); }
};
}  // namespace

TEST_CASE("address space runs out: NULL, the size named, and all is well afterwards") {
  if (sanitized) return;
  Cluster cluster(1);
  for (const uint32_t host : {0u, 2u}) {  // private and shared memory
    CAPTURE(host);
    const Context context(cluster.node, host);
    // One of the small ones first: nothing of the house needs to be built under the limit.
    CHECK(context.read(100));
    const nrdma_stats before = cluster.node.stats();
    {
      const AddressSpace limit(64 * MiB);
      for (int i = 0; i < 5; ++i) {
        nrdma_clear_error();
        CHECK(!context.read(256 * MiB));
        CHECK(contains(last_error(), "268435456"));
        nrdma_clear_error();
        CHECK(!context.write(256 * MiB));
        CHECK(contains(last_error(), "268435456"));
      }
      Buffer small = context.read(MiB);
      REQUIRE(small);
      pattern_fill(small.data(), MiB, 1, 0);
      CHECK(pattern_holds(small.data(), MiB, 1, 0));
    }
    CHECK(cluster.node.stats().live_buffers == before.live_buffers);
    CHECK(cluster.node.stats().live_bytes == before.live_bytes);
    Buffer large = context.read(256 * MiB);
    REQUIRE(large);
    large.data()[256 * MiB - 1] = 1;
    large.reset();
    CHECK(nrdma_node_trim(cluster.node, 0) == NRDMA_OK);
  }
}

TEST_CASE("a size that no machine has") {
  Cluster cluster(1);
  for (const uint32_t host : {0u, 2u}) {
    const Context context(cluster.node, host);
    for (const uint64_t size : {uint64_t(1) << 50, uint64_t(1) << 62}) {
      nrdma_clear_error();
      CHECK(!context.read(size));
      CHECK(contains(last_error(), std::to_string(size)));
    }
  }
  Job job("small");
  CHECK(job.run(cluster.node, 3) == NRDMA_OK);
  CHECK(job.results.size() == 3);
}
ACT(small) {
  p.result = p.write(100);
  EXPECT(p.result);
  pattern_fill(p.result.data(), 100, p.index(), 0);
}

TEST_CASE("result buffers that cannot be had fail their fragments only") {
  Cluster cluster(1);
  Job job("small");
  job.result_buffer = [](nrdma_context* c, uint64_t i) {
    return nrdma_context_get_read_memory(c, i % 2 == 0 ? 1000 : uint64_t(1) << 62, -1);
  };
  CHECK(job.to(2).run(cluster.node, 10) == NRDMA_FRAGMENT_FAILED);
  CHECK(job.results.size() == 5);
  REQUIRE(job.failures.size() == 5);
  for (const Job::Failure& f : job.failures) {
    CHECK(f.index % 2 == 1);
    CHECK(!f.text.empty());
  }
}

// size, seed
ACT(big) {
  p.result = p.write(p.a(0));
  if (!p.result) throw std::runtime_error("no memory: " + last_error());
  pattern_fill(p.result.data(), 4096, p.a(1) + p.index(), 0);
}

TEST_CASE("a worker without memory: its fragments run here, none is lost") {
  if (sanitized) return;
  Setup poor;
  poor.address_space = 100 * MiB;
  Cluster cluster(1, poor);
  constexpr uint64_t size = 128 * MiB;
  // The buffer is this host's, wrapped: only the worker needs memory of its own.
  std::vector<uint8_t> memory(size);
  Job job("big", {size, 50});
  job.result_buffer = [&](nrdma_context* c, uint64_t) {
    return nrdma_context_wrap_user_buffer(c, memory.data(), size, -1);
  };
  std::atomic<int> here{0}, there{0};
  job.execute = [&](const nrdma_fragment*) {
    sleep_ms(10);
    here++;
    return NRDMA_OK;
  };
  job.receive = [&](nrdma_buffer*, const nrdma_result*) {
    there++;
    return NRDMA_OK;
  };
  job.table.thread_limit = 1;  // one buffer for all
  CHECK(job.run(cluster.node, 4) == NRDMA_OK);
  CHECK(here == 4);
  CHECK(there == 0);
  // It lives and is good for what it can do.
  Job after("small");
  const nrdma_status status = after.to(2).run(cluster.node, 3);
  for (const Job::Failure& f : after.failures) MESSAGE(f.text);
  CHECK(status == NRDMA_OK);
  CHECK(after.results.size() == 3);
}

TEST_CASE("shared windows that the worker cannot map: the fragment fails there, not the worker") {
  if (sanitized) return;
  Setup poor;
  poor.address_space = 100 * MiB;
  Cluster cluster(1, poor);
  Job job("big", {128 * MiB, 50}, 128 * MiB);
  std::atomic<int> here{0};
  job.execute = [&](const nrdma_fragment*) {
    sleep_ms(10);
    here++;
    return NRDMA_OK;
  };
  CHECK(job.run(cluster.node, 2) == NRDMA_OK);
  CHECK(here == 2);
  CHECK(cluster.events.count(2, NRDMA_PEER_EVENT_LOST) == 0);
  Job after("small");
  const nrdma_status status = after.to(2).run(cluster.node, 3);
  for (const Job::Failure& f : after.failures) MESSAGE(f.text);
  CHECK(status == NRDMA_OK);
}

TEST_CASE("few descriptors: every step fails in words until it works") {
  const unsigned open_before = Descriptors::open_now();
  Node listener(with_id(Setup(), 1));
  const std::string address = listener.listen();
  uint64_t worked = 0, refused = 0;
  for (unsigned more = 0; more <= 64 && worked < 3; ++more) {
    CAPTURE(more);
    const Descriptors limit(more);
    nrdma_node* node = nullptr;
    nrdma_clear_error();
    Setup setup = with_id(Setup(), 100 + more);
    setup.connect_timeout_ms = 300;  // the listener may have no descriptor left to accept with
    if (create_node(setup, &node) != NRDMA_OK) {
      CHECK(node == nullptr);
      CHECK(!last_error().empty());
      refused++;
      continue;
    }
    uint32_t host = 0;
    nrdma_clear_error();
    if (nrdma_node_connect(node, address.c_str(), &host) != NRDMA_OK) {
      CHECK(!last_error().empty());
      refused++;
    } else {
      const Context context(node, host);
      // Shared memory needs a descriptor for a moment.
      nrdma_clear_error();
      const Buffer b = context.read(MiB);
      if (!b) {
        CHECK(!last_error().empty());
        refused++;
      } else {
        b.data()[MiB - 1] = 1;
        worked++;
      }
    }
    nrdma_node_shutdown(node, 0);
    nrdma_node_destroy(node);
  }
  CHECK(refused > 0);
  CHECK(worked > 0);
  // The listener has come through all of it.
  {
    Node last(with_id(Setup(), 3));
    CHECK(last.connect(address) == 1);
  }
  listener.destroy();
  CHECK(eventually([&] { return Descriptors::open_now() == open_before; }));
}

TEST_CASE("64 descriptors: as many nodes as fit, a clear error for the next, and all again afterwards") {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit limit = before;
  limit.rlim_cur = 64;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (int round = 0; round < 2; ++round) {
    std::vector<Node> nodes;
    std::string error;
    for (int i = 0; i < 64 && error.empty(); ++i) {
      try {
        nodes.emplace_back(with_id(Setup(), static_cast<uint32_t>(10 + i)));
      } catch (const std::exception& refusal) {
        error = refusal.what();
      }
    }
    CHECK(nodes.size() >= 3);
    CHECK(!error.empty());
    CHECK((contains(error, "descriptor") || contains(error, "open files")));
    nrdma_stats stats{};
    stats.struct_size = sizeof stats;
    for (const Node& node : nodes) CHECK(nrdma_node_stats(node, &stats) == NRDMA_OK);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("buffers of a connected pair under a tight descriptor limit: no descriptor per buffer") {
  Pair pair;
  const Context context(pair.a, 2);
  CHECK(context.read(MiB));
  const Descriptors limit(4);
  std::vector<Buffer> held;
  for (int i = 0; i < 50; ++i) {
    held.push_back(context.read(MiB));
    REQUIRE(held.back());
    held.back().data()[0] = 1;
  }
  Job job("small");
  CHECK(job.run(pair.a, 10) == NRDMA_OK);
  CHECK(job.results.size() == 10);
}

int main(int argc, char** argv) {
  int code = 0;
  engine = "shm";  // or by --engine
  if (start_program(argc, argv, &code, 60)) return code;
  watch_case(&watch, "fault_memory", 60);
  doctest::Context context(argc, argv);
  return verdict(context.run());
}
