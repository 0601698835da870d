//! The CUDA driver's functions, found by name. Every result is a number: an enum of ours could not hold what a
//! newer driver returns. Types, constants and layouts are cudarc's.
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

use cudarc::driver::sys as cu;

use super::failure::Failure;
use crate::core::error::{Error, Kind};
use crate::sys::driver::DriverLibrary;

pub(super) type Outcome<T = ()> = Result<T, Failure>;

/// A CUcontext as a number; threads may share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContextHandle(pub(super) usize);

impl ContextHandle {
    fn pointer(self) -> cu::CUcontext {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

/// A stream as a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamHandle(usize);

impl StreamHandle {
    fn pointer(self) -> cu::CUstream {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

macro_rules! table {
    (required { $($r:ident = $rs:literal ($($ra:ty),*);)* } optional { $($o:ident = $os:literal ($($oa:ty),*);)* }) => {
        /// The driver's functions.
        pub(super) struct Table {
            $($r: unsafe extern "C" fn($($ra),*) -> u32,)*
            $($o: Option<unsafe extern "C" fn($($oa),*) -> u32>,)*
        }
        impl Table {
            /// Finds them all.
            pub(super) fn load(library: &DriverLibrary) -> Result<Self, Error> {
                Ok(Self {
                    // SAFETY: the types are those of cuda.h.
                    $($r: unsafe { library.function($rs) }.ok_or_else(|| missing($rs))?,)*
                    // SAFETY: the same.
                    $($o: unsafe { library.function($os) },)*
                })
            }
        }
    };
}

table! {
    required {
        init = "cuInit"(c_uint);
        driver_get_version = "cuDriverGetVersion"(*mut c_int);
        device_get_count = "cuDeviceGetCount"(*mut c_int);
        device_get = "cuDeviceGet"(*mut c_int, c_int);
        device_get_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
        device_get_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
        primary_ctx_retain = "cuDevicePrimaryCtxRetain"(*mut cu::CUcontext, c_int);
        primary_ctx_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
        ctx_push = "cuCtxPushCurrent_v2"(cu::CUcontext);
        ctx_pop = "cuCtxPopCurrent_v2"(*mut cu::CUcontext);
        ctx_get_current = "cuCtxGetCurrent"(*mut cu::CUcontext);
        ctx_get_device = "cuCtxGetDevice"(*mut c_int);
        mem_alloc = "cuMemAlloc_v2"(*mut u64, usize);
        mem_free = "cuMemFree_v2"(u64);
        mem_host_alloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        mem_free_host = "cuMemFreeHost"(*mut c_void);
        mem_host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        mem_host_unregister = "cuMemHostUnregister"(*mut c_void);
        mem_host_get_device_pointer = "cuMemHostGetDevicePointer_v2"(*mut u64, *mut c_void, c_uint);
        memcpy_htod = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, cu::CUstream);
        memcpy_dtoh = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, cu::CUstream);
        stream_create = "cuStreamCreate"(*mut cu::CUstream, c_uint);
        stream_synchronize = "cuStreamSynchronize"(cu::CUstream);
        stream_destroy = "cuStreamDestroy_v2"(cu::CUstream);
        pointer_get_attribute = "cuPointerGetAttribute"(*mut c_void, c_int, u64);
        pointer_set_attribute = "cuPointerSetAttribute"(*const c_void, c_int, u64);
    }
    optional {
        device_get_uuid_v2 = "cuDeviceGetUuid_v2"(*mut [u8; 16], c_int);
        device_get_uuid = "cuDeviceGetUuid"(*mut [u8; 16], c_int);
        mem_granularity = "cuMemGetAllocationGranularity"(*mut usize, *const cu::CUmemAllocationProp, c_int);
        mem_create = "cuMemCreate"(*mut u64, usize, *const cu::CUmemAllocationProp, c_ulonglong);
        mem_release = "cuMemRelease"(u64);
        mem_reserve = "cuMemAddressReserve"(*mut u64, usize, usize, u64, c_ulonglong);
        mem_address_free = "cuMemAddressFree"(u64, usize);
        mem_map = "cuMemMap"(u64, usize, usize, u64, c_ulonglong);
        mem_unmap = "cuMemUnmap"(u64, usize);
        mem_set_access = "cuMemSetAccess"(u64, usize, *const cu::CUmemAccessDesc, usize);
        mem_export = "cuMemExportToShareableHandle"(*mut c_void, u64, c_int, c_ulonglong);
        mem_range_handle = "cuMemGetHandleForAddressRange"(*mut c_void, u64, usize, c_int, c_ulonglong);
        flush_gpudirect_writes = "cuFlushGPUDirectRDMAWrites"(c_int, c_int);
    }
}

fn missing(symbol: &str) -> Error {
    let text = format!("the CUDA driver has no {symbol}: it is older than release 450 (CUDA 11); update it");
    Error::new(Kind::DriverMissing, text)
}

fn check(call: &'static str, code: u32) -> Outcome {
    if code == 0 { Ok(()) } else { Err(Failure::Code { call, code }) }
}

fn there<F>(call: &'static str, function: Option<F>) -> Outcome<F> {
    function.ok_or(Failure::Missing { call })
}

/// How an allocation by cuMemCreate is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct VmmProperties {
    pub(super) device: i32,
    pub(super) rdma: bool,
    pub(super) exportable: bool,
}

impl VmmProperties {
    #[cfg(unix)]
    const HANDLE: cu::CUmemAllocationHandleType =
        cu::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    #[cfg(windows)]
    const HANDLE: cu::CUmemAllocationHandleType =
        cu::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_WIN32;

