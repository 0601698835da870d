//! Where the two halves of a session find each other.
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::link::Pair;
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Seat, Session};

#[derive(Default)]
struct Registry {
    meetings: Mutex<HashMap<[u8; 16], Meeting>>,
    changed: Condvar,
}

enum Meeting {
    /// One half came first; whether it is the connector, and its seat.
    Waiting(bool, Seat),
    /// The second half came and left this for the first.
    Met(Arc<Pair>),
}

fn registry() -> &'static Registry {
    static REGISTRY: std::sync::LazyLock<Registry> = std::sync::LazyLock::new(Registry::default);
    &REGISTRY
}

impl Registry {
    fn meetings(&self) -> MutexGuard<'_, HashMap<[u8; 16], Meeting>> {
        self.meetings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the other half, until the deadline.
pub(super) fn meet(session: &Session, seat: &Seat, address: &str, deadline: Instant) -> Result<Arc<Pair>> {
    let registry = registry();
    let mut meetings = registry.meetings();
    if let Some(Meeting::Waiting(connector, other)) = meetings.get(&session.id) {
        if *connector == session.connector {
            return Err(Error::protocol(format!("{address}: both halves of a session are the same end")));
        }
        let pair = Arc::new(match session.connector {
            true => Pair::new(seat.clone(), other.clone())?,
            false => Pair::new(other.clone(), seat.clone())?,
        });
        meetings.insert(session.id, Meeting::Met(Arc::clone(&pair)));
        registry.changed.notify_all();
        return Ok(pair);
    }
    meetings.insert(session.id, Meeting::Waiting(session.connector, seat.clone()));
    loop {
        if let Some(Meeting::Met(_)) = meetings.get(&session.id)
            && let Some(Meeting::Met(pair)) = meetings.remove(&session.id)
        {
            return Ok(pair);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            meetings.remove(&session.id);
            let text = format!("{address}: the other node in this process did not attach in time");
            return Err(Error::new(Kind::TimedOut, text));
        }
        let waited = registry.changed.wait_timeout(meetings, left);
        meetings = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}
