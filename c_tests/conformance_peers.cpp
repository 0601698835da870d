// Membership: who is a peer, how one comes and goes, what stays usable afterwards.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
std::vector<nrdma_peer_info> peers_of(nrdma_node* node) {
  std::vector<nrdma_peer_info> list(8);
  for (nrdma_peer_info& info : list) info.struct_size = sizeof info;
  uint64_t total = 0;
  REQUIRE(nrdma_node_peers(node, list.data(), sizeof list[0], list.size(), &total) == NRDMA_OK);
  REQUIRE(total <= list.size());
  list.resize(total);
  return list;
}
}  // namespace

TEST_CASE("peers: symmetric, named, with the engine that was taken") {
  Pair pair;
  const auto a = peers_of(pair.a), b = peers_of(pair.b);
  REQUIRE(a.size() == 1);
  REQUIRE(b.size() == 1);
  CHECK(a[0].host_id == 2);
  CHECK(b[0].host_id == 1);
  CHECK(std::string(a[0].name) == "test-2");
  CHECK(std::string(b[0].name) == "test-1");
  CHECK(a[0].alive == 1);
  CHECK(std::string(a[0].transport) == engine);
  CHECK(std::string(b[0].transport) == engine);
  CHECK(std::string(b[0].address) == pair.address);
  // Either side may run jobs on the other.
  Job there("fill", {5000, 1}, 5000), back("fill", {5000, 2}, 5000);
  CHECK(there.run(pair.a, 3) == NRDMA_OK);
  CHECK(back.run(pair.b, 4) == NRDMA_OK);
  CHECK(back.results.size() == 4);
  const auto after = peers_of(pair.a);
  REQUIRE(after.size() == 1);
  CHECK(after[0].fragments_sent >= 3);
  CHECK(after[0].fragments_run >= 4);
  CHECK(after[0].bytes_received >= 3 * 5000);
  CHECK(after[0].bytes_sent >= 4 * 5000);
}

TEST_CASE("peers: total, capacity and stride") {
  Cluster cluster(3);
  uint64_t total = 0;
  CHECK(nrdma_node_peers(cluster.node, nullptr, 0, 0, &total) == NRDMA_OK);
  CHECK(total == 3);
  // A caller with a bigger struct, and room for two.
  struct Bigger {
    nrdma_peer_info info;
    uint64_t tail;
  };
  std::vector<Bigger> list(3);
  for (Bigger& b : list) {
    std::memset(&b, 0xAB, sizeof b);
    b.info.struct_size = sizeof b.info;
  }
  total = 0;
  CHECK(nrdma_node_peers(cluster.node, &list[0].info, sizeof(Bigger), 2, &total) == NRDMA_OK);
  CHECK(total == 3);
  std::set<uint32_t> ids{list[0].info.host_id, list[1].info.host_id};
  CHECK(ids.size() == 2);
  for (const uint32_t id : ids) CHECK((id >= 2 && id <= 4));
  for (const Bigger& b : list) CHECK(b.tail == 0xABABABABABABABABull);
  CHECK(bytes_differ(reinterpret_cast<const uint8_t*>(&list[2].info.host_id), 64, 0xAB) == 64);
  // A stride that is smaller than the struct, or none.
  CHECK(nrdma_node_peers(cluster.node, &list[0].info, 8, 2, &total) == NRDMA_INVALID_PARAMETER);
}

TEST_CASE("wait_peers") {
  Cluster cluster(2);
  CHECK(nrdma_node_wait_peers(cluster.node, 0, 0) == NRDMA_OK);
  CHECK(nrdma_node_wait_peers(cluster.node, 2, 5000) == NRDMA_OK);
  const double start = now();
  CHECK(nrdma_node_wait_peers(cluster.node, 3, 60) == NRDMA_TIMED_OUT);
  CHECK(now() - start >= 0.055);
  CHECK(contains(last_error(), "3"));
  CHECK(contains(last_error(), "2"));
}

