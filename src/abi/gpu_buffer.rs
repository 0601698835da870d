//! Slots: memory that a capture card or a NIC reaches by itself.
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use libc::intptr_t;

use super::config::{Versioned, copy_text, write_struct};
use super::error::nrdma_status;
use super::fork;
use super::gpu_config::{
    NRDMA_GPU_ANY_MEMORY, NRDMA_GPU_CONTIGUOUS, export_type, nrdma_gpu_buffer_config, read_request,
};
use super::guard::{guard, guarded};
use crate::core::error::{Error, Result};
use crate::core::log;
use crate::core::slot::{self, Export, ExportType, Facts, Request, Slot, SlotKind, Slots};

/// Equal pieces of memory, made and freed as one; see nrdma_gpu_buffer_create.
pub struct nrdma_gpu_buffer {
    table: Vec<nrdma_gpu_slot>,
    info: nrdma_gpu_buffer_info,
    exports: Vec<ExportType>,
    slots: Box<dyn Slots>,
}

/// One slot. The three addresses name the same bytes; 0 or NULL where that side cannot reach them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_gpu_slot {
    /// sizeof(nrdma_gpu_slot) of the library; 0 in the empty slot.
    pub struct_size: u64,
    /// For the card's SDK: CUdeviceptr, VkRemoteAddressNV, BAR1 address, or host pointer.
    pub address: u64,
    /// Bytes from address on that are this slot's alone: at least frame_bytes, whole units of 64 KiB.
    pub size: u64,
    /// For GPU code: CUdeviceptr, VkDeviceAddress (with SHADER_DEVICE_ADDRESS in vk_buffer_usage), or
    /// D3D12_GPU_VIRTUAL_ADDRESS.
    pub gpu_va: u64,
    /// For the CPU.
    pub host: *mut c_void,
    /// VkBuffer, ID3D12Resource* or CUmemGenericAllocationHandle: borrowed, dies with the buffer.
    pub native: u64,
    /// VkDeviceMemory.
    pub native_memory: u64,
    /// Of this slot inside native.
    pub native_offset: u64,
}

/// A buffer in figures.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_gpu_buffer_info {
    /// sizeof(nrdma_gpu_buffer_info) of the host.
    pub struct_size: u64,
    /// NRDMA_GPU_*, as asked for.
    pub api: i32,
    /// NRDMA_MEMORY_*, never AUTO.
    pub memory: i32,
    /// Slots.
    pub slot_count: u32,
    /// As asked for.
    pub flags: u32,
    /// As asked for.
    pub frame_bytes: u64,
    /// From one slot to the next with NRDMA_GPU_CONTIGUOUS, else 0.
    pub stride: u64,
    /// Bytes of memory taken: what pinning all of it asks of BAR1.
    pub total_bytes: u64,
    /// CUDA's ordinal; -1 without CUDA.
    pub cuda_device: i32,
    /// The driver's word: 1 cards can reach it, 0 not, -1 it does not say. The proof is a transfer: write,
    /// let the card move it, read.
    pub rdma_capable: i32,
    /// 1: call nrdma_gpu_buffer_flush between "the card is done" and the GPU's first read.
    pub needs_flush: u32,
    /// 0.
    pub reserved: u32,
    /// The GPU's; zero when unknown.
    pub gpu_uuid: [u8; 16],
    /// One sentence: what AUTO chose and why; "" when there was nothing to choose.
    pub note: [c_char; 160],
}

/// A handle for another API or process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_gpu_export {
    /// sizeof(nrdma_gpu_export) of the host.
    pub struct_size: u64,
    /// A descriptor or HANDLE: the caller's, to close. It keeps the memory alive, not the slot's addresses.
    pub handle: intptr_t,
    /// Of the slot in it (ibv_reg_dmabuf_mr's offset).
    pub offset: u64,
    /// Of the whole handle.
    pub size: u64,
}

