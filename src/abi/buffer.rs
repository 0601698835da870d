//! `mi::neuraylib::IRDMA_buffer`.
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::com::{self, Class, Object, Table, checked, checked_seen, method};
use super::error::set_last;
use super::face::{self, Face, Seen};
use super::fork;
use super::guard::{guard, guarded};
use super::interface::nrdma_uuid;
use crate::core::buffer::{Buffer, Carrier, Lease};
use crate::core::error::Result;
use crate::core::home::Home;

/// The bytes of the buffer did not travel yet.
pub const NRDMA_PATH_NONE: i32 = 0;
/// Both ends used the same memory.
pub const NRDMA_PATH_MAPPED: i32 = 1;
/// RDMA, memory to memory.
pub const NRDMA_PATH_DIRECT: i32 = 2;
/// Through a bounce buffer.
pub const NRDMA_PATH_STAGED: i32 = 3;
/// Copied by the processor.
pub const NRDMA_PATH_COPIED: i32 = 4;

/// A buffer: a mi::neuraylib::IRDMA_buffer of the face it was made for.
#[repr(C)]
pub struct nrdma_buffer {
    /// The object's function table.
    pub vtbl: *const c_void,
}

/// The function table of a buffer for GCC, Clang and MinGW, with the slots of mi::neuraylib::IRDMA_buffer.
#[repr(C)]
pub struct nrdma_buffer_vtbl_itanium {
    /// Adds a reference; the new count.
    pub retain: unsafe extern "C" fn(self_: *const nrdma_buffer) -> u32,
    /// Drops a reference; the new count.
    pub release: unsafe extern "C" fn(self_: *const nrdma_buffer) -> u32,
    /// +1 or NULL.
    pub get_interface_const:
        unsafe extern "C" fn(self_: *const nrdma_buffer, iid: *const nrdma_uuid) -> *const c_void,
    /// +1 or NULL.
    pub get_interface: unsafe extern "C" fn(self_: *mut nrdma_buffer, iid: *const nrdma_uuid) -> *mut c_void,
    /// IRDMA_buffer's id.
    pub get_iid: unsafe extern "C" fn(self_: *const nrdma_buffer) -> nrdma_uuid,
    /// The number of this buffer; never given twice.
    pub get_id: unsafe extern "C" fn(self_: *const nrdma_buffer) -> u64,
    /// The GPU that holds the memory; -1 is main memory.
    pub get_gpu_id: unsafe extern "C" fn(self_: *const nrdma_buffer) -> i32,
    /// The memory, to read.
    pub get_data_const: unsafe extern "C" fn(self_: *const nrdma_buffer) -> *const u8,
    /// The memory.
    pub get_data: unsafe extern "C" fn(self_: *mut nrdma_buffer) -> *mut u8,
    /// Bytes asked for.
    pub get_size: unsafe extern "C" fn(self_: *const nrdma_buffer) -> u64,
    /// A part of the buffer, +1, to read; NULL when not wholly inside.
    pub duplicate_const:
        unsafe extern "C" fn(self_: *const nrdma_buffer, offset: u64, size: u64) -> *const nrdma_buffer,
    /// A part of the buffer, +1; NULL when not wholly inside.
    pub duplicate:
        unsafe extern "C" fn(self_: *mut nrdma_buffer, offset: u64, size: u64) -> *mut nrdma_buffer,
    /// Whether the memory is a GPU's and registered for RDMA.
    pub is_gpudirect: unsafe extern "C" fn(self_: *mut nrdma_buffer) -> bool,
}