TEST_CASE("a peer that shuts down has LEFT, and so has one that is disconnected here") {
  Pair pair;
  CHECK(pair.a_events.count(2, NRDMA_PEER_EVENT_JOINED) == 1);
  SUBCASE("the other side shuts down") {
    CHECK(nrdma_node_shutdown(pair.b, 0) == NRDMA_OK);
    CHECK(pair.a_events.wait(2, NRDMA_PEER_EVENT_LEFT));
  }
  SUBCASE("disconnect here") {
    CHECK(nrdma_node_disconnect(pair.a, 2) == NRDMA_OK);
    CHECK(pair.a_events.wait(2, NRDMA_PEER_EVENT_LEFT));
    CHECK(pair.b_events.wait(1, NRDMA_PEER_EVENT_LEFT));
    nrdma_clear_error();
    CHECK(nrdma_node_disconnect(pair.a, 2) < 0);
    CHECK(contains(last_error(), "2"));
  }
  sleep_ms(20);
  CHECK(pair.a_events.count(2, NRDMA_PEER_EVENT_LEFT) == 1);
  CHECK(pair.a_events.count(2, NRDMA_PEER_EVENT_LOST) == 0);
  uint64_t total = 9;
  CHECK(nrdma_node_peers(pair.a, nullptr, 0, 0, &total) == NRDMA_OK);
  CHECK(total == 0);
}

TEST_CASE("after a disconnect: contexts give NULL, flush is -1, data stay readable, and the peer may come back") {
  Pair pair;
  Context context(pair.a, 2);
  REQUIRE(context);
  Buffer buffer = context.read(70000);
  REQUIRE(buffer);
  pattern_fill(buffer.data(), 70000, 1, 0);
  Job job("fill", {70000, 2}, 70000);
  Buffer result;
  job.receive = [&](nrdma_buffer* b, const nrdma_result*) {
    result = Buffer::retained(b);
    return NRDMA_OK;
  };
  REQUIRE(job.run(pair.a, 1) == NRDMA_OK);
  REQUIRE(nrdma_node_disconnect(pair.a, 2) == NRDMA_OK);
  REQUIRE(pair.b_events.wait(1, NRDMA_PEER_EVENT_LEFT));
  REQUIRE(pair.a_events.wait(2, NRDMA_PEER_EVENT_LEFT));
  nrdma_clear_error();
  CHECK(!context.read(100));
  CHECK(!last_error().empty());
  CHECK(!context.write(100));
  uint8_t byte = 0;
  CHECK(nrdma_context_wrap_user_buffer(context.get(), &byte, 1, -1) == nullptr);
  CHECK(nrdma_context_flush(context.get(), buffer.get()) == NRDMA_INVALID_PARAMETER);
  CHECK(pattern_holds(buffer.data(), 70000, 1, 0));
  CHECK(pattern_holds(result.data(), 70000, 2, 0));
  CHECK(Buffer(nrdma_buffer_duplicate(buffer.get(), 5, 10)));
  CHECK(nrdma_node_get_rdma_context(pair.a, 2) == nullptr);
  // Back again; the old objects do not come back to life.
  CHECK(pair.b.connect(pair.address) == 1);
  REQUIRE(eventually([&] { return pair.a_events.count(2, NRDMA_PEER_EVENT_JOINED) == 2; }));
  CHECK(!context.read(100));
  const Context again(pair.a, 2);
  REQUIRE(again);
  CHECK(again.read(100));
  Job after("fill", {100, 3}, 100);
  CHECK(after.run(pair.a, 2) == NRDMA_OK);
  CHECK(after.results.size() == 2);
}

TEST_CASE("a duplicate host id is refused and named") {
  Pair pair;
  Node twin(with_id(Setup(), 2));
  uint32_t host = 0;
  nrdma_clear_error();
  CHECK(nrdma_node_connect(twin, pair.address.c_str(), &host) == NRDMA_REFUSED);
  CHECK(contains(last_error(), "2"));
  Node same_as_listener(with_id(Setup(), 1));
  CHECK(nrdma_node_connect(same_as_listener, pair.address.c_str(), &host) == NRDMA_REFUSED);
  // The rightful owner is not disturbed.
  CHECK(pair.a_events.count(2, NRDMA_PEER_EVENT_LOST) == 0);
  Job job("fill", {100, 1}, 100);
  CHECK(job.run(pair.a, 1) == NRDMA_OK);
}

