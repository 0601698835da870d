//! Nodes, their settings and their peers.
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffer::make;
use super::config::{Versioned, env, read_struct, write_struct};
use super::context::{Context, nrdma_context};
use super::error::{nrdma_status, set_last};
use super::fork;
use super::guard::{call_foreign, guard, guarded};
use super::interface::{NRDMA_CXX_ABI_ITANIUM, nrdma_cxx_abi};
use crate::core::config::{Config, ZeroCopy};
use crate::core::error::{Error, Kind, Result};
use crate::core::log;
use crate::core::node::{Node, PeerCallback, PeerEvent, PeerInfo};
use crate::core::stats::read;

/// A peer was connected.
pub const NRDMA_PEER_EVENT_JOINED: i32 = 1;
/// A peer left in good order.
pub const NRDMA_PEER_EVENT_LEFT: i32 = 2;
/// A peer was lost.
pub const NRDMA_PEER_EVENT_LOST: i32 = 3;

/// One process's membership; see nrdma_node_create.
pub struct nrdma_node {
    node: Arc<Node>,
}

/// A node's settings. Start from NRDMA_NODE_CONFIG_INIT; 0 and NULL are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_node_config {
    /// sizeof(nrdma_node_config) of the host.
    pub struct_size: u64,
    /// In logs, stats and peer info.
    pub name: *const c_char,
    /// Cluster-wide; 0 is a random one. A duplicate is refused when it connects.
    pub host_id: u32,
    /// Threads that run fragments; 0 is as many as cores, NRDMA_NONE runs nothing for others.
    pub worker_threads: u32,
    /// Comma list of inproc, shm, best first; NULL is all (environment: NRDMA_TRANSPORTS).
    pub transports: *const c_char,
    /// The network interface to use; NULL is any (environment: NRDMA_INTERFACE). Unix sockets use none.
    pub net_interface: *const c_char,
    /// A secret of at least 16 bytes that all nodes share; NULL is only this user's processes on this machine
    /// (environment: NRDMA_AUTH_TOKEN_FILE, a file of mode 0600).
    pub auth_token: *const c_char,
    /// 1 accepts peers without proof.
    pub insecure: u32,
    /// 0 off, 1 wanted, 2 required. This version has no TLS.
    pub tls: u32,
    /// Idle bytes that the cache keeps; 0 is min(1 GiB, 1/8 of memory or of the cgroup's limit), NRDMA_NONE
    /// keeps nothing.
    pub cache_idle_bytes: u64,
    /// How often a quiet peer is tested; 0 is 1000.
    pub heartbeat_ms: u32,
    /// Silence after which a peer is lost; 0 is 5000, NRDMA_NONE is never (for debuggers).
    pub peer_timeout_ms: u32,
    /// For connecting; 0 is 5000.
    pub connect_timeout_ms: u32,
    /// For nrdma_node_destroy; 0 is 2000.
    pub shutdown_timeout_ms: u32,
    /// 0 is CUDA's ordinals, 1 DiCE's numbering.
    pub gpu_id_base: i32,
    /// When result memory is handed out as write memory: 0 strict, 1 also when the host holds it, 2 never.
    pub zero_copy: u32,
    /// 1 clears recycled memory.
    pub zero_on_reuse: u32,
    /// 0.
    pub reserved: u32,
}

/// A peer in figures.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_peer_info {
    /// sizeof(nrdma_peer_info) of the host.
    pub struct_size: u64,
    /// Its id.
    pub host_id: u32,
    /// 1 while it is connected.
    pub alive: u32,
    /// Its name.
    pub name: [c_char; 64],
    /// Where it is.
    pub address: [c_char; 128],
    /// The engine: inproc, shm.
    pub transport: [c_char; 16],
    /// Bytes of results sent to it.
    pub bytes_sent: u64,
    /// Bytes of results received from it.
    pub bytes_received: u64,
    /// Fragments run here for it.
    pub fragments_run: u64,
    /// Fragments sent to it.
    pub fragments_sent: u64,
    /// The shortest round trip seen, in nanoseconds; 0 when none was measured.
    pub round_trip_ns: u64,
}

