/* A C host: no type information in front of the tables, and every slot called by its number. */
#include "check.h"
#include <nrdma/nrdma.h>

/* Slot `n` of an object's table. Negative ones are the two words in front of it. */
static void slot(const void *object, int n, void *function)
{
    const char *table;
    memcpy(&table, object, sizeof table);
    memcpy(function, table + n * (int)sizeof(void *), sizeof(void *));
}

#define SLOT(object, n, type, name) \
  type name;                        \
  slot(object, n, &name)

typedef uint32_t (*count_fn)(const void *);
typedef void *(*interface_fn)(const void *, const nrdma_uuid *);
typedef nrdma_uuid (*iid_fn)(const void *);
typedef uint64_t (*u64_fn)(const void *);
typedef int32_t (*i32_fn)(const void *);
typedef uint8_t *(*data_fn)(const void *);
typedef nrdma_buffer *(*part_fn)(const void *, uint64_t, uint64_t);
typedef bool (*bool_fn)(void *);
typedef nrdma_buffer *(*memory_fn)(void *, uint64_t, int32_t);
typedef nrdma_buffer *(*wrap_fn)(void *, uint8_t *, uint64_t, int32_t);
typedef int32_t (*flush_fn)(void *, nrdma_buffer *);

static const nrdma_uuid iid_interface = NRDMA_IID_INTERFACE;
static const nrdma_uuid iid_buffer = NRDMA_IID_RDMA_BUFFER;
static const nrdma_uuid iid_buffer_2019 = NRDMA_IID_RDMA_BUFFER_2019;
static const nrdma_uuid iid_context = NRDMA_IID_RDMA_CONTEXT;

static int same_id(nrdma_uuid a, nrdma_uuid b) { return memcmp(&a, &b, sizeof a) == 0; }

/* Slots 0 to 4, which every object has; `others` are the ids that it does not answer. */
static void check_interface(void *object, nrdma_uuid iid, nrdma_uuid other)
{
    SLOT(object, -2, intptr_t, offset_to_top);
    SLOT(object, -1, void *, type_info);
    CHECK(offset_to_top == 0);
    CHECK(type_info == NULL);

    SLOT(object, 0, count_fn, retain);
    SLOT(object, 1, count_fn, release);
    SLOT(object, 4, iid_fn, get_iid);
    CHECK_EQ(retain(object), 2);
    CHECK_EQ(release(object), 1);
    CHECK(same_id(get_iid(object), iid));
    for (int n = 2; n <= 3; ++n) {
        SLOT(object, n, interface_fn, get_interface);
        CHECK(get_interface(object, &iid) == object);
        CHECK_EQ(release(object), 1);
        CHECK(get_interface(object, &iid_interface) == object);
        CHECK_EQ(release(object), 1);
        CHECK(get_interface(object, &other) == NULL);
        CHECK(get_interface(object, NULL) == NULL);
    }
}

