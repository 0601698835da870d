/* What a host should not do: objects that are not nrdma's, counts beyond all memory, structs that lie. */
#define _GNU_SOURCE
#include <nrdma/nrdma.h>

#include <stdatomic.h>
#include <sys/resource.h>

#include "check.h"
#include "pair.h"
#include "watch.h"

static watch_state watch;
static pair_nodes nodes;
static const nrdma_uuid class_id = {0x6d697375u, 1, 2, 3};

/* ---- an object of the host's own that answers to nothing ---- */

static atomic_int foreign_calls;
static uint32_t foreign_count(void *this)
{
    (void)this;
    atomic_fetch_add(&foreign_calls, 1);
    return 1;
}
static uint32_t (*const foreign_table[32])(void *) = {foreign_count, foreign_count};
static nrdma_buffer foreign_buffer = {foreign_table};

/* ---- the class and the job ---- */

static int responder_returns_foreign;
static atomic_int ran, failed;

static nrdma_status make(void *user, const void *payload, uint64_t size, void **replica)
{
    (void)user, (void)payload, (void)size;
    *replica = NULL;
    return NRDMA_OK;
}

static nrdma_status run_remote(void *replica, const nrdma_fragment *f, nrdma_context *c, nrdma_buffer **result)
{
    (void)replica, (void)f;
    atomic_fetch_add(&ran, 1);
    *result = responder_returns_foreign ? &foreign_buffer : nrdma_context_get_write_memory(c, 64, -1);
    return NRDMA_OK;
}

static nrdma_status run_local(void *user, const nrdma_fragment *f)
{
    (void)user, (void)f;
    atomic_fetch_add(&ran, 1);
    return NRDMA_OK;
}

static nrdma_buffer *lend(void *user, nrdma_context *c, uint64_t index)
{
    (void)index;
    return user ? &foreign_buffer : nrdma_context_get_read_memory(c, 64, -1);
}

static nrdma_status take(void *user, nrdma_buffer *b, const nrdma_result *r)
{
    (void)user, (void)b, (void)r;
    return NRDMA_OK;
}

static void note_failure(void *user, uint64_t index, nrdma_status why, const char *text)
{
    (void)user, (void)index;
    CHECK(why < 0 && text && text[0]);
    atomic_fetch_add(&failed, 1);
}

static void to_two(void *user, uint32_t *slots, uint64_t count)
{
    (void)user;
    for (uint64_t i = 0; i < count; ++i)
        slots[i] = 2;
}

static nrdma_job job_of(int mode)
{
    nrdma_job job = NRDMA_JOB_INIT;
    job.class_id = class_id;
    job.mode = mode;
    job.execute_fragment = mode == NRDMA_USER_DEFINED ? NULL : run_local;
    job.assign_hosts = to_two;
    job.get_result_buffer = lend;
    job.receive_result = take;
    job.fragment_failed = note_failure;
    atomic_store(&ran, 0);
    atomic_store(&failed, 0);
    nrdma_clear_error();
    return job;
}

/* The pair still does what it should. */
static void all_is_well(void)
{
    nrdma_job job = job_of(NRDMA_USER_DEFINED);
    responder_returns_foreign = 0;
    CHECK_EQ(nrdma_node_execute(nodes.a, &job, 3), NRDMA_OK);
    CHECK_EQ(atomic_load(&failed), 0);
}

/* ---- cases ---- */

static void foreign_results(void)
{
    nrdma_job job = job_of(NRDMA_USER_DEFINED);
    responder_returns_foreign = 1;
    CHECK_EQ(nrdma_node_execute(nodes.a, &job, 2), NRDMA_FRAGMENT_FAILED);
    CHECK_EQ(atomic_load(&failed), 2);
    CHECK(nrdma_last_error()[0] != 0);
    all_is_well();
    job = job_of(NRDMA_USER_DEFINED);
    job.user = &foreign_buffer; /* as the result buffer */
    CHECK_EQ(nrdma_node_execute(nodes.a, &job, 2), NRDMA_FRAGMENT_FAILED);
    CHECK_EQ(atomic_load(&failed), 2);
    CHECK_EQ(atomic_load(&foreign_calls), 0); /* what is not ours is not called, not even to release it */
    all_is_well();
}