/// A node in figures.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nrdma_stats {
    /// sizeof(nrdma_stats) of the host.
    pub struct_size: u64,
    /// Buffers that came from the cache.
    pub cache_hits: u64,
    /// Buffers that had to be made.
    pub cache_misses: u64,
    /// Bytes that rest in the cache.
    pub cache_idle_bytes: u64,
    /// Buffers that are out.
    pub live_buffers: u64,
    /// Bytes held outside of the cache.
    pub live_bytes: u64,
    /// Bytes of results by path: the same memory on both sides.
    pub bytes_mapped: u64,
    /// By RDMA.
    pub bytes_direct: u64,
    /// Through a bounce buffer.
    pub bytes_staged: u64,
    /// Copied once into place.
    pub bytes_copied: u64,
    /// Fragments of our jobs that ran here.
    pub fragments_local: u64,
    /// Fragments of our jobs that other hosts ran.
    pub fragments_remote: u64,
    /// Fragments that ran here for others.
    pub fragments_served: u64,
    /// Fragments that were tried again.
    pub fragments_retried: u64,
    /// Connected peers.
    pub peers: u64,
    /// Threads of the node.
    pub threads: u64,
}

// SAFETY: starts with its size; pointers and numbers, no padding.
unsafe impl Versioned for nrdma_node_config {
    const NAME: &'static str = "nrdma_node_config";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        name: ptr::null(),
        host_id: 0,
        worker_threads: 0,
        transports: ptr::null(),
        net_interface: ptr::null(),
        auth_token: ptr::null(),
        insecure: 0,
        tls: 0,
        cache_idle_bytes: 0,
        heartbeat_ms: 0,
        peer_timeout_ms: 0,
        connect_timeout_ms: 0,
        shutdown_timeout_ms: 0,
        gpu_id_base: 0,
        zero_copy: 0,
        zero_on_reuse: 0,
        reserved: 0,
    };
}
// SAFETY: starts with its size; numbers, no padding.
unsafe impl Versioned for nrdma_peer_info {
    const NAME: &'static str = "nrdma_peer_info";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
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
}
// SAFETY: starts with its size; numbers, no padding.
unsafe impl Versioned for nrdma_stats {
    const NAME: &'static str = "nrdma_stats";
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        cache_hits: 0,
        cache_misses: 0,
        cache_idle_bytes: 0,
        live_buffers: 0,
        live_bytes: 0,
        bytes_mapped: 0,
        bytes_direct: 0,
        bytes_staged: 0,
        bytes_copied: 0,
        fragments_local: 0,
        fragments_remote: 0,
        fragments_served: 0,
        fragments_retried: 0,
        peers: 0,
        threads: 0,
    };
}

/// The node behind a pointer from C.
///
/// # Safety
/// `node` is null or came from nrdma_node_create and was not destroyed.
pub(crate) unsafe fn borrow<'a>(node: *const nrdma_node) -> Result<&'a Arc<Node>> {
    fork::check()?;
    // SAFETY: by the contract above.
    let node = unsafe { node.as_ref() }.ok_or_else(|| Error::invalid("the node is NULL"))?;
    Ok(&node.node)
}

/// A time limit as C gives it: 0 is the default, all ones is none.
pub(crate) fn milliseconds(ms: u32, default: Duration) -> Option<Duration> {
    match ms {
        0 => Some(default),
        u32::MAX => None,
        ms => Some(Duration::from_millis(u64::from(ms))),
    }
}

/// A string from C.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char, what: &str) -> Result<Option<String>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract above.
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(error) => Err(Error::invalid(format!("{what} is not UTF-8 at byte {}", error.valid_up_to()))),
    }
}

fn env_text(name: &str) -> Result<Option<String>> {
    let value = env(name).map(|value| value.into_string());
    value.transpose().map_err(|_| Error::invalid(format!("{name} is not UTF-8")))
}