static void check_buffer(nrdma_buffer *b, uint64_t size)
{
    check_interface(b, iid_buffer, iid_context);
    SLOT(b, 1, count_fn, release);
    SLOT(b, 2, interface_fn, get_interface);
    CHECK(get_interface(b, &iid_buffer_2019) == (void *)b);
    CHECK_EQ(release(b), 1);

    SLOT(b, 5, u64_fn, get_id);
    SLOT(b, 6, i32_fn, get_gpu_id);
    SLOT(b, 7, data_fn, get_data_const);
    SLOT(b, 8, data_fn, get_data);
    SLOT(b, 9, u64_fn, get_size);
    SLOT(b, 10, part_fn, duplicate_const);
    SLOT(b, 11, part_fn, duplicate);
    SLOT(b, 12, bool_fn, is_gpudirect);
    CHECK_EQ(get_id(b), nrdma_buffer_get_id(b));
    CHECK_EQ(get_gpu_id(b), -1);
    CHECK_EQ(nrdma_buffer_get_gpu_id(b), -1);
    CHECK(get_data(b) != NULL && get_data(b) == get_data_const(b));
    CHECK(nrdma_buffer_get_data(b) == get_data(b) && nrdma_buffer_get_const_data(b) == get_data(b));
    CHECK_EQ(get_size(b), size);
    CHECK_EQ(nrdma_buffer_get_size(b), size);
    CHECK(!is_gpudirect(b) && !nrdma_buffer_is_gpudirect(b));
    memset(get_data(b), 0x5a, (size_t)size);

    nrdma_buffer *parts[3];
    parts[0] = duplicate_const(b, size / 2, size - size / 2);
    parts[1] = duplicate(b, size - 1, 1);
    parts[2] = nrdma_buffer_duplicate(b, 0, size);
    for (int i = 0; i < 3; ++i) {
        CHECK(parts[i] != NULL && parts[i] != b);
        CHECK(nrdma_buffer_get_id(parts[i]) != get_id(b));
        CHECK(nrdma_buffer_get_data(parts[i])[0] == 0x5a);
    }
    CHECK(nrdma_buffer_get_data(parts[0]) == get_data(b) + size / 2);
    CHECK(nrdma_buffer_get_data(parts[1]) == get_data(b) + size - 1);
    CHECK(duplicate(b, size, 1) == NULL && duplicate_const(b, 1, size) == NULL);
    CHECK(duplicate(b, UINT64_MAX, 2) == NULL && duplicate(b, 0, 0) == NULL);
    for (int i = 0; i < 3; ++i)
        CHECK_EQ(nrdma_buffer_release(parts[i]), 0);
}

int main(void)
{
    nrdma_node *node = NULL;
    CHECK_EQ(nrdma_node_create(NULL, &node), NRDMA_OK);
    nrdma_context *c = nrdma_node_get_rdma_context(node, 0);
    CHECK(c != NULL);
    check_interface(c, iid_context, iid_buffer);

    SLOT(c, 5, memory_fn, get_write_memory);
    SLOT(c, 6, memory_fn, get_read_memory);
    SLOT(c, 7, wrap_fn, wrap_user_buffer);
    SLOT(c, 8, flush_fn, flush);
    static uint8_t mine[300];
    nrdma_buffer *buffers[] = {get_write_memory(c, 100000, -1), get_read_memory(c, 70, -1),
                               wrap_user_buffer(c, mine, sizeof mine, -1),
                               nrdma_context_get_write_memory(c, 3, -1)};
    const uint64_t sizes[] = {100000, 70, sizeof mine, 3};
    for (int i = 0; i < 4; ++i) {
        CHECK(buffers[i] != NULL);
        check_buffer(buffers[i], sizes[i]);
    }
    CHECK(nrdma_buffer_get_data(buffers[2]) == mine);
    CHECK_EQ(flush(c, buffers[0]), NRDMA_NOT_IN_FRAGMENT);
    CHECK_EQ(flush(c, NULL), NRDMA_INVALID_PARAMETER);
    CHECK(get_write_memory(c, 0, -1) == NULL && strlen(nrdma_last_error()) > 0);
    CHECK(get_read_memory(c, 1, -2) == NULL && wrap_user_buffer(c, NULL, 1, -1) == NULL);

    /* Contexts of the other face are refused where no host can have it. */
    nrdma_context *other = nrdma_node_get_rdma_context_abi(node, 0, NRDMA_CXX_ABI_MSVC);
#ifdef _WIN32
    CHECK(other != NULL && other != c && nrdma_context_release(other) > 0);
#else
    CHECK(other == NULL);
#endif
    CHECK(nrdma_node_get_rdma_context_abi(node, 0, 7) == NULL);

    /* A buffer outlives its context and its node. */
    CHECK_EQ(nrdma_context_release(c), 0);
    nrdma_node_destroy(node);
    for (int i = 0; i < 4; ++i) {
        CHECK_EQ(nrdma_buffer_get_size(buffers[i]), sizes[i]);
        CHECK(nrdma_buffer_get_data(buffers[i])[0] == 0x5a);
        CHECK_EQ(nrdma_buffer_release(buffers[i]), 0);
    }
    return 0;
}