TEST_CASE("connecting twice makes one peer") {
  Pair pair;
  uint32_t host = 0;
  nrdma_node_connect(pair.b, pair.address.c_str(), &host);  // OK or REFUSED, but no second peer
  uint64_t total = 0;
  CHECK(nrdma_node_peers(pair.a, nullptr, 0, 0, &total) == NRDMA_OK);
  CHECK(total == 1);
  Job job("fill", {100, 1}, 100);
  CHECK(job.run(pair.a, 3) == NRDMA_OK);
  CHECK(job.results.size() == 3);
}

TEST_CASE("random host ids are positive and differ") {
  std::set<uint32_t> ids;
  for (int i = 0; i < 8; ++i) {
    Node node;
    CHECK(node.id() != 0);
    CHECK(node.id() < 0x80000000u);
    ids.insert(node.id());
  }
  CHECK(ids.size() == 8);
}

TEST_CASE("addresses that lead nowhere") {
  Node node;
  uint32_t host = 0;
  char bound[256];
  nrdma_clear_error();
  const std::string nobody = by_port() ? Scratch::address() : "unix:" + Scratch::path() + "/nobody.sock";
  CHECK(nrdma_node_connect(node, nobody.c_str(), &host) == NRDMA_UNREACHABLE);
  CHECK(contains(last_error(), nobody));
  CHECK(nrdma_node_connect(node, "", &host) == NRDMA_INVALID_PARAMETER);
  CHECK(nrdma_node_connect(node, nullptr, &host) == NRDMA_INVALID_PARAMETER);
  CHECK(nrdma_node_listen(node, nullptr, bound, sizeof bound) == NRDMA_INVALID_PARAMETER);
  CHECK(nrdma_node_listen(node, "unix:/nonexistent-folder/x.sock", bound, sizeof bound) < 0);
  CHECK(contains(last_error(), "/nonexistent-folder/x.sock"));
  const std::string endless = "unix:/tmp/" + std::string(300, 'x');  // longer than sun_path
  CHECK(nrdma_node_listen(node, endless.c_str(), bound, sizeof bound) == NRDMA_INVALID_PARAMETER);
}

TEST_CASE("listening: the bound address, an address in use, room for the answer") {
  Node first, second;
  const std::string address = Scratch::address();
  char bound[256] = "";
  REQUIRE(nrdma_node_listen(first, address.c_str(), bound, sizeof bound) == NRDMA_OK);
  CHECK(std::string(bound) == address);
  CHECK(nrdma_node_listen(second, address.c_str(), bound, sizeof bound) == NRDMA_ADDRESS_IN_USE);
  CHECK(contains(last_error(), address));
  char small[4];
  const std::string other = Scratch::address();
  CHECK(nrdma_node_listen(second, other.c_str(), small, sizeof small) == NRDMA_BUFFER_TOO_SMALL);
  // The refused one left nothing behind: the address is still free.
  CHECK(nrdma_node_listen(second, other.c_str(), bound, sizeof bound) == NRDMA_OK);
  // Without asking for the address.
  CHECK(nrdma_node_listen(second, Scratch::address().c_str(), nullptr, 0) == NRDMA_OK);
}

TEST_CASE("strangers at the door: garbage and silence disturb nobody") {
  Node node(with_id(Setup(), 1));
  const std::string address = node.listen();
  std::vector<int> doors;
  for (uint64_t i = 0; i < 20; ++i) {
    int fd = -1;
    for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
      fd = knock(address, type);
      if (fd >= 0) break;
    }
    if (fd < 0) continue;  // half-open connections are limited
    fcntl(fd, F_SETFL, O_NONBLOCK);
    std::vector<uint8_t> garbage((i * i * 41) % 70000);
    pattern_fill(garbage.data(), garbage.size(), i, 0);
    if (i % 4 != 0) send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    if (i % 4 == 2)
      close(fd);
    else
      doors.push_back(fd);
  }
  CHECK(!doors.empty());
  // A real peer is still let in, and works.
  Site site;
  Node peer(with_id(Setup(), 2));
  open_site(site, peer);
  CHECK(eventually([&] {
    uint32_t host = 0;
    return nrdma_node_connect(peer, address.c_str(), &host) == NRDMA_OK && host == 1;
  }, 20.0));
  // The one that connects is through first.
  REQUIRE(nrdma_node_wait_peers(node, 1, 20000) == NRDMA_OK);
  Job job("fill", {100, 1}, 100);
  CHECK(job.run(node, 3) == NRDMA_OK);
  CHECK(job.results.size() == 3);
  for (const int fd : doors) close(fd);
  uint64_t total = 0;
  CHECK(nrdma_node_peers(node, nullptr, 0, 0, &total) == NRDMA_OK);
  CHECK(total == 1);
}

