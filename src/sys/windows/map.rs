//! Memory of our own, and sections: memory that another process can map.
use std::ffi::{CStr, c_void};
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_READ, FILE_MAP_WRITE, MEM_COMMIT, MEM_RELEASE, MEM_RESERVE,
    MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile, PAGE_READWRITE, SEC_COMMIT, UnmapViewOfFile, VirtualAlloc,
    VirtualFree,
};

use crate::core::error::{Error, Kind, Result};
use crate::core::transport::Share;

/// From this size on addresses are aligned to it where the system lets us choose.
pub(crate) const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// What every mapping is aligned to.
const GRANULARITY: usize = 64 * 1024;

/// The system's word for why a call failed, with the call's name.
fn failed(call: &str, bytes: usize) -> Error {
    let error = io::Error::last_os_error();
    Error::new(Kind::OutOfMemory, format!("{call} of {bytes} bytes failed: {error}"))
}

/// Rounds up to whole pages.
fn pages(bytes: usize) -> Result<usize> {
    bytes
        .checked_next_multiple_of(PAGE)
        .filter(|n| *n > 0 && *n <= isize::MAX.unsigned_abs())
        .ok_or_else(|| Error::new(Kind::OutOfMemory, format!("{bytes} bytes cannot be mapped")))
}

/// A section of `bytes` bytes, without a name. Its memory is charged now, and nobody can change its size.
pub(crate) fn create_sealed(_name: &CStr, bytes: usize) -> Result<Share> {
    let len = pages(bytes)? as u64;
    let (high, low) = ((len >> 32) as u32, (len & u64::from(u32::MAX)) as u32);
    // SAFETY: no file, no attributes, no name.
    let raw = unsafe {
        CreateFileMappingW(
            INVALID_HANDLE_VALUE,
            ptr::null(),
            PAGE_READWRITE | SEC_COMMIT,
            high,
            low,
            ptr::null(),
        )
    };
    if raw.is_null() {
        return Err(failed("CreateFileMapping", bytes));
    }
    // SAFETY: `raw` was just made and nobody else owns it.
    Ok(Share::Handle(unsafe { OwnedHandle::from_raw_handle(raw) }))
}

/// Checks a section that came from a peer. (No section can shrink, and mapping more than it has fails.)
pub(crate) fn check_sealed(share: &Share, bytes: usize) -> Result<()> {
    match share {
        Share::Handle(_) => Ok(()),
        Share::Socket(_) => {
            Err(Error::protocol(format!("a socket came where {bytes} bytes of memory were announced")))
        }
    }
}

/// How a mapping was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// By VirtualAlloc, at this address.
    Allocated(usize),
    /// By MapViewOfFile.
    Mapped,
}

/// A mapping; unmapped on drop. The address never changes.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    len: usize,
    made: Made,
}

impl Mapping {
    /// Fresh zeroed memory of our own, aligned to `align` (a power of two).
    pub(crate) fn anonymous(bytes: usize, align: usize) -> Result<Self> {
        let len = pages(bytes)?;
        let slack = if align > GRANULARITY { align } else { 0 };
        let total = len
            .checked_add(slack)
            .ok_or_else(|| Error::new(Kind::OutOfMemory, format!("{bytes} bytes cannot be mapped")))?;
        // SAFETY: asks for new address space anywhere.
        let base = unsafe { VirtualAlloc(ptr::null(), total, MEM_RESERVE, PAGE_READWRITE) }.addr();
        if base == 0 {
            return Err(failed("VirtualAlloc", bytes));
        }
        let mapping =
            Self { address: base.next_multiple_of(align.max(PAGE)), len, made: Made::Allocated(base) };
        // SAFETY: inside of what was reserved above.
        if unsafe { VirtualAlloc(mapping.pointer(), len, MEM_COMMIT, PAGE_READWRITE) }.is_null() {
            return Err(failed("VirtualAlloc", bytes));
        }
        Ok(mapping)
    }

    /// A section, shared, at an aligned address. The system aligns to 64 KiB, whatever more is asked for.
    pub(crate) fn shared_aligned(share: &Share, bytes: usize, _align: usize) -> Result<Self> {
        let len = pages(bytes)?;
        let Share::Handle(section) = share else {
            return Err(Error::protocol("a socket cannot be mapped"));
        };
        let access = FILE_MAP_READ | FILE_MAP_WRITE;
        // SAFETY: the handle is open; fails when the section is smaller than `len`.
        let view = unsafe { MapViewOfFile(section.as_raw_handle(), access, 0, 0, len) };
        if view.Value.is_null() {
            return Err(failed("MapViewOfFile", bytes));
        }
        Ok(Self { address: view.Value.expose_provenance(), len, made: Made::Mapped })
    }

    /// The first byte.
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Bytes from there on.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn pointer(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.address)
    }

    /// Takes the first `len` bytes' pages now; false: the system takes them when they are touched.
    pub(crate) fn populate(&self, _len: usize) -> bool {
        false
    }

    /// Gives a shared mapping's pages back to the system: false, there is no way for sections. They go when the
    /// last of the two processes unmaps them.
    pub(crate) fn punch(&self) -> bool {
        false
    }

    /// Keeps the pages out of forked children: there are none here.
    pub(crate) fn dont_fork(&self) -> bool {
        true
    }

    /// A second mapping of the same shared pages.
    pub(crate) fn again(&self, _align: usize) -> Result<Self> {
        Err(cannot_detach())
    }

    /// Moves `other`'s pages over ours, in one step.
    pub(crate) fn replace_with(&self, _other: Self) -> Result<()> {
        Err(cannot_detach())
    }
}

/// A view can only be unmapped and another mapped later: another thread would find nothing in between.
fn cannot_detach() -> Error {
    Error::new(Kind::NotSupported, "this system cannot exchange pages in place")
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.made {
            Made::Allocated(base) => {
                let base = ptr::with_exposed_provenance_mut(base);
                // SAFETY: made by VirtualAlloc, and nobody uses it any more.
                unsafe { VirtualFree(base, 0, MEM_RELEASE) };
            }
            Made::Mapped => {
                let view = MEMORY_MAPPED_VIEW_ADDRESS { Value: self.pointer() };
                // SAFETY: made by MapViewOfFile, and nobody uses it any more.
                unsafe { UnmapViewOfFile(view) };
            }
        }
    }
}
