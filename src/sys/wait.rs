//! Sleeping on many descriptors at once (epoll) and waking a sleeper (eventfd).
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Source, Waiter};

/// The token of an [`Epoll`]'s own eventfd.
const WAKE: u64 = u64::MAX;
/// Descriptors reported by one system call.
const BATCH: i32 = 64;

/// An eventfd that is never read: watched edge-triggered, each ring wakes once.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just made and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Takes a bell that a peer made, and makes sure that ringing it does not block. (A peer that undoes this
    /// could as well stop us: it runs as the same user or proved to know the token.)
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is ours.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(fd))
    }

    /// Wakes whoever watches it. A bell that is full cannot be: that takes 2^64 rings.
    pub(crate) fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight readable bytes.
        unsafe { libc::write(self.raw(), one.as_ptr().cast(), one.len()) };
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// For a waiter.
    pub(crate) fn source(&self) -> Source {
        Source(self.raw())
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.0
    }
}

/// A [`Waiter`] over epoll: its cost does not grow with the number of descriptors.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    wake: Bell,
}

impl Epoll {
    pub(crate) fn new() -> Result<Self> {
        Self::make().map_err(|e| {
            Error::new(Kind::OutOfMemory, format!("no epoll or eventfd: {e}; raise the limit of open files"))
        })
    }

    fn make() -> io::Result<Self> {
        // SAFETY: no pointers.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just made and nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(raw) };
        let this = Self { epoll, wake: Bell::new()? };
        this.add(this.wake.raw(), WAKE, true)?;
        Ok(this)
    }

    fn add(&self, fd: RawFd, token: u64, edge: bool) -> io::Result<()> {
        let kind = if edge { libc::EPOLLET } else { libc::EPOLLRDHUP };
        self.control(libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLIN | kind)
    }

    fn control(&self, call: i32, fd: RawFd, token: u64, what: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: what.cast_unsigned(), u64: token };
        // SAFETY: `event` is readable.
        let done = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), call, fd, &mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Waiter for Epoll {
    fn watch(&self, source: Source, token: u64, edge: bool) -> Result<()> {
        if token == WAKE {
            return Err(Error::invalid(format!("token {token} is the waiter's own")));
        }
        self.add(source.0, token, edge)
            .map_err(|e| Error::new(Kind::OutOfMemory, format!("descriptor {source} cannot be watched: {e}")))
    }

    fn watch_for(&self, source: Source, token: u64, read: bool, write: bool) -> Result<()> {
        let mut what = libc::EPOLLRDHUP;
        if read {
            what |= libc::EPOLLIN;
        }
        if write {
            what |= libc::EPOLLOUT;
        }
        let changed = match self.control(libc::EPOLL_CTL_MOD, source.0, token, what) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                self.control(libc::EPOLL_CTL_ADD, source.0, token, what)
            }
            result => result,
        };
        changed
            .map_err(|e| Error::new(Kind::OutOfMemory, format!("descriptor {source} cannot be watched: {e}")))
    }

    fn unwatch(&self, source: Source) {
        // SAFETY: null is allowed for this operation. Failing means that it is not watched.
        unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, source.0, std::ptr::null_mut())
        };
    }

    fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) {
        // Rounded up: a wait that ends early would spin until its time is over.
        let ms = timeout.map_or(-1, |t| i32::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH as usize];
        // SAFETY: room for BATCH events.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), BATCH, ms) };
        // Interrupted by a signal: like a timeout that came early.
        let count = usize::try_from(count).unwrap_or(0);
        for event in events.iter().take(count) {
            let token = event.u64;
            if token != WAKE && !ready.contains(&token) {
                ready.push(token);
            }
        }
    }

    fn wake(&self) {
        self.wake.ring();
    }
}

/// Waits until a descriptor can be read; false: the time was over first, or a signal came.
pub(crate) fn readable(fd: RawFd, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: one entry, valid for writes.
    let count = unsafe { libc::poll(&mut poll, 1, ms) };
    count > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::socket::Socket;
    use std::sync::Arc;
    use std::time::Instant;

    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    #[test]
    fn wake_before_wait_returns_at_once_and_only_once() {
        let epoll = Epoll::new().unwrap();
        let mut ready = Vec::new();
        epoll.wake();
        epoll.wake();
        let start = Instant::now();
        epoll.wait(LONG, &mut ready);
        assert!(start.elapsed() < Duration::from_secs(10));
        let start = Instant::now();
        epoll.wait(Some(Duration::from_millis(30)), &mut ready);
        assert!(start.elapsed() >= Duration::from_millis(30));
        assert!(ready.is_empty());
    }

    #[test]
    fn wake_from_another_thread() {
        let epoll = Arc::new(Epoll::new().unwrap());
        let other = Arc::clone(&epoll);
        let thread = std::thread::spawn(move || other.wait(LONG, &mut Vec::new()));
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        epoll.wake();
        thread.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn bells_are_edges_and_sockets_are_levels() {
        let epoll = Epoll::new().unwrap();
        let bell = Bell::new().unwrap();
        let (a, b) = Socket::pair().unwrap();
        epoll.watch(bell.source(), 1, true).unwrap();
        epoll.watch(b.source(), 2, false).unwrap();
        assert!(epoll.watch(bell.source(), WAKE, true).is_err());
        let wait = |ms| {
            let mut ready = Vec::new();
            epoll.wait(Some(Duration::from_millis(ms)), &mut ready);
            ready.sort_unstable();
            ready
        };
        assert!(wait(0).is_empty());
        bell.ring();
        bell.ring();
        assert_eq!(wait(5000), [1]);
        assert!(wait(0).is_empty());
        bell.ring();
        a.send(b"x", &[]).unwrap();
        assert_eq!(wait(5000), [1, 2]);
        assert_eq!(wait(0), [2]);
        b.receive(&mut [0; 8]).unwrap();
        assert!(wait(0).is_empty());
        drop(a);
        assert_eq!(wait(5000), [2]);
        epoll.unwatch(b.source());
        epoll.unwatch(b.source());
        assert!(wait(0).is_empty());
    }
}
