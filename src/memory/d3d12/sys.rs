//! NvAPI and the COM methods that we call. NvAPI has one export, which gives functions by number; the numbers and
//! types are those of NVIDIA's nvapi (MIT). COM methods are called as MSVC does: a struct is returned through a
//! pointer that comes after `this`.
use std::ffi::c_void;
use std::ptr;

use crate::core::error::{Error, Kind, Result};
use crate::sys::driver::DriverLibrary;

const INITIALIZE: u32 = 0x0150_e828;
const UNLOAD: u32 = 0xd22b_dd7e;
const QUERY_WORKSTATION_FEATURE: u32 = 0xa92e_a23a;
const CREATE_COMMITTED_RDMA_BUFFER: u32 = 0xe78d_cb44;

const OUT_OF_MEMORY: i32 = -130;
const NOT_SUPPORTED: i32 = -104;
const NO_IMPLEMENTATION: i32 = -3;

/// An answer of NvAPI that is not OK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    call: &'static str,
    status: i32,
}

impl Failure {
    pub(super) fn error(self, tried: impl AsRef<str>) -> Error {
        let (kind, words) = match self.status {
            -1 => (Kind::DriverError, " (error)"),
            -2 => (Kind::DriverMissing, " (library not found)"),
            NO_IMPLEMENTATION => (Kind::NotSupported, " (no implementation)"),
            -6 => (Kind::DriverMissing, " (no NVIDIA GPU)"),
            NOT_SUPPORTED => (Kind::NotSupported, " (not supported)"),
            OUT_OF_MEMORY => (Kind::OutOfMemory, " (out of memory)"),
            -179 => (Kind::DriverError, " (device lost)"),
            -212 => (Kind::NotSupported, " (the GPU is not NVIDIA's)"),
            _ => (Kind::DriverError, ""),
        };
        let (call, status) = (self.call, self.status);
        Error::new(kind, format!("{}: {call} failed with NvAPI status {status}{words}", tried.as_ref()))
    }

    /// Whether this driver or GPU cannot do it at all.
    pub(super) fn is_unsupported(self) -> bool {
        matches!(self.status, NOT_SUPPORTED | NO_IMPLEMENTATION)
    }
}

fn check(call: &'static str, status: i32) -> std::result::Result<(), Failure> {
    if status == 0 { Ok(()) } else { Err(Failure { call, status }) }
}

/// NVAPI_D3D12_WORKSTATION_FEATURE_PROPERTIES_PARAMS_V1.
#[repr(C)]
struct WorkstationFeature {
    version: u32,
    kind: i32,
    supported: u8,
    rdma_heap_size: u64,
}
const RDMA_BAR1_SUPPORT: i32 = 2;
const WORKSTATION_FEATURE_1: u32 = 24 | 1 << 16;
const _: () = assert!(size_of::<WorkstationFeature>() == 24);

#[repr(C)]
struct Guid(u32, u16, u16, [u8; 8]);
static ID3D12_RESOURCE: Guid =
    Guid(0x6964_42be, 0xa72e, 0x4059, [0xbc, 0x79, 0x5b, 0x5c, 0x98, 0x04, 0x0f, 0xad]);

type Plain = unsafe extern "C" fn() -> i32;
type Query = unsafe extern "C" fn(*mut c_void, *mut WorkstationFeature) -> i32;
type Create =
    unsafe extern "C" fn(*mut c_void, u64, u32, u32, *const Guid, *mut *mut c_void, *mut *mut c_void) -> i32;

/// NvAPI's functions.
pub(super) struct NvApi {
    initialize: Plain,
    /// Drivers before release 530 lack the two below.
    query: Option<Query>,
    create: Option<Create>,
    unload: Plain,
}

impl NvApi {
    /// Finds them.
    pub(super) fn load(library: &DriverLibrary) -> Result<Self> {
        // SAFETY: the export's type.
        let by_id =
            unsafe { library.function::<unsafe extern "C" fn(u32) -> *const c_void>("nvapi_QueryInterface") };
        let by_id = by_id.ok_or_else(|| missing("nvapi_QueryInterface"))?;
        // SAFETY: any number may be asked for.
        let function = |id| unsafe { by_id(id) };
        let (initialize, unload) = (function(INITIALIZE), function(UNLOAD));
        if initialize.is_null() || unload.is_null() {
            return Err(missing("NvAPI_Initialize"));
        }
        Ok(Self {
            // SAFETY: not null, and of that type by its number.
            initialize: unsafe { std::mem::transmute::<*const c_void, Plain>(initialize) },
            // SAFETY: null is None, and of that type by its number.
            query: unsafe {
                std::mem::transmute::<*const c_void, Option<Query>>(function(QUERY_WORKSTATION_FEATURE))
            },
            // SAFETY: the same.
            create: unsafe {
                std::mem::transmute::<*const c_void, Option<Create>>(function(CREATE_COMMITTED_RDMA_BUFFER))
            },
            // SAFETY: not null, and of that type by its number.
            unload: unsafe { std::mem::transmute::<*const c_void, Plain>(unload) },
        })
    }

    pub(super) fn can_create(&self) -> bool {
        self.create.is_some()
    }

    /// Counted by NvAPI.
    pub(super) fn initialize(&self) -> std::result::Result<(), Failure> {
        // SAFETY: no conditions.
        check("NvAPI_Initialize", unsafe { (self.initialize)() })
    }

    /// Once for each `initialize`.
    pub(super) fn unload(&self) -> std::result::Result<(), Failure> {
        // SAFETY: once for each initialize; the caller sees to that.
        check("NvAPI_Unload", unsafe { (self.unload)() })
    }

