// Job classes and their replicas: payloads, one replica per job and host, coming and going of classes.
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
constexpr nrdma_uuid echo_class{0x6563686fu, 1, 1, 1};
constexpr nrdma_uuid late_class{0x6c617465u, 1, 1, 1};

uint64_t digest(const uint8_t* data, uint64_t size) {
  uint64_t h = 1469598103934665603ull;
  for (uint64_t i = 0; i < size; ++i) h = (h ^ data[i]) * 1099511628211ull;
  return h;
}

// A class that says what payload it was made from. Its state lives in this process, so it is used with Pair.
struct Echo {
  std::atomic<uint64_t> created{0}, destroyed{0}, running{0};
  std::atomic<int> wrong{0};
  uint64_t pause_ms = 0;
};
struct EchoReplica {
  Echo* home;
  std::vector<uint8_t> payload;
  std::atomic<bool> alive{true};
};

nrdma_status echo_create(void* user, const void* payload, uint64_t size, void** replica) {
  auto* echo = static_cast<Echo*>(user);
  echo->created++;
  const auto* bytes = static_cast<const uint8_t*>(payload);
  auto* made = new EchoReplica{echo, {}};
  if (size != 0) made->payload.assign(bytes, bytes + size);
  sleep_ms(5);  // several fragments arrive meanwhile
  *replica = made;
  return NRDMA_OK;
}
nrdma_status echo_execute(void* user, const nrdma_fragment*, nrdma_context* context, nrdma_buffer** result) {
  auto* replica = static_cast<EchoReplica*>(user);
  if (!replica->alive) replica->home->wrong++;
  replica->home->running++;
  sleep_ms(static_cast<unsigned>(replica->home->pause_ms));
  const uint64_t words[2] = {replica->payload.size(), digest(replica->payload.data(), replica->payload.size())};
  nrdma_buffer* b = nrdma_context_get_write_memory(context, sizeof words, -1);
  if (b == nullptr) return NRDMA_OUT_OF_MEMORY;
  std::memcpy(nrdma_buffer_get_data(b), words, sizeof words);
  *result = b;
  replica->home->running--;
  return NRDMA_OK;
}
void echo_destroy(void* user) {
  auto* replica = static_cast<EchoReplica*>(user);
  replica->alive = false;
  replica->home->destroyed++;
  delete replica;
}
nrdma_job_class echo_table(Echo& echo) {
  nrdma_job_class table{};
  table.struct_size = sizeof table;
  table.user = &echo;
  table.abi = NRDMA_CXX_ABI_HOST;
  table.create = echo_create;
  table.execute_remote = echo_execute;
  table.destroy = echo_destroy;
  return table;
}
}  // namespace

TEST_CASE("payloads of 0 B, 1 B and 3 MiB arrive whole; one replica per job") {
  Echo echo;
  Pair pair;
  const nrdma_job_class table = echo_table(echo);
  REQUIRE(nrdma_node_register_class(pair.b, echo_class, &table) == NRDMA_OK);
  uint64_t jobs = 0;
  for (const uint64_t size : {uint64_t(0), uint64_t(1), uint64_t(2047), uint64_t(2049), uint64_t(3) << 20}) {
    CAPTURE(size);
    std::vector<uint8_t> payload(size + 1);
    pattern_fill(payload.data(), size, size, 0);
    const uint64_t expected = digest(payload.data(), size);
    Job job("unused", {}, 16);
    job.to(2);
    job.table.class_id = echo_class;
    job.table.payload = size == 0 ? nullptr : payload.data();
    job.table.payload_size = size;
    REQUIRE(job.run(pair.a, 12) == NRDMA_OK);
    REQUIRE(job.results.size() == 12);
    for (const Received& r : job.results) {
      uint64_t words[2];
      REQUIRE(r.size == sizeof words);
      std::memcpy(words, r.bytes.data(), sizeof words);
      CHECK(words[0] == size);
      CHECK(words[1] == expected);
    }
    ++jobs;
    CHECK(echo.created == jobs);
    CHECK(eventually([&] { return echo.destroyed == jobs; }));
  }
  CHECK(echo.wrong == 0);
  CHECK(nrdma_node_unregister_class(pair.b, echo_class, 1000) == NRDMA_OK);
  CHECK(echo.created == echo.destroyed);
}

