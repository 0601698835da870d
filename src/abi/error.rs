//! Status codes and the thread's last error.
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use crate::core::error::{Error, Kind};

/// What a call returned: 0 is success, errors are negative, in ranges by what is broken.
pub type nrdma_status = i32;

/// Done.
pub const NRDMA_OK: nrdma_status = 0;
/// A parameter is NULL or out of range; also neuray's flush() and execute_fragmented().
pub const NRDMA_INVALID_PARAMETER: nrdma_status = -1;
/// The call is for use inside a fragment.
pub const NRDMA_NOT_IN_FRAGMENT: nrdma_status = -2;
/// A priority is negative.
pub const NRDMA_INVALID_PRIORITY: nrdma_status = -3;
/// No memory, or no descriptors.
pub const NRDMA_OUT_OF_MEMORY: nrdma_status = -10;
/// The limit on locked memory is too low.
pub const NRDMA_MEMLOCK_LIMIT: nrdma_status = -11;
/// This build or this machine cannot do it.
pub const NRDMA_NOT_SUPPORTED: nrdma_status = -12;
/// A driver is not installed.
pub const NRDMA_DRIVER_MISSING: nrdma_status = -13;
/// A driver failed.
pub const NRDMA_DRIVER_ERROR: nrdma_status = -14;
/// The caller's room is too small.
pub const NRDMA_BUFFER_TOO_SMALL: nrdma_status = -15;
/// Nobody answers at the address.
pub const NRDMA_UNREACHABLE: nrdma_status = -30;
/// The other end refused.
pub const NRDMA_REFUSED: nrdma_status = -31;
/// It took longer than allowed.
pub const NRDMA_TIMED_OUT: nrdma_status = -32;
/// The other end could not prove that it may connect, or we could not.
pub const NRDMA_AUTH_FAILED: nrdma_status = -33;
/// The two ends have no protocol version in common.
pub const NRDMA_VERSION_MISMATCH: nrdma_status = -34;
/// The other end broke the protocol.
pub const NRDMA_PROTOCOL_ERROR: nrdma_status = -35;
/// The address is taken.
pub const NRDMA_ADDRESS_IN_USE: nrdma_status = -36;
/// A peer is gone.
pub const NRDMA_PEER_LOST: nrdma_status = -60;
/// A description of something that no longer exists.
pub const NRDMA_STALE: nrdma_status = -61;
/// A fragment failed.
pub const NRDMA_FRAGMENT_FAILED: nrdma_status = -62;
/// The job was cancelled.
pub const NRDMA_CANCELLED: nrdma_status = -63;
/// The node was shut down.
pub const NRDMA_SHUT_DOWN: nrdma_status = -64;
/// The class is not registered.
pub const NRDMA_NOT_REGISTERED: nrdma_status = -65;
/// A bug in nrdma; nrdma_last_error() has the text.
pub const NRDMA_PANIC: nrdma_status = -90;
/// The process is a fork of the one that made the object.
pub const NRDMA_AFTER_FORK: nrdma_status = -91;

/// The status that C sees for an error.
pub(crate) fn status(kind: Kind) -> nrdma_status {
    match kind {
        Kind::InvalidParameter => NRDMA_INVALID_PARAMETER,
        Kind::NotInFragment => NRDMA_NOT_IN_FRAGMENT,
        Kind::InvalidPriority => NRDMA_INVALID_PRIORITY,
        Kind::OutOfMemory => NRDMA_OUT_OF_MEMORY,
        Kind::MemlockLimit => NRDMA_MEMLOCK_LIMIT,
        Kind::NotSupported => NRDMA_NOT_SUPPORTED,
        Kind::DriverMissing => NRDMA_DRIVER_MISSING,
        Kind::DriverError => NRDMA_DRIVER_ERROR,
        Kind::BufferTooSmall => NRDMA_BUFFER_TOO_SMALL,
        Kind::Unreachable => NRDMA_UNREACHABLE,
        Kind::Refused => NRDMA_REFUSED,
        Kind::TimedOut => NRDMA_TIMED_OUT,
        Kind::AuthFailed => NRDMA_AUTH_FAILED,
        Kind::VersionMismatch => NRDMA_VERSION_MISMATCH,
        Kind::ProtocolError => NRDMA_PROTOCOL_ERROR,
        Kind::AddressInUse => NRDMA_ADDRESS_IN_USE,
        Kind::PeerLost => NRDMA_PEER_LOST,
        Kind::Stale => NRDMA_STALE,
        Kind::FragmentFailed => NRDMA_FRAGMENT_FAILED,
        Kind::Cancelled => NRDMA_CANCELLED,
        Kind::ShutDown => NRDMA_SHUT_DOWN,
        Kind::NotRegistered => NRDMA_NOT_REGISTERED,
        Kind::Panic => NRDMA_PANIC,
        Kind::AfterFork => NRDMA_AFTER_FORK,
    }
}

