//! Whether the kernel lets this process do something: tried on memory of its own, and undone.
use std::io;
use std::ptr;

/// Pins so many bytes, and lets them go again.
pub(crate) fn lock(bytes: usize) -> io::Result<()> {
    // SAFETY: a fresh private mapping, where the kernel likes it.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping made above; locking makes its pages, which read as zeros.
    let locked = unsafe { libc::mlock(address, bytes) };
    let result = if locked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the mapping made above, which nobody else knows.
    unsafe { libc::munmap(address, bytes) };
    result
}

/// Makes a memory file with 64 KiB of pages.
pub(crate) fn memfd() -> io::Result<()> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    // SAFETY: a name that ends in NUL.
    let descriptor = unsafe { libc::memfd_create(c"nrdma-probe".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: a descriptor that is open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, 64 << 10) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
