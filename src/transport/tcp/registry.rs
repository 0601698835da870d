//! Where connections that belong to a session find who waits for them.
use std::collections::HashMap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::sys::Stream;
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{ChannelProof, Session};

/// A session and the number of one of its channels.
type Name = ([u8; 16], u32);

#[derive(Default)]
struct Registry {
    expected: Mutex<HashMap<Name, State>>,
    changed: Condvar,
}

enum State {
    /// Nobody came yet; until when one may.
    Waiting(Session, Instant),
    /// Somebody proved to be the one; nobody else can any more.
    Proven,
    /// Here it is.
    Arrived(Stream),
    /// It came, but could not be handed over.
    Broken,
}

fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::default);
    &REGISTRY
}

impl Registry {
    fn expected(&self) -> MutexGuard<'_, HashMap<Name, State>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells who waits what came of a proven connection.
    fn settle(&self, name: &Name, outcome: State) {
        // Replaced only: who waited may have given up.
        if let Some(state) = self.expected().get_mut(name) {
            *state = outcome;
        }
        self.changed.notify_all();
    }
}

/// One connection is waited for, until this is dropped.
pub(super) struct Expectation(Name);

impl Expectation {
    pub(super) fn new(session: &Session, channel: u32, deadline: Instant) -> Self {
        let name = (session.id, channel);
        registry().expected().insert(name, State::Waiting(session.clone(), deadline));
        Self(name)
    }

    /// Waits for it.
    pub(super) fn wait(self, address: &str, deadline: Instant) -> Result<Stream> {
        let registry = registry();
        let mut expected = registry.expected();
        loop {
            match expected.remove(&self.0) {
                Some(State::Arrived(stream)) => return Ok(stream),
                Some(State::Broken) | None => {
                    let text = format!("{address}: the data connection came, but could not be taken");
                    return Err(Error::new(Kind::OutOfMemory, text));
                }
                Some(waiting) => expected.insert(self.0, waiting),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(expected);
                let text = format!("{address}: the peer did not open its data connection in time");
                return Err(Error::new(Kind::TimedOut, text));
            }
            let waited = registry.changed.wait_timeout(expected, left);
            expected = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        let left = registry().expected().remove(&self.0);
        drop(left);
    }
}

/// A connection that proved to be one that is expected; who waits is told also when nothing comes of it.
pub(super) struct Proven {
    name: Name,
    /// What it is to be told.
    pub(super) answer: Vec<u8>,
    settled: bool,
}

/// Whether a proof is for a connection that is expected now; it counts once.
pub(super) fn check(proof: &ChannelProof, address: &str) -> Result<Proven> {
    let refused = |why: &str| Error::new(Kind::AuthFailed, format!("{address}: a data connection {why}"));
    let mut expected = registry().expected();
    let name = (proof.session(), DATA);
    let Some(State::Waiting(session, until)) = expected.get(&name) else {
        return Err(refused("that no session expects (any more)"));
    };
    if !proof.proves(session, DATA)? {
        return Err(refused("whose proof does not fit"));
    }
    if Instant::now() > *until {
        return Err(refused("that came too late"));
    }
    let answer = proof.answer(session, DATA)?.to_vec();
    expected.insert(name, State::Proven);
    Ok(Proven { name, answer, settled: false })
}

impl Proven {
    /// Gives the connection to who waits for it.
    pub(super) fn hand_over(mut self, stream: Stream) {
        self.settled = true;
        registry().settle(&self.name, State::Arrived(stream));
    }
}

impl Drop for Proven {
    fn drop(&mut self) {
        if !self.settled {
            registry().settle(&self.name, State::Broken);
        }
    }
}

/// The number of the data connection; 0 is the control connection.
pub(super) const DATA: u32 = 1;
