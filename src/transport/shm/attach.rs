//! Turning an authenticated socket into a link: the connector makes the memory, both give a bell.
use std::sync::Arc;
use std::time::Instant;

use super::area::{Area, Direction};
use super::link::{Parts, ShmLink};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Share;
use crate::core::transport::{Control, Seat, Session};
use crate::sys::socket::Socket;
use crate::sys::wait::Bell;

const OPEN: &[u8] = b"shm open 1";
const OPENED: &[u8] = b"shm opened 1";

pub(super) fn attach(
    session: &Session,
    mut control: Box<dyn Control>,
    seat: &Seat,
    deadline: Instant,
) -> Result<Arc<ShmLink>> {
    let bell = Bell::new().map_err(|e| {
        Error::new(Kind::OutOfMemory, format!("no eventfd: {e}; raise the limit of open files"))
    })?;
    let (area, peer_bell) = if session.connector {
        let (area, memory) = Area::create()?;
        control.send(OPEN, &[&memory, bell.descriptor()], deadline)?;
        let [peer_bell] = receive(control.as_mut(), OPENED, deadline)?;
        (area, peer_bell)
    } else {
        let [memory, peer_bell] = receive(control.as_mut(), OPEN, deadline)?;
        let area = Area::adopt(&memory)?;
        control.send(OPENED, &[bell.descriptor()], deadline)?;
        (area, peer_bell)
    };
    let peer_bell =
        Bell::adopt(peer_bell).map_err(|e| Error::protocol(format!("the peer's bell is of no use: {e}")))?;
    let (out, into) = match session.connector {
        true => (Direction::FromConnector, Direction::FromListener),
        false => (Direction::FromListener, Direction::FromConnector),
    };
    let address = control.address();
    let socket = Socket::from_descriptor(control.into_share());
    ShmLink::start(Parts { area, out, into, bell, peer_bell, socket, address, seat: seat.clone() })
}

fn receive<const N: usize>(control: &mut dyn Control, what: &[u8], deadline: Instant) -> Result<[Share; N]> {
    let (message, shares) = control.receive(OPEN.len().max(OPENED.len()), deadline)?;
    let count = shares.len();
    match <[Share; N]>::try_from(shares) {
        Ok(shares) if message == what => Ok(shares),
        _ => Err(Error::protocol(format!(
            "{}: {count} descriptors and {:?} instead of {N} and {:?}",
            control.address(),
            String::from_utf8_lossy(&message),
            String::from_utf8_lossy(what)
        ))),
    }
}
