//! CUDA contexts: which one our calls run in, without the host noticing.
use std::sync::Arc;

use super::device::Device;
use super::driver::Driver;
use super::sys::ContextHandle;
use crate::core::error::Result;
use crate::core::log;

/// A context that we may use: the GPU's primary one, retained, or the host's own.
pub(super) struct Context {
    driver: &'static Driver,
    handle: ContextHandle,
    /// The device whose primary context this is; None for the host's.
    retained: Option<i32>,
}

impl Context {
    /// Retains a GPU's primary context: the host may release its own references in any order.
    pub(super) fn primary(device: &Device) -> Result<Arc<Self>> {
        let driver = device.driver;
        let handle = driver.table.retain_primary_context(device.handle).map_err(|failure| {
            failure.error(format!(
                "the primary context of {} (in exclusive mode only one process may have it)",
                device.shown()
            ))
        })?;
        Ok(Arc::new(Self { driver, handle, retained: Some(device.handle) }))
    }

    /// The host's own context, which it keeps for as long as this is used.
    pub(super) fn host(driver: &'static Driver, handle: usize) -> Arc<Self> {
        Arc::new(Self { driver, handle: ContextHandle(handle), retained: None })
    }

    /// The device it is on.
    pub(super) fn device(&self) -> Result<Device> {
        let _entered = self.enter()?;
        let handle = self.driver.table.current_device();
        self.driver.device_by_handle(handle.map_err(|failure| failure.error("the device of cuda_context"))?)
    }

    /// Makes it the thread's context until the guard is dropped.
    pub(super) fn enter(&self) -> Result<Entered> {
        let whose = if self.retained.is_some() { "the primary context" } else { "cuda_context" };
        let before = self.driver.table.current_context();
        if before == Ok(self.handle) {
            return Ok(Entered { driver: self.driver, pushed: Pushed::No });
        }
        self.driver
            .table
            .push_context(self.handle)
            .map_err(|failure| failure.error(format!("{whose} cannot be used")))?;
        let pushed = if before.is_ok() { Pushed::Over(self.handle) } else { Pushed::OverUnknown };
        Ok(Entered { driver: self.driver, pushed })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(device) = self.retained
            && let Err(failure) = self.driver.table.release_primary_context(device)
        {
            log::log_at!(Debug, "{}", failure.error("releasing the primary context"));
        }
    }
}

/// What was done to the thread's stack of contexts.
#[derive(Debug, Clone, Copy)]
enum Pushed {
    /// Nothing: the context was there already.
    No,
    /// Ours, over another or none.
    Over(ContextHandle),
    /// Ours, over what the driver would not tell.
    OverUnknown,
}

/// While it lives, the thread is in a context.
pub(super) struct Entered {
    driver: &'static Driver,
    pushed: Pushed,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let table = self.driver.table;
        let failure = match self.pushed {
            Pushed::No => return,
            Pushed::Over(_) | Pushed::OverUnknown => table.pop_context().err(),
        };
        let Some(failure) = failure else { return };
        // The driver may report an older failure by this call. Ours stays on the host's stack if it did not pop.
        if let Pushed::Over(ours) = self.pushed
            && table.current_context() == Ok(ours)
            && table.pop_context().is_ok()
        {
            return;
        }
        log::log_at!(Debug, "{}", failure.error("giving the thread its context back"));
    }
}
