//! Sealed shared memory and its mappings.
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Makes zeroed shared memory of exactly `len` bytes that nobody can resize.
pub(crate) fn create_sealed(name: &str, len: usize) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `raw` was just made and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let size = libc::off_t::try_from(len).map_err(io::Error::other)?;
    // SAFETY: the descriptor is ours.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is ours.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Mapped memory; unmapped on drop.
pub(crate) struct Mapping {
    address: usize,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes, readable and writable, shared with whoever else has the descriptor.
    pub(crate) fn shared(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            address: at.addr(),
            len,
        })
    }
    /// The first byte.
    pub(crate) fn address(&self) -> usize {
        self.address
    }
    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody can reach it any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.address), self.len) };
    }
}
