//! Jobs of C hosts: the tables of functions that the host fills in, and the only calls into them.
use std::ffi::{CString, c_char, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::buffer::{lease_as_raw, lease_from_raw, nrdma_buffer};
use super::config::{Versioned, read_struct};
use super::context::{Context, nrdma_context};
use super::error::{nrdma_status, nrdma_status_string, set_last, status};
use super::face::Face;
use super::guard::{call_foreign, guarded};
use super::interface::{NRDMA_CXX_ABI_ITANIUM, nrdma_cxx_abi, nrdma_uuid};
use super::node::{borrow, nrdma_node};
use crate::core::admission::Load;
use crate::core::buffer::Lease;
use crate::core::error::{Error, Kind, Result};
use crate::core::home::Home;
use crate::core::job::{FragmentInfo, Job, Mode, ResultInfo, Spec};
use crate::core::log;
use crate::core::memory::{Memory, Span};

/// All fragments run on this host.
pub const NRDMA_LOCAL: i32 = 0;
/// Fragments are spread over this host and its peers.
pub const NRDMA_CLUSTER: i32 = 1;
/// At most one fragment for each remote host.
pub const NRDMA_ONCE_PER_HOST: i32 = 2;
/// The job says which host runs which fragment.
pub const NRDMA_USER_DEFINED: i32 = 3;
/// In nrdma_job.flags: a fragment may run again on another host although an intermediate result of it was
/// delivered.
pub const NRDMA_JOB_RERUN_AFTER_PARTIAL: u64 = 1;
/// In nrdma_result.flags: the last result of its fragment.
pub const NRDMA_RESULT_FINAL: u32 = 1;
/// What a fragment's function is told. Valid during the call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nrdma_fragment {
    /// sizeof(nrdma_fragment) of the library.
    pub struct_size: u64,
    /// Which fragment.
    pub index: u64,
    /// Of how many.
    pub count: u64,
    /// Stable for the thread, different for each running one.
    pub thread_id: u64,
    /// The requester's host id.
    pub host_id: u32,
    /// 0 at the first try.
    pub attempt: u32,
}

/// What is told with a result. Valid during the call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nrdma_result {
    /// sizeof(nrdma_result) of the library.
    pub struct_size: u64,
    /// Which fragment.
    pub index: u64,
    /// Of how many.
    pub count: u64,
    /// Bytes received.
    pub size: u64,
    /// The host that ran the fragment.
    pub host_id: u32,
    /// 0 at the first try.
    pub attempt: u32,
    /// 0 for the fragment's first result.
    pub sequence: u32,
    /// NRDMA_RESULT_FINAL.
    pub flags: u32,
    /// How the bytes came: NRDMA_PATH_*.
    pub path: i32,
    /// 0.
    pub reserved: u32,
}

/// A job. Start from NRDMA_JOB_INIT. Everything it points to lives until execute returns or done is called.
/// The functions run on the node's threads and on the one inside execute, several at a time for different
/// fragments; they must not throw unless the host includes nrdma.hpp.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_job {
    /// sizeof(nrdma_job) of the host.
    pub struct_size: u64,
    /// Passed to every function.
    pub user: *mut c_void,
    /// The class of which remote hosts make replicas.
    pub class_id: nrdma_uuid,
    /// What a replica is made from.
    pub payload: *const c_void,
    /// Its size in bytes, at most 256 MiB.
    pub payload_size: u64,
    /// NRDMA_LOCAL, NRDMA_CLUSTER, NRDMA_ONCE_PER_HOST or NRDMA_USER_DEFINED.
    pub mode: i32,
    /// Lower runs first; not negative.
    pub priority: i32,
    /// The host's C++ layout; NRDMA_JOB_INIT sets it.
    pub abi: nrdma_cxx_abi,
    /// Milliseconds from the call to the end; 0 or NRDMA_NONE is no limit.
    pub timeout_ms: u32,
    /// Fragments that run at once on one host; 0 is no limit.
    pub thread_limit: u64,
    /// NRDMA_JOB_RERUN_AFTER_PARTIAL.
    pub flags: u64,
    /// Runs a fragment here; NULL: fragments only run on other hosts.
    pub execute_fragment: Option<
        unsafe extern "C-unwind" fn(user: *mut c_void, fragment: *const nrdma_fragment) -> nrdma_status,
    >,
    /// The buffer, from this context, for the result of a fragment that goes to the context's host, +1; NULL:
    /// the result comes as bytes.
    pub get_result_buffer: Option<
        unsafe extern "C-unwind" fn(
            user: *mut c_void,
            context: *mut nrdma_context,
            index: u64,
        ) -> *mut nrdma_buffer,
    >,
    /// Takes a result in its buffer, which is borrowed: retain it to keep it.
    pub receive_result: Option<
        unsafe extern "C-unwind" fn(
            user: *mut c_void,
            buffer: *mut nrdma_buffer,
            result: *const nrdma_result,
        ) -> nrdma_status,
    >,
    /// Takes a result as bytes.
    pub receive_bytes: Option<
        unsafe extern "C-unwind" fn(
            user: *mut c_void,
            bytes: *const u8,
            result: *const nrdma_result,
        ) -> nrdma_status,
    >,
    /// NRDMA_USER_DEFINED: fills in a host id for each fragment; 0 is this host, an unknown one skips it.
    pub assign_hosts: Option<unsafe extern "C-unwind" fn(user: *mut c_void, slots: *mut u32, count: u64)>,
    /// A fragment will have no (further) result.
    pub fragment_failed: Option<
        unsafe extern "C-unwind" fn(user: *mut c_void, index: u64, why: nrdma_status, text: *const c_char),
    >,
    /// The job is abandoned with fragments outstanding.
    pub cancel: Option<unsafe extern "C-unwind" fn(user: *mut c_void)>,
}

