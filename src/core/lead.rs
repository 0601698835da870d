//! Leader and followers: of the threads that have nothing to do but wait, one polls the links.
//!
//! Handing a frame from thread to thread costs a wake-up; so the leader handles what it finds itself. While
//! nobody leads, a sender wakes the progress thread.
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::peer::Peer;
use super::sleeper::Sleeper;
use super::transport::{Attention, Waiter};
use super::turns::Turns;

/// The longest a leader spins before it sleeps: about what two wake-ups take.
const SPIN: Duration = Duration::from_micros(50);
/// A sleep that spinning could perhaps have saved.
const SHORT_SLEEP: Duration = Duration::from_micros(200);
/// Short sleeps after which spinning is tried.
const PROBE: u32 = 8;
const RAREST_PROBE: u32 = 1024;
/// A link this long quiet is left to the progress thread.
const COLD: Duration = Duration::from_millis(100);
/// Frames taken from one link before the next has its turn.
const BATCH: usize = 32;
/// Polls between two looks at the clock.
const POLLS: u32 = 16;
/// Who is away for less than this leaves the links as they are: to have senders wake the progress thread costs
/// more than they would wait.
const MOMENT: Duration = Duration::from_micros(50);
/// The same with links that are the system's to watch: telling it to, and being woken by it, costs more.
const FAR_MOMENT: Duration = Duration::from_micros(200);
/// So many short absences in a row, and the next is expected to be short, too.
const TRUST: u32 = 8;
/// One in so many absences is measured from then on.
const SAMPLE: u64 = 8;
/// How often the progress thread looks whether who left for a moment is back.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// How long spinning pays, learned from how it went.
///
/// Two that sleep and wait for each other would never find out that spinning pays, because a wake-up takes longer
/// than the wait that is worth spinning for: so after some short sleeps one spins for longer, which lets the other
/// find out the same.
struct Spin {
    budget: Duration,
    /// What it may grow to.
    cap: Duration,
    /// Short sleeps since the last spin, and how long they take.
    short: u32,
    typical: Duration,
    /// Short sleeps from one probe to the next; the more, the more were in vain.
    interval: u32,
}

impl Spin {
    fn new() -> Self {
        Self { budget: SPIN, cap: SPIN, short: 0, typical: SPIN, interval: PROBE }
    }
    /// What to spend now.
    fn allowance(&self) -> Duration {
        match self.budget.is_zero() && self.short >= self.interval {
            true => (self.typical * 2).max(SPIN),
            false => self.budget,
        }
    }
    fn hit(&mut self) {
        if self.budget.is_zero() {
            self.cap = self.allowance();
        }
        self.budget = if self.budget.is_zero() { self.cap } else { (self.budget * 2).min(self.cap) };
        self.interval = PROBE;
        self.short = 0;
    }
    fn miss(&mut self) {
        if self.budget.is_zero() {
            self.interval = (self.interval * 2).min(RAREST_PROBE);
        }
        self.short = 0;
        self.budget = if self.budget <= SPIN / 16 { Duration::ZERO } else { self.budget / 2 };
        self.cap = (self.cap / 2).max(SPIN);
    }
    fn slept(&mut self, time: Duration) {
        if time < SHORT_SLEEP {
            self.short += 1;
            self.typical = (self.typical * 7 + time) / 8;
        }
    }
}

struct Warm {
    peer: Arc<Peer>,
    active: bool,
    last: Instant,
}

struct Hot {
    /// Taken in turns, so that a fragment costs the same however many others are connected.
    links: Turns<Warm>,
    spin: Spin,
    ready: Vec<u64>,
    /// When the last leader left.
    left: Option<Instant>,
    /// It left the links as they were.
    quietly: bool,
    /// Short absences in a row.
    short: u32,
    /// One of the links goes to another host.
    far: bool,
    /// When cold links were last let go.
    cooled: Instant,
}

impl Hot {
    /// Learns from how long nobody led, when the clock is looked at anyway: that costs, too.
    fn note_absence(&mut self, now: Instant) {
        let Some(left) = self.left.take() else { return };
        let short = now.saturating_duration_since(left) < if self.far { FAR_MOMENT } else { MOMENT };
        self.short = if short { (self.short + 1).min(TRUST) } else { 0 };
    }
}

