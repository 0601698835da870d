//! NVML, NVIDIA's library for administrators: the one that knows how large BAR1 is. Functions by name, as in nvml.h.
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::sys::driver::DriverLibrary;

/// nvmlBAR1Memory_t, in bytes.
#[repr(C)]
#[derive(Default)]
struct Bar1Memory {
    total: u64,
    free: u64,
    used: u64,
}

type Plain = unsafe extern "C" fn() -> c_int;

/// The functions we call.
pub(super) struct Nvml {
    init: Plain,
    shutdown: Plain,
    by_pci_address: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int,
    bar1: unsafe extern "C" fn(*mut c_void, *mut Bar1Memory) -> c_int,
}

impl Nvml {
    /// Finds them.
    pub(super) fn load(library: &DriverLibrary) -> Option<Self> {
        Some(Self {
            // SAFETY: the type is nvml.h's.
            init: unsafe { library.function("nvmlInit_v2") }?,
            // SAFETY: the type is nvml.h's.
            shutdown: unsafe { library.function("nvmlShutdown") }?,
            // SAFETY: the type is nvml.h's.
            by_pci_address: unsafe { library.function("nvmlDeviceGetHandleByPciBusId_v2") }?,
            // SAFETY: the type is nvml.h's.
            bar1: unsafe { library.function("nvmlDeviceGetBAR1MemoryInfo") }?,
        })
    }

    /// Bytes of BAR1 of the GPU at a PCI address.
    pub(super) fn bar1_total(&self, pci_address: &CStr) -> Option<u64> {
        // SAFETY: no conditions; counted, and taken back below.
        if unsafe { (self.init)() } != 0 {
            return None;
        }
        let total = self.total(pci_address);
        // SAFETY: once for the init above.
        unsafe { (self.shutdown)() };
        total
    }

    fn total(&self, pci_address: &CStr) -> Option<u64> {
        let mut device = ptr::null_mut();
        // SAFETY: a C string and room for a handle.
        if unsafe { (self.by_pci_address)(pci_address.as_ptr(), &raw mut device) } != 0 {
            return None;
        }
        let mut memory = Bar1Memory::default();
        // SAFETY: a handle of NVML's and room for its struct.
        let code = unsafe { (self.bar1)(device, &raw mut memory) };
        (code == 0 && memory.total != 0).then_some(memory.total)
    }
}
