//! Descriptors that a library opens for us, and forgets to keep from the programs that the host starts.
use std::collections::BTreeMap;
use std::fs;
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::FromRawFd;
use std::sync::{Mutex, PoisonError};

/// One at a time, so that nobody takes another's for his own.
static ONE: Mutex<()> = Mutex::new(());

/// All open descriptors; the one that this is read from is among them, and closed again.
fn numbers() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let all: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    all.into_iter()
}

/// All open descriptors, and what each stands for, as the system names it.
fn open() -> BTreeMap<i32, String> {
    let target = |fd: i32| fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    numbers().filter_map(|fd| Some((fd, target(fd)?.to_string_lossy().into_owned()))).collect()
}

/// An option of a socket that is a number. None: it has none such.
fn option(fd: i32, level: i32, name: i32) -> Option<i32> {
    let mut value = 0_i32;
    let mut len = libc::socklen_t::try_from(size_of_val(&value)).ok()?;
    let to = std::ptr::from_mut(&mut value).cast();
    // SAFETY: room for the answer; the descriptor may be anything.
    let got = unsafe { libc::getsockopt(fd, level, name, to, &mut len) };
    (got == 0).then_some(value)
}

/// The address of a socket.
fn address(fd: i32, of: fn(&TcpStream) -> std::io::Result<SocketAddr>) -> Option<SocketAddr> {
    // SAFETY: it is only asked for its address, which any descriptor may be, and not closed.
    let socket = unsafe { ManuallyDrop::new(TcpStream::from_raw_fd(fd)) };
    of(&socket).ok()
}

fn flags(fd: i32) -> Option<i32> {
    // SAFETY: no pointers; the descriptor may be gone already.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    (flags >= 0).then_some(flags)
}

fn set_flags(fd: i32, flags: i32) {
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETFD, flags) };
}

/// Runs `work`, and keeps the descriptors that it opened from programs that are started later; also where the
/// sockets listen that are among them. Files, terminals and connections are left alone: those another thread of the
/// host opened meanwhile.
pub(crate) fn kept_from_children<R>(work: impl FnOnce() -> R) -> (R, Vec<SocketAddr>) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = open();
    let result = work();
    let mut listening = Vec::new();
    for (fd, what) in open() {
        // Whoever thinks of it himself does not need us.
        if before.get(&fd) == Some(&what) || flags(fd) != Some(0) {
            continue;
        }
        let listens = option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(1);
        if listens {
            listening.extend(address(fd, TcpStream::local_addr));
        }
        let ours = ["anon_inode:", "pipe:", "/dev/infiniband/"];
        if listens || ours.iter().any(|kind| what.starts_with(kind)) {
            set_flags(fd, libc::FD_CLOEXEC);
        }
    }
    (result, listening)
}

/// A connected TCP socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) local: SocketAddr,
    /// None: it is not connected (any more, or yet).
    pub(crate) peer: Option<SocketAddr>,
    /// After how many seconds the system asks whether a silent peer is there.
    pub(crate) keep_idle: i32,
}

impl Connection {
    fn of(fd: i32) -> Option<Self> {
        let keep_idle = option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE)?;
        let local = address(fd, TcpStream::local_addr)?;
        Some(Self { local, peer: address(fd, TcpStream::peer_addr), keep_idle })
    }
}

/// Keeps those TCP connections of the process from programs that are started later that are ours.
pub(crate) fn keep_connections_from_children(ours: impl Fn(&Connection) -> bool) {
    let is_ours = |fd| Connection::of(fd).is_some_and(|connection| ours(&connection));
    for fd in numbers() {
        let Some(flags) = flags(fd).filter(|flags| flags & libc::FD_CLOEXEC == 0) else { continue };
        if !is_ours(fd) {
            continue;
        }
        set_flags(fd, flags | libc::FD_CLOEXEC);
        if !is_ours(fd) {
            // It was closed between two looks, and the number may be somebody else's by now.
            set_flags(fd, flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::*;

    #[test]
    fn what_was_opened_is_closed_on_exec() {
        let make = || {
            // SAFETY: no pointers.
            let raw = unsafe { libc::eventfd(0, 0) };
            // SAFETY: just made.
            unsafe { OwnedFd::from_raw_fd(raw) }
        };
        let inherited = |fd: &dyn AsRawFd| set_flags(fd.as_raw_fd(), 0);
        let before = make();
        let ((inside, listener, file, pair), listening) = kept_from_children(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let pair = std::os::unix::net::UnixStream::pair().unwrap();
            let file = fs::File::open("/dev/null").unwrap();
            [&listener as &dyn AsRawFd, &file, &pair.0].into_iter().for_each(inherited);
            let _careful = TcpListener::bind("127.0.0.1:0").unwrap();
            (make(), listener, file, pair)
        });
        let flags = |fd: &dyn AsRawFd| flags(fd.as_raw_fd()).unwrap();
        assert_eq!([&inside as &dyn AsRawFd, &listener].map(flags), [libc::FD_CLOEXEC; 2]);
        assert_eq!([&before as &dyn AsRawFd, &file, &pair.0].map(flags), [0; 3]);
        // Other tests of this process may listen, too.
        assert!(listening.contains(&listener.local_addr().unwrap()));
    }

    #[test]
    fn only_our_connections_are_closed_on_exec() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let connect = || TcpStream::connect(at).unwrap();
        let (one, two, marked) = (connect(), connect(), connect());
        let unix = std::os::unix::net::UnixStream::pair().unwrap();
        let idle = 4321_i32;
        let from = std::ptr::from_ref(&idle).cast();
        // SAFETY: a number to read from.
        let set =
            unsafe { libc::setsockopt(marked.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, from, 4) };
        assert_eq!(set, 0);
        let all = [&one as &dyn AsRawFd, &two, &marked, &listener, &unix.0].map(|fd| fd.as_raw_fd());
        all.into_iter().for_each(|fd| set_flags(fd, 0));
        let ours = one.local_addr().unwrap();
        keep_connections_from_children(|connection| {
            (connection.local == ours && connection.peer == Some(at)) || connection.keep_idle == idle
        });
        let kept = all.map(|fd| flags(fd).unwrap());
        assert_eq!(kept, [libc::FD_CLOEXEC, 0, libc::FD_CLOEXEC, 0, 0]);
    }
}
