/* The library as a whole and nodes by themselves: versions, errors, log, config structs. */
#define _GNU_SOURCE
#include <nrdma/nrdma.h>

#include <stdatomic.h>

#include "check.h"
#include "pair.h"
#include "watch.h"

static watch_state watch;

static int error_has(const char *part)
{
    const int good = strstr(nrdma_last_error(), part) != NULL && nrdma_last_error()[0] != 0;
    if (!good)
        fprintf(stderr, "last error: \"%s\" should name \"%s\"\n", nrdma_last_error(), part);
    nrdma_clear_error();
    return good;
}

static void versions(void)
{
    char expected[64];
    snprintf(expected, sizeof expected, "%d.%d.%d", NRDMA_VERSION_MAJOR, NRDMA_VERSION_MINOR, NRDMA_VERSION_PATCH);
    CHECK(strcmp(nrdma_version_string(), expected) == 0);
    CHECK(nrdma_version() != 0);
    CHECK(nrdma_version() == nrdma_version());
}

static void status_texts(void)
{
    static const nrdma_status all[] = {
        NRDMA_OK, NRDMA_INVALID_PARAMETER, NRDMA_NOT_IN_FRAGMENT, NRDMA_INVALID_PRIORITY, NRDMA_OUT_OF_MEMORY,
        NRDMA_MEMLOCK_LIMIT, NRDMA_NOT_SUPPORTED, NRDMA_DRIVER_MISSING, NRDMA_DRIVER_ERROR, NRDMA_BUFFER_TOO_SMALL,
        NRDMA_UNREACHABLE, NRDMA_REFUSED, NRDMA_TIMED_OUT, NRDMA_AUTH_FAILED, NRDMA_VERSION_MISMATCH,
        NRDMA_PROTOCOL_ERROR, NRDMA_ADDRESS_IN_USE, NRDMA_PEER_LOST, NRDMA_STALE, NRDMA_FRAGMENT_FAILED,
        NRDMA_CANCELLED, NRDMA_SHUT_DOWN, NRDMA_NOT_REGISTERED, NRDMA_PANIC, NRDMA_AFTER_FORK};
    const size_t count = sizeof all / sizeof all[0];
    for (size_t i = 0; i < count; ++i) {
        const char *text = nrdma_status_string(all[i]);
        CHECK(text != NULL && text[0] != 0);
        CHECK(nrdma_status_string(all[i]) == text); /* static */
        for (size_t k = 0; k < i; ++k)
            CHECK(strcmp(text, nrdma_status_string(all[k])) != 0);
    }
    CHECK(nrdma_status_string(-12345) != NULL && nrdma_status_string(7) != NULL);
}

static void *other_thread(void *arg)
{
    (void)arg;
    CHECK(nrdma_last_error()[0] == 0); /* nothing failed here yet */
    nrdma_node *node = NULL;
    CHECK(nrdma_node_create(NULL, NULL) == NRDMA_INVALID_PARAMETER);
    CHECK(nrdma_last_error()[0] != 0);
    CHECK(nrdma_node_create(NULL, &node) == NRDMA_OK);
    nrdma_node_destroy(node);
    return NULL;
}

static void last_errors(void)
{
    pthread_t thread;
    char mine[1024];
    nrdma_node *node = NULL;
    CHECK(nrdma_last_error() != NULL && nrdma_last_error()[0] == 0);
    CHECK(nrdma_node_create(NULL, &node) == NRDMA_OK);
    CHECK(nrdma_last_error()[0] == 0);
    CHECK(nrdma_node_disconnect(node, 31337) < 0);
    CHECK(strstr(nrdma_last_error(), "31337") != NULL);
    snprintf(mine, sizeof mine, "%s", nrdma_last_error());
    /* Calls that succeed leave it alone, and so do other threads. */
    CHECK(nrdma_node_host_id(node) != 0);
    uint64_t total = 0;
    CHECK(nrdma_node_peers(node, NULL, 0, 0, &total) == NRDMA_OK);
    CHECK(strcmp(nrdma_last_error(), mine) == 0);
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(nrdma_last_error(), mine) == 0);
    /* The next failure replaces it. */
    CHECK(nrdma_node_disconnect(node, 27182) < 0);
    CHECK(strstr(nrdma_last_error(), "27182") != NULL && strstr(nrdma_last_error(), "31337") == NULL);
    nrdma_clear_error();
    CHECK(nrdma_last_error()[0] == 0);
    nrdma_node_destroy(node);
    nrdma_node_destroy(NULL);
    CHECK(nrdma_last_error()[0] == 0);
}

typedef struct sink {
    atomic_int calls, bad;
    int max_level;
} sink;

