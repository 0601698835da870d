/* C++17 view of nrdma: nodes, handles, and casts between nrdma's C pointers and neuray's interfaces.
 *
 * Everything here is inline and calls the C functions of nrdma.h, so that no type of the standard
 * library crosses the library's boundary. It also compiles with -fno-exceptions and with -fno-rtti.
 *
 * Including this header gives the library two things that only a C++ host has: the type information of
 * the interfaces, so that dynamic_cast and typeid work on nrdma's objects, and a function that catches
 * the exceptions of host callbacks. Define NRDMA_NO_DONATION to leave that out, as a host must that loads
 * the library with dlopen.
 */
#ifndef NRDMA_NRDMA_HPP
#define NRDMA_NRDMA_HPP

#include <nrdma/nrdma.h>
#include <nrdma/gpu_buffer.hpp>
#include <nrdma/neuray.hpp>

#include <type_traits>

#if !defined(NRDMA_NO_DONATION) && defined(__cpp_exceptions)
#  include <exception>
#endif
#if !defined(NRDMA_NO_DONATION) && defined(__cpp_rtti)
#  include <typeinfo>
#endif

#if defined(__GNUC__) && !defined(_WIN32)
#  pragma GCC visibility push(default)
#endif

namespace nrdma {

static_assert(sizeof(mi::base::Uuid) == sizeof(nrdma_uuid) && alignof(mi::base::Uuid) == alignof(nrdma_uuid),
              "mi::base::Uuid and nrdma_uuid are the same sixteen bytes");
static_assert(sizeof(mi::neuraylib::IRDMA_buffer) == sizeof(nrdma_buffer), "one virtual table pointer");
static_assert(sizeof(mi::neuraylib::IRDMA_context) == sizeof(nrdma_context), "one virtual table pointer");

/* Owns one reference to an object. */
template <class T>
using Handle = mi::base::Handle<T>;

/* ---- casts: the same object, seen by C and by C++; no reference changes hands ---- */

inline mi::neuraylib::IRDMA_buffer* to_interface(nrdma_buffer* buffer)
{
    return reinterpret_cast<mi::neuraylib::IRDMA_buffer*>(buffer);
}

inline const mi::neuraylib::IRDMA_buffer* to_interface(const nrdma_buffer* buffer)
{
    return reinterpret_cast<const mi::neuraylib::IRDMA_buffer*>(buffer);
}

inline mi::neuraylib::IRDMA_context* to_interface(nrdma_context* context)
{
    return reinterpret_cast<mi::neuraylib::IRDMA_context*>(context);
}

inline const mi::neuraylib::IRDMA_context* to_interface(const nrdma_context* context)
{
    return reinterpret_cast<const mi::neuraylib::IRDMA_context*>(context);
}

inline nrdma_buffer* to_c(mi::neuraylib::IRDMA_buffer* buffer)
{
    return reinterpret_cast<nrdma_buffer*>(buffer);
}

inline const nrdma_buffer* to_c(const mi::neuraylib::IRDMA_buffer* buffer)
{
    return reinterpret_cast<const nrdma_buffer*>(buffer);
}

inline nrdma_context* to_c(mi::neuraylib::IRDMA_context* context)
{
    return reinterpret_cast<nrdma_context*>(context);
}

inline const nrdma_context* to_c(const mi::neuraylib::IRDMA_context* context)
{
    return reinterpret_cast<const nrdma_context*>(context);
}

inline nrdma_uuid to_c(const mi::base::Uuid& id)
{
    return nrdma_uuid{id.m_id1, id.m_id2, id.m_id3, id.m_id4};
}

inline mi::base::Uuid to_uuid(const nrdma_uuid& id) { return mi::base::Uuid{id.id1, id.id2, id.id3, id.id4}; }

/* ---- the membership of this process ---- */

/* Owns a node. Move-only; calls on an empty one return NRDMA_INVALID_PARAMETER. Must not be destroyed from a
 * callback. */
class Node {
public:
    Node() noexcept = default;
    /* Takes over a node of the C interface. */
    explicit Node(nrdma_node* node) noexcept : m_node(node) {}
    Node(Node&& other) noexcept : m_node(other.release()) {}
    Node& operator=(Node&& other) noexcept
    {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    ~Node() { reset(); }

    explicit operator bool() const noexcept { return m_node != nullptr; }
    nrdma_node* get() const noexcept { return m_node; }

    /* Gives the node away. */
    nrdma_node* release() noexcept
    {
        nrdma_node* node = m_node;
        m_node = nullptr;
        return node;
    }

    /* Destroys the node and owns another. */
    void reset(nrdma_node* node = nullptr) noexcept
    {
        nrdma_node* old = m_node;
        m_node = node;
        nrdma_node_destroy(old);
    }

    /* Makes a node, with the defaults when there is no config. One that this owned is destroyed first. */
    nrdma_status create(const nrdma_node_config* config = nullptr)
    {
        reset();
        return nrdma_node_create(config, &m_node);
    }

    uint32_t host_id() const { return nrdma_node_host_id(m_node); }

    /* Accepts peers at `address`; `bound` gets the address that they connect to. */
    nrdma_status listen(const char* address, char* bound = nullptr, uint64_t capacity = 0)
    {
        return nrdma_node_listen(m_node, address, bound, capacity);
    }

    nrdma_status connect(const char* address, uint32_t* host_id = nullptr)
    {
        return nrdma_node_connect(m_node, address, host_id);
    }

    nrdma_status disconnect(uint32_t host_id) { return nrdma_node_disconnect(m_node, host_id); }

    /* Fills up to `capacity` entries; `total` gets the number of peers. */
    nrdma_status peers(nrdma_peer_info* out, uint64_t capacity, uint64_t* total) const
    {
        return nrdma_node_peers(m_node, out, sizeof(nrdma_peer_info), capacity, total);
    }

    nrdma_status wait_peers(uint64_t at_least, uint32_t timeout_ms)
    {
        return nrdma_node_wait_peers(m_node, at_least, timeout_ms);
    }

    nrdma_status set_peer_callback(void (*fn)(void* user, const nrdma_peer_info* peer, int32_t event),
                                   void* user)
    {
        return nrdma_node_set_peer_callback(m_node, fn, user);
    }

    /* The context of a host; 0 is this one. Empty when there is no such host. */
    Handle<mi::neuraylib::IRDMA_context> get_rdma_context(uint32_t host_id)
    {
        return Handle<mi::neuraylib::IRDMA_context>(
            to_interface(nrdma_node_get_rdma_context(m_node, host_id)));
    }

    nrdma_status register_class(const mi::base::Uuid& class_id, const nrdma_job_class& job_class)
    {
        return nrdma_node_register_class(m_node, to_c(class_id), &job_class);
    }

    nrdma_status register_class(const nrdma_uuid& class_id, const nrdma_job_class& job_class)
    {
        return nrdma_node_register_class(m_node, class_id, &job_class);
    }

    /* Returns when the last replica is gone. Not from a callback. */
    nrdma_status unregister_class(const mi::base::Uuid& class_id, uint32_t timeout_ms)
    {
        return nrdma_node_unregister_class(m_node, to_c(class_id), timeout_ms);
    }

    nrdma_status unregister_class(const nrdma_uuid& class_id, uint32_t timeout_ms)
    {
        return nrdma_node_unregister_class(m_node, class_id, timeout_ms);
    }

    /* Runs `count` fragments and returns when all are done. */
    nrdma_status execute(const nrdma_job& job, uint64_t count)
    {
        return nrdma_node_execute(m_node, &job, count);
    }

    /* Starts them; `done` is called once. The job must live until then. */
    nrdma_status execute_async(const nrdma_job& job, uint64_t count,
                               void (*done)(void* user, nrdma_status status), uint64_t* job_id = nullptr)
    {
        return nrdma_node_execute_async(m_node, &job, count, done, job_id);
    }

    /* Makes a class of DiCE objects known: jobs that this host runs for others, and what they are serialized with.
     * `transaction` gives what a fragment is passed as its transaction. */
    nrdma_status register_serializable_class(const mi::base::Uuid& class_id,
                                             mi::neuraylib::IUser_class_factory* factory,
                                             void* (*transaction)(void* user) = nullptr, void* user = nullptr)
    {
        return nrdma_node_register_serializable_class(m_node, to_c(class_id), factory, transaction, user);
    }

    /* The same for a class with a constructor without arguments and an IID, as the mixins of neuray.hpp have. */
    template <class T>
    nrdma_status register_serializable_class()
    {
        Handle<mi::neuraylib::IUser_class_factory> factory(new mi::neuraylib::User_class_factory<T>);
        return register_serializable_class(typename T::IID(), factory.get());
    }

    /* Runs `count` fragments of a real job, in every mode, and returns when all are done. */
    nrdma_status execute_fragmented(mi::neuraylib::IFragmented_job* job, uint64_t count,
                                    mi::neuraylib::IDice_transaction* transaction = nullptr)
    {
        return nrdma_node_execute_fragmented(m_node, job, transaction, count);
    }

    /* Starts a LOCAL one; it and the listener are retained until job_finished() has returned. */
    nrdma_status execute_fragmented_async(mi::neuraylib::IFragmented_job* job, uint64_t count,
                                          mi::neuraylib::IExecution_listener* listener = nullptr,
                                          mi::neuraylib::IDice_transaction* transaction = nullptr)
    {
        return nrdma_node_execute_fragmented_async(m_node, job, transaction, count, listener);
    }

    Handle<mi::neuraylib::IScheduler> get_scheduler()
    {
        return Handle<mi::neuraylib::IScheduler>(
            static_cast<mi::neuraylib::IScheduler*>(nrdma_node_get_scheduler(m_node)));
    }

    Handle<mi::neuraylib::IDice_configuration> get_dice_configuration()
    {
        return Handle<mi::neuraylib::IDice_configuration>(
            static_cast<mi::neuraylib::IDice_configuration*>(nrdma_node_get_dice_configuration(m_node)));
    }

    nrdma_status cancel(uint64_t job_id) { return nrdma_node_cancel(m_node, job_id); }

    nrdma_status stats(nrdma_stats& out) const
    {
        out = nrdma_stats{};
        out.struct_size = sizeof(nrdma_stats);
        return nrdma_node_stats(m_node, &out);
    }

    nrdma_status trim(uint64_t keep_idle_bytes) { return nrdma_node_trim(m_node, keep_idle_bytes); }

    /* Ends the node's work in bounded time; 0 is the configured time. Not from a callback. */
    nrdma_status shutdown(uint32_t timeout_ms = 0) { return nrdma_node_shutdown(m_node, timeout_ms); }

private:
    nrdma_node* m_node = nullptr;
};

/* ---- jobs of any class with the method names of IFragmented_job ---- */

namespace detail {

/* Whether a class has a method that can be called so; what it lacks is what mi::neuraylib::Fragmented_job does. */
#define NRDMA_DETECT(name, ...)                                                               \
    template <class Job>                                                                      \
    auto has_##name(Job* job, int) -> decltype(static_cast<void>(__VA_ARGS__), std::true_type()); \
    template <class Job>                                                                      \
    std::false_type has_##name(Job*, long);
#define NRDMA_HAS(name) (decltype(has_##name<Job>(nullptr, 0))::value)

using Transaction = mi::neuraylib::IDice_transaction;
using Executing = mi::neuraylib::IJob_execution_context;
constexpr Transaction* no_transaction = nullptr;
constexpr const Executing* no_executing = nullptr;
constexpr mi::neuraylib::ISerializer* no_serializer = nullptr;
constexpr mi::neuraylib::IDeserializer* no_deserializer = nullptr;
constexpr mi::neuraylib::IRDMA_context* no_context = nullptr;
constexpr mi::neuraylib::IRDMA_buffer* no_buffer = nullptr;
constexpr mi::Uint32* no_slots = nullptr;
constexpr mi::Size some = 0;

NRDMA_DETECT(serialize, job->serialize(no_serializer))
NRDMA_DETECT(deserialize, job->deserialize(no_deserializer))
NRDMA_DETECT(execute_remote, job->execute_fragment_remote(no_serializer, no_transaction, some, some, no_executing))
NRDMA_DETECT(receive, job->receive_remote_result(no_deserializer, no_transaction, some, some))
NRDMA_DETECT(result_buffer, job->get_rdma_result_buffer(no_context, some))
NRDMA_DETECT(execute_rdma, job->execute_fragment_remote_rdma(no_transaction, some, some, no_context, no_executing))
NRDMA_DETECT(receive_rdma, job->receive_remote_result_rdma(no_buffer, no_transaction, some, some))
NRDMA_DETECT(assign, job->assign_fragments_to_hosts(no_slots, some))
NRDMA_DETECT(mode, job->get_scheduling_mode())
NRDMA_DETECT(cpu_load, job->get_cpu_load())
NRDMA_DETECT(gpu_load, job->get_gpu_load())
NRDMA_DETECT(cancel, job->cancel())
NRDMA_DETECT(priority, job->get_priority())
NRDMA_DETECT(thread_limit, job->get_thread_limit())

/* A job that forwards to an object of the host's class, which it does not own. */
template <class Job>
class Job_adapter : public mi::base::Interface_implement<mi::neuraylib::IFragmented_job> {
public:
    using Mode = mi::neuraylib::IFragmented_job::Scheduling_mode;
    using Size = mi::Size;

