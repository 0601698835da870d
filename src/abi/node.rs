//! Nodes: made, connected, ended.
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffer::make;
use super::config::{Versioned, read_struct};
use super::context::{Context, nrdma_context};
use super::error::{nrdma_status, set_last};
use super::face::Face;
use super::fork;
use super::guard::{guard, guarded};
use super::interface::nrdma_cxx_abi;
use super::node_config::{nrdma_node_config, settings, text};
use super::process;
use crate::core::error::{Error, Kind, Result};
use crate::core::log;
use crate::core::node::Node;

/// One process's membership; see nrdma_node_create.
pub struct nrdma_node {
    node: Arc<Node>,
}

/// The node behind a pointer from C.
///
/// # Safety
/// `node` is null or came from nrdma_node_create and was not destroyed.
pub(crate) unsafe fn borrow<'a>(node: *const nrdma_node) -> Result<&'a Arc<Node>> {
    fork::check()?;
    // SAFETY: by the contract above.
    let node = unsafe { node.as_ref() }.ok_or_else(|| Error::invalid("the node is NULL"))?;
    Ok(&node.node)
}

/// A time limit as C gives it: 0 is the default, all ones is none.
pub(crate) fn milliseconds(ms: u32, default: Duration) -> Option<Duration> {
    match ms {
        0 => Some(default),
        u32::MAX => None,
        ms => Some(Duration::from_millis(u64::from(ms))),
    }
}

/// Makes a node; `config` NULL is all defaults. It listens to nothing yet. Ends with nrdma_node_destroy.
///
/// # Safety
/// `config` is NULL or a struct whose struct_size is true; `node` is NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_create(
    config: *const nrdma_node_config,
    node: *mut *mut nrdma_node,
) -> nrdma_status {
    guarded(|| {
        super::log::start();
        fork::watch();
        process::stay_loaded();
        fork::check()?;
        // SAFETY: by the contract above.
        let out = unsafe { node.as_mut() }
            .ok_or_else(|| Error::invalid("node, the place for the result, is NULL"))?;
        *out = ptr::null_mut();
        let raw = match config.is_null() {
            true => nrdma_node_config::DEFAULT,
            // SAFETY: by the contract above.
            false => unsafe { read_struct(config) }?,
        };
        // SAFETY: by the contract above.
        let config = unsafe { settings(&raw) }?;
        let node = Node::create(config, crate::backends(), make)?;
        *out = Box::into_raw(Box::new(nrdma_node { node }));
        Ok(0)
    })
}

/// The node's cluster-wide id; 0 when it is NULL.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_host_id(node: *const nrdma_node) -> u32 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { borrow(node) }.map(|node| node.host_id()))
}

/// Listens on an address (unix:/path, unix:@name; unix: alone is a new one of its own). `bound` gets the
/// address to connect to; NRDMA_BUFFER_TOO_SMALL when it does not fit, and then nothing is listened on.
///
/// # Safety
/// `node` is NULL or a node; `address` is NULL or a C string; `bound` has room for `bound_capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_listen(
    node: *mut nrdma_node,
    address: *const c_char,
    bound: *mut c_char,
    bound_capacity: u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        // SAFETY: by the contract above.
        let address =
            unsafe { text(address, "address") }?.ok_or_else(|| Error::invalid("address is NULL"))?;
        let room = if bound.is_null() { None } else { Some(bound_capacity) };
        let actual = node.listen(&address, room)?;
        if !bound.is_null() {
            // SAFETY: listen checked that it fits, with its NUL.
            unsafe { bound.cast::<u8>().copy_from_nonoverlapping(actual.as_ptr(), actual.len()) };
            // SAFETY: as above.
            let end = unsafe { bound.cast::<u8>().add(actual.len()) };
            // SAFETY: as above.
            unsafe { end.write(0) };
        }
        Ok(0)
    })
}

/// Connects to a listening node; `host_id`, unless NULL, gets its id.
///
/// # Safety
/// `node` is NULL or a node; `address` is NULL or a C string; `host_id` is NULL or room for an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_connect(
    node: *mut nrdma_node,
    address: *const c_char,
    host_id: *mut u32,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        // SAFETY: by the contract above.
        let address =
            unsafe { text(address, "address") }?.ok_or_else(|| Error::invalid("address is NULL"))?;
        let id = node.connect(&address)?;
        // SAFETY: by the contract above.
        if let Some(out) = unsafe { host_id.as_mut() } {
            *out = id;
        }
        Ok(0)
    })
}

/// Hangs up on a peer; its fragments are lost, its contexts answer NULL and -1 from now on.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_disconnect(node: *mut nrdma_node, host_id: u32) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        unsafe { borrow(node) }?.disconnect(host_id)?;
        Ok(0)
    })
}

/// The context of a host, +1: a mi::neuraylib::IRDMA_context. 0 is this host; NULL when there is no such host.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_get_rdma_context_abi(
    node: *mut nrdma_node,
    host_id: u32,
    abi: nrdma_cxx_abi,
) -> *mut nrdma_context {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let face = Face::of(abi)?;
        Ok(Context::of_host(&node.home(host_id)?).into_raw(face))
    })
}

/// Frees idle memory of the cache until about `keep_idle_bytes` are left.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_trim(node: *mut nrdma_node, keep_idle_bytes: u64) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        unsafe { borrow(node) }?.shared().trim(keep_idle_bytes);
        Ok(0)
    })
}

/// Ends the node: abandons its jobs, tells its peers, joins its threads. Idempotent; 0 waits for
/// shutdown_timeout_ms, NRDMA_NONE for ever. NRDMA_TIMED_OUT names what is stuck. Not from a callback.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_shutdown(node: *mut nrdma_node, timeout_ms: u32) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        node.shutdown(milliseconds(timeout_ms, node.config.shutdown_timeout))?;
        Ok(0)
    })
}

/// Shuts the node down (shutdown_timeout_ms) and frees it; NULL is allowed. No other call on the node may be
/// running or follow. Not from a callback: then nothing happens. Contexts and buffers stay valid: get_* return
/// NULL, flush -1, data can be read. A node whose callback never returns is leaked, not freed.
///
/// # Safety
/// `node` is NULL or a node that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_destroy(node: *mut nrdma_node) {
    guard(|| {
        if node.is_null() || fork::is_child() {
            return;
        }
        // SAFETY: by the contract above.
        let borrowed = unsafe { &(*node).node };
        let ended = borrowed.shutdown(Some(borrowed.config.shutdown_timeout));
        match ended {
            Err(error) if error.kind == Kind::InvalidParameter => {
                set_last(&error);
                log::error!("nrdma_node_destroy: {error}");
            }
            Err(error) => log::error!("a node is leaked: {error}"),
            Ok(()) => {
                // Threads that have ended may still be on their way out of the node.
                let deadline = Instant::now() + Duration::from_secs(1);
                while Arc::strong_count(borrowed) > 1 && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_micros(50));
                }
                // SAFETY: made by nrdma_node_create, and given up here.
                drop(unsafe { Box::from_raw(node) });
            }
        }
    });
}
