//! Blocks of memory and the backend that makes them.
use std::sync::Arc;

use super::error::Result;

pub(crate) use super::source::Share;

/// Whose memory a block is and who can reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Ours alone.
    Private,
    /// Ours, and one peer may map it.
    Shared,
    /// The host's (`wrap_user_buffer`): never freed, never touched outside its range.
    Wrapped,
    /// A peer's, mapped here for a fragment.
    Window,
}

/// A backend that makes blocks.
pub(crate) trait Memory: Send + Sync {
    /// Makes a block of at least `bytes`, aligned to 64 KiB (2 MiB from 2 MiB on). `kind` is `Private` or
    /// `Shared`; a shared block comes with what the peer needs to map it, which the caller sends and drops.
    fn allocate(&self, kind: Kind, bytes: usize) -> Result<(Arc<dyn Block>, Option<Share>)>;
    /// Maps a peer's block. Refuses one that could shrink under us or is smaller than `bytes`.
    fn map(&self, share: Share, bytes: usize) -> Result<Arc<dyn Block>>;
    /// A block over the host's own memory.
    fn wrap(&self, address: usize, bytes: usize) -> Arc<dyn Block>;
    /// The default budget of idle bytes: min(1 GiB, 1/8 of memory or of the cgroup's limit).
    fn default_budget(&self) -> u64;
}

/// A piece of memory; dropped = freed or unmapped (except the host's).
pub(crate) trait Block: Send + Sync {
    /// The first byte, for as long as the block lives.
    fn address(&self) -> usize;
    /// Bytes that may be touched from `address`.
    fn capacity(&self) -> usize;
    /// Cuts the block off from the peer: a private copy of the first `used` bytes takes the place of its
    /// pages, at the same address, in one step; other threads never see anything in between. Returns a fresh
    /// mapping of the pages that the peer still has: for later fragments, or for what it was filling in.
    fn detach(&self, used: usize) -> Result<Option<Arc<dyn Block>>>;
    /// Copies `len` bytes; ranges may overlap; both are checked.
    fn copy_from(&self, offset: usize, from: &dyn Block, from_offset: usize, len: usize) -> Result<()>;
    /// Copies bytes in; checked.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Copies bytes out; checked.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()>;
    /// Clears bytes; checked.
    fn zero(&self, offset: usize, len: usize) -> Result<()> {
        static ZEROS: [u8; 16384] = [0; 16384];
        let mut done = 0;
        while done < len {
            let step = ZEROS.len().min(len - done);
            let at = offset.saturating_add(done);
            self.write(at, ZEROS.get(..step).unwrap_or_default())?;
            done += step;
        }
        Ok(())
    }
    /// Asks for the first `len` bytes' pages now; a hint.
    fn prefault(&self, len: usize);
    /// Gives the pages back to the system although a peer may still have them mapped; the contents are lost.
    fn discard(&self);
}

/// A range of a block.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) block: Arc<dyn Block>,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Span {
    /// Copies the whole span to `offset` of `to`.
    pub(crate) fn copy_to(&self, to: &dyn Block, offset: usize) -> Result<()> {
        to.copy_from(offset, self.block.as_ref(), self.offset, self.len)
    }
}
