#include "fake.h"

/* ---- copies ---- */
Map *find_map(uintptr_t p)
{
    for (int i = 0; i < MOST; i++)
        if (mapped[i].size && p >= mapped[i].base && p < mapped[i].base + mapped[i].size)
            return &mapped[i];
    return 0;
}
Reserved *find_reserved(uintptr_t p)
{
    for (int i = 0; i < MOST; i++)
        if (reserved[i].size && p >= reserved[i].base && p < reserved[i].base + reserved[i].size)
            return &reserved[i];
    return 0;
}
static int dev_chunk(uintptr_t p, size_t n, int dev, char **q, size_t *k)
{
    Map *m = find_map(p);
    if (!m || !(m->access & (1ul << dev)))
        return 0;
    *q = allocations[m->a].alias + (p - m->base);
    size_t left = m->base + m->size - p;
    *k = n < left ? n : left;
    return 1;
}
static int check_range(uintptr_t p, size_t n, int dev)
{
    char *q;
    size_t k;
    while (n) {
        if (!dev_chunk(p, n, dev, &q, &k))
            return 0;
        p += k;
        n -= k;
    }
    return 1;
}
/* kind bit0: dst is device, bit1: src is device, bit2: memset */
static int run_copy(int kind, uintptr_t d, uintptr_t s, size_t n, int dev)
{
    copies++;
    while (n) {
        char *dp = (char *)d, *spx = (char *)s;
        size_t k = n, kk;
        if (kind & 1) {
            if (!dev_chunk(d, k, dev, &dp, &kk))
                return CUDA_ERROR_ILLEGAL_ADDRESS;
            k = kk;
        }
        if (kind & 2) {
            if (!dev_chunk(s, k, dev, &spx, &kk))
                return CUDA_ERROR_ILLEGAL_ADDRESS;
            k = kk;
        }
        if (kind & 4)
            memset(dp, (int)s, k);
        else {
            memmove(dp, spx, k);
            s += k;
        }
        d += k;
        n -= k;
    }
    return 0;
}
int drain(CUstream s, int all, unsigned long long upto)
{
    int w = 0, rc = 0;
    for (int i = 0; i < queued; i++) {
        if ((all || queue[i].s == s) && queue[i].seq <= upto) {
            if (queue[i].cb) {
                Op o = queue[i];
                pthread_mutex_unlock(&lock);
                o.cb(o.s, 0, o.arg);
                pthread_mutex_lock(&lock);
            } else {
                int c = run_copy(queue[i].kind, queue[i].dst, queue[i].src, queue[i].n, queue[i].ctx->dev);
                if (c)
                    rc = c;
            }
        } else
            queue[w++] = queue[i];
    }
    queued = w;
    return rc;
}
static int submit(CUstream s, int kind, uintptr_t d, uintptr_t sr, size_t n, int async)
{
    struct CUctx_st *c = CTX();
    if (!c || !c->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (s && (uintptr_t)s > 2) {
        if (!s->alive)
            return CUDA_ERROR_INVALID_HANDLE;
        if (s->ctx != c)
            violation("stream_of_other_context");
        c = s->ctx;
    }
    if ((kind & 1) && !check_range(d, n, c->dev)) {
        violation("copy_to_inaccessible_range");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((kind & 2) && !check_range(sr, n, c->dev)) {
        violation("copy_from_inaccessible_range");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!async) {
        drain(0, 1, ~0ull);
        return run_copy(kind, d, sr, n, c->dev);
    }
    if (defer && queued < MOST) {
        queue[queued++] = (Op){1, ++seq, s, d, sr, n, kind, c, 0, 0};
        return 0;
    }
    return run_copy(kind, d, sr, n, c->dev);
}
static int is_device(uintptr_t p) { return find_reserved(p) != 0; }
API cuMemcpyHtoD(CUdeviceptr d, const void *s, size_t n)
{
    IN(cuMemcpyHtoD, 1);
    RET(submit(0, 1, d, (uintptr_t)s, n, 0));
}
API cuMemcpyDtoH(void *d, CUdeviceptr s, size_t n)
{
    IN(cuMemcpyDtoH, 1);
    RET(submit(0, 2, (uintptr_t)d, s, n, 0));
}
API cuMemcpyDtoD(CUdeviceptr d, CUdeviceptr s, size_t n)
{
    IN(cuMemcpyDtoD, 1);
    RET(submit(0, 3, d, s, n, 0));
}
API cuMemcpyHtoDAsync(CUdeviceptr d, const void *s, size_t n, CUstream st)
{
    IN(cuMemcpyHtoDAsync, 1);
    RET(submit(st, 1, d, (uintptr_t)s, n, 1));
}
API cuMemcpyDtoHAsync(void *d, CUdeviceptr s, size_t n, CUstream st)
{
    IN(cuMemcpyDtoHAsync, 1);
    RET(submit(st, 2, (uintptr_t)d, s, n, 1));
}
API cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st)
{
    IN(cuMemcpyDtoDAsync, 1);
    RET(submit(st, 3, d, s, n, 1));
}
API cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st)
{
    IN(cuMemcpyAsync, 1);
    RET(submit(st, is_device(d) | (is_device(s) << 1), d, s, n, 1));
}
API cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n)
{
    IN(cuMemcpy, 1);
    RET(submit(0, is_device(d) | (is_device(s) << 1), d, s, n, 0));
}
API cuMemsetD8(CUdeviceptr d, unsigned char v, size_t n)
{
    IN(cuMemsetD8, 1);
    RET(submit(0, 5, d, v, n, 0));
}
API cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream st)
{
    IN(cuMemsetD8Async, 1);
    RET(submit(st, 5, d, v, n, 1));
}
API cuStreamCreate(CUstream *s, unsigned f)
{
    (void)f;
    IN(cuStreamCreate, 1);
    NEEDCTX();
    CUstream x = new_object(sizeof *x);
    x->alive = 1;
    x->ctx = CTX();
    live_streams++;
    *s = x;
    RET(0);
}
API cuStreamDestroy(CUstream s)
{
    IN(cuStreamDestroy, 1);
    if (!s || !s->alive)
        RET(CUDA_ERROR_INVALID_HANDLE);
    drain(s, 0, ~0ull);
    s->alive = 0;
    live_streams--;
    RET(0);
}
API cuStreamSynchronize(CUstream s)
{
    IN(cuStreamSynchronize, 1);
    NEEDCTX();
    RET(drain(s, 0, ~0ull));
}
API cuStreamQuery(CUstream s)
{
    IN(cuStreamQuery, 1);
    NEEDCTX();
    for (int i = 0; i < queued; i++)
        if (queue[i].s == s) {
            drain(s, 0, ~0ull);
            RET(CUDA_ERROR_NOT_READY);
        }
    RET(0);
}
API cuCtxSynchronize(void)
{
    IN(cuCtxSynchronize, 1);
    NEEDCTX();
    RET(drain(0, 1, ~0ull));
}
API cuStreamAddCallback(CUstream s, CUstreamCallback cb, void *a, unsigned f)
{
    (void)f;
    IN(cuStreamAddCallback, 1);
    if (defer && queued < MOST) {
        queue[queued++] = (Op){1, ++seq, s, 0, 0, 0, 0, CTX(), (void (*)(CUstream, CUresult, void *))cb, a};
        RET(0);
    }
    pthread_mutex_unlock(&lock);
    cb(s, 0, a);
    return 0;
}
API cuEventCreate(CUevent *e, unsigned f)
{
    (void)f;
    IN(cuEventCreate, 1);
    NEEDCTX();
    CUevent x = new_object(sizeof *x);
    x->alive = 1;
    live_events++;
    *e = x;
    RET(0);
}
API cuEventDestroy(CUevent e)
{
    IN(cuEventDestroy, 1);
    if (!e || !e->alive)
        RET(CUDA_ERROR_INVALID_HANDLE);
    e->alive = 0;
    live_events--;
    RET(0);
}
API cuEventRecord(CUevent e, CUstream s)
{
    IN(cuEventRecord, 1);
    e->seq = seq;
    e->s = s;
    e->polls = 0;
    RET(0);
}
API cuEventQuery(CUevent e)
{
    IN(cuEventQuery, 1);
    for (int i = 0; i < queued; i++)
        if (queue[i].s == e->s && queue[i].seq <= e->seq) {
            if (e->polls++) {
                drain(e->s, 0, e->seq);
                RET(0);
            }
            RET(CUDA_ERROR_NOT_READY);
        }
    RET(0);
}
API cuEventSynchronize(CUevent e)
{
    IN(cuEventSynchronize, 1);
    RET(drain(e->s, 0, e->seq));
}
