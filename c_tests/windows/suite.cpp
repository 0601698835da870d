// One source for every C++ ABI of Windows: nrdma's objects through the compiler's tables, and this compiler's jobs run by
// nrdma. Built as a program (SUITE_MAIN), or as a DLL of which one process may load several.
#ifdef _MSC_VER
#  include "msvc/runtime.hpp"
#else
#  include <cstdio>
#  include <cstring>
#  include <typeinfo>
#endif
#include <nrdma/nrdma.hpp>

using namespace mi;
using namespace mi::neuraylib;
using mi::base::IInterface;
using mi::base::Uuid;
using nrdma::Handle;

static int checks = 0;
static int failures = 0;
#define CHECK(x)                                                         \
    do {                                                                 \
        ++checks;                                                        \
        if (!(x)) {                                                      \
            ++failures;                                                  \
            printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, nrdma_last_error()); \
        }                                                                \
    } while (0)

// Through the table, whatever the optimiser knows.
template <class T>
static T* hidden(T* object)
{
    T* volatile seen = object;
    return seen;
}

static Uint32 count(const IInterface* object)
{
    object->retain();
    return object->release();
}

// ---- objects that nrdma implements ----

template <class T, class Other>
static void check_interface(T* object)
{
    const Uint32 before = count(object);
    CHECK(hidden(object)->get_iid() == typename T::IID());
    const T* seen = object;
    const IInterface* base_const = hidden(seen)->get_interface(IInterface::IID());
    IInterface* base = hidden(object)->get_interface(IInterface::IID());
    CHECK(base == object && base_const == object);
    CHECK(count(object) == before + 2);
    CHECK(hidden(object)->get_interface(typename T::IID()) == base);
    CHECK(hidden(object)->get_interface(typename Other::IID()) == nullptr);
    CHECK(hidden(seen)->get_interface(typename Other::IID()) == nullptr);
    CHECK(hidden(base)->get_iid() == typename T::IID());
    for (int n = 0; n < 3; ++n)
        object->release();
    CHECK(count(object) == before);
    IInterface* up = hidden<IInterface>(object);
    CHECK(dynamic_cast<T*>(up) == object);
    CHECK(dynamic_cast<Other*>(up) == nullptr);
    CHECK(dynamic_cast<void*>(up) == object);
    CHECK(typeid(*up) == typeid(T));
    CHECK(!(typeid(*up) == typeid(Other)));
}

