//! Another node that this one is connected to.
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::error::{Error, Kind, Result};
use super::fragment::Fragment;
use super::home::Home;
use super::memory::{Block, Span};
use super::node::Node;
use super::remote::{Opening, Order, Remote};
use super::scheduler::{Work, is_progress};
use super::silence::Silence;
use super::sleeper::Sleeper;
use super::stats::read;
use super::transport::{Chunk, Incoming, Landing, Link, Place, RegionKey};
use super::wire::frame::{Frame, Target, Uuid};

/// Bytes that the progress thread copies itself; more are copied by a deliverer, so that its rounds go on.
const COPY_AT_ONCE: usize = 64 << 10;
/// Sending that many bytes takes longer than waking a thread that goes on with other work meanwhile.
const LONG: usize = 256 << 10;
/// Regions that a peer may have announced at a time.
const MOST_WINDOWS: usize = 65_536;
/// Jobs that a peer may have open here at a time.
const MOST_JOBS: usize = 16_384;
/// Classes that a peer may have.
const MOST_CLASSES: usize = 65_536;

/// What the hello said of the other node.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) host_id: u32,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) instance: u64,
    /// Fragments that it takes at a time; 0 = it runs nothing for others.
    pub(crate) credits: u32,
    pub(crate) classes: Vec<Uuid>,
}

