/* Every call of the CUDA driver is made to fail, at every position of the life of a buffer: a clear error or success,
 * nothing left, the context stack as it was. A call that frees cannot be made to fail without losing what it should have
 * freed: then that is lost, and nothing else, and the next buffer works. gpu_faults CASE [clean]: the second leaves
 * those calls alone, so that the strict fake must find nothing at exit. */
#include <unistd.h>

#include "gpu_rig.h"

static const struct {
    const char *name;
    int32_t api, memory;
    uint32_t exports, flags;
} cases[] = {
    {"DEVICE", NRDMA_GPU_CUDA, NRDMA_MEMORY_DEVICE, NRDMA_EXPORT_DMA_BUF, 0},
    {"VMM", NRDMA_GPU_CUDA, NRDMA_MEMORY_VMM, NRDMA_EXPORT_DMA_BUF | NRDMA_EXPORT_FD, 0},
    {"RING", NRDMA_GPU_CUDA, NRDMA_MEMORY_VMM, NRDMA_EXPORT_FD, NRDMA_GPU_CONTIGUOUS},
    {"PINNED", NRDMA_GPU_CUDA, NRDMA_MEMORY_PINNED, 0, 0},
    {"HOST", NRDMA_GPU_HOST_FALLBACK, NRDMA_MEMORY_PINNED, 0, 0},
};

/* What frees, and what is then lost: counters of handles, maps, reservations, ctx_refs, streams, hostregs. */
static const struct {
    const char *symbol;
    int handles, maps, reservations, ctx_refs, streams, hostregs;
} losers[] = {
    {"cuMemFree", 0, 1, 1, 0, 0, 0},
    /* Still mapped: its addresses stay, and so does its memory, although its handle goes. */
    {"cuMemUnmap", 0, 1, 1, 0, 0, 0},
    {"cuMemAddressFree", 0, 0, 1, 0, 0, 0},
    {"cuMemRelease", 1, 0, 0, 0, 0, 0},
    {"cuMemFreeHost", 0, 0, 0, 0, 0, 1},
    {"cuMemHostUnregister", 0, 0, 0, 0, 0, 1},
    {"cuDevicePrimaryCtxRelease", 0, 0, 0, 1, 0, 0},
    {"cuStreamDestroy", 0, 0, 0, 0, 1, 0},
};

static int frees(const char *symbol)
{
    for (size_t i = 0; i < sizeof losers / sizeof losers[0]; ++i)
        if (strcmp(losers[i].symbol, symbol) == 0)
            return 1;
    return 0;
}

/* A status other than OK comes with a sentence. */
static int said(nrdma_status status)
{
    if (status == NRDMA_OK)
        return 0;
    CHECK(status == NRDMA_DRIVER_ERROR || status == NRDMA_OUT_OF_MEMORY || status == NRDMA_NOT_SUPPORTED ||
          status == NRDMA_DRIVER_MISSING);
    CHECK(strlen(nrdma_last_error()) > 20);
    nrdma_clear_error();
    return 1;
}

/* The life of a buffer. Returns how many of its calls failed. */
static int life(const nrdma_gpu_buffer_config *config)
{
    nrdma_gpu_buffer *buffer = NULL;
    int failed = said(nrdma_gpu_buffer_probe(config, NULL, NULL, 0));
    if (said(nrdma_gpu_buffer_create(config, &buffer))) {
        CHECK(buffer == NULL);
        return failed + 1;
    }
    unsigned char out[3000], in[3000];
    memset(out, 0x5a, sizeof out);
    memset(in, 0, sizeof in);
    const int wrote = said(nrdma_gpu_buffer_write(buffer, 1, 100, out, sizeof out));
    const int read = said(nrdma_gpu_buffer_read(buffer, 1, 100, in, sizeof in));
    if (!wrote && !read)
        CHECK(memcmp(out, in, sizeof in) == 0);
    failed += wrote + read + said(nrdma_gpu_buffer_flush(buffer));
    for (uint32_t type = 1; type <= NRDMA_EXPORT_FD; type *= 2) {
        nrdma_gpu_export handle = NRDMA_GPU_EXPORT_INIT;
        if ((config->exports & type) == 0)
            continue;
        if (said(nrdma_gpu_buffer_export(buffer, 1, type, &handle))) {
            ++failed;
            CHECK_EQ(handle.handle, -1);
        } else {
            close((int)handle.handle);
        }
    }
    nrdma_gpu_buffer_destroy(buffer);
    return failed;
}

