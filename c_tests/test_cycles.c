/* Coming and going: create, transfer, shutdown, destroy, over and over, leaves nothing; and a fork's child is safe.
   test_cycles [CYCLES] */
#define _GNU_SOURCE
#include <nrdma/nrdma.h>

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "check.h"
#include "pair.h"
#include "pattern.h"
#include "watch.h"

static watch_state watch;
static const nrdma_uuid class_id = {0x6379636cu, 1, 2, 3};
enum { SIZE = 65536 };

static nrdma_status make_replica(void *user, const void *payload, uint64_t size, void **replica)
{
    (void)payload;
    (void)size;
    *replica = user;
    return NRDMA_OK;
}

static nrdma_status run_remote(void *replica, const nrdma_fragment *f, nrdma_context *c, nrdma_buffer **result)
{
    (void)replica;
    *result = nrdma_context_get_write_memory(c, SIZE, -1);
    if (!*result)
        return NRDMA_OUT_OF_MEMORY;
    pattern_fill(nrdma_buffer_get_data(*result), SIZE, f->index, 0);
    return NRDMA_OK;
}

static nrdma_buffer *lend(void *user, nrdma_context *c, uint64_t index)
{
    (void)user;
    (void)index;
    return nrdma_context_get_read_memory(c, SIZE, -1);
}

static nrdma_status take(void *user, nrdma_buffer *b, const nrdma_result *r)
{
    if (r->size == SIZE && pattern_holds(nrdma_buffer_get_data(b), SIZE, r->index, 0))
        atomic_fetch_add((atomic_int *)user, 1);
    return NRDMA_OK;
}

static void register_on(nrdma_node *node)
{
    nrdma_job_class table;
    memset(&table, 0, sizeof table);
    table.struct_size = sizeof table;
    table.abi = NRDMA_CXX_ABI_HOST;
    table.create = make_replica;
    table.execute_remote = run_remote;
    CHECK_EQ(nrdma_node_register_class(node, class_id, &table), NRDMA_OK);
}

static nrdma_status transfer(nrdma_node *node)
{
    atomic_int good;
    nrdma_job job = NRDMA_JOB_INIT;
    atomic_init(&good, 0);
    job.user = &good;
    job.class_id = class_id;
    job.mode = NRDMA_CLUSTER;
    job.get_result_buffer = lend;
    job.receive_result = take;
    const nrdma_status status = nrdma_node_execute(node, &job, 2);
    if (status == NRDMA_OK)
        CHECK_EQ(atomic_load(&good), 2);
    return status;
}

static void cycle(const char *engine)
{
    pair_nodes nodes;
    pair_open(&nodes, engine);
    register_on(nodes.b);
    pair_meet(&nodes);
    CHECK_EQ(transfer(nodes.a), NRDMA_OK);
    pair_close(&nodes);
}

/* Entries of a folder, without . and .. and the descriptor that reads it. */
static int entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int count = 0;
    CHECK(dir != NULL);
    while (readdir(dir) != NULL)
        ++count;
    closedir(dir);
    return count - 2;
}

static long resident_kib(void)
{
    long kib = -1;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    fclose(file);
    CHECK(kib > 0);
    return kib;
}

static long mappings(void)
{
    long count = 0;
    int c;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    while ((c = fgetc(file)) != EOF)
        count += c == '\n';
    fclose(file);
    return count;
}

/* A thread that was joined may show for a moment longer. */
static int threads_settle(int expected)
{
    int count = entries("/proc/self/task");
    for (int i = 0; i < 500 && count != expected; ++i) {
        watch_sleep_ms(2);
        count = entries("/proc/self/task");
    }
    return count;
}

static void cycles(const char *engine, int count)
{
    const int warm = count < 20 ? 1 : count / 10;
    for (int i = 0; i < warm; ++i)
        cycle(engine);
    const int fds = entries("/proc/self/fd"), threads = threads_settle(2); /* this one and the watchdog */
    const long kib = resident_kib(), maps = mappings();
    CHECK_EQ(threads, 2);
    for (int i = warm; i < count; ++i) {
        cycle(engine);
        CHECK_EQ(entries("/proc/self/fd"), fds);
    }
    CHECK_EQ(threads_settle(threads), threads);
    const long grown = resident_kib() - kib;
    printf("%s: %d cycles, %d descriptors, %d threads, memory grew by %ld KiB\n", engine, count, fds, threads, grown);
    if (watch_stretch() > 1.0)
        return; /* valgrind and sanitizers keep books of their own */
    CHECK(grown < 8192);
    CHECK(mappings() - maps < 20);
}

