//! The tcp engine against UCX over TCP and iperf3 (Debian: iperf3), over the loopback interface.
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::latency::{PINNED, crowd, tiny};
use crate::os;
use crate::report::{Measured, Skipped, ratio, time};
use crate::responder::Kind;
use crate::rig::{OUR_CPU, Plan, Probe, Rig, THEIR_CPU};
use crate::{schedule, ucx};

const DOOR: &str = "127.0.0.1:0";
const UCX_TLS: &str = "tcp,self";
/// Results under way at a time.
const AT_ONCE: u64 = 8;
/// Bytes that each side of a ratio moves.
const VOLUME: usize = 2 << 30;
const MIB: usize = 1 << 20;

pub(crate) fn round_trip() -> Measured {
    ratio(|| {
        let rig = Rig::at(DOOR, Some(OUR_CPU), &[PINNED])?;
        let ours = tiny(&rig)?;
        drop(rig);
        let theirs = 2.0 * ucx::run(UCX_TLS, "ucp_am_lat", 8, 50_000, &[])?.typical;
        Ok((ours, theirs, format!("{} / {}", time(ours), time(theirs))))
    })
}

pub(crate) fn ten_peers() -> Measured {
    crowd(DOOR, 10)
}

pub(crate) fn hundred_peers() -> Measured {
    crowd(DOOR, 100)
}

pub(crate) fn against_ideal() -> Measured {
    schedule::against_ideal_at(DOOR)
}

pub(crate) fn peak_memory() -> Measured {
    schedule::peak_memory_at(DOOR)
}

/// The time that a result of that size takes when several are under way.
fn each(bytes: usize) -> Result<f64, Skipped> {
    let plan = Plan { cpu: Some(THEIR_CPU), threads: 8, ..Plan::default() };
    let rig = Rig::at(DOOR, Some(OUR_CPU), &[plan])?;
    let probe = Probe { bytes, ..Probe::default() };
    // Touches all pages on both sides.
    rig.run(&probe, Kind::Fill, 32, AT_ONCE - 1)?;
    let count = VOLUME / bytes;
    let times = rig.run(&probe, Kind::Touch, count, AT_ONCE - 1)?;
    Ok(times.whole() / count as f64)
}

fn against_ucx(bytes: usize) -> Measured {
    ratio(|| {
        let ours = each(bytes)?;
        let window = AT_ONCE.to_string();
        let theirs = ucx::run(UCX_TLS, "ucp_am_bw", bytes, VOLUME / bytes, &["-O", &window])?.overall;
        Ok((ours, theirs, format!("{} / {}", rate(bytes, ours), rate(bytes, theirs))))
    })
}

fn against_iperf(bytes: usize) -> Measured {
    ratio(|| {
        let ours = each(bytes)?;
        let theirs = bytes as f64 / iperf()?;
        Ok((ours, theirs, format!("{} / {}", rate(bytes, ours), rate(bytes, theirs))))
    })
}

fn rate(bytes: usize, seconds: f64) -> String {
    format!("{:.2} GB/s", bytes as f64 / seconds / 1e9)
}

pub(crate) fn mebibyte_ucx() -> Measured {
    against_ucx(MIB)
}

pub(crate) fn sixteen_ucx() -> Measured {
    against_ucx(16 * MIB)
}

pub(crate) fn mebibyte_iperf() -> Measured {
    against_iperf(MIB)
}

pub(crate) fn sixteen_iperf() -> Measured {
    against_iperf(16 * MIB)
}

/// iperf3's rate with one stream and writes of 1 MiB, in bytes per second.
fn iperf() -> Result<f64, Skipped> {
    let port = ucx::free_port()?.to_string();
    let mut server = start(&["-s", "-1", "-p", &port], THEIR_CPU, Stdio::null())?;
    thread::sleep(Duration::from_millis(300));
    let arguments = ["-c", "127.0.0.1", "-p", &port, "-P", "1", "-l", "1M", "-t", "3", "-f", "m", "-i", "0"];
    let output = start(&arguments, OUR_CPU, Stdio::piped())?.wait_with_output()?;
    // Both fail only for one that has ended.
    let _ = server.kill();
    let _ = server.wait();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.ends_with("receiver")).ok_or("iperf3 printed no result")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "Mbits/sec").ok_or("iperf3 printed no rate")?;
    let megabits: f64 = words.get(at.wrapping_sub(1)).ok_or("iperf3 printed no rate")?.parse()?;
    Ok(megabits * 1e6 / 8.0)
}

fn start(arguments: &[&str], cpu: usize, output: Stdio) -> Result<Child, Skipped> {
    if !os::pin(cpu) {
        return Err(Skipped(format!("there is no processor {cpu} to pin to")));
    }
    let child = os::bound(Command::new("iperf3")).args(arguments).stdin(Stdio::null()).stdout(output).spawn();
    os::unpin();
    child.map_err(|why| Skipped(format!("iperf3 does not start ({why}): install iperf3")))
}