int main(int argc, char **argv)
{
    size_t which = 0;
    const size_t count = sizeof cases / sizeof cases[0];
    while (which < count && (argc < 2 || strcmp(cases[which].name, argv[1]) != 0))
        ++which;
    CHECK(which < count);
    nrdma_gpu_buffer_config config = gpu_config(cases[which].api, 2, 5000, cases[which].memory);
    config.exports = cases[which].exports;
    config.flags = cases[which].flags;
    const gpu_rig rig = gpu_load();
    /* With a context of the host's own under everything. */
    void *own = NULL, *now = NULL, *primary = NULL;
    CHECK_EQ(rig.init(0), 0);
    /* And one reference to the primary context, so that what was lost does not go with it. */
    CHECK_EQ(rig.primary_retain(&primary, 0), 0);
    CHECK_EQ(rig.ctx_create(&own, 0, 0), 0);
    CHECK_EQ(life(&config), 0);
    const int clean = argc > 2 && strcmp(argv[2], "clean") == 0;
    const unsigned first = rig.calls("*");
    CHECK_EQ(life(&config), 0);
    unsigned position = 1;
    int errors = 0, harmless = 0, lost = 0;
    static const int codes[] = {2, 999, 801, 12345};
    for (;; ++position) {
        fakecuda_stats_t before, after;
        if (clean && rig.symbol(first + position) != NULL && frees(rig.symbol(first + position)))
            continue;
        rig.stats(&before);
        rig.fail("*", position, codes[position % 4]);
        const int failed = life(&config);
        char symbol[64];
        snprintf(symbol, sizeof symbol, "%s", rig.failed());
        rig.fail("*", 0, 0);
        if (symbol[0] == 0)
            break;
        rig.stats(&after);
        const int losses[6] = {after.handles - before.handles,           after.maps - before.maps,
                               after.reservations - before.reservations, after.ctx_refs - before.ctx_refs,
                               after.streams - before.streams,           after.hostregs - before.hostregs};
        int expected[6] = {0, 0, 0, 0, 0, 0}, loses = 0;
        for (size_t i = 0; i < sizeof losers / sizeof losers[0]; ++i)
            if (strcmp(losers[i].symbol, symbol) == 0) {
                const int all[6] = {losers[i].handles,  losers[i].maps,    losers[i].reservations,
                                    losers[i].ctx_refs, losers[i].streams, losers[i].hostregs};
                memcpy(expected, all, sizeof expected);
                loses = 1;
            }
        if (memcmp(losses, expected, sizeof losses) != 0)
            fprintf(
                stderr,
                "%s at %u: lost %d handles, %d maps, %d reservations, %d contexts, %d streams, %d pinned\n",
                symbol, position, losses[0], losses[1], losses[2], losses[3], losses[4], losses[5]);
        CHECK(memcmp(losses, expected, sizeof losses) == 0);
        CHECK_EQ(after.fds, before.fds);
        CHECK_EQ(after.pending, 0);
        CHECK_EQ(after.violations, before.violations);
        CHECK_EQ(rig.depth(), 1);
        CHECK_EQ(rig.ctx_get_current(&now), 0);
        CHECK(now == own);
        errors += failed > 0;
        CHECK(!(clean && loses));
        harmless += failed == 0 && !loses;
        lost += loses;
        CHECK_EQ(life(&config), 0);
    }
    fprintf(stderr, "%u positions: %d errors, %d harmless, %d that lost what they should have freed\n",
            position - 1, errors, harmless, lost);
    CHECK(position > 20 && errors > 10);
    CHECK_EQ(rig.ctx_destroy(own), 0);
    CHECK_EQ(rig.primary_release(0), 0);
    return 0;
}