/// Settings: the struct's, else the environment's, else the defaults.
///
/// # Safety
/// The strings are null or C strings.
unsafe fn settings(raw: &nrdma_node_config) -> Result<Config> {
    check_numbers(raw)?;
    let default = Config::default();
    let ms = |given: u32, default: Duration| match given {
        0 => default,
        given => Duration::from_millis(u64::from(given)),
    };
    // SAFETY: by the contract above.
    let transports = unsafe { text(raw.transports, "transports") }?;
    let transports = transports.map_or_else(|| env_text("NRDMA_TRANSPORTS"), |t| Ok(Some(t)))?;
    // SAFETY: by the contract above.
    let name = unsafe { text(raw.name, "name") }?;
    // SAFETY: by the contract above.
    let token = unsafe { text(raw.auth_token, "auth_token") }?;
    let token = token.map(String::into_bytes).map_or_else(token_from_file, |token| Ok(Some(token)))?;
    if let Some(token) = token.as_ref().filter(|token| token.len() < 16) {
        return Err(Error::invalid(format!("auth_token has {} bytes; at least 16 are needed", token.len())));
    }
    // SAFETY: by the contract above.
    let interface = unsafe { text(raw.net_interface, "net_interface") }?;
    let interface = interface.map_or_else(|| env_text("NRDMA_INTERFACE"), |t| Ok(Some(t)))?;
    Ok(Config {
        name: name.unwrap_or_else(|| format!("pid {}", std::process::id())),
        host_id: raw.host_id,
        workers: match raw.worker_threads {
            0 => default.workers,
            u32::MAX => 0,
            n => usize::try_from(n).unwrap_or(usize::MAX),
        },
        transports: transports
            .map(|list| list.split(',').map(|name| name.trim().to_owned()).collect())
            .unwrap_or_default(),
        interface: interface.filter(|interface| !interface.is_empty()),
        token,
        insecure: raw.insecure != 0,
        cache_idle_bytes: match raw.cache_idle_bytes {
            0 => None,
            u64::MAX => Some(0),
            bytes => Some(bytes),
        },
        heartbeat: ms(raw.heartbeat_ms, default.heartbeat),
        peer_timeout: match raw.peer_timeout_ms {
            u32::MAX => None,
            given => Some(ms(given, Duration::from_secs(5))),
        },
        connect_timeout: ms(raw.connect_timeout_ms, default.connect_timeout),
        shutdown_timeout: ms(raw.shutdown_timeout_ms, default.shutdown_timeout),
        zero_copy: match raw.zero_copy {
            0 => ZeroCopy::Strict,
            1 => ZeroCopy::Relaxed,
            _ => ZeroCopy::Off,
        },
        zero_on_reuse: raw.zero_on_reuse != 0,
    })
}

/// Refuses numbers that this version gives no meaning.
fn check_numbers(raw: &nrdma_node_config) -> Result<()> {
    let limits = [
        ("insecure", raw.insecure, 1),
        ("tls", raw.tls, 2),
        ("zero_copy", raw.zero_copy, 2),
        ("zero_on_reuse", raw.zero_on_reuse, 1),
        ("reserved", raw.reserved, 0),
    ];
    for (name, value, most) in limits {
        if value > most {
            return Err(Error::invalid(format!("nrdma_node_config.{name} is {value}; the most is {most}")));
        }
    }
    if !(0..=1).contains(&raw.gpu_id_base) {
        let text = format!("nrdma_node_config.gpu_id_base is {}; it is 0 or 1", raw.gpu_id_base);
        return Err(Error::invalid(text));
    }
    if raw.worker_threads != u32::MAX && raw.worker_threads > 4096 {
        let text = format!("nrdma_node_config.worker_threads is {}; the most is 4096", raw.worker_threads);
        return Err(Error::invalid(text));
    }
    if raw.tls == 2 {
        let text = "nrdma_node_config.tls is 2 (required), but this version has no TLS";
        return Err(Error::new(Kind::NotSupported, text));
    }
    Ok(())
}