/// The function table of a buffer for Microsoft's compiler.
#[repr(C)]
pub struct nrdma_buffer_vtbl_msvc {
    /// Adds a reference; the new count.
    pub retain: unsafe extern "C" fn(self_: *const nrdma_buffer) -> u32,
    /// Drops a reference; the new count.
    pub release: unsafe extern "C" fn(self_: *const nrdma_buffer) -> u32,
    /// +1 or NULL.
    pub get_interface: unsafe extern "C" fn(self_: *mut nrdma_buffer, iid: *const nrdma_uuid) -> *mut c_void,
    /// +1 or NULL.
    pub get_interface_const:
        unsafe extern "C" fn(self_: *const nrdma_buffer, iid: *const nrdma_uuid) -> *const c_void,
    /// IRDMA_buffer's id.
    pub get_iid: unsafe extern "C" fn(self_: *const nrdma_buffer, result: *mut nrdma_uuid) -> *mut nrdma_uuid,
    /// The number of this buffer; never given twice.
    pub get_id: unsafe extern "C" fn(self_: *const nrdma_buffer) -> u64,
    /// The GPU that holds the memory; -1 is main memory.
    pub get_gpu_id: unsafe extern "C" fn(self_: *const nrdma_buffer) -> i32,
    /// The memory.
    pub get_data: unsafe extern "C" fn(self_: *mut nrdma_buffer) -> *mut u8,
    /// The memory, to read.
    pub get_data_const: unsafe extern "C" fn(self_: *const nrdma_buffer) -> *const u8,
    /// Bytes asked for.
    pub get_size: unsafe extern "C" fn(self_: *const nrdma_buffer) -> u64,
    /// A part of the buffer, +1; NULL when not wholly inside.
    pub duplicate:
        unsafe extern "C" fn(self_: *mut nrdma_buffer, offset: u64, size: u64) -> *mut nrdma_buffer,
    /// A part of the buffer, +1, to read; NULL when not wholly inside.
    pub duplicate_const:
        unsafe extern "C" fn(self_: *const nrdma_buffer, offset: u64, size: u64) -> *const nrdma_buffer,
    /// Whether the memory is a GPU's and registered for RDMA.
    pub is_gpudirect: unsafe extern "C" fn(self_: *mut nrdma_buffer) -> bool,
}

/// IRDMA_buffer since 2021, with is_gpudirect.
const IID: nrdma_uuid = nrdma_uuid::new(0x9b7b_00e6, 0x4a07_9539, 0xdd9d_1a88, 0xfe6d_5c91);
/// IRDMA_buffer before: the same slots but the last.
const IID_2019: nrdma_uuid = nrdma_uuid::new(0xa2c7_5819, 0x4348_752a, 0x5a95_629f, 0x12ed_cf2a);

const VTBL: nrdma_buffer_vtbl_itanium = nrdma_buffer_vtbl_itanium {
    retain: com::retain::<Buffer>,
    release: com::release::<Buffer>,
    get_interface_const: com::get_interface_const::<Buffer>,
    get_interface: com::get_interface::<Buffer>,
    get_iid: com::get_iid::<Buffer>,
    get_id: method!(Buffer, |this: *const nrdma_buffer| -> u64 { this.value().id() }),
    get_gpu_id: method!(Buffer, |this: *const nrdma_buffer| -> i32 { this.value().gpu() }),
    get_data_const: method!(Buffer, |this: *const nrdma_buffer| -> *const u8 { data(&this) }),
    get_data: method!(Buffer, |this: *mut nrdma_buffer| -> *mut u8 { data(&this) }),
    get_size: method!(Buffer, |this: *const nrdma_buffer| -> u64 { this.value().size() }),
    duplicate_const: method!(Buffer, |this: *const nrdma_buffer,
                                      offset: u64,
                                      size: u64|
     -> *const nrdma_buffer { duplicate(&this, offset, size) }),
    duplicate: method!(Buffer, |this: *mut nrdma_buffer, offset: u64, size: u64| -> *mut nrdma_buffer {
        duplicate(&this, offset, size)
    }),
    is_gpudirect: method!(Buffer, |this: *mut nrdma_buffer| -> bool { is_gpudirect(&this) }),
};

pub(crate) static TABLE: Table<nrdma_buffer_vtbl_itanium> = Table::new(VTBL);

