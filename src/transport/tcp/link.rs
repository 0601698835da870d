//! A connected peer over TCP.
//!
//! Locks: the reader's before the senders'; a sender's before the watch's. Only the data sender's is held while
//! waiting, and not for long.
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::data::DataOut;
use super::inbox::{Data, Records};
use super::outbox::{MAX_WAITING, Outbox, Sent};
use super::record::{Head, MAX_CHUNK, MAX_INLINE, Target, kind};
use super::sys::{Moved, Stream};
use super::watch::Watch;
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::{Share, Span};
use crate::core::transport::{
    Attention, Caps, Incoming, Landing, Link, MAX_FRAME, Place, RegionKey, Seat, Session,
};
use crate::sys::clock;
use crate::sys::socket::Ready;

/// The most bytes received by one call: then others have their turn.
const ONE_READ: usize = 256 * 1024;
/// How long the last look at a dead link waits for data that is on its way.
const LAST_LOOK: Duration = Duration::from_millis(100);

const OPEN: u8 = 0;
const PEER_GONE: u8 = 1;
const CLOSED: u8 = 2;

const CONTROL: usize = 0;
const DATA: usize = 1;

/// What is done with what arrives.
type Sink<'s> = dyn FnMut(Incoming<'_>) -> Result<()> + 's;

/// The link.
pub(super) struct TcpLink {
    control: Stream,
    data: Stream,
    outbox: Mutex<Outbox>,
    data_out: Mutex<DataOut>,
    inbox: Mutex<Inbox>,
    watch: Mutex<Watch>,
    /// Something waits for room.
    backlog: AtomicBool,
    /// A whole record waits in the inbox.
    more: AtomicBool,
    state: AtomicU8,
    heard: AtomicU64,
    address: String,
    seat: Seat,
    /// A forked child must leave its parent's sockets and waiters alone.
    pid: u32,
}

/// The reading side.
struct Inbox {
    records: Records,
    data: Data,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicking sink left is whole: a record is taken before it is handed out.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpLink {
    /// Sits down: from here on the progress thread learns of a hang-up.
    pub(super) fn start(
        session: &Session,
        control: Stream,
        data: Stream,
        address: String,
        seat: &Seat,
    ) -> Result<Arc<Self>> {
        let (ours, theirs) = (session.connector, !session.connector);
        let link = Arc::new(Self {
            outbox: Mutex::new(Outbox::new(session.sealer(0, ours)?)),
            data_out: Mutex::new(DataOut::new(session.sealer(1, ours)?)),
            inbox: Mutex::new(Inbox {
                records: Records::new(session.sealer(0, theirs)?),
                data: Data::new(session.sealer(1, theirs)?),
            }),
            watch: Mutex::new(Watch::new([control.source(), data.source()])),
            control,
            data,
            backlog: AtomicBool::new(false),
            more: AtomicBool::new(false),
            state: AtomicU8::new(OPEN),
            heard: AtomicU64::new(clock::coarse_ns()),
            address,
            seat: seat.clone(),
            pid: std::process::id(),
        });
        // A link that fails here unwatches itself when it is dropped.
        lock(&link.watch).apply(seat)?;
        Ok(link)
    }

    fn lost(&self, why: &str) -> Error {
        Error::new(Kind::PeerLost, format!("{}: {why}", self.address))
    }

    fn check_open(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            PEER_GONE => Err(self.lost("the peer hung up")),
            _ => Err(self.lost("the link was closed here")),
        }
    }

