//! A connected peer over UCX.
//!
//! Locks: the reader's, or that of what is left of a closed link, before the worker's; an inbox's and the watch's are
//! the last. No lock of ours is held while the node handles what came.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::time::{Duration, Instant};

use super::domain::Domain;
use super::header::{Announcement, Kind as Message, SessionId, Target};
use super::inbox::{Entry, Inbox};
use super::line::{MAX_CHUNK, MAX_OUTSTANDING};
use super::memory::{Exposure, Received};
use super::port::Ended;
use super::sys::lock;
use crate::core::error::{Error, Kind, Result};
use crate::core::log;
use crate::core::memory::{Block, Share, Span};
use crate::core::transport::{
    Attention, Caps, Chunk, Incoming, Link, MAX_FRAME, Place, RegionKey, Seat, Written,
};
use crate::sys::socket::Socket;

/// How long the last look at a dead link waits for what is on its way.
const LAST_LOOK: Duration = Duration::from_millis(50);

const OPEN: u8 = 0;
const PEER_GONE: u8 = 1;
const CLOSED: u8 = 2;

/// What is done with what arrives.
type Sink<'s> = dyn FnMut(Incoming<'_>) -> Result<()> + 's;

/// The link.
pub(super) struct UcxLink {
    me: Weak<UcxLink>,
    session: SessionId,
    domain: Arc<Domain>,
    inbox: Arc<Inbox>,
    reading: Mutex<()>,
    /// The connection by which the two nodes met: its end is the peer's.
    control: Socket,
    state: AtomicU8,
    address: String,
    seat: Seat,
    /// What is still to be done when the link was cut.
    ended: Mutex<Option<Ended>>,
}

impl UcxLink {
    /// Sits down: from here on the progress thread learns of a hang-up.
    pub(super) fn start(
        session: SessionId,
        domain: Arc<Domain>,
        inbox: Arc<Inbox>,
        control: Socket,
        address: String,
        seat: &Seat,
    ) -> Result<Arc<Self>> {
        let link = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            session,
            domain,
            inbox,
            reading: Mutex::new(()),
            control,
            state: AtomicU8::new(OPEN),
            address,
            seat: seat.clone(),
            ended: Mutex::new(None),
        });
        // A link that fails here gets up again when it is dropped.
        link.domain.sit_down(&link.seat, &link.inbox)?;
        link.seat.progress.watch(link.control.source(), link.seat.token, false)?;
        Ok(link)
    }

    fn lost(&self, why: &str) -> Error {
        Error::new(Kind::PeerLost, format!("{}: {why}", self.address))
    }

    fn check_not_closed(&self) -> Result<()> {
        if !self.domain.is_ours() {
            return Err(Error::new(Kind::AfterFork, "this process was forked from the one with the link"));
        }
        match self.state.load(Ordering::Acquire) {
            CLOSED => Err(self.lost("the link was closed here")),
            _ => Ok(()),
        }
    }

    fn check_open(&self) -> Result<()> {
        self.check_not_closed()?;
        if let Some(why) = self.inbox.failure() {
            return Err(self.lost(why));
        }
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            _ => Err(self.lost("the peer hung up")),
        }
    }

    fn peer_gone(&self, why: &str) -> Error {
        let _ = self.state.compare_exchange(OPEN, PEER_GONE, Ordering::AcqRel, Ordering::Acquire);
        self.lost(why)
    }

    fn message(&self, kind: Message, bytes: Vec<u8>) -> Result<()> {
        let sent = self.domain.turn(None, |port| {
            let (line, worker) = port.line(&self.session)?;
            line.send(worker, kind, bytes)
        });
        sent.map_err(|error| self.lost(&error.text))
    }

    /// Hands out what has come.
    fn take(&self, limit: usize, sink: &mut Sink<'_>) -> Result<usize> {
        let mut count = 0;
        while count < limit {
            let Some(entry) = self.inbox.pop() else { break };
            count += 1;
            match entry {
                Entry::Frame(bytes) => sink(Incoming::Frame(&bytes))?,
                Entry::Data { target, bytes } => self.hand_data(target, bytes, sink)?,
                Entry::Written(written, result) => written(result),
                Entry::Room => {}
                Entry::Broken(error) => {
                    return Err(Error::new(error.kind, format!("{}: {}", self.address, error.text)));
                }
            }
        }
        Ok(count)
    }

    fn hand_data(&self, target: Target, bytes: Vec<u8>, sink: &mut Sink<'_>) -> Result<()> {
        let len = bytes.len();
        let link = self.me.clone();
        let done = Box::new(move || {
            if let Some(link) = link.upgrade() {
                // A peer that is gone needs no room.
                let _ = link.domain.turn(None, |port| {
                    let (line, worker) = port.line(&link.session)?;
                    line.release(worker, len)
                });
            }
        });
        let span = Span { block: Arc::new(Received(bytes)), offset: 0, len };
        let chunk = Chunk { span, done: Some(done) };
        sink(Incoming::Data { place: target.place, offset: target.offset, chunk })
    }

    /// Takes room for so many bytes, if there is.
    fn reserve(&self, len: usize) -> bool {
        let more = |bytes: usize| Some(bytes + len).filter(|bytes| *bytes <= MAX_OUTSTANDING);
        self.inbox.outstanding.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Whether the connection by which the nodes met is over.
    fn look_at_control(&self) -> Result<()> {
        match self.control.receive(&mut [0; 64]) {
            Ok(got) if got.len > 0 => Err(Error::protocol(format!(
                "{}: {} bytes where nothing is to be said any more",
                self.address, got.len
            ))),
            Err(e)
                if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            _ => Err(self.peer_gone("the peer hung up")),
        }
    }
}

