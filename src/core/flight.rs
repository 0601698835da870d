//! Fragments on other hosts: handing them out, taking their results, and taking them back.
use std::sync::Arc;

use super::buffer::{Lease, Path};
use super::config::ZeroCopy;
use super::error::{Error, Kind, Result};
use super::job::{Mode, ResultInfo, class_text};
use super::memory::Kind as MemoryKind;
use super::peer::Peer;
use super::run::{Arrival, Run, State};
use super::scheduler::callback;
use super::share::{Opened, Share, share_of};
use super::stats::add;
use super::transport::{Chunk, Place};
use super::wire::frame::{Frame, Part, Target};

/// The largest result that comes as bytes.
const LARGEST_STREAM: u64 = 256 << 20;

/// A fragment that a remote host works on.
pub(super) struct Flight {
    peer: Arc<Peer>,
    attempt: u32,
    pub(super) lease: Option<Lease>,
    /// Of its result buffer; 0 when the result comes as bytes.
    capacity: u64,
    /// The responder can reach the buffer's memory.
    exposed: bool,
    bytes: Vec<u8>,
    /// Bytes that have come through `on_data` for the result under way.
    placed: u64,
    /// A result that still waits for bytes.
    pending: Option<(u32, Part, Path, u64)>,
    /// The number of the next result.
    sequence: u32,
    /// An intermediate result was announced and not acknowledged.
    unanswered: bool,
    /// The last result was announced.
    announced: bool,
    /// An intermediate result was delivered.
    partial: bool,
    /// The last result is being delivered.
    landing: bool,
}

impl Run {
    // ---- out

    pub(super) fn hand_out(self: &Arc<Self>, peer: &Arc<Peer>, index: u64, attempt: u32, open: bool) {
        match self.prepare(peer, index, open) {
            Ok((lease, target)) => self.send_off(peer, index, attempt, lease, target),
            Err(why) => {
                let mut state = self.lock();
                state.calling -= 1;
                if let Some(share) = share_of(&mut state, peer) {
                    share.in_flight -= 1;
                    if share.opened == Opened::Now && open {
                        share.opened = Opened::No;
                    }
                }
                if state.stop.is_none() {
                    // The context of a host that is gone has no buffers: no fault of the fragment's.
                    let why = if peer.is_alive() { why } else { peer.lost_error() };
                    let counts = why.kind != Kind::PeerLost;
                    state.tries.entry(index).or_default().failed_at = Some(peer.host_id);
                    self.try_again(&mut state, index, false, why, counts);
                }
            }
        }
    }

    /// Opens the job at the peer if need be and gets the result buffer.
    fn prepare(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        index: u64,
        open: bool,
    ) -> Result<(Option<Lease>, Target)> {
        self.check_able(peer, index)?;
        if open {
            self.open(peer)?;
            if let Some(share) = share_of(&mut self.lock(), peer) {
                share.opened = Opened::Yes;
            }
            // Others may have passed this host over meanwhile.
            self.notify();
        }
        let lease = callback(&self.node, self.depth, || self.job.result_buffer(&peer.home, index))?;
        let target = match &lease {
            None => Target::Bytes,
            Some(lease) => self.target(lease, peer, index)?,
        };
        Ok((lease, target))
    }

    fn check_able(&self, peer: &Peer, index: u64) -> Result<()> {
        // Whether it has the class it says itself: it may have been registered a moment ago.
        if peer.credits > 0 {
            return Ok(());
        }
        let text = format!(
            "fragment {index} of class {} is for host {} ({}), which runs nothing for others",
            class_text(&self.spec.class),
            peer.host_id,
            peer.name
        );
        Err(Error::new(Kind::NotRegistered, text))
    }

