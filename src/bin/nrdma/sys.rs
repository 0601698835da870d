//! The part of `nrdma.h` that the tool uses, as any C host sees it: the tool calls the library through its C
//! interface only. Names, order and types are the header's.
#![allow(non_camel_case_types)]
use std::ffi::{c_char, c_void};

use nrdma as _; // Links the library.

pub(crate) type nrdma_status = i32;
pub(crate) const NRDMA_OK: nrdma_status = 0;
pub(crate) const NRDMA_INVALID_PARAMETER: nrdma_status = -1;
pub(crate) const NRDMA_TIMED_OUT: nrdma_status = -32;
pub(crate) const NRDMA_FRAGMENT_FAILED: nrdma_status = -62;
pub(crate) const NRDMA_PATH_MAPPED: i32 = 1;
pub(crate) const NRDMA_PATH_DIRECT: i32 = 2;
pub(crate) const NRDMA_PATH_STAGED: i32 = 3;
pub(crate) const NRDMA_CLUSTER: i32 = 1;
pub(crate) const NRDMA_CXX_ABI_ITANIUM: i32 = 0;
pub(crate) const NRDMA_RESULT_FINAL: u32 = 1;
pub(crate) const NRDMA_JOB_RERUN_AFTER_PARTIAL: u64 = 1;

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct nrdma_uuid {
    pub(crate) id1: u32,
    pub(crate) id2: u32,
    pub(crate) id3: u32,
    pub(crate) id4: u32,
}

#[repr(C)]
pub(crate) struct nrdma_buffer {
    pub(crate) vtbl: *const nrdma_buffer_vtbl_itanium,
}

#[repr(C)]
pub(crate) struct nrdma_context {
    pub(crate) vtbl: *const nrdma_context_vtbl_itanium,
}

type Unused = *const c_void;

#[repr(C)]
pub(crate) struct nrdma_buffer_vtbl_itanium {
    pub(crate) retain: unsafe extern "C" fn(*const nrdma_buffer) -> u32,
    pub(crate) release: unsafe extern "C" fn(*const nrdma_buffer) -> u32,
    get_interface_const: Unused,
    get_interface: Unused,
    get_iid: Unused,
    get_id: Unused,
    get_gpu_id: Unused,
    pub(crate) get_data_const: unsafe extern "C" fn(*const nrdma_buffer) -> *const u8,
    pub(crate) get_data: unsafe extern "C" fn(*mut nrdma_buffer) -> *mut u8,
    pub(crate) get_size: unsafe extern "C" fn(*const nrdma_buffer) -> u64,
    duplicate_const: Unused,
    duplicate: Unused,
    is_gpudirect: Unused,
}

#[repr(C)]
pub(crate) struct nrdma_context_vtbl_itanium {
    pub(crate) retain: unsafe extern "C" fn(*const nrdma_context) -> u32,
    pub(crate) release: unsafe extern "C" fn(*const nrdma_context) -> u32,
    get_interface_const: Unused,
    get_interface: Unused,
    get_iid: Unused,
    pub(crate) get_write_memory: unsafe extern "C" fn(*mut nrdma_context, u64, i32) -> *mut nrdma_buffer,
    pub(crate) get_read_memory: unsafe extern "C" fn(*mut nrdma_context, u64, i32) -> *mut nrdma_buffer,
    wrap_user_buffer: Unused,
    pub(crate) flush: unsafe extern "C" fn(*mut nrdma_context, *mut nrdma_buffer) -> i32,
}

