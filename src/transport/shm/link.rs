//! A connected peer on this host.
//!
//! The fast side is two rings; the slow side is the socket, which also tells when the peer dies. Locks: the
//! reader's before the writer's, and no lock while the peer is woken.
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use super::area::{Area, Direction};
use super::message::{self, Message};
use super::outbox::{MAX_WAITING, Outbox, Sent};
use super::record::{MAX_INLINE, TARGET_BYTES, Target, kind};
use super::ring::{EMPTY_RECORD, Reader, RecordBuffer, Ring, SLOTS};
use super::staged::{InlineBlock, STAGED_BYTES, StagedIn, StagedOut};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::{Share, Span};
use crate::core::transport::{Attention, Caps, Chunk, Incoming, Link, MAX_FRAME, Place, RegionKey, Seat};
use crate::sys::clock;
use crate::sys::socket::{Ready, Socket};
use crate::sys::wait::Bell;

/// How long a message to the peer waits for room in the socket.
const SOCKET_PATIENCE: Duration = Duration::from_secs(1);
/// Messages taken by one `service`; the watch is level-triggered, so what is left comes at the next. A socket
/// holds fewer, unless the system's buffers were made larger.
const SERVICE_BATCH: usize = 4096;

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

/// What is done with what arrives.
type Sink<'s> = dyn FnMut(Incoming<'_>) -> Result<()> + 's;

/// The link.
pub(super) struct ShmLink {
    me: Weak<ShmLink>,
    area: Area,
    out: Direction,
    into: Direction,
    outbox: Mutex<Outbox>,
    inbox: Mutex<Inbox>,
    /// The reader's position, for those who only look.
    position: AtomicU32,
    /// The outbox is not empty.
    backlog: AtomicBool,
    state: AtomicU8,
    bell: Bell,
    peer_bell: Bell,
    socket: Socket,
    slow: Mutex<()>,
    /// Regions that the peer is still to be told to forget, when its socket has room.
    forgets: Mutex<Vec<RegionKey>>,
    heard: AtomicU64,
    address: String,
    seat: Seat,
    staged_out: StagedOut,
    staged_in: StagedIn,
    /// A forked child must leave its parent's socket and waiters alone.
    pid: u32,
}

