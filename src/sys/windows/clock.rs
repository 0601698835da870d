//! A clock that costs a few nanoseconds to read.
use windows_sys::Win32::System::SystemInformation::GetTickCount64;

/// Nanoseconds since the system started, as of the last timer tick (10 to 16 ms ago).
pub(crate) fn coarse_ns() -> u64 {
    // SAFETY: no arguments, cannot fail.
    unsafe { GetTickCount64() }.saturating_mul(1_000_000)
}
