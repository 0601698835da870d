//! One allocation, of any kind, with the order in which it goes.
use super::device::Device;
use super::failure::Failure;
use super::sys::{Table, VmmProperties, close};
use crate::core::error::{Error, Kind, Result};
use crate::core::log;
use crate::core::slot::{Slot, SlotKind};
use crate::sys::map::Mapping;

/// What every piece of a ring has in common.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) device: Device,
    pub(super) kind: SlotKind,
    /// Pages of our own that are pinned, and not the driver's.
    pub(super) own_pages: bool,
    pub(super) alignment: usize,
    pub(super) bytes: usize,
    pub(super) vmm: VmmProperties,
    /// Refuse what the driver made and does not call RDMA capable.
    pub(super) must_be_rdma_capable: bool,
}

/// An allocation. `free` ends it; it does nothing by itself when it is dropped, because it needs a context.
pub(super) enum Piece {
    /// By cuMemAlloc; `base` is the driver's address, `address` ours in it, aligned.
    Plain { base: u64, address: u64, bytes: usize, taken: usize },
    /// By cuMemCreate. What is zero is not there (any more).
    Vmm { handle: u64, address: u64, reserved: usize, mapped: usize, bytes: usize, rdma_capable: bool },
    /// By cuMemHostAlloc.
    HostAlloc { base: usize, address: usize, bytes: usize, taken: usize, gpu_va: u64 },
    /// Our own pages, pinned.
    Registered { pages: Option<Mapping>, gpu_va: u64 },
}

impl Recipe {
    /// As in messages.
    fn tried(&self) -> String {
        format!("{} bytes on {}", self.bytes, self.device.shown())
    }

    fn failed(&self, failure: Failure) -> Error {
        failure.error(self.tried())
    }

    /// Makes a piece; nothing is left behind when that fails. The context is the thread's.
    pub(super) fn make(&self) -> Result<Piece> {
        match (self.kind, self.own_pages) {
            (SlotKind::Vmm, _) => self.make_vmm(),
            (SlotKind::Pinned, false) => self.make_host(),
            (SlotKind::Pinned, true) => self.register(),
            _ => self.make_plain(),
        }
    }

    /// Allocates, and once more with room for the alignment when the driver's address is not aligned.
    fn aligned<A: Copy>(
        &self,
        allocate: impl Fn(usize) -> Result<A, Failure>,
        free: impl Fn(A) -> Result<(), Failure>,
        at: impl Fn(A) -> u64,
    ) -> Result<(A, u64, usize)> {
        let unit = self.alignment as u64;
        let first = allocate(self.bytes).map_err(|failure| self.failed(failure))?;
        if at(first).is_multiple_of(unit) {
            return Ok((first, at(first), self.bytes));
        }
        note_lost(free(first));
        let room = self
            .bytes
            .checked_add(self.alignment)
            .ok_or_else(|| Error::new(Kind::OutOfMemory, format!("{} are too many", self.tried())))?;
        let base = allocate(room).map_err(|failure| self.failed(failure))?;
        Ok((base, at(base).next_multiple_of(unit), room))
    }

    fn make_plain(&self) -> Result<Piece> {
        let table = self.device.driver.table;
        let (base, address, taken) =
            self.aligned(|bytes| table.allocate(bytes), |base| table.free(base), |base| base)?;
        let mut piece = Piece::Plain { base, address, bytes: self.bytes, taken };
        if let Err(failure) = table.sync_memops(base) {
            piece.free(table, true);
            return Err(self.failed(failure));
        }
        Ok(piece)
    }

    fn make_host(&self) -> Result<Piece> {
        let table = self.device.driver.table;
        let (base, address, taken) = self.aligned(
            |bytes| table.allocate_host(bytes),
            |base| table.free_host(base),
            |base| base as u64,
        )?;
        let address = usize::try_from(address).unwrap_or(0);
        let offset = address.wrapping_sub(base) as u64;
        let mut piece = Piece::HostAlloc { base, address, bytes: self.bytes, taken, gpu_va: 0 };
        match table.device_pointer(base) {
            Ok(pointer) => {
                if let Piece::HostAlloc { gpu_va, .. } = &mut piece {
                    *gpu_va = pointer.wrapping_add(offset);
                }
                Ok(piece)
            }
            Err(failure) => {
                piece.free(table, true);
                Err(self.failed(failure))
            }
        }
    }

    fn register(&self) -> Result<Piece> {
        let table = self.device.driver.table;
        let pages = Mapping::anonymous(self.bytes, self.alignment)?;
        // Pinned pages that a fork shares would be copied away from under the card at our next write.
        pages.dont_fork();
        table.register_host(pages.address(), self.bytes).map_err(|failure| self.failed(failure))?;
        match table.device_pointer(pages.address()) {
            Ok(gpu_va) => Ok(Piece::Registered { pages: Some(pages), gpu_va }),
            Err(failure) => {
                Piece::Registered { pages: Some(pages), gpu_va: 0 }.free(table, true);
                Err(self.failed(failure))
            }
        }
    }

    fn make_vmm(&self) -> Result<Piece> {
        let table = self.device.driver.table;
        let mut piece = Piece::Vmm {
            handle: 0,
            address: 0,
            reserved: 0,
            mapped: 0,
            bytes: self.bytes,
            rdma_capable: false,
        };
        match self.build_vmm(table, &mut piece) {
            Ok(()) => Ok(piece),
            Err(error) => {
                piece.free(table, true);
                Err(error)
            }
        }
    }

