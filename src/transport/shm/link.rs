//! A connected peer on this host.
//!
//! The fast side is two rings; the slow side is the socket, which also tells when the peer dies. Locks: the
//! reader's before the writer's, and no lock while the peer is woken.
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use super::area::{Area, Direction, InlineBlock, STAGED_BYTES, STAGED_SLOTS, StagedBlock};
use super::message::{self, Message};
use super::record::{MAX_INLINE, TARGET_BYTES, Target, kind};
use super::ring::{EMPTY_RECORD, Reader, RecordBuffer, Ring, SLOTS, Writer};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::{Block, Share, Span};
use crate::core::transport::{Attention, Caps, Chunk, Incoming, Link, MAX_FRAME, Place, RegionKey, Seat};
use crate::sys::clock;
use crate::sys::socket::{Ready, Socket};
use crate::sys::wait::Bell;

/// Frames that wait for room in the ring; a peer that leaves more unread is given up.
const MAX_OUTBOX: usize = 64 << 20;
/// How long a region's announcement waits for room in the socket.
const SOCKET_PATIENCE: Duration = Duration::from_secs(1);
/// Messages taken by one `service`; the watch is level-triggered, so what is left comes at the next.
const SERVICE_BATCH: usize = 1024;

const OPEN: u8 = 0;
const PEER_GONE: u8 = 1;
const CLOSED: u8 = 2;

/// What a link is made of.
pub(super) struct Parts {
    pub(super) area: Area,
    pub(super) out: Direction,
    pub(super) into: Direction,
    pub(super) bell: Bell,
    pub(super) peer_bell: Bell,
    pub(super) socket: Socket,
    pub(super) address: String,
    pub(super) seat: Seat,
}

/// The link.
pub(super) struct ShmLink {
    me: Weak<ShmLink>,
    area: Arc<Area>,
    out: Direction,
    into: Direction,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<IncomingSide>,
    /// The reader's position, for those who only look.
    position: AtomicU32,
    /// The outbox is not empty.
    backlog: AtomicBool,
    state: AtomicU8,
    bell: Bell,
    peer_bell: Bell,
    socket: Socket,
    slow: Mutex<()>,
    heard: AtomicU64,
    address: String,
    seat: Seat,
    /// One bit for each of our staged slots that is free.
    free: AtomicU32,
    staged_out: [Arc<dyn Block>; STAGED_SLOTS],
    staged_in: [Arc<dyn Block>; STAGED_SLOTS],
}

struct Outgoing {
    writer: Writer<SLOTS>,
    outbox: VecDeque<(u8, Vec<u8>)>,
    outbox_bytes: usize,
}