fn status_text(status: nrdma_status) -> &'static CStr {
    match status {
        NRDMA_OK => c"ok",
        NRDMA_INVALID_PARAMETER => c"invalid parameter",
        NRDMA_NOT_IN_FRAGMENT => c"not in a fragment",
        NRDMA_INVALID_PRIORITY => c"invalid priority",
        NRDMA_OUT_OF_MEMORY => c"out of memory",
        NRDMA_MEMLOCK_LIMIT => c"limit on locked memory",
        NRDMA_NOT_SUPPORTED => c"not supported",
        NRDMA_DRIVER_MISSING => c"driver missing",
        NRDMA_DRIVER_ERROR => c"driver error",
        NRDMA_BUFFER_TOO_SMALL => c"buffer too small",
        NRDMA_UNREACHABLE => c"unreachable",
        NRDMA_REFUSED => c"refused",
        NRDMA_TIMED_OUT => c"timed out",
        NRDMA_AUTH_FAILED => c"authentication failed",
        NRDMA_VERSION_MISMATCH => c"version mismatch",
        NRDMA_PROTOCOL_ERROR => c"protocol error",
        NRDMA_ADDRESS_IN_USE => c"address in use",
        NRDMA_PEER_LOST => c"peer lost",
        NRDMA_STALE => c"stale",
        NRDMA_FRAGMENT_FAILED => c"fragment failed",
        NRDMA_CANCELLED => c"cancelled",
        NRDMA_SHUT_DOWN => c"shut down",
        NRDMA_NOT_REGISTERED => c"not registered",
        NRDMA_PANIC => c"panic",
        NRDMA_AFTER_FORK => c"after fork",
        _ => c"unknown status",
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps an error for nrdma_last_error() and returns its status.
pub(crate) fn set_last(error: &Error) -> nrdma_status {
    set_last_text(&error.text);
    status(error.kind)
}

/// Keeps a text for nrdma_last_error().
pub(crate) fn set_last_text(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // Not there any more when the thread is ending; nobody can ask then either.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = text;
        }
    });
}

/// An English word or two for a status; static.
#[unsafe(no_mangle)]
pub extern "C" fn nrdma_status_string(status: nrdma_status) -> *const c_char {
    status_text(status).as_ptr()
}

/// What went wrong in this thread's last failing call, in one sentence; "" if none failed. Valid until the
/// thread's next failing call.
#[unsafe(no_mangle)]
pub extern "C" fn nrdma_last_error() -> *const c_char {
    let last = LAST.try_with(|last| last.try_borrow().map(|last| last.as_ptr()).ok());
    last.ok().flatten().unwrap_or(c"".as_ptr())
}

/// Forgets this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn nrdma_clear_error() {
    set_last_text("");
}

/// The library's version: major * 1000000 + minor * 1000 + patch.
#[unsafe(no_mangle)]
pub extern "C" fn nrdma_version() -> u32 {
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
        + number(env!("CARGO_PKG_VERSION_PATCH"))
}

/// The library's version as text, "0.1.0"; static.
#[unsafe(no_mangle)]
pub extern "C" fn nrdma_version_string() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: a C string, until the next failing call.
        unsafe { CStr::from_ptr(nrdma_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_last_error_is_the_threads_own() {
        assert_eq!(last(), "");
        assert_eq!(set_last(&Error::invalid("size 0\0 of 5")), -1);
        assert_eq!(last(), "size 0  of 5");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
        nrdma_clear_error();
        assert_eq!(last(), "");
    }

    #[test]
    fn every_status_has_its_words() {
        let known: Vec<_> = (-100..=0).filter(|s| status_text(*s) != c"unknown status").collect();
        assert_eq!(known.len(), 25);
        for (kind, number) in
            [(Kind::OutOfMemory, -10), (Kind::BufferTooSmall, -15), (Kind::AddressInUse, -36)]
        {
            assert_eq!(status(kind), number);
        }
        for (kind, number) in
            [(Kind::NotRegistered, -65), (Kind::AfterFork, -91), (Kind::InvalidPriority, -3)]
        {
            assert_eq!(status(kind), number);
        }
    }

    #[test]
    fn the_version_is_the_crates() {
        // SAFETY: a static C string.
        let text = unsafe { CStr::from_ptr(nrdma_version_string()) }.to_str().unwrap();
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
        assert_eq!(nrdma_version() / 1000, 1);
    }
}
