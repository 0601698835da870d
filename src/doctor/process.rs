//! What kind of machine this is, and what the process may do to others.
use super::finding::Finding;
use super::machine::Machine;

/// `CAP_SYS_PTRACE`.
const SYS_PTRACE: u32 = 19;

/// A virtual machine's PCI topology is not the real one, and WSL has no RDMA.
pub(super) fn vm(machine: &Machine) -> Vec<Finding> {
    let id = "vm";
    let version = machine.root.text("/proc/version").unwrap_or_default();
    if version.to_lowercase().contains("microsoft") {
        return vec![
            Finding::info(id, "this is the Windows Subsystem for Linux")
                .why("there is no RDMA and no GPU memory for network cards in it; shm and tcp work"),
        ];
    }
    let cpu = machine.root.text("/proc/cpuinfo").unwrap_or_default();
    let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return vec![Finding::ok(id, "no hypervisor: the PCI topology is the real one")];
    }
    let product = machine
        .root
        .text("/sys/class/dmi/id/sys_vendor")
        .or_else(|| machine.root.text("/sys/hypervisor/type"));
    let product = product.filter(|name| !name.is_empty()).map_or(String::new(), |name| format!(" ({name})"));
    vec![Finding::info(id, format!("this is a virtual machine{product}")).why(
        "its PCI topology may not be the real one: GPU and network card may be farther apart than shown",
    )]
}

/// UCX copies between processes by reading the other's memory, which containers often forbid.
pub(super) fn ptrace(machine: &Machine) -> Vec<Finding> {
    let id = "ptrace";
    let scope = machine.root.number::<u32>("/proc/sys/kernel/yama/ptrace_scope").unwrap_or(0);
    if scope == 0 || machine.capable(SYS_PTRACE) {
        return vec![Finding::ok(id, "processes may read each other's memory (only UCX's cma wants that)")];
    }
    vec![
        Finding::info(
            id,
            format!("processes may not read each other's memory (yama ptrace_scope is {scope})"),
        )
        .why("UCX's cma transport is off; nrdma's shm does not need it")
        .remedy("docker run --cap-add SYS_PTRACE    # only for programs that use UCX's cma"),
    ]
}
