/* Slots by the CUDA driver and in main memory, on the fake driver. One case is one process, because what a driver is
 * and has is decided when it is loaded: gpu_cuda CASE, with the case's environment from gpu.cmake. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu_rig.h"

static const int32_t cuda_kinds[] = {NRDMA_MEMORY_DEVICE, NRDMA_MEMORY_VMM, NRDMA_MEMORY_PINNED};

/* Nothing is left, and nothing was done wrong. */
static void nothing_left(const gpu_rig *rig)
{
    fakecuda_stats_t now;
    rig->stats(&now);
    CHECK_EQ(now.handles, 0);
    CHECK_EQ(now.maps, 0);
    CHECK_EQ(now.reservations, 0);
    CHECK_EQ(now.ctx_refs, 0);
    CHECK_EQ(now.streams, 0);
    CHECK_EQ(now.hostregs, 0);
    CHECK_EQ(now.fds, 0);
    CHECK_EQ(now.bytes, 0);
    CHECK_EQ(now.pending, 0);
    CHECK_EQ(now.violations, 0);
    CHECK_EQ(rig->depth(), 0);
}

static void kinds(void)
{
    const gpu_rig rig = gpu_load();
    for (int with_ring = 0; with_ring < 2; ++with_ring) {
        for (size_t k = 0; k < 3; ++k) {
            nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 3, 100000, cuda_kinds[k]);
            config.flags = with_ring ? NRDMA_GPU_CONTIGUOUS : 0;
            uint64_t total = 0;
            char reason[64] = "?";
            CHECK_EQ(nrdma_gpu_buffer_probe(&config, &total, reason, sizeof reason), NRDMA_OK);
            CHECK(reason[0] == 0); /* nothing was to be chosen */
            fakecuda_stats_t before;
            rig.stats(&before);
            CHECK_EQ(before.bytes, 0); /* the probe takes nothing */
            nrdma_gpu_buffer *buffer = gpu_make(&config);
            gpu_slots_apart(buffer, UNIT);
            gpu_roundtrip(buffer);
            const nrdma_gpu_buffer_info info = gpu_info(buffer);
            CHECK_EQ(info.api, NRDMA_GPU_CUDA);
            CHECK_EQ(info.memory, cuda_kinds[k]);
            CHECK_EQ(info.slot_count, 3);
            CHECK_EQ(info.flags, config.flags);
            CHECK_EQ(info.frame_bytes, 100000);
            CHECK_EQ(info.stride, with_ring ? 2 * UNIT : 0);
            CHECK_EQ(info.cuda_device, 0);
            CHECK_EQ(info.rdma_capable, 1);
            CHECK_EQ(info.needs_flush, cuda_kinds[k] != NRDMA_MEMORY_PINNED);
            CHECK(info.gpu_uuid[0] == 0x46 && info.note[0] == 0);
            /* Pinned memory may have come with a slack for its alignment. */
            CHECK(info.total_bytes >= total &&
                  (info.total_bytes == total || cuda_kinds[k] == NRDMA_MEMORY_PINNED));
            const nrdma_gpu_slot *first = nrdma_gpu_buffer_slot(buffer, 0),
                                 *last = nrdma_gpu_buffer_slot(buffer, 2);
            if (with_ring)
                CHECK_EQ(last->address - first->address, 2 * info.stride);
            CHECK_EQ(last->native_offset, with_ring ? 2 * info.stride : 0);
            CHECK((first->native != 0) == (cuda_kinds[k] == NRDMA_MEMORY_VMM));
            CHECK((first->host != NULL) == (cuda_kinds[k] == NRDMA_MEMORY_PINNED));
            CHECK_EQ(first->gpu_va, first->address);
            /* 64 KiB units, unless VMM's granularity is larger. */
            if (cuda_kinds[k] != NRDMA_MEMORY_VMM || with_ring)
                CHECK_EQ(first->size, 2 * UNIT);
            else
                CHECK_EQ(first->size, 2u << 20);
            nrdma_gpu_buffer_destroy(buffer);
            nothing_left(&rig);
        }
    }
}

