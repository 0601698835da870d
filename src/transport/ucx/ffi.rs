//! UCX's types and constants as its header of version 1.13 has them, under the names it gives them.
//!
//! Later versions append fields at the end only, and every struct says in `field_mask` which fields its writer
//! knows: so these serve 1.13 and everything after it. `ffi_tests.rs` has a C compiler compare each size, offset,
//! constant and signature with the installed header.
#![allow(non_camel_case_types)]
// A mirror of what the engine may need, not of what it happens to use.
#![allow(dead_code)]
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::mem;

/// Of `ucp_init_version`: the header's that is mirrored here.
pub(super) const UCP_API_MAJOR: c_uint = 1;
pub(super) const UCP_API_MINOR: c_uint = 13;

macro_rules! handles {
    ($($object:ident $handle:ident)*) => { $(
        /// Known to UCX only.
        #[repr(C)]
        pub(super) struct $object {
            _opaque: [u8; 0],
        }
        pub(super) type $handle = *mut $object;
    )* };
}
handles! {
    ucp_context ucp_context_h
    ucp_worker ucp_worker_h
    ucp_ep ucp_ep_h
    ucp_listener ucp_listener_h
    ucp_conn_request ucp_conn_request_h
    ucp_mem ucp_mem_h
    ucp_rkey ucp_rkey_h
}
/// Settings; known to UCX only.
#[repr(C)]
pub(super) struct ucp_config_t {
    _opaque: [u8; 0],
}
/// A worker's address; known to UCX only.
#[repr(C)]
pub(super) struct ucp_address_t {
    _opaque: [u8; 0],
}

/// One byte: UCX packs the enum. See `status.rs`.
pub(super) type ucs_status_t = i8;
/// Null (done), a status (see `status.rs`), or a request that the caller owns.
pub(super) type ucs_status_ptr_t = *mut c_void;
pub(super) type ucs_thread_mode_t = c_uint;
pub(super) type ucs_memory_type_t = c_uint;
pub(super) type ucp_err_handling_mode_t = c_uint;
pub(super) type ucp_datatype_t = u64;

macro_rules! callbacks {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $( pub(super) type $name = Option<unsafe extern "C" fn($($argument: $type),*) $(-> $result)?>; )*
        /// Name, arguments and result of each, for the comparison with the header.
        #[cfg(test)]
        pub(super) const CALLBACKS: &[(&str, &[&str], &str)] =
            &[$((stringify!($name), &[$(stringify!($type)),*], concat!($(stringify!($result))?))),*];
    };
}
callbacks! {
    ucp_send_nbx_callback_t(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void);
    ucp_am_recv_data_nbx_callback_t(
        request: *mut c_void, status: ucs_status_t, length: usize, user_data: *mut c_void);
    ucp_am_recv_callback_t(
        arg: *mut c_void, header: *const c_void, header_length: usize, data: *mut c_void, length: usize,
        param: *const ucp_am_recv_param_t) -> ucs_status_t;
    ucp_err_handler_cb_t(arg: *mut c_void, ep: ucp_ep_h, status: ucs_status_t);
    ucp_listener_conn_callback_t(conn_request: ucp_conn_request_h, arg: *mut c_void);
    ucp_listener_accept_callback_t(ep: ucp_ep_h, arg: *mut c_void);
    ucp_request_init_callback_t(request: *mut c_void);
    ucp_request_cleanup_callback_t(request: *mut c_void);
}

