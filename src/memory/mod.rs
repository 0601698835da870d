//! Backends that make memory, one folder each.
pub(crate) mod host;
