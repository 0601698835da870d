//! What a job has going on at one remote host.
use std::collections::VecDeque;
use std::sync::Arc;

use super::peer::Peer;
use super::run::State;

/// How far a host knows the job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opened {
    No,
    /// A thread is telling it.
    Now,
    Yes,
}

/// What a job has going on at one remote host.
pub(super) struct Share {
    pub(super) peer: Arc<Peer>,
    pub(super) in_flight: u64,
    pub(super) bytes: u64,
    pub(super) opened: Opened,
    /// It takes fragments of the job's class, as far as it told us.
    pub(super) able: bool,
    /// It said that it lacks the class.
    pub(super) lacks: bool,
    pub(super) dead: bool,
    /// Fragments meant for this host alone.
    pub(super) assigned: VecDeque<u64>,
}

impl Share {
    pub(super) fn new(peer: Arc<Peer>) -> Self {
        Self {
            peer,
            in_flight: 0,
            bytes: 0,
            opened: Opened::No,
            able: false,
            lacks: false,
            dead: false,
            assigned: VecDeque::new(),
        }
    }
}

/// The job's share at that host.
pub(super) fn share_of<'a>(state: &'a mut State, peer: &Arc<Peer>) -> Option<&'a mut Share> {
    state.shares.iter_mut().find(|share| Arc::ptr_eq(&share.peer, peer))
}
