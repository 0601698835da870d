//! `mi::neuraylib::IRDMA_context`.
use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::buffer::{lease_borrowed, lease_into_raw, nrdma_buffer, start_raw};
use super::com::{self, Class, Com, Object, Table, checked, checked_seen, method};
use super::error::{NRDMA_AFTER_FORK, NRDMA_INVALID_PARAMETER, NRDMA_NOT_IN_FRAGMENT, NRDMA_OK, set_last};
use super::face::Face;
use super::fork;
use super::guard::{guard, guarded};
use super::interface::nrdma_uuid;
use crate::core::error::{Error, Kind, Result};
use crate::core::fragment::Fragment;
use crate::core::home::Home;
use crate::core::log;
use crate::core::memory::Kind as Memory;

/// The context of one host: a mi::neuraylib::IRDMA_context of the face it was made for.
#[repr(C)]
pub struct nrdma_context {
    /// The object's function table.
    pub vtbl: *const c_void,
}

/// The function table of a context for GCC, Clang and MinGW, with the slots of mi::neuraylib::IRDMA_context.
#[repr(C)]
pub struct nrdma_context_vtbl_itanium {
    /// Adds a reference; the new count.
    pub retain: unsafe extern "C" fn(self_: *const nrdma_context) -> u32,
    /// Drops a reference; the new count.
    pub release: unsafe extern "C" fn(self_: *const nrdma_context) -> u32,
    /// +1 or NULL.
    pub get_interface_const:
        unsafe extern "C" fn(self_: *const nrdma_context, iid: *const nrdma_uuid) -> *const c_void,
    /// +1 or NULL.
    pub get_interface: unsafe extern "C" fn(self_: *mut nrdma_context, iid: *const nrdma_uuid) -> *mut c_void,
    /// IRDMA_context's id.
    pub get_iid: unsafe extern "C" fn(self_: *const nrdma_context) -> nrdma_uuid,
    /// A buffer to send from, +1.
    pub get_write_memory:
        unsafe extern "C" fn(self_: *mut nrdma_context, size: u64, gpu_id: i32) -> *mut nrdma_buffer,
    /// A buffer to receive into, +1.
    pub get_read_memory:
        unsafe extern "C" fn(self_: *mut nrdma_context, size: u64, gpu_id: i32) -> *mut nrdma_buffer,
    /// The host's own memory as a buffer, +1.
    pub wrap_user_buffer: unsafe extern "C" fn(
        self_: *mut nrdma_context,
        data: *mut u8,
        size: u64,
        gpu_id: i32,
    ) -> *mut nrdma_buffer,
    /// Sends an intermediate result.
    pub flush: unsafe extern "C" fn(self_: *mut nrdma_context, buffer: *mut nrdma_buffer) -> i32,
}

/// The function table of a context for Microsoft's compiler.
#[repr(C)]
pub struct nrdma_context_vtbl_msvc {
    /// Adds a reference; the new count.
    pub retain: unsafe extern "C" fn(self_: *const nrdma_context) -> u32,
    /// Drops a reference; the new count.
    pub release: unsafe extern "C" fn(self_: *const nrdma_context) -> u32,
    /// +1 or NULL.
    pub get_interface: unsafe extern "C" fn(self_: *mut nrdma_context, iid: *const nrdma_uuid) -> *mut c_void,
    /// +1 or NULL.
    pub get_interface_const:
        unsafe extern "C" fn(self_: *const nrdma_context, iid: *const nrdma_uuid) -> *const c_void,
    /// IRDMA_context's id.
    pub get_iid:
        unsafe extern "C" fn(self_: *const nrdma_context, result: *mut nrdma_uuid) -> *mut nrdma_uuid,
    /// A buffer to send from, +1.
    pub get_write_memory:
        unsafe extern "C" fn(self_: *mut nrdma_context, size: u64, gpu_id: i32) -> *mut nrdma_buffer,
    /// A buffer to receive into, +1.
    pub get_read_memory:
        unsafe extern "C" fn(self_: *mut nrdma_context, size: u64, gpu_id: i32) -> *mut nrdma_buffer,
    /// The host's own memory as a buffer, +1.
    pub wrap_user_buffer: unsafe extern "C" fn(
        self_: *mut nrdma_context,
        data: *mut u8,
        size: u64,
        gpu_id: i32,
    ) -> *mut nrdma_buffer,
    /// Sends an intermediate result.
    pub flush: unsafe extern "C" fn(self_: *mut nrdma_context, buffer: *mut nrdma_buffer) -> i32,
}