/// The secret in NRDMA_AUTH_TOKEN_FILE.
fn token_from_file() -> Result<Option<Vec<u8>>> {
    let Some(path) = env("NRDMA_AUTH_TOKEN_FILE") else {
        return Ok(None);
    };
    let shown = path.to_string_lossy().into_owned();
    let failed = |why: String| Error::invalid(format!("NRDMA_AUTH_TOKEN_FILE {shown}: {why}"));
    let path: &OsStr = OsStr::from_bytes(path.as_bytes());
    let meta = fs::metadata(path).map_err(|e| failed(e.to_string()))?;
    if meta.mode() & 0o077 != 0 {
        return Err(failed(format!(
            "its mode is {:o}; others may read it; chmod 600 it",
            meta.mode() & 0o777
        )));
    }
    let mut token = fs::read(path).map_err(|e| failed(e.to_string()))?;
    while token.last().is_some_and(u8::is_ascii_whitespace) {
        token.pop();
    }
    Ok(Some(token))
}

/// Makes a node; `config` NULL is all defaults. It listens to nothing yet. Ends with nrdma_node_destroy.
///
/// # Safety
/// `config` is NULL or a struct whose struct_size is true; `node` is NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_create(
    config: *const nrdma_node_config,
    node: *mut *mut nrdma_node,
) -> nrdma_status {
    guarded(|| {
        super::log::start();
        fork::watch();
        fork::check()?;
        // SAFETY: by the contract above.
        let out = unsafe { node.as_mut() }
            .ok_or_else(|| Error::invalid("node, the place for the result, is NULL"))?;
        *out = ptr::null_mut();
        let raw = match config.is_null() {
            true => nrdma_node_config::DEFAULT,
            // SAFETY: by the contract above.
            false => unsafe { read_struct(config) }?,
        };
        // SAFETY: by the contract above.
        let config = unsafe { settings(&raw) }?;
        let node = Node::create(config, crate::backends(), make)?;
        *out = Box::into_raw(Box::new(nrdma_node { node }));
        Ok(0)
    })
}

/// The node's cluster-wide id; 0 when it is NULL.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_host_id(node: *const nrdma_node) -> u32 {
    // SAFETY: by the contract above.
    guarded(|| unsafe { borrow(node) }.map(|node| node.host_id()))
}

/// Listens on an address (unix:/path, unix:@name; unix: alone is a new one of its own). `bound` gets the
/// address to connect to; NRDMA_BUFFER_TOO_SMALL when it does not fit, and then nothing is listened on.
///
/// # Safety
/// `node` is NULL or a node; `address` is NULL or a C string; `bound` has room for `bound_capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_listen(
    node: *mut nrdma_node,
    address: *const c_char,
    bound: *mut c_char,
    bound_capacity: u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        // SAFETY: by the contract above.
        let address =
            unsafe { text(address, "address") }?.ok_or_else(|| Error::invalid("address is NULL"))?;
        let room = if bound.is_null() { None } else { Some(bound_capacity) };
        let actual = node.listen(&address, room)?;
        if !bound.is_null() {
            // SAFETY: listen checked that it fits, with its NUL.
            unsafe { bound.cast::<u8>().copy_from_nonoverlapping(actual.as_ptr(), actual.len()) };
            // SAFETY: as above.
            let end = unsafe { bound.cast::<u8>().add(actual.len()) };
            // SAFETY: as above.
            unsafe { end.write(0) };
        }
        Ok(0)
    })
}

/// Connects to a listening node; `host_id`, unless NULL, gets its id.
///
/// # Safety
/// `node` is NULL or a node; `address` is NULL or a C string; `host_id` is NULL or room for an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_connect(
    node: *mut nrdma_node,
    address: *const c_char,
    host_id: *mut u32,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        // SAFETY: by the contract above.
        let address =
            unsafe { text(address, "address") }?.ok_or_else(|| Error::invalid("address is NULL"))?;
        let id = node.connect(&address)?;
        // SAFETY: by the contract above.
        if let Some(out) = unsafe { host_id.as_mut() } {
            *out = id;
        }
        Ok(0)
    })
}

