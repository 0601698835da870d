//! What goes over the wire.
pub(crate) mod auth;
pub(crate) mod channel;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod hello;
pub(crate) mod meeting;
mod offer;
mod policy;
mod talk;
