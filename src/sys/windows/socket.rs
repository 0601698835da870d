//! Connected stream sockets, never blocking by themselves.
use std::io;
use std::os::windows::io::{AsRawSocket, RawSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use windows_sys::Win32::Networking::WinSock::{
    INVALID_SOCKET, POLLRDNORM, POLLWRNORM, SD_BOTH, SOCKET, SOCKET_ERROR, WSAPOLLFD, WSAPoll, shutdown,
};

use crate::core::transport::{Breaker, Share, Source};

/// Bytes that one message carries at most.
pub(crate) const MAX_MESSAGE: usize = 64 * 1024;

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Read,
    Write,
}

/// By which another thread hangs up a socket that it does not own. Whoever owns the socket drops the guard
/// before the socket.
pub(crate) struct Cut(Mutex<Option<SOCKET>>);

impl Cut {
    fn lock(&self) -> MutexGuard<'_, Option<SOCKET>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Breaker for Cut {
    fn cut(&self) {
        if let Some(socket) = *self.lock() {
            // SAFETY: no pointers; the socket is open as long as it is named here.
            unsafe { shutdown(socket, SD_BOTH) };
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

/// One socket; closed on drop. Made of something else, every call fails.
pub(crate) struct Socket(Share);

impl Socket {
    pub(crate) fn from_descriptor(share: Share) -> Self {
        Self(share)
    }

    pub(crate) fn into_descriptor(self) -> Share {
        self.0
    }

    /// Another handle of the same socket.
    pub(crate) fn again(&self) -> io::Result<Self> {
        match &self.0 {
            Share::Socket(socket) => Ok(Self(Share::Socket(socket.try_clone()?))),
            Share::Handle(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    pub(crate) fn raw(&self) -> SOCKET {
        match &self.0 {
            // The same number, in another type's name.
            Share::Socket(socket) => socket.as_raw_socket() as SOCKET,
            Share::Handle(_) => INVALID_SOCKET,
        }
    }

    /// For a waiter.
    pub(crate) fn source(&self) -> Source {
        Source(self.raw() as RawSocket)
    }

    /// What holds of `events` now, or until `ms` milliseconds have passed; hang-up and errors in any case.
    pub(crate) fn poll(&self, events: i16, ms: i32) -> io::Result<i16> {
        let mut entry = WSAPOLLFD { fd: self.raw(), events, revents: 0 };
        // SAFETY: one entry, valid for writes.
        match unsafe { WSAPoll(&mut entry, 1, ms) } {
            SOCKET_ERROR => Err(io::Error::last_os_error()),
            _ => Ok(entry.revents),
        }
    }

    /// Waits until the socket can be read or written, or the other end hung up. False: the deadline came first.
    pub(crate) fn wait(&self, what: Ready, deadline: Instant) -> io::Result<bool> {
        let events = match what {
            Ready::Read => POLLRDNORM,
            Ready::Write => POLLWRNORM,
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let ms = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            match self.poll(events, ms)? {
                0 if Instant::now() >= deadline => return Ok(false),
                0 => {}
                _ => return Ok(true),
            }
        }
    }

    /// For another thread that may hang up this socket, as long as the guard lives.
    pub(crate) fn guard(&self) -> CutGuard {
        CutGuard(Arc::new(Cut(Mutex::new(Some(self.raw())))))
    }

    /// Hangs up both ways; the other end sees it at once.
    pub(crate) fn shutdown(&self) {
        // SAFETY: no pointers. Failing means that it was not connected any more.
        unsafe { shutdown(self.raw(), SD_BOTH) };
    }
}

/// Users have no numbers here; who proves to know the user's cookie is that user.
pub(crate) fn own_uid() -> u32 {
    0
}
