//! Safe words for the C interface: a node, contexts, buffers and the two sides of a job. All of the tool's unsafe
//! code is here.
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::mem::size_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use crate::sys;

/// Main memory, as neuray numbers devices.
const MAIN_MEMORY: i32 = -1;

/// What a call of the library said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: i32,
    pub(crate) text: String,
}

impl Failure {
    /// A failure that the tool itself found.
    pub(crate) fn own(text: &str) -> Self {
        Self { status: sys::NRDMA_FRAGMENT_FAILED, text: text.to_owned() }
    }
    /// This thread's last error.
    fn last(status: i32) -> Self {
        let text = text_of(sys::nrdma_last_error());
        let text = if text.is_empty() { text_of(sys::nrdma_status_string(status)) } else { text };
        Self { status, text }
    }
    /// Whether time ran out.
    pub(crate) fn is_timeout(&self) -> bool {
        self.status == sys::NRDMA_TIMED_OUT
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {})", self.text, self.status)
    }
}

fn check(status: i32) -> Result<(), Failure> {
    if status == sys::NRDMA_OK { Ok(()) } else { Err(Failure::last(status)) }
}

/// A C string's text; "" for NULL.
fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library's strings end in NUL and outlive this call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// The text in a fixed array that ends in NUL.
fn text_in(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|c| c.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn c_text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure { status: -1, text: format!("{text:?} holds a NUL byte") })
}

/// The library's version.
pub(crate) fn version() -> String {
    text_of(sys::nrdma_version_string())
}

/// Settings of a node; the others are the defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) host_id: u32,
    /// 0: as many as cores; `u32::MAX`: run nothing for others.
    pub(crate) worker_threads: u32,
    pub(crate) transports: Option<String>,
    /// 0: the default.
    pub(crate) peer_timeout_ms: u32,
}

/// A node. Dropping it shuts it down and destroys it.
pub(crate) struct Node(NonNull<sys::nrdma_node>);

// SAFETY: every function of the library that takes a node may be called from any thread.
unsafe impl Send for Node {}
// SAFETY: as above, from several at once; destroy needs `&mut`, in drop.
unsafe impl Sync for Node {}

/// A connected host.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) host_id: u32,
    #[allow(dead_code)] // For benches/ratios.
    pub(crate) alive: bool,
    pub(crate) name: String,
    pub(crate) transport: String,
}

/// The library's counters.
pub(crate) type Stats = sys::nrdma_stats;

impl Node {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Failure> {
        let name = c_text(&settings.name)?;
        let transports = settings.transports.as_deref().map(c_text).transpose()?;
        let config = sys::nrdma_node_config {
            struct_size: size_of::<sys::nrdma_node_config>() as u64,
            name: name.as_ptr(),
            host_id: settings.host_id,
            worker_threads: settings.worker_threads,
            transports: transports.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
            net_interface: ptr::null(),
            auth_token: ptr::null(),
            insecure: 0,
            tls: 0,
            cache_idle_bytes: 0,
            heartbeat_ms: settings.peer_timeout_ms / 4,
            peer_timeout_ms: settings.peer_timeout_ms,
            connect_timeout_ms: 0,
            shutdown_timeout_ms: 0,
            gpu_id_base: 0,
            zero_copy: 0,
            zero_on_reuse: 0,
            reserved: 0,
        };
        let mut node = ptr::null_mut();
        // SAFETY: the configuration and its strings live through the call; the library copies them.
        let status = unsafe { sys::nrdma_node_create(&raw const config, &raw mut node) };
        check(status)?;
        NonNull::new(node).map(Self).ok_or_else(|| Failure::last(status))
    }

    #[allow(dead_code)] // For benches/ratios.
    pub(crate) fn host_id(&self) -> u32 {
        // SAFETY: the node lives as long as `self`.
        unsafe { sys::nrdma_node_host_id(self.0.as_ptr()) }
    }

    /// Listens; returns the address to connect to.
    pub(crate) fn listen(&self, address: &str) -> Result<String, Failure> {
        let address = c_text(address)?;
        let mut bound: [c_char; 256] = [0; 256];
        // SAFETY: `bound` has room for the bytes announced.
        let status = unsafe {
            sys::nrdma_node_listen(self.0.as_ptr(), address.as_ptr(), bound.as_mut_ptr(), bound.len() as u64)
        };
        check(status)?;
        Ok(text_in(&bound))
    }

