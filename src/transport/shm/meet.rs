//! From two nodes that have proved themselves to rings that both have mapped: the connector makes the memory,
//! both give a bell.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::area::{Area, Direction};
use super::door::{Door, Knock, Line};
use super::link::{Parts, ShmLink};
use super::place::{self, Place};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Share;
use crate::core::transport::{Candidate, Control, Link, Meeting, Met, Seat, Session};
use crate::sys::socket::Socket;
use crate::sys::wait::Bell;

const OPEN: &[u8] = b"shm open 1";
const OPENED: &[u8] = b"shm opened 1";
/// What the listener says when its door is open.
const HERE: &[u8] = b"shm here 1";
/// What the connector says when it has knocked.
const KNOCKED: &[u8] = b"shm knocked 1";

/// Over a control channel that carries descriptors itself, and stays as the link's socket.
pub(super) struct ByControl;

impl Candidate for ByControl {
    fn meet(self: Box<Self>, meeting: &mut Meeting<'_, '_>) -> Result<Box<dyn Met>> {
        let seat = meeting.seat().clone();
        let connector = meeting.session().connector;
        let halves = exchange(connector, &mut Way::Control(meeting))?;
        Ok(Box::new(Ready { connector, halves, seat, socket: None }))
    }
}

/// By a socket in the directory that both must have.
pub(super) struct ByDoor {
    place: Place,
    offer: [u8; place::BYTES],
    directory: PathBuf,
}

impl ByDoor {
    pub(super) fn new(session: &Session) -> Result<Self> {
        let (place, directory) = Place::here(session)?;
        Ok(Self { offer: place.encode(), place, directory })
    }
}

impl Candidate for ByDoor {
    fn offer(&self) -> &[u8] {
        &self.offer
    }

    fn unfit(&self, theirs: &[u8]) -> Option<String> {
        self.place.far_from(theirs)
    }

    fn meet(self: Box<Self>, meeting: &mut Meeting<'_, '_>) -> Result<Box<dyn Met>> {
        let (session, seat) = (meeting.session().clone(), meeting.seat().clone());
        let deadline = meeting.deadline();
        let line = if session.connector {
            meeting.hear_word::<0>(HERE)?;
            let knock = Knock::new(&self.directory, &session)?;
            meeting.say(KNOCKED, &[])?;
            knock.answered(&session, deadline)?
        } else {
            let door = Door::open(&self.directory, &session)?;
            meeting.say(HERE, &[])?;
            meeting.hear_word::<0>(KNOCKED)?;
            door.let_in(&session)?
        };
        let halves = exchange(session.connector, &mut Way::Line(&line, deadline))?;
        let socket = Some(line.into_socket());
        Ok(Box::new(Ready { connector: session.connector, halves, seat, socket }))
    }
}

/// How descriptors are exchanged.
enum Way<'w, 'm, 'c> {
    Control(&'w mut Meeting<'m, 'c>),
    /// A peer that gives up hangs up.
    Line(&'w Line, Instant),
}

impl Way<'_, '_, '_> {
    fn say(&mut self, word: &[u8], shares: &[&Share]) -> Result<()> {
        match self {
            Way::Control(meeting) => meeting.say(word, shares),
            Way::Line(line, deadline) => line.send(word, shares, *deadline),
        }
    }

    fn hear<const N: usize>(&mut self, expected: &[u8]) -> Result<[Share; N]> {
        let (line, deadline) = match self {
            Way::Control(meeting) => return meeting.hear_word(expected),
            Way::Line(line, deadline) => (line, *deadline),
        };
        let (word, shares) = line.receive(OPEN.len().max(OPENED.len()), deadline)?;
        let count = shares.len();
        match <[Share; N]>::try_from(shares) {
            Ok(shares) if word == expected => Ok(shares),
            _ => Err(Error::protocol(format!(
                "{count} descriptors and {:?} instead of {N} and {:?}",
                String::from_utf8_lossy(&word),
                String::from_utf8_lossy(expected)
            ))),
        }
    }
}

/// What both need of each other.
struct Halves {
    area: Area,
    bell: Bell,
    peer_bell: Bell,
}

fn exchange(connector: bool, way: &mut Way<'_, '_, '_>) -> Result<Halves> {
    let bell = Bell::new().map_err(|e| {
        Error::new(Kind::OutOfMemory, format!("no eventfd: {e}; raise the limit of open files"))
    })?;
    let (area, peer_bell) = if connector {
        let (area, memory) = Area::create()?;
        way.say(OPEN, &[&memory, bell.descriptor()])?;
        let [peer_bell] = way.hear(OPENED)?;
        (area, peer_bell)
    } else {
        let [memory, peer_bell] = way.hear(OPEN)?;
        let area = Area::adopt(&memory)?;
        way.say(OPENED, &[bell.descriptor()])?;
        (area, peer_bell)
    };
    let peer_bell =
        Bell::adopt(peer_bell).map_err(|e| Error::protocol(format!("the peer's bell is of no use: {e}")))?;
    Ok(Halves { area, bell, peer_bell })
}

/// Everything that a link is made of.
struct Ready {
    connector: bool,
    halves: Halves,
    seat: Seat,
    /// None: the control channel's.
    socket: Option<Socket>,
}

impl Met for Ready {
    /// A socket of its own tells of the peer's death as well as the control channel would.
    fn start(self: Box<Self>, control: Box<dyn Control>) -> Result<Arc<dyn Link>> {
        let address = control.address();
        let socket = self.socket.unwrap_or_else(|| Socket::from_descriptor(control.into_share()));
        let (out, into) = match self.connector {
            true => (Direction::FromConnector, Direction::FromListener),
            false => (Direction::FromListener, Direction::FromConnector),
        };
        let Halves { area, bell, peer_bell } = self.halves;
        let parts = Parts { area, out, into, bell, peer_bell, socket, address, seat: self.seat };
        Ok(ShmLink::start(parts)?)
    }
}
