/* The job functions from plain C: two nodes of this process, every callback kind, and every refusal. */
#define _GNU_SOURCE
#include <nrdma/nrdma.h>

#include <stdatomic.h>

#include "check.h"
#include "pair.h"
#include "pattern.h"
#include "watch.h"

static watch_state watch;
static pair_nodes nodes;
static const nrdma_uuid class_id = {0x6a6f6273u, 1, 2, 3};

/* ---- the class on the responding side ---- */

static atomic_int created, destroyed;

static nrdma_status make_replica(void *user, const void *payload, uint64_t size, void **replica)
{
    uint64_t *copy = (uint64_t *)malloc(sizeof *copy);
    CHECK(user == &created && size == sizeof *copy && copy != NULL);
    memcpy(copy, payload, sizeof *copy);
    atomic_fetch_add(&created, 1);
    *replica = copy;
    return NRDMA_OK;
}

static nrdma_status run_remote(void *replica, const nrdma_fragment *f, nrdma_context *c, nrdma_buffer **result)
{
    const uint64_t size = *(const uint64_t *)replica;
    if (f->index == 3)
        return NRDMA_OK; /* nothing to send */
    if (f->index == 4)
        return NRDMA_NOT_SUPPORTED;
    nrdma_buffer *b = nrdma_context_get_write_memory(c, size, -1);
    if (!b)
        return NRDMA_OUT_OF_MEMORY;
    pattern_fill(nrdma_buffer_get_data(b), size, 900 + f->index, 0);
    if (nrdma_context_flush(c, b) != 0 || nrdma_context_flush(c, NULL) != NRDMA_INVALID_PARAMETER) {
        nrdma_buffer_release(b);
        return NRDMA_PANIC;
    }
    pattern_fill(nrdma_buffer_get_data(b), size, f->index, 0);
    *result = b;
    return NRDMA_OK;
}

static nrdma_status run_bytes(void *replica, const nrdma_fragment *f, nrdma_writer *w)
{
    const uint64_t size = *(const uint64_t *)replica;
    uint8_t *bytes = (uint8_t *)malloc(size);
    CHECK(bytes != NULL);
    pattern_fill(bytes, size, f->index, 0);
    nrdma_status status = nrdma_writer_write(w, bytes, size / 3);
    if (status == NRDMA_OK)
        status = nrdma_writer_flush(w);
    if (status == NRDMA_OK)
        status = nrdma_writer_write(w, bytes + size / 3, size - size / 3);
    if (status == NRDMA_OK && nrdma_writer_write(w, NULL, 5) != NRDMA_INVALID_PARAMETER)
        status = NRDMA_PANIC;
    if (status == NRDMA_OK && nrdma_writer_write(w, NULL, 0) != NRDMA_OK)
        status = NRDMA_PANIC;
    free(bytes);
    return status;
}

static void drop_replica(void *replica)
{
    atomic_fetch_add(&destroyed, 1);
    free(replica);
}

/* ---- the job on the requesting side ---- */

enum { MOST = 64 };
typedef struct ledger {
    uint64_t size;
    atomic_int partial[MOST], final[MOST], local[MOST], failed[MOST];
    atomic_int bad, cancels, dones, status;
    uint64_t offset[MOST];
} ledger;

static nrdma_status run_local(void *user, const nrdma_fragment *f)
{
    atomic_fetch_add(&((ledger *)user)->local[f->index], 1);
    return f->index == 5 ? NRDMA_NOT_SUPPORTED : NRDMA_OK;
}

static nrdma_buffer *lend(void *user, nrdma_context *c, uint64_t index)
{
    (void)index;
    return nrdma_context_get_read_memory(c, ((ledger *)user)->size, -1);
}

static nrdma_status take(void *user, nrdma_buffer *b, const nrdma_result *r)
{
    ledger *l = (ledger *)user;
    const int last = (r->flags & NRDMA_RESULT_FINAL) != 0;
    atomic_fetch_add(last ? &l->final[r->index] : &l->partial[r->index], 1);
    if (r->size != l->size || nrdma_buffer_get_size(b) != l->size || r->host_id != 2 || r->sequence != (uint32_t)last ||
        !pattern_holds(nrdma_buffer_get_data(b), l->size, last ? r->index : 900 + r->index, 0))
        atomic_fetch_add(&l->bad, 1);
    return NRDMA_OK;
}

static nrdma_status take_bytes(void *user, const uint8_t *bytes, const nrdma_result *r)
{
    ledger *l = (ledger *)user;
    const int last = (r->flags & NRDMA_RESULT_FINAL) != 0;
    atomic_fetch_add(last ? &l->final[r->index] : &l->partial[r->index], 1);
    if (!pattern_holds(bytes, r->size, r->index, l->offset[r->index]))
        atomic_fetch_add(&l->bad, 1);
    l->offset[r->index] += r->size;
    return NRDMA_OK;
}

static void to_two(void *user, uint32_t *slots, uint64_t count)
{
    (void)user;
    for (uint64_t i = 0; i < count; ++i)
        slots[i] = 2;
}

