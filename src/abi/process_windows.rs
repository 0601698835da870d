//! What the system says of this process and of its files.
use std::ffi::c_void;
use std::fs::Metadata;
use std::ptr;
use std::sync::Once;

use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
};

/// Whether the process has more rights than its user: there are no such programs here.
pub(crate) fn is_secure() -> bool {
    false
}

/// Has `child` called in every fork of this process: there are none here.
pub(crate) fn at_fork(_child: extern "C" fn()) -> bool {
    true
}

/// Keeps the module loaded that an address lies in, for the rest of the process.
pub(crate) fn pin_module_of(address: *const c_void) {
    let mut module = ptr::null_mut();
    let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
    // SAFETY: with FROM_ADDRESS the name is an address, of which nothing is read; `module` is valid for writes.
    unsafe { GetModuleHandleExW(flags, address.cast(), &mut module) };
}

/// From now on this library stays loaded: threads of ours may still run inside when the host frees it.
pub(crate) fn stay_loaded() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| pin_module_of((stay_loaded as fn()) as *const c_void));
}

/// Why a file is open to others than its owner. Access lists are the user's to set: nothing is checked.
pub(crate) fn open_to_others(_meta: &Metadata) -> Option<String> {
    None
}