const IID: nrdma_uuid = nrdma_uuid::new(0x5f39_80e9, 0x478d_fadc, 0x1044_18bb, 0xb5f7_6fa4);

/// Told once per process, as neuray does.
static WRAPPED: AtomicBool = AtomicBool::new(false);

/// A way to one host's buffers: the host's own context, or that of a fragment which it asked for.
pub(crate) struct Context {
    home: Arc<Home>,
    fragment: Option<Arc<Fragment>>,
}

const VTBL: nrdma_context_vtbl_itanium = nrdma_context_vtbl_itanium {
    retain: com::retain::<Context>,
    release: com::release::<Context>,
    get_interface_const: com::get_interface_const::<Context>,
    get_interface: com::get_interface::<Context>,
    get_iid: com::get_iid::<Context>,
    get_write_memory: method!(Context, |this: *mut nrdma_context,
                                        size: u64,
                                        gpu_id: i32|
     -> *mut nrdma_buffer {
        answer(this.value().write_memory(size, gpu_id, this.face))
    }),
    get_read_memory: method!(Context, |this: *mut nrdma_context,
                                       size: u64,
                                       gpu_id: i32|
     -> *mut nrdma_buffer {
        answer(this.value().read_memory(size, gpu_id, this.face))
    }),
    wrap_user_buffer: method!(Context, |this: *mut nrdma_context,
                                        data: *mut u8,
                                        size: u64,
                                        gpu_id: i32|
     -> *mut nrdma_buffer {
        answer(this.value().wrap(data, size, gpu_id, None, this.face))
    }),
    flush: method!(Context, |this: *mut nrdma_context, buffer: *mut nrdma_buffer| -> i32 {
        // SAFETY: C++ passes a live buffer or NULL.
        unsafe { this.value().flush(buffer) }
    }),
};

pub(crate) static TABLE: Table<nrdma_context_vtbl_itanium> = Table::new(VTBL);

#[cfg(windows)]
static MSVC: super::face::MsvcTable<nrdma_context_vtbl_msvc> = super::face::MsvcTable::new(
    &super::rtti_msvc::CONTEXT,
    nrdma_context_vtbl_msvc {
        retain: VTBL.retain,
        release: VTBL.release,
        get_interface: VTBL.get_interface,
        get_interface_const: VTBL.get_interface_const,
        get_iid: super::face::get_iid_msvc::<Context>,
        get_write_memory: VTBL.get_write_memory,
        get_read_memory: VTBL.get_read_memory,
        wrap_user_buffer: VTBL.wrap_user_buffer,
        flush: VTBL.flush,
    },
);

impl Class for Context {
    type Interface = nrdma_context;
    type Vtbl = nrdma_context_vtbl_itanium;
    type Line = ();
    const NAME: &'static str = "context";
    const IIDS: &'static [nrdma_uuid] = &[IID];
    fn table() -> &'static Table<nrdma_context_vtbl_itanium> {
        &TABLE
    }
    #[cfg(windows)]
    fn msvc() -> *const c_void {
        MSVC.address()
    }
}

#[inline]
fn answer(made: Result<*mut nrdma_buffer>) -> *mut nrdma_buffer {
    made.unwrap_or_else(|error| {
        set_last(&error);
        ptr::null_mut()
    })
}

impl Context {
    /// The one object for a host's context, +1.
    pub(crate) fn of_host(home: &Arc<Home>) -> Com<Self> {
        let mut slot = home.context_slot();
        let known = slot.as_ref().and_then(|any| Arc::clone(any).downcast::<Object<Self>>().ok());
        let object =
            known.unwrap_or_else(|| Object::at_rest(Self { home: Arc::clone(home), fragment: None }));
        let context = Com::share(&object);
        // A closed home has emptied the place; what came there now would keep the home for ever.
        if !home.is_closed() {
            *slot = Some(object as Arc<dyn Any + Send + Sync>);
        }
        context
    }

