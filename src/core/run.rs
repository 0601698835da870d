//! A job being run, on the requester: what is left to do, and who does it.
//!
//! Every step is taken by whoever is at hand: the thread inside execute, a deliverer, an executor. The state
//! says what is left; host code runs with no lock held. What concerns fragments on other hosts is in `flight`.
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::admission::{Caller, carry};
use super::buffer::Path;
use super::error::{Error, Kind, Result};
use super::flight::Flight;
use super::job::{FragmentInfo, Job, Mode, Spec, class_text, thread_id};
use super::memory::Span;
use super::node::Node;
use super::peer::Peer;
use super::scheduler::{Work, callback, depth};
use super::share::{Opened, Share};
use super::sleeper::Sleeper;
use super::stats::add;
use super::wire::frame::{Frame, Part};

/// Fragments that are given up at a time.
const GIVEN_UP: usize = 64;
/// Result memory that may be outstanding at one host, unless a single fragment needs more.
const BYTES_IN_FLIGHT: u64 = 256 << 20;

/// How often a fragment was tried.
#[derive(Default, Clone, Copy)]
pub(super) struct Tries {
    pub(super) attempt: u32,
    pub(super) failures: u32,
    /// The host that failed last: another is to try next.
    pub(super) failed_at: Option<u32>,
}

/// Something that the host is to be told.
pub(super) enum Arrival {
    Result { index: u64, attempt: u32, sequence: u32, part: Part, path: Path, size: u64 },
    Failed { index: u64, why: Error },
}

pub(super) struct State {
    /// `left` and who has what are decided: until then nobody takes a step, and nothing is over.
    pub(super) planned: bool,
    next: u64,
    pub(super) retry: VecDeque<u64>,
    pub(super) tries: HashMap<u64, Tries>,
    /// In mode CLUSTER those that are able come first.
    pub(super) shares: Vec<Share>,
    /// Fragments meant for this host alone.
    pub(super) assigned: VecDeque<u64>,
    /// Few at a time: as many as the hosts have credits. Boxed: the map's nodes would be large else, and made anew
    /// for each fragment when there is one at a time.
    pub(super) flights: BTreeMap<u64, Box<Flight>>,
    pub(super) ready: VecDeque<Arrival>,
    /// Fragments that run here.
    running: u64,
    /// Callbacks and copies under way.
    pub(super) calling: u64,
    /// Fragments that are not done.
    pub(super) left: u64,
    error: Option<Error>,
    pub(super) stop: Option<Error>,
    hosts_seen: u64,
    over: bool,
}

impl State {
    /// The next fragment of `count` that nobody has had yet.
    fn fresh(&mut self, count: u64) -> Option<u64> {
        let index = self.next;
        self.next += u64::from(index < count);
        (index < count).then_some(index)
    }
}

enum Action {
    Deliver(Arrival),
    HandOut { peer: Arc<Peer>, index: u64, attempt: u32, open: bool },
    Here { index: u64, attempt: u32 },
}

/// A job being run.
pub(crate) struct Run {
    pub(crate) id: u64,
    pub(super) node: Arc<Node>,
    pub(super) job: Box<dyn Job>,
    pub(super) spec: Spec,
    /// How deep it is nested in other jobs' callbacks.
    pub(super) depth: u32,
    pub(super) count: u64,
    pub(super) payload: Option<Span>,
    state: Mutex<State>,
    /// Counts what the owner should look at.
    signal: AtomicU64,
    owner: Option<Arc<Sleeper>>,
    /// The owner waits for, or is about to look for, something to do.
    attending: AtomicBool,
    /// A deliverer was asked to look and has not begun.
    asked: AtomicBool,
    /// Executors that were asked to run fragments here and have not begun.
    asked_here: AtomicU64,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(crate) deadline: Option<Instant>,
}

