// Jobs from lambdas on the requesting side, named acts on the responding side.
#ifndef NRDMA_TEST_RIG_JOB_HPP
#define NRDMA_TEST_RIG_JOB_HPP
#include "rig.hpp"

namespace rig {

// The payload of the "play" class: which act a replica plays, and its numbers.
struct Order {
  char act[32];
  uint64_t a[8];
};

// Where acts run: one node, in this process or in a worker's.
struct Site {
  nrdma_node* node = nullptr;
  uint32_t host_id = 0;
  int signal_fd = -1;
  std::mutex lock;
  std::map<uint64_t, nrdma_buffer*> kept;        // +1 each, across fragments and jobs
  std::map<uint64_t, nrdma_context*> contexts;   // +1 each
  std::map<uint64_t, std::thread> threads;
  std::map<uint64_t, std::string> notes;         // what those threads found
  std::atomic<uint64_t> created{0}, destroyed{0}, cancelled{0}, running{0}, most{0};

  ~Site() { drop(); }
  void drop() {
    for (auto& entry : threads) entry.second.join();
    threads.clear();
    for (auto& entry : kept) nrdma_buffer_release(entry.second);
    kept.clear();
    for (auto& entry : contexts) nrdma_context_release(entry.second);
    contexts.clear();
  }
};

// What an act sees.
struct Play {
  Site& site;
  const Order& order;
  const nrdma_fragment* fragment;
  nrdma_context* context = nullptr;  // acts with buffers
  nrdma_writer* writer = nullptr;    // acts with bytes
  Buffer result;

