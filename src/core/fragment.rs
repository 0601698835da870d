//! A fragment that runs here for another host: its result memory, its flushes, its result.
//!
//! Being inside a fragment belongs to this object (and the context that carries it), not to a thread.
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::admission::aside;
use super::buffer::{Carrier, Lease, Path};
use super::error::{Error, Kind, Result};
use super::home::Home;
use super::memory::{Block, Kind as MemoryKind, Span};
use super::peer::Peer;
use super::remote::Remote;
use super::sleeper::Sleeper;
use super::stats::add;
use super::sync::lock;
use super::transport::{Place, RegionKey};
use super::wire::frame::{Frame, Part, Target};

thread_local! {
    /// The fragments that this thread is running, innermost last.
    static RUNNING: RefCell<Vec<Arc<Fragment>>> = const { RefCell::new(Vec::new()) };
}

/// The requester's memory, mapped here.
struct Window {
    key: RegionKey,
    block: Arc<dyn Block>,
    offset: usize,
    /// May be handed out as write memory.
    alias: bool,
}

/// The buffer through which the window was handed out, and its id then: shells are used again.
struct Alias {
    carrier: Arc<dyn Carrier>,
    id: u64,
}

/// What only one thread at a time may do.
struct Output {
    window: Option<Window>,
    alias: Option<Alias>,
    sequence: u32,
    /// Bytes written for a result without a buffer.
    written: Vec<u8>,
}

/// What became of the flush under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Waiting(u32),
    Given(bool),
}

/// A fragment that runs here for another host.
pub(crate) struct Fragment {
    remote: Arc<Remote>,
    place: Place,
    target: Target,
    active: AtomicBool,
    /// Write memory was asked for.
    asked: AtomicBool,
    output: Mutex<Output>,
    answer: Mutex<(Answer, Option<Arc<Sleeper>>)>,
}

impl Fragment {
    /// A fragment about to run. Err: the requester named memory that is not there.
    pub(crate) fn new(remote: &Arc<Remote>, place: Place, target: Target) -> Result<Arc<Self>> {
        let link = &remote.peer.link;
        let window = match target {
            Target::Window { key, offset, capacity, .. } if link.caps().writes => {
                inside(offset, capacity, link.exposed(key)?)?;
                None
            }
            Target::Window { key, offset, capacity, alias } => {
                let block = remote.peer.window(key)?;
                let at = inside(offset, capacity, block.capacity() as u64)?;
                Some(Window { key, block, offset: at, alias: alias && at == 0 })
            }
            Target::Bytes | Target::Unreachable { .. } => None,
        };
        let output = Output { window, alias: None, sequence: 0, written: Vec::new() };
        Ok(Arc::new(Self {
            remote: Arc::clone(remote),
            place,
            target,
            active: AtomicBool::new(true),
            asked: AtomicBool::new(false),
            output: Mutex::new(output),
            answer: Mutex::new((Answer::Given(false), None)),
        }))
    }

