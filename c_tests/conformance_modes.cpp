// Where fragments run: the four modes, exactly once each, limits and priorities.
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

using namespace rig;

namespace {
// Counts where each fragment was done.
struct Ledger {
  std::mutex lock;
  std::map<uint64_t, int> times;
  std::map<uint32_t, uint64_t> by_host;
  void note(uint64_t index, uint32_t host) {
    std::lock_guard<std::mutex> guard(lock);
    times[index]++;
    by_host[host]++;
  }
  bool exactly_once(uint64_t count) {
    if (times.size() != count) return false;
    for (const auto& [index, n] : times)
      if (index >= count || n != 1) return false;
    return true;
  }
};

void keep_ledger(Job& job, Ledger& ledger, bool local) {
  job.receive = [&ledger](nrdma_buffer*, const nrdma_result* r) {
    ledger.note(r->index, r->host_id);
    return NRDMA_OK;
  };
  if (local)
    job.execute = [&ledger](const nrdma_fragment* f) {
      ledger.note(f->index, 1);
      return NRDMA_OK;
    };
}
}  // namespace

TEST_CASE("LOCAL: every fragment here, exactly once") {
  Cluster cluster(1);
  Job job("nothing");
  job.table.mode = NRDMA_LOCAL;
  Ledger ledger;
  keep_ledger(job, ledger, true);
  std::atomic<int> wrong{0};
  const auto plain = job.execute;
  job.execute = [&](const nrdma_fragment* f) {
    if (f->count != 300 || f->host_id != 1 || nrdma_fragment_cancelled(f) != 0) wrong++;
    return plain(f);
  };
  const uint64_t before = cluster.node.stats().fragments_local;
  CHECK(job.run(cluster.node, 300) == NRDMA_OK);
  CHECK(ledger.exactly_once(300));
  CHECK(wrong == 0);
  CHECK(cluster.node.stats().fragments_local == before + 300);
}

// size, milliseconds.
ACT(slow_fill) {
  sleep_ms(static_cast<unsigned>(p.a(1)));
  p.result = p.write(p.a(0));
  EXPECT(p.result);
  EXPECT(p.fragment->host_id == 1);
  EXPECT(p.index() < p.fragment->count);
  pattern_fill(p.result.data(), p.a(0), p.index(), 0);
}

TEST_CASE("CLUSTER: spread over this host and its peers, exactly once") {
  Cluster cluster(2);
  Ledger ledger;
  Job job("slow_fill", {256, 1}, 256);
  keep_ledger(job, ledger, true);
  const auto plain = job.execute;
  job.execute = [&](const nrdma_fragment* f) {
    sleep_ms(1);
    return plain(f);
  };
  CHECK(job.run(cluster.node, 400) == NRDMA_OK);
  CHECK(ledger.exactly_once(400));
  // Every host took part: this one is one among them.
  CHECK(ledger.by_host[1] > 0);
  CHECK(ledger.by_host[2] > 0);
  CHECK(ledger.by_host[3] > 0);
}

TEST_CASE("CLUSTER without execute_fragment: remote hosts only; without peers: here only") {
  Cluster cluster(2);
  Ledger remote;
  Job job("slow_fill", {256, 0}, 256);
  keep_ledger(job, remote, false);
  CHECK(job.run(cluster.node, 100) == NRDMA_OK);
  CHECK(remote.exactly_once(100));
  CHECK(remote.by_host[1] == 0);

  Cluster lonely(0);
  Ledger here;
  Job local("slow_fill", {256, 0}, 256);
  keep_ledger(local, here, true);
  CHECK(local.run(lonely.node, 100) == NRDMA_OK);
  CHECK(here.exactly_once(100));
  CHECK(here.by_host[1] == 100);
}

TEST_CASE("CLUSTER: hosts that lack the class are skipped") {
  Cluster cluster(2);  // ids 2 and 3: only 3 has it
  Ledger ledger;
  Job job("slow_fill", {256, 0}, 256);
  job.table.class_id = sparse_class;
  keep_ledger(job, ledger, false);
  CHECK(job.run(cluster.node, 50) == NRDMA_OK);
  CHECK(ledger.exactly_once(50));
  CHECK(ledger.by_host[3] == 50);
}

TEST_CASE("a class that nobody has") {
  Cluster cluster(2);
  Job job("nothing");
  job.table.class_id = missing_class;
  nrdma_clear_error();
  CHECK(job.run(cluster.node, 5) < 0);
  CHECK(!last_error().empty());
  CHECK(job.results.empty());
  // With execute_fragment it runs here.
  Ledger ledger;
  Job local("nothing");
  local.table.class_id = missing_class;
  keep_ledger(local, ledger, true);
  CHECK(local.run(cluster.node, 5) == NRDMA_OK);
  CHECK(ledger.exactly_once(5));
}

