//! Safe words for the C interface: a node, contexts, buffers and the two sides of a job. All of the tool's unsafe
//! code is here.
mod buffer;
mod context;
mod failure;
mod job;

use std::ffi::{c_char, c_void};
use std::mem::size_of;
use std::ptr::{self, NonNull};
use std::time::Duration;

pub(crate) use buffer::Buffer;
pub(crate) use context::{Context, Lent, OwnContext};
pub(crate) use failure::Failure;
use failure::{c_text, check, text_in, text_of};
pub(crate) use job::{Job, Options, Received, Replica};
use job::{
    create, destroy, execute_fragment, execute_remote, fragment_failed, get_result_buffer, receive_result,
};

use crate::sys;

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
