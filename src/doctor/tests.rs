//! A machine that is only files, and what is found on it when nothing is wrong; the faults are in `fault_tests`.
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::roce_mtu;
use super::fault_tests::{limit, port};
use super::finding::{Finding, Level};
use super::machine::{Machine, size};
use super::pci::{AccessControl, access_control, is_address};
use super::{CHECKS, devices, examine};

/// A machine that is only files, without anything wrong.
pub(super) struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) const GPU: &str = "0000:41:00.0";
pub(super) const CARD: &str = "0000:42:00.0";
const BRIDGES: &str = "/sys/devices/pci0000:40/0000:40:01.0";
const IPV4: &str = "0000:0000:0000:0000:0000:ffff:0a4d:0001";
pub(super) const LOCAL: &str = "fe80:0000:0000:0000:0ac0:ebff:feda:1cfb";
const UNSET: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

impl Tree {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("nrdma-doctor-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let tree = Self(std::env::temp_dir().join(name));
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         unlimited  unlimited  bytes\n";
        tree.file("/proc/self/limits", limits)
            .file("/proc/self/status", "CapEff:\t0000000000000000\n")
            .file("/proc/self/environ", "HOME=/root\0")
            .file("/proc/self/mounts", "tmpfs /dev/shm tmpfs rw,size=8388608k 0 0\n")
            .file("/proc/self/cgroup", "0::/box\n")
            .file("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
            .file("/boot/config-6.1.0-18-amd64", "CONFIG_PCI_P2PDMA=y\n")
            .file("/proc/cpuinfo", "flags\t\t: fpu sse2\n")
            .file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
            .interface("eth0", "up", 1500);
        tree
    }
    pub(super) fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }
    pub(super) fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.path(target), path).unwrap();
        self
    }
    pub(super) fn gone(&self, path: &str) -> &Self {
        let path = self.path(path);
        fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).unwrap();
        self
    }
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
    pub(super) fn interface(&self, name: &str, state: &str, mtu: u32) -> &Self {
        let base = format!("/sys/class/net/{name}");
        self.file(&format!("{base}/operstate"), state)
            .file(&format!("{base}/mtu"), mtu.to_string())
            .file(&format!("{base}/device/vendor"), "0x15b3")
    }
    /// A PCI function below two bridges: the root port, and one of its own.
    fn function(&self, address: &str, bridge: &str, class: &str, vendor: &str) -> &Self {
        let at = format!("{BRIDGES}/{bridge}");
        self.file(&format!("{at}/{address}/class"), class)
            .file(&format!("{at}/{address}/vendor"), vendor)
            .file(&format!("{at}/{address}/numa_node"), "0")
            .link(&format!("/sys/bus/pci/devices/{address}"), &format!("{at}/{address}"));
        if !self.path(&format!("/sys/bus/pci/devices/{bridge}")).exists() {
            self.file(&format!("{at}/class"), "0x060400")
                .file(&format!("{at}/config"), config(0))
                .link(&format!("/sys/bus/pci/devices/{bridge}"), &at);
        }
        self
    }
    /// A RoCE card of which nothing is wrong.
    fn card(&self) -> &Self {
        self.function(CARD, "0000:41:02.0", "0x020000", "0x15b3").device("mlx5_0", "uverbs0", Some(CARD));
        self.file("/usr/lib64/libucp.so.0", "")
            .file("/usr/lib64/pkgconfig/ucx.pc", "Name: ucx\nVersion: 1.13.1\n")
            .file("/usr/lib64/ucx/libuct_ib.so.0", "")
            .file("/usr/lib64/ucx/libuct_cuda.so.0", "")
            .file("/dev/infiniband/rdma_cm", "")
            .file("/sys/module/ib_core/parameters/netns_mode", "Y")
    }
    pub(super) fn device(&self, name: &str, uverbs: &str, pci: Option<&str>) -> &Self {
        let base = format!("/sys/class/infiniband/{name}");
        match pci {
            Some(address) => self.link(&format!("{base}/device"), &format!("/sys/bus/pci/devices/{address}")),
            None => self.file(&format!("{base}/device/numa_node"), "-1"),
        };
        self.interface("roce0", "up", 4200);
        self.file(&format!("{base}/ports/1/state"), "4: ACTIVE")
            .file(&format!("{base}/ports/1/phys_state"), "5: LinkUp")
            .file(&format!("{base}/ports/1/rate"), "100 Gb/sec (4X EDR)")
            .file(&format!("{base}/ports/1/link_layer"), "Ethernet");
        for (index, address, kind) in
            [(0, LOCAL, "IB/RoCE v1"), (1, LOCAL, "RoCE v2"), (2, IPV4, "IB/RoCE v1"), (3, IPV4, "RoCE v2")]
        {
            self.gid(name, index, address, kind);
        }
        self.file(&format!("{base}/ports/1/gids/4"), UNSET)
            .file(&format!("/sys/class/infiniband_verbs/{uverbs}/ibdev"), name)
            .file(&format!("/dev/infiniband/{uverbs}"), "")
    }
    pub(super) fn gid(&self, name: &str, index: u32, address: &str, kind: &str) -> &Self {
        let base = format!("/sys/class/infiniband/{name}/ports/1");
        self.file(&format!("{base}/gids/{index}"), address)
            .file(&format!("{base}/gid_attrs/types/{index}"), kind)
            .file(&format!("{base}/gid_attrs/ndevs/{index}"), "roce0")
    }
    /// An NVIDIA GPU of which nothing is wrong.
    fn gpu(&self) -> &Self {
        self.function(GPU, "0000:41:01.0", "0x030200", "0x10de")
            .file(
                &format!("/sys/bus/pci/devices/{GPU}/resource"),
                "0x0 0x1 0x2\n0x1000000000 0x13ffffffff 0x14220c\n",
            )
            .file(
                "/proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat\n",
            )
            .file("/usr/lib64/libcuda.so.535.104.05", "")
            .file("/dev/nvidia0", "")
            .file("/dev/nvidia-uvm", "")
            .file("/proc/modules", "nvidia_peermem 16384 0\n")
            .file("/sys/kernel/mm/memory_peers/nv_mem/version", "1")
    }
    pub(super) fn machine(&self) -> Machine {
        Machine::new(&self.0)
    }
    pub(super) fn findings(&self) -> Vec<Finding> {
        examine(&self.0)
    }
}

