#ifndef NRDMA_NRDMA_H
#define NRDMA_NRDMA_H

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

/* 0 is success, errors are negative. */
typedef int32_t nrdma_status;

#define NRDMA_OK 0
/* -1, -2 and -3 mean what they mean in neuray's flush() and execute_fragmented(). */
#define NRDMA_INVALID_PARAMETER (-1)
#define NRDMA_NOT_IN_FRAGMENT (-2)
#define NRDMA_INVALID_PRIORITY (-3)
/* Resources. */
#define NRDMA_OUT_OF_MEMORY (-10)
#define NRDMA_MEMLOCK_LIMIT (-11)
#define NRDMA_NOT_SUPPORTED (-12)
#define NRDMA_DRIVER_MISSING (-13)
#define NRDMA_DRIVER_ERROR (-14)
#define NRDMA_BUFFER_TOO_SMALL (-15)
/* Network. */
#define NRDMA_UNREACHABLE (-30)
#define NRDMA_REFUSED (-31)
#define NRDMA_TIMED_OUT (-32)
#define NRDMA_AUTH_FAILED (-33)
#define NRDMA_VERSION_MISMATCH (-34)
#define NRDMA_PROTOCOL_ERROR (-35)
#define NRDMA_ADDRESS_IN_USE (-36)
/* Peers and jobs. */
#define NRDMA_PEER_LOST (-60)
#define NRDMA_STALE (-61)
#define NRDMA_FRAGMENT_FAILED (-62)
#define NRDMA_CANCELLED (-63)
#define NRDMA_SHUT_DOWN (-64)
#define NRDMA_NOT_REGISTERED (-65)
/* Internal. */
#define NRDMA_PANIC (-90)
#define NRDMA_AFTER_FORK (-91)

#define NRDMA_LOG_OFF 0
#define NRDMA_LOG_ERROR 1
#define NRDMA_LOG_WARN 2
#define NRDMA_LOG_INFO 3
#define NRDMA_LOG_DEBUG 4
#define NRDMA_LOG_TRACE 5

/* Peer events. The third is not NRDMA_PEER_LOST, which is a status. */
#define NRDMA_PEER_EVENT_JOINED 1
#define NRDMA_PEER_EVENT_LEFT 2
#define NRDMA_PEER_EVENT_LOST 3
#define NRDMA_PEER_JOINED NRDMA_PEER_EVENT_JOINED
#define NRDMA_PEER_LEFT NRDMA_PEER_EVENT_LEFT

#define NRDMA_PATH_NONE 0
#define NRDMA_PATH_MAPPED 1
#define NRDMA_PATH_DIRECT 2
#define NRDMA_PATH_STAGED 3
#define NRDMA_PATH_COPIED 4

#define NRDMA_LOCAL 0
#define NRDMA_CLUSTER 1
#define NRDMA_ONCE_PER_HOST 2
#define NRDMA_USER_DEFINED 3

#define NRDMA_JOB_RERUN_AFTER_PARTIAL 1u
#define NRDMA_RESULT_FINAL 1u

/* The face of the objects that a call takes or gives: the virtual tables of the caller's compiler. */
#define NRDMA_CXX_ABI_ITANIUM 0
#define NRDMA_CXX_ABI_MSVC 1
#ifdef _MSC_VER
#  define NRDMA_CXX_ABI_HOST NRDMA_CXX_ABI_MSVC
#else
#  define NRDMA_CXX_ABI_HOST NRDMA_CXX_ABI_ITANIUM
#endif
typedef int32_t nrdma_cxx_abi;

/* An interface or class id, laid out as mi::base::Uuid. */
typedef struct nrdma_uuid {
    uint32_t id1, id2, id3, id4;
} nrdma_uuid;

