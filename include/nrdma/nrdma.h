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
struct nrdma_gpu_buffer;

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

/* No API; not one to ask for. */
#define NRDMA_GPU_NONE 0

/* Memory by the CUDA driver. */
#define NRDMA_GPU_CUDA 1

/* Memory of the host's Vulkan device, by VK_NV_external_memory_rdma. */
#define NRDMA_GPU_VULKAN 2

/* Memory of the host's D3D12 device, by NvAPI. */
#define NRDMA_GPU_D3D12 3

/* Main memory. */
#define NRDMA_GPU_HOST_FALLBACK 4

/* CUDA: PINNED on an integrated GPU, VMM when exports has FD or WIN32, else DEVICE. Vulkan, D3D12: DEVICE.
   Host: PAGES. What was chosen is in the buffer's info, which never says AUTO. */
#define NRDMA_MEMORY_AUTO 0

/* cuMemAlloc with SYNC_MEMOPS, VkDeviceMemory of an RDMA_CAPABLE type, or NvAPI's committed buffer. */
#define NRDMA_MEMORY_DEVICE 1

/* cuMemCreate and cuMemMap with gpuDirectRDMACapable, read back. */
#define NRDMA_MEMORY_VMM 2

/* Main memory that the CPU, the GPU and the card reach. CUDA: cuMemHostAlloc, which is what Tegra's RDMA takes;
   host: PAGES that cuMemHostRegister pinned. */
#define NRDMA_MEMORY_PINNED 3

/* Pages of our own in main memory, all of them touched; the card's SDK pins them. */
#define NRDMA_MEMORY_PAGES 4

/* Linux: for ibv_reg_dmabuf_mr, V4L2, DRM. Not for graphics: EGL refuses CUDA's dma-bufs. */
#define NRDMA_EXPORT_DMA_BUF 1

/* The same, forced through BAR1: for mlx5's Data Direct on machines with NVLink-C2C only. */
#define NRDMA_EXPORT_DMA_BUF_PCIE 2

/* Linux: an opaque descriptor, for cuMemImportFromShareableHandle. Vulkan does not see the same bytes in it. */
#define NRDMA_EXPORT_FD 4

/* Windows: an NT handle, for the same. */
#define NRDMA_EXPORT_WIN32 8

/* One allocation: slot i is slot 0 + i * stride; one handle, one registration (Rivermax, DPDK). */
#define NRDMA_GPU_CONTIGUOUS 1

/* Also memory that, in its driver's word, no card can reach (tests, staging). */
#define NRDMA_GPU_ANY_MEMORY 2

/* All fragments run on this host. */
#define NRDMA_LOCAL 0

/* Fragments are spread over this host and its peers. */
#define NRDMA_CLUSTER 1

/* At most one fragment for each remote host. */
#define NRDMA_ONCE_PER_HOST 2

/* The job says which host runs which fragment. */
#define NRDMA_USER_DEFINED 3

/* In nrdma_job.flags: a fragment may run again on another host although an intermediate result of it was
   delivered. */
#define NRDMA_JOB_RERUN_AFTER_PARTIAL 1

/* In nrdma_result.flags: the last result of its fragment. */
#define NRDMA_RESULT_FINAL 1

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

/* A peer was connected. */
#define NRDMA_PEER_EVENT_JOINED 1

/* A peer left in good order. */
#define NRDMA_PEER_EVENT_LEFT 2

/* A peer was lost. */
#define NRDMA_PEER_EVENT_LOST 3

/* Equal pieces of memory, made and freed as one; see nrdma_gpu_buffer_create. */
typedef struct nrdma_gpu_buffer nrdma_gpu_buffer;

/* One process's membership; see nrdma_node_create. */
typedef struct nrdma_node nrdma_node;

/* Where a fragment writes a result that goes as bytes. Valid during execute_remote_bytes. */
typedef struct nrdma_writer nrdma_writer;

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

/* The context of one host: a mi::neuraylib::IRDMA_context of the face it was made for. */
typedef struct nrdma_context {
    /* The object's function table. */
    const void *vtbl;
} nrdma_context;

/* What a call returned: 0 is success, errors are negative, in ranges by what is broken. */
typedef int32_t nrdma_status;

/* Which C++ compiler's layout an object has. */
typedef int32_t nrdma_cxx_abi;

/* A function pointer of any type: cast yours to it. ISO C has no void* for functions. */
typedef void (*nrdma_proc)(void);

