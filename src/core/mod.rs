//! What nrdma means: buffers, their cache, peers, and jobs made of fragments. No unsafe code, no backend.
#![forbid(unsafe_code)]
pub(crate) mod account;
pub(crate) mod buffer;
pub(crate) mod cache;
pub(crate) mod class;
pub(crate) mod error;
pub(crate) mod home;
pub(crate) mod log;
pub(crate) mod magazine;
pub(crate) mod memory;
pub(crate) mod region;
pub(crate) mod shared;
pub(crate) mod sync;
pub(crate) mod transport;
pub(crate) mod watched;
pub(crate) mod wire;
