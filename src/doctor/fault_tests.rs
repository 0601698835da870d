//! One fixture for each fault: the level, words of the fact, and the remedy that it must give.
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::finding::{Finding, Level};
use super::tests::{CARD, GPU, LOCAL, Tree, config, whole};

/// Breaks one thing.
type Break = fn(&Tree);

/// What breaks, the check, its level, words of the fact, and of the remedy.
const FAULTS: &[(&str, Break, &str, Level, &str, &str)] = &[
    ("memlock", |t| limit(t, "65536"), "memlock", Level::Fail, "at most 64 KiB", "ulimit -l unlimited"),
    (
        "memory full",
        |t| group(t, "memory.max", "1073741824", "memory.current", "1000000000"),
        "cgroup",
        Level::Warn,
        "of 1 GiB",
        "--memory",
    ),
    (
        "few tasks",
        |t| group(t, "pids.max", "100", "pids.current", "90"),
        "cgroup",
        Level::Warn,
        "90 of 100 tasks",
        "--pids-limit",
    ),
    (
        "rdma objects",
        |t| {
            group(
                t,
                "rdma.max",
                "mlx5_0 hca_handle=2 hca_object=2000",
                "rdma.current",
                "mlx5_0 hca_handle=1 hca_object=2000",
            )
        },
        "cgroup",
        Level::Fail,
        "mlx5_0: 2000 of 2000 hca_objects",
        "rdma.max",
    ),
    (
        "small shm",
        |t| put(t, "/proc/self/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0\n"),
        "shm",
        Level::Info,
        "64 MiB",
        "--shm-size",
    ),
    (
        "no huge pages",
        |t| put(t, "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"),
        "hugepages",
        Level::Warn,
        "never",
        "echo madvise",
    ),
    (
        "no uverbs node",
        |t| del(t, "/dev/infiniband/uverbs0"),
        "hca",
        Level::Fail,
        "uverbs0 is not there",
        "--device /dev/infiniband/uverbs0",
    ),
    (
        "no rdma_cm",
        |t| del(t, "/dev/infiniband/rdma_cm"),
        "hca",
        Level::Fail,
        "rdma_cm is not there",
        "--device /dev/infiniband/rdma_cm",
    ),
    (
        "no uverbs at all",
        |t| del(t, "/sys/class/infiniband_verbs"),
        "hca",
        Level::Fail,
        "no uverbs device",
        "modprobe ib_uverbs",
    ),
    (
        "exclusive",
        |t| {
            del(t, "/sys/class/infiniband");
            put(t, "/sys/module/ib_core/parameters/netns_mode", "N");
        },
        "netns",
        Level::Warn,
        "exclusive",
        "netns shared",
    ),
    (
        "no ports",
        |t| del(t, "/sys/class/infiniband/mlx5_0/ports"),
        "netns",
        Level::Fail,
        "shows no port",
        "rdma dev set",
    ),
    ("port down", |t| port(t, "state", "1: DOWN"), "port", Level::Warn, "DOWN", "ip link set roce0 up"),
    (
        "no subnet manager",
        |t| {
            port(t, "link_layer", "InfiniBand");
            port(t, "state", "2: INIT");
        },
        "port",
        Level::Warn,
        "INIT",
        "systemctl start opensm",
    ),
    (
        "no cable",
        |t| {
            port(t, "link_layer", "InfiniBand");
            port(t, "state", "1: DOWN");
            port(t, "phys_state", "2: Polling");
        },
        "port",
        Level::Warn,
        "Polling",
        "ibstat",
    ),
    (
        "link-local",
        |t| {
            for i in 2..4 {
                t.gid("mlx5_0", i, LOCAL, "RoCE v2");
            }
        },
        "gid",
        Level::Fail,
        "only link-local",
        "ip addr add ADDRESS/PREFIX dev roce0",
    ),
    (
        "RoCE v1",
        |t| {
            t.gid("mlx5_0", 3, LOCAL, "RoCE v2");
        },
        "gid",
        Level::Warn,
        "index 2 is 10.77.0.1",
        "cma_roce_mode",
    ),
    (
        "small MTU",
        |t| put(t, "/sys/class/net/roce0/mtu", "1500"),
        "mtu",
        Level::Warn,
        "MTU 1500, so RoCE packets hold 1024",
        "ip link set roce0 mtu 4200",
    ),
    (
        "several ways",
        |t| {
            t.interface("eth1", "up", 1500);
        },
        "iface",
        Level::Info,
        "eth0, eth1",
        "NRDMA_INTERFACE=eth0",
    ),
    (
        "no way",
        |t| {
            for i in ["eth0", "roce0"] {
                put(t, &format!("/sys/class/net/{i}/operstate"), "down");
            }
        },
        "iface",
        Level::Info,
        "no network interface is up",
        "",
    ),
    (
        "wrong interface",
        |t| set(t, "NRDMA_INTERFACE=ib9"),
        "iface",
        Level::Fail,
        "ib9, which is no interface",
        "eth0",
    ),
    (
        "IOMMU",
        |t| {
            put(t, "/sys/class/iommu/dmar0/x", "");
            put(t, &format!("/sys/bus/pci/devices/{GPU}/iommu_group/type"), "DMA-FQ");
        },
        "iommu",
        Level::Warn,
        "0000:41:00.0 is translated by the IOMMU (type DMA-FQ)",
        "iommu=pt",
    ),
    (
        "ACS redirect",
        |t| bytes(t, "/sys/bus/pci/devices/0000:41:01.0/config", config(0x1d)),
        "acs",
        Level::Fail,
        "0000:41:01.0 redirects",
        "setpci -s 0000:41:01.0 ECAP_ACS+0x6.w=0000",
    ),
    (
        "ACS source",
        |t| bytes(t, "/sys/bus/pci/devices/0000:41:02.0/config", config(1)),
        "acs",
        Level::Warn,
        "checks sources",
        "setpci",
    ),
    (
        "ACS unreadable",
        |t| bytes(t, "/sys/bus/pci/devices/0000:41:02.0/config", vec![0; 64]),
        "acs",
        Level::Info,
        "cannot be read",
        "sudo",
    ),
    (
        "other socket",
        |t| put(t, &format!("/sys/bus/pci/devices/{CARD}/numa_node"), "1"),
        "topo",
        Level::Warn,
        "NUMA node 0, not 1",
        "slot",
    ),
    (
        "narrow link",
        |t| {
            for (f, n) in [("current_link_width", "4"), ("max_link_width", "16")] {
                put(t, &format!("/sys/bus/pci/devices/{CARD}/{f}"), n);
            }
        },
        "topo",
        Level::Warn,
        "4 of 16 PCIe lanes",
        "lspci",
    ),
    (
        "no driver",
        |t| del(t, "/proc/driver/nvidia/version"),
        "gpu",
        Level::Warn,
        "no NVIDIA driver",
        "nvidia-driver",
    ),
    ("no GPU node", |t| del(t, "/dev/nvidia0"), "gpu", Level::Fail, "no /dev/nvidia0", "--gpus all"),
    ("no uvm", |t| del(t, "/dev/nvidia-uvm"), "gpu", Level::Fail, "no /dev/nvidia-uvm", "nvidia-modprobe"),
    (
        "no libcuda",
        |t| del(t, "/usr/lib64/libcuda.so.535.104.05"),
        "gpu",
        Level::Fail,
        "no libcuda",
        "compute,utility",
    ),
    (
        "other libcuda",
        |t| {
            del(t, "/usr/lib64/libcuda.so.535.104.05");
            put(t, "/usr/lib64/libcuda.so.550.54.14", "");
        },
        "gpu",
        Level::Fail,
        "libcuda is 550.54.14, the kernel's driver 535.104.05",
        "reboot",
    ),
    (
        "vGPU",
        |t| put(t, "/proc/driver/nvidia/gpus/0/information", "Model: \t NVIDIA A30-8C\n"),
        "gpu",
        Level::Warn,
        "virtual GPU",
        "whole GPU",
    ),
    (
        "two peermem",
        |t| put(t, "/proc/modules", "nvidia_peermem 1 0\nnv_peer_mem 1 0\n"),
        "peermem",
        Level::Warn,
        "both loaded",
        "rmmod nv_peer_mem",
    ),
    (
        "unregistered",
        |t| del(t, "/sys/kernel/mm/memory_peers"),
        "peermem",
        Level::Warn,
        "not registered",
        "reinstall",
    ),
    (
        "old kernel",
        |t| {
            del(t, "/proc/modules");
            put(t, "/proc/sys/kernel/osrelease", "5.4.0-150-generic");
        },
        "peermem",
        Level::Fail,
        "5.4.0-150-generic is older than 5.12",
        "modprobe nvidia-peermem",
    ),
    (
        "no P2PDMA",
        |t| {
            del(t, "/proc/modules");
            put(t, "/boot/config-6.1.0-18-amd64", "# CONFIG_PCI_P2PDMA is not set\n");
        },
        "peermem",
        Level::Fail,
        "without CONFIG_PCI_P2PDMA",
        "CONFIG_PCI_P2PDMA=y",
    ),
    (
        "small BAR1",
        |t| {
            put(t, &format!("/sys/bus/pci/devices/{GPU}/resource"), "0 0 0\n0xd0000000 0xdfffffff 0x14220c\n")
        },
        "bar1",
        Level::Warn,
        "256 MiB",
        "Resizable BAR",
    ),
    ("no UCX", |t| del(t, "/usr/lib64/libucp.so.0"), "ucx", Level::Warn, "libucp.so.0 is not in", "libucx0"),
    (
        "old UCX",
        |t| put(t, "/usr/lib64/pkgconfig/ucx.pc", "Version: 1.10.0\n"),
        "ucx",
        Level::Warn,
        "UCX 1.10",
        "NRDMA_UCX_LIB",
    ),
    (
        "no ib module",
        |t| del(t, "/usr/lib64/ucx/libuct_ib.so.0"),
        "ucx",
        Level::Warn,
        "no module ib",
        "ibverbs-providers",
    ),
    (
        "no cuda module",
        |t| del(t, "/usr/lib64/ucx/libuct_cuda.so.0"),
        "ucx",
        Level::Warn,
        "no module cuda",
        "--with-cuda",
    ),
    (
        "two UCX",
        |t| {
            put(
                t,
                "/proc/self/maps",
                "0-1 r-xp 0 0:0 1 /usr/lib64/libucs.so.0\n1-2 r-xp 0 0:0 2 /opt/ucx/lib/libucs.so.0\n",
            )
        },
        "ucx",
        Level::Fail,
        "2 copies",
        "NRDMA_UCX_LIB",
    ),
    (
        "ptrace",
        |t| put(t, "/proc/sys/kernel/yama/ptrace_scope", "1"),
        "ptrace",
        Level::Info,
        "ptrace_scope is 1",
        "SYS_PTRACE",
    ),
    (
        "huge pages safe",
        |t| set(t, "RDMAV_HUGEPAGES_SAFE=1"),
        "env",
        Level::Warn,
        "RDMAV_HUGEPAGES_SAFE",
        "unset",
    ),
    ("fork safe", |t| set(t, "IBV_FORK_SAFE=1"), "env", Level::Warn, "IBV_FORK_SAFE", "unset IBV_FORK_SAFE"),
    (
        "UCX_TLS without cuda",
        |t| set(t, "UCX_TLS=rc,sm"),
        "env",
        Level::Fail,
        "without cuda_copy",
        "rc,sm,cuda_copy",
    ),
    (
        "UCX_TLS without rdma",
        |t| set(t, "UCX_TLS=tcp,cuda_copy"),
        "env",
        Level::Warn,
        "without an RDMA transport",
        "unset UCX_TLS",
    ),
    (
        "UCX_NET_DEVICES",
        |t| set(t, "UCX_NET_DEVICES=mlx5_7:1"),
        "env",
        Level::Fail,
        "mlx5_7",
        "unset UCX_NET_DEVICES",
    ),
    (
        "engines",
        |t| set(t, "NRDMA_TRANSPORTS=shm,rdma"),
        "env",
        Level::Fail,
        "names rdma",
        "inproc,shm,ucx,tcp",
    ),
    (
        "no token",
        |t| set(t, "NRDMA_AUTH_TOKEN_FILE=/token"),
        "env",
        Level::Fail,
        "not there",
        "nrdma token > /token",
    ),
    (
        "open token",
        |t| token(t, 0o644, "0123456789abcdef0123"),
        "env",
        Level::Fail,
        "other users",
        "chmod 600 /token",
    ),
    ("short token", |t| token(t, 0o600, "secret"), "env", Level::Fail, "fewer than 16", "nrdma token"),
    (
        "virtual machine",
        |t| put(t, "/proc/cpuinfo", "flags\t: fpu hypervisor\n"),
        "vm",
        Level::Info,
        "virtual machine",
        "",
    ),
    (
        "WSL",
        |t| put(t, "/proc/version", "Linux version 5.15-microsoft-standard-WSL2"),
        "vm",
        Level::Info,
        "Windows Subsystem",
        "",
    ),
];