#define NRDMA_IID_INTERFACE { 0, 0, 0, 0 }
#define NRDMA_IID_RDMA_BUFFER { 0x9b7b00e6u, 0x4a079539u, 0xdd9d1a88u, 0xfe6d5c91u }
#define NRDMA_IID_RDMA_BUFFER_2019 { 0xa2c75819u, 0x4348752au, 0x5a95629fu, 0x12edcf2au }
#define NRDMA_IID_RDMA_CONTEXT { 0x5f3980e9u, 0x478dfadcu, 0x104418bbu, 0xb5f76fa4u }

/* A mi::neuraylib::IRDMA_buffer of the face it was made for. */
typedef struct nrdma_buffer {
    const void *vtbl;
} nrdma_buffer;

/* A mi::neuraylib::IRDMA_context of the face it was made for. */
typedef struct nrdma_context {
    const void *vtbl;
} nrdma_context;

/* The virtual tables, for code that knows the face of an object. */
typedef struct nrdma_buffer_vtbl_itanium {
    uint32_t (*retain)(const nrdma_buffer *self_);
    uint32_t (*release)(const nrdma_buffer *self_);
    const void *(*get_interface_const)(const nrdma_buffer *self_, const nrdma_uuid *iid);
    void *(*get_interface)(nrdma_buffer *self_, const nrdma_uuid *iid);
    nrdma_uuid (*get_iid)(const nrdma_buffer *self_);
    uint64_t (*get_id)(const nrdma_buffer *self_);
    int32_t (*get_gpu_id)(const nrdma_buffer *self_);
    const uint8_t *(*get_data_const)(const nrdma_buffer *self_);
    uint8_t *(*get_data)(nrdma_buffer *self_);
    uint64_t (*get_size)(const nrdma_buffer *self_);
    const nrdma_buffer *(*duplicate_const)(const nrdma_buffer *self_, uint64_t offset, uint64_t size);
    nrdma_buffer *(*duplicate)(nrdma_buffer *self_, uint64_t offset, uint64_t size);
    bool (*is_gpudirect)(nrdma_buffer *self_);
} nrdma_buffer_vtbl_itanium;

typedef struct nrdma_buffer_vtbl_msvc {
    uint32_t (*retain)(const nrdma_buffer *self_);
    uint32_t (*release)(const nrdma_buffer *self_);
    void *(*get_interface)(nrdma_buffer *self_, const nrdma_uuid *iid);
    const void *(*get_interface_const)(const nrdma_buffer *self_, const nrdma_uuid *iid);
    nrdma_uuid *(*get_iid)(const nrdma_buffer *self_, nrdma_uuid *result);
    uint64_t (*get_id)(const nrdma_buffer *self_);
    int32_t (*get_gpu_id)(const nrdma_buffer *self_);
    uint8_t *(*get_data)(nrdma_buffer *self_);
    const uint8_t *(*get_data_const)(const nrdma_buffer *self_);
    uint64_t (*get_size)(const nrdma_buffer *self_);
    nrdma_buffer *(*duplicate)(nrdma_buffer *self_, uint64_t offset, uint64_t size);
    const nrdma_buffer *(*duplicate_const)(const nrdma_buffer *self_, uint64_t offset, uint64_t size);
    bool (*is_gpudirect)(nrdma_buffer *self_);
} nrdma_buffer_vtbl_msvc;

typedef struct nrdma_context_vtbl_itanium {
    uint32_t (*retain)(const nrdma_context *self_);
    uint32_t (*release)(const nrdma_context *self_);
    const void *(*get_interface_const)(const nrdma_context *self_, const nrdma_uuid *iid);
    void *(*get_interface)(nrdma_context *self_, const nrdma_uuid *iid);
    nrdma_uuid (*get_iid)(const nrdma_context *self_);
    nrdma_buffer *(*get_write_memory)(nrdma_context *self_, uint64_t size, int32_t gpu_id);
    nrdma_buffer *(*get_read_memory)(nrdma_context *self_, uint64_t size, int32_t gpu_id);
    nrdma_buffer *(*wrap_user_buffer)(nrdma_context *self_, uint8_t *data, uint64_t size, int32_t gpu_id);
    int32_t (*flush)(nrdma_context *self_, nrdma_buffer *buffer);
} nrdma_context_vtbl_itanium;