/* The card's side: the fake lets tests in by another way than the device pointer. */
static void card(void)
{
    const gpu_rig rig = gpu_load();
    const nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 5000, NRDMA_MEMORY_AUTO);
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    CHECK(strstr(gpu_info(buffer).note, "cuMemAlloc on GPU 0") != NULL);
    char in[5] = "";
    memcpy(rig.alias(nrdma_gpu_buffer_slot(buffer, 1)->address), "card", 5);
    CHECK_EQ(nrdma_gpu_buffer_flush(buffer), NRDMA_OK);
    CHECK_EQ(nrdma_gpu_buffer_read(buffer, 1, 0, in, 5), NRDMA_OK);
    CHECK(strcmp(in, "card") == 0);
    CHECK_EQ(nrdma_gpu_buffer_write(buffer, 0, 4990, "0123456789", 10), NRDMA_OK);
    CHECK(memcmp((char *)rig.alias(nrdma_gpu_buffer_slot(buffer, 0)->address) + 4990, "0123456789", 10) == 0);
    unsigned sync = 0;
    CHECK_EQ(rig.pointer_attribute(&sync, 6, nrdma_gpu_buffer_slot(buffer, 0)->address), 0);
    CHECK_EQ(sync, 1);
    fakecuda_stats_t now;
    rig.stats(&now);
    CHECK_EQ(now.flushes, 1);
    nrdma_gpu_buffer_destroy(buffer);
    nothing_left(&rig);
    /* Ordered writes: the flush costs nothing. Unordered, and the driver cannot: there is none to ask for. */
    for (int ordered = 0; ordered < 2; ++ordered) {
        rig.set_attribute(ordered ? 118 : 117, ordered ? 100 : 0);
        buffer = gpu_make(&config);
        CHECK_EQ(gpu_info(buffer).needs_flush, 0);
        CHECK_EQ(nrdma_gpu_buffer_flush(buffer), NRDMA_OK);
        CHECK_EQ(nrdma_gpu_buffer_flush(NULL), NRDMA_INVALID_PARAMETER);
        nrdma_gpu_buffer_destroy(buffer);
        rig.stats(&now);
        CHECK_EQ(now.flushes, 1);
    }
}

static void unreachable(void)
{
    const gpu_rig rig = gpu_load();
    rig.set_attribute(110, 0);
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 1, NRDMA_MEMORY_VMM);
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "attribute 110 is 0");
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "use NRDMA_MEMORY_DEVICE");
    rig.set_attribute(116, 0);
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "attribute 110 is 0");
    for (int kind = NRDMA_MEMORY_AUTO; kind <= NRDMA_MEMORY_DEVICE; ++kind) {
        config.memory = kind;
        gpu_refused(&config, NRDMA_NOT_SUPPORTED, "attribute 116 is 0");
        gpu_refused(&config, NRDMA_NOT_SUPPORTED, "NRDMA_GPU_HOST_FALLBACK");
    }
    nothing_left(&rig);
    config.flags = NRDMA_GPU_ANY_MEMORY;
    for (size_t k = 0; k < 3; ++k) {
        config.memory = cuda_kinds[k];
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        CHECK_EQ(gpu_info(buffer).rdma_capable, cuda_kinds[k] == NRDMA_MEMORY_PINNED);
        gpu_roundtrip(buffer);
        nrdma_gpu_buffer_destroy(buffer);
    }
    /* Host memory is never a way out that is taken silently, but it is there. */
    config = gpu_config(NRDMA_GPU_HOST_FALLBACK, 2, 1, NRDMA_MEMORY_AUTO);
    nrdma_gpu_buffer_destroy(gpu_make(&config));
    rig.set_attribute(102, 0);
    config = gpu_config(NRDMA_GPU_CUDA, 2, 1, NRDMA_MEMORY_VMM);
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "attribute 102 of GPU 0 (Fake GPU 0) is 0");
    nothing_left(&rig);
}

