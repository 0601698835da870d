/* Buffers and contexts through the plain C functions: what every call does outside fragments, and all bad input. */
#define _GNU_SOURCE
#include <nrdma/nrdma.h>

#include <stdatomic.h>

#include "check.h"
#include "pattern.h"
#include "watch.h"

static watch_state watch;
static nrdma_node *node;
static nrdma_context *context;
static atomic_int wrap_warnings;

/* The last error is set and names each of the numbers or words given, up to a NULL. */
static int error_names(const char *first, const char *second)
{
    const char *text = nrdma_last_error();
    int good = text != NULL && text[0] != 0 && (!first || strstr(text, first)) && (!second || strstr(text, second));
    if (!good)
        fprintf(stderr, "last error: \"%s\" should name \"%s\" and \"%s\"\n", text ? text : "(NULL)",
                first ? first : "", second ? second : "");
    nrdma_clear_error();
    return good;
}

static int same_id(const nrdma_uuid *a, const nrdma_uuid *b)
{
    return a->id1 == b->id1 && a->id2 == b->id2 && a->id3 == b->id3 && a->id4 == b->id4;
}

static void count_wrap(void *user, int32_t level, const char *target, const char *message)
{
    (void)user;
    if (level == NRDMA_LOG_WARN && target && message && strstr(message, "wrap"))
        atomic_fetch_add(&wrap_warnings, 1);
}

static nrdma_stats stats_of(nrdma_node *n)
{
    nrdma_stats s;
    memset(&s, 0, sizeof s);
    s.struct_size = sizeof s;
    CHECK(nrdma_node_stats(n, &s) == NRDMA_OK);
    return s;
}

/* ---- identities and references ---- */

static void references(void)
{
    nrdma_buffer *b = nrdma_context_get_read_memory(context, 1000, -1);
    CHECK(b != NULL && b->vtbl != NULL);
    CHECK_EQ(nrdma_buffer_retain(b), 2);
    CHECK_EQ(nrdma_buffer_retain(b), 3);
    CHECK_EQ(nrdma_buffer_release(b), 2);
    CHECK_EQ(nrdma_buffer_release(b), 1);
    CHECK_EQ(nrdma_buffer_release(b), 0);

    nrdma_context *again = nrdma_node_get_rdma_context(node, 0);
    CHECK(again == context); /* one object per peer while anyone holds it */
    CHECK_EQ(nrdma_context_retain(context), 3);
    CHECK_EQ(nrdma_context_release(context), 2);
    CHECK_EQ(nrdma_context_release(again), 1);
    again = nrdma_node_get_rdma_context(node, nrdma_node_host_id(node)); /* the own id is this host too */
    CHECK(again == context);
    CHECK_EQ(nrdma_context_release(again), 1);
}

