//! What ring records mean.
use super::staged::{STAGED_BYTES, STAGED_SLOTS};
use crate::core::error::{Error, Result};
use crate::core::transport::Place;

/// Data of at most this size travels in the record itself.
pub(super) const MAX_INLINE: usize = 1024;
/// Bytes of an encoded [`Target`].
pub(super) const TARGET_BYTES: usize = 36;

pub(super) mod kind {
    /// A control frame.
    pub(crate) const FRAME: u8 = 1;
    /// A target and its bytes.
    pub(crate) const INLINE: u8 = 2;
    /// A target and a staged slot.
    pub(crate) const STAGED: u8 = 3;
    /// A staged slot that has been copied out.
    pub(crate) const RELEASE: u8 = 4;
    /// There is room in the ring again.
    pub(crate) const NUDGE: u8 = 5;
}

/// Where data belongs: a place and an offset in it; and, for staged data, how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) offset: u64,
    /// Staged slot, else 0.
    pub(super) slot: u32,
    pub(super) len: u32,
}

impl Target {
    pub(super) fn encode(&self) -> [u8; TARGET_BYTES] {
        let mut bytes = [0; TARGET_BYTES];
        let fields = [
            &self.place.job.to_le_bytes()[..],
            &self.place.index.to_le_bytes(),
            &self.place.attempt.to_le_bytes(),
            &self.offset.to_le_bytes(),
            &self.slot.to_le_bytes(),
            &self.len.to_le_bytes(),
        ];
        for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }

    /// The target and what follows it.
    pub(super) fn decode(record: &[u8]) -> Result<(Self, &[u8])> {
        Self::split(record).ok_or_else(|| Error::protocol(format!("a data record of {} bytes", record.len())))
    }

    fn split(record: &[u8]) -> Option<(Self, &[u8])> {
        let (job, rest) = record.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let (attempt, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (slot, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let place = Place {
            job: u64::from_le_bytes(*job),
            index: u64::from_le_bytes(*index),
            attempt: u32::from_le_bytes(*attempt),
        };
        let offset = u64::from_le_bytes(*offset);
        Some((Self { place, offset, slot: u32::from_le_bytes(*slot), len: u32::from_le_bytes(*len) }, rest))
    }

    /// The staged slot and length, if they exist.
    pub(super) fn staged(&self) -> Result<(usize, usize)> {
        let (slot, len) = (self.slot as usize, self.len as usize);
        if slot >= STAGED_SLOTS
            || len > STAGED_BYTES
            || self.offset.checked_add(u64::from(self.len)).is_none()
        {
            let text = format!("staged data in slot {slot} of {len} bytes for offset {}", self.offset);
            return Err(Error::protocol(text));
        }
        Ok((slot, len))
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn targets_round_trip_and_are_checked() {
        let place = Place { job: 1, index: Place::PAYLOAD, attempt: 3 };
        let target = Target { place, offset: 4, slot: 5, len: 6 };
        let mut bytes = target.encode().to_vec();
        bytes.extend_from_slice(b"rest");
        assert_eq!(Target::decode(&bytes).unwrap(), (target, &b"rest"[..]));
        assert!(Target::decode(&bytes[..TARGET_BYTES - 1]).is_err());
        assert_eq!(target.staged().unwrap(), (5, 6));
        assert!(Target { slot: 8, ..target }.staged().is_err());
        assert!(Target { len: 256 * 1024 + 1, ..target }.staged().is_err());
        assert!(Target { offset: u64::MAX, ..target }.staged().is_err());
    }
}
