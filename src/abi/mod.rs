//! Everything that C sees: types and functions here are the binary interface; see `cbindgen.toml`.
#![allow(non_camel_case_types)]
pub mod buffer;
pub(crate) mod com;
pub(crate) mod config;
pub mod context;
pub mod error;
pub(crate) mod fork;
pub mod guard;
pub mod interface;
pub mod job;
pub mod log;
pub mod node;
