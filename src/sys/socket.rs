//! Unix sockets that carry whole messages with descriptors (`SOCK_SEQPACKET`), never blocking by themselves.
use std::ffi::OsStr;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::core::transport::{Breaker, Source};

/// Descriptors that one message carries at most.
pub(crate) const MAX_DESCRIPTORS: usize = 4;
/// Bytes that one message carries at most.
pub(crate) const MAX_MESSAGE: usize = 64 * 1024;
/// Longest path or abstract name: `sun_path` less its NUL.
pub(crate) const MAX_NAME: usize = 107;

/// `struct cmsghdr` and room for [`MAX_DESCRIPTORS`], in words: length; level and type; two descriptors each.
/// Every 64-bit Linux lays it out like this, so that it can be taken apart without raw pointers.
type Ancillary = [u64; 4];
const HEADER_BYTES: usize = 16;
const RIGHTS: u64 = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;

/// `sizeof(struct ucred)`.
const UCRED_BYTES: libc::socklen_t = 12;
const _: () = assert!(UCRED_BYTES as usize == size_of::<libc::ucred>());

/// Where a socket listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// A file.
    Path(PathBuf),
    /// A name in the network namespace's own table; no file.
    Abstract(String),
}

impl Name {
    fn raw(&self) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
        let (skip, name) = match self {
            Name::Path(path) => (0, path.as_os_str().as_bytes()),
            Name::Abstract(name) => (1, name.as_bytes()),
        };
        let short = io::Error::from_raw_os_error(libc::ENAMETOOLONG);
        if name.is_empty() || name.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut raw = libc::sockaddr_un { sun_family: FAMILY, sun_path: [0; 108] };
        if name.len() > MAX_NAME {
            return Err(short);
        }
        for (to, from) in raw.sun_path.iter_mut().skip(skip).zip(name) {
            *to = from.cast_signed() as libc::c_char;
        }
        // A path counts its NUL, an abstract name its leading one.
        let len = mem::offset_of!(libc::sockaddr_un, sun_path) + name.len() + 1;
        Ok((raw, u32::try_from(len).map_err(|_| short)?))
    }
}
/// `AF_UNIX`; the constant has the wrong type.
const FAMILY: libc::sa_family_t = 1;
const _: () = assert!(FAMILY as i32 == libc::AF_UNIX);

/// A message that arrived.
pub(crate) struct Received {
    /// Bytes of the buffer that it fills; 0 = the other end hung up.
    pub(crate) len: usize,
    /// What came with it.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Read,
    Write,
}

/// By which another thread hangs up a socket that it does not own. Whoever owns the socket drops the guard
/// before the socket.
pub(crate) struct Cut(Mutex<Option<RawFd>>);

