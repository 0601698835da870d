//! `mi::neuraylib::IJob_execution_context`, which is no IInterface: one function, nothing counted.
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use super::com::Table;
use super::face::Face;
use super::guard::guard;
use crate::core::job::thread_id;

/// The function table.
#[repr(C)]
pub(crate) struct Vtbl {
    get_thread_id: unsafe extern "C" fn(this: *const c_void) -> u64,
}

pub(crate) static TABLE: Table<Vtbl> = Table::new(Vtbl { get_thread_id });

/// Of the calling thread: stable for it, different for each running one.
unsafe extern "C" fn get_thread_id(_this: *const c_void) -> u64 {
    guard(thread_id)
}

/// What C++ points to.
#[repr(C)]
struct Object {
    _vtbl: *const c_void,
}
// SAFETY: the tables are immutable but for an atomic.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

#[cfg(windows)]
static MSVC: super::face::MsvcTable<Vtbl> =
    super::face::MsvcTable::new(&super::rtti_msvc::EXECUTION_CONTEXT, Vtbl { get_thread_id });

/// The one object there is for each face: it knows nothing but the thread that asks.
pub(crate) fn pointer(face: Face) -> *const c_void {
    static OBJECT: OnceLock<Object> = OnceLock::new();
    #[cfg(windows)]
    static OBJECT_MSVC: OnceLock<Object> = OnceLock::new();
    let object = match face {
        Face::Itanium => OBJECT.get_or_init(|| Object { _vtbl: TABLE.address() }),
        #[cfg(windows)]
        Face::Msvc => OBJECT_MSVC.get_or_init(|| Object { _vtbl: MSVC.address() }),
    };
    ptr::from_ref(object).cast()
}
