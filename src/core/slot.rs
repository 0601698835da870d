//! Slots: equal pieces of memory that a capture card or NIC reaches by itself, made and freed as one.
use super::error::{Error, Kind, Result};

/// Cards and their drivers work in units of this size: pieces begin and end on it.
pub(crate) const UNIT: u64 = 64 * 1024;
/// More slots than any ring has; a larger count is a mistake.
pub(crate) const MOST_SLOTS: u32 = 65_536;
/// Larger frames are a mistake, as are larger alignments.
const MOST_BYTES: u64 = 1 << 40;
const MOST_ALIGNMENT: u64 = 1 << 30;

/// Whose memory slots are; the numbers are `NRDMA_GPU_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Api {
    Cuda = 1,
    Vulkan = 2,
    D3d12 = 3,
    HostFallback = 4,
}

/// What kind of memory slots are; the numbers are `NRDMA_MEMORY_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum SlotKind {
    /// Only in a request: the backend decides.
    Auto = 0,
    Device = 1,
    Vmm = 2,
    Pinned = 3,
    Pages = 4,
}

/// A way to hand a slot to another API or process; the numbers are `NRDMA_EXPORT_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ExportType {
    DmaBuf = 1,
    /// Through the GPU's BAR1 even where there is a shorter way.
    DmaBufPcie = 2,
    Fd = 4,
    Win32 = 8,
}

impl ExportType {
    pub(crate) const ALL: [Self; 4] = [Self::DmaBuf, Self::DmaBufPcie, Self::Fd, Self::Win32];

    /// As in C's names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DmaBuf => "NRDMA_EXPORT_DMA_BUF",
            Self::DmaBufPcie => "NRDMA_EXPORT_DMA_BUF_PCIE",
            Self::Fd => "NRDMA_EXPORT_FD",
            Self::Win32 => "NRDMA_EXPORT_WIN32",
        }
    }
}

impl SlotKind {
    /// As in C's names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "NRDMA_MEMORY_AUTO",
            Self::Device => "NRDMA_MEMORY_DEVICE",
            Self::Vmm => "NRDMA_MEMORY_VMM",
            Self::Pinned => "NRDMA_MEMORY_PINNED",
            Self::Pages => "NRDMA_MEMORY_PAGES",
        }
    }
}

/// Which GPU, for CUDA.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(all(feature = "cuda", feature = "vulkan")), allow(dead_code))]
pub(crate) struct GpuChoice {
    pub(crate) ordinal: i32,
    /// Wins over the ordinal.
    pub(crate) uuid: Option<[u8; 16]>,
    /// The host's CUcontext, as a number; 0 is the GPU's primary context.
    pub(crate) context: usize,
}

/// The host's Vulkan objects, as numbers: borrowed for as long as the slots live.
#[derive(Debug, Clone)]
#[cfg_attr(not(all(feature = "cuda", feature = "vulkan")), allow(dead_code))]
pub(crate) struct VulkanHost {
    pub(crate) instance: usize,
    pub(crate) physical_device: usize,
    pub(crate) device: usize,
    /// Its vkGetInstanceProcAddr.
    pub(crate) get_instance_proc_addr: usize,
    /// VkBufferUsageFlags; 0 is the default.
    pub(crate) usage: u32,
    /// Queue families that share the buffers; none or one is exclusive use.
    pub(crate) families: Vec<u32>,
}

/// The host's D3D12 device, as a number: borrowed for as long as the slots live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct D3d12Host {
    pub(crate) device: usize,
    /// 0 is the first node.
    pub(crate) creation_mask: u32,
    pub(crate) visible_mask: u32,
}

/// What the host asks for.
#[derive(Debug, Clone)]
#[cfg_attr(not(all(feature = "cuda", feature = "vulkan")), allow(dead_code))]
pub(crate) struct Request {
    pub(crate) api: Api,
    pub(crate) kind: SlotKind,
    pub(crate) slots: u32,
    pub(crate) frame_bytes: u64,
    /// 0 is `UNIT`, which is also the least.
    pub(crate) alignment: u64,
    /// One block for all slots.
    pub(crate) contiguous: bool,
    /// Also what its driver says no card can reach.
    pub(crate) any_memory: bool,
    /// Which handles export() must be able to make.
    pub(crate) exports: Vec<ExportType>,
    pub(crate) gpu: GpuChoice,
    pub(crate) vulkan: VulkanHost,
    pub(crate) d3d12: D3d12Host,
}