static void integrated(void)
{
    const gpu_rig rig = gpu_load();
    const nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 70000, NRDMA_MEMORY_AUTO);
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    const nrdma_gpu_buffer_info info = gpu_info(buffer);
    CHECK_EQ(info.memory, NRDMA_MEMORY_PINNED);
    CHECK(strstr(info.note, "integrated (attribute 18)") != NULL);
    gpu_slots_apart(buffer, UNIT);
    gpu_roundtrip(buffer);
    memcpy(nrdma_gpu_buffer_slot(buffer, 0)->host, "cpu", 4);
    nrdma_gpu_buffer_destroy(buffer);
    nothing_left(&rig);
}

/* Reads a handle's bytes at an offset, as whoever imports it would. */
static void handle_has(int descriptor, uint64_t offset, const char *text)
{
    char *bytes = mmap(NULL, offset + 4096, PROT_READ, MAP_SHARED, descriptor, 0);
    CHECK(bytes != MAP_FAILED);
    CHECK(strcmp(bytes + offset, text) == 0);
    munmap(bytes, offset + 4096);
}

static void exports(void)
{
    const gpu_rig rig = gpu_load();
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 3, 70000, NRDMA_MEMORY_AUTO);
    config.exports = NRDMA_EXPORT_FD | NRDMA_EXPORT_DMA_BUF;
    config.flags = NRDMA_GPU_CONTIGUOUS;
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    CHECK_EQ(gpu_info(buffer).memory, NRDMA_MEMORY_VMM);
    CHECK(strstr(gpu_info(buffer).note, "opaque handle") != NULL);
    CHECK_EQ(nrdma_gpu_buffer_write(buffer, 2, 0, "two", 4), NRDMA_OK);
    nrdma_gpu_export fd = NRDMA_GPU_EXPORT_INIT, dma_buf = NRDMA_GPU_EXPORT_INIT,
                     again = NRDMA_GPU_EXPORT_INIT;
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 2, NRDMA_EXPORT_FD, &fd), NRDMA_OK);
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 2, NRDMA_EXPORT_DMA_BUF, &dma_buf), NRDMA_OK);
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 0, NRDMA_EXPORT_DMA_BUF, &again), NRDMA_OK);
    CHECK(fd.handle != dma_buf.handle && dma_buf.handle != again.handle);
    CHECK(fd.offset == 4 * UNIT && fd.size == 2u << 20);
    CHECK(dma_buf.offset == 4 * UNIT && dma_buf.size == 2u << 20 && again.offset == 0);
    CHECK_EQ(fcntl((int)fd.handle, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    handle_has((int)fd.handle, fd.offset, "two");
    handle_has((int)dma_buf.handle, dma_buf.offset, "two");
    uint64_t imported = 0;
    CHECK_EQ(rig.import_handle(&imported, (void *)fd.handle, 1), 0);
    CHECK_EQ(rig.release_handle(imported), 0);
    /* The handle keeps the memory, not the addresses. */
    nrdma_gpu_buffer_destroy(buffer);
    handle_has((int)fd.handle, fd.offset, "two");
    close((int)fd.handle);
    close((int)dma_buf.handle);
    close((int)again.handle);
    nothing_left(&rig);

    config = gpu_config(NRDMA_GPU_CUDA, 2, 70000, NRDMA_MEMORY_DEVICE);
    config.exports = NRDMA_EXPORT_DMA_BUF;
    buffer = gpu_make(&config);
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 1, NRDMA_EXPORT_DMA_BUF, &dma_buf), NRDMA_OK);
    CHECK(dma_buf.offset == 0 && dma_buf.size == 2 * UNIT);
    /* The fake's descriptor begins where the range begins: the file offset says where. */
    CHECK_EQ(lseek((int)dma_buf.handle, 0, SEEK_CUR) % UNIT, 0);
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 1, NRDMA_EXPORT_FD, &fd), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 1, 3, &fd), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 2, NRDMA_EXPORT_DMA_BUF, &fd), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 0, NRDMA_EXPORT_DMA_BUF, NULL), NRDMA_INVALID_PARAMETER);
    fd.struct_size = 0;
    CHECK_EQ(nrdma_gpu_buffer_export(buffer, 0, NRDMA_EXPORT_DMA_BUF, &fd), NRDMA_INVALID_PARAMETER);
    close((int)dma_buf.handle);
    nrdma_gpu_buffer_destroy(buffer);
    nothing_left(&rig);

    /* What could not be exported is refused at once. */
    config.exports = NRDMA_EXPORT_FD;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "NRDMA_EXPORT_FD cannot be made: it needs NRDMA_MEMORY_VMM");
    config.memory = NRDMA_MEMORY_PINNED;
    config.exports = NRDMA_EXPORT_DMA_BUF;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "host memory has none");
    config.memory = NRDMA_MEMORY_VMM;
    config.exports = NRDMA_EXPORT_WIN32;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "NRDMA_EXPORT_WIN32");
    config.exports = 16;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "0x10");
    config.exports = NRDMA_EXPORT_DMA_BUF;
    rig.set_attribute(124, 0);
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "attribute 124 of GPU 0");
    rig.set_attribute(103, 0);
    config.exports = NRDMA_EXPORT_FD;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "attribute 103 of GPU 0");
    rig.set_attribute(124, 1);
    config.exports = NRDMA_EXPORT_DMA_BUF_PCIE; /* the fake knows it only with attribute 255 */
    nrdma_gpu_buffer *none = NULL;
    CHECK_EQ(nrdma_gpu_buffer_create(&config, &none), NRDMA_NOT_SUPPORTED);
    CHECK(strstr(nrdma_last_error(), "NRDMA_EXPORT_DMA_BUF_PCIE of slot 0") != NULL);
    rig.set_attribute(255, 1);
    nrdma_gpu_buffer_destroy(gpu_make(&config));
    config = gpu_config(NRDMA_GPU_HOST_FALLBACK, 2, 70000, NRDMA_MEMORY_PAGES);
    config.exports = NRDMA_EXPORT_DMA_BUF;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "NRDMA_EXPORT_DMA_BUF");
    nothing_left(&rig);
}

