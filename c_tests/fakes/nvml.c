/* A fake libnvidia-ml.so.1: what UCX's CUDA module asks, and the size of BAR1 (FAKENVML_BAR1; 0: not known). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, devid, subsys;
    char busid[32];
} Pci;
static int nd(void)
{
    const char *v = getenv("FAKECUDA_DEVICES");
    return v && *v ? atoi(v) : 1;
}
const char *nvmlErrorString(int r) { return r ? "fake nvml error" : "success"; }
int nvmlInit_v2(void) { return nd() > 0 ? 0 : 9; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = nd();
    return 0;
}
int nvmlDeviceGetHandleByIndex(unsigned i, void **h)
{
    if ((int)i >= nd())
        return 2;
    *h = (void *)(unsigned long)(i + 1);
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { return nvmlDeviceGetHandleByIndex(i, h); }
/* The addresses are those of the fake CUDA driver's devices: bus 0x41 on. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **h)
{
    unsigned domain = 1, bus = 0, device = 1;
    if (sscanf(address, "%x:%x:%x.0", &domain, &bus, &device) != 3 || domain != 0 || device != 0 ||
        bus < 0x41)
        return 2;
    return nvmlDeviceGetHandleByIndex(bus - 0x41, h);
}
typedef struct {
    unsigned long long total, free, used;
} Bar1;
int nvmlDeviceGetBAR1MemoryInfo(void *h, Bar1 *bar1)
{
    const char *v = getenv("FAKENVML_BAR1");
    (void)h;
    if (v == NULL || strtoull(v, NULL, 0) == 0)
        return 3;
    bar1->total = strtoull(v, NULL, 0);
    bar1->used = 1 << 20;
    bar1->free = bar1->total - bar1->used;
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *h, Pci *p)
{
    memset(p, 0, sizeof *p);
    p->bus = 0x41 + (unsigned)((unsigned long)h - 1);
    p->devid = 0x10de10de;
    snprintf(p->busid, 32, "00000000:%02X:00.0", p->bus);
    snprintf(p->legacy, 16, "0000:%02X:00.0", p->bus);
    return 0;
}
int nvmlDeviceGetFieldValues(void *h, int n, void *v)
{
    (void)h;
    (void)n;
    (void)v;
    return 3;
}
int nvmlDeviceGetNvLinkRemotePciInfo(void *h, unsigned l, Pci *p)
{
    (void)h;
    (void)l;
    (void)p;
    return 3;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *h, unsigned l, Pci *p)
{
    (void)h;
    (void)l;
    (void)p;
    return 3;
}
