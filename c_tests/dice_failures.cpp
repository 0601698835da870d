// Jobs that throw, classes that are not there, and streams that are read wrongly.
#include <doctest/doctest.h>

#include "rig_dice.hpp"

using namespace rig;
using mi::base::Uuid;

namespace {

Handle<Dice_job> away(Cluster& cluster, Uint32 act, bool rdma, Size count) {
  Handle<Dice_job> job(new Dice_job);
  job->mode = IFragmented_job::USER_DEFINED;
  job->assigned.assign(count, cluster.hosts[0]);
  job->act = act;
  job->rdma = rdma;
  return job;
}

}  // namespace

TEST_CASE("a job that throws is a failed fragment, and its text is kept") {
  Cluster cluster(1);
  Handle<Dice_job> here_job(new Dice_job);
  here_job->mode = IFragmented_job::LOCAL;
  here_job->act = Dice_job::THROW;
  CHECK(nrdma::execute(cluster.node.get(), *here_job.get(), 8) == NRDMA_FRAGMENT_FAILED);
  CHECK(contains(last_error(), "boom fragment"));
  CHECK(contains(last_error(), "execute_fragment"));
  CHECK(here_job->results.size() == 6);  // the others are done

  const struct {
    Uint32 act;
    const char* text;
  } acts[] = {{Dice_job::THROW, "boom fragment"},
              {Dice_job::THROW_READ, "boom deserialize"},
              {Dice_job::THROW_RECEIVE, "boom receive"},
              {Dice_job::THROW_PARTIAL, "boom partial"},
              {Dice_job::THROW_WRITE, "boom serialize"}};
  for (const bool rdma : {true, false})
    for (const auto& act : acts) {
      CAPTURE(rdma);
      CAPTURE(act.text);
      auto job = away(cluster, act.act, rdma, 4);
      job->most_pieces = 3;
      job->piece_bytes = 5000;
      CHECK(nrdma::execute(cluster.node.get(), *job.get(), 4) == NRDMA_FRAGMENT_FAILED);
      // What the requester refused comes back by the responder when that gave up at once.
      const bool told = contains(last_error(), act.text) || contains(last_error(), "refused the intermediate result");
      CHECK_MESSAGE(told, last_error());
    }
  // Everything still works.
  auto job = away(cluster, Dice_job::PLAIN, true, 4);
  CHECK(nrdma::execute(cluster.node.get(), *job.get(), 4) == NRDMA_OK);
}

TEST_CASE("in CLUSTER a failed fragment has one more try") {
  Cluster cluster(1);
  Handle<Dice_job> job(new Dice_job);
  job->act = Dice_job::THROW;
  const uint64_t before = cluster.node.stats().fragments_retried;
  CHECK(nrdma::execute(cluster.node.get(), *job.get(), 2) == NRDMA_FRAGMENT_FAILED);
  CHECK(contains(last_error(), "boom fragment 1"));
  CHECK(cluster.node.stats().fragments_retried == before + 1);
}

TEST_CASE("a result that is too large is a failed fragment with a text") {
  Cluster cluster(1);
  auto job = away(cluster, Dice_job::LARGE, true, 1);
  CHECK(nrdma::execute(cluster.node.get(), *job.get(), 1) == NRDMA_FRAGMENT_FAILED);
  CHECK(contains(last_error(), "larger than the requester's result buffer"));
}

