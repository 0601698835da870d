//! What the system gives to sleep on and to hand over to another process.

/// How the system names it: a descriptor; on Windows a socket or an event's handle.
#[cfg(unix)]
pub(crate) type RawSource = std::os::fd::RawFd;
/// How the system names it: a descriptor; on Windows a socket or an event's handle.
#[cfg(windows)]
pub(crate) type RawSource = u64;

/// What a thread can sleep on. Names it, does not own it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(pub(crate) RawSource);

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What is sent to a peer so that it can map a block, or taken out of a control channel: a descriptor.
#[cfg(unix)]
pub(crate) type Share = std::os::fd::OwnedFd;
/// What is sent to a peer so that it can map a block, or taken out of a control channel.
#[cfg(windows)]
pub(crate) enum Share {
    /// A section or an event.
    Handle(std::os::windows::io::OwnedHandle),
    /// A connection.
    Socket(std::os::windows::io::OwnedSocket),
}
