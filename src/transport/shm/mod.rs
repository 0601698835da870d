//! The engine for two processes on one host: frames go through rings in shared memory, results are filled
//! in place in memory that both have mapped, and only the host's own memory is copied, through a staged area.
mod area;
mod attach;
mod link;
mod message;
mod record;
mod ring;
mod sync;

use std::sync::Arc;
use std::time::Instant;

use crate::core::error::Result;
use crate::core::transport::{Control, Engine, Link, Seat, Session};

/// The engine.
pub(crate) struct Shm;

impl Engine for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn unfit(&self, _session: &Session, control: &dyn Control) -> Option<String> {
        let address = control.address();
        // Only a Unix socket carries descriptors, and only one proves that the peer is on this host.
        (!address.starts_with("unix:")).then(|| format!("{address} is no unix: address"))
    }

    fn attach(
        &self,
        session: &Session,
        control: Box<dyn Control>,
        seat: &Seat,
        deadline: Instant,
    ) -> Result<Arc<dyn Link>> {
        Ok(attach::attach(session, control, seat, deadline)?)
    }
}