fn put(tree: &Tree, path: &str, text: &str) {
    tree.file(path, text);
}
fn bytes(tree: &Tree, path: &str, bytes: Vec<u8>) {
    tree.file(path, bytes);
}
fn del(tree: &Tree, path: &str) {
    tree.gone(path);
}
fn set(tree: &Tree, entry: &str) {
    tree.file("/proc/self/environ", format!("HOME=/root\0{entry}\0"));
}
pub(super) fn limit(tree: &Tree, bytes: &str) {
    tree.file("/proc/self/limits", format!("Max locked memory         {bytes}  {bytes}  bytes\n"));
}
fn group(tree: &Tree, most: &str, limit: &str, now: &str, used: &str) {
    tree.file(&format!("/sys/fs/cgroup/box/{most}"), limit).file(&format!("/sys/fs/cgroup/box/{now}"), used);
}
pub(super) fn port(tree: &Tree, file: &str, text: &str) {
    tree.file(&format!("/sys/class/infiniband/mlx5_0/ports/1/{file}"), text);
}
fn token(tree: &Tree, mode: u32, text: &str) {
    set(tree, "NRDMA_AUTH_TOKEN_FILE=/token");
    tree.file("/token", text);
    fs::set_permissions(tree.path("/token"), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn each_fault_is_found_with_its_level_and_remedy() {
    let mut wrong = Vec::new();
    for (name, fault, id, level, fact, remedy) in FAULTS {
        let tree = whole();
        fault(&tree);
        let findings = tree.findings();
        let found = |f: &&Finding| {
            f.id == *id && f.level == *level && f.fact.contains(fact) && f.remedy.contains(remedy)
        };
        let Some(found) = findings.iter().find(found) else {
            let own: Vec<_> = findings.iter().filter(|f| f.id == *id).collect();
            wrong.push(format!("{name}: {own:#?}"));
            continue;
        };
        if found.why.is_empty() {
            wrong.push(format!("{name}: does not say why it matters"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(FAULTS.len() >= 50);
}

#[test]
fn every_bad_finding_says_why_and_what_to_do() {
    for (name, fault, ..) in FAULTS {
        let tree = whole();
        fault(&tree);
        for finding in tree.findings().iter().filter(|f| f.level >= Level::Warn) {
            assert!(!finding.why.is_empty() && !finding.remedy.is_empty(), "{name}: {finding:?}");
        }
    }
}
