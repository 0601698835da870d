//! A requesting node in this process and responders in others, and a job whose fragments are timed.
use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::node::{Buffer, Context, Failure, Job, Lent, Node, Options, Received, Replica, Settings};
use crate::os;
use crate::report::{Skipped, median};
use crate::responder::{Kind, Work};
use crate::sys::NRDMA_FRAGMENT_FAILED;

/// The processors of the two sides, for us and for the tools that we are compared with.
pub(crate) const OUR_CPU: usize = 0;
pub(crate) const THEIR_CPU: usize = 1;

/// The result memory that may be outstanding at one host: with one buffer of that size nothing else is handed out.
pub(crate) const ALONE: usize = 256 << 20;

/// A responder process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Its processor; None: any.
    pub(crate) cpu: Option<usize>,
    /// Its nodes. Only the first may work.
    pub(crate) nodes: usize,
    /// Whether the first has the class, and so is given fragments.
    pub(crate) works: bool,
    /// How long a `Kind::Delay` fragment takes.
    pub(crate) delay_us: u64,
    /// Executors of each node.
    pub(crate) threads: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self { cpu: None, nodes: 1, works: true, delay_us: 0, threads: 1 }
    }
}

/// The requester and its responders.
pub(crate) struct Rig {
    pub(crate) node: Node,
    children: Vec<Child>,
}

/// What is measured at a TCP address is tcp, though the processes could share memory.
pub(crate) fn transports(address: &str) -> Option<String> {
    (!address.starts_with("unix:")).then(|| "tcp".to_owned())
}

impl Rig {
    /// Starts everything and waits until all have connected. `cpu`: the requester's processor.
    pub(crate) fn new(cpu: Option<usize>, plans: &[Plan]) -> Result<Self, Skipped> {
        Self::at("unix:", cpu, plans)
    }

    /// As `new`, listening at an address, which decides on the engine.
    pub(crate) fn at(door: &str, cpu: Option<usize>, plans: &[Plan]) -> Result<Self, Skipped> {
        match cpu {
            Some(cpu) if !os::pin(cpu) => {
                return Err(Skipped(format!("there is no processor {cpu} to pin to")));
            }
            Some(_) => {}
            None => os::unpin(),
        }
        let settings = Settings {
            name: "requester".to_owned(),
            worker_threads: 1,
            transports: transports(door),
            ..Settings::default()
        };
        let mut rig = Self { node: Node::new(&settings)?, children: Vec::new() };
        let address = rig.node.listen(door)?;
        let mut nodes = 0;
        for plan in plans {
            let mut child = start(&address, plan)?;
            nodes += plan.nodes;
            let said = child.stdout.take().map(std::io::BufReader::new).map(|mut out| {
                let mut line = String::new();
                out.read_line(&mut line).map(|_| line)
            });
            rig.children.push(child);
            match said {
                Some(Ok(line)) if line.trim() == "ready" => {}
                _ => {
                    return Err(Skipped("a responder ended early; its reason is on stderr".to_owned()));
                }
            }
        }
        rig.node.wait_peers(nodes, Duration::from_secs(10))?;
        Ok(rig)
    }

    /// Runs `count` fragments, each handed out when the one before it was received; when that was.
    pub(crate) fn time(&self, probe: &Probe, kind: Kind, count: usize) -> Result<Times, Skipped> {
        self.measure(probe, probe.bytes.max(ALONE), kind, count, 1)
    }

    /// As `time`, with `limit` + 1 fragments under way, or as many as there are credits when it is 0.
    pub(crate) fn run(&self, probe: &Probe, kind: Kind, count: usize, limit: u64) -> Result<Times, Skipped> {
        self.measure(probe, probe.bytes, kind, count, limit)
    }

    fn measure(
        &self,
        probe: &Probe,
        capacity: usize,
        kind: Kind,
        count: usize,
        limit: u64,
    ) -> Result<Times, Skipped> {
        let job = Timed {
            probe,
            capacity,
            start: Instant::now(),
            stamps: (0..count).map(|_| Stamp::default()).collect(),
            failure: OnceLock::new(),
        };
        let payload = Work { kind, bytes: probe.bytes as u64 }.encode();
        let options = Options { class: Work::CLASS, payload: &payload, here: false, thread_limit: limit };
        let result = self.node.execute(&job, &options, count as u64);
        if let Some(why) = job.failure.get() {
            return Err(Skipped(why.to_string()));
        }
        result?;
        Ok(job.times())
    }

