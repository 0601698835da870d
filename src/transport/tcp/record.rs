//! What is on the two connections. All numbers are little-endian.
//!
//! Control connection: records of length (u32), kind (u8), three zero bytes, body, MAC.
//! Data connection: heads of [`HEAD_BYTES`], each followed by as many bytes as it says.
use crate::core::error::{Error, Result};
use crate::core::transport::{MAX_FRAME, Place, TAG_BYTES};

/// Kinds of records.
pub(super) mod kind {
    /// A frame.
    pub(in super::super) const FRAME: u8 = 1;
    /// A place, an offset, bytes.
    pub(in super::super) const INLINE: u8 = 2;
}

/// Bytes before a record's body.
pub(super) const RECORD_HEAD: usize = 8;
/// Bytes of a place with an offset.
pub(super) const TARGET_BYTES: usize = 28;
/// The most bytes that travel on the control connection: beyond that, a call of its own costs less than the MAC.
pub(super) const MAX_INLINE: usize = 1024;
/// The longest body.
pub(super) const MAX_BODY: usize = MAX_FRAME;
/// The longest record.
pub(super) const MAX_RECORD: usize = RECORD_HEAD + MAX_BODY + TAG_BYTES;
const _: () = assert!(TARGET_BYTES + MAX_INLINE <= MAX_BODY);

/// Bytes of a head on the data connection: place, offset, length, records before it, MAC.
pub(super) const HEAD_BYTES: usize = TARGET_BYTES + 4 + 8 + TAG_BYTES;
/// The part of it that the MAC is about.
pub(super) const SIGNED: usize = HEAD_BYTES - TAG_BYTES;
/// The most bytes behind one head.
pub(super) const MAX_CHUNK: usize = 1 << 20;

/// Where bytes belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) offset: u64,
}

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) target: Target,
    pub(super) len: u32,
    /// Records sent on the control connection before: they are handled first.
    pub(super) after: u64,
}

/// The head of a record.
pub(super) fn record_head(kind: u8, len: usize) -> [u8; RECORD_HEAD] {
    let [a, b, c, d] = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    [a, b, c, d, kind, 0, 0, 0]
}

/// Kind and length of the record that begins with `bytes`.
pub(super) fn parse_record_head(bytes: [u8; RECORD_HEAD]) -> Result<(u8, usize)> {
    let [a, b, c, d, kind, zeros @ ..] = bytes;
    let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if zeros != [0; 3] || len > MAX_BODY {
        return Err(Error::protocol(format!("a record of kind {kind} and {len} bytes; at most {MAX_BODY}")));
    }
    Ok((kind, len))
}

impl Target {
    pub(super) fn encode(&self) -> [u8; TARGET_BYTES] {
        let mut bytes = [0; TARGET_BYTES];
        let Place { job, index, attempt } = self.place;
        let parts = job.to_le_bytes().into_iter().chain(index.to_le_bytes());
        let parts = parts.chain(attempt.to_le_bytes()).chain(self.offset.to_le_bytes());
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        bytes
    }

    /// The target at the start of `bytes`, and what follows.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let read = || {
            let (job, rest) = bytes.split_first_chunk::<8>()?;
            let (index, rest) = rest.split_first_chunk::<8>()?;
            let (attempt, rest) = rest.split_first_chunk::<4>()?;
            let (offset, rest) = rest.split_first_chunk::<8>()?;
            let place = Place {
                job: u64::from_le_bytes(*job),
                index: u64::from_le_bytes(*index),
                attempt: u32::from_le_bytes(*attempt),
            };
            Some((Self { place, offset: u64::from_le_bytes(*offset) }, rest))
        };
        read().ok_or_else(|| Error::protocol(format!("{} bytes are no target", bytes.len())))
    }
}

impl Head {
    /// Without the MAC.
    pub(super) fn encode(&self) -> [u8; SIGNED] {
        let mut bytes = [0; SIGNED];
        let parts =
            self.target.encode().into_iter().chain(self.len.to_le_bytes()).chain(self.after.to_le_bytes());
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        bytes
    }

    /// From bytes whose MAC was checked.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let (target, rest) = Target::decode(bytes)?;
        let read = || {
            let (len, rest) = rest.split_first_chunk::<4>()?;
            let (after, _) = rest.split_first_chunk::<8>()?;
            Some((u32::from_le_bytes(*len), u64::from_le_bytes(*after)))
        };
        let (len, after) = read().ok_or_else(|| Error::protocol("a data head is too short"))?;
        let wide = u64::from(len);
        if len == 0 || wide > MAX_CHUNK as u64 || target.offset.checked_add(wide).is_none() {
            return Err(Error::protocol(format!("{len} bytes of data at offset {}", target.offset)));
        }
        Ok(Self { target, len, after })
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use crate::core::error::Kind;

    #[test]
    fn heads_survive_the_wire_and_lies_do_not() {
        let place = Place { job: 1 << 50, index: u64::MAX, attempt: 7 };
        let target = Target { place, offset: 5 << 30 };
        let head = Head { target, len: MAX_CHUNK as u32, after: 1 << 40 };
        assert_eq!(Head::decode(&head.encode()).unwrap(), head);
        let lies = [
            Head { len: 0, ..head },
            Head { len: MAX_CHUNK as u32 + 1, ..head },
            Head { target: Target { place, offset: u64::MAX - 5 }, ..head },
        ];
        for lie in lies {
            assert_eq!(Head::decode(&lie.encode()).unwrap_err().kind, Kind::ProtocolError);
        }
        assert!(Head::decode(&head.encode()[..SIGNED - 1]).is_err());
        assert_eq!(parse_record_head(record_head(kind::FRAME, MAX_BODY)).unwrap(), (1, MAX_BODY));
        assert!(parse_record_head(record_head(kind::FRAME, MAX_BODY + 1)).is_err());
        assert!(parse_record_head([0, 0, 0, 0, 1, 0, 1, 0]).is_err());
    }
}