// SAFETY: starts with its size; pointers, numbers and nullable functions, no padding.
unsafe impl Versioned for nrdma_job {
    const NAME: &'static str = "nrdma_job";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        user: ptr::null_mut(),
        class_id: nrdma_uuid::new(0, 0, 0, 0),
        payload: ptr::null(),
        payload_size: 0,
        mode: NRDMA_LOCAL,
        priority: 0,
        abi: NRDMA_CXX_ABI_ITANIUM,
        timeout_ms: 0,
        thread_limit: 0,
        flags: 0,
        execute_fragment: None,
        get_result_buffer: None,
        receive_result: None,
        receive_bytes: None,
        assign_hosts: None,
        fragment_failed: None,
        cancel: None,
    };
}

/// What the host's function is really given: what C may read, then what nrdma_fragment_cancelled reads.
#[repr(C)]
pub(crate) struct Told<'a> {
    fragment: nrdma_fragment,
    cancelled: *const AtomicBool,
    lives: PhantomData<&'a AtomicBool>,
}

impl<'a> Told<'a> {
    pub(crate) fn new(info: &'a FragmentInfo) -> Self {
        Self {
            fragment: nrdma_fragment {
                struct_size: size_of::<nrdma_fragment>() as u64,
                index: info.index,
                count: info.count,
                thread_id: info.thread_id,
                host_id: info.host_id,
                attempt: info.attempt,
            },
            cancelled: ptr::from_ref(info.cancelled.as_ref()),
            lives: PhantomData,
        }
    }
    pub(crate) fn as_ptr(&self) -> *const nrdma_fragment {
        ptr::from_ref(self).cast()
    }
}

fn told_result(info: &ResultInfo) -> nrdma_result {
    nrdma_result {
        struct_size: size_of::<nrdma_result>() as u64,
        index: info.index,
        count: info.count,
        size: info.size,
        host_id: info.host_id,
        attempt: info.attempt,
        sequence: info.sequence,
        flags: if info.last { NRDMA_RESULT_FINAL } else { 0 },
        path: info.path as i32,
        reserved: 0,
    }
}

/// A failure that the host's function reported by its status.
pub(crate) fn outcome(function: &str, returned: Result<nrdma_status>) -> Result<()> {
    let failed = |text: String| Err(Error::new(Kind::FragmentFailed, text));
    match returned {
        Ok(0..) => Ok(()),
        Ok(code) => {
            // SAFETY: a static C string.
            let words = unsafe { std::ffi::CStr::from_ptr(nrdma_status_string(code)) }.to_string_lossy();
            failed(format!("{function} returned {code} ({words})"))
        }
        Err(error) => failed(format!("{function}: {}", error.text)),
    }
}

// ---- the requester's side
/// A job as the host described it, and what an asynchronous one calls at its end.
struct Table {
    job: nrdma_job,
    done: Option<unsafe extern "C-unwind" fn(*mut c_void, nrdma_status)>,
}