// SAFETY: starts with its size; numbers, no padding.
unsafe impl Versioned for nrdma_gpu_buffer_info {
    const NAME: &'static str = "nrdma_gpu_buffer_info";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        api: 0,
        memory: 0,
        slot_count: 0,
        flags: 0,
        frame_bytes: 0,
        stride: 0,
        total_bytes: 0,
        cuda_device: -1,
        rdma_capable: -1,
        needs_flush: 0,
        reserved: 0,
        gpu_uuid: [0; 16],
        note: [0; 160],
    };
}
// SAFETY: starts with its size; numbers, no padding.
unsafe impl Versioned for nrdma_gpu_export {
    const NAME: &'static str = "nrdma_gpu_export";
    const DEFAULT: Self = Self { struct_size: size_of::<Self>() as u64, handle: -1, offset: 0, size: 0 };
}

// SAFETY: what it points to is the host's to share or not; it is never changed.
unsafe impl Sync for nrdma_gpu_slot {}
// SAFETY: the same.
unsafe impl Send for nrdma_gpu_slot {}

static EMPTY: nrdma_gpu_slot = nrdma_gpu_slot {
    struct_size: 0,
    address: 0,
    size: 0,
    gpu_va: 0,
    host: ptr::null_mut(),
    native: 0,
    native_memory: 0,
    native_offset: 0,
};

impl From<&Slot> for nrdma_gpu_slot {
    fn from(slot: &Slot) -> Self {
        Self {
            struct_size: size_of::<Self>() as u64,
            address: slot.address,
            size: slot.size,
            gpu_va: slot.gpu_va,
            host: ptr::with_exposed_provenance_mut(slot.host),
            native: slot.native,
            native_memory: slot.native_memory,
            native_offset: slot.native_offset,
        }
    }
}

fn info(request: &Request, facts: &Facts) -> Result<nrdma_gpu_buffer_info> {
    let layout = request.layout()?;
    let contiguous = if request.contiguous { NRDMA_GPU_CONTIGUOUS } else { 0 };
    let any = if request.any_memory { NRDMA_GPU_ANY_MEMORY } else { 0 };
    let mut info = nrdma_gpu_buffer_info {
        api: request.api as i32,
        memory: facts.kind.unwrap_or(SlotKind::Auto) as i32,
        slot_count: request.slots,
        flags: contiguous | any,
        frame_bytes: request.frame_bytes,
        stride: if request.contiguous { layout.stride } else { 0 },
        total_bytes: facts.total_bytes,
        cuda_device: facts.ordinal.unwrap_or(-1),
        rdma_capable: facts.rdma_capable.map_or(-1, i32::from),
        needs_flush: facts.needs_flush.into(),
        gpu_uuid: facts.uuid,
        ..nrdma_gpu_buffer_info::DEFAULT
    };
    copy_text(&facts.note, &mut info.note);
    Ok(info)
}

/// The buffer behind a pointer from C.
///
/// # Safety
/// `buffer` is NULL or came from nrdma_gpu_buffer_create and was not destroyed.
unsafe fn borrow<'a>(buffer: *const nrdma_gpu_buffer) -> Result<&'a nrdma_gpu_buffer> {
    fork::check()?;
    // SAFETY: by the contract above.
    unsafe { buffer.as_ref() }.ok_or_else(|| Error::invalid("the GPU buffer is NULL"))
}

impl nrdma_gpu_buffer {
    fn make(request: &Request) -> Result<Self> {
        let slots = slot::maker(crate::slot_makers(), request)?.make(request)?;
        let table = slots.slots().iter().map(nrdma_gpu_slot::from).collect();
        let info = info(request, slots.facts())?;
        Ok(Self { table, info, exports: request.exports.clone(), slots })
    }

    fn at(&self, index: u64) -> Option<&nrdma_gpu_slot> {
        self.table.get(usize::try_from(index).ok()?)
    }

    /// A slot's number, when it exists and has the range.
    fn range(&self, index: u64, offset: u64, size: u64) -> Result<usize> {
        let count = self.table.len();
        let slot = self.at(index).ok_or_else(|| {
            Error::invalid(format!("slot {index} does not exist; there are {count}, from 0 on"))
        })?;
        match offset.checked_add(size) {
            Some(end) if end <= slot.size => Ok(usize::try_from(index).unwrap_or(usize::MAX)),
            _ => Err(Error::invalid(format!(
                "{size} bytes at {offset} do not lie inside slot {index}, which has {} bytes",
                slot.size
            ))),
        }
    }
}

