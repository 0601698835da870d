//! What the homes of one node share: the memory backend, the budget of idle bytes, the counts.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::account::{Account, CacheStats};
use super::buffer::{Buffer, Carrier};
use super::class::Class;
use super::error::{self, Result};
use super::home::Home;
use super::memory::{Block, Kind, Memory, Share};
use super::sync::lock;
use super::transport::RegionKey;

/// The most that one thread keeps to itself, over all homes of a node.
const PER_THREAD: u64 = 4 << 20;

/// Makes the object that carries a buffer.
pub(crate) type Make = fn(Buffer) -> Arc<dyn Carrier>;

/// One node's memory.
pub(crate) struct Shared {
    memory: Arc<dyn Memory>,
    make: Make,
    budget: u64,
    zero_on_reuse: bool,
    next_region: AtomicU64,
    /// Idle bytes in depots.
    depot_idle: AtomicU64,
    /// Idle bytes that threads may keep; at most half of the budget.
    reserved: AtomicU64,
    accounts: Mutex<Vec<Arc<Account>>>,
    /// The counts of threads that ended.
    past: Account,
    homes: Mutex<Vec<Weak<Home>>>,
}

impl Shared {
    /// `budget`: idle bytes over all homes; None asks the backend, 0 keeps nothing.
    pub(crate) fn new(
        memory: Arc<dyn Memory>,
        make: Make,
        budget: Option<u64>,
        zero_on_reuse: bool,
    ) -> Arc<Self> {
        let budget = budget.unwrap_or_else(|| memory.default_budget());
        Arc::new(Self {
            memory,
            make,
            budget,
            zero_on_reuse,
            next_region: AtomicU64::new(1),
            depot_idle: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            accounts: Mutex::default(),
            past: Account::default(),
            homes: Mutex::default(),
        })
    }

    /// Whether buffers are cleared before they are handed out again.
    pub(crate) fn zero_on_reuse(&self) -> bool {
        self.zero_on_reuse
    }
    /// A name for a new region.
    pub(crate) fn region_key(&self) -> RegionKey {
        RegionKey { id: self.next_region.fetch_add(1, Ordering::Relaxed), generation: 1 }
    }
    /// The object for a new buffer.
    pub(crate) fn carrier(&self, buffer: Buffer) -> Arc<dyn Carrier> {
        (self.make)(buffer)
    }
    /// The host's memory as a block.
    pub(crate) fn wrap(&self, address: usize, bytes: usize) -> Arc<dyn Block> {
        self.memory.wrap(address, bytes)
    }
    /// A new block; idle memory is freed if that helps.
    pub(crate) fn allocate(&self, kind: Kind, bytes: usize) -> Result<(Arc<dyn Block>, Option<Share>)> {
        match self.memory.allocate(kind, bytes) {
            Err(error)
                if error.kind == error::Kind::OutOfMemory && self.depot_idle.load(Ordering::Relaxed) > 0 =>
            {
                self.evict(0);
                self.memory.allocate(kind, bytes)
            }
            result => result,
        }
    }

    /// Adds a home to those that share the budget.
    pub(crate) fn register(&self, home: &Arc<Home>) {
        let mut homes = lock(&self.homes);
        homes.retain(|home| home.strong_count() > 0);
        homes.push(Arc::downgrade(home));
    }
    fn homes(&self) -> Vec<Arc<Home>> {
        lock(&self.homes).iter().filter_map(Weak::upgrade).collect()
    }

    /// A new thread's counts, and the bytes it may keep.
    pub(crate) fn open_account(&self) -> (Arc<Account>, u64) {
        let account = Arc::new(Account::default());
        lock(&self.accounts).push(Arc::clone(&account));
        let mut limit = 0;
        // Err leaves the limit at 0: nothing is left to give.
        let _ = self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
            limit = PER_THREAD.min(self.budget / 8).min((self.budget / 2).saturating_sub(reserved));
            (limit > 0).then_some(reserved + limit)
        });
        (account, limit)
    }

    /// A thread ended.
    pub(crate) fn close_account(&self, account: &Arc<Account>, limit: u64) {
        self.reserved.fetch_sub(limit, Ordering::Relaxed);
        let mut accounts = lock(&self.accounts);
        self.past.fold(account);
        accounts.retain(|other| !Arc::ptr_eq(other, account));
    }

    /// Adds counts of a thread that has no account any more.
    pub(crate) fn fold(&self, account: &Account) {
        self.past.fold(account);
    }

    /// Idle bytes came to a depot.
    pub(crate) fn enters_depot(&self, bytes: u64) {
        self.depot_idle.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Idle bytes left a depot.
    pub(crate) fn leaves_depot(&self, bytes: u64) {
        self.depot_idle.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Keeps to the budget.
    pub(crate) fn enforce(&self) {
        let most = self.budget.saturating_sub(self.reserved.load(Ordering::Relaxed));
        if self.depot_idle.load(Ordering::Relaxed) > most {
            self.evict(most);
        }
    }

    /// Frees the oldest buffers of the largest classes until the depots hold at most `keep` bytes.
    #[cold]
    fn evict(&self, keep: u64) {
        let homes = self.homes();
        for class in Class::all().rev() {
            for home in &homes {
                while self.depot_idle.load(Ordering::Relaxed) > keep {
                    let Some(carrier) = home.oldest(class) else { break };
                    drop(carrier);
                }
            }
        }
    }

    /// Frees idle memory of all homes until about `keep` bytes are left. What other threads keep goes at
    /// their next use.
    pub(crate) fn trim(&self, keep: u64) {
        if self.stats().idle_bytes <= keep {
            return;
        }
        self.homes().iter().for_each(|home| home.flush());
        self.evict(keep);
    }

    /// Once a second: frees some of what nobody needed.
    pub(crate) fn decay(&self) {
        self.homes().iter().for_each(|home| home.decay());
    }

    /// What the cache did and holds, over all homes.
    pub(crate) fn stats(&self) -> CacheStats {
        let accounts = lock(&self.accounts);
        let sum = Account::default();
        sum.fold(&self.past);
        accounts.iter().for_each(|account| sum.fold(account));
        let mut stats = sum.stats();
        stats.idle_bytes = stats.idle_bytes.wrapping_add(self.depot_idle.load(Ordering::Relaxed));
        stats
    }
}
