//! Structs that start with their size, and settings from the environment.
use std::ffi::{OsString, c_char};

use super::process::is_secure;
use crate::core::error::{Error, Result};

/// A `#[repr(C)]` struct that grows at its end from version to version.
///
/// # Safety
/// The first field is `struct_size: u64`; every bit pattern is a value; there are no padding bytes that an
/// older or newer version uses differently.
pub(crate) unsafe trait Versioned: Copy {
    /// Its name in C, for errors.
    const NAME: &'static str;
    /// What a field is when the caller's version lacks it.
    const DEFAULT: Self;
}

/// The size that the caller set, when it can be one.
///
/// # Safety
/// `theirs` is null or points to a struct that starts with a u64.
unsafe fn struct_size<T: Versioned>(theirs: *const T) -> Result<usize> {
    if theirs.is_null() {
        return Err(Error::invalid(format!("{} is NULL", T::NAME)));
    }
    // SAFETY: by the contract above.
    let size = unsafe { theirs.cast::<u64>().read() };
    match usize::try_from(size) {
        Ok(size) if (size_of::<u64>()..=1 << 20).contains(&size) => Ok(size),
        _ => Err(Error::invalid(format!(
            "{}.struct_size is {size}; set it to sizeof({0}) (here {})",
            T::NAME,
            size_of::<T>()
        ))),
    }
}

/// Reads a caller's struct that may be older (shorter) or newer (longer) than ours.
///
/// # Safety
/// `theirs` is null or points to as many readable bytes as its `struct_size` says.
pub(crate) unsafe fn read_struct<T: Versioned>(theirs: *const T) -> Result<T> {
    // SAFETY: by the contract above.
    let size = unsafe { struct_size(theirs) }?;
    // SAFETY: the caller's struct has that many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(theirs.cast::<u8>(), size) };
    let (known, unknown) = bytes.split_at(size.min(size_of::<T>()));
    if let Some(at) = unknown.iter().position(|byte| *byte != 0) {
        return Err(Error::invalid(format!(
            "{} of {size} bytes has a setting at byte {} that this version of nrdma ({} bytes) does not know",
            T::NAME,
            known.len() + at,
            size_of::<T>()
        )));
    }
    let mut ours = T::DEFAULT;
    // SAFETY: `known` fits, and every bit pattern is a value.
    unsafe { (&raw mut ours).cast::<u8>().copy_from_nonoverlapping(known.as_ptr(), known.len()) };
    Ok(ours)
}

/// Writes to a caller's struct as much as both sides know; its `struct_size` stays.
///
/// # Safety
/// `theirs` is null or points to as many writable bytes as its `struct_size` says.
pub(crate) unsafe fn write_struct<T: Versioned>(theirs: *mut T, ours: &T) -> Result<()> {
    // SAFETY: by the contract above.
    let size = unsafe { struct_size(theirs) }?;
    let skip = size_of::<u64>();
    let count = size.min(size_of::<T>()).saturating_sub(skip);
    // SAFETY: inside `ours`, which is larger than its first field.
    let from = unsafe { std::ptr::from_ref(ours).cast::<u8>().add(skip) };
    // SAFETY: inside the caller's struct.
    let to = unsafe { theirs.cast::<u8>().add(skip) };
    // SAFETY: both have `count` bytes from there on; ours is not the caller's.
    unsafe { to.copy_from_nonoverlapping(from, count) };
    Ok(())
}

/// A setting from the environment; None when it is unset, empty, or not to be trusted.
pub(crate) fn env(name: &str) -> Option<OsString> {
    if is_secure() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Copies a text into a caller's array, cut between characters where it is too long.
pub(crate) fn copy_text(text: &str, out: &mut [c_char]) {
    let Some(room) = out.len().checked_sub(1) else { return };
    let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let bytes = text.as_bytes().iter().take(end).map(|byte| c_char::from_ne_bytes([*byte]));
    for (to, byte) in out.iter_mut().zip(bytes.chain([0])) {
        *to = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Now {
        struct_size: u64,
        first: u64,
        second: u64,
    }
    // SAFETY: three numbers, the size first.
    unsafe impl Versioned for Now {
        const NAME: &'static str = "now";
        const DEFAULT: Self = Self { struct_size: 24, first: 10, second: 20 };
    }

    fn read(words: &[u64]) -> Result<Now> {
        // SAFETY: struct_size is true in every test below, or refused.
        unsafe { read_struct(words.as_ptr().cast::<Now>()) }
    }

    #[test]
    fn older_and_newer_structs_are_read() {
        assert_eq!(read(&[24, 1, 2]).unwrap(), Now { struct_size: 24, first: 1, second: 2 });
        let old = read(&[16, 1]).unwrap();
        assert_eq!((old.first, old.second), (1, 20));
        assert_eq!(read(&[8]).unwrap().first, 10);
        assert_eq!(read(&[40, 1, 2, 0, 0]).unwrap().second, 2);
    }

    #[test]
    fn what_we_do_not_know_is_refused() {
        let error = read(&[40, 1, 2, 0, 0x100]).unwrap_err();
        assert!(error.text.contains("byte 33"), "{error}");
        for size in [0, 7, u64::MAX, 1 << 30] {
            let error = read(&[size, 1, 2]).unwrap_err();
            assert!(error.text.contains(&size.to_string()), "{error}");
        }
        // SAFETY: null is allowed.
        assert!(unsafe { read_struct::<Now>(std::ptr::null()) }.is_err());
    }

    #[test]
    fn only_what_both_know_is_written() {
        let ours = Now { struct_size: 24, first: 1, second: 2 };
        for (size, want) in [(8, [8, 7, 7, 7]), (16, [16, 1, 7, 7]), (24, [24, 1, 2, 7]), (32, [32, 1, 2, 7])]
        {
            let mut theirs = [size, 7_u64, 7, 7];
            // SAFETY: `theirs` has 32 bytes.
            unsafe { write_struct(theirs.as_mut_ptr().cast::<Now>(), &ours) }.unwrap();
            assert_eq!(theirs, want);
        }
    }

    #[test]
    fn the_environment_is_read_when_trusted() {
        assert!(!is_secure());
        assert!(env("PATH").is_some());
        assert!(env("NRDMA_NO_SUCH_SETTING").is_none());
    }
}
