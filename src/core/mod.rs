//! What nrdma means: buffers, their cache, peers, and jobs made of fragments. No unsafe code, no backend.
#![forbid(unsafe_code)]
pub(crate) mod buffer;
pub(crate) mod error;
pub(crate) mod memory;
pub(crate) mod transport;
pub(crate) mod wire;
