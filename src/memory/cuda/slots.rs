//! Slots in GPU memory, or in host memory that a GPU reaches.
use std::sync::Arc;

use super::context::{Context, Entered};
use super::piece::{OwnedExport, Piece, Recipe};
use super::plan::Plan;
use super::sys::{StreamHandle, read_host, write_host};
use crate::core::error::{Error, Kind, Result};
use crate::core::slot::{Export, ExportType, Facts, Layout, Slot, Slots};

/// A ring of slots.
pub(super) struct Ring {
    /// Freed before the context goes.
    pieces: Vec<Piece>,
    recipe: Recipe,
    layout: Layout,
    slots: Vec<Slot>,
    facts: Facts,
    context: Arc<Context>,
}

impl Ring {
    /// All slots or none: what was made is freed when a later step fails.
    pub(super) fn make(plan: Plan, exports: &[ExportType]) -> Result<Self> {
        let context = match plan.context {
            Some(theirs) => theirs,
            None => Context::primary(&plan.recipe.device)?,
        };
        let mut ring = Self {
            pieces: Vec::new(),
            recipe: plan.recipe,
            layout: plan.layout,
            slots: Vec::new(),
            facts: plan.facts,
            context: Arc::clone(&context),
        };
        let _entered = context.enter()?;
        ring.fill()?;
        // What cannot be exported is known now, and not when a stream is about to start.
        for export in exports {
            drop(OwnedExport::new(ring.handle(0, *export)?));
        }
        Ok(ring)
    }

    fn fill(&mut self) -> Result<()> {
        for index in 0..self.layout.pieces {
            let piece = self.recipe.make().map_err(|error| self.placed(error, index))?;
            self.pieces.push(piece);
        }
        self.facts.total_bytes = self.pieces.iter().map(Piece::taken).sum();
        self.facts.rdma_capable = self.facts.rdma_capable.map(|said| {
            said && self.pieces.iter().all(|piece| !matches!(piece, Piece::Vmm { rdma_capable: false, .. }))
        });
        let whole: Vec<_> = self.pieces.iter().map(Piece::slot).collect();
        self.slots = self.layout.slots(&whole);
        Ok(())
    }

    /// Says which of several allocations it was.
    fn placed(&self, error: Error, index: u32) -> Error {
        match self.layout.pieces {
            1 => error,
            pieces => Error::new(error.kind, format!("slot {index} of {pieces}: {error}")),
        }
    }

    fn piece(&self, slot: usize) -> Result<&Piece> {
        let piece = self.pieces.get(self.layout.piece_of(slot));
        piece.ok_or_else(|| Error::invalid(format!("there is no slot {slot}")))
    }

    /// The handle of the piece that a slot is in; the thread is in our context.
    fn handle(&self, slot: usize, what: ExportType) -> Result<isize> {
        let (piece, table) = (self.piece(slot)?, self.recipe.device.driver.table);
        let handle = match what {
            ExportType::Fd | ExportType::Win32 => piece.export(table),
            #[cfg(unix)]
            ExportType::DmaBuf => piece.export_dma_buf(table, false),
            #[cfg(unix)]
            ExportType::DmaBufPcie => piece.export_dma_buf(table, true),
            #[cfg(windows)]
            ExportType::DmaBuf | ExportType::DmaBufPcie => {
                Err(super::failure::Failure::Missing { call: "cuMemGetHandleForAddressRange" })
            }
        };
        handle.map_err(|failure| failure.error(format!("{} of slot {slot}", what.name())))
    }

    /// Runs copies on a stream of their own, which waits for no other work of the host; done on return.
    fn copy(&self, what: &str, run: impl FnOnce(StreamHandle) -> Result<()>) -> Result<()> {
        let table = self.recipe.device.driver.table;
        let _entered = self.context.enter()?;
        let stream = table.create_stream().map_err(|failure| failure.error(what))?;
        let ran = run(stream);
        // Also after a failure: the copy may have begun, and the caller's memory must be left alone.
        let mut done = table.synchronize(stream);
        if done.is_err() {
            done = table.synchronize(stream);
        }
        let destroyed = table.destroy_stream(stream);
        ran?;
        done.and(destroyed).map_err(|failure| failure.error(what))
    }

    fn address(&self, slot: usize) -> Result<Slot> {
        let found = self.slots.get(slot).copied();
        found.ok_or_else(|| Error::invalid(format!("there is no slot {slot}")))
    }
}

impl Slots for Ring {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn slots(&self) -> &[Slot] {
        &self.slots
    }
    fn export(&self, slot: usize, what: ExportType) -> Result<Export> {
        let at = self.address(slot)?;
        let size = self.piece(slot)?.slot().size;
        let entered = self.context.enter()?;
        let handle = OwnedExport::new(self.handle(slot, what)?);
        drop(entered);
        Ok(Export { handle: handle.take(), offset: at.native_offset, size })
    }
    fn write(&self, slot: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = self.address(slot)?;
        if at.host != 0 {
            write_host(at.host.wrapping_add(in_memory(offset)?), bytes);
            return Ok(());
        }
        let what = format!("writing {} bytes to slot {slot}", bytes.len());
        let table = self.recipe.device.driver.table;
        self.copy(&what, |stream| {
            let copied = table.copy_to_device(at.address.wrapping_add(offset), bytes, stream);
            copied.map_err(|failure| failure.error(&what))
        })
    }
    fn read(&self, slot: usize, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let at = self.address(slot)?;
        if at.host != 0 {
            read_host(at.host.wrapping_add(in_memory(offset)?), bytes);
            return Ok(());
        }
        let what = format!("reading {} bytes of slot {slot}", bytes.len());
        let table = self.recipe.device.driver.table;
        self.copy(&what, |stream| {
            let copied = table.copy_from_device(bytes, at.address.wrapping_add(offset), stream);
            copied.map_err(|failure| failure.error(&what))
        })
    }
    fn flush(&self) -> Result<()> {
        if !self.facts.needs_flush {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        let flushed = self.recipe.device.driver.table.flush_gpudirect_writes();
        flushed.map_err(|failure| {
            failure.error(format!("making a card's writes visible to {}", self.recipe.device.shown()))
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A failed push did nothing, so it may be tried again. Without the context we still free what is not its.
        let entered: Option<Entered> = self.context.enter().or_else(|_| self.context.enter()).ok();
        let table = self.recipe.device.driver.table;
        for piece in self.pieces.iter_mut().rev() {
            piece.free(table, entered.is_some());
        }
        self.pieces.clear();
    }
}

fn in_memory(offset: u64) -> Result<usize> {
    usize::try_from(offset)
        .map_err(|_| Error::new(Kind::InvalidParameter, format!("offset {offset} cannot be addressed")))
}
