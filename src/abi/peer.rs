//! A node's peers in figures, and word of their coming and going.
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::config::{Versioned, copy_text, write_struct};
use super::error::nrdma_status;
use super::guard::{call_foreign, guarded};
use super::node::{borrow, milliseconds, nrdma_node};
use crate::core::error::Error;
use crate::core::log;
use crate::core::node::{PeerCallback, PeerEvent, PeerInfo};

/// A peer was connected.
pub const NRDMA_PEER_EVENT_JOINED: i32 = 1;
/// A peer left in good order.
pub const NRDMA_PEER_EVENT_LEFT: i32 = 2;
/// A peer was lost.
pub const NRDMA_PEER_EVENT_LOST: i32 = 3;

/// A peer in figures.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_peer_info {
    /// sizeof(nrdma_peer_info) of the host.
    pub struct_size: u64,
    /// Its id.
    pub host_id: u32,
    /// 1 while it is connected.
    pub alive: u32,
    /// Its name.
    pub name: [c_char; 64],
    /// Where it is.
    pub address: [c_char; 128],
    /// The engine: inproc, shm.
    pub transport: [c_char; 16],
    /// Bytes of results sent to it.
    pub bytes_sent: u64,
    /// Bytes of results received from it.
    pub bytes_received: u64,
    /// Fragments run here for it.
    pub fragments_run: u64,
    /// Fragments sent to it.
    pub fragments_sent: u64,
    /// The shortest round trip seen, in nanoseconds; 0 when none was measured.
    pub round_trip_ns: u64,
}

// SAFETY: starts with its size; numbers, no padding.
unsafe impl Versioned for nrdma_peer_info {
    const NAME: &'static str = "nrdma_peer_info";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        host_id: 0,
        alive: 0,
        name: [0; 64],
        address: [0; 128],
        transport: [0; 16],
        bytes_sent: 0,
        bytes_received: 0,
        fragments_run: 0,
        fragments_sent: 0,
        round_trip_ns: 0,
    };
}

/// As much of a text as fits.
fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    copy_text(text, &mut out);
    out
}

fn peer_info(info: &PeerInfo) -> nrdma_peer_info {
    nrdma_peer_info {
        struct_size: size_of::<nrdma_peer_info>() as u64,
        host_id: info.host_id,
        alive: u32::from(info.alive),
        name: array(&info.name),
        address: array(&info.address),
        transport: array(info.transport),
        bytes_sent: info.bytes_sent,
        bytes_received: info.bytes_received,
        fragments_run: info.fragments_run,
        fragments_sent: info.fragments_sent,
        round_trip_ns: info.round_trip_ns,
    }
}

/// The peers, by host id: at most `capacity` elements, `stride` = sizeof(nrdma_peer_info) of the host apart.
/// `total`, unless NULL, gets how many there are. With `out` NULL that is all.
///
/// # Safety
/// `node` is NULL or a node; `out` has room for `capacity` elements of `stride` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_peers(
    node: *mut nrdma_node,
    out: *mut nrdma_peer_info,
    stride: u64,
    capacity: u64,
    total: *mut u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let stride = usize::try_from(stride).unwrap_or(usize::MAX);
        if !out.is_null() && !(16..=1 << 20).contains(&stride) {
            let text = format!(
                "stride is {stride}; pass sizeof(nrdma_peer_info) (here {})",
                size_of::<nrdma_peer_info>()
            );
            return Err(Error::invalid(text));
        }
        let peers = node.peers_sorted();
        // SAFETY: by the contract above.
        if let Some(total) = unsafe { total.as_mut() } {
            *total = peers.len() as u64;
        }
        let capacity = if out.is_null() { 0 } else { usize::try_from(capacity).unwrap_or(usize::MAX) };
        for (at, peer) in peers.iter().enumerate().take(capacity) {
            let info = peer_info(&node.peer_info(peer));
            // SAFETY: inside the caller's array.
            let place = unsafe { out.cast::<u8>().add(at * stride) };
            // SAFETY: each element starts with its size.
            unsafe { place.cast::<u64>().write_unaligned(stride as u64) };
            // SAFETY: the element has `stride` bytes.
            unsafe { write_struct(place.cast::<nrdma_peer_info>(), &info) }?;
        }
        Ok(0)
    })
}

/// Waits until at least so many peers are connected; 0 waits for connect_timeout_ms, NRDMA_NONE for ever.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_wait_peers(
    node: *mut nrdma_node,
    at_least: u64,
    timeout_ms: u32,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        node.wait_peers(at_least, milliseconds(timeout_ms, node.config.connect_timeout))?;
        Ok(0)
    })
}

/// The host's function for peers that come and go.
struct Listener {
    function: unsafe extern "C-unwind" fn(*mut c_void, *const nrdma_peer_info, i32),
    user: *mut c_void,
}

// SAFETY: the host promises that it may be called on any thread.
unsafe impl Send for Listener {}
// SAFETY: as above.
unsafe impl Sync for Listener {}

/// Sets who hears of peers: event is NRDMA_PEER_EVENT_JOINED, _LEFT or _LOST. NULL ends it;
/// an event that is already on its way may still come.
///
/// # Safety
/// `node` is NULL or a node; `fn` may be called with `user` on any thread until the node is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_set_peer_callback(
    node: *mut nrdma_node,
    function: Option<
        unsafe extern "C-unwind" fn(user: *mut c_void, info: *const nrdma_peer_info, event: i32),
    >,
    user: *mut c_void,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        node.set_peer_callback(function.map(|function| {
            let listener = Listener { function, user };
            Arc::new(move |info: &PeerInfo, event: PeerEvent| {
                let Listener { function, user } = &listener;
                let info = peer_info(info);
                let event = event as i32;
                // SAFETY: the host's function, with what its type says.
                let told = call_foreign(|| unsafe { function(*user, &raw const info, event) });
                if let Err(error) = told {
                    log::error!("peer callback: {error}");
                }
            }) as PeerCallback
        }));
        Ok(0)
    })
}