#[cfg(windows)]
static MSVC: face::MsvcTable<nrdma_buffer_vtbl_msvc> = face::MsvcTable::new(
    &super::rtti_msvc::BUFFER,
    nrdma_buffer_vtbl_msvc {
        retain: VTBL.retain,
        release: VTBL.release,
        get_interface: VTBL.get_interface,
        get_interface_const: VTBL.get_interface_const,
        get_iid: face::get_iid_msvc::<Buffer>,
        get_id: VTBL.get_id,
        get_gpu_id: VTBL.get_gpu_id,
        get_data: VTBL.get_data,
        get_data_const: VTBL.get_data_const,
        get_size: VTBL.get_size,
        duplicate: VTBL.duplicate,
        duplicate_const: VTBL.duplicate_const,
        is_gpudirect: VTBL.is_gpudirect,
    },
);

impl Class for Buffer {
    type Interface = nrdma_buffer;
    type Vtbl = nrdma_buffer_vtbl_itanium;
    type Line = com::OwnLine;
    const NAME: &'static str = "buffer";
    const IIDS: &'static [nrdma_uuid] = &[IID, IID_2019];
    /// Only the cache hands out buffers at rest, and it has them alone.
    const REVIVED: bool = false;
    fn table() -> &'static Table<nrdma_buffer_vtbl_itanium> {
        &TABLE
    }
    #[cfg(windows)]
    fn msvc() -> *const c_void {
        MSVC.address()
    }
    fn rest(object: Arc<Object<Self>>) {
        Home::rest(object);
    }
}

impl Carrier for Object<Buffer> {
    fn buffer(&self) -> &Buffer {
        self.value()
    }
    fn references(&self) -> u32 {
        Object::references(self)
    }
    fn start(self: Arc<Self>) {
        Object::start(self);
    }
    fn retain(&self) -> u32 {
        Object::retain(self)
    }
    fn release(&self) -> u32 {
        Object::release(self)
    }
}

/// Makes the object that carries a buffer; for `Shared::new`.
pub(crate) fn make(buffer: Buffer) -> Arc<dyn Carrier> {
    Object::at_rest(buffer)
}

/// The C pointer of a carrier; all carriers are made by [`make`].
fn interface(carrier: &Arc<dyn Carrier>, face: Face) -> *mut nrdma_buffer {
    face::place::<Buffer>(Arc::as_ptr(carrier).cast(), face).cast_mut()
}

/// Gives an object that [`Home::take`] returned to C, with its first reference.
#[inline]
pub(crate) fn start_raw(carrier: Arc<dyn Carrier>, face: Face) -> *mut nrdma_buffer {
    let object = Arc::into_raw(carrier).cast::<Object<Buffer>>();
    // SAFETY: all carriers are made by `make`, and this one is not anybody else's yet.
    let object = unsafe { Arc::from_raw(object) };
    let raw = object.interface(face);
    object.start();
    raw
}

/// Gives a reference to C: +1.
pub(crate) fn lease_into_raw(lease: Lease, face: Face) -> *mut nrdma_buffer {
    let raw = interface(lease.carrier(), face);
    lease.carrier().retain();
    drop(lease);
    raw
}

/// Lends a buffer to C for the length of a call.
pub(crate) fn lease_as_raw(lease: &Lease, face: Face) -> *mut nrdma_buffer {
    interface(lease.carrier(), face)
}

/// Takes over a reference that C gives away (+1); an error when the object is not a buffer of ours, which
/// then stays C's.
///
/// # Safety
/// `raw` is null or points to a C++ object that the caller owns a reference to.
pub(crate) unsafe fn lease_from_raw(raw: *mut nrdma_buffer) -> Result<Lease> {
    // SAFETY: by the contract above.
    let object = unsafe { checked::<Buffer>(raw) }?;
    Ok(Lease::adopt(object.arc()))
}

/// A reference of our own to a buffer that C lends.
///
/// # Safety
/// `raw` is null or points to a C++ object that the caller holds a reference to.
pub(crate) unsafe fn lease_borrowed(raw: *const nrdma_buffer) -> Result<Lease> {
    // SAFETY: by the contract above.
    let object = unsafe { checked::<Buffer>(raw) }?;
    let carrier: Arc<dyn Carrier> = object.arc();
    Ok(Lease::share(&carrier))
}

fn data(this: &Object<Buffer>) -> *mut u8 {
    ptr::with_exposed_provenance_mut(this.value().address())
}

