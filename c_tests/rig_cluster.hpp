// A requester with its workers: nodes of this process behind inproc, processes of their own otherwise.
#ifndef NRDMA_TEST_RIG_CLUSTER_HPP
#define NRDMA_TEST_RIG_CLUSTER_HPP
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <memory>

#include "rig_job.hpp"

extern char** environ;

namespace rig {

inline uint64_t mapped_bytes() {
  unsigned long pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return static_cast<uint64_t>(pages) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Limits the address space to what is mapped now plus `more`.
inline void limit_address_space(uint64_t more) {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 1);  // or each new thread reserves 64 MiB
#endif
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = mapped_bytes() + more;
  setrlimit(RLIMIT_AS, &limit);
}
inline void lift_address_space() {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_AS, &limit);
}

// Whether address-space limits mean anything here: sanitizers map terabytes and die when refused.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

// Workers that ended by themselves, but not well: a sanitizer's verdict, an exception, a crash.
inline std::atomic<int> bad_workers{0};

// A worker process, this program again. Start it from the main thread: it dies with the thread that made it.
// NRDMA_TEST_LAUNCHER names a command that runs one elsewhere: given the program and its arguments, it lives as long as
// the worker, ends with its exit status, and its death is the worker's.
class Process {
 public:
  Process(const std::string& address, const Setup& setup) {
    std::vector<std::string> words = {program,
                                      "--worker",
                                      address,
                                      engine,
                                      std::to_string(setup.host_id),
                                      std::to_string(setup.worker_threads),
                                      std::to_string(setup.heartbeat_ms),
                                      std::to_string(setup.peer_timeout_ms),
                                      std::to_string(setup.zero_copy),
                                      std::to_string(setup.address_space),
                                      std::to_string(setup.signal_fd)};
    std::vector<char*> argv;
    if (const char* launcher = std::getenv("NRDMA_TEST_LAUNCHER")) words.insert(words.begin(), launcher);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, words[0].c_str(), nullptr, nullptr, argv.data(), environ) != 0)
      throw std::runtime_error("cannot start " + words[0]);
  }
  Process(Process&& other) noexcept 
      : pid_(std::exchange(other.pid_, -1)), status_(other.status_), killed_(other.killed_) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(status_, other.status_);
    std::swap(killed_, other.killed_);
    return *this;
  }
  ~Process() {
    if (pid_ > 0 && !ended(3.0)) {
      std::fprintf(stderr, "worker %d did not end by itself\n", static_cast<int>(pid_));
      bad_workers++;
      signal(SIGKILL);
      ended(10.0);
    }
  }
  void signal(int number) {
    if (pid_ > 0) kill(pid_, number);
    killed_ = killed_ || number == SIGKILL;
  }
  // Waits for the end and keeps the exit status.
  bool ended(double seconds) {
    if (pid_ <= 0) return true;
    if (!eventually([this] { return waitpid(pid_, &status_, WNOHANG) == pid_; }, seconds)) return false;
    pid_ = -1;
    if (killed_ || (WIFEXITED(status_) && WEXITSTATUS(status_) == 0)) return true;
    std::fprintf(stderr, "a worker ended with status 0x%x\n", static_cast<unsigned>(status_));
    bad_workers++;
    return true;
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool killed_ = false;
};

// Peer events of one node.
class Events {
 public:
  struct Event {
    uint32_t host;
    int32_t what;
    double time;
  };
  void attach(nrdma_node* node) {
    if (nrdma_node_set_peer_callback(node, note, this) != NRDMA_OK) throw std::runtime_error(last_error());
  }
  uint64_t count(uint32_t host, int32_t what) {
    std::lock_guard<std::mutex> guard(lock_);
    uint64_t n = 0;
    for (const Event& e : events_)
      if (e.host == host && e.what == what) ++n;
    return n;
  }
  bool wait(uint32_t host, int32_t what, double seconds = 10.0) {
    return eventually([&] { return count(host, what) != 0; }, seconds);
  }
  double when(uint32_t host, int32_t what) {
    std::lock_guard<std::mutex> guard(lock_);
    for (const Event& e : events_)
      if (e.host == host && e.what == what) return e.time;
    return 0;
  }

 private:
  static void note(void* user, const nrdma_peer_info* peer, int32_t event) {
    auto& self = *static_cast<Events*>(user);
    std::lock_guard<std::mutex> guard(self.lock_);
    self.events_.push_back({peer->host_id, event, now()});
  }
  std::mutex lock_;
  std::vector<Event> events_;
};

inline Setup with_id(Setup setup, uint32_t id) {
  setup.host_id = id;
  return setup;
}

// The requester (host id 1) and its workers (from 2 on).
class Cluster {
 public:
  // Before the node: their callbacks may run until it is gone.
  Events events;
  Site site;  // the requester's own: workers may run jobs on it
  Node node;
  std::vector<uint32_t> hosts;