    fn open(&self, peer: &Arc<Peer>) -> Result<()> {
        let payload = self.payload.as_ref().map_or(0, |span| span.len as u64);
        peer.try_send(&Frame::JobOpen {
            job: self.id,
            class: self.spec.class,
            count: self.count,
            payload,
            thread_limit: self.spec.thread_limit,
            priority: self.spec.priority,
            depth: self.depth,
            load: self.spec.load,
        })?;
        match &self.payload {
            Some(span) if span.len > 0 => {
                let place = Place { job: self.id, index: Place::PAYLOAD, attempt: 0 };
                peer.put(place, span)
            }
            _ => Ok(()),
        }
    }

    /// How the responder reaches the result buffer.
    fn target(&self, lease: &Lease, peer: &Arc<Peer>, index: u64) -> Result<Target> {
        if !lease.same_home(&peer.home) {
            return Err(Error::invalid(format!(
                "the result buffer of fragment {index} (buffer {}) does not come from the context of host {}",
                lease.id(),
                peer.host_id
            )));
        }
        let capacity = lease.size();
        let Some((key, offset)) = lease.region_key().filter(|_| lease.kind() == MemoryKind::Shared) else {
            return Ok(Target::Unreachable { capacity });
        };
        let owner = match self.node.config.zero_copy {
            ZeroCopy::Strict => lease.is_sole(),
            ZeroCopy::Relaxed => true,
            ZeroCopy::Off => false,
        };
        Ok(Target::Window { key, offset, capacity, alias: owner && lease.whole_pages() })
    }

    fn send_off(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        index: u64,
        attempt: u32,
        lease: Option<Lease>,
        target: Target,
    ) {
        let capacity = lease.as_ref().map_or(0, |lease| lease.size());
        {
            let mut state = self.lock();
            state.calling -= 1;
            let stopped = state.stop.is_some();
            let Some(share) = share_of(&mut state, peer) else {
                return;
            };
            if share.dead || stopped {
                share.in_flight -= 1;
                if !stopped {
                    self.try_again(&mut state, index, false, peer.lost_error(), false);
                }
                return;
            }
            share.bytes += capacity;
            let flight = Flight {
                peer: Arc::clone(peer),
                attempt,
                lease,
                capacity,
                exposed: matches!(target, Target::Window { .. }),
                bytes: Vec::new(),
                placed: 0,
                pending: None,
                sequence: 0,
                unanswered: false,
                announced: false,
                partial: false,
                landing: false,
            };
            state.flights.insert(index, Box::new(flight));
        }
        add(&peer.fragments_sent, 1);
        // A failure to send is the loss of the peer, which takes the flight back.
        peer.send(&Frame::Fragment { place: Place { job: self.id, index, attempt }, target });
    }

    // ---- in

    /// Bytes for a result have arrived; copies them, in the calling thread.
    pub(crate) fn on_data(
        self: &Arc<Self>,
        peer: &Peer,
        place: Place,
        offset: u64,
        chunk: &Chunk,
    ) -> Result<()> {
        let len = chunk.span.len as u64;
        let lease = {
            let mut state = self.lock();
            let Some(flight) = flight_of(&mut state, peer, place) else {
                return Ok(());
            };
            flight.check_range(offset, len)?;
            let Some(lease) = flight.lease.clone() else {
                if flight.landing || flight.capacity > 0 {
                    // Its buffer is in a callback: more than what was announced is of no use.
                    return Ok(());
                }
                flight.append(offset, chunk)?;
                return self.placed(state, peer, place, len);
            };
            state.calling += 1;
            lease
        };
        let copied = lease.span(lease.size()).and_then(|to| {
            let at = usize::try_from(offset).map_err(|_| Error::protocol("an offset is too large"))?;
            chunk.span.copy_to(to.block.as_ref(), to.offset + at)
        });
        drop(lease);
        let mut state = self.lock();
        state.calling -= 1;
        copied?;
        self.placed(state, peer, place, len)
    }