static void note_failure(void *user, uint64_t index, nrdma_status why, const char *text)
{
    ledger *l = (ledger *)user;
    atomic_fetch_add(&l->failed[index], 1);
    if (why >= 0 || !text || !text[0])
        atomic_fetch_add(&l->bad, 1);
}

static void note_cancel(void *user)
{
    atomic_fetch_add(&((ledger *)user)->cancels, 1);
}

static void note_done(void *user, nrdma_status status)
{
    atomic_store(&((ledger *)user)->status, status);
    atomic_fetch_add(&((ledger *)user)->dones, 1);
}

static nrdma_job job_for(ledger *l, uint64_t size)
{
    nrdma_job job = NRDMA_JOB_INIT;
    memset(l, 0, sizeof *l);
    l->size = size;
    job.user = l;
    job.class_id = class_id;
    job.payload = &l->size;
    job.payload_size = sizeof l->size;
    job.mode = NRDMA_USER_DEFINED;
    job.assign_hosts = to_two;
    job.get_result_buffer = lend;
    job.receive_result = take;
    job.fragment_failed = note_failure;
    job.cancel = note_cancel;
    return job;
}

static ledger book;

static void with_buffers(void)
{
    const uint64_t sizes[] = {8, 5000, 65536, 300007};
    for (int s = 0; s < 4; ++s) {
        nrdma_job job = job_for(&book, sizes[s]);
        CHECK_EQ(nrdma_node_execute(nodes.a, &job, 3), NRDMA_OK);
        for (int i = 0; i < 3; ++i)
            CHECK(atomic_load(&book.partial[i]) == 1 && atomic_load(&book.final[i]) == 1);
        CHECK_EQ(atomic_load(&book.bad), 0);
        /* Fragment 3 sends nothing, 4 fails, the others are not touched by it. */
        job = job_for(&book, sizes[s]);
        CHECK_EQ(nrdma_node_execute(nodes.a, &job, 7), NRDMA_FRAGMENT_FAILED);
        CHECK(nrdma_last_error()[0] != 0);
        for (int i = 0; i < 7; ++i) {
            CHECK_EQ(atomic_load(&book.final[i]), i != 3 && i != 4);
            CHECK_EQ(atomic_load(&book.failed[i]), i == 4);
        }
        CHECK_EQ(atomic_load(&book.bad), 0);
        CHECK_EQ(atomic_load(&book.cancels), 0);
    }
}

static void with_bytes(void)
{
    const uint64_t sizes[] = {3, 5000, 3u << 20};
    for (int s = 0; s < 3; ++s) {
        nrdma_job job = job_for(&book, sizes[s]);
        job.get_result_buffer = NULL;
        job.receive_result = NULL;
        job.receive_bytes = take_bytes;
        CHECK_EQ(nrdma_node_execute(nodes.a, &job, 4), NRDMA_OK);
        for (int i = 0; i < 4; ++i) {
            CHECK(atomic_load(&book.partial[i]) == 1 && atomic_load(&book.final[i]) == 1);
            CHECK_EQ(book.offset[i], sizes[s]);
        }
        CHECK_EQ(atomic_load(&book.bad), 0);
    }
}

static void local_jobs(void)
{
    nrdma_job job = job_for(&book, 8);
    job.mode = NRDMA_LOCAL;
    job.execute_fragment = run_local;
    CHECK_EQ(nrdma_node_execute(nodes.a, &job, 5), NRDMA_OK);
    CHECK_EQ(nrdma_node_execute(nodes.a, &job, 8), NRDMA_FRAGMENT_FAILED);
    for (int i = 0; i < 8; ++i) {
        CHECK_EQ(atomic_load(&book.local[i]), i < 5 ? 2 : 1);
        CHECK_EQ(atomic_load(&book.failed[i]), i == 5);
    }
    job = job_for(&book, 8);
    job.mode = NRDMA_CLUSTER; /* here or there, each once; 3, 4 and 5 have their own ends */
    job.execute_fragment = run_local;
    CHECK_EQ(nrdma_node_execute(nodes.a, &job, 3), NRDMA_OK);
    for (int i = 0; i < 3; ++i)
        CHECK_EQ(atomic_load(&book.local[i]) + atomic_load(&book.final[i]), 1);
}

static void asynchronous(void)
{
    nrdma_job job = job_for(&book, 1000);
    uint64_t id = 0;
    CHECK_EQ(nrdma_node_execute_async(nodes.a, &job, 3, note_done, &id), NRDMA_OK);
    CHECK(id != 0);
    for (double end = watch_now() + 10 * watch_stretch(); watch_now() < end && atomic_load(&book.dones) == 0;)
        watch_sleep_ms(2);
    watch_sleep_ms(20);
    CHECK_EQ(atomic_load(&book.dones), 1);
    CHECK_EQ(atomic_load(&book.status), NRDMA_OK);
    for (int i = 0; i < 3; ++i)
        CHECK_EQ(atomic_load(&book.final[i]), 1);
    CHECK(nrdma_node_cancel(nodes.a, id) < 0);
    CHECK(nrdma_last_error()[0] != 0);
}

/* ---- refusals ---- */

