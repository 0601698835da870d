//! The bars of the cache and of the shm engine, each as a ratio of two measurements of the same run.
//!
//! `cargo bench --bench ratios` prints the table; `-- --only NAME`, `-- --json FILE`, `-- --list`.
//! `cargo bench --bench ratios -- rates` measures rates by size against other programs; see `rates.rs`.
//! Only ratios are worth comparing: absolute times depend on the machine, on what else runs, and on where the
//! scheduler puts the two processes. So every time is the median of many, every ratio the median of three,
//! both processes sit on the same two processors for both sides of a ratio, and priority is raised when that
//! is permitted.
#[global_allocator]
static ALLOCATOR: os::Counting = os::Counting;

mod bulk;
mod cache;
mod death;
mod idle;
mod latency;
#[path = "../../src/bin/nrdma/node/mod.rs"]
#[allow(dead_code)]
mod node;
mod os;
mod plot;
mod rates;
mod report;
mod responder;
mod rig;
mod schedule;
#[path = "../../src/bin/nrdma/sys.rs"]
#[allow(dead_code)]
mod sys;
mod tcp;
mod ucx;
mod verbs;

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;
use report::{Bar, Row};

/// All bars, in the order of the table.
const BARS: &[Bar] = &[
    Bar {
        name: "cache-get",
        what: "get + release of 1 MiB, warm / malloc + free",
        most: 1.0,
        run: cache::against_malloc,
    },
    Bar {
        name: "cache-mallocs",
        what: "heap allocations of a warm get + release",
        most: 0.0,
        run: cache::mallocs,
    },
    Bar {
        name: "cache-threads",
        what: "get + release on 2 threads / on 1",
        most: 1.5,
        run: cache::two_threads,
    },
    Bar { name: "rtt-spinning", what: "8 B fragment / 2 x ucp_am_lat", most: 1.5, run: latency::spinning },
    Bar {
        name: "rtt-asleep",
        what: "8 B fragment / eventfd ping-pong, asleep",
        most: 1.5,
        run: latency::asleep,
    },
    Bar { name: "untouched", what: "64 MiB result, untouched / 8 B result", most: 1.5, run: bulk::untouched },
    Bar { name: "fill", what: "64 MiB filled in place / (memset + ucp_put_bw)", most: 0.45, run: bulk::fill },
    Bar { name: "copy", what: "64 MiB copied into the window / memcpy", most: 1.10, run: bulk::copy },
    Bar { name: "wrap", what: "64 MiB into wrapped memory / memcpy", most: 2.0, run: bulk::wrap },
    Bar { name: "peers-10", what: "8 B fragment with 10 peers / with 1", most: 1.2, run: latency::ten_peers },
    Bar {
        name: "peers-100",
        what: "8 B fragment with 100 peers / with 1",
        most: 1.2,
        run: latency::hundred_peers,
    },
    Bar {
        name: "schedule",
        what: "10,000 x 1 MiB on hosts of speed 1:2:4 / ideal",
        most: 1.2,
        run: schedule::against_ideal,
    },
    Bar {
        name: "result-memory",
        what: "peak result memory of that / credits x 1 MiB",
        most: 1.0,
        run: schedule::peak_memory,
    },
    Bar { name: "idle", what: "an idle node's CPU time, % of one core", most: 0.5, run: idle::cpu },
    Bar { name: "kill", what: "kill -9 of a peer noticed, ms", most: 50.0, run: death::noticed },
    Bar { name: "tcp-rtt", what: "tcp: 8 B fragment / 2 x ucp_am_lat", most: 1.2, run: tcp::round_trip },
    Bar {
        name: "tcp-1m-ucx",
        what: "tcp: 1 MiB, 8 at a time / ucp_am_bw",
        most: 1.0,
        run: tcp::mebibyte_ucx,
    },
    Bar {
        name: "tcp-16m-ucx",
        what: "tcp: 16 MiB, 8 at a time / ucp_am_bw",
        most: 1.0,
        run: tcp::sixteen_ucx,
    },
    Bar {
        name: "tcp-1m-iperf",
        what: "tcp: 1 MiB, 8 at a time / iperf3",
        most: 1.11,
        run: tcp::mebibyte_iperf,
    },
    Bar {
        name: "tcp-16m-iperf",
        what: "tcp: 16 MiB, 8 at a time / iperf3",
        most: 1.11,
        run: tcp::sixteen_iperf,
    },
    Bar {
        name: "tcp-peers-10",
        what: "tcp: 8 B fragment with 10 peers / with 1",
        most: 1.2,
        run: tcp::ten_peers,
    },
    Bar {
        name: "tcp-peers-100",
        what: "tcp: 8 B fragment with 100 peers / with 1",
        most: 1.2,
        run: tcp::hundred_peers,
    },
    Bar {
        name: "tcp-schedule",
        what: "tcp: 10,000 x 1 MiB on hosts of 1:2:4 / ideal",
        most: 1.2,
        run: tcp::against_ideal,
    },
    Bar {
        name: "tcp-memory",
        what: "tcp: peak result memory of that / credits x 1 MiB",
        most: 1.0,
        run: tcp::peak_memory,
    },
    Bar {
        name: "tcp-kill",
        what: "tcp: kill -9 of a peer noticed, ms",
        most: 100.0,
        run: death::noticed_over_tcp,
    },
];

#[derive(Default)]
struct Options {
    only: Option<String>,
    json: Option<PathBuf>,
    list: bool,
    /// Started by `cargo bench`, not by `cargo test`, which only wants to know that it starts.
    bench: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "responder") {
        return responder::main(arguments.get(1..).unwrap_or_default());
    }
    if arguments.first().is_some_and(|word| word == "rates") {
        if !os::raise_priority() {
            eprintln!("ratios: priority could not be raised (nice -20): expect noise");
        }
        return match rates::main(arguments.get(1..).unwrap_or_default()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("ratios: {why}");
                ExitCode::FAILURE
            }
        };
    }
    match options(arguments).map_err(|why| why.to_string()).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("ratios: {why}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: Vec<String>) -> Result<Options, lexopt::Error> {
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => options.only = Some(parser.value()?.string()?),
            Long("json") => options.json = Some(parser.value()?.into()),
            Long("list") => options.list = true,
            Long("bench") => options.bench = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<(), String> {
    if options.list {
        for bar in BARS {
            println!("{:14}  {}", bar.name, bar.what);
        }
        return Ok(());
    }
    if !options.bench && options.only.is_none() && options.json.is_none() {
        println!("run this with cargo bench --bench ratios");
        return Ok(());
    }
    let wanted = |bar: &&Bar| options.only.as_ref().is_none_or(|only| only == bar.name);
    let bars: Vec<&Bar> = BARS.iter().filter(wanted).collect();
    if bars.is_empty() {
        return Err("no bar has that name; see --list".to_owned());
    }
    if !os::raise_priority() {
        eprintln!("ratios: priority could not be raised (nice -20): expect noise");
    }
    println!("{}", report::heading());
    let mut rows = Vec::new();
    for bar in bars {
        let row = Row::of(bar);
        println!("{}", row.line());
        rows.push(row);
    }
    println!("{}", report::closing(&rows));
    match &options.json {
        Some(path) => {
            std::fs::write(path, report::json(&rows)).map_err(|why| format!("{}: {why}", path.display()))
        }
        None => Ok(()),
    }
}
