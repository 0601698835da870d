//! Where buffers belong: one home per node and peer. What a peer was told of serves that peer only.
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::buffer::{Buffer, Carrier, Content, Lease, Piece};
use super::cache::Depot;
use super::class::{Class, LARGEST};
use super::error::{self, Error, Result};
use super::log;
use super::magazine::{self, BATCH, Epoch, Shelf};
use super::memory::{Block, Kind};
use super::region::Region;
use super::sync::lock;
use super::transport::{Link, RegionKey};
use super::watched::Watched;

pub(crate) use super::shared::Shared;

/// Bytes of a slab that small buffers are cut from.
const SLAB: usize = 256 * 1024;
/// Shells kept by a home, beyond those that threads keep.
const SHELLS: usize = 256;
static SLOTS: Mutex<Vec<bool>> = Mutex::new(Vec::new());

/// A small number that no other living home has.
struct Slot(usize);

impl Slot {
    fn new() -> Self {
        let mut slots = lock(&SLOTS);
        let free = slots.iter().position(|taken| !taken).unwrap_or(slots.len());
        match slots.get_mut(free) {
            Some(slot) => *slot = true,
            None => slots.push(true),
        }
        Self(free)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = lock(&SLOTS);
        if let Some(slot) = slots.get_mut(self.0) {
            *slot = false;
        }
    }
}

/// A slab with the place of its next chunk.
struct Slab {
    region: Arc<Region>,
    next: usize,
}

/// Where a peer's buffers come from and return to.
// Aligned so that the counts in front of it are on another line than what every get reads.
#[repr(align(128))]
pub(crate) struct Home {
    slot: Slot,
    epoch: Arc<Epoch>,
    /// Whether read memory is made so that the peer can reach it.
    exposes: AtomicBool,
    zero_on_reuse: bool,
    host_id: u32,
    closed: OnceLock<Error>,
    /// Its idle memory was freed.
    emptied: AtomicBool,
    shared: Arc<Shared>,
    link: Mutex<Option<Arc<dyn Link>>>,
    private: Box<[Depot]>,
    exposed: Box<[Depot]>,
    shells: Depot,
    slabs: [Mutex<Option<Slab>>; 2],
    context: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

fn check_gpu(gpu: i32) -> Result<()> {
    match gpu {
        -1 => Ok(()),
        0.. => Err(Error::new(
            error::Kind::NotSupported,
            format!("gpu_id {gpu}: no CUDA support in this build; use -1 for main memory"),
        )),
        _ => Err(Error::invalid(format!("gpu_id {gpu} is no GPU; use -1 for main memory"))),
    }
}

fn check_size(size: u64) -> Result<Class> {
    match size {
        0 => Err(Error::invalid("a buffer of 0 bytes was asked for; ask for at least 1")),
        _ => Class::of(size).ok_or_else(|| {
            Error::invalid(format!("a buffer of {size} bytes was asked for; the most is {LARGEST}"))
        }),
    }
}

impl Home {
    /// A home for the peer behind `link`, or for this host itself.
    pub(crate) fn new(shared: Arc<Shared>, host_id: u32, link: Option<Arc<dyn Link>>) -> Arc<Self> {
        let depots = || Class::all().map(|_| Depot::default()).collect();
        let home = Arc::new(Self {
            slot: Slot::new(),
            epoch: Arc::default(),
            exposes: AtomicBool::new(
                link.as_ref().is_some_and(|link| link.caps().maps || link.caps().writes),
            ),
            zero_on_reuse: shared.zero_on_reuse(),
            host_id,
            closed: OnceLock::new(),
            emptied: AtomicBool::new(false),
            link: Mutex::new(link),
            private: depots(),
            exposed: depots(),
            shells: Depot::default(),
            slabs: [Mutex::new(None), Mutex::new(None)],
            context: Mutex::new(None),
            shared,
        });
        home.shared.register(&home);
        home
    }

