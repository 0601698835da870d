/* A fake nvapi64.dll, for any system: one export that gives functions by number, as the real one has. Buffers
 * come from the device's own CreateCommittedResource, and the "RDMA address" is where the CPU sees them, so
 * that a test can play the card.
 *
 * NRDMA_FAKE_NVAPI=nofn,noquery,noinit,nosupport,fail,short: what this driver lacks or does. */
#include <stdio.h>

#include "d3d12.h"

#ifdef _WIN32
#  define VISIBLE __declspec(dllexport)
#else
#  define VISIBLE __attribute__((visibility("default")))
#endif

enum { HEAP = 64 << 20 };
static int references;
static unsigned fail_in;
static const char *failed = "";

static int fault(const char *word)
{
    const char *all = getenv("NRDMA_FAKE_NVAPI");
    const size_t length = strlen(word);
    while (all != NULL && *all != 0) {
        const size_t n = strcspn(all, ",");
        if (n == length && strncmp(all, word, n) == 0)
            return 1;
        all += n + (all[n] == ',');
    }
    return 0;
}

static int shall_fail(const char *call)
{
    if (fail_in == 0 || --fail_in != 0)
        return 0;
    failed = call;
    return 1;
}

/* The k-th call from now fails; 0: none. */
VISIBLE void fake_nvapi_fail(unsigned k)
{
    fail_in = k;
    failed = "";
}
VISIBLE const char *fake_nvapi_failed(void) { return failed; }
/* Calls of NvAPI_Initialize without one of NvAPI_Unload. */
VISIBLE int fake_nvapi_references(void) { return references; }

static int initialize(void)
{
    if (shall_fail("NvAPI_Initialize"))
        return -1;
    if (fault("noinit"))
        return -6;
    ++references;
    return 0;
}
static int unload(void)
{
    if (references <= 0)
        return -4;
    --references;
    /* It is ended, and says that it was not. */
    return shall_fail("NvAPI_Unload") ? -1 : 0;
}

typedef struct {
    uint32_t version;
    int32_t type;
    uint8_t supported;
    uint64_t heap;
} workstation_feature;

static int query(com_device *device, workstation_feature *out)
{
    if (shall_fail("NvAPI_D3D12_QueryWorkstationFeatureProperties"))
        return -1;
    if (references <= 0)
        return -4;
    if (device == NULL || out == NULL)
        return -14;
    if (out->version != (sizeof *out | 1 << 16))
        return -9;
    out->supported = out->type == 2 && !fault("nosupport");
    out->heap = out->supported ? HEAP : 0;
    return 0;
}

static int create(com_device *device, uint64_t size, uint32_t creation_mask, uint32_t visible_mask,
                  const void *iid, void **resource, void **address)
{
    if (shall_fail("NvAPI_D3D12_CreateCommittedRDMABuffer"))
        return -130;
    if (references <= 0)
        return -4;
    if (device == NULL || iid == NULL || resource == NULL || address == NULL)
        return -14;
    if (size == 0 || creation_mask == 0 || (visible_mask & creation_mask) == 0)
        return -5;
    if (fault("nosupport"))
        return -104;
    if (fault("fail") || size > HEAP)
        return -130;
    const com_heap heap = {4, 3, 1, creation_mask, visible_mask};
    com_desc desc = {0};
    desc.dimension = 1;
    desc.width = fault("short") ? size / 2 : (size + 65535) / 65536 * 65536;
    if (device->table->create_committed_resource(device, &heap, 0, &desc, 0, NULL, iid, resource) != 0)
        return -1;
    com_resource *made = (com_resource *)*resource;
    return made->table->map(made, 0, NULL, address);
}

typedef void (*any)(void);
static void *pointer(any function)
{
    void *out;
    memcpy(&out, &function, sizeof out);
    return out;
}

VISIBLE void *nvapi_QueryInterface(uint32_t id)
{
    switch (id) {
    case 0x0150e828:
        return pointer((any)initialize);
    case 0xd22bdd7e:
        return pointer((any)unload);
    case 0xa92ea23a:
        return fault("nofn") || fault("noquery") ? NULL : pointer((any)query);
    case 0xe78dcb44:
        return fault("nofn") ? NULL : pointer((any)create);
    default:
        return NULL;
    }
}
