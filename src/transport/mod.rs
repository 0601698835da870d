//! How bytes reach another node: one folder per engine, one for each kind of address.
use std::sync::Arc;

use crate::core::error::Result;
use crate::core::transport::{Engine, Network, Waiter};
use crate::sys;

pub(crate) mod inproc;
pub(crate) mod shm;
pub(crate) mod tcp;
#[cfg(target_os = "linux")]
pub(crate) mod ucx;
pub(crate) mod unix;

/// Every engine, best first.
pub(crate) fn engines() -> Vec<Arc<dyn Engine>> {
    vec![Arc::new(inproc::Inproc), Arc::new(shm::Shm), Arc::<ucx::Ucx>::default(), Arc::new(tcp::TcpEngine)]
}

/// Every kind of address.
pub(crate) fn networks() -> Vec<Arc<dyn Network>> {
    vec![Arc::new(unix::Unix), Arc::new(tcp::Tcp)]
}

/// Where a node's threads sleep.
pub(crate) fn waiter() -> Result<Arc<dyn Waiter>> {
    Ok(Arc::new(sys::wait::Epoll::new()?))
}

/// The secret that only this user's processes can read.
pub(crate) fn cookie() -> Result<[u8; 32]> {
    sys::runtime_dir::cookie(&sys::runtime_dir::runtime_dir()?)
}

#[cfg(test)]
mod conformance;
