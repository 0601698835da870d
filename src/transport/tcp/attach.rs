//! Turning an authenticated connection into a link: the connector opens the data connection to where it opened
//! the first one, and proves that it belongs to the session.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::Channel;
use super::link::TcpLink;
use super::registry::{DATA, Expectation};
use super::sys::Stream;
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{ChannelProof, Control, Seat, Session};

const READY: &[u8] = b"tcp ready 1";
/// How long a proof is expected.
const PROOF_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn attach(
    session: &Session,
    mut control: Box<dyn Control>,
    seat: &Seat,
    deadline: Instant,
) -> Result<Arc<TcpLink>> {
    let deadline = deadline.min(Instant::now() + PROOF_LIMIT);
    let data = match session.connector {
        true => open(session, control.as_mut(), deadline)?,
        false => expect(session, control.as_mut(), deadline)?,
    };
    let address = control.address();
    TcpLink::start(session, Stream::new(control.into_share()), data, address, seat)
}

fn open(session: &Session, control: &mut dyn Control, deadline: Instant) -> Result<Stream> {
    let (ready, _) = control.receive(READY.len(), deadline)?;
    let Some(at) = control.more_at().filter(|_| ready == READY) else {
        let text =
            format!("{}: {:?} instead of tcp ready", control.address(), String::from_utf8_lossy(&ready));
        return Err(Error::protocol(text));
    };
    let failed = |e| super::failed(&at.to_string(), &e);
    let mut data = Channel::new(super::dial(at, deadline).map_err(failed)?, true).map_err(failed)?;
    let proof = ChannelProof::make(session, DATA)?;
    data.send(proof.bytes(), &[], deadline)?;
    let (answer, _) = data.receive(proof.bytes().len(), deadline)?;
    if !proof.is_answered(session, DATA, &answer)? {
        let text = format!("{at}: whoever took the data connection is not the peer");
        return Err(Error::new(Kind::AuthFailed, text));
    }
    Ok(Stream::new(Box::new(data).into_share()))
}

fn expect(session: &Session, control: &mut dyn Control, deadline: Instant) -> Result<Stream> {
    let expectation = Expectation::new(session, DATA);
    control.send(READY, &[], deadline)?;
    expectation.wait(&control.address(), deadline)
}