fn is_gpudirect(this: &Object<Buffer>) -> bool {
    // Main memory is all there is in this build.
    this.value().gpu() >= 0
}

fn duplicate(this: &Seen<'_, Buffer>, offset: u64, size: u64) -> *mut nrdma_buffer {
    let view = fork::check().and_then(|()| {
        let carrier: Arc<dyn Carrier> = this.arc();
        Home::view(&carrier, offset, size)
    });
    match view {
        Ok(lease) => lease_into_raw(lease, this.face),
        Err(error) => {
            set_last(&error);
            ptr::null_mut()
        }
    }
}

/// Adds a reference; the new count, 0 when it is no buffer.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_retain(buffer: *const nrdma_buffer) -> u32 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Buffer>(buffer) }.map(Object::retain))
}

/// Drops a reference; the new count.
///
/// # Safety
/// `buffer` is NULL or an object that the caller gives up a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_release(buffer: *const nrdma_buffer) -> u32 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Buffer>(buffer) }.map(Object::release))
}

/// The buffer as the interface with this id, +1; NULL when it has no such interface.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to; `iid` is NULL or an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_get_interface(
    buffer: *mut nrdma_buffer,
    iid: *const nrdma_uuid,
) -> *mut c_void {
    // SAFETY: by the contract above.
    let found = guarded(|| unsafe { checked::<Buffer>(buffer) }.map(|_| buffer));
    match found.is_null() {
        true => ptr::null_mut(),
        // SAFETY: checked above.
        false => unsafe { com::get_interface::<Buffer>(found, iid) },
    }
}

/// IRDMA_buffer's id.
///
/// # Safety
/// `out` is NULL or room for an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_get_iid(buffer: *const nrdma_buffer, out: *mut nrdma_uuid) {
    let _ = buffer;
    guard(|| {
        // SAFETY: by the contract above.
        if let Some(out) = unsafe { out.as_mut() } {
            *out = IID;
        }
    });
}

/// The number of this buffer; never given twice by a process. 0 when it is no buffer.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_get_id(buffer: *const nrdma_buffer) -> u64 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Buffer>(buffer) }.map(|object| object.value().id()))
}

/// The GPU that holds the memory; -1 is main memory.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_get_gpu_id(buffer: *const nrdma_buffer) -> i32 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Buffer>(buffer) }.map(|object| object.value().gpu()))
}

/// The memory: get_size bytes, aligned to 64 KiB from 64 KiB on, to 64 bytes below.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_get_data(buffer: *mut nrdma_buffer) -> *mut u8 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Buffer>(buffer) }.map(data))
}

/// The memory, to read.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_get_const_data(buffer: *const nrdma_buffer) -> *const u8 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Buffer>(buffer) }.map(data)).cast_const()
}

/// Bytes asked for.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_get_size(buffer: *const nrdma_buffer) -> u64 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Buffer>(buffer) }.map(|object| object.value().size()))
}

/// A part of the buffer as a buffer of its own, +1; it holds the whole. NULL when not wholly inside.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_duplicate(
    buffer: *mut nrdma_buffer,
    offset: u64,
    size: u64,
) -> *mut nrdma_buffer {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked_seen::<Buffer>(buffer) }.map(|seen| duplicate(&seen, offset, size)))
}

/// 1 when the memory is a GPU's and registered for RDMA, else 0.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_is_gpudirect(buffer: *mut nrdma_buffer) -> i32 {
    // SAFETY: by the contract above.
    let direct = guarded(|| unsafe { checked::<Buffer>(buffer) }.map(is_gpudirect));
    i32::from(direct)
}

/// How the buffer's bytes last travelled: NRDMA_PATH_*.
///
/// # Safety
/// `buffer` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_buffer_get_path(buffer: *const nrdma_buffer) -> i32 {
    // SAFETY: by the contract above.
    let path = guarded(|| unsafe { checked::<Buffer>(buffer) }.map(|object| object.value().path().number()));
    i32::try_from(path).unwrap_or(NRDMA_PATH_NONE)
}
