//! Which device, port and GID to use for an interface, address or network.
#![allow(dead_code)]
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::rdma_device::{Device, Gid, GidType, LinkLayer, Port};

/// An address of a network interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) interface: String,
    pub(crate) ip: IpAddr,
}

/// A port that can be used, and the address that stands for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// `mlx5_0`.
    pub(crate) device: String,
    pub(crate) port: u32,
    pub(crate) link_layer: LinkLayer,
    /// None on InfiniBand, where the subnet manager gives one that needs no choosing.
    pub(crate) gid: Option<Gid>,
    /// What connections are made from and to.
    pub(crate) address: IpAddr,
    /// The interface of that address.
    pub(crate) interface: String,
    /// Of the interface, in bytes; 0 when unknown.
    pub(crate) mtu: u32,
    pub(crate) gigabits: f64,
    pub(crate) numa_node: Option<u32>,
}

impl Choice {
    /// As UCX's NET_DEVICES and the tools of rdma-core name it.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }

    /// For logs.
    pub(crate) fn words(&self) -> String {
        let kind = match &self.gid {
            Some(gid) => format!("{}, GID {} at index {}", gid.kind, gid.bits, gid.index),
            None => self.link_layer.to_string(),
        };
        format!("{} ({kind}) with {} of {}", self.name(), self.address, self.interface)
    }

    /// Better is larger.
    fn rank(&self) -> u32 {
        let v4 = u32::from(self.address.is_ipv4());
        match &self.gid {
            Some(gid) if gid.kind == GidType::RoceV1 => v4,
            _ => 2 + v4,
        }
    }
}

/// What the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    Any,
    /// A network interface (`eth1`, `ib0`), or a device with or without a port (`mlx5_0`, `mlx5_0:1`).
    Name(String),
    Address(IpAddr),
    /// The address and the number of its bits that count.
    Network(IpAddr, u32),
}

impl Wanted {
    /// As in the configuration: an interface, an address, or a network in CIDR notation; empty or `*` is any.
    pub(crate) fn parse(text: &str) -> Self {
        if matches!(text, "" | "*") {
            return Self::Any;
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return if ip.is_unspecified() { Self::Any } else { Self::Address(ip) };
        }
        let network =
            text.split_once('/').and_then(|(ip, bits)| Some((ip.parse().ok()?, bits.parse().ok()?)));
        match network {
            Some((ip, bits)) if bits <= width(ip) => Self::Network(ip, bits),
            _ => Self::Name(text.to_owned()),
        }
    }

    /// Whether a device is named that this is not.
    fn passes_over(&self, device: &Device, port: &Port) -> bool {
        let Self::Name(name) = self else { return false };
        let of_device = *name == device.name || *name == format!("{}:{}", device.name, port.number);
        !of_device && port.net_device(name).is_none()
    }

    fn takes(&self, device: &Device, interface: &str, ip: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Name(name) => name == interface || name.split(':').next() == Some(device.name.as_str()),
            Self::Address(wanted) => *wanted == ip,
            Self::Network(network, bits) => is_in(*network, *bits, ip),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Any => "any interface".to_owned(),
            Self::Name(name) => name.clone(),
            Self::Address(ip) => ip.to_string(),
            Self::Network(ip, bits) => format!("{ip}/{bits}"),
        }
    }
}

fn width(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS }
}

fn is_in(network: IpAddr, bits: u32, ip: IpAddr) -> bool {
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            (network.to_bits() ^ ip.to_bits()) & mask == 0
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            (network.to_bits() ^ ip.to_bits()) & mask == 0
        }
        _ => false,
    }
}

/// The best port for what is wanted: RoCE v2 or InfiniBand before RoCE v1, IPv4 before IPv6, then the faster one, then
/// the first by name. `addresses` are those of this host. Err says of each port why it is not taken.
pub(crate) fn choose(devices: &[Device], addresses: &[Address], wanted: &Wanted) -> Result<Choice, String> {
    if devices.is_empty() {
        return Err("this host has no RDMA device (/sys/class/infiniband is empty)".to_owned());
    }
    let mut best: Option<Choice> = None;
    let mut reasons = Vec::new();
    for device in devices {
        if device.ports.is_empty() {
            reasons.push(format!("{} has no port in this network namespace", device.name));
        }
        for port in &device.ports {
            match of_port(device, port, addresses, wanted) {
                Ok(found) if best.as_ref().is_none_or(|best| is_better(&found, best)) => best = Some(found),
                Ok(_) => {}
                Err(reason) => reasons.push(format!("{}:{} {reason}", device.name, port.number)),
            }
        }
    }
    best.ok_or_else(|| format!("no RDMA port can be used for {}: {}", wanted.words(), reasons.join("; ")))
}

