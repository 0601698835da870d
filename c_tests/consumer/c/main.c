/* A stranger's C program: a node, a buffer, and the version that it was compiled for. */
#include <nrdma/nrdma.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    nrdma_node *node = NULL;
    char version[32];
    config.name = "consumer";
    snprintf(version, sizeof version, "%d.%d.%d", NRDMA_VERSION_MAJOR, NRDMA_VERSION_MINOR,
             NRDMA_VERSION_PATCH);
    if (strcmp(version, nrdma_version_string()) != 0) {
        fprintf(stderr, "compiled for %s, runs with %s\n", version, nrdma_version_string());
        return 1;
    }
    if (nrdma_node_create(&config, &node) != NRDMA_OK) {
        fprintf(stderr, "%s\n", nrdma_last_error());
        return 1;
    }
    nrdma_context *context = nrdma_node_get_rdma_context(node, 0);
    nrdma_buffer *buffer = nrdma_context_get_write_memory(context, 1 << 20, -1);
    if (buffer == NULL) {
        fprintf(stderr, "%s\n", nrdma_last_error());
        return 1;
    }
    memset(nrdma_buffer_get_data(buffer), 7, (size_t)nrdma_buffer_get_size(buffer));
    int left = nrdma_buffer_release(buffer) != 0 || nrdma_context_release(context) != 0;
    nrdma_node_destroy(node);
    return left;
}
