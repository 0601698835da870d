//! A region: memory with what peers know about it, living as long as the memory.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::error::Result;
use super::memory::{Block, Kind};
use super::sync::lock;
use super::transport::{Link, RegionKey};

/// One block, cut into chunks when it is a slab.
pub(crate) struct Region {
    key: RegionKey,
    block: Arc<dyn Block>,
    kind: Kind,
    whole: bool,
    exposed: Option<Weak<dyn Link>>,
    retired: AtomicBool,
    detaching: Mutex<()>,
    /// The pages that the peer still writes to, after the region was cut off.
    old: OnceLock<Arc<dyn Block>>,
}

impl Region {
    /// `whole`: one buffer has it all. `exposed`: the link whose peer was told of it.
    pub(crate) fn new(
        key: RegionKey,
        block: Arc<dyn Block>,
        kind: Kind,
        whole: bool,
        exposed: Option<Weak<dyn Link>>,
    ) -> Self {
        Self {
            key,
            block,
            kind,
            whole,
            exposed,
            retired: AtomicBool::new(false),
            detaching: Mutex::new(()),
            old: OnceLock::new(),
        }
    }

    /// Its name on the wire, when the peer knows it and may use it.
    pub(crate) fn key(&self) -> Option<RegionKey> {
        (self.exposed.is_some() && !self.is_retired()).then_some(self.key)
    }

    /// Its memory.
    pub(crate) fn block(&self) -> &Arc<dyn Block> {
        &self.block
    }

    /// Private once it was detached.
    pub(crate) fn kind(&self) -> Kind {
        if self.is_retired() { Kind::Private } else { self.kind }
    }

    /// Whether one buffer has all of its pages.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether it was cut off from its peer and must not be used again.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Cuts the region off from its peer, at the same address; the first `used` bytes are kept (all of a
    /// slab, whose other chunks are in use too). It never returns to the cache. `divided`: other buffers may
    /// have their bytes in it, and the peer may be filling them.
    pub(crate) fn detach(&self, used: usize, divided: bool) -> Result<()> {
        let _one = lock(&self.detaching);
        if self.exposed.is_none() || self.is_retired() {
            return Ok(());
        }
        let used = if self.whole { used } else { self.block.capacity() };
        let old = self.block.detach(used)?;
        if let Some(old) = old.filter(|_| divided || !self.whole) {
            let _ = self.old.set(old);
        }
        self.retired.store(true, Ordering::Release);
        Ok(())
    }

    /// Brings bytes over that the peer was still filling in when the region was cut off because of another
    /// buffer in it.
    pub(crate) fn bring_over(&self, offset: usize, len: usize) -> Result<()> {
        match self.old.get().filter(|_| self.is_retired()) {
            Some(old) => self.block.copy_from(offset, old.as_ref(), offset, len),
            None => Ok(()),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let Some(link) = &self.exposed else { return };
        // The peer may keep its mapping for a while, or be gone: give the pages back ourselves.
        if let Some(link) = link.upgrade() {
            let _ = link.forget(self.key);
        }
        if !self.is_retired() {
            self.block.discard();
        }
    }
}
