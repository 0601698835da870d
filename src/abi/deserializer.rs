//! `mi::neuraylib::IDeserializer`: reads what an [`ISerializer`](super::serializer) wrote.
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::com::{self, Class, Com, Table, method, object};
use super::dice_class;
use super::error::set_last;
use super::face::{Face, GetIid};
use super::foreign::{Held, ISERIALIZABLE, Pointer, call, slot};
use super::guard::guard;
use super::interface::nrdma_uuid;
use super::serializer::{DEEPEST, HEADER, told, total};
use crate::core::error::{Error, Kind, Result};
use crate::core::job::class_text;
use crate::core::node::Node;

/// Bytes in front of an object inside: class id and length.
const HEAD: usize = 24;

/// What C++ points to.
#[repr(C)]
pub(crate) struct IDeserializer {
    vtbl: *const c_void,
}

type Read = unsafe extern "C" fn(this: *mut IDeserializer, values: *mut c_void, count: u64) -> bool;

/// The function table, with the slots of mi::neuraylib::IDeserializer.
#[repr(C)]
pub(crate) struct Vtbl<Iid = GetIid<IDeserializer>> {
    retain: unsafe extern "C" fn(this: *const IDeserializer) -> u32,
    release: unsafe extern "C" fn(this: *const IDeserializer) -> u32,
    get_interface_const: unsafe extern "C" fn(*const IDeserializer, *const nrdma_uuid) -> *const c_void,
    get_interface: unsafe extern "C" fn(*mut IDeserializer, *const nrdma_uuid) -> *mut c_void,
    get_iid: Iid,
    deserialize: unsafe extern "C" fn(this: *mut IDeserializer) -> *mut c_void,
    /// bool, u8 to u64, i8 to i64, f32, f64, Tag_struct.
    read: [Read; 12],
}

const VTBL: Vtbl = Vtbl {
    retain: com::retain::<Deserializer>,
    release: com::release::<Deserializer>,
    get_interface_const: com::get_interface_const::<Deserializer>,
    get_interface: com::get_interface::<Deserializer>,
    get_iid: com::get_iid::<Deserializer>,
    deserialize: method!(Deserializer, |this: *mut IDeserializer| -> *mut c_void {
        this.value().deserialize(this.face).map_or_else(
            |error| {
                set_last(&error);
                ptr::null_mut()
            },
            Held::into_raw,
        )
    }),
    read: [
        read_bools, read::<1>, read::<2>, read::<4>, read::<8>, read::<1>, read::<2>, read::<4>, read::<8>,
        read::<4>, read::<8>, read::<4>,
    ],
};

pub(crate) static TABLE: Table<Vtbl> = Table::new(VTBL);

/// For Microsoft's compiler: functions of one name in the opposite order.
#[cfg(windows)]
#[rustfmt::skip]
static MSVC: super::face::MsvcTable<Vtbl<super::face::GetIidMsvc<IDeserializer>>> = super::face::MsvcTable::new(
    &super::rtti_msvc::DESERIALIZER,
    Vtbl {
        retain: VTBL.retain,
        release: VTBL.release,
        get_interface_const: VTBL.get_interface_const,
        get_interface: VTBL.get_interface,
        get_iid: super::face::get_iid_msvc::<Deserializer>,
        deserialize: VTBL.deserialize,
        read: [
            read::<4>, read::<8>, read::<4>, read::<8>, read::<4>, read::<2>, read::<1>, read::<8>, read::<4>,
            read::<2>, read::<1>, read_bools,
        ],
    },
);

/// Reads numbers of `N` bytes.
unsafe extern "C" fn read<const N: usize>(this: *mut IDeserializer, values: *mut c_void, count: u64) -> bool {
    guard(|| {
        // SAFETY: C++ calls a table's function on a live object of that table.
        let this = unsafe { object::<Deserializer>(this) };
        // SAFETY: C++ passes room for that many values.
        told(unsafe { this.value().read(values, count, N, |_| true) })
    })
}

/// A byte that is no bool must not become one.
unsafe extern "C" fn read_bools(this: *mut IDeserializer, values: *mut c_void, count: u64) -> bool {
    guard(|| {
        // SAFETY: C++ calls a table's function on a live object of that table.
        let this = unsafe { object::<Deserializer>(this) };
        // SAFETY: C++ passes room for that many values.
        told(unsafe { this.value().read(values, count, 1, |bytes| bytes.iter().all(|byte| *byte <= 1)) })
    })
}

struct State {
    /// The bytes that are left; the caller of the outermost call keeps them.
    at: Pointer,
    left: usize,
    read: usize,
    /// What went wrong where nobody could be told.
    error: Option<Error>,
}

/// A stream to read from.
pub(crate) struct Deserializer {
    node: Weak<Node>,
    depth: u32,
    state: Mutex<State>,
}

impl Class for Deserializer {
    type Interface = IDeserializer;
    type Vtbl = Vtbl;
    type Line = ();
    const NAME: &'static str = "deserializer";
    const IIDS: &'static [nrdma_uuid] =
        &[nrdma_uuid::new(0x7052_258a, 0x4861_579b, 0x025f_129c, 0xcefb_869c)];
    fn table() -> &'static Table<Vtbl> {
        &TABLE
    }
    #[cfg(windows)]
    fn msvc() -> *const c_void {
        MSVC.address()
    }
}

