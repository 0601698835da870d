//! Everything that C sees: types and functions here are the binary interface; see `cbindgen.toml`.
#![allow(non_camel_case_types)]
pub mod buffer;
pub(crate) mod com;
pub(crate) mod config;
pub mod context;
pub(crate) mod deserializer;
pub mod dice_class;
pub mod dice_configuration;
pub mod dice_job;
pub mod error;
pub(crate) mod execution_context;
pub(crate) mod foreign;
pub(crate) mod fork;
pub mod gpu_buffer;
pub mod gpu_config;
pub mod guard;
pub mod interface;
pub mod job;
pub mod job_class;
pub mod log;
pub mod node;
pub mod node_config;
pub mod peer;
pub mod scheduler;
pub(crate) mod serializer;
pub mod stats;
pub mod writer;
