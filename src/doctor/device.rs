//! RDMA devices, as the checks and `nrdma info` speak of them.
use std::net::Ipv6Addr;

use super::machine::Root;
use crate::sys::rdma_device::{self, GidType, LinkLayer, NetDevice};

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// "mlx5_0".
    pub name: String,
    /// Its node below `/dev/infiniband`: "uverbs0"; None when the kernel made none.
    pub uverbs: Option<String>,
    /// Its place on the PCI bus: "0000:01:00.0"; None for one without hardware.
    pub pci: Option<String>,
    /// The NUMA node that it is at; None when there is only one, or none is known.
    pub numa: Option<u32>,
    /// In order of their numbers.
    pub ports: Vec<Port>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// From 1.
    pub number: u32,
    /// "ACTIVE", "INIT", "DOWN", ...
    pub state: String,
    /// "LinkUp", "Polling", "Disabled", ...
    pub physical: String,
    /// "100 Gb/sec (4X EDR)".
    pub rate: String,
    /// Ethernet (RoCE) rather than InfiniBand.
    pub ethernet: bool,
    /// The port's network interfaces, and their MTU in bytes.
    pub interfaces: Vec<(String, Option<u32>)>,
    /// The entries of the GID table that are set.
    pub gids: Vec<Gid>,
}

/// An entry of a port's table of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// Its 16 bytes; an IPv4 address is mapped.
    pub address: Ipv6Addr,
    /// RoCE version 2, which is routed over UDP.
    pub v2: bool,
    /// The network interface that it belongs to; empty when that is not known.
    pub interface: String,
    link_local: bool,
}

impl Gid {
    /// How well it serves between hosts; 0: not at all.
    fn rank(&self) -> u32 {
        match (self.v2, self.address.to_ipv4_mapped().is_some()) {
            _ if self.link_local => 0,
            (true, true) => 4,
            (true, false) => 3,
            (false, true) => 2,
            (false, false) => 1,
        }
    }
    /// The address as people write it: IPv4 where it is one.
    #[must_use]
    pub fn text(&self) -> String {
        self.address.to_ipv4_mapped().map_or_else(|| self.address.to_string(), |v4| v4.to_string())
    }
}

impl Port {
    /// Whether it can be used now.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
    /// The address to be reached at, by what it is and not by its number: RoCE v2 before v1, IPv4 before IPv6, never
    /// link-local.
    #[must_use]
    pub fn best_gid(&self) -> Option<&Gid> {
        let useful = self.gids.iter().filter(|gid| gid.rank() > 0);
        useful.max_by_key(|gid| (gid.rank(), std::cmp::Reverse(gid.index)))
    }
    /// The bytes of payload in one RoCE packet, by the smallest MTU of the interfaces; None when no MTU is known or
    /// this is no RoCE port.
    #[must_use]
    pub fn roce_mtu(&self) -> Option<u32> {
        let smallest = self.interfaces.iter().filter_map(|(_, mtu)| *mtu).min()?;
        self.ethernet.then(|| roce_mtu(smallest))
    }
}

/// The largest RoCE MTU that fits an interface's, with the headers of a packet; 0 when none does.
pub(super) fn roce_mtu(interface: u32) -> u32 {
    NetDevice { name: String::new(), mtu: interface }.path_mtu()
}

pub(super) fn all(root: &Root) -> Vec<Device> {
    rdma_device::devices(root.folder()).into_iter().map(|found| device(root, found)).collect()
}

fn device(root: &Root, found: rdma_device::Device) -> Device {
    let pci = root.resolved(&format!("/sys/class/infiniband/{}/device", found.name)).and_then(|path| {
        let last = path.file_name()?.to_string_lossy().into_owned();
        super::pci::is_address(&last).then_some(last)
    });
    let uverbs = found.node.and_then(|node| Some(node.file_name()?.to_string_lossy().into_owned()));
    let ports = found.ports.into_iter().map(port).collect();
    Device { name: found.name, uverbs, pci, numa: found.numa_node, ports }
}

fn port(found: rdma_device::Port) -> Port {
    let mtu = |net: NetDevice| (net.name, (net.mtu > 0).then_some(net.mtu));
    Port {
        number: found.number,
        state: found.state,
        physical: found.physical_state,
        rate: found.rate,
        ethernet: found.link_layer == LinkLayer::Ethernet,
        interfaces: found.net_devices.into_iter().map(mtu).collect(),
        gids: found.gids.into_iter().map(gid).collect(),
    }
}

fn gid(found: rdma_device::Gid) -> Gid {
    Gid {
        link_local: found.is_link_local(),
        index: found.index,
        address: found.bits,
        v2: found.kind == GidType::RoceV2,
        interface: found.net_device.unwrap_or_default(),
    }
}