    /// The context that a fragment's function is given, +1.
    pub(crate) fn of_fragment(fragment: &Arc<Fragment>) -> Com<Self> {
        Com::new(Self { home: Arc::clone(fragment.home()), fragment: Some(Arc::clone(fragment)) })
    }

    /// The fragment that a call through this object is inside of.
    #[inline]
    fn inside(&self) -> Option<Arc<Fragment>> {
        match &self.fragment {
            Some(fragment) => fragment.is_active().then(|| Arc::clone(fragment)),
            None => Fragment::current(&self.home),
        }
    }

    #[inline]
    fn write_memory(&self, size: u64, gpu: i32, face: Face) -> Result<*mut nrdma_buffer> {
        fork::check()?;
        match self.inside() {
            Some(fragment) => fragment.write_memory(size, gpu).map(|lease| lease_into_raw(lease, face)),
            None => self.home.take(Memory::Private, size, gpu).map(|made| start_raw(made, face)),
        }
    }

    #[inline]
    fn read_memory(&self, size: u64, gpu: i32, face: Face) -> Result<*mut nrdma_buffer> {
        fork::check()?;
        self.home.take(Memory::Shared, size, gpu).map(|made| start_raw(made, face))
    }

    fn wrap(
        &self,
        data: *mut u8,
        size: u64,
        gpu: i32,
        done: Option<Box<dyn FnOnce() + Send>>,
        face: Face,
    ) -> Result<*mut nrdma_buffer> {
        fork::check()?;
        let lease = self.home.wrap(data.expose_provenance(), size, gpu, done)?;
        if !WRAPPED.swap(true, Ordering::Relaxed) {
            log::warn!(
                "wrap_user_buffer: the bytes of wrapped memory are copied; buffers from get_read_memory are not"
            );
        }
        Ok(lease_into_raw(lease, face))
    }

    /// # Safety
    /// `buffer` is null or points to a C++ object that the caller holds a reference to.
    unsafe fn flush(&self, buffer: *mut nrdma_buffer) -> i32 {
        // SAFETY: by the contract above.
        let flushed = unsafe { self.try_flush(buffer) };
        match flushed {
            Ok(()) => NRDMA_OK,
            Err(error) => {
                set_last(&error);
                // neuray knows two failures; which it is of ours stands in the last error.
                match error.kind {
                    Kind::NotInFragment => NRDMA_NOT_IN_FRAGMENT,
                    Kind::AfterFork => NRDMA_AFTER_FORK,
                    _ => NRDMA_INVALID_PARAMETER,
                }
            }
        }
    }

    /// # Safety
    /// As [`Context::flush`].
    unsafe fn try_flush(&self, buffer: *mut nrdma_buffer) -> Result<()> {
        fork::check()?;
        // SAFETY: by the contract above.
        let lease = unsafe { lease_borrowed(buffer) }?;
        if !lease.same_home(&self.home) {
            let host = self.home.host_id();
            return Err(Error::invalid(format!(
                "buffer {} is not of the context of host {host}",
                lease.id()
            )));
        }
        match self.inside() {
            Some(fragment) => fragment.flush(&lease),
            None if self.home.is_closed() => Err(Error::new(
                Kind::PeerLost,
                format!("host {} is gone, nothing can be flushed to it", self.home.host_id()),
            )),
            None => Err(Error::new(
                Kind::NotInFragment,
                format!("flush of buffer {} was called outside of execute_fragment_remote_rdma", lease.id()),
            )),
        }
    }
}

/// Adds a reference; the new count, 0 when it is no context.
///
/// # Safety
/// `context` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_retain(context: *const nrdma_context) -> u32 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Context>(context) }.map(Object::retain))
}

/// Drops a reference; the new count.
///
/// # Safety
/// `context` is NULL or an object that the caller gives up a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_release(context: *const nrdma_context) -> u32 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { checked::<Context>(context) }.map(Object::release))
}

/// The context as the interface with this id, +1; NULL when it has no such interface.
///
/// # Safety
/// `context` is NULL or an object that the caller holds a reference to; `iid` is NULL or an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_get_interface(
    context: *mut nrdma_context,
    iid: *const nrdma_uuid,
) -> *mut c_void {
    // SAFETY: by the contract above.
    let found = guarded(|| unsafe { checked::<Context>(context) }.map(|_| context));
    match found.is_null() {
        true => ptr::null_mut(),
        // SAFETY: checked above.
        false => unsafe { com::get_interface::<Context>(found, iid) },
    }
}

