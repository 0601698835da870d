//! What each thread keeps to itself: magazines of small buffers, the ids it may give, and its counts. A warm
//! get and release touch nothing that another thread writes.
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::account::Account;
use super::buffer::Carrier;
use super::class::Class;
use super::home::{Home, Shared};
use super::memory::Kind;

/// Buffers of one class that a thread keeps.
const ROUNDS: usize = 8;
/// How many move at once between a full or empty magazine and the depot.
pub(crate) const BATCH: usize = ROUNDS / 2;
/// Ids that a thread draws at once.
const IDS: u64 = 1024;
const SHELVES: usize = 2 * Class::IN_MAGAZINES + 1;
const SHELVES_BELOW: u8 = 54;
const _: () = assert!(SHELVES == SHELVES_BELOW as usize + 1);

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// Counts homes closed and trimmed: threads then look for magazines that nobody will ask them for.
static SWEEPS: AtomicU64 = AtomicU64::new(0);

/// A kind of buffer that threads keep: its place in the set of magazines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shelf(u8);

impl Shelf {
    /// Empty shells.
    pub(crate) const SHELLS: Self = Self(SHELVES_BELOW);

    /// The shelf of a class, when threads keep it.
    pub(crate) fn of(kind: Kind, class: Class) -> Option<Self> {
        let index = class.index() + if kind == Kind::Shared { Class::IN_MAGAZINES } else { 0 };
        u8::try_from(index).ok().filter(|_| class.in_magazines()).map(Self)
    }
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What tells a thread that its magazines for a home are out of date: a number that no home had before.
pub(crate) struct Epoch(AtomicU64);

impl Default for Epoch {
    fn default() -> Self {
        Self(AtomicU64::new(Self::next()))
    }
}

impl Epoch {
    fn next() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
    /// All threads flush their magazines at their next use.
    pub(crate) fn advance(&self) {
        self.0.store(Self::next(), Ordering::Release);
        SWEEPS.fetch_add(1, Ordering::Release);
    }
    #[inline]
    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Default)]
struct Magazine {
    len: usize,
    rounds: [Option<Arc<dyn Carrier>>; ROUNDS],
}

impl Magazine {
    #[inline]
    fn pop(&mut self) -> Option<Arc<dyn Carrier>> {
        let top = self.len.checked_sub(1)?;
        self.len = top;
        self.rounds.get_mut(top)?.take()
    }
    /// Only when there is room: else the carrier stays where it is.
    #[inline]
    fn push(&mut self, carrier: &mut Option<Arc<dyn Carrier>>) {
        if let Some(slot) = self.rounds.get_mut(self.len) {
            // What was there is None; saying so spares the code that would drop it.
            std::mem::forget(std::mem::replace(slot, carrier.take()));
            self.len += 1;
        }
    }
    fn room(&self) -> usize {
        ROUNDS - self.len
    }
}

/// One thread's magazines for one home. What every use reads comes first.
#[repr(C)]
struct Set {
    slot: usize,
    epoch: Arc<Epoch>,
    seen: u64,
    account: Arc<Account>,
    limit: u64,
    magazines: [Magazine; SHELVES],
}

impl Set {
    #[inline]
    fn serves(&self, home: &Home) -> bool {
        self.seen == home.epoch().now()
    }
    #[inline]
    fn is_current(&self) -> bool {
        self.seen == self.epoch.now()
    }
    fn unload(&mut self, out: &mut Vec<Arc<dyn Carrier>>) {
        for magazine in &mut self.magazines {
            while let Some(carrier) = magazine.pop() {
                self.account.unkeep(weight(&carrier));
                out.push(carrier);
            }
        }
    }
}

/// One thread's account with one node, and how many bytes it may keep.
struct Desk {
    account: Arc<Account>,
    limit: u64,
    shared: Weak<Shared>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.close_account(&self.account, self.limit);
        }
    }
}

