//! A ring of records from one process to another, and the word that says whether the reader sleeps.
//!
//! Everything in the ring is an atomic, so that a peer that scribbles over it can confuse nobody but
//! itself: each side keeps its own position in private memory, copies a record once, and then checks
//! the copy. Only a record's first slot is published by its sequence number; the slots behind it are ordered
//! by it.
//!
//! Sleeping: the attention word itself is what the writer takes back. Reader: store(who), full fence, look
//! at the next slot again. Writer: publish, full fence, load, swap(0), and only who swapped wakes. A word
//! per slot beside a flag loses wake-ups (facts: two hangs in 51 runs).
use super::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::core::error::{Error, Result};
use crate::core::transport::{Attention, MAX_FRAME};

/// Slots per direction.
pub(super) const SLOTS: usize = 256;
/// Longest record: a frame, or inline data with its place.
pub(super) const MAX_RECORD: usize = MAX_FRAME;
const WORDS: usize = 7;
const SLOT_PAYLOAD: usize = WORDS * 8;

/// One cache line, or rather two: the prefetcher takes pairs.
#[repr(C, align(128))]
struct Line(AtomicU32);

#[repr(C, align(64))]
struct Slot {
    /// Position + 1 of the record that begins here.
    sequence: AtomicU32,
    /// Kind (8 bits), length (16 bits).
    head: AtomicU32,
    words: [AtomicU64; WORDS],
}

/// One direction, in shared memory. All zeroes is an empty ring whose reader polls.
#[repr(C)]
pub(super) struct Ring<const N: usize> {
    /// Who wants to be woken; written by the reader, taken back by the writer.
    attention: Line,
    /// The reader's position.
    credit: Line,
    /// The writer waits for room; written by the writer, taken back by the reader.
    starved: Line,
    slots: [Slot; N],
}

#[cfg(not(all(test, loom)))]
const _: () = {
    assert!(size_of::<Slot>() == 64);
    assert!(size_of::<Ring<SLOTS>>() == 3 * 128 + 64 * SLOTS);
};

/// What a record is; the link gives the numbers meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: u8,
    pub(super) len: usize,
}