    explicit Job_adapter(Job& job) : m_job(&job) {}

    mi::base::Uuid get_class_id() const override { return m_job->get_class_id(); }
    void serialize(mi::neuraylib::ISerializer* to) const override
    {
        if constexpr (NRDMA_HAS(serialize))
            m_job->serialize(to);
        else
            static_cast<void>(to);
    }
    void deserialize(mi::neuraylib::IDeserializer* from) override
    {
        if constexpr (NRDMA_HAS(deserialize))
            m_job->deserialize(from);
        else
            static_cast<void>(from);
    }
    void execute_fragment(Transaction* txn, Size index, Size count, const Executing* context) override
    {
        m_job->execute_fragment(txn, index, count, context);
    }
    void execute_fragment_remote(mi::neuraylib::ISerializer* to, Transaction* txn, Size index, Size count,
                                 const Executing* context) override
    {
        if constexpr (NRDMA_HAS(execute_remote))
            m_job->execute_fragment_remote(to, txn, index, count, context);
        else
            unused(to, txn, index, count, context);
    }
    void receive_remote_result(mi::neuraylib::IDeserializer* from, Transaction* txn, Size index,
                               Size count) override
    {
        if constexpr (NRDMA_HAS(receive))
            m_job->receive_remote_result(from, txn, index, count);
        else
            unused(from, txn, index, count);
    }
    mi::neuraylib::IRDMA_buffer* get_rdma_result_buffer(mi::neuraylib::IRDMA_context* rdma, Size index) override
    {
        if constexpr (NRDMA_HAS(result_buffer))
            return m_job->get_rdma_result_buffer(rdma, index);
        else
            return unused(rdma, index), nullptr;
    }
    mi::neuraylib::IRDMA_buffer* execute_fragment_remote_rdma(Transaction* txn, Size index, Size count,
                                                              mi::neuraylib::IRDMA_context* rdma,
                                                              const Executing* context) override
    {
        if constexpr (NRDMA_HAS(execute_rdma))
            return m_job->execute_fragment_remote_rdma(txn, index, count, rdma, context);
        else
            return unused(txn, index, count, rdma, context), nullptr;
    }
    void receive_remote_result_rdma(mi::neuraylib::IRDMA_buffer* buffer, Transaction* txn, Size index,
                                    Size count) override
    {
        if constexpr (NRDMA_HAS(receive_rdma))
            m_job->receive_remote_result_rdma(buffer, txn, index, count);
        else
            unused(buffer, txn, index, count);
    }
    void assign_fragments_to_hosts(mi::Uint32* slots, Size count) override
    {
        if constexpr (NRDMA_HAS(assign))
            m_job->assign_fragments_to_hosts(slots, count);
        else
            unused(slots, count);
    }
    Mode get_scheduling_mode() const override
    {
        if constexpr (NRDMA_HAS(mode))
            return static_cast<Mode>(m_job->get_scheduling_mode());
        else
            return mi::neuraylib::IFragmented_job::LOCAL;
    }
    mi::Float32 get_cpu_load() const override
    {
        if constexpr (NRDMA_HAS(cpu_load))
            return m_job->get_cpu_load();
        else
            return 1.0f;
    }
    mi::Float32 get_gpu_load() const override
    {
        if constexpr (NRDMA_HAS(gpu_load))
            return m_job->get_gpu_load();
        else
            return 0.0f;
    }
    void cancel() override
    {
        if constexpr (NRDMA_HAS(cancel))
            m_job->cancel();
    }
    mi::Sint8 get_priority() const override
    {
        if constexpr (NRDMA_HAS(priority))
            return static_cast<mi::Sint8>(m_job->get_priority());
        else
            return 0;
    }
    Size get_thread_limit() const override
    {
        if constexpr (NRDMA_HAS(thread_limit))
            return m_job->get_thread_limit();
        else
            return 0;
    }
    bool get_allow_non_sequential_chunks() const override { return false; }

private:
    template <class... Arguments>
    static void unused(const Arguments&...)
    {
    }

