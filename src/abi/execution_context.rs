//! `mi::neuraylib::IJob_execution_context`, which is no IInterface: one function, nothing counted.
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use super::com::Table;
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
// SAFETY: the table is immutable but for an atomic.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

/// The one object there is: it knows nothing but the thread that asks.
pub(crate) fn pointer() -> *const c_void {
    static OBJECT: OnceLock<Object> = OnceLock::new();
    ptr::from_ref(OBJECT.get_or_init(|| Object { _vtbl: TABLE.address() })).cast()
}