impl Run {
    /// A job that is about to start; `owner` is the thread that will drive it, if any.
    pub(crate) fn new(
        node: &Arc<Node>,
        id: u64,
        job: Box<dyn Job>,
        spec: Spec,
        count: u64,
        payload: Option<Span>,
        owner: Option<Arc<Sleeper>>,
    ) -> Arc<Self> {
        let deadline = spec.timeout.and_then(|t| Instant::now().checked_add(t));
        let state = State {
            planned: false,
            next: 0,
            retry: VecDeque::new(),
            tries: HashMap::new(),
            shares: Vec::new(),
            assigned: VecDeque::new(),
            flights: BTreeMap::new(),
            ready: VecDeque::new(),
            running: 0,
            calling: 0,
            left: 0,
            error: None,
            stop: None,
            hosts_seen: u64::MAX,
            over: false,
        };
        Arc::new(Self {
            id,
            node: Arc::clone(node),
            job,
            spec,
            depth: depth(),
            count,
            payload,
            state: Mutex::new(state),
            signal: AtomicU64::new(0),
            owner,
            attending: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            asked_here: AtomicU64::new(0),
            cancelled: Arc::new(AtomicBool::new(false)),
            deadline,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks executors to run fragments here.
    pub(super) fn spread(self: &Arc<Self>) {
        if !self.job.runs_here() {
            return;
        }
        let pool = if self.node.executors.strength() > 0 {
            &self.node.executors
        } else if self.owner.is_none() {
            &self.node.deliverers
        } else {
            return;
        };
        let open = self.open_here(&self.lock());
        let wanted = open.min(pool.strength() as u64);
        while self.asked_here.load(Ordering::Acquire) < wanted {
            self.asked_here.fetch_add(1, Ordering::AcqRel);
            pool.push(Work::Here(Arc::clone(self)), self.spec.priority);
        }
    }

    /// Fragments that this host could start now.
    fn open_here(&self, state: &State) -> u64 {
        let open = match self.spec.mode {
            Mode::Local | Mode::Cluster => {
                self.count.saturating_sub(state.next).saturating_add(state.retry.len() as u64)
            }
            Mode::OncePerHost | Mode::UserDefined => state.assigned.len() as u64,
        };
        match self.spec.thread_limit {
            0 => open,
            limit => open.min(limit.saturating_sub(state.running)),
        }
    }

    // ---- steps

    /// Drives a synchronous job to its end in the calling thread, its owner.
    pub(crate) fn drive(self: &Arc<Self>) -> Result<()> {
        loop {
            let seen = self.signal.load(Ordering::SeqCst);
            self.attending.store(true, Ordering::SeqCst);
            if let Some(action) = self.take(true) {
                self.attending.store(false, Ordering::SeqCst);
                self.perform(action);
                continue;
            }
            if self.lock().over {
                break;
            }
            let deadline = self.deadline.filter(|_| self.lock().stop.is_none());
            let mut news = || self.signal.load(Ordering::SeqCst) != seen;
            if !self.node.wait(deadline, &mut news) {
                self.time_out();
            }
        }
        self.attending.store(false, Ordering::SeqCst);
        self.result()
    }

    /// Takes steps until there is none; for deliverers.
    pub(crate) fn attend(self: &Arc<Self>) {
        self.asked.store(false, Ordering::SeqCst);
        while let Some(action) = self.take(false) {
            self.perform(action);
        }
    }

    /// Runs one fragment here; for executors.
    pub(crate) fn here(self: &Arc<Self>) {
        self.asked_here.fetch_sub(1, Ordering::AcqRel);
        let action = {
            let mut state = self.lock();
            if state.stop.is_some() || !state.planned { None } else { self.next_here(&mut state) }
        };
        if let Some(action) = action {
            self.perform(action);
            // The last step ends the job, also when its owner sleeps.
            self.close_if_over(&mut self.lock());
            self.spread();
        }
    }

    fn result(&self) -> Result<()> {
        let state = self.lock();
        match (&state.stop, &state.error) {
            (Some(stop), _) => Err(stop.clone()),
            (None, Some(why)) => Err(Error::new(Kind::FragmentFailed, why.text.clone())),
            (None, None) => Ok(()),
        }
    }

    /// The next thing to do, results first.
    fn take(self: &Arc<Self>, may_run: bool) -> Option<Action> {
        let mut state = self.lock();
        if !state.planned {
            return None;
        }
        if state.ready.is_empty() && state.stop.is_none() {
            let action = match self.next_away(&mut state) {
                None if may_run => self.next_here(&mut state),
                action => action,
            };
            if action.is_some() {
                return action;
            }
            self.give_up_if_stuck(&mut state);
        }
        if let Some(arrival) = state.ready.pop_front() {
            state.calling += 1;
            return Some(Action::Deliver(arrival));
        }
        self.close_if_over(&mut state);
        None
    }

    /// A fragment for a host that can take one more.
    fn next_away(&self, state: &mut State) -> Option<Action> {
        if self.spec.mode == Mode::Local || !self.job.goes_away() {
            return None;
        }
        self.see_hosts(state);
        let State { next, retry, tries, shares, calling, .. } = state;
        // Looked at only when something failed: it takes a look at every host.
        let alone = !retry.is_empty()
            && !self.job.runs_here()
            && shares.iter().filter(|share| self.is_able(share)).count() < 2;
        let all = self.spec.mode != Mode::Cluster;
        for share in shares.iter_mut().take_while(|share| all || share.able) {
            let full = share.in_flight >= self.credits(&share.peer) || share.bytes >= BYTES_IN_FLIGHT;
            if full || share.dead || share.opened == Opened::Now {
                continue;
            }
            let index = match self.spec.mode {
                Mode::Cluster if share.lacks => continue,
                Mode::Cluster => {
                    let host = share.peer.host_id;
                    let other = |index: &u64| {
                        alone || tries.get(index).is_none_or(|tries| tries.failed_at != Some(host))
                    };
                    retry.iter().position(other).and_then(|at| retry.remove(at)).or_else(|| {
                        let index = *next;
                        *next += u64::from(index < self.count);
                        (index < self.count).then_some(index)
                    })
                }
                _ => share.assigned.pop_front(),
            };
            let Some(index) = index else { continue };
            let open = share.opened == Opened::No;
            if open {
                share.opened = Opened::Now;
            }
            share.in_flight += 1;
            *calling += 1;
            let attempt = tries.get(&index).map_or(0, |t| t.attempt);
            return Some(Action::HandOut { peer: Arc::clone(&share.peer), index, attempt, open });
        }
        None
    }

    /// Fragments that a host may have at a time.
    fn credits(&self, peer: &Peer) -> u64 {
        let credits = u64::from(peer.credits);
        match (self.spec.mode, self.spec.thread_limit) {
            // A host that runs nothing for others is asked once, so that the fragment fails with a reason.
            (Mode::OncePerHost | Mode::UserDefined, _) => credits.max(1),
            (_, 0) => credits,
            (_, limit) => credits.min(limit.saturating_add(1)),
        }
    }

    /// A fragment to run here.
    fn next_here(self: &Arc<Self>, state: &mut State) -> Option<Action> {
        if !self.job.runs_here() || self.open_here(state) == 0 {
            return None;
        }
        let caller = || Caller::Run(Arc::downgrade(self));
        if !self.node.admission.admit(self.spec.load, caller) {
            return None;
        }
        let index = match self.spec.mode {
            Mode::Local | Mode::Cluster => state.retry.pop_front().or_else(|| state.fresh(self.count))?,
            Mode::OncePerHost | Mode::UserDefined => state.assigned.pop_front()?,
        };
        state.running += 1;
        let attempt = state.tries.get(&index).map_or(0, |t| t.attempt);
        Some(Action::Here { index, attempt })
    }

    /// Takes notice of hosts that joined and of classes that came and went.
    fn see_hosts(&self, state: &mut State) {
        let epoch = self.node.hosts_epoch();
        if self.spec.mode != Mode::Cluster || state.hosts_seen == epoch {
            return;
        }
        state.hosts_seen = epoch;
        for peer in self.node.peers_sorted() {
            if !state.shares.iter().any(|share| Arc::ptr_eq(&share.peer, &peer)) {
                state.shares.push(Share::new(peer));
            }
        }
        for share in &mut state.shares {
            share.able = share.peer.credits > 0 && share.peer.has_class(&self.spec.class);
        }
        // So that a fragment costs the same however many others are connected.
        state.shares.sort_by_key(|share| !share.able);
    }

    /// Whether a host can run fragments of a CLUSTER job.
    fn is_able(&self, share: &Share) -> bool {
        !share.dead && !share.lacks && share.peer.credits > 0 && share.peer.has_class(&self.spec.class)
    }

    /// With nobody left who could run them, the remaining fragments fail instead of waiting for ever.
    fn give_up_if_stuck(&self, state: &mut State) {
        if self.spec.mode != Mode::Cluster || self.job.runs_here() {
            return;
        }
        if state.shares.iter().any(|share| self.is_able(share)) {
            return;
        }
        let why = Error::new(
            Kind::NotRegistered,
            format!(
                "nobody can run this job: execute_fragment is NULL and none of the {} connected hosts runs class {}",
                state.shares.iter().filter(|s| !s.dead).count(),
                class_text(&self.spec.class)
            ),
        );
        // A few at a time: there may be more than memory could list.
        for _ in 0..GIVEN_UP {
            let Some(index) = state.retry.pop_front().or_else(|| state.fresh(self.count)) else {
                break;
            };
            state.ready.push_back(Arrival::Failed { index, why: why.clone() });
        }
    }

    /// Who calls this takes the next step, or closes the job if there is none.
    fn perform(self: &Arc<Self>, action: Action) {
        match action {
            Action::Deliver(Arrival::Result { index, attempt, sequence, part, path, size }) => {
                self.deliver(index, attempt, sequence, part, path, size);
            }
            Action::Deliver(Arrival::Failed { index, why }) => self.tell_failure(index, why),
            Action::HandOut { peer, index, attempt, open } => self.hand_out(&peer, index, attempt, open),
            Action::Here { index, attempt } => self.run_here(index, attempt),
        }
    }

    fn tell_failure(&self, index: u64, why: Error) {
        let counts = !self.spec.forgives(&why);
        if counts {
            callback(&self.node, self.depth, || self.job.failed(index, &why));
        }
        let mut state = self.lock();
        if counts {
            state.error.get_or_insert(why);
        }
        state.left = state.left.saturating_sub(1);
        state.calling -= 1;
    }

    fn run_here(self: &Arc<Self>, index: u64, attempt: u32) {
        let info = FragmentInfo {
            index,
            count: self.count,
            host_id: self.node.host_id(),
            attempt,
            thread_id: thread_id(),
            cancelled: Arc::clone(&self.cancelled),
        };
        let execute = || callback(&self.node, self.depth, || self.job.execute(&info));
        let result = carry(&self.node, self.spec.load, execute);
        add(&self.node.tally.fragments_local, 1);
        let failed = {
            let mut state = self.lock();
            state.running -= 1;
            match result {
                Err(why) if state.stop.is_none() => {
                    self.try_again(&mut state, index, false, why, true);
                    true
                }
                _ => {
                    state.left = state.left.saturating_sub(1);
                    false
                }
            }
        };
        if failed {
            self.notify();
        }
    }

    // ---- who looks

    /// Something is ready: somebody shall look.
    pub(crate) fn notify(self: &Arc<Self>) {
        self.signal.fetch_add(1, Ordering::SeqCst);
        if let Some(owner) = &self.owner
            && self.attending.load(Ordering::SeqCst)
        {
            self.wake(owner);
            return;
        }
        if !self.asked.swap(true, Ordering::SeqCst) {
            self.node.deliverers.push(Work::Attend(Arc::clone(self)), self.spec.priority);
        }
    }

    fn wake(&self, owner: &Arc<Sleeper>) {
        if !Arc::ptr_eq(owner, &Sleeper::current()) {
            owner.wake(self.node.lead.waiter());
        }
    }

    // ---- the end

    pub(super) fn close_if_over(self: &Arc<Self>, state: &mut State) {
        let busy = !state.planned
            || state.left > 0
            || state.calling > 0
            || state.running > 0
            || !state.ready.is_empty();
        if busy || state.over {
            return;
        }
        state.over = true;
        for share in state.shares.iter().filter(|s| !s.dead && s.opened == Opened::Yes) {
            share.peer.send(&Frame::JobClose { job: self.id });
        }
        self.node.forget_run(self.id);
        self.signal.fetch_add(1, Ordering::SeqCst);
        match &self.owner {
            Some(owner) => self.wake(owner),
            None => {
                let run = Arc::clone(self);
                let tell = move || callback(&run.node, run.depth, || run.job.finished(run.result()));
                self.node.deliverers.push(Work::Call(Box::new(tell)), self.spec.priority);
            }
        }
    }

    fn time_out(self: &Arc<Self>) {
        let limit = self.spec.timeout.unwrap_or_default();
        let left = self.lock().left;
        self.stop(Error::new(
            Kind::TimedOut,
            format!("the job was not done after {} ms: {left} fragments were left", limit.as_millis()),
        ));
    }

    /// Whether it was abandoned.
    pub(crate) fn is_stopped(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Stops the job if its time is over.
    pub(crate) fn check_deadline(self: &Arc<Self>, now: Instant) {
        if self.deadline.is_some_and(|d| now >= d) {
            self.time_out();
        }
    }

    /// Abandons the job: nothing more is started, what is under way is no longer wanted. False: it is over.
    pub(crate) fn stop(self: &Arc<Self>, why: Error) -> bool {
        {
            let mut state = self.lock();
            if state.stop.is_some() || state.over {
                return false;
            }
            state.stop = Some(why);
            state.calling += 1;
        }
        self.cancelled.store(true, Ordering::SeqCst);
        let run = Arc::clone(self);
        self.node.deliverers.push(Work::Call(Box::new(move || run.abandon())), 0);
        true
    }

    fn abandon(self: &Arc<Self>) {
        let opened = self.take_back_everything();
        for peer in opened {
            peer.send(&Frame::JobCancel { job: self.id });
        }
        callback(&self.node, self.depth, || self.job.cancel());
        let mut state = self.lock();
        state.calling -= 1;
        self.close_if_over(&mut state);
        drop(state);
        self.notify();
    }
}
