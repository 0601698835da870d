/* A host that loads the library by hand: dlclose is harmless, because the library stays. dlopen LIBRARY */
#include "../check.h"
#include <dlfcn.h>
#include <nrdma/nrdma.h>

static void *library;

static void find(const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    CHECK(symbol != NULL);
    memcpy(function, &symbol, sizeof symbol);
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 2);
    nrdma_node *kept = NULL;
    void (*destroy)(nrdma_node *) = NULL;
    uint32_t (*host_id)(const nrdma_node *) = NULL;
    for (int i = 0; i < 20; ++i) {
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(library != NULL);
        nrdma_status (*create)(const nrdma_node_config *, nrdma_node **);
        const char *(*version)(void);
        find("nrdma_node_create", &create);
        find("nrdma_node_destroy", &destroy);
        find("nrdma_node_host_id", &host_id);
        find("nrdma_version_string", &version);
        nrdma_node *node = NULL;
        CHECK_EQ(create(NULL, &node), NRDMA_OK);
        CHECK(host_id(node) != 0);
        if (i == 0)
            kept = node;
        else
            destroy(node);
        /* The first node and its threads live on over every dlclose. */
        CHECK_EQ(dlclose(library), 0);
        CHECK(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL);
        CHECK(strlen(version()) > 0);
        CHECK(host_id(kept) != 0);
    }
    destroy(kept);
    return 0;
}