/// The leader's seat.
pub(crate) struct Lead {
    taken: AtomicBool,
    /// By an executor that has nothing better to do.
    stand_in: AtomicBool,
    /// Threads that wait for something and would lead meanwhile: they come before executors, because what they
    /// find is mostly for themselves.
    wanted: AtomicUsize,
    /// Counts leaders that left for a moment.
    leaves: AtomicU64,
    /// The progress thread looks whether they come back.
    ticking: AtomicBool,
    followers: Mutex<Vec<Arc<Sleeper>>>,
    /// Links that became busy since the leader last looked.
    warmed: Mutex<Vec<Arc<Peer>>>,
    any_warmed: AtomicBool,
    /// Peers died since the dead were last let go.
    any_dead: AtomicBool,
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
            stand_in: AtomicBool::new(false),
            wanted: AtomicUsize::new(0),
            leaves: AtomicU64::new(0),
            ticking: AtomicBool::new(false),
            followers: Mutex::new(Vec::new()),
            warmed: Mutex::new(Vec::new()),
            any_warmed: AtomicBool::new(false),
            any_dead: AtomicBool::new(false),
            hot: Mutex::new(Hot {
                links: Turns::new(),
                spin: Spin::new(),
                ready: Vec::new(),
                left: None,
                far: false,
                quietly: false,
                short: 0,
                cooled: Instant::now(),
            }),
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
        self.any_dead.store(true, Ordering::SeqCst);
        // A thread that is stuck may lead for ever.
        if let Ok(mut hot) = self.hot.try_lock() {
            hot.links.retain(|_| false);
        }
    }

    /// Lets go of links whose peers are gone.
    pub(crate) fn forget_dead(&self) {
        self.warmed.lock().unwrap_or_else(PoisonError::into_inner).retain(|peer| peer.is_alive());
        self.any_dead.store(true, Ordering::SeqCst);
        match self.hot.try_lock() {
            Ok(mut hot) => self.let_dead_go(&mut hot),
            // The leader does it itself before it sleeps.
            Err(_) => self.waiter.wake(),
        }
    }

    fn let_dead_go(&self, hot: &mut Hot) {
        if self.any_dead.load(Ordering::Relaxed) && self.any_dead.swap(false, Ordering::SeqCst) {
            hot.links.retain(|warm| warm.peer.is_alive());
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
        let mut hot = self.hot.lock().unwrap_or_else(PoisonError::into_inner);
        let polled = std::mem::take(&mut hot.quietly);
        let mut leading = Leading { lead: self, progress, hot };
        if !polled {
            leading.begin();
        }
        Some(leading)
    }

    /// Becomes the leader, if nobody is and nobody else wants to be; for executors. `until` must end when
    /// [`Lead::is_wanted`].
    pub(crate) fn stand_in<'a>(&'a self, progress: &'a dyn Waiter) -> Option<Leading<'a>> {
        if self.is_wanted() {
            return None;
        }
        let leading = self.take(progress)?;
        self.stand_in.store(true, Ordering::SeqCst);
        Some(leading)
    }

    /// Whether a thread waits that should lead.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// From now on, until the answer is dropped, executors leave the lead to the calling thread.
    pub(crate) fn want(&self) -> Wanted<'_> {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        Wanted(self)
    }

    /// Called by the progress thread every [`TICK`] while it [`is_ticking`](Self::is_ticking): takes the links
    /// over from a leader that left for a moment and does not come back.
    pub(crate) fn tick(&self, progress: &dyn Waiter, seen: &mut u64) {
        if !self.is_ticking() {
            return;
        }
        let leaves = self.leaves.load(Ordering::SeqCst);
        if std::mem::replace(seen, leaves) != leaves {
            return;
        }
        // Such an absence was too long, so this does not leave the links as they are.
        if let Some(mut leading) = self.take(progress) {
            leading.hot.left = None;
            leading.hot.short = 0;
        }
        self.ticking.store(false, Ordering::SeqCst);
        if self.leaves.load(Ordering::SeqCst) != leaves {
            self.ticking.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the progress thread shall call [`Lead::tick`].
    pub(crate) fn is_ticking(&self) -> bool {
        self.ticking.load(Ordering::SeqCst)
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
        if self.stand_in.load(Ordering::SeqCst) {
            self.waiter.wake();
        }
        if self.taken.load(Ordering::SeqCst) && !done() && rest.before(me) {
            me.park(timeout);
            rest.after(me);
        }
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|other| !Arc::ptr_eq(other, me));
    }
}