/* Misuse, and sizes that overflow somewhere. */
static void misuse(void)
{
    const gpu_rig rig = gpu_load();
    static const int32_t apis[] = {NRDMA_GPU_CUDA, NRDMA_GPU_HOST_FALLBACK};
    for (size_t a = 0; a < 2; ++a) {
        nrdma_gpu_buffer_config config = gpu_config(apis[a], 1, UINT64_MAX, NRDMA_MEMORY_AUTO);
        gpu_refused(&config, NRDMA_INVALID_PARAMETER, "frame_bytes is 18446744073709551615");
        config.frame_bytes = 0;
        gpu_refused(&config, NRDMA_INVALID_PARAMETER, "frame_bytes is 0");
        config.frame_bytes = 1;
        config.slot_count = UINT32_MAX;
        gpu_refused(&config, NRDMA_INVALID_PARAMETER, "slot_count is 4294967295");
        config.slot_count = 0;
        gpu_refused(&config, NRDMA_INVALID_PARAMETER, "slot_count is 0");
        config.slot_count = 1;
        config.alignment = 65537;
        gpu_refused(&config, NRDMA_INVALID_PARAMETER, "alignment is 65537");
        config.alignment = 0;
        config.memory = 9;
        gpu_refused(&config, NRDMA_INVALID_PARAMETER, "memory is 9");
        config.memory = 0;
        config.flags = 4;
        gpu_refused(&config, NRDMA_INVALID_PARAMETER, "0x4");
        /* More than there is: none of the slots stays. */
        config = gpu_config(apis[a], 65536, (uint64_t)1 << 40, NRDMA_MEMORY_AUTO);
        nrdma_gpu_buffer *buffer = NULL;
        CHECK_EQ(nrdma_gpu_buffer_create(&config, &buffer), NRDMA_OUT_OF_MEMORY);
        config.flags = NRDMA_GPU_CONTIGUOUS;
        CHECK_EQ(nrdma_gpu_buffer_create(&config, &buffer), NRDMA_OUT_OF_MEMORY);
        config = gpu_config(apis[a], 1, 1, NRDMA_MEMORY_AUTO);
        CHECK_EQ(nrdma_gpu_buffer_create(&config, NULL), NRDMA_INVALID_PARAMETER);
        config.struct_size = 0;
        gpu_refused(&config, NRDMA_INVALID_PARAMETER, "struct_size is 0");
    }
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_NONE, 1, 1, 0);
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "NRDMA_GPU_NONE");
    config.api = 5;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "api is 5");
    config.api = -1;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "api is -1");
    gpu_refused(NULL, NRDMA_INVALID_PARAMETER, "nrdma_gpu_buffer_config is NULL");
    config = gpu_config(NRDMA_GPU_CUDA, 1, 1, NRDMA_MEMORY_PAGES);
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "NRDMA_MEMORY_PAGES is no kind of CUDA memory");
    config = gpu_config(NRDMA_GPU_HOST_FALLBACK, 1, 1, NRDMA_MEMORY_DEVICE);
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "NRDMA_MEMORY_DEVICE is no kind of host memory");
    config = gpu_config(NRDMA_GPU_CUDA, 1, 1, 0);
    config.cuda_device = 7;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "cuda_device is 7");
    config.cuda_device = -1;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "cuda_device is -1");
    nrdma_gpu_buffer_info info = NRDMA_GPU_BUFFER_INFO_INIT;
    CHECK_EQ(nrdma_gpu_buffer_get_info(NULL, &info), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_gpu_buffer_get_info(NULL, NULL), NRDMA_INVALID_PARAMETER);
    char reason[4] = "";
    config.cuda_device = 0;
    CHECK_EQ(nrdma_gpu_buffer_probe(&config, NULL, reason, sizeof reason), NRDMA_OK);
    CHECK(strcmp(reason, "cuM") == 0);
    CHECK_EQ(nrdma_gpu_buffer_probe(&config, NULL, NULL, 0), NRDMA_OK);
    /* destroy is no failing call, and no other. */
    CHECK_EQ(nrdma_gpu_buffer_get_info(NULL, &info), NRDMA_INVALID_PARAMETER);
    char *kept = strdup(nrdma_last_error());
    nrdma_gpu_buffer_destroy(NULL);
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    rig.fail("cuCtxPushCurrent", 1, 999);
    nrdma_gpu_buffer_destroy(buffer);
    CHECK(strcmp(nrdma_last_error(), kept) == 0);
    free(kept);
    rig.fail("*", 0, 0);
}

