//! A node's settings, with the defaults filled in.
use std::time::Duration;

/// Whether result memory may be handed out as write memory (design: aliasing).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ZeroCopy {
    /// Only when the engine is the memory's only owner.
    #[default]
    Strict,
    /// Also when the host holds the result buffer itself.
    Relaxed,
    /// Never.
    Off,
}

/// A node's settings.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// In logs, stats and peer info.
    pub(crate) name: String,
    /// The cluster-wide host id; 0 = random.
    pub(crate) host_id: u32,
    /// Executors; 0 = run nothing for others.
    pub(crate) workers: usize,
    /// Engine names that may be used, best first; empty = all.
    pub(crate) transports: Vec<String>,
    /// The interface of addresses that name none: name, address or CIDR; none = any.
    pub(crate) interface: Option<String>,
    /// The shared secret; none = same user only.
    pub(crate) token: Option<Vec<u8>>,
    /// Accept peers without proof.
    pub(crate) insecure: bool,
    /// Idle bytes that the cache keeps; none = the default of the memory backend.
    pub(crate) cache_idle_bytes: Option<u64>,
    /// How often a quiet link is tested.
    pub(crate) heartbeat: Duration,
    /// Silence after which a peer counts as lost; none = never.
    pub(crate) peer_timeout: Option<Duration>,
    /// For connect and handshake.
    pub(crate) connect_timeout: Duration,
    /// For shutdown in destroy.
    pub(crate) shutdown_timeout: Duration,
    /// Aliasing.
    pub(crate) zero_copy: ZeroCopy,
    /// Clear recycled memory.
    pub(crate) zero_on_reuse: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: String::new(),
            host_id: 0,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            transports: Vec::new(),
            interface: None,
            token: None,
            insecure: false,
            cache_idle_bytes: None,
            heartbeat: Duration::from_millis(1000),
            peer_timeout: Some(Duration::from_millis(5000)),
            connect_timeout: Duration::from_millis(5000),
            shutdown_timeout: Duration::from_millis(2000),
            zero_copy: ZeroCopy::Strict,
            zero_on_reuse: false,
        }
    }
}