static void foreign_objects(void)
{
    nrdma_context *context = nrdma_node_get_rdma_context_abi(nodes.a, 2, NRDMA_CXX_ABI_HOST);
    CHECK(context != NULL);
    nrdma_buffer *buffer = nrdma_context_get_read_memory(context, 64, -1);
    CHECK(buffer != NULL);
    uint64_t words[16] = {0};
    /* A context is no buffer and a buffer no context; neither is a thing with a table of zeros or none at all. */
    void *const wrong[] = {context, &foreign_buffer, words};
    for (int i = 0; i < 3; ++i) {
        nrdma_buffer *b = (nrdma_buffer *)wrong[i];
        nrdma_clear_error();
        CHECK_EQ(nrdma_buffer_retain(b), 0);
        CHECK(nrdma_last_error()[0] != 0);
        CHECK_EQ(nrdma_buffer_release(b), 0);
        CHECK(nrdma_buffer_get_data(b) == NULL);
        CHECK_EQ(nrdma_buffer_get_size(b), 0);
        CHECK(nrdma_buffer_duplicate(b, 0, 1) == NULL);
        CHECK_EQ(nrdma_context_flush(context, b), -1);
    }
    void *const no_context[] = {buffer, &foreign_buffer, words};
    for (int i = 0; i < 3; ++i) {
        nrdma_context *c = (nrdma_context *)no_context[i];
        CHECK(nrdma_context_get_read_memory(c, 64, -1) == NULL);
        CHECK(nrdma_context_get_write_memory(c, 64, -1) == NULL);
        CHECK_EQ(nrdma_context_release(c), 0);
        CHECK_EQ(nrdma_context_flush(c, buffer), -1);
    }
    CHECK_EQ(atomic_load(&foreign_calls), 0);
    CHECK_EQ(nrdma_buffer_release(buffer), 0);
    CHECK_EQ(nrdma_context_release(context), 0);
}

static atomic_int dones, done_status;
static void note_done(void *user, nrdma_status status)
{
    (void)user;
    atomic_store(&done_status, status);
    atomic_fetch_add(&dones, 1);
}

static long peak_kib(void)
{
    struct rusage use;
    CHECK(getrusage(RUSAGE_SELF, &use) == 0);
    return use.ru_maxrss;
}

/* A job takes no memory per fragment that has not begun, so one that would never end can be begun and called off. */
static void endless_jobs(void)
{
    const uint64_t counts[] = {1ull << 40, UINT64_MAX};
    const int modes[] = {NRDMA_LOCAL, NRDMA_CLUSTER};
    for (int m = 0; m < 2; ++m) {
        for (int c = 0; c < 2; ++c) {
            nrdma_job job = job_of(modes[m]);
            uint64_t id = 0;
            const long before = peak_kib();
            atomic_store(&dones, 0);
            CHECK_EQ(nrdma_node_execute_async(nodes.a, &job, counts[c], note_done, &id), NRDMA_OK);
            while (atomic_load(&ran) < 100)
                watch_sleep_ms(1);
            CHECK_EQ(nrdma_node_cancel(nodes.a, id), NRDMA_OK);
            while (atomic_load(&dones) == 0)
                watch_sleep_ms(1);
            CHECK_EQ(atomic_load(&done_status), NRDMA_CANCELLED);
            CHECK(peak_kib() - before < 256 << 10);
            all_is_well();
        }
    }
}

/* assign_hosts wants room for every fragment: more than there is, is an error and not the end of the host. */
static void hosts_for_more_fragments_than_memory(void)
{
    const uint64_t counts[] = {1ull << 46, 1ull << 62, UINT64_MAX};
    for (int i = 0; i < 3; ++i) {
        nrdma_job job = job_of(NRDMA_USER_DEFINED);
        const nrdma_status status = nrdma_node_execute(nodes.a, &job, counts[i]);
        CHECK(status == NRDMA_OUT_OF_MEMORY || status == NRDMA_INVALID_PARAMETER);
        CHECK(nrdma_last_error()[0] != 0);
        CHECK_EQ(atomic_load(&ran), 0);
        all_is_well();
    }
}

