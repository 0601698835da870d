//! Finding and loading UCX.
use std::ffi::{CStr, CString, OsStr, OsString, c_void};
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use once_cell::sync::OnceCell;

use super::ffi;
use super::functions::Functions;
use super::messages;
use crate::core::error::{Error, Kind, Result};
use crate::core::log;
use crate::sys::descriptors::kept_from_children;
use crate::sys::library::{self, Library};
use crate::sys::{environment, signals};

/// What both a system's package and UCX's own build call it.
const NAME: &CStr = c"libucp.so.0";
/// The part of UCX that the others stand on; two of them in one process do not go together.
const BASE: &CStr = c"libucs.so.0";
/// Names the library to load.
const SETTING: &str = "NRDMA_UCX_LIB";
/// What the variables begin with that UCX reads by itself, which it shall not where they are not to be trusted.
const UNTRUSTED: [&str; 2] = ["UCX_", "NRDMA_UCX_"];
/// What UCX would take for a setting of its own with a wrong name, and warn of.
const OURS: [&str; 1] = ["NRDMA_UCX_LIB="];
/// What the files of UCX's libraries begin with.
const FILES: &str = "libuc";

/// What UCX must find in the environment when it is loaded (later is too late), unless the user says otherwise.
const ENVIRONMENT: [&CStr; 6] = [
    // No jumps written over the C library's mmap and munmap. nrdma registers its own memory, so UCX need not see
    // what is mapped.
    c"UCX_MEM_EVENTS=n",
    // No handlers for SIGILL, SIGBUS, SIGFPE and SIGSEGV ...
    c"UCX_HANDLE_ERRORS=none",
    // ... nor for SIGHUP.
    c"UCX_DEBUG_SIGNO=0",
    // No file system, and no thread for it.
    c"UCX_VFS_ENABLE=n",
    c"UCX_WARN_UNUSED_ENV_VARS=n",
    // The host's standard output is not for messages.
    c"UCX_LOG_FILE=stderr",
];

/// A version of UCX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) release: u32,
}

impl Version {
    pub(super) const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor, release: 0 }
    }

    /// The first that has all that is used here, laid out as in `ffi.rs`.
    pub(super) const LEAST: Self = Self::new(ffi::UCP_API_MAJOR, ffi::UCP_API_MINOR);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

/// How the library came into the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was there already.
    Host,
    /// `NRDMA_UCX_LIB` names it.
    Setting,
    /// The system's.
    System,
}

/// UCX, loaded for the rest of the process's life; calls its [`Functions`].
pub(super) struct Ucx {
    functions: Functions,
    pub(super) version: Version,
    /// The file, as the loader named it.
    pub(super) file: PathBuf,
    #[allow(dead_code, reason = "for whoever asks where UCX came from")]
    pub(super) origin: Origin,
}

impl Deref for Ucx {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// What was loaded, be it of use or not: there is never a second one.
static LIBRARY: OnceCell<(Library, Origin)> = OnceCell::new();
static UCX: OnceCell<Ucx> = OnceCell::new();

/// UCX; loaded by the first call that succeeds. Err says in words why there is none, and what to do.
///
/// Blocks while another thread loads it (some milliseconds).
pub(super) fn ucx() -> Result<&'static Ucx> {
    UCX.get_or_try_init(|| {
        let setting = environment::setting(SETTING);
        let (library, origin) = *LIBRARY.get_or_try_init(|| open(NAME, setting.clone()))?;
        let ucx = check(library, origin)?;
        if ucx.origin != Origin::Host {
            messages::listen(library, ucx.version);
        }
        let unused = setting.filter(|_| ucx.origin == Origin::Host).map(file_of_setting);
        let unused = unused.filter(|path| path.as_bytes() != ucx.file.as_os_str().as_bytes());
        match unused {
            Some(path) => log::info!(
                "UCX {} from {}, and not {path:?} as {SETTING} says",
                ucx.version,
                place(&ucx.file, ucx.origin)
            ),
            None => log::info!("UCX {} from {}", ucx.version, place(&ucx.file, ucx.origin)),
        }
        Ok(ucx)
    })
}

pub(super) fn open(name: &CStr, setting: Option<OsString>) -> Result<(Library, Origin)> {
    if let Some(library) = Library::loaded(name) {
        return Ok((library, Origin::Host));
    }
    let (file, origin) = match (beside_base()?, setting) {
        (Some(file), _) => (file, Origin::Host),
        (None, Some(path)) => (file_of_setting(path), Origin::Setting),
        (None, None) => (name.to_owned(), Origin::System),
    };
    let load = || {
        // SAFETY: UCX, or what the user wants to be it.
        unsafe { Library::load(&file) }
    };
    let (loaded, _) = kept_from_children(|| shielded_with(&ENVIRONMENT, load));
    let library = loaded.map_err(|why| {
        missing(match origin {
            Origin::Host => format!("UCX cannot be loaded: {why}; the process has other parts of UCX from there"),
            Origin::Setting => format!("UCX cannot be loaded as {SETTING} says: {why}; correct or unset it"),
            Origin::System => format!(
                "UCX cannot be loaded: {why}; install it (Debian: libucx0), or name its libucp.so.0 in {SETTING}"
            ),
        })
    })?;
    Ok((library, origin))
}

