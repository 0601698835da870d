//! What of this machine is in the way of RDMA: facts read below a root directory, each with its level, why it
//! matters and the command that changes it. Nothing is changed.
//!
//! One file is one topic. A check is a function of a `Machine`: the files below a root, so that each fault has a
//! fixture, and probes of the running kernel, which only the real root has.
mod device;
mod environment;
#[cfg(test)]
mod fault_tests;
mod finding;
mod gpu;
mod machine;
mod memory;
mod network;
mod pci;
mod process;
mod rdma;
#[cfg(test)]
mod tests;
mod ucx;

use std::path::Path;

pub use device::{Device, Gid, Port};
pub use finding::{Finding, Level};
use machine::Machine;

/// A check: never nothing, so that everybody sees that it was made.
type Check = fn(&Machine) -> Vec<Finding>;

/// In the order in which they are told.
const CHECKS: [Check; 20] = [
    process::vm,
    memory::memlock,
    memory::cgroup,
    memory::shm,
    memory::hugepages,
    rdma::hca,
    rdma::netns,
    rdma::port,
    rdma::gid,
    rdma::mtu,
    network::iface,
    pci::iommu,
    pci::acs,
    pci::topo,
    gpu::gpu,
    gpu::direct,
    gpu::bar1,
    ucx::ucx,
    process::ptrace,
    environment::variables,
];

/// Makes every check on what lies below `root`; "/" is this machine. Takes some milliseconds, and reads only.
#[must_use]
pub fn examine(root: &Path) -> Vec<Finding> {
    let machine = Machine::new(root);
    CHECKS.iter().flat_map(|check| check(&machine)).collect()
}

/// The RDMA devices below `root`, by name.
#[must_use]
pub fn devices(root: &Path) -> Vec<Device> {
    device::all(&Machine::new(root).root)
}
