//! Devices as the kernel shows them, in trees made for the test.
#![allow(clippy::indexing_slicing)]
use super::*;
use crate::sys::runtime_dir::tests::Scratch;

/// A root directory with what is written into it.
pub(crate) struct Tree(Scratch);

impl Tree {
    pub(crate) fn new() -> Self {
        Self(Scratch::new())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0.0
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// A network interface: `kind` 1 is Ethernet, 32 InfiniBand.
    pub(crate) fn net(&self, name: &str, kind: u32, mtu: u32, port: u32) {
        let at = format!("sys/class/net/{name}");
        self.file(&format!("{at}/type"), &kind.to_string());
        self.file(&format!("{at}/mtu"), &mtu.to_string());
        self.file(&format!("{at}/dev_port"), &(port - 1).to_string());
        self.file(&format!("{at}/dev_id"), "0x0");
    }

    /// What every device has; `nets` are the interfaces of its card.
    pub(crate) fn device(&self, name: &str, number: u32, nets: &[&str]) {
        let at = format!("sys/class/infiniband/{name}");
        self.file(&format!("{at}/device/numa_node"), "1");
        for net in nets {
            self.file(&format!("{at}/device/net/{net}/ifindex"), "3");
        }
        self.file(&format!("sys/class/infiniband_verbs/uverbs{number}/ibdev"), name);
        self.file(&format!("dev/infiniband/uverbs{number}"), "");
    }

    pub(crate) fn port(&self, device: &str, number: u32, state: [&str; 2], link_layer: &str, rate: &str) {
        let at = format!("sys/class/infiniband/{device}/ports/{number}");
        self.file(&format!("{at}/state"), state[0]);
        self.file(&format!("{at}/phys_state"), state[1]);
        self.file(&format!("{at}/link_layer"), link_layer);
        self.file(&format!("{at}/rate"), rate);
        // The kernel's tables are long, and what is not in use cannot be read.
        self.file(&format!("{at}/gids/254"), "0000:0000:0000:0000:0000:0000:0000:0000");
        fs::create_dir_all(self.root().join(format!("{at}/gid_attrs/types/254"))).unwrap();
        fs::create_dir_all(self.root().join(format!("{at}/gid_attrs/ndevs/254"))).unwrap();
    }

    pub(crate) fn gid(&self, port: &str, index: u32, bits: &str, kind: &str, net: Option<&str>) {
        let at = format!("sys/class/infiniband/{port}");
        self.file(&format!("{at}/gids/{index}"), bits);
        self.file(&format!("{at}/gid_attrs/types/{index}"), kind);
        match net {
            Some(net) => self.file(&format!("{at}/gid_attrs/ndevs/{index}"), net),
            None => {
                fs::create_dir_all(self.root().join(format!("{at}/gid_attrs/ndevs/{index}"))).unwrap();
            }
        }
    }

    pub(crate) fn devices(&self) -> Vec<Device> {
        devices(self.root())
    }
}

pub(crate) const UP: [&str; 2] = ["4: ACTIVE", "5: LinkUp"];
pub(crate) const DOWN: [&str; 2] = ["1: DOWN", "3: Disabled"];
const LOCAL: &str = "fe80:0000:0000:0000:0ac0:ebff:feda:1cfb";

/// Two cards of one port each, as mlx5 fills its tables; the second one's port is down.
pub(crate) fn mlx5() -> Tree {
    let tree = Tree::new();
    tree.net("eth1", 1, 9000, 1);
    tree.net("eth1.100", 1, 1500, 1);
    tree.net("eth2", 1, 1500, 1);
    tree.device("mlx5_0", 0, &["eth1"]);
    tree.port("mlx5_0", 1, UP, "Ethernet", "100 Gb/sec (4X EDR)");
    let port = "mlx5_0/ports/1";
    tree.gid(port, 0, LOCAL, "IB/RoCE v1", Some("eth1"));
    tree.gid(port, 1, LOCAL, "RoCE v2", Some("eth1"));
    tree.gid(port, 2, "0000:0000:0000:0000:0000:ffff:0a00:0005", "IB/RoCE v1", Some("eth1"));
    tree.gid(port, 3, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2", Some("eth1"));
    tree.gid(port, 4, "2001:0db8:0000:0000:0000:0000:0000:0005", "IB/RoCE v1", Some("eth1"));
    tree.gid(port, 5, "2001:0db8:0000:0000:0000:0000:0000:0005", "RoCE v2", Some("eth1"));
    tree.gid(port, 6, "0000:0000:0000:0000:0000:ffff:0a01:0005", "RoCE v2", Some("eth1.100"));
    tree.device("mlx5_1", 1, &["eth2"]);
    tree.port("mlx5_1", 1, DOWN, "Ethernet", "40 Gb/sec (4X QDR)");
    tree.gid("mlx5_1/ports/1", 0, LOCAL, "IB/RoCE v1", Some("eth2"));
    tree
}

/// A card with two InfiniBand ports, the second without IP.
pub(crate) fn infiniband() -> Tree {
    let tree = Tree::new();
    tree.net("ib0", 32, 2044, 1);
    tree.device("mlx4_0", 0, &["ib0"]);
    for number in [1, 2] {
        tree.port("mlx4_0", number, UP, "InfiniBand", "56 Gb/sec (4X FDR)");
        let bits = format!("fe80:0000:0000:0000:0002:c903:0000:000{number}");
        tree.gid(&format!("mlx4_0/ports/{number}"), 0, &bits, "IB/RoCE v1", None);
    }
    tree
}

/// Soft-RoCE, which has no card and, in containers, no uverbs either.
pub(crate) fn rxe() -> Tree {
    let tree = Tree::new();
    tree.net("eth0", 1, 1500, 1);
    tree.file("sys/class/infiniband/rxe0/parent", "eth0");
    tree.port("rxe0", 1, UP, "Ethernet", "2.5 Gb/sec (1X SDR)");
    tree.gid("rxe0/ports/1", 0, LOCAL, "RoCE v2", Some("eth0"));
    tree.gid("rxe0/ports/1", 1, "0000:0000:0000:0000:0000:ffff:0a00:020f", "RoCE v2", Some("eth0"));
    tree.file("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0");
    tree
}

#[test]
fn a_host_without_devices_has_none() {
    assert!(Tree::new().devices().is_empty());
    let tree = Tree::new();
    fs::create_dir_all(tree.root().join("sys/class/infiniband")).unwrap();
    assert!(tree.devices().is_empty());
}

#[test]
fn ethernet_ports_are_read() {
    let devices = mlx5().devices();
    assert_eq!(devices.len(), 2);
    let device = &devices[0];
    assert_eq!((device.name.as_str(), device.numa_node, &device.closed), ("mlx5_0", Some(1), &None));
    assert!(device.node.as_ref().unwrap().ends_with("dev/infiniband/uverbs0"));
    let port = &device.ports[0];
    assert!(port.is_active());
    assert_eq!(port.link_layer, LinkLayer::Ethernet);
    assert_eq!((port.number, port.gigabits(), port.physical_state.as_str()), (1, 100.0, "LinkUp"));
    // What is not in use is left out.
    assert_eq!(port.gids.len(), 7);
    let gid = &port.gids[3];
    assert_eq!((gid.index, gid.kind, gid.net_device.as_deref()), (3, GidType::RoceV2, Some("eth1")));
    assert_eq!(gid.address().unwrap().to_string(), "10.0.0.5");
    assert_eq!(port.gids[5].address().unwrap().to_string(), "2001:db8::5");
    assert!(port.gids[0].is_link_local() && !gid.is_link_local());
    assert_eq!(port.gids[2].kind, GidType::RoceV1);
    let nets: Vec<_> = port.net_devices.iter().map(|net| (net.name.as_str(), net.path_mtu())).collect();
    assert_eq!(nets, [("eth1", 4096), ("eth1.100", 1024)]);
    let port = &devices[1].ports[0];
    assert_eq!(
        (port.is_active(), port.state.as_str(), port.physical_state.as_str()),
        (false, "DOWN", "Disabled")
    );
}

#[test]
fn infiniband_ports_are_read() {
    let devices = infiniband().devices();
    let ports = &devices[0].ports;
    assert_eq!(ports.len(), 2);
    assert!(ports.iter().all(|port| port.link_layer == LinkLayer::InfiniBand && port.is_active()));
    assert_eq!(ports[0].gids[0].kind, GidType::InfiniBand);
    assert_eq!(ports[0].gids[0].address(), None);
    assert_eq!(ports[0].net_devices.len(), 1);
    assert!(ports[1].net_devices.is_empty());
}

#[test]
fn older_kernels_tell_the_port_in_dev_id() {
    let tree = infiniband();
    tree.net("ib1", 32, 2044, 1);
    tree.file("sys/class/net/ib1/dev_id", "0x1");
    tree.file("sys/class/infiniband/mlx4_0/device/net/ib1/ifindex", "4");
    let devices = tree.devices();
    assert_eq!(devices[0].ports[1].net_devices[0].name, "ib1");
    assert_eq!(devices[0].ports[0].net_devices.len(), 1);
}

#[test]
fn a_device_that_cannot_be_opened_says_why() {
    let device = &rxe().devices()[0];
    assert_eq!((device.name.as_str(), device.numa_node), ("rxe0", None));
    let why = device.closed.as_ref().unwrap();
    assert!(why.contains("/dev/infiniband/uverbs0 is not in this container"), "{why}");
    assert!(why.contains("--device /dev/infiniband/uverbs0"), "{why}");
    assert_eq!(device.ports[0].net_devices[0].name, "eth0");
    let tree = rxe();
    fs::remove_dir_all(tree.root().join("sys/class/infiniband_verbs")).unwrap();
    assert!(tree.devices()[0].closed.as_ref().unwrap().contains("modprobe ib_uverbs"));
}

#[test]
fn rubbish_is_not_believed() {
    let tree = Tree::new();
    for file in ["state", "rate", "link_layer", "gids/0", "gids/x", "gid_attrs/types/0"] {
        tree.file(&format!("sys/class/infiniband/odd/ports/1/{file}"), "rubbish: \u{fffd}");
    }
    tree.file("sys/class/infiniband/odd/ports/none/state", "4: ACTIVE");
    tree.file("sys/class/infiniband/file", "");
    let devices = tree.devices();
    assert_eq!(devices.len(), 2);
    assert!(devices[0].ports.is_empty());
    let port = &devices[1].ports[0];
    assert_eq!(devices[1].ports.len(), 1);
    assert!(!port.is_active() && port.gids.is_empty() && port.gigabits() == 0.0);
    assert_eq!(port.link_layer, LinkLayer::Other("rubbish: \u{fffd}".to_owned()));
}

#[test]
fn packets_fit_the_interface() {
    for (mtu, path) in
        [(1500, 1024), (2200, 2048), (4200, 4096), (9000, 4096), (1300, 1024), (300, 0), (0, 0)]
    {
        assert_eq!(NetDevice { name: String::new(), mtu }.path_mtu(), path, "{mtu}");
    }
}
