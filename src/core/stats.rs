//! Counters of one node.
use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer::Path;

/// What went where, since the node was made.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) mapped: AtomicU64,
    pub(crate) direct: AtomicU64,
    pub(crate) staged: AtomicU64,
    pub(crate) copied: AtomicU64,
    pub(crate) fragments_local: AtomicU64,
    pub(crate) fragments_remote: AtomicU64,
    pub(crate) fragments_served: AtomicU64,
    pub(crate) fragments_retried: AtomicU64,
}

impl Tally {
    /// Counts the bytes of one transfer under its path.
    pub(crate) fn count(&self, path: Path, bytes: u64) {
        let counter = match path {
            Path::None => return,
            Path::Mapped => &self.mapped,
            Path::Direct => &self.direct,
            Path::Staged => &self.staged,
            Path::Copied => &self.copied,
        };
        add(counter, bytes);
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
