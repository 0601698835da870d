/* A libucp.so.0 that is not what it should be.
 *
 *   FAKE_VERSION   what ucp_get_version answers, as in 1, 13, 0; nothing else is there but what follows
 *   FAKE_INIT      the status that ucp_init_version answers; all functions of UCX 1.13 that nrdma needs are there
 */
#ifdef FAKE_VERSION
void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    const unsigned version[] = {FAKE_VERSION};
    *major = version[0];
    *minor = version[1];
    *release = version[2];
}
#else
int fake_nothing;
#endif

#ifdef FAKE_INIT
#include <stdlib.h>

const char *ucs_status_string(signed char status)
{
    (void)status;
    return "the fake fails";
}

signed char ucp_config_read(const char *prefix, const char *file, void **config)
{
    (void)prefix, (void)file;
    *config = malloc(1);
    return 0;
}

void ucp_config_release(void *config)
{
    free(config);
}

signed char ucp_config_modify(void *config, const char *name, const char *value)
{
    (void)config, (void)name, (void)value;
    return 0;
}

signed char ucp_init_version(unsigned major, unsigned minor, const void *params, const void *config, void **context)
{
    (void)major, (void)minor, (void)params, (void)config, (void)context;
    return FAKE_INIT;
}

/* Nobody gets as far as these. */
#define NEVER(name) \
    void name(void) \
    { \
        abort(); \
    }
NEVER(ucp_context_query)
NEVER(ucp_cleanup)
NEVER(ucp_worker_create)
NEVER(ucp_worker_destroy)
NEVER(ucp_worker_query)
NEVER(ucp_worker_progress)
NEVER(ucp_worker_get_efd)
NEVER(ucp_worker_arm)
NEVER(ucp_worker_signal)
NEVER(ucp_worker_fence)
NEVER(ucp_worker_flush_nbx)
NEVER(ucp_worker_set_am_recv_handler)
NEVER(ucp_listener_create)
NEVER(ucp_listener_query)
NEVER(ucp_listener_reject)
NEVER(ucp_listener_destroy)
NEVER(ucp_conn_request_query)
NEVER(ucp_ep_create)
NEVER(ucp_ep_query)
NEVER(ucp_ep_flush_nbx)
NEVER(ucp_ep_close_nbx)
NEVER(ucp_mem_map)
NEVER(ucp_mem_query)
NEVER(ucp_mem_unmap)
NEVER(ucp_rkey_pack)
NEVER(ucp_rkey_buffer_release)
NEVER(ucp_ep_rkey_unpack)
NEVER(ucp_rkey_destroy)
NEVER(ucp_put_nbx)
NEVER(ucp_get_nbx)
NEVER(ucp_am_send_nbx)
NEVER(ucp_am_recv_data_nbx)
NEVER(ucp_am_data_release)
NEVER(ucp_request_check_status)
NEVER(ucp_request_cancel)
NEVER(ucp_request_free)
#endif
