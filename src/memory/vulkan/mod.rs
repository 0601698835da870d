//! Slots in memory of the host's Vulkan device that other PCIe devices reach (VK_NV_external_memory_rdma).
//!
//! Such memory is the GPU's alone: the extension's memory type is device-local and not visible to the host,
//! so there is no `host` address, and writing and reading are the host's own queue's work.
mod slots;
mod sys;

use ash::vk;

use crate::core::error::{Error, Kind, Result};
use crate::core::slot::{Api, Facts, Layout, Request, SlotKind, SlotMaker, Slots};
use sys::Functions;

/// Makes slots by the host's Vulkan device.
pub(crate) struct Vulkan;

/// A checked request.
struct Plan {
    functions: Functions,
    layout: Layout,
    usage: vk::BufferUsageFlags,
    families: Vec<u32>,
    facts: Facts,
}

fn not_supported(text: &str) -> Error {
    Error::new(Kind::NotSupported, text)
}

fn usage(asked: u32) -> vk::BufferUsageFlags {
    match asked {
        0 => {
            vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST
                | vk::BufferUsageFlags::STORAGE_BUFFER
        }
        asked => vk::BufferUsageFlags::from_raw(asked),
    }
}

/// The names of what is missing, from the outside in.
fn check_device(functions: &Functions, usage: vk::BufferUsageFlags) -> Result<()> {
    if !functions.has_1_1() {
        return Err(not_supported(
            "the VkInstance is of Vulkan 1.0: VK_NV_external_memory_rdma needs apiVersion 1.1 or later",
        ));
    }
    let there = functions.has_extension(ash::nv::external_memory_rdma::NAME);
    if !there.map_err(|failure| failure.error("the physical device's extensions"))? {
        return Err(not_supported(
            "the VkPhysicalDevice has no VK_NV_external_memory_rdma: its GPU or driver cannot let cards \
             reach its memory",
        ));
    }
    if !functions.has_feature() {
        return Err(not_supported("the VkPhysicalDevice lacks the feature externalMemoryRDMA"));
    }
    if !functions.is_enabled() {
        return Err(not_supported(
            "VK_NV_external_memory_rdma is not enabled on this device: name it in VkDeviceCreateInfo's \
             ppEnabledExtensionNames, and chain VkPhysicalDeviceExternalMemoryRDMAFeaturesNV with \
             externalMemoryRDMA = VK_TRUE",
        ));
    }
    if !functions.is_exportable(usage) {
        let text = format!(
            "buffers with the usage {:#x} have no RDMA address on this device \
             (vkGetPhysicalDeviceExternalBufferProperties: not exportable)",
            usage.as_raw()
        );
        return Err(not_supported(&text));
    }
    Ok(())
}

fn plan(request: &Request) -> Result<Plan> {
    let layout = request.layout()?;
    if !matches!(request.kind, SlotKind::Auto | SlotKind::Device) {
        return Err(request.refuse_kind("Vulkan", "AUTO and DEVICE"));
    }
    request.refuse_exports("Vulkan memory")?;
    let functions = Functions::load(&request.vulkan)?;
    let usage = usage(request.vulkan.usage);
    check_device(&functions, usage)?;
    let facts = Facts {
        kind: Some(SlotKind::Device),
        total_bytes: layout.piece_bytes.saturating_mul(layout.pieces.into()),
        uuid: functions.uuid(),
        rdma_capable: Some(true),
        ..Facts::default()
    };
    let heap = slots::largest_heap(&functions).ok_or_else(slots::no_type)?;
    if facts.total_bytes > heap {
        let text = format!(
            "slots of {} bytes were asked for, and the device's heap for RDMA has {heap}; make them fewer or \
             smaller",
            facts.total_bytes
        );
        return Err(Error::new(Kind::OutOfMemory, text));
    }
    Ok(Plan { functions, layout, usage, families: request.vulkan.families.clone(), facts })
}

impl SlotMaker for Vulkan {
    fn makes(&self, api: Api, _kind: SlotKind) -> bool {
        api == Api::Vulkan
    }
    fn plan(&self, request: &Request) -> Result<Facts> {
        Ok(plan(request)?.facts)
    }
    fn make(&self, request: &Request) -> Result<Box<dyn Slots>> {
        Ok(Box::new(slots::make(plan(request)?)?))
    }
}
