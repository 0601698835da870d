//! Which fragments a job has, and who may run them.
use std::sync::Arc;

use super::error::{Error, Kind, Result};
use super::job::Mode;
use super::peer::Peer;
use super::run::{Arrival, Run};
use super::scheduler::callback;
use super::share::Share;

/// Fragments that a job in mode USER_DEFINED may have: their hosts are kept in memory.
const MOST_ASSIGNED: u64 = 1 << 28;

impl Run {
    /// Decides which fragments there are and who may run them.
    pub(crate) fn plan(self: &Arc<Self>) -> Result<()> {
        let peers = self.node.peers_sorted();
        match self.spec.mode {
            Mode::Local if !self.job.runs_here() => {
                return Err(Error::invalid(
                    "a job in mode NRDMA_LOCAL needs execute_fragment, which is NULL",
                ));
            }
            Mode::Local | Mode::Cluster => self.lock().left = self.count,
            Mode::OncePerHost => self.plan_once(peers),
            Mode::UserDefined => self.plan_assigned(peers)?,
        }
        self.planned();
        self.spread();
        Ok(())
    }

    /// The job is known to the node since before it was planned: what has happened meanwhile.
    fn planned(self: &Arc<Self>) {
        let mut state = self.lock();
        state.planned = true;
        let stopped = state.stop.is_some();
        let gone: Vec<_> =
            state.shares.iter().map(|s| &s.peer).filter(|peer| !peer.is_alive()).map(Arc::clone).collect();
        drop(state);
        if stopped {
            self.take_back_everything();
        }
        // Whoever told of their loss may not have found them here. They have nothing yet.
        for peer in gone {
            self.lose(&peer, true);
        }
    }

    fn plan_once(&self, peers: Vec<Arc<Peer>>) {
        let mut state = self.lock();
        for (peer, index) in peers.into_iter().zip(0..self.count) {
            let mut share = Share::new(peer);
            share.assigned.push_back(index);
            state.left += 1;
            state.shares.push(share);
        }
    }

    fn plan_assigned(&self, peers: Vec<Arc<Peer>>) -> Result<()> {
        if self.count > MOST_ASSIGNED {
            let text = format!("{} fragments; NRDMA_USER_DEFINED has at most {MOST_ASSIGNED}", self.count);
            return Err(Error::new(Kind::OutOfMemory, text));
        }
        let mut slots = Vec::new();
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        slots.try_reserve_exact(count).map_err(|_| {
            Error::new(Kind::OutOfMemory, format!("no memory for the host ids of {count} fragments"))
        })?;
        slots.resize(count, 0_u32);
        callback(&self.node, self.depth, || self.job.assign_hosts(&mut slots))?;
        let mut state = self.lock();
        state.shares = peers.into_iter().map(Share::new).collect();
        for (index, host) in (0_u64..).zip(slots) {
            if host == 0 || host == self.node.host_id() {
                state.left += 1;
                if self.job.runs_here() {
                    state.assigned.push_back(index);
                } else {
                    let why =
                        format!("fragment {index} is assigned to this host, but execute_fragment is NULL");
                    state.ready.push_back(Arrival::Failed { index, why: Error::invalid(why) });
                }
            } else if let Some(share) = state.shares.iter_mut().find(|s| s.peer.host_id == host) {
                share.assigned.push_back(index);
                state.left += 1;
            }
        }
        Ok(())
    }
}
