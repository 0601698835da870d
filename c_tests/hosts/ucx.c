/* A host that has handlers, an environment that other threads read, and perhaps a UCX of its own: two nodes of it
 * meet and run a job, and it is afterwards as it was. What nrdma says about UCX is in its log, on stderr.
 *
 *   ucx TRANSPORTS ENGINE [LIBRARY [later]]
 *
 * TRANSPORTS of both nodes; ENGINE is what they shall meet by, or "none"; LIBRARY is a UCX that the host loads
 * before, or later. */
#define _GNU_SOURCE
#include <nrdma/nrdma.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "pair.h"

extern char **environ;

/* ---- what the host has ---- */

enum { CODE = 16 };
static const char *const functions[] = {"mmap", "munmap", "mremap", "brk", "sbrk", "madvise", "shmat", "shmdt"};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

typedef struct host {
    struct sigaction actions[32];
    unsigned char code[FUNCTIONS][CODE];
    char **environment;
    size_t variables;
    char *entries[4096];
} host;

static void look(host *now)
{
    memset(now, 0, sizeof *now);
    for (int i = 1; i < 32; ++i)
        CHECK(sigaction(i, NULL, &now->actions[i]) == 0);
    for (size_t i = 0; i < FUNCTIONS; ++i) {
        const void *at = dlsym(RTLD_DEFAULT, functions[i]);
        CHECK(at != NULL);
        memcpy(now->code[i], at, CODE);
    }
    now->environment = environ;
    for (; environ[now->variables] != NULL; ++now->variables) {
        CHECK(now->variables < sizeof now->entries / sizeof now->entries[0]);
        now->entries[now->variables] = environ[now->variables];
    }
}

static void compare(const host *before)
{
    static host now;
    look(&now);
    for (int i = 1; i < 32; ++i) {
        const struct sigaction *a = &before->actions[i], *b = &now.actions[i];
        if (a->sa_handler != b->sa_handler)
            fprintf(stderr, "another handler for signal %d\n", i);
        CHECK(a->sa_handler == b->sa_handler);
        CHECK(memcmp(&a->sa_mask, &b->sa_mask, 8) == 0); /* what the kernel fills */
    }
    for (size_t i = 0; i < FUNCTIONS; ++i) {
        if (memcmp(before->code[i], now.code[i], CODE) != 0)
            fprintf(stderr, "the code of %s has changed\n", functions[i]);
        CHECK(memcmp(before->code[i], now.code[i], CODE) == 0);
    }
    CHECK(before->environment == now.environment);
    CHECK_EQ(before->variables, now.variables);
    CHECK(memcmp(before->entries, now.entries, sizeof now.entries) == 0);
}

static void on_signal(int number)
{
    (void)number;
}

static atomic_int over;

static void *read_environment(void *arg)
{
    (void)arg;
    do {
        const char *mark = getenv("NRDMA_TEST_MARK");
        CHECK(mark != NULL && strcmp(mark, "here") == 0);
        CHECK(getenv("NRDMA_TEST_NOTHING") == NULL);
    } while (!atomic_load(&over));
    return NULL;
}

static void *load(const char *library)
{
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (loaded == NULL)
        fprintf(stderr, "the host could not load it: %s\n", dlerror());
    else
        fprintf(stderr, "the host has loaded %s\n", library);
    return loaded;
}

/* ---- descriptors ---- */

enum { MOST = 1024 };
static char known[MOST];

/* Descriptors that a program which the host starts would get from us. */
static int inherited(void)
{
    int count = 0;
    for (int fd = 0; fd < MOST; ++fd) {
        const int flags = fcntl(fd, F_GETFD);
        if (known[fd] || flags < 0 || (flags & FD_CLOEXEC) != 0)
            continue;
        char name[64], target[128] = "";
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        CHECK(readlink(name, target, sizeof target - 1) > 0);
        fprintf(stderr, "descriptor %d, %s, is not closed on exec\n", fd, target);
        ++count;
    }
    return count;
}