impl Deserializer {
    /// # Safety
    /// `len` bytes at `at` stay as they are until `close`.
    unsafe fn new(node: Weak<Node>, depth: u32, at: Pointer, len: usize) -> Com<Self> {
        let state = State { at, left: len, read: 0, error: None };
        Com::new(Self { node, depth, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing can be read any more; what went wrong, if anything.
    fn close(&self) -> Result<()> {
        let mut state = self.lock();
        state.left = 0;
        state.error.take().map_or(Ok(()), Err)
    }

    /// # Safety
    /// `values` is room for `count` values of `size` bytes.
    unsafe fn read(
        &self,
        values: *mut c_void,
        count: u64,
        size: usize,
        fits: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let total = total(values, count, size)?;
        let mut state = self.lock();
        let bytes = state.peek(total)?;
        if !fits(bytes) {
            return Err(Error::protocol("the stream has something else than a bool here"));
        }
        if total > 0 {
            // SAFETY: by the contract above; the stream's bytes are elsewhere.
            unsafe { values.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), total) };
        }
        state.skip(total);
        Ok(())
    }

    /// The object that comes next, +1. One of an unknown class is skipped.
    fn deserialize(&self, face: Face) -> Result<Held> {
        let (class, at, len) = self.lock().take_object()?;
        let node = self.node.upgrade().ok_or_else(crate::core::node::shut_down)?;
        let Some(registered) = dice_class::find(&node, class) else {
            let text = format!("class {} is not registered on this host", class_text(&class));
            return Err(Error::new(Kind::NotRegistered, text));
        };
        if self.depth >= DEEPEST {
            let text = format!("more than {DEEPEST} objects lie inside each other");
            return Err(self.note(Error::protocol(text)));
        }
        drop(node);
        let made = dice_class::make(&registered, &ISERIALIZABLE, face).and_then(|object| {
            // SAFETY: a part of our own bytes, which stay until our `close`: after this call.
            let inner = unsafe { Self::new(Weak::clone(&self.node), self.depth + 1, at, len) };
            read_object(&inner, &object).map(|()| object)
        });
        made.map_err(|error| self.note(error))
    }

    /// Remembers a failure that only the caller of the outermost object can handle.
    fn note(&self, error: Error) -> Error {
        self.lock().error.get_or_insert_with(|| error.clone());
        error
    }
}

impl State {
    fn peek(&self, len: usize) -> Result<&[u8]> {
        if len > self.left {
            let (left, read) = (self.left, self.read);
            let text = format!("{len} bytes were to be read, {left} are left after {read}");
            return Err(Error::invalid(text));
        }
        if len == 0 {
            return Ok(&[]);
        }
        // SAFETY: by the contract of `Deserializer::new`; `left` is 0 after `close`.
        Ok(unsafe { std::slice::from_raw_parts(self.at.0.cast::<u8>(), len) })
    }

    fn skip(&mut self, len: usize) {
        self.at = Pointer(self.at.0.wrapping_byte_add(len));
        self.left -= len;
        self.read += len;
    }

    /// Class, place and length of the object that comes next, which is skipped.
    fn take_object(&mut self) -> Result<([u32; 4], Pointer, usize)> {
        let head = self.peek(HEAD)?;
        let mut words = head.chunks_exact(4).map(|word| {
            let word: [u8; 4] = word.try_into().unwrap_or_default();
            u32::from_le_bytes(word)
        });
        let mut word = || words.next().unwrap_or_default();
        let class = [word(), word(), word(), word()];
        let len = u64::from(word()) | u64::from(word()) << 32;
        let inside = usize::try_from(len).ok().filter(|len| *len <= self.left - HEAD);
        let Some(len) = inside else {
            let text =
                format!("an object of {len} bytes does not fit the {} that are left", self.left - HEAD);
            return Err(Error::protocol(text));
        };
        self.skip(HEAD);
        let at = self.at;
        self.skip(len);
        Ok((class, at, len))
    }
}

fn read_object(stream: &Com<Deserializer>, object: &Held) -> Result<()> {
    let pointer = stream.interface(object.face());
    let called = call!(object.pointer(), slot::DESERIALIZE, fn(*mut IDeserializer) -> (), pointer);
    let closed = stream.value().close();
    called.map_err(|error| Error::new(error.kind, format!("deserialize: {}", error.text)))?;
    closed
}

/// Lets an object read itself from its own bytes.
pub(crate) fn deserialize(node: &Arc<Node>, object: &Held, bytes: &[u8]) -> Result<()> {
    let Some(bytes) = bytes.strip_prefix(&HEADER) else {
        let text =
            "the job's data has a format that this version does not know; use the same one on all hosts";
        return Err(Error::new(Kind::VersionMismatch, text));
    };
    let at = Pointer(bytes.as_ptr().cast::<c_void>().cast_mut());
    // SAFETY: `bytes` lives until `read_object` has returned, which closes the stream.
    let stream = unsafe { Deserializer::new(Arc::downgrade(node), 0, at, bytes.len()) };
    read_object(&stream, object)
}

/// Runs what reads a fragment's result.
pub(crate) fn read_result(
    node: &Weak<Node>,
    bytes: &[u8],
    face: Face,
    body: impl FnOnce(*mut c_void) -> Result<()>,
) -> Result<()> {
    let at = Pointer(bytes.as_ptr().cast::<c_void>().cast_mut());
    // SAFETY: `bytes` lives until the stream is closed below.
    let stream = unsafe { Deserializer::new(Weak::clone(node), 0, at, bytes.len()) };
    let read = body(stream.interface(face).cast());
    let closed = stream.value().close();
    read.and(closed)
}
