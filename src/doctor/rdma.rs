//! RDMA devices: whether this process may use them, and how their ports are set up.
use std::io;

use super::device::{self, Device, Port};
use super::finding::Finding;
use super::machine::Machine;

const FOLDER: &str = "/dev/infiniband";
const NO_DEVICE: &str = "no RDMA device";

fn no_device(id: &'static str) -> Vec<Finding> {
    vec![Finding::ok(id, format!("nothing to check: {NO_DEVICE}"))]
}

/// Each device's node, and that of the connection manager. One that cannot be used leaves the others alone.
pub(super) fn hca(machine: &Machine) -> Vec<Finding> {
    let devices = device::all(&machine.root);
    if devices.is_empty() {
        let fact = format!("{NO_DEVICE} (nothing in /sys/class/infiniband)");
        return vec![Finding::info("hca", fact).why("processes of one host use shm, others tcp")];
    }
    let mut findings: Vec<Finding> = devices.iter().map(|device| node(machine, device)).collect();
    if let Some(error) = tried(machine, "rdma_cm") {
        findings.push(
            Finding::fail("hca", format!("{FOLDER}/rdma_cm {}", reason(&error)))
                .why("no connection can be made over any RDMA device")
                .remedy(fix(&error, "rdma_cm")),
        );
    }
    findings
}

fn node(machine: &Machine, device: &Device) -> Finding {
    let name = &device.name;
    let Some(uverbs) = &device.uverbs else {
        return Finding::fail("hca", format!("{name} has no uverbs device"))
            .why("the device cannot be used: the kernel's module for user space is missing")
            .remedy("modprobe ib_uverbs");
    };
    match tried(machine, uverbs) {
        None => Finding::ok("hca", format!("{name} can be opened ({FOLDER}/{uverbs})")),
        Some(error) => Finding::fail("hca", format!("{name}: {FOLDER}/{uverbs} {}", reason(&error)))
            .why(format!("{name} is skipped; other devices are used"))
            .remedy(fix(&error, uverbs)),
    }
}

fn tried(machine: &Machine, node: &str) -> Option<io::Error> {
    (machine.probes.open)(&machine.root.path(&format!("{FOLDER}/{node}"))).err()
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "is not there: it was not passed into this container".to_owned(),
        Some(libc::EPERM) => "may not be opened: the device control group forbids it".to_owned(),
        Some(libc::EACCES) => "may not be opened: its file mode forbids it".to_owned(),
        _ => format!("cannot be opened: {error}"),
    }
}

/// Only what is needed: the whole folder would also give away the subnet's management.
fn fix(error: &io::Error, node: &str) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES) => format!("chmod 0666 {FOLDER}/{node}, or add the user to the file's group"),
        _ => format!("docker run --device {FOLDER}/{node}; Kubernetes: an RDMA device plugin"),
    }
}

/// Whether devices are shared between network namespaces.
pub(super) fn netns(machine: &Machine) -> Vec<Finding> {
    let id = "netns";
    let mode = machine.root.text("/sys/module/ib_core/parameters/netns_mode");
    let exclusive = mode.as_deref() == Some("N");
    let devices = device::all(&machine.root);
    let hidden = devices.iter().find(|device| device.ports.is_empty());
    let why = "an RDMA device belongs to one network namespace; a container with another does not see it";
    let remedy = "rdma system set netns shared, or rdma dev set DEVICE netns NAME";
    match (mode, hidden) {
        (_, Some(device)) => {
            let fact = format!("{} is listed but shows no port in this network namespace", device.name);
            vec![Finding::fail(id, fact).why(why).remedy(remedy)]
        }
        (Some(_), None) if exclusive && devices.is_empty() => {
            vec![
                Finding::warn(id, "RDMA devices are exclusive to a network namespace, and this one has none")
                    .why(why)
                    .remedy(remedy),
            ]
        }
        (Some(_), None) => {
            let word = if exclusive { "exclusive to" } else { "shared between" };
            vec![Finding::ok(id, format!("RDMA devices are {word} network namespaces"))]
        }
        (None, None) => vec![Finding::ok(id, "the kernel's RDMA core is not loaded")],
    }
}