    /// `len` more bytes of a result are in place.
    pub(super) fn placed(
        self: &Arc<Self>,
        mut state: std::sync::MutexGuard<'_, State>,
        peer: &Peer,
        place: Place,
        len: u64,
    ) -> Result<()> {
        let mut look = state.stop.is_some();
        if let Some(flight) = flight_of(&mut state, peer, place) {
            flight.placed += len;
            let placed = flight.placed;
            if let Some((sequence, part, path, size)) = flight.pending.take_if(|pending| placed >= pending.3)
            {
                flight.check_bytes(size)?;
                let Place { index, attempt, .. } = place;
                state.ready.push_back(Arrival::Result { index, attempt, sequence, part, path, size });
                look = true;
            }
        }
        drop(state);
        if look {
            self.notify();
        }
        Ok(())
    }

    /// A result was announced.
    pub(crate) fn on_result(
        self: &Arc<Self>,
        peer: &Peer,
        place: Place,
        (sequence, part, path, size): (u32, Part, Path, u64),
    ) -> Result<()> {
        let Place { index, attempt, .. } = place;
        {
            let mut state = self.lock();
            let Some(flight) = flight_of(&mut state, peer, place) else {
                return Ok(());
            };
            flight.check_range(0, size)?;
            flight.note_result(sequence, part, path)?;
            if part != Part::Nothing && (!flight.exposed || path == Path::Staged) {
                if flight.placed < size {
                    flight.pending = Some((sequence, part, path, size));
                    return Ok(());
                }
                flight.check_bytes(size)?;
            }
            state.ready.push_back(Arrival::Result { index, attempt, sequence, part, path, size });
        }
        self.notify();
        Ok(())
    }

    /// The responder says that a fragment failed.
    pub(crate) fn on_failed(self: &Arc<Self>, peer: &Peer, place: Place, why: Error) -> Result<()> {
        {
            let mut state = self.lock();
            let Some(flight) = flight_of(&mut state, peer, place) else {
                return Ok(());
            };
            if flight.announced || flight.unanswered {
                let (host, index) = (peer.host_id, place.index);
                let text =
                    format!("host {host} says that fragment {index} failed, but has announced a result");
                return Err(Error::protocol(text));
            }
            let Some(flight) = state.flights.remove(&place.index) else {
                return Ok(());
            };
            let lacks = why.kind == Kind::NotRegistered;
            if let Some(share) = share_of(&mut state, &flight.peer) {
                share.in_flight -= 1;
                share.bytes -= flight.capacity;
                share.lacks |= lacks;
            }
            state.tries.entry(place.index).or_default().failed_at = Some(peer.host_id);
            self.try_again(&mut state, place.index, flight.partial, why, !lacks);
        }
        self.spread();
        self.notify();
        Ok(())
    }

    /// A fragment came to nothing on a host: again elsewhere if its mode allows, else it has failed.
    /// `counts`: the fault may be the fragment's own, so that one further try is enough.
    pub(super) fn try_again(&self, state: &mut State, index: u64, partial: bool, why: Error, counts: bool) {
        let tries = state.tries.entry(index).or_default();
        tries.attempt += 1;
        tries.failures += u32::from(counts);
        let again = self.spec.mode == Mode::Cluster
            && tries.failures < 2
            && (!partial || self.spec.rerun_after_partial)
            && state.stop.is_none();
        if again {
            add(&self.node.tally.fragments_retried, 1);
            state.retry.push_back(index);
        } else {
            state.ready.push_back(Arrival::Failed { index, why });
        }
    }

