//! The RDMA devices of this host, as the kernel shows them under /sys/class/infiniband.
//!
//! Everything is read below a root directory, `/` outside tests. What cannot be read counts as absent: an entry of a
//! GID table that is not in use cannot be read, and which files there are differs from kernel to kernel.
// The engine's, and later the tool's.
#![allow(dead_code)]
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::environment;

/// Where to look: `/`, or what `NRDMA_SYSROOT` names, with which tests show devices that are not there.
pub(crate) fn root() -> PathBuf {
    environment::setting("NRDMA_SYSROOT").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// What a port's cable carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkLayer {
    InfiniBand,
    /// RoCE or iWARP.
    Ethernet,
    /// In the kernel's words.
    Other(String),
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Other(words) => words,
        })
    }
}

/// How packets that bear a GID are addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GidType {
    InfiniBand,
    /// Over Ethernet without IP: not beyond the next router.
    RoceV1,
    /// Over UDP and IP.
    RoceV2,
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gid {
    /// Its place in the port's table. Says nothing: drivers fill their tables in different orders.
    pub(crate) index: u32,
    pub(crate) kind: GidType,
    pub(crate) bits: Ipv6Addr,
    /// The network interface that it was made from.
    pub(crate) net_device: Option<String>,
}

impl Gid {
    /// The IP address that a RoCE GID is.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self.kind {
            GidType::InfiniBand => None,
            _ => Some(self.bits.to_ipv4_mapped().map_or(IpAddr::V6(self.bits), IpAddr::V4)),
        }
    }

    /// Whether it is good on this link only.
    pub(crate) fn is_link_local(&self) -> bool {
        match self.address() {
            Some(IpAddr::V4(v4)) => v4.is_link_local(),
            _ => self.bits.is_unicast_link_local(),
        }
    }
}

/// A port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    /// From 1.
    pub(crate) number: u32,
    /// In the kernel's words: `ACTIVE`, `DOWN`, `INIT`, ...
    pub(crate) state: String,
    /// In the kernel's words: `LinkUp`, `Disabled`, `Polling`, ...
    pub(crate) physical_state: String,
    pub(crate) link_layer: LinkLayer,
    /// In the kernel's words: `100 Gb/sec (4X EDR)`.
    pub(crate) rate: String,
    /// Those in use.
    pub(crate) gids: Vec<Gid>,
    /// Its network interfaces: the Ethernet port itself and what is stacked on it, or IP over InfiniBand.
    pub(crate) net_devices: Vec<NetDevice>,
}

impl Port {
    pub(crate) fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// In Gbit/s; 0 when the kernel does not say.
    pub(crate) fn gigabits(&self) -> f64 {
        self.rate.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
    }

    pub(crate) fn net_device(&self, name: &str) -> Option<&NetDevice> {
        self.net_devices.iter().find(|device| device.name == name)
    }
}

/// A network interface of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetDevice {
    pub(crate) name: String,
    /// Bytes; 0 when the kernel does not say.
    pub(crate) mtu: u32,
}

impl NetDevice {
    /// The payload of a RoCE packet in bytes that fits this interface's packets; 0 when none does. As the kernel
    /// counts, 96 bytes of it may be headers.
    pub(crate) fn path_mtu(&self) -> u32 {
        [4096, 2048, 1024, 512, 256].into_iter().find(|payload| payload + 96 <= self.mtu).unwrap_or(0)
    }
}

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// `mlx5_0`, `rxe0`, ...
    pub(crate) name: String,
    pub(crate) ports: Vec<Port>,
    /// None when it is near no node, or near all.
    pub(crate) numa_node: Option<u32>,
    /// Where programs open it.
    pub(crate) node: Option<PathBuf>,
    /// Why this process cannot open it, and what to do.
    pub(crate) closed: Option<String>,
}

/// The devices in order of their names; empty when there are none. The kernel shows those of this network namespace
/// only.
pub(crate) fn devices(root: &Path) -> Vec<Device> {
    let class = root.join("sys/class/infiniband");
    names(&class).into_iter().map(|name| device(root, &class.join(&name), name)).collect()
}

fn device(root: &Path, at: &Path, name: String) -> Device {
    let uverbs = root.join("sys/class/infiniband_verbs");
    let node = names(&uverbs).into_iter().find(|node| word(&uverbs.join(node).join("ibdev")) == name);
    let node = node.map(|node| root.join("dev/infiniband").join(node));
    let parents = net_names(at);
    let mut numbers: Vec<u32> =
        names(&at.join("ports")).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let port = |&number: &u32| port(root, &at.join("ports").join(number.to_string()), number, &parents);
    Device {
        ports: numbers.iter().map(port).collect(),
        numa_node: word(&at.join("device/numa_node")).parse().ok(),
        closed: match &node {
            Some(node) => open_error(root, node),
            None => Some("the module ib_uverbs is not loaded (modprobe ib_uverbs)".to_owned()),
        },
        node,
        name,
    }
}

