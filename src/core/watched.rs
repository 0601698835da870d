//! The host's memory that wants to know when it is free again.
use std::sync::{Arc, Mutex, PoisonError};

use super::error::Result;
use super::memory::Block;

/// The host's memory with what to do once nobody uses it any more.
pub(crate) struct Watched {
    block: Arc<dyn Block>,
    done: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Watched {
    pub(crate) fn new(block: Arc<dyn Block>, done: Box<dyn FnOnce() + Send>) -> Self {
        Self { block, done: Mutex::new(Some(done)) }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(done) = done {
            done();
        }
    }
}

impl Block for Watched {
    fn address(&self) -> usize {
        self.block.address()
    }
    fn capacity(&self) -> usize {
        self.block.capacity()
    }
    fn detach(&self, used: usize) -> Result<Option<Arc<dyn Block>>> {
        self.block.detach(used)
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
    fn discard(&self) {}
}
