//! A node that has nothing to do.
use std::thread;
use std::time::{Duration, Instant};

use crate::os;
use crate::report::{Measured, Value};
use crate::responder::Kind;
use crate::rig::{Plan, Probe, Rig};

pub(crate) fn cpu() -> Measured {
    let rig = Rig::new(None, &[Plan::default()])?;
    // It has worked before, and its peer is still there.
    rig.time(&Probe { bytes: 8, ..Probe::default() }, Kind::Touch, 1000)?;
    // Until it has given back the memory of that work, which takes a while and is not idling.
    thread::sleep(Duration::from_secs(9));
    let (start, before) = (Instant::now(), os::cpu_time());
    thread::sleep(Duration::from_secs(4));
    let used = (os::cpu_time() - before).as_secs_f64();
    let wall = start.elapsed().as_secs_f64();
    Ok(Value { value: 100.0 * used / wall, detail: format!("{:.3} ms in {wall:.1} s, one peer", used * 1e3) })
}