struct IncomingSide {
    reader: Reader<SLOTS>,
    buffer: RecordBuffer,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicking sink left is whole: a record is taken before it is handed out.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShmLink {
    /// Sits down: from here on both waiters know the link.
    pub(super) fn start(parts: Parts) -> Result<Arc<Self>> {
        let area = Arc::new(parts.area);
        let link = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            out: parts.out,
            into: parts.into,
            outgoing: Mutex::new(Outgoing {
                writer: Writer::starting_at(0),
                outbox: VecDeque::new(),
                outbox_bytes: 0,
            }),
            incoming: Mutex::new(IncomingSide {
                reader: Reader::starting_at(0),
                buffer: EMPTY_RECORD,
            }),
            position: AtomicU32::new(0),
            backlog: AtomicBool::new(false),
            state: AtomicU8::new(OPEN),
            bell: parts.bell,
            peer_bell: parts.peer_bell,
            socket: parts.socket,
            slow: Mutex::new(()),
            heard: AtomicU64::new(clock::coarse_ns()),
            address: parts.address,
            seat: parts.seat,
            free: AtomicU32::new((1 << STAGED_SLOTS) - 1),
            staged_out: StagedBlock::all(&area, parts.out),
            staged_in: StagedBlock::all(&area, parts.into),
            area,
        });
        // A link that fails here unwatches itself when it is dropped.
        link.seat.leader.watch(link.bell.raw(), link.seat.token, true)?;
        link.seat
            .progress
            .watch(link.socket.raw(), link.seat.token, false)?;
        Ok(link)
    }

    fn out_ring(&self) -> &Ring<SLOTS> {
        self.area.ring(self.out)
    }

    fn in_ring(&self) -> &Ring<SLOTS> {
        self.area.ring(self.into)
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
        let _ = self
            .state
            .compare_exchange(OPEN, PEER_GONE, Ordering::AcqRel, Ordering::Acquire);
        self.lost("the peer hung up")
    }

    /// Puts a record of two parts into the ring, or behind those that wait.
    fn record(&self, kind: u8, first: &[u8], second: &[u8]) -> Result<()> {
        {
            let mut outgoing = lock(&self.outgoing);
            if !outgoing.outbox.is_empty() || !outgoing.writer.push(self.out_ring(), kind, first, second)? {
                self.queue(&mut outgoing, kind, [first, second].concat())?;
            }
        }
        self.wake_reader();
        Ok(())
    }

    fn queue(&self, outgoing: &mut Outgoing, kind: u8, record: Vec<u8>) -> Result<()> {
        let bytes = outgoing.outbox_bytes + record.len() + size_of::<(u8, Vec<u8>)>();
        if bytes > MAX_OUTBOX {
            return Err(self.lost(&format!("the peer left {MAX_OUTBOX} bytes of frames unread")));
        }
        outgoing.outbox_bytes = bytes;
        outgoing.outbox.push_back((kind, record));
        self.backlog.store(true, Ordering::Release);
        // Room that came since the ring was seen full will not be told: look once more.
        self.drain_locked(outgoing).map(drop)
    }

    fn drain(&self) -> Result<()> {
        let moved = {
            let mut outgoing = lock(&self.outgoing);
            self.drain_locked(&mut outgoing)?
        };
        if moved {
            self.wake_reader();
        }
        Ok(())
    }

    fn drain_locked(&self, outgoing: &mut Outgoing) -> Result<bool> {
        let mut moved = false;
        while let Some((kind, record)) = outgoing.outbox.front() {
            if !outgoing.writer.push(self.out_ring(), *kind, record, &[])? {
                return Ok(moved);
            }
            moved = true;
            outgoing.outbox_bytes -= record.len() + size_of::<(u8, Vec<u8>)>();
            outgoing.outbox.pop_front();
        }
        self.backlog.store(false, Ordering::Release);
        Ok(moved)
    }

    fn wake_reader(&self) {
        match self.out_ring().take_attention() {
            Attention::Polled => {}
            Attention::Leader => self.peer_bell.ring(),
            // No room: then the peer has messages to read, and its progress thread wakes for them.
            Attention::Progress => drop(self.socket.send(&Message::Bell.encode(), &[])),
        }
    }

    /// Tells a writer that waited for room. When our own ring is full, the peer has enough to poll, and looks
    /// after its outbox when it does.
    fn nudge(&self) -> Result<()> {
        let pushed = {
            let mut outgoing = lock(&self.outgoing);
            outgoing.outbox.is_empty() && outgoing.writer.push(self.out_ring(), kind::NUDGE, &[], &[])?
        };
        if pushed {
            self.wake_reader();
        }
        Ok(())
    }

    fn dispatch(
        &self,
        kind: u8,
        record: &[u8],
        sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>,
    ) -> Result<()> {
        match kind {
            kind::FRAME => sink(Incoming::Frame(record)),
            kind::INLINE => {
                let (target, bytes) = Target::decode(record)?;
                self.hand_inline(&target, bytes, sink)
            }
            kind::STAGED => {
                let (target, _) = Target::decode(record)?;
                self.hand_staged(&target, sink)
            }
            kind::RELEASE => self.take_back(record),
            kind::NUDGE => self.drain(),
            other => Err(Error::protocol(format!(
                "{}: a ring record of kind {other}",
                self.address
            ))),
        }
    }

    fn hand_inline(
        &self,
        target: &Target,
        bytes: &[u8],
        sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>,
    ) -> Result<()> {
        let len = bytes.len();
        if len > MAX_INLINE || target.offset.checked_add(len as u64).is_none() {
            return Err(Error::protocol(format!(
                "inline data of {len} bytes for offset {}",
                target.offset
            )));
        }
        let span = Span {
            block: Arc::new(InlineBlock(bytes.into())),
            offset: 0,
            len,
        };
        let chunk = Chunk { span, done: None };
        sink(Incoming::Data {
            place: target.place,
            offset: target.offset,
            chunk,
        })
    }

    fn hand_staged(&self, target: &Target, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<()> {
        let (slot, len) = target.staged()?;
        let block = self
            .staged_in
            .get(slot)
            .ok_or_else(|| Error::protocol("no such staged slot"))?;
        let link = self.me.clone();
        let slot = target.slot;
        let done = Box::new(move || {
            if let Some(link) = link.upgrade() {
                // A peer that is gone needs no room.
                let _ = link.record(kind::RELEASE, &slot.to_le_bytes(), &[]);
            }
        });
        let chunk = Chunk {
            span: Span {
                block: Arc::clone(block),
                offset: 0,
                len,
            },
            done: Some(done),
        };
        sink(Incoming::Data {
            place: target.place,
            offset: target.offset,
            chunk,
        })
    }

    fn take_back(&self, record: &[u8]) -> Result<()> {
        let slot = record.try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX);
        let bit = if (slot as usize) < STAGED_SLOTS {
            1 << slot
        } else {
            0
        };
        if bit == 0 || self.free.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return Err(Error::protocol(format!(
                "{}: staged slot {slot} was not in use",
                self.address
            )));
        }
        Ok(())
    }

    fn reserve(&self) -> Option<u32> {
        let take = |free: u32| (free != 0).then(|| free & (free - 1));
        let before = self
            .free
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .ok()?;
        Some(before.trailing_zeros())
    }

    fn put_inline(&self, target: &Target, span: &Span, from: usize) -> Result<()> {
        let mut bytes = [0; MAX_INLINE];
        let room = bytes
            .get_mut(..target.len as usize)
            .ok_or_else(|| Error::invalid("too long for a record"))?;
        span.block.read(from, room)?;
        self.record(kind::INLINE, &target.encode(), room)
    }

    fn put_staged(&self, target: &Target, span: &Span, from: usize) -> Result<()> {
        let slot = self
            .staged_out
            .get(target.slot as usize)
            .ok_or_else(|| Error::invalid("no such slot"))?;
        // Without a lock: frames go on while 256 KiB are copied.
        let copied = slot.copy_from(0, span.block.as_ref(), from, target.len as usize);
        let sent = copied.and_then(|()| self.record(kind::STAGED, &target.encode(), &[]));
        if sent.is_err() {
            self.free.fetch_or(1 << target.slot, Ordering::AcqRel);
        }
        sent
    }

    /// Sends over the socket, waiting shortly for room.
    fn send_message(&self, message: &Message, share: Option<BorrowedFd<'_>>) -> Result<()> {
        self.check_open()?;
        let bytes = message.encode();
        let deadline = Instant::now() + SOCKET_PATIENCE;
        loop {
            match self.socket.send(&bytes, share.as_slice()) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_for_room(deadline)?,
                // Too many descriptors of this user are on their way: nothing to wait on.
                Err(e) if e.raw_os_error() == Some(libc::ETOOMANYREFS) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => return Err(self.socket_failed(&e)),
            }
        }
    }

    fn wait_for_room(&self, deadline: Instant) -> Result<()> {
        match self.socket.wait(Ready::Write, deadline) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = format!(
                    "{}: the peer read no message for {SOCKET_PATIENCE:?}",
                    self.address
                );
                Err(Error::new(Kind::TimedOut, text))
            }
            Err(e) => Err(self.socket_failed(&e)),
        }
    }

    fn socket_failed(&self, e: &io::Error) -> Error {
        match e.raw_os_error() {
            Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN) => self.peer_gone(),
            _ if e.kind() == io::ErrorKind::InvalidData => {
                Error::protocol(format!("{}: the peer sent {e}", self.address))
            }
            _ => Error::new(Kind::OutOfMemory, format!("{}: {e}", self.address)),
        }
    }

    fn heard_now(&self) {
        self.heard.store(clock::coarse_ns(), Ordering::Relaxed);
    }

    fn take_message(
        &self,
        bytes: &[u8],
        mut shares: Vec<Share>,
        sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>,
    ) -> Result<()> {
        let message = Message::decode(bytes)?;
        let share = shares.pop();
        match (message, share, shares.is_empty()) {
            (Message::Region { key, capacity }, Some(share), true) => {
                sink(Incoming::Region { key, capacity, share })
            }
            (Message::Forget(key), None, _) => sink(Incoming::Forget(key)),
            (Message::Bell | Message::Heartbeat, None, _) => Ok(()),
            (message, ..) => Err(Error::protocol(format!(
                "{message:?} with the wrong number of descriptors"
            ))),
        }
    }
}

