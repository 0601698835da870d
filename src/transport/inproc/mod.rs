//! The engine for two nodes in one process: frames through queues, data by one copy into place, made by the
//! sending thread.
mod link;
mod registry;

use std::sync::{Arc, Mutex, PoisonError};

use crate::core::error::Result;
use crate::core::transport::{Candidate, Control, Engine, Link, Meeting, Met, Session};
use crate::sys::random;

/// What the connector says when it can be found.
const HERE: &[u8] = b"inproc here 1";
/// What the listener says when it has found it.
const FOUND: &[u8] = b"inproc found 1";

/// The engine.
pub(crate) struct Inproc;

impl Engine for Inproc {
    fn name(&self) -> &'static str {
        "inproc"
    }

    fn offer(&self, _session: &Session, _control: &dyn Control) -> Result<Box<dyn Candidate>> {
        Ok(Box::new(Half { process: process_name()? }))
    }
}

/// One node's half of a pair.
struct Half {
    process: [u8; 16],
}

impl Candidate for Half {
    /// The process's random name: whoever says the same is in here, or lies, and will not be found.
    fn offer(&self) -> &[u8] {
        &self.process
    }

    fn unfit(&self, theirs: &[u8]) -> Option<String> {
        (theirs != self.process).then(|| "the nodes are in different processes".to_owned())
    }

    fn meet(self: Box<Self>, meeting: &mut Meeting<'_, '_>) -> Result<Box<dyn Met>> {
        let connector = meeting.session().connector;
        let pair = if connector {
            let waiting = registry::wait(meeting.session(), meeting.seat());
            meeting.say(HERE, &[])?;
            meeting.hear_word::<0>(FOUND)?;
            waiting.take()?
        } else {
            meeting.hear_word::<0>(HERE)?;
            let pair = registry::find(meeting.session(), meeting.seat())?;
            meeting.say(FOUND, &[])?;
            pair
        };
        Ok(Box::new(Whole(link::InprocLink::new(pair, connector, meeting.control().address()))))
    }
}

/// One node's end of a pair; hangs up when it is dropped.
struct Whole(Arc<link::InprocLink>);

impl Met for Whole {
    /// The control channel is closed here: the link needs none.
    fn start(self: Box<Self>, _control: Box<dyn Control>) -> Result<Arc<dyn Link>> {
        self.0.start()?;
        Ok(self.0)
    }
}

/// This process's random name; another one in a forked child.
fn process_name() -> Result<[u8; 16]> {
    static NAME: Mutex<Option<(u32, [u8; 16])>> = Mutex::new(None);
    let mut name = NAME.lock().unwrap_or_else(PoisonError::into_inner);
    match *name {
        Some((pid, bytes)) if pid == std::process::id() => Ok(bytes),
        _ => {
            let bytes = random::bytes()?;
            *name = Some((std::process::id(), bytes));
            Ok(bytes)
        }
    }
}
