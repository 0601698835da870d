//! By what is known of a port, never by its place in a table.
#![allow(clippy::indexing_slicing)]
use super::*;
use crate::sys::rdma_device::tests::{DOWN, Tree, UP, infiniband, mlx5, rxe};

fn addresses(all: &[(&str, &str)]) -> Vec<Address> {
    let address = |&(interface, ip): &(&str, &str)| Address {
        interface: interface.to_owned(),
        ip: ip.parse().unwrap(),
    };
    all.iter().map(address).collect()
}

fn find(tree: &Tree, wanted: &str) -> Result<Choice, String> {
    let addresses =
        addresses(&[("lo", "127.0.0.1"), ("eth1", "10.0.0.5"), ("ib0", "10.8.0.1"), ("ib0", "fe80::1")]);
    choose(&tree.devices(), &addresses, &Wanted::parse(wanted))
}

fn why(tree: &Tree, wanted: &str) -> String {
    find(tree, wanted).unwrap_err()
}

#[test]
fn what_is_wanted_is_understood() {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for (text, wanted) in [
        ("", Wanted::Any),
        ("*", Wanted::Any),
        ("0.0.0.0", Wanted::Any),
        ("::", Wanted::Any),
        ("eth1", Wanted::Name("eth1".into())),
        ("mlx5_0:1", Wanted::Name("mlx5_0:1".into())),
        ("10.0.0.5", Wanted::Address(address("10.0.0.5"))),
        ("2001:db8::5", Wanted::Address(address("2001:db8::5"))),
        ("10.0.0.0/24", Wanted::Network(address("10.0.0.0"), 24)),
        ("10.0.0.0/33", Wanted::Name("10.0.0.0/33".into())),
        ("::/129", Wanted::Name("::/129".into())),
    ] {
        assert_eq!(Wanted::parse(text), wanted, "{text}");
    }
}

#[test]
fn a_gid_is_chosen_by_type_and_address() {
    let tree = mlx5();
    for (wanted, index, interface, mtu) in [
        ("", 3, "eth1", 9000),
        ("eth1", 3, "eth1", 9000),
        ("10.0.0.5", 3, "eth1", 9000),
        ("10.0.0.0/24", 3, "eth1", 9000),
        ("0.0.0.0/0", 3, "eth1", 9000),
        ("mlx5_0", 3, "eth1", 9000),
        ("mlx5_0:1", 3, "eth1", 9000),
        ("2001:db8::5", 5, "eth1", 9000),
        ("2001:db8::/32", 5, "eth1", 9000),
        ("eth1.100", 6, "eth1.100", 1500),
        ("10.1.0.0/16", 6, "eth1.100", 1500),
    ] {
        let choice = find(&tree, wanted).unwrap();
        assert_eq!(choice.gid.as_ref().unwrap().index, index, "{wanted}");
        assert_eq!((choice.interface.as_str(), choice.mtu), (interface, mtu), "{wanted}");
        assert_eq!((choice.name().as_str(), choice.numa_node), ("mlx5_0:1", Some(1)));
    }
    let words = find(&tree, "eth1").unwrap().words();
    assert_eq!(words, "mlx5_0:1 (RoCE v2, GID ::ffff:10.0.0.5 at index 3) with 10.0.0.5 of eth1");
}