  uint64_t a(int i) const { return order.a[i]; }
  uint64_t index() const { return fragment->index; }
  Buffer write(uint64_t size) const { return Buffer(nrdma_context_get_write_memory(context, size, -1)); }
  // Sends a text as the result (needs room for it in the result buffer).
  void say(const std::string& text) {
    result = write(text.size() + 1);
    if (!result) throw std::runtime_error("no room for: " + text);
    std::memcpy(result.data(), text.c_str(), text.size() + 1);
  }
};

using Act = void (*)(Play&);
inline std::map<std::string, Act>& acts() {
  static std::map<std::string, Act> table;
  return table;
}
struct Enlist {
  Enlist(const char* name, Act act) { acts()[name] = act; }
};

// Defines an act next to the case that uses it. It throws to complain: the fragment then fails.
#define ACT(name)                                                   \
  static void act_##name(rig::Play& p);                             \
  static const rig::Enlist enlist_##name(#name, act_##name);        \
  static void act_##name([[maybe_unused]] rig::Play& p)

// A complaint of an act: the C table turns it into a failed fragment and says it on stderr.
struct Complaint : std::runtime_error {
  using std::runtime_error::runtime_error;
};
#define EXPECT(condition)                                                                                     \
  ((condition) ? (void)0                                                                                      \
               : throw rig::Complaint(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition \
                                      " (last error: " + nrdma_last_error() + ")"))

inline constexpr nrdma_uuid play_class{0x706c6179u, 1, 2, 3};
inline constexpr nrdma_uuid sparse_class{0x73706172u, 4, 5, 6};   // only on hosts with an odd id
inline constexpr nrdma_uuid missing_class{0x6d697373u, 7, 8, 9};  // nowhere

struct Replica {
  Site* site;
  Order order;
};

inline nrdma_status play_create(void* user, const void* payload, uint64_t size, void** replica) {
  if (size != sizeof(Order)) return NRDMA_INVALID_PARAMETER;
  auto* site = static_cast<Site*>(user);
  auto* made = new Replica{site, {}};
  std::memcpy(&made->order, payload, sizeof(Order));
  if (std::string(made->order.act) == "throw_create") {
    delete made;
    throw std::runtime_error("boom create");
  }
  site->created++;
  *replica = made;
  return NRDMA_OK;
}

inline nrdma_status play(Replica& replica, Play& p) {
  const auto found = acts().find(replica.order.act);
  try {
    if (found == acts().end()) throw Complaint(std::string("no act ") + replica.order.act);
    found->second(p);
    return NRDMA_OK;
  } catch (const Complaint& complaint) {
    std::fprintf(stderr, "[host %u, act %s] %s\n", replica.site->host_id, replica.order.act, complaint.what());
    return NRDMA_BUFFER_TOO_SMALL;  // any status that a test would not expect
  }
}

inline nrdma_status play_execute(void* user, const nrdma_fragment* fragment, nrdma_context* context,
                                 nrdma_buffer** result) {
  auto& replica = *static_cast<Replica*>(user);
  Play p{*replica.site, replica.order, fragment, context, nullptr, Buffer()};
  const nrdma_status status = play(replica, p);
  if (status == NRDMA_OK) *result = p.result.detach();
  return status;
}

inline nrdma_status play_execute_bytes(void* user, const nrdma_fragment* fragment, nrdma_writer* writer) {
  auto& replica = *static_cast<Replica*>(user);
  Play p{*replica.site, replica.order, fragment, nullptr, writer, Buffer()};
  return play(replica, p);
}

inline void play_cancel(void* user) { static_cast<Replica*>(user)->site->cancelled++; }
inline void play_destroy(void* user) {
  static_cast<Replica*>(user)->site->destroyed++;
  delete static_cast<Replica*>(user);
}

inline nrdma_job_class play_table(Site& site) {
  nrdma_job_class table{};
  table.struct_size = sizeof table;
  table.user = &site;
  table.abi = NRDMA_CXX_ABI_HOST;
  table.create = play_create;
  table.execute_remote = play_execute;
  table.execute_remote_bytes = play_execute_bytes;
  table.cancel = play_cancel;
  table.destroy = play_destroy;
  return table;
}

// What else a node of the tests is given, by files that have classes of their own.
using Opener = void (*)(nrdma_node*);
inline std::vector<Opener>& openers() {
  static std::vector<Opener> list;
  return list;
}

inline void open_site(Site& site, nrdma_node* node, int signal_fd = -1) {
  site.node = node;
  site.host_id = nrdma_node_host_id(node);
  site.signal_fd = signal_fd;
  const nrdma_job_class table = play_table(site);
  if (nrdma_node_register_class(node, play_class, &table) != NRDMA_OK ||
      (site.host_id % 2 == 1 && nrdma_node_register_class(node, sparse_class, &table) != NRDMA_OK))
    throw std::runtime_error("nrdma_node_register_class: " + last_error());
  for (Opener opener : openers()) opener(node);
}

// One received result, as bytes.
struct Received {
  uint64_t index = 0, size = 0;
  uint32_t host = 0, sequence = 0, attempt = 0;
  bool final = false;
  int32_t path = 0;
  std::vector<uint8_t> bytes;
  uint64_t capacity = 0;
};

inline Received received(const uint8_t* data, uint64_t capacity, const nrdma_result* r) {
  Received out{r->index, r->size, r->host_id, r->sequence, r->attempt, (r->flags & NRDMA_RESULT_FINAL) != 0,
               r->path,  {},      capacity};
  if (r->size != 0) out.bytes.assign(data, data + r->size);
  return out;
}

// Everything but the bytes.
inline Received received_head(const nrdma_result* r) {
  nrdma_result head = *r;
  head.size = 0;
  Received out = received(nullptr, 0, &head);
  out.size = r->size;
  return out;
}

// A job whose callbacks are lambdas; those left empty are NULL in the table. Results are also collected.
class Job {
 public:
  nrdma_job table = NRDMA_JOB_INIT;
  Order order{};
  std::function<nrdma_status(const nrdma_fragment*)> execute;
  std::function<nrdma_buffer*(nrdma_context*, uint64_t)> result_buffer;
  std::function<nrdma_status(nrdma_buffer*, const nrdma_result*)> receive;
  std::function<nrdma_status(const uint8_t*, const nrdma_result*)> receive_bytes;
  std::function<void(uint32_t*, uint64_t)> assign;
  std::function<void(uint64_t, nrdma_status, const char*)> failed;
  std::function<void()> cancel;

  struct Failure {
    uint64_t index;
    nrdma_status why;
    std::string text;
  };
  std::mutex lock;
  std::vector<Received> results;
  std::vector<Failure> failures;
  std::atomic<uint64_t> cancels{0}, dones{0};
  std::atomic<nrdma_status> done_status{1};
  Gate done;