    pub(super) fn deliver(
        self: &Arc<Self>,
        index: u64,
        attempt: u32,
        sequence: u32,
        part: Part,
        path: Path,
        size: u64,
    ) {
        let last = part != Part::Partial;
        let taken = {
            let mut state = self.lock();
            let flight = state.flights.get_mut(&index).filter(|f| f.attempt == attempt && !f.landing);
            let taken = flight.map(|f| {
                f.placed = 0;
                f.landing = last;
                (f.lease.take(), std::mem::take(&mut f.bytes), Arc::clone(&f.peer))
            });
            if taken.is_none() {
                state.calling -= 1;
            }
            taken
        };
        let Some((lease, mut bytes, peer)) = taken else { return };
        let host_id = peer.host_id;
        let info = ResultInfo { index, count: self.count, size, host_id, attempt, sequence, last, path };
        let told = match (&lease, part) {
            (_, Part::Nothing) => Ok(()),
            (Some(lease), _) => {
                lease.set_path(path);
                let whole = if path == Path::Staged { Ok(()) } else { lease.bring_over(size) };
                whole.and_then(|()| callback(&self.node, self.depth, || self.job.receive(lease, &info)))
            }
            (None, _) => {
                bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
                callback(&self.node, self.depth, || self.job.receive_bytes(&bytes, &info))
            }
        };
        if part != Part::Nothing {
            self.node.tally.count(path, size);
            add(&peer.bytes_received, size);
        }
        if last {
            drop(lease);
            return self.land(index, &peer, told);
        }
        {
            let mut state = self.lock();
            state.calling -= 1;
            match state.flights.get_mut(&index).filter(|f| f.attempt == attempt) {
                Some(flight) => {
                    flight.lease = lease;
                    flight.partial = true;
                    flight.unanswered = false;
                }
                // Taken back meanwhile, when its buffer was in the callback.
                None => {
                    drop(state);
                    if let Some(lease) = &lease {
                        revoke(lease, &peer);
                    }
                }
            }
        }
        peer.send(&Frame::Ack { place: Place { job: self.id, index, attempt }, sequence, ok: told.is_ok() });
    }

    /// A fragment's last result was delivered.
    fn land(self: &Arc<Self>, index: u64, peer: &Arc<Peer>, told: Result<()>) {
        add(&self.node.tally.fragments_remote, 1);
        let mut state = self.lock();
        state.calling -= 1;
        let Some(flight) = state.flights.remove(&index) else {
            return;
        };
        if let Some(share) = share_of(&mut state, peer) {
            share.in_flight -= 1;
            share.bytes -= flight.capacity;
        }
        match told {
            // Only the host itself can make this fail, so that another try would be no better.
            Err(why) if state.stop.is_none() => state.ready.push_back(Arrival::Failed { index, why }),
            _ => state.left = state.left.saturating_sub(1),
        }
    }

    // ---- back

    /// A peer is gone. Unless its death is `confirmed` it may still write: its windows are taken away first.
    pub(crate) fn lose(self: &Arc<Self>, peer: &Arc<Peer>, confirmed: bool) {
        let flights = {
            let mut state = self.lock();
            let Some(share) = share_of(&mut state, peer) else {
                return;
            };
            if std::mem::replace(&mut share.dead, true) {
                return;
            }
            for index in std::mem::take(&mut share.assigned) {
                state.ready.push_back(Arrival::Failed { index, why: peer.lost_error() });
            }
            state.calling += 1;
            recall(&mut state, |flight| Arc::ptr_eq(&flight.peer, peer))
        };
        for (index, flight) in flights {
            if !confirmed {
                flight.revoke();
            }
            let partial = flight.partial;
            drop(flight);
            self.try_again(&mut self.lock(), index, partial, peer.lost_error(), false);
        }
        self.lock().calling -= 1;
        self.spread();
        self.notify();
    }

    /// Gives up everything that is not done, for a job that is stopped; the hosts that know of it.
    pub(super) fn take_back_everything(&self) -> Vec<Arc<Peer>> {
        let mut state = self.lock();
        state.retry.clear();
        state.assigned.clear();
        state.ready.clear();
        let flights = recall(&mut state, |_| true);
        state.left = 0;
        let knows = |share: &&Share| !share.dead && share.opened == Opened::Yes;
        let opened = state.shares.iter().filter(knows).map(|share| Arc::clone(&share.peer)).collect();
        drop(state);
        for (_, flight) in &flights {
            flight.revoke();
        }
        opened
    }
}

