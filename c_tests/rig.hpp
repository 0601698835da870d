// What every C++ behaviour test needs: a place in the file system, nodes, jobs from lambdas, limits.
#ifndef NRDMA_TEST_RIG_HPP
#define NRDMA_TEST_RIG_HPP
#include <nrdma/nrdma.h>
#include <nrdma/nrdma.hpp>

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pattern.h"
#include "watch.h"

namespace rig {

inline watch_state watch;
// The engine under test: set from --engine before any case runs.
inline std::string engine = "inproc";
// This program, for worker processes.
inline std::string program;
// Worker processes live behind shm, ucx and tcp; behind inproc the workers are nodes of this process.
inline bool processes() { return engine != "inproc"; }
// Whether nodes meet at host:port.
inline bool by_port() { return engine == "tcp" || engine == "ucx"; }
// Their IP address: an RDMA device is found by its own.
inline std::string own_ip() {
  const char* given = std::getenv("NRDMA_TEST_ADDRESS");
  return given != nullptr ? given : "127.0.0.1";
}

inline double now() { return watch_now(); }
inline void sleep_ms(unsigned ms) { watch_sleep_ms(ms); }
inline double stretch() { return watch_stretch(); }

// Polls until it holds or the time is over.
template <class Condition>
bool eventually(Condition condition, double seconds = 5.0) {
  for (const double end = now() + seconds * stretch(); now() < end; sleep_ms(2))
    if (condition()) return true;
  return condition();
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
inline std::string last_error() { return nrdma_last_error(); }

// A private directory for sockets and cookies; removed at the end, also by the watchdog.
class Scratch {
 public:
  static std::string& path() {
    static std::string value;
    return value;
  }
  static void make() {
    char name[] = "/tmp/nrdma-test-XXXXXX";
    if (mkdtemp(name) == nullptr) {
      std::perror("mkdtemp");
      std::exit(1);
    }
    path() = name;
    // Before the library starts: its cookie and sockets must not meet those of other tests.
    setenv("XDG_RUNTIME_DIR", name, 1);
    setenv("TMPDIR", name, 1);
  }
  static void remove() {
    if (!path().empty()) remove_tree(path());
    path().clear();
  }
  static void remove(const std::string& other) { remove_tree(other); }
  static std::string address() {
    if (by_port()) return own_ip() + ":" + std::to_string(free_port());
    static std::atomic<int> next{0};
    return "unix:" + path() + "/" + std::to_string(next++) + ".sock";
  }

 private:
  // A port that nobody listens at now.
  static int free_port() {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    if (inet_pton(AF_INET, own_ip().c_str(), &where.sin_addr) != 1) throw std::runtime_error("no address: " + own_ip());
    socklen_t length = sizeof where;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&where), length) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&where), &length) != 0)
      throw std::runtime_error("no free port");
    close(fd);
    return ntohs(where.sin_port);
  }
  static void remove_tree(const std::string& folder) {
    if (DIR* dir = opendir(folder.c_str())) {
      while (dirent* entry = readdir(dir)) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        struct stat info {};
        const std::string full = folder + "/" + name;
        if (lstat(full.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
          remove_tree(full);
        else
          unlink(full.c_str());
      }
      closedir(dir);
    }
    rmdir(folder.c_str());
  }
};

// Names in /dev/shm and /tmp that carry the library's name, and are new since the first call: there must be none. Test
// folders and the shared cookie folder (other processes use it) do not count.
inline std::set<std::string> library_files() {
  std::set<std::string> found;
  const std::string cookies = "nrdma-" + std::to_string(getuid());
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    DIR* dir = opendir(folder);
    if (dir == nullptr) continue;
    while (dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (contains(name, "nrdma") && name.rfind("nrdma-test-", 0) != 0 && name != cookies)
        found.insert(std::string(folder) + "/" + name);
    }
    closedir(dir);
  }
  return found;
}
inline std::set<std::string> left_behind() {
  static const std::set<std::string> before = library_files();
  std::set<std::string> left;
  for (const std::string& name : library_files())
    if (before.count(name) == 0) left.insert(name);
  return left;
}