/// Hangs up on a peer; its fragments are lost, its contexts answer NULL and -1 from now on.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_disconnect(node: *mut nrdma_node, host_id: u32) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        unsafe { borrow(node) }?.disconnect(host_id)?;
        Ok(0)
    })
}

fn copy_text<const N: usize>(from: &str) -> [c_char; N] {
    let mut out = [0; N];
    let mut end = from.len().min(N.saturating_sub(1));
    while !from.is_char_boundary(end) {
        end -= 1;
    }
    for (to, byte) in out.iter_mut().zip(from.as_bytes().iter().take(end)) {
        *to = byte.cast_signed();
    }
    out
}

fn peer_info(info: &PeerInfo) -> nrdma_peer_info {
    nrdma_peer_info {
        struct_size: size_of::<nrdma_peer_info>() as u64,
        host_id: info.host_id,
        alive: u32::from(info.alive),
        name: copy_text(&info.name),
        address: copy_text(&info.address),
        transport: copy_text(info.transport),
        bytes_sent: info.bytes_sent,
        bytes_received: info.bytes_received,
        fragments_run: info.fragments_run,
        fragments_sent: info.fragments_sent,
        round_trip_ns: info.round_trip_ns,
    }
}

/// The peers, by host id: at most `capacity` elements, `stride` = sizeof(nrdma_peer_info) of the host apart.
/// `total`, unless NULL, gets how many there are. With `out` NULL that is all.
///
/// # Safety
/// `node` is NULL or a node; `out` has room for `capacity` elements of `stride` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_peers(
    node: *mut nrdma_node,
    out: *mut nrdma_peer_info,
    stride: u64,
    capacity: u64,
    total: *mut u64,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let stride = usize::try_from(stride).unwrap_or(usize::MAX);
        if !out.is_null() && !(16..=1 << 20).contains(&stride) {
            let text = format!(
                "stride is {stride}; pass sizeof(nrdma_peer_info) (here {})",
                size_of::<nrdma_peer_info>()
            );
            return Err(Error::invalid(text));
        }
        let peers = node.peers_sorted();
        // SAFETY: by the contract above.
        if let Some(total) = unsafe { total.as_mut() } {
            *total = peers.len() as u64;
        }
        let capacity = if out.is_null() { 0 } else { usize::try_from(capacity).unwrap_or(usize::MAX) };
        for (at, peer) in peers.iter().enumerate().take(capacity) {
            let info = peer_info(&node.peer_info(peer));
            // SAFETY: inside the caller's array.
            let place = unsafe { out.cast::<u8>().add(at * stride) };
            // SAFETY: each element starts with its size.
            unsafe { place.cast::<u64>().write_unaligned(stride as u64) };
            // SAFETY: the element has `stride` bytes.
            unsafe { write_struct(place.cast::<nrdma_peer_info>(), &info) }?;
        }
        Ok(0)
    })
}

/// Waits until at least so many peers are connected; 0 waits for connect_timeout_ms, NRDMA_NONE for ever.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_wait_peers(
    node: *mut nrdma_node,
    at_least: u64,
    timeout_ms: u32,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        node.wait_peers(at_least, milliseconds(timeout_ms, node.config.connect_timeout))?;
        Ok(0)
    })
}

/// The host's function for peers that come and go.
struct Listener {
    function: unsafe extern "C-unwind" fn(*mut c_void, *const nrdma_peer_info, i32),
    user: *mut c_void,
}
// SAFETY: the host promises that it may be called on any thread.
unsafe impl Send for Listener {}
// SAFETY: as above.
unsafe impl Sync for Listener {}

/// Sets who hears of peers: event is NRDMA_PEER_EVENT_JOINED, _LEFT or _LOST. NULL ends it;
/// an event that is already on its way may still come.
///
/// # Safety
/// `node` is NULL or a node; `fn` may be called with `user` on any thread until the node is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_set_peer_callback(
    node: *mut nrdma_node,
    function: Option<
        unsafe extern "C-unwind" fn(user: *mut c_void, info: *const nrdma_peer_info, event: i32),
    >,
    user: *mut c_void,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        node.set_peer_callback(function.map(|function| {
            let listener = Listener { function, user };
            Arc::new(move |info: &PeerInfo, event: PeerEvent| {
                let Listener { function, user } = &listener;
                let info = peer_info(info);
                let event = event as i32;
                // SAFETY: the host's function, with what its type says.
                let told = call_foreign(|| unsafe { function(*user, &raw const info, event) });
                if let Err(error) = told {
                    log::error!("peer callback: {error}");
                }
            }) as PeerCallback
        }));
        Ok(0)
    })
}