    fn location(self) -> cu::CUmemLocation {
        cu::CUmemLocation { type_: cu::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device }
    }

    fn raw(self) -> cu::CUmemAllocationProp {
        cu::CUmemAllocationProp {
            type_: cu::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: match self.exportable {
                true => Self::HANDLE,
                false => cu::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_NONE,
            },
            location: self.location(),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: cu::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: self.rdma.into(),
                usage: 0,
                reserved: [0; 4],
            },
        }
    }
}

// Each method is one call of the driver; none keeps a pointer of ours longer than the call, except where its
// comment says so. Bad handles and addresses are answered with a code, which cuda.h promises.
impl Table {
    pub(super) fn init(&self) -> Outcome {
        // SAFETY: takes no pointer.
        check("cuInit", unsafe { (self.init)(0) })
    }

    /// As 12080 for CUDA 12.8.
    pub(super) fn driver_version(&self) -> Outcome<i32> {
        let mut version = 0;
        // SAFETY: room for one int.
        check("cuDriverGetVersion", unsafe { (self.driver_get_version)(&raw mut version) })?;
        Ok(version)
    }

    pub(super) fn device_count(&self) -> Outcome<i32> {
        let mut count = 0;
        // SAFETY: room for one int.
        check("cuDeviceGetCount", unsafe { (self.device_get_count)(&raw mut count) })?;
        Ok(count)
    }

    pub(super) fn device(&self, ordinal: i32) -> Outcome<i32> {
        let mut device = 0;
        // SAFETY: room for one int.
        check("cuDeviceGet", unsafe { (self.device_get)(&raw mut device, ordinal) })?;
        Ok(device)
    }

    pub(super) fn device_name(&self, device: i32) -> Outcome<String> {
        let mut name = [0_u8; 96];
        // SAFETY: room for 95 bytes and our own end.
        let code = unsafe { (self.device_get_name)(name.as_mut_ptr().cast(), 95, device) };
        check("cuDeviceGetName", code)?;
        Ok(name.split(|byte| *byte == 0).next().map(String::from_utf8_lossy).unwrap_or_default().into_owned())
    }

