//! The shared memory of one link: a ring and a staged area for each direction.
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use super::ring::{Ring, SLOTS};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Block;
use crate::sys::map::{self, Mapping};

/// Staged slots per direction: enough that two cores copy at the same time (facts: 8 x 256 KiB is as fast
/// as one memcpy, 1 MiB slots are 2 to 9 times slower).
pub(super) const STAGED_SLOTS: usize = 8;
/// Bytes of a staged slot.
pub(super) const STAGED_BYTES: usize = 256 * 1024;

const RING_STRIDE: usize = 32 * 1024;
const STAGED_AT: usize = 2 * RING_STRIDE;
const STAGED_STRIDE: usize = STAGED_SLOTS * STAGED_BYTES;
/// Pages that are never touched are never there: the staged areas cost nothing until they are used.
const AREA_BYTES: usize = STAGED_AT + 2 * STAGED_STRIDE;
#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Ring<SLOTS>>() <= RING_STRIDE);

/// Which way: what the connector sends, or what the listener sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    FromConnector,
    FromListener,
}

impl Direction {
    fn index(self) -> usize {
        match self {
            Direction::FromConnector => 0,
            Direction::FromListener => 1,
        }
    }
}

/// The mapping.
pub(super) struct Area(Mapping);

impl Area {
    /// Makes the memory; the descriptor is for the peer.
    pub(super) fn create() -> Result<(Self, OwnedFd)> {
        let fd = map::create_sealed(c"nrdma-link", AREA_BYTES)?;
        Ok((Self::map(&fd)?, fd))
    }

    /// Maps what a peer made. Refuses memory that could shrink under us: touching it would kill the process.
    pub(super) fn adopt(fd: &OwnedFd) -> Result<Self> {
        map::check_sealed(fd, AREA_BYTES)?;
        Self::map(fd)
    }

    fn map(fd: &OwnedFd) -> Result<Self> {
        let mapping = Mapping::shared(fd, AREA_BYTES)?;
        // A forked child that touched the rings would speak for its parent.
        mapping.dont_fork();
        Ok(Self(mapping))
    }

    /// The ring of a direction.
    pub(super) fn ring(&self, direction: Direction) -> &Ring<SLOTS> {
        let at = self.0.address() + direction.index() * RING_STRIDE;
        // SAFETY: inside the mapping (asserted above), aligned to a page, and lives as long as `self`. A ring is
        // nothing but atomics, for which any bytes are valid and any writer is allowed.
        unsafe { &*ptr::with_exposed_provenance::<Ring<SLOTS>>(at) }
    }

    fn staged_at(&self, direction: Direction, slot: usize) -> usize {
        self.0.address() + STAGED_AT + direction.index() * STAGED_STRIDE + slot * STAGED_BYTES
    }
}

/// One staged slot.
pub(super) struct StagedBlock {
    /// Keeps the mapping.
    _area: Arc<Area>,
    address: usize,
}

impl StagedBlock {
    /// All slots of a direction.
    pub(super) fn all(area: &Arc<Area>, direction: Direction) -> [Arc<dyn Block>; STAGED_SLOTS] {
        std::array::from_fn(|slot| {
            let address = area.staged_at(direction, slot);
            Arc::new(StagedBlock {
                _area: Arc::clone(area),
                address,
            }) as Arc<dyn Block>
        })
    }
}

fn check(what: &str, offset: usize, len: usize, capacity: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(Error::invalid(format!(
            "{what} of {len} bytes at {offset} exceeds {capacity} bytes"
        ))),
    }
}

impl Block for StagedBlock {
    fn address(&self) -> usize {
        self.address
    }

    fn capacity(&self) -> usize {
        STAGED_BYTES
    }

    fn detach(&self, _used: usize) -> Result<Option<Arc<dyn Block>>> {
        Err(Error::new(
            Kind::NotSupported,
            "a staged slot is never handed out, so never detached",
        ))
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
        Err(Error::new(
            Kind::NotSupported,
            "received bytes are never handed out, so never detached",
        ))
    }

    fn copy_from(&self, _: usize, _: &dyn Block, _: usize, _: usize) -> Result<()> {
        Err(Error::new(
            Kind::NotSupported,
            "received bytes are not written to",
        ))
    }

    fn write(&self, _: usize, _: &[u8]) -> Result<()> {
        Err(Error::new(
            Kind::NotSupported,
            "received bytes are not written to",
        ))
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        check("a read", offset, bytes.len(), self.0.len())?;
        let from = self.0.get(offset..offset + bytes.len()).unwrap_or(&[]);
        bytes.copy_from_slice(from);
        Ok(())
    }

    fn prefault(&self, _len: usize) {}

    fn discard(&self) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn unsealed_and_short_memory_is_refused() {
        let short = map::create_sealed(c"nrdma-test", AREA_BYTES - 1).unwrap();
        assert_eq!(Area::adopt(&short).err().unwrap().kind, Kind::ProtocolError);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(
            Area::adopt(&file.into())
                .err()
                .unwrap()
                .text
                .contains("not sealed")
        );
        let (_ours, fd) = Area::create().unwrap();
        assert!(Area::adopt(&fd).is_ok());
    }

    #[test]
    fn staged_copies_are_checked() {
        let (area, _fd) = Area::create().unwrap();
        let area = Arc::new(area);
        let [first, second, ..] = StagedBlock::all(&area, Direction::FromListener);
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
}
