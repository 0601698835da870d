//! Bringing a link up beside an authenticated connection: the listening end says where its UCX listener is, the
//! connecting end connects there and proves that it belongs to the session.
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::Domains;
use super::device::Device;
use super::domain::Domain;
use super::inbox::{Entry, Inbox};
use super::link::UcxLink;
use crate::core::error::{Error, Kind, Result};
use crate::core::log;
use crate::core::transport::{Candidate, Control, Link, Meeting, Met, Seat, Session};
use crate::sys::socket::Socket;

/// What the listening end says, followed by its address.
const READY: &str = "ucx ready 1 ";
/// What the connecting end says when it is through.
const OPEN: &[u8] = b"ucx open 1";
/// The version of the offer.
const VERSION: u8 = 1;

/// The engine's part in one connection.
pub(super) struct Opening {
    domains: Arc<Domains>,
    device: Device,
    at: IpAddr,
    offer: Vec<u8>,
}

impl Opening {
    pub(super) fn new(domains: &Arc<Domains>, device: Device, at: IpAddr) -> Self {
        let mut offer = vec![VERSION];
        offer.extend_from_slice(device.kind().as_bytes());
        Self { domains: Arc::clone(domains), device, at, offer }
    }
}

impl Candidate for Opening {
    fn offer(&self) -> &[u8] {
        &self.offer
    }

    fn unfit(&self, theirs: &[u8]) -> Option<String> {
        match theirs.split_first() {
            Some((&VERSION, kind)) if kind == self.device.kind().as_bytes() => None,
            Some((&VERSION, kind)) => {
                let kind: String =
                    String::from_utf8_lossy(kind).chars().filter(|c| !c.is_control()).collect();
                Some(format!("one end uses {}, the other {kind}", self.device.kind()))
            }
            _ => Some("the other end's version of this engine is another".to_owned()),
        }
    }

    fn meet(self: Box<Self>, meeting: &mut Meeting<'_, '_>) -> Result<Box<dyn Met>> {
        let deadline = meeting.deadline();
        let (session, seat) = (meeting.session().clone(), meeting.seat().clone());
        let connector = session.connector;
        // Before it opens a device the connecting end hears whether the listening end could.
        let to = if connector { Some(hear_address(meeting)?) } else { None };
        let domain = self.domains.get(&self.device, self.at, &seat)?;
        let both = Both { session: Some(session), domain, inbox: Arc::new(Inbox::new()?), seat };
        match to {
            Some(to) => both.call(to, deadline)?,
            None => both.expect(meeting, deadline)?,
        }
        if connector {
            meeting.say(OPEN, &[])?;
        }
        Ok(Box::new(both))
    }
}

fn hear_address(meeting: &mut Meeting<'_, '_>) -> Result<SocketAddr> {
    let (ready, _) = meeting.hear()?;
    let text = String::from_utf8_lossy(&ready).into_owned();
    let at = text.strip_prefix(READY).and_then(|address| address.parse().ok());
    at.ok_or_else(|| Error::protocol(format!("{text:?} instead of ucx ready")))
}

/// Two ends that are connected by UCX, beside the control connection. Disconnected when it is dropped.
struct Both {
    /// None when it has become a link.
    session: Option<Session>,
    domain: Arc<Domain>,
    inbox: Arc<Inbox>,
    seat: Seat,
}

impl Both {
    fn call(&self, to: SocketAddr, deadline: Instant) -> Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        self.domain.turn(None, |port| port.call(session, to, &self.inbox))?;
        let enough = AtomicBool::new(false);
        self.domain.wait_open(&session.id, Some(to), &self.inbox, deadline, &enough);
        self.check()
    }

    /// Waits on the control connection: there the connecting end says whether it could. Meanwhile another thread
    /// moves UCX on.
    fn expect(&self, meeting: &mut Meeting<'_, '_>, deadline: Instant) -> Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let _expected = self.domain.expect(session, &self.inbox);
        meeting.say(format!("{READY}{}", self.domain.listening).as_bytes(), &[])?;
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            let wait = || self.domain.wait_open(&session.id, None, &self.inbox, deadline, &enough);
            let moved = thread::Builder::new().name("nrdma-ucx".into()).spawn_scoped(scope, wait);
            let heard = match moved {
                Ok(_) => meeting.hear_word::<0>(OPEN).map(drop),
                Err(e) => Err(Error::new(Kind::OutOfMemory, format!("no thread: {e}"))),
            };
            enough.store(true, Ordering::Release);
            heard
        })?;
        self.check()
    }

    fn check(&self) -> Result<()> {
        if self.inbox.is_open() {
            return Ok(());
        }
        if let Some(Entry::Broken(error)) = self.inbox.pop() {
            return Err(error);
        }
        Err(match self.inbox.failure() {
            Some(why) => Error::new(Kind::Unreachable, format!("no connection by UCX: {why}")),
            None => Error::new(Kind::TimedOut, "no connection by UCX in time"),
        })
    }
}

impl Met for Both {
    fn start(mut self: Box<Self>, control: Box<dyn Control>) -> Result<Arc<dyn Link>> {
        let address = control.address();
        let control = Socket::from_descriptor(control.into_share());
        let Some(session) = self.session.take() else {
            return Err(Error::invalid("the two ends did not meet"));
        };
        log::debug!("{address}: UCX uses {}", self.domain.device.describe());
        let (domain, inbox) = (Arc::clone(&self.domain), Arc::clone(&self.inbox));
        Ok(UcxLink::start(session.id, domain, inbox, control, address, &self.seat)?)
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        if let Some(ended) = self.session.as_ref().and_then(|session| self.domain.begin_end(&session.id)) {
            self.domain.finish(ended.ep, &ended.exposures);
        }
    }
}
