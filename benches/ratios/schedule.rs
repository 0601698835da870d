//! Many fragments over hosts of different speed.
use crate::report::{Measured, Skipped, Value, time};
use crate::responder::Kind;
use crate::rig::{Plan, Probe, Rig, Times};

const BYTES: usize = 1 << 20;
/// How long a fragment takes on each host: speed 1, 2 and 4.
const DELAYS_US: [u64; 3] = [4000, 2000, 1000];
/// One executor each, and one fragment that waits for it.
const CREDITS: f64 = 2.0 * DELAYS_US.len() as f64;

fn run(door: &str, count: usize) -> Result<Times, Skipped> {
    let rig = Rig::at(door, None, &DELAYS_US.map(|delay_us| Plan { delay_us, ..Plan::default() }))?;
    rig.run(&Probe { bytes: BYTES, ..Probe::default() }, Kind::Delay, count, 0)
}

pub(crate) fn against_ideal() -> Measured {
    against_ideal_at("unix:")
}

pub(crate) fn peak_memory() -> Measured {
    peak_memory_at("unix:")
}

pub(crate) fn against_ideal_at(door: &str) -> Measured {
    const COUNT: u32 = 10_000;
    let rate: f64 = DELAYS_US.iter().map(|delay| 1e6 / *delay as f64).sum();
    let ideal = f64::from(COUNT) / rate;
    let wall = run(door, COUNT as usize)?.whole();
    Ok(Value { value: wall / ideal, detail: format!("{} / {}", time(wall), time(ideal)) })
}

pub(crate) fn peak_memory_at(door: &str) -> Measured {
    let most = run(door, 1000)?.most_at_once();
    Ok(Value { value: most as f64 / CREDITS, detail: format!("{most} results at once / {CREDITS} credits") })
}
