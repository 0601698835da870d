//! Results of 64 MiB.
use std::hint::black_box;
use std::time::Instant;

use crate::latency::tiny;
use crate::node::Lent;
use crate::report::{Measured, Skipped, median, ratio, time};
use crate::responder::Kind;
use crate::rig::{ALONE, OUR_CPU, Plan, Probe, Rig, THEIR_CPU};
use crate::ucx;

const BYTES: usize = 64 << 20;
const ROUNDS: u32 = 40;

fn rig() -> Result<Rig, Skipped> {
    Rig::new(Some(OUR_CPU), &[Plan { cpu: Some(THEIR_CPU), ..Plan::default() }])
}

/// The round trip of a large result into the library's memory, or into the host's own.
fn large(rig: &Rig, kind: Kind, lent: Option<Lent>) -> Result<f64, Skipped> {
    let probe = Probe { bytes: BYTES, lent, pause: None };
    // Touches all pages on both sides; only what happens again and again is of interest.
    rig.time(&probe, Kind::Fill, 4)?;
    let once = rig.time(&probe, kind, 9)?.round_trip();
    let rounds = [20_000, 2_000, 200].into_iter().find(|n| f64::from(*n) * once < 1.0).unwrap_or(ROUNDS);
    Ok(rig.time(&probe, kind, rounds as usize)?.round_trip())
}

fn memcpy() -> f64 {
    let from = vec![1_u8; BYTES];
    let mut to = vec![2_u8; BYTES];
    timed(|| black_box(to.as_mut_slice()).copy_from_slice(black_box(&from)))
}

fn memset() -> f64 {
    let mut memory = vec![1_u8; BYTES];
    timed(|| black_box(memory.as_mut_slice()).fill(black_box(3)))
}

fn timed(mut work: impl FnMut()) -> f64 {
    work();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        work();
        times.push(start.elapsed().as_secs_f64());
    }
    median(&mut times)
}

pub(crate) fn untouched() -> Measured {
    ratio(|| {
        let rig = rig()?;
        let small = tiny(&rig)?;
        let big = large(&rig, Kind::Touch, None)?;
        Ok((big, small, format!("{} / {}", time(big), time(small))))
    })
}

pub(crate) fn fill() -> Measured {
    ratio(|| {
        let rig = rig()?;
        let ours = large(&rig, Kind::Fill, None)?;
        let memset = memset();
        drop(rig);
        let put = ucx::typical("ucp_put_bw", BYTES, 60)?;
        Ok((ours, memset + put, format!("{} / ({} + {})", time(ours), time(memset), time(put))))
    })
}

pub(crate) fn copy() -> Measured {
    ratio(|| {
        let rig = rig()?;
        let ours = large(&rig, Kind::Copy, None)?;
        let theirs = memcpy();
        Ok((ours, theirs, format!("{} / {}", time(ours), time(theirs))))
    })
}

pub(crate) fn wrap() -> Measured {
    ratio(|| {
        let rig = rig()?;
        // Untouched: what the transport does, without what the job does.
        let ours = large(&rig, Kind::Touch, Some(Lent::new(ALONE)))?;
        let theirs = memcpy();
        Ok((ours, theirs, format!("{} / {}", time(ours), time(theirs))))
    })
}
