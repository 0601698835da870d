#ifndef NRDMA_NRDMA_H
#define NRDMA_NRDMA_H

/* Written by cbindgen from src/abi; change it there, then: NRDMA_HEADER=write cargo test --test header */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NRDMA_VERSION_MAJOR 0
#define NRDMA_VERSION_MINOR 1
#define NRDMA_VERSION_PATCH 0

#if UINTPTR_MAX != UINT64_MAX
#  error "nrdma is for 64-bit platforms"
#endif

#if defined(_WIN32) && !defined(NRDMA_STATIC)
#  define NRDMA_API __declspec(dllimport)
#elif defined(__GNUC__)
#  define NRDMA_API __attribute__((visibility("default")))
#else
#  define NRDMA_API
#endif

/* "none" or "never" for a field of any unsigned type: all its bits are one. */
#define NRDMA_NONE (-1)

/* Interface ids, as initialisers of an nrdma_uuid. */
#define NRDMA_IID_INTERFACE { 0, 0, 0, 0 }
#define NRDMA_IID_RDMA_BUFFER { 0x9b7b00e6u, 0x4a079539u, 0xdd9d1a88u, 0xfe6d5c91u }
#define NRDMA_IID_RDMA_BUFFER_2019 { 0xa2c75819u, 0x4348752au, 0x5a95629fu, 0x12edcf2au }
#define NRDMA_IID_RDMA_CONTEXT { 0x5f3980e9u, 0x478dfadcu, 0x104418bbu, 0xb5f76fa4u }

/* The face of the objects that a call takes or gives: the virtual tables of the caller's compiler. */
#ifdef _MSC_VER
#  define NRDMA_CXX_ABI_HOST NRDMA_CXX_ABI_MSVC
#else
#  define NRDMA_CXX_ABI_HOST NRDMA_CXX_ABI_ITANIUM
#endif

/* cbindgen may name an object before it declares it. */
struct nrdma_buffer;
struct nrdma_context;
struct nrdma_node;
struct nrdma_writer;

/* The bytes of the buffer did not travel yet. */
#define NRDMA_PATH_NONE 0

/* Both ends used the same memory. */
#define NRDMA_PATH_MAPPED 1

/* RDMA, memory to memory. */
#define NRDMA_PATH_DIRECT 2

/* Through a bounce buffer. */
#define NRDMA_PATH_STAGED 3

/* Copied by the processor. */
#define NRDMA_PATH_COPIED 4

/* No records. */
#define NRDMA_LOG_OFF 0

/* What failed. */
#define NRDMA_LOG_ERROR 1

/* What is likely wrong. */
#define NRDMA_LOG_WARN 2

/* What happens, once in a while. */
#define NRDMA_LOG_INFO 3

/* Why something happened as it did. */
#define NRDMA_LOG_DEBUG 4

/* Everything. */
#define NRDMA_LOG_TRACE 5

/* A buffer: a mi::neuraylib::IRDMA_buffer of the face it was made for. */
typedef struct nrdma_buffer {
    /* The object's function table. */
    const void *vtbl;
} nrdma_buffer;

/* An interface id or a class id, laid out as mi::base::Uuid. */
typedef struct nrdma_uuid {
    /* First word. */
    uint32_t id1;
    /* Second word. */
    uint32_t id2;
    /* Third word. */
    uint32_t id3;
    /* Fourth word. */
    uint32_t id4;
} nrdma_uuid;

/* What a call returned: 0 is success, errors are negative, in ranges by what is broken. */
typedef int32_t nrdma_status;

/* Runs body(arg) and catches what it throws: 0, or 1 with the exception's text in `what`. */
typedef int32_t (*nrdma_guard_fn)(void (*body)(void *arg), void *arg, char *what, uint64_t capacity);

/* Receives one record: its level NRDMA_LOG_*, where it comes from, and its text. Called on any thread,
   several at once. */
typedef void (*nrdma_log_fn)(void *user, int32_t level, const char *target, const char *message);

/* Which C++ compiler's layout an object has. */
typedef int32_t nrdma_cxx_abi;

