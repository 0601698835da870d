//! Objects of the host that nrdma calls through their virtual tables, by slot number.
//!
//! The numbers are the same for all C++ ABIs but those of IInterface's two get_interface; and Microsoft's differs in
//! how a Uuid is returned.
use std::ffi::c_void;
use std::ptr;

use super::face::Face;
use super::guard::call_foreign;
use super::interface::nrdma_uuid;
use crate::core::error::{Error, Kind, Result};
use crate::core::log;

/// mi::neuraylib::ISerializable.
pub(crate) const ISERIALIZABLE: nrdma_uuid =
    nrdma_uuid::new(0x7a70_f2fb, 0x416f_1b27, 0xc716_21aa, 0xfc1f_d4b4);
/// mi::neuraylib::IFragmented_job.
pub(crate) const IFRAGMENTED_JOB: nrdma_uuid =
    nrdma_uuid::new(0x037f_3783, 0x4bb7_187c, 0xfe6d_5092, 0xef89_811c);

/// Slots of the interfaces that nrdma drives.
pub(crate) mod slot {
    pub(crate) const RETAIN: usize = 0;
    pub(crate) const RELEASE: usize = 1;
    /// The one that is not const.
    pub(crate) const GET_INTERFACE: usize = 3;
    /// The same, by Microsoft's compiler.
    #[cfg(windows)]
    pub(crate) const GET_INTERFACE_MSVC: usize = 2;
    // ISerializable
    pub(crate) const GET_CLASS_ID: usize = 5;
    pub(crate) const SERIALIZE: usize = 6;
    pub(crate) const DESERIALIZE: usize = 7;
    // IFragmented_job
    pub(crate) const EXECUTE_FRAGMENT: usize = 8;
    pub(crate) const EXECUTE_FRAGMENT_REMOTE: usize = 9;
    pub(crate) const RECEIVE_REMOTE_RESULT: usize = 10;
    pub(crate) const GET_RDMA_RESULT_BUFFER: usize = 11;
    pub(crate) const EXECUTE_FRAGMENT_REMOTE_RDMA: usize = 12;
    pub(crate) const RECEIVE_REMOTE_RESULT_RDMA: usize = 13;
    pub(crate) const ASSIGN_FRAGMENTS_TO_HOSTS: usize = 14;
    pub(crate) const GET_SCHEDULING_MODE: usize = 15;
    pub(crate) const GET_CPU_LOAD: usize = 16;
    pub(crate) const GET_GPU_LOAD: usize = 17;
    pub(crate) const CANCEL: usize = 18;
    pub(crate) const GET_PRIORITY: usize = 19;
    pub(crate) const GET_THREAD_LIMIT: usize = 20;
    // IUser_class_factory
    pub(crate) const CREATE: usize = 5;
    // IExecution_listener
    pub(crate) const JOB_FINISHED: usize = 5;
}

/// The function in a slot of an object's table.
///
/// # Safety
/// `this` is a live C++ object that has a function of type `F`, called with the object first, in that slot.
pub(crate) unsafe fn method<F: Copy>(this: *mut c_void, slot: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: every C++ object with virtual functions starts with its table's address.
    let table = unsafe { this.cast::<*const F>().read() };
    // SAFETY: by the contract above.
    let place = unsafe { table.add(slot) };
    // SAFETY: by the contract above.
    unsafe { place.read() }
}

/// A pointer of the host's that any thread may pass back to it.
#[derive(Clone, Copy)]
pub(crate) struct Pointer(pub(crate) *mut c_void);
// SAFETY: nrdma does nothing with it but hand it to functions that the host lets any thread call.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

/// `call!(object, slot, fn(types) -> result, arguments)` calls a function of a live object of the host's through
/// the guard; its value is a `Result`.
macro_rules! call {
    ($object:expr, $slot:expr, fn($($type:ty),*) -> $result:ty, $($argument:expr),*) => {{
        let object: *mut std::ffi::c_void = $object.0;
        type Function = unsafe extern "C-unwind" fn(*mut std::ffi::c_void $(, $type)*) -> $result;
        // SAFETY: the host's object is alive, and its class has this function in this slot.
        let function = unsafe { $crate::abi::foreign::method::<Function>(object, $slot) };
        // SAFETY: the host's function, with what its class says.
        $crate::abi::guard::call_foreign(|| unsafe { function(object $(, $argument)*) })
    }};
}
pub(crate) use call;

