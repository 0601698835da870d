//! RDMA between hosts through UCX, which is loaded when it is first wanted: frames as active messages, results
//! written into the peer's memory.
mod address;
mod attach;
mod context;
mod device;
mod domain;
mod ffi;
#[cfg(test)]
#[cfg(not(any(loom, tsan)))]
mod ffi_tests;
mod functions;
mod header;
#[cfg(test)]
#[cfg(not(any(loom, tsan)))]
mod host_tests;
mod inbox;
mod library;
mod line;
mod link;
#[cfg(test)]
#[cfg(not(any(loom, tsan)))]
mod link_tests;
mod memory;
mod messages;
mod pending;
mod port;
mod status;
mod sys;
mod watch;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Candidate, Control, Engine, Seat, Session};
use device::Device;
use domain::Domain;

/// The engine; one for each node.
#[derive(Default)]
pub(crate) struct Ucx {
    insisted: AtomicBool,
    domains: Arc<Domains>,
}

impl Engine for Ucx {
    fn name(&self) -> &'static str {
        "ucx"
    }

    fn insist(&self) {
        self.insisted.store(true, Ordering::Release);
    }

    fn offer(&self, _session: &Session, control: &dyn Control) -> Result<Box<dyn Candidate>> {
        let Some(local) = control.local() else {
            let text = format!("{} is no host:port address", control.address());
            return Err(Error::new(Kind::NotSupported, text));
        };
        let at = local.ip().to_canonical();
        let device = Device::choose(at, self.insisted.load(Ordering::Acquire))?;
        Ok(Box::new(attach::Opening::new(&self.domains, device, at)))
    }
}

/// The devices that are in use.
#[derive(Default)]
struct Domains(Mutex<Vec<Weak<Domain>>>);

impl Domains {
    /// The device for an address of ours, opened when the first link needs it and closed after the last.
    fn get(&self, device: &Device, at: IpAddr, seat: &Seat) -> Result<Arc<Domain>> {
        let mut domains = sys::lock(&self.0);
        let node = watch::node_of(seat);
        domains.retain(|domain| domain.strong_count() > 0);
        let mut known = domains.iter().filter_map(Weak::upgrade);
        if let Some(domain) = known.find(|domain| domain.serves(device, at, node)) {
            return Ok(domain);
        }
        let domain = Domain::open(device, at, seat)?;
        domains.push(Arc::downgrade(&domain));
        Ok(domain)
    }
}

/// Which UCX there is, and from where; it is loaded for the rest of the process's life. Err: why there is none.
#[cfg(feature = "cli")]
pub(crate) fn presence() -> Result<String, String> {
    let ucx = library::ucx().map_err(|why| why.text)?;
    Ok(format!("UCX {} in {}", ucx.version, ucx.file.display()))
}
