//! The operating system, in calls that cannot be used wrongly.
pub(crate) mod clock;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod map;
pub(crate) mod random;
pub(crate) mod runtime_dir;
pub(crate) mod socket;
pub(crate) mod wait;
