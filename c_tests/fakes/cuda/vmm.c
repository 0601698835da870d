#include "fake.h"

/* ---- VMM ---- */
int new_alloc(size_t size, int dev, unsigned rdma, unsigned ht, int fd, int imported)
{
    for (int i = 0; i < MOST; i++)
        if (!allocations[i].used) {
            char nm[64];
            snprintf(nm, 64, "fakecuda-d%d-r%u-h%u", dev, rdma, ht);
            if (fd < 0) {
                fd = memfd_create(nm, MFD_CLOEXEC | MFD_ALLOW_SEALING);
                if (fd < 0)
                    return -1;
                if (ftruncate(fd, size)) {
                    close(fd);
                    return -1;
                }
                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
            }
            char *al = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (al == MAP_FAILED) {
                close(fd);
                return -1;
            }
            unsigned g = allocations[i].gen + 1;
            allocations[i] = (Alloc){1, fd, dev, 1, 0, imported, rdma, ht, g, size, ++ids, al};
            if (!imported)
                used_bytes[dev] += size;
            return i;
        }
    return -1;
}
static void collect(int i)
{
    if (allocations[i].used && !allocations[i].href && !allocations[i].mref) {
        munmap(allocations[i].alias, allocations[i].size);
        close(allocations[i].fd);
        if (!allocations[i].imported)
            used_bytes[allocations[i].dev] -= allocations[i].size;
        allocations[i].used = 0;
    }
}
static CUmemGenericAllocationHandle handle_of(int i)
{
    return ((unsigned long long)allocations[i].gen << 20) | (unsigned)(i + 1);
}
static int handle_index(CUmemGenericAllocationHandle h)
{
    unsigned i = (unsigned)(h & 0xfffff) - 1;
    if (i >= MOST || !allocations[i].used || allocations[i].gen != (h >> 20) || allocations[i].href <= 0)
        return -1;
    return (int)i;
}
static int prop_bad(const CUmemAllocationProp *p)
{
    if (!p || p->type != 1)
        return 1;
    if (p->location.type != 1)
        return 1;
    if (p->location.id < 0 || p->location.id >= device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (p->requestedHandleTypes & ~0x9u)
        return 1;
    if ((p->requestedHandleTypes & 8) && !attr(128, p->location.id))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (p->win32HandleMetaData)
        return 1;
    for (int i = 0; i < 4; i++)
        if (p->allocFlags.reserved[i])
            return 1;
    return 0;
}
API cuMemGetAllocationGranularity(size_t *g, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags o)
{
    IN(cuMemGetAllocationGranularity, 1);
    int b = prop_bad(p);
    if (b)
        RET(b);
    if (!g || o > 1)
        RET(1);
    *g = granularity;
    RET(0);
}
API cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long f)
{
    IN(cuMemCreate, 1);
    int b = prop_bad(p);
    if (b)
        RET(b);
    if (!h || !n || f || n % granularity)
        RET(1);
    int d = p->location.id;
    if (!attr(102, d))
        RET(CUDA_ERROR_NOT_SUPPORTED);
    if (used_bytes[d] + n > memory_bytes)
        RET(CUDA_ERROR_OUT_OF_MEMORY);
    int i =
        new_alloc(n, d, p->allocFlags.gpuDirectRDMACapable && attr(110, d), p->requestedHandleTypes, -1, 0);
    if (i < 0)
        RET(CUDA_ERROR_OUT_OF_MEMORY);
    *h = handle_of(i);
    RET(0);
}
API cuMemRelease(CUmemGenericAllocationHandle h)
{
    IN(cuMemRelease, 1);
    int i = handle_index(h);
    if (i < 0) {
        violation("release_of_bad_handle");
        RET(1);
    }
    allocations[i].href--;
    collect(i);
    RET(0);
}
int reserve(uintptr_t *p, size_t n, size_t al)
{
    if (al < granularity)
        al = granularity;
    char *q = mmap(0, n + al, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (q == MAP_FAILED)
        return 2;
    uintptr_t b = ((uintptr_t)q + al - 1) & ~(al - 1);
    if (b > (uintptr_t)q)
        munmap(q, b - (uintptr_t)q);
    uintptr_t e = (uintptr_t)q + n + al;
    if (e > b + n)
        munmap((void *)(b + n), e - b - n);
    for (int i = 0; i < MOST; i++)
        if (!reserved[i].size) {
            reserved[i] = (Reserved){b, n};
            *p = b;
            return 0;
        }
    munmap((void *)b, n);
    return 2;
}
API cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t al, CUdeviceptr hint, unsigned long long f)
{
    (void)hint;
    IN(cuMemAddressReserve, 1);
    if (!p || !n || f || n % 4096 || (al & (al - 1)))
        RET(1);
    uintptr_t b;
    int r = reserve(&b, n, al);
    if (!r)
        *p = b;
    RET(r);
}
int unreserve(uintptr_t p, size_t n)
{
    for (int i = 0; i < MOST; i++)
        if (reserved[i].size && reserved[i].base == p) {
            if (reserved[i].size != n) {
                violation("address_free_wrong_size");
                return 1;
            }
            for (int k = 0; k < MOST; k++)
                if (mapped[k].size && mapped[k].base >= p && mapped[k].base < p + n) {
                    violation("address_free_while_mapped");
                    return 1;
                }
            munmap((void *)p, n);
            reserved[i].size = 0;
            return 0;
        }
    violation("address_free_unknown");
    return 1;
}
API cuMemAddressFree(CUdeviceptr p, size_t n)
{
    IN(cuMemAddressFree, 1);
    RET(unreserve(p, n));
}
int map_pages(uintptr_t p, size_t n, int a)
{
    for (int i = 0; i < MOST; i++)
        if (!mapped[i].size) {
            if (mmap((void *)p, n, PROT_NONE, MAP_FIXED | MAP_SHARED, allocations[a].fd, 0) == MAP_FAILED)
                return 2;
            allocations[a].mref++;
            mapped[i] = (Map){p, p, n, n, a, 0, 0, 0, 0, 0, ++ids};
            return 0;
        }
    return 2;
}
API cuMemMap(CUdeviceptr p, size_t n, size_t off, CUmemGenericAllocationHandle h, unsigned long long f)
{
    IN(cuMemMap, 1);
    int a = handle_index(h);
    if (a < 0) {
        violation("map_of_bad_handle");
        RET(1);
    }
    if (!n || off || f || p % granularity || n % granularity || n > allocations[a].size)
        RET(1);
    Reserved *r = find_reserved(p);
    if (!r || p + n > r->base + r->size)
        RET(1);
    for (int i = 0; i < MOST; i++)
        if (mapped[i].size && p < mapped[i].base + mapped[i].size && mapped[i].base < p + n)
            RET(1);
    RET(map_pages(p, n, a));
}
static int grant(uintptr_t p, size_t n, int dev, unsigned fl)
{
    uintptr_t q = p;
    while (q < p + n) {
        Map *m = find_map(q);
        if (!m || q != m->base || m->base + m->size > p + n)
            return 1;
        q += m->size;
    }
    for (q = p; q < p + n;) {
        Map *m = find_map(q);
        if (fl)
            m->access |= 1ul << dev;
        else
            m->access &= ~(1ul << dev);
        if (host_access)
            mprotect((void *)m->base, m->size, m->access ? PROT_READ | PROT_WRITE : PROT_NONE);
        q += m->size;
    }
    return 0;
}
API cuMemSetAccess(CUdeviceptr p, size_t n, const CUmemAccessDesc *d, size_t c)
{
    IN(cuMemSetAccess, 1);
    if (!d || !c || !n)
        RET(1);
    for (size_t i = 0; i < c; i++) {
        if (d[i].location.type != 1)
            RET(1);
        if (d[i].location.id < 0 || d[i].location.id >= device_count)
            RET(CUDA_ERROR_INVALID_DEVICE);
        int r = grant(p, n, d[i].location.id, d[i].flags);
        if (r)
            RET(r);
    }
    RET(0);
}
API cuMemGetAccess(unsigned long long *f, const CUmemLocation *l, CUdeviceptr p)
{
    IN(cuMemGetAccess, 1);
    Map *m = find_map(p);
    if (!m || !f)
        RET(1);
    *f = (m->access >> l->id) & 1 ? 3 : 0;
    RET(0);
}
int unmap_pages(uintptr_t p, size_t n)
{
    for (int i = 0; i < queued; i++)
        if (((queue[i].kind & 1) && queue[i].dst >= p && queue[i].dst < p + n) ||
            ((queue[i].kind & 2) && queue[i].src >= p && queue[i].src < p + n)) {
            violation("unmap_with_pending_copy");
            drain(0, 1, ~0ull);
            break;
        }
    for (int i = 0; i < MOST; i++)
        if (mapped[i].size && mapped[i].base == p && mapped[i].size == n) {
            mmap((void *)p, n, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            int a = mapped[i].a;
            allocations[a].mref--;
            mapped[i].size = 0;
            collect(a);
            return 0;
        }
    violation("unmap_unknown_or_partial");
    return 1;
}
API cuMemUnmap(CUdeviceptr p, size_t n)
{
    IN(cuMemUnmap, 1);
    RET(unmap_pages(p, n));
}
API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *p)
{
    IN(cuMemRetainAllocationHandle, 1);
    Map *m = find_map((uintptr_t)p);
    if (!m || m->legacy)
        RET(1);
    allocations[m->a].href++;
    *h = handle_of(m->a);
    RET(0);
}
API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *p, CUmemGenericAllocationHandle h)
{
    IN(cuMemGetAllocationPropertiesFromHandle, 1);
    int i = handle_index(h);
    if (i < 0)
        RET(1);
    memset(p, 0, sizeof *p);
    p->type = 1;
    p->location.type = 1;
    p->location.id = allocations[i].dev;
    p->requestedHandleTypes = allocations[i].htypes;
    p->allocFlags.gpuDirectRDMACapable = allocations[i].rdma;
    RET(0);
}
API cuMemExportToShareableHandle(void *o, CUmemGenericAllocationHandle h, CUmemAllocationHandleType t,
                                 unsigned long long f)
{
    IN(cuMemExportToShareableHandle, 1);
    int i = handle_index(h);
    if (i < 0 || f || !o)
        RET(1);
    if (t != 1)
        RET(CUDA_ERROR_NOT_SUPPORTED);
    if (!(allocations[i].htypes & t))
        RET(1);
    int fd = fcntl(allocations[i].fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        RET(CUDA_ERROR_OUT_OF_MEMORY);
    *(int *)o = fd;
    RET(0);
}
API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, CUmemAllocationHandleType t)
{
    IN(cuMemImportFromShareableHandle, 1);
    if (t != 1)
        RET(CUDA_ERROR_NOT_SUPPORTED);
    int fd = (int)(intptr_t)os;
    struct stat st;
    char p[64], l[200];
    if (fstat(fd, &st))
        RET(1);
    snprintf(p, 64, "/proc/self/fd/%d", fd);
    ssize_t k = readlink(p, l, 199);
    int d;
    unsigned r, ht;
    if (k < 0)
        RET(1);
    l[k] = 0;
    char *q = strstr(l, "fakecuda-d");
    if (!q || sscanf(q, "fakecuda-d%d-r%u-h%u", &d, &r, &ht) != 3 || d >= device_count)
        RET(1);
    int nf = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    int i = new_alloc(st.st_size, d, r, ht, nf, 1);
    if (i < 0)
        RET(2);
    *h = handle_of(i);
    RET(0);
}
#ifndef FAKE_OLD_DRIVER
API cuMemGetHandleForAddressRange(void *o, CUdeviceptr p, size_t n, CUmemRangeHandleType t,
                                  unsigned long long f)
{
    IN(cuMemGetHandleForAddressRange, 1);
    if (!o || t != 1 || (f & ~1ull) || !n || p % 4096 || n % 4096)
        RET(1);
    Map *m = find_map(p);
    if (!m || p + n > m->base + m->size)
        RET(1);
    int d = allocations[m->a].dev;
    if (!attr(124, d))
        RET(CUDA_ERROR_NOT_SUPPORTED);
    if (f && !attr(255, d))
        RET(CUDA_ERROR_NOT_SUPPORTED);
    char q[64];
    snprintf(q, 64, "/proc/self/fd/%d", allocations[m->a].fd);
    int fd = open(q, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        RET(CUDA_ERROR_OUT_OF_MEMORY);
    lseek(fd, (off_t)(p - m->base), SEEK_SET); /* file offset tells tests where the range starts */
    *(int *)o = fd;
    RET(0);
}
#endif
