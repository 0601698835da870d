/* Two connected nodes of one process, for C tests: a listens (host id 1), b connects (host id 2). */
#ifndef NRDMA_TEST_PAIR_H
#define NRDMA_TEST_PAIR_H
#include <nrdma/nrdma.h>

#ifndef _WIN32
#  include <dirent.h>
#  include <unistd.h>
#endif

#include "check.h"

typedef struct pair_nodes {
    nrdma_node *a, *b;
} pair_nodes;

#ifdef _WIN32
/* Ports of the loopback leave nothing behind. */
static inline void pair_folder(void) {}
static inline void pair_cleanup(void) {}
#else
static char pair_path[64];

static pid_t pair_owner;
static inline void pair_remove(const char *folder);

static inline void pair_cleanup(void)
{
    if (pair_path[0] && getpid() == pair_owner) /* not the child of a fork */
        pair_remove(pair_path);
}

/* A private folder for sockets and cookies; it goes at exit, also at that of a failed CHECK. */
static inline void pair_folder(void)
{
    pair_owner = getpid();
    CHECK(atexit(pair_cleanup) == 0);
    snprintf(pair_path, sizeof pair_path, "/tmp/nrdma-test-XXXXXX");
    CHECK(mkdtemp(pair_path) != NULL);
    CHECK(setenv("XDG_RUNTIME_DIR", pair_path, 1) == 0);
}

static inline void pair_remove(const char *folder)
{
    DIR *dir = opendir(folder);
    char name[512];
    if (dir == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        CHECK(snprintf(name, sizeof name, "%s/%s", folder, entry->d_name) < (int)sizeof name);
        if (unlink(name) != 0)
            pair_remove(name);
    }
    closedir(dir);
    rmdir(folder);
}
#endif

/* The engine between processes of one host that every system has. */
#ifdef _WIN32
#  define PAIR_FAR "tcp"
#else
#  define PAIR_FAR "shm"
#endif

static inline void pair_open(pair_nodes *nodes, const char *engine)
{
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    config.transports = engine;
    config.worker_threads = 2;
    config.host_id = 1;
    config.name = "a";
    CHECK_EQ(nrdma_node_create(&config, &nodes->a), NRDMA_OK);
    config.host_id = 2;
    config.name = "b";
    CHECK_EQ(nrdma_node_create(&config, &nodes->b), NRDMA_OK);
}

static inline void pair_meet(pair_nodes *nodes)
{
    char address[128], bound[128] = "";
    uint32_t host = 0;
#ifdef _WIN32
    snprintf(address, sizeof address, "127.0.0.1:0");
#else
    snprintf(address, sizeof address, "unix:%s/pair.sock", pair_path);
#endif
    CHECK_EQ(nrdma_node_listen(nodes->a, address, bound, sizeof bound), NRDMA_OK);
    CHECK_EQ(nrdma_node_connect(nodes->b, bound, &host), NRDMA_OK);
    CHECK_EQ(host, 1);
    CHECK_EQ(nrdma_node_wait_peers(nodes->a, 1, 10000), NRDMA_OK);
    CHECK_EQ(nrdma_node_wait_peers(nodes->b, 1, 10000), NRDMA_OK);
}

static inline void pair_close(pair_nodes *nodes)
{
    CHECK_EQ(nrdma_node_shutdown(nodes->b, 0), NRDMA_OK);
    CHECK_EQ(nrdma_node_shutdown(nodes->a, 0), NRDMA_OK);
    nrdma_node_destroy(nodes->b);
    nrdma_node_destroy(nodes->a);
    nodes->a = nodes->b = NULL;
}
#endif
