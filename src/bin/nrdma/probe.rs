//! A job whose results are known beforehand: what `doctor` and `bench` send to see whether it arrives, and how fast.
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::node::{Buffer, Context, Failure, Job, Lent, Node, Options, Received, Replica};
use crate::sys::{self, nrdma_uuid};

/// Length of each place that is written of a sparse result.
const WINDOW: usize = 64 << 10;

/// What a responder does with a result's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Every byte follows from its place.
    Pattern,
    /// The same for 64 KiB around every multiple of 2 GiB, and at both ends.
    Sparse,
    /// All bytes are the same.
    Fill,
    /// Only the first eight are written.
    Touch,
}

const CONTENTS: [Content; 4] = [Content::Pattern, Content::Sparse, Content::Fill, Content::Touch];

/// What every fragment's result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) content: Content,
    pub(crate) bytes: u64,
    pub(crate) seed: u64,
}

impl Probe {
    fn encode(self) -> [u8; 17] {
        let mut out = [self.content as u8; 17];
        for (to, from) in
            out.iter_mut().skip(1).zip(self.bytes.to_le_bytes().into_iter().chain(self.seed.to_le_bytes()))
        {
            *to = from;
        }
        out
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let (content, rest) = payload.split_first()?;
        let (bytes, seed) = rest.split_first_chunk()?;
        let content = CONTENTS.into_iter().find(|c| *c as u8 == *content)?;
        Some(Self {
            content,
            bytes: u64::from_le_bytes(*bytes),
            seed: u64::from_le_bytes(seed.try_into().ok()?),
        })
    }

    /// The places of a result that are written, as ranges of it.
    fn windows(self, length: usize) -> Vec<std::ops::Range<usize>> {
        match self.content {
            Content::Pattern | Content::Fill => std::iter::once(0..length).collect(),
            Content::Touch => std::iter::once(0..length.min(8)).collect(),
            Content::Sparse => {
                let middles = (0..=length).step_by(1 << 31).chain([length]);
                // From a multiple of eight on, so that windows that overlap agree.
                middles.map(|m| m.saturating_sub(WINDOW / 2) & !7..(m + WINDOW / 2).min(length)).collect()
            }
        }
    }

    fn write(self, index: u64, memory: &mut [u8]) {
        if self.content == Content::Fill {
            memory.fill(index.to_le_bytes()[0]);
            return;
        }
        for window in self.windows(memory.len()) {
            let start = window.start;
            if let Some(memory) = memory.get_mut(window) {
                fill(memory, start, self.seed ^ index);
            }
        }
    }

    /// The first byte that is not as it should be.
    fn wrong(self, index: u64, memory: &[u8]) -> Option<usize> {
        if u64::try_from(memory.len()) != Ok(self.bytes) {
            return Some(memory.len());
        }
        if self.content == Content::Fill {
            return memory.iter().position(|byte| *byte != index.to_le_bytes()[0]);
        }
        self.windows(memory.len()).into_iter().find_map(|window| {
            let start = window.start;
            differs(memory.get(window)?, start, self.seed ^ index).map(|at| start + at)
        })
    }
}

/// The eight bytes at a place that is a multiple of eight.
fn word(at: usize, seed: u64) -> [u8; 8] {
    let x = (at as u64 ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).to_le_bytes()
}

/// Writes the pattern; `start` is where in the result the memory is, a multiple of eight.
fn fill(memory: &mut [u8], start: usize, seed: u64) {
    for (chunk, at) in memory.chunks_mut(8).zip((start..).step_by(8)) {
        for (to, from) in chunk.iter_mut().zip(word(at, seed)) {
            *to = from;
        }
    }
}

fn differs(memory: &[u8], start: usize, seed: u64) -> Option<usize> {
    let mut chunks = memory.chunks(8).zip((start..).step_by(8));
    let (chunk, at) = chunks.find(|(chunk, at)| !word(*at, seed).starts_with(chunk))?;
    let same = chunk.iter().zip(word(at, seed)).take_while(|(is, should)| **is == *should).count();
    Some(at - start + same)
}

impl Replica for Probe {
    const CLASS: nrdma_uuid =
        nrdma_uuid { id1: 0x3ab5_70c1, id2: 0x4c29_e86d, id3: 0x91f7_0d3b, id4: 0xc65e_12a8 };

    fn create(payload: &[u8]) -> Option<Self> {
        Self::decode(payload)
    }

    fn execute(&self, index: u64, context: &Context) -> Option<Option<Buffer>> {
        let mut buffer = context.write_memory(usize::try_from(self.bytes).ok()?).ok()?;
        self.write(index, buffer.bytes_mut());
        Some(Some(buffer))
    }
}

/// Whose memory the results go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The library's, which may be mapped.
    Own,
    /// The host's, by `wrap_user_buffer`.
    Wrapped,
}

/// How an exchange went.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// `NRDMA_PATH_*` of the last result.
    pub(crate) path: i32,
    /// One for each result: from asking for its memory to having it.
    pub(crate) times: Vec<Duration>,
    /// From the first to the last.
    pub(crate) wall: Duration,
}

impl Outcome {
    /// The time that so many of a thousand results do not exceed.
    pub(crate) fn quantile(&self, of_1000: usize) -> Duration {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * of_1000).div_ceil(1000).saturating_sub(1);
        sorted.get(place).copied().unwrap_or_default()
    }
}

