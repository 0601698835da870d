//! What can go wrong, as one sentence with the numbers and what to do.
use thiserror::Error;

/// A failure, with the words that `nrdma_last_error()` shows.
///
/// The kind decides the status that C sees (`abi::error`); the text is for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text}")]
pub(crate) struct Error {
    /// What is broken.
    pub(crate) kind: Kind,
    /// One sentence: what failed, with the numbers, and what to do.
    pub(crate) text: String,
}

/// What is broken; one for each `NRDMA_*` status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(dead_code)]
pub(crate) enum Kind {
    InvalidParameter,
    NotInFragment,
    InvalidPriority,
    OutOfMemory,
    MemlockLimit,
    NotSupported,
    DriverMissing,
    DriverError,
    BufferTooSmall,
    Unreachable,
    Refused,
    TimedOut,
    AuthFailed,
    VersionMismatch,
    ProtocolError,
    AddressInUse,
    PeerLost,
    Stale,
    FragmentFailed,
    Cancelled,
    ShutDown,
    NotRegistered,
    Panic,
    AfterFork,
}

impl Error {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
    /// An argument that the caller got wrong.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(Kind::InvalidParameter, text)
    }
    /// A peer that broke the protocol.
    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::new(Kind::ProtocolError, text)
    }
}

/// The result of nearly everything in nrdma.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
