//! What goes over the socket beside the rings: rare, or with a descriptor.
use crate::core::error::{Error, Result};
use crate::core::transport::RegionKey;

/// Longest message.
pub(super) const MAX_BYTES: usize = 64;

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Look at the ring.
    Bell,
    /// With the descriptor of the memory.
    Region {
        key: RegionKey,
        capacity: u64,
    },
    Forget(RegionKey),
    /// With the descriptor of the staged area of this direction.
    Staged,
}

const BELL: u8 = 1;
const REGION: u8 = 2;
const FORGET: u8 = 3;
const STAGED: u8 = 4;

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let with_key = |kind: u8, key: &RegionKey| {
            let mut bytes = vec![kind];
            bytes.extend_from_slice(&key.id.to_le_bytes());
            bytes.extend_from_slice(&key.generation.to_le_bytes());
            bytes
        };
        match self {
            Message::Bell => vec![BELL],
            Message::Staged => vec![STAGED],
            Message::Forget(key) => with_key(FORGET, key),
            Message::Region { key, capacity } => {
                let mut bytes = with_key(REGION, key);
                bytes.extend_from_slice(&capacity.to_le_bytes());
                bytes
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes).ok_or_else(|| {
            let kind = bytes.first().copied().unwrap_or(0);
            Error::protocol(format!("a link message of kind {kind} and {} bytes", bytes.len()))
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match (*kind, rest.is_empty()) {
            (BELL, true) => return Some(Message::Bell),
            (STAGED, true) => return Some(Message::Staged),
            _ => {}
        }
        let (id, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let key = RegionKey { id: u64::from_le_bytes(*id), generation: u32::from_le_bytes(*generation) };
        match (*kind, rest) {
            (FORGET, []) => Some(Message::Forget(key)),
            (REGION, rest) => {
                Some(Message::Region { key, capacity: u64::from_le_bytes(rest.try_into().ok()?) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_nothing_else_does() {
        let key = RegionKey { id: 7, generation: 9 };
        let all = [
            Message::Bell,
            Message::Staged,
            Message::Forget(key),
            Message::Region { key, capacity: 1 << 40 },
        ];
        for message in all {
            let mut bytes = message.encode();
            assert_eq!(Message::decode(&bytes).unwrap(), message);
            for end in 0..bytes.len() {
                assert!(Message::decode(&bytes[..end]).is_err());
            }
            bytes.push(0);
            assert!(Message::decode(&bytes).is_err());
            assert!(bytes.len() <= MAX_BYTES);
        }
        assert!(Message::decode(&[0]).is_err());
        assert!(Message::decode(&[99, 1, 2]).is_err());
    }
}
