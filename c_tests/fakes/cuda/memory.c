#include "fake.h"

/* ---- legacy and host ---- */
static int legacy(CUdeviceptr *p, size_t n, int managed)
{
    struct CUctx_st *c = CTX();
    if (!c || !c->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!p || !n)
        return 1;
    size_t un = n, off = suballoc ? 512 : 0;
    n = (n + off + granularity - 1) / granularity * granularity;
    if (used_bytes[c->dev] + n > memory_bytes)
        return 2;
    int a = new_alloc(n, c->dev, 1, 0, -1, 0);
    if (a < 0)
        return 2;
    uintptr_t b;
    if (reserve(&b, n, 0) || map_pages(b, n, a))
        return 2;
    allocations[a].href = 0;
    Map *m = find_map(b);
    m->legacy = 1;
    m->managed = managed;
    m->ctx = c;
    m->uptr = b + off;
    m->usize = un;
    m->access = ~0ul;
    if (host_access || managed)
        mprotect((void *)b, n, PROT_READ | PROT_WRITE);
    *p = b + off;
    return 0;
}
API cuMemAlloc(CUdeviceptr *p, size_t n)
{
    IN(cuMemAlloc, 1);
    RET(legacy(p, n, 0));
}
API cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned f)
{
    (void)f;
    IN(cuMemAllocManaged, 1);
    RET(legacy(p, n, 1));
}
API cuMemFree(CUdeviceptr p)
{
    IN(cuMemFree, 1);
    if (!p)
        RET(0);
    NEEDCTX();
    Map *m = find_map(p);
    if (!m || !m->legacy || m->uptr != p) {
        violation("free_of_bad_pointer");
        RET(1);
    }
    drain(0, 1, ~0ull);
    uintptr_t b = m->base;
    size_t n = m->size;
    unmap_pages(b, n);
    RET(unreserve(b, n));
}
API cuMemGetInfo(size_t *f, size_t *t)
{
    IN(cuMemGetInfo, 1);
    NEEDCTX();
    *t = memory_bytes;
    *f = memory_bytes - used_bytes[CTX()->dev];
    RET(0);
}
API cuMemGetAddressRange(CUdeviceptr *b, size_t *n, CUdeviceptr p)
{
    IN(cuMemGetAddressRange, 1);
    NEEDCTX();
    Map *m = find_map(p);
    if (!m || p < m->uptr || p >= m->uptr + m->usize)
        RET(CUDA_ERROR_NOT_FOUND);
    if (b)
        *b = m->uptr;
    if (n)
        *n = m->usize;
    RET(0);
}
API cuMemHostRegister(void *p, size_t n, unsigned f)
{
    (void)f;
    IN(cuMemHostRegister, 1);
    NEEDCTX();
    if (!p || !n)
        RET(1);
    uintptr_t u = (uintptr_t)p;
    for (int i = 0; i < MOST; i++)
        if (pinned[i].n && u < pinned[i].p + pinned[i].n && pinned[i].p < u + n)
            RET(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    for (int i = 0; i < MOST; i++)
        if (!pinned[i].n) {
            pinned[i] = (Pinned){u, n};
            RET(0);
        }
    RET(2);
}
API cuMemHostUnregister(void *p)
{
    IN(cuMemHostUnregister, 1);
    for (int i = 0; i < MOST; i++)
        if (pinned[i].n && pinned[i].p == (uintptr_t)p) {
            pinned[i].n = 0;
            RET(0);
        }
    RET(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}
API cuMemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned f)
{
    (void)f;
    IN(cuMemHostGetDevicePointer, 1);
    *d = (uintptr_t)p;
    RET(0);
}
API cuMemHostAlloc(void **p, size_t n, unsigned f)
{
    (void)f;
    IN(cuMemHostAlloc, 1);
    NEEDCTX();
    /* On a page and never on 64 KiB, so that nobody counts on it. */
    char *block;
    if (n > memory_bytes || posix_memalign((void **)&block, 65536, n + 4096))
        RET(2);
    *p = block + 4096;
    for (int i = 0; i < MOST; i++)
        if (!pinned[i].n) {
            pinned[i] = (Pinned){(uintptr_t)*p, n};
            RET(0);
        }
    RET(2);
}
API cuMemFreeHost(void *p)
{
    IN(cuMemFreeHost, 1);
    for (int i = 0; i < MOST; i++)
        if (pinned[i].n && pinned[i].p == (uintptr_t)p) {
            pinned[i].n = 0;
            free((char *)p - 4096);
            RET(0);
        }
    RET(1);
}
static int pointer_attribute(void *o, unsigned at, uintptr_t p)
{
    Map *m = find_map(p);
    if (m && m->legacy && (p < m->uptr || p >= m->uptr + m->usize))
        m = 0;
    Pinned *h = 0;
    if (!m)
        for (int i = 0; i < MOST; i++)
            if (pinned[i].n && p >= pinned[i].p && p < pinned[i].p + pinned[i].n)
                h = &pinned[i];
    Reserved *r = find_reserved(p);
    if (at == 13) {
        *(int *)o = m != 0;
        return r || h ? 0 : 1;
    }
    if (at == 11) {
        if (!r)
            return 1;
        *(CUdeviceptr *)o = r->base;
        return 0;
    }
    if (at == 12) {
        if (!r)
            return 1;
        *(size_t *)o = r->size;
        return 0;
    }
    if (!m && !h)
        return 1;
    switch (at) {
    case 1:
        if (!m)
            return 1;
        *(CUcontext *)o = m->ctx; /* NULL for VMM */
        return 0;
    case 2:
        *(unsigned *)o = m ? 2 : 1;
        return 0;
    case 3:
        *(CUdeviceptr *)o = p;
        return 0;
    case 4:
        if (m)
            return 1;
        *(void **)o = (void *)p;
        return 0;
    case 6:
        *(unsigned *)o = m ? m->sync : 0;
        return 0;
    case 7:
        *(unsigned long long *)o = m ? m->id : 1;
        return 0;
    case 8:
        *(int *)o = m ? m->managed : 0;
        return 0;
    case 9:
        *(int *)o = m ? allocations[m->a].dev : (CTX() ? CTX()->dev : 0);
        return 0;
    case 10:
        *(int *)o = m && m->legacy;
        return 0;
    case 14:
        *(unsigned long long *)o = m ? allocations[m->a].htypes : 0;
        return 0;
    case 15:
        *(int *)o = m ? allocations[m->a].rdma : 0;
        return 0;
    case 16:
        return 1;
    case 17:
        if (!m)
            return 1;
        *(void **)o = 0;
        return 0;
    }
    return 1;
}
static const size_t attribute_size[] = {0, 8, 4, 8, 8, 0, 4, 8, 4, 4, 4, 8, 8, 4, 8, 4, 4, 8};
API cuPointerGetAttribute(void *o, CUpointer_attribute at, CUdeviceptr p)
{
    IN(cuPointerGetAttribute, 1);
    if (!o)
        RET(1);
    RET(pointer_attribute(o, at, p));
}
API cuPointerGetAttributes(unsigned n, CUpointer_attribute *at, void **o, CUdeviceptr p)
{
    IN(cuPointerGetAttributes, 1);
    for (unsigned i = 0; i < n; i++)
        if (pointer_attribute(o[i], at[i], p) && at[i] < sizeof attribute_size / sizeof *attribute_size) {
            memset(o[i], 0, attribute_size[at[i]]);
            if (at[i] == 9)
                *(int *)o[i] = -2;
        }
    RET(0);
}
API cuPointerSetAttribute(const void *v, CUpointer_attribute at, CUdeviceptr p)
{
    IN(cuPointerSetAttribute, 1);
    NEEDCTX();
    if (at != 6 || !v)
        RET(1);
    Map *m = find_map(p);
    if (!m)
        RET(1);
    if (!m->legacy)
        RET(CUDA_ERROR_NOT_SUPPORTED);
    m->sync = *(const unsigned *)v;
    RET(0);
}
API cuMemRangeGetAttribute(void *o, size_t sz, CUmem_range_attribute at, CUdeviceptr p, size_t n)
{
    (void)at;
    (void)p;
    (void)n;
    IN(cuMemRangeGetAttribute, 1);
    memset(o, 0xff, sz);
    RET(0);
}
#ifndef FAKE_OLD_DRIVER
API cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget t, CUflushGPUDirectRDMAWritesScope s)
{
    IN(cuFlushGPUDirectRDMAWrites, 1);
    NEEDCTX();
    if (t != 0 || (s != 100 && s != 200))
        RET(1);
    if (!(attr(117, CTX()->dev) & 1))
        RET(CUDA_ERROR_NOT_SUPPORTED);
    flushes++;
    RET(0);
}
#endif

