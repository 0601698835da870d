//! What slots a GPU gets: which kind, whether a card can reach it, what can be exported.
use std::sync::Arc;

use super::context::Context;
use super::device::{Attribute, Device};
use super::driver::Driver;
use super::piece::Recipe;
use super::sys::VmmProperties;
use crate::core::error::{Error, Kind, Result};
use crate::core::slot::{Api, ExportType, Facts, Layout, Request, SlotKind};

/// CUDA 12.8: the first driver whose dma-bufs may be asked to go through PCIe.
const PCIE_DMA_BUF: i32 = 12_080;

/// A decided request.
pub(super) struct Plan {
    pub(super) recipe: Recipe,
    pub(super) layout: Layout,
    pub(super) facts: Facts,
    /// The host's own context, when it gave one.
    pub(super) context: Option<Arc<Context>>,
}

fn not_supported(text: String) -> Error {
    Error::new(Kind::NotSupported, text)
}

/// The GPU that was asked for, by context, UUID or ordinal; they must not contradict each other.
fn choose(driver: &'static Driver, request: &Request) -> Result<(Device, Option<Arc<Context>>)> {
    let gpu = &request.gpu;
    let named = match (&gpu.uuid, gpu.context, gpu.ordinal) {
        (Some(uuid), ..) => Some(driver.device_by_uuid(uuid)?),
        // Ordinal 0 is what a config says that names no GPU.
        (None, context, 0) if context != 0 => None,
        (None, _, ordinal) => Some(driver.device(ordinal)?),
    };
    let context = (gpu.context != 0).then(|| Context::host(driver, gpu.context));
    let theirs = context.as_ref().map(|context| context.device()).transpose()?;
    match (named, theirs) {
        (Some(named), Some(theirs)) if named.ordinal != theirs.ordinal => Err(Error::invalid(format!(
            "cuda_context is on {}, but the config names {}",
            theirs.shown(),
            named.shown()
        ))),
        (Some(device), _) | (None, Some(device)) => Ok((device, context)),
        (None, None) => Ok((driver.device(0)?, context)),
    }
}

fn wants_opaque(request: &Request) -> bool {
    request.exports.iter().any(|export| matches!(export, ExportType::Fd | ExportType::Win32))
}

/// The kind, and in words why.
fn kind(request: &Request, device: &Device) -> Result<(SlotKind, String)> {
    let shown = device.shown();
    Ok(match (request.api, request.kind) {
        (Api::HostFallback, SlotKind::Pinned) => (SlotKind::Pinned, String::new()),
        (_, SlotKind::Auto) if device.integrated => {
            let why = "is integrated (attribute 18), and cards reach only that";
            (SlotKind::Pinned, format!("pinned host memory, because {shown} {why}"))
        }
        (_, SlotKind::Auto) if wants_opaque(request) => {
            (SlotKind::Vmm, format!("VMM memory on {shown}, because an opaque handle was asked for"))
        }
        (_, SlotKind::Auto) => {
            (SlotKind::Device, format!("cuMemAlloc on {shown}, which is what cards are proven with"))
        }
        (_, kind @ (SlotKind::Device | SlotKind::Vmm | SlotKind::Pinned)) => (kind, String::new()),
        (_, SlotKind::Pages) => {
            let has = "AUTO, DEVICE, VMM and PINNED; pages are NRDMA_GPU_HOST_FALLBACK's";
            return Err(request.refuse_kind("CUDA", has));
        }
    })
}

/// Whether a card can reach the kind, in the driver's word; refuses when not, unless that is wanted.
fn reach(request: &Request, device: &Device, kind: SlotKind) -> Result<bool> {
    let (attribute, memory) = match kind {
        SlotKind::Vmm => (Attribute::RDMA_WITH_VMM, "VMM"),
        SlotKind::Device => (Attribute::RDMA, "plain"),
        _ => return Ok(true),
    };
    if device.has(attribute)? {
        return Ok(true);
    }
    if request.any_memory {
        return Ok(false);
    }
    let advice = match kind {
        SlotKind::Vmm if device.has(Attribute::RDMA)? => "use NRDMA_MEMORY_DEVICE",
        _ => {
            "only workstation and data center GPUs can; use NRDMA_GPU_HOST_FALLBACK, or NRDMA_GPU_ANY_MEMORY \
              where no card is meant to"
        }
    };
    Err(not_supported(format!(
        "no card can reach {memory} memory of {}: its driver does no GPUDirect RDMA with it (attribute {} is 0); \
         {advice}",
        device.shown(),
        attribute.number()
    )))
}

