//! Addresses `unix:/path`, `unix:@name` (abstract) and `unix:` (a random name in a directory of our own).
mod address;
mod control;
mod listener;

use std::io;
use std::time::{Duration, Instant};

use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Control, Listener, Network};
use crate::sys::socket::Socket;
use address::Address;
use control::Channel;

/// The network of Unix sockets.
pub(crate) struct Unix;

impl Network for Unix {
    fn handles(&self, address: &str) -> bool {
        address.starts_with(address::SCHEME)
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>> {
        let is_random = address == address::SCHEME;
        Ok(Box::new(listener::Listening::new(Address::to_listen(address)?, is_random)?))
    }

    fn connect(&self, address: &str, deadline: Instant) -> Result<Box<dyn Control>> {
        let address = Address::to_connect(address)?;
        let socket = connect(&address, deadline)?;
        Ok(Box::new(Channel::new(socket, address.to_string())?))
    }
}

fn connect(address: &Address, deadline: Instant) -> Result<Socket> {
    loop {
        // A socket whose connect failed is not promised to be usable again.
        let socket = Socket::new().map_err(|e| failed(address, &e))?;
        match socket.connect(&address.name) {
            Ok(()) => return Ok(socket),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(failed(address, &e)),
        }
        // The listener's queue is full, and there is nothing to wait on.
        if Instant::now() >= deadline {
            let text = format!("{address}: the listener took no connection in time; it is busy or stopped");
            return Err(Error::new(Kind::TimedOut, text));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn failed(address: &Address, e: &io::Error) -> Error {
    let (kind, advice) = match e.raw_os_error() {
        Some(libc::ENOENT | libc::ECONNREFUSED) => {
            (Kind::Unreachable, "nobody listens there; start the other node first")
        }
        Some(libc::EACCES | libc::EPERM) => {
            (Kind::Refused, "the socket belongs to another user; run both nodes as the same one")
        }
        Some(libc::EPROTOTYPE) => (Kind::Unreachable, "that socket is another program's"),
        Some(libc::EMFILE | libc::ENFILE) => (Kind::OutOfMemory, "raise the limit of open files"),
        _ => (Kind::Unreachable, "check the address"),
    };
    Error::new(kind, format!("cannot connect to {address}: {e}; {advice}"))
}

#[cfg(test)]
mod tests;
