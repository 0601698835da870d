//! RDMA between hosts through UCX, which is loaded when it is first wanted.
// The engine comes over this.
#![allow(dead_code)]
mod ffi;
#[cfg(all(test, not(any(loom, tsan))))]
mod ffi_tests;
mod functions;
mod library;
mod status;
