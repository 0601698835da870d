//! Buffers of the host's device, each with its own memory.
use std::sync::Arc;

use ash::vk::{self, Handle};

use super::Plan;
use super::sys::Functions;
use crate::core::error::{Error, Kind, Result};
use crate::core::slot::{DeviceOnly, Slot};

const RDMA: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::RDMA_CAPABLE_NV;

pub(super) fn no_type() -> Error {
    let text = "the device has no memory type with RDMA_CAPABLE that such a buffer may use";
    Error::new(Kind::NotSupported, text)
}

/// Bytes of the largest heap that cards can reach; None without one.
pub(super) fn largest_heap(functions: &Functions) -> Option<u64> {
    let properties = functions.memory_properties();
    let heaps = properties.memory_types_as_slice().iter().filter(|kind| kind.property_flags.contains(RDMA));
    let heaps = heaps.filter_map(|kind| properties.memory_heaps.get(usize::try_from(kind.heap_index).ok()?));
    heaps.map(|heap| heap.size).max()
}

/// A memory type that the buffer may use and cards can reach: never another one.
fn memory_type(functions: &Functions, allowed: u32) -> Option<u32> {
    let properties = functions.memory_properties();
    let types = (0..32).zip(properties.memory_types_as_slice());
    let mut fitting =
        types.filter(|(index, kind)| allowed >> index & 1 == 1 && kind.property_flags.contains(RDMA));
    fitting.next().map(|(index, _)| index)
}

/// A buffer with its memory. Dropped: the buffer first, then the memory, with which the address goes.
pub(super) struct Piece {
    functions: Arc<Functions>,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    address: u64,
    device_address: u64,
    taken: u64,
}

impl Piece {
    fn make(functions: &Arc<Functions>, plan: &PieceOf<'_>, size: u64) -> Result<Self> {
        let tried = format!("a buffer of {size} bytes");
        let failed = |failure: super::sys::Failure| failure.error(&tried);
        let buffer = functions.create_buffer(size, plan.usage, plan.families).map_err(failed)?;
        let mut piece = Self {
            functions: Arc::clone(functions),
            buffer,
            memory: vk::DeviceMemory::null(),
            address: 0,
            device_address: 0,
            taken: 0,
        };
        let requirements = functions.requirements(buffer);
        let kind = memory_type(functions, requirements.memory_type_bits).ok_or_else(no_type)?;
        let addressable = plan.usage.contains(vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS);
        piece.taken = requirements.size;
        piece.memory = functions.allocate(requirements.size, kind, addressable).map_err(failed)?;
        functions.bind(buffer, piece.memory).map_err(failed)?;
        piece.address = functions.remote_address(piece.memory).map_err(failed)?;
        if piece.address == 0 {
            return Err(Error::new(Kind::DriverError, format!("{tried}: its RDMA address is 0")));
        }
        if addressable {
            piece.device_address = functions.device_address(buffer);
        }
        Ok(piece)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.functions.destroy_buffer(self.buffer);
        self.functions.free(self.memory);
    }
}

/// What all pieces have in common.
struct PieceOf<'a> {
    usage: vk::BufferUsageFlags,
    families: &'a [u32],
}

/// All slots or none.
pub(super) fn make(plan: Plan) -> Result<DeviceOnly<Vec<Piece>>> {
    let functions = Arc::new(plan.functions);
    let of = PieceOf { usage: plan.usage, families: &plan.families };
    let (mut pieces, mut whole) = (Vec::new(), Vec::new());
    let mut facts = plan.facts;
    facts.total_bytes = 0;
    for _ in 0..plan.layout.pieces {
        let made = plan.layout.aligned(|size| Piece::make(&functions, &of, size), |piece| piece.address);
        let (piece, offset) = made?;
        whole.push(Slot {
            address: piece.address.wrapping_add(offset),
            size: plan.layout.piece_bytes,
            gpu_va: if piece.device_address == 0 { 0 } else { piece.device_address.wrapping_add(offset) },
            host: 0,
            native: piece.buffer.as_raw(),
            native_memory: piece.memory.as_raw(),
            native_offset: offset,
        });
        facts.total_bytes = facts.total_bytes.saturating_add(piece.taken);
        pieces.push(piece);
    }
    let slots = plan.layout.slots(&whole);
    Ok(DeviceOnly { slots, facts, api: "Vulkan", native: "buffer", _memory: pieces })
}