    Job* m_job;
};

#undef NRDMA_DETECT
#undef NRDMA_HAS

/* One that owns its object. */
template <class Job>
class Job_replica final : public Job_adapter<Job> {
public:
    Job_replica() : Job_adapter<Job>(m_own) {}

private:
    Job m_own;
};

template <class Job>
constexpr bool is_real_job = std::is_base_of<mi::neuraylib::IFragmented_job, Job>::value;

/* What other hosts make of a job of this class. */
template <class Job>
using Replica = typename std::conditional<is_real_job<Job>, Job, Job_replica<Job>>::type;

}  // namespace detail

/* Lets this host run jobs of the class for others. It has a constructor without arguments, get_class_id() and
 * execute_fragment(), and of the other methods of IFragmented_job those that it needs, by the same names; it need not
 * derive from anything. */
template <class Job>
nrdma_status register_job(nrdma_node* node, void* (*transaction)(void* user) = nullptr, void* user = nullptr)
{
    Handle<mi::neuraylib::IFragmented_job> probe(new detail::Replica<Job>);
    Handle<mi::neuraylib::IUser_class_factory> factory(
        new mi::neuraylib::User_class_factory<detail::Replica<Job>>);
    return nrdma_node_register_serializable_class(node, to_c(probe->get_class_id()), factory.get(), transaction,
                                                  user);
}

template <class Job>
nrdma_status register_job(Node& node, void* (*transaction)(void* user) = nullptr, void* user = nullptr)
{
    return register_job<Job>(node.get(), transaction, user);
}

/* Runs `count` fragments of such a job and returns when all are done. A method that throws is a failed fragment:
 * NRDMA_FRAGMENT_FAILED, with the exception's text in nrdma_last_error(). */
template <class Job>
nrdma_status execute(nrdma_node* node, Job& job, uint64_t count,
                     mi::neuraylib::IDice_transaction* transaction = nullptr)
{
    if constexpr (detail::is_real_job<Job>) {
        mi::neuraylib::IFragmented_job* real = &job;
        return nrdma_node_execute_fragmented(node, real, transaction, count);
    } else {
        detail::Job_adapter<Job> adapter(job);
        mi::neuraylib::IFragmented_job* real = &adapter;
        return nrdma_node_execute_fragmented(node, real, transaction, count);
    }
}

template <class Job>
nrdma_status execute(Node& node, Job& job, uint64_t count,
                     mi::neuraylib::IDice_transaction* transaction = nullptr)
{
    return execute(node.get(), job, count, transaction);
}

/* ---- what a C++ host gives the library when it starts ---- */

#ifndef NRDMA_NO_DONATION
namespace detail {

/* One variable for each, not one for both: translation units with different flags then agree on what
 * they both define. */
#  ifdef __cpp_rtti
inline bool donate_rtti()
{
    const void* const typeinfos[] = {&typeid(mi::neuraylib::IRDMA_buffer),
                                     &typeid(mi::neuraylib::IRDMA_context),
                                     &typeid(mi::neuraylib::IScheduler),
                                     &typeid(mi::neuraylib::IDice_configuration),
                                     &typeid(mi::neuraylib::ISerializer),
                                     &typeid(mi::neuraylib::IDeserializer),
                                     &typeid(mi::neuraylib::IJob_execution_context)};
    nrdma_donate_rtti(typeinfos, sizeof(typeinfos) / sizeof(typeinfos[0]));
    return true;
}

inline const bool rtti_donated = donate_rtti();
#  endif

#  ifdef __cpp_exceptions
inline void copy_text(const char* text, char* out, uint64_t capacity) noexcept
{
    if (out == nullptr || capacity == 0)
        return;
    uint64_t n = 0;
    for (; text != nullptr && text[n] != '\0' && n + 1 < capacity; ++n)
        out[n] = text[n];
    out[n] = '\0';
}

/* Runs `body`; 0, or 1 with the text of the exception that it threw. */
inline int32_t guard(void (*body)(void*), void* arg, char* what, uint64_t capacity)
{
    try {
        body(arg);
        return 0;
    } catch (const std::exception& e) {
        copy_text(e.what(), what, capacity);
    } catch (const char* text) {
        copy_text(text, what, capacity);
    } catch (...) {
        copy_text("an exception that is no std::exception", what, capacity);
    }
    return 1;
}

inline bool donate_guard()
{
    nrdma_donate_guard(guard);
    return true;
}

inline const bool guard_donated = donate_guard();
#  endif

}  // namespace detail
#endif

}  // namespace nrdma

#if defined(__GNUC__) && !defined(_WIN32)
#  pragma GCC visibility pop
#endif

#endif /* NRDMA_NRDMA_HPP */