  // A job for remote hosts only, with `capacity` bytes of cached memory for each result.
  Job(const char* act, std::vector<uint64_t> numbers = {}, uint64_t capacity = 65536) {
    std::snprintf(order.act, sizeof order.act, "%s", act);
    for (size_t i = 0; i < numbers.size() && i < 8; ++i) order.a[i] = numbers[i];
    table.class_id = play_class;
    table.payload = &order;
    table.payload_size = sizeof order;
    table.mode = NRDMA_CLUSTER;
    table.user = this;
    result_buffer = [capacity](nrdma_context* c, uint64_t) { return nrdma_context_get_read_memory(c, capacity, -1); };
    receive = [this](nrdma_buffer* b, const nrdma_result* r) {
      keep(received(nrdma_buffer_get_const_data(b), nrdma_buffer_get_size(b), r));
      return NRDMA_OK;
    };
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void keep(Received value) {
    std::lock_guard<std::mutex> guard(lock);
    results.push_back(std::move(value));
  }
  // Every fragment goes to this host.
  Job& to(uint32_t host) {
    table.mode = NRDMA_USER_DEFINED;
    assign = [host](uint32_t* slots, uint64_t n) { std::fill(slots, slots + n, host); };
    return *this;
  }
  // Results come as bytes.
  Job& bytes() {
    result_buffer = nullptr;
    receive = nullptr;
    receive_bytes = [this](const uint8_t* data, const nrdma_result* r) {
      keep(received(data, r->size, r));
      return NRDMA_OK;
    };
    return *this;
  }

  nrdma_status run(nrdma_node* node, uint64_t count) {
    wire();
    return nrdma_node_execute(node, &table, count);
  }
  nrdma_status start(nrdma_node* node, uint64_t count, uint64_t* id = nullptr) {
    wire();
    uint64_t unused = 0;
    return nrdma_node_execute_async(node, &table, count, on_done, id != nullptr ? id : &unused);
  }
  // The results of one fragment, in the order of arrival.
  std::vector<const Received*> of(uint64_t index) const {
    std::vector<const Received*> found;
    for (const Received& r : results)
      if (r.index == index) found.push_back(&r);
    return found;
  }
  std::string text(uint64_t index = 0) const {
    const auto found = of(index);
    if (found.empty() || found[0]->bytes.empty()) return "(nothing received)";
    return reinterpret_cast<const char*>(found[0]->bytes.data());
  }

 private:
  static Job& self(void* user) { return *static_cast<Job*>(user); }
  static nrdma_status on_execute(void* u, const nrdma_fragment* f) { return self(u).execute(f); }
  static nrdma_buffer* on_buffer(void* u, nrdma_context* c, uint64_t i) { return self(u).result_buffer(c, i); }
  static nrdma_status on_receive(void* u, nrdma_buffer* b, const nrdma_result* r) { return self(u).receive(b, r); }
  static nrdma_status on_bytes(void* u, const uint8_t* b, const nrdma_result* r) { return self(u).receive_bytes(b, r); }
  static void on_assign(void* u, uint32_t* slots, uint64_t n) { self(u).assign(slots, n); }
  static void on_failed(void* u, uint64_t index, nrdma_status why, const char* text) {
    Job& job = self(u);
    {
      std::lock_guard<std::mutex> guard(job.lock);
      job.failures.push_back({index, why, text != nullptr ? text : "(NULL)"});
    }
    if (job.failed) job.failed(index, why, text);
  }
  static void on_cancel(void* u) {
    self(u).cancels++;
    if (self(u).cancel) self(u).cancel();
  }
  static void on_done(void* u, nrdma_status status) {
    Job& job = self(u);
    job.done_status = status;
    job.dones++;
    job.done.open();
  }
  void wire() {
    table.execute_fragment = execute ? on_execute : nullptr;
    table.get_result_buffer = result_buffer ? on_buffer : nullptr;
    table.receive_result = receive ? on_receive : nullptr;
    table.receive_bytes = receive_bytes ? on_bytes : nullptr;
    table.assign_hosts = assign ? on_assign : nullptr;
    table.fragment_failed = on_failed;
    table.cancel = on_cancel;
  }
};

}  // namespace rig
#endif
