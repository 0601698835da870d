//! How bytes reach another node: one folder per engine, one for each kind of address.
use std::sync::Arc;

use crate::core::transport::{Engine, Network};

pub(crate) mod inproc;
pub(crate) mod shm;
pub(crate) mod unix;

/// Every engine, best first.
pub(crate) fn engines() -> Vec<Arc<dyn Engine>> {
    vec![Arc::new(inproc::Inproc), Arc::new(shm::Shm)]
}

/// Every kind of address.
pub(crate) fn networks() -> Vec<Arc<dyn Network>> {
    vec![Arc::new(unix::Unix)]
}

#[cfg(test)]
mod conformance;