#[repr(C)]
pub(crate) struct nrdma_node {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nrdma_node_config {
    pub(crate) struct_size: u64,
    pub(crate) name: *const c_char,
    pub(crate) host_id: u32,
    pub(crate) worker_threads: u32,
    pub(crate) transports: *const c_char,
    pub(crate) net_interface: *const c_char,
    pub(crate) auth_token: *const c_char,
    pub(crate) insecure: u32,
    pub(crate) tls: u32,
    pub(crate) cache_idle_bytes: u64,
    pub(crate) heartbeat_ms: u32,
    pub(crate) peer_timeout_ms: u32,
    pub(crate) connect_timeout_ms: u32,
    pub(crate) shutdown_timeout_ms: u32,
    pub(crate) gpu_id_base: i32,
    pub(crate) zero_copy: u32,
    pub(crate) zero_on_reuse: u32,
    pub(crate) reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nrdma_peer_info {
    pub(crate) struct_size: u64,
    pub(crate) host_id: u32,
    pub(crate) alive: u32,
    pub(crate) name: [c_char; 64],
    pub(crate) address: [c_char; 128],
    pub(crate) transport: [c_char; 16],
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) fragments_run: u64,
    pub(crate) fragments_sent: u64,
    pub(crate) round_trip_ns: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct nrdma_stats {
    pub(crate) struct_size: u64,
    pub(crate) cache_hits: u64,
    pub(crate) cache_misses: u64,
    pub(crate) cache_idle_bytes: u64,
    pub(crate) live_buffers: u64,
    pub(crate) live_bytes: u64,
    pub(crate) bytes_mapped: u64,
    pub(crate) bytes_direct: u64,
    pub(crate) bytes_staged: u64,
    pub(crate) bytes_copied: u64,
    pub(crate) fragments_local: u64,
    pub(crate) fragments_remote: u64,
    pub(crate) fragments_served: u64,
    pub(crate) fragments_retried: u64,
    pub(crate) peers: u64,
    pub(crate) threads: u64,
}

#[repr(C)]
pub(crate) struct nrdma_fragment {
    pub(crate) struct_size: u64,
    pub(crate) index: u64,
    pub(crate) count: u64,
    pub(crate) thread_id: u64,
    pub(crate) host_id: u32,
    pub(crate) attempt: u32,
}

#[repr(C)]
pub(crate) struct nrdma_result {
    pub(crate) struct_size: u64,
    pub(crate) index: u64,
    pub(crate) count: u64,
    pub(crate) size: u64,
    pub(crate) host_id: u32,
    pub(crate) attempt: u32,
    pub(crate) sequence: u32,
    pub(crate) flags: u32,
    pub(crate) path: i32,
    pub(crate) reserved: u32,
}

#[repr(C)]
pub(crate) struct nrdma_job {
    pub(crate) struct_size: u64,
    pub(crate) user: *mut c_void,
    pub(crate) class_id: nrdma_uuid,
    pub(crate) payload: *const c_void,
    pub(crate) payload_size: u64,
    pub(crate) mode: i32,
    pub(crate) priority: i32,
    pub(crate) abi: i32,
    pub(crate) timeout_ms: u32,
    pub(crate) thread_limit: u64,
    pub(crate) flags: u64,
    pub(crate) execute_fragment:
        Option<unsafe extern "C" fn(*mut c_void, *const nrdma_fragment) -> nrdma_status>,
    pub(crate) get_result_buffer:
        Option<unsafe extern "C" fn(*mut c_void, *mut nrdma_context, u64) -> *mut nrdma_buffer>,
    pub(crate) receive_result:
        Option<unsafe extern "C" fn(*mut c_void, *mut nrdma_buffer, *const nrdma_result) -> nrdma_status>,
    pub(crate) receive_bytes:
        Option<unsafe extern "C" fn(*mut c_void, *const u8, *const nrdma_result) -> nrdma_status>,
    pub(crate) assign_hosts: Option<unsafe extern "C" fn(*mut c_void, *mut u32, u64)>,
    pub(crate) fragment_failed: Option<unsafe extern "C" fn(*mut c_void, u64, nrdma_status, *const c_char)>,
    pub(crate) cancel: Option<unsafe extern "C" fn(*mut c_void)>,
}

#[repr(C)]
pub(crate) struct nrdma_job_class {
    pub(crate) struct_size: u64,
    pub(crate) user: *mut c_void,
    pub(crate) abi: i32,
    pub(crate) reserved: u32,
    pub(crate) create:
        Option<unsafe extern "C" fn(*mut c_void, *const c_void, u64, *mut *mut c_void) -> nrdma_status>,
    pub(crate) execute_remote: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const nrdma_fragment,
            *mut nrdma_context,
            *mut *mut nrdma_buffer,
        ) -> nrdma_status,
    >,
    pub(crate) execute_remote_bytes: Unused,
    pub(crate) cancel: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) destroy: Option<unsafe extern "C" fn(*mut c_void)>,
}

unsafe extern "C" {
    pub(crate) safe fn nrdma_status_string(status: nrdma_status) -> *const c_char;
    pub(crate) safe fn nrdma_last_error() -> *const c_char;
    pub(crate) safe fn nrdma_version_string() -> *const c_char;
    pub(crate) fn nrdma_context_wrap_user_buffer_with(
        context: *mut nrdma_context,
        data: *mut u8,
        size: u64,
        gpu_id: i32,
        done: unsafe extern "C" fn(*mut c_void),
        user: *mut c_void,
    ) -> *mut nrdma_buffer;
    pub(crate) fn nrdma_node_create(
        config: *const nrdma_node_config,
        node: *mut *mut nrdma_node,
    ) -> nrdma_status;
    pub(crate) fn nrdma_node_host_id(node: *const nrdma_node) -> u32;
    pub(crate) fn nrdma_node_listen(
        node: *mut nrdma_node,
        address: *const c_char,
        bound: *mut c_char,
        bound_capacity: u64,
    ) -> nrdma_status;
    pub(crate) fn nrdma_node_connect(
        node: *mut nrdma_node,
        address: *const c_char,
        host_id: *mut u32,
    ) -> nrdma_status;
    pub(crate) fn nrdma_node_peers(
        node: *mut nrdma_node,
        out: *mut nrdma_peer_info,
        stride: u64,
        capacity: u64,
        total: *mut u64,
    ) -> nrdma_status;
    pub(crate) fn nrdma_node_wait_peers(
        node: *mut nrdma_node,
        at_least: u64,
        timeout_ms: u32,
    ) -> nrdma_status;
    pub(crate) fn nrdma_node_get_rdma_context_abi(
        node: *mut nrdma_node,
        host_id: u32,
        abi: i32,
    ) -> *mut nrdma_context;
    pub(crate) fn nrdma_node_stats(node: *mut nrdma_node, out: *mut nrdma_stats) -> nrdma_status;
    pub(crate) fn nrdma_node_shutdown(node: *mut nrdma_node, timeout_ms: u32) -> nrdma_status;
    pub(crate) fn nrdma_node_destroy(node: *mut nrdma_node);
    pub(crate) fn nrdma_node_register_class(
        node: *mut nrdma_node,
        class_id: nrdma_uuid,
        job_class: *const nrdma_job_class,
    ) -> nrdma_status;
    pub(crate) fn nrdma_node_execute(
        node: *mut nrdma_node,
        job: *const nrdma_job,
        count: u64,
    ) -> nrdma_status;
}
