// Real DiCE jobs for the tests: one class whose pieces and results can be told apart, and what it carries.
#ifndef NRDMA_TEST_RIG_DICE_HPP
#define NRDMA_TEST_RIG_DICE_HPP
#include <atomic>
#include <memory>

#include "rig_cluster.hpp"

namespace rig {

using mi::Float32;
using mi::Float64;
using mi::Sint8;
using mi::Sint16;
using mi::Sint32;
using mi::Sint64;
using mi::Size;
using mi::Uint8;
using mi::Uint16;
using mi::Uint32;
using mi::Uint64;
using mi::base::Handle;
using mi::neuraylib::IDeserializer;
using mi::neuraylib::IDice_transaction;
using mi::neuraylib::IExecution_listener;
using mi::neuraylib::IFragmented_job;
using mi::neuraylib::IJob_execution_context;
using mi::neuraylib::IRDMA_buffer;
using mi::neuraylib::IRDMA_context;
using mi::neuraylib::IScheduler;
using mi::neuraylib::ISerializable;
using mi::neuraylib::ISerializer;
using mi::neuraylib::Tag_struct;

using Bytes = std::vector<Uint8>;

// A fact that must hold inside of a job: otherwise it throws, and the fragment fails with the text.
#define MUST(condition) \
  ((condition) ? (void)0 : throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition))

// Three values of every type that a stream knows, made from a seed.
struct Values {
  bool b[3] = {};
  Uint8 u8[3] = {};
  Uint16 u16[3] = {};
  Uint32 u32[3] = {};
  Uint64 u64[3] = {};
  Sint8 s8[3] = {};
  Sint16 s16[3] = {};
  Sint32 s32[3] = {};
  Sint64 s64[3] = {};
  Float32 f32[3] = {};
  Float64 f64[3] = {};
  Tag_struct tag[3] = {};

  template <class F>
  void each(F f) {
    f(b), f(u8), f(u16), f(u32), f(u64), f(s8), f(s16), f(s32), f(s64), f(f32), f(f64), f(tag);
  }
  void make(Uint64 seed) {
    each([&seed](auto& values) {
      for (auto& value : values) set(value, seed = seed * 6364136223846793005u + 1442695040888963407u);
    });
  }
  // One value alone, then two at once: both forms of every overload.
  void write(ISerializer* to) const {
    const_cast<Values*>(this)->each([to](const auto& values) {
      MUST(to->write(&values[0]));
      MUST(to->write(&values[1], 2));
    });
  }
  void read(IDeserializer* from) {
    each([from](auto& values) {
      MUST(from->read(&values[0]));
      MUST(from->read(&values[1], 2));
    });
  }
  Bytes bytes() const {
    Bytes out;
    const_cast<Values*>(this)->each([&out](const auto& values) {
      const auto* begin = reinterpret_cast<const Uint8*>(&values[0]);
      out.insert(out.end(), begin, begin + sizeof values);
    });
    return out;
  }

 private:
  template <class T>
  static void set(T& value, Uint64 random) {
    std::memcpy(&value, &random, sizeof value);
  }
  static void set(bool& value, Uint64 random) { value = (random >> 40) % 2 != 0; }
};

// A tree of objects inside each other.
class Leaf : public mi::neuraylib::Base<0x6c656166, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ISerializable> {
 public:
  Values values;
  std::vector<Handle<Leaf>> children;

