// Processes made at the very start, while there is one thread, that wait for their turn: so that what they do before
// they use the library (another user, other directories, other namespaces) needs no care.
#ifndef NRDMA_TEST_RIG_UNDERSTUDY_HPP
#define NRDMA_TEST_RIG_UNDERSTUDY_HPP
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>

#include "rig_cluster.hpp"

namespace rig {

// The user that has nothing.
inline constexpr uid_t nobody = 65534;
inline bool become_nobody() {
  return setgroups(0, nullptr) == 0 && setresgid(nobody, nobody, nobody) == 0 && setresuid(nobody, nobody, nobody) == 0;
}

class Understudy {
 public:
  // What it does with each line that it is told; its answer is the line that comes back. Its log goes to a file.
  using Play = std::function<std::string(const std::string&)>;

  explicit Understudy(const std::string& name, const std::function<void()>& become, const Play& play)
      : log_(Scratch::path() + "/" + name + ".log") {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    fd_ = ends[0];
    if (pid_ > 0) {
      close(ends[1]);
      ours().push_back(ends[0]);
      return;
    }
    close(ends[0]);
    // Those of the ones before: they would never see the end of this process.
    for (const int fd : ours()) close(fd);
    fd_ = ends[1];
    const int log = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(log, 2);
    setenv("NRDMA_LOG", "info", 1);
    int code = 0;
    try {
      become();
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // after that: another user id takes it away
      for (std::string line = receive(); !line.empty(); line = receive()) send_line(play(line));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      code = 1;
    }
    std::fflush(nullptr);
    _exit(code);
  }
  Understudy(const Understudy&) = delete;
  Understudy& operator=(const Understudy&) = delete;
  ~Understudy() {
    if (pid_ <= 0) return;
    close(fd_);
    int status = 0;
    if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, 10.0)) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      status = 1;
    }
    if (status == 0) return;
    std::fprintf(stderr, "%s ended with status 0x%x:\n%s", log_.c_str(), static_cast<unsigned>(status), log().c_str());
    bad_workers++;
  }

  // Its answer; empty: it is gone.
  std::string tell(const std::string& line) {
    send_line(line);
    return receive();
  }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }

 private:
  void send_line(const std::string& line) { ::send(fd_, line.data(), line.size(), MSG_NOSIGNAL); }
  std::string receive() {
    char buffer[4096];
    const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : std::string();
  }
  static std::vector<int>& ours() {
    static std::vector<int> all;
    return all;
  }
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string log_;
};

// Keeps this process's log, which goes to stderr no more.
class Log {
 public:
  Log() { nrdma_set_log(note, this, NRDMA_LOG_INFO, nullptr, nullptr); }
  ~Log() { nrdma_set_log(nullptr, nullptr, NRDMA_LOG_OFF, nullptr, nullptr); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  struct Line {
    double time;
    std::string text;
  };
  std::vector<Line> lines(const std::string& with) {
    std::lock_guard<std::mutex> guard(lock_);
    std::vector<Line> found;
    for (const Line& line : lines_)
      if (contains(line.text, with)) found.push_back(line);
    return found;
  }
  std::string text() {
    std::lock_guard<std::mutex> guard(lock_);
    std::string all;
    for (const Line& line : lines_) all += line.text + "\n";
    return all;
  }

 private:
  static void note(void* user, int32_t, const char*, const char* message) {
    auto& self = *static_cast<Log*>(user);
    std::lock_guard<std::mutex> guard(self.lock_);
    self.lines_.push_back({now(), message});
  }
  std::mutex lock_;
  std::vector<Line> lines_;
};

}  // namespace rig
#endif
