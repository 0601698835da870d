// One address is enough: nodes that reach each other by TCP take the best engine by which they can meet, say which,
// and say why none better.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "rig_understudy.hpp"

using namespace rig;

namespace {
constexpr uint64_t MiB = 1 << 20;
const char token[] = "a secret of both nodes";
const std::string loopback = "127.0.0.1:0";
std::string nobodys_folder;

// A worker that joins a node at the address it is told, and leaves when it is told again.
struct Worker {
  uint32_t id;
  std::string transports;
  const char* auth_token;
  std::unique_ptr<Events> events;
  std::unique_ptr<Site> site;
  std::unique_ptr<Node> node;

  std::string operator()(const std::string& line) {
    if (line == "leave") {
      site->drop();
      node.reset();
      return "left";
    }
    engine = transports;
    Setup setup = with_id(Setup(), id);
    setup.auth_token = auth_token;
    events = std::make_unique<Events>();
    site = std::make_unique<Site>();
    node = std::make_unique<Node>(setup);
    open_site(*site, *node);
    uint32_t host = 0;
    return nrdma_node_connect(*node, line.c_str(), &host) == NRDMA_OK ? "joined" : last_error();
  }
};

std::map<std::string, std::unique_ptr<Understudy>> workers;

void hire(const std::string& name, uint32_t id, const std::string& transports, const char* auth_token,
          const std::function<void()>& become) {
  const auto worker = std::make_shared<Worker>(Worker{id, transports, auth_token, {}, {}, {}});
  workers[name] = std::make_unique<Understudy>(name, become, [worker](const std::string& line) { return (*worker)(line); });
}

// Before the first thread.
void hire_all() {
  const auto nothing = [] {};
  hire("neighbour", 10, "", nullptr, nothing);
  hire("tcp-only", 11, "tcp", nullptr, nothing);
  hire("shm-only", 12, "shm", nullptr, nothing);
  hire("late", 13, "", nullptr, nothing);
  hire("apart", 14, "", token, [] {
    const std::string folder = Scratch::path() + "/apart";
    if (mkdir(folder.c_str(), 0700) != 0) throw std::runtime_error("mkdir");
    setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  });
  if (geteuid() != 0) return;
  hire("nobody", 15, "", token, [] {
    setenv("XDG_RUNTIME_DIR", nobodys_folder.c_str(), 1);
    if (!become_nobody()) throw std::runtime_error("cannot become another user");
  });
  hire("homeless", 16, "", token, [] {
    unsetenv("XDG_RUNTIME_DIR");
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/tmp", "tmpfs", MS_RDONLY, nullptr) != 0)
      throw std::runtime_error("no mount namespace");
  });
}

std::string transport_of(nrdma_node* node, uint32_t host) {
  nrdma_peer_info peers[8];
  for (nrdma_peer_info& info : peers) info.struct_size = sizeof info;
  uint64_t total = 0;
  if (nrdma_node_peers(node, peers, sizeof peers[0], 8, &total) != NRDMA_OK) return last_error();
  for (uint64_t i = 0; i < total && i < 8; ++i)
    if (peers[i].host_id == host) return peers[i].transport;
  return "no peer";
}

// A real job runs there, by that path.
void check_job(nrdma_node* node, uint32_t host, int32_t path) {
  Job job("ramp", {MiB, 3}, MiB);
  job.to(host);
  REQUIRE(job.run(node, 4) == NRDMA_OK);
  REQUIRE(job.results.size() == 4);
  for (const Received& r : job.results) {
    CHECK(pattern_holds(r.bytes.data(), MiB, 3 + r.index, 0));
    CHECK(r.path == path);
  }
}

// A node here, and a worker that reaches it by TCP. `why`: what both logs say.
void check_choice(const std::string& name, uint32_t id, const char* auth_token, const std::string& taken,
                  const std::vector<std::string>& why) {
  if (geteuid() != 0 && workers.count(name) == 0) return;
  engine = "";
  Understudy& worker = *workers.at(name);
  Log log;
  Site site;
  Setup setup = with_id(Setup(), 1);
  setup.auth_token = auth_token;
  Node node(setup);
  open_site(site, node);
  REQUIRE(worker.tell(node.listen(loopback)) == "joined");
  REQUIRE(nrdma_node_wait_peers(node, 1, 20000) == NRDMA_OK);
  CHECK(transport_of(node, id) == taken);
  check_job(node, id, taken == "shm" ? NRDMA_PATH_MAPPED : NRDMA_PATH_COPIED);
  CHECK(worker.tell("leave") == "left");
  for (const std::string& text : {log.text(), worker.log()}) {
    CAPTURE(text);
    CHECK(contains(text, "connected by " + taken));
    for (const std::string& words : why) CHECK(contains(text, words));
  }
  CHECK(log.lines("connected by").size() == 1);
}
}  // namespace

