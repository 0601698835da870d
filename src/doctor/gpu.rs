//! GPUs: whether their driver is usable here, and whether network cards can reach their memory.
use std::io::Read;

use super::device;
use super::finding::Finding;
use super::machine::{Machine, Root, size};
use super::pci;

const NVIDIA: u32 = 0x10de;
/// From this version on the kernel hands out GPU memory by dma-buf.
const DMA_BUF: (u32, u32) = (5, 12);
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
];

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  ..." -> "535.104.05".
fn kernel_driver(root: &Root) -> Option<String> {
    let text = root.text("/proc/driver/nvidia/version")?;
    let line = text.lines().next()?;
    let version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    Some(line.split_whitespace().find(version).unwrap_or("of unknown version").to_owned())
}

/// "libcuda.so.535.104.05" -> "535.104.05".
fn user_driver(root: &Root) -> Option<String> {
    LIBRARIES.iter().find_map(|folder| {
        root.list(folder).iter().find_map(|file| {
            let version = file.strip_prefix("libcuda.so.")?;
            version.contains('.').then(|| version.to_owned())
        })
    })
}

/// Driver, device nodes and library.
pub(super) fn gpu(machine: &Machine) -> Vec<Finding> {
    let id = "gpu";
    let root = &machine.root;
    let cards: Vec<_> = pci::gpus(root).into_iter().filter(|gpu| gpu.vendor == NVIDIA).collect();
    let Some(driver) = kernel_driver(root) else {
        return match cards.first() {
            None => vec![Finding::ok(id, "no NVIDIA GPU")],
            Some(card) => vec![
                Finding::warn(id, format!("NVIDIA GPU {} has no NVIDIA driver", card.address))
                    .why("its memory cannot be used; main memory is")
                    .remedy(
                        "apt-get install nvidia-driver    # or NVIDIA's own package; then modprobe nvidia",
                    ),
            ],
        };
    };
    let container = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility";
    let lacking = |fact: &str| {
        vec![
            Finding::fail(id, format!("driver {driver} is loaded, but {fact}"))
                .why("CUDA will not start")
                .remedy(container),
        ]
    };
    let nodes = root.list("/dev");
    if !nodes.iter().any(|node| node.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok())) {
        return lacking("there is no /dev/nvidia0 here");
    }
    if !nodes.iter().any(|node| node == "nvidia-uvm") {
        return vec![
            Finding::fail(id, format!("driver {driver} is loaded, but there is no /dev/nvidia-uvm"))
                .why("CUDA will not start")
                .remedy(format!("nvidia-modprobe -u -c 0    # in a container: {container}")),
        ];
    }
    let Some(library) = user_driver(root) else {
        return lacking("there is no libcuda.so here");
    };
    if library != driver {
        return vec![
            Finding::fail(id, format!("libcuda is {library}, the kernel's driver {driver}"))
                .why("CUDA will not start: both must be of one version")
                .remedy("reboot, or rmmod and modprobe nvidia after an update; in a container: use the host's libcuda"),
        ];
    }
    let mut findings = vec![Finding::ok(id, format!("NVIDIA driver {driver}, {} GPUs", cards.len()))];
    findings.extend(shared(root));
    findings
}

/// A slice of a GPU, "NVIDIA A30-8C": its memory is not for network cards.
fn shared(root: &Root) -> Option<Finding> {
    let profile = |model: &str| {
        let tail = model.rsplit_once('-')?.1;
        let digits = tail.trim_end_matches(|c: char| c.is_ascii_uppercase());
        (digits.len() + 1 == tail.len() && digits.parse::<u32>().is_ok()).then(|| model.to_owned())
    };
    let cards = root.list("/proc/driver/nvidia/gpus");
    let model = cards.iter().find_map(|card| {
        let text = root.text(&format!("/proc/driver/nvidia/gpus/{card}/information"))?;
        profile(text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim())
    })?;
    Some(
        Finding::warn("gpu", format!("{model} is a virtual GPU"))
            .why("network cards cannot reach its memory: transfers go through main memory")
            .remedy("pass a whole GPU through, where that matters"),
    )
}