/// All ports of all devices, under their names.
fn ports(machine: &Machine) -> Vec<(String, Port)> {
    let devices = device::all(&machine.root).into_iter();
    devices
        .flat_map(|device| {
            let name = device.name;
            device.ports.into_iter().map(move |port| (format!("{name} port {}", port.number), port))
        })
        .collect()
}

fn each(id: &'static str, machine: &Machine, check: fn(&str, &Port) -> Option<Finding>) -> Vec<Finding> {
    let ports = ports(machine);
    if ports.is_empty() {
        return no_device(id);
    }
    let findings: Vec<_> = ports.iter().filter_map(|(name, port)| check(name, port)).collect();
    if findings.is_empty() {
        vec![Finding::ok(id, "nothing to check: no RoCE port is active")]
    } else {
        findings
    }
}

/// The state of each port.
pub(super) fn port(machine: &Machine) -> Vec<Finding> {
    each("port", machine, |name, port| {
        let kind = if port.ethernet { "Ethernet" } else { "InfiniBand" };
        if port.is_active() {
            return Some(Finding::ok("port", format!("{name} is ACTIVE, {kind}, {}", port.rate)));
        }
        let physical = if port.physical.is_empty() { "unknown" } else { &port.physical };
        let fact = format!("{name} is {}, physically {physical} ({kind})", port.state);
        let interface = port.interfaces.first().map_or("INTERFACE", |(name, _)| name.as_str());
        let (why, remedy) = match port.state.as_str() {
            "INIT" | "ARMED" if !port.ethernet => (
                "the link is up, but no subnet manager has set it up",
                "systemctl start opensm    # on one host of the network, or in a switch".to_owned(),
            ),
            _ if port.ethernet => {
                ("no data passes: its interface is down", format!("ip link set {interface} up"))
            }
            _ => (
                "no data passes: no cable, or the other end is off",
                "ibstat    # check cable and switch".to_owned(),
            ),
        };
        Some(Finding::warn("port", fact).why(why).remedy(remedy))
    })
}

/// The address that each RoCE port can be reached at.
pub(super) fn gid(machine: &Machine) -> Vec<Finding> {
    each("gid", machine, |name, port| {
        if !port.ethernet || !port.is_active() {
            return None;
        }
        let interface = port.interfaces.first().map_or("INTERFACE", |(name, _)| name.as_str());
        let Some(best) = port.best_gid() else {
            let fact = format!("{name} has only link-local addresses in its GID table");
            return Some(
                Finding::fail("gid", fact)
                    .why("other hosts cannot reach it by RoCE")
                    .remedy(format!("ip addr add ADDRESS/PREFIX dev {interface}")),
            );
        };
        let chosen = format!("{name}: GID index {} is {} on {}", best.index, best.text(), best.interface);
        if best.v2 {
            return Some(Finding::ok("gid", format!("{chosen} (RoCE v2)")));
        }
        Some(
            Finding::warn("gid", format!("{chosen}, RoCE v1: there is no v2 address"))
                .why("RoCE v1 does not pass routers, and both ends must use the same version")
                .remedy("cma_roce_mode -d DEVICE -p 1 -m 2    # or: rdma link; check the driver's RoCE mode"),
        )
    })
}

/// What a RoCE packet holds.
pub(super) fn mtu(machine: &Machine) -> Vec<Finding> {
    each("mtu", machine, |name, port| {
        if !port.is_active() {
            return None;
        }
        let roce = port.roce_mtu()?;
        let (interface, mtu) = port.interfaces.iter().min_by_key(|(_, mtu)| mtu.unwrap_or(u32::MAX))?;
        let fact =
            format!("{name}: {interface} has MTU {}, so RoCE packets hold {roce} bytes", mtu.unwrap_or(0));
        if roce >= 4096 {
            return Some(Finding::ok("mtu", fact));
        }
        Some(
            Finding::warn("mtu", fact)
                .why("with 4096 about 5 % more bandwidth; every host and switch on the way needs the same")
                .remedy(format!("ip link set {interface} mtu 4200")),
        )
    })
}