fn is_better(one: &Choice, other: &Choice) -> bool {
    (one.rank(), one.gigabits) > (other.rank(), other.gigabits)
}

fn of_port(device: &Device, port: &Port, addresses: &[Address], wanted: &Wanted) -> Result<Choice, String> {
    if wanted.passes_over(device, port) {
        let names: Vec<&str> = port.net_devices.iter().map(|net| net.name.as_str()).collect();
        return Err(match names.as_slice() {
            [] => "has no network interface".to_owned(),
            names => format!("is {}", names.join(" and ")),
        });
    }
    if !port.is_active() {
        let hint = match (port.state.as_str(), &port.link_layer) {
            ("INIT" | "ARMED", LinkLayer::InfiniBand) => ": is a subnet manager running?",
            (_, LinkLayer::Ethernet) => ": is its network interface up and the cable plugged in?",
            _ => ": is the cable plugged in?",
        };
        return Err(format!("is {} ({}){hint}", port.state, port.physical_state));
    }
    if let Some(why) = &device.closed {
        return Err(format!("cannot be opened: {why}"));
    }
    let candidates = match port.link_layer {
        LinkLayer::Ethernet => over_ethernet(device, port),
        LinkLayer::InfiniBand => over_infiniband(device, port, addresses),
        LinkLayer::Other(_) => Vec::new(),
    };
    let taken = candidates.iter().filter(|found| wanted.takes(device, &found.interface, found.address));
    let best = taken.fold(None, |best: Option<&Choice>, found| match best {
        Some(best) if !is_better(found, best) => Some(best),
        _ => Some(found),
    });
    best.cloned().ok_or_else(|| without(port, &candidates))
}

/// Why none of a port's candidates was taken.
fn without(port: &Port, candidates: &[Choice]) -> String {
    if candidates.is_empty() {
        return match (&port.link_layer, port.net_devices.first()) {
            (LinkLayer::Other(words), _) => format!("has a link layer that nrdma does not know ({words:?})"),
            (LinkLayer::InfiniBand, None) => {
                "has no network interface (modprobe ib_ipoib, and give it an address)".to_owned()
            }
            (_, None) => "has no network interface".to_owned(),
            (_, Some(net)) => {
                format!("has no address beyond its link (ip address add ADDRESS/BITS dev {})", net.name)
            }
        };
    }
    let have: Vec<String> =
        candidates.iter().map(|found| format!("{} of {}", found.address, found.interface)).collect();
    format!("has {}", have.join(", "))
}

/// One candidate for each GID that reaches further than its link.
fn over_ethernet(device: &Device, port: &Port) -> Vec<Choice> {
    let gids = port.gids.iter().filter(|gid| !gid.is_link_local());
    gids.filter_map(|gid| {
        // Without one the address is of a namespace or a driver that does not say: then it is the port's own.
        let own = port.net_devices.first().map(|net| net.name.clone());
        let interface = gid.net_device.clone().or(own)?;
        Some(candidate(device, port, Some(gid.clone()), gid.address()?, interface))
    })
    .collect()
}

/// One candidate for each address of IP over InfiniBand, by which connections are made.
fn over_infiniband(device: &Device, port: &Port, addresses: &[Address]) -> Vec<Choice> {
    let own = addresses.iter().filter(|address| port.net_device(&address.interface).is_some());
    let far = own.filter(|address| !matches!(address.ip, IpAddr::V6(v6) if v6.is_unicast_link_local()));
    far.map(|address| candidate(device, port, None, address.ip, address.interface.clone())).collect()
}

fn candidate(device: &Device, port: &Port, gid: Option<Gid>, address: IpAddr, interface: String) -> Choice {
    Choice {
        device: device.name.clone(),
        port: port.number,
        link_layer: port.link_layer.clone(),
        gid,
        address,
        mtu: port.net_device(&interface).map_or(0, |net| net.mtu),
        interface,
        gigabits: port.gigabits(),
        numa_node: device.numa_node,
    }
}

#[cfg(test)]
#[path = "rdma_choice_tests.rs"]
mod tests;