/* The function table of a buffer for GCC, Clang and MinGW, with the slots of mi::neuraylib::IRDMA_buffer. */
typedef struct nrdma_buffer_vtbl_itanium {
    /* Adds a reference; the new count. */
    uint32_t (*retain)(const struct nrdma_buffer *self_);
    /* Drops a reference; the new count. */
    uint32_t (*release)(const struct nrdma_buffer *self_);
    /* +1 or NULL. */
    const void *(*get_interface_const)(const struct nrdma_buffer *self_, const struct nrdma_uuid *iid);
    /* +1 or NULL. */
    void *(*get_interface)(struct nrdma_buffer *self_, const struct nrdma_uuid *iid);
    /* IRDMA_buffer's id. */
    struct nrdma_uuid (*get_iid)(const struct nrdma_buffer *self_);
    /* The number of this buffer; never given twice. */
    uint64_t (*get_id)(const struct nrdma_buffer *self_);
    /* The GPU that holds the memory; -1 is main memory. */
    int32_t (*get_gpu_id)(const struct nrdma_buffer *self_);
    /* The memory, to read. */
    const uint8_t *(*get_data_const)(const struct nrdma_buffer *self_);
    /* The memory. */
    uint8_t *(*get_data)(struct nrdma_buffer *self_);
    /* Bytes asked for. */
    uint64_t (*get_size)(const struct nrdma_buffer *self_);
    /* A part of the buffer, +1, to read; NULL when not wholly inside. */
    const struct nrdma_buffer *(*duplicate_const)(const struct nrdma_buffer *self_,
                                                  uint64_t offset,
                                                  uint64_t size);
    /* A part of the buffer, +1; NULL when not wholly inside. */
    struct nrdma_buffer *(*duplicate)(struct nrdma_buffer *self_, uint64_t offset, uint64_t size);
    /* Whether the memory is a GPU's and registered for RDMA. */
    bool (*is_gpudirect)(struct nrdma_buffer *self_);
} nrdma_buffer_vtbl_itanium;

/* The function table of a buffer for Microsoft's compiler. */
typedef struct nrdma_buffer_vtbl_msvc {
    /* Adds a reference; the new count. */
    uint32_t (*retain)(const struct nrdma_buffer *self_);
    /* Drops a reference; the new count. */
    uint32_t (*release)(const struct nrdma_buffer *self_);
    /* +1 or NULL. */
    void *(*get_interface)(struct nrdma_buffer *self_, const struct nrdma_uuid *iid);
    /* +1 or NULL. */
    const void *(*get_interface_const)(const struct nrdma_buffer *self_, const struct nrdma_uuid *iid);
    /* IRDMA_buffer's id. */
    struct nrdma_uuid *(*get_iid)(const struct nrdma_buffer *self_, struct nrdma_uuid *result);
    /* The number of this buffer; never given twice. */
    uint64_t (*get_id)(const struct nrdma_buffer *self_);
    /* The GPU that holds the memory; -1 is main memory. */
    int32_t (*get_gpu_id)(const struct nrdma_buffer *self_);
    /* The memory. */
    uint8_t *(*get_data)(struct nrdma_buffer *self_);
    /* The memory, to read. */
    const uint8_t *(*get_data_const)(const struct nrdma_buffer *self_);
    /* Bytes asked for. */
    uint64_t (*get_size)(const struct nrdma_buffer *self_);
    /* A part of the buffer, +1; NULL when not wholly inside. */
    struct nrdma_buffer *(*duplicate)(struct nrdma_buffer *self_, uint64_t offset, uint64_t size);
    /* A part of the buffer, +1, to read; NULL when not wholly inside. */
    const struct nrdma_buffer *(*duplicate_const)(const struct nrdma_buffer *self_,
                                                  uint64_t offset,
                                                  uint64_t size);
    /* Whether the memory is a GPU's and registered for RDMA. */
    bool (*is_gpudirect)(struct nrdma_buffer *self_);
} nrdma_buffer_vtbl_msvc;

/* Done. */
#define NRDMA_OK 0

/* A parameter is NULL or out of range; also neuray's flush() and execute_fragmented(). */
#define NRDMA_INVALID_PARAMETER (-1)

/* The call is for use inside a fragment. */
#define NRDMA_NOT_IN_FRAGMENT (-2)

/* A priority is negative. */
#define NRDMA_INVALID_PRIORITY (-3)

/* No memory, or no descriptors. */
#define NRDMA_OUT_OF_MEMORY (-10)

/* The limit on locked memory is too low. */
#define NRDMA_MEMLOCK_LIMIT (-11)

/* This build or this machine cannot do it. */
#define NRDMA_NOT_SUPPORTED (-12)

/* A driver is not installed. */
#define NRDMA_DRIVER_MISSING (-13)

/* A driver failed. */
#define NRDMA_DRIVER_ERROR (-14)

/* The caller's room is too small. */
#define NRDMA_BUFFER_TOO_SMALL (-15)

/* Nobody answers at the address. */
#define NRDMA_UNREACHABLE (-30)

/* The other end refused. */
#define NRDMA_REFUSED (-31)

/* It took longer than allowed. */
#define NRDMA_TIMED_OUT (-32)

/* The other end could not prove that it may connect, or we could not. */
#define NRDMA_AUTH_FAILED (-33)

/* The two ends have no protocol version in common. */
#define NRDMA_VERSION_MISMATCH (-34)

/* The other end broke the protocol. */
#define NRDMA_PROTOCOL_ERROR (-35)

/* The address is taken. */
#define NRDMA_ADDRESS_IN_USE (-36)

