//! A node's settings, from the host's struct and the environment.
use std::ffi::{CStr, c_char};
use std::fs;
use std::ptr;
use std::time::Duration;

use super::config::{Versioned, env};
use super::process::open_to_others;
use crate::core::config::{Config, ZeroCopy};
use crate::core::error::{Error, Kind, Result};

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

/// A string from C.
///
/// # Safety
/// `text` is null or a C string.
pub(crate) unsafe fn text(text: *const c_char, what: &str) -> Result<Option<String>> {
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
pub(crate) unsafe fn settings(raw: &nrdma_node_config) -> Result<Config> {
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

/// A setting of a node that is made with the defaults: its field, its variable, its value for people, and whether the
/// variable gave it.
#[cfg(all(feature = "cli", target_os = "linux"))]
pub(crate) type Described = (&'static str, Option<&'static str>, String, bool);

/// All of them.
#[cfg(all(feature = "cli", target_os = "linux"))]
pub(crate) fn described() -> Result<Vec<Described>> {
    // SAFETY: all strings of the default are null.
    let config = unsafe { settings(&nrdma_node_config::DEFAULT) }?;
    let ms = |time: Duration| format!("{} ms", time.as_millis());
    let list = config.transports.join(",");
    let or = |value: Option<String>, other: &str| value.unwrap_or_else(|| other.to_owned());
    let budget = config.cache_idle_bytes.map(|bytes| format!("{bytes} bytes"));
    let all: [(&str, Option<&str>, String); 16] = [
        ("name", None, config.name),
        ("host_id", None, "random".to_owned()),
        ("worker_threads", None, config.workers.to_string()),
        (
            "transports",
            Some("NRDMA_TRANSPORTS"),
            if list.is_empty() { "all, best first".to_owned() } else { list },
        ),
        ("net_interface", Some("NRDMA_INTERFACE"), or(config.interface, "any")),
        (
            "auth_token",
            Some("NRDMA_AUTH_TOKEN_FILE"),
            or(
                config.token.map(|token| format!("{} bytes", token.len())),
                "none: same user on this host only",
            ),
        ),
        ("insecure", None, u8::from(config.insecure).to_string()),
        ("cache_idle_bytes", None, or(budget, "1 GiB, or 1/8 of the memory limit where that is less")),
        ("heartbeat_ms", None, ms(config.heartbeat)),
        ("peer_timeout_ms", None, config.peer_timeout.map_or_else(|| "never".to_owned(), ms)),
        ("connect_timeout_ms", None, ms(config.connect_timeout)),
        ("shutdown_timeout_ms", None, ms(config.shutdown_timeout)),
        ("zero_copy", None, format!("{:?}", config.zero_copy).to_lowercase()),
        ("zero_on_reuse", None, u8::from(config.zero_on_reuse).to_string()),
        ("the log on stderr", Some("NRDMA_LOG"), or(env_text("NRDMA_LOG")?, "off")),
        ("libucp.so.0", Some("NRDMA_UCX_LIB"), or(env_text("NRDMA_UCX_LIB")?, "the system's")),
    ];
    let given = |variable: Option<&str>| variable.is_some_and(|variable| env(variable).is_some());
    Ok(all.into_iter().map(|(name, variable, value)| (name, variable, value, given(variable))).collect())
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
    let meta = fs::metadata(&path).map_err(|e| failed(e.to_string()))?;
    if let Some(why) = open_to_others(&meta) {
        return Err(failed(why));
    }
    let mut token = fs::read(&path).map_err(|e| failed(e.to_string()))?;
    while token.last().is_some_and(u8::is_ascii_whitespace) {
        token.pop();
    }
    Ok(Some(token))
}
