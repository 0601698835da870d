// The C header and neuray.hpp in every C++ standard.
#include <nrdma/nrdma.h>

nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
nrdma_job job = NRDMA_JOB_INIT;
nrdma_uuid id = NRDMA_IID_RDMA_CONTEXT;

#include <nrdma/neuray.hpp>

mi::base::Handle<mi::neuraylib::IRDMA_context> context;

nrdma_context* of_this_host(nrdma_node* node) { return nrdma_node_get_rdma_context(node, 0); }
