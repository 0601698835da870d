//! A job of another host, as this host sees it: its one replica and the fragments that wait for it.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::admission::{Caller, Load, carry};
use super::error::{Error, Kind, Result};
use super::fragment::Fragment;
use super::job::{FragmentInfo, Replica, class_text, thread_id};
use super::peer::Peer;
use super::registry::Registered;
use super::scheduler::{Work, callback};
use super::transport::{Chunk, Place};
use super::wire::frame::{Frame, Target, Uuid};

/// The largest payload.
const LARGEST_PAYLOAD: u64 = 256 << 20;
/// Fragments of one job that may wait here: a requester that keeps to its credits needs far fewer.
const MOST_WAITING: usize = 4096;

/// One fragment to run.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    pub(crate) place: Place,
    pub(crate) target: Target,
}

/// How far the replica is.
enum Phase {
    /// Its payload is on its way.
    Arriving,
    /// An executor makes it.
    Creating,
    Live(Arc<dyn Replica>),
    /// It could not be made.
    Failed(Error),
    /// It is gone.
    Ended,
}

struct State {
    phase: Phase,
    payload: Vec<u8>,
    received: u64,
    waiting: VecDeque<Order>,
    /// Fragments handed to executors.
    running: u64,
    closing: bool,
}

/// A job of another host.
pub(crate) struct Remote {
    pub(crate) peer: Arc<Peer>,
    class: Uuid,
    /// None when the class is not registered here.
    registered: Option<Arc<Registered>>,
    count: u64,
    limit: u64,
    priority: i32,
    depth: u32,
    load: Load,
    size: u64,
    cancelled: Arc<AtomicBool>,
    state: Mutex<State>,
}

/// What `JobOpen` said.
pub(crate) struct Opening {
    pub(crate) class: Uuid,
    pub(crate) count: u64,
    pub(crate) payload: u64,
    pub(crate) thread_limit: u64,
    pub(crate) priority: i32,
    pub(crate) depth: u32,
    pub(crate) load: Load,
}

