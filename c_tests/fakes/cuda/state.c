#include "fake.h"

Alloc allocations[MOST];
Reserved reserved[MOST];
Map mapped[MOST];
Pinned pinned[MOST];
Op queue[MOST];
struct CUctx_st primary[MOST_DEVICES];
int primary_refs[MOST_DEVICES];
size_t used_bytes[MOST_DEVICES];
int queued, initialised, device_count = 1, host_access, defer, suballoc, live_contexts, live_streams,
                         live_events, violations, driver_version = 12080;
size_t granularity = 2u << 20, memory_bytes = (size_t)8 << 30;
unsigned long long seq, ids = 100, flushes, copies, calls;
FILE *trace;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int attribute_value[MOST_DEVICES + 1][256];
char attribute_is_set[MOST_DEVICES + 1][256];
__thread struct CUctx_st *stack[64];
__thread int depth;
static struct {
    char sym[64];
    unsigned n;
} counters[256];
static struct {
    char sym[64];
    unsigned k;
    int code, plus;
} faults[64];
/* Names of the last calls, by their number. */
static const char *history[65536];
static int fault_count;
static char last_fault[64];
static struct {
    char what[64];
    int n;
} broken[32];

void trace_line(const char *f, ...)
{
    if (!trace)
        return;
    va_list v;
    va_start(v, f);
    vfprintf(trace, f, v);
    va_end(v);
    fputc('\n', trace);
    fflush(trace);
}
void violation(const char *w)
{
    violations++;
    trace_line("VIOLATION %s", w);
    for (int i = 0; i < 32; i++) {
        if (!broken[i].n)
            snprintf(broken[i].what, 64, "%s", w);
        if (!strcmp(broken[i].what, w)) {
            broken[i].n++;
            break;
        }
    }
}
static unsigned *counter(const char *s)
{
    for (int i = 0; i < 256; i++) {
        if (!counters[i].sym[0])
            snprintf(counters[i].sym, 64, "%s", s);
        if (!strcmp(counters[i].sym, s))
            return &counters[i].n;
    }
    return &counters[255].n;
}
long env_number(const char *n, long d)
{
    const char *v = getenv(n);
    return v && *v ? strtol(v, 0, 0) : d;
}
void *new_object(size_t size)
{
    static struct kept {
        struct kept *next;
    } *all;
    struct kept *one = calloc(1, sizeof *one + size);
    one->next = all;
    all = one;
    return one + 1;
}
int enter(const char *s, int need_init)
{
    unsigned all = (unsigned)++calls, n = ++*counter(s);
    history[all % 65536] = s;
    for (int i = 0; i < fault_count; i++) {
        int any = !strcmp(faults[i].sym, "*");
        unsigned at = any ? all : n;
        if ((any || !strcmp(faults[i].sym, s)) &&
            (at == faults[i].k || (faults[i].plus && at >= faults[i].k))) {
            trace_line("%s #%u -> INJECTED %d", s, n, faults[i].code);
            snprintf(last_fault, sizeof last_fault, "%s", s);
            return faults[i].code;
        }
    }
    if (need_init && !initialised) {
        trace_line("%s -> NOT_INITIALIZED", s);
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    trace_line("%s #%u", s, n);
    return 0;
}
static int live_fds(void)
{ /* fds handed out by export: links named memfd:fakecuda* minus our own */
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return 0;
    struct dirent *e;
    char p[300], l[300];
    while ((e = readdir(d))) {
        snprintf(p, 300, "/proc/self/fd/%s", e->d_name);
        ssize_t k = readlink(p, l, 299);
        if (k > 0) {
            l[k] = 0;
            if (strstr(l, "memfd:fakecuda"))
                n++;
        }
    }
    closedir(d);
    for (int i = 0; i < MOST; i++)
        if (allocations[i].used)
            n--;
    return n;
}
VISIBLE void fakecuda_stats(fakecuda_stats_t *o)
{
    pthread_mutex_lock(&lock);
    memset(o, 0, sizeof *o);
    for (int i = 0; i < MOST; i++) {
        if (allocations[i].used) {
            o->handles += allocations[i].href;
            o->bytes += allocations[i].size;
        }
        if (mapped[i].size)
            o->maps++;
        if (reserved[i].size)
            o->reservations++;
        if (pinned[i].n)
            o->hostregs++;
    }
    for (int i = 0; i < MOST_DEVICES; i++)
        o->ctx_refs += primary_refs[i];
    o->contexts = live_contexts;
    o->streams = live_streams;
    o->events = live_events;
    o->fds = live_fds();
    o->pending = queued;
    o->violations = violations;
    o->copies = copies;
    o->flushes = flushes;
    o->calls = calls;
    pthread_mutex_unlock(&lock);
}
VISIBLE unsigned fakecuda_calls(const char *sym)
{
    pthread_mutex_lock(&lock);
    unsigned n = strcmp(sym, "*") ? *counter(sym) : (unsigned)calls;
    pthread_mutex_unlock(&lock);
    return n;
}

VISIBLE void fakecuda_fail(const char *sym, unsigned k, int code)
{
    unsigned n = fakecuda_calls(sym);
    pthread_mutex_lock(&lock);
    last_fault[0] = 0;
    if (!k)
        fault_count = 0;
    else if (fault_count < 64) {
        snprintf(faults[fault_count].sym, 64, "%s", sym);
        faults[fault_count].k = n + k;
        faults[fault_count].code = code;
        faults[fault_count].plus = 0;
        fault_count++;
    }
    pthread_mutex_unlock(&lock);
}

VISIBLE const char *fakecuda_symbol(unsigned n) { return history[n % 65536]; }

VISIBLE const char *fakecuda_failed(void) { return last_fault; }

VISIBLE int fakecuda_depth(void) { return depth; }

VISIBLE void fakecuda_set_attribute(int attribute, int value)
{
    pthread_mutex_lock(&lock);
    attribute_is_set[MOST_DEVICES][attribute] = value >= 0;
    attribute_value[MOST_DEVICES][attribute] = value;
    pthread_mutex_unlock(&lock);
}

VISIBLE void *fakecuda_alias(unsigned long long p)
{
    for (int i = 0; i < MOST; i++)
        if (mapped[i].size && p >= mapped[i].base && p < mapped[i].base + mapped[i].size)
            return allocations[mapped[i].a].alias + (p - mapped[i].base);
    return 0;
}

__attribute__((constructor)) static void ctor(void)
{
    const char *t = getenv("FAKECUDA_TRACE");
    if (t && *t)
        trace = strcmp(t, "1") ? fopen(t, "a") : stderr;
    device_count = env_number("FAKECUDA_DEVICES", 1);
    if (device_count > MOST_DEVICES)
        device_count = MOST_DEVICES;
    granularity = env_number("FAKECUDA_GRAN", 2 << 20);
    memory_bytes = env_number("FAKECUDA_MEM", 8l << 30);
    driver_version = env_number("FAKECUDA_DRIVER", 12080);
    host_access = env_number("FAKECUDA_HOST_ACCESS", 0);
    defer = env_number("FAKECUDA_DEFER", 0);
    suballoc = env_number("FAKECUDA_SUBALLOC", 0);
    char buf[1024];
    const char *f = getenv("FAKECUDA_FAIL");
    if (f) {
        snprintf(buf, sizeof buf, "%s", f);
        for (char *s, *q = strtok_r(buf, ",", &s); q && fault_count < 64; q = strtok_r(0, ",", &s)) {
            char k[16] = "";
            if (sscanf(q, "%63[^:]:%15[^:]:%d", faults[fault_count].sym, k, &faults[fault_count].code) == 3) {
                faults[fault_count].k = atoi(k);
                faults[fault_count].plus = strchr(k, '+') != 0;
                fault_count++;
            }
        }
    }
    f = getenv("FAKECUDA_ATTR");
    if (f) {
        snprintf(buf, sizeof buf, "%s", f);
        for (char *s, *q = strtok_r(buf, ",", &s); q; q = strtok_r(0, ",", &s)) {
            int d = MOST_DEVICES, a, v;
            if (sscanf(q, "dev%d:%d=%d", &d, &a, &v) == 3 ||
                (d = MOST_DEVICES, sscanf(q, "%d=%d", &a, &v) == 2))
                if (a >= 0 && a < 256 && d >= 0 && d <= MOST_DEVICES) {
                    attribute_value[d][a] = v;
                    attribute_is_set[d][a] = 1;
                }
        }
    }
    for (int i = 0; i < MOST_DEVICES; i++) {
        primary[i].dev = i;
        primary[i].primary = 1;
        primary[i].id = i + 1;
    }
}
__attribute__((destructor)) static void dtor(void)
{
    if (!calls)
        return; /* loaded and not used */
    fakecuda_stats_t s;
    fakecuda_stats(&s);
    const char *rp = getenv("FAKECUDA_REPORT");
    FILE *o = rp && *rp ? fopen(rp, "a") : stderr;
    if (!o)
        o = stderr;
    fprintf(o,
            "fakecuda: handles=%d maps=%d reservations=%d bytes=%llu ctx_refs=%d contexts=%d streams=%d "
            "events=%d hostregs=%d fds=%d pending=%d violations=%d copies=%llu flushes=%llu calls=%llu\n",
            s.handles, s.maps, s.reservations, s.bytes, s.ctx_refs, s.contexts, s.streams, s.events,
            s.hostregs, s.fds, s.pending, s.violations, s.copies, s.flushes, s.calls);
    for (int i = 0; i < 32 && broken[i].n; i++)
        fprintf(o, "fakecuda: violation %s x%d\n", broken[i].what, broken[i].n);
    if (o != stderr)
        fclose(o);
    if (env_number("FAKECUDA_STRICT", 0) &&
        (s.handles || s.maps || s.reservations || s.ctx_refs || s.contexts || s.streams || s.events ||
         s.hostregs || s.fds || s.pending || s.violations))
        _exit(97);
}