/* The driver's addresses begin anywhere; slots do not. */
static void suballocated(void)
{
    const gpu_rig rig = gpu_load();
    for (int ring = 0; ring < 2; ++ring) {
        nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 4, 3584, NRDMA_MEMORY_DEVICE);
        config.flags = ring ? NRDMA_GPU_CONTIGUOUS : 0;
        config.exports = NRDMA_EXPORT_DMA_BUF;
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        gpu_slots_apart(buffer, UNIT);
        gpu_roundtrip(buffer);
        const nrdma_gpu_buffer_info info = gpu_info(buffer);
        CHECK_EQ(info.total_bytes, ring ? 5 * UNIT : 8 * UNIT); /* with room to begin later */
        nrdma_gpu_export out = NRDMA_GPU_EXPORT_INIT;
        CHECK_EQ(nrdma_gpu_buffer_export(buffer, 3, NRDMA_EXPORT_DMA_BUF, &out), NRDMA_OK);
        CHECK_EQ(out.offset, ring ? 3 * UNIT : 0);
        close((int)out.handle);
        nrdma_gpu_buffer_destroy(buffer);
        nothing_left(&rig);
    }
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 1, NRDMA_MEMORY_DEVICE);
    config.alignment = 4u << 20;
    for (size_t k = 0; k < 3; ++k) {
        config.memory = cuda_kinds[k];
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        gpu_slots_apart(buffer, 4u << 20);
        nrdma_gpu_buffer_destroy(buffer);
    }
    nothing_left(&rig);
}

