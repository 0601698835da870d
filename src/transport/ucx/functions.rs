//! The functions of UCX that nrdma calls, found by name in a loaded library.
#![allow(dead_code)]
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::ffi::*;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// One pointer for each function, and one method that calls it. The methods' names, arguments and results
        /// are those of `ucp.h`, which says what each does and what it asks of its caller.
        pub(super) struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Asks `find` for every function. Err: the names that it did not find.
            ///
            /// # Safety
            /// `find` answers with null or with the address of that function in UCX 1.13 or later.
            pub(super) unsafe fn load(find: impl Fn(&CStr) -> *mut c_void) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    let name = concat!(stringify!($name), "\0");
                    let $name = CStr::from_bytes_with_nul(name.as_bytes()).map_or(std::ptr::null_mut(), &find);
                    if $name.is_null() {
                        missing.push(stringify!($name));
                    }
                )*
                if !missing.is_empty() {
                    return Err(missing);
                }
                Ok(Self { $(
                    // SAFETY: not null, and by the contract above a function of this type.
                    $name: unsafe { std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn($($type),*) $(-> $result)?,
                    >($name) },
                )* })
            }

            $(
                /// As in `ucp.h`.
                ///
                /// # Safety
                /// What `ucp.h` asks: live handles, memory valid for as long as the call or its request.
                #[inline]
                #[allow(clippy::too_many_arguments)]
                pub(super) unsafe fn $name(&self, $($argument: $type),*) $(-> $result)? {
                    // SAFETY: by the contract above.
                    unsafe { (self.$name)($($argument),*) }
                }
            )*
        }

        /// Name, arguments and result of each, for the comparison with the header.
        #[cfg(test)]
        pub(super) const FUNCTIONS: &[(&str, &[&str], &str)] =
            &[$((stringify!($name), &[$(stringify!($type)),*], concat!($(stringify!($result))?))),*];
    };
}
functions! {
    ucp_get_version(major: *mut c_uint, minor: *mut c_uint, release: *mut c_uint);
    ucs_status_string(status: ucs_status_t) -> *const c_char;

    ucp_config_read(
        env_prefix: *const c_char, filename: *const c_char, config_p: *mut *mut ucp_config_t) -> ucs_status_t;
    ucp_config_modify(config: *mut ucp_config_t, name: *const c_char, value: *const c_char) -> ucs_status_t;
    ucp_config_release(config: *mut ucp_config_t);

    ucp_init_version(
        api_major: c_uint, api_minor: c_uint, params: *const ucp_params_t, config: *const ucp_config_t,
        context_p: *mut ucp_context_h) -> ucs_status_t;
    ucp_context_query(context: ucp_context_h, attr: *mut ucp_context_attr_t) -> ucs_status_t;
    ucp_cleanup(context: ucp_context_h);

    ucp_worker_create(
        context: ucp_context_h, params: *const ucp_worker_params_t, worker_p: *mut ucp_worker_h) -> ucs_status_t;
    ucp_worker_destroy(worker: ucp_worker_h);
    ucp_worker_query(worker: ucp_worker_h, attr: *mut ucp_worker_attr_t) -> ucs_status_t;
    ucp_worker_progress(worker: ucp_worker_h) -> c_uint;
    ucp_worker_get_efd(worker: ucp_worker_h, fd: *mut c_int) -> ucs_status_t;
    ucp_worker_arm(worker: ucp_worker_h) -> ucs_status_t;
    ucp_worker_signal(worker: ucp_worker_h) -> ucs_status_t;
    ucp_worker_fence(worker: ucp_worker_h) -> ucs_status_t;
    ucp_worker_flush_nbx(worker: ucp_worker_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
    ucp_worker_set_am_recv_handler(worker: ucp_worker_h, param: *const ucp_am_handler_param_t) -> ucs_status_t;

    ucp_listener_create(
        worker: ucp_worker_h, params: *const ucp_listener_params_t, listener_p: *mut ucp_listener_h)
        -> ucs_status_t;
    ucp_listener_query(listener: ucp_listener_h, attr: *mut ucp_listener_attr_t) -> ucs_status_t;
    ucp_listener_reject(listener: ucp_listener_h, conn_request: ucp_conn_request_h) -> ucs_status_t;
    ucp_listener_destroy(listener: ucp_listener_h);
    ucp_conn_request_query(conn_request: ucp_conn_request_h, attr: *mut ucp_conn_request_attr_t) -> ucs_status_t;

    ucp_ep_create(worker: ucp_worker_h, params: *const ucp_ep_params_t, ep_p: *mut ucp_ep_h) -> ucs_status_t;
    ucp_ep_query(ep: ucp_ep_h, attr: *mut ucp_ep_attr_t) -> ucs_status_t;
    ucp_ep_flush_nbx(ep: ucp_ep_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
    ucp_ep_close_nbx(ep: ucp_ep_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;

    ucp_mem_map(
        context: ucp_context_h, params: *const ucp_mem_map_params_t, memh_p: *mut ucp_mem_h) -> ucs_status_t;
    ucp_mem_query(memh: ucp_mem_h, attr: *mut ucp_mem_attr_t) -> ucs_status_t;
    ucp_mem_unmap(context: ucp_context_h, memh: ucp_mem_h) -> ucs_status_t;
    ucp_rkey_pack(
        context: ucp_context_h, memh: ucp_mem_h, rkey_buffer_p: *mut *mut c_void, size_p: *mut usize)
        -> ucs_status_t;
    ucp_rkey_buffer_release(rkey_buffer: *mut c_void);
    ucp_ep_rkey_unpack(ep: ucp_ep_h, rkey_buffer: *const c_void, rkey_p: *mut ucp_rkey_h) -> ucs_status_t;
    ucp_rkey_destroy(rkey: ucp_rkey_h);

    ucp_put_nbx(
        ep: ucp_ep_h, buffer: *const c_void, count: usize, remote_addr: u64, rkey: ucp_rkey_h,
        param: *const ucp_request_param_t) -> ucs_status_ptr_t;
    ucp_get_nbx(
        ep: ucp_ep_h, buffer: *mut c_void, count: usize, remote_addr: u64, rkey: ucp_rkey_h,
        param: *const ucp_request_param_t) -> ucs_status_ptr_t;
    ucp_am_send_nbx(
        ep: ucp_ep_h, id: c_uint, header: *const c_void, header_length: usize, buffer: *const c_void,
        count: usize, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
    ucp_am_recv_data_nbx(
        worker: ucp_worker_h, data_desc: *mut c_void, buffer: *mut c_void, count: usize,
        param: *const ucp_request_param_t) -> ucs_status_ptr_t;
    ucp_am_data_release(worker: ucp_worker_h, data: *mut c_void);

    ucp_request_check_status(request: *mut c_void) -> ucs_status_t;
    ucp_request_cancel(worker: ucp_worker_h, request: *mut c_void);
    ucp_request_free(request: *mut c_void);
}