static void interfaces(void)
{
    const nrdma_uuid own = NRDMA_IID_RDMA_BUFFER, old = NRDMA_IID_RDMA_BUFFER_2019, base = NRDMA_IID_INTERFACE,
                     of_context = NRDMA_IID_RDMA_CONTEXT;
    const nrdma_uuid strange = {1, 2, 3, 4};
    nrdma_uuid iid = {0, 0, 0, 0};
    nrdma_buffer *b = nrdma_context_get_write_memory(context, 100, -1);
    CHECK(b != NULL);
    nrdma_buffer_get_iid(b, &iid);
    CHECK(same_id(&iid, &own));
    CHECK(iid.id1 == 0x9b7b00e6u && iid.id2 == 0x4a079539u && iid.id3 == 0xdd9d1a88u && iid.id4 == 0xfe6d5c91u);
    const nrdma_uuid *const known[] = {&own, &old, &base};
    for (int i = 0; i < 3; ++i) {
        CHECK(nrdma_buffer_get_interface(b, known[i]) == b);
        CHECK_EQ(nrdma_buffer_release(b), 1);
    }
    nrdma_clear_error();
    CHECK(nrdma_buffer_get_interface(b, &strange) == NULL);
    CHECK(nrdma_buffer_get_interface(b, &of_context) == NULL);
    CHECK_EQ(nrdma_buffer_retain(b), 2); /* nothing was counted */
    CHECK_EQ(nrdma_buffer_release(b), 1);
    CHECK_EQ(nrdma_buffer_release(b), 0);

    nrdma_context_get_iid(context, &iid);
    CHECK(same_id(&iid, &of_context));
    CHECK(nrdma_context_get_interface(context, &of_context) == context);
    CHECK(nrdma_context_get_interface(context, &base) == context);
    CHECK(nrdma_context_get_interface(context, &own) == NULL);
    CHECK_EQ(nrdma_context_release(context), 2);
    CHECK_EQ(nrdma_context_release(context), 1);
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

enum { ID_THREADS = 4, IDS = 2000 };
static uint64_t ids[ID_THREADS * IDS];

static void *take_ids(void *arg)
{
    uint64_t *out = (uint64_t *)arg;
    for (int i = 0; i < IDS; ++i) {
        nrdma_buffer *b = nrdma_context_get_read_memory(context, (uint64_t)(1 + i % 3) * 5000, -1);
        CHECK(b != NULL);
        out[i] = nrdma_buffer_get_id(b);
        if (i % 2 == 0) { /* a view has its own */
            nrdma_buffer *v = nrdma_buffer_duplicate(b, 1, 10);
            CHECK(v != NULL);
            out[++i] = nrdma_buffer_get_id(v);
            nrdma_buffer_release(v);
        }
        nrdma_buffer_release(b); /* the memory is recycled, the id is not */
    }
    return NULL;
}

static void unique_ids(void)
{
    pthread_t threads[ID_THREADS];
    for (int i = 0; i < ID_THREADS; ++i)
        CHECK(pthread_create(&threads[i], NULL, take_ids, ids + i * IDS) == 0);
    for (int i = 0; i < ID_THREADS; ++i)
        CHECK(pthread_join(threads[i], NULL) == 0);
    qsort(ids, ID_THREADS * IDS, sizeof ids[0], compare_ids);
    for (int i = 1; i < ID_THREADS * IDS; ++i)
        CHECK(ids[i] != ids[i - 1]);
}

/* ---- memory ---- */

static void sizes(void)
{
    const uint64_t list[] = {1, 63, 64, 4095, 4096, 65535, 65536, 65537, (1u << 20) + 7, (5u << 20) + 3};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; ++i) {
        for (int write = 0; write < 2; ++write) {
            nrdma_buffer *b = write ? nrdma_context_get_write_memory(context, list[i], -1)
                                    : nrdma_context_get_read_memory(context, list[i], -1);
            CHECK(b != NULL);
            CHECK_EQ(nrdma_buffer_get_size(b), list[i]);
            CHECK_EQ(nrdma_buffer_get_gpu_id(b), -1);
            CHECK_EQ(nrdma_buffer_is_gpudirect(b), 0);
            CHECK_EQ(nrdma_buffer_get_path(b), NRDMA_PATH_NONE);
            uint8_t *data = nrdma_buffer_get_data(b);
            CHECK(data != NULL && nrdma_buffer_get_const_data(b) == data);
            CHECK((uintptr_t)data % (list[i] >= 65536 ? 65536 : 64) == 0);
            pattern_fill(data, list[i], i, 0);
            CHECK(pattern_holds(data, list[i], i, 0));
            CHECK_EQ(nrdma_buffer_release(b), 0);
        }
    }
}

/* Neighbours never share a byte, whatever their sizes. */
static void apart(void)
{
    enum { COUNT = 200 };
    static nrdma_buffer *held[COUNT];
    for (uint64_t i = 0; i < COUNT; ++i) {
        held[i] = nrdma_context_get_read_memory(context, 1 + i * 977, -1);
        CHECK(held[i] != NULL);
        pattern_fill(nrdma_buffer_get_data(held[i]), 1 + i * 977, i, 0);
    }
    for (uint64_t i = 0; i < COUNT; ++i)
        CHECK(pattern_holds(nrdma_buffer_get_data(held[i]), 1 + i * 977, i, 0));
    for (uint64_t i = 0; i < COUNT; i += 2) /* the even ones first, then in reverse */
        CHECK_EQ(nrdma_buffer_release(held[i]), 0);
    for (uint64_t i = 1; i < COUNT; i += 2)
        CHECK(pattern_holds(nrdma_buffer_get_data(held[i]), 1 + i * 977, i, 0));
    for (uint64_t i = COUNT; i-- > 1;)
        if (i % 2 == 1)
            CHECK_EQ(nrdma_buffer_release(held[i]), 0);
}

