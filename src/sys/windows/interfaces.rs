//! The network interfaces of this host.
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_BUFFER_OVERFLOW, NO_ERROR};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GAA_FLAG_SKIP_ANYCAST, GAA_FLAG_SKIP_DNS_SERVER, GAA_FLAG_SKIP_MULTICAST, GetAdaptersAddresses,
    IP_ADAPTER_ADDRESSES_LH,
};
use windows_sys::Win32::NetworkManagement::Ndis::IfOperStatusUp;
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, AF_UNSPEC, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6,
};

/// An address of an interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

/// The addresses of this host. An interface has the name that the user sees ("Ethernet 2").
pub(crate) fn interfaces() -> io::Result<Vec<Interface>> {
    let list = adapters()?;
    let mut found = Vec::new();
    let mut next = list.as_ptr().cast::<IP_ADAPTER_ADDRESSES_LH>();
    // SAFETY: an entry of the list that the system made in `list`, or null at its end.
    while let Some(adapter) = unsafe { next.as_ref() } {
        next = adapter.Next;
        if adapter.OperStatus != IfOperStatusUp {
            continue;
        }
        // SAFETY: the system's names are wide C strings.
        let name = unsafe { wide(adapter.FriendlyName) };
        let mut at = adapter.FirstUnicastAddress;
        // SAFETY: as above.
        while let Some(one) = unsafe { at.as_ref() } {
            at = one.Next;
            if let Some(address) = address_of(one.Address.lpSockaddr) {
                found.push(Interface { name: name.clone(), address });
            }
        }
    }
    Ok(found)
}

/// The system's list of adapters, whose first entry is at the start.
fn adapters() -> io::Result<Vec<u64>> {
    let flags = GAA_FLAG_SKIP_ANYCAST | GAA_FLAG_SKIP_MULTICAST | GAA_FLAG_SKIP_DNS_SERVER;
    let mut bytes = 16 * 1024_u32;
    loop {
        let mut list = vec![0_u64; bytes.div_ceil(8) as usize];
        let to = list.as_mut_ptr().cast::<IP_ADAPTER_ADDRESSES_LH>();
        // SAFETY: `to` has room for `bytes`.
        let code = unsafe { GetAdaptersAddresses(u32::from(AF_UNSPEC), flags, ptr::null(), to, &mut bytes) };
        match code {
            NO_ERROR => return Ok(list),
            // `bytes` says how much it takes.
            ERROR_BUFFER_OVERFLOW if bytes < 1 << 24 => {}
            code => return Err(io::Error::from_raw_os_error(code.cast_signed())),
        }
    }
}

/// # Safety
/// `text` is null or ends in a NUL.
unsafe fn wide(text: *const u16) -> String {
    let mut units = Vec::new();
    let mut at = text;
    // SAFETY: null, or inside of the text, which ends in a NUL.
    while let Some(unit) = unsafe { at.as_ref() }.filter(|unit| **unit != 0) {
        units.push(*unit);
        at = at.wrapping_add(1);
    }
    String::from_utf16_lossy(&units)
}

/// What a socket address of the list above says.
fn address_of(raw: *const SOCKADDR) -> Option<IpAddr> {
    // SAFETY: null, or an address that begins with its family.
    let family = unsafe { raw.as_ref() }?.sa_family;
    match family {
        AF_INET => {
            // SAFETY: an address of that family has that type.
            let v4 = unsafe { raw.cast::<SOCKADDR_IN>().read_unaligned() };
            // SAFETY: every member of the union is the same four bytes.
            let bits = unsafe { v4.sin_addr.S_un.S_addr };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(bits))))
        }
        AF_INET6 => {
            // SAFETY: an address of that family has that type.
            let v6 = unsafe { raw.cast::<SOCKADDR_IN6>().read_unaligned() };
            // SAFETY: every member of the union is the same sixteen bytes.
            let bytes = unsafe { v6.sin6_addr.u.Byte };
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// The interface that has an address.
pub(crate) fn name_of(address: IpAddr) -> Option<String> {
    let all = interfaces().ok()?;
    all.into_iter().find(|interface| interface.address == address).map(|interface| interface.name)
}