/// The reading side.
struct Inbox {
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
        let link = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            area: parts.area,
            out: parts.out,
            into: parts.into,
            outbox: Mutex::new(Outbox::new()),
            inbox: Mutex::new(Inbox { reader: Reader::starting_at(0), buffer: EMPTY_RECORD }),
            position: AtomicU32::new(0),
            backlog: AtomicBool::new(false),
            state: AtomicU8::new(OPEN),
            bell: parts.bell,
            peer_bell: parts.peer_bell,
            socket: parts.socket,
            slow: Mutex::new(()),
            forgets: Mutex::new(Vec::new()),
            heard: AtomicU64::new(clock::coarse_ns()),
            address: parts.address,
            seat: parts.seat,
            staged_out: StagedOut::new(),
            staged_in: StagedIn::default(),
            pid: std::process::id(),
        });
        // A link that fails here unwatches itself when it is dropped.
        link.seat.leader.watch(link.bell.source(), link.seat.token, true)?;
        link.seat.progress.watch(link.socket.source(), link.seat.token, false)?;
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
        let _ = self.state.compare_exchange(OPEN, PEER_GONE, Ordering::AcqRel, Ordering::Acquire);
        self.lost("the peer hung up")
    }

    /// Puts a record of two parts into the ring, or behind those that wait.
    fn record(&self, kind: u8, first: &[u8], second: &[u8]) -> Result<()> {
        {
            let mut outbox = lock(&self.outbox);
            match outbox.send(self.out_ring(), kind, first, second)? {
                Sent::InRing => {}
                Sent::Waits => self.backlog.store(true, Ordering::Release),
                Sent::Refused => {
                    return Err(self.lost(&format!("the peer left {MAX_WAITING} bytes of frames unread")));
                }
            }
        }
        self.wake_reader();
        Ok(())
    }

    fn flush_outbox(&self) -> Result<()> {
        if !self.backlog.load(Ordering::Acquire) {
            return Ok(());
        }
        let moved = {
            let mut outbox = lock(&self.outbox);
            let moved = outbox.drain(self.out_ring())?;
            self.backlog.store(!outbox.is_empty(), Ordering::Release);
            moved
        };
        if moved {
            self.wake_reader();
        }
        Ok(())
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
        let pushed = lock(&self.outbox).try_send(self.out_ring(), kind::NUDGE, &[], &[])?;
        if pushed {
            self.wake_reader();
        }
        Ok(())
    }

    fn dispatch(&self, kind: u8, record: &[u8], sink: &mut Sink<'_>) -> Result<()> {
        match kind {
            kind::FRAME => sink(Incoming::Frame(record)),
            kind::INLINE => self.hand_inline(record, sink),
            kind::STAGED => self.hand_staged(record, sink),
            kind::RELEASE => self.take_back(record),
            kind::NUDGE => self.flush_outbox(),
            other => Err(Error::protocol(format!("{}: a ring record of kind {other}", self.address))),
        }
    }

    fn hand_inline(&self, record: &[u8], sink: &mut Sink<'_>) -> Result<()> {
        let (target, bytes) = Target::decode(record)?;
        let len = bytes.len();
        if len > MAX_INLINE || target.offset.checked_add(len as u64).is_none() {
            return Err(Error::protocol(format!("inline data of {len} bytes for offset {}", target.offset)));
        }
        let span = Span { block: Arc::new(InlineBlock(bytes.into())), offset: 0, len };
        let chunk = Chunk { span, done: None };
        sink(Incoming::Data { place: target.place, offset: target.offset, chunk })
    }

    fn hand_staged(&self, record: &[u8], sink: &mut Sink<'_>) -> Result<()> {
        let (target, _) = Target::decode(record)?;
        let (slot, len) = target.staged()?;
        if !self.staged_in.is_known() {
            // Announced before this record was written, so it is in the socket. A peer that died since then is
            // told by the next service; its data is still good.
            let serviced = self.take_messages(sink);
            if !self.staged_in.is_known() {
                serviced?;
            }
        }
        let block = self.staged_in.slot(slot)?;
        let link = self.me.clone();
        let done = Box::new(move || {
            if let Some(link) = link.upgrade() {
                // A peer that is gone needs no room.
                let _ = link.record(kind::RELEASE, &target.slot.to_le_bytes(), &[]);
            }
        });
        let chunk = Chunk { span: Span { block, offset: 0, len }, done: Some(done) };
        sink(Incoming::Data { place: target.place, offset: target.offset, chunk })
    }

    fn take_back(&self, record: &[u8]) -> Result<()> {
        let slot = record.try_into().map_or(u32::MAX, u32::from_le_bytes);
        match self.staged_out.give_back(slot) {
            true => Ok(()),
            false => Err(Error::protocol(format!("{}: staged slot {slot} was not in use", self.address))),
        }
    }

    fn put_inline(&self, target: &Target, span: &Span, from: usize) -> Result<()> {
        let mut bytes = [0; MAX_INLINE];
        let room =
            bytes.get_mut(..target.len as usize).ok_or_else(|| Error::invalid("too long for a record"))?;
        span.block.read(from, room)?;
        self.record(kind::INLINE, &target.encode(), room)
    }

    fn put_staged(&self, target: &Target, span: &Span, from: usize) -> Result<()> {
        let announce = |fd: &Share| self.send_message(&Message::Staged, Some(fd.as_fd()));
        let slot = self.staged_out.slot(target.slot, announce);
        // Without a lock: frames go on while 256 KiB are copied.
        let copied = slot.and_then(|slot| slot.copy_from(0, span.block.as_ref(), from, target.len as usize));
        let sent = copied.and_then(|()| self.record(kind::STAGED, &target.encode(), &[]));
        if sent.is_err() {
            self.staged_out.give_back(target.slot);
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
                let text = format!("{}: the peer read no message for {SOCKET_PATIENCE:?}", self.address);
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

    /// Tells of forgotten regions as long as there is room; the rest comes with a later call.
    fn send_forgets(&self) -> Result<()> {
        let mut forgets = lock(&self.forgets);
        while let Some(key) = forgets.last() {
            match self.socket.send(&Message::Forget(*key).encode(), &[]) {
                Ok(()) => drop(forgets.pop()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(self.socket_failed(&e)),
            }
        }
        Ok(())
    }

    fn heard_now(&self) {
        self.heard.store(clock::coarse_ns(), Ordering::Relaxed);
    }

    /// The sink runs under the link's own lock, so that regions and forgets stay in order.
    fn take_messages(&self, sink: &mut Sink<'_>) -> Result<()> {
        let _turn = lock(&self.slow);
        let mut buffer = [0; message::MAX_BYTES];
        for _ in 0..SERVICE_BATCH {
            let got = match self.socket.receive(&mut buffer) {
                Ok(got) if got.len == 0 => return Err(self.peer_gone()),
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // A reset is told once and before what the peer still sent; after that comes the end.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ECONNRESET)) => continue,
                Err(e) => return Err(self.socket_failed(&e)),
            };
            self.heard_now();
            self.take_message(buffer.get(..got.len).unwrap_or(&[]), got.descriptors, sink)?;
        }
        Ok(())
    }

    fn take_message(&self, bytes: &[u8], mut shares: Vec<Share>, sink: &mut Sink<'_>) -> Result<()> {
        let message = Message::decode(bytes)?;
        let share = shares.pop();
        match (message, share, shares.is_empty()) {
            (Message::Region { key, capacity }, Some(share), true) => {
                sink(Incoming::Region { key, capacity, share })
            }
            (Message::Staged, Some(share), true) => self.staged_in.adopt(&share),
            (Message::Forget(key), None, _) => sink(Incoming::Forget(key)),
            (Message::Bell, None, _) => Ok(()),
            (message, ..) => Err(Error::protocol(format!(
                "{}: {message:?} with the wrong number of descriptors",
                self.address
            ))),
        }
    }

    /// Takes what is in the ring.
    fn take(&self, inbox: &mut Inbox, limit: usize, sink: &mut Sink<'_>) -> Result<usize> {
        self.flush_outbox()?;
        let mut count = 0;
        while count < limit {
            let mut starved = false;
            let Some(head) = inbox.reader.pop(self.in_ring(), &mut inbox.buffer, &mut starved)? else {
                break;
            };
            self.position.store(inbox.reader.position(), Ordering::Release);
            if starved {
                self.nudge()?;
            }
            count += 1;
            self.dispatch(head.kind, inbox.buffer.get(..head.len).unwrap_or(&[]), sink)?;
        }
        if count > 0 {
            self.heard_now();
        }
        Ok(count)
    }
}

impl Link for ShmLink {
    fn engine(&self) -> &'static str {
        "shm"
    }

    fn caps(&self) -> Caps {
        Caps { maps: true, in_place: false, writes: false }
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        self.check_open()?;
        if frame.len() > MAX_FRAME {
            return Err(Error::invalid(format!("a frame of {} bytes exceeds {MAX_FRAME}", frame.len())));
        }
        self.record(kind::FRAME, frame, &[])
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

    fn drain(&self, sink: &mut Sink<'_>) -> Result<()> {
        self.check_not_closed()?;
        // No more than a ring holds: the other end may go on writing although it hung up.
        self.take(&mut lock(&self.inbox), SLOTS, sink).map(drop)
    }

    fn attention(&self, who: Attention) -> bool {
        self.in_ring().set_attention(who, self.position.load(Ordering::Acquire))
    }

    /// The sink must not wait for another thread that may be in here.
    fn service(&self, sink: &mut Sink<'_>) -> Result<()> {
        self.check_not_closed()?;
        self.flush_outbox()?;
        // A peer that hung up is told by what is received.
        let _ = self.send_forgets();
        self.take_messages(sink)
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
        self.check_open()?;
        // Never waits: it is called where many regions are freed, by the progress thread among others.
        lock(&self.forgets).push(key);
        self.send_forgets()
    }

    fn put(&self, place: Place, offset: u64, span: &Span, skip: usize) -> Result<usize> {
        self.check_open()?;
        let total = span.len.checked_sub(skip);
        let total = total.ok_or_else(|| Error::invalid(format!("{skip} bytes skipped of {}", span.len)))?;
        let mut done = 0;
        while done < total {
            self.flush_outbox()?;
            if self.backlog.load(Ordering::Acquire) {
                break;
            }
            let len = (total - done).min(STAGED_BYTES);
            let at = offset.checked_add(done as u64);
            let at = at.ok_or_else(|| Error::invalid(format!("data at offset {offset} overflows")))?;
            // At most STAGED_BYTES.
            let wire_len = u32::try_from(len).unwrap_or(0);
            let from = span.offset + skip + done;
            let target = Target { place, offset: at, slot: 0, len: wire_len };
            if len <= MAX_INLINE {
                self.put_inline(&target, span, from)?;
            } else {
                let Some(slot) = self.staged_out.reserve() else {
                    break;
                };
                self.put_staged(&Target { slot, ..target }, span, from)?;
            }
            done += len;
        }
        Ok(done)
    }

    fn room(&self) -> bool {
        !self.backlog.load(Ordering::Acquire) && self.staged_out.has_room()
    }

    fn close(&self) {
        if self.pid != std::process::id() {
            return;
        }
        if self.state.load(Ordering::Acquire) == OPEN {
            // A last word, if there is room.
            let _ = self.flush_outbox();
        }
        if self.state.swap(CLOSED, Ordering::AcqRel) == CLOSED {
            return;
        }
        self.seat.leader.unwatch(self.bell.source());
        self.seat.progress.unwatch(self.socket.source());
        self.socket.shutdown();
    }
}

impl Drop for ShmLink {
    fn drop(&mut self) {
        self.close();
    }
}

const _: () = assert!(TARGET_BYTES + MAX_INLINE <= MAX_FRAME);
