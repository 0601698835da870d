//! Buffers, called through their virtual table.
use std::ptr::NonNull;

use super::failure::Failure;
use crate::sys;

/// One reference to an `IRDMA_buffer`; called through its virtual table.
pub(crate) struct Buffer(pub(super) NonNull<sys::nrdma_buffer>);

// SAFETY: buffers may be used and released by any thread.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Takes over a reference that a call returned; NULL is that call's failure.
    pub(super) fn made(buffer: *mut sys::nrdma_buffer) -> Result<Self, Failure> {
        NonNull::new(buffer).map(Self).ok_or_else(|| Failure::last(sys::NRDMA_INVALID_PARAMETER))
    }
    fn table(&self) -> &sys::nrdma_buffer_vtbl_itanium {
        // SAFETY: `self` owns a reference to the object.
        let object = unsafe { self.0.as_ref() };
        // SAFETY: the virtual table of a live object, of the face that the tool asks for everywhere.
        unsafe { &*object.vtbl }
    }
    pub(crate) fn size(&self) -> usize {
        // SAFETY: a slot of a live object.
        let size = unsafe { (self.table().get_size)(self.0.as_ptr()) };
        usize::try_from(size).unwrap_or(0)
    }
    /// Where the memory is.
    #[allow(dead_code)] // For benches/ratios.
    pub(crate) fn address(&self) -> usize {
        // SAFETY: a slot of a live object.
        unsafe { (self.table().get_data)(self.0.as_ptr()) }.addr()
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: a slot of a live object.
        let data = unsafe { (self.table().get_data_const)(self.0.as_ptr()) };
        if data.is_null() {
            return &[];
        }
        // SAFETY: the buffer's memory; its responder has handed it over and writes no more until the next result.
        unsafe { std::slice::from_raw_parts(data, self.size()) }
    }
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: a slot of a live object.
        let data = unsafe { (self.table().get_data)(self.0.as_ptr()) };
        if data.is_null() {
            return &mut [];
        }
        // SAFETY: as above, and a requester does not look before the buffer is flushed or returned.
        unsafe { std::slice::from_raw_parts_mut(data, self.size()) }
    }
    pub(super) fn into_raw(self) -> *mut sys::nrdma_buffer {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        // SAFETY: a slot of a live object.
        unsafe { (self.table().retain)(self.0.as_ptr()) };
        Self(self.0)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let release = self.table().release;
        // SAFETY: `self` owns one reference.
        unsafe { release(self.0.as_ptr()) };
    }
}
