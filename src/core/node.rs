//! A node: one process's membership. What it knows and what C asks of it; its joining and leaving of peers is
//! in `membership`, its threads in `scheduler`.
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::admission::{Admission, aside};
use super::config::Config;
use super::error::{Error, Kind, Result};
use super::home::{Home, Shared};
use super::job::{Class, Job, Mode, Spec, class_text};
use super::lead::Lead;
use super::memory::{Memory, Span};
use super::passing::Passing;
use super::peer::Peer;
use super::pool::Pool;
use super::preference;
use super::registry::Registered;
use super::run::Run;
use super::scheduler::{self, Work, inside_callback};
use super::shared::Make;
use super::sleeper::Sleeper;
use super::stats::{Tally, read};
use super::transport::{Engine, Listener, Network, Waiter};
use super::wire::frame::{Frame, Uuid};

/// The backends that a node is built on; `crate::backends` makes them.
pub(crate) struct Backends {
    pub(crate) memory: Arc<dyn Memory>,
    /// Best first.
    pub(crate) engines: Vec<Arc<dyn Engine>>,
    pub(crate) networks: Vec<Arc<dyn Network>>,
    pub(crate) waiter: fn() -> Result<Arc<dyn Waiter>>,
    pub(crate) random: fn() -> Result<[u8; 16]>,
    /// The secret that only this user's processes can read.
    pub(crate) cookie: fn() -> Result<[u8; 32]>,
}

/// What happened to a peer; the numbers are `NRDMA_PEER_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum PeerEvent {
    Joined = 1,
    Left = 2,
    Lost = 3,
}

/// A peer in figures.
#[derive(Debug, Clone)]
pub(crate) struct PeerInfo {
    pub(crate) host_id: u32,
    pub(crate) alive: bool,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) transport: &'static str,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) fragments_run: u64,
    pub(crate) fragments_sent: u64,
    pub(crate) round_trip_ns: u64,
}

/// Hears of peers that come and go.
pub(crate) type PeerCallback = Arc<dyn Fn(&PeerInfo, PeerEvent) + Send + Sync>;

/// How far a node's life is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Running = 0,
    Stopping = 1,
    Stopped = 2,
}

/// One process's membership.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(super) backends: Backends,
    instance: u64,
    host_id: u32,
    pub(super) shared: Arc<Shared>,
    local: Arc<Home>,
    pub(crate) lead: Lead,
    pub(super) leader: Arc<dyn Waiter>,
    pub(crate) progress: Arc<dyn Waiter>,
    pub(crate) executors: Pool<Work>,
    pub(crate) deliverers: Pool<Work>,
    pub(crate) admission: Admission,
    pub(crate) tally: Tally,
    pub(super) peers: RwLock<HashMap<u64, Arc<Peer>>>,
    pub(super) joined: (Mutex<()>, Condvar),
    epoch: AtomicU64,
    pub(super) lost: Mutex<Vec<(Arc<Peer>, Error)>>,
    classes: RwLock<HashMap<Uuid, Arc<Registered>>>,
    /// Classes that were taken back while replicas of them lived.
    retired: Mutex<HashMap<Uuid, Arc<Registered>>>,
    runs: RwLock<BTreeMap<u64, Arc<Run>>>,
    ended: (Mutex<()>, Condvar),
    pub(super) listeners: Mutex<HashMap<u64, Arc<dyn Listener>>>,
    /// Listeners that are not looked at for a while.
    pub(super) resting: Mutex<Vec<u64>>,
    /// Listeners whose trouble was told.
    pub(super) in_trouble: Mutex<Vec<u64>>,
    /// Host ids and instances that are about to become peers.
    pub(super) claims: Mutex<Vec<(u32, u64)>>,
    next: AtomicU64,
    pub(super) strangers: AtomicU32,
    pub(super) passing: Passing,
    /// When a connection that came to nothing was last logged, and how many were not.
    pub(super) complaints: Mutex<(Option<Instant>, u64)>,
    pub(super) callback: RwLock<Option<PeerCallback>>,
    life: AtomicU32,
    pub(super) progress_ends: AtomicBool,
    progress_thread: Mutex<Option<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stack of a thread that runs host code: as much as a main thread usually has.
