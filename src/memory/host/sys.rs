//! Blocks of main memory: raw pages, copied by address.
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

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
    /// Bytes whose pages were taken: asking the system again costs more than a small fragment.
    prefaulted: AtomicUsize,
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
        Self { mapping, pages: AtomicU8::new(pages as u8), prefaulted: AtomicUsize::new(0) }
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
        let align = alignment(self.capacity());
        let copy = Mapping::anonymous(self.capacity(), align)?;
        let twin = match self.is(Pages::Window) {
            true => {
                let before = Mapping::anonymous(self.capacity(), align)?;
                move_bytes(before.address(), self.address(), used);
                move_bytes(copy.address(), before.address(), used);
                (self.mapping.again(align)?, Some(before))
            }
            false => {
                move_bytes(copy.address(), self.address(), used);
                (self.mapping.again(align)?, None)
            }
        };
        self.mapping.replace_with(copy)?;
        self.pages.store(Pages::Private as u8, Ordering::Release);
        let (twin, before) = twin;
        if let Some(before) = before {
            bring_late_writes(&self.mapping, &twin, &before, used);
        }
        Ok(Some(Arc::new(Self::window(twin)) as Arc<dyn Block>))
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
        if self.prefaulted.load(Ordering::Relaxed) < len {
            self.mapping.populate(len);
            self.prefaulted.fetch_max(len, Ordering::Relaxed);
        }
    }
    fn discard(&self) {
        if self.is(Pages::Shared) {
            self.mapping.punch();
        }
    }
}

/// Threads of the host may have written to the old pages after they were copied: what differs from the copy
/// is written again, unless the host has written there since. `now` is what the host sees, `old` the pages it
/// wrote to, `before` what was copied.
fn bring_late_writes(now: &Mapping, old: &Mapping, before: &Mapping, used: usize) {
    const WORD: usize = size_of::<u64>();
    fn word(mapping: &Mapping, at: usize) -> &AtomicU64 {
        // SAFETY: inside the mapping, whose length is whole pages; aligned; atomics may be shared with
        // anyone.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(mapping.address() + at)) }
    }
    for at in (0..used).step_by(WORD) {
        let (late, copied) =
            (word(old, at).load(Ordering::Relaxed), word(before, at).load(Ordering::Relaxed));
        if late == copied {
            continue;
        }
        let place = word(now, at);
        // Err cannot be: the closure always gives a value.
        let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| {
            let (late, copied, mut new) = (late.to_ne_bytes(), copied.to_ne_bytes(), seen.to_ne_bytes());
            for ((new, late), copied) in new.iter_mut().zip(late).zip(copied) {
                if *new == copied {
                    *new = late;
                }
            }
            Some(u64::from_ne_bytes(new))
        });
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