impl Link for UcxLink {
    fn engine(&self) -> &'static str {
        "ucx"
    }

    fn caps(&self) -> Caps {
        Caps { maps: false, in_place: false, writes: self.domain.device.writes }
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        self.check_open()?;
        if frame.len() > MAX_FRAME {
            return Err(Error::invalid(format!("a frame of {} bytes exceeds {MAX_FRAME}", frame.len())));
        }
        self.message(Message::Frame, frame.to_vec())
    }

    /// Also after the peer hung up: what it had sent is still there.
    fn poll(&self, limit: usize, sink: &mut Sink<'_>) -> Result<usize> {
        self.check_not_closed()?;
        let _reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(reading)) => reading.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        self.domain.progress(self.session);
        self.take(limit, sink)
    }

    fn drain(&self, sink: &mut Sink<'_>) -> Result<()> {
        self.check_not_closed()?;
        let _reading = lock(&self.reading);
        let end = Instant::now() + LAST_LOOK;
        loop {
            let over = self.inbox.failure().is_some() || Instant::now() >= end;
            self.domain.progress(self.session);
            self.take(usize::MAX, sink)?;
            if over {
                return Ok(());
            }
            self.domain.wait(Duration::from_millis(5));
        }
    }

    fn attention(&self, who: Attention) -> bool {
        if self.check_not_closed().is_err() {
            return false;
        }
        self.inbox.attend(who);
        let watched = self.domain.attend(self.seat.token, who, self.session);
        // Whoever cannot be woken must go on looking.
        watched.is_err() || !self.inbox.is_empty()
    }

    fn service(&self, _sink: &mut Sink<'_>) -> Result<()> {
        self.check_not_closed()?;
        self.domain.tick();
        self.look_at_control()?;
        match self.inbox.failure() {
            Some(why) => Err(self.peer_gone(why)),
            None => Ok(()),
        }
    }

    fn last_heard(&self) -> Instant {
        let now = Instant::now();
        now.checked_sub(Duration::from_nanos(self.inbox.silence())).unwrap_or(now)
    }

    fn announce(&self, _key: RegionKey, _capacity: u64, _share: Share) -> Result<()> {
        Err(Error::new(Kind::NotSupported, "other hosts cannot map regions"))
    }

    fn forget(&self, key: RegionKey) -> Result<()> {
        self.check_open()?;
        self.domain.turn(None, |port| {
            let (line, worker) = port.line(&self.session)?;
            line.forget(worker, key)
        })
    }

    fn put(&self, place: Place, offset: u64, span: &Span, skip: usize) -> Result<usize> {
        self.check_open()?;
        let total = span.len.checked_sub(skip);
        let total = total.ok_or_else(|| Error::invalid(format!("{skip} bytes skipped of {}", span.len)))?;
        let mut done = 0;
        while done < total {
            let len = (total - done).min(MAX_CHUNK);
            if !self.reserve(len) {
                break;
            }
            let at = offset.checked_add(done as u64);
            let at = at.ok_or_else(|| Error::invalid(format!("data at offset {offset} overflows")))?;
            let mut bytes = vec![0; len];
            span.block.read(span.offset + skip + done, &mut bytes)?;
            let target = Some(Target { place, offset: at });
            let sent = self.domain.turn(None, |port| {
                let (line, worker) = port.line(&self.session)?;
                line.send_to(worker, Message::Data, target, bytes)
            });
            sent.map_err(|error| self.lost(&error.text))?;
            done += len;
        }
        Ok(done)
    }

    fn room(&self) -> bool {
        self.inbox.outstanding.load(Ordering::Acquire) + MAX_CHUNK <= MAX_OUTSTANDING
    }

    fn keep(&self, block: Arc<dyn Block>) -> Arc<dyn Block> {
        if self.domain.device.writes { self.domain.sources.keep(block) } else { block }
    }

    fn expose(&self, key: RegionKey, block: Arc<dyn Block>) -> Result<Arc<dyn Block>> {
        self.check_open()?;
        let (exposure, packed) = Exposure::new(&self.domain.context, block)?;
        let (capacity, address) = (exposure.capacity() as u64, exposure.address() as u64);
        let region = Announcement { key, capacity, address, packed };
        self.domain.turn(None, |port| {
            let (line, worker) = port.line(&self.session)?;
            line.expose(worker, region, &exposure)
        })?;
        Ok(Arc::new(exposure))
    }

    fn exposed(&self, key: RegionKey) -> Result<u64> {
        self.check_open()?;
        self.domain.turn(None, |port| port.line(&self.session)?.0.capacity(key))
    }

    fn write(&self, key: RegionKey, offset: u64, span: &Span, written: Written) -> Result<()> {
        self.check_open()?;
        let source = self.domain.sources.find(&self.domain.context, span).inspect_err(|error| {
            log::warn!("{}: results are copied instead of written: {error}", self.address);
        })?;
        self.domain.turn(None, |port| {
            let (line, worker) = port.line(&self.session)?;
            line.write(worker, (key, offset), (span, &source), written)
        })
    }

    fn cut(&self) {
        if self.domain.is_ours() {
            self.hang_up(false);
        }
    }

    fn close(&self) {
        if !self.domain.is_ours() {
            return;
        }
        self.hang_up(true);
        // Whoever comes second waits until it is done.
        let mut ended = lock(&self.ended);
        let Some(Ended { ep, exposures, written }) = ended.take() else { return };
        self.domain.finish(ep, &exposures);
        drop(ended);
        for written in written {
            written(Err(self.lost("the link was closed here")));
        }
        // Those that were over in time; of the rest nobody wants to hear any more.
        let left: VecDeque<Entry> = self.inbox.take_all();
        for entry in left {
            if let Entry::Written(written, result) = entry {
                written(result);
            }
        }
    }
}

impl UcxLink {
    /// Begins to end the link. `politely`: its last words may leave before.
    fn hang_up(&self, politely: bool) {
        let healthy = self.check_open().is_ok();
        let mut ended = lock(&self.ended);
        if self.state.swap(CLOSED, Ordering::AcqRel) == CLOSED {
            return;
        }
        self.domain.get_up(&self.seat, &self.inbox);
        self.seat.progress.unwatch(self.control.source());
        if healthy && politely {
            self.domain.flush(&self.session);
        }
        *ended = self.domain.begin_end(&self.session);
        self.control.shutdown();
    }
}

impl Drop for UcxLink {
    fn drop(&mut self) {
        self.close();
    }
}
