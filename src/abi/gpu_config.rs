//! What a host asks for when it wants slots, checked.
use std::ffi::c_void;
use std::ptr;

use super::config::{Versioned, read_struct};
use crate::core::error::{Error, Result};
use crate::core::slot::{Api, D3d12Host, ExportType, GpuChoice, Request, SlotKind, VulkanHost};

/// A function pointer of any type: cast yours to it. ISO C has no void* for functions.
pub type nrdma_proc = Option<unsafe extern "C" fn()>;

/// No API; not one to ask for.
pub const NRDMA_GPU_NONE: i32 = 0;
/// Memory by the CUDA driver.
pub const NRDMA_GPU_CUDA: i32 = 1;
/// Memory of the host's Vulkan device, by VK_NV_external_memory_rdma.
pub const NRDMA_GPU_VULKAN: i32 = 2;
/// Memory of the host's D3D12 device, by NvAPI.
pub const NRDMA_GPU_D3D12: i32 = 3;
/// Main memory.
pub const NRDMA_GPU_HOST_FALLBACK: i32 = 4;

/// CUDA: PINNED on an integrated GPU, VMM when exports has FD or WIN32, else DEVICE. Vulkan, D3D12: DEVICE.
/// Host: PAGES. What was chosen is in the buffer's info, which never says AUTO.
pub const NRDMA_MEMORY_AUTO: i32 = 0;
/// cuMemAlloc with SYNC_MEMOPS, VkDeviceMemory of an RDMA_CAPABLE type, or NvAPI's committed buffer.
pub const NRDMA_MEMORY_DEVICE: i32 = 1;
/// cuMemCreate and cuMemMap with gpuDirectRDMACapable, read back.
pub const NRDMA_MEMORY_VMM: i32 = 2;
/// Main memory that the CPU, the GPU and the card reach. CUDA: cuMemHostAlloc, which is what Tegra's RDMA takes;
/// host: PAGES that cuMemHostRegister pinned.
pub const NRDMA_MEMORY_PINNED: i32 = 3;
/// Pages of our own in main memory, all of them touched; the card's SDK pins them.
pub const NRDMA_MEMORY_PAGES: i32 = 4;

/// Linux: for ibv_reg_dmabuf_mr, V4L2, DRM. Not for graphics: EGL refuses CUDA's dma-bufs.
pub const NRDMA_EXPORT_DMA_BUF: u32 = 1;
/// The same, forced through BAR1: for mlx5's Data Direct on machines with NVLink-C2C only.
pub const NRDMA_EXPORT_DMA_BUF_PCIE: u32 = 2;
/// Linux: an opaque descriptor, for cuMemImportFromShareableHandle. Vulkan does not see the same bytes in it.
pub const NRDMA_EXPORT_FD: u32 = 4;
/// Windows: an NT handle, for the same.
pub const NRDMA_EXPORT_WIN32: u32 = 8;

/// One allocation: slot i is slot 0 + i * stride; one handle, one registration (Rivermax, DPDK).
pub const NRDMA_GPU_CONTIGUOUS: u32 = 1;
/// Also memory that, in its driver's word, no card can reach (tests, staging).
pub const NRDMA_GPU_ANY_MEMORY: u32 = 2;

/// What slots are to be. Start from NRDMA_GPU_BUFFER_CONFIG_INIT; 0 and NULL are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_gpu_buffer_config {
    /// sizeof(nrdma_gpu_buffer_config) of the host.
    pub struct_size: u64,
    /// NRDMA_GPU_CUDA, _VULKAN, _D3D12 or _HOST_FALLBACK; never replaced by another.
    pub api: i32,
    /// 1 to 65536.
    pub slot_count: u32,
    /// Bytes that the card moves per slot: its SDK's figure, when it has one.
    pub frame_bytes: u64,
    /// NRDMA_MEMORY_*; never replaced by another, except AUTO.
    pub memory: i32,
    /// NRDMA_GPU_CONTIGUOUS, NRDMA_GPU_ANY_MEMORY.
    pub flags: u32,
    /// A power of two; 0 is 65536, which is also the least.
    pub alignment: u64,
    /// NRDMA_EXPORT_* that nrdma_gpu_buffer_export must be able to make; refused here if it could not.
    pub exports: u32,
    /// CUDA's ordinal, when gpu_uuid is NULL.
    pub cuda_device: i32,
    /// 16 bytes that pick the CUDA GPU: VkPhysicalDeviceIDProperties.deviceUUID is the same as CUDA's.
    pub gpu_uuid: *const u8,
    /// A CUcontext to allocate in (FFmpeg's, an engine's own), which outlives the buffer; NULL is the GPU's primary
    /// context, which is retained for as long as the buffer lives.
    pub cuda_context: *mut c_void,
    /// The host's VkInstance, of API version 1.1 or later; outlives the buffer.
    pub vk_instance: *mut c_void,
    /// Its VkPhysicalDevice.
    pub vk_physical_device: *mut c_void,
    /// Its VkDevice, made with VK_NV_external_memory_rdma and the feature externalMemoryRDMA; outlives the buffer.
    pub vk_device: *mut c_void,
    /// The host's vkGetInstanceProcAddr, cast.
    pub vk_get_instance_proc_addr: nrdma_proc,
    /// VkBufferUsageFlags; 0 is TRANSFER_SRC | TRANSFER_DST | STORAGE_BUFFER.
    pub vk_buffer_usage: u32,
    /// How many vk_queue_families there are; up to 1 is exclusive use.
    pub vk_queue_family_count: u32,
    /// Queue families that use the buffers at the same time.
    pub vk_queue_families: *const u32,
    /// The host's ID3D12Device; retained.
    pub d3d12_device: *mut c_void,
    /// The node that the memory is of, for linked adapters; 0 is the first.
    pub d3d12_creation_node_mask: u32,
    /// The nodes that see it; 0 is only that one.
    pub d3d12_visible_node_mask: u32,
}