/* Copies that run only when somebody waits for them are complete all the same. */
static void deferred(void)
{
    const gpu_rig rig = gpu_load();
    for (size_t k = 0; k < 3; ++k) {
        const nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 100000, cuda_kinds[k]);
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        gpu_roundtrip(buffer);
        CHECK_EQ(nrdma_gpu_buffer_write(buffer, 0, 0, "now", 4), NRDMA_OK);
        if (cuda_kinds[k] != NRDMA_MEMORY_PINNED)
            CHECK(strcmp(rig.alias(nrdma_gpu_buffer_slot(buffer, 0)->address), "now") == 0);
        nrdma_gpu_buffer_destroy(buffer);
        nothing_left(&rig);
    }
}

static void host_memory(void)
{
    const gpu_rig rig = gpu_load();
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_HOST_FALLBACK, 3, 100000, NRDMA_MEMORY_AUTO);
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    nrdma_gpu_buffer_info info = gpu_info(buffer);
    CHECK_EQ(info.memory, NRDMA_MEMORY_PAGES);
    CHECK_EQ(info.cuda_device, -1);
    CHECK_EQ(info.total_bytes, 6 * UNIT);
    CHECK(info.note[0] != 0 && info.needs_flush == 0);
    gpu_slots_apart(buffer, UNIT);
    gpu_roundtrip(buffer);
    const nrdma_gpu_slot *slot = nrdma_gpu_buffer_slot(buffer, 1);
    CHECK(slot->host == (void *)(uintptr_t)slot->address && slot->gpu_va == 0);
    unsigned char resident[32] = {0};
    CHECK_EQ(mincore(slot->host, 2 * UNIT, resident), 0); /* all pages are there */
    for (size_t i = 0; i < sizeof resident; ++i)
        CHECK(resident[i] & 1);
    nrdma_gpu_buffer_destroy(buffer);
    CHECK_EQ(rig.calls("*"), 0); /* and the driver was not asked */
    config.memory = NRDMA_MEMORY_PINNED;
    config.flags = NRDMA_GPU_CONTIGUOUS;
    buffer = gpu_make(&config);
    info = gpu_info(buffer);
    CHECK(info.memory == NRDMA_MEMORY_PINNED && info.api == NRDMA_GPU_HOST_FALLBACK && info.cuda_device == 0);
    fakecuda_stats_t now;
    rig.stats(&now);
    CHECK_EQ(now.hostregs, 1);
    gpu_slots_apart(buffer, UNIT);
    gpu_roundtrip(buffer);
    slot = nrdma_gpu_buffer_slot(buffer, 1);
    CHECK(slot->host != NULL && slot->gpu_va != 0 && slot->native_offset == 2 * UNIT);
    nrdma_gpu_buffer_destroy(buffer);
    nothing_left(&rig);
}

/* The log's sink: counts what a ladder of refusals would show to people. */
static void count_log(void *user, int32_t level, const char *target, const char *message)
{
    (void)target;
    (void)message;
    ((int *)user)[level <= NRDMA_LOG_INFO ? 0 : 1] += 1;
}

