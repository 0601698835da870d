//! System calls on streams and interfaces.
use std::io;
use std::mem;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::time::Instant;

use crate::core::memory::{Block, Share};
use crate::core::transport::Source;
pub(super) use crate::sys::interfaces::{Interface, interfaces};
use crate::sys::socket::{CutGuard, Ready, Socket};

/// A connected TCP socket; never blocks by itself.
pub(super) struct Stream(Socket);

/// What a call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    Bytes(usize),
    /// Nothing now.
    Later,
    /// The connection is over.
    Gone,
}

impl Moved {
    fn of(result: isize) -> Self {
        if let Ok(len) = usize::try_from(result) {
            return Self::Bytes(len);
        }
        match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Self::Later,
            // Reset, time-out, no way to the host, ...: whatever it is, nothing moves any more.
            _ => Self::Gone,
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::new(stream.into())
    }
}

/// For a waiter.
pub(super) fn source(listener: &TcpListener) -> Source {
    Source(listener.as_raw_fd())
}

impl Stream {
    pub(super) fn new(share: Share) -> Self {
        Self(Socket::from_descriptor(share))
    }

    pub(super) fn into_share(self) -> Share {
        self.0.into_descriptor()
    }

    fn raw(&self) -> RawFd {
        self.0.raw()
    }

    /// By which others may hang up; to be dropped before the stream.
    pub(super) fn guard(&self) -> CutGuard {
        self.0.guard()
    }

    /// For a waiter.
    pub(super) fn source(&self) -> Source {
        self.0.source()
    }

    /// Another descriptor of the same connection.
    pub(super) fn again(&self) -> io::Result<Self> {
        // SAFETY: the descriptor is open as long as `self` lives.
        let fd = unsafe { BorrowedFd::borrow_raw(self.raw()) };
        Ok(Self::new(fd.try_clone_to_owned()?))
    }

    /// Sends what there is room for. `more`: something follows at once, so that the last packet may wait for it.
    pub(super) fn send(&self, bytes: &[u8], more: bool) -> Moved {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | if more { libc::MSG_MORE } else { 0 };
        // SAFETY: `bytes` is readable.
        Moved::of(unsafe { libc::send(self.raw(), bytes.as_ptr().cast(), bytes.len(), flags) })
    }

    /// Sends a head and `len` bytes of a block from `offset` on; as [`Stream::send`].
    pub(super) fn send_with(&self, head: &[u8], block: &dyn Block, offset: usize, len: usize) -> Moved {
        if offset.checked_add(len).is_none_or(|end| end > block.capacity()) {
            return Moved::Gone;
        }
        let body = ptr::with_exposed_provenance_mut::<libc::c_void>(block.address() + offset);
        let mut parts = [
            libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
            libc::iovec { iov_base: body, iov_len: len },
        ];
        // SAFETY: all zeroes is a valid message header.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: both parts are readable during the call: the block's range was checked; nothing is written.
        Moved::of(unsafe { libc::sendmsg(self.raw(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) })
    }

    /// Receives what there is; `Gone` at the end.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Moved {
        // SAFETY: `buffer` is writable.
        let got =
            unsafe { libc::recv(self.raw(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        if got == 0 && !buffer.is_empty() { Moved::Gone } else { Moved::of(got) }
    }

    /// Receives into a block; as [`Stream::receive`].
    pub(super) fn receive_into(&self, block: &dyn Block, offset: usize, len: usize) -> Moved {
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > block.capacity()) {
            return Moved::Later;
        }
        let to = ptr::with_exposed_provenance_mut::<libc::c_void>(block.address() + offset);
        // SAFETY: the range was checked and lives during the call; what others write there at the same time is
        // unspecified, as in any shared memory.
        let got = unsafe { libc::recv(self.raw(), to, len, libc::MSG_DONTWAIT) };
        if got == 0 { Moved::Gone } else { Moved::of(got) }
    }

    /// Whether the other end hung up or the connection broke.
    pub(super) fn is_hung_up(&self) -> bool {
        self.events(libc::POLLRDHUP) & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Whether there is room to send.
    pub(super) fn has_room(&self) -> bool {
        self.events(libc::POLLOUT) != 0
    }

    fn events(&self, what: libc::c_short) -> libc::c_short {
        let mut poll = libc::pollfd { fd: self.raw(), events: what, revents: 0 };
        // SAFETY: one entry, valid for writes.
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents
    }

    /// Waits until it can be read or written or is over; false: the deadline came first.
    pub(super) fn wait(&self, what: Ready, deadline: Instant) -> bool {
        // An error would be told by the call that is tried next.
        self.0.wait(what, deadline).unwrap_or(true)
    }

    pub(super) fn shutdown(&self) {
        self.0.shutdown();
    }
}