/* A peer is gone. */
#define NRDMA_PEER_LOST (-60)

/* A description of something that no longer exists. */
#define NRDMA_STALE (-61)

/* A fragment failed. */
#define NRDMA_FRAGMENT_FAILED (-62)

/* The job was cancelled. */
#define NRDMA_CANCELLED (-63)

/* The node was shut down. */
#define NRDMA_SHUT_DOWN (-64)

/* The class is not registered. */
#define NRDMA_NOT_REGISTERED (-65)

/* A bug in nrdma; nrdma_last_error() has the text. */
#define NRDMA_PANIC (-90)

/* The process is a fork of the one that made the object. */
#define NRDMA_AFTER_FORK (-91)

/* GCC, Clang, MinGW. */
#define NRDMA_CXX_ABI_ITANIUM 0

/* Microsoft's. */
#define NRDMA_CXX_ABI_MSVC 1

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/* Adds a reference; the new count, 0 when it is no buffer. */
NRDMA_API uint32_t nrdma_buffer_retain(const struct nrdma_buffer *buffer);

/* Drops a reference; the new count. */
NRDMA_API uint32_t nrdma_buffer_release(const struct nrdma_buffer *buffer);

/* The buffer as the interface with this id, +1; NULL when it has no such interface. */
NRDMA_API void *nrdma_buffer_get_interface(struct nrdma_buffer *buffer, const struct nrdma_uuid *iid);

/* IRDMA_buffer's id. */
NRDMA_API void nrdma_buffer_get_iid(const struct nrdma_buffer *buffer, struct nrdma_uuid *out);

/* The number of this buffer; never given twice by a process. 0 when it is no buffer. */
NRDMA_API uint64_t nrdma_buffer_get_id(const struct nrdma_buffer *buffer);

/* The GPU that holds the memory; -1 is main memory. */
NRDMA_API int32_t nrdma_buffer_get_gpu_id(const struct nrdma_buffer *buffer);

/* The memory: get_size bytes, aligned to 64 KiB from 64 KiB on, to 64 bytes below. */
NRDMA_API uint8_t *nrdma_buffer_get_data(struct nrdma_buffer *buffer);

/* The memory, to read. */
NRDMA_API const uint8_t *nrdma_buffer_get_const_data(const struct nrdma_buffer *buffer);

/* Bytes asked for. */
NRDMA_API uint64_t nrdma_buffer_get_size(const struct nrdma_buffer *buffer);

/* A part of the buffer as a buffer of its own, +1; it holds the whole. NULL when not wholly inside. */
NRDMA_API
struct nrdma_buffer *nrdma_buffer_duplicate(struct nrdma_buffer *buffer,
                                            uint64_t offset,
                                            uint64_t size);

/* 1 when the memory is a GPU's and registered for RDMA, else 0. */
NRDMA_API int32_t nrdma_buffer_is_gpudirect(struct nrdma_buffer *buffer);

/* How the buffer's bytes last travelled: NRDMA_PATH_*. */
NRDMA_API int32_t nrdma_buffer_get_path(const struct nrdma_buffer *buffer);

/* An English word or two for a status; static. */
NRDMA_API const char *nrdma_status_string(nrdma_status status);

/* What went wrong in this thread's last failing call, in one sentence; "" if none failed. Valid until the
   thread's next failing call. */
NRDMA_API const char *nrdma_last_error(void);

/* Forgets this thread's last error. */
NRDMA_API void nrdma_clear_error(void);

/* The library's version: major * 1000000 + minor * 1000 + patch. */
NRDMA_API uint32_t nrdma_version(void);

/* The library's version as text, "0.1.0"; static. */
NRDMA_API const char *nrdma_version_string(void);

/* Gives nrdma a function, compiled in the host, that catches the host's exceptions; nrdma.hpp calls this.
   The first one stays, and its module is kept loaded. */
NRDMA_API void nrdma_donate_guard(nrdma_guard_fn guard);

/* Gives nrdma the host's typeinfos, so that dynamic_cast, typeid and sanitizers work on its objects;
   nrdma.hpp calls this. The order is buffer, context, scheduler, dice_configuration, serializer,
   deserializer, job_execution_context, plugin; NULL is none. The first ones stay, and their module is
   kept loaded. */
NRDMA_API void nrdma_donate_rtti(const void *const *typeinfos, uint64_t count);

/* Sets the function that receives log records up to max_level; NULL sets none. After the return the old
   one no longer runs, unless this is called from it. previous and previous_user, which may be NULL, get the
   old one. Without a function, the environment's NRDMA_LOG=error|warn|info|debug|trace sends records to
   stderr. */
NRDMA_API
nrdma_status nrdma_set_log(nrdma_log_fn function,
                           void *user,
                           int32_t max_level,
                           nrdma_log_fn *previous,
                           void **previous_user);

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

#endif  /* NRDMA_NRDMA_H */