    fn check_not_closed(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            CLOSED => Err(self.lost("the link was closed here")),
            _ => Ok(()),
        }
    }

    fn peer_gone(&self) -> Error {
        let _ = self.state.compare_exchange(OPEN, PEER_GONE, Ordering::AcqRel, Ordering::Acquire);
        self.lost("the peer hung up")
    }

    fn set_out(&self, connection: usize, waits: bool) -> Result<()> {
        if waits {
            self.backlog.store(true, Ordering::Release);
        }
        lock(&self.watch).set_out(connection, waits, &self.seat)
    }

    /// Sends a record of two parts, or puts it behind those that wait.
    fn record(&self, kind: u8, parts: [&[u8]; 2], more: bool) -> Result<()> {
        let mut outbox = lock(&self.outbox);
        let had_none = outbox.is_empty();
        match outbox.send(&self.control, kind, parts, more) {
            Sent::Whole => Ok(()),
            Sent::Waits if had_none => self.set_out(CONTROL, true),
            Sent::Waits => Ok(()),
            Sent::Gone => Err(self.peer_gone()),
            Sent::Refused => Err(self.lost(&format!("the peer left {MAX_WAITING} bytes of frames unread"))),
        }
    }

    /// Sends what waits for room.
    fn flush(&self) -> Result<()> {
        if !self.backlog.load(Ordering::Acquire) {
            return Ok(());
        }
        // Cleared before looking: who adds to it meanwhile sets it again.
        self.backlog.store(false, Ordering::Release);
        let mut waits = false;
        {
            let mut outbox = lock(&self.outbox);
            if !outbox.is_empty() {
                waits |= self.flushed(CONTROL, outbox.flush(&self.control))?;
            }
        }
        match self.data_out.try_lock() {
            Ok(mut out) if !out.is_empty() => waits |= self.flushed(DATA, out.flush(&self.data, None))?,
            Ok(_) => {}
            // A sender is at it.
            Err(_) => waits = true,
        }
        if waits {
            self.backlog.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Called with the sender's lock held; whether something still waits.
    fn flushed(&self, connection: usize, sent: Sent) -> Result<bool> {
        match sent {
            Sent::Whole => self.set_out(connection, false).map(|()| false),
            Sent::Gone => Err(self.peer_gone()),
            Sent::Waits | Sent::Refused => Ok(true),
        }
    }

    fn heard_now(&self) {
        self.heard.store(clock::coarse_ns(), Ordering::Relaxed);
    }

    /// Takes what has come.
    fn take(&self, inbox: &mut Inbox, limit: usize, sink: &mut Sink<'_>) -> Result<usize> {
        // Peers that hang up are told by `service`; what they sent before is still good.
        let _ = self.flush();
        let taken = self.take_all(inbox, limit, sink);
        self.more.store(inbox.records.has_more(), Ordering::Release);
        if taken.as_ref().is_ok_and(|count| *count > 0) {
            self.heard_now();
        }
        taken
    }

    fn take_all(&self, inbox: &mut Inbox, limit: usize, sink: &mut Sink<'_>) -> Result<usize> {
        let mut count = 0;
        inbox.records.begin();
        while count < limit {
            if let Some((kind, body)) = inbox.records.next(&self.control)? {
                count += 1;
                self.dispatch(kind, inbox.records.body(body), sink)?;
            } else if count > 0 && inbox.data.chunk.is_none() {
                // Looking costs a call, and who found something looks again soon.
                break;
            } else if self.take_data(inbox, sink)? {
                count += 1;
                // Frames never wait behind more than one read of data.
                inbox.records.begin();
            } else {
                break;
            }
        }
        Ok(count)
    }

    fn dispatch(&self, kind: u8, body: &[u8], sink: &mut Sink<'_>) -> Result<()> {
        match kind {
            kind::FRAME => sink(Incoming::Frame(body)),
            kind::INLINE => self.hand_inline(body, sink),
            other => Err(Error::protocol(format!("{}: a record of kind {other}", self.address))),
        }
    }

    fn hand_inline(&self, body: &[u8], sink: &mut Sink<'_>) -> Result<()> {
        let (target, bytes) = Target::decode(body)?;
        let len = bytes.len();
        if len > MAX_INLINE || target.offset.checked_add(len as u64).is_none() {
            return Err(Error::protocol(format!("inline data of {len} bytes for offset {}", target.offset)));
        }
        let mut receive = |landing: Landing<'_>| match landing {
            Landing::Memory(span) => span.block.write(span.offset, bytes).map(|()| len),
            Landing::Bytes(room) => {
                room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                Ok(len.min(room.len()))
            }
        };
        sink(Incoming::Ready { place: target.place, offset: target.offset, len, receive: &mut receive })
    }

    /// Receives some of the chunk under way; whether there was something.
    fn take_data(&self, inbox: &mut Inbox, sink: &mut Sink<'_>) -> Result<bool> {
        let Some(head) = inbox.data.current(&self.data)? else {
            return Ok(false);
        };
        if head.after > inbox.records.count {
            // What was sent before it is handled before it.
            return Ok(false);
        }
        let Target { place, offset } = head.target;
        let len = (head.len as usize).min(ONE_READ);
        let mut taken = 0;
        let mut called = false;
        let data = &mut inbox.data;
        let mut receive = |landing: Landing<'_>| {
            called = true;
            taken = self.receive(data, landing, len);
            Ok(taken)
        };
        let sunk = sink(Incoming::Ready { place, offset, len, receive: &mut receive });
        if !called {
            let mut scratch = [0; 4096];
            let room = scratch.get_mut(..len.min(4096)).unwrap_or_default();
            taken = self.receive(&mut inbox.data, Landing::Bytes(room), len);
        }
        inbox.data.advance(taken);
        sunk?;
        Ok(taken > 0)
    }

    fn receive(&self, data: &mut Data, landing: Landing<'_>, most: usize) -> usize {
        let moved = match landing {
            Landing::Memory(span) => {
                self.data.receive_into(span.block.as_ref(), span.offset, span.len.min(most))
            }
            Landing::Bytes(room) => {
                let len = room.len().min(most);
                self.data.receive(room.get_mut(..len).unwrap_or_default())
            }
        };
        match moved {
            Moved::Bytes(got) => got,
            Moved::Later => 0,
            Moved::Gone => {
                data.ended = true;
                0
            }
        }
    }

    fn put_inline(&self, target: Target, span: &Span, from: usize, len: usize) -> Result<()> {
        let mut bytes = [0; MAX_INLINE];
        let room = bytes.get_mut(..len).ok_or_else(|| Error::invalid("too long for a record"))?;
        span.block.read(from, room)?;
        // The frame that tells of it follows.
        self.record(kind::INLINE, [&target.encode(), room], true)
    }

    /// Sends one chunk; false: there is no room.
    fn put_chunk(&self, target: Target, span: &Span, from: usize, len: usize) -> Result<bool> {
        let mut out = lock(&self.data_out);
        if !out.is_empty() {
            let sent = out.flush(&self.data, Some(DataOut::patience()));
            if self.flushed(DATA, sent)? {
                return Ok(false);
            }
        }
        self.check_open()?;
        let after = lock(&self.outbox).count;
        // At most MAX_CHUNK.
        let head = Head { target, len: u32::try_from(len).unwrap_or(0), after };
        match out.send(&self.data, &head, span, from)? {
            Sent::Whole => {}
            Sent::Gone => return Err(self.peer_gone()),
            Sent::Waits | Sent::Refused => self.set_out(DATA, true)?,
        }
        Ok(true)
    }
}

