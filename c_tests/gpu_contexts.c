/* Slots in hosts that have CUDA contexts of their own, or none, or another GPU's: the host's current context is never
 * touched, and the order in which things go does not matter. gpu_contexts CASE, with two fake GPUs. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_rig.h"

static const int32_t kinds[] = {NRDMA_MEMORY_DEVICE, NRDMA_MEMORY_VMM, NRDMA_MEMORY_PINNED};

static void *current(const gpu_rig *rig)
{
    void *context = NULL;
    CHECK_EQ(rig->ctx_get_current(&context), 0);
    return context;
}

/* Everything that a buffer can do. */
static void *use(void *config)
{
    nrdma_gpu_buffer *buffer = gpu_make((const nrdma_gpu_buffer_config *)config);
    gpu_roundtrip(buffer);
    CHECK_EQ(nrdma_gpu_buffer_flush(buffer), NRDMA_OK);
    if (((const nrdma_gpu_buffer_config *)config)->exports != 0) {
        nrdma_gpu_export out = NRDMA_GPU_EXPORT_INIT;
        CHECK_EQ(nrdma_gpu_buffer_export(buffer, 0, NRDMA_EXPORT_DMA_BUF, &out), NRDMA_OK);
        close((int)out.handle);
    }
    nrdma_gpu_buffer_destroy(buffer);
    return NULL;
}

static void *destroy(void *buffer)
{
    nrdma_gpu_buffer_destroy((nrdma_gpu_buffer *)buffer);
    return NULL;
}

static void on_a_thread(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, run, arg), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* None, the same GPU's, the same context, another GPU's: it is as it was, and so is its place on the stack. */
static void untouched(void)
{
    const gpu_rig rig = gpu_load();
    for (size_t k = 0; k < 3; ++k) {
        nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 5000, kinds[k]);
        config.exports = kinds[k] == NRDMA_MEMORY_PINNED ? 0 : NRDMA_EXPORT_DMA_BUF;
        use(&config);
        CHECK(current(&rig) == NULL && rig.depth() == 0);
        void *primary = NULL, *own = NULL, *other = NULL, *popped = NULL;
        CHECK_EQ(rig.primary_retain(&primary, 0), 0);
        CHECK_EQ(rig.ctx_push(primary), 0);
        use(&config);
        CHECK(current(&rig) == primary && rig.depth() == 1);
        CHECK_EQ(rig.ctx_create(&own, 0, 0), 0);
        use(&config);
        CHECK(current(&rig) == own && rig.depth() == 2);
        CHECK_EQ(rig.ctx_create(&other, 0, 1), 0);
        use(&config);
        CHECK(current(&rig) == other && rig.depth() == 3);
        on_a_thread(use, &config);
        CHECK(current(&rig) == other && rig.depth() == 3);
        config.cuda_context = own;
        use(&config);
        config.cuda_context = other; /* names GPU 1 by itself */
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        CHECK_EQ(gpu_info(buffer).cuda_device, 1);
        nrdma_gpu_buffer_destroy(buffer);
        CHECK(current(&rig) == other && rig.depth() == 3);
        CHECK_EQ(rig.ctx_destroy(other), 0);
        CHECK_EQ(rig.ctx_destroy(own), 0);
        CHECK_EQ(rig.ctx_pop(&popped), 0);
        CHECK(popped == primary);
        CHECK_EQ(rig.primary_release(0), 0);
    }
}

/* The host lets go of its primary context while slots live, and destroys them afterwards, on another thread. */
static void released_under(void)
{
    const gpu_rig rig = gpu_load();
    for (size_t k = 0; k < 3; ++k) {
        const nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 3, 5000, kinds[k]);
        void *primary = NULL, *popped = NULL;
        CHECK_EQ(rig.init(0), 0);
        CHECK_EQ(rig.primary_retain(&primary, 0), 0);
        CHECK_EQ(rig.ctx_push(primary), 0);
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        CHECK_EQ(rig.ctx_pop(&popped), 0);
        CHECK_EQ(rig.primary_release(0), 0);
        gpu_roundtrip(buffer);
        on_a_thread(destroy, buffer);
    }
}

