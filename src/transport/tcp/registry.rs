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
    /// Nobody came yet.
    Waiting(Session),
    /// Somebody proved to be the one; nobody else can any more.
    Proven,
    /// Here it is.
    Arrived(Stream),
}

fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::default);
    &REGISTRY
}

impl Registry {
    fn expected(&self) -> MutexGuard<'_, HashMap<Name, State>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection is waited for, until this is dropped.
pub(super) struct Expectation(Name);

impl Expectation {
    pub(super) fn new(session: &Session, channel: u32) -> Self {
        let name = (session.id, channel);
        registry().expected().insert(name, State::Waiting(session.clone()));
        Self(name)
    }

    /// Waits for it.
    pub(super) fn wait(self, address: &str, deadline: Instant) -> Result<Stream> {
        let registry = registry();
        let mut expected = registry.expected();
        loop {
            if let Some(State::Arrived(_)) = expected.get(&self.0)
                && let Some(State::Arrived(stream)) = expected.remove(&self.0)
            {
                return Ok(stream);
            }
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

/// A connection that proved to be one that is expected.
pub(super) struct Proven {
    name: Name,
    /// What it is to be told.
    pub(super) answer: Vec<u8>,
}

/// Whether a proof is for a connection that is expected now; it counts once.
pub(super) fn check(proof: &ChannelProof, address: &str) -> Result<Proven> {
    let refused = |why: &str| Error::new(Kind::AuthFailed, format!("{address}: a data connection {why}"));
    let mut expected = registry().expected();
    let name = (proof.session(), DATA);
    let Some(State::Waiting(session)) = expected.get(&name) else {
        return Err(refused("that no session expects (any more)"));
    };
    if !proof.proves(session, DATA)? {
        return Err(refused("whose proof does not fit"));
    }
    let answer = proof.answer(session, DATA)?.to_vec();
    expected.insert(name, State::Proven);
    Ok(Proven { name, answer })
}

impl Proven {
    /// Gives the connection to who waits for it.
    pub(super) fn hand_over(self, stream: Stream) {
        let registry = registry();
        if let Some(state) = registry.expected().get_mut(&self.name) {
            *state = State::Arrived(stream);
        }
        registry.changed.notify_all();
    }
}

/// The number of the data connection; 0 is the control connection.
pub(super) const DATA: u32 = 1;