static void views(void)
{
    const uint64_t size = 100000;
    nrdma_buffer *b = nrdma_context_get_read_memory(context, size, -1);
    CHECK(b != NULL);
    uint8_t *data = nrdma_buffer_get_data(b);
    pattern_fill(data, size, 5, 0);
    nrdma_buffer *v = nrdma_buffer_duplicate(b, 777, 5000);
    CHECK(v != NULL && v != b);
    CHECK(nrdma_buffer_get_data(v) == data + 777);
    CHECK_EQ(nrdma_buffer_get_size(v), 5000);
    CHECK_EQ(nrdma_buffer_get_gpu_id(v), -1);
    CHECK(nrdma_buffer_get_id(v) != nrdma_buffer_get_id(b));
    nrdma_buffer *whole = nrdma_buffer_duplicate(b, 0, size);
    nrdma_buffer *last = nrdma_buffer_duplicate(b, size - 1, 1);
    nrdma_buffer *nested = nrdma_buffer_duplicate(v, 23, 100);
    CHECK(whole && last && nested);
    CHECK(nrdma_buffer_get_data(nested) == data + 800);

    nrdma_clear_error();
    CHECK(nrdma_buffer_duplicate(b, 0, 0) == NULL && error_names("0", NULL));
    CHECK(nrdma_buffer_duplicate(b, 0, size + 1) == NULL && error_names("100001", "100000"));
    CHECK(nrdma_buffer_duplicate(b, size, 1) == NULL && error_names("100000", NULL));
    CHECK(nrdma_buffer_duplicate(b, 1, size) == NULL && error_names("100000", NULL));
    CHECK(nrdma_buffer_duplicate(b, UINT64_MAX, 2) == NULL && error_names("18446744073709551615", NULL));
    CHECK(nrdma_buffer_duplicate(b, 2, UINT64_MAX) == NULL && error_names("18446744073709551615", NULL));
    CHECK(nrdma_buffer_duplicate(v, 4999, 2) == NULL && error_names("4999", "5000"));

    /* A view retains its parent: here they go parent first. */
    CHECK(nrdma_buffer_release(b) > 0);
    CHECK_EQ(nrdma_buffer_release(whole), 0);
    CHECK(nrdma_buffer_release(v) <= 1); /* whether a view of a view holds the view or its parent is not said */
    CHECK(pattern_holds(nrdma_buffer_get_data(nested), 100, 5, 800));
    CHECK(pattern_holds(nrdma_buffer_get_data(last), 1, 5, size - 1));
    /* Were the parent back in the cache, this would be its memory. */
    nrdma_buffer *other = nrdma_context_get_read_memory(context, size, -1);
    CHECK(other != NULL);
    memset(nrdma_buffer_get_data(other), 0, size);
    CHECK(pattern_holds(nrdma_buffer_get_data(nested), 100, 5, 800));
    CHECK_EQ(nrdma_buffer_release(other), 0);
    CHECK_EQ(nrdma_buffer_release(last), 0);
    CHECK_EQ(nrdma_buffer_release(nested), 0);
}