typedef struct nrdma_context_vtbl_msvc {
    uint32_t (*retain)(const nrdma_context *self_);
    uint32_t (*release)(const nrdma_context *self_);
    void *(*get_interface)(nrdma_context *self_, const nrdma_uuid *iid);
    const void *(*get_interface_const)(const nrdma_context *self_, const nrdma_uuid *iid);
    nrdma_uuid *(*get_iid)(const nrdma_context *self_, nrdma_uuid *result);
    nrdma_buffer *(*get_write_memory)(nrdma_context *self_, uint64_t size, int32_t gpu_id);
    nrdma_buffer *(*get_read_memory)(nrdma_context *self_, uint64_t size, int32_t gpu_id);
    nrdma_buffer *(*wrap_user_buffer)(nrdma_context *self_, uint8_t *data, uint64_t size, int32_t gpu_id);
    int32_t (*flush)(nrdma_context *self_, nrdma_buffer *buffer);
} nrdma_context_vtbl_msvc;

typedef struct nrdma_node nrdma_node;
typedef struct nrdma_writer nrdma_writer;

/* Receives one log record. */
typedef void (*nrdma_log_fn)(void *user, int32_t level, const char *target, const char *message);

/* Settings of a node; start from NRDMA_NODE_CONFIG_INIT. */
typedef struct nrdma_node_config {
    uint64_t struct_size;
    const char *name;
    uint32_t host_id;
    uint32_t worker_threads;
    const char *transports;
    const char *net_interface;
    const char *auth_token;
    uint32_t insecure;
    uint32_t tls;
    uint64_t cache_idle_bytes;
    uint32_t heartbeat_ms;
    uint32_t peer_timeout_ms;
    uint32_t connect_timeout_ms;
    uint32_t shutdown_timeout_ms;
    int32_t gpu_id_base;
    uint32_t zero_copy;
    uint32_t zero_on_reuse;
    uint32_t reserved;
} nrdma_node_config;

