//! Tests of the rings together.
mod allocations;
mod cache;
mod fake;
mod interface;
mod speed;