  static Handle<Leaf> tree(Uint64 seed, int depth) {
    Handle<Leaf> leaf(new Leaf);
    leaf->values.make(seed);
    for (int i = 0; i < depth; ++i) leaf->children.push_back(tree(seed * 31 + static_cast<Uint64>(i), depth - 1));
    return leaf;
  }
  Bytes bytes() const {
    Bytes out = values.bytes();
    for (const auto& child : children) {
      const Bytes more = child->bytes();
      out.insert(out.end(), more.begin(), more.end());
    }
    return out;
  }
  void serialize(ISerializer* to) const override {
    const Uint32 n = static_cast<Uint32>(children.size());
    to->reserve(1000);
    MUST(to->write(&n));
    for (const auto& child : children) MUST(to->serialize(child.get()));
    to->flush();  // inside of an object: nothing happens
    values.write(to);
  }
  void deserialize(IDeserializer* from) override {
    Uint32 n = 0;
    MUST(from->read(&n));
    children.clear();
    for (Uint32 i = 0; i < n; ++i) {
      children.push_back(Handle<Leaf>(from->deserialize<Leaf>()));
      MUST(children.back().is_valid_interface());
    }
    values.read(from);
    Uint8 past = 7;
    MUST(!from->read(&past) && past == 7);
  }
};

// What a host of the tests gives as the transaction of fragments that it runs for others.
inline IDice_transaction* transaction_of(Uint32 host) {
  return reinterpret_cast<IDice_transaction*>(static_cast<uintptr_t>(0x10000u + host));
}

// What fragments of this process have in common, whichever job they belong to.
struct Here {
  std::atomic<int> running{0}, most{0};
  std::atomic<Uint64> made{0}, gone{0}, serialized{0};
  void enter() {
    const int now = ++running;
    for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {
    }
  }
  void leave() { --running; }
};
inline Here here;

// The job: fragment i has pieces(i) pieces of data, which follow from its seed and its tree alone.
class Dice_job : public mi::neuraylib::Fragmented_job<0x64696365, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10> {
 public:
  enum Act {
    PLAIN,
    KEEP,            // the requester retains every result
    SHARED,          // one buffer of the replica's is the result of all fragments
    THROW,           // in the fragment
    THROW_RECEIVE,   // in the last receive
    THROW_PARTIAL,   // in the first receive
    THROW_READ,      // in deserialize
    THROW_WRITE,     // in serialize
    SLOW,            // 20 ms, and tells how many run at once here
    PAST_END,        // receive reads one byte too many
    LARGE,           // a result that does not fit its buffer
  };
  // What goes over the wire.
  Uint32 act = PLAIN;
  Uint32 mode = CLUSTER;
  bool rdma = true;
  Uint64 seed = 1;
  Uint32 most_pieces = 1;
  Uint64 piece_bytes = 1000;
  bool nulls = false;  // every third fragment has no result
  Uint32 requester = 0;
  Handle<Leaf> tree;
  // What does not.
  Size thread_limit = 0;
  Sint8 priority = 0;
  Float32 cpu_load = 0, gpu_load = 0;
  std::vector<Uint32> assigned;
  IDice_transaction* expected = nullptr;
  std::mutex lock;
  std::map<Size, std::vector<Bytes>> results;
  std::map<Size, int> runs_here;
  std::map<Size, Handle<IRDMA_buffer>> kept;
  std::set<Uint64> threads;
  std::atomic<int> cancels{0}, executing{0};
  Handle<IRDMA_buffer> shared;
  std::mutex shared_lock;

  Dice_job() { here.made++; }
  Dice_job(const Dice_job&) = delete;
  ~Dice_job() override { here.gone++; }

  Uint32 pieces(Size index) const { return 1 + static_cast<Uint32>((index + seed) % most_pieces); }
  bool empty(Size index) const { return nulls && index % 3 == 0; }
  Bytes piece(Size index, Uint32 number) const {
    Bytes out(piece_bytes);
    pattern_fill(out.data(), out.size(), seed * 1000003 + index * 17 + number, 0);
    if (tree) {
      const Bytes more = tree->bytes();
      for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Uint8>(out[i] ^ more[i % more.size()]);
    }
    return out;
  }