/// The requesting side.
struct Exchange {
    probe: Probe,
    target: Target,
    check: bool,
    /// The first wrong byte of any result; `u64::MAX`: none.
    wrong: AtomicU64,
    path: AtomicI32,
    done: AtomicU64,
    asked: Mutex<Vec<Option<Instant>>>,
    times: Mutex<Vec<Duration>>,
    failure: Mutex<Option<String>>,
}

/// Has `count` results made by the connected hosts, at most `window` at a time, and compares them when `check` says so.
pub(crate) fn exchange(
    node: &Node,
    probe: Probe,
    target: Target,
    count: u64,
    window: u64,
    check: bool,
) -> Result<Outcome, String> {
    let room = usize::try_from(count).map_err(|_| "too many results".to_owned())?;
    let job = Exchange {
        probe,
        target,
        check,
        wrong: AtomicU64::new(u64::MAX),
        path: AtomicI32::new(0),
        done: AtomicU64::new(0),
        asked: Mutex::new(vec![None; room]),
        times: Mutex::new(Vec::with_capacity(room)),
        failure: Mutex::default(),
    };
    let how = Options { class: Probe::CLASS, payload: &probe.encode(), here: false, thread_limit: window };
    let start = Instant::now();
    let result = node.execute(&job, &how, count);
    let wall = start.elapsed();
    let failure = job.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    let wrong = job.wrong.into_inner();
    if wrong != u64::MAX {
        return Err(format!("wrong bytes at offset {wrong} of {}", probe.bytes));
    }
    result.map_err(|why| failure.unwrap_or_else(|| why.to_string()))?;
    let done = job.done.into_inner();
    if done != count {
        return Err(format!("{done} of {count} results came"));
    }
    let times = job.times.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Outcome { path: job.path.into_inner(), times, wall })
}

impl Job for Exchange {
    fn execute_here(&self, _index: u64) -> bool {
        false
    }

    fn result_buffer(&self, context: &Context, index: u64) -> Option<Buffer> {
        let now = Instant::now();
        let bytes = usize::try_from(self.probe.bytes).ok()?;
        let buffer = match self.target {
            Target::Own => context.read_memory(bytes),
            Target::Wrapped => context.wrap(&Lent::new(bytes)),
        };
        if let Some(place) = self
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(usize::try_from(index).unwrap_or(usize::MAX))
        {
            *place = Some(now);
        }
        buffer.map_err(|why| self.failed(index, &why)).ok()
    }

    fn receive(&self, bytes: &[u8], received: Received) -> bool {
        let now = Instant::now();
        let index = usize::try_from(received.index).unwrap_or(usize::MAX);
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).get(index).copied().flatten();
        if let Some(asked) = asked {
            self.times.lock().unwrap_or_else(PoisonError::into_inner).push(now - asked);
        }
        if self.check
            && let Some(at) = self.probe.wrong(received.index, bytes)
        {
            self.wrong.fetch_min(at as u64, Ordering::Relaxed);
        }
        self.path.store(received.path, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn failed(&self, _index: u64, why: &Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_string());
    }
}

/// The name of an `NRDMA_PATH_*`.
pub(crate) fn path_name(path: i32) -> &'static str {
    match path {
        sys::NRDMA_PATH_MAPPED => "mapped",
        sys::NRDMA_PATH_DIRECT => "direct",
        sys::NRDMA_PATH_STAGED => "staged",
        _ => "copied",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_survives_the_trip() {
        for content in CONTENTS {
            let probe = Probe { content, bytes: 5 << 30, seed: 77 };
            assert_eq!(Probe::decode(&probe.encode()), Some(probe));
        }
        assert_eq!(Probe::decode(&[9; 17]), None);
        assert_eq!(Probe::decode(&[0; 16]), None);
    }

    #[test]
    fn one_wrong_byte_is_found_where_it_is() {
        for content in CONTENTS {
            let probe = Probe { content, bytes: 100_003, seed: 5 };
            let mut memory = vec![0; 100_003];
            probe.write(3, &mut memory);
            assert_eq!(probe.wrong(3, &memory), None, "{content:?}");
            assert!(probe.wrong(4, &memory).is_some(), "{content:?}");
            let at = if content == Content::Touch { 5 } else { 100_002 };
            memory[at] ^= 1;
            assert_eq!(probe.wrong(3, &memory), Some(at), "{content:?}");
            assert!(probe.wrong(3, &memory[..7]).is_some());
        }
    }

    #[test]
    fn a_sparse_result_is_written_around_4_gib() {
        let probe = Probe { content: Content::Sparse, bytes: 0, seed: 0 };
        let windows = probe.windows((4 << 30) + 100_000);
        assert_eq!(windows.len(), 4);
        assert!(windows.iter().any(|w| w.contains(&(4 << 30)) && w.contains(&((4 << 30) - 1))));
        assert!(windows.iter().all(|w| w.start.is_multiple_of(8) || w.end == (4 << 30) + 100_000));
    }

    #[test]
    fn quantiles() {
        let outcome =
            Outcome { times: (1..=1000).map(Duration::from_micros).collect(), ..Outcome::default() };
        assert_eq!(outcome.quantile(500).as_micros(), 500);
        assert_eq!(outcome.quantile(999).as_micros(), 999);
        assert_eq!(outcome.quantile(1000).as_micros(), 1000);
        assert_eq!(Outcome::default().quantile(500), Duration::ZERO);
    }
}