impl Flight {
    fn limit(&self) -> u64 {
        if self.capacity > 0 { self.capacity } else { LARGEST_STREAM }
    }

    pub(super) fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        let limit = self.limit();
        if offset.checked_add(len).is_some_and(|end| end <= limit) {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "host {} sent {len} bytes at offset {offset} of a result of at most {limit} bytes",
            self.peer.host_id
        )))
    }

    /// Copies a chunk into the result that comes as bytes; the range was checked.
    fn append(&mut self, offset: u64, chunk: &Chunk) -> Result<()> {
        let at = usize::try_from(offset).map_err(|_| Error::protocol("an offset is too large"))?;
        let end = at + chunk.span.len;
        if self.bytes.len() < end {
            let more = end - self.bytes.len();
            self.bytes.try_reserve(more).map_err(|_| {
                Error::new(Kind::OutOfMemory, format!("no memory for a result of {end} bytes"))
            })?;
            self.bytes.resize(end, 0);
        }
        match self.bytes.get_mut(at..end) {
            Some(room) => chunk.span.block.read(chunk.span.offset, room),
            None => Ok(()),
        }
    }

    /// A result is announced: it must be the next, nothing may be unanswered, and it must have come the way that
    /// the fragment's target leaves open.
    fn note_result(&mut self, sequence: u32, part: Part, path: Path) -> Result<()> {
        // Into a window it is copied or written by the responder, else by the link.
        let fits = part == Part::Nothing
            || match path {
                Path::Staged => !self.exposed || self.peer.link.caps().writes,
                Path::Copied => true,
                _ => self.exposed,
            };
        if self.announced
            || self.unanswered
            || sequence != self.sequence
            || !fits
            || path == Path::None && part != Part::Nothing
        {
            return Err(Error::protocol(format!(
                "host {} announced result {sequence} ({part:?}, {path:?}) of a fragment when result {} was due",
                self.peer.host_id, self.sequence
            )));
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.unanswered = part == Part::Partial;
        self.announced = part != Part::Partial;
        Ok(())
    }

    /// Enough bytes have come for a result; whether they are the right ones, when there is no buffer.
    fn check_bytes(&self, size: u64) -> Result<()> {
        if self.lease.is_some() || self.bytes.len() as u64 >= size {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "host {} sent the same bytes twice: {} of a result of {size} have come",
            self.peer.host_id,
            self.bytes.len()
        )))
    }

    /// Puts fresh pages in the place of memory that the responder may still write.
    fn revoke(&self) {
        if let Some(lease) = self.lease.as_ref().filter(|_| self.exposed) {
            revoke(lease, &self.peer);
        }
    }
}

/// Puts fresh pages in the place of a buffer's, which the peer may still write.
fn revoke(lease: &Lease, peer: &Peer) {
    if lease.kind() == MemoryKind::Shared
        && let Err(error) = lease.detach()
    {
        super::log::error!("cannot take memory back from host {}: {error}", peer.host_id);
    }
}

/// Takes flights back, except those whose last result has come.
fn recall(state: &mut State, which: impl Fn(&Flight) -> bool) -> Vec<(u64, Box<Flight>)> {
    let last = |arrival: &Arrival| match arrival {
        Arrival::Result { index, part, .. } if *part != Part::Partial => Some(*index),
        _ => None,
    };
    let landed: Vec<u64> = state.ready.iter().filter_map(last).collect();
    state
        .flights
        .extract_if(.., |index, flight| which(flight) && !flight.landing && !landed.contains(index))
        .collect()
}

/// The flight that a message of `peer` speaks of; none when it comes too late.
pub(super) fn flight_of<'a>(state: &'a mut State, peer: &Peer, place: Place) -> Option<&'a mut Flight> {
    if state.stop.is_some() {
        return None;
    }
    let flight = state.flights.get_mut(&place.index)?.as_mut();
    (flight.attempt == place.attempt && std::ptr::eq(Arc::as_ptr(&flight.peer), peer)).then_some(flight)
}
