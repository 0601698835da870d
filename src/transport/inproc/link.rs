//! One end of a pair of nodes in this process.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::core::error::{Error, Kind, Result};
use crate::core::memory::{Share, Span};
use crate::core::transport::{Attention, Caps, Chunk, Incoming, Link, MAX_FRAME, Place, RegionKey, Seat};
use crate::sys::clock;
use crate::sys::wait::Bell;

/// Bytes of frames that wait for a node; one that leaves more unread is given up.
const MAX_QUEUED: usize = 64 << 20;
/// Emptied frames kept for reuse: no allocation in a steady exchange.
const MAX_SPARE: usize = 64;

/// Both ends.
pub(super) struct Pair {
    connector: End,
    listener: End,
}

/// What one node owns and the other fills.
struct End {
    seat: Seat,
    queue: Mutex<Queue>,
    /// Held by who polls.
    polling: Mutex<()>,
    attention: AtomicU32,
    /// Watched by the leader.
    leader_bell: Bell,
    /// Watched by the progress thread; also tells that the other end hung up.
    progress_bell: Bell,
    closed: AtomicBool,
    heard: AtomicU64,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl End {
    fn new(seat: Seat) -> Result<Self> {
        let bell = || {
            Bell::new().map_err(|e| {
                Error::new(Kind::OutOfMemory, format!("no eventfd: {e}; raise the limit of open files"))
            })
        };
        Ok(Self {
            seat,
            queue: Mutex::default(),
            polling: Mutex::default(),
            attention: AtomicU32::new(0),
            leader_bell: bell()?,
            progress_bell: bell()?,
            closed: AtomicBool::new(false),
            heard: AtomicU64::new(clock::coarse_ns()),
        })
    }

    fn push(&self, frame: &[u8]) -> bool {
        let mut queue = lock(&self.queue);
        if queue.bytes + frame.len() > MAX_QUEUED {
            return false;
        }
        queue.bytes += frame.len();
        let mut bytes = queue.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(frame);
        queue.frames.push_back(bytes);
        true
    }

    fn pop(&self) -> Option<Vec<u8>> {
        let mut queue = lock(&self.queue);
        let frame = queue.frames.pop_front()?;
        queue.bytes -= frame.len();
        Some(frame)
    }

    /// Hands what is queued to the sink; the caller holds `polling`.
    fn take(&self, limit: usize, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<usize> {
        let mut count = 0;
        while count < limit {
            let Some(frame) = self.pop() else { break };
            count += 1;
            let taken = sink(Incoming::Frame(&frame));
            self.recycle(frame);
            taken?;
        }
        if count > 0 {
            self.heard.store(clock::coarse_ns(), Ordering::Relaxed);
        }
        Ok(count)
    }

    fn recycle(&self, mut frame: Vec<u8>) {
        frame.clear();
        let mut queue = lock(&self.queue);
        if queue.spare.len() < MAX_SPARE {
            queue.spare.push(frame);
        }
    }

    /// The same protocol as the ring's: the word that says who sleeps is what the waker takes.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.attention.load(Ordering::Relaxed) == 0 {
            return;
        }
        match self.attention.swap(0, Ordering::AcqRel) {
            0 => {}
            1 => self.leader_bell.ring(),
            _ => self.progress_bell.ring(),
        }
    }
}

impl Pair {
    pub(super) fn new(connector: Seat, listener: Seat) -> Result<Self> {
        Ok(Self { connector: End::new(connector)?, listener: End::new(listener)? })
    }
}

/// The link of one node.
pub(super) struct InprocLink {
    pair: Arc<Pair>,
    connector: bool,
    address: String,
    /// A forked child must leave its parent's waiters alone.
    pid: u32,
}

impl InprocLink {
    pub(super) fn new(pair: Arc<Pair>, connector: bool, address: String) -> Arc<Self> {
        Arc::new(Self { pair, connector, address, pid: std::process::id() })
    }