/// A configuration space with an access control capability behind another one.
pub(super) fn config(control: u8) -> Vec<u8> {
    let mut bytes = vec![0_u8; 4096];
    bytes[0x100..0x104].copy_from_slice(&0x1480_0001_u32.to_le_bytes());
    bytes[0x148..0x14c].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
    bytes[0x14e] = control;
    bytes
}

pub(super) fn whole() -> Tree {
    let tree = Tree::new();
    tree.card().gpu();
    tree
}

#[test]
fn a_healthy_machine_has_no_fault() {
    for tree in [Tree::new(), whole()] {
        let bad: Vec<_> = tree.findings().into_iter().filter(|f| f.level >= Level::Warn).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
    assert!(whole().findings().iter().any(|f| f.id == "topo" && f.fact.contains("nearest to mlx5_0")));
}

#[test]
fn an_empty_root_has_no_fault_but_what_it_lacks() {
    let findings = examine(Path::new("/nonexistent"));
    assert!(findings.iter().all(|f| f.level < Level::Fail), "{findings:#?}");
    assert!(findings.len() >= CHECKS.len());
}

#[test]
fn a_device_that_may_not_be_opened_tells_why() {
    let tree = whole();
    let check = |open: fn(&Path) -> io::Result<()>| {
        let mut machine = tree.machine();
        machine.probes.open = open;
        super::rdma::hca(&machine)
    };
    let forbidden = check(|_| Err(io::Error::from_raw_os_error(libc::EPERM)));
    assert!(forbidden[0].fact.contains("control group") && forbidden[0].remedy.contains("--device"));
    let mode = check(|_| Err(io::Error::from_raw_os_error(libc::EACCES)));
    assert!(mode[0].fact.contains("file mode") && mode[0].remedy.contains("chmod"));
    assert!([&forbidden, &mode].iter().all(|findings| findings.iter().all(|f| f.level == Level::Fail)));
}

#[test]
fn one_device_that_is_missing_leaves_the_other() {
    let tree = whole();
    tree.device("mlx5_1", "uverbs1", None).gone("/dev/infiniband/uverbs0");
    let findings = super::rdma::hca(&tree.machine());
    let levels: Vec<_> = findings.iter().map(|f| f.level).collect();
    assert_eq!(levels, [Level::Fail, Level::Ok], "{findings:#?}");
    assert!(findings[0].fact.contains("mlx5_0") && findings[1].fact.contains("mlx5_1"));
}

#[test]
fn pinning_is_tried_where_it_can_be() {
    let tree = Tree::new();
    let check = |lock: fn(usize) -> io::Result<()>| {
        let mut machine = tree.machine();
        machine.probes.lock = Some(lock);
        super::memory::memlock(&machine).remove(0)
    };
    assert_eq!(check(|_| Ok(())).level, Level::Ok);
    // The limit says "unlimited": what counts is what the kernel does.
    let none = check(|_| Err(io::Error::from_raw_os_error(libc::ENOMEM)));
    assert!(none.level == Level::Fail && none.fact.contains("even 4 KiB"));
    let some = check(|n| if n > 1 << 20 { Err(io::Error::from_raw_os_error(libc::ENOMEM)) } else { Ok(()) });
    assert!(some.level == Level::Fail && some.fact.contains("64 MiB"));
    let mut machine = tree.machine();
    machine.probes.memfd = Some(|| Err(io::Error::from_raw_os_error(libc::ENOSYS)));
    assert_eq!(super::memory::shm(&machine)[0].level, Level::Fail);
}

#[test]
fn a_capability_lifts_the_limit() {
    let tree = Tree::new();
    limit(&tree, "65536");
    tree.file("/proc/self/status", "CapEff:\t0000000000004000\n");
    let finding = super::memory::memlock(&tree.machine()).remove(0);
    assert!(finding.level == Level::Ok && finding.fact.contains("CAP_IPC_LOCK lifts"), "{finding:?}");
}

#[test]
fn addresses_are_chosen_by_what_they_are() {
    let best = |tree: &Tree| devices(&tree.0)[0].ports[0].best_gid().map(|gid| gid.index);
    let tree = whole();
    assert_eq!(best(&tree), Some(3));
    // The order of another vendor.
    tree.gid("mlx5_0", 1, IPV4, "RoCE v2").gid("mlx5_0", 3, LOCAL, "IB/RoCE v1");
    assert_eq!(best(&tree), Some(1));
    for index in 1..4 {
        tree.gid("mlx5_0", index, LOCAL, "RoCE v2");
    }
    assert_eq!(best(&tree), None);
}

#[test]
fn infiniband_has_no_gid_or_mtu_check() {
    let tree = whole();
    port(&tree, "link_layer", "InfiniBand");
    let findings = tree.findings();
    let of = |id: &str| findings.iter().find(|f| f.id == id).unwrap();
    assert!(of("gid").fact.contains("nothing to check") && of("mtu").fact.contains("nothing to check"));
}

#[test]
fn soft_roce_has_no_hardware_and_is_a_device_all_the_same() {
    let tree = Tree::new();
    tree.device("rxe0", "uverbs0", None).file("/dev/infiniband/rdma_cm", "");
    let device = &devices(&tree.0)[0];
    assert_eq!((device.name.as_str(), device.pci.as_ref(), device.numa), ("rxe0", None, None));
    assert_eq!(device.ports[0].interfaces, [("roce0".to_owned(), Some(4200))]);
    assert_eq!(device.ports[0].roce_mtu(), Some(4096));
}

#[test]
fn roce_mtus() {
    for (interface, roce) in
        [(1500, 1024), (2200, 2048), (4200, 4096), (9000, 4096), (1300, 1024), (300, 0), (0, 0)]
    {
        assert_eq!(roce_mtu(interface), roce, "{interface}");
    }
}

#[test]
fn access_control_is_found_in_any_image() {
    assert_eq!(access_control(&config(0)), AccessControl::Off);
    assert_eq!(access_control(&config(0x1d)), AccessControl::Redirect(0x1d));
    assert_eq!(access_control(&config(1)), AccessControl::SourceOnly(1));
    assert_eq!(access_control(&config(1)[..64]), AccessControl::Unreadable);
    // A list that bites its tail, and one that points out of the image.
    for header in [0x1000_0001_u32, 0xffc0_0001] {
        let mut image = config(0x1d);
        image[0x100..0x104].copy_from_slice(&header.to_le_bytes());
        assert_eq!(access_control(&image), AccessControl::Off);
    }
    for length in [0x100, 0x104, 0x149, 0x14f] {
        let _ = access_control(&config(0x1d)[..length]);
    }
}

#[test]
fn sizes_and_addresses() {
    assert_eq!([size(0), size(1 << 20), size(1500), size(3 << 30)], ["0 B", "1 MiB", "1.5 KiB", "3 GiB"]);
    assert!(
        is_address("0000:01:00.0")
            && !is_address("pci0000:40")
            && !is_address("0000:01:00")
            && !is_address("eth0")
    );
}

#[test]
fn this_machine_is_examined_quickly() {
    let findings = examine(Path::new("/"));
    assert!(findings.len() >= CHECKS.len());
    assert!(findings.iter().any(|f| f.id == "memlock"));
}