/// Structs whose all-zero value means "nothing is set", which is what `Default` gives.
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub(super) struct $name {
                $(pub(super) $field: $type,)*
            }
            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: numbers, raw pointers, optional functions and arrays of them: all may be zero.
                    unsafe { mem::zeroed() }
                }
            }
        )*
        /// Name, size and (field, offset) of each, for the comparison with the header.
        #[cfg(test)]
        pub(super) const STRUCTS: &[(&str, usize, &[(&str, usize)])] = &[$((
            stringify!($name),
            size_of::<$name>(),
            &[$((stringify!($field), mem::offset_of!($name, $field))),*],
        )),*];
    };
}
structs! {
    /// For `ucp_init_version`.
    ucp_params_t {
        field_mask: u64,
        features: u64,
        request_size: usize,
        request_init: ucp_request_init_callback_t,
        request_cleanup: ucp_request_cleanup_callback_t,
        tag_sender_mask: u64,
        mt_workers_shared: c_int,
        estimated_num_eps: usize,
        estimated_num_ppn: usize,
        name: *const c_char,
    }
    /// From `ucp_context_query`. `memory_types` has one bit for each `UCS_MEMORY_TYPE_*`.
    ucp_context_attr_t {
        field_mask: u64,
        request_size: usize,
        thread_mode: ucs_thread_mode_t,
        memory_types: u64,
        name: [c_char; UCP_ENTITY_NAME_MAX],
    }
    /// A set of CPUs.
    ucs_cpu_set_t {
        ucs_bits: [c_ulong; 16],
    }
    /// For `ucp_worker_create`.
    ucp_worker_params_t {
        field_mask: u64,
        thread_mode: ucs_thread_mode_t,
        cpu_mask: ucs_cpu_set_t,
        events: c_uint,
        user_data: *mut c_void,
        event_fd: c_int,
        flags: u64,
        name: *const c_char,
        am_alignment: usize,
        client_id: u64,
    }
    /// From `ucp_worker_query`.
    ucp_worker_attr_t {
        field_mask: u64,
        thread_mode: ucs_thread_mode_t,
        address_flags: u32,
        address: *mut ucp_address_t,
        address_length: usize,
        max_am_header: usize,
        name: [c_char; UCP_ENTITY_NAME_MAX],
        max_debug_string: usize,
    }
    /// A socket address, borrowed during the call.
    ucs_sock_addr_t {
        addr: *const libc::sockaddr,
        addrlen: libc::socklen_t,
    }
    /// Called with each connection that the accepting side has made an endpoint of.
    ucp_listener_accept_handler_t {
        cb: ucp_listener_accept_callback_t,
        arg: *mut c_void,
    }
    /// Called with each request to connect.
    ucp_listener_conn_handler_t {
        cb: ucp_listener_conn_callback_t,
        arg: *mut c_void,
    }
    /// For `ucp_listener_create`.
    ucp_listener_params_t {
        field_mask: u64,
        sockaddr: ucs_sock_addr_t,
        accept_handler: ucp_listener_accept_handler_t,
        conn_handler: ucp_listener_conn_handler_t,
    }
    /// From `ucp_listener_query`.
    ucp_listener_attr_t {
        field_mask: u64,
        sockaddr: libc::sockaddr_storage,
    }
    /// From `ucp_conn_request_query`.
    ucp_conn_request_attr_t {
        field_mask: u64,
        client_address: libc::sockaddr_storage,
        client_id: u64,
    }
    /// Called when an endpoint has failed.
    ucp_err_handler_t {
        cb: ucp_err_handler_cb_t,
        arg: *mut c_void,
    }
    /// For `ucp_ep_create`.
    ucp_ep_params_t {
        field_mask: u64,
        address: *const ucp_address_t,
        err_mode: ucp_err_handling_mode_t,
        err_handler: ucp_err_handler_t,
        user_data: *mut c_void,
        flags: c_uint,
        sockaddr: ucs_sock_addr_t,
        conn_request: ucp_conn_request_h,
        name: *const c_char,
        local_sockaddr: ucs_sock_addr_t,
    }
    /// From `ucp_ep_query`.
    ucp_ep_attr_t {
        field_mask: u64,
        name: [c_char; UCP_ENTITY_NAME_MAX],
        local_sockaddr: libc::sockaddr_storage,
        remote_sockaddr: libc::sockaddr_storage,
    }
    /// For `ucp_mem_map`.
    ucp_mem_map_params_t {
        field_mask: u64,
        address: *mut c_void,
        length: usize,
        flags: c_uint,
        prot: c_uint,
        memory_type: ucs_memory_type_t,
    }
    /// From `ucp_mem_query`.
    ucp_mem_attr_t {
        field_mask: u64,
        address: *mut c_void,
        length: usize,
        mem_type: ucs_memory_type_t,
    }
    /// For every `*_nbx`.
    ucp_request_param_t {
        op_attr_mask: u32,
        flags: u32,
        request: *mut c_void,
        cb: ucp_request_cb_t,
        datatype: ucp_datatype_t,
        user_data: *mut c_void,
        reply_buffer: *mut c_void,
        memory_type: ucs_memory_type_t,
        recv_info: *mut usize,
        memh: ucp_mem_h,
    }
    /// For `ucp_worker_set_am_recv_handler`.
    ucp_am_handler_param_t {
        field_mask: u64,
        id: c_uint,
        flags: u32,
        cb: ucp_am_recv_callback_t,
        arg: *mut c_void,
    }
    /// What an AM callback is told.
    ucp_am_recv_param_t {
        recv_attr: u64,
        reply_ep: ucp_ep_h,
    }
}

