//! Addresses as the system writes them.
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;

use super::ffi::ucs_sock_addr_t;

/// A socket address in the system's layout.
pub(super) enum Raw {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Raw {
    pub(super) fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Self::V6(libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    /// For a call, during which this lives.
    pub(super) fn borrow(&self) -> ucs_sock_addr_t {
        let (addr, len) = match self {
            Self::V4(v4) => (ptr::from_ref(v4).cast(), size_of::<libc::sockaddr_in>()),
            Self::V6(v6) => (ptr::from_ref(v6).cast(), size_of::<libc::sockaddr_in6>()),
        };
        ucs_sock_addr_t { addr, addrlen: libc::socklen_t::try_from(len).unwrap_or_default() }
    }
}

fn family(number: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).unwrap_or_default()
}

/// What an answer of the system says, when it is an internet address.
pub(super) fn from_raw(raw: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(raw.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of that family has that type, and any bytes are one.
            let v4: libc::sockaddr_in = unsafe { mem::transmute_copy(raw) };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6: libc::sockaddr_in6 = unsafe { mem::transmute_copy(raw) };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::new(IpAddr::V6(ip), u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_system() {
        for text in ["10.1.2.3:4567", "[fe80::1]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = Raw::of(address);
            let borrowed = raw.borrow();
            // SAFETY: all zeroes is an address of no family.
            let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
            // SAFETY: as many bytes as both have.
            unsafe {
                ptr::copy_nonoverlapping(
                    borrowed.addr.cast::<u8>(),
                    ptr::from_mut(&mut storage).cast(),
                    borrowed.addrlen as usize,
                );
            }
            assert_eq!(from_raw(&storage), Some(address));
        }
    }
}