    pub(super) fn device_attribute(&self, attribute: i32, device: i32) -> Outcome<i32> {
        let mut value = 0;
        // SAFETY: room for one int.
        let code = unsafe { (self.device_get_attribute)(&raw mut value, attribute, device) };
        check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    pub(super) fn device_uuid(&self, device: i32) -> Outcome<[u8; 16]> {
        let function = there("cuDeviceGetUuid", self.device_get_uuid_v2.or(self.device_get_uuid))?;
        let mut uuid = [0; 16];
        // SAFETY: a CUuuid is sixteen bytes.
        check("cuDeviceGetUuid", unsafe { function(&raw mut uuid, device) })?;
        Ok(uuid)
    }

    pub(super) fn retain_primary_context(&self, device: i32) -> Outcome<ContextHandle> {
        let mut context = ptr::null_mut();
        // SAFETY: room for one handle.
        let code = unsafe { (self.primary_ctx_retain)(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", code)?;
        Ok(ContextHandle(context.expose_provenance()))
    }

    pub(super) fn release_primary_context(&self, device: i32) -> Outcome {
        // SAFETY: takes no pointer.
        check("cuDevicePrimaryCtxRelease", unsafe { (self.primary_ctx_release)(device) })
    }

    /// The context is the driver's, or one that the host vouches for.
    pub(super) fn push_context(&self, context: ContextHandle) -> Outcome {
        // SAFETY: by the contract of nrdma_gpu_buffer_config.cuda_context.
        check("cuCtxPushCurrent", unsafe { (self.ctx_push)(context.pointer()) })
    }

    pub(super) fn pop_context(&self) -> Outcome {
        let mut popped = ptr::null_mut();
        // SAFETY: room for one handle.
        check("cuCtxPopCurrent", unsafe { (self.ctx_pop)(&raw mut popped) })
    }

    /// The thread's context; 0 when it has none.
    pub(super) fn current_context(&self) -> Outcome<ContextHandle> {
        let mut context = ptr::null_mut();
        // SAFETY: room for one handle.
        check("cuCtxGetCurrent", unsafe { (self.ctx_get_current)(&raw mut context) })?;
        Ok(ContextHandle(context.expose_provenance()))
    }

    /// The device of the thread's context.
    pub(super) fn current_device(&self) -> Outcome<i32> {
        let mut device = 0;
        // SAFETY: room for one int.
        check("cuCtxGetDevice", unsafe { (self.ctx_get_device)(&raw mut device) })?;
        Ok(device)
    }

    pub(super) fn allocate(&self, bytes: usize) -> Outcome<u64> {
        let mut address = 0;
        // SAFETY: room for one address.
        check("cuMemAlloc", unsafe { (self.mem_alloc)(&raw mut address, bytes) })?;
        Ok(address)
    }

    pub(super) fn free(&self, address: u64) -> Outcome {
        // SAFETY: what is freed is no longer used, by the contract of nrdma_gpu_buffer_destroy.
        check("cuMemFree", unsafe { (self.mem_free)(address) })
    }

    /// Pinned memory that every context and, where it can, the GPU reaches.
    pub(super) fn allocate_host(&self, bytes: usize) -> Outcome<usize> {
        let mut address = ptr::null_mut();
        let flags = cu::CU_MEMHOSTALLOC_PORTABLE | cu::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: room for one address.
        check("cuMemHostAlloc", unsafe { (self.mem_host_alloc)(&raw mut address, bytes, flags) })?;
        Ok(address.expose_provenance())
    }

    pub(super) fn free_host(&self, address: usize) -> Outcome {
        // SAFETY: what is freed is no longer used, by the contract of nrdma_gpu_buffer_destroy.
        check("cuMemFreeHost", unsafe { (self.mem_free_host)(ptr::with_exposed_provenance_mut(address)) })
    }

    /// Pins pages of ours; they stay mapped until they are unregistered.
    pub(super) fn register_host(&self, address: usize, bytes: usize) -> Outcome {
        let flags = cu::CU_MEMHOSTREGISTER_PORTABLE | cu::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the caller owns the pages and unregisters them before it unmaps them.
        let code =
            unsafe { (self.mem_host_register)(ptr::with_exposed_provenance_mut(address), bytes, flags) };
        check("cuMemHostRegister", code)
    }

    pub(super) fn unregister_host(&self, address: usize) -> Outcome {
        // SAFETY: an address, looked up by the driver.
        let code = unsafe { (self.mem_host_unregister)(ptr::with_exposed_provenance_mut(address)) };
        check("cuMemHostUnregister", code)
    }

    /// Where the GPU sees pinned host memory.
    pub(super) fn device_pointer(&self, address: usize) -> Outcome<u64> {
        let mut pointer = 0;
        // SAFETY: room for one address; the other is looked up by the driver.
        let code = unsafe {
            (self.mem_host_get_device_pointer)(&raw mut pointer, ptr::with_exposed_provenance_mut(address), 0)
        };
        check("cuMemHostGetDevicePointer", code)?;
        Ok(pointer)
    }

    /// A stream that waits for no other.
    pub(super) fn create_stream(&self) -> Outcome<StreamHandle> {
        const NON_BLOCKING: u32 = 1;
        let mut stream = ptr::null_mut();
        // SAFETY: room for one handle.
        check("cuStreamCreate", unsafe { (self.stream_create)(&raw mut stream, NON_BLOCKING) })?;
        Ok(StreamHandle(stream.expose_provenance()))
    }

    pub(super) fn synchronize(&self, stream: StreamHandle) -> Outcome {
        // SAFETY: a live stream of ours.
        check("cuStreamSynchronize", unsafe { (self.stream_synchronize)(stream.pointer()) })
    }

    pub(super) fn destroy_stream(&self, stream: StreamHandle) -> Outcome {
        // SAFETY: a live stream of ours, not used again.
        check("cuStreamDestroy", unsafe { (self.stream_destroy)(stream.pointer()) })
    }

    /// Starts to copy to the GPU. `bytes` is in use until `synchronize` has returned.
    pub(super) fn copy_to_device(&self, to: u64, bytes: &[u8], stream: StreamHandle) -> Outcome {
        // SAFETY: the source is as long as said and outlives the copy, as the comment above asks for.
        let code = unsafe { (self.memcpy_htod)(to, bytes.as_ptr().cast(), bytes.len(), stream.pointer()) };
        check("cuMemcpyHtoDAsync", code)
    }

    /// Starts to copy from the GPU. `bytes` is in use until `synchronize` has returned.
    pub(super) fn copy_from_device(&self, bytes: &mut [u8], from: u64, stream: StreamHandle) -> Outcome {
        // SAFETY: the target is as long as said and outlives the copy, as the comment above asks for.
        let code =
            unsafe { (self.memcpy_dtoh)(bytes.as_mut_ptr().cast(), from, bytes.len(), stream.pointer()) };
        check("cuMemcpyDtoHAsync", code)
    }

    /// Whether the driver says that GPUDirect RDMA reaches an address.
    pub(super) fn is_rdma_capable(&self, address: u64) -> Outcome<bool> {
        let attribute =
            cu::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE as c_int;
        // Some drivers write a byte, some an int.
        let mut value = 0_u64;
        // SAFETY: room for more than the attribute's bool.
        let code = unsafe { (self.pointer_get_attribute)((&raw mut value).cast(), attribute, address) };
        check("cuPointerGetAttribute", code)?;
        Ok(value != 0)
    }

    /// Makes copies to an allocation complete when they return.
    pub(super) fn sync_memops(&self, address: u64) -> Outcome {
        let attribute = cu::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as c_int;
        let on: c_uint = 1;
        // SAFETY: the attribute's value is one unsigned int.
        let code = unsafe { (self.pointer_set_attribute)((&raw const on).cast(), attribute, address) };
        check("cuPointerSetAttribute", code)
    }

    /// The unit of size and address of memory by `create`.
    pub(super) fn granularity(&self, properties: VmmProperties) -> Outcome<usize> {
        const MINIMUM: c_int = 0;
        let function = there("cuMemGetAllocationGranularity", self.mem_granularity)?;
        let (mut bytes, raw) = (0, properties.raw());
        // SAFETY: room for one size; the properties are read.
        check("cuMemGetAllocationGranularity", unsafe { function(&raw mut bytes, &raw const raw, MINIMUM) })?;
        Ok(bytes)
    }

    pub(super) fn create(&self, bytes: usize, properties: VmmProperties) -> Outcome<u64> {
        let function = there("cuMemCreate", self.mem_create)?;
        let mut handle = 0;
        #[cfg_attr(unix, allow(unused_mut))]
        let mut raw = properties.raw();
        #[cfg(windows)]
        let mut security = super::windows::ObjectAttributes::default();
        #[cfg(windows)]
        if properties.exportable {
            raw.win32HandleMetaData = (&raw mut security).cast();
        }
        // SAFETY: room for one handle; the properties are read.
        check("cuMemCreate", unsafe { function(&raw mut handle, bytes, &raw const raw, 0) })?;
        Ok(handle)
    }

    pub(super) fn release(&self, handle: u64) -> Outcome {
        let function = there("cuMemRelease", self.mem_release)?;
        // SAFETY: takes no pointer.
        check("cuMemRelease", unsafe { function(handle) })
    }

    pub(super) fn reserve(&self, bytes: usize, alignment: usize) -> Outcome<u64> {
        let function = there("cuMemAddressReserve", self.mem_reserve)?;
        let mut address = 0;
        // SAFETY: room for one address.
        check("cuMemAddressReserve", unsafe { function(&raw mut address, bytes, alignment, 0, 0) })?;
        Ok(address)
    }

    pub(super) fn free_reserved(&self, address: u64, bytes: usize) -> Outcome {
        let function = there("cuMemAddressFree", self.mem_address_free)?;
        // SAFETY: nothing is mapped there any more; the caller sees to that.
        check("cuMemAddressFree", unsafe { function(address, bytes) })
    }

    pub(super) fn map(&self, address: u64, bytes: usize, handle: u64) -> Outcome {
        let function = there("cuMemMap", self.mem_map)?;
        // SAFETY: the addresses are reserved and the caller's own.
        check("cuMemMap", unsafe { function(address, bytes, 0, handle, 0) })
    }

    pub(super) fn unmap(&self, address: u64, bytes: usize) -> Outcome {
        let function = there("cuMemUnmap", self.mem_unmap)?;
        // SAFETY: what is unmapped is no longer used, by the contract of nrdma_gpu_buffer_destroy.
        check("cuMemUnmap", unsafe { function(address, bytes) })
    }

    pub(super) fn set_access(&self, address: u64, bytes: usize, properties: VmmProperties) -> Outcome {
        let function = there("cuMemSetAccess", self.mem_set_access)?;
        let access = cu::CUmemAccessDesc {
            location: properties.location(),
            flags: cu::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: one description, which is read.
        check("cuMemSetAccess", unsafe { function(address, bytes, &raw const access, 1) })
    }

    /// A handle for other APIs and processes: a descriptor, or an NT handle on Windows.
    pub(super) fn export(&self, handle: u64) -> Outcome<isize> {
        let function = there("cuMemExportToShareableHandle", self.mem_export)?;
        let kind = VmmProperties::HANDLE.0.cast_signed();
        let mut out = Exported::default();
        // SAFETY: room for what the handle's type says.
        check("cuMemExportToShareableHandle", unsafe { function((&raw mut out).cast(), handle, kind, 0) })?;
        Ok(as_isize(out))
    }

    /// A dma-buf of whole pages; the caller closes it.
    #[cfg(unix)]
    pub(super) fn export_dma_buf(&self, address: u64, bytes: usize, through_pcie: bool) -> Outcome<isize> {
        const DMA_BUF_FD: c_int = 1;
        let function = there("cuMemGetHandleForAddressRange", self.mem_range_handle)?;
        let mut out: c_int = -1;
        // SAFETY: room for one descriptor.
        let code =
            unsafe { function((&raw mut out).cast(), address, bytes, DMA_BUF_FD, through_pcie.into()) };
        check("cuMemGetHandleForAddressRange", code)?;
        Ok(as_isize(out))
    }

    pub(super) fn has_dma_buf(&self) -> bool {
        self.mem_range_handle.is_some()
    }

    pub(super) fn has_flush(&self) -> bool {
        self.flush_gpudirect_writes.is_some()
    }

    /// Makes what cards wrote visible to this GPU's later work.
    pub(super) fn flush_gpudirect_writes(&self) -> Outcome {
        const CURRENT_CONTEXT: c_int = 0;
        const TO_OWNER: c_int = 100;
        let function = there("cuFlushGPUDirectRDMAWrites", self.flush_gpudirect_writes)?;
        // SAFETY: takes no pointer.
        check("cuFlushGPUDirectRDMAWrites", unsafe { function(CURRENT_CONTEXT, TO_OWNER) })
    }
}

#[cfg(unix)]
type Exported = c_int;
#[cfg(windows)]
type Exported = isize;

fn as_isize(handle: Exported) -> isize {
    #[cfg(unix)]
    return isize::try_from(handle).unwrap_or(-1);
    #[cfg(windows)]
    return handle;
}

/// Closes a handle that the driver made.
pub(super) fn close(handle: isize) {
    #[cfg(unix)]
    if let Ok(descriptor) = c_int::try_from(handle) {
        use std::os::fd::{FromRawFd, OwnedFd};
        // SAFETY: a descriptor that the driver gave us and nobody else has.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    #[cfg(windows)]
    {
        use std::os::windows::io::{FromRawHandle, OwnedHandle};
        let handle = ptr::with_exposed_provenance_mut(handle.cast_unsigned());
        // SAFETY: a handle that the driver gave us and nobody else has.
        drop(unsafe { OwnedHandle::from_raw_handle(handle) });
    }
}

/// Reads pinned host memory of ours.
pub(super) fn read_host(address: usize, bytes: &mut [u8]) {
    let from = ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the caller checked that the range is inside an allocation of ours; the other end is the caller's.
    unsafe { from.copy_to(bytes.as_mut_ptr(), bytes.len()) };
}

/// Writes to pinned host memory of ours.
pub(super) fn write_host(address: usize, bytes: &[u8]) {
    let to = ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller checked that the range is inside an allocation of ours; the other end is the caller's.
    unsafe { to.copy_from(bytes.as_ptr(), bytes.len()) };
}
