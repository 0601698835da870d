//! A connected Unix socket as a control channel.
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Share;
use crate::core::transport::{Breaker, Control};
use crate::sys::socket::{self, CutGuard, MAX_DESCRIPTORS, MAX_MESSAGE, Socket};

/// One connection before an engine takes it over.
pub(super) struct Channel {
    // Before what it guards.
    guard: CutGuard,
    socket: Socket,
    peer_uid: u32,
    address: String,
}

impl Channel {
    pub(super) fn new(socket: Socket, address: String) -> Result<Self> {
        let peer_uid = socket.peer_uid().map_err(|e| {
            Error::new(
                Kind::AuthFailed,
                format!("{address}: the kernel does not tell whose the peer is: {e}"),
            )
        })?;
        Ok(Self { guard: socket.guard(), socket, peer_uid, address })
    }

    fn failed(&self, e: &io::Error) -> Error {
        match e.raw_os_error() {
            _ if e.kind() == io::ErrorKind::TimedOut => {
                let text = format!("{}: nothing came or went until the deadline", self.address);
                Error::new(Kind::TimedOut, text)
            }
            Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN) => self.hung_up(),
            _ if e.kind() == io::ErrorKind::InvalidData => {
                Error::protocol(format!("{}: the peer sent {e}", self.address))
            }
            _ => Error::new(Kind::PeerLost, format!("{}: {e}", self.address)),
        }
    }

    fn hung_up(&self) -> Error {
        Error::new(Kind::PeerLost, format!("{}: hung up", self.address))
    }
}

impl Control for Channel {
    fn send(&mut self, bytes: &[u8], shares: &[&Share], deadline: Instant) -> Result<()> {
        if bytes.is_empty() || bytes.len() > MAX_MESSAGE || shares.len() > MAX_DESCRIPTORS {
            let (len, count) = (bytes.len(), shares.len());
            return Err(Error::invalid(format!(
                "a message of {len} bytes and {count} descriptors cannot be sent"
            )));
        }
        let descriptors: Vec<_> = shares.iter().map(|share| share.as_fd()).collect();
        self.socket.send_until(bytes, &descriptors, deadline).map_err(|e| self.failed(&e))
    }

    fn receive(&mut self, limit: usize, deadline: Instant) -> Result<(Vec<u8>, Vec<Share>)> {
        let mut buffer = vec![0; limit.clamp(1, MAX_MESSAGE)];
        let got = self.socket.receive_until(&mut buffer, deadline).map_err(|e| self.failed(&e))?;
        if got.len == 0 {
            return Err(self.hung_up());
        }
        buffer.truncate(got.len);
        Ok((buffer, got.descriptors))
    }

    fn peer_uid(&self) -> u32 {
        self.peer_uid
    }

    fn own_uid(&self) -> u32 {
        socket::own_uid()
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn carries_shares(&self) -> bool {
        true
    }

    fn breaker(&self) -> Arc<dyn Breaker> {
        self.guard.cut()
    }

    fn into_share(self: Box<Self>) -> Share {
        self.socket.into_descriptor()
    }
}
