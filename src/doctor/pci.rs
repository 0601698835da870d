//! The way between a GPU and a network card: bridges, the IOMMU, NUMA nodes, the width of links.
use std::path::PathBuf;

use super::finding::Finding;
use super::machine::{Machine, Root};

const NOTHING: &str = "nothing to check: no GPU and RDMA device that could meet";

/// Whether a name is a PCI address: "0000:01:00.0".
pub(super) fn is_address(name: &str) -> bool {
    let shape =
        |part: &str, length: usize| part.len() == length && part.chars().all(|c| c.is_ascii_hexdigit());
    let mut parts = name.split([':', '.']);
    let fits = [4, 2, 2, 1].into_iter().all(|length| parts.next().is_some_and(|part| shape(part, length)));
    fits && parts.next().is_none()
}

/// A GPU or a network card.
#[derive(Debug, Clone)]
pub(super) struct Function {
    pub(super) address: String,
    class: u32,
    pub(super) vendor: u32,
    /// The bridges above it, from the root complex on.
    bridges: Vec<String>,
    numa: Option<u32>,
}

fn base(address: &str) -> String {
    format!("/sys/bus/pci/devices/{address}")
}

fn hex(root: &Root, path: &str) -> Option<u32> {
    u32::from_str_radix(root.text(path)?.trim_start_matches("0x"), 16).ok()
}

fn function(root: &Root, address: &str) -> Option<Function> {
    let class = hex(root, &format!("{}/class", base(address)))?;
    let path: PathBuf = root.resolved(&base(address))?;
    let mut bridges: Vec<String> =
        path.iter().map(|part| part.to_string_lossy().into_owned()).filter(|part| is_address(part)).collect();
    bridges.pop();
    let numa = root.number::<i64>(&format!("{}/numa_node", base(address)));
    Some(Function {
        address: address.to_owned(),
        class,
        vendor: hex(root, &format!("{}/vendor", base(address))).unwrap_or(0),
        bridges,
        numa: numa.and_then(|node| u32::try_from(node).ok()),
    })
}

impl Function {
    /// Display controllers of AMD and NVIDIA: others have no memory that a network card reaches.
    pub(super) fn is_gpu(&self) -> bool {
        self.class >> 16 == 0x03 && matches!(self.vendor, 0x10de | 0x1002)
    }
    /// How many bridges it shares with another.
    fn shared(&self, other: &Self) -> usize {
        self.bridges.iter().zip(&other.bridges).take_while(|(a, b)| a == b).count()
    }
}

pub(super) fn gpus(root: &Root) -> Vec<Function> {
    let addresses = root.list("/sys/bus/pci/devices");
    addresses.iter().filter_map(|address| function(root, address)).filter(Function::is_gpu).collect()
}

/// Network cards that do RDMA, with the name of the device.
fn cards(root: &Root) -> Vec<(String, Function)> {
    let devices = super::device::all(root).into_iter();
    devices.filter_map(|device| Some((device.name, function(root, &device.pci?)?))).collect()
}

/// A group that is translated makes cards ask the IOMMU for every page of a GPU.
pub(super) fn iommu(machine: &Machine) -> Vec<Finding> {
    let id = "iommu";
    let root = &machine.root;
    if root.list("/sys/class/iommu").is_empty() {
        return vec![Finding::ok(id, "no IOMMU is active")];
    }
    let cards = cards(root).into_iter().map(|(_, card)| card);
    let functions: Vec<Function> = gpus(root).into_iter().chain(cards).collect();
    if functions.is_empty() {
        return vec![Finding::ok(id, "an IOMMU is active; there is no GPU and no RDMA device behind it")];
    }
    functions.iter().map(|function| translated(root, function)).collect()
}

fn translated(root: &Root, function: &Function) -> Finding {
    let address = &function.address;
    let kind = root.text(&format!("{}/iommu_group/type", base(address)));
    match kind.as_deref() {
        None => Finding::ok("iommu", format!("{address} is in no IOMMU group")),
        Some("identity") => Finding::ok("iommu", format!("{address} passes the IOMMU unchanged (identity)")),
        Some(kind) => Finding::warn("iommu", format!("{address} is translated by the IOMMU (type {kind})"))
            .why("transfers between GPU and network card go through the IOMMU: slow, or wrong data on some boards")
            .remedy("add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX), then reboot"),
    }
}

/// What a bridge's access control does to traffic between the devices below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessControl {
    /// Only root reads more than 64 bytes of it.
    Unreadable,
    /// The bridge has none, or it is off.
    Off,
    /// Traffic between devices goes up to the root complex and back.
    Redirect(u16),
    /// Only forged sources are refused.
    SourceOnly(u16),
}

