// IScheduler and IDice_configuration: without a transaction, in the background, and in the host's own lines.
#include <doctest/doctest.h>

#include "rig_dice.hpp"

using namespace rig;
using mi::base::Interface_declare;
using mi::base::Uuid;
using mi::neuraylib::IDice_configuration;
using mi::neuraylib::IUser_class_factory;

namespace {

Handle<IScheduler> scheduler_of(nrdma_node* node) {
  return Handle<IScheduler>(static_cast<IScheduler*>(nrdma_node_get_scheduler(node)));
}

template <class T>
unsigned count(const T* object) {
  object->retain();
  return object->release();
}

// A job from a function.
struct Lambda_job : Dice_job {
  std::function<void(Size, const IJob_execution_context*)> body;
  explicit Lambda_job(std::function<void(Size, const IJob_execution_context*)> f) : body(std::move(f)) {
    mode = LOCAL;
  }
  void execute_fragment(IDice_transaction* txn, Size index, Size, const IJob_execution_context* context) override {
    MUST(txn == nullptr);
    body(index, context);
  }
};

}  // namespace

TEST_CASE("execute_fragmented runs every mode, with NULL as the transaction") {
  Cluster cluster(2);
  auto scheduler = scheduler_of(cluster.node);
  REQUIRE(scheduler);
  for (const Uint32 mode : {0u, 1u, 2u, 3u}) {
    CAPTURE(mode);
    Handle<Dice_job> job(new Dice_job);
    job->mode = mode;
    job->assigned.assign(10, 3);
    REQUIRE_MESSAGE(scheduler->execute_fragmented(job.get(), 10) == 0, last_error());
    CHECK(job->results.size() == (mode == 2 ? 2 : 10));
  }
  CHECK(scheduler->execute_fragmented(nullptr, 1) == -1);
}

TEST_CASE("asynchronous jobs: retained, and finished once") {
  Node node;
  auto scheduler = scheduler_of(node);
  Handle<Listener> listener(new Listener);
  Gate go;
  Handle<Lambda_job> job(new Lambda_job([&](Size, const IJob_execution_context*) { go.wait(); }));
  REQUIRE(scheduler->execute_fragmented_async(job.get(), 5, listener.get()) == 0);
  CHECK(count(job.get()) == 2);
  CHECK(count(listener.get()) == 2);
  CHECK(listener->finished == 0);
  go.open();
  CHECK(listener->done.wait());
  CHECK(eventually([&] { return count(job.get()) == 1 && count(listener.get()) == 1; }));
  CHECK(listener->finished == 1);
  // Nobody need listen; a refused job is not retained.
  REQUIRE(scheduler->execute_fragmented_async(job.get(), 5, nullptr) == 0);
  job->mode = IFragmented_job::CLUSTER;
  CHECK(scheduler->execute_fragmented_async(job.get(), 5, listener.get()) == -2);
  CHECK(eventually([&] { return count(job.get()) == 1; }));
  CHECK(count(listener.get()) == 1);
}

TEST_CASE("a shutdown cancels an asynchronous job and finishes it once") {
  Handle<Listener> listener(new Listener);
  std::atomic<bool> started{false};
  Gate go;
  Handle<Lambda_job> job(new Lambda_job([&](Size, const IJob_execution_context*) {
    started = true;
    go.wait();
  }));
  {
    Node node;
    auto scheduler = scheduler_of(node);
    REQUIRE(scheduler->execute_fragmented_async(job.get(), 1000, listener.get()) == 0);
    REQUIRE(eventually([&] { return started.load(); }));
    std::thread later([&] {
      eventually([&] { return job->cancels > 0; });
      go.open();
    });
    node.destroy();
    later.join();
    CHECK(listener->finished == 1);
    CHECK(job->cancels == 1);
    CHECK(scheduler->execute_fragmented(job.get(), 1) == NRDMA_SHUT_DOWN);
    CHECK(scheduler->execute_fragmented_async(job.get(), 1, nullptr) == NRDMA_SHUT_DOWN);
    scheduler->suspend_current_job();
    scheduler->resume_current_job();
    scheduler->yield();
  }
  CHECK(count(job.get()) == 1);
}

