//! Counts of what the cache did, one block per thread so that counting costs nothing.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One thread's counts; only that thread writes. Sums are taken over all threads, modulo 2^64, because
/// what one thread takes another may give back.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Account {
    hits: AtomicU64,
    misses: AtomicU64,
    shells: AtomicU64,
    returned: AtomicU64,
    live_bytes: AtomicU64,
    idle_bytes: AtomicU64,
}

/// What the cache did and holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheStats {
    /// Buffers handed out again.
    pub(crate) hits: u64,
    /// Buffers made.
    pub(crate) misses: u64,
    /// Bytes kept for later.
    pub(crate) idle_bytes: u64,
    /// Buffers that somebody holds.
    pub(crate) live_buffers: u64,
    /// Bytes of those that are the cache's.
    pub(crate) live_bytes: u64,
}

/// One writer: a plain addition instead of a locked one.
fn add(cell: &AtomicU64, value: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(value), Relaxed);
}

impl Account {
    /// A buffer left the cache or was made.
    pub(crate) fn took(&self, hit: bool, size: u64) {
        add(if hit { &self.hits } else { &self.misses }, 1);
        add(&self.live_bytes, size);
    }
    /// A shell went out.
    pub(crate) fn lent(&self) {
        add(&self.shells, 1);
    }
    /// A buffer, or a shell with a size of 0, came back.
    pub(crate) fn returned(&self, size: u64) {
        add(&self.returned, 1);
        add(&self.live_bytes, size.wrapping_neg());
    }
    /// This thread keeps `bytes` more.
    pub(crate) fn keep(&self, bytes: u64) {
        add(&self.idle_bytes, bytes);
    }
    /// This thread keeps `bytes` less.
    pub(crate) fn unkeep(&self, bytes: u64) {
        add(&self.idle_bytes, bytes.wrapping_neg());
    }
    /// Bytes that this thread keeps.
    pub(crate) fn kept(&self) -> u64 {
        self.idle_bytes.load(Relaxed)
    }

    /// Adds another's counts to these.
    pub(crate) fn fold(&self, other: &Self) {
        for (to, from) in self.cells().into_iter().zip(other.cells()) {
            to.fetch_add(from.load(Relaxed), Relaxed);
        }
    }

    fn cells(&self) -> [&AtomicU64; 6] {
        [&self.hits, &self.misses, &self.shells, &self.returned, &self.live_bytes, &self.idle_bytes]
    }

    /// The counts.
    pub(crate) fn stats(&self) -> CacheStats {
        let [hits, misses, shells, returned, live_bytes, idle_bytes] =
            self.cells().map(|cell| cell.load(Relaxed));
        let live_buffers = (hits + misses + shells).wrapping_sub(returned);
        CacheStats { hits, misses, idle_bytes, live_buffers, live_bytes }
    }
}