static void note_descriptors(void)
{
    for (int fd = 0; fd < MOST; ++fd)
        known[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Meanwhile the host has connections which programs that it starts shall have, too. */
static void *connect_own(void *arg)
{
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    (void)arg;
    CHECK(bind(listener, (struct sockaddr *)&at, length) == 0 && listen(listener, 4) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
    do {
        int fds[4] = {socket(AF_INET, SOCK_STREAM, 0)};
        CHECK(connect(fds[0], (struct sockaddr *)&at, length) == 0);
        fds[1] = accept(listener, NULL, NULL);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds + 2) == 0);
        usleep(3000);
        for (int i = 0; i < 4; ++i) {
            CHECK(fcntl(fds[i], F_GETFD) == 0);
            CHECK(close(fds[i]) == 0);
        }
    } while (!atomic_load(&over));
    CHECK(close(listener) == 0);
    return NULL;
}

/* ---- a job ---- */

enum { FRAGMENTS = 8, BYTES = 100000 };
static const nrdma_uuid class_id = {0x75637800u, 1, 2, 3};
static atomic_int received[FRAGMENTS];

static nrdma_status make_replica(void *user, const void *payload, uint64_t size, void **replica)
{
    (void)user, (void)payload, (void)size;
    *replica = NULL;
    return NRDMA_OK;
}

static nrdma_status run(void *replica, const nrdma_fragment *f, nrdma_context *context, nrdma_buffer **result)
{
    (void)replica;
    *result = nrdma_context_get_write_memory(context, BYTES, -1);
    if (*result == NULL)
        return NRDMA_OUT_OF_MEMORY;
    memset(nrdma_buffer_get_data(*result), 'a' + (int)f->index, BYTES);
    return NRDMA_OK;
}

static void drop_replica(void *replica)
{
    (void)replica;
}

static nrdma_buffer *result_memory(void *user, nrdma_context *context, uint64_t index)
{
    (void)user, (void)index;
    return nrdma_context_get_read_memory(context, BYTES, -1);
}

static nrdma_status receive(void *user, nrdma_buffer *buffer, const nrdma_result *result)
{
    const uint8_t *bytes = nrdma_buffer_get_const_data(buffer);
    (void)user;
    CHECK_EQ(result->size, BYTES);
    for (uint64_t i = 0; i < BYTES; ++i)
        CHECK(bytes[i] == 'a' + (int)result->index);
    atomic_fetch_add(&received[result->index], 1);
    return NRDMA_OK;
}

static void add_class(nrdma_node *responder)
{
    nrdma_job_class class = {.struct_size = sizeof class};
    class.create = make_replica;
    class.execute_remote = run;
    class.destroy = drop_replica;
    CHECK_EQ(nrdma_node_register_class(responder, class_id, &class), NRDMA_OK);
}

static void run_job(nrdma_node *requester)
{
    nrdma_job job = NRDMA_JOB_INIT;
    job.class_id = class_id;
    job.mode = NRDMA_CLUSTER;
    job.get_result_buffer = result_memory;
    job.receive_result = receive;
    CHECK_EQ(nrdma_node_execute(requester, &job, FRAGMENTS), NRDMA_OK);
    for (int i = 0; i < FRAGMENTS; ++i)
        CHECK_EQ(received[i], 1);
}

/* A node that has met its peer. */
static void use(nrdma_node *node, const char *engine)
{
    nrdma_peer_info info = {.struct_size = sizeof info};
    uint64_t total = 0;
    CHECK_EQ(nrdma_node_wait_peers(node, 1, 10000), NRDMA_OK);
    CHECK_EQ(nrdma_node_peers(node, &info, sizeof info, 1, &total), NRDMA_OK);
    CHECK_EQ(total, 1);
    fprintf(stderr, "met by %s\n", info.transport);
    CHECK(strcmp(info.transport, engine) == 0);
    run_job(node);
}

int main(int argc, char **argv)
{
    static host before;
    static const int handled[] = {SIGSEGV, SIGFPE, SIGHUP};
    CHECK(argc >= 3);
    const char *const library = argc > 3 ? argv[3] : NULL;
    const int later = argc > 4;
    pair_folder();
    CHECK(setenv("NRDMA_TEST_MARK", "here", 1) == 0);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; ++i) {
        struct sigaction action = {.sa_handler = on_signal};
        CHECK(sigaction(handled[i], &action, NULL) == 0);
    }
    if (library != NULL && !later)
        CHECK(load(library) != NULL);
    look(&before);

    note_descriptors();

    pthread_t readers[3];
    for (int i = 0; i < 3; ++i)
        CHECK(pthread_create(&readers[i], NULL, i < 2 ? read_environment : connect_own, NULL) == 0);
    pair_nodes nodes;
    char bound[128] = "";
    uint32_t id = 0;
    pair_open(&nodes, argv[1]);
    add_class(nodes.b);
    CHECK_EQ(nrdma_node_listen(nodes.a, "127.0.0.1:0", bound, sizeof bound), NRDMA_OK);
    const nrdma_status status = nrdma_node_connect(nodes.b, bound, &id);
    if (strcmp(argv[2], "none") == 0) {
        CHECK(status != NRDMA_OK);
        fprintf(stderr, "not met: %s\n", nrdma_last_error());
    } else {
        if (status != NRDMA_OK)
            fprintf(stderr, "%s\n", nrdma_last_error());
        CHECK_EQ(status, NRDMA_OK);
        use(nodes.a, argv[2]);
    }
    if (later)
        (void)load(library);
    atomic_store(&over, 1);
    for (int i = 0; i < 3; ++i)
        CHECK(pthread_join(readers[i], NULL) == 0);
    if (!later)
        CHECK_EQ(inherited(), 0);
    /* Before the nodes end, and after. What the host loads by itself may change what it likes. */
    if (!later)
        compare(&before);
    pair_close(&nodes);
    if (!later)
        compare(&before);
    return 0;
}