static void payload_beyond_all_bounds(void)
{
    static const uint64_t sizes[] = {1ull << 63, UINT64_MAX};
    static const uint8_t byte = 1;
    for (int i = 0; i < 2; ++i) {
        nrdma_job job = job_of(NRDMA_USER_DEFINED);
        job.payload = &byte;
        job.payload_size = sizes[i];
        const nrdma_status status = nrdma_node_execute(nodes.a, &job, 1);
        CHECK(status == NRDMA_OUT_OF_MEMORY || status == NRDMA_INVALID_PARAMETER);
        CHECK(nrdma_last_error()[0] != 0);
        all_is_well();
    }
}

static void sizes_that_lie(void)
{
    nrdma_peer_info info;
    nrdma_stats stats;
    uint64_t total = 0;
    memset(&info, 0x5a, sizeof info);
    const uint64_t strides[] = {0, 8, 15, UINT64_MAX, 1ull << 40};
    for (int i = 0; i < 5; ++i) {
        nrdma_clear_error();
        CHECK_EQ(nrdma_node_peers(nodes.a, &info, strides[i], 1, &total), NRDMA_INVALID_PARAMETER);
        CHECK(nrdma_last_error()[0] != 0);
        CHECK_EQ(((unsigned char *)&info)[20], 0x5a);
    }
    /* Elements of an older host: what lies behind each stays as it was. */
    CHECK_EQ(nrdma_node_peers(nodes.a, &info, 16, 1, &total), NRDMA_OK);
    CHECK(total == 1 && info.host_id == 2 && ((unsigned char *)&info)[16] == 0x5a);
    const uint64_t wrong[] = {0, 7, UINT64_MAX, 1ull << 32};
    for (int i = 0; i < 4; ++i) {
        memset(&stats, 0x5a, sizeof stats);
        stats.struct_size = wrong[i];
        CHECK_EQ(nrdma_node_stats(nodes.a, &stats), NRDMA_INVALID_PARAMETER);
        CHECK_EQ(((unsigned char *)&stats)[8], 0x5a);
    }
    memset(&stats, 0x5a, sizeof stats);
    stats.struct_size = 16;
    CHECK_EQ(nrdma_node_stats(nodes.a, &stats), NRDMA_OK);
    CHECK(((unsigned char *)&stats)[16] == 0x5a && stats.struct_size == 16);
}

static void no_node(void)
{
    char bound[8];
    uint32_t host = 5;
    CHECK_EQ(nrdma_node_listen(NULL, "unix:/x", bound, sizeof bound), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_connect(NULL, "unix:/x", &host), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_connect(nodes.b, NULL, &host), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_connect(nodes.b, "", NULL), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_listen(nodes.b, NULL, NULL, 0), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_execute(NULL, NULL, 1), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_shutdown(NULL, 0), NRDMA_INVALID_PARAMETER);
    CHECK(nrdma_node_get_rdma_context_abi(NULL, 0, NRDMA_CXX_ABI_HOST) == NULL);
    CHECK(nrdma_node_get_rdma_context_abi(nodes.a, 0, 77) == NULL);
    CHECK(nrdma_node_get_rdma_context_abi(nodes.a, 4711, NRDMA_CXX_ABI_HOST) == NULL);
    CHECK_EQ(nrdma_node_host_id(NULL), 0);
    CHECK_EQ(host, 5);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"foreign results", foreign_results},
                 {"foreign objects", foreign_objects},
                 {"endless jobs", endless_jobs},
                 {"hosts for too many", hosts_for_more_fragments_than_memory},
                 {"payload", payload_beyond_all_bounds},
                 {"sizes that lie", sizes_that_lie},
                 {"no node", no_node}};
    nrdma_job_class table = NRDMA_JOB_CLASS_INIT;
    watch_start(&watch, 60, pair_cleanup);
    pair_folder();
    pair_open(&nodes, "shm");
    table.create = make;
    table.execute_remote = run_remote;
    CHECK_EQ(nrdma_node_register_class(nodes.b, class_id, &table), NRDMA_OK);
    pair_meet(&nodes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        watch_case(&watch, cases[i].name, 20);
        cases[i].run();
    }
    pair_close(&nodes);
    return 0;
}