impl Leading<'_> {
    fn begin(&mut self) {
        for warm in self.hot.links.iter() {
            warm.peer.link.attention(Attention::Polled);
        }
        self.hot.links.look_at_all();
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
            let done = done();
            polls = polls.wrapping_add(1);
            if done || found > 0 {
                // What was there at once says nothing about spinning.
                if end.take().is_some() {
                    self.hot.spin.hit();
                }
                if done {
                    return true;
                }
                // A peer may keep us busy for ever.
                if polls.is_multiple_of(POLLS) && deadline.is_some_and(|d| Instant::now() >= d) {
                    return false;
                }
                continue;
            }
            if end.is_none() {
                let now = Instant::now();
                self.hot.note_absence(now);
                if now.saturating_duration_since(self.hot.cooled) >= COLD {
                    self.cool(now);
                }
                let allowance = self.hot.spin.allowance();
                if allowance.is_zero() {
                    return false;
                }
                end = Some(now + allowance);
            } else if polls.is_multiple_of(POLLS) && end.is_some_and(|end| Instant::now() >= end) {
                self.hot.spin.miss();
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Takes what has arrived on the hot links; how much it was.
    fn poll(&mut self) -> usize {
        if self.lead.any_warmed.load(Ordering::Acquire) {
            self.lead.any_warmed.store(false, Ordering::SeqCst);
            let warmed =
                std::mem::take(&mut *self.lead.warmed.lock().unwrap_or_else(PoisonError::into_inner));
            for peer in warmed {
                peer.polled.store(true, Ordering::Release);
                peer.link.attention(Attention::Polled);
                self.hot.far |= peer.link.caps().in_place || peer.link.caps().writes;
                self.hot.links.push(Warm { peer, active: true, last: Instant::now() });
            }
        }
        self.hot.links.round(|warm| {
            let found = warm.peer.poll(BATCH);
            warm.active |= found > 0 && warm.peer.take_lively();
            found
        })
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
        let began = Instant::now();
        let timeout = deadline.map(|d| d.saturating_duration_since(began));
        me.lead(self.lead.waiter(), timeout, &mut ready);
        self.hot.spin.slept(began.elapsed());
        self.hot.ready = ready;
        rest.after(me);
        self.begin();
    }

    /// Asks the hot links' peers to ring the bell from now on and lets cold links go. True: something is
    /// waiting already.
    fn settle(&mut self) -> bool {
        let waiting = self.cool(Instant::now());
        self.hot
            .links
            .iter()
            .fold(waiting, |waiting, warm| waiting | warm.peer.link.attention(Attention::Leader))
    }

    /// Lets cold links go. True: something is waiting already.
    fn cool(&mut self, now: Instant) -> bool {
        self.hot.cooled = now;
        let mut waiting = self.lead.any_warmed.load(Ordering::Acquire);
        self.hot.links.retain(|warm| {
            if std::mem::take(&mut warm.active) {
                warm.last = now;
            }
            if now.duration_since(warm.last) < COLD && warm.peer.is_alive() {
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

/// A thread that would lead; see [`Lead::want`].
pub(crate) struct Wanted<'a>(&'a Lead);

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Leading<'_> {
    /// Leaves for a moment, if that is to be expected: senders go on as if somebody polled.
    fn step_out(&mut self) -> bool {
        if self.hot.short < TRUST {
            return false;
        }
        self.hot.quietly = true;
        self.lead.leaves.fetch_add(1, Ordering::SeqCst);
        // Either we see that the progress thread has stopped looking, or it sees that we left.
        if !self.lead.ticking.load(Ordering::SeqCst) && !self.lead.ticking.swap(true, Ordering::SeqCst) {
            self.progress.wake();
        }
        true
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        // Once it is trusted, some of its absences are enough to go on learning from: the clock costs, too.
        let leaves = self.lead.leaves.load(Ordering::Relaxed);
        self.hot.left = (self.hot.short < TRUST || leaves.is_multiple_of(SAMPLE)).then(Instant::now);
        if self.lead.stand_in.load(Ordering::SeqCst) {
            self.lead.stand_in.store(false, Ordering::SeqCst);
        }
        // First, so that the progress thread looks itself at what rings from here on. Who takes the lead now
        // waits for our lock and then polls.
        self.lead.taken.store(false, Ordering::SeqCst);
        self.lead.let_dead_go(&mut self.hot);
        let next = self.lead.followers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if next.is_none() && self.step_out() {
            return;
        }
        let mut waiting = false;
        for warm in self.hot.links.iter() {
            waiting |= warm.peer.link.attention(Attention::Progress);
        }
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
