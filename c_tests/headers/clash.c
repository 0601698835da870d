/* No identifier of the header is one of those macros. */
#define _GNU_SOURCE
#if defined(__clang__)
#  pragma clang diagnostic ignored "-Wmacro-redefined"
#endif
#include "clash.h"
#include <nrdma/nrdma.h>

extern nrdma_node_config config;
nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
