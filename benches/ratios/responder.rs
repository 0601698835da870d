//! The other process: this executable, started again.
use std::io::{Read, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use crate::node::{Buffer, Context, Node, Replica, Settings};
use crate::os::{self, Event};
use crate::rig;
use crate::sys::nrdma_uuid;

/// What a fragment does with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Writes eight bytes, however long the result is.
    Touch,
    /// Writes every byte.
    Fill,
    /// Copies from memory of its own.
    Copy,
    /// Takes its host's time, then does nothing.
    Delay,
}

/// The job's payload, and its replica.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
}

static DELAY: OnceLock<Duration> = OnceLock::new();
static SOURCE: OnceLock<Vec<u8>> = OnceLock::new();

impl Work {
    pub(crate) fn encode(self) -> [u8; 9] {
        let [a, b, c, d, e, f, g, h] = self.bytes.to_le_bytes();
        [self.kind as u8, a, b, c, d, e, f, g, h]
    }
}

impl Replica for Work {
    const CLASS: nrdma_uuid =
        nrdma_uuid { id1: 0x71c0_8d25, id2: 0x4f1e_62b9, id3: 0x0a94_d37c, id4: 0x5be8_16f3 };

    fn create(payload: &[u8]) -> Option<Self> {
        let (kind, bytes) = payload.split_first()?;
        let kind =
            [Kind::Touch, Kind::Fill, Kind::Copy, Kind::Delay].into_iter().find(|k| *k as u8 == *kind)?;
        Some(Self { kind, bytes: u64::from_le_bytes(bytes.try_into().ok()?) })
    }

    fn execute(&self, index: u64, context: &Context) -> Option<Option<Buffer>> {
        let bytes = usize::try_from(self.bytes).ok()?;
        if self.kind == Kind::Delay {
            std::thread::sleep(DELAY.get().copied().unwrap_or_default());
        }
        let mut buffer = context.write_memory(bytes).ok()?;
        let value = index.to_le_bytes();
        match self.kind {
            Kind::Touch | Kind::Delay => buffer.bytes_mut().get_mut(..8)?.copy_from_slice(&value),
            Kind::Fill => buffer.bytes_mut().fill(index.to_le_bytes()[0]),
            Kind::Copy => {
                let source = SOURCE.get_or_init(|| vec![7; bytes]);
                buffer.bytes_mut().copy_from_slice(source.get(..bytes)?);
            }
        }
        Some(Some(buffer))
    }
}

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    os::end_with_parent();
    os::exact_timers();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["fragments", address, cpu, nodes, works, delay, threads] => {
            fragments(address, cpu, nodes, works, delay, threads)
        }
        ["events", there, back, cpu] => events(there, back, cpu),
        _ => Err("responder: wrong arguments".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("ratios: responder: {why}");
            ExitCode::FAILURE
        }
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn pin(cpu: &str) -> Result<(), String> {
    match cpu {
        "any" => os::unpin(),
        cpu if !os::pin(number(cpu)?) => return Err(format!("there is no processor {cpu}")),
        _ => {}
    }
    Ok(())
}

/// Executes fragments until the input ends.
fn fragments(
    address: &str,
    cpu: &str,
    count: &str,
    works: &str,
    delay: &str,
    threads: &str,
) -> Result<(), String> {
    pin(cpu)?;
    let delay = Duration::from_micros(number(delay)?);
    DELAY.get_or_init(|| delay);
    let mut nodes = Vec::new();
    let works = number(works)?;
    let worker_threads = number(threads)?;
    for i in 0..number::<usize>(count)? {
        let settings = Settings {
            name: format!("responder-{i}"),
            worker_threads,
            transports: rig::transports(address),
            ..Settings::default()
        };
        let node = Node::new(&settings).map_err(|why| why.to_string())?;
        if works && i == 0 {
            node.register::<Work>().map_err(|why| why.to_string())?;
        }
        node.connect(address).map_err(|why| why.to_string())?;
        nodes.push(node);
    }
    stdout().write_all(b"ready\n").map_err(|why| why.to_string())?;
    // Ends with the parent, or when the parent says so.
    let _ = stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Answers every event with another.
fn events(there: &str, back: &str, cpu: &str) -> Result<(), String> {
    pin(cpu)?;
    let (there, back) = (Event::inherited(number(there)?), Event::inherited(number(back)?));
    while there.wait() && back.signal() {}
    Ok(())
}
