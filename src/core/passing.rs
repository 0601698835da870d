//! Connections on their way to become peers, which end with their node: whoever waits for the other end's word is
//! woken, and the threads are waited for.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::transport::{Breaker, Control};

/// How often it is looked whether a thread has ended, at a shutdown.
const STEP: Duration = Duration::from_millis(1);

/// All of a node's.
#[derive(Default)]
pub(super) struct Passing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: bool,
    next: u64,
    breakers: Vec<(u64, Arc<dyn Breaker>)>,
    threads: Vec<JoinHandle<()>>,
}

/// One of them, as long as it talks over its control channel.
pub(super) struct Passage<'a> {
    passing: &'a Passing,
    number: u64,
}

impl Passing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on the end of the node is the end of the channel.
    pub(super) fn enter(&self, control: &dyn Control) -> Passage<'_> {
        let breaker = control.breaker();
        let mut state = self.lock();
        if state.ended {
            breaker.cut();
        }
        state.next += 1;
        let number = state.next;
        state.breakers.push((number, breaker));
        Passage { passing: self, number }
    }

    /// Keeps a thread, to wait for its end.
    pub(super) fn keep(&self, thread: JoinHandle<()>) {
        let mut state = self.lock();
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(thread);
    }

    /// Hangs up on all, also on those that are yet to come.
    pub(super) fn cut(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.breakers.iter().for_each(|(_, breaker)| breaker.cut());
    }

    /// Waits for the threads; how many are left at `deadline`.
    pub(super) fn join(&self, deadline: Instant) -> usize {
        loop {
            let threads = std::mem::take(&mut self.lock().threads);
            let (ended, left): (Vec<_>, Vec<_>) = threads.into_iter().partition(JoinHandle::is_finished);
            // A panic there was caught and logged.
            ended.into_iter().for_each(|thread| drop(thread.join()));
            let count = left.len();
            self.lock().threads.extend(left);
            if count == 0 || Instant::now() >= deadline {
                return count;
            }
            std::thread::sleep(STEP);
        }
    }

    /// Threads that live.
    pub(super) fn threads(&self) -> usize {
        self.lock().threads.iter().filter(|thread| !thread.is_finished()).count()
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let mut state = self.passing.lock();
        state.breakers.retain(|(number, _)| *number != self.number);
    }
}
