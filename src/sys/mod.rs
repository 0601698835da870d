//! What the operating system offers, behind safe types.
pub(crate) mod limits;
pub(crate) mod map;
