//! What the system says of this process and of its files.
use std::ffi::{CStr, c_void};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Whether the process has more rights than its user (set-user-id and the like): its environment is then not to
/// be trusted.
pub(crate) fn is_secure() -> bool {
    // SAFETY: a plain call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Has `child` called in every fork of this process; false: there is no memory for that.
pub(crate) fn at_fork(child: extern "C" fn()) -> bool {
    // SAFETY: the library is never unloaded (-z nodelete).
    unsafe { libc::pthread_atfork(None, None, Some(child)) == 0 }
}

/// Keeps the module loaded that an address lies in, for the rest of the process.
pub(crate) fn pin_module_of(address: *const c_void) {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is room for the answer.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: zeroed, and filled when dladdr found something.
    let file = unsafe { info.assume_init() }.dli_fname;
    if file.is_null() {
        return;
    }
    // SAFETY: dladdr gave a C string.
    let file = unsafe { CStr::from_ptr(file) };
    // The program itself cannot be opened by name and cannot be unloaded either: both are fine.
    // SAFETY: opens nothing new (NOLOAD), so that no initialiser runs.
    unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
}

/// From now on this library stays loaded: it is linked so (-z nodelete).
pub(crate) fn stay_loaded() {}

/// Why a file is open to others than its owner; None when it is not.
pub(crate) fn open_to_others(meta: &Metadata) -> Option<String> {
    let mode = meta.mode();
    (mode & 0o077 != 0).then(|| format!("its mode is {:o}; others may read it; chmod 600 it", mode & 0o777))
}