    /// Sits down: from here on both waiters know the link.
    pub(super) fn start(&self) -> Result<()> {
        // A link that fails here unwatches itself when it is dropped.
        let own = self.own();
        own.seat.leader.watch(own.leader_bell.source(), own.seat.token, true)?;
        own.seat.progress.watch(own.progress_bell.source(), own.seat.token, true)
    }

    fn own(&self) -> &End {
        if self.connector { &self.pair.connector } else { &self.pair.listener }
    }

    fn peer(&self) -> &End {
        if self.connector { &self.pair.listener } else { &self.pair.connector }
    }

    fn lost(&self, why: &str) -> Error {
        Error::new(Kind::PeerLost, format!("{}: {why}", self.address))
    }

    fn check_not_closed(&self) -> Result<()> {
        match self.own().closed.load(Ordering::Acquire) {
            true => Err(self.lost("the link was closed here")),
            false => Ok(()),
        }
    }

    fn check_open(&self) -> Result<()> {
        self.check_not_closed()?;
        match self.peer().closed.load(Ordering::Acquire) {
            true => Err(self.lost("the peer hung up")),
            false => Ok(()),
        }
    }
}

impl Link for InprocLink {
    fn engine(&self) -> &'static str {
        "inproc"
    }

    fn caps(&self) -> Caps {
        Caps { maps: false, in_place: false, writes: false }
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        self.check_open()?;
        if frame.len() > MAX_FRAME {
            return Err(Error::invalid(format!("a frame of {} bytes exceeds {MAX_FRAME}", frame.len())));
        }
        if !self.peer().push(frame) {
            return Err(self.lost(&format!("the peer left {MAX_QUEUED} bytes of frames unread")));
        }
        self.peer().wake();
        Ok(())
    }

    fn poll(&self, limit: usize, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<usize> {
        self.check_not_closed()?;
        let own = self.own();
        let _turn = match own.polling.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        own.take(limit, sink)
    }

    fn drain(&self, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<()> {
        self.check_not_closed()?;
        let own = self.own();
        let _turn = lock(&own.polling);
        own.take(usize::MAX, sink).map(drop)
    }

    fn attention(&self, who: Attention) -> bool {
        let own = self.own();
        own.attention.store(who as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !lock(&own.queue).frames.is_empty()
    }

    fn service(&self, _sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<()> {
        self.check_open()
    }

    fn last_heard(&self) -> Instant {
        let silent = clock::coarse_ns().saturating_sub(self.own().heard.load(Ordering::Relaxed));
        let now = Instant::now();
        now.checked_sub(Duration::from_nanos(silent)).unwrap_or(now)
    }

    fn announce(&self, _key: RegionKey, _capacity: u64, _share: Share) -> Result<()> {
        Err(Error::new(Kind::NotSupported, "nodes in one process share no regions"))
    }

    fn forget(&self, _key: RegionKey) -> Result<()> {
        Err(Error::new(Kind::NotSupported, "nodes in one process share no regions"))
    }

    /// The receiving node copies in this thread, before this returns.
    fn put(&self, place: Place, offset: u64, span: &Span, skip: usize) -> Result<usize> {
        self.check_open()?;
        let len = span.len.checked_sub(skip);
        let len = len.ok_or_else(|| Error::invalid(format!("{skip} bytes skipped of {}", span.len)))?;
        let rest = Span { block: Arc::clone(&span.block), offset: span.offset + skip, len };
        let seat = &self.peer().seat;
        let chunk = Chunk { span: rest, done: None };
        seat.direct.incoming(seat.token, Incoming::Data { place, offset, chunk })?;
        Ok(len)
    }

    fn room(&self) -> bool {
        true
    }

    fn close(&self) {
        let own = self.own();
        if self.pid != std::process::id() || own.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        own.seat.leader.unwatch(own.leader_bell.source());
        own.seat.progress.unwatch(own.progress_bell.source());
        self.peer().progress_bell.ring();
    }
}

impl Drop for InprocLink {
    fn drop(&mut self) {
        self.close();
    }
}
