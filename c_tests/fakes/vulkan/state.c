#include "fake.h"

Inst *insts;
Dev *devs;
Obj *bufs, *mems;
pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER, chain_mu = PTHREAD_MUTEX_INITIALIZER;
static unsigned fail_in;
static char failed[64];

int fault(const char *n)
{
    const char *e = getenv("NRDMA_FAKE_VK");
    size_t l = strlen(n);
    for (; e && *e; e += *e == ',') {
        size_t k = strcspn(e, ",");
        if (k == l && !strncmp(e, n, l))
            return 1;
        e += k;
    }
    return 0;
}
/* Next-in-chain pointers are resolved once, while the object is being created: asking the loader's GIPA later
 * returns the top of the chain, i.e. this layer again (endless recursion). */
int shall_fail(const char *call)
{
    pthread_mutex_lock(&mu);
    const int now = fail_in != 0 && --fail_in == 0;
    if (now)
        snprintf(failed, sizeof failed, "%s", call);
    pthread_mutex_unlock(&mu);
    return now;
}
/* The k-th call from now that may fail does; 0: none. */
VISIBLE void fake_vk_fail(unsigned k)
{
    pthread_mutex_lock(&mu);
    fail_in = k;
    failed[0] = 0;
    pthread_mutex_unlock(&mu);
}
/* Which call that was; "" before. */
VISIBLE const char *fake_vk_failed(void) { return failed; }
/* RDMA buffers and memories that are alive. */
VISIBLE unsigned fake_vk_live(void)
{
    unsigned n = 0;
    pthread_mutex_lock(&mu);
    for (Obj *o = bufs; o; o = o->next)
        n++;
    for (Obj *o = mems; o; o = o->next)
        n++;
    pthread_mutex_unlock(&mu);
    return n;
}
Inst *inst_of(void *d)
{
    pthread_mutex_lock(&mu);
    Inst *i = insts;
    while (i && i->key != KEY(d) && i->pd != d)
        i = i->next;
    pthread_mutex_unlock(&mu);
    return i;
}
Dev *dev_of(void *d)
{
    pthread_mutex_lock(&mu);
    Dev *i = devs;
    while (i && i->key != KEY(d))
        i = i->next;
    pthread_mutex_unlock(&mu);
    return i;
}
void put(Obj **l, uint64_t h, int ex, void *p, VkDeviceSize off)
{
    Obj *o = malloc(sizeof *o);
    o->h = h;
    o->exported = ex;
    o->ptr = p;
    o->off = off;
    pthread_mutex_lock(&mu);
    o->next = *l;
    *l = o;
    pthread_mutex_unlock(&mu);
}
int get(Obj *const *l, uint64_t h, Obj *out)
{
    int r = 0;
    pthread_mutex_lock(&mu);
    for (Obj *o = *l; o; o = o->next)
        if (o->h == h) {
            *out = *o;
            r = 1;
            break;
        }
    pthread_mutex_unlock(&mu);
    return r;
}
int take(Obj **l, uint64_t h, Obj *out)
{
    int r = 0;
    pthread_mutex_lock(&mu);
    for (Obj **p = l; *p; p = &(*p)->next)
        if ((*p)->h == h) {
            Obj *o = *p;
            *out = *o;
            *p = o->next;
            free(o);
            r = 1;
            break;
        }
    pthread_mutex_unlock(&mu);
    return r;
}
VkBaseOutStructure *find(const void *p, VkStructureType t)
{
    VkBaseOutStructure *s = (VkBaseOutStructure *)p;
    while (s && s->sType != t)
        s = s->pNext;
    return s;
}
Cut cut(const void *head, VkStructureType t)
{
    Cut c = {0};
    for (VkBaseOutStructure *s = (VkBaseOutStructure *)head; s && s->pNext; s = s->pNext)
        if (s->pNext->sType == t) {
            c.prev = s;
            c.me = s->pNext;
            s->pNext = c.me->pNext;
            break;
        }
    return c;
}
void uncut(Cut c)
{
    if (c.prev)
        c.prev->pNext = c.me;
}
