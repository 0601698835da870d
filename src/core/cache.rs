//! What a home keeps of each size class, shared by all threads.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::buffer::Carrier;
use super::sync::lock;

/// Periods (of a second) without use after which everything goes.
const QUIET: u32 = 30;

/// Buffers of one class at rest; the last one in is the first one out, the warmest.
#[derive(Default)]
pub(crate) struct Depot {
    /// So that nobody takes the lock to find nothing.
    len: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Arc<dyn Carrier>>,
    /// The fewest items since the last decay: what nobody needed.
    low: usize,
    quiet: u32,
    closed: bool,
}

impl Depot {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn changed(&self, state: &mut State) {
        state.quiet = 0;
        state.low = state.low.min(state.items.len());
        self.len.store(state.items.len(), Ordering::Relaxed);
    }

    /// How many there are, or were a moment ago.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Keeps one; gives it back when the depot is closed or already has `most`.
    pub(crate) fn push(&self, carrier: Arc<dyn Carrier>, most: usize) -> Option<Arc<dyn Carrier>> {
        let mut state = self.lock();
        if state.closed || state.items.len() >= most {
            return Some(carrier);
        }
        state.items.push_back(carrier);
        self.changed(&mut state);
        None
    }

    /// The one that came last.
    pub(crate) fn pop(&self) -> Option<Arc<dyn Carrier>> {
        if self.len() == 0 {
            return None;
        }
        let mut state = self.lock();
        let carrier = state.items.pop_back();
        self.changed(&mut state);
        carrier
    }

    /// The one that came first.
    pub(crate) fn pop_oldest(&self) -> Option<Arc<dyn Carrier>> {
        if self.len() == 0 {
            return None;
        }
        let mut state = self.lock();
        let carrier = state.items.pop_front();
        self.changed(&mut state);
        carrier
    }

    /// Once a second: takes half of what nobody needed since the last time, and everything after 30 seconds
    /// without use. The caller drops it.
    pub(crate) fn decay(&self) -> Vec<Arc<dyn Carrier>> {
        if self.len() == 0 {
            return Vec::new();
        }
        let mut state = self.lock();
        let quiet = state.quiet + 1;
        let count = if quiet >= QUIET { state.items.len() } else { state.low / 2 };
        let old: Vec<_> = state.items.drain(..count).collect();
        self.changed(&mut state);
        state.low = state.items.len();
        state.quiet = quiet;
        old
    }

    /// Takes everything and keeps nothing from now on. The caller drops it.
    pub(crate) fn close(&self) -> VecDeque<Arc<dyn Carrier>> {
        let mut state = self.lock();
        state.closed = true;
        let all = std::mem::take(&mut state.items);
        self.changed(&mut state);
        all
    }
}