static void check_objects(nrdma_node* node)
{
    Handle<IRDMA_context> context(nrdma::to_interface(nrdma_node_get_rdma_context(node, 0)));
    CHECK(context.is_valid_interface());
    if (!context.is_valid_interface())
        return;
    check_interface<IRDMA_context, IRDMA_buffer>(context.get());
    IRDMA_context* c = hidden(context.get());
    Handle<IRDMA_buffer> w(c->get_write_memory(100000));
    Handle<IRDMA_buffer> r(c->get_read_memory(5000));
    Uint8 mine[256];
    Handle<IRDMA_buffer> u(c->wrap_user_buffer(mine, sizeof mine));
    CHECK(w.is_valid_interface() && r.is_valid_interface() && u.is_valid_interface());
    check_interface<IRDMA_buffer, IRDMA_context>(w.get());
    check_interface<IRDMA_buffer, ISerializer>(u.get());
    IRDMA_buffer* b = hidden(w.get());
    const IRDMA_buffer* k = b;
    CHECK(b->get_size() == 100000 && b->get_gpu_id() == -1 && b->get_id() != 0 && b->get_id() != r->get_id());
    CHECK(b->get_data() != nullptr && k->get_data() == b->get_data() && u->get_data() == mine);
    CHECK((reinterpret_cast<size_t>(b->get_data()) & 0xffff) == 0);
    CHECK(!b->is_gpudirect());
    b->get_data()[99999] = 17;
    Handle<IRDMA_buffer> part(b->duplicate(99990, 10));
    Handle<const IRDMA_buffer> part_const(k->duplicate(99999, 1));
    CHECK(part.is_valid_interface() && part->get_data() == b->get_data() + 99990 && part->get_size() == 10);
    CHECK(part_const.is_valid_interface() && part_const->get_data()[0] == 17);
    CHECK(part.is_valid_interface() && dynamic_cast<IRDMA_buffer*>(hidden<IInterface>(part.get())) == part.get());
    CHECK(b->duplicate(99990, 11) == nullptr && k->duplicate(0, 0) == nullptr);
    Handle<IInterface> old(b->get_interface(nrdma::to_uuid(NRDMA_IID_RDMA_BUFFER_2019)));
    CHECK(old.get() == b);
    CHECK(c->flush(nullptr) == -1 && c->flush(b) == -2);
    // The C functions take either face and give the same one.
    nrdma_buffer* raw = nrdma::to_c(b);
    CHECK(nrdma_buffer_get_size(raw) == 100000);
    CHECK(nrdma_buffer_get_data(raw) == b->get_data() && nrdma_buffer_retain(raw) > 1 && nrdma_buffer_release(raw) > 0);
    Handle<IRDMA_buffer> copy(nrdma::to_interface(nrdma_buffer_duplicate(raw, 0, 10)));
    CHECK(copy.is_valid_interface() && hidden(copy.get())->get_iid() == IRDMA_buffer::IID());
    Handle<IRDMA_buffer> more(
        nrdma::to_interface(nrdma_context_get_write_memory(nrdma::to_c(context.get()), 10, -1)));
    CHECK(more.is_valid_interface() && hidden(more.get())->get_iid() == IRDMA_buffer::IID());
    // What is no object of ours is refused by the plain functions.
    CHECK(nrdma_buffer_get_size(reinterpret_cast<nrdma_buffer*>(c)) == 0);
    // Kept beyond everything it came from.
    context.reset();
    w.reset();
    CHECK(part->get_data()[9] == 17);

    Handle<IScheduler> scheduler(static_cast<IScheduler*>(nrdma_node_get_scheduler(node)));
    check_interface<IScheduler, IRDMA_buffer>(scheduler.get());
    Handle<IDice_configuration> settings(
        static_cast<IDice_configuration*>(nrdma_node_get_dice_configuration(node)));
    check_interface<IDice_configuration, IScheduler>(settings.get());
    CHECK(!settings->get_gpu_enabled() && settings->set_gpu_enabled(false) == 0);
    CHECK(settings->set_gpu_enabled(true) == -1 && settings->get_highest_gpu_id() == 0);
    CHECK(settings->get_gpu_description(0) == nullptr);
    Handle<IRDMA_context> here(settings->get_rdma_context(0));
    CHECK(here.is_valid_interface() && hidden(here.get())->get_iid() == IRDMA_context::IID());
    CHECK(settings->get_rdma_context(12345) == nullptr);
    CHECK(nrdma_node_get_rdma_context_abi(node, 0, 2) == nullptr);
}

// ---- objects of this compiler, driven by nrdma ----

static const Uint8 mark = 0xc3;
static Uint8 pattern(Uint32 seed, Size index, Size at) { return static_cast<Uint8>(seed + index * 31 + at * 7 + (at >> 8)); }

// Every type that the streams know, each with a value that shows its size and sign.
struct Values {
    static bool write(ISerializer* to)
    {
        const bool flags[2] = {true, false};
        const Uint8 u8 = 0xf1;
        const Uint16 u16 = 0xf1e2;
        const Uint32 u32 = 0xf1e2d3c4u;
        const Uint64 u64 = 0xf1e2d3c4b5a69788ull;
        const Sint8 s8 = -2;
        const Sint16 s16 = -300;
        const Sint32 s32 = -70000;
        const Sint64 s64 = -5000000000ll;
        const Float32 f32 = 1.5f;
        const Float64 f64 = -2.25;
        Tag_struct tag;
        tag.id = 77;
        to->reserve(100);
        return to->write(flags, 2) && to->write(&u8) && to->write(&u16) && to->write(&u32) && to->write(&u64) &&
               to->write(&s8) && to->write(&s16) && to->write(&s32) && to->write(&s64) && to->write(&f32) &&
               to->write(&f64) && to->write(&tag) && to->write(&mark);
    }
    static bool read(IDeserializer* from)
    {
        bool flags[2] = {false, true};
        Uint8 u8 = 0, end = 0;
        Uint16 u16 = 0;
        Uint32 u32 = 0;
        Uint64 u64 = 0;
        Sint8 s8 = 0;
        Sint16 s16 = 0;
        Sint32 s32 = 0;
        Sint64 s64 = 0;
        Float32 f32 = 0;
        Float64 f64 = 0;
        Tag_struct tag;
        tag.id = 0;
        const bool all = from->read(flags, 2) && from->read(&u8) && from->read(&u16) && from->read(&u32) &&
                         from->read(&u64) && from->read(&s8) && from->read(&s16) && from->read(&s32) &&
                         from->read(&s64) && from->read(&f32) && from->read(&f64) && from->read(&tag) &&
                         from->read(&end);
        return all && flags[0] && !flags[1] && u8 == 0xf1 && u16 == 0xf1e2 && u32 == 0xf1e2d3c4u &&
               u64 == 0xf1e2d3c4b5a69788ull && s8 == -2 && s16 == -300 && s32 == -70000 && s64 == -5000000000ll &&
               f32 == 1.5f && f64 == -2.25 && tag.id == 77 && end == mark;
    }
};