/// Where slots lie: `pieces` allocations, each of at least `piece_bytes` from an address on `alignment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) alignment: u64,
    /// From one slot to the next in a contiguous ring; whole units.
    pub(crate) stride: u64,
    pub(crate) pieces: u32,
    pub(crate) piece_bytes: u64,
    slots: u32,
}

impl Request {
    /// Where the slots lie; refuses sizes that cannot be.
    pub(crate) fn layout(&self) -> Result<Layout> {
        if !(1..=MOST_SLOTS).contains(&self.slots) {
            let text = format!("slot_count is {}; it must be 1 to {MOST_SLOTS}", self.slots);
            return Err(Error::invalid(text));
        }
        if !(1..=MOST_BYTES).contains(&self.frame_bytes) {
            let text = format!("frame_bytes is {}; it must be 1 byte to 1 TiB", self.frame_bytes);
            return Err(Error::invalid(text));
        }
        let alignment = if self.alignment == 0 { UNIT } else { self.alignment };
        if !alignment.is_power_of_two() || alignment > MOST_ALIGNMENT {
            let text =
                format!("alignment is {alignment}; it must be a power of two and at most {MOST_ALIGNMENT}");
            return Err(Error::invalid(text));
        }
        let alignment = alignment.max(UNIT);
        // At most 1 TiB + 1 GiB: cannot overflow, and neither can 65,536 of it.
        let stride = self.frame_bytes.next_multiple_of(alignment);
        let (pieces, piece_bytes) = match self.contiguous {
            true => (1, stride * u64::from(self.slots)),
            false => (self.slots, stride),
        };
        Ok(Layout { alignment, stride, pieces, piece_bytes, slots: self.slots })
    }

    /// Refuses every export, for backends that have none.
    pub(crate) fn refuse_exports(&self, memory: &str) -> Result<()> {
        match self.exports.first() {
            None => Ok(()),
            Some(wanted) => Err(Error::new(
                Kind::NotSupported,
                format!("{memory} cannot be exported, and {} was asked for", wanted.name()),
            )),
        }
    }

    /// Refuses a kind that an API does not have.
    pub(crate) fn refuse_kind(&self, api: &str, has: &str) -> Error {
        Error::invalid(format!("{} is no kind of {api} memory; there is {has}", self.kind.name()))
    }
}

/// One slot; the three addresses name the same bytes, 0 where that side cannot reach them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// For the card.
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// For GPU code.
    pub(crate) gpu_va: u64,
    /// For the CPU.
    pub(crate) host: usize,
    /// The allocation in its API's words, and where in it the slot is.
    pub(crate) native: u64,
    pub(crate) native_memory: u64,
    pub(crate) native_offset: u64,
}

impl Layout {
    /// The slots in the pieces, each piece given as the slot that it would be as a whole.
    pub(crate) fn slots(&self, pieces: &[Slot]) -> Vec<Slot> {
        let contiguous = self.pieces == 1 && self.slots > 1;
        let one = |(index, piece): (u32, &Slot)| {
            let offset = if contiguous { u64::from(index) * self.stride } else { 0 };
            let host = usize::try_from(offset).unwrap_or(0);
            Slot {
                address: piece.address.wrapping_add(offset),
                size: if contiguous { self.stride } else { piece.size },
                gpu_va: if piece.gpu_va == 0 { 0 } else { piece.gpu_va.wrapping_add(offset) },
                host: if piece.host == 0 { 0 } else { piece.host.wrapping_add(host) },
                native: piece.native,
                native_memory: piece.native_memory,
                native_offset: piece.native_offset.wrapping_add(offset),
            }
        };
        match (contiguous, pieces.first()) {
            (true, Some(piece)) => (0..self.slots).map(|index| one((index, piece))).collect(),
            _ => (0..self.slots).zip(pieces).map(one).collect(),
        }
    }

    /// A piece that has the layout's bytes from an aligned address on, and where in it that is, where nothing says how
    /// addresses are aligned. `make`: a piece of so many bytes.
    pub(crate) fn aligned<P>(
        &self,
        make: impl Fn(u64) -> Result<P>,
        address: impl Fn(&P) -> u64,
    ) -> Result<(P, u64)> {
        let mut piece = make(self.piece_bytes)?;
        if !address(&piece).is_multiple_of(self.alignment) {
            // Once more, with room to begin later; never both at a time.
            drop(piece);
            piece = make(self.piece_bytes.saturating_add(self.alignment))?;
        }
        let at = address(&piece);
        Ok((piece, at.next_multiple_of(self.alignment) - at))
    }

    /// The piece that a slot is in.
    pub(crate) fn piece_of(&self, slot: usize) -> usize {
        if self.pieces == 1 { 0 } else { slot }
    }
}

