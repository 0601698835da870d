//! RDMA devices, as sysfs shows them.
use super::machine::Root;

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
    /// "0000:0000:0000:0000:0000:ffff:0a4d:0001".
    pub address: String,
    /// RoCE version 2, which is routed over UDP.
    pub v2: bool,
    /// The network interface that it belongs to; empty when that is not known.
    pub interface: String,
}

impl Gid {
    fn is_link_local(&self) -> bool {
        self.address.starts_with("fe80")
    }
    fn is_ipv4(&self) -> bool {
        self.address.starts_with("0000:0000:0000:0000:0000:ffff:")
    }
    /// How well it serves between hosts; 0: not at all.
    fn rank(&self) -> u32 {
        match (self.v2, self.is_ipv4()) {
            _ if self.is_link_local() => 0,
            (true, true) => 4,
            (true, false) => 3,
            (false, true) => 2,
            (false, false) => 1,
        }
    }
    /// The address as people write it: IPv4 where it is one.
    #[must_use]
    pub fn text(&self) -> String {
        let Some(tail) = self.address.strip_prefix("0000:0000:0000:0000:0000:ffff:") else {
            return self.address.clone();
        };
        match u32::from_str_radix(&tail.replace(':', ""), 16) {
            Ok(number) => std::net::Ipv4Addr::from(number).to_string(),
            Err(_) => self.address.clone(),
        }
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
    const HEADERS: u32 = 96;
    [4096, 2048, 1024, 512, 256].into_iter().find(|mtu| mtu + HEADERS <= interface).unwrap_or(0)
}

pub(super) fn all(root: &Root) -> Vec<Device> {
    root.list("/sys/class/infiniband").into_iter().map(|name| device(root, name)).collect()
}

fn device(root: &Root, name: String) -> Device {
    let base = format!("/sys/class/infiniband/{name}");
    let mut nodes = root.list("/sys/class/infiniband_verbs").into_iter();
    let uverbs = nodes.find(|node| {
        root.text(&format!("/sys/class/infiniband_verbs/{node}/ibdev")).as_deref() == Some(name.as_str())
    });
    let pci = root.resolved(&format!("{base}/device")).and_then(|path| {
        let last = path.file_name()?.to_string_lossy().into_owned();
        super::pci::is_address(&last).then_some(last)
    });
    let numa =
        root.number::<i64>(&format!("{base}/device/numa_node")).and_then(|node| u32::try_from(node).ok());
    let mut ports: Vec<Port> = root
        .list(&format!("{base}/ports"))
        .iter()
        .filter_map(|number| Some(port(root, &base, number.parse().ok()?)))
        .collect();
    ports.sort_by_key(|port| port.number);
    Device { name, uverbs, pci, numa, ports }
}

fn port(root: &Root, base: &str, number: u32) -> Port {
    let at = format!("{base}/ports/{number}");
    // "4: ACTIVE"
    let word = |file: &str| {
        let text = root.text(&format!("{at}/{file}")).unwrap_or_default();
        text.split_once(':').map_or(text.clone(), |(_, word)| word.trim().to_owned())
    };
    let mut gids: Vec<Gid> = root
        .list(&format!("{at}/gids"))
        .iter()
        .filter_map(|index| gid(root, &at, index.parse().ok()?))
        .collect();
    gids.sort_by_key(|gid| gid.index);
    Port {
        number,
        state: word("state"),
        physical: word("phys_state"),
        rate: root.text(&format!("{at}/rate")).unwrap_or_default(),
        ethernet: root.text(&format!("{at}/link_layer")).as_deref() == Some("Ethernet"),
        interfaces: interfaces(root, base, &gids),
        gids,
    }
}

/// An entry of the table; None when it is not set: reading its type then fails.
fn gid(root: &Root, at: &str, index: u32) -> Option<Gid> {
    let address = root.text(&format!("{at}/gids/{index}"))?;
    if address.chars().all(|c| c == '0' || c == ':') {
        return None;
    }
    let kind = root.text(&format!("{at}/gid_attrs/types/{index}"))?;
    let interface = root.text(&format!("{at}/gid_attrs/ndevs/{index}")).unwrap_or_default();
    Some(Gid { index, address, v2: kind.contains("v2"), interface })
}

/// Those of the hardware, or for a device without (Soft-RoCE) those that the table names.
fn interfaces(root: &Root, base: &str, gids: &[Gid]) -> Vec<(String, Option<u32>)> {
    let mut names = root.list(&format!("{base}/device/net"));
    names.extend(gids.iter().map(|gid| gid.interface.clone()).filter(|name| !name.is_empty()));
    names.sort();
    names.dedup();
    names
        .into_iter()
        .map(|name| {
            let mtu = root.number(&format!("/sys/class/net/{name}/mtu"));
            (name, mtu)
        })
        .collect()
}