    /// Connects; returns the host's id.
    pub(crate) fn connect(&self, address: &str) -> Result<u32, Failure> {
        let address = c_text(address)?;
        let mut host_id = 0;
        // SAFETY: the string and the place for the answer live through the call.
        check(unsafe { sys::nrdma_node_connect(self.0.as_ptr(), address.as_ptr(), &raw mut host_id) })?;
        Ok(host_id)
    }

    /// Waits until at least that many hosts are connected.
    pub(crate) fn wait_peers(&self, at_least: usize, timeout: Duration) -> Result<(), Failure> {
        let timeout = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        // SAFETY: the node lives as long as `self`.
        check(unsafe { sys::nrdma_node_wait_peers(self.0.as_ptr(), at_least as u64, timeout) })
    }

    pub(crate) fn peers(&self) -> Result<Vec<Peer>, Failure> {
        let stride = size_of::<sys::nrdma_peer_info>() as u64;
        let blank = sys::nrdma_peer_info {
            struct_size: stride,
            host_id: 0,
            alive: 0,
            name: [0; 64],
            address: [0; 128],
            transport: [0; 16],
            bytes_sent: 0,
            bytes_received: 0,
            fragments_run: 0,
            fragments_sent: 0,
            round_trip_ns: 0,
        };
        let mut total = 0;
        // SAFETY: no room for entries is announced, only the total is written.
        check(unsafe { sys::nrdma_node_peers(self.0.as_ptr(), ptr::null_mut(), 0, 0, &raw mut total) })?;
        let room = usize::try_from(total).unwrap_or(0);
        let mut list = vec![blank; room];
        // SAFETY: the list has room for as many entries, that far apart, as announced.
        let status = unsafe {
            sys::nrdma_node_peers(self.0.as_ptr(), list.as_mut_ptr(), stride, room as u64, &raw mut total)
        };
        check(status)?;
        list.truncate(usize::try_from(total).unwrap_or(room));
        Ok(list.iter().map(Peer::from).collect())
    }

    pub(crate) fn stats(&self) -> Result<Stats, Failure> {
        let mut stats = Stats { struct_size: size_of::<Stats>() as u64, ..Stats::default() };
        // SAFETY: the struct says its size and lives through the call.
        check(unsafe { sys::nrdma_node_stats(self.0.as_ptr(), &raw mut stats) })?;
        Ok(stats)
    }

    /// The context of a host; None when there is no such host.
    #[allow(dead_code)] // For benches/ratios.
    pub(crate) fn context(&self, host_id: u32) -> Option<OwnContext> {
        // SAFETY: the node lives as long as `self`.
        let context = unsafe {
            sys::nrdma_node_get_rdma_context_abi(self.0.as_ptr(), host_id, sys::NRDMA_CXX_ABI_ITANIUM)
        };
        NonNull::new(context).map(|context| OwnContext(Context(context)))
    }

    /// Makes a class of jobs known, so that hosts can have its fragments run here.
    pub(crate) fn register<R: Replica>(&self) -> Result<(), Failure> {
        let class = sys::nrdma_job_class {
            struct_size: size_of::<sys::nrdma_job_class>() as u64,
            user: ptr::null_mut(),
            abi: sys::NRDMA_CXX_ABI_ITANIUM,
            reserved: 0,
            create: Some(create::<R>),
            execute_remote: Some(execute_remote::<R>),
            execute_remote_bytes: ptr::null(),
            cancel: None,
            destroy: Some(destroy::<R>),
        };
        // SAFETY: the library copies the table; its functions fit `R` and need no user pointer.
        check(unsafe { sys::nrdma_node_register_class(self.0.as_ptr(), R::CLASS, &raw const class) })
    }

    /// Runs a job of `count` fragments, here and on the connected hosts; blocks until all are done.
    pub(crate) fn execute<J: Job>(&self, job: &J, options: &Options<'_>, count: u64) -> Result<(), Failure> {
        let table = sys::nrdma_job {
            struct_size: size_of::<sys::nrdma_job>() as u64,
            user: ptr::from_ref(job).cast::<c_void>().cast_mut(),
            class_id: options.class,
            payload: options.payload.as_ptr().cast(),
            payload_size: options.payload.len() as u64,
            mode: sys::NRDMA_CLUSTER,
            priority: 0,
            abi: sys::NRDMA_CXX_ABI_ITANIUM,
            timeout_ms: 0,
            thread_limit: options.thread_limit,
            flags: sys::NRDMA_JOB_RERUN_AFTER_PARTIAL,
            execute_fragment: if options.here { Some(execute_fragment::<J>) } else { None },
            get_result_buffer: Some(get_result_buffer::<J>),
            receive_result: Some(receive_result::<J>),
            receive_bytes: None,
            assign_hosts: None,
            fragment_failed: Some(fragment_failed::<J>),
            cancel: None,
        };
        // SAFETY: the table, the job and the payload live until the call returns, as the library asks; the
        // functions only take shared references to the job, which is `Sync`.
        check(unsafe { sys::nrdma_node_execute(self.0.as_ptr(), &raw const table, count) })
    }