/* What slots are to be. Start from NRDMA_GPU_BUFFER_CONFIG_INIT; 0 and NULL are the defaults. */
typedef struct nrdma_gpu_buffer_config {
    /* sizeof(nrdma_gpu_buffer_config) of the host. */
    uint64_t struct_size;
    /* NRDMA_GPU_CUDA, _VULKAN, _D3D12 or _HOST_FALLBACK; never replaced by another. */
    int32_t api;
    /* 1 to 65536. */
    uint32_t slot_count;
    /* Bytes that the card moves per slot: its SDK's figure, when it has one. */
    uint64_t frame_bytes;
    /* NRDMA_MEMORY_*; never replaced by another, except AUTO. */
    int32_t memory;
    /* NRDMA_GPU_CONTIGUOUS, NRDMA_GPU_ANY_MEMORY. */
    uint32_t flags;
    /* A power of two; 0 is 65536, which is also the least. */
    uint64_t alignment;
    /* NRDMA_EXPORT_* that nrdma_gpu_buffer_export must be able to make; refused here if it could not. */
    uint32_t exports;
    /* CUDA's ordinal, when gpu_uuid is NULL. */
    int32_t cuda_device;
    /* 16 bytes that pick the CUDA GPU: VkPhysicalDeviceIDProperties.deviceUUID is the same as CUDA's. */
    const uint8_t *gpu_uuid;
    /* A CUcontext to allocate in (FFmpeg's, an engine's own), which outlives the buffer; NULL is the GPU's primary
       context, which is retained for as long as the buffer lives. */
    void *cuda_context;
    /* The host's VkInstance, of API version 1.1 or later; outlives the buffer. */
    void *vk_instance;
    /* Its VkPhysicalDevice. */
    void *vk_physical_device;
    /* Its VkDevice, made with VK_NV_external_memory_rdma and the feature externalMemoryRDMA; outlives the buffer. */
    void *vk_device;
    /* The host's vkGetInstanceProcAddr, cast. */
    nrdma_proc vk_get_instance_proc_addr;
    /* VkBufferUsageFlags; 0 is TRANSFER_SRC | TRANSFER_DST | STORAGE_BUFFER. */
    uint32_t vk_buffer_usage;
    /* How many vk_queue_families there are; up to 1 is exclusive use. */
    uint32_t vk_queue_family_count;
    /* Queue families that use the buffers at the same time. */
    const uint32_t *vk_queue_families;
    /* The host's ID3D12Device; retained. */
    void *d3d12_device;
    /* The node that the memory is of, for linked adapters; 0 is the first. */
    uint32_t d3d12_creation_node_mask;
    /* The nodes that see it; 0 is only that one. */
    uint32_t d3d12_visible_node_mask;
} nrdma_gpu_buffer_config;

/* A buffer in figures. */
typedef struct nrdma_gpu_buffer_info {
    /* sizeof(nrdma_gpu_buffer_info) of the host. */
    uint64_t struct_size;
    /* NRDMA_GPU_*, as asked for. */
    int32_t api;
    /* NRDMA_MEMORY_*, never AUTO. */
    int32_t memory;
    /* Slots. */
    uint32_t slot_count;
    /* As asked for. */
    uint32_t flags;
    /* As asked for. */
    uint64_t frame_bytes;
    /* From one slot to the next with NRDMA_GPU_CONTIGUOUS, else 0. */
    uint64_t stride;
    /* Bytes of memory taken: what pinning all of it asks of BAR1. */
    uint64_t total_bytes;
    /* CUDA's ordinal; -1 without CUDA. */
    int32_t cuda_device;
    /* The driver's word: 1 cards can reach it, 0 not, -1 it does not say. The proof is a transfer: write, let the
       card move it, read. */
    int32_t rdma_capable;
    /* 1: call nrdma_gpu_buffer_flush between "the card is done" and the GPU's first read. */
    uint32_t needs_flush;
    /* 0. */
    uint32_t reserved;
    /* The GPU's; zero when unknown. */
    uint8_t gpu_uuid[16];
    /* One sentence: what AUTO chose and why; "" when there was nothing to choose. */
    char note[160];
} nrdma_gpu_buffer_info;

/* One slot. The three addresses name the same bytes; 0 or NULL where that side cannot reach them. */
typedef struct nrdma_gpu_slot {
    /* sizeof(nrdma_gpu_slot) of the library; 0 in the empty slot. */
    uint64_t struct_size;
    /* For the card's SDK: CUdeviceptr, VkRemoteAddressNV, BAR1 address, or host pointer. */
    uint64_t address;
    /* Bytes from address on that are this slot's alone: at least frame_bytes, whole units of 64 KiB. */
    uint64_t size;
    /* For GPU code: CUdeviceptr, VkDeviceAddress (with SHADER_DEVICE_ADDRESS in vk_buffer_usage), or
       D3D12_GPU_VIRTUAL_ADDRESS. */
    uint64_t gpu_va;
    /* For the CPU. */
    void *host;
    /* VkBuffer, ID3D12Resource* or CUmemGenericAllocationHandle: borrowed, dies with the buffer. */
    uint64_t native;
    /* VkDeviceMemory. */
    uint64_t native_memory;
    /* Of this slot inside native. */
    uint64_t native_offset;
} nrdma_gpu_slot;

/* A handle for another API or process. */
typedef struct nrdma_gpu_export {
    /* sizeof(nrdma_gpu_export) of the host. */
    uint64_t struct_size;
    /* A descriptor or HANDLE: the caller's, to close. It keeps the memory alive, not the slot's addresses. */
    intptr_t handle;
    /* Of the slot in it (ibv_reg_dmabuf_mr's offset). */
    uint64_t offset;
    /* Of the whole handle. */
    uint64_t size;
} nrdma_gpu_export;

/* Runs body(arg) and catches what it throws: 0, or 1 with the exception's text in `what`. */
typedef int32_t (*nrdma_guard_fn)(void (*body)(void *arg), void *arg, char *what, uint64_t capacity);

/* What a fragment's function is told. Valid during the call. */
typedef struct nrdma_fragment {
    /* sizeof(nrdma_fragment) of the library. */
    uint64_t struct_size;
    /* Which fragment. */
    uint64_t index;
    /* Of how many. */
    uint64_t count;
    /* Stable for the thread, different for each running one. */
    uint64_t thread_id;
    /* The requester's host id. */
    uint32_t host_id;
    /* 0 at the first try. */
    uint32_t attempt;
} nrdma_fragment;

