//! Blocks of main memory: raw pages, copied by address.
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::core::error::{Error, Result};
use crate::core::memory::Block;
use crate::sys::map::Mapping;

use super::alignment;

/// Whose pages a mapping shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Pages {
    /// Ours.
    Private,
    /// Ours, and a peer maps them.
    Shared,
    /// A peer's.
    Window,
}

/// Pages that we mapped.
pub(super) struct HostBlock {
    mapping: Mapping,
    pages: AtomicU8,
}

impl HostBlock {
    pub(super) fn private(mapping: Mapping) -> Self {
        Self::new(mapping, Pages::Private)
    }
    pub(super) fn shared(mapping: Mapping) -> Self {
        Self::new(mapping, Pages::Shared)
    }
    pub(super) fn window(mapping: Mapping) -> Self {
        Self::new(mapping, Pages::Window)
    }
    fn new(mapping: Mapping, pages: Pages) -> Self {
        Self { mapping, pages: AtomicU8::new(pages as u8) }
    }
    fn is(&self, pages: Pages) -> bool {
        self.pages.load(Ordering::Acquire) == pages as u8
    }
}

impl Block for HostBlock {
    fn address(&self) -> usize {
        self.mapping.address()
    }
    fn capacity(&self) -> usize {
        self.mapping.len()
    }
    fn detach(&self, used: usize) -> Result<Option<Arc<dyn Block>>> {
        if self.is(Pages::Private) {
            return Ok(None);
        }
        let used = used.min(self.capacity());
        let copy = Mapping::anonymous(self.capacity(), alignment(self.capacity()))?;
        move_bytes(copy.address(), self.address(), used);
        let twin = match self.is(Pages::Window) {
            true => Some(self.mapping.again(alignment(self.capacity()))?),
            false => None,
        };
        self.mapping.replace_with(copy)?;
        self.pages.store(Pages::Private as u8, Ordering::Release);
        Ok(twin.map(|t| Arc::new(Self::window(t)) as Arc<dyn Block>))
    }
    fn copy_from(&self, offset: usize, from: &dyn Block, from_offset: usize, len: usize) -> Result<()> {
        copy_between(self, offset, from, from_offset, len)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        write(self, offset, bytes)
    }
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        read(self, offset, bytes)
    }
    fn prefault(&self, len: usize) {
        self.mapping.populate(len);
    }
    fn discard(&self) {
        if self.is(Pages::Shared) {
            self.mapping.punch();
        }
    }
}

/// The host's own memory: never freed here, never touched outside its range.
pub(super) struct WrappedBlock {
    address: usize,
    capacity: usize,
}

impl WrappedBlock {
    pub(super) fn new(address: usize, capacity: usize) -> Self {
        Self { address, capacity }
    }
}

impl Block for WrappedBlock {
    fn address(&self) -> usize {
        self.address
    }
    fn capacity(&self) -> usize {
        self.capacity
    }
    fn detach(&self, _used: usize) -> Result<Option<Arc<dyn Block>>> {
        Ok(None)
    }
    fn copy_from(&self, offset: usize, from: &dyn Block, from_offset: usize, len: usize) -> Result<()> {
        copy_between(self, offset, from, from_offset, len)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        write(self, offset, bytes)
    }
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        read(self, offset, bytes)
    }
    fn prefault(&self, _len: usize) {}
    fn discard(&self) {}
}

/// The address of `len` bytes at `offset` of a block, when they lie inside.
fn inside(block: &dyn Block, offset: usize, len: usize) -> Result<usize> {
    let capacity = block.capacity();
    match offset.checked_add(len) {
        Some(end) if end <= capacity => Ok(block.address() + offset),
        _ => Err(Error::invalid(format!("{len} bytes at {offset} do not lie inside {capacity} bytes"))),
    }
}

fn copy_between(
    to: &dyn Block,
    offset: usize,
    from: &dyn Block,
    from_offset: usize,
    len: usize,
) -> Result<()> {
    move_bytes(inside(to, offset, len)?, inside(from, from_offset, len)?, len);
    Ok(())
}

fn write(to: &dyn Block, offset: usize, bytes: &[u8]) -> Result<()> {
    move_bytes(inside(to, offset, bytes.len())?, bytes.as_ptr().expose_provenance(), bytes.len());
    Ok(())
}

fn read(from: &dyn Block, offset: usize, bytes: &mut [u8]) -> Result<()> {
    let from = inside(from, offset, bytes.len())?;
    move_bytes(bytes.as_mut_ptr().expose_provenance(), from, bytes.len());
    Ok(())
}

/// Both ranges were checked against the blocks (or slices) that they lie in. Peers and hosts may write at
/// the same time, as in any shared memory: the bytes are then unspecified.
fn move_bytes(to: usize, from: usize, len: usize) {
    let to = ptr::with_exposed_provenance_mut::<u8>(to);
    let from = ptr::with_exposed_provenance::<u8>(from);
    // SAFETY: both ranges are mapped, see above.
    unsafe { ptr::copy(from, to, len) };
}
