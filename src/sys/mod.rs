//! The operating system, in calls that cannot be used wrongly.
pub(crate) mod clock;
pub(crate) mod environment;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod map;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub(crate) mod probe;
pub(crate) mod random;
pub(crate) mod runtime_dir;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod wait;
