//! What goes over the wire.
pub(crate) mod auth;
pub(crate) mod channel;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod hello;
mod policy;
mod talk;
