//! Backends that make memory, one folder each.
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod d3d12;
pub(crate) mod host;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;
