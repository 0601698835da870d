//! Which of a node's two waiters watches a worker's descriptor.
use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Attention, Seat, Source};
use crate::sys::timer::Timer;

/// The longest that a sleeper relies on being woken: with some devices a completion gets lost between looking and
/// sleeping.
const BOUND: Duration = Duration::from_millis(100);

/// Who looks at the links of one worker.
pub(super) struct Watch {
    efd: i32,
    timer: Timer,
    /// A seat of the node; the links' seats differ in their tokens only.
    seat: Seat,
    links: BTreeMap<u64, Option<Attention>>,
    /// The token under which each waiter watches the descriptor.
    leader: Option<u64>,
    progress: Option<u64>,
    /// The token under which the progress thread watches the timer.
    timed: Option<u64>,
}

impl Watch {
    pub(super) fn new(efd: i32, seat: &Seat) -> Result<Self> {
        let timer = Timer::every(BOUND).map_err(|e| {
            Error::new(Kind::OutOfMemory, format!("no timer: {e}; raise the limit of open files"))
        })?;
        Ok(Self {
            efd,
            timer,
            seat: seat.clone(),
            links: BTreeMap::new(),
            leader: None,
            progress: None,
            timed: None,
        })
    }

    /// Whose worker it is: one node has one progress thread.
    pub(super) fn node(&self) -> usize {
        node_of(&self.seat)
    }

    /// A link has come; nobody looks at it yet.
    pub(super) fn add(&mut self, token: u64) -> Result<()> {
        self.links.insert(token, None);
        self.apply()
    }

    pub(super) fn remove(&mut self, token: u64) {
        self.links.remove(&token);
        // Watching less cannot fail; what fails is watching for another link, which looks by itself.
        let _ = self.apply();
    }

    /// From now on `who` looks at that link. Whether somebody sleeps who must be woken.
    pub(super) fn attend(&mut self, token: u64, who: Attention) -> Result<bool> {
        if let Some(link) = self.links.get_mut(&token) {
            *link = Some(who);
        }
        self.apply()?;
        Ok(self.who() != Some(Attention::Polled))
    }

    /// Who looks at the worker: whoever polls one link polls for all.
    fn who(&self) -> Option<Attention> {
        let any = |who| self.links.values().any(|link| *link == Some(who));
        [Attention::Polled, Attention::Leader, Attention::Progress].into_iter().find(|who| any(*who))
    }

    fn apply(&mut self) -> Result<()> {
        let first = self.links.keys().next().copied();
        let known = |token: &Option<u64>| token.filter(|token| self.links.contains_key(token)).or(first);
        let (leader, progress) = match self.who() {
            Some(Attention::Leader) => (known(&self.leader), None),
            // The leader goes back to sleep soon: what watches for it may stay.
            Some(Attention::Polled) => (self.leader.and(known(&self.leader)), None),
            Some(Attention::Progress) => (None, known(&self.progress)),
            None => (None, None),
        };
        let timed = known(&self.timed);
        if self.leader != leader {
            match leader {
                Some(token) => self.seat.leader.watch_for(Source(self.efd), token, true, false)?,
                None => self.seat.leader.unwatch(Source(self.efd)),
            }
            self.leader = leader;
        }
        if self.progress != progress {
            match progress {
                Some(token) => self.seat.progress.watch_for(Source(self.efd), token, true, false)?,
                None => self.seat.progress.unwatch(Source(self.efd)),
            }
            self.progress = progress;
        }
        if self.timed != timed {
            match timed {
                Some(token) => self.seat.progress.watch_for(self.timer.source(), token, true, false)?,
                None => self.seat.progress.unwatch(self.timer.source()),
            }
            self.timed = timed;
        }
        Ok(())
    }

    /// The timer has done its part.
    pub(super) fn clear_timer(&self) {
        self.timer.clear();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.links.clear();
        let _ = self.apply();
    }
}

/// What is the same for all seats of a node.
pub(super) fn node_of(seat: &Seat) -> usize {
    std::sync::Arc::as_ptr(&seat.progress).addr()
}
