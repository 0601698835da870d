//! How much of a GPU's memory cards can see at a time.
use std::ffi::{CString, OsString};

use once_cell::sync::OnceCell;

use super::nvml::Nvml;
use crate::sys::driver::DriverLibrary;

#[cfg(unix)]
const NAME: &str = "libnvidia-ml.so.1";
#[cfg(windows)]
const NAME: &str = "nvml.dll";

static NVML: OnceCell<Nvml> = OnceCell::new();

/// BAR1's size in bytes, of the GPU at a PCI address; None when NVML is not there or does not know.
pub(super) fn size(pci_address: &str, instead: Option<OsString>) -> Option<u64> {
    let nvml = NVML
        .get_or_try_init(|| {
            let library = DriverLibrary::open(NAME, instead).map_err(|_| ())?;
            Nvml::load(&library).ok_or(())
        })
        .ok()?;
    nvml.bar1_total(&CString::new(pci_address).ok()?)
}