// SAFETY: the host promises that its functions may be called on any thread.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}
impl Table {
    /// What no job may lack, by its mode.
    fn check(&self) -> Result<Mode> {
        let job = &self.job;
        Face::of(job.abi)?;
        let mode = Mode::from_number(job.mode)?;
        if job.flags & !NRDMA_JOB_RERUN_AFTER_PARTIAL != 0 {
            return Err(Error::invalid(format!(
                "flags {:#x} has bits that this version does not know",
                job.flags
            )));
        }
        if job.payload.is_null() && job.payload_size > 0 {
            return Err(Error::invalid(format!("payload is NULL, but payload_size is {}", job.payload_size)));
        }
        if job.payload_size > 256 << 20 {
            let text =
                format!("a payload of {} bytes is too large; at most 256 MiB are allowed", job.payload_size);
            return Err(Error::invalid(text));
        }
        if job.get_result_buffer.is_some() && job.receive_result.is_none() {
            return Err(Error::invalid("get_result_buffer is set, but receive_result is NULL"));
        }
        match mode {
            Mode::Local if job.execute_fragment.is_none() => {
                Err(Error::invalid("a job in mode NRDMA_LOCAL needs execute_fragment, which is NULL"))
            }
            Mode::Cluster if job.execute_fragment.is_none() && !self.goes_away() => Err(Error::invalid(
                "the job can run nowhere: execute_fragment is NULL, and so are get_result_buffer with \
                 receive_result, and receive_bytes",
            )),
            Mode::OncePerHost | Mode::UserDefined if !self.goes_away() => Err(Error::invalid(
                "a job for other hosts needs get_result_buffer with receive_result, or receive_bytes",
            )),
            Mode::UserDefined if job.assign_hosts.is_none() => {
                Err(Error::invalid("a job in mode NRDMA_USER_DEFINED needs assign_hosts, which is NULL"))
            }
            mode => Ok(mode),
        }
    }

    fn spec(&self, mode: Mode) -> Spec {
        let nrdma_uuid { id1, id2, id3, id4 } = self.job.class_id;
        Spec {
            class: [id1, id2, id3, id4],
            mode,
            priority: self.job.priority,
            thread_limit: self.job.thread_limit,
            timeout: match self.job.timeout_ms {
                0 | u32::MAX => None,
                ms => Some(Duration::from_millis(u64::from(ms))),
            },
            rerun_after_partial: self.job.flags & NRDMA_JOB_RERUN_AFTER_PARTIAL != 0,
            load: Load::default(),
            loss_is_done: false,
        }
    }

    fn payload(&self, memory: &dyn Memory) -> Option<Span> {
        let len = usize::try_from(self.job.payload_size).unwrap_or_default();
        let block = || memory.wrap(self.job.payload.expose_provenance(), len);
        (len > 0).then(|| Span { block: block(), offset: 0, len })
    }
}

impl Job for Table {
    fn runs_here(&self) -> bool {
        self.job.execute_fragment.is_some()
    }

    fn goes_away(&self) -> bool {
        self.job.receive_result.is_some() && self.job.get_result_buffer.is_some()
            || self.job.receive_bytes.is_some()
    }

    fn execute(&self, fragment: &FragmentInfo) -> Result<()> {
        let Some(function) = self.job.execute_fragment else {
            return Ok(());
        };
        let (user, told) = (self.job.user, Told::new(fragment));
        // SAFETY: the host's function, with what its type says.
        outcome("execute_fragment", call_foreign(|| unsafe { function(user, told.as_ptr()) }))
    }

    fn result_buffer(&self, home: &Arc<Home>, index: u64) -> Result<Option<Lease>> {
        let mut buffer = ptr::null_mut();
        if let Some(function) = self.job.get_result_buffer {
            let context = Context::of_host(home);
            let (user, context) = (self.job.user, context.interface(Face::of(self.job.abi)?));
            // SAFETY: the host's function, with what its type says; the context is held until it returns.
            let returned = call_foreign(|| unsafe { function(user, context, index) });
            buffer = returned.map_err(|e| Error::new(e.kind, format!("get_result_buffer: {}", e.text)))?;
        }
        if buffer.is_null() && self.job.receive_bytes.is_none() {
            return Err(Error::new(
                Kind::FragmentFailed,
                format!("get_result_buffer returned NULL for fragment {index}, and receive_bytes is NULL"),
            ));
        }
        if buffer.is_null() {
            return Ok(None);
        }
        // SAFETY: the function gives its reference away.
        unsafe { lease_from_raw(buffer) }.map(Some)
    }

    fn receive(&self, buffer: &Lease, result: &ResultInfo) -> Result<()> {
        let Some(function) = self.job.receive_result else {
            return Ok(());
        };
        let buffer = lease_as_raw(buffer, Face::of(self.job.abi)?);
        let (user, result) = (self.job.user, told_result(result));
        // SAFETY: the host's function, with what its type says.
        outcome("receive_result", call_foreign(|| unsafe { function(user, buffer, &raw const result) }))
    }

    fn receive_bytes(&self, bytes: &[u8], result: &ResultInfo) -> Result<()> {
        let Some(function) = self.job.receive_bytes else {
            return Ok(());
        };
        let (user, result) = (self.job.user, told_result(result));
        // SAFETY: the host's function, with what its type says.
        outcome(
            "receive_bytes",
            call_foreign(|| unsafe { function(user, bytes.as_ptr(), &raw const result) }),
        )
    }