impl<const N: usize> Ring<N> {
    #[cfg(test)]
    pub(super) fn new() -> Self {
        let slot = || Slot {
            sequence: AtomicU32::new(0),
            head: AtomicU32::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        let line = || Line(AtomicU32::new(0));
        Self { attention: line(), credit: line(), starved: line(), slots: std::array::from_fn(|_| slot()) }
    }

    fn slot(&self, position: u32) -> Option<&Slot> {
        self.slots.get(position as usize % N)
    }

    fn is_published(&self, position: u32) -> bool {
        self.slot(position).is_some_and(|s| s.sequence.load(Ordering::Acquire) == position.wrapping_add(1))
    }

    /// The reader says who will look; true when the record at `position` is there already.
    pub(super) fn set_attention(&self, who: Attention, position: u32) -> bool {
        self.attention.0.store(who as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.is_published(position)
    }

    /// The writer, after publishing: whom to wake, if anybody. Who gets an answer has taken it: wakes once.
    pub(super) fn take_attention(&self) -> Attention {
        fence(Ordering::SeqCst);
        if self.attention.0.load(Ordering::Relaxed) == 0 {
            return Attention::Polled;
        }
        match self.attention.0.swap(0, Ordering::AcqRel) {
            0 => Attention::Polled,
            1 => Attention::Leader,
            _ => Attention::Progress,
        }
    }
}

/// The writing side's private position.
pub(super) struct Writer<const N: usize> {
    next: u32,
    /// The reader's position as last seen.
    credit: u32,
}

/// Bytes of a record, and how many slots it takes.
fn slots_for(len: usize) -> u32 {
    // At most MAX_RECORD / SLOT_PAYLOAD.
    u32::try_from(len.div_ceil(SLOT_PAYLOAD).max(1)).unwrap_or(u32::MAX)
}

impl<const N: usize> Writer<N> {
    pub(super) const fn starting_at(position: u32) -> Self {
        Self { next: position, credit: position }
    }

    /// Publishes a record made of two parts. False: no room now, and the reader will tell when there is
    /// (see [`Reader::pop`]). Err: the reader's position is impossible.
    pub(super) fn push(&mut self, ring: &Ring<N>, kind: u8, first: &[u8], second: &[u8]) -> Result<bool> {
        let len = first.len() + second.len();
        if len > MAX_RECORD {
            return Err(Error::invalid(format!("a frame of {len} bytes exceeds {MAX_RECORD}")));
        }
        let count = slots_for(len);
        if !self.has_room(ring, count)? {
            return Ok(false);
        }
        if second.is_empty() {
            self.fill(ring, first);
        } else {
            self.fill_joined(ring, first, second);
        }
        if let Some(slot) = ring.slot(self.next) {
            // `len` fits 16 bits.
            slot.head.store(u32::from(kind) << 24 | u32::try_from(len).unwrap_or(0), Ordering::Relaxed);
            slot.sequence.store(self.next.wrapping_add(1), Ordering::Release);
        }
        self.next = self.next.wrapping_add(count);
        Ok(true)
    }

    fn has_room(&mut self, ring: &Ring<N>, count: u32) -> Result<bool> {
        if self.used().saturating_add(count) as usize <= N {
            return Ok(true);
        }
        self.refresh(ring)?;
        if self.used().saturating_add(count) as usize <= N {
            return Ok(true);
        }
        // Said first, looked again after: the reader that makes room from now on sees it.
        ring.starved.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.refresh(ring)?;
        Ok(self.used().saturating_add(count) as usize <= N)
    }

    fn used(&self) -> u32 {
        self.next.wrapping_sub(self.credit)
    }

    fn refresh(&mut self, ring: &Ring<N>) -> Result<()> {
        let credit = ring.credit.0.load(Ordering::Acquire);
        let used = self.next.wrapping_sub(credit);
        // The reader can only move forward, and not past what was written.
        if used > self.used() {
            return Err(Error::protocol(format!(
                "the peer's ring position {credit} is not between {} and {}",
                self.credit, self.next
            )));
        }
        self.credit = credit;
        Ok(())
    }

    fn fill(&self, ring: &Ring<N>, bytes: &[u8]) {
        let mut position = self.next;
        for part in bytes.chunks(SLOT_PAYLOAD) {
            if let Some(slot) = ring.slot(position) {
                store(slot, part);
            }
            position = position.wrapping_add(1);
        }
    }

    fn fill_joined(&self, ring: &Ring<N>, first: &[u8], second: &[u8]) {
        let mut joined = [0; MAX_RECORD];
        let len = first.len() + second.len();
        for (to, from) in joined.iter_mut().zip(first.iter().chain(second)) {
            *to = *from;
        }
        self.fill(ring, joined.get(..len).unwrap_or(&[]));
    }
}

fn store(slot: &Slot, bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    let mut words = slot.words.iter();
    for (from, to) in whole.iter().zip(words.by_ref()) {
        to.store(u64::from_le_bytes(*from), Ordering::Relaxed);
    }
    if let (false, Some(to)) = (rest.is_empty(), words.next()) {
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        to.store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}

/// The reading side's private position.
pub(super) struct Reader<const N: usize> {
    next: u32,
}

/// Room for one record, in whole slots.
pub(super) type RecordBuffer = [u8; MAX_RECORD.div_ceil(SLOT_PAYLOAD) * SLOT_PAYLOAD];
pub(super) const EMPTY_RECORD: RecordBuffer = [0; MAX_RECORD.div_ceil(SLOT_PAYLOAD) * SLOT_PAYLOAD];

impl<const N: usize> Reader<N> {
    pub(super) const fn starting_at(position: u32) -> Self {
        Self { next: position }
    }

    pub(super) fn position(&self) -> u32 {
        self.next
    }

    fn quarter(position: u32) -> usize {
        position as usize / (N / 4).max(1)
    }

    /// Copies the next record out, frees its slots. `starved` is set when the writer has waited for room and
    /// must be told that there is some now. Err: the record is impossible.
    pub(super) fn pop(
        &mut self,
        ring: &Ring<N>,
        to: &mut RecordBuffer,
        starved: &mut bool,
    ) -> Result<Option<Head>> {
        if !ring.is_published(self.next) {
            return Ok(None);
        }
        let Some(first) = ring.slot(self.next) else {
            return Ok(None);
        };
        let head = first.head.load(Ordering::Relaxed);
        let [kind, _, _, _] = head.to_be_bytes();
        let len = (head & 0xff_ffff) as usize;
        if len > MAX_RECORD {
            return Err(Error::protocol(format!("a ring record of {len} bytes exceeds {MAX_RECORD}")));
        }
        let count = slots_for(len);
        if count as usize > N {
            return Err(Error::protocol(format!("a ring record of {len} bytes in {N} slots")));
        }
        let mut position = self.next;
        for part in to.chunks_exact_mut(SLOT_PAYLOAD).take(count as usize) {
            if let Some(slot) = ring.slot(position) {
                // A first slot is read only as far as it is filled: short frames are what latency is about.
                load(slot, part, len);
            }
            position = position.wrapping_add(1);
        }
        let before = self.next;
        self.next = position;
        ring.credit.0.store(self.next, Ordering::Release);
        // A writer that starves has filled the ring, so the reader passes a quarter at least once after it
        // said so: looking there saves a fence per record.
        if Self::quarter(before) != Self::quarter(self.next) {
            fence(Ordering::SeqCst);
            *starved |=
                ring.starved.0.load(Ordering::Relaxed) != 0 && ring.starved.0.swap(0, Ordering::AcqRel) != 0;
        }
        Ok(Some(Head { kind, len }))
    }
}

fn load(slot: &Slot, to: &mut [u8], len: usize) {
    let (words, _) = to.as_chunks_mut::<8>();
    for (to, from) in words.iter_mut().zip(&slot.words).take(len.div_ceil(8)) {
        *to = from.load(Ordering::Relaxed).to_le_bytes();
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