/* What is told with a result. Valid during the call. */
typedef struct nrdma_result {
    /* sizeof(nrdma_result) of the library. */
    uint64_t struct_size;
    /* Which fragment. */
    uint64_t index;
    /* Of how many. */
    uint64_t count;
    /* Bytes received. */
    uint64_t size;
    /* The host that ran the fragment. */
    uint32_t host_id;
    /* 0 at the first try. */
    uint32_t attempt;
    /* 0 for the fragment's first result. */
    uint32_t sequence;
    /* NRDMA_RESULT_FINAL. */
    uint32_t flags;
    /* How the bytes came: NRDMA_PATH_*. */
    int32_t path;
    /* 0. */
    uint32_t reserved;
} nrdma_result;

/* A job. Start from NRDMA_JOB_INIT. Everything it points to lives until execute returns or done is called.
   The functions run on the node's threads and on the one inside execute, several at a time for different
   fragments; they must not throw unless the host includes nrdma.hpp. */
typedef struct nrdma_job {
    /* sizeof(nrdma_job) of the host. */
    uint64_t struct_size;
    /* Passed to every function. */
    void *user;
    /* The class of which remote hosts make replicas. */
    struct nrdma_uuid class_id;
    /* What a replica is made from. */
    const void *payload;
    /* Its size in bytes, at most 256 MiB. */
    uint64_t payload_size;
    /* NRDMA_LOCAL, NRDMA_CLUSTER, NRDMA_ONCE_PER_HOST or NRDMA_USER_DEFINED. */
    int32_t mode;
    /* Lower runs first; not negative. */
    int32_t priority;
    /* The host's C++ layout; NRDMA_JOB_INIT sets it. */
    nrdma_cxx_abi abi;
    /* Milliseconds from the call to the end; 0 or NRDMA_NONE is no limit. */
    uint32_t timeout_ms;
    /* Fragments that run at once on one host; 0 is no limit. */
    uint64_t thread_limit;
    /* NRDMA_JOB_RERUN_AFTER_PARTIAL. */
    uint64_t flags;
    /* Runs a fragment here; NULL: fragments only run on other hosts. */
    nrdma_status (*execute_fragment)(void *user, const struct nrdma_fragment *fragment);
    /* The buffer, from this context, for the result of a fragment that goes to the context's host, +1; NULL:
       the result comes as bytes. */
    struct nrdma_buffer *(*get_result_buffer)(void *user, struct nrdma_context *context, uint64_t index);
    /* Takes a result in its buffer, which is borrowed: retain it to keep it. */
    nrdma_status (*receive_result)(void *user, struct nrdma_buffer *buffer, const struct nrdma_result *result);
    /* Takes a result as bytes. */
    nrdma_status (*receive_bytes)(void *user, const uint8_t *bytes, const struct nrdma_result *result);
    /* NRDMA_USER_DEFINED: fills in a host id for each fragment; 0 is this host, an unknown one skips it. */
    void (*assign_hosts)(void *user, uint32_t *slots, uint64_t count);
    /* A fragment will have no (further) result. */
    void (*fragment_failed)(void *user, uint64_t index, nrdma_status why, const char *text);
    /* The job is abandoned with fragments outstanding. */
    void (*cancel)(void *user);
} nrdma_job;

/* A class of jobs that this host runs for others. Copied at registration. */
typedef struct nrdma_job_class {
    /* sizeof(nrdma_job_class) of the host. */
    uint64_t struct_size;
    /* Passed to create. */
    void *user;
    /* The host's C++ layout; NRDMA_JOB_CLASS_INIT sets it. */
    nrdma_cxx_abi abi;
    /* 0. */
    uint32_t reserved;
    /* Makes the replica, once per job and host. */
    nrdma_status (*create)(void *user, const void *payload, uint64_t size, void **replica);
    /* Runs a fragment that has a result buffer; *result is +1, or NULL: nothing to send. */
    nrdma_status (*execute_remote)(void *replica,
                                   const struct nrdma_fragment *fragment,
                                   struct nrdma_context *context,
                                   struct nrdma_buffer **result);
    /* Runs a fragment whose result goes as bytes. */
    nrdma_status (*execute_remote_bytes)(void *replica,
                                         const struct nrdma_fragment *fragment,
                                         struct nrdma_writer *writer);
    /* The job is abandoned; fragments may still run. */
    void (*cancel)(void *replica);
    /* The job is over and no fragment runs. */
    void (*destroy)(void *replica);
} nrdma_job_class;

/* Receives one record: its level NRDMA_LOG_*, where it comes from, and its text. Called on any thread,
   several at once. */
typedef void (*nrdma_log_fn)(void *user, int32_t level, const char *target, const char *message);