/* names that UCX's module links but this fake does not model */
#define UNSUPPORTED(name)            \
  VISIBLE unsigned name(void)        \
  {                                  \
    pthread_mutex_lock(&lock);       \
    enter(#name, 0);                 \
    pthread_mutex_unlock(&lock);     \
    return CUDA_ERROR_NOT_SUPPORTED; \
  }
#ifndef FAKE_USE_REAL_CUDA_H
// clang-format off
UNSUPPORTED(cuIpcCloseMemHandle)
UNSUPPORTED(cuIpcGetMemHandle)
UNSUPPORTED(cuIpcOpenMemHandle_v2)
UNSUPPORTED(cuMemPoolDestroy)
UNSUPPORTED(cuMemPoolExportPointer)
UNSUPPORTED(cuMemPoolExportToShareableHandle)
UNSUPPORTED(cuMemPoolImportFromShareableHandle)
UNSUPPORTED(cuMemPoolImportPointer)
UNSUPPORTED(cuMemPoolSetAccess)
// clang-format on
#endif

API cuGetProcAddress(const char *sym, void **pfn, int ver, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *st)
{
    (void)flags;
    IN(cuGetProcAddress, 0);
    static void *self;
    if (!self) {
        Dl_info di;
        dladdr((void *)fakecuda_stats, &di);
        self = dlopen(di.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    char n[128];
    void *f = 0;
    const char *hide = getenv("FAKECUDA_HIDE");
    trace_line("   wants %s@%d", sym, ver);
    if (ver > driver_version) {
        *pfn = 0;
        RET(1);
    }
    if (!(hide && strstr(hide, sym))) {
        const char *sfx[] = {"_v2", "", "_v4"};
        for (int i = 0; i < 3 && !f; i++) {
            snprintf(n, 128, "%s%s", sym, sfx[i]);
            f = dlsym(self, n);
        }
    }
    *pfn = f;
    if (st)
        *st = f ? 0 : 1;
    RET(0); /* real driver: SUCCESS + NULL + status */
}
