// A worker that is stopped (SIGSTOP) in a fragment is given up and the fragment runs again. When it wakes and goes on
// writing, it must not reach anything the requester can still see.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
constexpr uint64_t size = 1 << 20;
constexpr uint8_t zombie_low = 0xA0;  // what the zombie writes: 0xA0 .. 0xAF

Setup impatient(uint32_t id) {
  Setup setup = with_id(Setup(), id);
  setup.heartbeat_ms = 60;
  setup.peer_timeout_ms = 300;
  return setup;
}
}  // namespace

// zombie's host, seed: there, says that it runs and writes for 4 s; elsewhere fills properly.
ACT(zombie) {
  p.result = p.write(size);
  EXPECT(p.result);
  if (p.site.host_id != p.a(0)) {
    pattern_fill(p.result.data(), size, p.a(1), 0);
    return;
  }
  std::memset(p.result.data(), zombie_low, size);
  EXPECT(write(p.site.signal_fd, "x", 1) == 1);
  uint8_t value = 0;
  for (const double end = now() + 4; now() < end; sleep_ms(1)) {
    std::memset(p.result.data(), zombie_low + (++value % 16), size);
    nrdma_context_flush(p.context, p.result.get());  // and tries to deliver it
  }
}

namespace {
struct Watched {
  const char* what;
  const uint8_t* data;
  std::vector<uint8_t> copy;
};

// Nothing of it changes for a while, in which the zombie writes.
std::string changes(const std::vector<Watched>& all, double seconds) {
  for (const double end = now() + seconds; now() < end; sleep_ms(5))
    for (const Watched& w : all)
      if (std::memcmp(w.data, w.copy.data(), w.copy.size()) != 0) return w.what;
  return "";
}

void stopped_worker(bool wrapped) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  std::vector<uint8_t> memory(wrapped ? size : 0, 0);
  std::vector<Watched> watched;
  {
    Cluster cluster(0, Setup(), impatient(1));
    Setup slow = impatient(2);
    slow.signal_fd = ends[1];
    cluster.add(slow);

    Job job("zombie", {2, 77}, size);
    std::mutex lock;
    std::vector<Buffer> lent;  // held, to see what becomes of the buffer that the zombie had
    std::atomic<int> good{0}, finals{0};
    job.result_buffer = [&](nrdma_context* c, uint64_t) {
      nrdma_buffer* b = wrapped ? nrdma_context_wrap_user_buffer(c, memory.data(), size, -1)
                                : nrdma_context_get_read_memory(c, size, -1);
      std::lock_guard<std::mutex> guard(lock);
      if (b != nullptr) lent.push_back(Buffer::retained(b));
      return b;
    };
    job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
      if ((r->flags & NRDMA_RESULT_FINAL) != 0) finals++;
      if (r->host_id == 3 && pattern_holds(nrdma_buffer_get_data(b), size, 77, 0)) good++;
      return NRDMA_OK;
    };
    job.table.flags = NRDMA_JOB_RERUN_AFTER_PARTIAL;
    REQUIRE(job.start(cluster.node, 1) == NRDMA_OK);
    char byte = 0;
    REQUIRE(read(ends[0], &byte, 1) == 1);
    cluster.process(2).signal(SIGSTOP);
    // The host that the fragment will run on again. It joins now, so that the first could not but get it.
    Setup other = with_id(Setup(), 3);
    other.heartbeat_ms = 60;
    cluster.add(other);
    REQUIRE(cluster.events.wait(2, NRDMA_PEER_EVENT_LOST));
    REQUIRE(job.done.wait());
    CHECK(job.done_status == NRDMA_OK);
    CHECK(finals == 1);
    CHECK(good == 1);
    if (wrapped) CHECK(pattern_holds(memory.data(), size, 77, 0));

