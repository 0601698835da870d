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
#include <nrdma/neuray.hpp>

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

/* ---- what a C++ host gives the library when it starts ---- */

#ifndef NRDMA_NO_DONATION
namespace detail {

/* One variable for each, not one for both: translation units with different flags then agree on what
 * they both define. */
#  ifdef __cpp_rtti
inline bool donate_rtti()
{
    const void* const typeinfos[] = {&typeid(mi::neuraylib::IRDMA_buffer),
                                     &typeid(mi::neuraylib::IRDMA_context)};
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
