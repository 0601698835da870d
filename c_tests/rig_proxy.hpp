// Somebody between two nodes, who sees and may change what they say.
#ifndef NRDMA_TEST_RIG_PROXY_HPP
#define NRDMA_TEST_RIG_PROXY_HPP
#include <poll.h>

#include "rig.hpp"

namespace rig {

using Bytes = std::vector<uint8_t>;

// A stream socket with a time limit on everything.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) {
    const timeval limit{20, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  Stream(Stream&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Stream() {
    if (fd_ >= 0) close(fd_);
  }
  static Stream to(const std::string& address) {
    const int fd = knock(address, SOCK_STREAM);
    if (fd < 0) throw std::runtime_error("no connection to " + address);
    return Stream(fd);
  }
  bool say(const void* data, size_t size) {
    const auto* at = static_cast<const uint8_t*>(data);
    while (size > 0) {
      const ssize_t sent = send(fd_, at, size, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += sent;
      size -= static_cast<size_t>(sent);
    }
    return true;
  }
  bool hear(void* data, size_t size) { return size == 0 || recv(fd_, data, size, MSG_WAITALL) == static_cast<ssize_t>(size); }
  // A message of the handshake: its length and its bytes.
  bool say_message(const Bytes& body) {
    Bytes whole(4 + body.size());
    const auto length = static_cast<uint32_t>(body.size());
    std::memcpy(whole.data(), &length, 4);
    std::copy(body.begin(), body.end(), whole.begin() + 4);
    return say(whole.data(), whole.size());
  }
  bool hear_message(Bytes& body) {
    uint32_t length = 0;
    if (!hear(&length, 4) || length > 70000) return false;
    body.resize(length);
    return hear(body.data(), length);
  }
  // What is there now.
  ssize_t some(uint8_t* data, size_t size) { return recv(fd_, data, size, 0); }
  // Whether the other end hangs up, in whatever way.
  bool ends(double seconds = 20.0) {
    uint8_t byte[512];
    for (const double end = now() + seconds * stretch(); now() < end;) {
      pollfd poll_fd{fd_, POLLIN, 0};
      if (poll(&poll_fd, 1, 50) == 1 && recv(fd_, byte, sizeof byte, 0) <= 0) return true;
    }
    return false;
  }
  void hang_up() { shutdown(fd_, SHUT_RDWR); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// A TCP port of this program.
class Port {
 public:
  Port() {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof where;
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr*>(&where), length) != 0 || ::listen(fd_, 16) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&where), &length) != 0)
      throw std::runtime_error("no port");
    address = "127.0.0.1:" + std::to_string(ntohs(where.sin_port));
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  ~Port() { close(fd_); }
  // -1: closed, or the time is over.
  int accept(double seconds = 20.0) const {
    pollfd poll_fd{fd_, POLLIN, 0};
    if (poll(&poll_fd, 1, static_cast<int>(seconds * 1000)) != 1) return -1;
    return ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  }
  std::string address;

 private:
  int fd_ = -1;
};

// The messages of a session: which connection (0 control, 1 data), from whom, the how manieth.
struct Said {
  int connection;
  bool by_connector;
  int number;
};

// Between a connector, which is given `address`, and the listener at `target`.
class Proxy {
 public:
  // Sees every message of the handshake and may change it. False: it is not passed on.
  using Tamper = std::function<bool(const Said&, Bytes&)>;

  Proxy(std::string target, Tamper tamper) : target_(std::move(target)), tamper_(std::move(tamper)) {
    thread_ = std::thread([this] { accept_all(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
    cut();
    for (std::thread& pump : pumps_) pump.join();
  }
  const std::string& address() const { return port_.address; }
  // Hangs up on everybody.
  void cut() {
    std::lock_guard<std::mutex> guard(lock_);
    for (Stream& stream : streams_) stream.hang_up();
  }
  // Says something to an end of a connection, as if it came from the other.
  bool inject(int connection, bool to_connector, const Bytes& bytes) {
    std::lock_guard<std::mutex> guard(lock_);
    const size_t at = static_cast<size_t>(connection) * 2 + (to_connector ? 0 : 1);
    return at < streams_.size() && streams_[at].say(bytes.data(), bytes.size());
  }
  // What was said, before it was changed.
  Bytes said(int connection, bool by_connector, int number) {
    std::lock_guard<std::mutex> guard(lock_);
    const auto found = heard_.find({connection, by_connector, number});
    return found == heard_.end() ? Bytes() : found->second;
  }

 private:
  // Messages of the handshake in each direction of a connection; then come the link's own.
  static int framed(int connection) { return connection == 0 ? 5 : 1; }

  void accept_all() {
    for (int connection = 0; !stop_;) {
      const int fd = port_.accept(0.02);
      if (fd < 0) continue;
      const int other = knock(target_, SOCK_STREAM);
      if (other < 0) {
        close(fd);
        continue;
      }
      std::lock_guard<std::mutex> guard(lock_);
      streams_.emplace_back(fd);
      streams_.emplace_back(other);
      for (const bool by_connector : {true, false})
        pumps_.emplace_back([this, connection, by_connector, from = by_connector ? fd : other,
                             to = by_connector ? other : fd] { pump(connection, by_connector, from, to); });
      ++connection;
    }
  }
  void pump(int connection, bool by_connector, int from_fd, int to_fd) {
    // The streams own the descriptors, and outlive the pumps.
    Stream from(dup(from_fd)), to(dup(to_fd));
    Bytes body;
    for (int number = 0; number < framed(connection); ++number) {
      if (!from.hear_message(body)) break;
      {
        std::lock_guard<std::mutex> guard(lock_);
        heard_[{connection, by_connector, number}] = body;
      }
      if (tamper_ != nullptr && !tamper_(Said{connection, by_connector, number}, body)) continue;
      if (!to.say_message(body)) break;
    }
    uint8_t some[65536];
    for (;;) {
      const ssize_t got = from.some(some, sizeof some);
      if (got < 0 && (errno == EAGAIN || errno == EINTR) && !stop_) continue;
      if (got <= 0 || !to.say(some, static_cast<size_t>(got))) break;
    }
    to.hang_up();
    from.hang_up();
  }

  Port port_;
  std::string target_;
  Tamper tamper_;
  std::atomic<bool> stop_{false};
  std::mutex lock_;
  std::vector<Stream> streams_;  // for each connection the connector's and the listener's end
  std::vector<std::thread> pumps_;
  std::map<std::tuple<int, bool, int>, Bytes> heard_;
  std::thread thread_;
};

}  // namespace rig
#endif
