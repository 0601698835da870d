/* The header by itself, twice, in every C standard. */
#include <nrdma/nrdma.h>
#include <nrdma/nrdma.h>

extern nrdma_node_config config;
extern nrdma_job job;
nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
nrdma_job job = NRDMA_JOB_INIT;

int main(void)
{
    nrdma_uuid ids[] = {NRDMA_IID_INTERFACE, NRDMA_IID_RDMA_BUFFER, NRDMA_IID_RDMA_BUFFER_2019,
                        NRDMA_IID_RDMA_CONTEXT};
    nrdma_context *context = nrdma_node_get_rdma_context(NULL, 0);
    config.worker_threads = NRDMA_NONE;
    config.cache_idle_bytes = NRDMA_NONE;
    job.mode = NRDMA_CLUSTER;
    return context == NULL && ids[0].id1 == 0 && nrdma_version() == 0;
}
