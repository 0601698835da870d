/* For tests of slots: the fake CUDA driver as the host has loaded it, and what every test asks of a buffer. */
#ifndef NRDMA_GPU_RIG_H
#define NRDMA_GPU_RIG_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <nrdma/nrdma.h>

#include "check.h"
#include "fakes/fake_cuda.h"

#define UNIT 65536u

/* The driver's functions that a host calls, and the fake's own. */
typedef struct {
    unsigned (*init)(unsigned);
    unsigned (*ctx_create)(void **context, unsigned flags, int device);
    unsigned (*ctx_destroy)(void *context);
    unsigned (*ctx_get_current)(void **context);
    unsigned (*ctx_push)(void *context);
    unsigned (*ctx_pop)(void **context);
    unsigned (*primary_retain)(void **context, int device);
    unsigned (*primary_release)(int device);
    unsigned (*import_handle)(uint64_t *handle, void *os_handle, unsigned type);
    unsigned (*release_handle)(uint64_t handle);
    unsigned (*pointer_attribute)(void *out, unsigned attribute, uint64_t address);
    void (*stats)(fakecuda_stats_t *);
    void (*fail)(const char *, unsigned, int);
    const char *(*failed)(void);
    unsigned (*calls)(const char *);
    const char *(*symbol)(unsigned);
    void (*set_attribute)(int, int);
    void *(*alias)(unsigned long long);
    int (*depth)(void);
} gpu_rig;

static inline void gpu_symbol(void *library, void *out, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        fprintf(stderr, "the fake has no %s\n", name);
    CHECK(found != NULL);
    memcpy(out, &found, sizeof found);
}

/* Loads the fake that NRDMA_TEST_CUDA names, as a host loads its driver: nrdma is to use the same one. */
static inline gpu_rig gpu_load(void)
{
    const char *path = getenv("NRDMA_TEST_CUDA");
    CHECK(path != NULL);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    gpu_rig rig;
    gpu_symbol(library, &rig.init, "cuInit");
    gpu_symbol(library, &rig.ctx_create, "cuCtxCreate_v2");
    gpu_symbol(library, &rig.ctx_destroy, "cuCtxDestroy_v2");
    gpu_symbol(library, &rig.ctx_get_current, "cuCtxGetCurrent");
    gpu_symbol(library, &rig.ctx_push, "cuCtxPushCurrent_v2");
    gpu_symbol(library, &rig.ctx_pop, "cuCtxPopCurrent_v2");
    gpu_symbol(library, &rig.primary_retain, "cuDevicePrimaryCtxRetain");
    gpu_symbol(library, &rig.primary_release, "cuDevicePrimaryCtxRelease_v2");
    gpu_symbol(library, &rig.import_handle, "cuMemImportFromShareableHandle");
    gpu_symbol(library, &rig.release_handle, "cuMemRelease");
    gpu_symbol(library, &rig.pointer_attribute, "cuPointerGetAttribute");
    gpu_symbol(library, &rig.stats, "fakecuda_stats");
    gpu_symbol(library, &rig.fail, "fakecuda_fail");
    gpu_symbol(library, &rig.failed, "fakecuda_failed");
    gpu_symbol(library, &rig.calls, "fakecuda_calls");
    gpu_symbol(library, &rig.symbol, "fakecuda_symbol");
    gpu_symbol(library, &rig.set_attribute, "fakecuda_set_attribute");
    gpu_symbol(library, &rig.alias, "fakecuda_alias");
    gpu_symbol(library, &rig.depth, "fakecuda_depth");
    return rig;
}

static inline nrdma_gpu_buffer_config gpu_config(int32_t api, uint32_t slots, uint64_t frame, int32_t memory)
{
    nrdma_gpu_buffer_config config = NRDMA_GPU_BUFFER_CONFIG_INIT;
    config.api = api;
    config.slot_count = slots;
    config.frame_bytes = frame;
    config.memory = memory;
    return config;
}

static inline nrdma_gpu_buffer *gpu_make(const nrdma_gpu_buffer_config *config)
{
    nrdma_gpu_buffer *buffer = NULL;
    const nrdma_status status = nrdma_gpu_buffer_create(config, &buffer);
    if (status != NRDMA_OK)
        fprintf(stderr, "create: %d %s\n", status, nrdma_last_error());
    CHECK_EQ(status, NRDMA_OK);
    CHECK(buffer != NULL);
    return buffer;
}

static inline nrdma_gpu_buffer_info gpu_info(const nrdma_gpu_buffer *buffer)
{
    nrdma_gpu_buffer_info info = NRDMA_GPU_BUFFER_INFO_INIT;
    CHECK_EQ(nrdma_gpu_buffer_get_info(buffer, &info), NRDMA_OK);
    return info;
}