  // ---- serialization
  void serialize(ISerializer* to) const override {
    here.serialized++;
    if (act == THROW_WRITE) throw std::runtime_error("boom serialize");
    const Uint8 has_tree = tree ? 1 : 0;
    MUST(to->write(&act) && to->write(&mode) && to->write(&rdma) && to->write(&seed) && to->write(&most_pieces));
    MUST(to->write(&piece_bytes) && to->write(&nulls) && to->write(&requester) && to->write(&has_tree));
    if (tree) MUST(to->serialize(tree.get()));
  }
  void deserialize(IDeserializer* from) override {
    Uint8 has_tree = 0;
    MUST(from->read(&act) && from->read(&mode) && from->read(&rdma) && from->read(&seed) && from->read(&most_pieces));
    MUST(from->read(&piece_bytes) && from->read(&nulls) && from->read(&requester) && from->read(&has_tree));
    if (has_tree != 0) {
      Handle<ISerializable> inner(from->deserialize());
      MUST(inner.is_valid_interface());
      tree = inner.get_interface<Leaf>();
    }
    if (act == THROW_READ) throw std::runtime_error("boom deserialize");
  }

  // ---- here
  void execute_fragment(IDice_transaction* txn, Size index, Size, const IJob_execution_context* context) override {
    MUST(txn == expected);
    begin(index, context);
    std::lock_guard<std::mutex> guard(lock);
    threads.insert(context->get_thread_id());
    runs_here[index]++;
    if (empty(index)) return;
    for (Uint32 i = 0; i < pieces(index); ++i) results[index].push_back(piece(index, i));
  }

  // ---- there
  void execute_fragment_remote(ISerializer* to, IDice_transaction* txn, Size index, Size,
                               const IJob_execution_context* context) override {
    MUST(txn != nullptr && txn != expected && !rdma);
    begin(index, context);
    if (empty(index)) return;
    for (Uint32 i = 0; i < pieces(index); ++i) {
      if (i > 0) to->flush();
      const Bytes bytes = piece(index, i);
      const Uint64 size = bytes.size();
      MUST(to->write(&size) && to->write(bytes.data(), size));
    }
  }
  void receive_remote_result(IDeserializer* from, IDice_transaction* txn, Size index, Size) override {
    MUST(txn == expected);
    std::unique_lock<std::mutex> guard(lock);
    const size_t before = results[index].size();
    guard.unlock();
    if (act == THROW_PARTIAL && before == 0) throw std::runtime_error("boom partial");
    if (act == THROW_RECEIVE) throw std::runtime_error("boom receive");
    Uint64 size = 0;
    Bytes bytes;
    if (from->read(&size)) {
      bytes.resize(size);
      MUST(from->read(bytes.data(), size));
    } else {
      MUST(empty(index) && size == 0);
    }
    Uint64 past = 99;
    MUST(!from->read(&past) && past == 99 && from->deserialize() == nullptr);
    guard.lock();
    if (!empty(index)) results[index].push_back(bytes);
  }
  IRDMA_buffer* get_rdma_result_buffer(IRDMA_context* context, Size index) override {
    (void)index;
    return rdma ? context->get_read_memory(piece_bytes) : nullptr;
  }
  IRDMA_buffer* execute_fragment_remote_rdma(IDice_transaction* txn, Size index, Size, IRDMA_context* rdma_context,
                                             const IJob_execution_context* context) override {
    MUST(txn != nullptr && rdma);
    begin(index, context);
    if (empty(index)) return nullptr;
    if (act == LARGE) {
      MUST(rdma_context->get_write_memory(piece_bytes + 1) == nullptr);
      return rdma_context->get_read_memory(piece_bytes + 1);
    }
    if (act == SHARED) {
      std::lock_guard<std::mutex> guard(shared_lock);
      if (!shared) {
        shared = rdma_context->get_write_memory(piece_bytes);
        MUST(shared.is_valid_interface());
        const Bytes bytes = piece(0, 0);
        std::memcpy(shared->get_data(), bytes.data(), bytes.size());
      }
      shared->retain();
      return shared.get();
    }
    Handle<IRDMA_buffer> out(rdma_context->get_write_memory(piece_bytes));
    MUST(out.is_valid_interface());
    for (Uint32 i = 0; i < pieces(index); ++i) {
      if (i > 0 && rdma_context->flush(out.get()) != 0) throw std::runtime_error("flush: " + last_error());
      const Bytes bytes = piece(index, i);
      std::memcpy(out->get_data(), bytes.data(), bytes.size());
    }
    out->retain();
    return out.get();
  }
  void receive_remote_result_rdma(IRDMA_buffer* buffer, IDice_transaction* txn, Size index, Size) override {
    MUST(txn == expected && buffer->get_size() == piece_bytes && !empty(index));
    std::lock_guard<std::mutex> guard(lock);
    if (act == THROW_PARTIAL && results[index].empty()) {
      results[index].emplace_back();
      throw std::runtime_error("boom partial");
    }
    if (act == THROW_RECEIVE) throw std::runtime_error("boom receive");
    if (act == KEEP) {
      kept[index] = Handle<IRDMA_buffer>(buffer, mi::base::DUP_INTERFACE);
      return;
    }
    results[index].emplace_back(buffer->get_data(), buffer->get_data() + buffer->get_size());
  }

