//! A worker process: renders tiles for the host that started it, until its standard input ends.
use std::io::{self, Read, Write};
use std::time::Duration;

use crate::args;
use crate::node::{Buffer, Context, Failure, Node, Replica, Settings, Stats};
use crate::probe::Probe;
use crate::render;
use crate::scene::{COARSE_BLOCK, Delivery, Scene};
use crate::sys::nrdma_uuid;

/// How long a worker may take to end by itself.
pub(crate) const GOODBYE: Duration = Duration::from_secs(5);

impl Replica for Scene {
    const CLASS: nrdma_uuid =
        nrdma_uuid { id1: 0x9d1c_54f2, id2: 0x4b0a_27e6, id3: 0x5ac3_91b8, id4: 0x07fe_a1d4 };

    fn create(payload: &[u8]) -> Option<Self> {
        Self::decode(payload)
    }

    fn execute(&self, index: u64, context: &Context) -> Option<Option<Buffer>> {
        match paint(self, index, context) {
            Ok(buffer) => Some(Some(buffer)),
            Err(why) => {
                // There is nobody left to tell when stderr is gone.
                let _ = writeln!(io::stderr(), "nrdma worker: tile {index}: {why}");
                None
            }
        }
    }
}

/// Renders straight into the result's memory where that can be had.
fn paint(scene: &Scene, index: u64, context: &Context) -> Result<Buffer, Failure> {
    let tile = scene.tile(index).ok_or_else(|| Failure::own("there is no such tile"))?;
    let mut buffer = context.write_memory(tile.bytes())?;
    if Delivery::of(index) == Delivery::TwoSteps {
        render::coarse(scene.size, tile, COARSE_BLOCK, buffer.bytes_mut());
        context.flush(&mut buffer)?;
    }
    render::fine(scene.size, tile, buffer.bytes_mut());
    Ok(buffer)
}

/// What a worker counted, told to its parent in one line when it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) copied: u64,
    pub(crate) cache_hits: u64,
    pub(crate) cache_misses: u64,
}

impl From<Stats> for Report {
    fn from(stats: Stats) -> Self {
        Self {
            copied: stats.bytes_copied + stats.bytes_staged,
            cache_hits: stats.cache_hits,
            cache_misses: stats.cache_misses,
        }
    }
}

impl Report {
    fn line(&self) -> String {
        format!("{} {} {}\n", self.copied, self.cache_hits, self.cache_misses)
    }

    pub(crate) fn read(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { copied: next()?, cache_hits: next()?, cache_misses: next()? })
    }
}

fn node(worker: &args::Worker) -> Result<Node, Failure> {
    let node = Node::new(&Settings {
        name: worker.name.clone(),
        worker_threads: worker.threads,
        transports: worker.transports.clone(),
        peer_timeout_ms: worker.timeout_ms,
        ..Settings::default()
    })?;
    node.register::<Scene>()?;
    node.register::<Probe>()?;
    Ok(node)
}

/// Serves whoever connects, until killed.
pub(crate) fn serve(worker: &args::Worker) -> Result<(), Failure> {
    let named = args::Worker { name: name_of(worker), ..worker.clone() };
    let node = node(&named)?;
    let address = node.listen(&worker.address)?;
    // Who started it need not read it.
    let _ = writeln!(io::stdout(), "{address}").and_then(|()| io::stdout().flush());
    loop {
        std::thread::park();
    }
}

fn name_of(worker: &args::Worker) -> String {
    match worker.name.as_str() {
        "" => format!("server at {}", worker.address),
        name => name.to_owned(),
    }
}

/// Runs until standard input ends: then the parent is done, or gone.
pub(crate) fn run(worker: &args::Worker) -> Result<(), Failure> {
    let node = node(worker)?;
    node.connect(&worker.address)?;
    wait_for_end();
    let report = Report::from(node.stats()?);
    // A parent that is gone needs no report.
    let _ = io::stdout().write_all(report.line().as_bytes());
    node.shutdown()
}

fn wait_for_end() {
    let mut byte = [0];
    loop {
        match io::stdin().read(&mut byte) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Nothing can be read any more, which is an end, too.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_pipe() {
        let report = Report { copied: 2, cache_hits: 3, cache_misses: 4 };
        assert_eq!(Report::read(&report.line()), Some(report));
        assert_eq!(Report::read(""), None);
        assert_eq!(Report::read("1 2"), None);
        assert_eq!(Report::read("1 x 4"), None);
    }
}
