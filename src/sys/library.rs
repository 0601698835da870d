//! Shared libraries that are found at run time.
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A loaded library. It is never unloaded: libraries of drivers and networks leave threads and callbacks behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library(NonNull<c_void>);

// SAFETY: the handle only names the library, and the loader's functions may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The library of this name, if the process has it loaded already; pins it.
    pub(crate) fn loaded(name: &CStr) -> Option<Self> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE | libc::RTLD_NOLOAD;
        // SAFETY: loads nothing, so that no foreign code runs.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), flags) }).map(Self)
    }

    /// Loads a library by file name (searched for as the system does) or path. Err: the loader's words.
    ///
    /// # Safety
    /// The library's constructors run: it must be one that may be loaded into any process.
    pub(crate) unsafe fn load(name: &CStr) -> Result<Self, String> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
        // SAFETY: by the contract above.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), flags) }).map(Self).ok_or_else(last_error)
    }

    /// Its file, as the loader named it; empty when the loader does not say.
    pub(crate) fn file(self) -> PathBuf {
        let mut map = std::ptr::null::<LinkMap>();
        // SAFETY: the handle is never closed; this request writes one pointer.
        let failed = unsafe { libc::dlinfo(self.0.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        if failed != 0 {
            return PathBuf::new();
        }
        // SAFETY: the entry of a library that is never unloaded.
        let Some(map) = (unsafe { map.as_ref() }) else { return PathBuf::new() };
        // SAFETY: a C string that lives as long as the library.
        let name = unsafe { CStr::from_ptr(map.name) };
        Path::new(OsStr::from_bytes(name.to_bytes())).to_owned()
    }

    /// The address of a function or variable in it or in what it needs; null when there is none.
    pub(crate) fn symbol(self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is never closed.
        unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) }
    }
}

fn last_error() -> String {
    // SAFETY: a plain call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: a C string that lives until this thread's next call of the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What the loader knows of each library, as far as it is public.
#[repr(C)]
struct LinkMap {
    load_bias: usize,
    name: *const c_char,
}

/// The file that the code or data at an address came from, as the loader named it.
pub(crate) fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is writable; any address may be asked for.
    let found = unsafe { libc::dladdr(address, &mut info) } != 0;
    if !found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_is_there_and_says_where() {
        let libc = Library::loaded(c"libc.so.6").unwrap();
        let address = libc.symbol(c"getenv");
        assert!(!address.is_null());
        let file = file_of(address).unwrap();
        assert!(file.file_name().unwrap().to_str().unwrap().starts_with("libc"), "{file:?}");
        assert_eq!(libc.file(), file);
        assert!(libc.symbol(c"nrdma_no_such_function").is_null());
        assert!(file_of(std::ptr::null()).is_none());
    }

    #[test]
    fn what_is_not_there_is_told() {
        assert!(Library::loaded(c"libnrdma-no-such.so").is_none());
        // SAFETY: there is no such library.
        let error = unsafe { Library::load(c"libnrdma-no-such.so") }.unwrap_err();
        assert!(error.contains("libnrdma-no-such.so"), "{error}");
    }
}