// A stranger's connection to a listening node, of the given type; -1: refused.
inline int knock(const std::string& address, int type) {
  sockaddr_un file{};
  sockaddr_in port{};
  const bool is_file = address.rfind("unix:", 0) == 0;
  if (is_file) {
    file.sun_family = AF_UNIX;
    std::strncpy(file.sun_path, address.c_str() + 5, sizeof file.sun_path - 1);
  } else {
    port.sin_family = AF_INET;
    const size_t colon = address.rfind(':');
    port.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
    if (inet_pton(AF_INET, address.substr(0, colon).c_str(), &port.sin_addr) != 1) return -1;
  }
  const int fd = socket(is_file ? AF_UNIX : AF_INET, (is_file ? type : SOCK_STREAM) | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int connected = is_file ? connect(fd, reinterpret_cast<sockaddr*>(&file), sizeof file)
                                : connect(fd, reinterpret_cast<sockaddr*>(&port), sizeof port);
  if (connected == 0) return fd;
  close(fd);
  return -1;
}

// A gate that opens once.
class Gate {
 public:
  void open() {
    std::lock_guard<std::mutex> guard(lock_);
    open_ = true;
    change_.notify_all();
  }
  bool wait(double seconds = 10.0) {
    std::unique_lock<std::mutex> guard(lock_);
    return change_.wait_for(guard, std::chrono::duration<double>(seconds * stretch()), [this] { return open_; });
  }

 private:
  std::mutex lock_;
  std::condition_variable change_;
  bool open_ = false;
};

// +1 taken over, released at the end.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(nrdma_buffer* buffer) : buffer_(buffer) {}
  Buffer(Buffer&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~Buffer() { reset(); }
  static Buffer retained(nrdma_buffer* buffer) {
    nrdma_buffer_retain(buffer);
    return Buffer(buffer);
  }
  void reset() {
    if (buffer_ != nullptr) nrdma_buffer_release(buffer_);
    buffer_ = nullptr;
  }
  nrdma_buffer* get() const { return buffer_; }
  nrdma_buffer* detach() { return std::exchange(buffer_, nullptr); }
  uint8_t* data() const { return nrdma_buffer_get_data(buffer_); }
  uint64_t size() const { return nrdma_buffer_get_size(buffer_); }
  explicit operator bool() const { return buffer_ != nullptr; }

 private:
  nrdma_buffer* buffer_ = nullptr;
};

// A context, +1.
class Context {
 public:
  Context(nrdma_node* node, uint32_t host) : context_(nrdma_node_get_rdma_context(node, host)) {}
  explicit Context(nrdma_context* taken) : context_(taken) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { reset(); }
  void reset() {
    if (context_ != nullptr) nrdma_context_release(context_);
    context_ = nullptr;
  }
  nrdma_context* get() const { return context_; }
  Buffer read(uint64_t size) const { return Buffer(nrdma_context_get_read_memory(context_, size, -1)); }
  Buffer write(uint64_t size) const { return Buffer(nrdma_context_get_write_memory(context_, size, -1)); }
  explicit operator bool() const { return context_ != nullptr; }

 private:
  nrdma_context* context_;
};

// Settings that differ from the defaults of a test node.
struct Setup {
  uint32_t host_id = 0;
  uint32_t worker_threads = 2;
  uint32_t heartbeat_ms = 0;
  uint32_t peer_timeout_ms = 0;
  uint32_t shutdown_timeout_ms = 0;
  uint32_t connect_timeout_ms = 0;  // this and the one above: not for worker processes
  uint32_t zero_copy = 0;
  const char* auth_token = nullptr;  // not for worker processes
  uint64_t address_space = 0;  // worker processes only: RLIMIT_AS in bytes above what is mapped at the start
  int signal_fd = -1;          // worker processes only: inherited, for acts that must say "started"
};

inline nrdma_status create_node(const Setup& setup, nrdma_node** node) {
  nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
  const std::string name = "test-" + std::to_string(setup.host_id);
  config.name = name.c_str();
  config.host_id = setup.host_id;
  config.worker_threads = setup.worker_threads;
  config.transports = engine.empty() ? nullptr : engine.c_str();
  config.auth_token = setup.auth_token;
  config.heartbeat_ms = setup.heartbeat_ms;
  config.peer_timeout_ms = setup.peer_timeout_ms;
  config.shutdown_timeout_ms = setup.shutdown_timeout_ms;
  config.connect_timeout_ms = setup.connect_timeout_ms;
  config.zero_copy = setup.zero_copy;
  return nrdma_node_create(&config, node);
}

class Node {
 public:
  Node() : Node(Setup()) {}
  explicit Node(const Setup& setup) {
    if (create_node(setup, &node_) != NRDMA_OK) throw std::runtime_error("nrdma_node_create: " + last_error());
  }
  Node(Node&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { destroy(); }
  void destroy() {
    if (node_ == nullptr) return;
    nrdma_node_shutdown(node_, 0);
    nrdma_node_destroy(node_);
    node_ = nullptr;
  }
  nrdma_node* get() const { return node_; }
  operator nrdma_node*() const { return node_; }
  uint32_t id() const { return nrdma_node_host_id(node_); }
  std::string listen() const { return listen(Scratch::address()); }
  std::string listen(const std::string& address) const {
    char bound[256] = "";
    if (nrdma_node_listen(node_, address.c_str(), bound, sizeof bound) != NRDMA_OK)
      throw std::runtime_error("nrdma_node_listen: " + last_error());
    return bound;
  }
  uint32_t connect(const std::string& address) const {
    uint32_t host = 0;
    if (nrdma_node_connect(node_, address.c_str(), &host) != NRDMA_OK)
      throw std::runtime_error("nrdma_node_connect: " + last_error());
    return host;
  }
  nrdma_stats stats() const {
    nrdma_stats value{};
    value.struct_size = sizeof value;
    if (nrdma_node_stats(node_, &value) != NRDMA_OK) throw std::runtime_error("nrdma_node_stats: " + last_error());
    return value;
  }

 private:
  nrdma_node* node_ = nullptr;
};

}  // namespace rig
#endif
