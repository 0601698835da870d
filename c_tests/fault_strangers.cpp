// Whoever connects to a listener without the right to, or stands between two nodes: refused, told once, cheap; and the
// job that runs meanwhile is not disturbed. Everything here is TCP on this host.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "rig_proxy.hpp"
#include "rig_understudy.hpp"

using namespace rig;

namespace {
constexpr uint64_t size = 200000;
const char token[] = "a secret of the good ones";
const char other_token[] = "a secret of somebody else";
const char came_to_nothing[] = "came to nothing";

std::unique_ptr<Understudy> worker, wrong, nobody_connects, nobody_squats;

// A node with the token that connects where it is told; the answer is "joined" or why not.
std::string join_as(uint32_t id, const char* with, const std::string& address) {
  static std::map<uint32_t, std::pair<std::unique_ptr<Site>, std::unique_ptr<Node>>> nodes;
  auto& [site, node] = nodes[id];
  if (address == "leave") {
    if (site) site->drop();
    node.reset();
    return "left";
  }
  node.reset();
  site = std::make_unique<Site>();
  engine = "tcp";
  Setup setup = with_id(Setup(), id);
  setup.auth_token = with;
  node = std::make_unique<Node>(setup);
  open_site(*site, *node);
  uint32_t host = 0;
  return nrdma_node_connect(*node, address.c_str(), &host) == NRDMA_OK ? "joined" : last_error();
}

// Listens at a path that others wanted, and tells what it got.
std::string squat(const std::string& line) {
  static int door = -1, guest = -1;
  if (line == "what came?") {
    guest = accept(door, nullptr, nullptr);
    char bytes[4096];
    const ssize_t got = guest < 0 ? -1 : recv(guest, bytes, sizeof bytes, 0);
    // The eighth byte says what it is.
    return got < 8 ? "nothing" : bytes[7] == 0 ? "a refusal" : "more";
  }
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  std::strncpy(where.sun_path, line.c_str(), sizeof where.sun_path - 1);
  door = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  const bool there = bind(door, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0 && listen(door, 5) == 0;
  return there && chmod(line.c_str(), 0777) == 0 ? "there" : std::strerror(errno);
}

void hire_all() {
  const auto nothing = [] {};
  worker = std::make_unique<Understudy>("worker", nothing, [](const std::string& a) { return join_as(2, token, a); });
  wrong = std::make_unique<Understudy>("wrong", nothing, [](const std::string& a) { return join_as(3, other_token, a); });
  if (geteuid() != 0) return;
  const auto other_user = [] {
    if (!become_nobody()) throw std::runtime_error("cannot become another user");
  };
  // In a folder of its own, or it would meet no cookie at all.
  nobody_connects = std::make_unique<Understudy>(
      "nobody",
      [other_user] {
        setenv("XDG_RUNTIME_DIR", (Scratch::path() + "-nobody").c_str(), 1);
        other_user();
      },
      [](const std::string& a) { return join_as(4, nullptr, a); });
  nobody_squats = std::make_unique<Understudy>("squatter", other_user, squat);
}

uint64_t peers_of(nrdma_node* node) {
  uint64_t total = 0;
  return nrdma_node_peers(node, nullptr, 0, 0, &total) == NRDMA_OK ? total : ~uint64_t{0};
}

Setup with_token() {
  engine = "tcp";
  Setup setup = with_id(Setup(), 1);
  setup.auth_token = token;
  return setup;
}

// A node that listens, a worker, and a job that runs all the time.
class Stage {
 public:
  Log log;
  Site site;
  Node node;
  std::string address;

  Stage() : node(with_token()), address(node.listen("127.0.0.1:0")) {
    open_site(site, node);
    const std::string joined = worker->tell(address);
    if (joined != "joined") throw std::runtime_error(joined);
    if (nrdma_node_wait_peers(node, 1, 20000) != NRDMA_OK) throw std::runtime_error(last_error());
  }
  ~Stage() {
    stop();
    worker->tell("leave");
  }
  void play() {
    player_ = std::thread([this] {
      while (!stop_) {
        Job job("stamp", {size, rounds_ * 16}, size);
        job.to(2);
        if (job.run(node, 16) != NRDMA_OK || job.results.size() != 16) wrong_++;
        for (const Received& r : job.results)
          if (!pattern_holds(r.bytes.data(), size, rounds_ * 16 + r.index, 0)) wrong_++;
        rounds_++;
      }
    });
  }
  // Rounds go on, and all of them were right.
  void check_undisturbed() {
    const uint64_t before = rounds_;
    CHECK(eventually([&] { return rounds_ >= before + 3; }, 20.0));
    CHECK(wrong_ == 0);
    CHECK(peers_of(node) == 1);
  }
  // Told at least once, but no more than once in a second.
  void check_told(const std::string& words) {
    CHECK(eventually([&] { return !log.lines(words).empty(); }, 20.0));
    const std::vector<Log::Line> lines = log.lines(came_to_nothing);
    for (size_t i = 1; i < lines.size(); ++i) CHECK(lines[i].time - lines[i - 1].time > 0.5);
  }
  void stop() {
    stop_ = true;
    if (player_.joinable()) player_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> rounds_{0}, wrong_{0};
  std::thread player_;
};

uint64_t private_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssAnon:", 0) == 0) return std::strtoull(line.c_str() + 8, nullptr, 10) * 1024;
  return 0;
}

unsigned threads_named(const std::string& name) {
  unsigned found = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (dirent* entry = tasks == nullptr ? nullptr : readdir(tasks)) {
    std::string comm;
    std::getline(std::ifstream(std::string("/proc/self/task/") + entry->d_name + "/comm"), comm);
    found += comm == name;
  }
  if (tasks != nullptr) closedir(tasks);
  return found;
}

Bytes greeting() {
  Bytes bytes = {'n', 'r', 'd', 'm', 'a', '\r', '\n', 1, 1, 0, 1, 0};
  bytes.resize(12 + 32, 0x5a);
  return bytes;
}
}  // namespace

ACT(stamp) {
  p.result = p.write(p.a(0));
  EXPECT(p.result);
  pattern_fill(p.result.data(), p.a(0), p.a(1) + p.index(), 0);
}

TEST_CASE("a port scan, silence and random bytes") {
  Stage stage;
  stage.play();
  for (int i = 0; i < 100; ++i) Stream::to(stage.address);
  stage.check_told("hung up");
  std::vector<Stream> strangers;
  for (uint64_t i = 0; i < 60; ++i) {
    Stream stranger = Stream::to(stage.address);
    Bytes noise((i * i * 41) % 9000 + 1);
    pattern_fill(noise.data(), noise.size(), i, 0);
    if (i % 3 == 0) stranger.say("GET / HTTP/1.1\r\n\r\n", 18);
    if (i % 3 == 1) stranger.say(noise.data(), noise.size());
    // Some stay and say nothing more.
    if (i % 10 == 9) strangers.push_back(std::move(stranger));
  }
  stage.check_undisturbed();
  stage.check_told(came_to_nothing);
  for (Stream& stranger : strangers) CHECK(stranger.ends());
  stage.check_undisturbed();
}

TEST_CASE("truncated and oversized messages, at every step") {
  Stage stage;
  stage.play();
  const Bytes hello = greeting();
  for (const uint32_t length : {0u, 4097u, 0x7fffffffu, 0xffffffffu}) {
    Stream stranger = Stream::to(stage.address);
    stranger.say(&length, 4);
    CHECK(stranger.ends());
  }
  for (size_t cut = 0; cut <= hello.size(); cut += 4) {
    Stream stranger = Stream::to(stage.address);
    stranger.say_message(Bytes(hello.begin(), hello.begin() + static_cast<long>(std::max<size_t>(cut, 1))));
    if (cut == hello.size()) {
      // It was answered. What follows is no proof.
      Bytes answer;
      CHECK(stranger.hear_message(answer));
      CHECK(answer.size() == 8 + 2 + 1 + 32);
      stranger.say_message(Bytes(32, 7));
    }
    CHECK(stranger.ends());
  }
  for (const size_t length : {size_t{1}, size_t{31}, size_t{33}, size_t{4096}}) {
    Stream stranger = Stream::to(stage.address);
    Bytes answer;
    stranger.say_message(hello);
    CHECK(stranger.hear_message(answer));
    stranger.say_message(Bytes(length, 7));
    CHECK(stranger.ends());
  }
  stage.check_undisturbed();
  stage.check_told(came_to_nothing);
}

TEST_CASE("a wrong token") {
  Stage stage;
  stage.play();
  for (int i = 0; i < 5; ++i) {
    const std::string answer = wrong->tell(stage.address);
    CHECK(contains(answer, "token"));
    CHECK(contains(answer, "does not fit"));
  }
  stage.check_undisturbed();
  stage.check_told("does not fit");
  wrong->tell("leave");
}

TEST_CASE("another user's process on the same host, where nodes of one user meet") {
  if (geteuid() != 0) return;
  Stage stage;
  stage.play();
  Log& log = stage.log;
  Node same_user(with_id(Setup(), 5));
  const std::string answer = nobody_connects->tell(same_user.listen("127.0.0.1:0"));
  CHECK(contains(answer, "cookie"));
  CHECK(peers_of(same_user) == 0);
  stage.check_undisturbed();
  CHECK(eventually([&] { return log.lines("proof (\"same user\") does not fit").size() == 1; }));
  nobody_connects->tell("leave");
}

TEST_CASE("what was said before, said again") {
  Stage stage;
  stage.play();
  Bytes greeted, proved, hello, opened;
  {
    Proxy proxy(stage.address, nullptr);
    REQUIRE(join_as(6, token, proxy.address()) == "joined");
    REQUIRE(nrdma_node_wait_peers(stage.node, 2, 20000) == NRDMA_OK);
    greeted = proxy.said(0, true, 0);
    proved = proxy.said(0, true, 1);
    hello = proxy.said(0, true, 2);
    opened = proxy.said(1, true, 0);
    REQUIRE(opened.size() == 8 + 16 + 4 + 32 + 32);
    // The proof of a data connection, a second time, while its session lives and afterwards.
    Stream again = Stream::to(stage.address);
    again.say_message(opened);
    CHECK(again.ends());
    stage.check_told("that no session expects");
    CHECK(peers_of(stage.node) == 2);
    join_as(6, token, "leave");
  }
  CHECK(eventually([&] { return peers_of(stage.node) == 1; }, 20.0));
  Stream late = Stream::to(stage.address);
  late.say_message(opened);
  CHECK(late.ends());
  // The whole connector, from a record.
  Stream replay = Stream::to(stage.address);
  Bytes answer;
  replay.say_message(greeted);
  CHECK(replay.hear_message(answer));
  replay.say_message(proved);
  replay.say_message(hello);
  CHECK(replay.ends());
  stage.check_undisturbed();
}

TEST_CASE("a listener that answers with our own words") {
  Stage stage;
  stage.play();
  Port port;
  std::thread mirror([&] {
    Stream guest(port.accept());
    Bytes message;
    while (guest.hear_message(message) && guest.say_message(message)) {
    }
  });
  uint32_t host = 0;
  CHECK(nrdma_node_connect(stage.node, port.address.c_str(), &host) < 0);
  CHECK(last_error() != "");
  mirror.join();
  stage.check_undisturbed();
}

TEST_CASE("somebody in the middle who only passes on gets nothing, and can put nothing in") {
  Stage stage;
  stage.play();
  for (const int connection : {0, 1})
    for (const bool to_connector : {false, true}) {
      CAPTURE(connection);
      Proxy proxy(stage.address, nullptr);
      REQUIRE(join_as(6, token, proxy.address()) == "joined");
      REQUIRE(nrdma_node_wait_peers(stage.node, 2, 20000) == NRDMA_OK);
      Job job("stamp", {size, 1}, size);
      job.to(6);
      CHECK(job.run(stage.node, 4) == NRDMA_OK);
      for (const Received& r : job.results) CHECK(pattern_holds(r.bytes.data(), size, 1 + r.index, 0));
      // A frame of its own: both ends drop the connection, and nothing else.
      CHECK(proxy.inject(connection, to_connector, Bytes(200, 0)));
      CHECK(eventually([&] { return peers_of(stage.node) == 1; }, 20.0));
      join_as(6, token, "leave");
    }
  stage.check_undisturbed();
}

TEST_CASE("somebody in the middle who changes, swaps or drops a message") {
  Stage stage;
  stage.play();
  const auto attempt = [&](const char* how, const Proxy::Tamper& tamper) {
    CAPTURE(how);
    Proxy proxy(stage.address, tamper);
    const double start = now();
    const std::string answer = join_as(6, token, proxy.address());
    CHECK(answer != "joined");
    CHECK(now() - start < 20 * stretch());
    CHECK(eventually([&] { return peers_of(stage.node) == 1; }, 20.0));
    join_as(6, token, "leave");
  };
  // Greeting, proof, hello with the engine list, word, verdict; and the proof of the data connection.
  for (const Said& where : {Said{0, true, 0}, Said{0, true, 1}, Said{0, true, 2}, Said{0, true, 3}, Said{0, true, 4},
                            Said{0, false, 0}, Said{0, false, 1}, Said{0, false, 2}, Said{0, false, 3},
                            Said{0, false, 4}, Said{1, true, 0}, Said{1, false, 0}}) {
    CAPTURE(where.connection);
    CAPTURE(where.by_connector);
    CAPTURE(where.number);
    const auto is_it = [where](const Said& said) {
      return said.connection == where.connection && said.by_connector == where.by_connector &&
             said.number == where.number;
    };
    attempt("changed", [is_it](const Said& said, Bytes& bytes) {
      if (is_it(said)) bytes[bytes.size() / 2] ^= 1;
      return true;
    });
  }
  // The engine lists of both ends, each in the other's place; and one engine's name instead of another's.
  attempt("swapped", [](const Said& said, Bytes& bytes) {
    static std::mutex lock;
    static Bytes first;
    std::lock_guard<std::mutex> guard(lock);
    if (said.connection == 0 && said.number == 2) {
      if (said.by_connector) first = bytes;
      if (!said.by_connector) bytes = first;
    }
    return true;
  });
  bool renamed = false;
  attempt("renamed", [&renamed](const Said& said, Bytes& bytes) {
    const std::string had = "tcp", has = "shm";
    const auto at = std::search(bytes.begin(), bytes.end(), had.begin(), had.end());
    if (said.number == 2 && at != bytes.end()) {
      std::copy(has.begin(), has.end(), at);
      renamed = true;
    }
    return true;
  });
  CHECK(renamed);
  stage.check_undisturbed();
  attempt("left out", [](const Said& said, Bytes&) { return said.by_connector || said.number != 2; });
  // A message that never comes ends with the time for it.
  Setup hasty = with_id(Setup(), 7);
  hasty.auth_token = token;
  hasty.connect_timeout_ms = 500;
  engine = "tcp";
  Node impatient(hasty);
  Proxy proxy(stage.address, [](const Said& said, Bytes&) { return said.by_connector || said.number < 2; });
  uint32_t host = 0;
  const double start = now();
  CHECK(nrdma_node_connect(impatient, proxy.address().c_str(), &host) == NRDMA_TIMED_OUT);
  CHECK(now() - start < 5 * stretch());
  stage.check_undisturbed();
}

TEST_CASE("a squatted socket path is neither used nor removed") {
  if (geteuid() != 0) return;
  Stage stage;
  stage.play();
  char folder[] = "/tmp/nrdma-test-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  REQUIRE(chmod(folder, 01777) == 0);
  const std::string path = std::string(folder) + "/wanted", address = "unix:" + path;
  REQUIRE(nobody_squats->tell(path) == "there");
  char bound[256];
  CHECK(nrdma_node_listen(stage.node, address.c_str(), bound, sizeof bound) == NRDMA_ADDRESS_IN_USE);
  CHECK(access(path.c_str(), F_OK) == 0);
  // Who connects finds out by the kernel's word whose it is, and says that only.
  engine = "shm";
  Node guest(with_id(Setup(), 8));
  uint32_t host = 0;
  CHECK(nrdma_node_connect(guest, address.c_str(), &host) == NRDMA_AUTH_FAILED);
  CHECK(contains(last_error(), "user 65534"));
  CHECK(nobody_squats->tell("what came?") == "a refusal");
  stage.check_undisturbed();
  Scratch::remove(folder);
}

TEST_CASE("a stranger costs at most 64 KiB, and a real peer comes through") {
  if (sanitized) return;
  Stage stage;
  const auto half_a_message = [&] {
    Stream stranger = Stream::to(stage.address);
    const uint32_t length = 4096;
    stranger.say(&length, 4);
    stranger.say(Bytes(4095, 0x77).data(), 4095);
    return stranger;
  };
  constexpr size_t count = 16;
  for (size_t i = 0; i < 3; ++i) {  // what is made once
    half_a_message().hang_up();
    CHECK(eventually([&] { return threads_named("nrdma-hello") == 0; }));
  }
  const uint64_t before = private_bytes();
  REQUIRE(before > 0);
  std::vector<Stream> strangers;
  for (size_t i = 0; i < 3 * count; ++i) strangers.push_back(half_a_message());
  CHECK(eventually([] { return threads_named("nrdma-hello") == count; }));
  sleep_ms(100);
  CHECK(threads_named("nrdma-hello") <= count);
  const uint64_t after = private_bytes();
  MESSAGE("bytes for each of ", count, " strangers: ", (after - std::min(before, after)) / count);
  CHECK(after < before + count * 65536);
  CHECK(stage.log.lines("have to wait").size() == 1);
  // It waits for its turn, which comes when the strangers' time is over.
  while (strangers.size() > count / 2) strangers.pop_back();
  CHECK(join_as(6, token, stage.address) == "joined");
  join_as(6, token, "leave");
}

TEST_CASE("no descriptor for a connection: it waits, that is told once, and it comes through") {
  Stage stage;
  rlimit limit{}, none{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  none = limit;
  wrong->tell("leave");
  std::vector<int> fill;
  none.rlim_cur = 200;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  for (int fd = dup(0); fd >= 0; fd = dup(0)) fill.push_back(fd);
  std::string answer;
  std::thread joins([&] { answer = wrong->tell(stage.address); });
  CHECK(eventually([&] { return stage.log.lines("have to wait").size() == 1; }, 20.0));
  sleep_ms(300);
  CHECK(stage.log.lines("have to wait").size() == 1);
  CHECK(contains(stage.log.text(), "raise the limit of open files"));
  for (const int fd : fill) close(fd);
  setrlimit(RLIMIT_NOFILE, &limit);
  joins.join();
  // It was heard: its token is wrong.
  CHECK(contains(answer, "does not fit"));
  stage.play();
  stage.check_undisturbed();
  wrong->tell("leave");
}

TEST_CASE("strangers end with the node") {
  engine = "tcp";
  std::vector<Stream> strangers;
  Node node(with_token());
  const std::string address = node.listen("127.0.0.1:0");
  for (int i = 0; i < 10; ++i) strangers.push_back(Stream::to(address));
  CHECK(eventually([] { return threads_named("nrdma-hello") == 10; }));
  const double start = now();
  CHECK(nrdma_node_shutdown(node, 10000) == NRDMA_OK);
  CHECK(threads_named("nrdma-hello") == 0);
  CHECK(now() - start < 3 * stretch());
  for (Stream& stranger : strangers) CHECK(stranger.ends());
}

int main(int argc, char** argv) {
  left_behind();  // what was there before
  Scratch::make();
  engine = "tcp";
  const std::string nobodys = Scratch::path() + "-nobody";
  if (mkdir(nobodys.c_str(), 0700) != 0 || (geteuid() == 0 && chown(nobodys.c_str(), nobody, nobody) != 0)) return 1;
  hire_all();
  watch_start(&watch, 240, [] { Scratch::remove(); });
  watch_case(&watch, "strangers", 240);
  doctest::Context context(argc, argv);
  const int failed = context.run();
  for (auto* one : {&worker, &wrong, &nobody_connects, &nobody_squats}) one->reset();
  Scratch::remove(nobodys);
  return verdict(failed);
}