/// IRDMA_context's id.
///
/// # Safety
/// `out` is NULL or room for an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_get_iid(_context: *const nrdma_context, out: *mut nrdma_uuid) {
    guard(|| {
        // SAFETY: by the contract above.
        if let Some(out) = unsafe { out.as_mut() } {
            *out = IID;
        }
    });
}

/// A buffer to send from, +1. Inside a fragment NULL when it is larger than the requester's result buffer; the
/// first one may be the result memory itself.
///
/// # Safety
/// `context` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_get_write_memory(
    context: *mut nrdma_context,
    size: u64,
    gpu_id: i32,
) -> *mut nrdma_buffer {
    // SAFETY: by the contract above.
    let seen = || unsafe { checked_seen::<Context>(context) };
    guarded(|| seen().and_then(|seen| seen.value().write_memory(size, gpu_id, seen.face)))
}

/// A buffer to receive into, +1; its memory comes from the cache and is not cleared.
///
/// # Safety
/// `context` is NULL or an object that the caller holds a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_get_read_memory(
    context: *mut nrdma_context,
    size: u64,
    gpu_id: i32,
) -> *mut nrdma_buffer {
    // SAFETY: by the contract above.
    let seen = || unsafe { checked_seen::<Context>(context) };
    guarded(|| seen().and_then(|seen| seen.value().read_memory(size, gpu_id, seen.face)))
}

/// The host's own memory as a buffer, +1. It must stay until the buffer is released and the job that uses it
/// has returned; it is never freed and never touched outside of [data, data + size).
///
/// # Safety
/// `context` is NULL or an object that the caller holds a reference to; `data` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_wrap_user_buffer(
    context: *mut nrdma_context,
    data: *mut u8,
    size: u64,
    gpu_id: i32,
) -> *mut nrdma_buffer {
    // SAFETY: by the contract above.
    let seen = || unsafe { checked_seen::<Context>(context) };
    guarded(|| seen().and_then(|seen| seen.value().wrap(data, size, gpu_id, None, seen.face)))
}

/// What wrap_user_buffer_with calls when the memory is no longer used.
struct Done {
    function: unsafe extern "C-unwind" fn(*mut c_void),
    user: *mut c_void,
}
// SAFETY: the caller of wrap_user_buffer_with promises that both may be used on any thread.
unsafe impl Send for Done {}

impl Done {
    fn run(self) {
        let Self { function, user } = self;
        // SAFETY: by the contract of wrap_user_buffer_with.
        if let Err(error) = super::guard::call_foreign(|| unsafe { function(user) }) {
            log::warn!("done of a wrapped buffer: {error}");
        }
    }
}

/// As nrdma_context_wrap_user_buffer; `done` runs once, on any thread, after the last use. It is not called
/// when the result is NULL.
///
/// # Safety
/// As nrdma_context_wrap_user_buffer; `done` may be called with `user` on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_wrap_user_buffer_with(
    context: *mut nrdma_context,
    data: *mut u8,
    size: u64,
    gpu_id: i32,
    done: Option<unsafe extern "C-unwind" fn(user: *mut c_void)>,
    user: *mut c_void,
) -> *mut nrdma_buffer {
    guarded(|| {
        // SAFETY: by the contract above.
        let context = unsafe { checked_seen::<Context>(context) }?;
        let done = done.map(|function| {
            let done = Done { function, user };
            Box::new(move || done.run()) as Box<dyn FnOnce() + Send>
        });
        context.value().wrap(data, size, gpu_id, done, context.face)
    })
}

/// Sends an intermediate result, inside of execute_fragment_remote_rdma: 0 once the requester's callback has
/// returned. -1: no buffer of this context, too large, or the peer is gone; -2: outside.
///
/// # Safety
/// `context` and `buffer` are NULL or objects that the caller holds references to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_context_flush(context: *mut nrdma_context, buffer: *mut nrdma_buffer) -> i32 {
    guarded(|| {
        // SAFETY: by the contract above.
        let context = unsafe { checked::<Context>(context) }?;
        // SAFETY: by the contract above.
        Ok(unsafe { context.value().flush(buffer) })
    })
}
