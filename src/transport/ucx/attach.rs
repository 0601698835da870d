//! Bringing a link up beside an authenticated connection: the listening end says where its UCX listener is, the
//! connecting end connects there and proves that it belongs to the session.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Ucx;
use super::domain::Domain;
use super::inbox::{Entry, Inbox};
use super::link::UcxLink;
use crate::core::error::{Error, Kind, Result};
use crate::core::log;
use crate::core::transport::{Control, Seat, Session};
use crate::sys::socket::Socket;

const READY: &str = "ucx ready 1 ";
/// The longest address in words.
const MAX_READY: usize = 100;
/// How long a proof is expected.
const PROOF_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn attach(
    engine: &Ucx,
    session: &Session,
    mut control: Box<dyn Control>,
    seat: &Seat,
    deadline: Instant,
) -> Result<Arc<UcxLink>> {
    let deadline = deadline.min(Instant::now() + PROOF_LIMIT);
    let address = control.address();
    let local = control.local().ok_or_else(|| Error::invalid(format!("{address} is no host:port address")))?;
    let inbox = Arc::new(Inbox::new()?);
    let domain = match session.connector {
        true => {
            let to = hear(control.as_mut(), deadline)?;
            let domain = engine.domain(local.ip(), seat)?;
            let called = domain.turn(None, |port| port.call(session, to, &inbox));
            let met = called.and_then(|()| wait(&domain, session, &inbox, &address, deadline));
            met.inspect_err(|_| drop(domain.end(&session.id)))?;
            domain
        }
        false => {
            let domain = engine.domain(local.ip(), seat)?;
            let expected = domain.expect(session, &inbox);
            control.send(format!("{READY}{}", domain.listening).as_bytes(), &[], deadline)?;
            let met = wait(&domain, session, &inbox, &address, deadline);
            drop(expected);
            met.inspect_err(|_| drop(domain.end(&session.id)))?;
            domain
        }
    };
    log::debug!("{address}: UCX uses {}", domain.device.describe());
    let control = Socket::from_descriptor(control.into_share());
    UcxLink::start(session.id, domain, inbox, control, address, seat)
}

fn hear(control: &mut dyn Control, deadline: Instant) -> Result<SocketAddr> {
    let (ready, _) = control.receive(MAX_READY, deadline)?;
    let text = String::from_utf8_lossy(&ready).into_owned();
    let at = text.strip_prefix(READY).and_then(|address| address.parse().ok());
    at.ok_or_else(|| Error::protocol(format!("{}: {text:?} instead of ucx ready", control.address())))
}

fn wait(
    domain: &Arc<Domain>,
    session: &Session,
    inbox: &Arc<Inbox>,
    address: &str,
    deadline: Instant,
) -> Result<()> {
    if domain.wait_open(&session.id, inbox, deadline, &mut || Ok(()))? {
        return Ok(());
    }
    if let Some(Entry::Broken(error)) = inbox.pop() {
        return Err(Error::new(error.kind, format!("{address}: {}", error.text)));
    }
    if let Some(why) = inbox.failure() {
        return Err(Error::new(Kind::Unreachable, format!("{address}: no connection by UCX: {why}")));
    }
    Err(Error::new(Kind::TimedOut, format!("{address}: the peer did not connect by UCX in time")))
}
