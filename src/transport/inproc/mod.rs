//! The engine for two nodes in one process: frames through queues, data by one copy into place, made by the
//! sending thread.
mod link;
mod registry;

use std::sync::Arc;
use std::time::Instant;

use crate::core::error::Result;
use crate::core::transport::{Control, Engine, Link, Seat, Session};

/// The engine.
pub(crate) struct Inproc;

impl Engine for Inproc {
    fn name(&self) -> &'static str {
        "inproc"
    }

    fn unfit(&self, session: &Session, _control: &dyn Control) -> Option<String> {
        (!session.same_process).then(|| "the nodes are in different processes".to_owned())
    }

    /// The control channel is closed here: the link needs none.
    fn attach(
        &self,
        session: &Session,
        control: Box<dyn Control>,
        seat: &Seat,
        deadline: Instant,
    ) -> Result<Arc<dyn Link>> {
        let pair = registry::meet(session, seat, &control.address(), deadline)?;
        Ok(link::InprocLink::start(pair, session.connector, control.address())?)
    }
}