/// The network interfaces of the same card.
fn net_names(device: &Path) -> Vec<String> {
    let mut found = names(&device.join("device/net"));
    // Soft-RoCE has no card, but names its interface.
    let parent = word(&device.join("parent"));
    if !parent.is_empty() && !found.contains(&parent) {
        found.push(parent);
    }
    found
}

fn open_error(root: &Path, node: &Path) -> Option<String> {
    let error = OpenOptions::new().read(true).write(true).open(node).err()?;
    let path = Path::new("/").join(node.strip_prefix(root).unwrap_or(node));
    let path = path.display();
    Some(match error.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "{path} is not in this container (start it with --device {path} --device /dev/infiniband/rdma_cm)"
            )
        }
        io::ErrorKind::PermissionDenied if error.raw_os_error() == Some(libc::EPERM) => {
            format!("this container may not open {path} (start it with --device {path})")
        }
        io::ErrorKind::PermissionDenied => {
            format!("this user may not open {path} (join the group that owns it, often rdma)")
        }
        _ => format!("{path} cannot be opened: {error}"),
    })
}

fn port(root: &Path, at: &Path, number: u32, parents: &[String]) -> Port {
    let link_layer = match word(&at.join("link_layer")).as_str() {
        "InfiniBand" => LinkLayer::InfiniBand,
        "Ethernet" => LinkLayer::Ethernet,
        other => LinkLayer::Other(other.to_owned()),
    };
    let gids = gids(at, &link_layer);
    let of_port = |name: &&String| belongs(root, name, number, &link_layer);
    let mut names: Vec<&String> = parents.iter().filter(of_port).collect();
    for name in gids.iter().filter_map(|gid| gid.net_device.as_ref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Port {
        number,
        state: meaning(&word(&at.join("state"))),
        physical_state: meaning(&word(&at.join("phys_state"))),
        rate: word(&at.join("rate")),
        net_devices: names.into_iter().map(|name| net_device(root, name)).collect(),
        gids,
        link_layer,
    }
}

/// Whether a network interface of the card is this port's: of this kind, and of this number.
fn belongs(root: &Path, name: &str, number: u32, link_layer: &LinkLayer) -> bool {
    const ARPHRD_INFINIBAND: &str = "32";
    let at = root.join("sys/class/net").join(name);
    let over_infiniband = word(&at.join("type")) == ARPHRD_INFINIBAND;
    let decimal = word(&at.join("dev_port")).parse().unwrap_or(0_u32);
    let hexadecimal = word(&at.join("dev_id"));
    let hexadecimal = u32::from_str_radix(hexadecimal.trim_start_matches("0x"), 16).unwrap_or(0);
    // Older kernels have told the port in dev_id.
    over_infiniband == (*link_layer == LinkLayer::InfiniBand) && decimal.max(hexadecimal) + 1 == number
}

fn net_device(root: &Path, name: &str) -> NetDevice {
    let mtu = word(&root.join("sys/class/net").join(name).join("mtu")).parse().unwrap_or(0);
    NetDevice { name: name.to_owned(), mtu }
}

fn gids(port: &Path, link_layer: &LinkLayer) -> Vec<Gid> {
    let mut indices: Vec<u32> =
        names(&port.join("gids")).iter().filter_map(|name| name.parse().ok()).collect();
    indices.sort_unstable();
    indices.into_iter().filter_map(|index| gid(port, index, link_layer)).collect()
}

fn gid(port: &Path, index: u32, link_layer: &LinkLayer) -> Option<Gid> {
    let entry = |table: &str| word(&port.join(table).join(index.to_string()));
    let bits: Ipv6Addr = entry("gids").parse().ok()?;
    if bits.is_unspecified() {
        return None;
    }
    let kind = match (entry("gid_attrs/types").as_str(), link_layer) {
        ("RoCE v2", _) => GidType::RoceV2,
        // One name for both.
        ("IB/RoCE v1", LinkLayer::InfiniBand) => GidType::InfiniBand,
        ("IB/RoCE v1" | "RoCE v1", _) => GidType::RoceV1,
        (_, LinkLayer::InfiniBand) => GidType::InfiniBand,
        // Not in use.
        _ => return None,
    };
    let net_device = Some(entry("gid_attrs/ndevs")).filter(|name| !name.is_empty());
    Some(Gid { index, kind, bits, net_device })
}

/// `4: ACTIVE` means ACTIVE.
fn meaning(text: &str) -> String {
    text.split_once(": ").map_or(text, |(_, words)| words).to_owned()
}

fn word(file: &Path) -> String {
    fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
#[path = "rdma_device_tests.rs"]
pub(crate) mod tests;
