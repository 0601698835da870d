//! The staged area of a direction: where the host's own memory is copied through. Made by the sender when it
//! first has something to copy, so that links without such data pay nothing for it.
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use once_cell::sync::OnceCell;

use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Block;
use crate::sys::map::{self, Mapping};

/// Staged slots per direction: enough that two cores copy at the same time (8 x 256 KiB is as fast as one
/// memcpy; 1 MiB slots leave no overlap and are 2 to 9 times slower).
pub(super) const STAGED_SLOTS: usize = 8;
/// Bytes of a staged slot.
pub(super) const STAGED_BYTES: usize = 256 * 1024;
const AREA_BYTES: usize = STAGED_SLOTS * STAGED_BYTES;

type Slots = [Arc<dyn Block>; STAGED_SLOTS];

/// The sender's side.
pub(super) struct StagedOut {
    slots: OnceCell<Slots>,
    /// One bit for each slot that is free.
    free: AtomicU32,
}

impl StagedOut {
    pub(super) fn new() -> Self {
        Self { slots: OnceCell::new(), free: AtomicU32::new((1 << STAGED_SLOTS) - 1) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.free.load(Ordering::Acquire) != 0
    }

    /// Takes a free slot.
    pub(super) fn reserve(&self) -> Option<u32> {
        let take = |free: u32| (free != 0).then(|| free & (free - 1));
        let before = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(before.trailing_zeros())
    }

    /// Gives a slot back. False: it was not taken, or does not exist.
    pub(super) fn give_back(&self, slot: u32) -> bool {
        let bit = if (slot as usize) < STAGED_SLOTS { 1 << slot } else { 0 };
        bit != 0 && self.free.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// A slot's memory; `announce` tells the peer of the area when it is new.
    pub(super) fn slot(
        &self,
        slot: u32,
        announce: impl FnOnce(&OwnedFd) -> Result<()>,
    ) -> Result<&Arc<dyn Block>> {
        let slots = self.slots.get_or_try_init(|| {
            let fd = map::create_sealed(c"nrdma-staged", AREA_BYTES)?;
            let slots = map_slots(&fd)?;
            announce(&fd)?;
            Ok(slots)
        })?;
        slots.get(slot as usize).ok_or_else(|| Error::invalid(format!("there is no staged slot {slot}")))
    }
}

/// The receiver's side.
#[derive(Default)]
pub(super) struct StagedIn(OnceLock<Slots>);

impl StagedIn {
    pub(super) fn is_known(&self) -> bool {
        self.0.get().is_some()
    }

    /// Maps what the peer made.
    pub(super) fn adopt(&self, fd: &OwnedFd) -> Result<()> {
        map::check_sealed(fd, AREA_BYTES)?;
        let taken = self.0.set(map_slots(fd)?);
        taken.map_err(|_| Error::protocol("the peer announced a second staged area"))
    }

    pub(super) fn slot(&self, slot: usize) -> Result<Arc<dyn Block>> {
        let found = self.0.get().and_then(|slots| slots.get(slot));
        found.cloned().ok_or_else(|| Error::protocol(format!("data in the unknown staged slot {slot}")))
    }
}

fn map_slots(fd: &OwnedFd) -> Result<Slots> {
    let mapping = Mapping::shared(fd, AREA_BYTES)?;
    // A forked child that wrote there would write for its parent.
    mapping.dont_fork();
    let mapping = Arc::new(mapping);
    Ok(std::array::from_fn(|slot| {
        let address = mapping.address() + slot * STAGED_BYTES;
        Arc::new(StagedBlock { _mapping: Arc::clone(&mapping), address }) as Arc<dyn Block>
    }))
}

/// One staged slot.
struct StagedBlock {
    /// Keeps the memory.
    _mapping: Arc<Mapping>,
    address: usize,
}

fn check(what: &str, offset: usize, len: usize, capacity: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(Error::invalid(format!("{what} of {len} bytes at {offset} exceeds {capacity} bytes"))),
    }
}

fn never_handed_out() -> Error {
    Error::new(Kind::NotSupported, "memory of a link is never handed out, so never detached")
}

impl Block for StagedBlock {
    fn address(&self) -> usize {
        self.address
    }

    fn capacity(&self) -> usize {
        STAGED_BYTES
    }

    fn detach(&self, _used: usize) -> Result<Option<Arc<dyn Block>>> {
        Err(never_handed_out())
    }

