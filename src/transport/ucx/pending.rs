//! What an operation of UCX was begun for.
use super::header::{SessionId, Target};
use super::sys::EpId;

/// What an operation of UCX was begun for.
pub(super) enum Pending {
    Nothing,
    /// A message of so many bytes.
    Sent {
        session: SessionId,
        bytes: usize,
    },
    /// One of the two halves of a write: the bytes have left, and they have arrived.
    Write {
        session: SessionId,
        write: u64,
    },
    /// Bytes for a place.
    Received {
        session: SessionId,
        target: Target,
    },
    /// All that was sent before.
    Flushed {
        session: SessionId,
    },
    /// The end of an endpoint.
    Closed {
        ep: EpId,
    },
}