/* A node's settings. Start from NRDMA_NODE_CONFIG_INIT; 0 and NULL are the defaults. */
typedef struct nrdma_node_config {
    /* sizeof(nrdma_node_config) of the host. */
    uint64_t struct_size;
    /* In logs, stats and peer info. */
    const char *name;
    /* Cluster-wide; 0 is a random one. A duplicate is refused when it connects. */
    uint32_t host_id;
    /* Threads that run fragments; 0 is as many as cores, NRDMA_NONE runs nothing for others. */
    uint32_t worker_threads;
    /* Comma list of inproc, shm, best first; NULL is all (environment: NRDMA_TRANSPORTS). */
    const char *transports;
    /* The network interface to use; NULL is any (environment: NRDMA_INTERFACE). Unix sockets use none. */
    const char *net_interface;
    /* A secret of at least 16 bytes that all nodes share; NULL is only this user's processes on this machine
       (environment: NRDMA_AUTH_TOKEN_FILE, a file of mode 0600). */
    const char *auth_token;
    /* 1 accepts peers without proof. */
    uint32_t insecure;
    /* 0 off, 1 wanted, 2 required. This version has no TLS. */
    uint32_t tls;
    /* Idle bytes that the cache keeps; 0 is min(1 GiB, 1/8 of memory or of the cgroup's limit), NRDMA_NONE
       keeps nothing. */
    uint64_t cache_idle_bytes;
    /* How often a quiet peer is tested; 0 is 1000. */
    uint32_t heartbeat_ms;
    /* Silence after which a peer is lost; 0 is 5000, NRDMA_NONE is never (for debuggers). */
    uint32_t peer_timeout_ms;
    /* For connecting; 0 is 5000. */
    uint32_t connect_timeout_ms;
    /* For nrdma_node_destroy; 0 is 2000. */
    uint32_t shutdown_timeout_ms;
    /* 0 is CUDA's ordinals, 1 DiCE's numbering. */
    int32_t gpu_id_base;
    /* When result memory is handed out as write memory: 0 strict, 1 also when the host holds it, 2 never. */
    uint32_t zero_copy;
    /* 1 clears recycled memory. */
    uint32_t zero_on_reuse;
    /* 0. */
    uint32_t reserved;
} nrdma_node_config;

/* A peer in figures. */
typedef struct nrdma_peer_info {
    /* sizeof(nrdma_peer_info) of the host. */
    uint64_t struct_size;
    /* Its id. */
    uint32_t host_id;
    /* 1 while it is connected. */
    uint32_t alive;
    /* Its name. */
    char name[64];
    /* Where it is. */
    char address[128];
    /* The engine: inproc, shm. */
    char transport[16];
    /* Bytes of results sent to it. */
    uint64_t bytes_sent;
    /* Bytes of results received from it. */
    uint64_t bytes_received;
    /* Fragments run here for it. */
    uint64_t fragments_run;
    /* Fragments sent to it. */
    uint64_t fragments_sent;
    /* The shortest round trip seen, in nanoseconds; 0 when none was measured. */
    uint64_t round_trip_ns;
} nrdma_peer_info;

/* A node in figures. */
typedef struct nrdma_stats {
    /* sizeof(nrdma_stats) of the host. */
    uint64_t struct_size;
    /* Buffers that came from the cache. */
    uint64_t cache_hits;
    /* Buffers that had to be made. */
    uint64_t cache_misses;
    /* Bytes that rest in the cache. */
    uint64_t cache_idle_bytes;
    /* Buffers that are out. */
    uint64_t live_buffers;
    /* Bytes held outside of the cache. */
    uint64_t live_bytes;
    /* Bytes of results by path: the same memory on both sides. */
    uint64_t bytes_mapped;
    /* By RDMA. */
    uint64_t bytes_direct;
    /* Through a bounce buffer. */
    uint64_t bytes_staged;
    /* Copied once into place. */
    uint64_t bytes_copied;
    /* Fragments of our jobs that ran here. */
    uint64_t fragments_local;
    /* Fragments of our jobs that other hosts ran. */
    uint64_t fragments_remote;
    /* Fragments that ran here for others. */
    uint64_t fragments_served;
    /* Fragments that were tried again. */
    uint64_t fragments_retried;
    /* Connected peers. */
    uint64_t peers;
    /* Threads of the node. */
    uint64_t threads;
} nrdma_stats;

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

/* The function table of a context for GCC, Clang and MinGW, with the slots of mi::neuraylib::IRDMA_context. */
typedef struct nrdma_context_vtbl_itanium {
    /* Adds a reference; the new count. */
    uint32_t (*retain)(const struct nrdma_context *self_);
    /* Drops a reference; the new count. */
    uint32_t (*release)(const struct nrdma_context *self_);
    /* +1 or NULL. */
    const void *(*get_interface_const)(const struct nrdma_context *self_, const struct nrdma_uuid *iid);
    /* +1 or NULL. */
    void *(*get_interface)(struct nrdma_context *self_, const struct nrdma_uuid *iid);
    /* IRDMA_context's id. */
    struct nrdma_uuid (*get_iid)(const struct nrdma_context *self_);
    /* A buffer to send from, +1. */
    struct nrdma_buffer *(*get_write_memory)(struct nrdma_context *self_, uint64_t size, int32_t gpu_id);
    /* A buffer to receive into, +1. */
    struct nrdma_buffer *(*get_read_memory)(struct nrdma_context *self_, uint64_t size, int32_t gpu_id);
    /* The host's own memory as a buffer, +1. */
    struct nrdma_buffer *(*wrap_user_buffer)(struct nrdma_context *self_,
                                             uint8_t *data,
                                             uint64_t size,
                                             int32_t gpu_id);
    /* Sends an intermediate result. */
    int32_t (*flush)(struct nrdma_context *self_, struct nrdma_buffer *buffer);
} nrdma_context_vtbl_itanium;

