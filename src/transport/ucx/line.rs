//! One session at its worker: what is sent and received for it, in order and sealed, and whose memory is written.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::context::Mapped;
use super::header::{Announcement, Head, Kind, SessionId, Target, decode_key, encode_key};
use super::inbox::{Entry, Inbox};
use super::memory::Exposure;
use super::pending::Pending;
use super::status::Status;
use super::sys::{Data, EpId, Key, MAX_EAGER, Worker};
use crate::core::error::{self, Error, Result};
use crate::core::memory::Span;
use crate::core::transport::{ChannelProof, MAX_FRAME, RegionKey, Sealer, Session, Written};

/// The number of the session's channel over UCX; 0 and 1 are TCP's, 2 is the door of shm.
pub(super) const CHANNEL: u32 = 3;
/// The most bytes of one message of data.
pub(super) const MAX_CHUNK: usize = 256 << 10;
/// The most bytes of data on their way, or received and not taken.
pub(super) const MAX_OUTSTANDING: usize = 4 << 20;
/// The most bytes of messages that wait for UCX to take them.
const MAX_UNSENT: usize = 64 << 20;
/// Messages that may overtake another.
const MAX_EARLY: usize = 1024;
/// Regions that a peer may have exposed at a time.
const MAX_WINDOWS: usize = 65_536;

/// A region of the peer's.
struct Window {
    capacity: u64,
    address: u64,
    key: Key,
    writes: usize,
    /// The peer gave it up: to be answered when nothing is written there any more.
    forgotten: bool,
}

/// A write under way.
struct Write {
    to: RegionKey,
    /// Halves that are not over.
    left: u8,
    failed: Option<Status>,
    written: Written,
}

/// One session at its worker.
pub(super) struct Line {
    session: SessionId,
    pub(super) ep: EpId,
    pub(super) inbox: Arc<Inbox>,
    /// What we said and wait for an answer to, as the connecting end.
    greeting: Option<(Session, ChannelProof)>,
    out: Sealer,
    sent: u64,
    into: Sealer,
    received: u64,
    early: BTreeMap<u64, (Vec<u8>, Data)>,
    unsent: usize,
    /// Bytes of data that were received, or are being, and not taken.
    arrived: usize,
    windows: HashMap<RegionKey, Window>,
    exposures: HashMap<RegionKey, Arc<Exposure>>,
    writes: HashMap<u64, Write>,
    next_write: u64,
    /// All that was sent has left.
    pub(super) flushed: bool,
    /// Nothing that comes is looked at any more.
    broken: bool,
}

impl Line {
    pub(super) fn new(session: &Session, ep: EpId, inbox: Arc<Inbox>) -> Result<Self> {
        Ok(Self {
            session: session.id,
            ep,
            inbox,
            greeting: None,
            out: session.sealer(CHANNEL, session.connector)?,
            sent: 0,
            into: session.sealer(CHANNEL, !session.connector)?,
            received: 0,
            early: BTreeMap::new(),
            unsent: 0,
            arrived: 0,
            windows: HashMap::new(),
            exposures: HashMap::new(),
            writes: HashMap::new(),
            next_write: 0,
            flushed: false,
            broken: false,
        })
    }

    // ---- out

    /// The connecting end's first words: a proof.
    pub(super) fn greet(&mut self, worker: &mut Worker, session: &Session, words: Vec<u8>) -> Result<()> {
        let proof = ChannelProof::read(&words).ok_or_else(|| Error::invalid("these words are no proof"))?;
        self.greeting = Some((session.clone(), proof));
        self.send(worker, Kind::Hello, words)
    }

    /// Sends a message, in order.
    pub(super) fn send(&mut self, worker: &mut Worker, kind: Kind, bytes: Vec<u8>) -> Result<()> {
        self.send_to(worker, kind, None, bytes)
    }

    /// Sends bytes for a place, or whatever the kind says.
    pub(super) fn send_to(
        &mut self,
        worker: &mut Worker,
        kind: Kind,
        target: Option<Target>,
        bytes: Vec<u8>,
    ) -> Result<()> {
        if self.unsent > MAX_UNSENT {
            let text = format!("the peer left {MAX_UNSENT} bytes of messages unread");
            return Err(Error::new(error::Kind::PeerLost, text));
        }
        let len = u32::try_from(bytes.len()).map_err(|_| Error::invalid("a message is too long"))?;
        let head = Head { session: self.session, sequence: self.sent, kind, len, target };
        let mut header = head.encode();
        let tag = match kind {
            Kind::Data => self.out.tag(&header),
            _ => self.out.tag(&[header.as_slice(), bytes.as_slice()].concat()),
        };
        header.extend_from_slice(&tag);
        self.sent += 1;
        let size = header.len() + bytes.len();
        let what = Pending::Sent { session: self.session, bytes: size };
        worker.send(self.ep, header, bytes, kind == Kind::Hello, what)?;
        self.unsent += size;
        Ok(())
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.unsent = self.unsent.saturating_sub(bytes);
    }

