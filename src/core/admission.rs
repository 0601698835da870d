//! How many fragments a host runs at once: the sum of their loads fits its processors.
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::node::Node;
use super::remote::Remote;
use super::run::Run;

/// One processor, or one GPU.
pub(crate) const WHOLE: u32 = 1000;
/// After so long without a fragment's end, one more is let in: those inside may wait for it.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a fragment takes of its host, in thousandths of a processor and of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    pub(crate) cpu: u32,
    pub(crate) gpu: u32,
}

impl Load {
    /// Whether there is nothing to count.
    pub(crate) fn is_none(self) -> bool {
        self.cpu == 0 && self.gpu == 0
    }
}

/// Who waits to be let in.
#[derive(Clone)]
pub(crate) enum Caller {
    /// A job of our own.
    Run(Weak<Run>),
    /// Another host's.
    Remote(Weak<Remote>),
}

impl Caller {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Run(a), Self::Run(b)) => Weak::ptr_eq(a, b),
            (Self::Remote(a), Self::Remote(b)) => Weak::ptr_eq(a, b),
            _ => false,
        }
    }

    fn call(self) {
        match self {
            Self::Run(run) => {
                if let Some(run) = run.upgrade() {
                    run.spread();
                    run.notify();
                }
            }
            Self::Remote(remote) => {
                if let Some(remote) = remote.upgrade() {
                    remote.proceed();
                }
            }
        }
    }
}

struct State {
    cpu: u64,
    gpu: u64,
    waiting: VecDeque<Caller>,
    moved: Instant,
    /// May be let in although there is no room.
    extra: bool,
}

/// The sums of the loads inside, and who waits outside.
pub(crate) struct Admission {
    cpus: u64,
    gpus: u64,
    state: Mutex<State>,
}

impl Admission {
    /// For a host of so many processors. One GPU is assumed where none is known: their fragments take turns.
    pub(crate) fn new(cpus: usize) -> Self {
        let state = State { cpu: 0, gpu: 0, waiting: VecDeque::new(), moved: Instant::now(), extra: false };
        Self {
            cpus: (cpus as u64).saturating_mul(u64::from(WHOLE)),
            gpus: u64::from(WHOLE),
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a fragment in, or notes down who asked: it is called when there may be room. A fragment that needs
    /// more than there is runs alone.
    pub(crate) fn admit(&self, load: Load, caller: impl FnOnce() -> Caller) -> bool {
        if load.is_none() {
            return true;
        }
        let mut state = self.lock();
        let (cpu, gpu) = (u64::from(load.cpu), u64::from(load.gpu));
        let empty = state.cpu == 0 && state.gpu == 0;
        let fits = state.cpu + cpu <= self.cpus && state.gpu + gpu <= self.gpus;
        let extra = std::mem::take(&mut state.extra);
        if extra || (state.waiting.is_empty() && (empty || fits)) {
            state.cpu += cpu;
            state.gpu += gpu;
            return true;
        }
        let caller = caller();
        if !state.waiting.iter().any(|other| other.is(&caller)) {
            state.waiting.push_back(caller);
        }
        false
    }

    /// Counts a fragment that goes on after it had stepped out.
    fn readmit(&self, load: Load) {
        if load.is_none() {
            return;
        }
        let mut state = self.lock();
        state.cpu += u64::from(load.cpu);
        state.gpu += u64::from(load.gpu);
    }

    /// A fragment has ended or stepped out. Not with locks held: those who wait are called.
    pub(crate) fn leave(&self, load: Load) {
        if load.is_none() {
            return;
        }
        let mut state = self.lock();
        state.cpu = state.cpu.saturating_sub(u64::from(load.cpu));
        state.gpu = state.gpu.saturating_sub(u64::from(load.gpu));
        state.moved = Instant::now();
        state.extra = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Caller::call);
    }

    /// Lets one in when nothing has moved for long: fragments may wait for each other in ways that cannot be
    /// seen from here. For the progress thread.
    pub(crate) fn relieve(&self) {
        let mut state = self.lock();
        if state.waiting.is_empty() || state.moved.elapsed() < PATIENCE {
            return;
        }
        state.moved = Instant::now();
        state.extra = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Caller::call);
    }

