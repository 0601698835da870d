//! One device with its worker and its listener, for all links of a node that go over it.
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::context::Context;
use super::device::{Device, KEEP_IDLE};
use super::header::SessionId;
use super::inbox::Inbox;
use super::library::{shielded, ucx};
use super::memory::{Exposure, Sources};
use super::port::{Ended, Port};
use super::sys::{EpId, Worker, lock};
use super::watch::Watch;
use crate::core::error::Result;
use crate::core::log;
use crate::core::transport::{Attention, Seat, Session};
use crate::sys::descriptors::{keep_connections_from_children, kept_from_children};
use crate::sys::wait::readable;

/// How long a link that ends in good order waits for its last words to leave; all links together no longer than
/// ten times that.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// How long the end of an endpoint is waited for; it takes less than a millisecond.
const END: Duration = Duration::from_millis(100);

/// How often in a row whoever polls lets others go first: those must not keep him from moving things on for ever.
pub(super) const MOST_PASSED: usize = 64;

/// One device with its worker and its listener.
pub(super) struct Domain {
    // Before the context: the worker is the first to go.
    port: Mutex<Port>,
    /// Threads that wait for their turn, and how often whoever polls has let them go first.
    pub(super) waiting: AtomicUsize,
    passed: AtomicUsize,
    watch: Mutex<Watch>,
    /// Somebody relies on the worker's descriptor.
    sleepers: AtomicBool,
    efd: i32,
    /// Nanoseconds that are left for last words.
    patience: AtomicU64,
    pub(super) sources: Arc<Sources>,
    pub(super) context: Arc<Context>,
    pub(super) device: Device,
    /// Where the listener can be called.
    pub(super) listening: SocketAddr,
    /// All addresses at which UCX listens for us.
    doors: Vec<SocketAddr>,
    /// A forked child must leave its parent's devices alone.
    pid: u32,
}

impl Domain {
    /// Opens a device and listens at its address.
    pub(super) fn open(device: &Device, at: IpAddr, seat: &Seat) -> Result<Arc<Self>> {
        let ucx = ucx()?;
        let open = || {
            let context = Context::new(ucx, &device.settings())?;
            let mut worker = Worker::new(&context)?;
            let listening = worker.listen(SocketAddr::new(at, 0))?;
            Ok((context, worker, listening))
        };
        let begun = Instant::now();
        let (opened, doors) = kept_from_children(|| shielded(&device.environment(), open));
        let (context, worker, listening) = opened?;
        log::debug!("UCX opened {} in {} ms", device.describe(), begun.elapsed().as_millis());
        let efd = worker.efd();
        Ok(Arc::new(Self {
            port: Mutex::new(Port::new(worker)),
            waiting: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
            watch: Mutex::new(Watch::new(efd, seat)?),
            sleepers: AtomicBool::new(false),
            efd,
            patience: AtomicU64::new(10 * nanoseconds(LAST_WORDS)),
            sources: Arc::default(),
            context,
            device: device.clone(),
            listening,
            doors,
            pid: std::process::id(),
        }))
    }

    /// Whether it serves that device at that address for that node.
    pub(super) fn serves(&self, device: &Device, at: IpAddr, node: usize) -> bool {
        self.device == *device && self.listening.ip() == at && lock(&self.watch).node() == node
    }

    /// Whether this is not a forked child.
    pub(super) fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    // ---- turns

    /// Does something with the worker. `quiet`: the session whose messages the caller will look at himself.
    pub(super) fn turn<R>(&self, quiet: Option<SessionId>, work: impl FnOnce(&mut Port) -> R) -> R {
        self.take_turn(self.wait_for_turn(), quiet, work)
    }

    fn wait_for_turn(&self) -> MutexGuard<'_, Port> {
        match self.port.try_lock() {
            Ok(port) => return port,
            Err(TryLockError::Poisoned(port)) => return port.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let port = lock(&self.port);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        port
    }

    fn take_turn<R>(
        &self,
        mut port: MutexGuard<'_, Port>,
        quiet: Option<SessionId>,
        work: impl FnOnce(&mut Port) -> R,
    ) -> R {
        port.quiet = quiet;
        let result = work(&mut port);
        port.take_events();
        if self.sleepers.load(Ordering::SeqCst) && !port.is_armed() {
            // What this turn did, or found, may have used up what the sleeper waits for.
            port.settle();
        }
        port.quiet = None;
        result
    }

