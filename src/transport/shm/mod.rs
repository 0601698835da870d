//! The engine for two processes on one host: frames go through rings in shared memory, results are filled
//! in place in memory that both have mapped, and only the host's own memory is copied, through a staged area.
//!
//! Descriptors need a Unix socket: the control channel, if it is one, or a socket of their own (`door`).
mod area;
mod door;
mod link;
mod meet;
mod message;
mod outbox;
mod place;
mod record;
mod ring;
mod staged;
mod sync;

use crate::core::error::Result;
use crate::core::transport::{Candidate, Control, Engine, Session};
use crate::sys::map;

/// The engine.
pub(crate) struct Shm;

impl Engine for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn offer(&self, session: &Session, control: &dyn Control) -> Result<Box<dyn Candidate>> {
        // A sandbox may forbid it: then another engine can still serve.
        map::create_sealed(c"nrdma-probe", 1)?;
        if control.carries_shares() {
            return Ok(Box::new(meet::ByControl));
        }
        Ok(Box::new(meet::ByDoor::new(session)?))
    }
}
