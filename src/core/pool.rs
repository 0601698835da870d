//! A pool of threads that keeps its strength: a thread that blocks inside nrdma is replaced by a spare.
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Memory};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{Error, Kind, Result};
use super::sleeper::Sleeper;
use super::transport::Waiter;

/// Threads of one pool that may wait inside nrdma at the same time.
const DEEPEST: usize = 256;
/// What one step of priority is worth: so much waiting makes up for it, and nothing starves.
const STEP: Duration = Duration::from_millis(20);

/// A piece of work with its place in the queue.
struct Queued<W> {
    due: i64,
    order: u64,
    work: W,
}
impl<W> PartialEq for Queued<W> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl<W> Eq for Queued<W> {}
impl<W> PartialOrd for Queued<W> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<W> Ord for Queued<W> {
    /// The heap's greatest is the one that is due first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

struct State<W> {
    queue: BinaryHeap<Queued<W>>,
    pushed: u64,
    asleep: Vec<Arc<Sleeper>>,
    /// Threads that are awake and will look at the queue before they sleep.
    looking: usize,
    /// Threads that run work and are not blocked.
    working: usize,
    blocked: usize,
    total: usize,
    /// Blocked threads that wait for a place: they come before what is queued.
    returning: usize,
    /// Threads that wait for `changed` because of the two above.
    watching: usize,
    popped: u64,
}

/// What a thread of the pool does next.
pub(crate) enum Turn<W> {
    /// Run this.
    Work(W),
    /// Nothing to run.
    Idle,
    /// End.
    Leave,
}

type Start = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// The queue and its threads. `start` makes one more thread.
pub(crate) struct Pool<W> {
    strength: usize,
    waiter: Arc<dyn Waiter>,
    started: Instant,
    start: Start,
    state: Mutex<State<W>>,
    changed: Condvar,
    open: AtomicUsize,
    stopping: AtomicBool,
}

impl<W> Pool<W> {
    /// A pool in which at most `strength` threads run work at a time. Threads are made when first needed.
    pub(crate) fn new(strength: usize, waiter: Arc<dyn Waiter>, start: Start) -> Self {
        Self {
            strength,
            waiter,
            started: Instant::now(),
            start,
            state: Mutex::new(State {
                queue: BinaryHeap::new(),
                pushed: 0,
                asleep: Vec::new(),
                looking: 0,
                working: 0,
                blocked: 0,
                total: 0,
                returning: 0,
                watching: 0,
                popped: 0,
            }),
            changed: Condvar::new(),
            open: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// How many threads run work at a time.
    pub(crate) fn strength(&self) -> usize {
        self.strength
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds work; a lower priority runs first, within one priority the older.
    pub(crate) fn push(&self, work: W, priority: i32) {
        let step = i64::try_from(STEP.as_micros()).unwrap_or_default();
        let now = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let mut state = self.lock();
        let order = state.pushed;
        state.pushed += 1;
        let due = now.saturating_add(i64::from(priority).saturating_mul(step));
        state.queue.push(Queued { due, order, work });
        self.fill(&mut state);
    }

    /// Whether an idle thread would find something to run; costs no lock.
    pub(crate) fn has_work(&self) -> bool {
        self.open.load(Memory::SeqCst) > 0
    }

    /// Places for work from the queue.
    fn free(&self, state: &State<W>) -> usize {
        self.strength.saturating_sub(state.working + state.returning)
    }

    /// What an idle thread could start now.
    fn note_open(&self, state: &State<W>) -> usize {
        let open = state.queue.len().min(self.free(state));
        self.open.store(open, Memory::SeqCst);
        open
    }

    /// Makes sure that enough threads look at the queue.
    fn fill(&self, state: &mut State<W>) {
        let wanted = self.note_open(state);
        while state.looking < wanted {
            if let Some(sleeper) = state.asleep.pop() {
                sleeper.wake(self.waiter.as_ref());
            } else if state.total < self.strength + DEEPEST && (self.start)().is_ok() {
                state.total += 1;
            } else {
                break;
            }
            state.looking += 1;
        }
    }

    /// Tries again to have enough threads, should the system have refused one.
    pub(crate) fn revive(&self) {
        if self.has_work() {
            self.fill(&mut self.lock());
        }
    }

    /// Makes one thread even though there is no work, so that somebody can lead.
    pub(crate) fn warm_up(&self) {
        let mut state = self.lock();
        if self.strength > 0 && state.total == 0 && (self.start)().is_ok() {
            state.total += 1;
            state.looking += 1;
        }
    }

    /// The calling thread of the pool asks what to do; `finished`: it has just run work.
    pub(crate) fn turn(&self, finished: bool) -> Turn<W> {
        let mut state = self.lock();
        if finished {
            state.working -= 1;
            state.looking += 1;
            self.tell_watchers(&state);
        }
        if self.free(&state) > 0
            && let Some(queued) = state.queue.pop()
        {
            state.looking -= 1;
            state.working += 1;
            state.popped += 1;
            self.tell_watchers(&state);
            self.note_open(&state);
            return Turn::Work(queued.work);
        }
        self.note_open(&state);
        if self.is_stopping() && state.queue.is_empty() {
            self.leave(&mut state);
            return Turn::Leave;
        }
        Turn::Idle
    }

    fn leave(&self, state: &mut State<W>) {
        state.looking -= 1;
        state.total -= 1;
        self.changed.notify_all();
    }

    /// Before an idle thread sleeps. False: do not sleep, there is something to do.
    pub(crate) fn fall_asleep(&self, me: &Arc<Sleeper>) -> bool {
        let mut state = self.lock();
        if self.is_stopping() || (!state.queue.is_empty() && self.free(&state) > 0) {
            return false;
        }
        state.looking -= 1;
        state.asleep.push(Arc::clone(me));
        true
    }

    /// After an idle thread slept, whoever woke it.
    pub(crate) fn wake_up(&self, me: &Arc<Sleeper>) {
        let mut state = self.lock();
        let before = state.asleep.len();
        state.asleep.retain(|other| !Arc::ptr_eq(other, me));
        if state.asleep.len() < before {
            state.looking += 1;
        }
    }

    /// Whether the calling idle thread is one too many and shall end now.
    pub(crate) fn dismiss(&self) -> bool {
        let mut state = self.lock();
        if state.total <= self.strength.max(1) || !state.queue.is_empty() {
            return false;
        }
        self.leave(&mut state);
        true
    }

    /// Refuses a call that may wait when so many already do that no spare could take the thread's place.
    pub(crate) fn check_depth(&self) -> Result<()> {
        if self.lock().blocked < DEEPEST {
            return Ok(());
        }
        Err(Error::new(
            Kind::OutOfMemory,
            format!("{DEEPEST} threads of this node already wait inside nrdma; nest jobs less deeply"),
        ))
    }

    /// A thread of the pool is about to wait inside nrdma: a spare may take its place.
    pub(crate) fn block(&self) {
        let mut state = self.lock();
        state.blocked += 1;
        state.working -= 1;
        self.tell_watchers(&state);
        self.fill(&mut state);
    }

    fn tell_watchers(&self, state: &State<W>) {
        if state.watching > 0 {
            self.changed.notify_all();
        }
    }

    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State<W>>, limit: Duration) -> MutexGuard<'a, State<W>> {
        state.watching += 1;
        let mut state = match self.changed.wait_timeout(state, limit) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
        state.watching -= 1;
        state
    }

    /// As [`Pool::unblock`], but waits until fewer threads work than the pool is strong.
    pub(crate) fn unblock_in_turn(&self) {
        let mut state = self.lock();
        state.returning += 1;
        while state.working >= self.strength && !self.is_stopping() {
            state = self.watch(state, Duration::from_secs(1));
        }
        state.returning -= 1;
        state.blocked -= 1;
        state.working += 1;
        self.note_open(&state);
    }

    /// The calling thread, which works, lets one piece of queued work begin before it goes on.
    pub(crate) fn give_way(&self) {
        let mut state = self.lock();
        if state.queue.is_empty() {
            return;
        }
        let before = state.popped;
        state.blocked += 1;
        state.working -= 1;
        self.fill(&mut state);
        let limit = Instant::now() + STEP;
        while state.popped == before && !state.queue.is_empty() {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.watch(state, left);
        }
        drop(state);
        self.unblock_in_turn();
    }

    /// It goes on.
    pub(crate) fn unblock(&self) {
        let mut state = self.lock();
        state.blocked -= 1;
        state.working += 1;
        self.note_open(&state);
    }

    /// Whether more threads exist than the pool's strength.
    pub(crate) fn has_spares(&self) -> bool {
        self.lock().total > self.strength.max(1)
    }

    /// Whether [`Pool::stop`] was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Memory::SeqCst)
    }

    /// Lets the threads end once the queue is empty.
    pub(crate) fn stop(&self) {
        let state = self.lock();
        self.stopping.store(true, Memory::SeqCst);
        for sleeper in &state.asleep {
            sleeper.wake(self.waiter.as_ref());
        }
    }

    /// Waits until all threads have ended; the number of those that have not at `deadline`.
    pub(crate) fn join(&self, deadline: Instant) -> usize {
        let mut state = self.lock();
        while state.total > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                break;
            };
            state = match self.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        state.total
    }

    /// Forgets work that nobody is left to run.
    pub(crate) fn clear(&self) {
        let queue = std::mem::take(&mut self.lock().queue);
        drop(queue);
    }

    /// Threads that exist.
    pub(crate) fn threads(&self) -> usize {
        self.lock().total
    }

    /// Threads that run work or wait inside it.
    pub(crate) fn busy(&self) -> usize {
        let state = self.lock();
        state.working + state.blocked
    }
}
