//! Reference-counted objects with a C++ function table at offset 0.
//!
//! An object lives in an `Arc`; what C holds is the address of its data. C's count is apart from the Arc's:
//! while it is above 0, exactly one strong reference of the Arc stands for all of C's. Each step from 0 to 1
//! leaks one and each step from 1 to 0 takes one back, so that an object may rest (in the cache) and be
//! handed out again without being freed in between, and steps that race stay consistent.
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::AtomicU32;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::AtomicU32;

use super::face::{self, FACES, Face, Seen, tables};
use super::fork;
use super::guard::guard;
use super::interface::{NRDMA_ZERO_UUID, nrdma_uuid};
use crate::core::error::{Error, Result};

/// What a Rust struct says of itself to be handed to C++.
pub(crate) trait Class: Send + Sync + Sized + 'static {
    /// What C points to: a struct that starts with the table's address.
    type Interface;
    /// The `#[repr(C)]` table; it starts with the five functions of IInterface.
    type Vtbl: Sync + 'static;
    /// How its objects are aligned: [`OwnLine`], or `()` for those that are made and dropped all the time.
    type Line: Send + Sync;
    /// Its name, for errors.
    const NAME: &'static str;
    /// Ids that get_interface answers to, the most derived first; IInterface's is known anyway.
    const IIDS: &'static [nrdma_uuid];
    /// Whether an object may be handed out by somebody who holds no reference that C counts: a table of
    /// objects at rest, say. When not, the last release is cheaper.
    const REVIVED: bool = true;
    /// The one table that all objects of the class share.
    fn table() -> &'static Table<Self::Vtbl>;
    /// Where the table for Microsoft's compiler is.
    #[cfg(windows)]
    fn msvc() -> *const c_void;
    /// What becomes of an object when C has let go; the default is to drop it.
    fn rest(object: Arc<Object<Self>>) {
        drop(object);
    }
}

/// A function table with the two words that C++ looks for in front of it.
#[repr(C)]
pub(crate) struct Table<V> {
    offset_to_top: isize,
    type_info: AtomicPtr<c_void>,
    vtbl: V,
}

impl<V> Table<V> {
    pub(crate) const fn new(vtbl: V) -> Self {
        Self { offset_to_top: 0, type_info: AtomicPtr::new(ptr::null_mut()), vtbl }
    }
    /// Where the host's typeinfo goes.
    pub(crate) fn type_info(&self) -> &AtomicPtr<c_void> {
        &self.type_info
    }
    /// What an object points to: taken from the whole table, so that the words in front can be reached.
    pub(crate) fn address(&'static self) -> *const c_void {
        let words = std::mem::offset_of!(Self, vtbl);
        // SAFETY: inside the table.
        unsafe { ptr::from_ref(self).cast::<u8>().add(words) }.cast()
    }
}

/// How many references C holds.
pub(crate) struct Count(AtomicU32);

impl Count {
    fn new(count: u32) -> Self {
        Self(AtomicU32::new(count))
    }
    fn get(&self) -> u32 {
        // Acquire: who sees that it is the only holder may read what the others wrote.
        self.0.load(Ordering::Acquire)
    }
    /// The first reference of an object that nobody else can reach.
    fn start(&self) {
        self.0.store(1, Ordering::Relaxed);
    }
    /// The new count.
    fn up(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
    /// The new count; at 0 everything that the other holders did has happened before. `revived`: whether
    /// somebody may come from 0, or from another's reference, meanwhile.
    fn down(&self, revived: bool) -> u32 {
        // The only holder's own reference: nobody can add one, so that no locked instruction is needed.
        if !revived && self.get() == 1 {
            self.0.store(0, Ordering::Relaxed);
            return 0;
        }
        let count = self.0.fetch_sub(1, Ordering::Release).wrapping_sub(1);
        if count == 0 {
            // A load, not a fence: ThreadSanitizer does not understand fences.
            self.0.load(Ordering::Acquire);
        }
        count
    }
}

/// Cache lines that belong to one object: two threads use two objects without waiting for each other.
#[repr(align(64))]
pub(crate) struct OwnLine;

/// The memory of an object: what C++ sees comes first.
#[repr(C)]
pub(crate) struct Object<T: Class> {
    line: [T::Line; 0],
    tables: [*const c_void; FACES],
    count: Count,
    value: T,
}

// SAFETY: the tables are immutable but for an atomic, the count is atomic, and `Class` demands it of `T`.
unsafe impl<T: Class> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T: Class> Sync for Object<T> {}

impl<T: Class> Object<T> {
    /// An object that C holds no reference to yet.
    pub(crate) fn at_rest(value: T) -> Arc<Self> {
        Arc::new(Self { line: [], tables: tables::<T>(), count: Count::new(0), value })
    }

