//! The user's own directory for sockets and the cookie that proves to be the same user.
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{environment, random, socket};
use crate::core::error::{Error, Kind, Result};

/// Bytes of the cookie.
pub(crate) const COOKIE_BYTES: usize = 32;

/// `$XDG_RUNTIME_DIR/nrdma`, or `/tmp/nrdma-UID`: made when missing, ours and closed to others in any case.
pub(crate) fn runtime_dir() -> Result<PathBuf> {
    let uid = socket::own_uid();
    let own = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == uid);
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Under sudo the variable names another user's directory.
    let session = session.filter(|path| !environment::is_secure() && path.is_absolute() && own(path));
    let path = match session {
        Some(session) => session.join("nrdma"),
        None => PathBuf::from(format!("/tmp/nrdma-{uid}")),
    };
    private_dir(&path)?;
    Ok(path)
}

fn private_dir(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            let text = format!("cannot make the directory {}: {e}; set XDG_RUNTIME_DIR", path.display());
            return Err(Error::new(Kind::AuthFailed, text));
        }
        _ => {}
    }
    // Not through links: in /tmp anybody could have put one.
    let found = fs::symlink_metadata(path)
        .map_err(|e| Error::new(Kind::AuthFailed, format!("cannot look at {}: {e}", path.display())))?;
    let uid = socket::own_uid();
    if found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let text = format!(
        "{} is not a directory of user {uid} that is closed to others (it belongs to user {}, mode {:o}); \
         remove it, or chmod it to 700, or set XDG_RUNTIME_DIR",
        path.display(),
        found.uid(),
        found.mode()
    );
    Err(Error::new(Kind::AuthFailed, text))
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
    // NONBLOCK: opening a FIFO that somebody put there must not hang.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let uid = socket::own_uid();
    if !found.is_file() || found.uid() != uid || found.mode() & 0o077 != 0 {
        let (owner, mode) = (found.uid(), found.mode() & 0o7777);
        let text = format!("it belongs to user {owner}, mode {mode:o}; it must be user {uid}'s, mode 600");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if found.len() != COOKIE_BYTES as u64 {
        let text = format!("it has {} bytes instead of {COOKIE_BYTES}", found.len());
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
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = write_cookie(&mut file, bytes).and_then(|()| match fs::hard_link(&draft, path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let removed = fs::remove_file(&draft);
    written.and(removed)
}

fn write_cookie(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    // The umask may have taken even our own permissions away.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(bytes)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
pub(crate) mod tests {
    use super::*;

    /// A fresh 0700 directory, removed on drop.
    pub(crate) struct Scratch(pub(crate) PathBuf);
    impl Scratch {
        pub(crate) fn new() -> Self {
            let name = u64::from_le_bytes(random::bytes().unwrap());
            let path = std::env::temp_dir().join(format!("nrdma-test-{name:016x}"));
            private_dir(&path).unwrap();
            Self(path)
        }
    }
    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn everybody_gets_the_same_cookie() {
        let scratch = Scratch::new();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let path = scratch.0.clone();
                std::thread::spawn(move || cookie(&path).unwrap())
            })
            .collect();
        let cookies: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(cookies.iter().all(|c| *c == cookies[0]));
        assert_ne!(cookies[0], [0; COOKIE_BYTES]);
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
        let mode = fs::metadata(scratch.0.join("cookie")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn open_linked_and_short_cookies_are_refused() {
        let scratch = Scratch::new();
        let path = scratch.0.join("cookie");
        cookie(&scratch.0).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = cookie(&scratch.0).unwrap_err();
        assert_eq!(error.kind, Kind::AuthFailed);
        assert!(error.text.contains("mode 640"), "{error}");
        fs::rename(&path, scratch.0.join("elsewhere")).unwrap();
        fs::set_permissions(scratch.0.join("elsewhere"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(cookie(&scratch.0).is_err());
        fs::remove_file(&path).unwrap();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(b"short").unwrap();
        assert!(cookie(&scratch.0).unwrap_err().text.contains("5 bytes"));
    }

    #[test]
    fn directories_open_to_others_are_refused() {
        let scratch = Scratch::new();
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(private_dir(&scratch.0).unwrap_err().text.contains("770"));
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o700)).unwrap();
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(&scratch.0, &link).unwrap();
        assert!(private_dir(&link).is_err());
    }
}
