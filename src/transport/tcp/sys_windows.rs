//! System calls on streams and interfaces.
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::windows::io::AsRawSocket;
use std::ptr;
use std::time::Instant;

use windows_sys::Win32::Networking::WinSock::{
    POLLERR, POLLHUP, POLLRDNORM, POLLWRNORM, SEND_RECV_FLAGS, SOCKET_ERROR, WSABUF, WSAEMFILE, WSAENOBUFS,
    WSASend, recv, send,
};

use crate::core::memory::{Block, Share};
use crate::core::transport::Source;
pub(super) use crate::sys::interfaces::{Interface, interfaces};
use crate::sys::socket::{CutGuard, Ready, Socket};

/// The system's calls take no more at once.
const MOST: usize = 1 << 30;
const NO_FLAGS: SEND_RECV_FLAGS = 0;

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
    fn failed() -> Self {
        match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Self::Later,
            // Reset, time-out, no way to the host, ...: whatever it is, nothing moves any more.
            _ => Self::Gone,
        }
    }

    fn of(result: i32) -> Self {
        usize::try_from(result).map_or_else(|_| Self::failed(), Self::Bytes)
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::new(Share::Socket(stream.into()))
    }
}

/// Whether a call failed because there are too many sockets.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(WSAEMFILE | WSAENOBUFS))
}

/// For a waiter.
pub(super) fn source(listener: &TcpListener) -> Source {
    Source(listener.as_raw_socket())
}

/// A length that the system's calls take.
fn length(len: usize) -> u32 {
    u32::try_from(len.min(MOST)).unwrap_or(0)
}

impl Stream {
    pub(super) fn new(share: Share) -> Self {
        Self(Socket::from_descriptor(share))
    }

    pub(super) fn into_share(self) -> Share {
        self.0.into_descriptor()
    }

    /// For a waiter.
    pub(super) fn source(&self) -> Source {
        self.0.source()
    }

    /// For another thread that may hang it up.
    pub(super) fn guard(&self) -> CutGuard {
        self.0.guard()
    }

    /// Another handle of the same connection.
    pub(super) fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.again()?))
    }

    /// Sends what there is room for. `more`: something follows at once; nothing is made of that here.
    pub(super) fn send(&self, bytes: &[u8], _more: bool) -> Moved {
        let len = length(bytes.len()).cast_signed();
        // SAFETY: `bytes` is readable.
        Moved::of(unsafe { send(self.0.raw(), bytes.as_ptr(), len, NO_FLAGS) })
    }

    /// Sends a head and `len` bytes of a block from `offset` on; as [`Stream::send`].
    pub(super) fn send_with(&self, head: &[u8], block: &dyn Block, offset: usize, len: usize) -> Moved {
        if offset.checked_add(len).is_none_or(|end| end > block.capacity()) {
            return Moved::Gone;
        }
        let body = ptr::with_exposed_provenance_mut::<u8>(block.address() + offset);
        let parts = [
            WSABUF { buf: head.as_ptr().cast_mut(), len: length(head.len()) },
            WSABUF { buf: body, len: length(len) },
        ];
        let mut sent = 0;
        // SAFETY: both parts are readable during the call: the block's range was checked; nothing is written.
        let result = unsafe { WSASend(self.0.raw(), parts.as_ptr(), 2, &mut sent, 0, ptr::null_mut(), None) };
        match result {
            SOCKET_ERROR => Moved::failed(),
            _ => Moved::Bytes(sent as usize),
        }
    }

    /// Receives what there is; `Gone` at the end.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Moved {
        let len = length(buffer.len()).cast_signed();
        // SAFETY: `buffer` is writable.
        let got = unsafe { recv(self.0.raw(), buffer.as_mut_ptr(), len, NO_FLAGS) };
        if got == 0 && !buffer.is_empty() { Moved::Gone } else { Moved::of(got) }
    }

    /// Receives into a block; as [`Stream::receive`].
    pub(super) fn receive_into(&self, block: &dyn Block, offset: usize, len: usize) -> Moved {
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > block.capacity()) {
            return Moved::Later;
        }
        let to = ptr::with_exposed_provenance_mut::<u8>(block.address() + offset);
        // SAFETY: the range was checked and lives during the call; what others write there at the same time is
        // unspecified, as in any shared memory.
        let got = unsafe { recv(self.0.raw(), to, length(len).cast_signed(), NO_FLAGS) };
        if got == 0 { Moved::Gone } else { Moved::of(got) }
    }

    /// Whether the other end hung up or the connection broke.
    pub(super) fn is_hung_up(&self) -> bool {
        self.0.poll(POLLRDNORM, 0).is_ok_and(|events| events & (POLLHUP | POLLERR) != 0)
    }

    /// Whether there is room to send.
    pub(super) fn has_room(&self) -> bool {
        self.0.poll(POLLWRNORM, 0).is_ok_and(|events| events != 0)
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