    /// The Rust value.
    pub(crate) fn value(&self) -> &T {
        &self.value
    }

    /// References that C holds.
    pub(crate) fn references(&self) -> u32 {
        self.count.get()
    }

    /// The first reference, which this Arc stands for.
    #[inline]
    pub(crate) fn start(self: Arc<Self>) {
        debug_assert_eq!(self.count.get(), 0);
        self.count.start();
        let _ = Arc::into_raw(self);
    }

    /// One more reference; the object may be at rest if its class says so.
    pub(crate) fn retain(&self) -> u32 {
        let count = self.count.up();
        if count == 1 {
            // SAFETY: every object lives in an Arc (`at_rest`), and this one is alive.
            unsafe { Arc::increment_strong_count(ptr::from_ref(self)) };
        }
        count
    }

    /// One reference less; the new count. At 0 the caller must not touch the object any more.
    pub(crate) fn release(&self) -> u32 {
        let count = self.count.down(T::REVIVED);
        // In a fork nothing is freed: the other side of it belongs to the parent.
        if count == 0 && !fork::is_child() {
            // SAFETY: the strong reference that stood for C's, leaked in `start` or `retain`.
            let object = unsafe { Arc::from_raw(ptr::from_ref(self)) };
            T::rest(object);
        }
        count
    }

    /// The pointer that C knows the object by.
    pub(crate) fn interface(&self, face: Face) -> *mut T::Interface {
        face::place::<T>(self, face).cast_mut()
    }