impl Link for TcpLink {
    fn engine(&self) -> &'static str {
        "tcp"
    }

    fn caps(&self) -> Caps {
        Caps { maps: false, in_place: true, writes: false }
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        self.check_open()?;
        if frame.len() > MAX_FRAME {
            return Err(Error::invalid(format!("a frame of {} bytes exceeds {MAX_FRAME}", frame.len())));
        }
        self.record(kind::FRAME, [frame, &[]], false)
    }

    /// Also after the peer hung up: what it had sent is still there.
    fn poll(&self, limit: usize, sink: &mut Sink<'_>) -> Result<usize> {
        self.check_not_closed()?;
        match self.inbox.try_lock() {
            Ok(mut inbox) => self.take(&mut inbox, limit, sink),
            Err(TryLockError::Poisoned(inbox)) => self.take(&mut inbox.into_inner(), limit, sink),
            Err(TryLockError::WouldBlock) => Ok(0),
        }
    }

    /// The two connections end one after the other: waits shortly for the end of both.
    fn drain(&self, sink: &mut Sink<'_>) -> Result<()> {
        self.check_not_closed()?;
        let mut inbox = lock(&self.inbox);
        let end = Instant::now() + LAST_LOOK;
        loop {
            self.take(&mut inbox, usize::MAX, sink)?;
            let open = match (inbox.records.ended, inbox.data.ended) {
                (false, _) => &self.control,
                (true, false) => &self.data,
                (true, true) => return Ok(()),
            };
            if Instant::now() >= end || !open.wait(Ready::Read, end) {
                return Ok(());
            }
        }
    }

    fn attention(&self, who: Attention) -> bool {
        let watched = lock(&self.watch).attend(who, &self.seat);
        // Whoever cannot be woken must go on looking.
        watched.is_err() || self.more.load(Ordering::Acquire)
    }

    fn service(&self, _sink: &mut Sink<'_>) -> Result<()> {
        self.check_not_closed()?;
        if self.control.is_hung_up() || self.data.is_hung_up() {
            return Err(self.peer_gone());
        }
        self.flush()
    }

    fn last_heard(&self) -> Instant {
        let silent = clock::coarse_ns().saturating_sub(self.heard.load(Ordering::Relaxed));
        let now = Instant::now();
        now.checked_sub(Duration::from_nanos(silent)).unwrap_or(now)
    }

    fn announce(&self, _key: RegionKey, _capacity: u64, _share: Share) -> Result<()> {
        Err(Error::new(Kind::NotSupported, "other hosts cannot map regions"))
    }

    fn forget(&self, _key: RegionKey) -> Result<()> {
        Err(Error::new(Kind::NotSupported, "other hosts cannot map regions"))
    }

    fn put(&self, place: Place, offset: u64, span: &Span, skip: usize) -> Result<usize> {
        self.check_open()?;
        let total = span.len.checked_sub(skip);
        let total = total.ok_or_else(|| Error::invalid(format!("{skip} bytes skipped of {}", span.len)))?;
        let mut done = 0;
        while done < total {
            let len = (total - done).min(MAX_CHUNK);
            let at = offset.checked_add(done as u64);
            let at = at.ok_or_else(|| Error::invalid(format!("data at offset {offset} overflows")))?;
            let target = Target { place, offset: at };
            let from = span.offset + skip + done;
            if span.len <= MAX_INLINE {
                self.put_inline(target, span, from, len)?;
            } else if !self.put_chunk(target, span, from, len)? {
                break;
            }
            done += len;
        }
        Ok(done)
    }

    fn room(&self) -> bool {
        match self.data_out.try_lock() {
            Ok(out) => out.is_empty() && self.data.has_room(),
            // Whoever sends will have to wait for it, and can do that in `put`.
            Err(_) => true,
        }
    }

    fn close(&self) {
        if self.pid != std::process::id() {
            return;
        }
        if self.state.load(Ordering::Acquire) == OPEN {
            // A last word, if there is room.
            let _ = self.flush();
        }
        if self.state.swap(CLOSED, Ordering::AcqRel) == CLOSED {
            return;
        }
        lock(&self.watch).close(&self.seat);
        self.control.shutdown();
        self.data.shutdown();
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        self.close();
    }
}
