//! What goes out on the control connection.
use super::record::{self, MAX_RECORD};
use super::sys::{Moved, Stream};
use crate::core::transport::Sealer;

/// Bytes of records that wait for a peer; one that leaves more unread is given up.
pub(super) const MAX_WAITING: usize = 64 << 20;
/// Sent bytes that are kept in front of the queue before it is moved.
const MAX_SPENT: usize = 1 << 20;

/// Records in the order of their MACs.
pub(super) struct Outbox {
    sealer: Sealer,
    /// Records sent or waiting.
    pub(super) count: u64,
    waiting: Vec<u8>,
    /// Bytes of it that are sent.
    spent: usize,
}

/// What became of what was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    /// It waits for room.
    Waits,
    /// Too much waits.
    Refused,
    /// The connection is over.
    Gone,
}

impl Outbox {
    pub(super) fn new(sealer: Sealer) -> Self {
        Self { sealer, count: 0, waiting: Vec::new(), spent: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a record of two parts, or puts it behind those that wait. The parts fit a record. `more`: another
    /// follows at once.
    pub(super) fn send(&mut self, stream: &Stream, kind: u8, parts: [&[u8]; 2], more: bool) -> Sent {
        let [first, second] = parts;
        if self.waiting.len() - self.spent > MAX_WAITING {
            return Sent::Refused;
        }
        let mut record = Record::new();
        record.push(&record::record_head(kind, first.len() + second.len()));
        record.push(first);
        record.push(second);
        let tag = self.sealer.tag(record.bytes());
        record.push(&tag);
        self.count += 1;
        let mut bytes = record.bytes();
        if self.is_empty() {
            match stream.send(bytes, more) {
                Moved::Bytes(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Moved::Later => {}
                Moved::Gone => return Sent::Gone,
            }
        }
        if bytes.is_empty() {
            return Sent::Whole;
        }
        self.waiting.extend_from_slice(bytes);
        Sent::Waits
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self, stream: &Stream) -> Sent {
        loop {
            let rest = self.waiting.get(self.spent..).unwrap_or_default();
            if rest.is_empty() {
                // What a flood took is given back.
                self.waiting = Vec::new();
                self.spent = 0;
                return Sent::Whole;
            }
            match stream.send(rest, false) {
                Moved::Bytes(sent) => self.spent += sent,
                Moved::Later => break,
                Moved::Gone => return Sent::Gone,
            }
        }
        if self.spent > MAX_SPENT {
            self.waiting.drain(..self.spent.min(self.waiting.len()));
            self.spent = 0;
        }
        Sent::Waits
    }
}

/// One record, on the stack.
struct Record {
    bytes: [u8; MAX_RECORD],
    len: usize,
}

impl Record {
    fn new() -> Self {
        Self { bytes: [0; MAX_RECORD], len: 0 }
    }

    fn push(&mut self, part: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + part.len()) {
            room.copy_from_slice(part);
            self.len += part.len();
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
