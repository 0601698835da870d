//! GPU memory by the CUDA driver, which is loaded on first use.
//!
//! The host's contexts are its own: a GPU's primary context is retained for as long as memory of it lives, every
//! batch of calls pushes the context that it needs and pops it again, and nothing else of the host's state is
//! touched. Numbers of attributes and their meaning: NVIDIA's cuda.h.
mod bar1;
mod context;
mod device;
mod driver;
mod failure;
mod nvml;
mod piece;
mod plan;
mod slots;
mod sys;
#[cfg(windows)]
mod windows;

use std::ffi::OsString;

use crate::core::error::Result;
use crate::core::slot::{Api, Facts, Request, SlotKind, SlotMaker, Slots};
use driver::driver;

/// Reads a setting from the environment, where that is to be trusted.
pub(crate) type Setting = fn(&str) -> Option<OsString>;

/// Makes slots by the CUDA driver.
pub(crate) struct Cuda {
    setting: Setting,
}

impl Cuda {
    pub(crate) const fn new(setting: Setting) -> Self {
        Self { setting }
    }

    fn driver(&self) -> Result<&'static driver::Driver> {
        driver(|| (self.setting)("NRDMA_CUDA_LIB"))
    }
}

impl SlotMaker for Cuda {
    fn makes(&self, api: Api, kind: SlotKind) -> bool {
        api == Api::Cuda || (api == Api::HostFallback && kind == SlotKind::Pinned)
    }
    fn plan(&self, request: &Request) -> Result<Facts> {
        Ok(plan::plan(self.driver()?, request)?.facts)
    }
    fn make(&self, request: &Request) -> Result<Box<dyn Slots>> {
        let plan = plan::plan(self.driver()?, request)?;
        Ok(Box::new(slots::Ring::make(plan, &request.exports)?))
    }
    fn window(&self, ordinal: i32) -> Option<u64> {
        let address = self.driver().and_then(|driver| driver.device(ordinal)?.pci_address()).ok()?;
        bar1::size(&address, (self.setting)("NRDMA_NVML_LIB"))
    }
}
