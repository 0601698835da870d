//! The operating system, in calls that cannot be used wrongly.
pub(crate) mod clock;
#[cfg(target_os = "linux")]
pub(crate) mod descriptors;
pub(crate) mod driver;
#[cfg(target_os = "linux")]
pub(crate) mod environment;
pub(crate) mod interfaces;
#[cfg(target_os = "linux")]
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod map;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub(crate) mod probe;
pub(crate) mod random;
#[cfg(target_os = "linux")]
pub(crate) mod rdma_choice;
#[cfg(target_os = "linux")]
pub(crate) mod rdma_device;
pub(crate) mod runtime_dir;
#[cfg(target_os = "linux")]
pub(crate) mod signals;
pub(crate) mod socket;
#[cfg(target_os = "linux")]
pub(crate) mod timer;
pub(crate) mod wait;