    REQUIRE(lent.size() >= 2);
    for (const Buffer& b : lent)
      watched.push_back({"a buffer of the job", b.data(), std::vector<uint8_t>(b.data(), b.data() + size)});
    // Memory that comes from the caches afterwards is not the zombie's either.
    const Context own(cluster.node, 0), next(cluster.node, 3);
    std::vector<Buffer> fresh;
    for (const Context* c : {&own, &next})
      for (int i = 0; i < 4; ++i) {
        fresh.push_back(c->read(size));
        REQUIRE(fresh.back());
        pattern_fill(fresh.back().data(), size, 5, 0);
        watched.push_back(
            {"fresh memory", fresh.back().data(), std::vector<uint8_t>(fresh.back().data(), fresh.back().data() + size)});
      }
    cluster.process(2).signal(SIGCONT);
    CHECK(changes(watched, 1.0) == "");
    // What the zombie had goes back to where it belongs; whoever gets memory next is still safe.
    lent.clear();
    watched.erase(watched.begin(), watched.begin() + static_cast<long>(watched.size() - fresh.size()));
    for (int i = 0; i < 4; ++i) {
      fresh.push_back(next.read(size));
      REQUIRE(fresh.back());
      std::memset(fresh.back().data(), 0x33, size);
      watched.push_back({"recycled memory", fresh.back().data(), std::vector<uint8_t>(size, 0x33)});
    }
    if (wrapped) {
      std::memset(memory.data(), 0x44, size);
      watched.push_back({"the host's own memory", memory.data(), std::vector<uint8_t>(size, 0x44)});
    }
    CHECK(changes(watched, 0.5) == "");
    CHECK(finals == 1);
    // The rest goes on working.
    Job after("zombie", {2, 78}, size);
    REQUIRE(after.run(cluster.node, 4) == NRDMA_OK);
    REQUIRE(after.results.size() == 4);
    for (const Received& r : after.results) CHECK(pattern_holds(r.bytes.data(), size, 78, 0));
    watched.clear();
    cluster.process(2).signal(SIGKILL);
  }
  close(ends[0]);
  close(ends[1]);
}
}  // namespace

TEST_CASE("a stopped worker that wakes cannot change a result: cached memory") { stopped_worker(false); }

TEST_CASE("a stopped worker that wakes cannot change a result: wrapped memory") { stopped_worker(true); }

TEST_CASE("a stop that is shorter than the time-out costs nothing") {
  Setup patient = with_id(Setup(), 2);
  patient.heartbeat_ms = 100;
  patient.peer_timeout_ms = 20000;
  Setup own;
  own.heartbeat_ms = 100;
  own.peer_timeout_ms = 20000;
  Cluster cluster(0, Setup(), own);
  cluster.add(patient);
  Job job("zombie", {99, 5}, size);
  cluster.process(2).signal(SIGSTOP);
  REQUIRE(job.start(cluster.node, 6) == NRDMA_OK);
  sleep_ms(600);
  CHECK(job.dones == 0);
  cluster.process(2).signal(SIGCONT);
  REQUIRE(job.done.wait());
  CHECK(job.done_status == NRDMA_OK);
  CHECK(job.results.size() == 6);
  for (const Received& r : job.results) CHECK(pattern_holds(r.bytes.data(), size, 5, 0));
  CHECK(cluster.events.count(2, NRDMA_PEER_EVENT_LOST) == 0);
  CHECK(cluster.node.stats().fragments_retried == 0);
}

TEST_CASE("peer_timeout_ms NONE: only confirmed death counts") {
  Setup own;
  own.heartbeat_ms = 50;
  own.peer_timeout_ms = static_cast<uint32_t>(NRDMA_NONE);
  Cluster cluster(0, Setup(), own);
  cluster.add(with_id(own, 2));
  cluster.process(2).signal(SIGSTOP);
  sleep_ms(800);
  CHECK(cluster.events.count(2, NRDMA_PEER_EVENT_LOST) == 0);
  cluster.process(2).signal(SIGKILL);
  CHECK(cluster.events.wait(2, NRDMA_PEER_EVENT_LOST));
}

TEST_CASE("a silent peer is lost after the time-out, and not before") {
  Cluster cluster(0, Setup(), impatient(1));
  cluster.add(impatient(2));
  sleep_ms(700);  // quiet, but alive
  CHECK(cluster.events.count(2, NRDMA_PEER_EVENT_LOST) == 0);
  const double start = now();
  cluster.process(2).signal(SIGSTOP);
  REQUIRE(cluster.events.wait(2, NRDMA_PEER_EVENT_LOST));
  const double took = cluster.events.when(2, NRDMA_PEER_EVENT_LOST) - start;
  std::printf("silent peer lost after %.0f ms (time-out 300 ms)\n", took * 1e3);
  CHECK(took > 0.2);
  CHECK(took < 3.0 * stretch());
  cluster.process(2).signal(SIGKILL);
}

int main(int argc, char** argv) {
  int code = 0;
  engine = "shm";  // or by --engine
  if (start_program(argc, argv, &code, 60)) return code;
  watch_case(&watch, "fault_stop", 60);
  doctest::Context context(argc, argv);
  return verdict(context.run());
}
