//! Contexts, called through their virtual table, and memory of the host's own that is lent to them.
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::buffer::Buffer;
use super::failure::{Failure, check};
use crate::sys;

/// Main memory, as neuray numbers devices.
const MAIN_MEMORY: i32 = -1;

/// An `IRDMA_context` that somebody else holds; called through its virtual table.
pub(crate) struct Context(pub(super) NonNull<sys::nrdma_context>);

impl Context {
    fn table(&self) -> &sys::nrdma_context_vtbl_itanium {
        // SAFETY: whoever made `self` vouches for the object.
        let object = unsafe { self.0.as_ref() };
        // SAFETY: the virtual table of a live object, of the face that the tool asks for everywhere.
        unsafe { &*object.vtbl }
    }
    /// Memory to fill and send.
    pub(crate) fn write_memory(&self, bytes: usize) -> Result<Buffer, Failure> {
        // SAFETY: a slot of a live object.
        let buffer = unsafe { (self.table().get_write_memory)(self.0.as_ptr(), bytes as u64, MAIN_MEMORY) };
        Buffer::made(buffer)
    }
    /// Memory for a result.
    pub(crate) fn read_memory(&self, bytes: usize) -> Result<Buffer, Failure> {
        // SAFETY: a slot of a live object.
        let buffer = unsafe { (self.table().get_read_memory)(self.0.as_ptr(), bytes as u64, MAIN_MEMORY) };
        Buffer::made(buffer)
    }
    /// A result buffer over the host's own memory, which is kept until after the library's last use of it.
    pub(crate) fn wrap(&self, memory: &Lent) -> Result<Buffer, Failure> {
        let owner = Arc::into_raw(Arc::clone(&memory.0));
        // SAFETY: the memory lives until `drop_lent` is called, once, after the last use.
        let buffer = unsafe {
            sys::nrdma_context_wrap_user_buffer_with(
                self.0.as_ptr(),
                memory.0.address.as_ptr(),
                memory.0.size as u64,
                MAIN_MEMORY,
                drop_lent,
                owner.cast_mut().cast(),
            )
        };
        Buffer::made(buffer)
    }
    /// Sends what the buffer holds as an intermediate result; returns when the requester has taken it.
    pub(crate) fn flush(&self, buffer: &mut Buffer) -> Result<(), Failure> {
        // SAFETY: a slot of a live object; the buffer lives as long as the reference.
        check(unsafe { (self.table().flush)(self.0.as_ptr(), buffer.0.as_ptr()) })
    }
}

/// Memory of the host's own, lent to the library; it is read through the buffer only.
#[derive(Clone)]
pub(crate) struct Lent(Arc<Memory>);

struct Memory {
    address: NonNull<u8>,
    size: usize,
}

// SAFETY: plain memory, touched by the library and through buffers only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Lent {
    /// Zeroed memory.
    pub(crate) fn new(size: usize) -> Self {
        let memory = Box::leak(vec![0_u8; size].into_boxed_slice());
        Self(Arc::new(Memory { address: NonNull::from(memory).cast(), size }))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let memory = ptr::slice_from_raw_parts_mut(self.address.as_ptr(), self.size);
        // SAFETY: made from a box in `Lent::new`; whoever borrowed it has ended.
        drop(unsafe { Box::from_raw(memory) });
    }
}

unsafe extern "C" fn drop_lent(owner: *mut c_void) {
    // SAFETY: made by `wrap` with `Arc::into_raw`; the library calls this once.
    drop(unsafe { Arc::from_raw(owner.cast::<Memory>()) });
}

/// A context with a reference of our own.
#[allow(dead_code)] // For benches/ratios.
pub(crate) struct OwnContext(pub(super) Context);

impl std::ops::Deref for OwnContext {
    type Target = Context;
    fn deref(&self) -> &Context {
        &self.0
    }
}

impl Drop for OwnContext {
    fn drop(&mut self) {
        let release = self.0.table().release;
        // SAFETY: `self` owns one reference.
        unsafe { release(self.0.0.as_ptr()) };
    }
}