    /// Another strong reference to the object.
    pub(crate) fn arc(&self) -> Arc<Self> {
        let this = ptr::from_ref(self);
        // SAFETY: every object lives in an Arc, and this one is alive.
        unsafe { Arc::increment_strong_count(this) };
        // SAFETY: takes over what the line before counted.
        unsafe { Arc::from_raw(this) }
    }
}

/// An owned reference of the kind that C holds.
pub(crate) struct Com<T: Class>(NonNull<Object<T>>);

// SAFETY: the object is Send and Sync.
unsafe impl<T: Class> Send for Com<T> {}
// SAFETY: as above.
unsafe impl<T: Class> Sync for Com<T> {}

impl<T: Class> Com<T> {
    /// A new object with one reference.
    pub(crate) fn new(value: T) -> Self {
        let object = Object::at_rest(value);
        let pointer = NonNull::from(object.as_ref());
        object.start();
        Self(pointer)
    }
    /// One more reference to an object, at rest or not.
    pub(crate) fn share(object: &Arc<Object<T>>) -> Self {
        object.retain();
        Self(NonNull::from(object.as_ref()))
    }
    /// Gives the reference to C.
    pub(crate) fn into_raw(self, face: Face) -> *mut T::Interface {
        let raw = self.interface(face);
        std::mem::forget(self);
        raw
    }
}

impl<T: Class> std::ops::Deref for Com<T> {
    type Target = Object<T>;
    fn deref(&self) -> &Object<T> {
        // SAFETY: a Com holds a reference, so the object lives.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Class> Clone for Com<T> {
    fn clone(&self) -> Self {
        self.retain();
        Self(self.0)
    }
}

impl<T: Class> Drop for Com<T> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The object behind a `this` pointer.
///
/// # Safety
/// `this` is an object of class `T` that the caller holds a reference to.
#[inline]
pub(crate) unsafe fn object<'a, T: Class>(this: *const T::Interface) -> &'a Object<T> {
    // SAFETY: by the contract above.
    unsafe { seen::<T>(this) }.object
}

/// The same, with the face.
///
/// # Safety
/// As [`object`].
#[inline]
pub(crate) unsafe fn seen<'a, T: Class>(this: *const T::Interface) -> Seen<'a, T> {
    // There is nothing to find out where there is one face.
    let face = match FACES {
        1 => Face::Itanium,
        // SAFETY: every object's face starts with its table's address.
        _ => face::with_table::<T>(unsafe { this.cast::<*const c_void>().read() }).unwrap_or(Face::Itanium),
    };
    // SAFETY: by the contract above.
    Seen { object: unsafe { &*face::start::<T>(this, face) }, face }
}

/// The object behind a pointer from C, or an error that says why it is none of ours.
///
/// # Safety
/// `this` is null or points to a C++ object that the caller holds a reference to, of any class.
pub(crate) unsafe fn checked<'a, T: Class>(this: *const T::Interface) -> Result<&'a Object<T>> {
    // SAFETY: by the contract above.
    unsafe { checked_seen::<T>(this) }.map(|seen| seen.object)
}

/// The same, with the face.
///
/// # Safety
/// As [`checked`].
pub(crate) unsafe fn checked_seen<'a, T: Class>(this: *const T::Interface) -> Result<Seen<'a, T>> {
    if this.is_null() {
        return Err(Error::invalid(format!("the {} is NULL", T::NAME)));
    }
    // SAFETY: every C++ object with virtual functions starts with its table's address.
    let table = unsafe { this.cast::<*const c_void>().read() };
    if face::with_table::<T>(table).is_none() {
        return Err(Error::invalid(format!("the object at {this:p} is not a {} of this nrdma", T::NAME)));
    }
    // SAFETY: only objects of the class have its tables.
    Ok(unsafe { seen::<T>(this) })
}

/// IInterface's retain.
pub(crate) unsafe extern "C" fn retain<T: Class>(this: *const T::Interface) -> u32 {
    // SAFETY: C++ calls a table's function on a live object of that table.
    unsafe { object::<T>(this) }.retain()
}

/// IInterface's release.
pub(crate) unsafe extern "C" fn release<T: Class>(this: *const T::Interface) -> u32 {
    // SAFETY: as in `retain`.
    let object = unsafe { object::<T>(this) };
    guard(|| object.release())
}

/// IInterface's get_interface, the const one.
pub(crate) unsafe extern "C" fn get_interface_const<T: Class>(
    this: *const T::Interface,
    iid: *const nrdma_uuid,
) -> *const c_void {
    // SAFETY: C++ passes a reference, C a pointer or NULL.
    let Some(iid) = (unsafe { iid.as_ref() }) else {
        return ptr::null();
    };
    if *iid != NRDMA_ZERO_UUID && !T::IIDS.contains(iid) {
        return ptr::null();
    }
    // SAFETY: as in `retain`.
    unsafe { object::<T>(this) }.retain();
    this.cast()
}

/// IInterface's get_interface.
pub(crate) unsafe extern "C" fn get_interface<T: Class>(
    this: *mut T::Interface,
    iid: *const nrdma_uuid,
) -> *mut c_void {
    // SAFETY: the same contract.
    unsafe { get_interface_const::<T>(this, iid) }.cast_mut()
}

/// IInterface's get_iid.
pub(crate) unsafe extern "C" fn get_iid<T: Class>(_this: *const T::Interface) -> nrdma_uuid {
    T::IIDS.first().copied().unwrap_or_default()
}

/// Fills a table: `method!(T, |this: *const i, a: t| -> r { ... })` is an `extern "C"` function that finds
/// the object with the face ([`Seen`]), runs the block inside `guard` and returns its result.
macro_rules! method {
    ($t:ty, |$this:ident: $p:ty $(, $a:ident: $at:ty)*| -> $r:ty $body:block) => {{
        unsafe extern "C" fn thunk($this: $p $(, $a: $at)*) -> $r {
            $crate::abi::guard::guard(|| {
                // SAFETY: C++ calls a table's function on a live object of that table.
                let $this: $crate::abi::face::Seen<'_, $t> = unsafe { $crate::abi::com::seen::<$t>($this) };
                $body
            })
        }
        thunk
    }};
}
pub(crate) use method;

#[cfg(test)]
mod tests;
