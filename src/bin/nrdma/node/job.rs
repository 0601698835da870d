//! The two sides of a job, and the C functions that lead to them.
use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};

use super::buffer::Buffer;
use super::context::Context;
use super::failure::{Failure, text_of};
use crate::sys;

/// How a job is run.
pub(crate) struct Options<'a> {
    pub(crate) class: sys::nrdma_uuid,
    /// What the remote replica is made from.
    pub(crate) payload: &'a [u8],
    /// Whether this host takes fragments too.
    pub(crate) here: bool,
    /// Fragments of the job that run at once on one host; 0: no limit.
    pub(crate) thread_limit: u64,
}

/// What came with a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) index: u64,
    pub(crate) host_id: u32,
    pub(crate) path: i32,
    /// False for an intermediate result.
    pub(crate) last: bool,
}

/// The requesting side of a job.
pub(crate) trait Job: Sync {
    /// Executes a fragment on this host; false when it failed.
    fn execute_here(&self, index: u64) -> bool;
    /// Where the result of a fragment belongs.
    fn result_buffer(&self, context: &Context, index: u64) -> Option<Buffer>;
    /// A result, as long as it was sent; false refuses it.
    fn receive(&self, bytes: &[u8], received: Received) -> bool;
    /// A fragment that nobody will run again.
    fn failed(&self, index: u64, why: &Failure);
}

/// The executing side of a job, one for each job and host.
pub(crate) trait Replica: Send + Sync + Sized {
    const CLASS: sys::nrdma_uuid;
    fn create(payload: &[u8]) -> Option<Self>;
    /// Executes a fragment for another host. None: it failed; Some(None): there is nothing to send.
    fn execute(&self, index: u64, context: &Context) -> Option<Option<Buffer>>;
}

fn status(fine: bool) -> sys::nrdma_status {
    if fine { sys::NRDMA_OK } else { sys::NRDMA_FRAGMENT_FAILED }
}

pub(super) unsafe extern "C" fn execute_fragment<J: Job>(
    user: *mut c_void,
    fragment: *const sys::nrdma_fragment,
) -> sys::nrdma_status {
    // SAFETY: `execute` put a `J` there, which outlives the job.
    let job = unsafe { &*user.cast::<J>() };
    // SAFETY: valid during the call.
    let fragment = unsafe { &*fragment };
    status(job.execute_here(fragment.index))
}

pub(super) unsafe extern "C" fn get_result_buffer<J: Job>(
    user: *mut c_void,
    context: *mut sys::nrdma_context,
    index: u64,
) -> *mut sys::nrdma_buffer {
    // SAFETY: `execute` put a `J` there, which outlives the job.
    let job = unsafe { &*user.cast::<J>() };
    let Some(context) = NonNull::new(context) else {
        return ptr::null_mut();
    };
    job.result_buffer(&Context(context), index).map_or(ptr::null_mut(), Buffer::into_raw)
}

pub(super) unsafe extern "C" fn receive_result<J: Job>(
    user: *mut c_void,
    buffer: *mut sys::nrdma_buffer,
    result: *const sys::nrdma_result,
) -> sys::nrdma_status {
    // SAFETY: `execute` put a `J` there, which outlives the job.
    let job = unsafe { &*user.cast::<J>() };
    // SAFETY: valid during the call.
    let result = unsafe { &*result };
    let Some(buffer) = NonNull::new(buffer) else {
        return sys::NRDMA_FRAGMENT_FAILED;
    };
    // Borrowed: not ours to release.
    let buffer = std::mem::ManuallyDrop::new(Buffer(buffer));
    let received = Received {
        index: result.index,
        host_id: result.host_id,
        path: result.path,
        last: result.flags & sys::NRDMA_RESULT_FINAL != 0,
    };
    let length = usize::try_from(result.size).unwrap_or(usize::MAX);
    let Some(bytes) = buffer.bytes().get(..length) else {
        return sys::NRDMA_FRAGMENT_FAILED;
    };
    status(job.receive(bytes, received))
}

pub(super) unsafe extern "C" fn fragment_failed<J: Job>(
    user: *mut c_void,
    index: u64,
    why: sys::nrdma_status,
    text: *const c_char,
) {
    // SAFETY: `execute` put a `J` there, which outlives the job.
    let job = unsafe { &*user.cast::<J>() };
    job.failed(index, &Failure { status: why, text: text_of(text) });
}

pub(super) unsafe extern "C" fn create<R: Replica>(
    _user: *mut c_void,
    payload: *const c_void,
    size: u64,
    replica: *mut *mut c_void,
) -> sys::nrdma_status {
    let length = usize::try_from(size).unwrap_or(0);
    let payload = if payload.is_null() || length == 0 {
        &[]
    } else {
        // SAFETY: the library hands over `size` bytes, valid during the call.
        unsafe { std::slice::from_raw_parts(payload.cast::<u8>(), length) }
    };
    let Some(made) = R::create(payload) else {
        return sys::NRDMA_FRAGMENT_FAILED;
    };
    // SAFETY: the library gives a place for one pointer.
    unsafe { replica.write(Box::into_raw(Box::new(made)).cast()) };
    sys::NRDMA_OK
}

pub(super) unsafe extern "C" fn execute_remote<R: Replica>(
    replica: *mut c_void,
    fragment: *const sys::nrdma_fragment,
    context: *mut sys::nrdma_context,
    result: *mut *mut sys::nrdma_buffer,
) -> sys::nrdma_status {
    // SAFETY: made by `create` for the same `R`, not destroyed while a fragment runs.
    let replica = unsafe { &*replica.cast::<R>() };
    // SAFETY: valid during the call.
    let fragment = unsafe { &*fragment };
    let Some(context) = NonNull::new(context) else {
        return sys::NRDMA_FRAGMENT_FAILED;
    };
    let Some(made) = replica.execute(fragment.index, &Context(context)) else {
        return sys::NRDMA_FRAGMENT_FAILED;
    };
    // SAFETY: the library gives a place for one pointer and takes over the reference.
    unsafe { result.write(made.map_or(ptr::null_mut(), Buffer::into_raw)) };
    sys::NRDMA_OK
}

pub(super) unsafe extern "C" fn destroy<R: Replica>(replica: *mut c_void) {
    // SAFETY: made by `create` for the same `R`; the library calls this once, after the last fragment.
    drop(unsafe { Box::from_raw(replica.cast::<R>()) });
}
