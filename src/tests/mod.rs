//! Tests of the rings together.
// Tests index what they made, and one SAFETY line covers a row of calls on one object.
#![allow(clippy::indexing_slicing, clippy::multiple_unsafe_ops_per_block)]
mod allocations;
mod cache;
mod fake;
#[cfg(not(loom))]
mod hostile;
mod interface;
#[cfg(not(loom))]
mod revoke;
