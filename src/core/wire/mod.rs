//! What goes over the wire.
pub(crate) mod auth;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod hello;