// An object inside of the job's data.
class Part : public Base<0x70617274, 0x6e72, 0x646d, 1, 2, 3, 4, 5, 6, 7, 8, ISerializable> {
public:
    Uint32 value = 0;
    void serialize(ISerializer* to) const override { to->write(&value); }
    void deserialize(IDeserializer* from) override { from->read(&value); }
};

static const Size result_bytes = 200000;

// Fragments of even number give their results in buffers, those of odd number as bytes.
class Job : public Fragmented_job<0x6a6f6221, 0x6e72, 0x646d, 1, 2, 3, 4, 5, 6, 7, 9> {
public:
    Uint32 seed = 0;
    bool whole = false;
    Scheduling_mode mode = CLUSTER;
    std::atomic<Uint32> local{0}, in_buffers{0}, in_bytes{0}, wrong{0};

    // nrdma uses the one that is not const; a wrong slot would meet this one.
    const IInterface* get_interface(const Uuid&) const override { return nullptr; }
    IInterface* get_interface(const Uuid& id) override { return Fragmented_job::get_interface(id); }

    Scheduling_mode get_scheduling_mode() const override { return mode; }
    Float32 get_cpu_load() const override { return 0.5f; }
    Float32 get_gpu_load() const override { return 0.0f; }
    Sint8 get_priority() const override { return 3; }
    Size get_thread_limit() const override { return 2; }
    void assign_fragments_to_hosts(Uint32* slots, Size number) override
    {
        for (Size n = 0; n < number; ++n)
            slots[n] = 2;
    }
    void serialize(ISerializer* to) const override
    {
        Part part;
        part.value = seed + 1;
        IInterface* up = hidden<ISerializer>(to);
        if (dynamic_cast<ISerializer*>(up) == to && to->get_iid() == ISerializer::IID() && Values::write(to))
            to->write(&seed);
        to->serialize(&part);
    }
    void deserialize(IDeserializer* from) override
    {
        IInterface* up = hidden<IDeserializer>(from);
        whole = dynamic_cast<IDeserializer*>(up) == from && from->get_iid() == IDeserializer::IID() &&
                typeid(*up) == typeid(IDeserializer) && Values::read(from) && from->read(&seed);
        Handle<Part> part(from->deserialize<Part>());
        whole = whole && part.is_valid_interface() && part->value == seed + 1;
    }
    void execute_fragment(IDice_transaction*, Size, Size, const IJob_execution_context* context) override
    {
        if (context->get_thread_id() == ~Uint64(0) || typeid(*context) != typeid(IJob_execution_context))
            ++wrong;
        ++local;
    }
    IRDMA_buffer* get_rdma_result_buffer(IRDMA_context* rdma, Size index) override
    {
        return index % 2 == 0 ? rdma->get_read_memory(result_bytes) : nullptr;
    }
    IRDMA_buffer* execute_fragment_remote_rdma(IDice_transaction*, Size index, Size, IRDMA_context* rdma,
                                               const IJob_execution_context* context) override
    {
        IRDMA_buffer* out = hidden(rdma)->get_write_memory(result_bytes);
        if (out == nullptr || context->get_thread_id() == ~Uint64(0))
            return nullptr;
        for (Size at = 0; at < result_bytes; ++at)
            out->get_data()[at] = whole ? pattern(seed, index, at) : 0;
        // An intermediate result, then the last one.
        if (index % 4 == 0 && rdma->flush(out) != 0)
            out->get_data()[0] ^= 1;
        return out;
    }
    void receive_remote_result_rdma(IRDMA_buffer* buffer, IDice_transaction*, Size index, Size) override
    {
        for (Size at = 0; at < result_bytes; ++at)
            if (buffer->get_data()[at] != pattern(seed, index, at)) {
                ++wrong;
                return;
            }
        ++in_buffers;
    }
    void execute_fragment_remote(ISerializer* to, IDice_transaction*, Size index, Size,
                                 const IJob_execution_context*) override
    {
        Values::write(to);
        to->flush();
        const Uint64 number = whole ? index : 0;
        Values::write(to);
        to->write(&number);
    }
    void receive_remote_result(IDeserializer* from, IDice_transaction*, Size index, Size) override
    {
        Uint64 number = index;
        const bool values = Values::read(from);
        // The last part has the number behind the values.
        if (!values)
            ++wrong;
        if (from->read(&number) && number == index)
            ++in_bytes;
    }
};

