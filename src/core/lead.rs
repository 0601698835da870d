//! Leader and followers: of the threads that have nothing to do but wait, one polls the links.
//!
//! Handing a frame from thread to thread costs a wake-up; so the leader handles what it finds itself. While
//! nobody leads, a sender wakes the progress thread.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::peer::Peer;
use super::sleeper::Sleeper;
use super::transport::{Attention, Waiter};

/// The longest a leader spins before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// A link this long quiet is left to the progress thread.
const COLD: Duration = Duration::from_millis(100);
/// Frames taken from one link before the next has its turn.
const BATCH: usize = 32;
/// Polls between two looks at the clock.
const POLLS: u32 = 16;

/// How long spinning pays, learned from how it went.
struct Spin {
    most: Duration,
    budget: Duration,
    misses: u32,
}

impl Spin {
    fn new() -> Self {
        let alone = std::thread::available_parallelism().map_or(1, usize::from) == 1;
        let most = if alone { Duration::ZERO } else { SPIN };
        Self { most, budget: most, misses: 0 }
    }
    /// What to spend now: the budget, or after 64 hopeless sleeps a probe.
    fn allowance(&mut self) -> Duration {
        if !self.budget.is_zero() {
            return self.budget;
        }
        self.misses += 1;
        if self.misses.is_multiple_of(64) { self.most } else { Duration::ZERO }
    }
    fn hit(&mut self) {
        self.budget = (self.budget * 2).clamp(self.most / 8, self.most);
    }
    fn miss(&mut self) {
        self.budget = if self.budget <= self.most / 16 { Duration::ZERO } else { self.budget / 2 };
    }
}

struct Warm {
    peer: Arc<Peer>,
    active: bool,
    last: Instant,
}

struct Hot {
    links: Vec<Warm>,
    spin: Spin,
    ready: Vec<u64>,
}

/// The leader's seat.
pub(crate) struct Lead {
    taken: AtomicBool,
    followers: Mutex<Vec<Arc<Sleeper>>>,
    /// Links that became busy since the leader last looked.
    warmed: Mutex<Vec<Arc<Peer>>>,
    any_warmed: AtomicBool,
    hot: Mutex<Hot>,
    waiter: Arc<dyn Waiter>,
    sweeps: AtomicU64,
}

/// How a waiting thread gives up the processor.
pub(crate) trait Rest {
    /// Called before it sleeps; false: do not sleep.
    fn before(&mut self, me: &Arc<Sleeper>) -> bool;
    /// Called after it slept.
    fn after(&mut self, me: &Arc<Sleeper>);
}

/// The right to lead; ends when dropped.
pub(crate) struct Leading<'a> {
    lead: &'a Lead,
    progress: &'a dyn Waiter,
    hot: MutexGuard<'a, Hot>,
}

impl Lead {
    pub(crate) fn new(waiter: Arc<dyn Waiter>) -> Self {
        Self {
            taken: AtomicBool::new(false),
            followers: Mutex::new(Vec::new()),
            warmed: Mutex::new(Vec::new()),
            any_warmed: AtomicBool::new(false),
            hot: Mutex::new(Hot { links: Vec::new(), spin: Spin::new(), ready: Vec::new() }),
            waiter,
            sweeps: AtomicU64::new(0),
        }
    }

    /// Where the leader sleeps.
    pub(crate) fn waiter(&self) -> &dyn Waiter {
        self.waiter.as_ref()
    }

    /// The leader shall poll this link from now on.
    pub(crate) fn warm(&self, peer: &Arc<Peer>) {
        if peer.warmed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut warmed = self.warmed.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at with the lock held: after the node's end nobody would let go of it again.
        if !peer.is_alive() {
            return;
        }
        warmed.push(Arc::clone(peer));
        drop(warmed);
        self.any_warmed.store(true, Ordering::Release);
    }

    /// Forgets all links, at the node's end.
    pub(crate) fn clear(&self) {
        self.warmed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // A thread that is stuck may lead for ever.
        if let Ok(mut hot) = self.hot.try_lock() {
            hot.links.clear();
        }
    }

    /// Whether somebody leads.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst)
    }

    /// Times that the progress thread was asked to look at every link.
    pub(crate) fn sweeps(&self) -> u64 {
        self.sweeps.load(Ordering::Acquire)
    }

    /// Asks the progress thread to look at every link.
    pub(crate) fn ask_for_sweep(&self) {
        self.sweeps.fetch_add(1, Ordering::Release);
    }

    /// Becomes the leader, if nobody is.
    pub(crate) fn take<'a>(&'a self, progress: &'a dyn Waiter) -> Option<Leading<'a>> {
        if self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::SeqCst) {
            return None;
        }
        let hot = self.hot.lock().unwrap_or_else(PoisonError::into_inner);
        let leading = Leading { lead: self, progress, hot };
        leading.begin();
        Some(leading)
    }

    /// Waits to be woken or to be offered the lead.
    pub(crate) fn follow(
        &self,
        me: &Arc<Sleeper>,
        timeout: Option<Duration>,
        rest: &mut dyn Rest,
        done: &mut dyn FnMut() -> bool,
    ) {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(me));
        if self.taken.load(Ordering::SeqCst) && !done() && rest.before(me) {
            me.park(timeout);
            rest.after(me);
        }
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|other| !Arc::ptr_eq(other, me));
    }
}

