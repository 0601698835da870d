//! What has come for one link, until somebody polls it; and how that somebody is woken.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use super::header::Target;
use super::sys::lock;
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Attention, Seat, Written};
use crate::sys::clock;
use crate::sys::wait::Bell;

/// Nobody said yet that he looks.
const NOBODY: u32 = u32::MAX;

/// One thing that has come.
pub(super) enum Entry {
    Frame(Vec<u8>),
    Data {
        target: Target,
        bytes: Vec<u8>,
    },
    /// A write is over.
    Written(Written, Result<()>),
    /// There is room for data again.
    Room,
    /// The peer broke the protocol; nothing follows.
    Broken(Error),
}

/// What has come for one link.
pub(super) struct Inbox {
    entries: Mutex<VecDeque<Entry>>,
    who: AtomicU32,
    /// For the leader, for the progress thread.
    bells: [Bell; 2],
    heard: AtomicU64,
    /// Bytes of data that the peer has not taken yet.
    pub(super) outstanding: AtomicUsize,
    /// Both ends have proved themselves.
    open: AtomicBool,
    /// Why nothing can be sent any more.
    gone: OnceLock<String>,
}

impl Inbox {
    pub(super) fn new() -> Result<Self> {
        let bell = || {
            Bell::new().map_err(|e| {
                Error::new(Kind::OutOfMemory, format!("no eventfd: {e}; raise the limit of open files"))
            })
        };
        Ok(Self {
            entries: Mutex::default(),
            who: AtomicU32::new(NOBODY),
            bells: [bell()?, bell()?],
            heard: AtomicU64::new(clock::coarse_ns()),
            outstanding: AtomicUsize::new(0),
            open: AtomicBool::new(false),
            gone: OnceLock::new(),
        })
    }

    /// From now on the seat's waiters hear the bells.
    pub(super) fn watch(&self, seat: &Seat) -> Result<()> {
        let [leader, progress] = &self.bells;
        seat.leader.watch(leader.source(), seat.token, true)?;
        seat.progress.watch(progress.source(), seat.token, true)
    }

    pub(super) fn unwatch(&self, seat: &Seat) {
        let [leader, progress] = &self.bells;
        seat.leader.unwatch(leader.source());
        seat.progress.unwatch(progress.source());
    }

    /// Says who looks. The fence is in the lock of what is looked at next.
    pub(super) fn attend(&self, who: Attention) {
        self.who.store(who as u32, Ordering::SeqCst);
    }

    /// Adds something; `quiet`: whoever does so looks himself.
    pub(super) fn push(&self, entry: Entry, quiet: bool) {
        lock(&self.entries).push_back(entry);
        if !quiet {
            self.ring();
        }
    }

    fn ring(&self) {
        let [leader, progress] = &self.bells;
        match self.who.load(Ordering::SeqCst) {
            who if who == Attention::Leader as u32 => leader.ring(),
            who if who == Attention::Progress as u32 => progress.ring(),
            _ => {}
        }
    }

    pub(super) fn pop(&self) -> Option<Entry> {
        lock(&self.entries).pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.entries).is_empty()
    }

    pub(super) fn take_all(&self) -> VecDeque<Entry> {
        std::mem::take(&mut *lock(&self.entries))
    }

    pub(super) fn hear(&self) {
        self.heard.store(clock::coarse_ns(), Ordering::Relaxed);
    }

    /// For how many nanoseconds nothing was heard.
    pub(super) fn silence(&self) -> u64 {
        clock::coarse_ns().saturating_sub(self.heard.load(Ordering::Relaxed))
    }

    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The endpoint has failed: the progress thread is to look, whoever polls.
    pub(super) fn fail(&self, why: String) {
        if self.gone.set(why).is_ok() {
            let [_, progress] = &self.bells;
            progress.ring();
        }
    }

    /// Why the endpoint has failed.
    pub(super) fn failure(&self) -> Option<&str> {
        self.gone.get().map(String::as_str)
    }
}