/* Memory in the host's own context goes with it when the host destroys that first: no crash, nothing freed twice. */
static void context_gone(void)
{
    const gpu_rig rig = gpu_load();
    CHECK_EQ(rig.init(0), 0);
    for (size_t k = 0; k < 2; ++k) {
        nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 3, 5000, kinds[k]);
        void *own = NULL, *primary = NULL;
        CHECK_EQ(rig.ctx_create(&own, 0, 0), 0);
        config.cuda_context = own;
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        fakecuda_stats_t now;
        rig.stats(&now);
        CHECK_EQ(now.ctx_refs, 0); /* the host's own is enough */
        CHECK_EQ(rig.primary_retain(&primary, 0), 0);
        CHECK_EQ(rig.ctx_destroy(own), 0);
        char byte;
        if (kinds[k] == NRDMA_MEMORY_DEVICE)
            CHECK_EQ(nrdma_gpu_buffer_read(buffer, 0, 0, &byte, 1), NRDMA_DRIVER_ERROR);
        nrdma_gpu_buffer_destroy(buffer);
        CHECK_EQ(rig.primary_release(0), 0);
    }
}

/* Which GPU: by ordinal, by UUID, by context, and not by two of them that differ. */
static void choice(void)
{
    const gpu_rig rig = gpu_load();
    uint8_t uuid[16];
    memset(uuid, 0x46, sizeof uuid);
    uuid[15] = 1;
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 1, 5000, NRDMA_MEMORY_AUTO);
    config.gpu_uuid = uuid;
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    CHECK_EQ(gpu_info(buffer).cuda_device, 1);
    CHECK(memcmp(gpu_info(buffer).gpu_uuid, uuid, sizeof uuid) == 0);
    nrdma_gpu_buffer_destroy(buffer);
    uuid[15] = 2;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "46464646464646464646464646464602");
    uuid[15] = 1;
    void *own = NULL, *popped = NULL;
    CHECK_EQ(rig.ctx_create(&own, 0, 0), 0);
    CHECK_EQ(rig.ctx_pop(&popped), 0);
    config.cuda_context = own;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "cuda_context is on GPU 0");
    config.gpu_uuid = NULL;
    config.cuda_device = 1;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "the config names GPU 1");
    config.cuda_device = 0;
    nrdma_gpu_buffer_destroy(gpu_make(&config));
    CHECK_EQ(rig.ctx_destroy(own), 0);
    config.cuda_context = NULL;
    config.cuda_device = 1;
    buffer = gpu_make(&config);
    CHECK_EQ(gpu_info(buffer).cuda_device, 1);
    nrdma_gpu_buffer_destroy(buffer);
}

/* Many threads, each with its own buffers. */
static void *churn(void *arg)
{
    for (int i = 0; i < 20; ++i) {
        nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 3000, kinds[i % 3]);
        config.cuda_device = i % 2;
        use(&config);
    }
    return arg;
}

static void threads(void)
{
    gpu_load();
    pthread_t all[4];
    for (int i = 0; i < 4; ++i)
        CHECK_EQ(pthread_create(&all[i], NULL, churn, NULL), 0);
    for (int i = 0; i < 4; ++i)
        CHECK_EQ(pthread_join(all[i], NULL), 0);
}

/* A fork has nothing of it: an error for every call, and the parent's slots live on. */
static void forked(void)
{
    gpu_load();
    const nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_CUDA, 2, 5000, NRDMA_MEMORY_DEVICE);
    nrdma_gpu_buffer *buffer = gpu_make(&config), *another = NULL;
    const pid_t child = fork();
    if (child == 0) {
        int good = nrdma_gpu_buffer_flush(buffer) == NRDMA_AFTER_FORK;
        good &= nrdma_gpu_buffer_create(&config, &another) == NRDMA_AFTER_FORK && another == NULL;
        good &= nrdma_gpu_ring_depth(0, 1, 6, 3) == 6;
        nrdma_gpu_buffer_destroy(buffer);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    gpu_roundtrip(buffer);
    nrdma_gpu_buffer_destroy(buffer);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"untouched", untouched},       {"released_under", released_under},
                 {"context_gone", context_gone}, {"choice", choice},
                 {"threads", threads},           {"forked", forked}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        if (argc > 1 && strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}