static void count_done(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

static int comes_true(atomic_int *value, int expected)
{
    for (double end = watch_now() + 5 * watch_stretch(); watch_now() < end; watch_sleep_ms(2))
        if (atomic_load(value) == expected)
            return 1;
    return atomic_load(value) == expected;
}

static void wrapped(void)
{
    const uint64_t size = 100003;
    uint8_t *all = (uint8_t *)malloc(size + 64);
    CHECK(all != NULL);
    memset(all, 0xC5, size + 64);
    uint8_t *data = all + 35; /* odd on purpose */
    pattern_fill(data, size, 6, 0);
    nrdma_buffer *b = nrdma_context_wrap_user_buffer(context, data, size, -1);
    CHECK(b != NULL);
    CHECK(nrdma_buffer_get_data(b) == data);
    CHECK_EQ(nrdma_buffer_get_size(b), size);
    CHECK_EQ(nrdma_buffer_get_gpu_id(b), -1);
    nrdma_buffer *v = nrdma_buffer_duplicate(b, 3, 10);
    CHECK(v != NULL && nrdma_buffer_get_data(v) == data + 3);
    CHECK_EQ(nrdma_context_flush(context, b), NRDMA_NOT_IN_FRAGMENT);
    CHECK_EQ(nrdma_buffer_release(v), 0);
    CHECK_EQ(nrdma_buffer_release(b), 0);
    CHECK(pattern_holds(data, size, 6, 0)); /* still ours, still the same */
    CHECK(bytes_differ(all, 35, 0xC5) == 35 && bytes_differ(data + size, 29, 0xC5) == 29);

    atomic_int done;
    atomic_init(&done, 0);
    b = nrdma_context_wrap_user_buffer_with(context, data, size, -1, count_done, &done);
    CHECK(b != NULL);
    v = nrdma_buffer_duplicate(b, 0, size);
    CHECK(v != NULL);
    CHECK(nrdma_buffer_release(b) > 0); /* the view holds it */
    watch_sleep_ms(20);
    CHECK_EQ(atomic_load(&done), 0);
    CHECK_EQ(nrdma_buffer_release(v), 0);
    CHECK(comes_true(&done, 1));
    watch_sleep_ms(20);
    CHECK_EQ(atomic_load(&done), 1);
    /* A refused call takes nothing, so it gives nothing back. */
    CHECK(nrdma_context_wrap_user_buffer_with(context, data, 0, -1, count_done, &done) == NULL);
    watch_sleep_ms(20);
    CHECK_EQ(atomic_load(&done), 1);
    free(all);
}

/* ---- bad input ---- */

static void bad_input(void)
{
    typedef nrdma_buffer *(*getter)(nrdma_context *, uint64_t, int32_t);
    const getter getters[] = {nrdma_context_get_write_memory, nrdma_context_get_read_memory};
    static uint8_t bytes[64];
    const nrdma_stats before = stats_of(node);
    nrdma_clear_error();
    for (int i = 0; i < 2; ++i) {
        CHECK(getters[i](context, 0, -1) == NULL && error_names("0", NULL));
        CHECK(getters[i](context, SIZE_MAX, -1) == NULL && error_names("18446744073709551615", NULL));
        CHECK(getters[i](context, SIZE_MAX - 65535, -1) == NULL && error_names("18446744073709486080", NULL));
        CHECK(getters[i](context, (uint64_t)1 << 62, -1) == NULL && error_names("4611686018427387904", NULL));
        CHECK(getters[i](context, 100, -2) == NULL && error_names("-2", NULL));
        CHECK(getters[i](context, 100, 99) == NULL && error_names("99", "on GPUs"));
        CHECK(getters[i](context, 100, 0) == NULL && error_names("0", "on GPUs"));
        CHECK(getters[i](context, 100, INT32_MIN) == NULL && error_names("-2147483648", NULL));
        CHECK(getters[i](NULL, 100, -1) == NULL && error_names(NULL, NULL));
    }
    CHECK(nrdma_context_wrap_user_buffer(context, NULL, 100, -1) == NULL && error_names("NULL", NULL));
    CHECK(nrdma_context_wrap_user_buffer(context, bytes, 0, -1) == NULL && error_names("0", NULL));
    CHECK(nrdma_context_wrap_user_buffer(context, bytes, SIZE_MAX, -1) == NULL &&
          error_names("18446744073709551615", NULL));
    CHECK(nrdma_context_wrap_user_buffer(context, bytes, 64, -2) == NULL && error_names("-2", NULL));
    CHECK(nrdma_context_wrap_user_buffer(context, bytes, 64, 99) == NULL && error_names("99", "on GPUs"));
    CHECK(nrdma_context_wrap_user_buffer(NULL, bytes, 64, -1) == NULL && error_names(NULL, NULL));
    CHECK_EQ(stats_of(node).live_buffers, before.live_buffers);
    CHECK_EQ(stats_of(node).live_bytes, before.live_bytes);
}

static void flush_outside(void)
{
    nrdma_node *other = NULL;
    CHECK(nrdma_node_create(NULL, &other) == NRDMA_OK);
    nrdma_context *strange = nrdma_node_get_rdma_context(other, 0);
    CHECK(strange != NULL);
    nrdma_buffer *theirs = nrdma_context_get_read_memory(strange, 100, -1);
    nrdma_buffer *ours = nrdma_context_get_read_memory(context, 100, -1);
    CHECK(theirs && ours);
    nrdma_clear_error();
    CHECK_EQ(nrdma_context_flush(context, ours), NRDMA_NOT_IN_FRAGMENT);
    CHECK(error_names("fragment", NULL));
    CHECK_EQ(nrdma_context_flush(context, NULL), NRDMA_INVALID_PARAMETER);
    CHECK(error_names("NULL", NULL));
    CHECK_EQ(nrdma_context_flush(context, theirs), NRDMA_INVALID_PARAMETER);
    CHECK(error_names(NULL, NULL));
    CHECK_EQ(nrdma_context_flush(NULL, ours), NRDMA_INVALID_PARAMETER);
    CHECK(error_names("NULL", NULL));
    CHECK_EQ(nrdma_buffer_release(theirs), 0);
    CHECK_EQ(nrdma_buffer_release(ours), 0);
    CHECK_EQ(nrdma_context_release(strange), 0);
    nrdma_node_destroy(other);
}

/* The plain functions recognise their objects by the vtable: anything else is refused, never called through. */
static void strangers(void)
{
    static const void *const table[16] = {0};
    nrdma_buffer no_buffer = {table};
    nrdma_context no_context = {table};
    nrdma_uuid iid = {9, 9, 9, 9};
    const nrdma_uuid base = NRDMA_IID_INTERFACE;
    nrdma_buffer *buffers[] = {NULL, &no_buffer, (nrdma_buffer *)(void *)context};
    for (int i = 0; i < 3; ++i) {
        nrdma_buffer *b = buffers[i];
        nrdma_clear_error();
        CHECK_EQ(nrdma_buffer_retain(b), 0);
        CHECK_EQ(nrdma_buffer_release(b), 0);
        CHECK(nrdma_buffer_get_interface(b, &base) == NULL);
        nrdma_buffer_get_iid(b, &iid);
        CHECK_EQ(nrdma_buffer_get_id(b), 0);
        CHECK(nrdma_buffer_get_data(b) == NULL);
        CHECK(nrdma_buffer_get_const_data(b) == NULL);
        CHECK_EQ(nrdma_buffer_get_size(b), 0);
        CHECK(nrdma_buffer_duplicate(b, 0, 1) == NULL);
        CHECK_EQ(nrdma_buffer_is_gpudirect(b), 0);
        CHECK_EQ(nrdma_buffer_get_path(b), NRDMA_PATH_NONE);
        CHECK(error_names(NULL, NULL));
        CHECK_EQ(nrdma_context_flush(context, b), NRDMA_INVALID_PARAMETER);
    }
    nrdma_context *contexts[] = {NULL, &no_context};
    for (int i = 0; i < 2; ++i) {
        nrdma_clear_error();
        CHECK_EQ(nrdma_context_retain(contexts[i]), 0);
        CHECK_EQ(nrdma_context_release(contexts[i]), 0);
        CHECK(nrdma_context_get_interface(contexts[i], &base) == NULL);
        nrdma_context_get_iid(contexts[i], &iid);
        CHECK(nrdma_context_get_write_memory(contexts[i], 1, -1) == NULL);
        CHECK(nrdma_context_get_read_memory(contexts[i], 1, -1) == NULL);
        CHECK_EQ(nrdma_context_flush(contexts[i], NULL), NRDMA_INVALID_PARAMETER);
        CHECK(error_names(NULL, NULL));
    }
    CHECK_EQ(nrdma_context_retain(context), 2);
    CHECK_EQ(nrdma_context_release(context), 1);
}

/* ---- release order ---- */

static void any_order(void)
{
    /* Which goes first: node 0, context 1, buffer 2, view 3. */
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 3, 2, 1}, {1, 0, 2, 3}, {1, 2, 3, 0}, {2, 1, 0, 3},
                                    {2, 0, 3, 1}, {3, 0, 1, 2}, {0, 2, 1, 3}, {1, 0, 3, 2}, {2, 3, 1, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; ++i) {
        nrdma_node *n = NULL;
        CHECK(nrdma_node_create(NULL, &n) == NRDMA_OK);
        nrdma_context *c = nrdma_node_get_rdma_context(n, 0);
        CHECK(c != NULL);
        const uint64_t size = i % 2 ? 300 : 70000;
        nrdma_buffer *b = nrdma_context_get_read_memory(c, size, -1);
        CHECK(b != NULL);
        pattern_fill(nrdma_buffer_get_data(b), size, 1, 0);
        nrdma_buffer *v = nrdma_buffer_duplicate(b, 50, 100);
        CHECK(v != NULL);
        for (int step = 0; step < 4; ++step) {
            switch (orders[i][step]) {
            case 0:
                nrdma_node_destroy(n);
                n = NULL;
                break;
            case 1:
                nrdma_context_release(c);
                c = NULL;
                break;
            case 2:
                nrdma_buffer_release(b);
                b = NULL;
                break;
            default:
                nrdma_buffer_release(v);
                v = NULL;
                break;
            }
            if (b)
                CHECK(pattern_holds(nrdma_buffer_get_data(b), size, 1, 0));
            if (v)
                CHECK(pattern_holds(nrdma_buffer_get_data(v), 100, 1, 50));
            if (!n && c) {
                uint8_t byte = 0;
                nrdma_clear_error();
                CHECK(nrdma_context_get_read_memory(c, 10, -1) == NULL && error_names(NULL, NULL));
                CHECK(nrdma_context_get_write_memory(c, 10, -1) == NULL && error_names(NULL, NULL));
                CHECK(nrdma_context_wrap_user_buffer(c, &byte, 1, -1) == NULL && error_names(NULL, NULL));
                if (b)
                    CHECK_EQ(nrdma_context_flush(c, b), NRDMA_INVALID_PARAMETER);
            }
        }
    }
}

