//! RDMA between hosts through UCX, which is loaded when it is first wanted.
// The engine comes over this.
#![allow(dead_code)]
mod ffi;
#[cfg(test)]
#[cfg(not(any(loom, tsan)))]
mod ffi_tests;
mod functions;
#[cfg(test)]
#[cfg(not(any(loom, tsan)))]
mod host_tests;
mod library;
mod messages;
mod status;