const STACK: usize = 8 << 20;

/// Makes a pool whose threads run `body`.
fn pool(
    node: &Weak<Node>,
    strength: usize,
    waiter: &Arc<dyn Waiter>,
    name: &'static str,
    body: fn(&Arc<Node>),
) -> Pool<Work> {
    let node = Weak::clone(node);
    let start = move || {
        let node = Weak::clone(&node);
        let run = move || {
            if let Some(node) = node.upgrade() {
                while !scheduler::survive(name, || body(&node)) {}
            }
        };
        thread::Builder::new().name(name.into()).stack_size(STACK).spawn(run).map(drop)
    };
    Pool::new(strength, Arc::clone(waiter), Box::new(start))
}

impl Node {
    /// A node that listens to nothing and is connected to nobody.
    pub(crate) fn create(config: Config, mut backends: Backends, make: Make) -> Result<Arc<Self>> {
        backends.engines = preference::engines(&backends.engines, &config.transports)?;
        let [a, b] = halves((backends.random)()?);
        let host_id = match config.host_id {
            0 => u32::try_from(b & 0x7fff_ffff).unwrap_or(1).max(1),
            id => id,
        };
        let budget = config.cache_idle_bytes;
        let shared = Shared::new(Arc::clone(&backends.memory), make, budget, config.zero_on_reuse);
        let leader = (backends.waiter)()?;
        let progress = (backends.waiter)()?;
        let deliverers = config.workers.clamp(1, 4);
        let admission = Admission::new(config.workers);
        let node = Arc::new_cyclic(|node: &Weak<Self>| Self {
            instance: a,
            host_id,
            local: Home::new(Arc::clone(&shared), host_id, None),
            shared,
            lead: Lead::new(Arc::clone(&leader)),
            executors: pool(node, config.workers, &leader, "nrdma-exec", scheduler::execute),
            deliverers: pool(node, deliverers, &leader, "nrdma-deliver", scheduler::deliver),
            leader,
            progress,
            backends,
            config,
            admission,
            tally: Tally::default(),
            peers: RwLock::default(),
            joined: Default::default(),
            epoch: AtomicU64::new(0),
            lost: Mutex::default(),
            classes: RwLock::default(),
            retired: Mutex::default(),
            runs: RwLock::default(),
            ended: Default::default(),
            listeners: Mutex::default(),
            resting: Mutex::default(),
            in_trouble: Mutex::default(),
            claims: Mutex::default(),
            next: AtomicU64::new(1),
            strangers: AtomicU32::new(0),
            passing: Passing::default(),
            complaints: Mutex::default(),
            callback: RwLock::default(),
            life: AtomicU32::new(Life::Running as u32),
            progress_ends: AtomicBool::new(false),
            progress_thread: Mutex::default(),
        });
        let own = Arc::clone(&node);
        let thread = thread::Builder::new().name("nrdma-progress".into()).spawn(move || own.progress_loop());
        let thread = thread.map_err(|error| {
            node.local.close(shut_down());
            Error::new(Kind::OutOfMemory, format!("cannot start the progress thread: {error}"))
        })?;
        *lock(&node.progress_thread) = Some(thread);
        node.executors.warm_up();
        Ok(node)
    }

