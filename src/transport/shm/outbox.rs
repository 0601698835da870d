//! What goes into the ring, and what waits for room in it.
use std::collections::VecDeque;

use super::ring::{Ring, SLOTS, Writer};
use crate::core::error::Result;

/// Frames that wait for room in the ring; a peer that leaves more unread is given up.
pub(super) const MAX_WAITING: usize = 64 << 20;

/// A record's kind and bytes.
type Record = (u8, Vec<u8>);

/// The writing side of a link.
pub(super) struct Outbox {
    writer: Writer<SLOTS>,
    waiting: VecDeque<Record>,
    bytes: usize,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    InRing,
    Waits,
    /// More than [`MAX_WAITING`] bytes wait already.
    Refused,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { writer: Writer::starting_at(0), waiting: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a record of two parts into the ring, or behind those that wait.
    pub(super) fn send(&mut self, ring: &Ring<SLOTS>, kind: u8, first: &[u8], second: &[u8]) -> Result<Sent> {
        if self.try_send(ring, kind, first, second)? {
            return Ok(Sent::InRing);
        }
        let record = (kind, [first, second].concat());
        if self.bytes + cost(&record) > MAX_WAITING {
            return Ok(Sent::Refused);
        }
        self.bytes += cost(&record);
        self.waiting.push_back(record);
        // The ring must have been seen full by the oldest that waits: only then the reader tells of room.
        self.drain(ring)?;
        Ok(if self.is_empty() { Sent::InRing } else { Sent::Waits })
    }

    /// Into the ring at once, or not at all.
    pub(super) fn try_send(
        &mut self,
        ring: &Ring<SLOTS>,
        kind: u8,
        first: &[u8],
        second: &[u8],
    ) -> Result<bool> {
        Ok(self.is_empty() && self.writer.push(ring, kind, first, second)?)
    }

    /// Moves what waits into the ring; true when the reader has something new to look at.
    pub(super) fn drain(&mut self, ring: &Ring<SLOTS>) -> Result<bool> {
        let mut moved = false;
        while let Some(record) = self.waiting.front() {
            if !self.writer.push(ring, record.0, &record.1, &[])? {
                break;
            }
            moved = true;
            self.bytes -= cost(record);
            self.waiting.pop_front();
        }
        Ok(moved)
    }
}

fn cost(record: &Record) -> usize {
    record.1.len() + size_of::<Record>()
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::super::ring::{EMPTY_RECORD, Reader};
    use super::*;

    #[test]
    fn order_is_kept_and_waiting_is_bounded() {
        let ring = Box::new(Ring::<SLOTS>::new());
        let mut outbox = Outbox::new();
        let mut sent = 0_u32;
        let frame = |n: u32| [n.to_le_bytes().to_vec(), vec![0; 2000]].concat();
        loop {
            match outbox.send(&ring, 1, &frame(sent), &[]).unwrap() {
                Sent::Refused => break,
                _ => sent += 1,
            }
        }
        assert!((30_000..35_000).contains(&sent), "{sent}");
        let (mut reader, mut buffer) = (Reader::<SLOTS>::starting_at(0), EMPTY_RECORD);
        let mut got = 0;
        while got < sent {
            while let Some(head) = reader.pop(&ring, &mut buffer, &mut false).unwrap() {
                assert_eq!(buffer[..head.len], frame(got));
                got += 1;
            }
            outbox.drain(&ring).unwrap();
        }
        assert!(outbox.is_empty() && outbox.bytes == 0);
    }
}