static void quiet(void)
{
    const gpu_rig rig = gpu_load();
    int seen[2] = {0, 0};
    CHECK_EQ(nrdma_set_log(count_log, seen, NRDMA_LOG_DEBUG, NULL, NULL), NRDMA_OK);
    rig.set_attribute(116, 0);
    const nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 1, NRDMA_MEMORY_AUTO);
    nrdma_gpu_buffer *buffer = NULL;
    CHECK_EQ(nrdma_gpu_buffer_create(&config, &buffer), NRDMA_NOT_SUPPORTED);
    CHECK_EQ(seen[0], 0);
    CHECK_EQ(seen[1], 1);
    CHECK_EQ(nrdma_set_log(NULL, NULL, NRDMA_LOG_OFF, NULL, NULL), NRDMA_OK);
}

/* BAR1 of 256 MiB, of 64 GiB, and NVML that does not know. */
static void ring_depth(void)
{
    const char *bar1 = getenv("FAKENVML_BAR1");
    CHECK(bar1 != NULL);
    const uint64_t window = strtoull(bar1, NULL, 0), frame = 33177600; /* 4K, 4 bytes a pixel */
    const uint32_t depth = nrdma_gpu_ring_depth(0, frame, 6, 3);
    if (window != 0)
        CHECK_EQ(depth, 6 * (frame + UNIT) > window / 2 ? 3 : 6);
    else
        CHECK_EQ(depth, 6); /* below 32 MiB */
    CHECK_EQ(nrdma_gpu_ring_depth(-1, frame, 6, 3), 6);
    CHECK_EQ(nrdma_gpu_ring_depth(-1, 32 << 20, 6, 3), 3);
    CHECK_EQ(nrdma_gpu_ring_depth(99, 32 << 20, 6, 3), 3);
    CHECK_EQ(nrdma_gpu_ring_depth(0, UINT64_MAX, UINT32_MAX, 3), 3);
    CHECK(nrdma_last_error()[0] == 0);
}

/* No driver, a stub, no GPU: CUDA says so, and host memory is there. */
static void without(const char *part)
{
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 100000, NRDMA_MEMORY_AUTO);
    for (int twice = 0; twice < 2; ++twice)
        gpu_refused(&config, NRDMA_DRIVER_MISSING, part);
    gpu_refused(&config, NRDMA_DRIVER_MISSING, "NRDMA_GPU_HOST_FALLBACK");
    config.api = NRDMA_GPU_HOST_FALLBACK;
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    gpu_roundtrip(buffer);
    nrdma_gpu_buffer_destroy(buffer);
    config.memory = NRDMA_MEMORY_PINNED;
    gpu_refused(&config, NRDMA_DRIVER_MISSING, part);
    CHECK_EQ(nrdma_gpu_ring_depth(0, 1, 6, 3), 6);
}

/* A driver of CUDA 11.2: no dma-buf, no flush, no cuDeviceGetUuid_v2. */
static void old_driver(void)
{
    const gpu_rig rig = gpu_load();
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 100000, NRDMA_MEMORY_AUTO);
    for (size_t k = 0; k < 3; ++k) {
        config.memory = cuda_kinds[k];
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        gpu_roundtrip(buffer);
        CHECK_EQ(gpu_info(buffer).needs_flush, 0);
        CHECK_EQ(gpu_info(buffer).gpu_uuid[0], 0x46);
        nrdma_gpu_buffer_destroy(buffer);
    }
    config.exports = NRDMA_EXPORT_DMA_BUF;
    config.memory = NRDMA_MEMORY_DEVICE;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "no cuMemGetHandleForAddressRange");
    nothing_left(&rig);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"kinds", kinds},
                 {"card", card},
                 {"unreachable", unreachable},
                 {"integrated", integrated},
                 {"exports", exports},
                 {"misuse", misuse},
                 {"suballocated", suballocated},
                 {"deferred", deferred},
                 {"host_memory", host_memory},
                 {"quiet", quiet},
                 {"ring_depth", ring_depth},
                 {"old_driver", old_driver}};
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        if (strcmp(cases[i].name, name) == 0) {
            cases[i].run();
            return 0;
        }
    if (strcmp(name, "without") == 0 && argc > 2) {
        without(argv[2]);
        return 0;
    }
    fprintf(stderr, "no case \"%s\"\n", name);
    return 2;
}