/* The function table of a context for Microsoft's compiler. */
typedef struct nrdma_context_vtbl_msvc {
    /* Adds a reference; the new count. */
    uint32_t (*retain)(const struct nrdma_context *self_);
    /* Drops a reference; the new count. */
    uint32_t (*release)(const struct nrdma_context *self_);
    /* +1 or NULL. */
    void *(*get_interface)(struct nrdma_context *self_, const struct nrdma_uuid *iid);
    /* +1 or NULL. */
    const void *(*get_interface_const)(const struct nrdma_context *self_, const struct nrdma_uuid *iid);
    /* IRDMA_context's id. */
    struct nrdma_uuid *(*get_iid)(const struct nrdma_context *self_, struct nrdma_uuid *result);
    /* A buffer to send from, +1. */
    struct nrdma_buffer *(*get_write_memory)(struct nrdma_context *self_, uint64_t size, int32_t gpu_id);
    /* A buffer to receive into, +1. */
    struct nrdma_buffer *(*get_read_memory)(struct nrdma_context *self_, uint64_t size, int32_t gpu_id);
    /* The host's own memory as a buffer, +1. */
    struct nrdma_buffer *(*wrap_user_buffer)(struct nrdma_context *self_,
                                             uint8_t *data,
                                             uint64_t size,
                                             int32_t gpu_id);
    /* Sends an intermediate result. */
    int32_t (*flush)(struct nrdma_context *self_, struct nrdma_buffer *buffer);
} nrdma_context_vtbl_msvc;

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

/* Adds a reference; the new count, 0 when it is no context. */
NRDMA_API uint32_t nrdma_context_retain(const struct nrdma_context *context);

/* Drops a reference; the new count. */
NRDMA_API uint32_t nrdma_context_release(const struct nrdma_context *context);

/* The context as the interface with this id, +1; NULL when it has no such interface. */
NRDMA_API void *nrdma_context_get_interface(struct nrdma_context *context, const struct nrdma_uuid *iid);

/* IRDMA_context's id. */
NRDMA_API void nrdma_context_get_iid(const struct nrdma_context *_context, struct nrdma_uuid *out);

/* A buffer to send from, +1. Inside a fragment NULL when it is larger than the requester's result buffer; the
   first one may be the result memory itself. */
NRDMA_API
struct nrdma_buffer *nrdma_context_get_write_memory(struct nrdma_context *context,
                                                    uint64_t size,
                                                    int32_t gpu_id);

/* A buffer to receive into, +1; its memory comes from the cache and is not cleared. */
NRDMA_API
struct nrdma_buffer *nrdma_context_get_read_memory(struct nrdma_context *context,
                                                   uint64_t size,
                                                   int32_t gpu_id);

/* The host's own memory as a buffer, +1. It must stay until the buffer is released and the job that uses it
   has returned; it is never freed and never touched outside of [data, data + size). */
NRDMA_API
struct nrdma_buffer *nrdma_context_wrap_user_buffer(struct nrdma_context *context,
                                                    uint8_t *data,
                                                    uint64_t size,
                                                    int32_t gpu_id);

/* As nrdma_context_wrap_user_buffer; `done` runs once, on any thread, after the last use. It is not called
   when the result is NULL. */
NRDMA_API
struct nrdma_buffer *nrdma_context_wrap_user_buffer_with(struct nrdma_context *context,
                                                         uint8_t *data,
                                                         uint64_t size,
                                                         int32_t gpu_id,
                                                         void (*done)(void *user),
                                                         void *user);

/* Sends an intermediate result, inside of execute_fragment_remote_rdma: 0 once the requester's callback has
   returned. -1: no buffer of this context, too large, or the peer is gone; -2: outside. */
NRDMA_API int32_t nrdma_context_flush(struct nrdma_context *context, struct nrdma_buffer *buffer);

/* Makes a class of DiCE objects known: jobs that this host runs for others, and what is serialized with them.
   `iuser_class_factory` is a mi::neuraylib::IUser_class_factory, which is retained. `transaction`, unless NULL,
   gives what a fragment of the class is passed as its transaction; it is called once for each, on the
   executing thread. nrdma_node_unregister_class takes the class back. */
NRDMA_API
nrdma_status nrdma_node_register_serializable_class_abi(struct nrdma_node *node,
                                                        struct nrdma_uuid class_id,
                                                        void *iuser_class_factory,
                                                        void *(*transaction)(void *user),
                                                        void *user,
                                                        nrdma_cxx_abi abi);

/* The node's mi::neuraylib::IDice_configuration, +1, in the layout of that API version
   (MI_NEURAYLIB_API_VERSION; its functions moved at version 45). GPUs are not known in this version. */
NRDMA_API
void *nrdma_node_get_dice_configuration_abi(struct nrdma_node *node,
                                            uint32_t neuray_api_version,
                                            nrdma_cxx_abi abi);

/* Runs a mi::neuraylib::IFragmented_job of `count` fragments to its end, in every mode; the calling thread
   helps. `transaction` is passed to the job as it is. 0; -1: the job is NULL, or count is 0 and its mode is not
   ONCE_PER_HOST; -3: its priority is negative; NRDMA_FRAGMENT_FAILED: a fragment threw, or its host lacks the class
   (nrdma_last_error says which and why). */
