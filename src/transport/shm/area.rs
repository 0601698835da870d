//! The shared memory of one link: a ring for each direction.
use std::os::fd::OwnedFd;
use std::ptr;

use super::ring::{Ring, SLOTS};
use crate::core::error::Result;
use crate::sys::map::{self, Mapping};

const RING_STRIDE: usize = 32 * 1024;
const AREA_BYTES: usize = 2 * RING_STRIDE;
#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Ring<SLOTS>>() <= RING_STRIDE);

/// Which way: what the connector sends, or what the listener sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    FromConnector,
    FromListener,
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
        let offset = match direction {
            Direction::FromConnector => 0,
            Direction::FromListener => RING_STRIDE,
        };
        let ring = ptr::with_exposed_provenance::<Ring<SLOTS>>(self.0.address() + offset);
        // SAFETY: inside the mapping (asserted above), aligned to a page, and lives as long as `self`. A ring is
        // nothing but atomics, for which any bytes are valid and any writer is allowed.
        unsafe { &*ring }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::core::error::Kind;

    #[test]
    fn unsealed_and_short_memory_is_refused() {
        let short = map::create_sealed(c"nrdma-test", AREA_BYTES / 2).unwrap();
        assert_eq!(Area::adopt(&short).err().unwrap().kind, Kind::ProtocolError);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Area::adopt(&file.into()).err().unwrap().text.contains("not sealed"));
        let (_ours, fd) = Area::create().unwrap();
        assert!(Area::adopt(&fd).is_ok());
    }
}