/// Another driver's order of the same entries, and v1 where nothing else has the address.
#[test]
fn the_order_of_the_table_says_nothing() {
    let tree = Tree::new();
    tree.net("eth0", 1, 1500, 1);
    tree.device("irdma0", 0, &["eth0"]);
    tree.port("irdma0", 1, UP, "Ethernet", "100 Gb/sec (4X EDR)");
    tree.gid("irdma0/ports/1", 0, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2", Some("eth0"));
    tree.gid("irdma0/ports/1", 1, "0000:0000:0000:0000:0000:ffff:0a00:0005", "IB/RoCE v1", Some("eth0"));
    tree.gid("irdma0/ports/1", 2, "0000:0000:0000:0000:0000:ffff:0a00:0006", "IB/RoCE v1", Some("eth0"));
    assert_eq!(find(&tree, "").unwrap().gid.unwrap().index, 0);
    let choice = find(&tree, "10.0.0.6").unwrap();
    assert_eq!(choice.gid.unwrap().kind, GidType::RoceV1);
}

#[test]
fn the_faster_port_is_taken() {
    let tree = mlx5();
    tree.net("eth3", 1, 1500, 1);
    tree.device("mlx5_2", 2, &["eth3"]);
    tree.port("mlx5_2", 1, UP, "Ethernet", "200 Gb/sec (4X HDR)");
    tree.gid("mlx5_2/ports/1", 0, "0000:0000:0000:0000:0000:ffff:0a00:0009", "RoCE v2", Some("eth3"));
    assert_eq!(find(&tree, "").unwrap().name(), "mlx5_2:1");
    assert_eq!(find(&tree, "10.0.0.0/24").unwrap().name(), "mlx5_2:1");
    assert_eq!(find(&tree, "eth1").unwrap().name(), "mlx5_0:1");
    // But an address that routers know is worth more than speed.
    tree.gid("mlx5_2/ports/1", 0, "0000:0000:0000:0000:0000:ffff:0a00:0009", "IB/RoCE v1", Some("eth3"));
    assert_eq!(find(&tree, "").unwrap().name(), "mlx5_0:1");
}

#[test]
fn infiniband_needs_an_address_to_connect_by() {
    let tree = infiniband();
    for wanted in ["", "ib0", "10.8.0.1", "10.8.0.0/24", "mlx4_0", "mlx4_0:1"] {
        let choice = find(&tree, wanted).unwrap();
        assert_eq!((choice.name().as_str(), choice.gid.as_ref()), ("mlx4_0:1", None), "{wanted}");
        assert_eq!(choice.address.to_string(), "10.8.0.1");
    }
    assert_eq!(find(&tree, "").unwrap().words(), "mlx4_0:1 (InfiniBand) with 10.8.0.1 of ib0");
    let reason = why(&tree, "mlx4_0:2");
    assert!(reason.contains("mlx4_0:2 has no network interface (modprobe ib_ipoib"), "{reason}");
    let reason = choose(&tree.devices(), &[], &Wanted::Any).unwrap_err();
    assert!(reason.contains("mlx4_0:1 has no address beyond its link"), "{reason}");
    tree.port("mlx4_0", 1, ["2: INIT", "5: LinkUp"], "InfiniBand", "56 Gb/sec (4X FDR)");
    let reason = why(&tree, "ib0");
    assert!(reason.contains("mlx4_0:1 is INIT (LinkUp): is a subnet manager running?"), "{reason}");
}

#[test]
fn every_reason_is_told() {
    let reason = why(&Tree::new(), "");
    assert_eq!(reason, "this host has no RDMA device (/sys/class/infiniband is empty)");
    let tree = mlx5();
    let reason = why(&tree, "eth2");
    assert!(
        reason.starts_with("no RDMA port can be used for eth2: mlx5_0:1 is eth1 and eth1.100; "),
        "{reason}"
    );
    assert!(reason.contains("mlx5_1:1 is DOWN (Disabled): is its network interface up"), "{reason}");
    let reason = why(&tree, "10.9.0.0/16");
    assert!(reason.contains("for 10.9.0.0/16: mlx5_0:1 has 10.0.0.5 of eth1, "), "{reason}");
    let reason = why(&rxe(), "eth0");
    assert!(reason.contains("rxe0:1 cannot be opened: /dev/infiniband/uverbs0 is not"), "{reason}");

    // Without an interface, and with link-local addresses only.
    let tree = Tree::new();
    tree.device("odd0", 0, &[]);
    tree.port("odd0", 1, UP, "Ethernet", "10 Gb/sec (1X QDR)");
    let reason = why(&tree, "");
    assert!(reason.contains("odd0:1 has no network interface"), "{reason}");
    assert!(why(&tree, "eth0").contains("odd0:1 has no network interface"));
    tree.net("eth0", 1, 1500, 1);
    tree.gid("odd0/ports/1", 0, "fe80:0000:0000:0000:0ac0:ebff:feda:1cfb", "RoCE v2", Some("eth0"));
    let reason = why(&tree, "eth0");
    assert!(reason.contains("odd0:1 has no address beyond its link (ip address add"), "{reason}");
    tree.device("moved", 1, &[]);
    assert!(why(&tree, "").contains("moved has no port in this network namespace"));
    tree.port("odd0", 1, DOWN, "Ethernet", "10 Gb/sec (1X QDR)");
    assert!(why(&tree, "").contains("odd0:1 is DOWN"));
}

#[test]
fn soft_roce_is_as_good_as_any() {
    let tree = rxe();
    tree.file("dev/infiniband/uverbs0", "");
    let choice = find(&tree, "").unwrap();
    assert_eq!((choice.name().as_str(), choice.address.to_string().as_str()), ("rxe0:1", "10.0.2.15"));
    assert_eq!(choice.gid.unwrap().index, 1);
}
