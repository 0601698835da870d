//! What a job and a class of jobs must offer; `abi::job` implements both over the host's functions.
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::admission::Load;
use super::buffer::{Lease, Path};
use super::error::{Error, Result};
use super::fragment::Fragment;
use super::home::Home;
use super::wire::frame::Uuid;

/// Which hosts run a job's fragments; the numbers are `NRDMA_LOCAL` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All here.
    Local,
    /// Spread over this host and its peers.
    Cluster,
    /// One fragment for each remote host.
    OncePerHost,
    /// As the job assigns them.
    UserDefined,
}

impl Mode {
    /// The mode of that number.
    pub(crate) fn from_number(number: i32) -> Result<Self> {
        Ok(match number {
            0 => Self::Local,
            1 => Self::Cluster,
            2 => Self::OncePerHost,
            3 => Self::UserDefined,
            _ => {
                return Err(Error::invalid(format!(
                    "scheduling mode {number} is not one of NRDMA_LOCAL 0 to NRDMA_USER_DEFINED 3"
                )));
            }
        })
    }
}

/// How a job wants to be run.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// What remote hosts make replicas of.
    pub(crate) class: Uuid,
    pub(crate) mode: Mode,
    /// Lower runs first; not negative.
    pub(crate) priority: i32,
    /// Fragments running at once on one host; 0 = no limit.
    pub(crate) thread_limit: u64,
    /// From the call to the end; none = never.
    pub(crate) timeout: Option<Duration>,
    /// A fragment may run again although an intermediate result of it was delivered.
    pub(crate) rerun_after_partial: bool,
    /// What one fragment takes of its host.
    pub(crate) load: Load,
    /// A fragment that is lost with its host, and does not run again, is done without a result; else it has
    /// failed.
    pub(crate) loss_is_done: bool,
}

/// What a fragment's function is told.
#[derive(Debug, Clone)]
pub(crate) struct FragmentInfo {
    pub(crate) index: u64,
    pub(crate) count: u64,
    /// The requester's.
    pub(crate) host_id: u32,
    pub(crate) attempt: u32,
    /// Stable for the thread, different for each running one.
    pub(crate) thread_id: u64,
    /// Becomes true when the result is no longer wanted.
    pub(crate) cancelled: Arc<AtomicBool>,
}

/// What is told with a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultInfo {
    pub(crate) index: u64,
    pub(crate) count: u64,
    /// Bytes received.
    pub(crate) size: u64,
    /// The responder's.
    pub(crate) host_id: u32,
    pub(crate) attempt: u32,
    /// 0 for the first result of a fragment.
    pub(crate) sequence: u32,
    /// The last one of its fragment.
    pub(crate) last: bool,
    pub(crate) path: Path,
}

/// A job, on the requester. Every function runs host code on one of the node's threads or on the one inside
/// execute; none is called while a lock is held.
pub(crate) trait Job: Send + Sync {
    /// Whether fragments can run here.
    fn runs_here(&self) -> bool;
    /// Whether results of fragments that ran elsewhere can be taken.
    fn goes_away(&self) -> bool;
    /// Runs one here.
    fn execute(&self, fragment: &FragmentInfo) -> Result<()>;
    /// The buffer for the result of a fragment that goes to `home`'s host; none = as bytes.
    fn result_buffer(&self, home: &Arc<Home>, index: u64) -> Result<Option<Lease>>;
    /// Takes a result in its buffer.
    fn receive(&self, buffer: &Lease, result: &ResultInfo) -> Result<()>;
    /// Takes a result as bytes.
    fn receive_bytes(&self, bytes: &[u8], result: &ResultInfo) -> Result<()>;
    /// Fills in a host id for each fragment.
    fn assign_hosts(&self, slots: &mut [u32]) -> Result<()>;
    /// A fragment will not have a (further) result.
    fn failed(&self, index: u64, why: &Error);
    /// The job is abandoned with fragments outstanding.
    fn cancel(&self);
    /// An asynchronous job is over.
    fn finished(&self, result: Result<()>);
}

/// A class of jobs that this host can run for others.
pub(crate) trait Class: Send + Sync {
    /// Makes the one replica of a job; dropping it is `destroy`.
    fn create(&self, payload: &[u8]) -> Result<Box<dyn Replica>>;
    /// Itself, for who registered it and wants it back.
    fn as_any(&self) -> &dyn Any {
        &()
    }
}

/// A job's replica, on a responder.
pub(crate) trait Replica: Send + Sync {
    /// Runs a fragment that has a result buffer; none = nothing to send.
    fn execute(&self, info: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<Option<Lease>>;
    /// Runs a fragment whose result goes as bytes through [`Fragment::write`].
    fn execute_bytes(&self, info: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<()>;
    /// The job is abandoned.
    fn cancel(&self);
}

static THREADS: AtomicU64 = AtomicU64::new(1);
thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// The calling thread's number.
pub(crate) fn thread_id() -> u64 {
    THREAD.try_with(|id| *id).unwrap_or_default()
}

/// A class id for people.
pub(crate) fn class_text(class: &Uuid) -> String {
    let [a, b, c, d] = class;
    format!("{a:08x}-{b:08x}-{c:08x}-{d:08x}")
}
