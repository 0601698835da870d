//! The operating system, in calls that cannot be used wrongly.
#[cfg_attr(windows, path = "windows/clock.rs")]
pub(crate) mod clock;
#[cfg(target_os = "linux")]
pub(crate) mod environment;
#[cfg(target_os = "linux")]
pub(crate) mod library;
#[cfg_attr(windows, path = "windows/limits.rs")]
pub(crate) mod limits;
#[cfg_attr(windows, path = "windows/map.rs")]
pub(crate) mod map;
pub(crate) mod random;
#[cfg(target_os = "linux")]
pub(crate) mod rdma_choice;
#[cfg(target_os = "linux")]
pub(crate) mod rdma_device;
#[cfg_attr(windows, path = "windows/runtime_dir.rs")]
pub(crate) mod runtime_dir;
#[cfg(target_os = "linux")]
pub(crate) mod signals;
#[cfg_attr(windows, path = "windows/socket.rs")]
pub(crate) mod socket;
#[cfg_attr(windows, path = "windows/wait.rs")]
pub(crate) mod wait;
