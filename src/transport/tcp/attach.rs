//! Turning an authenticated connection into a link: the connector opens the data connection to where it opened
//! the first one, and proves that it belongs to the session.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::Channel;
use super::link::TcpLink;
use super::registry::{DATA, Expectation};
use super::sys::Stream;
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Candidate, ChannelProof, Control, Link, Meeting, Met, Seat, Session};

/// What the listener says when it expects the data connection.
const READY: &[u8] = b"tcp ready 1";
/// What the connector says when it is open.
const OPEN: &[u8] = b"tcp open 1";
/// How long a proof is expected.
const PROOF_LIMIT: Duration = Duration::from_secs(5);

/// The engine's part in one connection.
pub(super) struct Opening;

impl Candidate for Opening {
    fn meet(self: Box<Self>, meeting: &mut Meeting<'_, '_>) -> Result<Box<dyn Met>> {
        let deadline = meeting.deadline().min(Instant::now() + PROOF_LIMIT);
        let data = match meeting.session().connector {
            true => open(meeting, deadline)?,
            false => expect(meeting, deadline)?,
        };
        let (session, seat) = (meeting.session().clone(), meeting.seat().clone());
        Ok(Box::new(Both { session, seat, data }))
    }
}

/// The data connection, beside the control connection.
struct Both {
    session: Session,
    seat: Seat,
    data: Stream,
}

impl Met for Both {
    fn start(self: Box<Self>, control: Box<dyn Control>) -> Result<Arc<dyn Link>> {
        let address = control.address();
        let control = Stream::new(control.into_share());
        Ok(TcpLink::start(&self.session, control, self.data, address, &self.seat)?)
    }
}

fn open(meeting: &mut Meeting<'_, '_>, deadline: Instant) -> Result<Stream> {
    meeting.hear_word::<0>(READY)?;
    let session = meeting.session();
    let at = meeting.control().more_at().ok_or_else(|| Error::protocol("no address for more connections"))?;
    let failed = |e| super::failed(&at.to_string(), &e);
    let mut data = Channel::new(super::dial(at, deadline).map_err(failed)?, true).map_err(failed)?;
    let proof = ChannelProof::make(session, DATA)?;
    data.send(proof.bytes(), &[], deadline)?;
    let (answer, _) = data.receive(proof.bytes().len(), deadline)?;
    if !proof.is_answered(session, DATA, &answer)? {
        let text = format!("{at}: whoever took the data connection is not the peer");
        return Err(Error::new(Kind::AuthFailed, text));
    }
    meeting.say(OPEN, &[])?;
    Ok(Stream::new(Box::new(data).into_share()))
}

/// Waits on the control connection: there the connector says whether it could.
fn expect(meeting: &mut Meeting<'_, '_>, deadline: Instant) -> Result<Stream> {
    let expectation = Expectation::new(meeting.session(), DATA, deadline);
    meeting.say(READY, &[])?;
    meeting.hear_word::<0>(OPEN)?;
    expectation.wait(&meeting.control().address(), deadline)
}
