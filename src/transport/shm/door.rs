//! A Unix socket for one session, in the user's own directory, by which two nodes that reached each other by
//! other means exchange descriptors. Its name is made of the session's; nothing that a peer says is opened.
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Share;
use crate::core::transport::{ChannelProof, Session};
use crate::sys::socket::{self, MAX_DESCRIPTORS, Name, Socket};

/// The number of the channel that is proven; 0 is the control channel.
const CHANNEL: u32 = 2;
/// What the files are called.
const PREFIX: &str = "shm-";
/// Connections that may wait: ours and whoever else of this user tries.
const BACKLOG: i32 = 16;
/// A socket that is older was left by a process that was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(600);
/// Names looked at when sweeping.
const SWEEP: usize = 1000;

/// The listening end; its file goes when it is dropped.
pub(super) struct Door {
    socket: Socket,
    path: PathBuf,
}

fn path(directory: &Path, session: &Session) -> PathBuf {
    let hex: String = session.id.iter().map(|byte| format!("{byte:02x}")).collect();
    directory.join(format!("{PREFIX}{hex}"))
}

impl Door {
    pub(super) fn open(directory: &Path, session: &Session) -> Result<Self> {
        sweep(directory, LEFT_BEHIND);
        let path = path(directory, session);
        let failed = |e: io::Error| {
            let text = format!("no socket can be made at {}: {e}", path.display());
            Error::new(Kind::Unreachable, text)
        };
        let socket = Socket::new().map_err(failed)?;
        socket.set_mode(0o600).map_err(failed)?;
        socket.bind(&Name::Path(path.clone())).map_err(failed)?;
        // From here on the file is removed in any case.
        let door = Self { socket, path: path.clone() };
        door.socket.listen(BACKLOG).map_err(failed)?;
        Ok(door)
    }

    /// Takes the connection of the session's connector, which has said already that it is there.
    pub(super) fn let_in(self, session: &Session) -> Result<Line> {
        for _ in 0..BACKLOG {
            let socket = match self.socket.accept() {
                Ok(socket) => socket,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => continue,
                Err(e) => return Err(broken(&e)),
            };
            // Whoever is not the one is left standing.
            if let Some(proof) = first_words(&socket)
                && proof.proves(session, CHANNEL)?
            {
                let line = Line { socket };
                let answer = proof.answer(session, CHANNEL)?;
                line.send(&answer, &[], Instant::now())?;
                return Ok(line);
            }
        }
        let text = "the other node is not at the socket that this one made for it";
        Err(Error::new(Kind::Unreachable, text))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The proof of a process of this user, if it is one.
fn first_words(socket: &Socket) -> Option<ChannelProof> {
    if socket.peer_uid().ok()? != socket::own_uid() {
        return None;
    }
    let mut bytes = [0; ChannelProof::BYTES];
    let got = socket.receive(&mut bytes).ok()?;
    ChannelProof::read(bytes.get(..got.len)?)
}

/// The connector's end: knocks, and leaves its proof there. The answer is still to come.
pub(super) struct Knock {
    line: Line,
    proof: ChannelProof,
}

impl Knock {
    pub(super) fn new(directory: &Path, session: &Session) -> Result<Self> {
        let path = path(directory, session);
        let failed = |e: io::Error| {
            let text = format!("the other node's socket is not to be found at {}: {e}", path.display());
            Error::new(Kind::Unreachable, text)
        };
        let socket = Socket::new().map_err(failed)?;
        socket.connect(&Name::Path(path.clone())).map_err(failed)?;
        let (own, peer) = (socket::own_uid(), socket.peer_uid().map_err(failed)?);
        if own != peer {
            let text = format!("the socket at {} is user {peer}'s, not user {own}'s", path.display());
            return Err(Error::new(Kind::AuthFailed, text));
        }
        let proof = ChannelProof::make(session, CHANNEL)?;
        let line = Line { socket };
        line.send(proof.bytes(), &[], Instant::now())?;
        Ok(Self { line, proof })
    }

    pub(super) fn answered(self, session: &Session, deadline: Instant) -> Result<Line> {
        let (answer, _) = self.line.receive(self.proof.bytes().len(), deadline)?;
        if self.proof.is_answered(session, CHANNEL, &answer)? {
            return Ok(self.line);
        }
        Err(Error::new(Kind::AuthFailed, "whoever listens at the session's socket is not the peer"))
    }
}

/// A connected socket between two nodes that know the session.
pub(super) struct Line {
    socket: Socket,
}

impl Line {
    pub(super) fn send(&self, bytes: &[u8], shares: &[&Share], deadline: Instant) -> Result<()> {
        let descriptors: Vec<_> = shares.iter().take(MAX_DESCRIPTORS).map(|share| share.as_fd()).collect();
        self.socket.send_until(bytes, &descriptors, deadline).map_err(|e| broken(&e))
    }

    pub(super) fn receive(&self, limit: usize, deadline: Instant) -> Result<(Vec<u8>, Vec<Share>)> {
        let mut buffer = vec![0; limit];
        let got = self.socket.receive_until(&mut buffer, deadline).map_err(|e| broken(&e))?;
        if got.len == 0 {
            return Err(Error::new(Kind::Unreachable, "the other node hung up at the session's socket"));
        }
        buffer.truncate(got.len);
        Ok((buffer, got.descriptors))
    }

    pub(super) fn into_socket(self) -> Socket {
        self.socket
    }
}

fn broken(e: &io::Error) -> Error {
    Error::new(Kind::Unreachable, format!("the session's socket: {e}"))
}

/// Removes sockets of processes that were killed before they could.
fn sweep(directory: &Path, left_behind: Duration) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let now = SystemTime::now();
    for entry in entries.take(SWEEP).flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let old = |m: fs::Metadata| {
            let age = m.modified().ok().and_then(|made| now.duration_since(made).ok());
            m.file_type().is_socket() && m.uid() == socket::own_uid() && age.is_some_and(|a| a > left_behind)
        };
        if fs::symlink_metadata(entry.path()).is_ok_and(old) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "door_tests.rs"]
mod tests;