impl Link for ShmLink {
    fn engine(&self) -> &'static str {
        "shm"
    }

    fn caps(&self) -> Caps {
        Caps { maps: true }
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        self.check_open()?;
        if frame.len() > MAX_FRAME {
            return Err(Error::invalid(format!(
                "a frame of {} bytes exceeds {MAX_FRAME}",
                frame.len()
            )));
        }
        self.record(kind::FRAME, frame, &[])
    }

    /// Also after the peer hung up: what it had sent is still there.
    fn poll(&self, limit: usize, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<usize> {
        self.check_not_closed()?;
        let mut guard = match self.incoming.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        if self.backlog.load(Ordering::Acquire) {
            self.drain()?;
        }
        let incoming = &mut *guard;
        let mut count = 0;
        let mut starved = false;
        while count < limit {
            let Some(head) = incoming
                .reader
                .pop(self.in_ring(), &mut incoming.buffer, &mut starved)?
            else {
                break;
            };
            self.position.store(incoming.reader.position(), Ordering::Release);
            if std::mem::take(&mut starved) {
                self.nudge()?;
            }
            count += 1;
            self.dispatch(head.kind, incoming.buffer.get(..head.len).unwrap_or(&[]), sink)?;
        }
        if count > 0 {
            self.heard_now();
        }
        Ok(count)
    }

    fn attention(&self, who: Attention) -> bool {
        self.in_ring()
            .set_attention(who, self.position.load(Ordering::Acquire))
    }

    /// The sink runs under the link's own lock, so that regions and forgets stay in order: it must not wait for
    /// another thread that may be in here.
    fn service(&self, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<()> {
        self.check_not_closed()?;
        if self.backlog.load(Ordering::Acquire) {
            self.drain()?;
        }
        let _turn = lock(&self.slow);
        let mut buffer = [0; message::MAX_BYTES];
        for _ in 0..SERVICE_BATCH {
            let got = match self.socket.receive(&mut buffer) {
                Ok(got) if got.len == 0 => return Err(self.peer_gone()),
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.socket_failed(&e)),
            };
            self.heard_now();
            self.take_message(buffer.get(..got.len).unwrap_or(&[]), got.descriptors, sink)?;
        }
        Ok(())
    }

    fn heartbeat(&self) -> Result<()> {
        self.check_open()?;
        match self.socket.send(&Message::Heartbeat.encode(), &[]) {
            // It has not read the last ones: no need for more.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(self.socket_failed(&e)),
            Ok(()) => Ok(()),
        }
    }

    fn last_heard(&self) -> Instant {
        let silent = clock::coarse_ns().saturating_sub(self.heard.load(Ordering::Relaxed));
        let now = Instant::now();
        now.checked_sub(Duration::from_nanos(silent)).unwrap_or(now)
    }

    fn announce(&self, key: RegionKey, capacity: u64, share: Share) -> Result<()> {
        self.send_message(&Message::Region { key, capacity }, Some(share.as_fd()))
    }

    fn forget(&self, key: RegionKey) -> Result<()> {
        self.send_message(&Message::Forget(key), None)
    }

    fn put(&self, place: Place, offset: u64, span: &Span, skip: usize) -> Result<usize> {
        self.check_open()?;
        let total = span.len.checked_sub(skip);
        let total = total.ok_or_else(|| Error::invalid(format!("{skip} bytes skipped of {}", span.len)))?;
        let mut done = 0;
        while done < total {
            if self.backlog.load(Ordering::Acquire) {
                self.drain()?;
                if self.backlog.load(Ordering::Acquire) {
                    break;
                }
            }
            let len = (total - done).min(STAGED_BYTES);
            let at = offset.checked_add(done as u64);
            let at = at.ok_or_else(|| Error::invalid(format!("data at offset {offset} overflows")))?;
            // At most STAGED_BYTES.
            let wire_len = u32::try_from(len).unwrap_or(0);
            let from = span.offset + skip + done;
            let target = Target {
                place,
                offset: at,
                slot: 0,
                len: wire_len,
            };
            if len <= MAX_INLINE {
                self.put_inline(&target, span, from)?;
            } else {
                let Some(slot) = self.reserve() else { break };
                self.put_staged(&Target { slot, ..target }, span, from)?;
            }
            done += len;
        }
        Ok(done)
    }

    fn room(&self) -> bool {
        !self.backlog.load(Ordering::Acquire) && self.free.load(Ordering::Acquire) != 0
    }

    fn close(&self) {
        if self.state.load(Ordering::Acquire) == OPEN {
            // A last word, if there is room.
            let _ = self.drain();
        }
        if self.state.swap(CLOSED, Ordering::AcqRel) == CLOSED {
            return;
        }
        self.seat.leader.unwatch(self.bell.raw());
        self.seat.progress.unwatch(self.socket.raw());
        self.socket.shutdown();
    }
}

impl Drop for ShmLink {
    fn drop(&mut self) {
        self.close();
    }
}

const _: () = assert!(TARGET_BYTES + MAX_INLINE <= MAX_FRAME);