/* A config that is refused, with a sentence that has a part in it. */
static inline void gpu_refused(const nrdma_gpu_buffer_config *config, nrdma_status status, const char *part)
{
    nrdma_gpu_buffer *buffer = (nrdma_gpu_buffer *)&status;
    const nrdma_status got = nrdma_gpu_buffer_create(config, &buffer);
    if (got != status || strstr(nrdma_last_error(), part) == NULL)
        fprintf(stderr, "create: %d \"%s\"; wanted %d and \"%s\"\n", got, nrdma_last_error(), status, part);
    CHECK_EQ(got, status);
    CHECK(buffer == NULL);
    CHECK(strstr(nrdma_last_error(), part) != NULL);
    /* The probe says the same without trying. */
    char reason[512];
    uint64_t total = 1;
    nrdma_clear_error();
    CHECK_EQ(nrdma_gpu_buffer_probe(config, &total, reason, sizeof reason), status);
    CHECK(strstr(reason, part) != NULL && strstr(nrdma_last_error(), part) != NULL);
    CHECK_EQ(total, 0);
    nrdma_clear_error();
}

/* Every slot is whole units from an aligned address, and no two overlap. */
static inline void gpu_slots_apart(const nrdma_gpu_buffer *buffer, uint64_t alignment)
{
    const nrdma_gpu_buffer_info info = gpu_info(buffer);
    for (uint32_t i = 0; i < info.slot_count; ++i) {
        const nrdma_gpu_slot *slot = nrdma_gpu_buffer_slot(buffer, i);
        CHECK_EQ(slot->struct_size, sizeof(nrdma_gpu_slot));
        CHECK(slot->address != 0 && slot->address % alignment == 0);
        CHECK(slot->size >= info.frame_bytes && slot->size % UNIT == 0);
        CHECK(nrdma_gpu_buffer_slot(buffer, i) == slot);
        for (uint32_t k = 0; k < i; ++k) {
            const nrdma_gpu_slot *other = nrdma_gpu_buffer_slot(buffer, k);
            CHECK(slot->address + slot->size <= other->address ||
                  other->address + other->size <= slot->address);
        }
    }
    CHECK_EQ(nrdma_gpu_buffer_slot(buffer, info.slot_count)->size, 0);
    CHECK(nrdma_gpu_buffer_slot(buffer, UINT64_MAX)->address == 0);
    CHECK(nrdma_gpu_buffer_slot(NULL, 0)->struct_size == 0);
}

/* What is written is what is read, in every slot, at its ends, and nowhere else. */
static inline void gpu_roundtrip(nrdma_gpu_buffer *buffer)
{
    const nrdma_gpu_buffer_info info = gpu_info(buffer);
    const uint64_t frame = info.frame_bytes;
    unsigned char *out = (unsigned char *)malloc(frame), *in = (unsigned char *)malloc(frame);
    CHECK(out != NULL && in != NULL);
    for (uint32_t i = 0; i < info.slot_count; ++i) {
        for (uint64_t k = 0; k < frame; ++k)
            out[k] = (unsigned char)(k * 7 + k / 251 + i);
        CHECK_EQ(nrdma_gpu_buffer_write(buffer, i, 0, out, frame), NRDMA_OK);
    }
    for (uint32_t i = 0; i < info.slot_count; ++i) {
        memset(in, 0xee, frame);
        CHECK_EQ(nrdma_gpu_buffer_read(buffer, i, 0, in, frame), NRDMA_OK);
        for (uint64_t k = 0; k < frame; ++k)
            CHECK(in[k] == (unsigned char)(k * 7 + k / 251 + i));
        const uint64_t size = nrdma_gpu_buffer_slot(buffer, i)->size;
        CHECK_EQ(nrdma_gpu_buffer_write(buffer, i, size - 1, "x", 1), NRDMA_OK);
        CHECK_EQ(nrdma_gpu_buffer_write(buffer, i, size, "x", 0), NRDMA_OK);
        CHECK_EQ(nrdma_gpu_buffer_write(buffer, i, size, "x", 1), NRDMA_INVALID_PARAMETER);
        CHECK_EQ(nrdma_gpu_buffer_read(buffer, i, UINT64_MAX, in, 2), NRDMA_INVALID_PARAMETER);
        CHECK_EQ(nrdma_gpu_buffer_read(buffer, i, 0, NULL, 2), NRDMA_INVALID_PARAMETER);
    }
    CHECK_EQ(nrdma_gpu_buffer_read(buffer, info.slot_count, 0, in, 1), NRDMA_INVALID_PARAMETER);
    nrdma_clear_error();
    free(out);
    free(in);
}
#endif