    /// Random, names this node's life.
    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }
    /// The cluster-wide id.
    pub(crate) fn host_id(&self) -> u32 {
        self.host_id
    }
    /// The memory backend.
    pub(crate) fn memory(&self) -> &dyn Memory {
        self.backends.memory.as_ref()
    }
    /// A number not used before in this node.
    pub(super) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn check_running(&self) -> Result<()> {
        if self.life.load(Ordering::Acquire) == Life::Running as u32 { Ok(()) } else { Err(shut_down()) }
    }

    fn check_outside(&self, call: &str) -> Result<()> {
        if !inside_callback(self) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{call} was called from inside a callback of the same node, for which it would have to wait"
        )))
    }

    // ---- peers

    /// The peers, by host id.
    pub(crate) fn peers_sorted(&self) -> Vec<Arc<Peer>> {
        let mut peers: Vec<Arc<Peer>> = self.read_peers().values().cloned().collect();
        peers.sort_by_key(|peer| peer.host_id);
        peers
    }

    pub(super) fn read_peers(&self) -> std::sync::RwLockReadGuard<'_, HashMap<u64, Arc<Peer>>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer with that host id.
    pub(crate) fn peer(&self, host_id: u32) -> Option<Arc<Peer>> {
        self.read_peers().values().find(|peer| peer.host_id == host_id).cloned()
    }

    /// Changes whenever hosts or their classes do.
    pub(crate) fn hosts_epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Hosts or their classes have changed: jobs may have somewhere new to go.
    pub(crate) fn hosts_changed(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let guard = lock(&self.joined.0);
        self.joined.1.notify_all();
        drop(guard);
        for run in self.runs() {
            run.notify();
        }
    }

    /// Waits until at least so many peers are connected.
    pub(crate) fn wait_peers(&self, at_least: u64, timeout: Option<Duration>) -> Result<()> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut guard = lock(&self.joined.0);
        loop {
            let have = self.read_peers().len() as u64;
            if have >= at_least {
                return Ok(());
            }
            self.check_running()?;
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                let text = format!("{have} of {at_least} peers were connected when the time was over");
                return Err(Error::new(Kind::TimedOut, text));
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            guard = match self.joined.1.wait_timeout(guard, left) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// The home that a host's context draws from; 0 and our own id are this host.
    pub(crate) fn home(&self, host_id: u32) -> Result<Arc<Home>> {
        if self.life.load(Ordering::Acquire) == Life::Stopped as u32 {
            return Err(shut_down());
        }
        if host_id == 0 || host_id == self.host_id {
            return Ok(Arc::clone(&self.local));
        }
        self.peer(host_id).map(|peer| Arc::clone(&peer.home)).ok_or_else(|| {
            Error::invalid(format!(
                "no host {host_id} is connected to host {} ({} peers are)",
                self.host_id,
                self.read_peers().len()
            ))
        })
    }

    /// Sets who hears of peers.
    pub(crate) fn set_peer_callback(&self, callback: Option<PeerCallback>) {
        *self.callback.write().unwrap_or_else(PoisonError::into_inner) = callback;
    }

    // ---- classes

    /// The registered class of that id.
    pub(crate) fn class(&self, class: &Uuid) -> Option<Arc<Registered>> {
        self.classes.read().unwrap_or_else(PoisonError::into_inner).get(class).cloned()
    }

    pub(super) fn class_ids(&self) -> Vec<Uuid> {
        self.classes.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Makes a class known here and at the peers.
    pub(crate) fn register_class(&self, id: Uuid, class: Box<dyn Class>) -> Result<()> {
        self.check_running()?;
        {
            let mut classes = self.classes.write().unwrap_or_else(PoisonError::into_inner);
            if classes.contains_key(&id) {
                return Err(Error::invalid(format!("class {} is registered already", class_text(&id))));
            }
            classes.insert(id, Registered::new(class));
        }
        self.tell_all(&Frame::ClassAdd { class: id });
        Ok(())
    }

    /// Takes a class back; returns when its last replica is gone.
    pub(crate) fn unregister_class(&self, id: Uuid, timeout: Option<Duration>) -> Result<()> {
        self.check_outside("nrdma_node_unregister_class")?;
        let removed = self.classes.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let removed = removed.or_else(|| lock(&self.retired).remove(&id));
        let Some(registered) = removed else {
            let text = format!("class {} is not registered", class_text(&id));
            return Err(Error::new(Kind::NotRegistered, text));
        };
        self.tell_all(&Frame::ClassRemove { class: id });
        let timeout = timeout.unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        let left = registered.end(Instant::now() + timeout);
        if left == 0 {
            return Ok(());
        }
        lock(&self.retired).insert(id, registered);
        Err(Error::new(
            Kind::TimedOut,
            format!(
                "{left} replicas of class {} still live after {} ms; it is not offered any more",
                class_text(&id),
                timeout.as_millis()
            ),
        ))
    }

    fn tell_all(&self, frame: &Frame) {
        for peer in self.peers_sorted() {
            peer.send(frame);
        }
    }

    // ---- jobs

    pub(super) fn runs(&self) -> Vec<Arc<Run>> {
        self.runs.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The job of that number, while it runs.
    pub(crate) fn run(&self, id: u64) -> Option<Arc<Run>> {
        self.runs.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// A job is over.
    pub(crate) fn forget_run(&self, id: u64) {
        self.runs.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let guard = lock(&self.ended.0);
        self.ended.1.notify_all();
        drop(guard);
    }

    fn start(
        self: &Arc<Self>,
        job: Box<dyn Job>,
        spec: Spec,
        count: u64,
        payload: Option<Span>,
        owner: Option<Arc<Sleeper>>,
        started: impl FnOnce(u64),
    ) -> Result<Arc<Run>> {
        if count == 0 && spec.mode != Mode::OncePerHost {
            return Err(Error::invalid("a job of 0 fragments is only allowed in mode NRDMA_ONCE_PER_HOST"));
        }
        if spec.priority < 0 {
            let text = format!("priority {} is negative; 0 is the most urgent", spec.priority);
            return Err(Error::new(Kind::InvalidPriority, text));
        }
        self.check_running()?;
        self.check_depth()?;
        let count = if count == 0 { self.read_peers().len() as u64 } else { count };
        let id = self.next();
        // Before the first fragment runs: the job may be over before this returns.
        started(id);
        let run = Run::new(self, id, job, spec, count, payload, owner);
        self.runs.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&run));
        if let Err(error) = run.plan() {
            self.forget_run(id);
            return Err(error);
        }
        // A shutdown that began meanwhile has not seen this job.
        if let Err(error) = self.check_running() {
            run.stop(error);
        }
        Ok(run)
    }

    /// Runs a job to its end; the calling thread helps.
    pub(crate) fn execute(
        self: &Arc<Self>,
        job: Box<dyn Job>,
        spec: Spec,
        count: u64,
        payload: Option<Span>,
    ) -> Result<()> {
        let run = self.start(job, spec, count, payload, Some(Sleeper::current()), |_| {})?;
        aside(self, || run.drive())
    }

    /// Starts a job; its `finished` is called once, at its end. Its number.
    pub(crate) fn execute_async(
        self: &Arc<Self>,
        job: Box<dyn Job>,
        spec: Spec,
        count: u64,
        payload: Option<Span>,
        started: impl FnOnce(u64),
    ) -> Result<()> {
        if count == 0 {
            return Err(Error::invalid("an asynchronous job of 0 fragments has nothing to do"));
        }
        let run = self.start(job, spec, count, payload, None, started)?;
        if run.deadline.is_some() {
            self.progress.wake();
        }
        run.notify();
        Ok(())
    }

    /// Abandons a job.
    pub(crate) fn cancel(&self, id: u64) -> Result<()> {
        let stopped = self
            .run(id)
            .is_some_and(|run| run.stop(Error::new(Kind::Cancelled, format!("job {id} was cancelled"))));
        if stopped { Ok(()) } else { Err(Error::invalid(format!("no job {id} is running"))) }
    }

    // ---- figures

    /// Idle bytes and counts of the cache.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Threads of the node.
    pub(crate) fn threads(&self) -> u64 {
        let progress = u64::from(lock(&self.progress_thread).is_some());
        (self.executors.threads() + self.deliverers.threads() + self.passing.threads()) as u64 + progress
    }

    // ---- the end

    /// Ends the node: jobs are abandoned, peers told, threads joined. Idempotent.
    pub(crate) fn shutdown(self: &Arc<Self>, timeout: Option<Duration>) -> Result<()> {
        self.check_outside("nrdma_node_shutdown")?;
        let deadline = Instant::now() + timeout.unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        let running = self.life.swap(Life::Stopping as u32, Ordering::AcqRel);
        if running == Life::Stopped as u32 {
            self.life.store(Life::Stopped as u32, Ordering::Release);
            return Ok(());
        }
        let listeners = std::mem::take(&mut *lock(&self.listeners));
        listeners.into_values().for_each(|listener| self.progress.unwatch(listener.source()));
        self.passing.cut();
        for run in self.runs() {
            run.stop(shut_down());
        }
        self.hosts_changed();
        let jobs = self.wait_runs(deadline);
        for peer in self.peers_sorted() {
            peer.say_goodbye();
            self.leave(&peer);
        }
        self.local.close(shut_down());
        // Executors first: they push work for deliverers, which push none for executors any more.
        self.executors.stop();
        let executors = self.executors.join(deadline);
        // Then the progress thread, whose last losses are work for deliverers too.
        self.progress_ends.store(true, Ordering::Release);
        self.progress.wake();
        let progress = lock(&self.progress_thread).take();
        if let Some(thread) = progress {
            // A panic there was caught and logged.
            let _ = thread.join();
        }
        // Nobody makes new ones any more; what they still do may be work for deliverers.
        let passing = self.passing.join(deadline);
        self.deliverers.stop();
        let deliverers = self.deliverers.join(deadline);
        self.lead.clear();
        if executors == 0 {
            self.executors.clear();
        }
        if jobs + executors + deliverers + passing > 0 {
            return Err(self.stuck(jobs, executors, deliverers, passing));
        }
        self.life.store(Life::Stopped as u32, Ordering::Release);
        Ok(())
    }

    fn wait_runs(&self, deadline: Instant) -> usize {
        let mut guard = lock(&self.ended.0);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let running = self.runs().len();
            if running == 0 || left.is_zero() {
                return running;
            }
            guard = match self.ended.1.wait_timeout(guard, left) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn stuck(&self, jobs: usize, executors: usize, deliverers: usize, passing: usize) -> Error {
        let stats = self.shared.stats();
        let text = format!(
            "the node did not end in time: {jobs} jobs, {executors} executors ({} inside callbacks), \
             {deliverers} deliverers ({} inside callbacks) and {passing} new connections are left, {} buffers \
             are out",
            self.executors.busy(),
            self.deliverers.busy(),
            stats.live_buffers
        );
        super::log::warn!("{text}");
        Error::new(Kind::TimedOut, text)
    }

    /// A peer in figures.
    pub(crate) fn peer_info(&self, peer: &Peer) -> PeerInfo {
        PeerInfo {
            host_id: peer.host_id,
            alive: peer.is_alive(),
            name: peer.name.clone(),
            address: peer.address.clone(),
            transport: peer.link.engine(),
            bytes_sent: read(&peer.bytes_sent),
            bytes_received: read(&peer.bytes_received),
            fragments_run: read(&peer.fragments_run),
            fragments_sent: read(&peer.fragments_sent),
            round_trip_ns: read(&peer.round_trip_ns),
        }
    }
}

/// Why a node that has ended refuses.
pub(crate) fn shut_down() -> Error {
    Error::new(Kind::ShutDown, "the node was shut down")
}

fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let word = u128::from_le_bytes(bytes);
    let low = u64::try_from(word & u128::from(u64::MAX)).unwrap_or_default();
    let high = u64::try_from(word >> 64).unwrap_or_default();
    [low.max(1), high]
}
