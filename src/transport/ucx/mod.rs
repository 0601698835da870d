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

/// Which UCX there is, and from where; it is loaded for the rest of the process's life. Err: why there is none.
#[cfg(feature = "cli")]
pub(crate) fn presence() -> Result<String, String> {
    let ucx = library::ucx().map_err(|why| why.text)?;
    Ok(format!("UCX {} in {}", ucx.version, ucx.file.display()))
}
