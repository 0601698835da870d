/* A CUDA driver on host memory, for tests: libcuda.so.1 from these files. It is strict: memory is a memfd that can be
 * reached only after every step that the real driver asks for, copies go by a way of their own, and the CPU faults on
 * a device pointer. Written for this project; the few types are in cuda_min.h, and are checked by building once
 * with -DFAKE_USE_REAL_CUDA_H against NVIDIA's header.
 *
 * Environment, read when it is loaded:
 *   FAKECUDA_DEVICES=1 FAKECUDA_MEM=bytes of a device FAKECUDA_GRAN=2097152 FAKECUDA_DRIVER=12080
 *   FAKECUDA_ATTR=110=0,124=0,dev1:116=0
 *   FAKECUDA_FAIL=symbol:k:code[,...]   "k+" is from the k-th call on
 *   FAKECUDA_HOST_ACCESS=1              the CPU may touch what a device may
 *   FAKECUDA_DEFER=1                    asynchronous copies run only when something waits for them
 *   FAKECUDA_SUBALLOC=1                 cuMemAlloc's addresses are not aligned to pages
 *   FAKECUDA_HIDE=symbol                cuGetProcAddress does not know it
 *   FAKECUDA_TRACE=1 or a file
 *   FAKECUDA_STRICT=1                   exit status 97 when something was leaked or done wrong
 *   FAKECUDA_REPORT=file                where the counters go at exit, instead of stderr */
#ifndef NRDMA_FAKE_CUDA_STATE_H
#define NRDMA_FAKE_CUDA_STATE_H
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef FAKE_USE_REAL_CUDA_H
#  include <cuda.h>
#else
#  include "cuda_min.h"
#endif
#undef cuCtxCreate
#undef cuDeviceGetUuid
#include "../fake_cuda.h"

#define VISIBLE __attribute__((visibility("default")))
#define API VISIBLE CUresult
#define MOST 4096
#define MOST_DEVICES 16

/* A memfd; alive while it has handles or mappings. */
typedef struct {
    int used, fd, dev, href, mref, imported;
    unsigned rdma, htypes, gen;
    size_t size;
    unsigned long long id;
    char *alias;
} Alloc;
/* Addresses. */
typedef struct {
    uintptr_t base;
    size_t size;
} Reserved;
/* A memfd at addresses; access has a bit for each device. */
typedef struct {
    uintptr_t base, uptr;
    size_t size, usize;
    int a, legacy, managed;
    unsigned long access;
    unsigned sync;
    struct CUctx_st *ctx;
    unsigned long long id;
} Map;
/* Host memory. */
typedef struct {
    uintptr_t p;
    size_t n;
} Pinned;
struct CUctx_st {
    int dev, primary, alive;
    unsigned flags;
    unsigned long long id;
};
struct CUstream_st {
    int alive;
    struct CUctx_st *ctx;
};
struct CUevent_st {
    int alive, polls;
    unsigned long long seq;
    CUstream s;
};
/* A copy or callback that waits for a synchronisation. kind: 1 to a device, 2 from one, 4 memset. */
typedef struct {
    int used;
    unsigned long long seq;
    CUstream s;
    uintptr_t dst, src;
    size_t n;
    int kind;
    struct CUctx_st *ctx;
    void (*cb)(CUstream, CUresult, void *);
    void *arg;
} Op;

extern Alloc allocations[MOST];
extern Reserved reserved[MOST];
extern Map mapped[MOST];
extern Pinned pinned[MOST];
extern Op queue[MOST];
extern struct CUctx_st primary[MOST_DEVICES];
extern int primary_refs[MOST_DEVICES];
extern size_t used_bytes[MOST_DEVICES];
extern int queued, initialised, device_count, host_access, defer, suballoc, live_contexts, live_streams,
    live_events, violations, driver_version;
extern size_t granularity, memory_bytes;
extern unsigned long long seq, ids, flushes, copies, calls;
extern FILE *trace;
extern pthread_mutex_t lock;
extern int attribute_value[MOST_DEVICES + 1][256];
extern char attribute_is_set[MOST_DEVICES + 1][256];
extern __thread struct CUctx_st *stack[64];
extern __thread int depth;

void trace_line(const char *format, ...);
void violation(const char *what);
long env_number(const char *name, long otherwise);
/* Zeroed and kept for ever: handles are looked at after they were destroyed. */
void *new_object(size_t size);
/* Counts a call; not 0 is what it shall return. */
int enter(const char *symbol, int need_init);
int attr(int attribute, int device);
Map *find_map(uintptr_t address);
Reserved *find_reserved(uintptr_t address);
/* Runs what waits: of a stream or all, up to a number. */
int drain(CUstream s, int all, unsigned long long upto);
int new_alloc(size_t size, int dev, unsigned rdma, unsigned ht, int fd, int imported);
int reserve(uintptr_t *p, size_t n, size_t al);
int unreserve(uintptr_t p, size_t n);
int map_pages(uintptr_t p, size_t n, int a);
int unmap_pages(uintptr_t p, size_t n);

#define IN(sym, need)              \
  pthread_mutex_lock(&lock);       \
  {                                \
    int c_ = enter(#sym, need);    \
    if (c_) {                      \
      pthread_mutex_unlock(&lock); \
      return (CUresult)c_;         \
    }                              \
  }
#define RET(c)                                       \
  do {                                               \
    int r_ = (int)(c);                               \
    if (r_)                                          \
      trace_line("   = %d (line %d)", r_, __LINE__); \
    pthread_mutex_unlock(&lock);                     \
    return (CUresult)r_;                             \
  } while (0)
#define CTX() (depth ? stack[depth - 1] : 0)
#define NEEDCTX()                      \
  do {                                 \
    if (!CTX() || !CTX()->alive)       \
      RET(CUDA_ERROR_INVALID_CONTEXT); \
  } while (0)
#define DEV(d)                          \
  do {                                  \
    if ((d) < 0 || (d) >= device_count) \
      RET(CUDA_ERROR_INVALID_DEVICE);   \
  } while (0)
#endif