/* ---- fork ---- */

/* 0, or the number of the first rule that the child broke. */
static int child_breaks(pair_nodes *nodes, nrdma_context *own, nrdma_context *peer, nrdma_buffer *b)
{
    uint8_t byte = 0;
    nrdma_clear_error();
    if (nrdma_context_get_read_memory(own, 100, -1) || nrdma_context_get_write_memory(own, 100, -1))
        return 1;
    if (nrdma_context_get_read_memory(peer, 100000, -1) || nrdma_context_wrap_user_buffer(peer, &byte, 1, -1))
        return 2;
    if (nrdma_last_error()[0] == 0)
        return 3;
    if (nrdma_context_flush(own, b) != NRDMA_AFTER_FORK)
        return 4;
    if (transfer(nodes->a) != NRDMA_AFTER_FORK)
        return 5;
    if (nrdma_buffer_retain(b) != 2 || nrdma_buffer_release(b) != 1 || nrdma_buffer_release(b) != 0)
        return 6;
    if (nrdma_context_release(peer) != 0)
        return 7;
    nrdma_node *fresh = NULL;
    if (nrdma_node_create(NULL, &fresh) == NRDMA_OK) /* the library as a whole is not for this process */
        return 8;
    return 0;
}

static void forks(const char *engine)
{
    pair_nodes nodes;
    pair_open(&nodes, engine);
    register_on(nodes.b);
    pair_meet(&nodes);
    CHECK_EQ(transfer(nodes.a), NRDMA_OK);
    nrdma_context *own = nrdma_node_get_rdma_context(nodes.a, 0), *peer = nrdma_node_get_rdma_context(nodes.a, 2);
    CHECK(own && peer);
    nrdma_buffer *b = nrdma_context_get_read_memory(own, 70000, -1);
    CHECK(b != NULL);
    pattern_fill(nrdma_buffer_get_data(b), 70000, 3, 0);
    const int checked = watch_stretch() > 1.0;
    for (int way = 0; way < 2; ++way) {
        int report[2], broken = -1, status = 0;
        CHECK(pipe(report) == 0);
        fflush(NULL);
        const pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(30); /* the watchdog stayed in the parent */
            broken = child_breaks(&nodes, own, peer, b);
            if (write(report[1], &broken, sizeof broken) != sizeof broken)
                _exit(100);
            if (checked) /* to valgrind and sanitizers what the parent's threads hold is a leak here */
                raise(SIGKILL);
            if (way == 0)
                _exit(0);
            exit(0); /* with all that runs at exit */
        }
        close(report[1]);
        CHECK(read(report[0], &broken, sizeof broken) == sizeof broken);
        CHECK(waitpid(pid, &status, 0) == pid);
        close(report[0]);
        if (broken != 0)
            fprintf(stderr, "%s: child: rule %d\n", engine, broken);
        CHECK_EQ(broken, 0);
        CHECK(checked || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        /* The parent has noticed nothing. */
        CHECK(pattern_holds(nrdma_buffer_get_data(b), 70000, 3, 0));
        CHECK_EQ(transfer(nodes.a), NRDMA_OK);
    }
    CHECK_EQ(nrdma_buffer_release(b), 0);
    CHECK_EQ(nrdma_context_release(own), 0);
    CHECK_EQ(nrdma_context_release(peer), 0);
    pair_close(&nodes);
}

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : (int)(1000 / watch_stretch());
    watch_start(&watch, count > 1000 ? 0.2 * count : 60, pair_cleanup);
    pair_folder();
    static const char *const engines[] = {"inproc", "shm"};
    for (int i = 0; i < 2; ++i) {
        watch_case(&watch, engines[i], count > 1000 ? 0.1 * count : 30);
        cycles(engines[i], count);
        forks(engines[i]);
    }
    return 0;
}
