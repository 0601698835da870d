//! `mi::neuraylib::ISerializer`: numbers, little-endian and without gaps; an object inside is its class id (16
//! bytes), its length (8 bytes) and its bytes.
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::com::{self, Class, Com, Table, method, object};
use super::dice_class;
use super::error::set_last;
use super::face::{Face, GetIid};
use super::foreign::{Pointer, call, class_id, slot};
use super::guard::guard;
use super::interface::nrdma_uuid;
use crate::core::error::{Error, Kind, Result};
use crate::core::fragment::Fragment;
use crate::core::job::class_text;
use crate::core::node::Node;

/// The largest stream.
pub(crate) const LARGEST: usize = 256 << 20;
/// Objects inside each other.
pub(crate) const DEEPEST: u32 = 256;
/// What a job's bytes begin with: the last byte is the version.
pub(crate) const HEADER: [u8; 4] = *b"nrs\x01";

/// What C++ points to.
#[repr(C)]
pub(crate) struct ISerializer {
    vtbl: *const c_void,
}

type Write = unsafe extern "C" fn(this: *mut ISerializer, values: *const c_void, count: u64) -> bool;

/// The function table, with the slots of mi::neuraylib::ISerializer.
#[repr(C)]
pub(crate) struct Vtbl<Iid = GetIid<ISerializer>> {
    retain: unsafe extern "C" fn(this: *const ISerializer) -> u32,
    release: unsafe extern "C" fn(this: *const ISerializer) -> u32,
    get_interface_const: unsafe extern "C" fn(*const ISerializer, *const nrdma_uuid) -> *const c_void,
    get_interface: unsafe extern "C" fn(*mut ISerializer, *const nrdma_uuid) -> *mut c_void,
    get_iid: Iid,
    serialize: unsafe extern "C" fn(this: *mut ISerializer, object: *mut c_void) -> bool,
    /// bool, u8 to u64, i8 to i64, f32, f64.
    write: [Write; 11],
    reserve: unsafe extern "C" fn(this: *mut ISerializer, size: u64),
    flush: unsafe extern "C" fn(this: *mut ISerializer),
    write_tag: Write,
}

const VTBL: Vtbl = Vtbl {
    retain: com::retain::<Serializer>,
    release: com::release::<Serializer>,
    get_interface_const: com::get_interface_const::<Serializer>,
    get_interface: com::get_interface::<Serializer>,
    get_iid: com::get_iid::<Serializer>,
    serialize: method!(Serializer, |this: *mut ISerializer, object: *mut c_void| -> bool {
        told(this.value().serialize(Pointer(object), this.face))
    }),
    write: [
        write::<1>, write::<1>, write::<2>, write::<4>, write::<8>, write::<1>, write::<2>, write::<4>,
        write::<8>, write::<4>, write::<8>,
    ],
    reserve: method!(Serializer, |this: *mut ISerializer, size: u64| -> () { this.value().reserve(size) }),
    flush: method!(Serializer, |this: *mut ISerializer| -> () {
        told(this.value().flush());
    }),
    write_tag: write::<4>,
};

pub(crate) static TABLE: Table<Vtbl> = Table::new(VTBL);

/// The function table for Microsoft's compiler: functions of one name stand together, the last one first.
#[cfg(windows)]
#[repr(C)]
struct VtblMsvc {
    retain: unsafe extern "C" fn(this: *const ISerializer) -> u32,
    release: unsafe extern "C" fn(this: *const ISerializer) -> u32,
    get_interface: unsafe extern "C" fn(*mut ISerializer, *const nrdma_uuid) -> *mut c_void,
    get_interface_const: unsafe extern "C" fn(*const ISerializer, *const nrdma_uuid) -> *const c_void,
    get_iid: super::face::GetIidMsvc<ISerializer>,
    serialize: unsafe extern "C" fn(this: *mut ISerializer, object: *mut c_void) -> bool,
    /// Tag_struct, f64, f32, i64 to i8, u64 to u8, bool.
    write: [Write; 12],
    reserve: unsafe extern "C" fn(this: *mut ISerializer, size: u64),
    flush: unsafe extern "C" fn(this: *mut ISerializer),
}

