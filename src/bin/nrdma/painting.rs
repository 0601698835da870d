//! The requesting side of the job: the picture that the results go into, and who sent them.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::args;
use crate::canvas::Canvas;
use crate::crew::Crew;
use crate::node::{Buffer, Context, Failure, Job, Lent, Received};
use crate::render;
use crate::scene::{Delivery, Scene};
use crate::summary::Tally;

/// The id under which this host's own tiles are counted.
pub(crate) const HERE: u32 = 0;

/// A job that paints.
pub(crate) struct Painting<'a> {
    scene: Scene,
    canvas: Canvas,
    /// Tiles whose last result is there.
    done: AtomicU64,
    /// When this many tiles are there, one worker dies.
    kill_at: Option<u64>,
    crew: &'a Crew,
    killed: Mutex<Option<String>>,
    tallies: Mutex<BTreeMap<u32, Tally>>,
    failures: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Painting<'a> {
    pub(crate) fn new(options: &args::Demo, crew: &'a Crew) -> Self {
        Self {
            scene: options.scene,
            canvas: Canvas::new(options.scene),
            done: AtomicU64::new(0),
            kill_at: options.kill_one.then(|| options.scene.count().div_ceil(2)),
            crew,
            killed: Mutex::default(),
            tallies: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    pub(crate) fn done(&self) -> &AtomicU64 {
        &self.done
    }

    pub(crate) fn canvas(&self) -> &Canvas {
        &self.canvas
    }

    pub(crate) fn tallies(&self) -> BTreeMap<u32, Tally> {
        lock(&self.tallies).clone()
    }

    /// The worker that was killed.
    pub(crate) fn killed(&self) -> Option<String> {
        lock(&self.killed).clone()
    }

    /// Everything that went wrong, in words.
    pub(crate) fn troubles(&self, execute: Option<Failure>, shutdown: Option<Failure>) -> Vec<String> {
        let mut all = lock(&self.failures).clone();
        all.extend(execute.map(|why| format!("execute: {why}")));
        all.extend(shutdown.map(|why| format!("shutdown: {why}")));
        all
    }

    /// Counts a finished tile, and kills a worker when it is time.
    fn finished(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.kill_at == Some(done) {
            *lock(&self.killed) = self.crew.kill_first();
        }
    }

    fn tally(&self, host: u32, count: impl FnOnce(&mut Tally)) {
        count(lock(&self.tallies).entry(host).or_default());
    }
}

impl Job for Painting<'_> {
    fn execute_here(&self, index: u64) -> bool {
        let Some(tile) = self.scene.tile(index) else {
            return false;
        };
        let mut pixels = vec![0; tile.bytes()];
        render::fine(self.scene.size, tile, &mut pixels);
        let placed = self.canvas.place(tile, &pixels);
        self.tally(HERE, |tally| tally.fragments += 1);
        self.finished();
        placed
    }

    fn result_buffer(&self, context: &Context, index: u64) -> Option<Buffer> {
        let bytes = self.scene.capacity();
        let buffer = match Delivery::of(index) {
            Delivery::Wrapped => context.wrap(&Lent::new(bytes)),
            Delivery::InPlace | Delivery::TwoSteps => context.read_memory(bytes),
        };
        buffer.map_err(|why| self.failed(index, &why)).ok()
    }

    fn receive(&self, bytes: &[u8], received: Received) -> bool {
        let Some(tile) = self.scene.tile(received.index) else {
            return false;
        };
        if !self.canvas.place(tile, bytes) {
            return false;
        }
        let wrapped = Delivery::of(received.index) == Delivery::Wrapped;
        self.tally(received.host_id, |tally| tally.add(bytes.len() as u64, received, wrapped));
        if received.last {
            self.finished();
        }
        true
    }

    fn failed(&self, index: u64, why: &Failure) {
        lock(&self.failures).push(format!("tile {index}: {why}"));
    }
}