TEST_CASE("bad payloads are refused") {
  Cluster cluster(1);
  Job job("nothing");
  job.table.payload = nullptr;
  job.table.payload_size = 100;
  CHECK(job.run(cluster.node, 1) == NRDMA_INVALID_PARAMETER);
  CHECK(contains(last_error(), "100"));
}

TEST_CASE("a class that is registered after the peers met is used") {
  Echo echo;
  Pair pair;
  Job early("unused", {}, 16);
  early.to(2);
  early.table.class_id = late_class;
  CHECK(early.run(pair.a, 1) == NRDMA_FRAGMENT_FAILED);
  const nrdma_job_class table = echo_table(echo);
  REQUIRE(nrdma_node_register_class(pair.b, late_class, &table) == NRDMA_OK);
  CHECK(eventually([&] {
    Job job("unused", {}, 16);
    job.to(2);
    job.table.class_id = late_class;
    return job.run(pair.a, 1) == NRDMA_OK && job.results.size() == 1;
  }));
  REQUIRE(nrdma_node_unregister_class(pair.b, late_class, 1000) == NRDMA_OK);
  const uint64_t created = echo.created;
  Job gone("unused", {}, 16);
  gone.to(2);
  gone.table.class_id = late_class;
  CHECK(gone.run(pair.a, 1) == NRDMA_FRAGMENT_FAILED);
  CHECK(echo.created == created);
  // And once more: the id is free again.
  CHECK(nrdma_node_register_class(pair.b, late_class, &table) == NRDMA_OK);
}

TEST_CASE("unregister waits for the last replica") {
  Echo echo;
  echo.pause_ms = 300;
  Pair pair;
  const nrdma_job_class table = echo_table(echo);
  REQUIRE(nrdma_node_register_class(pair.b, echo_class, &table) == NRDMA_OK);
  Job job("unused", {}, 16);
  job.to(2);
  job.table.class_id = echo_class;
  REQUIRE(job.start(pair.a, 1) == NRDMA_OK);
  REQUIRE(eventually([&] { return echo.running == 1; }));
  CHECK(nrdma_node_unregister_class(pair.b, echo_class, 20) == NRDMA_TIMED_OUT);
  CHECK(!last_error().empty());
  CHECK(nrdma_node_unregister_class(pair.b, echo_class, 20000) == NRDMA_OK);
  CHECK(echo.created == echo.destroyed);
  CHECK(echo.running == 0);
  REQUIRE(job.done.wait());
  CHECK(job.done_status == NRDMA_OK);
  CHECK(echo.wrong == 0);
}

TEST_CASE("registering: twice, unknown, incomplete") {
  Echo echo;
  Node node;
  nrdma_job_class table = echo_table(echo);
  CHECK(nrdma_node_register_class(node, echo_class, &table) == NRDMA_OK);
  nrdma_clear_error();
  CHECK(nrdma_node_register_class(node, echo_class, &table) < 0);
  CHECK(!last_error().empty());
  CHECK(nrdma_node_register_class(node, late_class, nullptr) == NRDMA_INVALID_PARAMETER);
  table.execute_remote = nullptr;  // neither kind of execute
  CHECK(nrdma_node_register_class(node, late_class, &table) == NRDMA_INVALID_PARAMETER);
  table = echo_table(echo);
  table.abi = 7;
  CHECK(nrdma_node_register_class(node, late_class, &table) == NRDMA_INVALID_PARAMETER);
  table = echo_table(echo);
  table.struct_size = 3;
  CHECK(nrdma_node_register_class(node, late_class, &table) == NRDMA_INVALID_PARAMETER);
  nrdma_clear_error();
  CHECK(nrdma_node_unregister_class(node, late_class, 100) == NRDMA_NOT_REGISTERED);
  CHECK(contains(last_error(), "6c617465"));
}

TEST_CASE("a class serves only the kind of result it has a function for") {
  Echo echo;
  Pair pair;
  const nrdma_job_class table = echo_table(echo);  // buffers only
  REQUIRE(nrdma_node_register_class(pair.b, echo_class, &table) == NRDMA_OK);
  Job job("unused");
  job.bytes().to(2);
  job.table.class_id = echo_class;
  CHECK(job.run(pair.a, 1) == NRDMA_FRAGMENT_FAILED);
  REQUIRE(job.failures.size() == 1);
  CHECK(!job.failures[0].text.empty());
}
