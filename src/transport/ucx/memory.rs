//! Our own memory, registered for as long as it lives: to be written from, or to be written to by the peer.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use super::context::{Context, Mapped};
use super::sys::lock;
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::{Block, Span};

/// Memory that the peer may write to.
pub(super) struct Exposure {
    mapped: Mutex<Option<Mapped>>,
    // After the registration, which goes first.
    block: Arc<dyn Block>,
}

impl Exposure {
    /// Registers a block; also the key by which it is written to.
    pub(super) fn new(context: &Arc<Context>, block: Arc<dyn Block>) -> Result<(Arc<Self>, Vec<u8>)> {
        let mapped = context.map(block.address(), block.capacity())?;
        let packed = mapped.pack()?;
        Ok((Arc::new(Self { mapped: Mutex::new(Some(mapped)), block }), packed))
    }

    /// Ends the registration: what the peer still writes is refused by the device.
    pub(super) fn revoke(&self) {
        let mapped = lock(&self.mapped).take();
        drop(mapped);
    }

    fn is_revoked(&self) -> bool {
        lock(&self.mapped).is_none()
    }
}

impl Block for Arc<Exposure> {
    fn address(&self) -> usize {
        self.block.address()
    }
    fn capacity(&self) -> usize {
        self.block.capacity()
    }
    /// The device keeps writing to the old pages, which stay pinned until the registration ends.
    fn detach(&self, used: usize) -> Result<Option<Arc<dyn Block>>> {
        if self.is_revoked() { Ok(None) } else { self.block.detach(used) }
    }
    fn copy_from(&self, offset: usize, from: &dyn Block, from_offset: usize, len: usize) -> Result<()> {
        self.block.copy_from(offset, from, from_offset, len)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.block.write(offset, bytes)
    }
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.block.read(offset, bytes)
    }
    fn prefault(&self, len: usize) {
        self.block.prefault(len);
    }
    /// The pages go back to the system when the registration has ended.
    fn discard(&self) {}
}

/// Memory that may be written from, registered when it first is.
struct Kept {
    mapped: Mutex<Option<Arc<Mapped>>>,
    block: Arc<dyn Block>,
    sources: Weak<Sources>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(sources) = self.sources.upgrade() {
            lock(&sources.kept).remove(&self.block.address());
        }
    }
}

/// The handle that stands for the block.
struct Source(Arc<Kept>);

impl Block for Source {
    fn address(&self) -> usize {
        self.0.block.address()
    }
    fn capacity(&self) -> usize {
        self.0.block.capacity()
    }
    fn detach(&self, used: usize) -> Result<Option<Arc<dyn Block>>> {
        self.0.block.detach(used)
    }
    fn copy_from(&self, offset: usize, from: &dyn Block, from_offset: usize, len: usize) -> Result<()> {
        self.0.block.copy_from(offset, from, from_offset, len)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.0.block.write(offset, bytes)
    }
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.0.block.read(offset, bytes)
    }
    fn prefault(&self, len: usize) {
        self.0.block.prefault(len);
    }
    fn discard(&self) {
        self.0.block.discard();
    }
}

/// All memory that may be written from, by its first address.
#[derive(Default)]
pub(super) struct Sources {
    kept: Mutex<BTreeMap<usize, Weak<Kept>>>,
}

impl Sources {
    /// Adds a block; the one to use in its place.
    pub(super) fn keep(self: &Arc<Self>, block: Arc<dyn Block>) -> Arc<dyn Block> {
        let kept = Arc::new(Kept { mapped: Mutex::new(None), block, sources: Arc::downgrade(self) });
        lock(&self.kept).insert(kept.block.address(), Arc::downgrade(&kept));
        Arc::new(Source(kept))
    }

    /// The registration of the memory that a span lies in.
    pub(super) fn find(&self, context: &Arc<Context>, span: &Span) -> Result<Arc<Mapped>> {
        let from = span.block.address() + span.offset;
        let found = lock(&self.kept).range(..=from).next_back().and_then(|(_, kept)| kept.upgrade());
        let inside = |kept: &Arc<Kept>| {
            let past = kept.block.address() + kept.block.capacity();
            from.checked_add(span.len).is_some_and(|end| end <= past)
        };
        let Some(kept) = found.filter(inside) else {
            return Err(Error::new(Kind::NotSupported, "the memory is not ours to register"));
        };
        let mut mapped = lock(&kept.mapped);
        if let Some(mapped) = mapped.as_ref() {
            return Ok(Arc::clone(mapped));
        }
        let new = Arc::new(context.map(kept.block.address(), kept.block.capacity())?);
        *mapped = Some(Arc::clone(&new));
        Ok(new)
    }
}

/// Bytes that came with a message.
pub(super) struct Received(pub(super) Vec<u8>);

fn read_only() -> Error {
    Error::new(Kind::NotSupported, "received bytes are not written to")
}

impl Block for Received {
    fn address(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }
    fn capacity(&self) -> usize {
        self.0.len()
    }
    fn detach(&self, _used: usize) -> Result<Option<Arc<dyn Block>>> {
        Err(read_only())
    }
    fn copy_from(&self, _: usize, _: &dyn Block, _: usize, _: usize) -> Result<()> {
        Err(read_only())
    }
    fn write(&self, _: usize, _: &[u8]) -> Result<()> {
        Err(read_only())
    }
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = offset.checked_add(bytes.len()).and_then(|end| self.0.get(offset..end));
        let from = from.ok_or_else(|| Error::invalid("bytes behind the end of a message were asked for"))?;
        bytes.copy_from_slice(from);
        Ok(())
    }
    fn prefault(&self, _len: usize) {}
    fn discard(&self) {}
}