#[cfg(windows)]
#[rustfmt::skip]
static MSVC: super::face::MsvcTable<VtblMsvc> = super::face::MsvcTable::new(
    &super::rtti_msvc::SERIALIZER,
    VtblMsvc {
        retain: VTBL.retain,
        release: VTBL.release,
        get_interface: VTBL.get_interface,
        get_interface_const: VTBL.get_interface_const,
        get_iid: super::face::get_iid_msvc::<Serializer>,
        serialize: VTBL.serialize,
        write: [
            write::<4>, write::<8>, write::<4>, write::<8>, write::<4>, write::<2>, write::<1>, write::<8>,
            write::<4>, write::<2>, write::<1>, write::<1>,
        ],
        reserve: VTBL.reserve,
        flush: VTBL.flush,
    },
);

/// Writes numbers of `N` bytes.
unsafe extern "C" fn write<const N: usize>(
    this: *mut ISerializer,
    values: *const c_void,
    count: u64,
) -> bool {
    guard(|| {
        // SAFETY: C++ calls a table's function on a live object of that table.
        let this = unsafe { object::<Serializer>(this) };
        // SAFETY: C++ passes that many values.
        told(unsafe { this.value().write(values, count, N) })
    })
}

/// A failure is false and the last error.
pub(crate) fn told(result: Result<()>) -> bool {
    result.map_err(|error| set_last(&error)).is_ok()
}

/// Bytes of `count` values of `size` bytes at `values`.
pub(crate) fn total(values: *const c_void, count: u64, size: usize) -> Result<usize> {
    let total = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
    match total.filter(|total| *total <= LARGEST) {
        Some(total) if total == 0 || !values.is_null() => Ok(total),
        Some(_) => Err(Error::invalid(format!("{count} values at NULL"))),
        None => Err(Error::invalid(format!(
            "{count} values of {size} bytes are too much; a stream holds at most 256 MiB"
        ))),
    }
}

struct State {
    bytes: Vec<u8>,
    /// What went wrong where nobody could be told.
    error: Option<Error>,
    closed: bool,
}

/// A stream to write to.
pub(crate) struct Serializer {
    node: Weak<Node>,
    depth: u32,
    /// Where flush sends to.
    fragment: Option<Arc<Fragment>>,
    state: Mutex<State>,
}

impl Class for Serializer {
    type Interface = ISerializer;
    type Vtbl = Vtbl;
    type Line = ();
    const NAME: &'static str = "serializer";
    const IIDS: &'static [nrdma_uuid] =
        &[nrdma_uuid::new(0xdcf5_a659, 0x436b_2b06, 0x9d36_5582, 0xb142_e7bd)];
    fn table() -> &'static Table<Vtbl> {
        &TABLE
    }
    #[cfg(windows)]
    fn msvc() -> *const c_void {
        MSVC.address()
    }
}