NRDMA_API
nrdma_status nrdma_node_execute_fragmented_abi(struct nrdma_node *node,
                                               void *ifragmented_job,
                                               void *transaction,
                                               uint64_t count,
                                               nrdma_cxx_abi abi);

/* Starts a LOCAL mi::neuraylib::IFragmented_job. The mi::neuraylib::IExecution_listener, unless NULL, is told
   once, after the last fragment, also when the node is shut down before; it and the job are retained until then.
   0; -1: the job is NULL or count is 0; -2: its mode is not LOCAL; -3: its priority is negative. */
NRDMA_API
nrdma_status nrdma_node_execute_fragmented_async_abi(struct nrdma_node *node,
                                                     void *ifragmented_job,
                                                     void *transaction,
                                                     uint64_t count,
                                                     void *iexecution_listener,
                                                     nrdma_cxx_abi abi);

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

/* Makes slots: all or none. On failure *out is NULL and nrdma_last_error() says what to do. No API but the one
   asked for is ever tried, and no kind of memory but the one asked for, except for AUTO; a refusal is logged at
   DEBUG only, so that a host may try several configs in turn. Any thread, with any or no CUDA context current. */
NRDMA_API
nrdma_status nrdma_gpu_buffer_create(const struct nrdma_gpu_buffer_config *config,
                                     struct nrdma_gpu_buffer **out);

/* Frees all slots. NULL is fine. Before it, the card must let go: stop its stream, unlock or deregister, close
   what was exported and is no longer used. Any thread, with any or no CUDA context current; never fails, and
   leaves nrdma_last_error() alone. */
NRDMA_API void nrdma_gpu_buffer_destroy(struct nrdma_gpu_buffer *buffer);

/* What was made. */
NRDMA_API
nrdma_status nrdma_gpu_buffer_get_info(const struct nrdma_gpu_buffer *buffer,
                                       struct nrdma_gpu_buffer_info *info);

/* A slot, which stays as it is until the buffer is destroyed; an empty one (all zero) when there is none of that
   number or the buffer is NULL, never NULL. */
NRDMA_API
const struct nrdma_gpu_slot *nrdma_gpu_buffer_slot(const struct nrdma_gpu_buffer *buffer,
                                                   uint64_t index);

/* A new handle to a slot's memory. `type` is one NRDMA_EXPORT_* that the config's exports had. Slots of a
   contiguous ring share one allocation: the handle is of all of it, and the slot begins at `offset`. */
NRDMA_API
nrdma_status nrdma_gpu_buffer_export(const struct nrdma_gpu_buffer *buffer,
                                     uint64_t index,
                                     uint32_t type,
                                     struct nrdma_gpu_export *out);

/* Copies from CPU memory into a slot; complete for the card on return. For tests and probes, not for frames.
   NRDMA_NOT_SUPPORTED by Vulkan and D3D12. */
NRDMA_API
nrdma_status nrdma_gpu_buffer_write(struct nrdma_gpu_buffer *buffer,
                                    uint64_t index,
                                    uint64_t offset,
                                    const void *source,
                                    uint64_t size);

/* Copies from a slot into CPU memory. Otherwise as nrdma_gpu_buffer_write. */
NRDMA_API
nrdma_status nrdma_gpu_buffer_read(struct nrdma_gpu_buffer *buffer,
                                   uint64_t index,
                                   uint64_t offset,
                                   void *target,
                                   uint64_t size);

/* After the card reported a frame and before GPU work reads it. Costs nothing where the GPU orders the card's
   writes itself (info.needs_flush is 0). Any thread. */
NRDMA_API nrdma_status nrdma_gpu_buffer_flush(struct nrdma_gpu_buffer *buffer);

/* Whether nrdma_gpu_buffer_create would work, without taking memory. `total_bytes` (may be NULL) gets what it
   would take, 0 when it would not; `reason` (may be NULL) why not, or what AUTO would choose. */
NRDMA_API
nrdma_status nrdma_gpu_buffer_probe(const struct nrdma_gpu_buffer_config *config,
                                    uint64_t *total_bytes,
                                    char *reason,
                                    uint64_t capacity);

/* How many frames a ring should hold: `full`, or `large` when `full` of them would take more than half of that
   GPU's BAR1, which is what cards see of its memory. When that is unknown (no NVML), or cuda_device is below 0:
   `large` from 32 MiB a frame on. Never fails. */
NRDMA_API
uint32_t nrdma_gpu_ring_depth(int32_t cuda_device,
                              uint64_t frame_bytes,
                              uint32_t full,
                              uint32_t large);

/* Gives nrdma a function, compiled in the host, that catches the host's exceptions; nrdma.hpp calls this.
   The first one stays, and its module is kept loaded. */
NRDMA_API void nrdma_donate_guard(nrdma_guard_fn guard);

/* Gives nrdma the host's typeinfos, so that dynamic_cast, typeid and sanitizers work on its objects;
   nrdma.hpp calls this. The order is buffer, context, scheduler, dice_configuration, serializer,
   deserializer, job_execution_context, plugin; NULL is none. The first ones stay, and their module is
   kept loaded. */
NRDMA_API void nrdma_donate_rtti(const void *const *typeinfos, uint64_t count);

/* 1 when the fragment's result is no longer wanted, else 0; poll it in long fragments. */
NRDMA_API int32_t nrdma_fragment_cancelled(const struct nrdma_fragment *fragment);

