//! Committed buffers in BAR1.
use std::sync::Arc;

use super::sys::Com;
use super::{Plan, Session};
use crate::core::error::{Error, Kind, Result};
use crate::core::slot::{DeviceOnly, Facts, Slot};

/// What slots are made of; let go of in this order: buffers, the device, NvAPI.
pub(super) struct Memory {
    /// The last reference frees one, and its address with it.
    _resources: Vec<Com>,
    _device: Com,
    _session: Arc<Session>,
}

impl Plan {
    /// A buffer and its address for cards.
    fn buffer(&self, size: u64) -> Result<(Com, u64)> {
        let made = self.session.0.create(&self.device, size, self.creation_mask, self.visible_mask);
        made.map_err(|failure| failure.error(format!("a buffer of {size} bytes")))
    }

    /// A buffer that has the layout's bytes from an aligned address on, and where in it that is.
    fn aligned(&self) -> Result<(Com, u64, u64)> {
        let ((resource, address), offset) = self.layout.aligned(|size| self.buffer(size), |(_, at)| *at)?;
        let bytes = self.layout.piece_bytes;
        let width = resource.width();
        if width < offset.saturating_add(bytes) {
            let text = format!("NvAPI made a buffer of {width} bytes where {bytes} were asked for");
            return Err(Error::new(Kind::DriverError, text));
        }
        Ok((resource, address, offset))
    }
}

/// All slots or none.
pub(super) fn make(plan: Plan) -> Result<DeviceOnly<Memory>> {
    let (mut resources, mut whole, mut total) = (Vec::new(), Vec::new(), 0_u64);
    for _ in 0..plan.layout.pieces {
        let (resource, address, offset) = plan.aligned()?;
        total = total.saturating_add(resource.width());
        whole.push(Slot {
            address: address.wrapping_add(offset),
            size: plan.layout.piece_bytes,
            gpu_va: resource.gpu_address().wrapping_add(offset),
            host: 0,
            native: resource.address(),
            native_memory: 0,
            native_offset: offset,
        });
        resources.push(resource);
    }
    Ok(DeviceOnly {
        slots: plan.layout.slots(&whole),
        facts: Facts { total_bytes: total, ..plan.facts },
        api: "D3D12",
        native: "resource",
        _memory: Memory { _resources: resources, _device: plan.device, _session: plan.session },
    })
}