/* ---- the cache, by its counters ---- */

static void cache(void)
{
    const uint64_t size = 4u << 20;
    nrdma_node *n = NULL;
    CHECK(nrdma_node_create(NULL, &n) == NRDMA_OK);
    nrdma_context *c = nrdma_node_get_rdma_context(n, 0);
    CHECK(c != NULL);
    const nrdma_stats empty = stats_of(n);
    CHECK_EQ(empty.live_buffers, 0);
    CHECK_EQ(empty.live_bytes, 0);
    CHECK_EQ(empty.peers, 0);
    nrdma_buffer *b = nrdma_context_get_read_memory(c, size, -1);
    CHECK(b != NULL);
    nrdma_stats s = stats_of(n);
    CHECK_EQ(s.cache_misses, empty.cache_misses + 1);
    CHECK_EQ(s.cache_hits, empty.cache_hits);
    CHECK_EQ(s.live_buffers, 1);
    CHECK(s.live_bytes >= size && s.live_bytes < 2 * size);
    uint8_t *data = nrdma_buffer_get_data(b);
    nrdma_buffer_release(b);
    s = stats_of(n);
    CHECK_EQ(s.live_buffers, 0);
    CHECK_EQ(s.live_bytes, 0);
    CHECK(s.cache_idle_bytes >= size && s.cache_idle_bytes < 2 * size);
    b = nrdma_context_get_read_memory(c, size - 1000, -1); /* the same class */
    CHECK(b != NULL && nrdma_buffer_get_data(b) == data);
    CHECK_EQ(nrdma_buffer_get_size(b), size - 1000);
    s = stats_of(n);
    CHECK_EQ(s.cache_hits, empty.cache_hits + 1);
    CHECK_EQ(s.cache_idle_bytes, 0);
    nrdma_buffer_release(b);
    CHECK(nrdma_node_trim(n, UINT64_MAX) == NRDMA_OK);
    CHECK(stats_of(n).cache_idle_bytes >= size);
    CHECK(nrdma_node_trim(n, 0) == NRDMA_OK);
    CHECK_EQ(stats_of(n).cache_idle_bytes, 0);
    b = nrdma_context_get_read_memory(c, size, -1);
    CHECK(b != NULL);
    CHECK_EQ(stats_of(n).cache_misses, empty.cache_misses + 2);
    nrdma_buffer_release(b);
    nrdma_context_release(c);
    nrdma_node_destroy(n);

    /* A budget bounds what stays idle; NONE keeps nothing. */
    const uint64_t budgets[] = {16u << 20, UINT64_MAX};
    for (int i = 0; i < 2; ++i) {
        nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
        config.cache_idle_bytes = budgets[i];
        CHECK(nrdma_node_create(&config, &n) == NRDMA_OK);
        c = nrdma_node_get_rdma_context(n, 0);
        CHECK(c != NULL);
        nrdma_buffer *held[10];
        for (int k = 0; k < 10; ++k) {
            held[k] = nrdma_context_get_read_memory(c, size, -1);
            CHECK(held[k] != NULL);
        }
        for (int k = 0; k < 10; ++k)
            nrdma_buffer_release(held[k]);
        CHECK(stats_of(n).cache_idle_bytes <= (i == 0 ? budgets[0] : 0));
        nrdma_context_release(c);
        nrdma_node_destroy(n);
    }

    /* zero_on_reuse shows no old bytes. */
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    config.zero_on_reuse = 1;
    CHECK(nrdma_node_create(&config, &n) == NRDMA_OK);
    c = nrdma_node_get_rdma_context(n, 0);
    CHECK(c != NULL);
    for (int i = 0; i < 4; ++i) {
        const uint64_t each = i % 2 ? 100000 : 500;
        b = nrdma_context_get_read_memory(c, each, -1);
        CHECK(b != NULL);
        CHECK(bytes_differ(nrdma_buffer_get_data(b), each, 0) == each);
        memset(nrdma_buffer_get_data(b), 0xFF, each);
        nrdma_buffer_release(b);
    }
    nrdma_context_release(c);
    nrdma_node_destroy(n);
}