struct Local {
    next_id: u64,
    end_id: u64,
    swept: u64,
    /// The set used last, out of its place: to find it takes nothing that depends on the buffer at hand.
    hot: Option<Box<Set>>,
    /// By the home's slot.
    sets: Vec<Option<Box<Set>>>,
    desks: Vec<Arc<Desk>>,
}

thread_local! {
    static LOCAL: RefCell<Local> = const {
        RefCell::new(Local { next_id: 0, end_id: 0, swept: 0, hot: None, sets: Vec::new(), desks: Vec::new() })
    };
}

impl Drop for Local {
    fn drop(&mut self) {
        let mut out = Vec::new();
        self.park();
        self.sets.iter_mut().flatten().for_each(|set| set.unload(&mut out));
        out.into_iter().for_each(Home::deposit);
    }
}

impl Local {
    fn id(&mut self) -> u64 {
        if self.next_id == self.end_id {
            self.next_id = NEXT_ID.fetch_add(IDS, Ordering::Relaxed);
            self.end_id = self.next_id + IDS;
        }
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    #[inline]
    fn set(&mut self, home: &Home) -> Option<&mut Set> {
        if self.hot.as_deref().is_some_and(|set| set.serves(home)) {
            return self.hot.as_deref_mut();
        }
        self.fetch(home)
    }

    /// Makes another home's set the hot one.
    fn fetch(&mut self, home: &Home) -> Option<&mut Set> {
        self.park();
        self.hot = self.sets.get_mut(home.slot())?.take();
        self.hot.as_deref_mut().filter(|set| set.serves(home))
    }

    /// Brings the hot set to its place.
    fn park(&mut self) {
        if let Some(set) = self.hot.take()
            && let Some(place) = self.sets.get_mut(set.slot)
        {
            *place = Some(set);
        }
    }

    fn desk(&mut self, shared: &Arc<Shared>) -> Arc<Desk> {
        let here = |desk: &&Arc<Desk>| desk.shared.as_ptr() == Arc::as_ptr(shared);
        if let Some(desk) = self.desks.iter().find(here) {
            return Arc::clone(desk);
        }
        self.desks.retain(|desk| desk.shared.strong_count() > 0);
        let (account, limit) = shared.open_account();
        let desk = Arc::new(Desk { account, limit, shared: Arc::downgrade(shared) });
        self.desks.push(Arc::clone(&desk));
        desk
    }

    /// Empties and drops the sets that are out of date: their homes were closed or trimmed.
    fn sweep(&mut self, out: &mut Vec<Arc<dyn Carrier>>) {
        let sweeps = SWEEPS.load(Ordering::Acquire);
        if self.swept == sweeps {
            return;
        }
        self.swept = sweeps;
        self.park();
        self.desks.retain(|desk| desk.shared.strong_count() > 0);
        for place in &mut self.sets {
            if let Some(set) = place.as_mut().filter(|set| !set.is_current()) {
                set.unload(out);
                *place = None;
            }
        }
    }
}

/// Bytes that a buffer at rest counts for.
fn weight(carrier: &Arc<dyn Carrier>) -> u64 {
    carrier.buffer().piece().map_or(0, |piece| piece.capacity)
}

#[inline(always)]
fn with<R>(f: impl FnOnce(&mut Local) -> R) -> Option<R> {
    LOCAL.try_with(|local| local.try_borrow_mut().ok().map(|mut local| f(&mut local))).ok().flatten()
}

/// Hands out a buffer from this thread's magazine.
#[inline(always)]
pub(crate) fn take(home: &Home, shelf: Shelf, size: u64) -> Option<Arc<dyn Carrier>> {
    with(|local| {
        let set = local.set(home)?;
        let carrier = set.magazines.get_mut(shelf.index())?.pop()?;
        let account = &set.account;
        let buffer = carrier.buffer();
        match buffer.piece() {
            Some(piece) => {
                account.unkeep(piece.capacity);
                account.took(true, size);
            }
            None => account.lent(),
        }
        let id = local.id();
        buffer.begin(id, size);
        Some(carrier)
    })?
}

/// Takes a buffer back into this thread's magazine; returns it when it could not.
#[inline(always)]
pub(crate) fn put(carrier: Arc<dyn Carrier>) -> Option<Arc<dyn Carrier>> {
    let mut carrier = Some(carrier);
    with(|local| {
        let buffer = carrier.as_ref()?.buffer();
        let (shelf, capacity, size) = match buffer.piece() {
            Some(piece) => (piece.shelf?, piece.capacity, buffer.size()),
            None => (Shelf::SHELLS, 0, 0),
        };
        let set = local.set(buffer.home())?;
        if set.account.kept() + capacity > set.limit {
            return None;
        }
        set.magazines.get_mut(shelf.index())?.push(&mut carrier);
        if carrier.is_none() {
            set.account.keep(capacity);
            set.account.returned(size);
        }
        Some(())
    });
    carrier
}

/// Keeps a buffer at rest in this thread's magazine; returns it when there is no room.
pub(crate) fn stock(carrier: Arc<dyn Carrier>, shelf: Shelf) -> Option<Arc<dyn Carrier>> {
    let capacity = weight(&carrier);
    let mut carrier = Some(carrier);
    with(|local| {
        let set = local.set(carrier.as_ref()?.buffer().home())?;
        if set.account.kept() + capacity > set.limit {
            return None;
        }
        set.magazines.get_mut(shelf.index())?.push(&mut carrier);
        if carrier.is_none() {
            set.account.keep(capacity);
        }
        Some(())
    });
    carrier
}

/// Whether a full magazine can be the reason that `put` failed: takes half of it out.
pub(crate) fn spill(home: &Home, shelf: Shelf) -> [Option<Arc<dyn Carrier>>; BATCH] {
    with(|local| {
        let set = local.set(home)?;
        let magazine = set.magazines.get_mut(shelf.index())?;
        if magazine.room() > 0 {
            return None;
        }
        let out: [_; BATCH] = std::array::from_fn(|_| magazine.pop());
        out.iter().flatten().for_each(|carrier| set.account.unkeep(weight(carrier)));
        Some(out)
    })
    .flatten()
    .unwrap_or_default()
}

/// Makes sure that this thread has magazines for the home; what is out of date is destroyed.
pub(crate) fn enter(home: &Home) {
    let mut out = Vec::new();
    with(|local| {
        local.sweep(&mut out);
        let epoch = Arc::clone(home.epoch());
        // Before the look whether it is closed: else a set could be born that never gets out of date.
        let seen = epoch.now();
        if home.is_closed() || local.set(home).is_some() {
            return;
        }
        local.park();
        let desk = local.desk(home.shared());
        let (account, limit) = (Arc::clone(&desk.account), desk.limit);
        let set = Set {
            slot: home.slot(),
            epoch,
            seen,
            account,
            limit,
            magazines: std::array::from_fn(|_| Magazine::default()),
        };
        if local.sets.len() <= home.slot() {
            local.sets.resize_with(home.slot() + 1, || None);
        }
        if let Some(place) = local.sets.get_mut(home.slot()) {
            if let Some(old) = place.as_mut() {
                old.unload(&mut out);
            }
            *place = Some(Box::new(set));
        }
    });
}

/// Destroys what this thread keeps and is out of date.
pub(crate) fn sweep() {
    let mut out = Vec::new();
    with(|local| local.sweep(&mut out));
}

/// A new id.
pub(crate) fn id() -> u64 {
    with(Local::id).unwrap_or_else(|| NEXT_ID.fetch_add(1, Ordering::Relaxed))
}

/// Counts in this thread's account; in the node's own when the thread is about to end.
pub(crate) fn count(shared: &Arc<Shared>, f: impl Fn(&Account)) {
    let desk = with(|local| local.desk(shared));
    match desk {
        Some(desk) => f(&desk.account),
        None => {
            let once = Account::default();
            f(&once);
            shared.fold(&once);
        }
    }
}