/// The callback of a request; which one is valid follows from the function called.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union ucp_request_cb_t {
    pub(super) send: ucp_send_nbx_callback_t,
    pub(super) recv_am: ucp_am_recv_data_nbx_callback_t,
}

macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $( pub(super) const $name: $type = $value; )*
        /// Name and value of each, for the comparison with the header.
        #[cfg(test)]
        #[allow(clippy::cast_lossless, clippy::unnecessary_cast)]
        pub(super) const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $value as i64)),*];
    };
}
constants! {
    UCP_ENTITY_NAME_MAX: usize = 32;

    UCP_PARAM_FIELD_FEATURES: u64 = 1 << 0;
    UCP_PARAM_FIELD_REQUEST_SIZE: u64 = 1 << 1;
    UCP_PARAM_FIELD_REQUEST_INIT: u64 = 1 << 2;
    UCP_PARAM_FIELD_REQUEST_CLEANUP: u64 = 1 << 3;
    UCP_PARAM_FIELD_MT_WORKERS_SHARED: u64 = 1 << 5;
    UCP_PARAM_FIELD_ESTIMATED_NUM_EPS: u64 = 1 << 6;
    UCP_PARAM_FIELD_ESTIMATED_NUM_PPN: u64 = 1 << 7;
    UCP_PARAM_FIELD_NAME: u64 = 1 << 8;
    UCP_FEATURE_TAG: u64 = 1 << 0;
    UCP_FEATURE_RMA: u64 = 1 << 1;
    UCP_FEATURE_WAKEUP: u64 = 1 << 4;
    UCP_FEATURE_AM: u64 = 1 << 6;
    UCP_ATTR_FIELD_REQUEST_SIZE: u64 = 1 << 0;
    UCP_ATTR_FIELD_THREAD_MODE: u64 = 1 << 1;
    UCP_ATTR_FIELD_MEMORY_TYPES: u64 = 1 << 2;
    UCP_ATTR_FIELD_NAME: u64 = 1 << 3;

    UCP_WORKER_PARAM_FIELD_THREAD_MODE: u64 = 1 << 0;
    UCP_WORKER_PARAM_FIELD_CPU_MASK: u64 = 1 << 1;
    UCP_WORKER_PARAM_FIELD_EVENTS: u64 = 1 << 2;
    UCP_WORKER_PARAM_FIELD_USER_DATA: u64 = 1 << 3;
    UCP_WORKER_PARAM_FIELD_EVENT_FD: u64 = 1 << 4;
    UCP_WORKER_PARAM_FIELD_FLAGS: u64 = 1 << 5;
    UCP_WORKER_PARAM_FIELD_NAME: u64 = 1 << 6;
    UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT: u64 = 1 << 7;
    UCP_WORKER_PARAM_FIELD_CLIENT_ID: u64 = 1 << 8;
    UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK: u64 = 1 << 0;
    UCP_WORKER_ATTR_FIELD_THREAD_MODE: u64 = 1 << 0;
    UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER: u64 = 1 << 3;
    UCP_WAKEUP_RMA: c_uint = 1 << 0;
    UCP_WAKEUP_TX: c_uint = 1 << 10;
    UCP_WAKEUP_RX: c_uint = 1 << 11;
    UCP_WAKEUP_EDGE: c_uint = 1 << 16;

    UCP_LISTENER_PARAM_FIELD_SOCK_ADDR: u64 = 1 << 0;
    UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER: u64 = 1 << 1;
    UCP_LISTENER_PARAM_FIELD_CONN_HANDLER: u64 = 1 << 2;
    UCP_LISTENER_ATTR_FIELD_SOCKADDR: u64 = 1 << 0;
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR: u64 = 1 << 0;
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID: u64 = 1 << 1;

    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS: u64 = 1 << 0;
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE: u64 = 1 << 1;
    UCP_EP_PARAM_FIELD_ERR_HANDLER: u64 = 1 << 2;
    UCP_EP_PARAM_FIELD_USER_DATA: u64 = 1 << 3;
    UCP_EP_PARAM_FIELD_SOCK_ADDR: u64 = 1 << 4;
    UCP_EP_PARAM_FIELD_FLAGS: u64 = 1 << 5;
    UCP_EP_PARAM_FIELD_CONN_REQUEST: u64 = 1 << 6;
    UCP_EP_PARAM_FIELD_NAME: u64 = 1 << 7;
    UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR: u64 = 1 << 8;
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER: c_uint = 1 << 0;
    UCP_EP_PARAMS_FLAGS_NO_LOOPBACK: c_uint = 1 << 1;
    UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID: c_uint = 1 << 2;
    UCP_ERR_HANDLING_MODE_NONE: ucp_err_handling_mode_t = 0;
    UCP_ERR_HANDLING_MODE_PEER: ucp_err_handling_mode_t = 1;
    UCP_EP_CLOSE_FLAG_FORCE: u32 = 1 << 0;
    UCP_EP_ATTR_FIELD_NAME: u64 = 1 << 0;
    UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR: u64 = 1 << 1;
    UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR: u64 = 1 << 2;

    UCP_MEM_MAP_PARAM_FIELD_ADDRESS: u64 = 1 << 0;
    UCP_MEM_MAP_PARAM_FIELD_LENGTH: u64 = 1 << 1;
    UCP_MEM_MAP_PARAM_FIELD_FLAGS: u64 = 1 << 2;
    UCP_MEM_MAP_PARAM_FIELD_PROT: u64 = 1 << 3;
    UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE: u64 = 1 << 4;
    UCP_MEM_MAP_NONBLOCK: c_uint = 1 << 0;
    UCP_MEM_MAP_ALLOCATE: c_uint = 1 << 1;
    UCP_MEM_MAP_PROT_LOCAL_READ: c_uint = 1 << 0;
    UCP_MEM_MAP_PROT_LOCAL_WRITE: c_uint = 1 << 1;
    UCP_MEM_MAP_PROT_REMOTE_READ: c_uint = 1 << 8;
    UCP_MEM_MAP_PROT_REMOTE_WRITE: c_uint = 1 << 9;
    UCP_MEM_ATTR_FIELD_ADDRESS: u64 = 1 << 0;
    UCP_MEM_ATTR_FIELD_LENGTH: u64 = 1 << 1;
    UCP_MEM_ATTR_FIELD_MEM_TYPE: u64 = 1 << 2;

    UCP_OP_ATTR_FIELD_REQUEST: u32 = 1 << 0;
    UCP_OP_ATTR_FIELD_CALLBACK: u32 = 1 << 1;
    UCP_OP_ATTR_FIELD_USER_DATA: u32 = 1 << 2;
    UCP_OP_ATTR_FIELD_DATATYPE: u32 = 1 << 3;
    UCP_OP_ATTR_FIELD_FLAGS: u32 = 1 << 4;
    UCP_OP_ATTR_FIELD_REPLY_BUFFER: u32 = 1 << 5;
    UCP_OP_ATTR_FIELD_MEMORY_TYPE: u32 = 1 << 6;
    UCP_OP_ATTR_FIELD_RECV_INFO: u32 = 1 << 7;
    UCP_OP_ATTR_FIELD_MEMH: u32 = 1 << 8;
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL: u32 = 1 << 16;
    UCP_OP_ATTR_FLAG_FAST_CMPL: u32 = 1 << 17;
    UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL: u32 = 1 << 18;
    UCP_OP_ATTR_FLAG_MULTI_SEND: u32 = 1 << 19;

    UCP_AM_HANDLER_PARAM_FIELD_ID: u64 = 1 << 0;
    UCP_AM_HANDLER_PARAM_FIELD_FLAGS: u64 = 1 << 1;
    UCP_AM_HANDLER_PARAM_FIELD_CB: u64 = 1 << 2;
    UCP_AM_HANDLER_PARAM_FIELD_ARG: u64 = 1 << 3;
    UCP_AM_FLAG_WHOLE_MSG: u32 = 1 << 0;
    UCP_AM_FLAG_PERSISTENT_DATA: u32 = 1 << 1;
    UCP_AM_SEND_FLAG_REPLY: u32 = 1 << 0;
    UCP_AM_SEND_FLAG_EAGER: u32 = 1 << 1;
    UCP_AM_SEND_FLAG_RNDV: u32 = 1 << 2;
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP: u64 = 1 << 0;
    UCP_AM_RECV_ATTR_FLAG_DATA: u64 = 1 << 16;
    UCP_AM_RECV_ATTR_FLAG_RNDV: u64 = 1 << 17;

    UCS_THREAD_MODE_SINGLE: ucs_thread_mode_t = 0;
    UCS_THREAD_MODE_SERIALIZED: ucs_thread_mode_t = 1;
    UCS_THREAD_MODE_MULTI: ucs_thread_mode_t = 2;
    UCS_MEMORY_TYPE_HOST: ucs_memory_type_t = 0;
    UCS_MEMORY_TYPE_CUDA: ucs_memory_type_t = 1;
    UCS_MEMORY_TYPE_CUDA_MANAGED: ucs_memory_type_t = 2;

    UCS_OK: ucs_status_t = 0;
    UCS_INPROGRESS: ucs_status_t = 1;
    UCS_ERR_NO_MESSAGE: ucs_status_t = -1;
    UCS_ERR_NO_RESOURCE: ucs_status_t = -2;
    UCS_ERR_IO_ERROR: ucs_status_t = -3;
    UCS_ERR_NO_MEMORY: ucs_status_t = -4;
    UCS_ERR_INVALID_PARAM: ucs_status_t = -5;
    UCS_ERR_UNREACHABLE: ucs_status_t = -6;
    UCS_ERR_INVALID_ADDR: ucs_status_t = -7;
    UCS_ERR_NOT_IMPLEMENTED: ucs_status_t = -8;
    UCS_ERR_MESSAGE_TRUNCATED: ucs_status_t = -9;
    UCS_ERR_NO_PROGRESS: ucs_status_t = -10;
    UCS_ERR_BUFFER_TOO_SMALL: ucs_status_t = -11;
    UCS_ERR_NO_ELEM: ucs_status_t = -12;
    UCS_ERR_NO_DEVICE: ucs_status_t = -14;
    UCS_ERR_BUSY: ucs_status_t = -15;
    UCS_ERR_CANCELED: ucs_status_t = -16;
    UCS_ERR_ALREADY_EXISTS: ucs_status_t = -18;
    UCS_ERR_OUT_OF_RANGE: ucs_status_t = -19;
    UCS_ERR_TIMED_OUT: ucs_status_t = -20;
    UCS_ERR_EXCEEDS_LIMIT: ucs_status_t = -21;
    UCS_ERR_UNSUPPORTED: ucs_status_t = -22;
    UCS_ERR_REJECTED: ucs_status_t = -23;
    UCS_ERR_NOT_CONNECTED: ucs_status_t = -24;
    UCS_ERR_CONNECTION_RESET: ucs_status_t = -25;
    UCS_ERR_ENDPOINT_TIMEOUT: ucs_status_t = -80;
    UCS_ERR_LAST: ucs_status_t = -100;
}