TEST_CASE("12 suspended parents on 2 workers") {
  Node node;  // 2 workers
  auto scheduler = scheduler_of(node);
  std::atomic<int> waiting{0}, after{0}, most{0}, running{0};
  Gate all;
  Handle<Listener> listener(new Listener);
  Handle<Lambda_job> parents(new Lambda_job([&](Size, const IJob_execution_context*) {
    scheduler->suspend_current_job();
    scheduler->suspend_current_job();  // the same as once
    if (++waiting == 12) all.open();
    MUST(all.wait());
    scheduler->resume_current_job();
    scheduler->resume_current_job();
    const int n = ++running;
    for (int before = most; before < n && !most.compare_exchange_weak(before, n);) {
    }
    sleep_ms(3);
    running--;
    after++;
  }));
  parents->cpu_load = 1;
  REQUIRE(scheduler->execute_fragmented_async(parents.get(), 12, listener.get()) == 0);
  CHECK(listener->done.wait());
  CHECK(after == 12);
  CHECK(most <= 2);  // each waited for a place
}

TEST_CASE("children run from fragments, with and without suspending, and after a suspension that was forgotten") {
  Node node;
  auto scheduler = scheduler_of(node);
  std::atomic<int> children{0};
  for (int way = 0; way < 3; ++way) {
    CAPTURE(way);
    Handle<Listener> listener(new Listener);
    Handle<Lambda_job> parent(new Lambda_job([&](Size, const IJob_execution_context*) {
      if (way > 0) scheduler->suspend_current_job();
      Handle<Lambda_job> child(new Lambda_job([&](Size, const IJob_execution_context*) {
        scheduler->yield();
        children++;
      }));
      child->cpu_load = 1;
      MUST(scheduler->execute_fragmented(child.get(), 5) == 0);
      if (way == 1) scheduler->resume_current_job();
    }));
    parent->cpu_load = 1;
    children = 0;
    REQUIRE(scheduler->execute_fragmented_async(parent.get(), 8, listener.get()) == 0);
    CHECK(listener->done.wait());
    CHECK(children == 40);
  }
  // The pool has kept its strength.
  here.most = 0;
  Handle<Dice_job> slow(new Dice_job);
  slow->mode = IFragmented_job::LOCAL;
  slow->act = Dice_job::SLOW;
  Handle<Listener> end(new Listener);
  REQUIRE(scheduler->execute_fragmented_async(slow.get(), 8, end.get()) == 0);
  CHECK(end->done.wait());
  CHECK(here.most == 2);
}

TEST_CASE("thread ids are stable, and distinct among threads that run") {
  Setup many;
  many.worker_threads = 4;
  Node node(many);
  auto scheduler = scheduler_of(node);
  std::mutex lock;
  std::map<Uint64, std::thread::id> owners;
  std::map<std::thread::id, Uint64> ids;
  std::atomic<int> wrong{0};
  Handle<Lambda_job> job(new Lambda_job([&](Size, const IJob_execution_context* context) {
    std::lock_guard<std::mutex> guard(lock);
    const Uint64 id = context->get_thread_id();
    const auto me = std::this_thread::get_id();
    if (owners.emplace(id, me).first->second != me || ids.emplace(me, id).first->second != id) wrong++;
  }));
  for (int i = 0; i < 10; ++i) REQUIRE(scheduler->execute_fragmented(job.get(), 50) == 0);
  CHECK(wrong == 0);
  CHECK(!owners.empty());
}

TEST_CASE("IDice_configuration registers, unregisters and gives contexts") {
  Cluster cluster(1);
  Handle<IDice_configuration> settings(
      static_cast<IDice_configuration*>(nrdma_node_get_dice_configuration(cluster.node)));
  REQUIRE(settings);
  const Uuid id = {77, 78, 79, 80};
  Handle<IUser_class_factory> factory(new mi::neuraylib::User_class_factory<Dice_job>);
  CHECK_FALSE(settings->register_serializable_class(id, nullptr));
  CHECK(settings->register_serializable_class(id, factory.get()));
  CHECK(count(factory.get()) == 2);
  CHECK_FALSE(settings->register_serializable_class(id, factory.get()));
  CHECK(settings->unregister_serializable_class(id));
  CHECK(count(factory.get()) == 1);
  CHECK_FALSE(settings->unregister_serializable_class(id));
  CHECK_FALSE(settings->register_serializable_class<Leaf>());
  Handle<IRDMA_context> context(settings->get_rdma_context(cluster.hosts[0]));
  REQUIRE(context);
  CHECK(context == Handle<IRDMA_context>(nrdma::to_interface(nrdma_node_get_rdma_context(cluster.node, cluster.hosts[0]))));
  Handle<IRDMA_context> own(settings->get_rdma_context(0));
  CHECK(own);
  CHECK(settings->get_rdma_context(4711) == nullptr);
  CHECK(settings->set_gpu_enabled(false) == 0);
  CHECK(settings->set_gpu_enabled(true) == -1);
  CHECK_FALSE(settings->get_gpu_enabled());
  CHECK(settings->get_highest_gpu_id() == 0);
  CHECK(settings->get_gpu_description(1) == nullptr);
  cluster.node.destroy();
  CHECK(settings->get_rdma_context(0) == nullptr);
  CHECK_FALSE(settings->register_serializable_class(id, factory.get()));
}

