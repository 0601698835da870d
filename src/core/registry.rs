//! Job classes registered on this host, and how many replicas of each live.
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::error::{Error, Kind, Result};
use super::job::{Class, FragmentInfo, Replica};
use super::{buffer::Lease, fragment::Fragment};

/// A registered class.
pub(crate) struct Registered {
    class: Box<dyn Class>,
    live: Mutex<Live>,
    changed: Condvar,
}

struct Live {
    replicas: u64,
    /// It was taken back: no more are made.
    closed: bool,
}

/// A replica that is counted while it lives.
struct Counted {
    /// Dropped before the count goes down, so that `destroy` has returned by then.
    replica: Option<Box<dyn Replica>>,
    registered: Arc<Registered>,
}

impl Registered {
    pub(crate) fn new(class: Box<dyn Class>) -> Arc<Self> {
        let live = Mutex::new(Live { replicas: 0, closed: false });
        Arc::new(Self { class, live, changed: Condvar::new() })
    }

    /// What was registered.
    pub(crate) fn class(&self) -> &dyn Class {
        self.class.as_ref()
    }

    /// Makes a replica.
    pub(crate) fn create(self: &Arc<Self>, payload: &[u8]) -> Result<Box<dyn Replica>> {
        {
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            if live.closed {
                let text = "the class was unregistered before a replica was made";
                return Err(Error::new(Kind::NotRegistered, text));
            }
            live.replicas += 1;
        }
        let mut counted = Counted { replica: None, registered: Arc::clone(self) };
        counted.replica = Some(self.class.create(payload)?);
        Ok(Box::new(counted))
    }

    /// Makes no more replicas and waits until none lives; the number that still do at `deadline`.
    pub(crate) fn end(&self, deadline: Instant) -> u64 {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.closed = true;
        while live.replicas > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            live = match self.changed.wait_timeout(live, left) {
                Ok((live, _)) => live,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        live.replicas
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.replica = None;
        self.registered.live.lock().unwrap_or_else(PoisonError::into_inner).replicas -= 1;
        self.registered.changed.notify_all();
    }
}

impl Replica for Counted {
    fn execute(&self, info: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<Option<Lease>> {
        self.replica.as_ref().map_or(Ok(None), |replica| replica.execute(info, fragment))
    }
    fn execute_bytes(&self, info: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<()> {
        self.replica.as_ref().map_or(Ok(()), |replica| replica.execute_bytes(info, fragment))
    }
    fn cancel(&self) {
        if let Some(replica) = &self.replica {
            replica.cancel();
        }
    }
}