/// Makes slots: all or none. On failure *out is NULL and nrdma_last_error() says what to do. No API but the
/// one asked for is ever tried, and no kind of memory but the one asked for, except for AUTO; a refusal is
/// logged at DEBUG only, so that a host may try several configs in turn. Any thread, with any or no CUDA
/// context current.
///
/// # Safety
/// `config` is NULL or a struct whose struct_size is true and whose pointers are what it says; `out` is NULL
/// or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_create(
    config: *const nrdma_gpu_buffer_config,
    out: *mut *mut nrdma_gpu_buffer,
) -> nrdma_status {
    guarded(|| {
        super::log::start();
        fork::watch();
        fork::check()?;
        // SAFETY: by the contract above.
        let out = unsafe { out.as_mut() }
            .ok_or_else(|| Error::invalid("out, the place for the result, is NULL"))?;
        *out = ptr::null_mut();
        // SAFETY: by the contract above.
        let request = unsafe { read_request(config) }?;
        let made = nrdma_gpu_buffer::make(&request);
        *out = Box::into_raw(Box::new(made.inspect_err(|error| log::log_at!(Debug, "refused: {error}"))?));
        Ok(0)
    })
}

/// Frees all slots. NULL is fine. Before it, the card must let go: stop its stream, unlock or deregister,
/// close what was exported and is no longer used. Any thread, with any or no CUDA context current; never
/// fails, and leaves nrdma_last_error() alone.
///
/// # Safety
/// `buffer` is NULL or from nrdma_gpu_buffer_create; nothing uses it or its slots any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_destroy(buffer: *mut nrdma_gpu_buffer) {
    // A fork's parent has the memory, and drivers do not survive a fork.
    if buffer.is_null() || fork::is_child() {
        return;
    }
    // Not `guard`: that would set the last error.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: by the contract above, ours alone.
        drop(unsafe { Box::from_raw(buffer) });
    }));
}

/// What was made.
///
/// # Safety
/// `buffer` is NULL or live; `info` is NULL or a struct whose struct_size is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_get_info(
    buffer: *const nrdma_gpu_buffer,
    info: *mut nrdma_gpu_buffer_info,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let buffer = unsafe { borrow(buffer) }?;
        // SAFETY: by the contract above.
        unsafe { write_struct(info, &buffer.info) }?;
        Ok(0)
    })
}

/// A slot, which stays as it is until the buffer is destroyed; an empty one (all zero) when there is none of
/// that number or the buffer is NULL, never NULL.
///
/// # Safety
/// `buffer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_slot(
    buffer: *const nrdma_gpu_buffer,
    index: u64,
) -> *const nrdma_gpu_slot {
    // SAFETY: by the contract above.
    let buffer = unsafe { buffer.as_ref() };
    buffer.and_then(|buffer| buffer.at(index)).map_or(&raw const EMPTY, ptr::from_ref)
}

/// A new handle to a slot's memory. `type` is one NRDMA_EXPORT_* that the config's exports had. Slots of a
/// contiguous ring share one allocation: the handle is of all of it, and the slot begins at `offset`.
///
/// # Safety
/// `buffer` is NULL or live; `out` is NULL or a struct whose struct_size is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_export(
    buffer: *const nrdma_gpu_buffer,
    index: u64,
    r#type: u32,
    out: *mut nrdma_gpu_export,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let buffer = unsafe { borrow(buffer) }?;
        let index = buffer.range(index, 0, 0)?;
        let what = export_type(r#type).filter(|what| buffer.exports.contains(what)).ok_or_else(|| {
            Error::invalid(format!("type is {}, which is none of the config's exports", r#type))
        })?;
        // Before there is a handle that would be lost. SAFETY: by the contract above.
        unsafe { write_struct(out, &nrdma_gpu_export::DEFAULT) }?;
        let Export { handle, offset, size } = buffer.slots.export(index, what)?;
        // SAFETY: by the contract above.
        unsafe { write_struct(out, &nrdma_gpu_export { struct_size: 0, handle, offset, size }) }?;
        Ok(0)
    })
}

