//! Drivers' libraries, loaded on first use: they come with the hardware and not with us.
use std::ffi::{OsString, c_void};
use std::path::Path;

use crate::core::error::{Error, Kind, Result};

/// A driver's library. It is never unloaded.
pub(crate) struct DriverLibrary(system::Library);

impl DriverLibrary {
    /// Opens `name` where the system keeps drivers, unless the host has loaded it already: then that one.
    /// `instead` is a full path to use in its place (for tests).
    pub(crate) fn open(name: &str, instead: Option<OsString>) -> Result<Self> {
        let missing =
            |why: String| Error::new(Kind::DriverMissing, format!("{name} cannot be loaded ({why})"));
        let Some(path) = instead else {
            return system::find(name).map(Self).map_err(missing);
        };
        let path = Path::new(&path);
        if !path.is_absolute() {
            let text = format!("{} is set in place of {name} and is not a full path", path.display());
            return Err(Error::invalid(text));
        }
        system::load(path).map(Self).map_err(missing)
    }

    /// A function; None when the library lacks it.
    ///
    /// # Safety
    /// `F` is the function's pointer type.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = system::symbol(&self.0, name).filter(|address| !address.is_null())?;
        // SAFETY: of one size, not null, and of that type by the contract above.
        Some(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::{CString, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    pub(super) use crate::sys::library::Library;

    pub(super) fn find(name: &str) -> Result<Library, String> {
        let name = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: a driver's start-up code, from where the system's loader looks.
        Library::loaded(&name).map_or_else(|| unsafe { Library::load(&name) }, Ok)
    }

    pub(super) fn load(path: &Path) -> Result<Library, String> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: whoever sets the path vouches for the library's start-up code, as for any plugin.
        unsafe { Library::load(&path) }
    }

    pub(super) fn symbol(library: &Library, name: &str) -> Option<*mut c_void> {
        Some(library.symbol(&CString::new(name).ok()?))
    }
}

#[cfg(windows)]
mod system {
    use std::ffi::c_void;
    use std::mem::ManuallyDrop;
    use std::path::Path;

    use libloading::os::windows::{LOAD_LIBRARY_SEARCH_SYSTEM32, Library as Loaded};

    pub(super) type Library = ManuallyDrop<Loaded>;

    pub(super) fn find(name: &str) -> Result<Library, String> {
        // A driver beside the program is no driver. SAFETY: the system's own start-up code.
        let load = || unsafe { Loaded::load_with_flags(name, LOAD_LIBRARY_SEARCH_SYSTEM32) };
        let library = Loaded::open_already_loaded(name).or_else(|_| load());
        library.map(ManuallyDrop::new).map_err(words)
    }

    pub(super) fn load(path: &Path) -> Result<Library, String> {
        // SAFETY: whoever sets the path vouches for the library's start-up code, as for any plugin.
        unsafe { Loaded::new(path) }.map(ManuallyDrop::new).map_err(words)
    }

    pub(super) fn symbol(library: &Library, name: &str) -> Option<*mut c_void> {
        // SAFETY: only the address is taken; its type is the caller's word.
        let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) };
        found.ok().map(|symbol| *symbol)
    }

    /// The system's words: libloading's own are only about which call failed.
    fn words(error: libloading::Error) -> String {
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said() {
        let error = DriverLibrary::open("libno-such-driver.so.1", None).map(|_| ()).unwrap_err();
        assert!(
            error.kind == Kind::DriverMissing && error.text.contains("libno-such-driver.so.1"),
            "{error}"
        );
        assert!(error.text.contains("cannot open shared object file"), "{error}");
        let error = DriverLibrary::open("x", Some("lib/x.so".into())).map(|_| ()).unwrap_err();
        assert!(error.text.contains("lib/x.so") && error.text.contains("not a full path"), "{error}");
        let error = DriverLibrary::open("x", Some("/no/such/x.so".into())).map(|_| ()).unwrap_err();
        assert!(error.text.contains("/no/such/x.so"), "{error}");
    }

    #[test]
    fn functions_are_found_by_name() {
        let libc = DriverLibrary::open("libc.so.6", None).unwrap();
        // SAFETY: getpid's type.
        let getpid = unsafe { libc.function::<unsafe extern "C" fn() -> i32>("getpid") }.unwrap();
        // SAFETY: has no conditions.
        assert_eq!(u32::try_from(unsafe { getpid() }).unwrap(), std::process::id());
        // SAFETY: not called.
        assert!(unsafe { libc.function::<unsafe extern "C" fn()>("no_such_function") }.is_none());
    }
}
