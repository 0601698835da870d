/* A D3D12 device and its buffers, as COM objects that need no Windows: as much of their virtual tables as
 * nrdma and the fake NvAPI call. Written as MSVC has it: a struct comes back through a pointer after `self`.
 * One test owns them. */
#ifndef NRDMA_FAKE_D3D12_H
#define NRDMA_FAKE_D3D12_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t com_result;
typedef struct {
    uint32_t dimension;
    uint64_t alignment, width;
    uint32_t height;
    uint16_t depth, mips;
    uint32_t format, samples, quality, layout, flags;
} com_desc;
typedef struct {
    int32_t type, cpu_page, pool;
    uint32_t creation_mask, visible_mask;
} com_heap;

typedef struct com_resource com_resource;
typedef struct {
    void *query_interface;
    uint32_t (*add_ref)(com_resource *);
    uint32_t (*release)(com_resource *);
    void *others[5]; /* GetPrivateData to GetDevice */
    com_result (*map)(com_resource *, uint32_t, const void *, void **);
    void *unmap;
    com_desc *(*get_desc)(com_resource *, com_desc *);
    uint64_t (*get_gpu_virtual_address)(com_resource *);
} com_resource_table;
typedef struct com_device com_device;
typedef struct {
    void *query_interface;
    uint32_t (*add_ref)(com_device *);
    uint32_t (*release)(com_device *);
    void *others[24]; /* to GetCustomHeapProperties */
    com_result (*create_committed_resource)(com_device *, const com_heap *, int32_t, const com_desc *,
                                            int32_t, const void *, const void *, void **);
} com_device_table;
struct com_resource {
    const com_resource_table *table;
    com_device *device;
    uint32_t references;
    uint64_t width, gpu_va;
    char *block, *bytes;
    uint32_t creation_mask, visible_mask;
};
struct com_device {
    const com_device_table *table;
    uint32_t references, resources;
    /* The next GPU address: a number that nobody may touch. */
    uint64_t gpu_va;
    /* How far buffers begin from 64 KiB. */
    uint32_t skew;
};

static inline uint32_t com_resource_add_ref(com_resource *self) { return ++self->references; }
static inline uint32_t com_resource_release(com_resource *self)
{
    if (--self->references != 0)
        return self->references;
    --self->device->resources;
    free(self->block);
    free(self);
    return 0;
}
static inline com_result com_resource_map(com_resource *self, uint32_t part, const void *range, void **out)
{
    (void)part;
    (void)range;
    *out = self->bytes;
    return 0;
}
static inline com_desc *com_resource_get_desc(com_resource *self, com_desc *out)
{
    memset(out, 0, sizeof *out);
    out->dimension = 1;
    out->width = self->width;
    return out;
}
static inline uint64_t com_resource_get_gpu_va(com_resource *self) { return self->gpu_va; }

static inline uint32_t com_device_add_ref(com_device *self) { return ++self->references; }
static inline uint32_t com_device_release(com_device *self) { return --self->references; }
static inline com_result com_device_create(com_device *self, const com_heap *heap, int32_t heap_flags,
                                           const com_desc *desc, int32_t state, const void *clear,
                                           const void *iid, void **out)
{
    static const com_resource_table table = {
        NULL, com_resource_add_ref,  com_resource_release,   {NULL}, com_resource_map,
        NULL, com_resource_get_desc, com_resource_get_gpu_va};
    static const unsigned char wanted[16] = {0xbe, 0x42, 0x64, 0x69, 0x2e, 0xa7, 0x59, 0x40,
                                             0xbc, 0x79, 0x5b, 0x5c, 0x98, 0x04, 0x0f, 0xad};
    (void)heap_flags;
    (void)state;
    (void)clear;
    *out = NULL;
    if (memcmp(iid, wanted, sizeof wanted) != 0)
        return (com_result)0x80004002u;
    com_resource *made = (com_resource *)calloc(1, sizeof *made);
    made->block = (char *)aligned_alloc(65536, (desc->width + 2 * 65536) / 65536 * 65536);
    if (made->block == NULL) {
        free(made);
        return (com_result)0x8007000eu;
    }
    made->table = &table;
    made->device = self;
    made->references = 1;
    made->width = desc->width;
    made->bytes = made->block + self->skew;
    made->gpu_va = self->gpu_va;
    made->creation_mask = heap->creation_mask;
    made->visible_mask = heap->visible_mask;
    self->gpu_va += 0x10000000;
    ++self->resources;
    *out = made;
    return 0;
}

static inline com_device com_make_device(uint32_t skew)
{
    static const com_device_table table = {
        NULL, com_device_add_ref, com_device_release, {NULL}, com_device_create};
    com_device device = {&table, 1, 0, 0x1000000000, skew};
    return device;
}
#endif