    /// Moves things on, unless another thread is at it or about to be.
    ///
    /// Who polls takes turn after turn, and would always be there first: locks are not fair, and who waits for one
    /// has to be woken before he can take it, which on a busy machine takes many of the poller's turns.
    pub(super) fn progress(&self, quiet: SessionId) {
        if self.waiting.load(Ordering::SeqCst) > 0
            && self.passed.fetch_add(1, Ordering::Relaxed) < MOST_PASSED
        {
            return thread::yield_now();
        }
        self.passed.store(0, Ordering::Relaxed);
        let port = match self.port.try_lock() {
            Ok(port) => port,
            Err(TryLockError::Poisoned(port)) => port.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.take_turn(port, Some(quiet), |port| port.progress());
    }

    /// Moves things on and waits shortly for more.
    pub(super) fn wait(&self, timeout: Duration) {
        self.turn(None, |port| {
            port.progress();
            port.settle();
        });
        readable(self.efd, timeout);
    }

    // ---- sleeping

    pub(super) fn sit_down(&self, seat: &Seat, inbox: &Inbox) -> Result<()> {
        inbox.watch(seat)?;
        lock(&self.watch).add(seat.token)
    }

    pub(super) fn get_up(&self, seat: &Seat, inbox: &Inbox) {
        inbox.unwatch(seat);
        lock(&self.watch).remove(seat.token);
    }

    /// From now on `who` looks at the link of that token.
    pub(super) fn attend(&self, token: u64, who: Attention, session: SessionId) -> Result<()> {
        let asleep = {
            let mut watch = lock(&self.watch);
            let asleep = watch.attend(token, who)?;
            self.sleepers.store(asleep, Ordering::SeqCst);
            asleep
        };
        if asleep {
            self.turn(Some(session), Port::settle);
        }
        Ok(())
    }

    /// Now and then.
    pub(super) fn tick(&self) {
        lock(&self.watch).clear_timer();
        self.turn(None, Port::expire);
    }

    // ---- meeting

    /// Waits until both ends of a session have proved themselves, or something else has come of it, or `enough`.
    /// `called`: where this end called the other.
    pub(super) fn wait_open(
        &self,
        session: &SessionId,
        called: Option<SocketAddr>,
        inbox: &Inbox,
        deadline: Instant,
        enough: &AtomicBool,
    ) {
        let over = || inbox.failure().is_some() || !inbox.is_empty() || enough.load(Ordering::Acquire);
        while !inbox.is_open() && !over() && Instant::now() < deadline {
            self.wait(Duration::from_millis(10));
            self.keep_from_children(called);
        }
        // The answer may still be ours to move on, and nobody else looks yet.
        self.until(deadline.saturating_duration_since(Instant::now()), |port| port.is_sent(session));
        self.keep_from_children(called);
    }

    /// Keeps UCX's TCP connections from programs that the host starts. UCX forgets to, and makes some in threads of
    /// its own: so as soon as can be.
    fn keep_from_children(&self, called: Option<SocketAddr>) {
        keep_connections_from_children(|connection| {
            let by_us = connection.peer.is_some() && connection.peer == called;
            by_us || self.doors.contains(&connection.local) || KEEP_IDLE.contains(&connection.keep_idle)
        });
    }

    /// From now on until the answer is dropped the session's other end may connect.
    pub(super) fn expect<'a>(&'a self, session: &'a Session, inbox: &Arc<Inbox>) -> Expectation<'a> {
        self.turn(None, |port| port.expect(session, inbox));
        Expectation { domain: self, session }
    }

    // ---- the end

    /// Lets the last words leave.
    pub(super) fn flush(&self, session: &SessionId) {
        let left = Duration::from_nanos(self.patience.load(Ordering::Relaxed));
        let (begun, most) = (Instant::now(), LAST_WORDS.min(left));
        if self.turn(None, |port| port.flush(session)).is_err() {
            return;
        }
        self.until(most, |port| port.is_flushed(session));
        let spent = nanoseconds(begun.elapsed());
        let less = |left: u64| Some(left.saturating_sub(spent));
        // Cannot be Err: the closure always gives a value.
        let _ = self.patience.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Begins to end a session.
    pub(super) fn begin_end(&self, session: &SessionId) -> Option<Ended> {
        self.turn(None, |port| port.end(session))
    }

    /// When this returns nothing of the peer's reaches our memory any more.
    pub(super) fn finish(&self, ep: EpId, exposures: &[Arc<Exposure>]) {
        self.until(END, |port| port.is_closed(ep));
        exposures.iter().for_each(|exposure| exposure.revoke());
    }

    fn until(&self, most: Duration, done: impl Fn(&Port) -> bool) {
        let begun = Instant::now();
        let mut rounds = 0;
        loop {
            let over = self.turn(None, |port| {
                port.progress();
                done(port)
            });
            if over || begun.elapsed() >= most {
                return;
            }
            rounds += 1;
            if rounds > 100 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One connection is waited for, until this is dropped.
pub(super) struct Expectation<'a> {
    domain: &'a Domain,
    session: &'a Session,
}

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        self.domain.turn(None, |port| port.give_up(&self.session.id));
    }
}
