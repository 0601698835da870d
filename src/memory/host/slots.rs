//! Slots in main memory: pages of our own that the card's SDK pins.
use super::sys::HostBlock;
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Block;
use crate::core::slot::{Api, Export, ExportType, Facts, Layout, Request, Slot, SlotKind, SlotMaker, Slots};
use crate::sys::limits;
use crate::sys::map::Mapping;

/// Makes slots of pages.
pub(crate) struct HostSlots;

fn facts(request: &Request, layout: &Layout) -> Result<Facts> {
    if !matches!(request.kind, SlotKind::Auto | SlotKind::Pages) {
        return Err(request.refuse_kind("host", "AUTO, PAGES and PINNED"));
    }
    request.refuse_exports("pages of main memory")?;
    let auto = request.kind == SlotKind::Auto;
    Ok(Facts {
        kind: Some(SlotKind::Pages),
        total_bytes: layout.piece_bytes.saturating_mul(layout.pieces.into()),
        rdma_capable: Some(true),
        note: if auto { "pages of main memory, which the card's SDK pins".to_owned() } else { String::new() },
        ..Facts::default()
    })
}

impl SlotMaker for HostSlots {
    fn makes(&self, api: Api, kind: SlotKind) -> bool {
        api == Api::HostFallback && kind != SlotKind::Pinned
    }
    fn plan(&self, request: &Request) -> Result<Facts> {
        facts(request, &request.layout()?)
    }
    fn make(&self, request: &Request) -> Result<Box<dyn Slots>> {
        let layout = request.layout()?;
        let facts = facts(request, &layout)?;
        let size = |bytes: u64| {
            usize::try_from(bytes)
                .map_err(|_| Error::new(Kind::OutOfMemory, format!("{bytes} bytes cannot be addressed")))
        };
        let (bytes, alignment) = (size(layout.piece_bytes)?, size(layout.alignment)?);
        // Every page is taken below, and too many of them would bring the kernel's killer.
        let left = limits::memory_available();
        if facts.total_bytes >= left {
            let text = format!("slots of {} bytes were asked for and {left} are left", facts.total_bytes);
            return Err(Error::new(Kind::OutOfMemory, text));
        }
        let mut pieces = Vec::new();
        for _ in 0..layout.pieces {
            let pages = Mapping::anonymous(bytes, alignment)?;
            // Pinned pages that a fork shares would be copied away from under the card at our next write.
            pages.dont_fork();
            let taken = pages.populate(bytes);
            let block = HostBlock::private(pages);
            if !taken {
                block.zero(0, bytes)?;
            }
            pieces.push(block);
        }
        let whole: Vec<_> = pieces
            .iter()
            .map(|block| Slot {
                address: block.address() as u64,
                size: block.capacity() as u64,
                host: block.address(),
                ..Slot::default()
            })
            .collect();
        Ok(Box::new(Ring { slots: layout.slots(&whole), facts, layout, pieces }))
    }
}

/// A ring of slots.
struct Ring {
    pieces: Vec<HostBlock>,
    layout: Layout,
    slots: Vec<Slot>,
    facts: Facts,
}

impl Ring {
    /// The block of a slot's byte, and where in it.
    fn place(&self, slot: usize, offset: u64) -> Result<(&HostBlock, usize)> {
        let at = self.slots.get(slot).and_then(|slot| slot.native_offset.checked_add(offset));
        let block = self.pieces.get(self.layout.piece_of(slot));
        match (block, at.and_then(|at| usize::try_from(at).ok())) {
            (Some(block), Some(at)) => Ok((block, at)),
            _ => Err(Error::invalid(format!("there is no byte {offset} of slot {slot}"))),
        }
    }
}

impl Slots for Ring {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn slots(&self) -> &[Slot] {
        &self.slots
    }
    fn export(&self, _slot: usize, what: ExportType) -> Result<Export> {
        Err(Error::new(Kind::NotSupported, format!("pages of main memory have no {}", what.name())))
    }
    fn write(&self, slot: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let (block, at) = self.place(slot, offset)?;
        block.write(at, bytes)
    }
    fn read(&self, slot: usize, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let (block, at) = self.place(slot, offset)?;
        block.read(at, bytes)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