/// Finds the access control capability (0x000d) in a bridge's configuration space.
pub(super) fn access_control(config: &[u8]) -> AccessControl {
    const EXTENDED: usize = 0x100;
    let word = |at: usize| {
        let bytes: [u8; 4] = config.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    if config.len() < EXTENDED + 4 {
        return AccessControl::Unreadable;
    }
    let mut at = EXTENDED;
    // As many as fit; a list that bites its tail ends, too.
    for _ in 0..480 {
        let Some(header) = word(at).filter(|header| *header != 0 && *header != u32::MAX) else {
            break;
        };
        if header & 0xffff == 0x000d {
            let control = config.get(at + 6..at + 8).and_then(|bytes| bytes.try_into().ok());
            return match control.map_or(0, u16::from_le_bytes) {
                // Request redirect, completion redirect, upstream forwarding.
                control if control & 0b1_1100 != 0 => AccessControl::Redirect(control),
                control if control & 1 != 0 => AccessControl::SourceOnly(control),
                _ => AccessControl::Off,
            };
        }
        at = (header >> 20) as usize;
        if at < EXTENDED {
            break;
        }
    }
    AccessControl::Off
}

/// The bridges between GPUs and network cards.
pub(super) fn acs(machine: &Machine) -> Vec<Finding> {
    let id = "acs";
    let root = &machine.root;
    let (gpus, cards) = (gpus(root), cards(root));
    let pairs = gpus.iter().flat_map(|gpu| cards.iter().map(move |(_, card)| (gpu, card)));
    let mut bridges: Vec<String> = pairs
        .flat_map(|(gpu, card)| {
            let shared = gpu.shared(card);
            let own = |function: &Function| function.bridges.iter().skip(shared).cloned().collect::<Vec<_>>();
            [own(gpu), own(card)].concat()
        })
        .collect();
    bridges.sort();
    bridges.dedup();
    let findings: Vec<Finding> = bridges.iter().filter_map(|bridge| controlled(root, bridge)).collect();
    match (findings.is_empty(), bridges.len()) {
        (false, _) => findings,
        (true, 0) => vec![Finding::ok(id, NOTHING)],
        (true, n) => {
            vec![Finding::ok(id, format!("{n} bridges between GPUs and RDMA devices let traffic pass"))]
        }
    }
}

fn controlled(root: &Root, bridge: &str) -> Option<Finding> {
    let config = root.bytes(&format!("{}/config", base(bridge))).unwrap_or_default();
    let remedy =
        format!("setpci -s {bridge} ECAP_ACS+0x6.w=0000    # until reboot; for good: ACS off in the BIOS");
    match access_control(&config) {
        AccessControl::Off => None,
        AccessControl::Unreadable => Some(
            Finding::info("acs", format!("bridge {bridge} cannot be read"))
                .why("whether it sends traffic between GPU and network card a long way is not known")
                .remedy("sudo nrdma doctor"),
        ),
        AccessControl::Redirect(control) => Some(
            Finding::fail("acs", format!("bridge {bridge} redirects traffic between devices (ACS {control:#06x})"))
                .why("transfers between GPU and network card go up to the processor: a fraction of the speed, or hang")
                .remedy(remedy),
        ),
        AccessControl::SourceOnly(control) => Some(
            Finding::warn("acs", format!("bridge {bridge} checks sources (ACS {control:#06x})"))
                .why("harmless by itself; some drivers take it for a redirect")
                .remedy(remedy),
        ),
    }
}

/// Which card is nearest to each GPU, and whether links run as wide as they could.
pub(super) fn topo(machine: &Machine) -> Vec<Finding> {
    let root = &machine.root;
    let (gpus, cards) = (gpus(root), cards(root));
    let mut findings: Vec<Finding> = Vec::new();
    for gpu in &gpus {
        let near = cards.iter().max_by_key(|(_, card)| (gpu.shared(card), card.numa == gpu.numa));
        findings.extend(near.map(|(name, card)| nearest(gpu, name, card)));
    }
    // A GPU that rests lowers its link's speed, so only widths are compared.
    let all = cards
        .iter()
        .map(|(name, card)| (name.clone(), card))
        .chain(gpus.iter().map(|g| ("GPU".to_owned(), g)));
    findings.extend(all.filter_map(|(name, function)| narrow(root, &name, function)));
    if findings.is_empty() {
        findings.push(Finding::ok("topo", NOTHING));
    }
    findings
}

fn nearest(gpu: &Function, name: &str, card: &Function) -> Finding {
    let fact = format!("GPU {} is nearest to {name} ({})", gpu.address, card.address);
    match (gpu.numa, card.numa) {
        (Some(a), Some(b)) if a != b => {
            Finding::warn("topo", format!("{fact}, but on NUMA node {a}, not {b}"))
                .why("transfers between them cross the link between the processors: about half the bandwidth")
                .remedy("move one of the cards to a slot of the other's processor (nvidia-smi topo -m)")
        }
        _ => Finding::ok("topo", fact),
    }
}

fn narrow(root: &Root, name: &str, function: &Function) -> Option<Finding> {
    let width = |file: &str| root.number::<u32>(&format!("{}/{file}", base(&function.address)));
    let (now, most) = (width("current_link_width")?, width("max_link_width")?);
    (now > 0 && now < most).then(|| {
        Finding::warn("topo", format!("{name} {} has {now} of {most} PCIe lanes", function.address))
            .why("its bandwidth is limited to that part")
            .remedy(format!(
                "lspci -vv -s {}    # LnkSta; use a wider slot, reseat the card",
                function.address
            ))
    })
}