impl Remote {
    /// A job that the peer opened; its replica is made as soon as the payload is here.
    pub(crate) fn open(peer: &Arc<Peer>, opening: &Opening) -> Result<Arc<Self>> {
        if opening.payload > LARGEST_PAYLOAD {
            return Err(Error::protocol(format!(
                "host {} opened a job with a payload of {} bytes; at most {LARGEST_PAYLOAD} are allowed",
                peer.host_id, opening.payload
            )));
        }
        let remote = Arc::new(Self {
            peer: Arc::clone(peer),
            class: opening.class,
            registered: peer.node.class(&opening.class),
            count: opening.count,
            limit: opening.thread_limit,
            priority: opening.priority.max(0),
            depth: opening.depth,
            load: opening.load,
            size: opening.payload,
            cancelled: Arc::new(AtomicBool::new(false)),
            state: Mutex::new(State {
                phase: Phase::Arriving,
                payload: Vec::new(),
                received: 0,
                waiting: VecDeque::new(),
                running: 0,
                closing: false,
            }),
        });
        if peer.node.executors.strength() == 0 {
            let text = format!("host {} runs nothing for others", peer.node.host_id());
            remote.lock().phase = Phase::Failed(Error::new(Kind::NotRegistered, text));
        }
        remote.create_if_complete(&mut remote.lock());
        Ok(remote)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the requester no longer wants the job's results.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// A piece of the payload.
    pub(crate) fn on_payload(self: &Arc<Self>, offset: u64, chunk: &Chunk) -> Result<()> {
        let mut state = self.lock();
        let len = chunk.span.len as u64;
        let end = offset.checked_add(len).filter(|end| *end <= self.size);
        let range = end.and_then(|end| Some((usize::try_from(offset).ok()?, usize::try_from(end).ok()?)));
        let Some((at, end)) = range else {
            return Err(Error::protocol(format!(
                "host {} sent {len} bytes at offset {offset} of a payload of {} bytes",
                self.peer.host_id, self.size
            )));
        };
        if state.payload.len() < end {
            let more = end - state.payload.len();
            state.payload.try_reserve(more).map_err(|_| {
                Error::new(Kind::OutOfMemory, format!("no memory for a payload of {} bytes", self.size))
            })?;
            state.payload.resize(end, 0);
        }
        if let Some(room) = state.payload.get_mut(at..end) {
            chunk.span.block.read(chunk.span.offset, room)?;
        }
        state.received += len;
        self.create_if_complete(&mut state);
        Ok(())
    }

    fn create_if_complete(self: &Arc<Self>, state: &mut State) {
        if matches!(state.phase, Phase::Arriving) && state.received >= self.size && !state.closing {
            state.phase = Phase::Creating;
            self.peer.node.executors.push(Work::Create(Arc::clone(self)), self.priority);
        }
    }

    /// A fragment arrived.
    pub(crate) fn add(self: &Arc<Self>, order: Order) {
        let mut state = self.lock();
        if state.waiting.len() >= MOST_WAITING {
            let text = format!("{MOST_WAITING} fragments of this job already wait here");
            return self.refuse(&order, &Error::new(Kind::OutOfMemory, text));
        }
        state.waiting.push_back(order);
        self.schedule(&mut state);
    }

    /// There may be room for more fragments.
    pub(crate) fn proceed(self: &Arc<Self>) {
        self.schedule(&mut self.lock());
    }

    /// Hands waiting fragments to executors, as many as the job's limit and the host's load allow.
    fn schedule(self: &Arc<Self>, state: &mut State) {
        if let Phase::Failed(error) = &state.phase {
            for order in state.waiting.drain(..) {
                self.refuse(&order, error);
            }
        }
        if !matches!(state.phase, Phase::Live(_)) {
            return;
        }
        let limit = if self.limit == 0 { MOST_WAITING as u64 } else { self.limit.min(MOST_WAITING as u64) };
        while state.running < limit {
            if state.waiting.is_empty() || !self.peer.node.admission.admit(self.load, || self.caller()) {
                break;
            }
            let Some(order) = state.waiting.pop_front() else {
                break;
            };
            state.running += 1;
            self.peer.node.executors.push(Work::Run(Arc::clone(self), order), self.priority);
        }
    }

    fn caller(self: &Arc<Self>) -> Caller {
        Caller::Remote(Arc::downgrade(self))
    }

    fn refuse(&self, order: &Order, error: &Error) {
        let (kind, text) = (error.kind, error.text.clone());
        self.peer.send(&Frame::Failed { place: order.place, kind, text });
    }

    /// Makes the replica; on an executor.
    pub(crate) fn create(self: &Arc<Self>) {
        let payload = std::mem::take(&mut self.lock().payload);
        let made = match &self.registered {
            Some(registered) => callback(&self.peer.node, self.depth, || registered.create(&payload)),
            None => Err(Error::new(
                Kind::NotRegistered,
                format!(
                    "class {} is not registered on host {} ({})",
                    class_text(&self.class),
                    self.peer.node.host_id(),
                    self.peer.node.config.name
                ),
            )),
        };
        let mut state = self.lock();
        state.phase = match made {
            Ok(replica) => Phase::Live(Arc::from(replica)),
            Err(error) => Phase::Failed(error),
        };
        self.schedule(&mut state);
        self.end_if_idle(&mut state);
    }

    /// Runs one fragment; on an executor.
    pub(crate) fn run(self: &Arc<Self>, order: Order) {
        let replica = match &self.lock().phase {
            Phase::Live(replica) => Some(Arc::clone(replica)),
            _ => None,
        };
        // Dropped before `running` goes down, so that the last one is always dropped as host code.
        carry(&self.peer.node, self.load, || {
            if let Some(replica) = replica
                && !self.is_cancelled()
            {
                match Fragment::new(self, order.place, order.target) {
                    Ok(fragment) => self.run_fragment(replica.as_ref(), &fragment, order),
                    Err(error) => self.refuse(&order, &error),
                }
            }
        });
        let mut state = self.lock();
        state.running -= 1;
        self.schedule(&mut state);
        self.end_if_idle(&mut state);
    }

    fn run_fragment(&self, replica: &dyn Replica, fragment: &Arc<Fragment>, order: Order) {
        let info = FragmentInfo {
            index: order.place.index,
            count: self.count,
            host_id: self.peer.host_id,
            attempt: order.place.attempt,
            thread_id: thread_id(),
            cancelled: Arc::clone(&self.cancelled),
        };
        let result = callback(&self.peer.node, self.depth, || {
            fragment.enter(|| match order.target {
                Target::Bytes => replica.execute_bytes(&info, fragment).map(|()| None),
                _ => replica.execute(&info, fragment),
            })
        });
        fragment.finish(result);
    }

    /// The requester abandons the job: what waits is dropped, what runs is told.
    pub(crate) fn cancel(self: &Arc<Self>) {
        if self.cancelled.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.lock();
        state.waiting.clear();
        if let Phase::Live(replica) = &state.phase {
            let (node, replica, depth) = (Arc::clone(&self.peer.node), Arc::clone(replica), self.depth);
            // Should this be the last reference, then its end is host code too.
            let tell = move || {
                callback(&node, depth, || {
                    replica.cancel();
                    drop(replica);
                });
            };
            self.peer.node.executors.push(Work::Call(Box::new(tell)), 0);
        }
    }

    /// No more fragments will come.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut state = self.lock();
        state.closing = true;
        self.end_if_idle(&mut state);
    }

    fn end_if_idle(self: &Arc<Self>, state: &mut State) {
        if !state.closing || state.running > 0 || matches!(state.phase, Phase::Creating) {
            return;
        }
        state.waiting.clear();
        if let Phase::Live(replica) = std::mem::replace(&mut state.phase, Phase::Ended) {
            let (node, depth) = (Arc::clone(&self.peer.node), self.depth);
            let end = move || callback(&node, depth, || drop(replica));
            self.peer.node.executors.push(Work::Call(Box::new(end)), self.priority);
        }
    }
}
