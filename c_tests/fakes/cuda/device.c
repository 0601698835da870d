#include "fake.h"

/* ---- init, devices ---- */
API cuInit(unsigned f)
{
    IN(cuInit, 0);
    if (f)
        RET(CUDA_ERROR_INVALID_VALUE);
    if (device_count <= 0)
        RET(CUDA_ERROR_NO_DEVICE);
    initialised = 1;
    RET(0);
}
API cuDriverGetVersion(int *v)
{
    IN(cuDriverGetVersion, 0);
    if (!v)
        RET(1);
    *v = driver_version;
    RET(0);
}
static const struct {
    int c;
    const char *n, *s;
} error_names[] = {{0, "CUDA_SUCCESS", "no error"},
                   {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
                   {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
                   {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
                   {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
                   {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
                   {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
                   {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
                   {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
                   {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
                   {999, "CUDA_ERROR_UNKNOWN", "unknown error"}};
API cuGetErrorName(CUresult e, const char **p)
{
    for (unsigned i = 0; i < sizeof error_names / sizeof *error_names; i++)
        if (error_names[i].c == (int)e) {
            *p = error_names[i].n;
            return 0;
        }
    *p = 0;
    return (CUresult)1;
}
API cuGetErrorString(CUresult e, const char **p)
{
    for (unsigned i = 0; i < sizeof error_names / sizeof *error_names; i++)
        if (error_names[i].c == (int)e) {
            *p = error_names[i].s;
            return 0;
        }
    *p = 0;
    return (CUresult)1;
}
API cuDeviceGetCount(int *n)
{
    IN(cuDeviceGetCount, 1);
    *n = device_count;
    RET(0);
}
API cuDeviceGet(CUdevice *d, int o)
{
    IN(cuDeviceGet, 1);
    DEV(o);
    *d = o;
    RET(0);
}
API cuDeviceGetName(char *n, int l, CUdevice d)
{
    IN(cuDeviceGetName, 1);
    DEV(d);
    snprintf(n, l, "Fake GPU %d", d);
    RET(0);
}
static CUresult uuid(CUuuid *u, CUdevice d)
{
    memset(u, 0x46, sizeof *u);
    ((char *)u)[15] = (char)d;
    return 0;
}
API cuDeviceGetUuid(CUuuid *u, CUdevice d)
{
    IN(cuDeviceGetUuid, 1);
    DEV(d);
    RET(uuid(u, d));
}
#ifndef FAKE_OLD_DRIVER
API cuDeviceGetUuid_v2(CUuuid *u, CUdevice d)
{
    IN(cuDeviceGetUuid, 1);
    DEV(d);
    RET(uuid(u, d));
}
#endif
API cuDeviceTotalMem(size_t *b, CUdevice d)
{
    IN(cuDeviceTotalMem, 1);
    DEV(d);
    *b = memory_bytes;
    RET(0);
}
API cuDeviceGetPCIBusId(char *s, int l, CUdevice d)
{
    IN(cuDeviceGetPCIBusId, 1);
    DEV(d);
    snprintf(s, l, "0000:%02X:00.0", 0x41 + d);
    RET(0);
}
API cuDeviceCanAccessPeer(int *c, CUdevice a, CUdevice b)
{
    IN(cuDeviceCanAccessPeer, 1);
    DEV(a);
    DEV(b);
    *c = a != b;
    RET(0);
}
int attr(int a, int d)
{
    if (a >= 0 && a < 256) {
        if (d >= 0 && attribute_is_set[d][a])
            return attribute_value[d][a];
        if (attribute_is_set[MOST_DEVICES][a])
            return attribute_value[MOST_DEVICES][a];
    }
    switch (a) {
    case 33:
        return 0x41 + d;
    case 34:
        return 0;
    case 50:
        return 0;
    case 41:
        return 1; /* UVA */
    case 75:
        return 8;
    case 76:
        return 0;
    case 102:
    case 103:
    case 110:
    case 115:
    case 116:
    case 124:
        return 1;
    case 117:
        return 1;
    case 118:
        return 0;
    case 20:
        return 0;
    default:
        return 0;
    }
}
API cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    IN(cuDeviceGetAttribute, 1);
    DEV(d);
    if (!v || (int)a <= 0 || (int)a >= 256)
        RET(1);
    *v = attr(a, d);
    RET(0);
}

/* ---- contexts ---- */
API cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    IN(cuDevicePrimaryCtxRetain, 1);
    DEV(d);
    if (!primary_refs[d]++)
        primary[d].alive = 1;
    *c = &primary[d];
    RET(0);
}
static int has_pending(struct CUctx_st *c)
{
    for (int i = 0; i < queued; i++)
        if (queue[i].ctx == c)
            return 1;
    return 0;
}
/* Whether memory goes, or hangs in the air, when a primary context is reset. */
static int has_memory(int d)
{
    for (int i = 0; i < MOST; i++)
        if (mapped[i].size && allocations[mapped[i].a].dev == d &&
            (mapped[i].legacy ? mapped[i].ctx == &primary[d] : !live_contexts))
            return 1;
    return 0;
}
API cuDevicePrimaryCtxRelease(CUdevice d)
{
    IN(cuDevicePrimaryCtxRelease, 1);
    DEV(d);
    if (!primary_refs[d]) {
        violation("primary_ctx_over_release");
        RET(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (!--primary_refs[d]) {
        primary[d].alive = 0;
        primary[d].flags = 0;
        if (has_pending(&primary[d]))
            violation("ctx_reset_with_pending_copies");
        if (has_memory(d))
            violation("ctx_reset_with_mapped_memory");
    }
    RET(0);
}
API cuDevicePrimaryCtxGetState(CUdevice d, unsigned *f, int *a)
{
    IN(cuDevicePrimaryCtxGetState, 1);
    DEV(d);
    if (f)
        *f = primary[d].flags;
    if (a)
        *a = primary[d].alive;
    RET(0);
}
API cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned f)
{
    IN(cuDevicePrimaryCtxSetFlags, 1);
    DEV(d);
    primary[d].flags = f;
    RET(0);
}
API cuDevicePrimaryCtxReset(CUdevice d)
{
    IN(cuDevicePrimaryCtxReset, 1);
    DEV(d);
    violation("primary_ctx_reset_called");
    RET(0);
}
static CUresult make_context(CUcontext *c, unsigned f, CUdevice d)
{
    struct CUctx_st *x = new_object(sizeof *x);
    x->dev = d;
    x->alive = 1;
    x->flags = f;
    x->id = ++ids;
    live_contexts++;
    if (depth < 64)
        stack[depth++] = x;
    *c = x;
    return 0;
}
API cuCtxCreate_v2(CUcontext *c, unsigned f, CUdevice d)
{
    IN(cuCtxCreate, 1);
    DEV(d);
    RET(make_context(c, f, d));
}
API cuCtxCreate_v4(CUcontext *c, CUctxCreateParams *p, unsigned f, CUdevice d)
{
    (void)p;
    IN(cuCtxCreate, 1);
    DEV(d);
    RET(make_context(c, f, d));
}
/* What was allocated in a context goes with it. */
static void free_memory_of(struct CUctx_st *c)
{
    for (int i = 0; i < MOST; i++) {
        if (!mapped[i].size || !mapped[i].legacy || mapped[i].ctx != c)
            continue;
        uintptr_t base = mapped[i].base;
        size_t size = mapped[i].size;
        unmap_pages(base, size);
        unreserve(base, size);
    }
}
API cuCtxDestroy(CUcontext c)
{
    IN(cuCtxDestroy, 1);
    if (!c || !c->alive || c->primary)
        RET(CUDA_ERROR_INVALID_CONTEXT);
    free_memory_of(c);
    c->alive = 0;
    live_contexts--;
    if (depth && stack[depth - 1] == c)
        depth--;
    RET(0);
}
API cuCtxPushCurrent(CUcontext c)
{
    IN(cuCtxPushCurrent, 1);
    if (!c || !c->alive || depth >= 64)
        RET(CUDA_ERROR_INVALID_CONTEXT);
    stack[depth++] = c;
    RET(0);
}
API cuCtxPopCurrent(CUcontext *c)
{
    IN(cuCtxPopCurrent, 1);
    if (!depth)
        RET(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (c)
        *c = stack[depth];
    RET(0);
}
API cuCtxSetCurrent(CUcontext c)
{
    IN(cuCtxSetCurrent, 1);
    if (!c) {
        if (depth)
            depth--;
    } else if (!c->alive)
        RET(CUDA_ERROR_INVALID_CONTEXT);
    else {
        if (depth)
            depth--;
        stack[depth++] = c;
    }
    RET(0);
}
API cuCtxGetCurrent(CUcontext *c)
{
    IN(cuCtxGetCurrent, 1);
    *c = CTX();
    RET(0);
}
API cuCtxGetDevice(CUdevice *d)
{
    IN(cuCtxGetDevice, 1);
    NEEDCTX();
    *d = CTX()->dev;
    RET(0);
}
API cuCtxGetId(CUcontext c, unsigned long long *i)
{
    IN(cuCtxGetId, 1);
    if (!c)
        c = CTX();
    if (!c)
        RET(CUDA_ERROR_INVALID_CONTEXT);
    *i = c->id;
    RET(0);
}
API cuCtxGetFlags(unsigned *f)
{
    IN(cuCtxGetFlags, 1);
    NEEDCTX();
    *f = CTX()->flags;
    RET(0);
}
#ifndef FAKE_OLD_DRIVER
API cuCtxSetFlags(unsigned f)
{
    IN(cuCtxSetFlags, 1);
    NEEDCTX();
    CTX()->flags = f;
    RET(0);
}
#endif
