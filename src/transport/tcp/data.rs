//! What goes out on the data connection.
use std::time::{Duration, Instant};

use super::outbox::Sent;
use super::record::{HEAD_BYTES, Head};
use super::sys::{Moved, Stream};
use crate::core::error::Result;
use crate::core::memory::Span;
use crate::core::transport::Sealer;
use crate::sys::socket::Ready;

/// How long a sender waits for room by itself. Then it goes to wait where others can take its place; the rest of
/// its chunk is kept, so that no chunk is ever left unfinished.
const PATIENCE: Duration = Duration::from_millis(50);

/// Chunks in the order of their MACs.
pub(super) struct DataOut {
    sealer: Sealer,
    /// The end of a chunk whose sender went away.
    rest: Vec<u8>,
    /// Bytes of it that are sent.
    spent: usize,
}

impl DataOut {
    pub(super) fn new(sealer: Sealer) -> Self {
        Self { sealer, rest: Vec::new(), spent: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Sends the rest of a chunk; waits for room until `deadline`.
    pub(super) fn flush(&mut self, stream: &Stream, deadline: Option<Instant>) -> Sent {
        loop {
            let rest = self.rest.get(self.spent..).unwrap_or_default();
            if rest.is_empty() {
                self.rest.clear();
                self.spent = 0;
                return Sent::Whole;
            }
            match stream.send(rest, false) {
                Moved::Bytes(sent) => self.spent += sent,
                Moved::Gone => return Sent::Gone,
                Moved::Later => {
                    if deadline.is_none_or(|deadline| !stream.wait(Ready::Write, deadline)) {
                        return Sent::Waits;
                    }
                }
            }
        }
    }

    /// Sends a chunk, `head.len` bytes of the span from `from` on. `Waits`: some of it waits here. There must be
    /// no rest of another.
    pub(super) fn send(&mut self, stream: &Stream, head: &Head, span: &Span, from: usize) -> Result<Sent> {
        let mut bytes = [0; HEAD_BYTES];
        let signed = head.encode();
        let tag = self.sealer.tag(&signed);
        bytes.iter_mut().zip(signed.into_iter().chain(tag)).for_each(|(to, from)| *to = from);
        let total = HEAD_BYTES + head.len as usize;
        let mut sent = 0;
        while sent < total {
            let rest = bytes.get(sent..).unwrap_or_default();
            let skip = sent.saturating_sub(HEAD_BYTES);
            let moved = stream.send_with(rest, span.block.as_ref(), from + skip, total - HEAD_BYTES - skip);
            match moved {
                Moved::Bytes(more) => sent += more,
                Moved::Gone => return Ok(Sent::Gone),
                Moved::Later if stream.wait(Ready::Write, Instant::now() + PATIENCE) => {}
                Moved::Later => {
                    self.keep(rest, span, from + skip, total - HEAD_BYTES - skip)?;
                    return Ok(Sent::Waits);
                }
            }
        }
        Ok(Sent::Whole)
    }

    fn keep(&mut self, head: &[u8], span: &Span, from: usize, len: usize) -> Result<()> {
        self.rest.extend_from_slice(head);
        let at = self.rest.len();
        self.rest.resize(at + len, 0);
        match self.rest.get_mut(at..) {
            Some(room) => span.block.read(from, room),
            None => Ok(()),
        }
    }

    /// When to stop waiting.
    pub(super) fn patience() -> Instant {
        Instant::now() + PATIENCE
    }
}