    /// Whether UCX has taken all that was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.unsent == 0
    }

    // ---- in

    /// A message has come. Err: the peer broke the protocol.
    pub(super) fn arrive(
        &mut self,
        worker: &mut Worker,
        header: Vec<u8>,
        data: Data,
        quiet: bool,
    ) -> Result<()> {
        self.inbox.hear();
        let sequence = Head::decode(&header).map_or(self.received, |(head, ..)| head.sequence);
        if self.broken || sequence < self.received {
            drop_data(worker, data);
            return if self.broken { Ok(()) } else { Err(Error::protocol("a message came twice")) };
        }
        if sequence > self.received {
            let full = self.early.len() >= MAX_EARLY;
            if full || self.early.contains_key(&sequence) {
                drop_data(worker, data);
                return Err(Error::protocol(format!("message {sequence} came before {}", self.received)));
            }
            self.early.insert(sequence, (header, data));
            return Ok(());
        }
        self.take(worker, &header, data, quiet)?;
        while let Some((header, data)) = self.early.remove(&self.received) {
            self.take(worker, &header, data, quiet)?;
        }
        Ok(())
    }

    /// Checks that the first message, whose proof holds, came as it should.
    pub(super) fn check_hello(&mut self, header: &[u8], bytes: &[u8]) -> Result<()> {
        let (head, signed, tag) =
            Head::decode(header).ok_or_else(|| Error::protocol("a message with no header of ours"))?;
        self.into.check(&[signed, bytes].concat(), tag)?;
        if head.session != self.session || head.sequence != 0 || head.len as usize != bytes.len() {
            return Err(Error::protocol("the first message is another session's, or not the first"));
        }
        self.received = 1;
        Ok(())
    }

    /// Takes the next message.
    fn take(&mut self, worker: &mut Worker, header: &[u8], data: Data, quiet: bool) -> Result<()> {
        let checked = self.check(header, &data);
        self.received += 1;
        let head = match checked {
            Ok(head) => head,
            Err(error) => {
                drop_data(worker, data);
                return Err(error);
            }
        };
        match (head.target, data) {
            (Some(target), data) => self.take_data(worker, target, data, quiet),
            (None, Data::Bytes(bytes)) => self.take_words(worker, head.kind, bytes, quiet),
            (None, data) => {
                drop_data(worker, data);
                Err(Error::protocol(format!("a {:?} of {} bytes", head.kind, head.len)))
            }
        }
    }

    fn check(&mut self, header: &[u8], data: &Data) -> Result<Head> {
        let decoded = Head::decode(header);
        let (head, signed, tag) =
            decoded.ok_or_else(|| Error::protocol("a message with no header of ours"))?;
        let len = match data {
            Data::Bytes(bytes) => bytes.len(),
            Data::Waiting(waiting) => waiting.len,
            Data::TooLong(len) => *len,
        };
        match (head.kind, data) {
            (Kind::Data, _) => self.into.check(signed, tag)?,
            (_, Data::Bytes(bytes)) => self.into.check(&[signed, bytes.as_slice()].concat(), tag)?,
            (kind, _) => return Err(Error::protocol(format!("a {kind:?} of {len} bytes"))),
        }
        if len as u64 != u64::from(head.len) {
            return Err(Error::protocol(format!("{len} bytes came with a message of {}", head.len)));
        }
        Ok(head)
    }

    fn take_data(&mut self, worker: &mut Worker, target: Target, data: Data, quiet: bool) -> Result<()> {
        let len = match &data {
            Data::Bytes(bytes) => bytes.len(),
            Data::Waiting(waiting) => waiting.len,
            Data::TooLong(len) => *len,
        };
        let fits = len > 0 && len <= MAX_CHUNK && self.arrived + len <= MAX_OUTSTANDING;
        if !fits || target.offset.checked_add(len as u64).is_none() {
            drop_data(worker, data);
            let text =
                format!("{len} bytes of data for offset {}, {} not taken", target.offset, self.arrived);
            return Err(Error::protocol(text));
        }
        self.arrived += len;
        match data {
            Data::Bytes(bytes) => self.inbox.push(Entry::Data { target, bytes }, quiet),
            Data::Waiting(waiting) => {
                worker.receive(waiting, Pending::Received { session: self.session, target })?;
            }
            Data::TooLong(_) => {
                return Err(Error::protocol(format!("{len} bytes at once, over {MAX_EAGER}")));
            }
        }
        Ok(())
    }

    fn take_words(&mut self, worker: &mut Worker, kind: Kind, bytes: Vec<u8>, quiet: bool) -> Result<()> {
        if let Some((session, proof)) = self.greeting.take() {
            if kind != Kind::Answer || !proof.is_answered(&session, CHANNEL, &bytes)? {
                let text = "whoever took the UCX connection is not the peer";
                return Err(Error::new(error::Kind::AuthFailed, text));
            }
            self.inbox.open();
            return Ok(());
        }
        match kind {
            Kind::Frame if bytes.len() <= MAX_FRAME => self.inbox.push(Entry::Frame(bytes), quiet),
            Kind::Release => {
                let taken =
                    <[u8; 4]>::try_from(bytes.as_slice()).map_or(u32::MAX, u32::from_le_bytes) as usize;
                let outstanding = &self.inbox.outstanding;
                let less = |bytes: usize| bytes.checked_sub(taken);
                if outstanding.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_err() {
                    return Err(Error::protocol(format!("{taken} bytes were taken that were not sent")));
                }
                self.inbox.push(Entry::Room, quiet);
            }
            Kind::Region => self.add_window(worker, Announcement::decode(&bytes)?)?,
            Kind::Forget => self.forget_window(worker, decode_key(&bytes)?)?,
            Kind::Forgotten => {
                let key = decode_key(&bytes)?;
                // Its memory is freed when this is dropped.
                let exposure = self.exposures.remove(&key);
                exposure.ok_or_else(|| Error::protocol(format!("region {} was not exposed", key.id)))?;
            }
            kind => return Err(Error::protocol(format!("a {kind:?} of {} bytes", bytes.len()))),
        }
        Ok(())
    }

    /// Bytes that waited at their sender are here.
    pub(super) fn received(&self, target: Target, bytes: Vec<u8>, status: Status, quiet: bool) {
        // One that failed is a failure of the endpoint, which is told on its own.
        if status.is_ok() {
            self.inbox.push(Entry::Data { target, bytes }, quiet);
        }
    }

    /// So many bytes of data were taken.
    pub(super) fn release(&mut self, worker: &mut Worker, len: usize) -> Result<()> {
        self.arrived = self.arrived.saturating_sub(len);
        // At most MAX_CHUNK.
        self.send(worker, Kind::Release, u32::try_from(len).unwrap_or(0).to_le_bytes().to_vec())
    }

    /// The peer broke the protocol: nothing of it is looked at any more.
    pub(super) fn break_off(&mut self, worker: &mut Worker, error: Error, quiet: bool) {
        self.broken = true;
        for (_, (_, data)) in std::mem::take(&mut self.early) {
            drop_data(worker, data);
        }
        self.inbox.push(Entry::Broken(error), quiet);
    }

    // ---- the peer's memory

    fn add_window(&mut self, worker: &mut Worker, region: Announcement) -> Result<()> {
        let Announcement { key: name, capacity, address, packed } = region;
        if self.windows.contains_key(&name) || self.windows.len() >= MAX_WINDOWS {
            let text = format!("region {} was exposed twice, or over {MAX_WINDOWS} are", name.id);
            return Err(Error::protocol(text));
        }
        let key = worker.unpack(self.ep, &packed)?;
        self.windows.insert(name, Window { capacity, address, key, writes: 0, forgotten: false });
        Ok(())
    }

    fn forget_window(&mut self, worker: &mut Worker, name: RegionKey) -> Result<()> {
        let window = self.windows.get_mut(&name).filter(|window| !window.forgotten);
        let window = window.ok_or_else(|| Error::protocol(format!("region {} is not known", name.id)))?;
        window.forgotten = true;
        self.end_window(worker, name)
    }

    /// Answers when a forgotten region is no longer written to.
    fn end_window(&mut self, worker: &mut Worker, name: RegionKey) -> Result<()> {
        let over = |window: &Window| window.forgotten && window.writes == 0;
        if !self.windows.get(&name).is_some_and(over) {
            return Ok(());
        }
        if let Some(window) = self.windows.remove(&name) {
            worker.drop_key(window.key);
        }
        self.send(worker, Kind::Forgotten, encode_key(name))
    }

    /// The size of a region of the peer's.
    pub(super) fn capacity(&self, name: RegionKey) -> Result<u64> {
        let window = self.windows.get(&name).filter(|window| !window.forgotten);
        window.map(|window| window.capacity).ok_or_else(|| {
            Error::new(error::Kind::Stale, format!("region {} is not exposed (any more)", name.id))
        })
    }

    /// Begins to write a span into a region of the peer's.
    pub(super) fn write(
        &mut self,
        worker: &mut Worker,
        (name, offset): (RegionKey, u64),
        (span, source): (&Span, &Arc<Mapped>),
        written: Written,
    ) -> Result<()> {
        let capacity = self.capacity(name)?;
        if offset.checked_add(span.len as u64).is_none_or(|end| end > capacity) {
            let text = format!("{} bytes at {offset} do not lie inside {capacity} bytes", span.len);
            return Err(Error::invalid(text));
        }
        let Some(window) = self.windows.get_mut(&name) else { return Ok(()) };
        let write = self.next_write;
        self.next_write += 1;
        let what = || Pending::Write { session: self.session, write };
        worker.put(self.ep, span, source, window.address + offset, &window.key, what())?;
        window.writes += 1;
        let flushed = worker.flush(self.ep, what());
        let left = if flushed.is_ok() { 2 } else { 1 };
        let failed = flushed.is_err().then_some(Status(super::ffi::UCS_ERR_CANCELED));
        self.writes.insert(write, Write { to: name, left, failed, written });
        Ok(())
    }

    /// One half of a write is over.
    pub(super) fn wrote(
        &mut self,
        worker: &mut Worker,
        write: u64,
        status: Status,
        quiet: bool,
    ) -> Result<()> {
        let Some(under_way) = self.writes.get_mut(&write) else { return Ok(()) };
        under_way.left -= 1;
        if status.is_error() {
            under_way.failed.get_or_insert(status);
        }
        if under_way.left > 0 {
            return Ok(());
        }
        let Some(Write { to, failed, written, .. }) = self.writes.remove(&write) else { return Ok(()) };
        let result = match failed {
            None => Ok(()),
            Some(status) => {
                Err(Error::new(status.kind(), format!("writing into the peer's memory: {status}")))
            }
        };
        self.inbox.push(Entry::Written(written, result), quiet);
        if let Some(window) = self.windows.get_mut(&to) {
            window.writes -= 1;
        }
        self.end_window(worker, to)
    }

    // ---- our memory

    /// Tells the peer of a region that it may write to.
    pub(super) fn expose(
        &mut self,
        worker: &mut Worker,
        region: Announcement,
        exposure: &Arc<Exposure>,
    ) -> Result<()> {
        let bytes = region.encode();
        if bytes.len() > MAX_EAGER {
            return Err(Error::invalid(format!("a key of {} bytes is too long", region.packed.len())));
        }
        self.exposures.insert(region.key, Arc::clone(exposure));
        self.send(worker, Kind::Region, bytes)
    }

    /// Asks the peer to give up a region; its memory lives until then.
    pub(super) fn forget(&mut self, worker: &mut Worker, name: RegionKey) -> Result<()> {
        match self.exposures.contains_key(&name) {
            true => self.send(worker, Kind::Forget, encode_key(name)),
            false => Ok(()),
        }
    }

    // ---- the end

    /// Gives up what belongs to the endpoint, before that is closed. What is to be done once it is: the regions
    /// that must not be written to any more, and the writes that came to nothing.
    pub(super) fn end(mut self, worker: &mut Worker) -> (Vec<Arc<Exposure>>, Vec<Written>) {
        for (_, (_, data)) in std::mem::take(&mut self.early) {
            drop_data(worker, data);
        }
        for (_, window) in self.windows.drain() {
            worker.drop_key(window.key);
        }
        let written = self.writes.drain().map(|(_, write)| write.written).collect();
        (self.exposures.drain().map(|(_, exposure)| exposure).collect(), written)
    }
}

fn drop_data(worker: &mut Worker, data: Data) {
    if let Data::Waiting(waiting) = data {
        worker.refuse(waiting);
    }
}
