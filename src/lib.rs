//! neuray's RDMA buffers and fragmented jobs as a shared library with a C and C++ interface.
//!
//! Three rings: [`abi`] is everything that C can see; `core` is what it means and knows neither C nor
//! any backend; `transport` and `memory` are how it is done, one folder per backend. `abi` uses `core`
//! only, a backend uses `core`'s traits and `sys` only, and never another backend. `tests/layering.rs`
//! checks the `use crate::` lines. A new transport is one folder, one line in `backends` and one line
//! in the conformance suite.
pub mod abi;
pub(crate) mod core;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod doctor;
pub(crate) mod memory;
pub(crate) mod sys;
#[cfg(test)]
mod tests;
pub(crate) mod transport;

/// The backends of this build. The engines' order is the order of preference.
pub(crate) fn backends() -> core::node::Backends {
    core::node::Backends {
        memory: std::sync::Arc::new(memory::host::HostMemory),
        engines: transport::engines(),
        networks: transport::networks(),
        waiter: transport::waiter,
        random: sys::random::bytes::<16>,
        cookie: transport::cookie,
    }
}

/// What makes slots in this build.
pub(crate) fn slot_makers() -> &'static [&'static dyn core::slot::SlotMaker] {
    static MAKERS: &[&dyn core::slot::SlotMaker] = &[
        &memory::host::slots::HostSlots,
        #[cfg(feature = "cuda")]
        &memory::cuda::Cuda::new(abi::config::env),
        #[cfg(feature = "vulkan")]
        &memory::vulkan::Vulkan,
        &memory::d3d12::D3d12::new(abi::config::env),
    ];
    MAKERS
}
