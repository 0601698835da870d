//! Results that go as bytes.
use std::ffi::c_void;
use std::sync::Arc;

use super::error::nrdma_status;
use super::guard::guarded;
use crate::core::error::Error;
use crate::core::fragment::Fragment;

/// Where a fragment writes a result that goes as bytes. Valid during execute_remote_bytes.
pub struct nrdma_writer {
    pub(crate) fragment: Arc<Fragment>,
}

/// Adds bytes to a fragment's result.
///
/// # Safety
/// `writer` is NULL or what execute_remote_bytes was given; `data` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_writer_write(
    writer: *mut nrdma_writer,
    data: *const c_void,
    size: u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let Some(writer) = (unsafe { writer.as_ref() }) else {
            return Err(Error::invalid("the writer is NULL"));
        };
        if size == 0 {
            return Ok(0);
        }
        let len = usize::try_from(size).ok().filter(|len| *len <= isize::MAX.cast_unsigned());
        let (Some(len), false) = (len, data.is_null()) else {
            return Err(Error::invalid(format!("{size} bytes at {data:p} cannot be written")));
        };
        // SAFETY: by the contract above.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
        writer.fragment.write(bytes)?;
        Ok(0)
    })
}

/// Sends what was written since the last flush as an intermediate result; returns once the requester's
/// callback has returned.
///
/// # Safety
/// `writer` is NULL or what execute_remote_bytes was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_writer_flush(writer: *mut nrdma_writer) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let Some(writer) = (unsafe { writer.as_ref() }) else {
            return Err(Error::invalid("the writer is NULL"));
        };
        writer.fragment.flush_written()?;
        Ok(0)
    })
}