    /// How soon [`Admission::relieve`] is wanted.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let state = self.lock();
        (!state.waiting.is_empty()).then(|| PATIENCE.saturating_sub(state.moved.elapsed()))
    }
}

thread_local! {
    /// The loads of the fragments that this thread runs, innermost last.
    static HELD: RefCell<Vec<(u64, Load)>> = const { RefCell::new(Vec::new()) };
}

/// Runs a fragment that was let in with this load, and lets it out.
pub(crate) fn carry<R>(node: &Arc<Node>, load: Load, body: impl FnOnce() -> R) -> R {
    struct Leave<'a>(&'a Arc<Node>, Load);
    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| held.borrow_mut().pop());
            self.0.admission.leave(self.1);
        }
    }
    if load.is_none() {
        return body();
    }
    let _ = HELD.try_with(|held| held.borrow_mut().push((node.instance(), load)));
    let _leave = Leave(node, load);
    body()
}

/// The load of the fragment that the calling thread runs on that node.
fn held(node: &Node) -> Load {
    let last = HELD.try_with(|held| held.borrow().last().copied()).ok().flatten();
    last.filter(|(instance, _)| *instance == node.instance()).map_or_else(Load::default, |(_, load)| load)
}

/// From now on the calling thread's fragment does not count, until [`step_in`]; its load.
pub(crate) fn step_out(node: &Node) -> Load {
    let load = held(node);
    let _ = HELD.try_with(|held| held.borrow_mut().push((node.instance(), Load::default())));
    node.admission.leave(load);
    load
}

/// The fragment counts again.
pub(crate) fn step_in(node: &Node, load: Load) {
    let _ = HELD.try_with(|held| held.borrow_mut().pop());
    node.admission.readmit(load);
}

/// While `body` waits for others, the calling thread's fragment does not count.
pub(crate) fn aside<R>(node: &Node, body: impl FnOnce() -> R) -> R {
    struct Back<'a>(&'a Node, Load);
    impl Drop for Back<'_> {
        fn drop(&mut self) {
            step_in(self.0, self.1);
        }
    }
    let _back = Back(node, step_out(node));
    body()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(cpu: u32, gpu: u32) -> Load {
        Load { cpu, gpu }
    }
    fn nobody() -> Caller {
        Caller::Run(Weak::new())
    }

    #[test]
    fn the_sum_fits_and_a_giant_runs_alone() {
        let admission = Admission::new(2);
        assert!(admission.admit(load(1000, 0), nobody));
        assert!(admission.admit(load(1000, 0), nobody));
        assert!(!admission.admit(load(1, 0), nobody));
        assert!(admission.admit(load(0, 0), nobody));
        admission.leave(load(1000, 0));
        admission.leave(load(1000, 0));
        assert!(admission.admit(load(9000, 0), nobody));
        assert!(!admission.admit(load(1, 0), nobody));
        admission.leave(load(9000, 0));
        assert!(admission.admit(load(0, 1000), nobody));
        assert!(!admission.admit(load(0, 1), nobody));
    }

    #[test]
    fn who_waits_is_not_overtaken() {
        let admission = Admission::new(2);
        assert!(admission.admit(load(1000, 0), nobody));
        assert!(!admission.admit(load(2000, 0), nobody));
        assert!(!admission.admit(load(1000, 0), nobody), "there is room, but another was first");
        admission.leave(load(1000, 0));
        assert!(admission.admit(load(2000, 0), nobody));
    }

    #[test]
    fn after_a_while_without_an_end_one_more_is_let_in() {
        let admission = Admission::new(1);
        assert!(admission.admit(load(1000, 0), nobody));
        assert!(!admission.admit(load(1000, 0), nobody));
        admission.relieve();
        assert!(!admission.admit(load(1000, 0), nobody), "too early");
        std::thread::sleep(PATIENCE);
        admission.relieve();
        assert!(admission.admit(load(1000, 0), nobody));
        assert!(!admission.admit(load(1000, 0), nobody));
    }
}
