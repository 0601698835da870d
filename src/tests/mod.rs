//! Tests of the rings together.
// Tests index what they made, cut random numbers to size, and one SAFETY line covers a row of calls on one
// object.
#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::multiple_unsafe_ops_per_block)]
mod allocations;
mod cache;
#[cfg(not(loom))]
mod choice;
mod fake;
#[cfg(not(loom))]
mod hostile;
mod interface;
#[cfg(not(loom))]
mod revoke;