/* Runs a job of `count` fragments to its end; the calling thread helps. 0; -1 bad job or count 0 outside
   NRDMA_ONCE_PER_HOST; -3 negative priority; NRDMA_FRAGMENT_FAILED, NRDMA_CANCELLED, NRDMA_TIMED_OUT. */
NRDMA_API
nrdma_status nrdma_node_execute(struct nrdma_node *node,
                                const struct nrdma_job *job,
                                uint64_t count);

/* Starts a job; `done` is called once at its end, with the job's `user` and what nrdma_node_execute would have returned. An error
   here means that it was not started. */
NRDMA_API
nrdma_status nrdma_node_execute_async(struct nrdma_node *node,
                                      const struct nrdma_job *job,
                                      uint64_t count,
                                      void (*done)(void *user, nrdma_status status),
                                      uint64_t *job_id);

/* Abandons an asynchronous job; its done is called with NRDMA_CANCELLED. -1 when no such job runs. */
NRDMA_API nrdma_status nrdma_node_cancel(struct nrdma_node *node, uint64_t job_id);

/* Makes a class of jobs known on this host and at its peers. */
NRDMA_API
nrdma_status nrdma_node_register_class(struct nrdma_node *node,
                                       struct nrdma_uuid class_id,
                                       const struct nrdma_job_class *class_);

/* Takes a class back; returns when its last replica is gone. 0 waits for shutdown_timeout_ms, NRDMA_NONE for
   ever. Not from a callback. */
NRDMA_API
nrdma_status nrdma_node_unregister_class(struct nrdma_node *node,
                                         struct nrdma_uuid class_id,
                                         uint32_t timeout_ms);

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

/* Makes a node; `config` NULL is all defaults. It listens to nothing yet. Ends with nrdma_node_destroy. */
NRDMA_API nrdma_status nrdma_node_create(const struct nrdma_node_config *config, struct nrdma_node **node);

/* The node's cluster-wide id; 0 when it is NULL. */
NRDMA_API uint32_t nrdma_node_host_id(const struct nrdma_node *node);

/* Listens on an address (unix:/path, unix:@name; unix: alone is a new one of its own). `bound` gets the
   address to connect to; NRDMA_BUFFER_TOO_SMALL when it does not fit, and then nothing is listened on. */
NRDMA_API
nrdma_status nrdma_node_listen(struct nrdma_node *node,
                               const char *address,
                               char *bound,
                               uint64_t bound_capacity);

/* Connects to a listening node; `host_id`, unless NULL, gets its id. */
NRDMA_API nrdma_status nrdma_node_connect(struct nrdma_node *node, const char *address, uint32_t *host_id);

/* Hangs up on a peer; its fragments are lost, its contexts answer NULL and -1 from now on. */
NRDMA_API nrdma_status nrdma_node_disconnect(struct nrdma_node *node, uint32_t host_id);

/* The context of a host, +1: a mi::neuraylib::IRDMA_context. 0 is this host; NULL when there is no such host. */
NRDMA_API
struct nrdma_context *nrdma_node_get_rdma_context_abi(struct nrdma_node *node,
                                                      uint32_t host_id,
                                                      nrdma_cxx_abi abi);

/* Frees idle memory of the cache until about `keep_idle_bytes` are left. */
NRDMA_API nrdma_status nrdma_node_trim(struct nrdma_node *node, uint64_t keep_idle_bytes);

/* Ends the node: abandons its jobs, tells its peers, joins its threads. Idempotent; 0 waits for
   shutdown_timeout_ms, NRDMA_NONE for ever. NRDMA_TIMED_OUT names what is stuck. Not from a callback. */
NRDMA_API nrdma_status nrdma_node_shutdown(struct nrdma_node *node, uint32_t timeout_ms);

/* Shuts the node down (shutdown_timeout_ms) and frees it; NULL is allowed. No other call on the node may be
   running or follow. Not from a callback: then nothing happens. Contexts and buffers stay valid: get_* return
   NULL, flush -1, data can be read. A node whose callback never returns is leaked, not freed. */
NRDMA_API void nrdma_node_destroy(struct nrdma_node *node);

/* The peers, by host id: at most `capacity` elements, `stride` = sizeof(nrdma_peer_info) of the host apart.
   `total`, unless NULL, gets how many there are. With `out` NULL that is all. */
NRDMA_API
nrdma_status nrdma_node_peers(struct nrdma_node *node,
                              struct nrdma_peer_info *out,
                              uint64_t stride,
                              uint64_t capacity,
                              uint64_t *total);

/* Waits until at least so many peers are connected; 0 waits for connect_timeout_ms, NRDMA_NONE for ever. */
NRDMA_API nrdma_status nrdma_node_wait_peers(struct nrdma_node *node, uint64_t at_least, uint32_t timeout_ms);

/* Sets who hears of peers: event is NRDMA_PEER_EVENT_JOINED, _LEFT or _LOST. NULL ends it;
   an event that is already on its way may still come. */
NRDMA_API
nrdma_status nrdma_node_set_peer_callback(struct nrdma_node *node,
                                          void (*function)(void *user,
                                                           const struct nrdma_peer_info *info,
                                                           int32_t event),
                                          void *user);

