//! Buffers, the regions they lie in, and the home (node and peer) they belong to.
use std::ops::Deref;
use std::sync::Arc;

/// The reference-counted object that carries a buffer across the C line; `abi::buffer` implements it. The
/// count is the C one: it may be 0 while the object rests in the cache.
pub(crate) trait Carrier: Send + Sync {
    /// The buffer inside.
    fn buffer(&self) -> &Buffer;
    /// References held right now.
    fn references(&self) -> u32;
    /// Adds a reference; returns the new count.
    fn retain(&self) -> u32;
    /// Drops a reference; returns the new count. At 0 the object goes back to its home.
    fn release(&self) -> u32;
}

/// One owned reference to a buffer.
pub(crate) struct Lease(Arc<dyn Carrier>);

impl Lease {
    /// Takes over a reference that is already counted.
    pub(crate) fn adopt(carrier: Arc<dyn Carrier>) -> Self {
        Self(carrier)
    }
    /// Whether nobody else holds the buffer.
    pub(crate) fn is_sole(&self) -> bool {
        self.0.references() == 1
    }
    /// The object.
    pub(crate) fn carrier(&self) -> &Arc<dyn Carrier> {
        &self.0
    }
}
impl Clone for Lease {
    fn clone(&self) -> Self {
        self.0.retain();
        Self(Arc::clone(&self.0))
    }
}
impl Drop for Lease {
    fn drop(&mut self) {
        self.0.release();
    }
}
impl Deref for Lease {
    type Target = Buffer;
    fn deref(&self) -> &Buffer {
        self.0.buffer()
    }
}

/// A buffer's bookkeeping.
pub(crate) struct Buffer {}