    /// The peer's host id.
    pub(crate) fn host_id(&self) -> u32 {
        self.host_id
    }
    /// What all homes of the node share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    /// Its number, for tables by home.
    pub(crate) fn slot(&self) -> usize {
        self.slot.0
    }
    /// What tells threads that their magazines are out of date.
    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }
    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }
    /// The peer's link, until the home is closed.
    pub(crate) fn link(&self) -> Option<Arc<dyn Link>> {
        lock(&self.link).clone()
    }
    /// A place for the one object that C has for this peer; emptied when the home is closed.
    pub(crate) fn context_slot(&self) -> MutexGuard<'_, Option<Arc<dyn Any + Send + Sync>>> {
        lock(&self.context)
    }

    fn check_open(&self) -> Result<()> {
        self.closed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// A buffer of at least `size` bytes. `Shared`: the peer can map it, if there is a peer that can.
    pub(crate) fn get(self: &Arc<Self>, kind: Kind, size: u64, gpu: i32) -> Result<Lease> {
        self.take(kind, size, gpu).map(Lease::first)
    }

    /// As [`Home::get`], for the C line: the object has no reference yet, the caller calls
    /// [`Carrier::start`].
    #[inline(always)]
    pub(crate) fn take(self: &Arc<Self>, kind: Kind, size: u64, gpu: i32) -> Result<Arc<dyn Carrier>> {
        if gpu == -1
            && !self.zero_on_reuse
            && let Some(class) = Class::of(size)
            && let Some(shelf) = Shelf::of(self.possible(kind), class)
            && let Some(carrier) = magazine::take(self, shelf, size)
        {
            return Ok(carrier);
        }
        self.take_slowly(kind, size, gpu)
    }

    fn possible(&self, kind: Kind) -> Kind {
        if kind == Kind::Shared && self.exposes.load(Ordering::Relaxed) {
            Kind::Shared
        } else {
            Kind::Private
        }
    }

    #[cold]
    fn take_slowly(self: &Arc<Self>, kind: Kind, size: u64, gpu: i32) -> Result<Arc<dyn Carrier>> {
        check_gpu(gpu)?;
        let class = check_size(size)?;
        self.check_open()?;
        magazine::enter(self);
        let carrier = self.kept_or_made(self.possible(kind), class, size)?;
        if self.zero_on_reuse {
            let span = carrier.buffer().span(size)?;
            span.block.zero(span.offset, span.len)?;
        }
        Ok(carrier)
    }

    fn kept_or_made(self: &Arc<Self>, kind: Kind, class: Class, size: u64) -> Result<Arc<dyn Carrier>> {
        let kept = std::iter::once(class).chain(class.substitutes()).find_map(|class| {
            self.take_from_magazine(kind, class, size).or_else(|| self.take_from_depot(kind, class, size))
        });
        if let Some(carrier) = kept {
            return Ok(carrier);
        }
        let carrier = self.make(kind, class)?;
        carrier.buffer().begin(magazine::id(), size);
        magazine::count(&self.shared, |account| account.took(false, size));
        Ok(carrier)
    }

    fn take_from_magazine(&self, kind: Kind, class: Class, size: u64) -> Option<Arc<dyn Carrier>> {
        magazine::take(self, Shelf::of(kind, class)?, size)
    }

    /// One for the caller, and some more for this thread's magazine.
    fn take_from_depot(&self, kind: Kind, class: Class, size: u64) -> Option<Arc<dyn Carrier>> {
        let depot = self.depot(kind, class)?;
        let carrier = self.withdraw(depot, class)?;
        if let Some(shelf) = Shelf::of(kind, class) {
            for _ in 1..BATCH {
                let Some(more) = self.withdraw(depot, class) else {
                    break;
                };
                if let Some(back) = magazine::stock(more, shelf) {
                    Self::deposit(back);
                    break;
                }
            }
        }
        carrier.buffer().begin(magazine::id(), size);
        magazine::count(&self.shared, |account| account.took(true, size));
        Some(carrier)
    }

    fn withdraw(&self, depot: &Depot, class: Class) -> Option<Arc<dyn Carrier>> {
        let carrier = depot.pop()?;
        self.shared.leaves_depot(class.capacity());
        Some(carrier)
    }

    fn depot(&self, kind: Kind, class: Class) -> Option<&Depot> {
        let depots = if kind == Kind::Shared { &self.exposed } else { &self.private };
        depots.get(class.index())
    }

    fn make(self: &Arc<Self>, kind: Kind, class: Class) -> Result<Arc<dyn Carrier>> {
        let (region, offset) = if class.is_small() {
            self.carve(kind, class)?
        } else {
            (self.region(kind, usize::try_from(class.capacity()).unwrap_or(usize::MAX), true)?, 0)
        };
        let kind = region.kind();
        let (capacity, shelf) = (class.capacity(), Shelf::of(kind, class));
        let piece = Piece { region, offset, class, capacity, shelf, kind };
        Ok(self.shared.carrier(Buffer::cached(Arc::clone(self), piece)))
    }

    /// A chunk of the slab at hand, or of a new one.
    fn carve(&self, kind: Kind, class: Class) -> Result<(Arc<Region>, usize)> {
        let [private, exposed] = &self.slabs;
        let mut slab = lock(if kind == Kind::Shared { exposed } else { private });
        let bytes = usize::try_from(class.capacity()).unwrap_or(usize::MAX);
        if let Some(slab) = slab.as_mut()
            && !slab.region.is_retired()
            && slab.next + bytes <= slab.region.block().capacity()
        {
            let offset = slab.next;
            slab.next += bytes;
            return Ok((Arc::clone(&slab.region), offset));
        }
        let region = self.region(kind, SLAB, false)?;
        *slab = (!self.is_closed()).then(|| Slab { region: Arc::clone(&region), next: bytes });
        Ok((region, 0))
    }

    /// A new region; private when the peer cannot be told of it.
    fn region(&self, kind: Kind, bytes: usize, whole: bool) -> Result<Arc<Region>> {
        let key = self.shared.region_key();
        let link = self.link();
        if let (Kind::Shared, Some(link)) = (kind, &link)
            && let Some(region) = self.exposed_region(link, key, bytes, whole)?
        {
            return Ok(region);
        }
        let (block, _) = self.shared.allocate(Kind::Private, bytes)?;
        let block = match link {
            Some(link) => link.keep(block),
            None => block,
        };
        Ok(Arc::new(Region::new(key, block, Kind::Private, whole, None)))
    }

    fn exposed_region(
        &self,
        link: &Arc<dyn Link>,
        key: RegionKey,
        bytes: usize,
        whole: bool,
    ) -> Result<Option<Arc<Region>>> {
        let (block, share) = self.shared.allocate(Kind::Shared, bytes)?;
        let Some(share) = share else { return Ok(None) };
        let capacity = u64::try_from(block.capacity()).unwrap_or(u64::MAX);
        let told = match link.caps().writes {
            true => link.expose(key, block),
            false => link.announce(key, capacity, share).map(|()| block),
        };
        match told {
            Ok(block) => {
                Ok(Some(Arc::new(Region::new(key, block, Kind::Shared, whole, Some(Arc::downgrade(link))))))
            }
            Err(error) => {
                // Not tried again: each try may wait for a second.
                self.exposes.store(false, Ordering::Relaxed);
                log::warn!(
                    "host {} cannot reach our memory, results are copied instead: {error}",
                    self.host_id
                );
                Ok(None)
            }
        }
    }

    /// Refuses sizes and GPUs that no buffer can have.
    pub(crate) fn check(&self, size: u64, gpu: i32) -> Result<()> {
        check_gpu(gpu)?;
        check_size(size).map(drop)
    }

    /// A block over bytes of our own, for as long as they live.
    pub(crate) fn block_over(&self, bytes: &[u8]) -> Arc<dyn Block> {
        self.shared.wrap(bytes.as_ptr().expose_provenance(), bytes.len())
    }

    /// The host's own memory as a buffer; `done` runs once, after the last use.
    pub(crate) fn wrap(
        self: &Arc<Self>,
        address: usize,
        size: u64,
        gpu: i32,
        done: Option<Box<dyn FnOnce() + Send>>,
    ) -> Result<Lease> {
        self.check_open()?;
        check_gpu(gpu)?;
        if address == 0 {
            return Err(Error::invalid(format!("data is NULL; {size} bytes of memory were to be wrapped")));
        }
        if size == 0 {
            return Err(Error::invalid(format!(
                "0 bytes at {address:#x} were to be wrapped; wrap at least 1"
            )));
        }
        let bytes = usize::try_from(size).ok().filter(|bytes| address.checked_add(*bytes).is_some());
        let Some(bytes) = bytes else {
            return Err(Error::invalid(format!("{size} bytes at {address:#x} reach over the end of memory")));
        };
        let mut block = self.shared.wrap(address, bytes);
        if let Some(done) = done {
            block = Arc::new(Watched::new(block, done));
        }
        let content = Content { block, offset: 0, kind: Kind::Wrapped, region: None, parent: None };
        Ok(self.shell(content, size))
    }

    /// A peer's window as a buffer, from its first byte on.
    pub(crate) fn lend(self: &Arc<Self>, block: Arc<dyn Block>, size: u64) -> Result<Lease> {
        self.check_open()?;
        let capacity = u64::try_from(block.capacity()).unwrap_or(u64::MAX);
        if size == 0 || size > capacity {
            return Err(Error::invalid(format!(
                "{size} bytes do not lie inside a window of {capacity} bytes"
            )));
        }
        let content = Content { block, offset: 0, kind: Kind::Window, region: None, parent: None };
        Ok(self.shell(content, size))
    }

    /// A part of a buffer as a buffer of its own, which holds the whole.
    pub(crate) fn view(parent: &Arc<dyn Carrier>, offset: u64, size: u64) -> Result<Lease> {
        let buffer = parent.buffer();
        let whole = buffer.size();
        if size == 0 {
            return Err(Error::invalid(format!(
                "a duplicate of 0 bytes at {offset} was asked for; ask for at least 1"
            )));
        }
        let end = offset.checked_add(size).filter(|end| *end <= whole);
        let (Some(end), Ok(start)) = (end, usize::try_from(offset)) else {
            return Err(Error::invalid(format!(
                "a duplicate of {size} bytes at {offset} does not lie inside a buffer of {whole} bytes"
            )));
        };
        let span = buffer.span(end)?;
        let content = Content {
            block: span.block,
            offset: span.offset + start,
            kind: buffer.kind(),
            region: buffer.region(),
            parent: Some(Lease::share(parent)),
        };
        Ok(buffer.home().shell(content, size))
    }

    fn shell(self: &Arc<Self>, content: Content, size: u64) -> Lease {
        let carrier = magazine::take(self, Shelf::SHELLS, size).unwrap_or_else(|| self.shell_slowly(size));
        carrier.buffer().fill(content);
        Lease::first(carrier)
    }

    #[cold]
    fn shell_slowly(self: &Arc<Self>, size: u64) -> Arc<dyn Carrier> {
        magazine::enter(self);
        let kept = self.shells.pop();
        let carrier = kept.unwrap_or_else(|| self.shared.carrier(Buffer::shell(Arc::clone(self))));
        carrier.buffer().begin(magazine::id(), size);
        magazine::count(&self.shared, |account| account.lent());
        carrier
    }

    /// Takes an object back whose last reference is gone.
    #[inline]
    pub(crate) fn rest(carrier: Arc<dyn Carrier>) {
        match carrier.buffer().piece() {
            Some(piece) if !piece.region.is_retired() => {
                if let Some(carrier) = magazine::put(carrier) {
                    Self::rest_slowly(carrier);
                }
            }
            Some(_) => Self::retire(carrier),
            None => Self::rest_shell(carrier),
        }
    }

    #[inline(never)]
    fn rest_shell(carrier: Arc<dyn Carrier>) {
        // Drops what it stood for, which may bring a parent to rest.
        drop(carrier.buffer().empty());
        if let Some(carrier) = magazine::put(carrier) {
            Self::rest_slowly(carrier);
        }
    }

    /// The end of a buffer that was cut off from its peer.
    #[cold]
    fn retire(carrier: Arc<dyn Carrier>) {
        let buffer = carrier.buffer();
        magazine::count(buffer.home().shared(), |account| account.returned(buffer.size()));
    }

    #[cold]
    fn rest_slowly(carrier: Arc<dyn Carrier>) {
        let buffer = carrier.buffer();
        let home = Arc::clone(buffer.home());
        let (shelf, bytes) = match buffer.piece() {
            Some(piece) => (piece.shelf, buffer.size()),
            None => (Some(Shelf::SHELLS), 0),
        };
        magazine::count(&home.shared, |account| account.returned(bytes));
        if home.is_closed() {
            return;
        }
        magazine::enter(&home);
        let Some(shelf) = shelf else {
            return Self::deposit(carrier);
        };
        magazine::spill(&home, shelf).into_iter().flatten().for_each(Self::deposit);
        if let Some(carrier) = magazine::stock(carrier, shelf) {
            Self::deposit(carrier);
        }
    }

    /// Brings an object at rest to its depot, or destroys it when the depot does not take it.
    pub(crate) fn deposit(carrier: Arc<dyn Carrier>) {
        let home = Arc::clone(carrier.buffer().home());
        let Some(piece) = carrier.buffer().piece() else {
            drop(home.shells.push(carrier, SHELLS));
            return;
        };
        let bytes = piece.capacity;
        let Some(depot) = home.depot(piece.kind, piece.class) else {
            return;
        };
        home.shared.enters_depot(bytes);
        match depot.push(carrier, usize::MAX) {
            None => home.shared.enforce(),
            Some(refused) => {
                home.shared.leaves_depot(bytes);
                drop(refused);
            }
        }
    }

    /// Takes the oldest buffer of a class out of the depots.
    pub(crate) fn oldest(&self, class: Class) -> Option<Arc<dyn Carrier>> {
        [&self.private, &self.exposed].into_iter().find_map(|depots| {
            let carrier = depots.get(class.index())?.pop_oldest()?;
            self.shared.leaves_depot(class.capacity());
            Some(carrier)
        })
    }

    /// Makes all threads give up their magazines at their next use; this one does now.
    pub(crate) fn flush(&self) {
        self.epoch.advance();
        magazine::sweep();
    }

    /// Once a second: frees some of what nobody needed.
    pub(crate) fn decay(&self) {
        for depot in self.private.iter().chain(&self.exposed) {
            for carrier in depot.decay() {
                let capacity = carrier.buffer().piece().map_or(0, |piece| piece.capacity);
                self.shared.leaves_depot(capacity);
                drop(carrier);
            }
        }
        drop(self.shells.decay());
    }

    /// Gets fail with `error` from now on; [`Home::close`] follows.
    pub(crate) fn refuse(&self, error: Error) {
        if self.closed.set(error).is_ok() {
            self.flush();
        }
    }

    /// Ends the home: gets fail with `error` from now on, idle memory is freed, buffers that are out are
    /// freed on their release.
    pub(crate) fn close(&self, error: Error) {
        self.refuse(error);
        if self.emptied.swap(true, Ordering::AcqRel) {
            return;
        }
        for depot in self.private.iter().chain(&self.exposed) {
            for carrier in depot.close() {
                let capacity = carrier.buffer().piece().map_or(0, |piece| piece.capacity);
                self.shared.leaves_depot(capacity);
                drop(carrier);
            }
        }
        drop(self.shells.close());
        for slab in &self.slabs {
            let slab = lock(slab).take();
            drop(slab);
        }
        let context = self.context_slot().take();
        drop(context);
        let link = lock(&self.link).take();
        drop(link);
    }
}
