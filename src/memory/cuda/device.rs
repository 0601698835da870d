//! A GPU: who it is and what it can, by the driver's attributes.
use cudarc::driver::sys::CUdevice_attribute_enum as attribute;

use super::driver::Driver;
use super::failure::{Failure, INVALID_VALUE};
use crate::core::error::Result;

/// One GPU.
#[derive(Clone)]
pub(super) struct Device {
    pub(super) driver: &'static Driver,
    pub(super) ordinal: i32,
    pub(super) handle: i32,
    pub(super) name: String,
    /// None when the driver is too old to tell.
    pub(super) uuid: Option<[u8; 16]>,
    /// Shares main memory with the CPU (Jetson, IGX): attribute 18.
    pub(super) integrated: bool,
}

/// What a driver's attribute says, with its number for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute(pub(super) attribute);

impl Attribute {
    pub(super) const INTEGRATED: Self = Self(attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED);
    pub(super) const PCI_BUS: Self = Self(attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    pub(super) const PCI_DEVICE: Self = Self(attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    pub(super) const PCI_DOMAIN: Self = Self(attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
    pub(super) const VMM: Self = Self(attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    #[cfg(unix)]
    pub(super) const OPAQUE_HANDLE: Self =
        Self(attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    #[cfg(windows)]
    pub(super) const OPAQUE_HANDLE: Self =
        Self(attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED);
    pub(super) const RDMA_WITH_VMM: Self =
        Self(attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    pub(super) const RDMA: Self = Self(attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
    pub(super) const FLUSH_OPTIONS: Self =
        Self(attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
    pub(super) const WRITES_ORDERING: Self =
        Self(attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
    pub(super) const DMA_BUF: Self = Self(attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);

    pub(super) fn number(self) -> i32 {
        self.0 as i32
    }
}

impl Device {
    pub(super) fn read(driver: &'static Driver, ordinal: i32, handle: i32) -> Result<Self> {
        let said = |failure: Failure| failure.error(format!("GPU {ordinal}"));
        let uuid = match driver.table.device_uuid(handle) {
            Err(Failure::Missing { .. }) => None,
            answer => Some(answer.map_err(said)?),
        };
        let name = driver.table.device_name(handle).map_err(said)?;
        let mut device = Self { driver, ordinal, handle, name, uuid, integrated: false };
        device.integrated = device.has(Attribute::INTEGRATED)?;
        Ok(device)
    }

    /// An attribute's value; 0 when the driver is too old to know it.
    pub(super) fn attribute(&self, attribute: Attribute) -> Result<i32> {
        match self.driver.table.device_attribute(attribute.number(), self.handle) {
            Err(failure) if failure.code() == Some(INVALID_VALUE) => Ok(0),
            answer => answer.map_err(|failure| {
                failure.error(format!("attribute {} of GPU {}", attribute.number(), self.ordinal))
            }),
        }
    }

    pub(super) fn has(&self, attribute: Attribute) -> Result<bool> {
        Ok(self.attribute(attribute)? != 0)
    }

    /// As NVML and sysfs write it: 0000:41:00.0.
    pub(super) fn pci_address(&self) -> Result<String> {
        let (domain, bus, device) = (
            self.attribute(Attribute::PCI_DOMAIN)?,
            self.attribute(Attribute::PCI_BUS)?,
            self.attribute(Attribute::PCI_DEVICE)?,
        );
        Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }

    /// Whether GPU work sees what a card wrote only after a flush, and the driver can flush.
    pub(super) fn needs_flush(&self) -> Result<bool> {
        const ORDERED: i32 = 100;
        const BY_HOST: i32 = 1;
        Ok(self.attribute(Attribute::WRITES_ORDERING)? < ORDERED
            && self.attribute(Attribute::FLUSH_OPTIONS)? & BY_HOST != 0
            && self.driver.table.has_flush())
    }

    /// As in messages: GPU 0 (Quadro RTX 6000).
    pub(super) fn shown(&self) -> String {
        format!("GPU {} ({})", self.ordinal, self.name)
    }
}