TEST_CASE("ONCE_PER_HOST: at most one fragment per remote host") {
  Cluster cluster(2);
  for (const uint64_t count : {0, 1, 2, 5}) {
    CAPTURE(count);
    Ledger ledger;
    Job job("slow_fill", {256, 0}, 256);
    job.table.mode = NRDMA_ONCE_PER_HOST;
    keep_ledger(job, ledger, true);
    CHECK(job.run(cluster.node, count) == NRDMA_OK);
    const uint64_t expected = count == 0 ? 2 : std::min<uint64_t>(count, 2);
    CHECK(ledger.exactly_once(expected));
    CHECK(ledger.by_host[1] == 0);
    CHECK(ledger.by_host[2] + ledger.by_host[3] == expected);
    CHECK(ledger.by_host[2] <= 1);
    CHECK(ledger.by_host[3] <= 1);
    CHECK(job.failures.empty());
  }
}

TEST_CASE("ONCE_PER_HOST without peers runs nothing") {
  Cluster cluster(0);
  Job job("nothing");
  job.table.mode = NRDMA_ONCE_PER_HOST;
  CHECK(job.run(cluster.node, 0) == NRDMA_OK);
  CHECK(job.results.empty());
}

TEST_CASE("USER_DEFINED: the host of each fragment, 0 and the own id are here, unknown ids are skipped") {
  Cluster cluster(2);
  Ledger ledger;
  std::map<uint64_t, uint32_t> where;
  Job job("slow_fill", {256, 0}, 256);
  job.table.mode = NRDMA_USER_DEFINED;
  const std::vector<uint32_t> plan = {2, 3, 2, 0, 1, 999999, 3};
  job.assign = [&](uint32_t* slots, uint64_t n) {
    for (uint64_t i = 0; i < n && i < plan.size(); ++i) slots[i] = plan[i];
  };
  std::mutex lock;
  job.receive = [&](nrdma_buffer*, const nrdma_result* r) {
    std::lock_guard<std::mutex> guard(lock);
    where[r->index] = r->host_id;
    ledger.note(r->index, r->host_id);
    return NRDMA_OK;
  };
  job.execute = [&](const nrdma_fragment* f) {
    std::lock_guard<std::mutex> guard(lock);
    where[f->index] = 1;
    ledger.note(f->index, 1);
    return NRDMA_OK;
  };
  CHECK(job.run(cluster.node, plan.size()) == NRDMA_OK);
  CHECK(ledger.times.size() == plan.size() - 1);
  for (const auto& [index, n] : ledger.times) CHECK(n == 1);
  CHECK(where == std::map<uint64_t, uint32_t>{{0, 2}, {1, 3}, {2, 2}, {3, 1}, {4, 1}, {6, 3}});
  CHECK(job.failures.empty());
}

TEST_CASE("USER_DEFINED to a host that lacks the class fails that fragment and names both") {
  Cluster cluster(2);
  Ledger ledger;
  Job job("slow_fill", {256, 0}, 256);
  job.table.class_id = sparse_class;
  job.table.mode = NRDMA_USER_DEFINED;
  job.assign = [](uint32_t* slots, uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) slots[i] = i == 1 ? 2 : 3;
  };
  keep_ledger(job, ledger, false);
  CHECK(job.run(cluster.node, 3) == NRDMA_FRAGMENT_FAILED);
  CHECK(ledger.times.size() == 2);
  REQUIRE(job.failures.size() == 1);
  CHECK(job.failures[0].index == 1);
  CHECK(job.failures[0].why == NRDMA_NOT_REGISTERED);
  CHECK(contains(job.failures[0].text, "2"));
  CHECK(contains(job.failures[0].text, "73706172"));
}

// milliseconds: how many of this job ran at once here, as the result.
ACT(count_running) {
  const uint64_t running = ++p.site.running;
  for (uint64_t most = p.site.most; running > most && !p.site.most.compare_exchange_weak(most, running);) {
  }
  sleep_ms(static_cast<unsigned>(p.a(0)));
  p.site.running--;
  p.result = p.write(8);
  const uint64_t most = p.site.most;
  std::memcpy(p.result.data(), &most, 8);
}

