//! The text form of a TCP address, and which interface it means.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::lookup::lookup;
use super::sys::{self, Interface};
use crate::core::error::{Error, Kind, Result};

/// How long a name to listen at is looked up.
const PATIENCE: Duration = Duration::from_secs(5);

/// `host:port`; the host is a name, an address (IPv6 in brackets), an interface, a CIDR, or empty or `*` for any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    pub(super) port: u16,
}

impl Address {
    /// Whether a text is meant as one: it ends in a colon and a number.
    pub(super) fn looks_like_one(text: &str) -> bool {
        let port = text.rsplit_once(':').map(|(_, port)| port);
        !text.starts_with("unix:")
            && port.is_some_and(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::invalid(format!("{text:?} is no address: {why}; write host:port"));
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
        let port = port.parse().map_err(|_| wrong("its port is not in 0..65535"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(wrong("an IPv6 address is written in brackets, as in [::1]:4000"));
        }
        if let Some(bare) = bare
            && bare.parse::<Ipv6Addr>().is_err()
        {
            return Err(wrong("what is in brackets is no IPv6 address"));
        }
        Ok(Self { host: bare.unwrap_or(host).to_owned(), port })
    }

    /// What to look up to connect.
    pub(super) fn host(&self) -> &str {
        if self.is_open() { "localhost" } else { &self.host }
    }

    fn is_open(&self) -> bool {
        matches!(self.host.as_str(), "" | "*")
    }

    /// With an interface where this one leaves it open.
    pub(super) fn or_interface(self, interface: &str) -> Self {
        let any = self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        if self.is_open() || any { Self { host: interface.to_owned(), ..self } } else { self }
    }

    /// Where to listen.
    pub(super) fn local(&self) -> Result<SocketAddr> {
        if self.is_open() {
            return Ok(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.port));
        }
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, self.port));
        }
        let interfaces = sys::interfaces().unwrap_or_default();
        if let Some(net) = Net::parse(&self.host) {
            let found = interfaces.iter().find(|i| net.contains(i.address));
            let found = found
                .ok_or_else(|| self.unknown("no interface that is up has an address in it", &interfaces));
            return found.map(|i| SocketAddr::new(i.address, self.port));
        }
        let named = || interfaces.iter().filter(|i| i.name == self.host);
        if let Some(found) = named().find(|i| i.address.is_ipv4()).or_else(|| named().next()) {
            return Ok(SocketAddr::new(found.address, self.port));
        }
        let found = lookup(&self.host, self.port, Instant::now() + PATIENCE).map_err(|e| {
            self.unknown(&format!("it is no interface that is up, and as a name: {}", e.text), &interfaces)
        })?;
        found.first().copied().ok_or_else(|| self.unknown("the name has no address", &interfaces))
    }

    fn unknown(&self, why: &str, interfaces: &[Interface]) -> Error {
        let have: Vec<String> = interfaces.iter().map(|i| format!("{} {}", i.name, i.address)).collect();
        let text = format!("cannot listen at {:?}: {why}; this host has {}", self.host, have.join(", "));
        Error::new(Kind::InvalidParameter, text)
    }
}

/// An address by which others reach what listens at all of them.
pub(super) fn reachable(any: IpAddr) -> IpAddr {
    let interfaces = sys::interfaces().unwrap_or_default();
    let fits = |i: &&Interface| i.address.is_ipv4() == any.is_ipv4() && !i.address.is_loopback();
    match interfaces.iter().find(fits) {
        Some(found) => found.address,
        None if any.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        None => Ipv6Addr::LOCALHOST.into(),
    }
}

/// An address and the bits of it that count.
struct Net {
    address: IpAddr,
    bits: u32,
}

impl Net {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse().ok()?);
        (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self { address, bits })
    }

    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(net), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                (net.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                (net.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> String {
        Address::parse(text).unwrap().local().unwrap().to_string()
    }

    #[test]
    fn what_is_an_address() {
        for yes in ["host:1", "127.0.0.1:0", "[::1]:80", ":4000", "*:4000", "host:99999", "10.0.0.0/8:1"] {
            assert!(Address::looks_like_one(yes), "{yes}");
        }
        for no in ["", "unix:/a:1", "unix:", "host", "host:", "host:http", "tcp://host", "a:1b"] {
            assert!(!Address::looks_like_one(no), "{no}");
        }
        for (wrong, words) in [
            ("host:99999", "0..65535"),
            ("::1:80", "brackets"),
            ("[host]:80", "no IPv6"),
            ("host", "no port"),
        ] {
            let error = Address::parse(wrong).unwrap_err();
            assert!(error.text.contains(words), "{error}");
        }
    }

    #[test]
    fn where_to_listen() {
        assert_eq!(local("127.0.0.1:5"), "127.0.0.1:5");
        assert_eq!(local("[::1]:5"), "[::1]:5");
        assert_eq!(local("*:5"), "0.0.0.0:5");
        assert_eq!(local("lo:5"), "127.0.0.1:5");
        assert_eq!(local("127.0.0.0/8:5"), "127.0.0.1:5");
        assert_eq!(local("0.0.0.0/0:5").rsplit(':').next(), Some("5"));
        let error = Address::parse("nosuch0.invalid:5").unwrap().local().unwrap_err();
        assert!(error.text.contains("lo 127.0.0.1"), "{error}");
        let error = Address::parse("203.0.113.0/24:5").unwrap().local().unwrap_err();
        assert!(error.text.contains("no interface"), "{error}");
    }

    #[test]
    fn the_interface_fills_what_is_open() {
        let with = |text: &str| Address::parse(text).unwrap().or_interface("lo").local().unwrap().to_string();
        assert_eq!(with(":5"), "127.0.0.1:5");
        assert_eq!(with("0.0.0.0:5"), "127.0.0.1:5");
        assert_eq!(with("127.0.0.2:5"), "127.0.0.2:5");
    }
}
