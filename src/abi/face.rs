//! The faces of an object: one for each C++ ABI that hosts of this platform are built with.
//!
//! An object starts with one table's address for each face, and what C++ holds is the place of its own. A method
//! that returns an object returns the face that it was called on.
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr;

use super::com::{Class, Object};
use super::interface::{NRDMA_CXX_ABI_ITANIUM, NRDMA_CXX_ABI_MSVC, nrdma_cxx_abi};
use crate::core::error::{Error, Result};

/// Faces of this platform.
#[cfg(not(windows))]
pub(crate) const FACES: usize = 1;
/// Faces of this platform.
#[cfg(windows)]
pub(crate) const FACES: usize = 2;

/// Whose C++ ABI. The number is the place among an object's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Face {
    /// GCC, Clang, MinGW.
    Itanium = 0,
    /// Microsoft's.
    #[cfg(windows)]
    Msvc = 1,
}

impl Face {
    /// The face that C names by a number.
    pub(crate) fn of(abi: nrdma_cxx_abi) -> Result<Self> {
        match abi {
            NRDMA_CXX_ABI_ITANIUM => Ok(Self::Itanium),
            #[cfg(windows)]
            NRDMA_CXX_ABI_MSVC => Ok(Self::Msvc),
            _ => {
                let name = if abi == NRDMA_CXX_ABI_MSVC { " (MSVC)" } else { "" };
                let text = format!("abi {abi}{name} is not this platform's; use NRDMA_CXX_ABI_HOST");
                Err(Error::invalid(text))
            }
        }
    }
}

/// An object, as it was called.
pub(crate) struct Seen<'a, T: Class> {
    pub(crate) object: &'a Object<T>,
    pub(crate) face: Face,
}

impl<T: Class> Deref for Seen<'_, T> {
    type Target = Object<T>;
    fn deref(&self) -> &Object<T> {
        self.object
    }
}

/// Where the object begins whose face is at `this`.
pub(crate) fn start<T: Class>(this: *const T::Interface, face: Face) -> *const Object<T> {
    this.cast::<*const c_void>().wrapping_sub(face as usize).cast()
}

/// Where the face of the object is that begins at `start`.
pub(crate) fn place<T: Class>(start: *const Object<T>, face: Face) -> *const T::Interface {
    start.cast::<*const c_void>().wrapping_add(face as usize).cast()
}

/// The face that has this table; None: it is no table of the class.
#[inline]
pub(crate) fn with_table<T: Class>(table: *const c_void) -> Option<Face> {
    #[cfg(windows)]
    if ptr::eq(table, T::msvc()) {
        return Some(Face::Msvc);
    }
    ptr::eq(table, T::table().address()).then_some(Face::Itanium)
}

/// What an object of the class starts with.
pub(crate) fn tables<T: Class>() -> [*const c_void; FACES] {
    [
        T::table().address(),
        #[cfg(windows)]
        T::msvc(),
    ]
}

/// IInterface's get_iid as Microsoft's compiler calls it: the place of the result comes second.
#[cfg(windows)]
pub(crate) unsafe extern "C" fn get_iid_msvc<T: Class>(
    _this: *const T::Interface,
    result: *mut super::interface::nrdma_uuid,
) -> *mut super::interface::nrdma_uuid {
    // SAFETY: C++ passes room for the result.
    unsafe { result.write(T::IIDS.first().copied().unwrap_or_default()) };
    result
}

/// The type of IInterface's get_iid, by face.
pub(crate) type GetIid<I> = unsafe extern "C" fn(this: *const I) -> super::interface::nrdma_uuid;
/// The type of IInterface's get_iid, by face.
#[cfg(windows)]
pub(crate) type GetIidMsvc<I> = unsafe extern "C" fn(
    this: *const I,
    result: *mut super::interface::nrdma_uuid,
) -> *mut super::interface::nrdma_uuid;

/// A function table for Microsoft's compiler, with the word that it looks for in front of it.
#[cfg(windows)]
#[repr(C)]
pub(crate) struct MsvcTable<V> {
    locator: *const c_void,
    vtbl: V,
}
// SAFETY: immutable; the locator is, too.
#[cfg(windows)]
unsafe impl<V: Sync> Sync for MsvcTable<V> {}

#[cfg(windows)]
impl<V> MsvcTable<V> {
    /// `locator`: the class's complete object locator.
    pub(crate) const fn new(locator: &'static u8, vtbl: V) -> Self {
        Self { locator: ptr::from_ref(locator).cast(), vtbl }
    }
    /// What an object points to: taken from the whole table, so that the word in front can be reached.
    pub(crate) fn address(&'static self) -> *const c_void {
        let words = std::mem::offset_of!(Self, vtbl);
        // SAFETY: inside the table.
        unsafe { ptr::from_ref(self).cast::<u8>().add(words) }.cast()
    }
}
