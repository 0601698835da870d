//! What this build and this machine have: engines, UCX, settings. For `nrdma info`.
use std::path::Path;

use crate::abi;
use crate::doctor;
use crate::sys;
use crate::transport;

/// Cargo features that this build has.
pub const FEATURES: &[&str] = &["cli"];

/// An engine, and whether it can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// "shm".
    pub name: &'static str,
    /// None: it can.
    pub why_not: Option<String>,
}

/// A setting of a node that is made with the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The field of `nrdma_node_config`, or what has no field.
    pub name: &'static str,
    /// The environment variable that sets it.
    pub variable: Option<&'static str>,
    /// As people read it.
    pub value: String,
    /// "default" or "environment".
    pub source: &'static str,
}

/// Every engine that nrdma knows, best first.
#[must_use]
pub fn engines() -> Vec<Availability> {
    let here: Vec<&str> = transport::engines().iter().map(|engine| engine.name()).collect();
    let available = |name: &'static str| {
        let why_not = match name {
            _ if !here.contains(&name) => Some("not in this build".to_owned()),
            "shm" => sys::probe::memfd().err().map(|why| format!("no memory file can be made: {why}")),
            "ucx" => transport::ucx::presence().err().or_else(no_device),
            _ => None,
        };
        Availability { name, why_not }
    };
    ["inproc", "shm", "ucx", "tcp"].into_iter().map(available).collect()
}

/// Without a device, UCX would only do what tcp does.
fn no_device() -> Option<String> {
    let devices = doctor::devices(Path::new("/"));
    let active = devices.iter().any(|device| device.ports.iter().any(doctor::Port::is_active));
    (!active).then(|| "no RDMA device with an active port".to_owned())
}

/// Loads UCX, and says which and from where; Err: why there is none, and what to do.
///
/// # Errors
/// There is no UCX that can be used.
pub fn ucx() -> Result<String, String> {
    transport::ucx::presence()
}

/// The settings in force. Err: what is wrong with the environment; no node can then be made.
///
/// # Errors
/// A variable has a value that is refused.
pub fn settings() -> Result<Vec<Setting>, String> {
    let all = abi::node_config::described().map_err(|why| why.text)?;
    let one = |(name, variable, value, given)| {
        let source = if given { "environment" } else { "default" };
        Setting { name, variable, value, source }
    };
    Ok(all.into_iter().map(one).collect())
}