static void record(void *user, int32_t level, const char *target, const char *message)
{
    sink *s = (sink *)user;
    atomic_fetch_add(&s->calls, 1);
    if (level < NRDMA_LOG_ERROR || level > s->max_level || !target || !message || !message[0])
        atomic_fetch_add(&s->bad, 1);
}

/* Takes itself away at its first record. */
static void record_once(void *user, int32_t level, const char *target, const char *message)
{
    record(user, level, target, message);
    if (nrdma_set_log(NULL, NULL, NRDMA_LOG_OFF, NULL, NULL) != NRDMA_OK)
        atomic_fetch_add(&((sink *)user)->bad, 1);
}

/* Two nodes meet: one INFO line at least says by which engine. */
static void make_noise(void)
{
    pair_nodes nodes;
    pair_open(&nodes, "inproc");
    pair_meet(&nodes);
    pair_close(&nodes);
}

static void logs(void)
{
    static sink loud, quiet, once;
    nrdma_log_fn previous = NULL;
    void *previous_user = NULL;
    loud.max_level = once.max_level = NRDMA_LOG_TRACE;
    quiet.max_level = NRDMA_LOG_ERROR;
    CHECK(nrdma_set_log(record, &loud, NRDMA_LOG_TRACE, NULL, NULL) == NRDMA_OK);
    make_noise();
    CHECK(atomic_load(&loud.calls) > 0);
    CHECK_EQ(atomic_load(&loud.bad), 0);
    CHECK(nrdma_set_log(record, &quiet, NRDMA_LOG_ERROR, &previous, &previous_user) == NRDMA_OK);
    CHECK(previous == record && previous_user == &loud);
    const int before = atomic_load(&loud.calls);
    make_noise();
    CHECK_EQ(atomic_load(&loud.calls), before); /* after return the old sink no longer runs */
    CHECK_EQ(atomic_load(&quiet.calls), 0);     /* and nothing is an error here */
    CHECK(nrdma_set_log(record_once, &once, NRDMA_LOG_TRACE, &previous, &previous_user) == NRDMA_OK);
    CHECK(previous == record && previous_user == &quiet);
    make_noise();
    CHECK_EQ(atomic_load(&once.calls), 1);
    CHECK_EQ(atomic_load(&once.bad), 0);
    CHECK(nrdma_set_log(record, &quiet, 6, NULL, NULL) == NRDMA_INVALID_PARAMETER && error_has("6"));
    CHECK(nrdma_set_log(record, &quiet, -1, NULL, NULL) == NRDMA_INVALID_PARAMETER && error_has("-1"));
    CHECK(nrdma_set_log(NULL, NULL, NRDMA_LOG_OFF, &previous, &previous_user) == NRDMA_OK);
    CHECK(previous == NULL);
}

static void configs(void)
{
    nrdma_node *node = NULL;
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    CHECK(nrdma_node_create(&config, NULL) == NRDMA_INVALID_PARAMETER && error_has("NULL"));
    config.host_id = 77;
    config.name = "seventy-seven";
    CHECK(nrdma_node_create(&config, &node) == NRDMA_OK);
    CHECK_EQ(nrdma_node_host_id(node), 77);
    nrdma_node_destroy(node);

    /* A caller from before the last fields. What lies behind his struct is not read. */
    config.struct_size = offsetof(nrdma_node_config, transports);
    config.transports = (const char *)(uintptr_t)16;
    config.zero_copy = 99;
    CHECK(nrdma_node_create(&config, &node) == NRDMA_OK);
    CHECK_EQ(nrdma_node_host_id(node), 77);
    nrdma_node_destroy(node);

    /* A caller with a newer header: unknown fields must be zero. */
    struct {
        nrdma_node_config config;
        uint8_t newer[24];
    } future = {NRDMA_NODE_CONFIG_INIT, {0}};
    future.config.struct_size = sizeof future;
    CHECK(nrdma_node_create(&future.config, &node) == NRDMA_OK);
    nrdma_node_destroy(node);
    node = NULL;
    char size[32];
    snprintf(size, sizeof size, "%zu", sizeof future);
    for (size_t i = 0; i < sizeof future.newer; i += sizeof future.newer - 1) {
        future.newer[i] = 1;
        CHECK(nrdma_node_create(&future.config, &node) == NRDMA_INVALID_PARAMETER);
        CHECK(node == NULL);
        CHECK(error_has(size));
        future.newer[i] = 0;
    }

    const uint64_t too_small[] = {0, 4, 7};
    for (int i = 0; i < 3; ++i) {
        nrdma_node_config tiny = NRDMA_NODE_CONFIG_INIT;
        tiny.struct_size = too_small[i];
        CHECK(nrdma_node_create(&tiny, &node) == NRDMA_INVALID_PARAMETER && node == NULL);
        CHECK(error_has("struct_size"));
    }
    nrdma_node_config bad = NRDMA_NODE_CONFIG_INIT;
    bad.zero_copy = 3;
    CHECK(nrdma_node_create(&bad, &node) == NRDMA_INVALID_PARAMETER && error_has("zero_copy"));
    nrdma_node_config words = NRDMA_NODE_CONFIG_INIT;
    words.transports = "pigeon";
    CHECK(nrdma_node_create(&words, &node) == NRDMA_INVALID_PARAMETER && error_has("pigeon"));
    nrdma_node_config later = NRDMA_NODE_CONFIG_INIT;
    later.reserved = 1;
    CHECK(nrdma_node_create(&later, &node) == NRDMA_INVALID_PARAMETER && node == NULL);
    nrdma_clear_error();

    /* Structs that the library writes: only as much as the caller has. */
    CHECK(nrdma_node_create(NULL, &node) == NRDMA_OK);
    nrdma_stats stats;
    memset(&stats, 0xAB, sizeof stats);
    stats.struct_size = offsetof(nrdma_stats, live_buffers);
    CHECK(nrdma_node_stats(node, &stats) == NRDMA_OK);
    CHECK(stats.cache_hits == 0 && stats.cache_idle_bytes == 0);
    CHECK(stats.live_buffers == 0xABABABABABABABABull && stats.threads == 0xABABABABABABABABull);
    stats.struct_size = 2;
    CHECK(nrdma_node_stats(node, &stats) == NRDMA_INVALID_PARAMETER);
    CHECK(nrdma_node_stats(node, NULL) == NRDMA_INVALID_PARAMETER);
    nrdma_node_destroy(node);
}