impl Cut {
    fn lock(&self) -> MutexGuard<'_, Option<RawFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Breaker for Cut {
    fn cut(&self) {
        if let Some(fd) = *self.lock() {
            // SAFETY: no pointers; the descriptor is open as long as it is named here.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
    }
}

/// Ends what a [`Cut`] can do.
pub(crate) struct CutGuard(Arc<Cut>);

impl CutGuard {
    pub(crate) fn cut(&self) -> Arc<Cut> {
        Arc::clone(&self.0)
    }
}

impl Drop for CutGuard {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// One socket; closed on drop.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn new() -> io::Result<Self> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers.
        let raw = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
        // SAFETY: `raw` was just made and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Two connected sockets.
    #[cfg(test)]
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let mut raw = [0; 2];
        // SAFETY: `raw` has room for two descriptors.
        check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, raw.as_mut_ptr()) })?;
        // SAFETY: made just now, owned by nobody else.
        let pair = raw.map(|fd| Self(unsafe { OwnedFd::from_raw_fd(fd) }));
        Ok(pair.into())
    }

    pub(crate) fn from_descriptor(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// By which others may hang up; to be dropped before the socket.
    pub(crate) fn guard(&self) -> CutGuard {
        CutGuard(Arc::new(Cut(Mutex::new(Some(self.raw())))))
    }

    /// For a waiter.
    pub(crate) fn source(&self) -> Source {
        Source(self.raw())
    }

    /// Permissions that the socket's file will be made with by `bind` (less the umask).
    pub(crate) fn set_mode(&self, mode: libc::mode_t) -> io::Result<()> {
        // SAFETY: the descriptor is ours.
        check(unsafe { libc::fchmod(self.raw(), mode) }).map(drop)
    }

    pub(crate) fn bind(&self, name: &Name) -> io::Result<()> {
        let (address, len) = name.raw()?;
        // SAFETY: `address` is valid for `len` bytes.
        check(unsafe { libc::bind(self.raw(), ptr::from_ref(&address).cast(), len) }).map(drop)
    }

    pub(crate) fn listen(&self, backlog: i32) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { libc::listen(self.raw(), backlog) }).map(drop)
    }

    /// `WouldBlock` when the listener's queue is full: try again later.
    pub(crate) fn connect(&self, name: &Name) -> io::Result<()> {
        let (address, len) = name.raw()?;
        // SAFETY: `address` is valid for `len` bytes.
        check(unsafe { libc::connect(self.raw(), ptr::from_ref(&address).cast(), len) }).map(drop)
    }

    /// Takes a waiting connection; `WouldBlock` when there is none.
    pub(crate) fn accept(&self) -> io::Result<Self> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: null means that we do not want the address.
        let raw = unsafe { libc::accept4(self.raw(), ptr::null_mut(), ptr::null_mut(), flags) };
        let raw = check(raw)?;
        // SAFETY: `raw` was just made and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// The user of the process at the other end as it was when it connected or listened.
    pub(crate) fn peer_uid(&self) -> io::Result<u32> {
        let mut got = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = UCRED_BYTES;
        let to: *mut libc::ucred = &mut got;
        // SAFETY: `to` and `len` are valid for writes, `len` says how much room there is.
        check(unsafe {
            libc::getsockopt(self.raw(), libc::SOL_SOCKET, libc::SO_PEERCRED, to.cast(), &mut len)
        })?;
        Ok(got.uid)
    }

    /// Sends one message, whole or not at all. `WouldBlock` when there is no room.
    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if descriptors.len() > MAX_DESCRIPTORS || bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut control: Ancillary = [0; 4];
        let used = pack(&mut control, descriptors);
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: all zeroes is a valid message header.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if used > 0 {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = used as _;
        }
        // SAFETY: the header points at `part` and `control`, which outlive the call; nothing is written.
        let sent = unsafe { libc::sendmsg(self.raw(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        check_size(sent).map(drop)
    }

    /// Receives one message. `WouldBlock` when there is none; `InvalidData` when it has more bytes than the
    /// buffer or too many descriptors (they are closed).
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut control: Ancillary = [0; 4];
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all zeroes is a valid message header.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Ancillary>() as _;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: the header points at `part` and `control`, valid for writes of the lengths given.
        let len = check_size(unsafe { libc::recvmsg(self.raw(), &mut message, flags) })?;
        let descriptors = unpack(&control, message.msg_controllen as usize);
        if message.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 {
            let text = format!("a message of over {} bytes or {MAX_DESCRIPTORS} descriptors", buffer.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Received { len, descriptors })
    }

    /// Waits until the socket can be read or written, or the other end hung up. False: the deadline came first.
    pub(crate) fn wait(&self, what: Ready, deadline: Instant) -> io::Result<bool> {
        let events = match what {
            Ready::Read => libc::POLLIN,
            Ready::Write => libc::POLLOUT,
        };
        loop {
            let mut poll = libc::pollfd { fd: self.raw(), events, revents: 0 };
            let left = deadline.saturating_duration_since(Instant::now());
            let ms = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            // SAFETY: one entry, valid for writes.
            match check(unsafe { libc::poll(&mut poll, 1, ms) }) {
                Ok(0) if Instant::now() >= deadline => return Ok(false),
                Ok(0) => {}
                Ok(_) => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// As [`Socket::send`], but waits for room.
    pub(crate) fn send_until(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> io::Result<()> {
        loop {
            match self.send(bytes, descriptors) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_until(Ready::Write, deadline)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// As [`Socket::receive`], but waits for a message.
    pub(crate) fn receive_until(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<Received> {
        let mut resets = 0;
        loop {
            match self.receive(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_until(Ready::Read, deadline)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Told once, and before what the peer sent in time (its reason, perhaps).
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset && resets == 0 => resets += 1,
                result => return result,
            }
        }
    }

    fn wait_until(&self, what: Ready, deadline: Instant) -> io::Result<()> {
        if self.wait(what, deadline)? { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// Hangs up both ways; the other end sees it at once, also when a child process still has the descriptor.
    pub(crate) fn shutdown(&self) {
        // SAFETY: no pointers. Failing means that it was not connected any more.
        unsafe { libc::shutdown(self.raw(), libc::SHUT_RDWR) };
    }
}

/// This process's effective user.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// An exclusive lock on a directory, by which those who make sockets in it take turns; `WouldBlock` when
/// another has it.
pub(crate) fn lock_directory(path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(OsStr::new(".")) } else { path };
    let directory = std::fs::File::open(path)?;
    // SAFETY: the descriptor is ours.
    check(unsafe { libc::flock(directory.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })?;
    Ok(directory.into())
}

fn pack(control: &mut Ancillary, descriptors: &[BorrowedFd<'_>]) -> usize {
    let [len, kind, rest @ ..] = control;
    if descriptors.is_empty() {
        return 0;
    }
    let bytes = HEADER_BYTES + descriptors.len() * size_of::<RawFd>();
    *len = bytes as u64;
    *kind = RIGHTS;
    for (word, two) in rest.iter_mut().zip(descriptors.chunks(2)) {
        let raw = |n: usize| two.get(n).map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned()));
        *word = raw(0) | raw(1) << 32;
    }
    bytes.next_multiple_of(size_of::<u64>())
}

fn unpack(control: &Ancillary, used: usize) -> Vec<OwnedFd> {
    let [len, kind, rest @ ..] = control;
    let bytes = usize::try_from(*len).unwrap_or(0).min(used);
    if bytes <= HEADER_BYTES || *kind != RIGHTS {
        return Vec::new();
    }
    let count = (bytes - HEADER_BYTES) / size_of::<RawFd>();
    let halves = rest.iter().flat_map(|word| [low(*word), low(*word >> 32)]);
    // SAFETY: the kernel has just made these descriptors for us; nobody else owns them.
    halves.take(count).map(|fd| unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) }).collect()
}

fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_size(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::Duration;

    fn memfd() -> OwnedFd {
        crate::sys::map::create_sealed(c"nrdma-test", 4096).unwrap()
    }

    #[test]
    fn descriptors_travel() {
        let (a, b) = Socket::pair().unwrap();
        for count in 0..=MAX_DESCRIPTORS {
            let sent: Vec<_> = (0..count).map(|_| memfd()).collect();
            let borrowed: Vec<_> = sent.iter().map(|fd| fd.as_fd()).collect();
            a.send(b"hello", &borrowed).unwrap();
            let mut buffer = [0; 16];
            let got = b.receive(&mut buffer).unwrap();
            assert_eq!((&buffer[..got.len], got.descriptors.len()), (&b"hello"[..], count));
            for (ours, theirs) in sent.iter().zip(&got.descriptors) {
                let inode = |fd: &OwnedFd| {
                    use std::os::unix::fs::MetadataExt;
                    std::fs::File::from(fd.try_clone().unwrap()).metadata().unwrap().ino()
                };
                assert_eq!(inode(ours), inode(theirs));
                // SAFETY: the descriptor is ours.
                let flags = unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_GETFD) };
                assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
            }
        }
        let five: Vec<_> = (0..5).map(|_| memfd()).collect();
        let five: Vec<_> = five.iter().map(|fd| fd.as_fd()).collect();
        assert!(a.send(b"x", &five).is_err());
    }

    #[test]
    fn too_many_descriptors_are_refused_and_closed() {
        let (a, b) = Socket::pair().unwrap();
        let fds: Vec<_> = (0..6).map(|_| memfd()).collect();
        // By hand: our own send refuses more than four.
        let mut control = [0u64; 5];
        control[0] = 16 + 24;
        control[1] = RIGHTS;
        for (n, two) in fds.chunks(2).enumerate() {
            control[2 + n] = two[0].as_raw_fd() as u64 | (two[1].as_raw_fd() as u64) << 32;
        }
        let mut part = libc::iovec { iov_base: b"x".as_ptr().cast_mut().cast(), iov_len: 1 };
        // SAFETY: all zeroes is a valid message header.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = 40;
        // SAFETY: the header points at live memory.
        assert_eq!(unsafe { libc::sendmsg(a.raw(), &message, libc::MSG_NOSIGNAL) }, 1);
        let error = b.receive(&mut [0; 8]).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn long_messages_are_refused_and_hang_up_is_seen() {
        let (a, b) = Socket::pair().unwrap();
        assert_eq!(b.receive(&mut [0; 8]).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        a.send(&[7; 9], &[]).unwrap();
        assert_eq!(b.receive(&mut [0; 8]).err().unwrap().kind(), io::ErrorKind::InvalidData);
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(!b.wait(Ready::Read, soon).unwrap());
        a.shutdown();
        assert!(b.wait(Ready::Read, Instant::now() + Duration::from_secs(5)).unwrap());
        assert_eq!(b.receive(&mut [0; 8]).unwrap().len, 0);
        assert_eq!(b.send(b"x", &[]).err().unwrap().raw_os_error(), Some(libc::EPIPE));
    }

    #[test]
    fn names_have_limits() {
        assert!(Name::Abstract("x".repeat(MAX_NAME)).raw().is_ok());
        assert!(Name::Abstract("x".repeat(MAX_NAME + 1)).raw().is_err());
        assert!(Name::Path("/x\0y".into()).raw().is_err());
        assert!(Name::Path(PathBuf::new()).raw().is_err());
    }

    #[test]
    fn credentials_are_ours() {
        let (a, _b) = Socket::pair().unwrap();
        assert_eq!(a.peer_uid().unwrap(), own_uid());
    }
}
