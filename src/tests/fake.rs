//! A node's memory without a node, and a link without a peer.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::abi;
use crate::core::error::{Error, Kind, Result};
use crate::core::home::{Home, Shared};
use crate::core::memory::{Block, Memory, Share, Span};
use crate::core::transport::{Attention, Caps, Incoming, Link, Place, RegionKey};
use crate::memory::host::HostMemory;

/// Host memory that counts and can be told to fail.
pub(super) struct CountingMemory {
    pub(super) allocations: AtomicUsize,
    pub(super) fail: AtomicUsize,
}

impl Memory for CountingMemory {
    fn allocate(
        &self,
        kind: crate::core::memory::Kind,
        bytes: usize,
    ) -> Result<(Arc<dyn Block>, Option<Share>)> {
        if self.fail.load(Ordering::Relaxed) > 0 {
            self.fail.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::new(Kind::OutOfMemory, format!("{bytes} bytes are not there")));
        }
        self.allocations.fetch_add(1, Ordering::Relaxed);
        HostMemory.allocate(kind, bytes)
    }
    fn map(&self, share: Share, bytes: usize) -> Result<Arc<dyn Block>> {
        HostMemory.map(share, bytes)
    }
    fn wrap(&self, address: usize, bytes: usize) -> Arc<dyn Block> {
        HostMemory.wrap(address, bytes)
    }
    fn default_budget(&self) -> u64 {
        1 << 30
    }
}

/// What a link was told.
#[derive(Default)]
pub(super) struct FakeLink {
    pub(super) deaf: AtomicBool,
    pub(super) announced: Mutex<Vec<(RegionKey, u64, Share)>>,
    pub(super) forgotten: Mutex<Vec<RegionKey>>,
}

impl Link for FakeLink {
    fn engine(&self) -> &'static str {
        "fake"
    }
    fn caps(&self) -> Caps {
        Caps { maps: true, in_place: false, writes: false }
    }
    fn send(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn poll(&self, _: usize, _: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<usize> {
        Ok(0)
    }
    fn drain(&self, _: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<()> {
        Ok(())
    }
    fn attention(&self, _: Attention) -> bool {
        false
    }
    fn service(&self, _: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<()> {
        Ok(())
    }
    fn last_heard(&self) -> Instant {
        Instant::now()
    }
    fn announce(&self, key: RegionKey, capacity: u64, share: Share) -> Result<()> {
        if self.deaf.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::TimedOut, "1000 ms"));
        }
        self.announced.lock().unwrap().push((key, capacity, share));
        Ok(())
    }
    fn forget(&self, key: RegionKey) -> Result<()> {
        self.forgotten.lock().unwrap().push(key);
        Ok(())
    }
    fn put(&self, _: Place, _: u64, _: &Span, _: usize) -> Result<usize> {
        Ok(0)
    }
    fn room(&self) -> bool {
        true
    }
    fn close(&self) {}
}

/// A node's memory.
pub(super) struct Rig {
    pub(super) memory: Arc<CountingMemory>,
    pub(super) shared: Arc<Shared>,
}

impl Rig {
    pub(super) fn new(budget: u64) -> Self {
        Self::with(budget, false)
    }
    pub(super) fn with(budget: u64, zero: bool) -> Self {
        let memory = Arc::new(CountingMemory { allocations: AtomicUsize::new(0), fail: AtomicUsize::new(0) });
        let backend = Arc::clone(&memory) as Arc<dyn Memory>;
        Self { memory, shared: Shared::new(backend, abi::buffer::make, Some(budget), zero) }
    }
    pub(super) fn home(&self) -> Arc<Home> {
        Home::new(Arc::clone(&self.shared), 7, None)
    }
    pub(super) fn linked(&self) -> (Arc<Home>, Arc<FakeLink>) {
        let link = Arc::new(FakeLink::default());
        (Home::new(Arc::clone(&self.shared), 8, Some(Arc::clone(&link) as Arc<dyn Link>)), link)
    }
    pub(super) fn made(&self) -> usize {
        self.memory.allocations.load(Ordering::Relaxed)
    }
}
