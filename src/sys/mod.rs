//! The operating system, in calls that cannot be used wrongly.
#[cfg_attr(windows, path = "windows/clock.rs")]
pub(crate) mod clock;
#[cfg(target_os = "linux")]
pub(crate) mod descriptors;
pub(crate) mod driver;
#[cfg(target_os = "linux")]
pub(crate) mod environment;
#[cfg_attr(windows, path = "windows/interfaces.rs")]
pub(crate) mod interfaces;
#[cfg(target_os = "linux")]
pub(crate) mod library;
#[cfg_attr(windows, path = "windows/limits.rs")]
pub(crate) mod limits;
#[cfg_attr(windows, path = "windows/map.rs")]
pub(crate) mod map;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub(crate) mod probe;
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
#[cfg(target_os = "linux")]
pub(crate) mod timer;
#[cfg_attr(windows, path = "windows/wait.rs")]
pub(crate) mod wait;