#define NRDMA_NODE_CONFIG_INIT \
    { sizeof(nrdma_node_config), NULL, 0, 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct nrdma_peer_info {
    uint64_t struct_size;
    uint32_t host_id;
    uint32_t alive;
    char name[64];
    char address[128];
    char transport[16];
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t fragments_run;
    uint64_t fragments_sent;
    uint64_t round_trip_ns;
} nrdma_peer_info;

typedef struct nrdma_stats {
    uint64_t struct_size;
    uint64_t cache_hits;
    uint64_t cache_misses;
    uint64_t cache_idle_bytes;
    uint64_t live_buffers;
    uint64_t live_bytes;
    uint64_t bytes_mapped;
    uint64_t bytes_direct;
    uint64_t bytes_staged;
    uint64_t bytes_copied;
    uint64_t fragments_local;
    uint64_t fragments_remote;
    uint64_t fragments_served;
    uint64_t fragments_retried;
    uint64_t peers;
    uint64_t threads;
} nrdma_stats;

typedef struct nrdma_fragment {
    uint64_t struct_size;
    uint64_t index;
    uint64_t count;
    uint64_t thread_id;
    uint32_t host_id;
    uint32_t attempt;
} nrdma_fragment;

typedef struct nrdma_result {
    uint64_t struct_size;
    uint64_t index;
    uint64_t count;
    uint64_t size;
    uint32_t host_id;
    uint32_t attempt;
    uint32_t sequence;
    uint32_t flags;
    int32_t path;
    uint32_t reserved;
} nrdma_result;

/* A job; start from NRDMA_JOB_INIT. */
typedef struct nrdma_job {
    uint64_t struct_size;
    void *user;
    nrdma_uuid class_id;
    const void *payload;
    uint64_t payload_size;
    int32_t mode;
    int32_t priority;
    int32_t abi;
    uint32_t timeout_ms;
    uint64_t thread_limit;
    uint64_t flags;
    nrdma_status (*execute_fragment)(void *user, const nrdma_fragment *fragment);
    nrdma_buffer *(*get_result_buffer)(void *user, nrdma_context *context, uint64_t index);
    nrdma_status (*receive_result)(void *user, nrdma_buffer *buffer, const nrdma_result *result);
    nrdma_status (*receive_bytes)(void *user, const uint8_t *bytes, const nrdma_result *result);
    void (*assign_hosts)(void *user, uint32_t *slots, uint64_t count);
    void (*fragment_failed)(void *user, uint64_t index, nrdma_status why, const char *text);
    void (*cancel)(void *user);
} nrdma_job;

#define NRDMA_JOB_INIT \
    { sizeof(nrdma_job), NULL, { 0, 0, 0, 0 }, NULL, 0, NRDMA_LOCAL, 0, NRDMA_CXX_ABI_HOST, 0, 0, 0, \
      NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* What makes and runs the replicas of a job; copied at registration. */
typedef struct nrdma_job_class {
    uint64_t struct_size;
    void *user;
    int32_t abi;
    uint32_t reserved;
    nrdma_status (*create)(void *user, const void *payload, uint64_t size, void **replica);
    nrdma_status (*execute_remote)(void *replica, const nrdma_fragment *fragment, nrdma_context *context,
                                   nrdma_buffer **result);
    nrdma_status (*execute_remote_bytes)(void *replica, const nrdma_fragment *fragment, nrdma_writer *writer);
    void (*cancel)(void *replica);
    void (*destroy)(void *replica);
} nrdma_job_class;

#ifdef __cplusplus
extern "C" {
#endif

NRDMA_API const char *nrdma_status_string(nrdma_status status);
NRDMA_API const char *nrdma_last_error(void);
NRDMA_API void nrdma_clear_error(void);
NRDMA_API uint32_t nrdma_version(void);
NRDMA_API const char *nrdma_version_string(void);
NRDMA_API nrdma_status nrdma_set_log(nrdma_log_fn f, void *user, int32_t max_level, nrdma_log_fn *previous, void **previous_user);
NRDMA_API uint32_t nrdma_buffer_retain(const nrdma_buffer *buffer);
NRDMA_API uint32_t nrdma_buffer_release(const nrdma_buffer *buffer);
NRDMA_API void *nrdma_buffer_get_interface(nrdma_buffer *buffer, const nrdma_uuid *iid);
NRDMA_API void nrdma_buffer_get_iid(const nrdma_buffer *buffer, nrdma_uuid *out);
NRDMA_API uint64_t nrdma_buffer_get_id(const nrdma_buffer *buffer);
NRDMA_API int32_t nrdma_buffer_get_gpu_id(const nrdma_buffer *buffer);
NRDMA_API uint8_t *nrdma_buffer_get_data(nrdma_buffer *buffer);
NRDMA_API const uint8_t *nrdma_buffer_get_const_data(const nrdma_buffer *buffer);
NRDMA_API uint64_t nrdma_buffer_get_size(const nrdma_buffer *buffer);
NRDMA_API nrdma_buffer *nrdma_buffer_duplicate(nrdma_buffer *buffer, uint64_t offset, uint64_t size);
NRDMA_API int32_t nrdma_buffer_is_gpudirect(nrdma_buffer *buffer);
NRDMA_API int32_t nrdma_buffer_get_path(const nrdma_buffer *buffer);
NRDMA_API uint32_t nrdma_context_retain(const nrdma_context *context);
NRDMA_API uint32_t nrdma_context_release(const nrdma_context *context);
NRDMA_API void *nrdma_context_get_interface(nrdma_context *context, const nrdma_uuid *iid);
NRDMA_API void nrdma_context_get_iid(const nrdma_context *context, nrdma_uuid *out);
NRDMA_API nrdma_buffer *nrdma_context_get_write_memory(nrdma_context *context, uint64_t size, int32_t gpu_id);
NRDMA_API nrdma_buffer *nrdma_context_get_read_memory(nrdma_context *context, uint64_t size, int32_t gpu_id);
NRDMA_API nrdma_buffer *nrdma_context_wrap_user_buffer(nrdma_context *context, uint8_t *data, uint64_t size, int32_t gpu_id);
NRDMA_API nrdma_buffer *nrdma_context_wrap_user_buffer_with(nrdma_context *context, uint8_t *data, uint64_t size, int32_t gpu_id, void (*done)(void *user), void *user);
NRDMA_API int32_t nrdma_context_flush(nrdma_context *context, nrdma_buffer *buffer);
NRDMA_API nrdma_status nrdma_node_create(const nrdma_node_config *config, nrdma_node **node);
NRDMA_API uint32_t nrdma_node_host_id(const nrdma_node *node);
NRDMA_API nrdma_status nrdma_node_listen(nrdma_node *node, const char *address, char *bound, uint64_t bound_capacity);
NRDMA_API nrdma_status nrdma_node_connect(nrdma_node *node, const char *address, uint32_t *host_id);
NRDMA_API nrdma_status nrdma_node_disconnect(nrdma_node *node, uint32_t host_id);
NRDMA_API nrdma_status nrdma_node_peers(nrdma_node *node, nrdma_peer_info *out, uint64_t stride, uint64_t capacity, uint64_t *total);
NRDMA_API nrdma_status nrdma_node_wait_peers(nrdma_node *node, uint64_t at_least, uint32_t timeout_ms);
NRDMA_API nrdma_status nrdma_node_set_peer_callback(nrdma_node *node, void (*fn)(void *user, const nrdma_peer_info *peer, int32_t event), void *user);
NRDMA_API nrdma_context *nrdma_node_get_rdma_context_abi(nrdma_node *node, uint32_t host_id, int32_t abi);
NRDMA_API nrdma_status nrdma_node_stats(nrdma_node *node, nrdma_stats *out);
NRDMA_API nrdma_status nrdma_node_trim(nrdma_node *node, uint64_t keep_idle_bytes);
NRDMA_API nrdma_status nrdma_node_shutdown(nrdma_node *node, uint32_t timeout_ms);
NRDMA_API void nrdma_node_destroy(nrdma_node *node);
NRDMA_API int32_t nrdma_fragment_cancelled(const nrdma_fragment *fragment);
NRDMA_API nrdma_status nrdma_node_register_class(nrdma_node *node, nrdma_uuid class_id, const nrdma_job_class *job_class);
NRDMA_API nrdma_status nrdma_node_unregister_class(nrdma_node *node, nrdma_uuid class_id, uint32_t timeout_ms);
NRDMA_API nrdma_status nrdma_node_execute(nrdma_node *node, const nrdma_job *job, uint64_t count);
NRDMA_API nrdma_status nrdma_node_execute_async(nrdma_node *node, const nrdma_job *job, uint64_t count, void (*done)(void *user, nrdma_status status), uint64_t *job_id);
NRDMA_API nrdma_status nrdma_node_cancel(nrdma_node *node, uint64_t job_id);
NRDMA_API nrdma_status nrdma_writer_write(nrdma_writer *writer, const void *bytes, uint64_t size);
NRDMA_API nrdma_status nrdma_writer_flush(nrdma_writer *writer);
NRDMA_API void nrdma_donate_rtti(const void *const *typeinfos, uint64_t count);
NRDMA_API void nrdma_donate_guard(int32_t (*guard)(void (*body)(void *), void *arg, char *what, uint64_t capacity));

/* The context of a host, with the caller's face; +1, NULL when there is no such host. */
static inline nrdma_context *nrdma_node_get_rdma_context(nrdma_node *node, uint32_t host_id)
{
    return nrdma_node_get_rdma_context_abi(node, host_id, NRDMA_CXX_ABI_HOST);
}

#ifdef __cplusplus
}  /* extern "C" */
#endif

#endif  /* NRDMA_NRDMA_H */