static int refuses(nrdma_job job, uint64_t count, nrdma_status expected)
{
    nrdma_clear_error();
    const nrdma_status status = nrdma_node_execute(nodes.a, &job, count);
    const int said = nrdma_last_error()[0] != 0;
    const nrdma_status later = nrdma_node_execute_async(nodes.a, &job, count, note_done, NULL);
    watch_sleep_ms(2);
    if (status != expected || later != expected || !said || atomic_load(&book.dones) != 0)
        fprintf(stderr, "execute %d, async %d, expected %d, \"%s\"\n", status, later, expected, nrdma_last_error());
    return status == expected && later == expected && said && atomic_load(&book.dones) == 0;
}

static void refusals(void)
{
    uint64_t id = 0;
    nrdma_clear_error();
    CHECK_EQ(nrdma_node_execute(nodes.a, NULL, 1), NRDMA_INVALID_PARAMETER);
    CHECK(nrdma_last_error()[0] != 0);
    CHECK_EQ(nrdma_node_execute_async(nodes.a, NULL, 1, note_done, &id), NRDMA_INVALID_PARAMETER);

    nrdma_job job = job_for(&book, 8);
    CHECK(refuses(job, 0, NRDMA_INVALID_PARAMETER)); /* nothing to do outside ONCE_PER_HOST */
    job.mode = NRDMA_LOCAL;
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER)); /* LOCAL without execute_fragment */
    job = job_for(&book, 8);
    job.mode = 4;
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER) && strstr(nrdma_last_error(), "4"));
    job.mode = -1;
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER));
    job = job_for(&book, 8);
    job.priority = -1;
    CHECK(refuses(job, 1, NRDMA_INVALID_PRIORITY) && strstr(nrdma_last_error(), "-1"));
    CHECK(refuses(job, 0, NRDMA_INVALID_PARAMETER)); /* -1 before -3 */
    job = job_for(&book, 8);
    job.assign_hosts = NULL;
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER) && strstr(nrdma_last_error(), "assign_hosts"));
    job = job_for(&book, 8);
    job.receive_result = NULL; /* buffers that nobody receives */
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER) && strstr(nrdma_last_error(), "receive_result"));
    job = job_for(&book, 8);
    job.get_result_buffer = NULL;
    job.receive_result = NULL; /* bytes that nobody receives */
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER) && strstr(nrdma_last_error(), "receive_bytes"));
    job = job_for(&book, 8);
    job.abi = 5;
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER));
    job = job_for(&book, 8);
    job.flags = 1u << 31;
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER));
    job = job_for(&book, 8);
    job.payload = NULL;
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER));
    job = job_for(&book, 8);
    job.struct_size = 5;
    CHECK(refuses(job, 1, NRDMA_INVALID_PARAMETER));
    struct {
        nrdma_job job;
        uint8_t newer[16];
    } future;
    memset(&future, 0, sizeof future);
    future.job = job_for(&book, 8);
    future.job.struct_size = sizeof future;
    CHECK_EQ(nrdma_node_execute(nodes.a, &future.job, 1), NRDMA_OK);
    future.newer[15] = 1;
    CHECK_EQ(nrdma_node_execute(nodes.a, &future.job, 1), NRDMA_INVALID_PARAMETER);

    /* A class that the host lacks. */
    job = job_for(&book, 8);
    job.class_id.id1 = 0xdeadbeefu;
    nrdma_clear_error();
    CHECK_EQ(nrdma_node_execute(nodes.a, &job, 1), NRDMA_FRAGMENT_FAILED);
    CHECK(strstr(nrdma_last_error(), "deadbeef") != NULL);
    CHECK_EQ(atomic_load(&book.failed[0]), 1);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"buffers", with_buffers}, {"bytes", with_bytes},   {"local", local_jobs},
                 {"async", asynchronous},   {"refusals", refusals}};
    nrdma_job_class table;
    watch_start(&watch, 60, pair_cleanup);
    memset(&table, 0, sizeof table);
    table.struct_size = sizeof table;
    table.user = &created;
    table.abi = NRDMA_CXX_ABI_HOST;
    table.create = make_replica;
    table.execute_remote = run_remote;
    table.execute_remote_bytes = run_bytes;
    table.destroy = drop_replica;
    pair_folder();
    for (int engine = 0; engine < 2; ++engine) {
        pair_open(&nodes, engine ? PAIR_FAR : "inproc");
        CHECK_EQ(nrdma_node_register_class(nodes.b, class_id, &table), NRDMA_OK);
        CHECK(nrdma_node_register_class(nodes.b, class_id, &table) < 0);
        pair_meet(&nodes);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
            watch_case(&watch, cases[i].name, 20);
            nrdma_clear_error();
            cases[i].run();
        }
        CHECK_EQ(nrdma_node_unregister_class(nodes.b, class_id, 5000), NRDMA_OK);
        CHECK(atomic_load(&created) > 0);
        CHECK_EQ(atomic_load(&created), atomic_load(&destroyed));
        CHECK_EQ(nrdma_node_unregister_class(nodes.b, class_id, 100), NRDMA_NOT_REGISTERED);
        pair_close(&nodes);
    }
    return 0;
}
