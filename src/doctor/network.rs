//! Network interfaces that other hosts may reach this one by.
use super::finding::Finding;
use super::machine::{Machine, Root};

/// An interface that is up and is no loopback.
struct Interface {
    name: String,
    mbit: Option<u64>,
    hardware: bool,
}

fn interface(root: &Root, name: String) -> Option<Interface> {
    let at = format!("/sys/class/net/{name}");
    let state = root.text(&format!("{at}/operstate"))?;
    let up = state == "up" || (state == "unknown" && name != "lo");
    let bridge = root.exists(&format!("{at}/bridge"));
    // Loopback, Ethernet: ARPHRD_ETHER 1, ARPHRD_INFINIBAND 32.
    let wire = matches!(root.number::<u32>(&format!("{at}/type")), Some(1 | 32) | None);
    let mbit =
        root.number::<i64>(&format!("{at}/speed")).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let hardware = root.exists(&format!("{at}/device"));
    (up && !bridge && wire && name != "lo").then_some(Interface { name, mbit, hardware })
}

impl Interface {
    fn text(&self) -> String {
        match self.mbit {
            Some(mbit) if mbit >= 1000 => format!("{} ({} Gb/s)", self.name, mbit as f64 / 1000.0),
            Some(mbit) => format!("{} ({mbit} Mb/s)", self.name),
            None => self.name.clone(),
        }
    }
}

/// Which interface other hosts reach; more than one that fits wants a choice.
pub(super) fn iface(machine: &Machine) -> Vec<Finding> {
    let id = "iface";
    let names = machine.root.list("/sys/class/net");
    let mut fit: Vec<Interface> =
        names.iter().filter_map(|name| interface(&machine.root, name.clone())).collect();
    // Bridges' and containers' ends of cables are no way to another host where there is a real one.
    if fit.iter().any(|interface| interface.hardware) {
        fit.retain(|interface| interface.hardware);
    }
    let list = fit.iter().map(Interface::text).collect::<Vec<_>>().join(", ");
    if let Some(chosen) = machine.variable("NRDMA_INTERFACE") {
        let is_address = chosen.contains(['/', ':']) || chosen.parse::<std::net::IpAddr>().is_ok();
        if !is_address && !names.contains(&chosen) {
            let fact = format!("NRDMA_INTERFACE is {chosen}, which is no interface here");
            let remedy = format!("export NRDMA_INTERFACE=NAME    # of: {}", names.join(" "));
            return vec![Finding::fail(id, fact).why("listening for other hosts will fail").remedy(remedy)];
        }
        return vec![Finding::ok(id, format!("NRDMA_INTERFACE chooses {chosen}; up: {list}"))];
    }
    match fit.as_slice() {
        [] => vec![
            Finding::info(id, "no network interface is up but the loopback")
                .why("only processes of this host can be reached"),
        ],
        [one] => vec![Finding::ok(id, format!("{} is the way to other hosts", one.text()))],
        [first, ..] => vec![
            Finding::info(id, format!("several interfaces lead away: {list}"))
                .why("a node that listens at all of them (\":4000\") tells others the first that is up")
                .remedy(format!("export NRDMA_INTERFACE={}    # name, address or CIDR", first.name)),
        ],
    }
}