    /// Runs `body` with this fragment as the thread's innermost.
    pub(crate) fn enter<R>(self: &Arc<Self>, body: impl FnOnce() -> R) -> R {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                let _ = RUNNING.try_with(|running| running.borrow_mut().pop());
            }
        }
        let _ = RUNNING.try_with(|running| running.borrow_mut().push(Arc::clone(self)));
        let _leave = Leave;
        body()
    }

    /// The innermost fragment that the calling thread runs for the host of `home`.
    pub(crate) fn current(home: &Arc<Home>) -> Option<Arc<Self>> {
        RUNNING
            .try_with(|running| {
                let running = running.borrow();
                running.iter().rev().find(|f| Arc::ptr_eq(&f.remote.peer.home, home)).cloned()
            })
            .ok()
            .flatten()
    }

    /// Whether the fragment's function has not returned.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Where its buffers come from.
    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.remote.peer.home
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of the requester's result buffer; none when the result goes as bytes.
    fn capacity(&self) -> Option<u64> {
        match self.target {
            Target::Bytes => None,
            Target::Unreachable { capacity } | Target::Window { capacity, .. } => Some(capacity),
        }
    }

    /// `get_write_memory` inside the fragment.
    pub(crate) fn write_memory(self: &Arc<Self>, size: u64, gpu: i32) -> Result<Lease> {
        let home = self.home();
        if let Some(capacity) = self.capacity().filter(|capacity| size > *capacity) {
            home.check(size, gpu)?;
            return Err(Error::invalid(format!(
                "{size} bytes of write memory were asked for, but the requester's result buffer holds {capacity}"
            )));
        }
        let first = !self.asked.swap(true, Ordering::AcqRel);
        if first && size > 0 && gpu == -1 {
            let mut output = self.output();
            if let Some(window) = output.window.as_ref().filter(|window| window.alias) {
                window.block.prefault(usize::try_from(size).unwrap_or_default());
                let lease = home.lend(Arc::clone(&window.block), size)?;
                output.alias = Some(Alias { carrier: Arc::clone(lease.carrier()), id: lease.id() });
                return Ok(lease);
            }
        }
        home.get(MemoryKind::Private, size, gpu)
    }

    /// `flush`: an intermediate result. Returns once the requester's callback has returned.
    pub(crate) fn flush(self: &Arc<Self>, lease: &Lease) -> Result<()> {
        self.check(lease)?;
        let mut output = self.output();
        self.remote.peer.add_flushing(self.place, self);
        let flushed = self.place_buffer(&mut output, lease).and_then(|path| {
            let size = lease.size();
            lease.set_path(path);
            self.announce_partial(&mut output, path, size)
        });
        self.remote.peer.remove_flushing(self.place);
        flushed
    }

    fn announce_partial(&self, output: &mut Output, path: Path, size: u64) -> Result<()> {
        let sequence = output.sequence;
        output.sequence += 1;
        self.set_answer(Answer::Waiting(sequence), Some(Sleeper::current()));
        let peer = &self.remote.peer;
        self.count(path, size);
        peer.try_send(&Frame::Result { place: self.place, sequence, part: Part::Partial, path, size })?;
        let mut answer = None;
        let mut done = || {
            answer = match self.lock_answer().0 {
                Answer::Given(ok) => Some(ok),
                Answer::Waiting(_) => None,
            };
            answer.is_some() || !peer.is_alive() || self.remote.is_cancelled()
        };
        aside(&peer.node, || peer.node.wait(None, &mut done));
        match answer {
            Some(true) => Ok(()),
            Some(false) => Err(Error::new(
                Kind::FragmentFailed,
                format!("host {} refused the intermediate result {sequence}", peer.host_id),
            )),
            None if peer.is_alive() => Err(Error::new(
                Kind::Cancelled,
                format!("host {} no longer wants the result of this job", peer.host_id),
            )),
            None => Err(peer.lost_error()),
        }
    }

    fn lock_answer(&self) -> MutexGuard<'_, (Answer, Option<Arc<Sleeper>>)> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_answer(&self, answer: Answer, sleeper: Option<Arc<Sleeper>>) {
        *self.lock_answer() = (answer, sleeper);
    }

    /// The requester's callback for an intermediate result has returned.
    pub(crate) fn acknowledge(&self, sequence: u32, ok: bool) {
        {
            let mut answer = self.lock_answer();
            if answer.0 != Answer::Waiting(sequence) {
                return;
            }
            answer.0 = Answer::Given(ok);
        }
        self.nudge();
    }

    /// Makes a waiting flush look at the state of things.
    pub(crate) fn nudge(&self) {
        let sleeper = self.lock_answer().1.clone();
        if let Some(sleeper) = sleeper {
            sleeper.wake(self.remote.peer.node.lead.waiter());
        }
    }

    /// Whether a buffer can be delivered as this fragment's result.
    pub(crate) fn check(&self, lease: &Lease) -> Result<()> {
        let peer = &self.remote.peer;
        if !lease.same_home(&peer.home) {
            return Err(Error::invalid(format!(
                "buffer {} does not come from the context of host {}, which asked for this fragment",
                lease.id(),
                peer.host_id
            )));
        }
        match self.capacity() {
            Some(capacity) if lease.size() > capacity => Err(Error::invalid(format!(
                "buffer {} of {} bytes is larger than the requester's result buffer of {capacity} bytes",
                lease.id(),
                lease.size()
            ))),
            _ => Ok(()),
        }
    }

    /// Brings a buffer's bytes to the result's place.
    fn place_buffer(&self, output: &mut Output, lease: &Lease) -> Result<Path> {
        if let Some(alias) = &output.alias
            && alias.is(lease)
        {
            return Ok(Path::Mapped);
        }
        self.detach(output)?;
        let size = usize::try_from(lease.size()).map_err(|_| Error::invalid("the buffer is too large"))?;
        let span = lease.span(lease.size())?;
        let Some(window) = &output.window else {
            return self.send_buffer(lease, &span);
        };
        window.block.prefault(window.offset.saturating_add(size));
        span.copy_to(window.block.as_ref(), window.offset)?;
        Ok(Path::Copied)
    }

    /// Sends a buffer's bytes to a result that is not mapped here.
    fn send_buffer(&self, lease: &Lease, span: &Span) -> Result<Path> {
        let peer = &self.remote.peer;
        if let Some((key, offset)) = self.region(lease) {
            let (slot, me, node) =
                (Arc::<Mutex<Option<Result<()>>>>::default(), Sleeper::current(), &peer.node);
            let (to, waker) = (Arc::clone(&slot), Arc::clone(node));
            let written = move |result| {
                *lock(&to) = Some(result);
                me.wake(waker.lead.waiter());
            };
            if peer.link.write(key, offset, span, Box::new(written)).is_ok() {
                let mut done = || lock(&slot).is_some() || !peer.is_alive();
                aside(node, || node.wait(None, &mut done));
                let result = lock(&slot).take();
                return result.unwrap_or_else(|| Err(peer.lost_error())).map(|()| Path::Direct);
            }
        }
        peer.put(self.place, span)?;
        Ok(self.put_path())
    }

    /// The place of a region of the requester's that the link can write this buffer to by itself. Memory of the
    /// host's is copied instead: nothing may read it once its last holder has let go of it.
    fn region(&self, lease: &Lease) -> Option<(RegionKey, u64)> {
        match self.target {
            Target::Window { key, offset, .. } if self.remote.peer.link.caps().writes => {
                (lease.kind() == MemoryKind::Private).then_some((key, offset))
            }
            _ => None,
        }
    }

    /// Has the link write the last result and announce it when it is in place, if nobody else holds the buffer
    /// and so may change it meanwhile. False: nothing was begun.
    fn send_behind(&self, sequence: u32, lease: &Lease) -> Result<bool> {
        let Some((key, offset)) = self.region(lease).filter(|_| lease.is_sole()) else {
            return Ok(false);
        };
        let (size, place) = (lease.size(), self.place);
        let span = lease.span(size)?;
        let (peer, held) = (Arc::clone(&self.remote.peer), lease.clone());
        let written = move |result: Result<()>| {
            drop(held);
            let path = Path::Direct;
            match result {
                Ok(()) => {
                    count(&peer, path, size);
                    peer.send(&Frame::Result { place, sequence, part: Part::Final, path, size });
                }
                Err(error) => peer.send(&Frame::Failed { place, kind: error.kind, text: error.text }),
            }
        };
        Ok(self.remote.peer.link.write(key, offset, &span, Box::new(written)).is_ok())
    }

    /// How bytes travel that are put on the link.
    fn put_path(&self) -> Path {
        if self.remote.peer.link.caps().in_place { Path::Copied } else { Path::Staged }
    }

    /// Cuts the handed-out window off from the requester, if somebody still holds it.
    fn detach(&self, output: &mut Output) -> Result<()> {
        let Some(alias) = output.alias.take() else {
            return Ok(());
        };
        let Some(fresh) = alias.carrier.buffer().detach_if(alias.id)? else {
            return Ok(());
        };
        if let Some(window) = &mut output.window {
            window.block = Arc::clone(&fresh);
            self.remote.peer.replace_window(window.key, fresh);
        }
        Ok(())
    }

    /// Adds to a result that goes as bytes.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut output = self.output();
        if !self.is_active() {
            return Err(Error::new(Kind::NotInFragment, "the writer's fragment has returned"));
        }
        output.written.try_reserve(bytes.len()).map_err(|_| {
            let total = output.written.len();
            Error::new(Kind::OutOfMemory, format!("no memory for {} more bytes after {total}", bytes.len()))
        })?;
        output.written.extend_from_slice(bytes);
        Ok(())
    }

    /// Sends what was written so far as an intermediate result.
    pub(crate) fn flush_written(self: &Arc<Self>) -> Result<()> {
        let mut output = self.output();
        if !self.is_active() {
            return Err(Error::new(Kind::NotInFragment, "the writer's fragment has returned"));
        }
        self.remote.peer.add_flushing(self.place, self);
        let flushed = self
            .place_written(&mut output)
            .and_then(|(path, size)| self.announce_partial(&mut output, path, size));
        self.remote.peer.remove_flushing(self.place);
        flushed
    }

    fn place_written(&self, output: &mut Output) -> Result<(Path, u64)> {
        let bytes = std::mem::take(&mut output.written);
        if !bytes.is_empty() {
            let block = self.home().block_over(&bytes);
            self.remote.peer.put(self.place, &Span { block, offset: 0, len: bytes.len() })?;
        }
        Ok((self.put_path(), bytes.len() as u64))
    }

    /// The fragment's function has returned: sends the result or the failure.
    pub(crate) fn finish(self: &Arc<Self>, result: Result<Option<Lease>>) {
        let mut output = self.output();
        self.active.store(false, Ordering::Release);
        // Counted before the requester can know that it is done.
        let peer = &self.remote.peer;
        add(&peer.node.tally.fragments_served, 1);
        add(&peer.fragments_run, 1);
        let sent = result.and_then(|lease| self.send_last(&mut output, lease));
        if let Err(error) = sent {
            if let Err(more) = self.detach(&mut output) {
                super::log::error!("cannot cut a buffer off from host {}: {more}", peer.host_id);
            }
            peer.send(&Frame::Failed { place: self.place, kind: error.kind, text: error.text });
        }
    }

    fn send_last(&self, output: &mut Output, lease: Option<Lease>) -> Result<()> {
        let (part, path, size) = match (lease, self.target) {
            (_, Target::Bytes) => {
                let (path, size) = self.place_written(output)?;
                (Part::Final, path, size)
            }
            (None, _) => {
                self.detach(output)?;
                (Part::Nothing, Path::None, 0)
            }
            (Some(lease), _) => {
                self.check(&lease)?;
                if self.send_behind(output.sequence, &lease)? {
                    return Ok(());
                }
                let path = self.place_buffer(output, &lease)?;
                lease.set_path(path);
                let size = lease.size();
                if path == Path::Mapped && !lease.is_sole() {
                    self.detach(output)?;
                }
                output.alias = None;
                (Part::Final, path, size)
            }
        };
        self.count(path, size);
        let sequence = output.sequence;
        self.remote.peer.try_send(&Frame::Result { place: self.place, sequence, part, path, size })
    }

    fn count(&self, path: Path, size: u64) {
        count(&self.remote.peer, path, size);
    }
}

fn count(peer: &Peer, path: Path, size: u64) {
    peer.node.tally.count(path, size);
    add(&peer.bytes_sent, size);
}

/// The offset of a window, if it lies inside its region.
fn inside(offset: u64, capacity: u64, region: u64) -> Result<usize> {
    let end = offset.checked_add(capacity).filter(|end| *end <= region);
    usize::try_from(offset).ok().filter(|_| end.is_some()).ok_or_else(|| {
        Error::protocol(format!(
            "a window of {capacity} bytes at offset {offset} lies outside its region of {region} bytes"
        ))
    })
}

impl Alias {
    /// Whether `lease` is exactly the buffer that was handed out.
    fn is(&self, lease: &Lease) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.carrier), Arc::as_ptr(lease.carrier())) && lease.id() == self.id
    }
}
