//! A TCP connection as a control channel: messages behind their length.
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use super::registry;
use super::sys::{Moved, Stream};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Share;
use crate::core::transport::{Breaker, ChannelProof, Control};
use crate::sys::socket::{self, CutGuard, MAX_MESSAGE, Ready};

/// The longest first message of a stranger.
const STRANGER_LIMIT: usize = 4096;

/// One connection before an engine takes it over.
pub(super) struct Channel {
    // Before what it guards.
    guard: CutGuard,
    stream: Stream,
    address: String,
    more_at: SocketAddr,
    local: SocketAddr,
    is_remote: bool,
    /// A message that was read to see what it is.
    first: Option<Vec<u8>>,
}

impl Channel {
    pub(super) fn new(stream: TcpStream, connector: bool) -> io::Result<Self> {
        let (own, peer) = (stream.local_addr()?, stream.peer_addr()?);
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let more_at = if connector { peer } else { own };
        let stream = Stream::from(stream);
        Ok(Self {
            guard: stream.guard(),
            stream,
            address: peer.to_string(),
            more_at,
            local: own,
            is_remote: !peer.ip().is_loopback(),
            first: None,
        })
    }

    fn write(&self, mut bytes: &[u8], deadline: Instant) -> Result<()> {
        while !bytes.is_empty() {
            match self.stream.send(bytes, false) {
                Moved::Bytes(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Moved::Later => self.wait(Ready::Write, deadline)?,
                Moved::Gone => return Err(self.hung_up()),
            }
        }
        Ok(())
    }

    fn read(&self, mut buffer: &mut [u8], deadline: Instant) -> Result<()> {
        while !buffer.is_empty() {
            match self.stream.receive(buffer) {
                Moved::Bytes(got) => buffer = buffer.get_mut(got..).unwrap_or_default(),
                Moved::Later => self.wait(Ready::Read, deadline)?,
                Moved::Gone => return Err(self.hung_up()),
            }
        }
        Ok(())
    }

    fn wait(&self, what: Ready, deadline: Instant) -> Result<()> {
        // The deadline also ends those who send byte after byte.
        if Instant::now() < deadline && self.stream.wait(what, deadline) {
            return Ok(());
        }
        let text = format!("{}: nothing came or went until the deadline", self.address);
        Err(Error::new(Kind::TimedOut, text))
    }

    fn hung_up(&self) -> Error {
        Error::new(Kind::PeerLost, format!("{}: hung up", self.address))
    }
}

impl Control for Channel {
    fn send(&mut self, bytes: &[u8], shares: &[&Share], deadline: Instant) -> Result<()> {
        if bytes.is_empty() || bytes.len() > MAX_MESSAGE || !shares.is_empty() {
            let (len, count) = (bytes.len(), shares.len());
            return Err(Error::invalid(format!(
                "a message of {len} bytes and {count} descriptors cannot be sent by TCP"
            )));
        }
        // At most MAX_MESSAGE.
        let len = u32::try_from(bytes.len()).unwrap_or(0);
        let mut message = len.to_le_bytes().to_vec();
        message.extend_from_slice(bytes);
        self.write(&message, deadline)
    }

    fn receive(&mut self, limit: usize, deadline: Instant) -> Result<(Vec<u8>, Vec<Share>)> {
        if let Some(first) = self.first.take() {
            return Ok((first, Vec::new()));
        }
        let mut head = [0; 4];
        self.read(&mut head, deadline)?;
        let len = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
        let limit = limit.min(MAX_MESSAGE);
        if len == 0 || len > limit {
            let text = format!("{}: a message of {len} bytes; at most {limit} are allowed", self.address);
            return Err(Error::protocol(text));
        }
        let mut bytes = vec![0; len];
        self.read(&mut bytes, deadline)?;
        Ok((bytes, Vec::new()))
    }

    /// By TCP the kernel does not say; whoever proves to know the user's cookie is that user.
    fn peer_uid(&self) -> u32 {
        socket::own_uid()
    }

    fn own_uid(&self) -> u32 {
        socket::own_uid()
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn more_at(&self) -> Option<SocketAddr> {
        Some(self.more_at)
    }

    fn local(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    fn claim(&mut self, deadline: Instant) -> Result<bool> {
        let (first, _) = self.receive(STRANGER_LIMIT, deadline)?;
        let Some(proof) = ChannelProof::read(&first) else {
            self.first = Some(first);
            return Ok(false);
        };
        let expected = registry::check(&proof, &self.address)?;
        let copy = self.stream.again().map_err(|e| {
            Error::new(Kind::OutOfMemory, format!("{}: {e}; raise the limit of open files", self.address))
        })?;
        self.send(&expected.answer, &[], deadline)?;
        expected.hand_over(copy);
        Ok(true)
    }

    fn breaker(&self) -> Arc<dyn Breaker> {
        self.guard.cut()
    }

    fn into_share(self: Box<Self>) -> Share {
        self.stream.into_share()
    }
}