class Listener : public base::Interface_implement<IExecution_listener> {
public:
    std::atomic<Uint32> told{0};
    void job_finished() override { ++told; }
};

#define EXPORT extern "C" __declspec(dllexport)

// Lets a node run this module's jobs.
EXPORT int suite_register(nrdma_node* node)
{
    const nrdma_status part = nrdma::register_job<Job>(node);
    Handle<IUser_class_factory> factory(new User_class_factory<Part>);
    const nrdma_status inside =
        nrdma_node_register_serializable_class(node, nrdma::to_c(Uuid(Part::IID())), factory.get(), nullptr, nullptr);
    return part == NRDMA_OK && inside == NRDMA_OK ? 0 : 1;
}

// Runs this module's job; all its fragments on host 2. Returns the number of what went wrong.
EXPORT int suite_execute(nrdma_node* node, unsigned seed)
{
    const int before = failures;
    Handle<Job> kept(new Job);
    Job& job = *kept;
    job.seed = seed;
    job.mode = IFragmented_job::USER_DEFINED;
    const nrdma_status done = nrdma::execute(node, job, 12);
    CHECK(done == NRDMA_OK);
    // Of the even ones every second sends two results, of the odd ones all.
    CHECK(job.in_buffers.load() == 9);
    CHECK(job.in_bytes.load() == 6);
    CHECK(job.wrong.load() == 0 && job.local.load() == 0);
    CHECK(count(&job) == 1);
    return failures - before;
}

static nrdma_node* make_node(unsigned host, const char* transports)
{
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    config.host_id = host;
    config.worker_threads = 2;
    config.transports = transports;
    nrdma_node* node = nullptr;
    CHECK(nrdma_node_create(&config, &node) == NRDMA_OK);
    return node;
}

static void check_jobs(const char* transports)
{
    nrdma_node* a = make_node(1, transports);
    nrdma_node* b = make_node(2, transports);
    char bound[128] = "";
    Uint32 host = 0;
    CHECK(nrdma_node_listen(b, "127.0.0.1:0", bound, sizeof bound) == NRDMA_OK);
    CHECK(nrdma_node_connect(a, bound, &host) == NRDMA_OK);
    CHECK(host == 2);
    CHECK(suite_register(a) == 0);
    CHECK(suite_register(b) == 0);
    CHECK(suite_execute(a, 5) == 0);

    Job local;
    local.mode = IFragmented_job::LOCAL;
    Handle<IScheduler> scheduler(static_cast<IScheduler*>(nrdma_node_get_scheduler(a)));
    CHECK(scheduler->execute_fragmented(&local, 7) == 0);
    CHECK(local.local.load() == 7 && local.wrong.load() == 0);
    CHECK(scheduler->execute_fragmented(nullptr, 7) == -1);

    Handle<Listener> listener(new Listener);
    Handle<Job> kept(new Job);
    kept->mode = IFragmented_job::LOCAL;
    CHECK(scheduler->execute_fragmented_async(kept.get(), 5, listener.get()) == 0);
    // Shutdown ends it, one way or the other, and tells the listener.
    Job both;
    both.seed = 9;
    CHECK(nrdma::execute(a, both, 40) == NRDMA_OK);
    CHECK(both.wrong.load() == 0);
    Handle<IDice_configuration> settings(static_cast<IDice_configuration*>(nrdma_node_get_dice_configuration(b)));
    CHECK(settings->unregister_serializable_class(Part::IID()));
    CHECK(settings->register_serializable_class<Part>());
    settings.reset();

    CHECK(nrdma_node_shutdown(b, 0) == NRDMA_OK);
    CHECK(nrdma_node_shutdown(a, 0) == NRDMA_OK);
    CHECK(listener->told.load() == 1);
    CHECK(count(kept.get()) == 1);
    CHECK(scheduler->execute_fragmented(&local, 1) == NRDMA_SHUT_DOWN);
    nrdma_node_destroy(b);
    nrdma_node_destroy(a);
    CHECK(count(listener.get()) == 1);
}

// Everything; returns the number of failures.
EXPORT int suite_run(void)
{
    nrdma_node* node = make_node(0, nullptr);
    check_objects(node);
    nrdma_node_destroy(node);
    check_jobs("inproc");
    check_jobs("tcp");
    printf("%d checks, %d failed\n", checks, failures);
    return failures;
}

#ifdef SUITE_MAIN
#  ifdef _MSC_VER
extern "C" void start() { ExitProcess(suite_run() == 0 ? 0 : 1); }
#  else
int main() { return suite_run() == 0 ? 0 : 1; }
#  endif
#endif