/// For what lets UCX read the environment or load libraries (`ucp_config_read`, `ucp_init_version`,
/// `ucp_worker_create`): runs `work` without the variables that are not to be trusted or not meant for UCX, and
/// without a change of what the host does at signals. Err: that of `work`, with what UCX says of it.
///
/// One thread at a time.
///
/// `additions`: settings that UCX takes from the environment only.
pub(super) fn shielded<T>(additions: &[&'static CStr], work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (result, heard) = messages::hear(|| shielded_with(additions, work));
    if heard.is_empty() {
        return result;
    }
    match result {
        Ok(made) => {
            log::warn!("UCX says: {heard}");
            Ok(made)
        }
        Err(error) => Err(Error::new(error.kind, format!("{}: {heard}", error.text))),
    }
}

fn shielded_with<R>(additions: &[&'static CStr], work: impl FnOnce() -> R) -> R {
    let hidden: &[&str] = if environment::is_secure() { &UNTRUSTED } else { &OURS };
    environment::with(additions, hidden, || signals::kept_from(FILES, work))
}

/// Where the process has other parts of UCX: the library beside them, which is the only one that fits them.
fn beside_base() -> Result<Option<CString>> {
    let Some(base) = Library::loaded(BASE) else { return Ok(None) };
    let base = library::file_of(base.symbol(c"ucs_status_string")).unwrap_or_default();
    let file = base.with_file_name(OsStr::from_bytes(NAME.to_bytes()));
    if !file.exists() {
        let (base, file) = (base.display(), file.display());
        return Err(missing(format!(
            "UCX cannot be loaded: the process has {base}, which only {file} would fit, and that is not there"
        )));
    }
    Ok(CString::new(file.into_os_string().into_vec()).ok())
}

/// A folder means the library in it.
fn file_of_setting(path: OsString) -> CString {
    let folder = Path::new(&path).is_dir();
    let path = if folder { Path::new(&path).join(OsStr::from_bytes(NAME.to_bytes())).into() } else { path };
    // Variables of the environment have no NUL in them.
    CString::new(path.into_vec()).unwrap_or_default()
}

fn check(library: Library, origin: Origin) -> Result<Ucx> {
    let file = library.file();
    let version = library.symbol(c"ucp_get_version");
    if version.is_null() {
        return Err(missing(format!(
            "{} is not UCX: it has no function ucp_get_version",
            place(&file, origin)
        )));
    }
    let version = ask_version(version);
    fits(version)
        .map_err(|why| Error::new(Kind::VersionMismatch, format!("{} {why}", place(&file, origin))))?;
    // SAFETY: it is UCX, and of a version that has these functions as they are declared.
    let functions = unsafe { Functions::load(|name| library.symbol(name)) };
    let functions = functions.map_err(|names| {
        let some = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        let more =
            if names.len() > 3 { format!(" and {} more functions", names.len() - 3) } else { String::new() };
        let file = place(&file, origin);
        missing(format!("{file} is UCX {version} but lacks {some}{more}; install a complete UCX"))
    })?;
    Ok(Ucx { functions, version, file, origin })
}

pub(super) fn ask_version(function: *mut c_void) -> Version {
    // SAFETY: ucp_get_version has had this type in all versions.
    let function: unsafe extern "C" fn(*mut u32, *mut u32, *mut u32) =
        unsafe { std::mem::transmute(function) };
    let mut version = Version::new(0, 0);
    // SAFETY: three numbers to write to.
    unsafe { function(&mut version.major, &mut version.minor, &mut version.release) };
    version
}

/// Err says why a version cannot be used.
fn fits(version: Version) -> Result<(), String> {
    let least = Version::LEAST;
    if version < least {
        return Err(format!(
            "is UCX {version}, which is too old: nrdma needs {}.{} or later; update it, or name a later \
             libucp.so.0 in {SETTING}",
            least.major, least.minor
        ));
    }
    if version.major > least.major {
        return Err(format!(
            "is UCX {version}, whose interface nrdma does not know: it needs {}.{} or a later {}.x; name one in \
             {SETTING}",
            least.major, least.minor, least.major
        ));
    }
    Ok(())
}

/// The file and, where it is not the system's, why this one.
fn place(file: &Path, origin: Origin) -> String {
    let file = file.display();
    match origin {
        Origin::Host => format!("{file} (which the process had loaded)"),
        Origin::Setting => format!("{file} (named by {SETTING})"),
        Origin::System => file.to_string(),
    }
}

fn missing(text: String) -> Error {
    Error::new(Kind::DriverMissing, text)
}