namespace {

// The layout before API version 45, under the same id.
class Old_configuration : public Interface_declare<0xfccbf7b8, 0x30d1, 0x4fbf, 0xbd, 0xc6, 0x3b, 0x96, 0xe1, 0xfb,
                                                   0x40, 0x6a> {
 public:
  virtual bool register_serializable_class(Uuid class_id, IUser_class_factory* factory) = 0;
  virtual Sint32 set_gpu_enabled(bool value) = 0;
  virtual bool get_gpu_enabled() const = 0;
  virtual IRDMA_context* get_rdma_context(Uint32 host_id) = 0;
  virtual Uint32 get_highest_gpu_id(Uint32 host_id = 0) = 0;
  virtual const void* get_gpu_description(Uint32 gpu_id, Uint32 host_id = 0) = 0;
};

// Not a class of the library's, so the type information says otherwise.
__attribute__((no_sanitize("vptr"))) void use_old(nrdma_node* node, Uint32 version) {
  auto* made = static_cast<Old_configuration*>(nrdma_node_get_dice_configuration_abi(node, version, NRDMA_CXX_ABI_HOST));
  REQUIRE(made != nullptr);
  // Kept from the optimiser, so that the calls go through the table.
  Old_configuration* volatile hidden = made;
  Old_configuration* settings = hidden;
  CHECK(settings->get_iid() == IDice_configuration::IID());
  CHECK(settings->set_gpu_enabled(false) == 0);
  CHECK(settings->set_gpu_enabled(true) == -1);
  CHECK_FALSE(settings->get_gpu_enabled());
  Handle<IRDMA_context> own(settings->get_rdma_context(0));
  CHECK(own);
  CHECK(settings->get_rdma_context(4711) == nullptr);
  CHECK(settings->get_highest_gpu_id() == 0);
  CHECK(settings->get_gpu_description(1) == nullptr);
  Handle<IUser_class_factory> factory(new mi::neuraylib::User_class_factory<Dice_job>);
  const Uuid id = {version, 1, 1, 1};
  CHECK(settings->register_serializable_class(id, factory.get()));
  CHECK(nrdma_node_unregister_class(node, nrdma::to_c(id), 0) == NRDMA_OK);
  CHECK(settings->release() == 0);
}

}  // namespace

TEST_CASE("the older layout of IDice_configuration") {
  Node node;
  for (const Uint32 version : {30u, 39u, 44u}) use_old(node, version);
}

TEST_CASE("interfaces, counts, refused faces") {
  Node node;
  auto scheduler = scheduler_of(node);
  Handle<mi::base::IInterface> any(scheduler.get_interface<mi::base::IInterface>());
  REQUIRE(any);
  CHECK(count(scheduler.get()) == 2);
  CHECK(any->get_iid() == IScheduler::IID());
  CHECK(any.get_interface<IScheduler>() == scheduler);
  CHECK(!any.get_interface<IDice_configuration>());
  CHECK(nrdma_node_get_scheduler_abi(node, NRDMA_CXX_ABI_MSVC) == nullptr);
  CHECK(nrdma_node_get_scheduler_abi(node, 7) == nullptr);
  CHECK(nrdma_node_get_dice_configuration_abi(node, 57, NRDMA_CXX_ABI_MSVC) == nullptr);
  CHECK(nrdma_node_get_scheduler(nullptr) == nullptr);
#ifdef __cpp_rtti
  CHECK(dynamic_cast<IScheduler*>(any.get()) == scheduler.get());
  CHECK(dynamic_cast<IDice_configuration*>(any.get()) == nullptr);
#endif
}
