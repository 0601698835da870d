//! How soon a killed peer is noticed.
use std::thread;
use std::time::{Duration, Instant};

use crate::report::{Measured, Skipped, Value, median};
use crate::responder::Kind;
use crate::rig::{Plan, Probe, Rig};

const TIMES: usize = 7;
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn noticed() -> Measured {
    noticed_at("unix:")
}

pub(crate) fn noticed_over_tcp() -> Measured {
    noticed_at("127.0.0.1:0")
}

fn noticed_at(door: &str) -> Measured {
    let mut all = Vec::new();
    for _ in 0..TIMES {
        all.push(once(door)? * 1e3);
    }
    let middle = median(&mut all);
    let most = all.last().copied().unwrap_or(0.0);
    Ok(Value { value: most, detail: format!("the longest of {TIMES}, median {middle:.2} ms") })
}

/// Seconds from the kill until the library says that the peer is gone.
fn once(door: &str) -> Result<f64, Skipped> {
    let mut rig = Rig::at(door, None, &[Plan::default()])?;
    rig.time(&Probe { bytes: 8, ..Probe::default() }, Kind::Touch, 100)?;
    let asked = rig.kill(0)?;
    while rig.node.peers()?.iter().any(|peer| peer.alive) {
        if asked.elapsed() > LIMIT {
            return Err(Skipped(format!("the peer still counts as alive after {} s", LIMIT.as_secs())));
        }
        thread::sleep(Duration::from_micros(100));
    }
    Ok(Instant::now().duration_since(asked).as_secs_f64())
}
