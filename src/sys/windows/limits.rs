//! How much memory this process may use, and how much is left.
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

fn status() -> Option<MEMORYSTATUSEX> {
    let mut status = MEMORYSTATUSEX {
        dwLength: u32::try_from(size_of::<MEMORYSTATUSEX>()).ok()?,
        ..MEMORYSTATUSEX::default()
    };
    // SAFETY: `status` says how large it is and is valid for writes.
    (unsafe { GlobalMemoryStatusEx(&mut status) } != 0).then_some(status)
}

/// The machine's memory.
pub(crate) fn memory_limit() -> u64 {
    status().map_or(u64::MAX, |status| status.ullTotalPhys)
}

/// What can still be had: sections are charged against memory and page files when they are made.
pub(crate) fn memory_available() -> u64 {
    status().map_or(u64::MAX, |status| status.ullAvailPageFile)
}