ACT(ramp) {
  p.result = p.write(p.a(0));
  EXPECT(p.result);
  pattern_fill(p.result.data(), p.a(0), p.a(1) + p.index(), 0);
}

TEST_CASE("two processes of one host that meet by TCP share memory") {
  check_choice("neighbour", 10, nullptr, "shm", {"inproc not: the nodes are in different processes"});
}

TEST_CASE("two nodes of one process that meet by TCP need no connection") {
  engine = "";
  Log log;
  Node a(with_id(Setup(), 1)), b(with_id(Setup(), 2));
  b.connect(a.listen(loopback));
  REQUIRE(nrdma_node_wait_peers(a, 1, 20000) == NRDMA_OK);
  CHECK(transport_of(a, 2) == "inproc");
  CHECK(transport_of(b, 1) == "inproc");
  CHECK(log.lines("connected by inproc").size() == 2);
}

TEST_CASE("settings limit the choice") {
  check_choice("tcp-only", 11, nullptr, "tcp", {"shm not: test-11: left out by its transports (NRDMA_TRANSPORTS)"});
  check_choice("shm-only", 12, nullptr, "shm", {"inproc not: test-1"});
}

TEST_CASE("other runtime directories, as in other containers: tcp") {
  check_choice("apart", 14, token, "tcp", {"shm not: the nodes have different runtime directories"});
}

TEST_CASE("another user: tcp") {
  check_choice("nobody", 15, token, "tcp", {"shm not: the nodes belong to users 0 and 65534"});
}

TEST_CASE("no runtime directory: tcp") {
  check_choice("homeless", 16, token, "tcp", {"shm not: test-16: cannot make the directory"});
}

TEST_CASE("a runtime directory that is lost while nodes run is made again, or another takes its place") {
  engine = "";
  Log log;
  Site site;
  Node node(with_id(Setup(), 1));
  open_site(site, node);
  const std::string address = node.listen(loopback);
  const std::string folder = Scratch::path(), away = folder + "-away";
  Node first(with_id(Setup(), 2));
  // What is in it is gone.
  REQUIRE(rename((folder + "/nrdma").c_str(), (folder + "/gone").c_str()) == 0);
  first.connect(address);
  CHECK(access((folder + "/nrdma/cookie").c_str(), F_OK) == 0);
  // All of it is gone, as after the session's end: those of the same user still find each other.
  REQUIRE(rename(folder.c_str(), away.c_str()) == 0);
  const std::string joined = workers.at("late")->tell(address);
  REQUIRE(rename(away.c_str(), folder.c_str()) == 0);
  CHECK(joined == "joined");
  CHECK(transport_of(node, 13) == "shm");
  check_job(node, 13, NRDMA_PATH_MAPPED);
  CHECK(workers.at("late")->tell("leave") == "left");
}

int main(int argc, char** argv) {
  left_behind();  // what was there before
  Scratch::make();
  nobodys_folder = Scratch::path() + "-nobody";
  if (mkdir(nobodys_folder.c_str(), 0700) != 0 || (geteuid() == 0 && chown(nobodys_folder.c_str(), nobody, nobody) != 0))
    return 1;
  hire_all();
  watch_start(&watch, 100, [] { Scratch::remove(); });
  watch_case(&watch, "choice", 100);
  doctest::Context context(argc, argv);
  const int failed = context.run();
  workers.clear();
  Scratch::remove(nobodys_folder);
  return verdict(failed);
}