/* Get and release from several threads, crosswise. */
enum { CROSS = 64 };
static _Atomic(nrdma_buffer *) exchange[CROSS];

static void *cross(void *arg)
{
    const uint64_t seed = (uint64_t)(uintptr_t)arg;
    for (uint64_t i = 0; i < 3000; ++i) {
        const uint64_t size = 8 + (i * 7919 + seed * 104729) % 200000;
        nrdma_buffer *b = nrdma_context_get_write_memory(context, size, -1);
        CHECK(b != NULL);
        memcpy(nrdma_buffer_get_data(b), &size, sizeof size);
        nrdma_buffer *old = atomic_exchange(&exchange[(i + seed) % CROSS], b);
        if (old) {
            uint64_t word = 0;
            memcpy(&word, nrdma_buffer_get_data(old), sizeof word);
            CHECK_EQ(word, nrdma_buffer_get_size(old));
            CHECK_EQ(nrdma_buffer_release(old), 0);
        }
    }
    return NULL;
}

static void threads_crosswise(void)
{
    pthread_t threads[4];
    const nrdma_stats before = stats_of(node);
    for (int i = 0; i < 4; ++i)
        CHECK(pthread_create(&threads[i], NULL, cross, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < 4; ++i)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < CROSS; ++i) {
        nrdma_buffer *b = atomic_exchange(&exchange[i], NULL);
        if (b)
            CHECK_EQ(nrdma_buffer_release(b), 0);
    }
    const nrdma_stats after = stats_of(node);
    CHECK_EQ(after.live_buffers, before.live_buffers);
    CHECK_EQ(after.live_bytes, before.live_bytes);
    CHECK_EQ(after.cache_hits + after.cache_misses, before.cache_hits + before.cache_misses + 4 * 3000);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"references", references}, {"interfaces", interfaces},       {"unique ids", unique_ids},
                 {"sizes", sizes},           {"apart", apart},                 {"views", views},
                 {"wrapped", wrapped},       {"bad input", bad_input},         {"flush outside", flush_outside},
                 {"strangers", strangers},   {"any order", any_order},         {"cache", cache},
                 {"crosswise", threads_crosswise}};
    watch_start(&watch, 60, NULL);
    CHECK(nrdma_set_log(count_wrap, NULL, NRDMA_LOG_WARN, NULL, NULL) == NRDMA_OK);
    CHECK(nrdma_node_create(NULL, &node) == NRDMA_OK);
    context = nrdma_node_get_rdma_context(node, 0);
    CHECK(context != NULL);
    CHECK(nrdma_node_get_rdma_context(node, 424242) == NULL && error_names("424242", NULL));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        watch_case(&watch, cases[i].name, 20);
        nrdma_clear_error();
        cases[i].run();
    }
    CHECK_EQ(stats_of(node).live_buffers, 0);
    CHECK_EQ(nrdma_context_release(context), 0);
    nrdma_node_destroy(node);
    CHECK_EQ(atomic_load(&wrap_warnings), 1); /* one per process */
    CHECK(nrdma_set_log(NULL, NULL, NRDMA_LOG_OFF, NULL, NULL) == NRDMA_OK);
    return 0;
}
