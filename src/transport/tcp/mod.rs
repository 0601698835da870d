//! Addresses `host:port`, and the engine over TCP: frames on the connection that proved itself, results on a
//! second one, received straight into place.
mod address;
mod attach;
mod control;
mod data;
mod inbox;
mod link;
mod lookup;
mod outbox;
mod record;
mod registry;
mod sys;
mod watch;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Candidate, Control, Engine, Listener, Network, Session, Source};
use address::Address;
use control::Channel;
use lookup::lookup;

/// The network of TCP addresses.
pub(crate) struct Tcp;

impl Network for Tcp {
    fn handles(&self, address: &str) -> bool {
        Address::looks_like_one(address)
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>> {
        Ok(Box::new(Listening::new(address, Address::parse(address)?.local()?)?))
    }

    fn listen_on(&self, address: &str, interface: &str) -> Result<Box<dyn Listener>> {
        let parsed = Address::parse(address)?.or_interface(interface);
        Ok(Box::new(Listening::new(address, parsed.local()?)?))
    }

    fn connect(&self, address: &str, deadline: Instant) -> Result<Box<dyn Control>> {
        let stream = connect(address, deadline)?;
        let channel = Channel::new(stream, true).map_err(|e| failed(address, &e))?;
        Ok(Box::new(channel))
    }
}

/// A listening socket.
struct Listening {
    socket: TcpListener,
    bound: SocketAddr,
    exposed: bool,
}

impl Listening {
    fn new(text: &str, local: SocketAddr) -> Result<Self> {
        let open = || {
            let socket = TcpListener::bind(local)?;
            socket.set_nonblocking(true)?;
            let bound = socket.local_addr()?;
            Ok((socket, bound))
        };
        let (socket, mut bound) = open().map_err(|e: io::Error| cannot_listen(text, &e))?;
        let exposed = !bound.ip().is_loopback();
        if bound.ip().is_unspecified() {
            bound.set_ip(address::reachable(bound.ip()));
        }
        Ok(Self { socket, bound, exposed })
    }
}

impl Listener for Listening {
    fn bound(&self) -> String {
        self.bound.to_string()
    }

    fn is_exposed(&self) -> bool {
        self.exposed
    }

    fn source(&self) -> Source {
        sys::source(&self.socket)
    }

    fn accept(&self) -> Result<Option<Box<dyn Control>>> {
        loop {
            match self.socket.accept() {
                // One that is gone already is no reason to complain.
                Ok((stream, _)) => match Channel::new(stream, false) {
                    Ok(channel) => return Ok(Some(Box::new(channel))),
                    Err(_) => continue,
                },
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
                    let text = format!("{e}; raise the limit of open files");
                    return Err(Error::new(Kind::OutOfMemory, text));
                }
                // The connection's own errors: it is gone, the next one may be well.
                Err(_) => continue,
            }
        }
    }
}

fn connect(address: &str, deadline: Instant) -> Result<TcpStream> {
    let parsed = Address::parse(address)?;
    let found = lookup(parsed.host(), parsed.port, deadline)
        .map_err(|e| Error::new(e.kind, format!("cannot connect to {address}: {}", e.text)))?;
    let mut last = Error::new(Kind::Unreachable, format!("{address}: the name has no address"));
    let mut more = found.len();
    for address_of in found {
        more -= 1;
        // One that does not answer must leave time for the others.
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = if more == 0 { deadline } else { Instant::now() + left / 2 };
        match dial(address_of, limit) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = failed(address, &e),
        }
    }
    Err(last)
}

/// Connects to one address.
fn dial(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let mut wait = Duration::from_millis(1);
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            // Two ends of one port can meet by chance when nobody listens there.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            // The listener's queue was full.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset && wait < left => {
                thread::sleep(wait);
                wait *= 2;
            }
            result => return result,
        }
    }
}

fn failed(address: &str, e: &io::Error) -> Error {
    let (kind, advice) = match e.raw_os_error() {
        Some(libc::ECONNREFUSED) => {
            (Kind::Unreachable, "nobody listens there; start the other node first, or check the port")
        }
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => (Kind::Unreachable, "there is no way to that host"),
        Some(libc::EMFILE | libc::ENFILE) => (Kind::OutOfMemory, "raise the limit of open files"),
        _ if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
            (Kind::TimedOut, "the host does not answer; check the address and firewalls")
        }
        _ => (Kind::Unreachable, "check the address"),
    };
    Error::new(kind, format!("{address}: {e}; {advice}"))
}

fn cannot_listen(address: &str, e: &io::Error) -> Error {
    let (kind, advice) = match e.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            (Kind::AddressInUse, "another process listens there; use another port or 0")
        }
        Some(libc::EADDRNOTAVAIL) => (Kind::InvalidParameter, "no interface of this host has that address"),
        Some(libc::EACCES | libc::EPERM) => {
            (Kind::Refused, "this user may not use that port; use one from 1024 on")
        }
        Some(libc::EMFILE | libc::ENFILE) => (Kind::OutOfMemory, "raise the limit of open files"),
        _ => (Kind::Unreachable, "check the address"),
    };
    Error::new(kind, format!("cannot listen at {address}: {e}; {advice}"))
}

/// The engine.
pub(crate) struct TcpEngine;

impl Engine for TcpEngine {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn offer(&self, _session: &Session, control: &dyn Control) -> Result<Box<dyn Candidate>> {
        match control.more_at() {
            Some(_) => Ok(Box::new(attach::Opening)),
            None => {
                let text = format!("{} is no host:port address", control.address());
                Err(Error::new(Kind::NotSupported, text))
            }
        }
    }
}
