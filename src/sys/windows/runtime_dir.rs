//! The user's own directory for the cookie that proves to be the same user.
//!
//! It is in the user's local application data, which Windows keeps from other users (but administrators).
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_OPEN_REPARSE_POINT, FILE_SHARE_READ};

use super::random;
use crate::core::error::{Error, Kind, Result};

/// Bytes of the cookie.
pub(crate) const COOKIE_BYTES: usize = 32;

/// `%LOCALAPPDATA%\nrdma`, made when missing.
pub(crate) fn runtime_dir() -> Result<PathBuf> {
    let base = std::env::var_os("LOCALAPPDATA").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.ok_or_else(|| {
        Error::new(Kind::AuthFailed, "LOCALAPPDATA names no directory; set it, or use a token")
    })?;
    let path = base.join("nrdma");
    match fs::create_dir(&path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            let text = format!("cannot make the directory {}: {e}; set LOCALAPPDATA", path.display());
            Err(Error::new(Kind::AuthFailed, text))
        }
        _ => Ok(path),
    }
}

/// The cookie in `directory` (from [`runtime_dir`]): random bytes that only this user can read. Made when
/// missing; processes that make it at the same time all get the same one.
pub(crate) fn cookie(directory: &Path) -> Result<[u8; COOKIE_BYTES]> {
    let path = directory.join("cookie");
    let failed = |e: io::Error| {
        let text =
            format!("the cookie file {} is of no use: {e}; remove it to have it made anew", path.display());
        Error::new(Kind::AuthFailed, text)
    };
    match read_cookie(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other.map_err(failed),
    }
    make_cookie(directory, &path, &random::bytes::<COOKIE_BYTES>()?).map_err(failed)?;
    read_cookie(&path).map_err(failed)
}

fn read_cookie(path: &Path) -> io::Result<[u8; COOKIE_BYTES]> {
    // Not through links.
    let mut file = OpenOptions::new().read(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() != COOKIE_BYTES as u64 {
        let text = format!("it is no file of {COOKIE_BYTES} bytes (it has {})", found.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut cookie = [0; COOKIE_BYTES];
    file.read_exact(&mut cookie)?;
    Ok(cookie)
}

/// Under a name of its own first, so that nobody reads a half-written one; the first to link it wins.
fn make_cookie(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let nonce = random::bytes::<8>().map_err(io::Error::other)?;
    let draft = directory.join(format!("cookie.{:016x}", u64::from_le_bytes(nonce)));
    let file = OpenOptions::new().write(true).create_new(true).share_mode(FILE_SHARE_READ).open(&draft)?;
    let written = write_cookie(file, bytes).and_then(|()| match fs::hard_link(&draft, path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let removed = fs::remove_file(&draft);
    written.and(removed)
}

fn write_cookie(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)
}
