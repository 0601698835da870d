//! A node in figures.
use super::config::{Versioned, write_struct};
use super::error::nrdma_status;
use super::guard::guarded;
use super::node::{borrow, nrdma_node};
use crate::core::stats::read;

/// A node in figures.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_stats {
    /// sizeof(nrdma_stats) of the host.
    pub struct_size: u64,
    /// Buffers that came from the cache.
    pub cache_hits: u64,
    /// Buffers that had to be made.
    pub cache_misses: u64,
    /// Bytes that rest in the cache.
    pub cache_idle_bytes: u64,
    /// Buffers that are out.
    pub live_buffers: u64,
    /// Bytes held outside of the cache.
    pub live_bytes: u64,
    /// Bytes of results by path: the same memory on both sides.
    pub bytes_mapped: u64,
    /// By RDMA.
    pub bytes_direct: u64,
    /// Through a bounce buffer.
    pub bytes_staged: u64,
    /// Copied once into place.
    pub bytes_copied: u64,
    /// Fragments of our jobs that ran here.
    pub fragments_local: u64,
    /// Fragments of our jobs that other hosts ran.
    pub fragments_remote: u64,
    /// Fragments that ran here for others.
    pub fragments_served: u64,
    /// Fragments that were tried again.
    pub fragments_retried: u64,
    /// Connected peers.
    pub peers: u64,
    /// Threads of the node.
    pub threads: u64,
}

// SAFETY: starts with its size; numbers, no padding.
unsafe impl Versioned for nrdma_stats {
    const NAME: &'static str = "nrdma_stats";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        cache_hits: 0,
        cache_misses: 0,
        cache_idle_bytes: 0,
        live_buffers: 0,
        live_bytes: 0,
        bytes_mapped: 0,
        bytes_direct: 0,
        bytes_staged: 0,
        bytes_copied: 0,
        fragments_local: 0,
        fragments_remote: 0,
        fragments_served: 0,
        fragments_retried: 0,
        peers: 0,
        threads: 0,
    };
}

/// The node in figures.
///
/// # Safety
/// `node` is NULL or a node; `out` is NULL or a struct whose struct_size is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_stats(node: *mut nrdma_node, out: *mut nrdma_stats) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let cache = node.shared().stats();
        let tally = &node.tally;
        let stats = nrdma_stats {
            struct_size: size_of::<nrdma_stats>() as u64,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_idle_bytes: cache.idle_bytes,
            live_buffers: cache.live_buffers,
            live_bytes: cache.live_bytes,
            bytes_mapped: read(&tally.mapped),
            bytes_direct: read(&tally.direct),
            bytes_staged: read(&tally.staged),
            bytes_copied: read(&tally.copied),
            fragments_local: read(&tally.fragments_local),
            fragments_remote: read(&tally.fragments_remote),
            fragments_served: read(&tally.fragments_served),
            fragments_retried: read(&tally.fragments_retried),
            peers: node.peers_sorted().len() as u64,
            threads: node.threads(),
        };
        // SAFETY: by the contract above.
        unsafe { write_struct(out, &stats) }?;
        Ok(0)
    })
}
