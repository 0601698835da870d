//! Slots in memory of the host's D3D12 device that other PCIe devices reach, by NvAPI.
//!
//! NvAPI gives two addresses that must not be mixed up: where other devices find the buffer (in BAR1), and
//! where GPU code does. Neither is for the CPU. The code is the same on every system, but only Windows has
//! nvapi64.dll; elsewhere there is what NRDMA_NVAPI_LIB names, for tests.
mod slots;
mod sys;

use std::ffi::OsString;
use std::sync::Arc;

use once_cell::sync::OnceCell;

use crate::core::error::{Error, Kind, Result};
use crate::core::log;
use crate::core::slot::{Api, Facts, Layout, Request, SlotKind, SlotMaker, Slots};
use crate::sys::driver::DriverLibrary;
use sys::{Com, NvApi};

const NAME: &str = "nvapi64.dll";
static FUNCTIONS: OnceCell<NvApi> = OnceCell::new();

/// Makes slots by the host's D3D12 device.
pub(crate) struct D3d12 {
    setting: fn(&str) -> Option<OsString>,
}

/// NvAPI, started; dropped = ended, once all slots are gone.
struct Session(&'static NvApi);

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(failure) = self.0.unload() {
            log::log_at!(Debug, "{}", failure.error("ending NvAPI"));
        }
    }
}

/// A checked request.
struct Plan {
    device: Com,
    session: Arc<Session>,
    layout: Layout,
    creation_mask: u32,
    visible_mask: u32,
    facts: Facts,
}

fn functions(instead: Option<OsString>) -> Result<&'static NvApi> {
    FUNCTIONS.get_or_try_init(|| {
        if cfg!(not(windows)) && instead.is_none() {
            return Err(Error::new(Kind::NotSupported, "D3D12 is there on Windows only"));
        }
        let library = DriverLibrary::open(NAME, instead).map_err(|error| {
            Error::new(error.kind, format!("no NvAPI: {error}; NVIDIA's display driver brings it"))
        })?;
        NvApi::load(&library)
    })
}

/// Bytes that cards can reach on the host's device; refuses a device that has none.
fn heap(nvapi: &NvApi, device: &Com) -> Result<Option<u64>> {
    if !nvapi.can_create() {
        return Err(Error::new(
            Kind::NotSupported,
            "this driver's NvAPI has no NvAPI_D3D12_CreateCommittedRDMABuffer: it is older than release 530",
        ));
    }
    match nvapi.heap(device) {
        Ok(Some(bytes)) => Ok(Some(bytes)),
        Ok(None) => Err(Error::new(
            Kind::NotSupported,
            "the D3D12 device's GPU has no memory that cards can reach (NvAPI's workstation feature \
             RDMA_BAR1_SUPPORT is off): only professional boards have it",
        )),
        // Then making one tells.
        Err(failure) if failure.is_unsupported() => Ok(None),
        Err(failure) => Err(failure.error("what the D3D12 device can")),
    }
}

impl D3d12 {
    pub(crate) const fn new(setting: fn(&str) -> Option<OsString>) -> Self {
        Self { setting }
    }

    fn check(&self, request: &Request) -> Result<Plan> {
        let layout = request.layout()?;
        if !matches!(request.kind, SlotKind::Auto | SlotKind::Device) {
            return Err(request.refuse_kind("D3D12", "AUTO and DEVICE"));
        }
        request.refuse_exports("D3D12 memory")?;
        let (creation_mask, visible_mask) = masks(request)?;
        let device = Com::retain(request.d3d12.device)
            .ok_or_else(|| Error::invalid("NRDMA_GPU_D3D12 needs d3d12_device, which is NULL"))?;
        let nvapi = functions((self.setting)("NRDMA_NVAPI_LIB"))?;
        nvapi.initialize().map_err(|failure| failure.error("starting NvAPI"))?;
        let session = Arc::new(Session(nvapi));
        let heap = heap(nvapi, &device)?;
        let facts = Facts {
            kind: Some(SlotKind::Device),
            total_bytes: layout.piece_bytes.saturating_mul(layout.pieces.into()),
            rdma_capable: Some(true),
            ..Facts::default()
        };
        if let Some(heap) = heap.filter(|heap| *heap < facts.total_bytes) {
            let text = format!(
                "slots of {} bytes were asked for, and the device's heap for RDMA has {heap}; make them \
                 fewer or smaller",
                facts.total_bytes
            );
            return Err(Error::new(Kind::OutOfMemory, text));
        }
        Ok(Plan { device, session, layout, creation_mask, visible_mask, facts })
    }
}

/// The nodes that the memory is of and that see it.
fn masks(request: &Request) -> Result<(u32, u32)> {
    let creation = request.d3d12.creation_mask.max(1);
    let visible = if request.d3d12.visible_mask == 0 { creation } else { request.d3d12.visible_mask };
    if !creation.is_power_of_two() || visible & creation == 0 {
        return Err(Error::invalid(format!(
            "d3d12_creation_node_mask is {creation:#x} and d3d12_visible_node_mask {visible:#x}; the first \
             must be one bit, and one of the second's"
        )));
    }
    Ok((creation, visible))
}

impl SlotMaker for D3d12 {
    fn makes(&self, api: Api, _kind: SlotKind) -> bool {
        api == Api::D3d12
    }
    fn plan(&self, request: &Request) -> Result<Facts> {
        Ok(self.check(request)?.facts)
    }
    fn make(&self, request: &Request) -> Result<Box<dyn Slots>> {
        Ok(Box::new(slots::make(self.check(request)?)?))
    }
}
