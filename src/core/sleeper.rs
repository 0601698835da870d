//! One thread's way to sleep: parked, or as the leader on the node's waiter.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use super::transport::Waiter;

const AWAKE: u32 = 0;
const PARKED: u32 = 1;
const LEADING: u32 = 2;

/// A thread that others may wake, wherever it sleeps. A wake before the sleep is not lost.
pub(crate) struct Sleeper {
    thread: Thread,
    state: AtomicU32,
    pending: AtomicBool,
}

thread_local! {
    static ME: Arc<Sleeper> = Arc::new(Sleeper {
        thread: thread::current(),
        state: AtomicU32::new(AWAKE),
        pending: AtomicBool::new(false),
    });
}

impl Sleeper {
    /// The calling thread's.
    pub(crate) fn current() -> Arc<Self> {
        // A thread that is past its thread-local destructors gets a sleeper of its own.
        ME.try_with(Arc::clone).unwrap_or_else(|_| {
            Arc::new(Self {
                thread: thread::current(),
                state: AtomicU32::new(AWAKE),
                pending: AtomicBool::new(false),
            })
        })
    }

    /// Wakes the thread; `waiter` is where it sleeps if it leads.
    pub(crate) fn wake(&self, waiter: &dyn Waiter) {
        if self.pending.swap(true, Ordering::SeqCst) {
            return;
        }
        match self.state.load(Ordering::SeqCst) {
            PARKED => self.thread.unpark(),
            LEADING => waiter.wake(),
            _ => {}
        }
    }

    /// Takes a wake that has come already.
    pub(crate) fn take_wake(&self) -> bool {
        self.pending.swap(false, Ordering::SeqCst)
    }

    /// Parks until woken or `timeout`; may return early. Only for the thread itself.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        self.state.store(PARKED, Ordering::SeqCst);
        if !self.pending.load(Ordering::SeqCst) {
            match timeout {
                Some(timeout) => thread::park_timeout(timeout),
                None => thread::park(),
            }
        }
        self.state.store(AWAKE, Ordering::SeqCst);
        self.take_wake();
    }

    /// Sleeps on the leader's waiter; tokens of what became ready are appended.
    pub(crate) fn lead(&self, waiter: &dyn Waiter, timeout: Option<Duration>, ready: &mut Vec<u64>) {
        self.state.store(LEADING, Ordering::SeqCst);
        if !self.pending.load(Ordering::SeqCst) {
            waiter.wait(timeout, ready);
        }
        self.state.store(AWAKE, Ordering::SeqCst);
        self.take_wake();
    }
}
