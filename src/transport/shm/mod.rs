//! The engine for two processes on one host: frames go through rings in shared memory, results are filled
//! in place in memory that both have mapped, and only the host's own memory is copied, through a staged area.
mod area;
mod attach;
mod link;
mod message;
mod outbox;
mod record;
mod ring;
mod staged;
mod sync;

use std::sync::Arc;
use std::time::Instant;

use crate::core::error::Result;
use crate::core::transport::{Control, Engine, Link, Seat, Session};
use crate::sys::map;

/// The engine.
pub(crate) struct Shm;

impl Engine for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn unfit(&self, _session: &Session, control: &dyn Control) -> Option<String> {
        let address = control.address();
        // Only a Unix socket carries descriptors, and only one proves that the peer is on this host.
        if !address.starts_with("unix:") {
            return Some(format!("{address} is no unix: address"));
        }
        // A sandbox may forbid it: then another engine can still serve.
        map::create_sealed(c"nrdma-probe", 1).err().map(|e| e.text)
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
