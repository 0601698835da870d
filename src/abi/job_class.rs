//! Classes of jobs: what a host runs for others.
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::buffer::{lease_from_raw, nrdma_buffer};
use super::config::{Versioned, read_struct};
use super::context::{Context, nrdma_context};
use super::error::nrdma_status;
use super::face::Face;
use super::guard::{call_foreign, guarded};
use super::interface::{NRDMA_CXX_ABI_ITANIUM, nrdma_cxx_abi, nrdma_uuid};
use super::job::{Told, log_throw, nrdma_fragment, outcome};
use super::node::{borrow, milliseconds, nrdma_node};
use super::writer::nrdma_writer;
use crate::core::buffer::Lease;
use crate::core::error::{Error, Kind, Result};
use crate::core::fragment::Fragment;
use crate::core::job::{Class, FragmentInfo, Replica};

/// A class of jobs that this host runs for others. Copied at registration.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_job_class {
    /// sizeof(nrdma_job_class) of the host.
    pub struct_size: u64,
    /// Passed to create.
    pub user: *mut c_void,
    /// The host's C++ layout; NRDMA_JOB_CLASS_INIT sets it.
    pub abi: nrdma_cxx_abi,
    /// 0.
    pub reserved: u32,
    /// Makes the replica, once per job and host.
    pub create: Option<
        unsafe extern "C-unwind" fn(
            user: *mut c_void,
            payload: *const c_void,
            size: u64,
            replica: *mut *mut c_void,
        ) -> nrdma_status,
    >,
    /// Runs a fragment that has a result buffer; *result is +1, or NULL: nothing to send.
    pub execute_remote: Option<
        unsafe extern "C-unwind" fn(
            replica: *mut c_void,
            fragment: *const nrdma_fragment,
            context: *mut nrdma_context,
            result: *mut *mut nrdma_buffer,
        ) -> nrdma_status,
    >,
    /// Runs a fragment whose result goes as bytes.
    pub execute_remote_bytes: Option<
        unsafe extern "C-unwind" fn(
            replica: *mut c_void,
            fragment: *const nrdma_fragment,
            writer: *mut nrdma_writer,
        ) -> nrdma_status,
    >,
    /// The job is abandoned; fragments may still run.
    pub cancel: Option<unsafe extern "C-unwind" fn(replica: *mut c_void)>,
    /// The job is over and no fragment runs.
    pub destroy: Option<unsafe extern "C-unwind" fn(replica: *mut c_void)>,
}

// SAFETY: starts with its size; pointers, numbers and nullable functions, no padding.
unsafe impl Versioned for nrdma_job_class {
    const NAME: &'static str = "nrdma_job_class";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        user: ptr::null_mut(),
        abi: NRDMA_CXX_ABI_ITANIUM,
        reserved: 0,
        create: None,
        execute_remote: None,
        execute_remote_bytes: None,
        cancel: None,
        destroy: None,
    };
}

/// A class as the host described it.
#[derive(Clone, Copy)]
struct ClassTable(nrdma_job_class);
// SAFETY: the host promises that its functions may be called on any thread.
unsafe impl Send for ClassTable {}
// SAFETY: as above.
unsafe impl Sync for ClassTable {}

/// What the host's create made.
struct Made {
    class: ClassTable,
    replica: *mut c_void,
}

// SAFETY: as for the class.
unsafe impl Send for Made {}
// SAFETY: as above.
unsafe impl Sync for Made {}

impl Class for ClassTable {
    fn create(&self, payload: &[u8]) -> Result<Box<dyn Replica>> {
        let mut replica = ptr::null_mut();
        if let Some(function) = self.0.create {
            let (user, place) = (self.0.user, &raw mut replica);
            let (data, size) = (payload.as_ptr().cast::<c_void>(), payload.len() as u64);
            // SAFETY: the host's function, with what its type says.
            outcome("create", call_foreign(|| unsafe { function(user, data, size, place) }))?;
        }
        Ok(Box::new(Made { class: *self, replica }))
    }
}

impl Replica for Made {
    fn execute(&self, info: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<Option<Lease>> {
        let Some(function) = self.class.0.execute_remote else {
            let text = "the class has no execute_remote, but the job wants results in buffers";
            return Err(Error::new(Kind::FragmentFailed, text));
        };
        let context = Context::of_fragment(fragment);
        let face = Face::of(self.class.0.abi)?;
        let (replica, told, context) = (self.replica, Told::new(info), context.interface(face));
        let mut buffer = ptr::null_mut();
        let place = &raw mut buffer;
        // SAFETY: the host's function, with what its type says; the context is held until it returns.
        let returned = call_foreign(|| unsafe { function(replica, told.as_ptr(), context, place) });
        // SAFETY: what the function left there, whatever it returned, is given away.
        let lease = if buffer.is_null() { None } else { Some(unsafe { lease_from_raw(buffer) }) };
        outcome("execute_remote", returned)?;
        lease.transpose()
    }

    fn execute_bytes(&self, info: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<()> {
        let Some(function) = self.class.0.execute_remote_bytes else {
            let text = "the class has no execute_remote_bytes, but the job wants results as bytes";
            return Err(Error::new(Kind::FragmentFailed, text));
        };
        let mut writer = nrdma_writer { fragment: Arc::clone(fragment) };
        let (replica, told, writer) = (self.replica, Told::new(info), &raw mut writer);
        // SAFETY: the host's function, with what its type says.
        outcome("execute_remote_bytes", call_foreign(|| unsafe { function(replica, told.as_ptr(), writer) }))
    }

    fn cancel(&self) {
        let Some(function) = self.class.0.cancel else {
            return;
        };
        let replica = self.replica;
        // SAFETY: the host's function, with what its type says.
        log_throw("cancel", call_foreign(|| unsafe { function(replica) }));
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let Some(function) = self.class.0.destroy else {
            return;
        };
        let replica = self.replica;
        // SAFETY: the host's function; no fragment uses the replica any more.
        log_throw("destroy", call_foreign(|| unsafe { function(replica) }));
    }
}

/// Makes a class of jobs known on this host and at its peers.
///
/// # Safety
/// `node` is NULL or a node; `class_` is NULL or a table whose struct_size is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_register_class(
    node: *mut nrdma_node,
    class_id: nrdma_uuid,
    class_: *const nrdma_job_class,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        // SAFETY: by the contract above.
        let class = unsafe { read_struct(class_) }?;
        Face::of(class.abi)?;
        if class.reserved != 0 {
            return Err(Error::invalid("nrdma_job_class.reserved is not 0"));
        }
        if class.create.is_none() || (class.execute_remote.is_none() && class.execute_remote_bytes.is_none())
        {
            return Err(Error::invalid(
                "a class needs create, and execute_remote or execute_remote_bytes; they are NULL",
            ));
        }
        let nrdma_uuid { id1, id2, id3, id4 } = class_id;
        node.register_class([id1, id2, id3, id4], Box::new(ClassTable(class)))?;
        Ok(0)
    })
}

/// Takes a class back; returns when its last replica is gone. 0 waits for shutdown_timeout_ms, NRDMA_NONE for
/// ever. Not from a callback.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_unregister_class(
    node: *mut nrdma_node,
    class_id: nrdma_uuid,
    timeout_ms: u32,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let nrdma_uuid { id1, id2, id3, id4 } = class_id;
        let timeout = milliseconds(timeout_ms, node.config.shutdown_timeout);
        node.unregister_class([id1, id2, id3, id4], timeout)?;
        Ok(0)
    })
}
