//! Tests of the rings together.
mod cache;
mod fake;
mod interface;
