//! RDMA between hosts through UCX, which is loaded when it is first wanted: frames as active messages, results
//! written into the peer's memory.
mod address;
mod attach;
mod device;
mod domain;
mod ffi;
#[cfg(all(test, not(any(loom, tsan))))]
mod ffi_tests;
mod functions;
mod header;
mod inbox;
mod library;
mod line;
mod link;
mod memory;
mod pending;
mod port;
mod status;
mod sys;
mod watch;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use crate::core::error::Result;
use crate::core::transport::{Control, Engine, Link, Seat, Session};
use device::Device;
use domain::Domain;

/// The engine; one for each node.
#[derive(Default)]
pub(crate) struct Ucx {
    insisted: AtomicBool,
    domains: Mutex<Vec<Weak<Domain>>>,
}

impl Ucx {
    /// The device with an address of ours, opened when the first link needs it and closed after the last.
    fn domain(&self, at: IpAddr, seat: &Seat) -> Result<Arc<Domain>> {
        let device = Device::of(at)?;
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        let node = watch::node_of(seat);
        domains.retain(|domain| domain.strong_count() > 0);
        let known = domains.iter().filter_map(Weak::upgrade);
        if let Some(domain) = known.into_iter().find(|domain| domain.serves(&device, at, node)) {
            return Ok(domain);
        }
        let domain = Domain::open(&device, at, seat)?;
        domains.push(Arc::downgrade(&domain));
        Ok(domain)
    }
}

impl Engine for Ucx {
    fn name(&self) -> &'static str {
        "ucx"
    }

    fn insist(&self) {
        self.insisted.store(true, Ordering::Release);
    }

    fn unfit(&self, _session: &Session, control: &dyn Control) -> Option<String> {
        if !self.insisted.load(Ordering::Acquire) {
            return Some("no RDMA device was asked for".to_owned());
        }
        let Some(local) = control.local() else {
            return Some(format!("{} is no host:port address", control.address()));
        };
        if let Err(error) = library::ucx() {
            return Some(error.text);
        }
        Device::of(local.ip()).err().map(|error| error.text)
    }

    fn attach(
        &self,
        session: &Session,
        control: Box<dyn Control>,
        seat: &Seat,
        deadline: Instant,
    ) -> Result<Arc<dyn Link>> {
        Ok(attach::attach(self, session, control, seat, deadline)?)
    }
}