/// The context of a host, +1: a mi::neuraylib::IRDMA_context. 0 is this host; NULL when there is no such host.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_get_rdma_context_abi(
    node: *mut nrdma_node,
    host_id: u32,
    abi: nrdma_cxx_abi,
) -> *mut nrdma_context {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        if abi != NRDMA_CXX_ABI_ITANIUM {
            return Err(Error::invalid(super::job::abi_text(abi)));
        }
        Ok(Context::of_host(&node.home(host_id)?).into_raw())
    })
}

/// The node in figures.
///
/// # Safety
/// `node` is NULL or a node; `out` is NULL or a struct whose struct_size is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_stats(node: *mut nrdma_node, out: *mut nrdma_stats) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let cache = node.shared().stats();
        let tally = &node.tally;
        let stats = nrdma_stats {
            struct_size: size_of::<nrdma_stats>() as u64,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_idle_bytes: cache.idle_bytes,
            live_buffers: cache.live_buffers,
            live_bytes: cache.live_bytes,
            bytes_mapped: read(&tally.mapped),
            bytes_direct: read(&tally.direct),
            bytes_staged: read(&tally.staged),
            bytes_copied: read(&tally.copied),
            fragments_local: read(&tally.fragments_local),
            fragments_remote: read(&tally.fragments_remote),
            fragments_served: read(&tally.fragments_served),
            fragments_retried: read(&tally.fragments_retried),
            peers: node.peers_sorted().len() as u64,
            threads: node.threads(),
        };
        // SAFETY: by the contract above.
        unsafe { write_struct(out, &stats) }?;
        Ok(0)
    })
}

/// Frees idle memory of the cache until about `keep_idle_bytes` are left.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_trim(node: *mut nrdma_node, keep_idle_bytes: u64) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        unsafe { borrow(node) }?.shared().trim(keep_idle_bytes);
        Ok(0)
    })
}

/// Ends the node: abandons its jobs, tells its peers, joins its threads. Idempotent; 0 waits for
/// shutdown_timeout_ms, NRDMA_NONE for ever. NRDMA_TIMED_OUT names what is stuck. Not from a callback.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_shutdown(node: *mut nrdma_node, timeout_ms: u32) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        node.shutdown(milliseconds(timeout_ms, node.config.shutdown_timeout))?;
        Ok(0)
    })
}

/// Shuts the node down (shutdown_timeout_ms) and frees it; NULL is allowed. No other call on the node may be
/// running or follow. Not from a callback: then nothing happens. Contexts and buffers stay valid: get_* return
/// NULL, flush -1, data can be read. A node whose callback never returns is leaked, not freed.
///
/// # Safety
/// `node` is NULL or a node that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_destroy(node: *mut nrdma_node) {
    guard(|| {
        if node.is_null() || fork::is_child() {
            return;
        }
        // SAFETY: by the contract above.
        let borrowed = unsafe { &(*node).node };
        let ended = borrowed.shutdown(Some(borrowed.config.shutdown_timeout));
        match ended {
            Err(error) if error.kind == Kind::InvalidParameter => {
                set_last(&error);
                log::error!("nrdma_node_destroy: {error}");
            }
            Err(error) => log::error!("a node is leaked: {error}"),
            Ok(()) => {
                // Threads that have ended may still be on their way out of the node.
                let deadline = Instant::now() + Duration::from_secs(1);
                while Arc::strong_count(borrowed) > 1 && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_micros(50));
                }
                // SAFETY: made by nrdma_node_create, and given up here.
                drop(unsafe { Box::from_raw(node) });
            }
        }
    });
}
