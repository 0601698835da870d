//! The header of our active messages. All numbers are little-endian.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 16 | session |
//! | 16 | 8 | sequence: messages that the sender sent before in this session |
//! | 24 | 1 | kind |
//! | 25 | 3 | zero |
//! | 28 | 4 | bytes of the message's data |
//! | 32 | 28 | only with DATA: job (8), index (8), attempt (4), offset (8) |
//! | end | 16 | MAC over the header so far and, except with DATA, the message's data |
use crate::core::error::{Error, Result};
use crate::core::transport::{Place, RegionKey, TAG_BYTES};

/// Names a session.
pub(super) type SessionId = [u8; 16];

/// Bytes without target and MAC.
const HEAD_BYTES: usize = 32;
/// Bytes of a place with an offset.
const TARGET_BYTES: usize = 28;
/// The longest key that a peer may send.
const MAX_KEY: usize = 2048;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The first message, from whoever connected: a channel proof.
    Hello = 1,
    /// The listener's answer to it.
    Answer = 2,
    /// A control frame of the core.
    Frame = 3,
    /// Bytes for a place.
    Data = 4,
    /// So many bytes of data were taken (4).
    Release = 5,
    /// A region may be written to: id (8), generation (4), capacity (8), address (8), key.
    Region = 6,
    /// A region is given up: id (8), generation (4).
    Forget = 7,
    /// Nothing will be written there any more: id (8), generation (4).
    Forgotten = 8,
}

impl Kind {
    fn of(number: u8) -> Option<Self> {
        let all = [
            Self::Hello,
            Self::Answer,
            Self::Frame,
            Self::Data,
            Self::Release,
            Self::Region,
            Self::Forget,
            Self::Forgotten,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Where bytes belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) offset: u64,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) session: SessionId,
    pub(super) sequence: u64,
    pub(super) kind: Kind,
    pub(super) len: u32,
    pub(super) target: Option<Target>,
}

impl Head {
    /// Without the MAC.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + TARGET_BYTES + TAG_BYTES);
        bytes.extend_from_slice(&self.session);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        bytes.extend_from_slice(&self.len.to_le_bytes());
        if let Some(Target { place, offset }) = self.target {
            bytes.extend_from_slice(&place.job.to_le_bytes());
            bytes.extend_from_slice(&place.index.to_le_bytes());
            bytes.extend_from_slice(&place.attempt.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        bytes
    }

    /// A header, the bytes that its MAC is about, and the MAC, which is still to be checked.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (signed, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG_BYTES)?)?;
        let mut rest = Fields(signed);
        let session = rest.take()?;
        let sequence = u64::from_le_bytes(rest.take()?);
        let [kind, zeros @ ..] = rest.take::<4>()?;
        let kind = Kind::of(kind).filter(|_| zeros == [0; 3])?;
        let len = u32::from_le_bytes(rest.take()?);
        let target = match kind {
            Kind::Data => Some(Target {
                place: Place {
                    job: u64::from_le_bytes(rest.take()?),
                    index: u64::from_le_bytes(rest.take()?),
                    attempt: u32::from_le_bytes(rest.take()?),
                },
                offset: u64::from_le_bytes(rest.take()?),
            }),
            _ => None,
        };
        rest.0.is_empty().then_some((Self { session, sequence, kind, len, target }, signed, tag))
    }
}

/// Fixed-size fields from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
}

/// A region that may be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) key: RegionKey,
    pub(super) capacity: u64,
    pub(super) address: u64,
    pub(super) packed: Vec<u8>,
}

impl Announcement {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = encode_key(self.key);
        bytes.extend_from_slice(&self.capacity.to_le_bytes());
        bytes.extend_from_slice(&self.address.to_le_bytes());
        bytes.extend_from_slice(&self.packed);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let read = || {
            let (key, rest) = split_key(bytes)?;
            let mut rest = Fields(rest);
            let capacity = u64::from_le_bytes(rest.take()?);
            let address = u64::from_le_bytes(rest.take()?);
            address.checked_add(capacity)?;
            let packed = Some(rest.0).filter(|key| !key.is_empty() && key.len() <= MAX_KEY)?.to_vec();
            Some(Self { key, capacity, address, packed })
        };
        read()
            .ok_or_else(|| Error::protocol(format!("{} bytes are no announcement of a region", bytes.len())))
    }
}

/// The name of a region.
pub(super) fn encode_key(key: RegionKey) -> Vec<u8> {
    let mut bytes = key.id.to_le_bytes().to_vec();
    bytes.extend_from_slice(&key.generation.to_le_bytes());
    bytes
}

fn split_key(bytes: &[u8]) -> Option<(RegionKey, &[u8])> {
    let mut rest = Fields(bytes);
    let key =
        RegionKey { id: u64::from_le_bytes(rest.take()?), generation: u32::from_le_bytes(rest.take()?) };
    Some((key, rest.0))
}

/// A message that is the name of a region.
pub(super) fn decode_key(bytes: &[u8]) -> Result<RegionKey> {
    let key = split_key(bytes).filter(|(_, rest)| rest.is_empty()).map(|(key, _)| key);
    key.ok_or_else(|| Error::protocol(format!("{} bytes are no name of a region", bytes.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_wire_and_lies_do_not() {
        let place = Place { job: 1 << 50, index: u64::MAX, attempt: 7 };
        let target = Some(Target { place, offset: 5 << 40 });
        let data = Head { session: [7; 16], sequence: 1 << 40, kind: Kind::Data, len: 9, target };
        let frame = Head { kind: Kind::Frame, target: None, ..data };
        for head in [data, frame] {
            let mut bytes = head.encode();
            bytes.extend_from_slice(&[3; TAG_BYTES]);
            let (read, signed, tag) = Head::decode(&bytes).unwrap();
            assert_eq!((read, signed.len(), tag), (head, bytes.len() - TAG_BYTES, &[3; TAG_BYTES][..]));
            for len in 0..bytes.len() {
                assert!(Head::decode(bytes.get(..len).unwrap()).is_none());
            }
            bytes.push(0);
            assert!(Head::decode(&bytes).is_none());
        }
        for (at, wrong) in [(24, 0), (24, 9), (25, 1), (27, 1)] {
            let mut bytes = frame.encode();
            bytes.extend_from_slice(&[3; TAG_BYTES]);
            *bytes.get_mut(at).unwrap() = wrong;
            assert!(Head::decode(&bytes).is_none());
        }
    }

    #[test]
    fn regions_survive_the_wire_and_lies_do_not() {
        let key = RegionKey { id: 1 << 60, generation: 4 };
        let region = Announcement { key, capacity: 5, address: u64::MAX - 5, packed: vec![1, 2] };
        assert_eq!(Announcement::decode(&region.encode()).unwrap(), region);
        assert!(Announcement::decode(&Announcement { capacity: 6, ..region.clone() }.encode()).is_err());
        assert!(Announcement::decode(&Announcement { packed: vec![], ..region.clone() }.encode()).is_err());
        assert!(Announcement::decode(&Announcement { packed: vec![0; 2049], ..region }.encode()).is_err());
        assert_eq!(decode_key(&encode_key(key)).unwrap(), key);
        assert!(decode_key(&[0; 11]).is_err() && decode_key(&[0; 13]).is_err());
    }
}
