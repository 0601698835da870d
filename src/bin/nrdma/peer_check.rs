//! `nrdma doctor --peer`: one host after the other step of what a job needs; the first that fails ends it.
use std::fs;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::time::{Duration, Instant};

use nrdma::doctor::Finding;

use crate::node::{Node, Settings};
use crate::probe::{Content, Outcome, Probe, Target, exchange, path_name};
use crate::table;

const ID: &str = "peer";
/// Beyond what 32 bits can say, and then some.
const BEYOND: u64 = (4 << 30) + (128 << 10);
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What both ends need for it.
const ROOM: u64 = BEYOND + (1 << 30);

/// Tests the host that serves at `address`.
pub(crate) fn run(address: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(finding) = steps(address, &mut findings) {
        findings.push(finding);
    }
    findings
}

fn failed(fact: String, why: &str, remedy: String) -> Finding {
    Finding::fail(ID, fact).why(why).remedy(remedy)
}

fn steps(address: &str, findings: &mut Vec<Finding>) -> Result<(), Finding> {
    let settings = Settings { name: "doctor".to_owned(), worker_threads: 1, ..Settings::default() };
    let node = Node::new(&settings).map_err(|why| {
        failed(
            format!("no node can be made: {why}"),
            "nothing works without",
            "NRDMA_LOG=debug nrdma doctor".to_owned(),
        )
    })?;
    let start = Instant::now();
    node.connect(address).map_err(|why| {
        let remedy = format!(
            "nrdma serve ADDRESS    # on that host, with the same token; then nrdma doctor --peer {address}"
        );
        failed(format!("{address}: {why}"), "no job can use that host", remedy)
    })?;
    let took = start.elapsed();
    let peer = node.peers().ok().and_then(|peers| peers.into_iter().next());
    let (name, engine) = peer.map_or((String::new(), String::new()), |peer| (peer.name, peer.transport));
    findings.push(Finding::ok(ID, format!("{name:?} answers at {address} in {}, by {engine}", time(took))));
    findings.extend(way(address));

    let probe = |content, bytes| Probe { content, bytes, seed: 0x5eed };
    let wrong = |what: &str, why: String| {
        let remedy = format!("NRDMA_LOG=debug nrdma doctor --peer {address}");
        failed(format!("{what}: {why}"), "results of jobs are lost or wrong", remedy)
    };
    for (bytes, count) in [(64 << 10, 16), (64 << 20, 3)] {
        let what = format!("a result of {}", table::bytes(bytes));
        let outcome = exchange(&node, probe(Content::Pattern, bytes), Target::Own, count, 2, true)
            .map_err(|why| wrong(&what, why))?;
        findings.push(Finding::ok(ID, format!("{what} arrives as sent ({})", path_name(outcome.path))));
    }
    let latency = exchange(&node, probe(Content::Touch, 8), Target::Own, 500, 1, true)
        .map_err(|why| wrong("8 bytes", why))?;
    let fact = format!(
        "latency of a fragment: median {}, 99 % within {}",
        time(latency.quantile(500)),
        time(latency.quantile(990))
    );
    findings.push(Finding::ok(ID, fact));
    let speed = exchange(&node, probe(Content::Touch, 16 << 20), Target::Own, 16, 4, true)
        .map_err(|why| wrong("bandwidth", why))?;
    let rate = rate(&speed, 16 << 20);
    findings.push(Finding::ok(
        ID,
        format!("results of 16 MiB: {:.0} MiB/s ({})", rate / MIB, path_name(speed.path)),
    ));
    findings.push(beyond(&node, rate).map_err(|why| wrong("a result beyond 4 GiB", why))?);
    node.shutdown().map_err(|why| wrong("goodbye", why.to_string()))
}

const MIB: f64 = (1 << 20) as f64;

/// Bytes in a second.
fn rate(outcome: &Outcome, bytes: u64) -> f64 {
    outcome.times.len() as f64 * bytes as f64 / outcome.wall.as_secs_f64().max(1e-9)
}

/// A result whose offsets need more than 32 bits, where there is memory and time for it.
fn beyond(node: &Node, rate: f64) -> Result<Finding, String> {
    let free = available();
    if free < ROOM {
        let fact =
            format!("a result beyond 4 GiB was not tried: {} of memory are free here", table::bytes(free));
        return Ok(Finding::info(ID, fact).why(format!("it takes {}", table::bytes(ROOM))));
    }
    let expected = Duration::from_secs_f64((BEYOND as f64 / rate.max(1.0)).min(1e6));
    if expected > PATIENCE {
        let fact = format!("a result beyond 4 GiB was not tried: it would take {} s", expected.as_secs());
        return Ok(Finding::info(ID, fact).why(format!("more than {} s at this speed", PATIENCE.as_secs())));
    }
    let probe = Probe { content: Content::Sparse, bytes: BEYOND, seed: 0x5eed };
    let outcome = exchange(node, probe, Target::Own, 1, 1, true)?;
    Ok(Finding::ok(
        ID,
        format!("a result of {} arrives as sent ({})", table::bytes(BEYOND), path_name(outcome.path)),
    ))
}

fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().map_or(0, |kib| kib * 1024)
}

/// The interface that leads to the peer, and its MTU.
fn way(address: &str) -> Option<Finding> {
    let ip = address.to_socket_addrs().ok()?.next()?.ip();
    if ip.is_loopback() {
        return Some(Finding::ok(ID, format!("{ip} is this host")));
    }
    let IpAddr::V4(ip) = ip else { return None };
    let name = route(&fs::read_to_string("/proc/net/route").ok()?, ip)?;
    let mtu = fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
    Some(Finding::ok(ID, format!("the way to {ip} is {name}, MTU {}", mtu.trim())))
}

/// The interface of the route that fits best.
fn route(table: &str, ip: Ipv4Addr) -> Option<String> {
    let number = |word: &str| u32::from_str_radix(word, 16).ok().map(u32::swap_bytes);
    let routes = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (target, mask) = (number(words.get(1)?)?, number(words.get(7)?)?);
        (u32::from(ip) & mask == target).then(|| (mask, (*words.first().unwrap_or(&"")).to_owned()))
    });
    routes.max_by_key(|(mask, _)| *mask).map(|(_, name)| name)
}

/// A time, for people.
pub(crate) fn time(time: Duration) -> String {
    let nanoseconds = time.as_nanos() as f64;
    match nanoseconds {
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_route_is_taken() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
                     eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\n\
                     ib0\t00004D0A\t00000000\t0001\t0\t0\t0\t0000FFFF\n";
        assert_eq!(route(table, Ipv4Addr::new(10, 77, 3, 4)).as_deref(), Some("ib0"));
        assert_eq!(route(table, Ipv4Addr::new(8, 8, 8, 8)).as_deref(), Some("eth0"));
        assert_eq!(route("", Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn times_have_units() {
        let all = [900, 1_500_000, 2_500_000_000].map(|n| time(Duration::from_nanos(n)));
        assert_eq!(all, ["0.9 us", "1.5 ms", "2.50 s"]);
    }
}