impl Serializer {
    fn new(node: Weak<Node>, depth: u32, fragment: Option<Arc<Fragment>>) -> Com<Self> {
        let state = State { bytes: Vec::new(), error: None, closed: false };
        Com::new(Self { node, depth, fragment, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the stream: its bytes, or what went wrong.
    fn close(&self) -> Result<Vec<u8>> {
        let mut state = self.lock();
        state.closed = true;
        let bytes = std::mem::take(&mut state.bytes);
        state.error.take().map_or(Ok(bytes), Err)
    }

    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        let more: usize = parts.iter().map(|part| part.len()).sum();
        let mut state = self.lock();
        if state.closed {
            return Err(Error::invalid("the serializer's call has returned"));
        }
        let have = state.bytes.len();
        if more > LARGEST - have.min(LARGEST) {
            let text = format!("{more} more bytes after {have} are too much; a stream holds at most 256 MiB");
            return Err(Error::new(Kind::OutOfMemory, text));
        }
        state.bytes.try_reserve(more).map_err(|_| {
            Error::new(Kind::OutOfMemory, format!("no memory for {more} more bytes after {have}"))
        })?;
        parts.iter().for_each(|part| state.bytes.extend_from_slice(part));
        Ok(())
    }

    /// # Safety
    /// `values` points to `count` values of `size` bytes.
    unsafe fn write(&self, values: *const c_void, count: u64, size: usize) -> Result<()> {
        let total = total(values, count, size)?;
        if total == 0 {
            return Ok(());
        }
        // SAFETY: by the contract above. Numbers lie in memory as they do in the stream: little-endian.
        self.append(&[unsafe { std::slice::from_raw_parts(values.cast::<u8>(), total) }])
    }

    fn reserve(&self, size: u64) {
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(LARGEST);
        // A hint: without the memory the writes will say so.
        let _ = self.lock().bytes.try_reserve(size);
    }

    /// An object inside; nothing is written when it cannot be read again.
    fn serialize(&self, object: Pointer, face: Face) -> Result<()> {
        if object.0.is_null() {
            return Err(Error::invalid("the object to serialize is NULL"));
        }
        let id = class_id(object, face).map_err(|error| self.note(error))?;
        let class = [id.id1, id.id2, id.id3, id.id4];
        let node = self.node.upgrade().ok_or_else(crate::core::node::shut_down)?;
        if dice_class::find(&node, class).is_none() {
            let text = format!("class {} is not registered on this host", class_text(&class));
            return Err(Error::new(Kind::NotRegistered, text));
        }
        if self.depth >= DEEPEST {
            let text = format!("more than {DEEPEST} objects lie inside each other");
            return Err(self.note(Error::new(Kind::FragmentFailed, text)));
        }
        drop(node);
        let inner = Self::new(Weak::clone(&self.node), self.depth + 1, None);
        let bytes = written(&inner, object, face).map_err(|error| self.note(error))?;
        let head: Vec<u8> = class.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.append(&[&head, &(bytes.len() as u64).to_le_bytes(), &bytes])
    }

    /// Remembers a failure that only the caller of the outermost object can handle.
    fn note(&self, error: Error) -> Error {
        self.lock().error.get_or_insert_with(|| error.clone());
        error
    }

    fn flush(&self) -> Result<()> {
        // Inside of another object, and in a job's own data, there is nothing to send yet.
        let Some(fragment) = &self.fragment else {
            return Ok(());
        };
        let bytes = {
            let mut state = self.lock();
            if state.closed {
                return Err(Error::invalid("the serializer's call has returned"));
            }
            std::mem::take(&mut state.bytes)
        };
        fragment.write(&bytes).and_then(|()| fragment.flush_written()).map_err(|error| self.note(error))
    }
}

fn written(stream: &Com<Serializer>, object: Pointer, face: Face) -> Result<Vec<u8>> {
    let pointer = stream.interface(face);
    let called = call!(object, slot::SERIALIZE, fn(*mut ISerializer) -> (), pointer);
    let bytes = stream.value().close();
    called.map_err(|error| Error::new(error.kind, format!("serialize: {}", error.text)))?;
    bytes
}

/// An object's own bytes, from which replicas of it are made.
pub(crate) fn serialize(node: &Arc<Node>, object: Pointer, face: Face) -> Result<Vec<u8>> {
    let stream = Serializer::new(Arc::downgrade(node), 0, None);
    stream.value().append(&[&HEADER])?;
    written(&stream, object, face)
}

/// Runs what writes a fragment's result, and hands that to the fragment.
pub(crate) fn write_result(
    node: &Arc<Node>,
    fragment: &Arc<Fragment>,
    face: Face,
    body: impl FnOnce(*mut c_void) -> Result<()>,
) -> Result<()> {
    let stream = Serializer::new(Arc::downgrade(node), 0, Some(Arc::clone(fragment)));
    let written = body(stream.interface(face).cast());
    let bytes = stream.value().close();
    written?;
    fragment.write(&bytes?)
}