/// Copies from CPU memory into a slot; complete for the card on return. For tests and probes, not for frames.
/// NRDMA_NOT_SUPPORTED by Vulkan and D3D12.
///
/// # Safety
/// `buffer` is NULL or live; `source` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_write(
    buffer: *mut nrdma_gpu_buffer,
    index: u64,
    offset: u64,
    source: *const c_void,
    size: u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let buffer = unsafe { borrow(buffer) }?;
        let index = buffer.range(index, offset, size)?;
        if source.is_null() {
            return Err(Error::invalid("source is NULL"));
        }
        let size = usize::try_from(size).unwrap_or(0);
        // SAFETY: by the contract above; no larger than a slot.
        let bytes = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), size) };
        buffer.slots.write(index, offset, bytes)?;
        Ok(0)
    })
}

/// Copies from a slot into CPU memory. Otherwise as nrdma_gpu_buffer_write.
///
/// # Safety
/// `buffer` is NULL or live; `target` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_read(
    buffer: *mut nrdma_gpu_buffer,
    index: u64,
    offset: u64,
    target: *mut c_void,
    size: u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let buffer = unsafe { borrow(buffer) }?;
        let index = buffer.range(index, offset, size)?;
        if target.is_null() {
            return Err(Error::invalid("target is NULL"));
        }
        let size = usize::try_from(size).unwrap_or(0);
        // SAFETY: by the contract above; no larger than a slot.
        let bytes = unsafe { std::slice::from_raw_parts_mut(target.cast::<u8>(), size) };
        buffer.slots.read(index, offset, bytes)?;
        Ok(0)
    })
}

/// After the card reported a frame and before GPU work reads it. Costs nothing where the GPU orders the
/// card's writes itself (info.needs_flush is 0). Any thread.
///
/// # Safety
/// `buffer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_flush(buffer: *mut nrdma_gpu_buffer) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        unsafe { borrow(buffer) }?.slots.flush()?;
        Ok(0)
    })
}

/// Whether nrdma_gpu_buffer_create would work, without taking memory. `total_bytes` (may be NULL) gets what
/// it would take, 0 when it would not; `reason` (may be NULL) why not, or what AUTO would choose.
///
/// # Safety
/// `config` as for nrdma_gpu_buffer_create; `total_bytes` is NULL or room for a number; `reason` is NULL or
/// has `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_gpu_buffer_probe(
    config: *const nrdma_gpu_buffer_config,
    total_bytes: *mut u64,
    reason: *mut c_char,
    capacity: u64,
) -> nrdma_status {
    guarded(|| {
        super::log::start();
        fork::watch();
        fork::check()?;
        // SAFETY: by the contract above.
        let request = unsafe { read_request(config) };
        let plan = request.and_then(|request| slot::maker(crate::slot_makers(), &request)?.plan(&request));
        let (total, text) = match &plan {
            Ok(facts) => (facts.total_bytes, facts.note.as_str()),
            Err(error) => (0, error.text.as_str()),
        };
        // SAFETY: by the contract above.
        if let Some(out) = unsafe { total_bytes.as_mut() } {
            *out = total;
        }
        let capacity = usize::try_from(capacity).unwrap_or(0).min(1 << 20);
        if !reason.is_null() {
            // SAFETY: by the contract above.
            copy_text(text, unsafe { std::slice::from_raw_parts_mut(reason, capacity) });
        }
        plan.map(|_| 0)
    })
}

/// How many frames a ring should hold: `full`, or `large` when `full` of them would take more than half of
/// that GPU's BAR1, which is what cards see of its memory. When that is unknown (no NVML), or cuda_device is
/// below 0: `large` from 32 MiB a frame on. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn nrdma_gpu_ring_depth(cuda_device: i32, frame_bytes: u64, full: u32, large: u32) -> u32 {
    guard(|| {
        let known = (cuda_device >= 0 && !fork::is_child())
            .then(|| crate::slot_makers().iter().find_map(|maker| maker.window(cuda_device)));
        slot::ring_depth(known.flatten(), frame_bytes, full, large)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let cut = |text: &str, room: usize| {
            let mut out = vec![1 as c_char; room];
            copy_text(text, &mut out);
            out.iter().map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())).collect::<Vec<_>>()
        };
        assert_eq!(cut("abc", 4), b"abc\0");
        assert_eq!(cut("abc", 3), b"ab\0");
        assert_eq!(cut("a\u{e9}", 3), b"a\0\x01");
        assert_eq!(cut("", 1), b"\0");
        assert_eq!(cut("abc", 0), b"");
    }
}