/// What was made, or would be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// The kind; None only before it is decided.
    pub(crate) kind: Option<SlotKind>,
    /// Memory taken, in bytes.
    pub(crate) total_bytes: u64,
    /// The CUDA ordinal; None without CUDA.
    pub(crate) ordinal: Option<i32>,
    pub(crate) uuid: [u8; 16],
    /// The driver's word on whether cards reach it; None when it does not say.
    pub(crate) rdma_capable: Option<bool>,
    /// Whether `flush` does something.
    pub(crate) needs_flush: bool,
    /// What was chosen and why; "" when there was nothing to choose.
    pub(crate) note: String,
}

/// A handle to a slot's memory; its owner closes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Export {
    pub(crate) handle: isize,
    /// Of the slot in it.
    pub(crate) offset: u64,
    /// Of the whole.
    pub(crate) size: u64,
}

/// Slots that were made; dropped = freed, from any thread and with any CUDA context current.
pub(crate) trait Slots: Send + Sync {
    fn facts(&self) -> &Facts;
    fn slots(&self) -> &[Slot];
    /// A new handle to a slot that exists, of a type that the request named.
    fn export(&self, slot: usize, what: ExportType) -> Result<Export>;
    /// Copies into a slot, complete for the card on return; the range was checked.
    fn write(&self, slot: usize, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Copies out of a slot; the range was checked.
    fn read(&self, slot: usize, offset: u64, bytes: &mut [u8]) -> Result<()>;
    /// Makes what a card wrote visible to GPU work that starts later.
    fn flush(&self) -> Result<()>;
}

/// Slots that only a device reaches: no handles to them, and no copies by the CPU.
pub(crate) struct DeviceOnly<M> {
    pub(crate) slots: Vec<Slot>,
    pub(crate) facts: Facts,
    /// The API, for errors.
    pub(crate) api: &'static str,
    /// What it calls what a slot is made of.
    pub(crate) native: &'static str,
    /// What is freed with the slots.
    pub(crate) _memory: M,
}

impl<M> DeviceOnly<M> {
    fn no_copies(&self) -> Error {
        let (api, native) = (self.api, self.native);
        let text = format!(
            "the CPU does not reach this memory; copy by a queue of the {api} device, from or to the slot's native \
             {native}"
        );
        Error::new(Kind::NotSupported, text)
    }
}

impl<M: Send + Sync> Slots for DeviceOnly<M> {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn slots(&self) -> &[Slot] {
        &self.slots
    }
    fn export(&self, _slot: usize, what: ExportType) -> Result<Export> {
        Err(Error::new(Kind::NotSupported, format!("{} memory has no {}", self.api, what.name())))
    }
    fn write(&self, _slot: usize, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(self.no_copies())
    }
    fn read(&self, _slot: usize, _offset: u64, _bytes: &mut [u8]) -> Result<()> {
        Err(self.no_copies())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// A backend that makes slots.
pub(crate) trait SlotMaker: Send + Sync {
    /// Whether it makes this kind of this API's memory; Auto is the API's usual maker.
    fn makes(&self, api: Api, kind: SlotKind) -> bool;
    /// What `make` would do, without taking memory.
    fn plan(&self, request: &Request) -> Result<Facts>;
    /// All slots or none.
    fn make(&self, request: &Request) -> Result<Box<dyn Slots>>;
    /// Bytes of a GPU's memory that PCIe devices can see at a time; None when nobody says.
    fn window(&self, _ordinal: i32) -> Option<u64> {
        None
    }
}

/// The maker of what a request asks for: never of another API.
pub(crate) fn maker<'a>(makers: &[&'a dyn SlotMaker], request: &Request) -> Result<&'a dyn SlotMaker> {
    let found = makers.iter().find(|maker| maker.makes(request.api, request.kind)).copied();
    found.ok_or_else(|| {
        Error::new(Kind::NotSupported, format!("this build of nrdma makes no slots by {:?}", request.api))
    })
}

/// Frames that a ring should hold: `full`, or `large` when `full` of them would take more than half of the
/// GPU's window to PCIe devices; unknown is judged by the frame.
pub(crate) fn ring_depth(window: Option<u64>, frame_bytes: u64, full: u32, large: u32) -> u32 {
    const LARGE_FRAME: u64 = 32 << 20;
    let too_much = match window {
        Some(window) => {
            let frame = frame_bytes.div_ceil(UNIT).saturating_mul(UNIT);
            frame.saturating_mul(u64::from(full)) > window / 2
        }
        None => frame_bytes >= LARGE_FRAME,
    };
    if too_much { large } else { full }
}

#[cfg(test)]
mod tests;