static void null_nodes(void)
{
    nrdma_job job = NRDMA_JOB_INIT;
    nrdma_job_class table;
    nrdma_stats stats;
    uint64_t number = 0;
    uint32_t host = 0;
    const nrdma_uuid id = {1, 2, 3, 4};
    memset(&table, 0, sizeof table);
    table.struct_size = sizeof table;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_EQ(nrdma_node_host_id(NULL), 0);
    CHECK_EQ(nrdma_node_listen(NULL, "unix:/tmp/x", NULL, 0), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_connect(NULL, "unix:/tmp/x", &host), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_disconnect(NULL, 1), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_peers(NULL, NULL, 0, 0, &number), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_wait_peers(NULL, 0, 0), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_set_peer_callback(NULL, NULL, NULL), NRDMA_INVALID_PARAMETER);
    CHECK(nrdma_node_get_rdma_context(NULL, 0) == NULL);
    CHECK_EQ(nrdma_node_stats(NULL, &stats), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_trim(NULL, 0), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_shutdown(NULL, 0), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_register_class(NULL, id, &table), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_unregister_class(NULL, id, 0), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_execute(NULL, &job, 1), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_execute_async(NULL, &job, 1, NULL, &number), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_node_cancel(NULL, 1), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_writer_write(NULL, "x", 1), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_writer_flush(NULL), NRDMA_INVALID_PARAMETER);
    CHECK_EQ(nrdma_fragment_cancelled(NULL), 0);
    nrdma_clear_error();
}

static void faces(void)
{
    nrdma_node *node = NULL;
    CHECK(nrdma_node_create(NULL, &node) == NRDMA_OK);
    nrdma_clear_error();
#ifdef _WIN32
    nrdma_context *other = nrdma_node_get_rdma_context_abi(node, 0, NRDMA_CXX_ABI_MSVC);
    CHECK(other != NULL && nrdma_context_release(other) == 0);
#else
    CHECK(nrdma_node_get_rdma_context_abi(node, 0, NRDMA_CXX_ABI_MSVC) == NULL && error_has("MSVC"));
#endif
    CHECK(nrdma_node_get_rdma_context_abi(node, 0, 7) == NULL && error_has("7"));
    CHECK(nrdma_node_get_rdma_context_abi(node, 0, -1) == NULL && error_has("-1"));
    nrdma_context *c = nrdma_node_get_rdma_context_abi(node, 0, NRDMA_CXX_ABI_ITANIUM);
    CHECK(c != NULL);
    nrdma_context_release(c);
    nrdma_node_destroy(node);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"versions", versions}, {"status texts", status_texts}, {"last errors", last_errors},
                 {"logs", logs},         {"configs", configs},           {"null nodes", null_nodes},
                 {"faces", faces}};
    watch_start(&watch, 60, pair_cleanup);
    pair_folder();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        watch_case(&watch, cases[i].name, 20);
        cases[i].run();
    }
    return 0;
}
