//! Libraries that are loaded on first use: drivers, which come with the hardware and not with us.
use std::ffi::OsString;
use std::path::Path;

use libloading::Library;

use crate::core::error::{Error, Kind, Result};

/// A library that stays loaded: drivers have threads of their own and may not be unloaded under them.
pub(crate) struct DriverLibrary(std::mem::ManuallyDrop<Library>);

impl DriverLibrary {
    /// Opens `name` where the system keeps drivers, unless the host has loaded it already: then that one.
    /// `instead` is a full path to use in its place (for tests).
    pub(crate) fn open(name: &str, instead: Option<OsString>) -> Result<Self> {
        let missing = |why: libloading::Error| {
            let text = format!("{name} cannot be loaded ({})", why_text(&why));
            Error::new(Kind::DriverMissing, text)
        };
        let library = match instead {
            None => loaded(name).map_or_else(|| system(name), Ok).map_err(missing)?,
            Some(path) => {
                let path = Path::new(&path);
                if !path.is_absolute() {
                    let text = format!("{} is set in place of {name} and is not a full path", path.display());
                    return Err(Error::invalid(text));
                }
                // SAFETY: whoever sets the path vouches for the library's start-up code, as for any plugin.
                unsafe { Library::new(path) }.map_err(missing)?
            }
        };
        Ok(Self(std::mem::ManuallyDrop::new(library)))
    }

    /// A function; None when the library lacks it.
    ///
    /// # Safety
    /// `F` is the function's pointer type.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: by the contract above; the library is never unloaded, so the pointer stays good.
        unsafe { self.0.get::<F>(name) }.ok().map(|symbol| *symbol)
    }
}

/// The loader's words: libloading's own are only about which call failed.
fn why_text(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(unix)]
fn loaded(name: &str) -> Option<Library> {
    use libloading::os::unix::{Library as Unix, RTLD_LOCAL, RTLD_NOW};
    const RTLD_NOLOAD: i32 = libc::RTLD_NOLOAD;
    // SAFETY: nothing is loaded, so no code runs.
    unsafe { Unix::open(Some(name), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) }.ok().map(Into::into)
}

#[cfg(unix)]
fn system(name: &str) -> std::result::Result<Library, libloading::Error> {
    // SAFETY: a driver's start-up code, from where the system's loader looks.
    unsafe { Library::new(name) }
}

#[cfg(windows)]
fn loaded(name: &str) -> Option<Library> {
    libloading::os::windows::Library::open_already_loaded(name).ok().map(Into::into)
}

#[cfg(windows)]
fn system(name: &str) -> std::result::Result<Library, libloading::Error> {
    use libloading::os::windows::{LOAD_LIBRARY_SEARCH_SYSTEM32, Library as Windows};
    // A driver beside the program is no driver. SAFETY: the system's own start-up code.
    unsafe { Windows::load_with_flags(name, LOAD_LIBRARY_SEARCH_SYSTEM32) }.map(Into::into)
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
    fn the_hosts_own_is_used() {
        let libc = DriverLibrary::open("libc.so.6", None).unwrap();
        // SAFETY: getpid's type.
        let getpid = unsafe { libc.function::<unsafe extern "C" fn() -> i32>("getpid") }.unwrap();
        // SAFETY: has no conditions.
        assert_eq!(u32::try_from(unsafe { getpid() }).unwrap(), std::process::id());
        // SAFETY: not called.
        assert!(unsafe { libc.function::<unsafe extern "C" fn()>("no_such_function") }.is_none());
    }
}