  void assign_fragments_to_hosts(Uint32* slots, Size count) override {
    for (Size i = 0; i < count; ++i) slots[i] = assigned.at(i);
  }
  Scheduling_mode get_scheduling_mode() const override { return static_cast<Scheduling_mode>(mode); }
  Float32 get_cpu_load() const override { return cpu_load; }
  Float32 get_gpu_load() const override { return gpu_load; }
  void cancel() override { cancels++; }
  Sint8 get_priority() const override { return priority; }
  Size get_thread_limit() const override { return thread_limit; }

 private:
  void begin(Size index, const IJob_execution_context* context) {
    MUST(context->get_thread_id() != 0 && context->get_thread_id() == context->get_thread_id());
    if (act == THROW && index % 4 == 1) throw std::runtime_error("boom fragment " + std::to_string(index));
    if (act == SLOW) {
      here.enter();
      sleep_ms(20);
      here.leave();
    }
  }
};

// The same job, run LOCAL: what every other run must give.
inline std::map<Size, std::vector<Bytes>> local_results(nrdma_node* node, const Dice_job& like, Size count) {
  Handle<Dice_job> job(new Dice_job);
  job->mode = IFragmented_job::LOCAL;
  job->seed = like.seed;
  job->most_pieces = like.most_pieces;
  job->piece_bytes = like.piece_bytes;
  job->nulls = like.nulls;
  job->tree = like.tree;
  if (nrdma::execute(node, *job.get(), count) != NRDMA_OK) throw std::runtime_error(last_error());
  return job->results;
}

class Listener : public mi::base::Interface_implement<IExecution_listener> {
 public:
  std::atomic<int> finished{0};
  Gate done;
  void job_finished() override {
    finished++;
    done.open();
  }
};

inline IDice_transaction* give_transaction(void* host) {
  return transaction_of(static_cast<Uint32>(reinterpret_cast<uintptr_t>(host)));
}
inline void* transaction_callback(void* host) { return give_transaction(host); }

inline void open_dice(nrdma_node* node) {
  void* host = reinterpret_cast<void*>(static_cast<uintptr_t>(nrdma_node_host_id(node)));
  if (nrdma::register_job<Dice_job>(node, transaction_callback, host) != NRDMA_OK)
    throw std::runtime_error("register_job: " + last_error());
  Handle<mi::neuraylib::IUser_class_factory> leaves(new mi::neuraylib::User_class_factory<Leaf>);
  if (nrdma_node_register_serializable_class(node, nrdma::to_c(Leaf::IID()), leaves.get(), nullptr, nullptr) != NRDMA_OK)
    throw std::runtime_error("register_serializable_class: " + last_error());
}
inline const bool dice_opened = (openers().push_back(open_dice), true);

}  // namespace rig
#endif