    /// Says goodbye to the hosts and stops the threads.
    pub(crate) fn shutdown(&self) -> Result<(), Failure> {
        // SAFETY: the node lives as long as `self`.
        check(unsafe { sys::nrdma_node_shutdown(self.0.as_ptr(), 0) })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SAFETY: nobody else can hold the node any more, and no callback owns one.
        unsafe { sys::nrdma_node_destroy(self.0.as_ptr()) }
    }
}

impl From<&sys::nrdma_peer_info> for Peer {
    fn from(info: &sys::nrdma_peer_info) -> Self {
        Self {
            host_id: info.host_id,
            alive: info.alive != 0,
            name: text_in(&info.name),
            transport: text_in(&info.transport),
        }
    }
}

/// An `IRDMA_context` that somebody else holds; called through its virtual table.
pub(crate) struct Context(NonNull<sys::nrdma_context>);

impl Context {
    fn table(&self) -> &sys::nrdma_context_vtbl_itanium {
        // SAFETY: whoever made `self` vouches for the object.
        let object = unsafe { self.0.as_ref() };
        // SAFETY: the virtual table of a live object, of the face that the tool asks for everywhere.
        unsafe { &*object.vtbl }
    }
    /// Memory to fill and send.
    pub(crate) fn write_memory(&self, bytes: usize) -> Result<Buffer, Failure> {
        // SAFETY: a slot of a live object.
        let buffer = unsafe { (self.table().get_write_memory)(self.0.as_ptr(), bytes as u64, MAIN_MEMORY) };
        Buffer::made(buffer)
    }
    /// Memory for a result.
    pub(crate) fn read_memory(&self, bytes: usize) -> Result<Buffer, Failure> {
        // SAFETY: a slot of a live object.
        let buffer = unsafe { (self.table().get_read_memory)(self.0.as_ptr(), bytes as u64, MAIN_MEMORY) };
        Buffer::made(buffer)
    }
    /// A result buffer over the host's own memory, which is kept until after the library's last use of it.
    pub(crate) fn wrap(&self, memory: &Lent) -> Result<Buffer, Failure> {
        let owner = Arc::into_raw(Arc::clone(&memory.0));
        // SAFETY: the memory lives until `drop_lent` is called, once, after the last use.
        let buffer = unsafe {
            sys::nrdma_context_wrap_user_buffer_with(
                self.0.as_ptr(),
                memory.0.address.as_ptr(),
                memory.0.size as u64,
                MAIN_MEMORY,
                drop_lent,
                owner.cast_mut().cast(),
            )
        };
        Buffer::made(buffer)
    }
    /// Sends what the buffer holds as an intermediate result; returns when the requester has taken it.
    pub(crate) fn flush(&self, buffer: &mut Buffer) -> Result<(), Failure> {
        // SAFETY: a slot of a live object; the buffer lives as long as the reference.
        check(unsafe { (self.table().flush)(self.0.as_ptr(), buffer.0.as_ptr()) })
    }
}

/// Memory of the host's own, lent to the library; it is read through the buffer only.
#[derive(Clone)]
pub(crate) struct Lent(Arc<Memory>);

struct Memory {
    address: NonNull<u8>,
    size: usize,
}

// SAFETY: plain memory, touched by the library and through buffers only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Lent {
    /// Zeroed memory.
    pub(crate) fn new(size: usize) -> Self {
        let memory = Box::leak(vec![0_u8; size].into_boxed_slice());
        Self(Arc::new(Memory { address: NonNull::from(memory).cast(), size }))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let memory = ptr::slice_from_raw_parts_mut(self.address.as_ptr(), self.size);
        // SAFETY: made from a box in `Lent::new`; whoever borrowed it has ended.
        drop(unsafe { Box::from_raw(memory) });
    }
}

