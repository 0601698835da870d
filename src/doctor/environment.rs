//! Variables that change what libraries below do, mostly left over from somewhere else.
use std::os::unix::fs::PermissionsExt;

use super::device;
use super::finding::Finding;
use super::machine::Machine;

const ENGINES: [&str; 4] = ["inproc", "shm", "ucx", "tcp"];
/// The least length of a token, in bytes.
const TOKEN: u64 = 16;

/// One finding for each variable that matters.
pub(super) fn variables(machine: &Machine) -> Vec<Finding> {
    let mut findings: Vec<Finding> = [
        verbs(machine),
        fork(machine),
        transports(machine),
        devices(machine),
        engines(machine),
        token(machine),
    ]
    .into_iter()
    .flatten()
    .collect();
    if findings.is_empty() {
        findings.push(Finding::ok("env", "no variable changes what nrdma or UCX do by themselves"));
    }
    findings
}

fn verbs(machine: &Machine) -> Option<Finding> {
    let value = machine.variable("RDMAV_HUGEPAGES_SAFE")?;
    Some(
        Finding::warn("env", format!("RDMAV_HUGEPAGES_SAFE is {value}"))
            .why("libibverbs then reads /proc/self/smaps at every registration, which takes milliseconds")
            .remedy("unset RDMAV_HUGEPAGES_SAFE"),
    )
}

fn fork(machine: &Machine) -> Option<Finding> {
    let set =
        ["RDMAV_FORK_SAFE", "IBV_FORK_SAFE"].into_iter().find(|name| machine.variable(name).is_some())?;
    Some(
        Finding::warn("env", format!("{set} is set"))
            .why("it marks registered pages so that children crash on them on older kernels; nrdma does without")
            .remedy(format!("unset {set}")),
    )
}

fn transports(machine: &Machine) -> Option<Finding> {
    let value = machine.variable("UCX_TLS")?;
    let has = |names: &[&str]| value.split(',').any(|word| names.contains(&word.trim()));
    let gpu = machine.root.exists("/proc/driver/nvidia/version");
    if gpu && !value.starts_with('^') && !has(&["all", "cuda", "cuda_copy"]) {
        let fact = format!("UCX_TLS is {value}, without cuda_copy, and there is a GPU");
        let remedy = format!("export UCX_TLS={value},cuda_copy,cuda_ipc    # or unset UCX_TLS");
        return Some(
            Finding::fail("env", fact).why("UCX takes GPU memory for main memory and crashes").remedy(remedy),
        );
    }
    let rdma = !device::all(&machine.root).is_empty();
    if rdma
        && !value.starts_with('^')
        && !has(&["all", "ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "dc"])
    {
        let fact = format!("UCX_TLS is {value}, without an RDMA transport, and there is an RDMA device");
        return Some(
            Finding::warn("env", fact)
                .why("UCX will not use the device")
                .remedy("unset UCX_TLS    # or add rc,ud"),
        );
    }
    Some(
        Finding::info("env", format!("UCX_TLS is {value}"))
            .why("UCX uses these transports only")
            .remedy("unset UCX_TLS"),
    )
}

fn devices(machine: &Machine) -> Option<Finding> {
    let value = machine.variable("UCX_NET_DEVICES").filter(|value| value != "all")?;
    let mut known: Vec<String> = machine.root.list("/sys/class/net");
    known.extend(device::all(&machine.root).into_iter().map(|device| device.name));
    let name_of = |entry: &str| entry.split(':').next().unwrap_or_default().trim().to_owned();
    let missing: Vec<String> = value.split(',').map(name_of).filter(|name| !known.contains(name)).collect();
    if missing.is_empty() {
        return Some(
            Finding::info("env", format!("UCX_NET_DEVICES is {value}")).why("UCX uses these devices only"),
        );
    }
    Some(
        Finding::fail("env", format!("UCX_NET_DEVICES names {}, which this host lacks", missing.join(", ")))
            .why("UCX finds no device and refuses every connection")
            .remedy(format!("unset UCX_NET_DEVICES    # here are: {}", known.join(" "))),
    )
}

fn engines(machine: &Machine) -> Option<Finding> {
    let value = machine.variable("NRDMA_TRANSPORTS")?;
    let unknown: Vec<&str> = value.split(',').map(str::trim).filter(|name| !ENGINES.contains(name)).collect();
    if unknown.is_empty() {
        return Some(
            Finding::info("env", format!("NRDMA_TRANSPORTS is {value}")).why("no other engine is used"),
        );
    }
    Some(
        Finding::fail("env", format!("NRDMA_TRANSPORTS names {}, which is no engine", unknown.join(", ")))
            .why("making a node fails")
            .remedy(format!("export NRDMA_TRANSPORTS={}    # or unset it", ENGINES.join(","))),
    )
}

fn token(machine: &Machine) -> Option<Finding> {
    let file = machine.variable("NRDMA_AUTH_TOKEN_FILE")?;
    let wrong = |fact: String, remedy: String| {
        Some(
            Finding::fail("env", fact).why("nodes that shall meet other hosts cannot be made").remedy(remedy),
        )
    };
    let make = format!("nrdma token > {file}; chmod 600 {file}    # then copy it to every host");
    let Ok(found) = std::fs::metadata(machine.root.path(&file)) else {
        return wrong(format!("NRDMA_AUTH_TOKEN_FILE is {file}, which is not there"), make);
    };
    if found.permissions().mode() & 0o077 != 0 {
        let fact = format!("{file} (NRDMA_AUTH_TOKEN_FILE) can be read by other users");
        return wrong(fact, format!("chmod 600 {file}"));
    }
    if machine.root.text(&file).is_none_or(|text| (text.len() as u64) < TOKEN) {
        return wrong(format!("{file} (NRDMA_AUTH_TOKEN_FILE) holds fewer than {TOKEN} bytes"), make);
    }
    Some(Finding::ok("env", format!("NRDMA_AUTH_TOKEN_FILE is {file}, of mode 0600")))
}
