//! Where the two halves of a session find each other.
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::link::Pair;
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Seat, Session};

/// How far a session's meeting is.
enum State {
    /// The connector can be found.
    Waiting(Seat),
    /// The listener came and left this.
    Found(Arc<Pair>),
}

fn registry() -> MutexGuard<'static, HashMap<[u8; 16], State>> {
    static REGISTRY: LazyLock<Mutex<HashMap<[u8; 16], State>>> = LazyLock::new(Mutex::default);
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connector that can be found as long as this lives.
pub(super) struct Waiting([u8; 16]);

pub(super) fn wait(session: &Session, seat: &Seat) -> Waiting {
    registry().insert(session.id, State::Waiting(seat.clone()));
    Waiting(session.id)
}

impl Waiting {
    /// What the listener left.
    pub(super) fn take(self) -> Result<Arc<Pair>> {
        match registry().remove(&self.0) {
            Some(State::Found(pair)) => Ok(pair),
            _ => Err(Error::protocol("the other node says that it found us, but nobody came")),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Dropped without the lock: a seat may be the last to hold its node.
        let left = registry().remove(&self.0);
        drop(left);
    }
}

/// The listener looks for its session's connector.
pub(super) fn find(session: &Session, seat: &Seat) -> Result<Arc<Pair>> {
    let mut registry = registry();
    let Some(State::Waiting(connector)) = registry.get(&session.id) else {
        return Err(Error::new(Kind::Unreachable, "the other node is not in this process"));
    };
    let pair = Arc::new(Pair::new(connector.clone(), seat.clone())?);
    let waited = registry.insert(session.id, State::Found(Arc::clone(&pair)));
    drop(registry);
    drop(waited);
    Ok(pair)
}