  explicit Cluster(unsigned workers, const Setup& setup = {}, Setup own = {}) : node(requester(setup, own)) {
    address_ = node.listen();
    events.attach(node);
    open_site(site, node);
    for (unsigned i = 0; i < workers; ++i) add(with_id(setup, 2 + i));
  }
  ~Cluster() {
    // Kept buffers go back first so that shutdown has nothing to name; other orders are cases of their own.
    for (auto& local : locals_) local->site.drop();
    site.drop();
    nrdma_node_shutdown(node, 0);
    for (auto& local : locals_) local->node.destroy();
    processes_.clear();
    node.destroy();
  }
  // Adds a worker and waits until it is a peer.
  void add(const Setup& setup) {
    const uint64_t before = events.count(setup.host_id, NRDMA_PEER_EVENT_JOINED);
    start(setup);
    if (!eventually([&] { return events.count(setup.host_id, NRDMA_PEER_EVENT_JOINED) > before; }, 20.0))
      throw std::runtime_error("worker " + std::to_string(setup.host_id) + " did not join");
    hosts.push_back(setup.host_id);
  }
  // A worker process that nobody waits for.
  Process spawn(const Setup& setup) const { return Process(address_, setup); }
  // Worker processes only.
  Process& process(uint32_t host) { return processes_.at(host); }

 private:
  void start(const Setup& setup) {
    if (processes()) {
      processes_.erase(setup.host_id);
      processes_.emplace(setup.host_id, Process(address_, setup));
      return;
    }
    locals_.push_back(std::make_unique<Local>(setup));
    open_site(locals_.back()->site, locals_.back()->node);
    locals_.back()->node.connect(address_);
  }
  static Setup requester(const Setup& setup, Setup own) {
    own.host_id = 1;
    own.zero_copy = setup.zero_copy;
    return own;
  }
  struct Local {
    Site site;
    Node node;
    explicit Local(const Setup& setup) : node(setup) {}
  };
  std::string address_;
  std::vector<std::unique_ptr<Local>> locals_;
  std::map<uint32_t, Process> processes_;
};

// Two nodes of this process, whatever the engine, so that both sides' state is at hand: a listens (id 1), b connects
// (id 2).
class Pair {
 public:
  Events a_events, b_events;
  Site a_site, b_site;
  Node a, b;
  std::string address;

  Pair() : Pair(Setup(), Setup()) {}
  Pair(const Setup& first, const Setup& second) : a(with_id(first, 1)), b(with_id(second, 2)), address(a.listen()) {
    a_events.attach(a);
    b_events.attach(b);
    open_site(a_site, a);
    open_site(b_site, b);
    b.connect(address);
    if (!a_events.wait(2, NRDMA_PEER_EVENT_JOINED) || !b_events.wait(1, NRDMA_PEER_EVENT_JOINED))
      throw std::runtime_error("the two nodes did not meet");
  }
  ~Pair() {
    a_site.drop();
    b_site.drop();
    b.destroy();
    a.destroy();
  }
};

// The worker process: registers the classes, connects, stays until the requester is gone.
inline int worker_main(char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    const auto number = [argv](int i) { return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)); };
    engine = argv[1];
    Setup setup;
    setup.host_id = number(2);
    setup.worker_threads = number(3);
    setup.heartbeat_ms = number(4);
    setup.peer_timeout_ms = number(5);
    setup.zero_copy = number(6);
    setup.address_space = std::strtoull(argv[7], nullptr, 10);
    setup.signal_fd = std::atoi(argv[8]);
    Events events;
    Site site;
    Node node(setup);
    open_site(site, node, setup.signal_fd);
    events.attach(node);
    const uint32_t host = node.connect(argv[0]);
    if (setup.address_space != 0) limit_address_space(setup.address_space);
    while (events.count(host, NRDMA_PEER_EVENT_LEFT) + events.count(host, NRDMA_PEER_EVENT_LOST) == 0) sleep_ms(5);
    lift_address_space();
    site.drop();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "worker: %s\n", error.what());
    return 1;
  }
}

// The verdict of a whole program: its cases, its workers, and what lies around.
inline int verdict(int failed) {
  const std::set<std::string> left = left_behind();
  for (const std::string& name : left) std::fprintf(stderr, "left behind: %s\n", name.c_str());
  if (bad_workers != 0) std::fprintf(stderr, "%d workers did not end well\n", bad_workers.load());
  Scratch::remove();
  return failed != 0 || bad_workers != 0 || !left.empty() ? 1 : 0;
}

// Plays the worker when asked to (true: `code` is the exit code), else takes --engine and starts the clock.
inline bool start_program(int argc, char** argv, int* code, double limit_s) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  program = length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string(argv[0]);
  if (argc >= 11 && std::string(argv[1]) == "--worker") {
    *code = worker_main(argv + 2);
    return true;
  }
  for (int i = 1; i + 1 < argc; ++i)
    if (std::string(argv[i]) == "--engine") engine = argv[i + 1];
  left_behind();  // what was there before
  Scratch::make();
  watch_start(&watch, limit_s, [] { Scratch::remove(); });
  return false;
}

}  // namespace rig
#endif