/// Another node that this one is connected to.
pub(crate) struct Peer {
    pub(crate) host_id: u32,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) credits: u32,
    pub(crate) instance: u64,
    pub(crate) token: u64,
    pub(crate) node: Arc<Node>,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) home: Arc<Home>,
    /// The leader was asked to poll the link.
    pub(crate) warmed: AtomicBool,
    /// It does.
    pub(crate) polled: AtomicBool,
    /// It said more than that it lives, which it did so many times.
    lively: AtomicBool,
    chatter: AtomicUsize,
    alive: AtomicBool,
    leaving: AtomicBool,
    /// Its loss was dealt with, and its last words were heard.
    gone: AtomicBool,
    classes: RwLock<BTreeSet<Uuid>>,
    remotes: Mutex<BTreeMap<u64, Arc<Remote>>>,
    /// Mapped, or why not.
    windows: Mutex<BTreeMap<RegionKey, Result<Arc<dyn Block>>>>,
    flushing: Mutex<HashMap<(u64, u64, u32), Arc<Fragment>>>,
    /// Threads that wait for room on the link, and whether there are any.
    waiting: Mutex<Vec<Arc<Sleeper>>>,
    any_waiting: AtomicBool,
    silence: Mutex<Silence>,
    pinged: Mutex<Option<Instant>>,
    /// The thread that waits for the first answer.
    greeted: Mutex<Option<Arc<Sleeper>>>,
    pub(crate) round_trip_ns: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    pub(crate) fragments_run: AtomicU64,
    pub(crate) fragments_sent: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peer {
    /// A peer that has just been connected.
    pub(crate) fn new(
        node: &Arc<Node>,
        identity: Identity,
        token: u64,
        link: Arc<dyn Link>,
        home: Arc<Home>,
    ) -> Arc<Self> {
        Arc::new(Self {
            host_id: identity.host_id,
            name: identity.name,
            address: identity.address,
            credits: identity.credits,
            instance: identity.instance,
            token,
            node: Arc::clone(node),
            link,
            home,
            warmed: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            lively: AtomicBool::new(true),
            chatter: AtomicUsize::new(0),
            alive: AtomicBool::new(true),
            leaving: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            classes: RwLock::new(identity.classes.into_iter().collect()),
            remotes: Mutex::new(BTreeMap::new()),
            windows: Mutex::new(BTreeMap::new()),
            flushing: Mutex::new(HashMap::new()),
            waiting: Mutex::default(),
            any_waiting: AtomicBool::new(false),
            silence: Mutex::new(Silence::new(Instant::now())),
            pinged: Mutex::new(None),
            greeted: Mutex::new(None),
            round_trip_ns: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            fragments_run: AtomicU64::new(0),
            fragments_sent: AtomicU64::new(0),
        })
    }

    /// Whether it is connected.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether it said goodbye.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Marks it dead; false when it was already.
    pub(crate) fn die(&self) -> bool {
        self.alive.swap(false, Ordering::AcqRel)
    }

    /// Whether it has said more than that it lives since this was last asked.
    pub(crate) fn take_lively(&self) -> bool {
        self.lively.load(Ordering::Relaxed) && self.lively.swap(false, Ordering::Relaxed)
    }

    /// Why calls that need it fail from now on.
    pub(crate) fn lost_error(&self) -> Error {
        Error::new(
            Kind::PeerLost,
            format!("host {} ({}) at {} is gone", self.host_id, self.name, self.address),
        )
    }

    /// Whether it runs jobs of that class.
    pub(crate) fn has_class(&self, class: &Uuid) -> bool {
        self.classes.read().unwrap_or_else(PoisonError::into_inner).contains(class)
    }

    // ---- out

    /// Sends a frame; failing to is the loss of the peer.
    pub(crate) fn send(self: &Arc<Self>, frame: &Frame) {
        if let Err(error) = self.try_send(frame) {
            self.node.lose_later(self, error);
        }
    }

    /// Sends a frame.
    pub(crate) fn try_send(&self, frame: &Frame) -> Result<()> {
        if !self.is_alive() {
            return Err(self.lost_error());
        }
        self.link.send(frame.encode().as_ref())
    }

    /// Sends a span's bytes to a place, waiting for room as often as it takes. The span may then be reused.
    pub(crate) fn put(self: &Arc<Self>, place: Place, span: &Span) -> Result<()> {
        match span.len < LONG {
            true => self.put_all(place, span),
            false => self.node.meanwhile(|| self.put_all(place, span)),
        }
    }

    fn put_all(self: &Arc<Self>, place: Place, span: &Span) -> Result<()> {
        let mut sent = 0;
        while sent < span.len {
            if !self.is_alive() {
                return Err(self.lost_error());
            }
            let n = self.link.put(place, sent as u64, span, sent)?;
            sent += n;
            if n == 0 {
                self.wait_for_room();
            }
        }
        Ok(())
    }

    fn wait_for_room(self: &Arc<Self>) {
        let me = Sleeper::current();
        lock(&self.waiting).push(Arc::clone(&me));
        self.any_waiting.store(true, Ordering::SeqCst);
        self.node.wait_for_room(&mut || !self.is_alive() || self.link.room());
        let mut waiting = lock(&self.waiting);
        waiting.retain(|other| !Arc::ptr_eq(other, &me));
        self.any_waiting.store(!waiting.is_empty(), Ordering::SeqCst);
    }

    /// After something was taken from the link: it may have been word of room.
    fn wake_waiting(&self) {
        if self.any_waiting.load(Ordering::SeqCst) && self.link.room() {
            for sleeper in lock(&self.waiting).iter() {
                if !Arc::ptr_eq(sleeper, &Sleeper::current()) {
                    sleeper.wake(self.node.lead.waiter());
                }
            }
        }
    }

    // ---- in

    /// Takes what has arrived, at most `limit` pieces; how many it was. A breach of the protocol is the loss
    /// of the peer.
    pub(crate) fn poll(self: &Arc<Self>, limit: usize) -> usize {
        match self.link.poll(limit, &mut |incoming| self.incoming(incoming, false)) {
            Ok(n) => {
                if n > 0 {
                    self.wake_waiting();
                }
                if n > 0 && n > self.chatter.swap(0, Ordering::Relaxed) {
                    self.lively.store(true, Ordering::Relaxed);
                }
                n
            }
            Err(error) => {
                self.node.lose_later(self, error);
                0
            }
        }
    }

    /// Takes all that has arrived on a link whose other end is gone.
    pub(crate) fn drain(self: &Arc<Self>) {
        // A breach of the protocol among the last words changes nothing any more.
        let _ = self.link.drain(&mut |incoming| self.incoming(incoming, false));
    }

    /// Looks after the link's slow side.
    pub(crate) fn service(self: &Arc<Self>) {
        if let Err(error) = self.link.service(&mut |incoming| self.incoming(incoming, false)) {
            self.node.lose_later(self, error);
        }
    }

    /// Handles bytes that did not queue up behind the frames sent before them: the frame that opened their job
    /// is taken first.
    pub(crate) fn incoming_at_once(self: &Arc<Self>, incoming: Incoming<'_>) -> Result<()> {
        if let Incoming::Data { place, .. } = &incoming
            && place.index == Place::PAYLOAD
        {
            while self.is_alive() && self.remote(place.job).is_none() {
                if self.link.poll(1, &mut |incoming| self.incoming(incoming, false))? == 0 {
                    // Another thread is about to handle it.
                    std::thread::yield_now();
                }
            }
        }
        self.incoming(incoming, true)
    }

    /// Handles one thing that arrived. `at_once`: bytes must be copied before this returns.
    pub(crate) fn incoming(self: &Arc<Self>, incoming: Incoming<'_>, at_once: bool) -> Result<()> {
        match incoming {
            Incoming::Frame(bytes) => self.frame(Frame::decode(bytes)?),
            Incoming::Data { place, offset, chunk }
                if at_once || chunk.span.len <= COPY_AT_ONCE || !is_progress() =>
            {
                self.data(place, offset, &chunk)
            }
            Incoming::Data { place, offset, chunk } => {
                let peer = Arc::clone(self);
                let copy = move || {
                    if let Err(error) = peer.data(place, offset, &chunk) {
                        peer.node.lose_later(&peer, error);
                    }
                };
                self.node.deliverers.push(Work::Call(Box::new(copy)), 0);
                Ok(())
            }
            Incoming::Ready { place, offset, len, receive } => self.ready(place, offset, len, receive),
            Incoming::Region { key, capacity, share } => {
                let capacity = usize::try_from(capacity)
                    .map_err(|_| Error::protocol(format!("a region of {capacity} bytes is too large")))?;
                let block = match self.node.memory().map(share, capacity) {
                    // The fragments that would need it fail, not the peer.
                    Err(error) if error.kind != Kind::OutOfMemory => return Err(error),
                    block => block,
                };
                let mut windows = lock(&self.windows);
                if windows.len() >= MOST_WINDOWS {
                    let text = format!("host {} announced more than {MOST_WINDOWS} regions", self.host_id);
                    return Err(Error::protocol(text));
                }
                windows.insert(key, block);
                Ok(())
            }
            Incoming::Forget(key) => {
                let forgotten = lock(&self.windows).remove(&key);
                drop(forgotten);
                Ok(())
            }
        }
    }

    fn data(self: &Arc<Self>, place: Place, offset: u64, chunk: &Chunk) -> Result<()> {
        if place.index == Place::PAYLOAD {
            return match self.remote(place.job) {
                Some(remote) => remote.on_payload(offset, chunk),
                None => Ok(()),
            };
        }
        match self.node.run(place.job) {
            Some(run) => run.on_data(self, place, offset, chunk),
            None => Ok(()),
        }
    }

    /// Lets bytes be received straight into the result buffer that they are for. What goes elsewhere is copied
    /// once more; what nobody wants any more is received all the same, and dropped.
    fn ready(
        self: &Arc<Self>,
        place: Place,
        offset: u64,
        len: usize,
        receive: &mut dyn FnMut(Landing<'_>) -> Result<usize>,
    ) -> Result<()> {
        if place.index != Place::PAYLOAD
            && let Some(run) = self.node.run(place.job)
            && run.on_ready(self, place, offset, len, receive)?
        {
            return Ok(());
        }
        let mut bytes = vec![0; len.min(COPY_AT_ONCE)];
        let len = receive(Landing::Bytes(&mut bytes))?.min(bytes.len());
        let block = self.home.block_over(&bytes);
        self.data(place, offset, &Chunk { span: Span { block, offset: 0, len }, done: None })
    }

    fn frame(self: &Arc<Self>, frame: Frame) -> Result<()> {
        if matches!(frame, Frame::Ping { .. } | Frame::Pong { .. }) {
            self.chatter.fetch_add(1, Ordering::Relaxed);
        }
        match frame {
            Frame::Fragment { place, target } => self.on_fragment(place, target),
            Frame::Result { place, sequence, part, path, size } => {
                if let Some(run) = self.node.run(place.job) {
                    run.on_result(self, place, (sequence, part, path, size))?;
                }
            }
            Frame::Ack { place, sequence, ok } => {
                let flushing = lock(&self.flushing).get(&key(place)).cloned();
                if let Some(fragment) = flushing {
                    fragment.acknowledge(sequence, ok);
                }
            }
            Frame::Failed { place, kind, text } => {
                if let Some(run) = self.node.run(place.job) {
                    run.on_failed(self, place, Error::new(kind, text))?;
                }
            }
            Frame::JobOpen { job, class, count, payload, thread_limit, priority, depth, load } => {
                let opening = Opening { class, count, payload, thread_limit, priority, depth, load };
                self.open_job(job, &opening)?;
            }
            Frame::JobClose { job } => {
                let remote = lock(&self.remotes).remove(&job);
                if let Some(remote) = remote {
                    remote.close();
                }
            }
            Frame::JobCancel { job } => {
                if let Some(remote) = self.remote(job) {
                    remote.cancel();
                    self.nudge_flushing();
                }
            }
            Frame::ClassAdd { class } => {
                let mut classes = self.classes.write().unwrap_or_else(PoisonError::into_inner);
                if classes.len() >= MOST_CLASSES {
                    let text = format!("host {} has more than {MOST_CLASSES} classes", self.host_id);
                    return Err(Error::protocol(text));
                }
                classes.insert(class);
                drop(classes);
                self.node.hosts_changed();
            }
            Frame::ClassRemove { class } => {
                self.classes.write().unwrap_or_else(PoisonError::into_inner).remove(&class);
                self.node.hosts_changed();
            }
            Frame::Goodbye => self.leaving.store(true, Ordering::Release),
            Frame::Ping { stamp } => self.send(&Frame::Pong { stamp }),
            Frame::Pong { .. } => self.on_pong(),
        }
        Ok(())
    }

    fn open_job(self: &Arc<Self>, job: u64, opening: &Opening) -> Result<()> {
        let mut remotes = lock(&self.remotes);
        if remotes.contains_key(&job) {
            return Err(Error::protocol(format!("host {} opened job {job} twice", self.host_id)));
        }
        if remotes.len() >= MOST_JOBS {
            let text = format!("host {} opened more than {MOST_JOBS} jobs at a time", self.host_id);
            return Err(Error::protocol(text));
        }
        // Looked at with the lock held: what a lost peer had open has been given up, and nobody would end this.
        if !self.is_alive() {
            return Err(self.lost_error());
        }
        remotes.insert(job, Remote::open(self, opening)?);
        Ok(())
    }

    fn on_fragment(self: &Arc<Self>, place: Place, target: Target) {
        match self.remote(place.job) {
            Some(remote) => remote.add(Order { place, target }),
            None => {
                let text = format!("job {} is not open here", place.job);
                self.send(&Frame::Failed { place, kind: Kind::Stale, text });
            }
        }
    }

    fn remote(&self, job: u64) -> Option<Arc<Remote>> {
        lock(&self.remotes).get(&job).cloned()
    }

    // ---- windows

    /// The mapping of a region that a fragment names.
    pub(crate) fn window(self: &Arc<Self>, key: RegionKey) -> Result<Arc<dyn Block>> {
        let known = lock(&self.windows).get(&key).cloned();
        if let Some(window) = known {
            return window;
        }
        // The announcement came before the fragment, but on the slow side.
        self.service();
        lock(&self.windows).get(&key).cloned().unwrap_or_else(|| {
            let text = format!("host {} named region {} which it has not announced", self.host_id, key.id);
            Err(Error::new(Kind::Stale, text))
        })
    }

    /// A region has a new mapping, because the old one was cut off.
    pub(crate) fn replace_window(&self, key: RegionKey, block: Arc<dyn Block>) {
        let mut windows = lock(&self.windows);
        if let Some(known) = windows.get_mut(&key) {
            *known = Ok(block);
        }
    }

    // ---- flushes

    /// A fragment waits for an answer.
    pub(crate) fn add_flushing(&self, place: Place, fragment: &Arc<Fragment>) {
        lock(&self.flushing).insert(key(place), Arc::clone(fragment));
    }

    /// It no longer does.
    pub(crate) fn remove_flushing(&self, place: Place) {
        lock(&self.flushing).remove(&key(place));
    }

    fn nudge_flushing(&self) {
        let waiting: Vec<Arc<Fragment>> = lock(&self.flushing).values().cloned().collect();
        for fragment in waiting {
            fragment.nudge();
        }
    }

    // ---- life and death

    /// Tests the link if it was quiet for `interval`; false when it was quiet for longer than `timeout`, and we heard
    /// that ourselves.
    pub(crate) fn check_life(self: &Arc<Self>, interval: Duration, timeout: Option<Duration>) -> bool {
        let quiet = self.link.last_heard().elapsed();
        let over = |timeout| lock(&self.silence).is_over(Instant::now(), quiet, timeout);
        if timeout.is_some_and(over) {
            return false;
        }
        if quiet >= interval {
            let mut pinged = lock(&self.pinged);
            if pinged.is_none_or(|at| at.elapsed() >= interval) {
                *pinged = Some(Instant::now());
                drop(pinged);
                self.send(&Frame::Ping { stamp: self.token });
            }
        }
        true
    }

    /// Waits until the other end has taken this one in too: it answers frames only then.
    pub(crate) fn wait_answer(self: &Arc<Self>, deadline: Instant) -> Result<()> {
        *lock(&self.greeted) = Some(Sleeper::current());
        *lock(&self.pinged) = Some(Instant::now());
        self.send(&Frame::Ping { stamp: self.token });
        let answered = || read(&self.round_trip_ns) > 0;
        let done = self.node.wait(Some(deadline), &mut || answered() || self.gone.load(Ordering::Acquire));
        *lock(&self.greeted) = None;
        // One that left in good order had taken us in before.
        if answered() || self.is_leaving() {
            return Ok(());
        }
        if done {
            let text = format!("{}: the peer hung up before it had taken us in", self.address);
            return Err(Error::new(Kind::Refused, text));
        }
        Err(Error::new(Kind::TimedOut, format!("{}: the peer did not take us in in time", self.address)))
    }

    /// Wakes who waits in [`Peer::wait_answer`].
    fn wake_greeted(&self) {
        let greeted = lock(&self.greeted).clone();
        if let Some(sleeper) = greeted {
            sleeper.wake(self.node.lead.waiter());
        }
    }

    fn on_pong(&self) {
        let pinged = lock(&self.pinged).take();
        if let Some(at) = pinged {
            let ns = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
            let best = read(&self.round_trip_ns);
            if best == 0 || ns < best {
                self.round_trip_ns.store(ns, Ordering::Relaxed);
            }
            self.wake_greeted();
        }
    }

    /// After its loss: what it asked for is given up.
    pub(crate) fn abandon_jobs(&self) {
        let remotes: Vec<Arc<Remote>> = std::mem::take(&mut *lock(&self.remotes)).into_values().collect();
        for remote in remotes {
            remote.cancel();
            remote.close();
        }
        self.nudge_flushing();
        self.gone.store(true, Ordering::Release);
        self.wake_greeted();
    }

    /// After its loss: its memory is unmapped as soon as no fragment uses it.
    pub(crate) fn drop_windows(&self) {
        let windows = std::mem::take(&mut *lock(&self.windows));
        drop(windows);
    }

    /// Says a friendly last word.
    pub(crate) fn say_goodbye(&self) {
        // It may be gone already; then it need not hear it.
        let _ = self.try_send(&Frame::Goodbye);
    }
}

fn key(place: Place) -> (u64, u64, u32) {
    (place.job, place.index, place.attempt)
}