/// Whether the kernel can give GPU memory to a network card: by a module, or by dma-buf.
pub(super) fn direct(machine: &Machine) -> Vec<Finding> {
    let id = "peermem";
    let root = &machine.root;
    if kernel_driver(root).is_none() || device::all(root).is_empty() {
        return vec![Finding::ok(id, "nothing to check: no NVIDIA GPU with an RDMA device beside it")];
    }
    let modules = root.text("/proc/modules").unwrap_or_default();
    let loaded = |name: &str| modules.lines().any(|line| line.split_whitespace().next() == Some(name));
    let (new, old) = (loaded("nvidia_peermem"), loaded("nv_peer_mem"));
    let registered = ["nv_mem", "nv_mem_nc"]
        .iter()
        .any(|name| root.exists(&format!("/sys/kernel/mm/memory_peers/{name}/version")));
    let dma_buf = dma_buf(root);
    let mut findings = Vec::new();
    if new && old {
        findings.push(
            Finding::warn(id, "nvidia_peermem and nv_peer_mem are both loaded")
                .why("they do the same, and the older one is not maintained")
                .remedy("rmmod nv_peer_mem; echo nvidia_peermem > /etc/modules-load.d/nvidia-peermem.conf"),
        );
    }
    match (new || old, registered, &dma_buf) {
        (true, true, _) => findings.push(Finding::ok(id, "GPU memory is registered by nvidia_peermem")),
        (true, false, Ok(())) => findings.push(
            Finding::warn(id, "nvidia_peermem is loaded but not registered with the RDMA core")
                .why("the RDMA drivers were installed after the GPU's; dma-buf does its work")
                .remedy("reinstall the NVIDIA driver after the RDMA drivers; modprobe -r nvidia_peermem; modprobe nvidia_peermem"),
        ),
        (_, _, Ok(())) => findings.push(Finding::ok(id, "no nvidia_peermem; the kernel can hand out GPU memory by dma-buf")),
        (module, _, Err((fact, remedy))) => {
            let module = if module { "nvidia_peermem is loaded but not registered" } else { "no nvidia_peermem" };
            findings.push(
                Finding::fail(id, format!("{module}, and no dma-buf: {fact}"))
                    .why("network cards cannot reach GPU memory: transfers go through main memory")
                    .remedy(format!("modprobe nvidia-peermem    # or {remedy}")),
            );
        }
    }
    if root.exists("/dev/gdrdrv") {
        findings.push(Finding::info(id, "gdrcopy's driver is there").why("optional: nrdma does not need it"));
    }
    findings
}

/// Why dma-buf does not work for GPU memory, and what would help.
fn dma_buf(root: &Root) -> Result<(), (String, &'static str)> {
    let release = root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if version < DMA_BUF {
        let fact = format!("kernel {release} is older than {}.{}", DMA_BUF.0, DMA_BUF.1);
        return Err((fact, "a newer kernel"));
    }
    match kernel_config(root, &release) {
        Some(config) if !config.lines().any(|line| line == "CONFIG_PCI_P2PDMA=y") => Err((
            format!("kernel {release} is built without CONFIG_PCI_P2PDMA"),
            "a kernel with CONFIG_PCI_P2PDMA=y",
        )),
        // What cannot be read may well be there.
        _ => Ok(()),
    }
}

fn kernel_config(root: &Root, release: &str) -> Option<String> {
    if let Some(text) = root.text(&format!("/boot/config-{release}")) {
        return Some(text);
    }
    let packed = root.bytes("/proc/config.gz")?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The window through which network cards see a GPU's memory: the second range of its PCI resources.
pub(super) fn bar1(machine: &Machine) -> Vec<Finding> {
    let id = "bar1";
    let root = &machine.root;
    if kernel_driver(root).is_none() {
        return vec![Finding::ok(id, "nothing to check: no NVIDIA GPU with its driver")];
    }
    let gpus = pci::gpus(root);
    let findings = gpus.iter().filter(|gpu| gpu.vendor == NVIDIA).filter_map(|gpu| {
        let bytes = window(root, &gpu.address)?;
        let fact = format!("GPU {} shows {} of its memory to network cards (BAR1)", gpu.address, size(bytes));
        Some(if bytes > 256 << 20 {
            Finding::ok(id, fact)
        } else {
            Finding::warn(id, fact)
                .why("buffers for cards must fit into that; registering more fails")
                .remedy("turn on Resizable BAR and Above 4G Decoding in the BIOS")
        })
    });
    let findings: Vec<_> = findings.collect();
    if findings.is_empty() {
        vec![Finding::info(id, "the size of the GPU's BAR1 cannot be read")]
    } else {
        findings
    }
}

/// The file has a line for each range: first byte, last byte, flags.
fn window(root: &Root, address: &str) -> Option<u64> {
    let text = root.text(&format!("/sys/bus/pci/devices/{address}/resource"))?;
    let mut words = text.lines().nth(1)?.split_whitespace();
    let mut word = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (first, last) = (word()?, word()?);
    (last > first).then(|| last - first + 1)
}