/// What get_class_id of an object says.
pub(crate) fn class_id(object: Pointer, face: Face) -> Result<nrdma_uuid> {
    match face {
        Face::Itanium => call!(object, slot::GET_CLASS_ID, fn() -> nrdma_uuid,),
        #[cfg(windows)]
        Face::Msvc => {
            let mut id = nrdma_uuid::default();
            let place = &raw mut id;
            call!(object, slot::GET_CLASS_ID, fn(*mut nrdma_uuid) -> *mut nrdma_uuid, place)?;
            Ok(id)
        }
    }
}

/// The number of IInterface's get_interface.
fn get_interface_slot(face: Face) -> usize {
    match face {
        Face::Itanium => slot::GET_INTERFACE,
        #[cfg(windows)]
        Face::Msvc => slot::GET_INTERFACE_MSVC,
    }
}

/// One reference to an object of the host's, of a face.
pub(crate) struct Held(Pointer, Face);

impl Held {
    /// Takes over a reference; None for NULL.
    ///
    /// # Safety
    /// `object` is null or a C++ object that derives from IInterface, a reference of which is given away.
    pub(crate) unsafe fn adopt(object: *mut c_void, face: Face) -> Option<Self> {
        (!object.is_null()).then(|| Self(Pointer(object), face))
    }

    /// Another reference; None for NULL.
    ///
    /// # Safety
    /// `object` is null or a live C++ object that derives from IInterface.
    pub(crate) unsafe fn share(object: *mut c_void, face: Face) -> Result<Option<Self>> {
        if object.is_null() {
            return Ok(None);
        }
        let object = Pointer(object);
        call!(object, slot::RETAIN, fn() -> u32,)?;
        Ok(Some(Self(object, face)))
    }

    /// The object.
    pub(crate) fn pointer(&self) -> Pointer {
        self.0
    }

    /// The C++ ABI of its class.
    pub(crate) fn face(&self) -> Face {
        self.1
    }

    /// The same object as another interface.
    pub(crate) fn as_interface(&self, iid: &nrdma_uuid) -> Result<Self> {
        let iid = ptr::from_ref(iid);
        let found = {
            let slot = get_interface_slot(self.1);
            call!(self.0, slot, fn(*const nrdma_uuid) -> *mut c_void, iid)?
        };
        // SAFETY: get_interface gives NULL or a reference away.
        unsafe { Self::adopt(found, self.1) }.ok_or_else(|| {
            Error::new(Kind::FragmentFailed, "an object lacks the interface that it should have")
        })
    }

    /// Gives the reference away.
    pub(crate) fn into_raw(self) -> *mut c_void {
        let Self(Pointer(object), _) = &self;
        let object = *object;
        std::mem::forget(self);
        object
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = call!(self.0, slot::RELEASE, fn() -> u32,) {
            log::error!("release: {error}");
        }
    }
}

/// What a host's function supplies as the transaction, on the executing thread.
#[derive(Clone, Copy)]
pub(crate) struct Transactions {
    function: Option<unsafe extern "C-unwind" fn(user: *mut c_void) -> *mut c_void>,
    user: Pointer,
}

impl Transactions {
    /// By calling that function.
    pub(crate) fn new(
        function: Option<unsafe extern "C-unwind" fn(user: *mut c_void) -> *mut c_void>,
        user: *mut c_void,
    ) -> Self {
        Self { function, user: Pointer(user) }
    }

    /// One for a fragment; NULL without a function.
    pub(crate) fn get(&self) -> Result<Pointer> {
        let (Some(function), Pointer(user)) = (self.function, self.user) else {
            return Ok(Pointer(ptr::null_mut()));
        };
        // SAFETY: the host's function, with what its type says.
        call_foreign(|| unsafe { function(user) }).map(Pointer)
    }
}