unsafe extern "C" fn drop_lent(owner: *mut c_void) {
    // SAFETY: made by `wrap` with `Arc::into_raw`; the library calls this once.
    drop(unsafe { Arc::from_raw(owner.cast::<Memory>()) });
}

/// A context with a reference of our own.
#[allow(dead_code)] // For benches/ratios.
pub(crate) struct OwnContext(Context);

impl std::ops::Deref for OwnContext {
    type Target = Context;
    fn deref(&self) -> &Context {
        &self.0
    }
}

impl Drop for OwnContext {
    fn drop(&mut self) {
        let release = self.0.table().release;
        // SAFETY: `self` owns one reference.
        unsafe { release(self.0.0.as_ptr()) };
    }
}

/// One reference to an `IRDMA_buffer`; called through its virtual table.
pub(crate) struct Buffer(NonNull<sys::nrdma_buffer>);

// SAFETY: buffers may be used and released by any thread.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Takes over a reference that a call returned; NULL is that call's failure.
    fn made(buffer: *mut sys::nrdma_buffer) -> Result<Self, Failure> {
        NonNull::new(buffer).map(Self).ok_or_else(|| Failure::last(sys::NRDMA_INVALID_PARAMETER))
    }
    fn table(&self) -> &sys::nrdma_buffer_vtbl_itanium {
        // SAFETY: `self` owns a reference to the object.
        let object = unsafe { self.0.as_ref() };
        // SAFETY: the virtual table of a live object, of the face that the tool asks for everywhere.
        unsafe { &*object.vtbl }
    }
    pub(crate) fn size(&self) -> usize {
        // SAFETY: a slot of a live object.
        let size = unsafe { (self.table().get_size)(self.0.as_ptr()) };
        usize::try_from(size).unwrap_or(0)
    }
    /// Where the memory is.
    #[allow(dead_code)] // For benches/ratios.
    pub(crate) fn address(&self) -> usize {
        // SAFETY: a slot of a live object.
        unsafe { (self.table().get_data)(self.0.as_ptr()) }.addr()
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: a slot of a live object.
        let data = unsafe { (self.table().get_data_const)(self.0.as_ptr()) };
        if data.is_null() {
            return &[];
        }
        // SAFETY: the buffer's memory; its responder has handed it over and writes no more until the next result.
        unsafe { std::slice::from_raw_parts(data, self.size()) }
    }
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: a slot of a live object.
        let data = unsafe { (self.table().get_data)(self.0.as_ptr()) };
        if data.is_null() {
            return &mut [];
        }
        // SAFETY: as above, and a requester does not look before the buffer is flushed or returned.
        unsafe { std::slice::from_raw_parts_mut(data, self.size()) }
    }
    fn into_raw(self) -> *mut sys::nrdma_buffer {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        // SAFETY: a slot of a live object.
        unsafe { (self.table().retain)(self.0.as_ptr()) };
        Self(self.0)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let release = self.table().release;
        // SAFETY: `self` owns one reference.
        unsafe { release(self.0.as_ptr()) };
    }
}

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

unsafe extern "C" fn execute_fragment<J: Job>(
    user: *mut c_void,
    fragment: *const sys::nrdma_fragment,
) -> sys::nrdma_status {
    // SAFETY: `execute` put a `J` there, which outlives the job.
    let job = unsafe { &*user.cast::<J>() };
    // SAFETY: valid during the call.
    let fragment = unsafe { &*fragment };
    status(job.execute_here(fragment.index))
}

unsafe extern "C" fn get_result_buffer<J: Job>(
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

unsafe extern "C" fn receive_result<J: Job>(
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

unsafe extern "C" fn fragment_failed<J: Job>(
    user: *mut c_void,
    index: u64,
    why: sys::nrdma_status,
    text: *const c_char,
) {
    // SAFETY: `execute` put a `J` there, which outlives the job.
    let job = unsafe { &*user.cast::<J>() };
    job.failed(index, &Failure { status: why, text: text_of(text) });
}

unsafe extern "C" fn create<R: Replica>(
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

unsafe extern "C" fn execute_remote<R: Replica>(
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

unsafe extern "C" fn destroy<R: Replica>(replica: *mut c_void) {
    // SAFETY: made by `create` for the same `R`; the library calls this once, after the last fragment.
    drop(unsafe { Box::from_raw(replica.cast::<R>()) });
}