TEST_CASE("a listener's socket file goes with its node") {
  if (by_port()) return;
  const std::string address = Scratch::address();
  const std::string path = address.substr(5);
  {
    Node node;
    REQUIRE(nrdma_node_listen(node, address.c_str(), nullptr, 0) == NRDMA_OK);
    CHECK(access(path.c_str(), F_OK) == 0);
  }
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("shutdown: idempotent, later calls are refused, objects stay valid") {
  Pair pair;
  Context own(pair.a, 0);
  Buffer buffer = own.read(1000);
  REQUIRE(buffer);
  pattern_fill(buffer.data(), 1000, 1, 0);
  CHECK(nrdma_node_shutdown(pair.a, 0) == NRDMA_OK);
  CHECK(nrdma_node_shutdown(pair.a, 0) == NRDMA_OK);
  Job job("nothing");
  job.table.mode = NRDMA_LOCAL;
  job.execute = [](const nrdma_fragment*) { return NRDMA_OK; };
  CHECK(job.run(pair.a, 1) == NRDMA_SHUT_DOWN);
  CHECK(job.start(pair.a, 1) == NRDMA_SHUT_DOWN);
  CHECK(job.dones == 0);
  uint32_t host = 0;
  CHECK(nrdma_node_connect(pair.a, pair.address.c_str(), &host) == NRDMA_SHUT_DOWN);
  CHECK(nrdma_node_listen(pair.a, Scratch::address().c_str(), nullptr, 0) == NRDMA_SHUT_DOWN);
  CHECK(!own.read(10));
  CHECK(!own.write(10));
  CHECK(nrdma_context_flush(own.get(), buffer.get()) == NRDMA_INVALID_PARAMETER);
  pair.a.destroy();
  CHECK(!own.read(10));
  CHECK(pattern_holds(buffer.data(), 1000, 1, 0));
  own.reset();
  CHECK(pattern_holds(buffer.data(), 1000, 1, 0));
}

TEST_CASE("received results outlive context, peer and node") {
  auto pair = std::make_unique<Pair>();
  Job job("fill", {1 << 20, 4}, 1 << 20);
  std::vector<Buffer> held;
  job.receive = [&](nrdma_buffer* b, const nrdma_result*) {
    std::lock_guard<std::mutex> guard(job.lock);
    held.push_back(Buffer::retained(b));
    return NRDMA_OK;
  };
  REQUIRE(job.run(pair->a, 4) == NRDMA_OK);
  pair.reset();
  REQUIRE(held.size() == 4);
  std::set<uint8_t> firsts;
  for (const Buffer& b : held) {
    bool found = false;
    for (uint64_t i = 0; i < 4; ++i) found = found || pattern_holds(b.data(), 1 << 20, 4 + i, 0);
    CHECK(found);
  }
}

TEST_CASE("the peer callback can be taken away") {
  Pair pair;
  CHECK(nrdma_node_set_peer_callback(pair.a, nullptr, nullptr) == NRDMA_OK);
  CHECK(nrdma_node_shutdown(pair.b, 0) == NRDMA_OK);
  CHECK(eventually([&] {
    uint64_t total = 1;
    return nrdma_node_peers(pair.a, nullptr, 0, 0, &total) == NRDMA_OK && total == 0;
  }));
  sleep_ms(20);
  CHECK(pair.a_events.count(2, NRDMA_PEER_EVENT_LEFT) == 0);
}