/* The node's mi::neuraylib::IScheduler, +1. Its execute_fragmented runs jobs of every mode, with NULL as their
   transaction; after the end of the node it returns NRDMA_SHUT_DOWN. */
NRDMA_API void *nrdma_node_get_scheduler_abi(struct nrdma_node *node, nrdma_cxx_abi abi);

/* The node in figures. */
NRDMA_API nrdma_status nrdma_node_stats(struct nrdma_node *node, struct nrdma_stats *out);

/* Adds bytes to a fragment's result. */
NRDMA_API nrdma_status nrdma_writer_write(struct nrdma_writer *writer, const void *data, uint64_t size);

/* Sends what was written since the last flush as an intermediate result; returns once the requester's
   callback has returned. */
NRDMA_API nrdma_status nrdma_writer_flush(struct nrdma_writer *writer);

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

#endif  /* NRDMA_NRDMA_H */

#ifndef NRDMA_NRDMA_H_INLINE
#define NRDMA_NRDMA_H_INLINE

/* Initialisers; every field that is not named is the default. */
#define NRDMA_NODE_CONFIG_INIT \
    { sizeof(nrdma_node_config), NULL, 0, 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define NRDMA_PEER_INFO_INIT \
    { sizeof(nrdma_peer_info), 0, 0, { 0 }, { 0 }, { 0 }, 0, 0, 0, 0, 0 }
#define NRDMA_STATS_INIT \
    { sizeof(nrdma_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define NRDMA_JOB_INIT \
    { sizeof(nrdma_job), NULL, { 0, 0, 0, 0 }, NULL, 0, NRDMA_LOCAL, 0, NRDMA_CXX_ABI_HOST, 0, 0, 0, \
      NULL, NULL, NULL, NULL, NULL, NULL, NULL }
#define NRDMA_JOB_CLASS_INIT \
    { sizeof(nrdma_job_class), NULL, NRDMA_CXX_ABI_HOST, 0, NULL, NULL, NULL, NULL, NULL }
#define NRDMA_GPU_BUFFER_CONFIG_INIT \
    { sizeof(nrdma_gpu_buffer_config), NRDMA_GPU_NONE, 0, 0, NRDMA_MEMORY_AUTO, 0, 0, 0, 0, NULL, NULL, NULL, \
      NULL, NULL, (nrdma_proc)0, 0, 0, NULL, NULL, 0, 0 }
#define NRDMA_GPU_BUFFER_INFO_INIT \
    { sizeof(nrdma_gpu_buffer_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 } }
#define NRDMA_GPU_EXPORT_INIT \
    { sizeof(nrdma_gpu_export), -1, 0, 0 }

/* The API version of the host's neuray headers, as far as the compiler finds them; else that of neuray.hpp. */
#if defined(__cplusplus) && defined(__has_include)
#  if __has_include(<mi/neuraylib/version.h>)
#    include <mi/neuraylib/version.h>
#  endif
#endif
#ifdef MI_NEURAYLIB_API_VERSION
#  define NRDMA_NEURAY_API_VERSION MI_NEURAYLIB_API_VERSION
#else
#  define NRDMA_NEURAY_API_VERSION 57
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* nrdma_node_get_rdma_context_abi for the caller's compiler. */
static inline nrdma_context *nrdma_node_get_rdma_context(nrdma_node *node, uint32_t host_id)
{
    return nrdma_node_get_rdma_context_abi(node, host_id, NRDMA_CXX_ABI_HOST);
}

/* nrdma_node_register_serializable_class_abi for the caller's compiler. */
static inline nrdma_status nrdma_node_register_serializable_class(nrdma_node *node, nrdma_uuid class_id,
                                                                  void *iuser_class_factory,
                                                                  void *(*transaction)(void *user), void *user)
{
    return nrdma_node_register_serializable_class_abi(node, class_id, iuser_class_factory, transaction, user,
                                                      NRDMA_CXX_ABI_HOST);
}

/* nrdma_node_execute_fragmented_abi for the caller's compiler. */
static inline nrdma_status nrdma_node_execute_fragmented(nrdma_node *node, void *ifragmented_job,
                                                         void *transaction, uint64_t count)
{
    return nrdma_node_execute_fragmented_abi(node, ifragmented_job, transaction, count, NRDMA_CXX_ABI_HOST);
}

/* nrdma_node_execute_fragmented_async_abi for the caller's compiler. */
static inline nrdma_status nrdma_node_execute_fragmented_async(nrdma_node *node, void *ifragmented_job,
                                                               void *transaction, uint64_t count,
                                                               void *iexecution_listener)
{
    return nrdma_node_execute_fragmented_async_abi(node, ifragmented_job, transaction, count,
                                                   iexecution_listener, NRDMA_CXX_ABI_HOST);
}

/* nrdma_node_get_scheduler_abi for the caller's compiler. */
static inline void *nrdma_node_get_scheduler(nrdma_node *node)
{
    return nrdma_node_get_scheduler_abi(node, NRDMA_CXX_ABI_HOST);
}

/* nrdma_node_get_dice_configuration_abi for the caller's compiler and neuray headers. */
static inline void *nrdma_node_get_dice_configuration(nrdma_node *node)
{
    return nrdma_node_get_dice_configuration_abi(node, NRDMA_NEURAY_API_VERSION, NRDMA_CXX_ABI_HOST);
}

#ifdef __cplusplus
}
#endif

#endif
