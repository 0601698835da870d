//! A connected Unix socket as a control channel.
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Share;
use crate::core::transport::Control;
use crate::sys::socket::{self, MAX_DESCRIPTORS, MAX_MESSAGE, Ready, Socket};

/// One connection before an engine takes it over.
pub(super) struct Channel {
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
        Ok(Self { socket, peer_uid, address })
    }

    fn wait(&self, what: Ready, deadline: Instant) -> Result<()> {
        match self.socket.wait(what, deadline) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = format!("{}: nothing came or went until the deadline", self.address);
                Err(Error::new(Kind::TimedOut, text))
            }
            Err(e) => Err(self.failed(&e)),
        }
    }

    fn failed(&self, e: &io::Error) -> Error {
        match e.raw_os_error() {
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
        loop {
            match self.socket.send(bytes, &descriptors) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(Ready::Write, deadline)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(&e)),
            }
        }
    }

    fn receive(&mut self, limit: usize, deadline: Instant) -> Result<(Vec<u8>, Vec<Share>)> {
        let mut buffer = vec![0; limit.clamp(1, MAX_MESSAGE)];
        let mut resets = 0;
        loop {
            match self.socket.receive(&mut buffer) {
                Ok(got) if got.len == 0 => return Err(self.hung_up()),
                Ok(got) => {
                    buffer.truncate(got.len);
                    return Ok((buffer, got.descriptors));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(Ready::Read, deadline)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Told once, and before what the peer sent in time (its reason, perhaps).
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset && resets == 0 => resets += 1,
                Err(e) => return Err(self.failed(&e)),
            }
        }
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

    fn into_share(self: Box<Self>) -> Share {
        self.socket.into_descriptor()
    }
}