// SAFETY: starts with its size; pointers and numbers, no padding.
unsafe impl Versioned for nrdma_gpu_buffer_config {
    const NAME: &'static str = "nrdma_gpu_buffer_config";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        api: 0,
        slot_count: 0,
        frame_bytes: 0,
        memory: 0,
        flags: 0,
        alignment: 0,
        exports: 0,
        cuda_device: 0,
        gpu_uuid: ptr::null(),
        cuda_context: ptr::null_mut(),
        vk_instance: ptr::null_mut(),
        vk_physical_device: ptr::null_mut(),
        vk_device: ptr::null_mut(),
        vk_get_instance_proc_addr: None,
        vk_buffer_usage: 0,
        vk_queue_family_count: 0,
        vk_queue_families: ptr::null(),
        d3d12_device: ptr::null_mut(),
        d3d12_creation_node_mask: 0,
        d3d12_visible_node_mask: 0,
    };
}

fn api(number: i32) -> Result<Api> {
    Ok(match number {
        NRDMA_GPU_CUDA => Api::Cuda,
        NRDMA_GPU_VULKAN => Api::Vulkan,
        NRDMA_GPU_D3D12 => Api::D3d12,
        NRDMA_GPU_HOST_FALLBACK => Api::HostFallback,
        NRDMA_GPU_NONE => return Err(Error::invalid("api is NRDMA_GPU_NONE; name one")),
        _ => return Err(Error::invalid(format!("api is {number}, which is no NRDMA_GPU_* API"))),
    })
}

fn kind(number: i32) -> Result<SlotKind> {
    Ok(match number {
        NRDMA_MEMORY_AUTO => SlotKind::Auto,
        NRDMA_MEMORY_DEVICE => SlotKind::Device,
        NRDMA_MEMORY_VMM => SlotKind::Vmm,
        NRDMA_MEMORY_PINNED => SlotKind::Pinned,
        NRDMA_MEMORY_PAGES => SlotKind::Pages,
        _ => return Err(Error::invalid(format!("memory is {number}, which is no NRDMA_MEMORY_* kind"))),
    })
}

/// The handle that a number stands for.
pub(crate) fn export_type(number: u32) -> Option<ExportType> {
    ExportType::ALL.into_iter().find(|export| *export as u32 == number)
}

fn exports(bits: u32) -> Result<Vec<ExportType>> {
    let known = ExportType::ALL.iter().fold(0, |all, export| all | *export as u32);
    if bits & !known != 0 {
        let text = format!("exports has the bits {:#x}, which are no NRDMA_EXPORT_* bits", bits & !known);
        return Err(Error::invalid(text));
    }
    Ok(ExportType::ALL.into_iter().filter(|export| bits & *export as u32 != 0).collect())
}

/// Reads and checks a config.
///
/// # Safety
/// As nrdma_gpu_buffer_create asks for.
pub(crate) unsafe fn read_request(config: *const nrdma_gpu_buffer_config) -> Result<Request> {
    // SAFETY: by the contract above.
    let raw = unsafe { read_struct(config) }?;
    let api = api(raw.api)?;
    let known = NRDMA_GPU_CONTIGUOUS | NRDMA_GPU_ANY_MEMORY;
    if raw.flags & !known != 0 {
        let text = format!("flags has the bits {:#x}, which mean nothing", raw.flags & !known);
        return Err(Error::invalid(text));
    }
    let uuid = match raw.gpu_uuid.is_null() {
        true => None,
        // SAFETY: not null, so 16 bytes.
        false => Some(unsafe { raw.gpu_uuid.cast::<[u8; 16]>().read() }),
    };
    // SAFETY: by the contract above.
    let families = unsafe { families(&raw) }?;
    Ok(Request {
        api,
        kind: kind(raw.memory)?,
        slots: raw.slot_count,
        frame_bytes: raw.frame_bytes,
        alignment: raw.alignment,
        contiguous: raw.flags & NRDMA_GPU_CONTIGUOUS != 0,
        any_memory: raw.flags & NRDMA_GPU_ANY_MEMORY != 0,
        exports: exports(raw.exports)?,
        gpu: GpuChoice { ordinal: raw.cuda_device, uuid, context: raw.cuda_context.expose_provenance() },
        vulkan: VulkanHost {
            instance: raw.vk_instance.expose_provenance(),
            physical_device: raw.vk_physical_device.expose_provenance(),
            device: raw.vk_device.expose_provenance(),
            get_instance_proc_addr: raw.vk_get_instance_proc_addr.map_or(0, |function| function as usize),
            usage: raw.vk_buffer_usage,
            families,
        },
        d3d12: D3d12Host {
            device: raw.d3d12_device.expose_provenance(),
            creation_mask: raw.d3d12_creation_node_mask,
            visible_mask: raw.d3d12_visible_node_mask,
        },
    })
}

/// # Safety
/// `vk_queue_families` is NULL or has as many numbers as said.
unsafe fn families(raw: &nrdma_gpu_buffer_config) -> Result<Vec<u32>> {
    const MOST: u32 = 64;
    let count = raw.vk_queue_family_count;
    if count == 0 {
        return Ok(Vec::new());
    }
    if raw.vk_queue_families.is_null() || count > MOST {
        let text =
            format!("vk_queue_family_count is {count}: vk_queue_families is NULL, or more than {MOST}");
        return Err(Error::invalid(text));
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: by the contract above.
    Ok(unsafe { std::slice::from_raw_parts(raw.vk_queue_families, count) }.to_vec())
}