TEST_CASE("thread_limit holds per host") {
  Setup four;
  four.worker_threads = 4;
  Cluster cluster(2, four, four);
  Job job("count_running", {3}, 8);
  job.table.thread_limit = 2;
  std::atomic<uint64_t> running{0}, most{0};
  std::atomic<int> over{0};
  job.execute = [&](const nrdma_fragment*) {
    if (++running > 2) over++;
    sleep_ms(3);
    running--;
    return NRDMA_OK;
  };
  job.receive = [&](nrdma_buffer* b, const nrdma_result*) {
    uint64_t seen = 0;
    std::memcpy(&seen, nrdma_buffer_get_data(b), 8);
    if (seen > 2) over++;
    for (uint64_t old = most; seen > old && !most.compare_exchange_weak(old, seen);) {
    }
    return NRDMA_OK;
  };
  CHECK(job.run(cluster.node, 80) == NRDMA_OK);
  CHECK(over == 0);
  CHECK(most == 2);  // and is made use of
}

TEST_CASE("lower priority values first, first come first served within one") {
  Setup one;
  one.worker_threads = 1;
  Cluster cluster(0, one, one);
  Gate started, gate;
  Job block("nothing"), late("nothing"), middle("nothing"), urgent("nothing");
  std::mutex lock;
  std::vector<int> order;
  for (Job* job : {&block, &late, &middle, &urgent}) job->table.mode = NRDMA_LOCAL;
  late.table.priority = 9000;  // so far apart that waiting does not make up for it on a busy machine
  middle.table.priority = 5000;
  urgent.table.priority = 1;
  block.execute = [&](const nrdma_fragment*) {
    started.open();
    return gate.wait() ? NRDMA_OK : NRDMA_TIMED_OUT;
  };
  for (Job* job : {&late, &middle, &urgent})
    job->execute = [&, job](const nrdma_fragment*) {
      std::lock_guard<std::mutex> guard(lock);
      order.push_back(job->table.priority);
      return NRDMA_OK;
    };
  REQUIRE(block.start(cluster.node, 1) == NRDMA_OK);
  REQUIRE(started.wait());
  REQUIRE(late.start(cluster.node, 2) == NRDMA_OK);
  REQUIRE(middle.start(cluster.node, 2) == NRDMA_OK);
  REQUIRE(urgent.start(cluster.node, 2) == NRDMA_OK);
  sleep_ms(50);  // all of them are in the queue
  gate.open();
  for (Job* job : {&block, &late, &middle, &urgent}) REQUIRE(job->done.wait());
  CHECK(order == std::vector<int>{1, 1, 5000, 5000, 9000, 9000});
}

TEST_CASE("worker_threads NONE: runs nothing for others") {
  Setup none;
  none.worker_threads = static_cast<uint32_t>(NRDMA_NONE);
  Cluster cluster(1);
  cluster.add(with_id(none, 3));
  Ledger ledger;
  Job job("slow_fill", {256, 0}, 256);
  keep_ledger(job, ledger, false);
  CHECK(job.run(cluster.node, 20) == NRDMA_OK);
  CHECK(ledger.by_host[2] == 20);
  CHECK(ledger.by_host[3] == 0);
}

TEST_CASE("stats count fragments where they ran") {
  Pair pair;
  const nrdma_stats a = pair.a.stats(), b = pair.b.stats();
  Job job("slow_fill", {256, 0}, 256);
  CHECK(job.to(2).run(pair.a, 30) == NRDMA_OK);
  CHECK(pair.a.stats().fragments_remote == a.fragments_remote + 30);
  CHECK(pair.b.stats().fragments_served == b.fragments_served + 30);
  CHECK(pair.a.stats().fragments_retried == a.fragments_retried);
  CHECK(pair.a.stats().peers == 1);
  CHECK(pair.a.stats().threads >= 2);
}

TEST_CASE("many jobs from many threads at once") {
  Cluster cluster(2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> team;
  for (uint64_t t = 0; t < 4; ++t)
    team.emplace_back([&, t] {
      for (uint64_t i = 0; i < 10; ++i) {
        const uint64_t size = 1000 + 30000 * t, seed = 100000 * t + 1000 * i;
        Job job("fill", {size, seed}, size);
        std::atomic<int> good{0};
        job.receive = [&](nrdma_buffer* b, const nrdma_result* r) {
          if (pattern_holds(nrdma_buffer_get_data(b), size, seed + r->index, 0)) good++;
          return NRDMA_OK;
        };
        if (job.run(cluster.node, 8) != NRDMA_OK || good != 8) wrong++;
      }
    });
  for (std::thread& thread : team) thread.join();
  CHECK(wrong == 0);
}