    fn build_vmm(&self, table: &Table, piece: &mut Piece) -> Result<()> {
        let Piece::Vmm { handle, address, reserved, mapped, bytes, rdma_capable } = piece else {
            return Ok(());
        };
        let failed = |failure| self.failed(failure);
        *handle = table.create(*bytes, self.vmm).map_err(failed)?;
        *address = table.reserve(*bytes, self.alignment).map_err(failed)?;
        *reserved = *bytes;
        table.map(*address, *bytes, *handle).map_err(failed)?;
        *mapped = *bytes;
        table.set_access(*address, *bytes, self.vmm).map_err(failed)?;
        // The flag was only a wish.
        *rdma_capable = self.vmm.rdma && table.is_rdma_capable(*address).map_err(failed)?;
        if self.must_be_rdma_capable && !*rdma_capable {
            return Err(Error::new(
                Kind::NotSupported,
                format!(
                    "{}: the driver made VMM memory and does not call it RDMA capable (pointer attribute 15 is 0): \
                     use NRDMA_MEMORY_DEVICE",
                    self.tried()
                ),
            ));
        }
        Ok(())
    }
}

/// What the driver would not free is lost, and only that.
fn note_lost(freed: Result<(), Failure>) {
    if let Err(failure) = freed {
        log::log_at!(Debug, "{}", failure.error("freeing"));
    }
}

impl Piece {
    /// Frees everything, in the order that the driver wants, and goes on past failures. Without a context
    /// (`entered`), what belonged to it went with it.
    pub(super) fn free(&mut self, table: &Table, entered: bool) {
        match self {
            Self::Plain { base, .. } if entered => note_lost(table.free(std::mem::take(base))),
            Self::HostAlloc { base, .. } if entered => note_lost(table.free_host(std::mem::take(base))),
            Self::Plain { .. } | Self::HostAlloc { .. } => {}
            Self::Vmm { handle, address, reserved, mapped, .. } => {
                if *mapped != 0
                    && let Err(failure) = table.unmap(*address, *mapped)
                {
                    // Still mapped: its addresses must not be given away.
                    *reserved = 0;
                    note_lost(Err(failure));
                }
                if *reserved != 0 {
                    note_lost(table.free_reserved(*address, *reserved));
                }
                if *handle != 0 {
                    note_lost(table.release(*handle));
                }
                (*handle, *reserved, *mapped) = (0, 0, 0);
            }
            Self::Registered { pages, .. } => {
                if let Some(pages) = pages.take()
                    && let Err(failure) = table.unregister_host(pages.address())
                {
                    // The GPU may still reach them: nobody else may get them.
                    std::mem::forget(pages);
                    note_lost(Err(failure));
                }
            }
        }
    }

    /// The piece as one slot.
    pub(super) fn slot(&self) -> Slot {
        match *self {
            Self::Plain { address, bytes, .. } => {
                Slot { address, size: bytes as u64, gpu_va: address, ..Slot::default() }
            }
            Self::Vmm { address, bytes, handle, .. } => {
                Slot { address, size: bytes as u64, gpu_va: address, native: handle, ..Slot::default() }
            }
            Self::HostAlloc { address, bytes, gpu_va, .. } => {
                Slot { address: address as u64, size: bytes as u64, gpu_va, host: address, ..Slot::default() }
            }
            Self::Registered { ref pages, gpu_va } => {
                let (address, bytes) = pages.as_ref().map_or((0, 0), |pages| (pages.address(), pages.len()));
                Slot { address: address as u64, size: bytes as u64, gpu_va, host: address, ..Slot::default() }
            }
        }
    }

    /// Bytes taken from the GPU or from main memory.
    pub(super) fn taken(&self) -> u64 {
        match self {
            Self::Plain { taken, .. } | Self::HostAlloc { taken, .. } => *taken as u64,
            Self::Vmm { bytes, .. } => *bytes as u64,
            Self::Registered { pages, .. } => pages.as_ref().map_or(0, |pages| pages.len() as u64),
        }
    }

    /// An opaque handle of VMM memory.
    pub(super) fn export(&self, table: &Table) -> Result<isize, Failure> {
        match self {
            Self::Vmm { handle, .. } => table.export(*handle),
            _ => Err(Failure::Missing { call: "cuMemExportToShareableHandle for this kind of memory" }),
        }
    }

    /// A dma-buf of GPU memory: whole units, so whole pages.
    #[cfg(unix)]
    pub(super) fn export_dma_buf(&self, table: &Table, through_pcie: bool) -> Result<isize, Failure> {
        match self {
            Self::Plain { address, bytes, .. } | Self::Vmm { address, bytes, .. } => {
                table.export_dma_buf(*address, *bytes, through_pcie)
            }
            _ => Err(Failure::Missing { call: "cuMemGetHandleForAddressRange for host memory" }),
        }
    }
}

/// A handle that is closed unless somebody takes it.
pub(super) struct OwnedExport(Option<isize>);

impl OwnedExport {
    pub(super) fn new(handle: isize) -> Self {
        Self(Some(handle))
    }
    pub(super) fn take(mut self) -> isize {
        self.0.take().unwrap_or(-1)
    }
}

impl Drop for OwnedExport {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            close(handle);
        }
    }
}
