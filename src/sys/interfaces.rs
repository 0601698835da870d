//! The network interfaces of this host.
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// An address of an interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

/// The addresses of this host.
pub(crate) fn interfaces() -> io::Result<Vec<Interface>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` is writable.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: a node of the list that getifaddrs made, or null at its end.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as libc::c_uint != 0
            && let Some(address) = address_of(entry.ifa_addr)
        {
            // SAFETY: the list's names are C strings.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
            found.push(Interface { name, address });
        }
    }
    // SAFETY: made by getifaddrs, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// What a socket address of the list above says.
fn address_of(raw: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null, or an address that begins with its family.
    let family = unsafe { raw.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of that family has that type.
            let v4 = unsafe { raw.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of that family has that type.
            let v6 = unsafe { raw.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// The interface that has an address.
pub(crate) fn name_of(address: IpAddr) -> Option<String> {
    let all = interfaces().ok()?;
    all.into_iter().find(|interface| interface.address == address).map(|interface| interface.name)
}