    fn copy_from(&self, offset: usize, from: &dyn Block, from_offset: usize, len: usize) -> Result<()> {
        check("a copy into a staged slot", offset, len, STAGED_BYTES)?;
        check("a copy from memory", from_offset, len, from.capacity())?;
        let source = ptr::with_exposed_provenance::<u8>(from.address() + from_offset);
        let target = ptr::with_exposed_provenance_mut::<u8>(self.address + offset);
        // SAFETY: both ranges were checked against their blocks, which live during the call. That the peer may
        // write at the same time garbles its own data only.
        unsafe { ptr::copy(source, target, len) };
        Ok(())
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        check("a write into a staged slot", offset, bytes.len(), STAGED_BYTES)?;
        let target = ptr::with_exposed_provenance_mut::<u8>(self.address + offset);
        // SAFETY: checked; `bytes` is private memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        check("a read from a staged slot", offset, bytes.len(), STAGED_BYTES)?;
        let source = ptr::with_exposed_provenance::<u8>(self.address + offset);
        // SAFETY: checked; `bytes` is private memory.
        unsafe { ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn prefault(&self, _len: usize) {}

    fn discard(&self) {}
}

/// Bytes that came inside a record, in private memory; only ever read.
pub(super) struct InlineBlock(pub(super) Box<[u8]>);

impl Block for InlineBlock {
    fn address(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    fn capacity(&self) -> usize {
        self.0.len()
    }

    fn detach(&self, _used: usize) -> Result<Option<Arc<dyn Block>>> {
        Err(never_handed_out())
    }

    fn copy_from(&self, _: usize, _: &dyn Block, _: usize, _: usize) -> Result<()> {
        Err(Error::new(Kind::NotSupported, "received bytes are not written to"))
    }

    fn write(&self, _: usize, _: &[u8]) -> Result<()> {
        Err(Error::new(Kind::NotSupported, "received bytes are not written to"))
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        check("a read", offset, bytes.len(), self.0.len())?;
        bytes.copy_from_slice(self.0.get(offset..offset + bytes.len()).unwrap_or(&[]));
        Ok(())
    }

    fn prefault(&self, _len: usize) {}

    fn discard(&self) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn staged_copies_are_checked() {
        let fd = map::create_sealed(c"nrdma-test", AREA_BYTES).unwrap();
        let [first, second, ..] = map_slots(&fd).unwrap();
        first.write(STAGED_BYTES - 3, b"abc").unwrap();
        assert!(first.write(STAGED_BYTES - 2, b"abc").is_err());
        assert!(first.read(usize::MAX, &mut [0; 2]).is_err());
        second.copy_from(1, first.as_ref(), STAGED_BYTES - 3, 3).unwrap();
        assert!(second.copy_from(0, first.as_ref(), STAGED_BYTES - 3, 4).is_err());
        assert!(second.copy_from(STAGED_BYTES - 2, first.as_ref(), 0, 3).is_err());
        let mut got = [0; 5];
        second.read(0, &mut got).unwrap();
        assert_eq!(&got, b"\0abc\0");
    }

    #[test]
    fn slots_are_taken_and_given_back_once() {
        let out = StagedOut::new();
        let taken: Vec<_> = std::iter::from_fn(|| out.reserve()).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(!out.has_room());
        assert!(out.give_back(5) && !out.give_back(5));
        assert!(!out.give_back(8) && !out.give_back(u32::MAX));
        assert_eq!(out.reserve(), Some(5));
    }

    #[test]
    fn a_failed_announcement_is_tried_again() {
        let out = StagedOut::new();
        assert!(out.slot(0, |_| Err(Error::protocol("no"))).is_err());
        let into = StagedIn::default();
        assert!(into.slot(0).is_err());
        out.slot(0, |fd| into.adopt(fd)).unwrap().write(7, b"x").unwrap();
        let mut got = [0];
        into.slot(0).unwrap().read(7, &mut got).unwrap();
        assert_eq!(&got, b"x");
        let again = map::create_sealed(c"nrdma-test", AREA_BYTES).unwrap();
        assert!(into.adopt(&again).is_err());
        let short = map::create_sealed(c"nrdma-test", AREA_BYTES / 2).unwrap();
        assert!(StagedIn::default().adopt(&short).is_err());
    }
}
