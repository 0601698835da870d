//! A listening Unix socket and its file.
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::address::{Address, RANDOM_PREFIX};
use super::control::Channel;
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Control, Listener, Source};
use crate::sys::socket::{self, Name, Socket};

/// Connections that may wait to be accepted; the kernel clamps it to somaxconn.
const BACKLOG: i32 = 128;
/// How long to wait for others that make sockets in the same directory; each takes microseconds.
const TURN: Duration = Duration::from_secs(1);

/// Names looked at when sweeping.
const SWEEP: usize = 1000;

/// A socket that listens; its file goes when it is dropped.
pub(super) struct Listening {
    socket: Socket,
    address: Address,
    /// Goes after the socket.
    _file: Option<SocketFile>,
}

/// The file that `bind` made.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// A forked child must not remove its parent's file.
    pid: u32,
}

impl Listening {
    /// `is_random`: in the directory of our own, where killed processes left their random names too.
    pub(super) fn new(address: Address, is_random: bool) -> Result<Self> {
        let name = address.name.clone();
        match &name {
            Name::Abstract(_) => {
                let socket = bind(&address)?;
                Ok(Self { socket, address, _file: None })
            }
            Name::Path(path) => Self::at_path(address, path, is_random),
        }
    }

    /// Whoever makes or replaces a socket in a directory holds the directory's lock until it listens: else a
    /// socket between bind and listen looks like one left behind.
    fn at_path(address: Address, path: &Path, is_random: bool) -> Result<Self> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let _lock = take_turn(&address, directory)?;
        if is_random {
            sweep(directory);
        }
        if is_left_behind(path) {
            fs::remove_file(path).map_err(|e| failed(&address, &e))?;
        }
        let socket = bind(&address)?;
        let file = SocketFile::find(path).map_err(|e| failed(&address, &e))?;
        Ok(Self { socket, address, _file: Some(file) })
    }
}

impl Listener for Listening {
    fn bound(&self) -> String {
        self.address.to_string()
    }

    fn source(&self) -> Source {
        self.socket.source()
    }

    fn accept(&self) -> Result<Option<Box<dyn Control>>> {
        loop {
            match self.socket.accept() {
                Ok(socket) => return Ok(Some(Box::new(Channel::new(socket, self.bound())?))),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => {}
                Err(e) => return Err(failed(&self.address, &e)),
            }
        }
    }
}

impl SocketFile {
    fn find(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        if found.mode() & 0o600 != 0o600 {
            // A umask that takes even our own permissions away.
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        }
        Ok(Self { path: path.to_owned(), identity: (found.dev(), found.ino()), pid: std::process::id() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path).map(|m| (m.dev(), m.ino()));
        if self.pid == std::process::id() && found.is_ok_and(|identity| identity == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind(address: &Address) -> Result<Socket> {
    let make = || {
        let socket = Socket::new()?;
        // Before bind: the file is made with these permissions, there is never a moment with others.
        socket.set_mode(0o600)?;
        socket.bind(&address.name)?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    make().map_err(|e| failed(address, &e))
}

fn take_turn(address: &Address, directory: &Path) -> Result<OwnedFd> {
    let deadline = Instant::now() + TURN;
    loop {
        match socket::lock_directory(directory) {
            Ok(lock) => return Ok(lock),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let text = format!(
                    "cannot listen at {address}: another process has kept {} locked for {TURN:?}; \
                     use a directory of your own",
                    directory.display()
                );
                return Err(Error::new(Kind::TimedOut, text));
            }
            Err(e) => return Err(failed(address, &e)),
        }
    }
}

/// Removes random names whose processes are gone. Only those are tried: a listener that lives would see a
/// connection come and go.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.take(SWEEP).flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(RANDOM_PREFIX)?.split_once('-'));
        let Some((pid, _)) = pid.filter(|(pid, _)| pid.parse::<u32>().is_ok()) else {
            continue;
        };
        if !Path::new("/proc").join(pid).exists() && is_left_behind(&entry.path()) {
            // Another sweep, or its owner from another process namespace, may have been faster.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A socket file of ours that nobody listens at.
fn is_left_behind(path: &Path) -> bool {
    let ours = |m: fs::Metadata| m.file_type().is_socket() && m.uid() == socket::own_uid();
    if !fs::symlink_metadata(path).is_ok_and(ours) {
        return false;
    }
    let probe = Socket::new().and_then(|probe| probe.connect(&Name::Path(path.to_owned())));
    probe.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

fn failed(address: &Address, e: &io::Error) -> Error {
    let (kind, advice) = match e.raw_os_error() {
        Some(libc::EADDRINUSE) => (
            Kind::AddressInUse,
            "another process listens there, or the file is no socket of ours; use another name",
        ),
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            (Kind::Refused, "choose a directory that this user may write to")
        }
        Some(libc::ENOENT | libc::ENOTDIR) => (Kind::InvalidParameter, "the directory must exist"),
        Some(libc::EMFILE | libc::ENFILE) => (Kind::OutOfMemory, "raise the limit of open files"),
        _ => (Kind::Unreachable, "check the address"),
    };
    Error::new(kind, format!("cannot listen at {address}: {e}; {advice}"))
}
