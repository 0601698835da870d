//! The round trip of a fragment with an 8 byte result, through the whole engine.
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::os::{self, Event};
use crate::report::{Measured, Skipped, median, ratio, time};
use crate::responder::Kind;
use crate::rig::{OUR_CPU, Plan, Probe, Rig, THEIR_CPU};
use crate::ucx;

const TINY: usize = 8;
pub(crate) const PINNED: Plan = Plan { cpu: Some(THEIR_CPU), nodes: 1, works: true, delay_us: 0, threads: 1 };

pub(crate) fn spinning() -> Measured {
    ratio(|| {
        let rig = Rig::new(Some(OUR_CPU), &[PINNED])?;
        let ours = tiny(&rig)?;
        drop(rig);
        let theirs = 2.0 * ucx::typical("ucp_am_lat", TINY, 200_000)?;
        Ok((ours, theirs, format!("{} / {}", time(ours), time(theirs))))
    })
}

/// The round trip of an 8 byte result, everybody awake.
pub(crate) fn tiny(rig: &Rig) -> Result<f64, Skipped> {
    let probe = Probe { bytes: TINY, ..Probe::default() };
    rig.time(&probe, Kind::Touch, 2000)?;
    Ok(rig.time(&probe, Kind::Touch, 50_000)?.round_trip())
}

/// Long enough for everybody to have fallen asleep.
const NAP: Duration = Duration::from_millis(3);
const NAPS: usize = 200;

pub(crate) fn asleep() -> Measured {
    ratio(|| {
        let rig = Rig::new(Some(OUR_CPU), &[PINNED])?;
        let probe = Probe { bytes: TINY, pause: Some(NAP), ..Probe::default() };
        let ours = rig.time(&probe, Kind::Touch, NAPS)?.latency();
        drop(rig);
        let theirs = event_ping_pong()?;
        Ok((ours, theirs, format!("{} / {}", time(ours), time(theirs))))
    })
}

/// The least that waking each other can cost: an eventfd there and one back, between two processes.
fn event_ping_pong() -> Result<f64, Skipped> {
    let (there, back) = (Event::new()?, Event::new()?);
    let numbers = [there.number().to_string(), back.number().to_string()];
    let mut other = Command::new(std::env::current_exe()?)
        .args(["responder", "events", &numbers[0], &numbers[1], &THEIR_CPU.to_string()])
        .arg0("ratios")
        .spawn()?;
    os::pin(OUR_CPU);
    let mut times = Vec::new();
    for _ in 0..NAPS {
        thread::sleep(NAP);
        let start = Instant::now();
        if !there.signal() || !back.wait() {
            break;
        }
        times.push(start.elapsed().as_secs_f64());
    }
    os::unpin();
    other.kill()?;
    other.wait()?;
    Ok(median(&mut times))
}

pub(crate) fn ten_peers() -> Measured {
    crowd("unix:", 10)
}

pub(crate) fn hundred_peers() -> Measured {
    crowd("unix:", 100)
}

/// A fragment for one host while others are connected, too, but have nothing to do; and what a peer takes of this
/// process's memory.
pub(crate) fn crowd(door: &str, peers: usize) -> Measured {
    ratio(|| {
        let rig = Rig::at(door, Some(OUR_CPU), &[PINNED])?;
        let alone = tiny(&rig)?;
        let before = os::resident()?;
        drop(rig);
        let idle = Plan { nodes: peers - 1, works: false, ..Plan::default() };
        let rig = Rig::at(door, Some(OUR_CPU), &[PINNED, idle])?;
        let crowded = tiny(&rig)?;
        let more = os::resident()?.saturating_sub(before) / (peers - 1) / 1024;
        Ok((crowded, alone, format!("{} / {}, {more} KiB per peer", time(crowded), time(alone))))
    })
}
