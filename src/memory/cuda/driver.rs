//! The driver, loaded on first use and never before: a host without a GPU pays nothing.
use std::ffi::OsString;

use once_cell::sync::OnceCell;

use super::device::Device;
use super::failure::Failure;
use super::sys::Table;
use crate::core::error::{Error, Kind, Result};
use crate::sys::driver::DriverLibrary;

/// Not "libcuda.so": that is what the toolkit's stub is called.
#[cfg(unix)]
const NAME: &str = "libcuda.so.1";
#[cfg(windows)]
const NAME: &str = "nvcuda.dll";

static TABLE: OnceCell<Table> = OnceCell::new();
static DRIVER: OnceCell<Driver> = OnceCell::new();

/// The driver, initialised.
pub(super) struct Driver {
    pub(super) table: &'static Table,
    /// As 12080 for CUDA 12.8.
    pub(super) version: i32,
    pub(super) count: i32,
}

/// The driver. `instead` gives the full path of the library to use, when that is set. A failure is not
/// remembered: the next call tries again.
pub(super) fn driver(instead: impl Fn() -> Option<OsString>) -> Result<&'static Driver> {
    DRIVER.get_or_try_init(|| {
        let table = TABLE.get_or_try_init(|| load(instead()))?;
        table.init().map_err(Failure::no_cuda)?;
        let count = table.device_count().map_err(Failure::no_cuda)?;
        let version = table.driver_version().map_err(Failure::no_cuda)?;
        Ok(Driver { table, version, count })
    })
}

fn load(instead: Option<OsString>) -> Result<Table> {
    let library = DriverLibrary::open(NAME, instead).map_err(|error| match error.kind {
        Kind::DriverMissing => Error::new(
            Kind::DriverMissing,
            format!(
                "no CUDA driver: {error}; install NVIDIA's driver, or give the container its GPU; host memory \
                 needs none: NRDMA_GPU_HOST_FALLBACK"
            ),
        ),
        _ => error,
    })?;
    Table::load(&library)
}

impl Driver {
    /// The GPU with this ordinal.
    pub(super) fn device(&'static self, ordinal: i32) -> Result<Device> {
        if !(0..self.count).contains(&ordinal) {
            return Err(Error::invalid(format!(
                "cuda_device is {ordinal}; there are {} CUDA GPUs, from 0 on (CUDA_VISIBLE_DEVICES may hide some)",
                self.count
            )));
        }
        let device = self.table.device(ordinal).map_err(|failure| failure.error(format!("GPU {ordinal}")))?;
        Device::read(self, ordinal, device)
    }

    /// The GPU with this UUID.
    pub(super) fn device_by_uuid(&'static self, uuid: &[u8; 16]) -> Result<Device> {
        for ordinal in 0..self.count {
            let device = self.device(ordinal)?;
            if device.uuid.as_ref() == Some(uuid) {
                return Ok(device);
            }
        }
        Err(Error::new(
            Kind::NotSupported,
            format!(
                "none of the {} CUDA GPUs has the UUID {}: CUDA_VISIBLE_DEVICES hides it, or Vulkan runs on \
                 something else",
                self.count,
                uuid.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            ),
        ))
    }

    /// The GPU that a device handle stands for.
    pub(super) fn device_by_handle(&'static self, handle: i32) -> Result<Device> {
        let same = |ordinal: &i32| self.table.device(*ordinal) == Ok(handle);
        match (0..self.count).find(same) {
            Some(ordinal) => Device::read(self, ordinal, handle),
            None => {
                let text = format!("cuda_context is on a device ({handle}) that CUDA does not list");
                Err(Error::new(Kind::DriverError, text))
            }
        }
    }
}