    fn assign_hosts(&self, slots: &mut [u32]) -> Result<()> {
        let Some(function) = self.job.assign_hosts else {
            return Ok(());
        };
        let (user, count, slots) = (self.job.user, slots.len() as u64, slots.as_mut_ptr());
        // SAFETY: the host's function, with room for `count` ids.
        outcome("assign_hosts", call_foreign(|| unsafe { function(user, slots, count) }).map(|()| 0))
    }

    fn failed(&self, index: u64, why: &Error) {
        let Some(function) = self.job.fragment_failed else {
            return;
        };
        let text = CString::new(why.text.replace('\0', " ")).unwrap_or_default();
        let (user, why) = (self.job.user, status(why.kind));
        // SAFETY: the host's function, with what its type says.
        log_throw("fragment_failed", call_foreign(|| unsafe { function(user, index, why, text.as_ptr()) }));
    }

    fn cancel(&self) {
        let Some(function) = self.job.cancel else { return };
        let user = self.job.user;
        // SAFETY: the host's function, with what its type says.
        log_throw("cancel", call_foreign(|| unsafe { function(user) }));
    }

    fn finished(&self, result: Result<()>) {
        let Some(function) = self.done else { return };
        let (user, code) = (self.job.user, result.map_or_else(|error| set_last(&error), |()| 0));
        // SAFETY: the host's function, with what its type says.
        log_throw("done", call_foreign(|| unsafe { function(user, code) }));
    }
}

/// Where nobody can be told of an exception, the log is.
pub(crate) fn log_throw(function: &str, called: Result<()>) {
    if let Err(error) = called {
        log::error!("{function}: {error}");
    }
}

// ---- what C calls
/// 1 when the fragment's result is no longer wanted, else 0; poll it in long fragments.
///
/// # Safety
/// `fragment` is NULL or the very pointer that the running function was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_fragment_cancelled(fragment: *const nrdma_fragment) -> i32 {
    guarded(|| {
        if fragment.is_null() {
            set_last(&Error::invalid("the fragment is NULL"));
            return Ok(0);
        }
        // SAFETY: every fragment that a function is given is the start of a `Told`.
        let told = unsafe { &*fragment.cast::<Told<'_>>() };
        // SAFETY: lives as long as the call that was given the fragment.
        Ok(i32::from(unsafe { &*told.cancelled }.load(Ordering::Relaxed)))
    })
}

/// Reads and checks a job.
///
/// # Safety
/// `job` is null or a table whose struct_size is true.
unsafe fn read_job(job: *const nrdma_job) -> Result<(Table, Spec)> {
    // SAFETY: by the contract above.
    let job = unsafe { read_struct(job) }?;
    let table = Table { job, done: None };
    let mode = table.check()?;
    let spec = table.spec(mode);
    Ok((table, spec))
}

/// Runs a job of `count` fragments to its end; the calling thread helps. 0; -1 bad job or count 0 outside
/// NRDMA_ONCE_PER_HOST; -3 negative priority; NRDMA_FRAGMENT_FAILED, NRDMA_CANCELLED, NRDMA_TIMED_OUT.
///
/// # Safety
/// `node` is NULL or a node; `job` is NULL or a table whose struct_size is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_execute(
    node: *mut nrdma_node,
    job: *const nrdma_job,
    count: u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        // SAFETY: by the contract above.
        let (table, spec) = unsafe { read_job(job) }?;
        let payload = table.payload(node.memory());
        node.execute(Box::new(table), spec, count, payload)?;
        Ok(0)
    })
}

/// Starts a job; `done` is called once at its end, with the job's `user` and what nrdma_node_execute would have returned. An error
/// here means that it was not started.
///
/// # Safety
/// As nrdma_node_execute; `job_id` is NULL or room for a number; `done` may be called on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_execute_async(
    node: *mut nrdma_node,
    job: *const nrdma_job,
    count: u64,
    done: Option<unsafe extern "C-unwind" fn(user: *mut c_void, status: nrdma_status)>,
    job_id: *mut u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        // SAFETY: by the contract above.
        let (mut table, spec) = unsafe { read_job(job) }?;
        table.done = done;
        let payload = table.payload(node.memory());
        node.execute_async(Box::new(table), spec, count, payload, |id| {
            // SAFETY: by the contract above.
            if let Some(out) = unsafe { job_id.as_mut() } {
                *out = id;
            }
        })?;
        Ok(0)
    })
}

/// Abandons an asynchronous job; its done is called with NRDMA_CANCELLED. -1 when no such job runs.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_cancel(node: *mut nrdma_node, job_id: u64) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        unsafe { borrow(node) }?.cancel(job_id)?;
        Ok(0)
    })
}