impl Leading<'_> {
    fn begin(&self) {
        for warm in &self.hot.links {
            warm.peer.link.attention(Attention::Polled);
        }
    }

    /// Polls, spins and sleeps until `done` or `deadline`; whether it is done.
    pub(crate) fn until(
        &mut self,
        me: &Arc<Sleeper>,
        deadline: Option<Instant>,
        rest: &mut dyn Rest,
        done: &mut dyn FnMut() -> bool,
    ) -> bool {
        loop {
            if self.spin(deadline, done) {
                return true;
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return done();
            }
            self.sleep(me, deadline, rest, done);
        }
    }

    /// Polls until `done` or the spin budget is used up.
    fn spin(&mut self, deadline: Option<Instant>, done: &mut dyn FnMut() -> bool) -> bool {
        let mut end = None;
        let mut polls = 0_u32;
        loop {
            let found = self.poll();
            if done() {
                self.hot.spin.hit();
                return true;
            }
            polls = polls.wrapping_add(1);
            if found > 0 {
                self.hot.spin.hit();
                end = None;
                // A peer may keep us busy for ever.
                if polls.is_multiple_of(POLLS) && deadline.is_some_and(|d| Instant::now() >= d) {
                    return false;
                }
                continue;
            }
            if end.is_none() {
                let allowance = self.hot.spin.allowance();
                if allowance.is_zero() {
                    return false;
                }
                end = Some(Instant::now() + allowance);
            } else if polls.is_multiple_of(POLLS) && end.is_some_and(|end| Instant::now() >= end) {
                self.hot.spin.miss();
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Takes what has arrived on the hot links; how much it was.
    fn poll(&mut self) -> usize {
        if self.lead.any_warmed.swap(false, Ordering::AcqRel) {
            let warmed =
                std::mem::take(&mut *self.lead.warmed.lock().unwrap_or_else(PoisonError::into_inner));
            for peer in warmed {
                peer.polled.store(true, Ordering::Release);
                peer.link.attention(Attention::Polled);
                self.hot.links.push(Warm { peer, active: true, last: Instant::now() });
            }
        }
        let mut found = 0;
        for warm in &mut self.hot.links {
            let n = warm.peer.poll(BATCH);
            warm.active |= n > 0;
            found += n;
        }
        found
    }

    fn sleep(
        &mut self,
        me: &Arc<Sleeper>,
        deadline: Option<Instant>,
        rest: &mut dyn Rest,
        done: &mut dyn FnMut() -> bool,
    ) {
        if self.settle() || done() || !rest.before(me) {
            return;
        }
        let mut ready = std::mem::take(&mut self.hot.ready);
        ready.clear();
        let timeout = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        me.lead(self.lead.waiter(), timeout, &mut ready);
        self.hot.ready = ready;
        rest.after(me);
        self.begin();
    }

    /// Asks the hot links' peers to ring the bell from now on and lets cold links go. True: something is
    /// waiting already.
    fn settle(&mut self) -> bool {
        let now = Instant::now();
        let mut waiting = self.lead.any_warmed.load(Ordering::Acquire);
        self.hot.links.retain_mut(|warm| {
            if warm.active {
                warm.active = false;
                warm.last = now;
            }
            if now.duration_since(warm.last) < COLD && warm.peer.is_alive() {
                waiting |= warm.peer.link.attention(Attention::Leader);
                return true;
            }
            warm.peer.polled.store(false, Ordering::Release);
            warm.peer.warmed.store(false, Ordering::Release);
            waiting |= warm.peer.link.attention(Attention::Progress) && warm.peer.poll(BATCH) > 0;
            false
        });
        waiting
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        // First, so that the progress thread looks itself at what rings from here on. Who takes the lead now
        // waits for our lock and then polls.
        self.lead.taken.store(false, Ordering::SeqCst);
        self.hot.links.retain(|warm| warm.peer.is_alive());
        let mut waiting = false;
        for warm in &self.hot.links {
            waiting |= warm.peer.link.attention(Attention::Progress);
        }
        let next = self.lead.followers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(next) = next {
            next.wake(self.lead.waiter());
        }
        // What waits already rings for nobody, and the follower may have no need to lead.
        if waiting || self.lead.any_warmed.load(Ordering::Acquire) {
            self.lead.ask_for_sweep();
            self.progress.wake();
        }
    }
}