/// Refuses exports that could not be made.
fn check_exports(request: &Request, device: &Device, kind: SlotKind) -> Result<()> {
    for export in &request.exports {
        let name = export.name();
        let missing = match export {
            ExportType::Win32 if cfg!(unix) => Some("there is none on this system".to_owned()),
            ExportType::Fd | ExportType::DmaBuf | ExportType::DmaBufPcie if cfg!(windows) => {
                Some("there is none on Windows".to_owned())
            }
            ExportType::Fd | ExportType::Win32 if kind != SlotKind::Vmm => {
                Some(format!("it needs NRDMA_MEMORY_VMM, and this is {}", kind.name()))
            }
            ExportType::Fd | ExportType::Win32 => lacks(device, Attribute::OPAQUE_HANDLE)?,
            ExportType::DmaBuf | ExportType::DmaBufPcie if kind == SlotKind::Pinned => {
                Some("host memory has none".to_owned())
            }
            ExportType::DmaBuf | ExportType::DmaBufPcie if !device.driver.table.has_dma_buf() => {
                Some("this driver is too old, it has no cuMemGetHandleForAddressRange".to_owned())
            }
            ExportType::DmaBufPcie if device.driver.version < PCIE_DMA_BUF => {
                Some(format!("it needs the driver of CUDA 12.8, and this is {}", device.driver.version))
            }
            ExportType::DmaBuf | ExportType::DmaBufPcie => lacks(device, Attribute::DMA_BUF)?
                .map(|lack| format!("{lack}; NVIDIA's open kernel modules and Linux 5.12 have it")),
        };
        if let Some(why) = missing {
            return Err(not_supported(format!("{name} cannot be made: {why}")));
        }
    }
    Ok(())
}

fn lacks(device: &Device, attribute: Attribute) -> Result<Option<String>> {
    let has = device.has(attribute)?;
    Ok((!has).then(|| format!("attribute {} of {} is 0", attribute.number(), device.shown())))
}

/// Decides everything that can be decided without taking memory.
pub(super) fn plan(driver: &'static Driver, request: &Request) -> Result<Plan> {
    let mut layout = request.layout()?;
    let (device, context) = choose(driver, request)?;
    let (kind, note) = kind(request, &device)?;
    if kind == SlotKind::Vmm
        && let Some(lack) = lacks(&device, Attribute::VMM)?
    {
        return Err(not_supported(format!("{}: {lack}; use NRDMA_MEMORY_DEVICE", kind.name())));
    }
    check_exports(request, &device, kind)?;
    let reach = reach(request, &device, kind)?;
    let vmm = VmmProperties {
        device: device.handle,
        rdma: kind == SlotKind::Vmm && reach,
        exportable: wants_opaque(request),
    };
    let mut alignment = size(layout.alignment)?;
    if kind == SlotKind::Vmm {
        let unit = driver.table.granularity(vmm);
        let unit = unit.map_err(|failure| failure.error(format!("VMM memory of {}", device.shown())))?;
        if !unit.is_power_of_two() {
            let text = format!("{} gives VMM memory in units of {unit} bytes", device.shown());
            return Err(Error::new(Kind::DriverError, text));
        }
        alignment = alignment.max(unit);
        layout.piece_bytes = layout.piece_bytes.next_multiple_of(alignment as u64);
    }
    let facts = Facts {
        kind: Some(kind),
        total_bytes: layout.piece_bytes.saturating_mul(layout.pieces.into()),
        ordinal: Some(device.ordinal),
        uuid: device.uuid.unwrap_or_default(),
        rdma_capable: Some(reach),
        needs_flush: kind != SlotKind::Pinned && device.needs_flush()?,
        note,
    };
    let recipe = Recipe {
        kind,
        own_pages: request.api == Api::HostFallback,
        alignment,
        bytes: size(layout.piece_bytes)?,
        vmm,
        must_be_rdma_capable: !request.any_memory,
        device,
    };
    Ok(Plan { recipe, layout, facts, context })
}

fn size(bytes: u64) -> Result<usize> {
    usize::try_from(bytes)
        .map_err(|_| Error::new(Kind::OutOfMemory, format!("{bytes} bytes cannot be addressed")))
}