namespace {

// Objects inside that the other side may not know.
class Stranger : public mi::neuraylib::Base<0x73747267, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ISerializable> {
 public:
  void serialize(ISerializer* to) const override {
    const Uint64 filler[4] = {1, 2, 3, 4};
    to->write(filler, 4);
  }
  void deserialize(IDeserializer*) override {}
};
class Thrower : public mi::neuraylib::Base<0x7468726f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ISerializable> {
 public:
  void serialize(ISerializer*) const override {}
  void deserialize(IDeserializer*) override { throw std::runtime_error("boom inside"); }
};

// Writes what the case says, and reads on the other side what the case says; the result is one number.
class Stream_job : public mi::neuraylib::Fragmented_job<0x7374726d, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10> {
 public:
  Uint32 act = 0;
  Uint64 answer = 0;
  std::function<void(ISerializer*)> written;
  std::atomic<Uint64> received{0};
  void serialize(ISerializer* to) const override {
    MUST(to->write(&act));
    if (written) written(to);
  }
  void deserialize(IDeserializer* from) override {
    MUST(from->read(&act));
    if (act == 1) {  // an unknown object is skipped
      MUST(from->deserialize() == nullptr);
      Uint32 behind = 0;
      MUST(from->read(&behind) && behind == 0xabcdef01);
      answer = 1;
    } else if (act == 2) {  // past the end
      Uint8 three[3] = {9, 9, 9};
      MUST(!from->read(three, 3) && three[0] == 9 && three[2] == 9);
      MUST(from->read(three, 2) && three[0] == 1 && three[1] == 2 && three[2] == 9);
      Uint64 no[2] = {5, 6};
      MUST(!from->read(no) && !from->read(no, ~Size(0)) && !from->read(no, (~Size(0) >> 3) + 2) && no[0] == 5);
      MUST(from->read(no, 0) && from->deserialize() == nullptr && !from->read(three));
      answer = 2;
    } else if (act == 3) {  // no bools
      bool flags[2] = {true, false};
      MUST(!from->read(flags, 2) && flags[0] && !flags[1]);
      Uint8 raw[2] = {};
      MUST(from->read(raw, 2) && raw[0] == 2 && raw[1] == 0);
      answer = 3;
    } else if (act == 4) {  // the failure of an object inside is the job's
      MUST(from->deserialize() == nullptr);
      answer = 4;
    } else if (act == 5) {  // lengths that lie
      MUST(from->deserialize() == nullptr);
      Uint64 word = 0;
      MUST(from->read(&word));  // nothing was taken
      answer = 5;
    }
  }
  Scheduling_mode get_scheduling_mode() const override { return ONCE_PER_HOST; }
  void execute_fragment(IDice_transaction*, Size, Size, const IJob_execution_context*) override {}
  void execute_fragment_remote(ISerializer* to, IDice_transaction*, Size, Size,
                               const IJob_execution_context*) override {
    MUST(to->write(&answer));
  }
  void receive_remote_result(IDeserializer* from, IDice_transaction*, Size, Size) override {
    Uint64 value = 0;
    MUST(from->read(&value));
    received = value;
  }
};

template <class T>
void register_on(nrdma_node* node) {
  Handle<mi::neuraylib::IUser_class_factory> factory(new mi::neuraylib::User_class_factory<T>);
  nrdma_node_register_serializable_class(node, nrdma::to_c(typename T::IID()), factory.get(), nullptr, nullptr);
}
// Strangers are known to the requester only.
const bool stream_opened = (openers().push_back([](nrdma_node* node) {
                              nrdma::register_job<Stream_job>(node);
                              register_on<Thrower>(node);
                              if (nrdma_node_host_id(node) == 1) register_on<Stranger>(node);
                            }),
                            true);

struct Streams {
  Cluster cluster{1};
  Handle<Stream_job> job{new Stream_job};
  nrdma_status run(Uint32 act, std::function<void(ISerializer*)> written) {
    job->act = act;
    job->written = std::move(written);
    return nrdma::execute(cluster.node.get(), *job.get(), 0);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Streams, "objects of unknown classes") {
  Handle<Stranger> stranger(new Stranger);
  REQUIRE_MESSAGE(run(1, [&](ISerializer* to) {
    const Uint32 behind = 0xabcdef01;
    MUST(to->serialize(stranger.get()) && to->write(&behind));
  }) == NRDMA_OK, last_error());
  CHECK(job->received == 1);
  // Not known to the writer: nothing is written, also for NULL.
  struct Unknown : Stranger {
    Uuid get_class_id() const override { return {5, 5, 5, 5}; }
  };
  Handle<Unknown> unknown(new Unknown);
  REQUIRE_MESSAGE(run(2, [&](ISerializer* to) {
    const Uint8 two[2] = {1, 2};
    MUST(!to->serialize(unknown.get()) && !to->serialize(nullptr) && to->write(two, 2));
  }) == NRDMA_OK, last_error());
  CHECK(job->received == 2);
  CHECK(stream_opened);
}

TEST_CASE_FIXTURE(Streams, "counts that overflow, NULL, and the largest stream") {
  REQUIRE_MESSAGE(run(2, [](ISerializer* to) {
    const Uint8 two[2] = {1, 2};
    const Uint64 word = 3;
    const Uint64* none = nullptr;
    MUST(!to->write(&word, ~Size(0)) && !to->write(&word, (~Size(0) >> 3) + 2) && !to->write(none) && to->write(none, 0));
    MUST(!to->write(two, Size(1) << 40));
    to->reserve(~Size(0));
    MUST(to->write(two, 2));
  }) == NRDMA_OK, last_error());
  const std::vector<Uint8> large(1 << 20);
  int fitted = 0;
  CHECK(run(0, [&](ISerializer* to) {
    while (to->write(large.data(), large.size())) fitted++;
    throw std::runtime_error("full");
  }) == NRDMA_FRAGMENT_FAILED);
  CHECK(fitted == 255);  // the header is in there, too
}

TEST_CASE_FIXTURE(Streams, "bytes that are no bool") {
  REQUIRE_MESSAGE(run(3, [](ISerializer* to) {
    const Uint8 raw[2] = {2, 0};
    MUST(to->write(raw, 2));
  }) == NRDMA_OK, last_error());
  CHECK(job->received == 3);
}

TEST_CASE_FIXTURE(Streams, "an object inside that throws fails the job, with the text") {
  Handle<Thrower> thrower(new Thrower);
  CHECK(run(4, [&](ISerializer* to) { MUST(to->serialize(thrower.get())); }) == NRDMA_FRAGMENT_FAILED);
  CHECK(contains(last_error(), "boom inside"));
}

TEST_CASE_FIXTURE(Streams, "an object's length that is larger than the stream") {
  REQUIRE_MESSAGE(run(5, [](ISerializer* to) {
    const Uint32 head[6] = {0x73747267, 1, 2, 3, 100, 0};
    MUST(to->write(head, 6));
  }) == NRDMA_OK, last_error());
  CHECK(job->received == 5);
}

TEST_CASE_FIXTURE(Streams, "objects that contain themselves end with an error") {
  struct Loop : Stranger {
    void serialize(ISerializer* to) const override { to->serialize(this); }
  };
  Handle<Loop> loop(new Loop);
  CHECK(run(0, [&](ISerializer* to) { to->serialize(loop.get()); }) == NRDMA_FRAGMENT_FAILED);
  CHECK(contains(last_error(), "inside each other"));
}

TEST_CASE_FIXTURE(Streams, "a stream that is used after its call is refused") {
  Handle<ISerializer> late;
  REQUIRE(run(0, [&](ISerializer* to) { late = Handle<ISerializer>(to, mi::base::DUP_INTERFACE); }) == NRDMA_OK);
  const Uint8 byte = 1;
  CHECK_FALSE(late->write(&byte));
  late->flush();
}

TEST_CASE("factories that fail") {
  Pair pair;
  struct Factory : mi::base::Interface_implement<mi::neuraylib::IUser_class_factory> {
    int act = 0;
    mi::base::IInterface* create(mi::neuraylib::ITransaction* txn, Uint32 argc,
                                 const mi::base::IInterface* argv[]) override {
      MUST(txn == nullptr && argc == 0 && argv == nullptr);
      if (act == 0) throw std::runtime_error("boom create");
      return act == 1 ? nullptr : static_cast<mi::base::IInterface*>(new Leaf);  // which is no job
    }
  };
  for (int act = 0; act < 3; ++act) {
    Handle<Factory> factory(new Factory);
    factory->act = act;
    const Uuid id = {100, 1, 1, static_cast<Uint32>(act)};
    REQUIRE(nrdma_node_register_serializable_class(pair.b, nrdma::to_c(id),
                                                   static_cast<mi::neuraylib::IUser_class_factory*>(factory.get()),
                                                   nullptr, nullptr) == NRDMA_OK);
    struct Job : Dice_job {
      Uuid id{};
      Uuid get_class_id() const override { return id; }
    };
    Handle<Job> job(new Job);
    job->id = id;
    job->mode = IFragmented_job::ONCE_PER_HOST;
    CHECK(nrdma::execute(pair.a.get(), *job.get(), 0) == NRDMA_FRAGMENT_FAILED);
    const char* texts[] = {"boom create", "create returned NULL", "lacks the interface"};
    CHECK_MESSAGE(contains(last_error(), texts[act]), last_error());
  }
}

TEST_CASE("replicas and jobs are all gone at the end") {
  // The cases above have run in this process, or in worker processes of their own.
  CHECK(eventually([] { return here.made == here.gone; }));
}