    /// Kills the n-th responder (SIGKILL); returns when that was asked for.
    pub(crate) fn kill(&mut self, n: usize) -> Result<Instant, Skipped> {
        let child = self.children.get_mut(n).ok_or("no such responder")?;
        let asked = Instant::now();
        child.kill()?;
        Ok(asked)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        for child in &mut self.children {
            let deadline = Instant::now() + Duration::from_secs(3);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            // Both fail only for one that has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        os::unpin();
    }
}

fn start(address: &str, plan: &Plan) -> std::io::Result<Child> {
    let cpu = plan.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
    Command::new(std::env::current_exe()?)
        .args(["responder", "fragments", address, &cpu])
        .args([
            plan.nodes.to_string(),
            plan.works.to_string(),
            plan.delay_us.to_string(),
            plan.threads.to_string(),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// What the requester asks for.
#[derive(Clone, Default)]
pub(crate) struct Probe {
    /// Of a result.
    pub(crate) bytes: usize,
    /// The host's own memory for results, instead of the library's.
    pub(crate) lent: Option<Lent>,
    /// Waits that long before a fragment is handed out, so that everybody is asleep.
    pub(crate) pause: Option<Duration>,
}

/// When something happened, in nanoseconds from the job's start; 0: not yet.
#[derive(Default)]
struct Stamp {
    handed: AtomicU64,
    received: AtomicU64,
}

struct Timed<'a> {
    probe: &'a Probe,
    /// Of a result buffer.
    capacity: usize,
    start: Instant,
    stamps: Vec<Stamp>,
    failure: OnceLock<Failure>,
}

impl Timed<'_> {
    fn stamp(&self, index: u64) -> Option<&Stamp> {
        self.stamps.get(usize::try_from(index).ok()?)
    }
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    fn times(&self) -> Times {
        let seconds = |stamp: &AtomicU64| stamp.load(Ordering::Relaxed) as f64 / 1e9;
        Times {
            spans: self
                .stamps
                .iter()
                .map(|stamp| (seconds(&stamp.handed), seconds(&stamp.received)))
                .collect(),
        }
    }
}

impl Job for Timed<'_> {
    fn execute_here(&self, _index: u64) -> bool {
        false
    }
    fn result_buffer(&self, context: &Context, index: u64) -> Option<Buffer> {
        if let Some(pause) = self.probe.pause {
            thread::sleep(pause);
        }
        let buffer = match &self.probe.lent {
            Some(lent) => context.wrap(lent),
            None => context.read_memory(self.capacity),
        };
        self.stamp(index)?.handed.store(self.now(), Ordering::Relaxed);
        buffer.map_err(|why| self.failed(index, &why)).ok()
    }
    fn receive(&self, bytes: &[u8], received: Received) -> bool {
        let Some(stamp) = self.stamp(received.index) else {
            return false;
        };
        stamp.received.store(self.now(), Ordering::Relaxed);
        bytes.len() == self.probe.bytes
    }
    fn failed(&self, _index: u64, why: &Failure) {
        let why = Failure { status: NRDMA_FRAGMENT_FAILED, ..why.clone() };
        // The first reason is the one to tell.
        let _ = self.failure.set(why);
    }
}

/// When each fragment was handed out and received, in seconds.
pub(crate) struct Times {
    spans: Vec<(f64, f64)>,
}

impl Times {
    /// A fragment's round trip: the median time from one result to the next. Only of fragments that ran one at a time.
    pub(crate) fn round_trip(&self) -> f64 {
        let mut received: Vec<f64> = self.spans.iter().map(|(_, received)| *received).collect();
        received.sort_by(f64::total_cmp);
        let mut periods: Vec<f64> =
            received.windows(2).filter_map(|pair| Some(pair.last()? - pair.first()?)).collect();
        median(&mut periods)
    }

    /// The median time from hand-out to result.
    pub(crate) fn latency(&self) -> f64 {
        let mut all: Vec<f64> = self.spans.iter().map(|(handed, received)| received - handed).collect();
        median(&mut all)
    }

    /// From the first hand-out to the last result.
    pub(crate) fn whole(&self) -> f64 {
        let first = self.spans.iter().map(|span| span.0).fold(f64::INFINITY, f64::min);
        let last = self.spans.iter().map(|span| span.1).fold(0.0, f64::max);
        last - first
    }

    /// The most results under way at once.
    pub(crate) fn most_at_once(&self) -> u64 {
        let handed = self.spans.iter().map(|span| (span.0, 1_i64));
        let received = self.spans.iter().map(|span| (span.1, -1_i64));
        let mut events: Vec<(f64, i64)> = handed.chain(received).collect();
        events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut now, mut most) = (0_i64, 0_i64);
        for (_, change) in events {
            now += change;
            most = most.max(now);
        }
        most.unsigned_abs()
    }
}