    /// Bytes of the device's heap for RDMA; None when the GPU has none, an error when the driver cannot say.
    pub(super) fn heap(&self, device: &Com) -> std::result::Result<Option<u64>, Failure> {
        const CALL: &str = "NvAPI_D3D12_QueryWorkstationFeatureProperties";
        let query = self.query.ok_or(Failure { call: CALL, status: NO_IMPLEMENTATION })?;
        let mut feature = WorkstationFeature {
            version: WORKSTATION_FEATURE_1,
            kind: RDMA_BAR1_SUPPORT,
            supported: 0,
            rdma_heap_size: 0,
        };
        // SAFETY: the host's device and a struct of the version it says.
        check(CALL, unsafe { query(device.pointer(), &raw mut feature) })?;
        Ok((feature.supported != 0).then_some(feature.rdma_heap_size))
    }

    /// A buffer in BAR1: the resource and the address for other devices.
    pub(super) fn create(
        &self,
        device: &Com,
        size: u64,
        creation_mask: u32,
        visible_mask: u32,
    ) -> std::result::Result<(Com, u64), Failure> {
        const CALL: &str = "NvAPI_D3D12_CreateCommittedRDMABuffer";
        let create = self.create.ok_or(Failure { call: CALL, status: NO_IMPLEMENTATION })?;
        let (mut resource, mut address) = (ptr::null_mut(), ptr::null_mut::<c_void>());
        // SAFETY: the host's device, a COM interface's id, and room for two pointers.
        let status = unsafe {
            create(
                device.pointer(),
                size,
                creation_mask,
                visible_mask,
                &raw const ID3D12_RESOURCE,
                &raw mut resource,
                &raw mut address,
            )
        };
        check(CALL, status)?;
        let resource = Com(resource.expose_provenance());
        if resource.0 == 0 || address.is_null() {
            return Err(Failure { call: CALL, status: -1 });
        }
        Ok((resource, address.expose_provenance() as u64))
    }
}

fn missing(what: &str) -> Error {
    Error::new(Kind::DriverMissing, format!("nvapi64.dll has no {what}; update NVIDIA's driver"))
}

/// A reference to a COM object; dropped = released.
#[derive(Debug)]
pub(super) struct Com(usize);

type Count = unsafe extern "system" fn(*mut c_void) -> u32;

/// IUnknown's virtual table.
#[repr(C)]
struct UnknownTable {
    query_interface: usize,
    add_ref: Count,
    release: Count,
}

/// ID3D12Resource's, as far as we call it.
#[repr(C)]
struct ResourceTable {
    unknown: UnknownTable,
    /// GetPrivateData, SetPrivateData, SetPrivateDataInterface, SetName, GetDevice, Map, Unmap.
    others: [usize; 7],
    get_desc: unsafe extern "system" fn(*mut c_void, *mut ResourceDesc) -> *mut ResourceDesc,
    get_gpu_virtual_address: unsafe extern "system" fn(*mut c_void) -> u64,
}

/// D3D12_RESOURCE_DESC.
#[repr(C)]
#[derive(Default)]
struct ResourceDesc {
    dimension: u32,
    alignment: u64,
    width: u64,
    height: u32,
    depth: u16,
    mips: u16,
    format: u32,
    samples: u32,
    quality: u32,
    layout: u32,
    flags: u32,
}
const _: () = assert!(size_of::<ResourceDesc>() == 56);

impl Com {
    /// A reference of our own to an object of the host's; None for NULL.
    pub(super) fn retain(object: usize) -> Option<Self> {
        if object == 0 {
            return None;
        }
        let com = Self(object);
        // SAFETY: by the contract of nrdma_gpu_buffer_config, a live COM object.
        let add_ref = unsafe { com.table::<UnknownTable>() }.add_ref;
        // SAFETY: a live object.
        unsafe { add_ref(com.pointer()) };
        Some(com)
    }

    fn pointer(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.0)
    }

    /// As a number, for the host.
    pub(super) fn address(&self) -> u64 {
        self.0 as u64
    }

    /// # Safety
    /// `T` is a prefix of the object's virtual table.
    unsafe fn table<T>(&self) -> &T {
        // SAFETY: every COM object begins with a pointer to its table.
        let table = unsafe { self.pointer().cast::<*const T>().read() };
        // SAFETY: by the contract above; the table lives as long as the object.
        unsafe { &*table }
    }

    /// Of an ID3D12Resource: its width in bytes.
    pub(super) fn width(&self) -> u64 {
        let mut desc = ResourceDesc::default();
        // SAFETY: an ID3D12Resource; the struct is MSVC's.
        let get = unsafe { self.table::<ResourceTable>() }.get_desc;
        // SAFETY: `this` first, then room for the result, which is how MSVC returns structs.
        unsafe { get(self.pointer(), &raw mut desc) };
        desc.width
    }

    /// Of an ID3D12Resource: its address for GPU code.
    pub(super) fn gpu_address(&self) -> u64 {
        // SAFETY: an ID3D12Resource.
        let get = unsafe { self.table::<ResourceTable>() }.get_gpu_virtual_address;
        // SAFETY: a live object.
        unsafe { get(self.pointer()) }
    }
}

impl Drop for Com {
    fn drop(&mut self) {
        // SAFETY: a live COM object.
        let release = unsafe { self.table::<UnknownTable>() }.release;
        // SAFETY: our reference, given back once.
        unsafe { release(self.pointer()) };
    }
}
