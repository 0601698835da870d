//! `nrdma bench`: latency and bandwidth of results by size, to another process or another host.
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::against::{Figures, Tool};
use crate::args;
use crate::crew::{Crew, Plan};
use crate::json::Json;
use crate::node::{Node, Settings, version};
use crate::peer_check::time;
use crate::probe::{Content, Outcome, Probe, Target, exchange, path_name};
use crate::{plot, progress, table};

const JOINING: Duration = Duration::from_secs(10);
/// Of a run: enough for a 99.9th percentile, and not so many that one size takes all the time.
const FEWEST: u64 = 10;
const MOST: u64 = 20_000;
/// Results under way at once hold no more memory than this, or one of them.
const UNDER_WAY: u64 = 512 << 20;
/// The version of the JSON document.
const SCHEMA: u64 = 1;

/// What was measured for one size.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// Of a result.
    pub(crate) bytes: u64,
    /// Results under way at once when bandwidth was measured.
    pub(crate) window: u64,
    /// `NRDMA_PATH_*`.
    pub(crate) path: i32,
    pub(crate) latency: Latency,
    /// Bytes in a second.
    pub(crate) bandwidth: f64,
    /// The other tool's.
    pub(crate) theirs: Option<Figures>,
}

/// One result at a time, from asking for its memory to having it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) p999: Duration,
    pub(crate) max: Duration,
}

impl Row {
    /// Our time over theirs.
    fn latency_ratio(&self) -> Option<f64> {
        Some(self.latency.p50.as_secs_f64() / self.theirs?.latency?.as_secs_f64())
    }
    /// Our bandwidth over theirs.
    fn bandwidth_ratio(&self) -> Option<f64> {
        Some(self.bandwidth / self.theirs?.bandwidth?)
    }
}

/// A run.
pub(crate) struct Report {
    pub(crate) engine: String,
    pub(crate) host: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) against: Option<Tool>,
    content: Content,
    target: Target,
}

/// Measures, writes the files that are asked for, and returns what to print.
pub(crate) fn run(options: &args::Bench) -> Result<String, String> {
    for file in [&options.json, &options.svg].into_iter().flatten() {
        // Before the work, not after it.
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .map_err(|why| unwritable(file, &why.to_string()))?;
    }
    let report = measure(options)?;
    let save = |file: &Option<std::path::PathBuf>, text: &dyn Fn() -> String| match file {
        Some(file) => fs::write(file, text()).map_err(|why| unwritable(file, &why.to_string())),
        None => Ok(()),
    };
    save(&options.json, &|| report.document().document())?;
    save(&options.svg, &|| plot::svg(&report))?;
    Ok(report.text())
}

fn unwritable(file: &Path, why: &str) -> String {
    format!("cannot write {}: {why}", file.display())
}

fn measure(options: &args::Bench) -> Result<Report, String> {
    let settings = Settings {
        name: "bench".to_owned(),
        worker_threads: 1,
        transports: options.transports.clone(),
        ..Settings::default()
    };
    let node = Node::new(&settings).map_err(|why| format!("cannot make a node: {why}"))?;
    // Lives as long as the bench.
    let _crew = match &options.address {
        Some(address) => {
            node.connect(address).map_err(|why| why.to_string())?;
            None
        }
        None => Some(start(&node, options)?),
    };
    let peer = node.peers().map_err(|why| why.to_string())?.into_iter().next().ok_or("the peer is gone")?;
    let sizes: Vec<u64> = sizes(options);
    let done = AtomicU64::new(0);
    let rows = progress::during("sizes", sizes.len() as u64, &done, || {
        let one = |bytes: &u64| {
            let row = row(&node, options, *bytes, &peer.transport);
            done.fetch_add(1, Ordering::Relaxed);
            row
        };
        sizes.iter().map(one).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(Report {
        engine: peer.transport,
        host: peer.name,
        rows,
        against: options.against,
        content: options.content,
        target: options.target,
    })
}

/// A worker process of our own.
fn start(node: &Node, options: &args::Bench) -> Result<Crew, String> {
    let transports = options.transports.as_deref();
    let tcp = transports.is_some_and(|list| list.split(',').all(|engine| engine.trim() == "tcp"));
    let address = node.listen(if tcp { "127.0.0.1:0" } else { "unix:" }).map_err(|why| why.to_string())?;
    let crew = Crew::start(&Plan { hosts: 1, address: &address, threads: 2, transports })
        .map_err(|why| format!("cannot start a worker process: {why}"))?;
    node.wait_peers(1, JOINING).map_err(|why| why.to_string())?;
    Ok(crew)
}

/// Eight times as much at each step, and four times where it matters most.
fn sizes(options: &args::Bench) -> Vec<u64> {
    let all = [3, 6, 9, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30].map(|bits| 1_u64 << bits);
    all.into_iter().filter(|bytes| (options.least..=options.most).contains(bytes)).collect()
}

fn row(node: &Node, options: &args::Bench, bytes: u64, engine: &str) -> Result<Row, String> {
    let probe = Probe { content: options.content, bytes, seed: 1 };
    let failed = |why: String| format!("results of {}: {why}", table::bytes(bytes));
    let go =
        |count: u64, window: u64| exchange(node, probe, options.target, count, window, false).map_err(failed);
    // Makes the memory on both sides, and tells how many fit into the time.
    go(2, 2)?;
    let warm = go(FEWEST, 1)?;
    let one = go(fitting(&warm, options.seconds), 1)?;
    let window = options.window.min(UNDER_WAY / bytes.max(1)).max(1);
    go((2 * window).max(FEWEST), window)?;
    let many = go(fitting(&one, options.seconds).max(2 * window), window)?;
    let theirs = options.against.map(|tool| tool.measure(options, engine, bytes, window)).transpose()?;
    Ok(Row {
        bytes,
        window,
        path: many.path,
        latency: Latency {
            p50: one.quantile(500),
            p99: one.quantile(990),
            p999: one.quantile(999),
            max: one.quantile(1000),
        },
        bandwidth: many.times.len() as f64 * bytes as f64 / many.wall.as_secs_f64().max(1e-9),
        theirs,
    })
}

/// How many such results fit into so many seconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped; `as` saturates besides.
fn fitting(outcome: &Outcome, seconds: f64) -> u64 {
    let each = outcome.wall.as_secs_f64() / outcome.times.len().max(1) as f64;
    ((seconds / each.max(1e-9)) as u64).clamp(FEWEST, MOST)
}

impl Report {
    /// "8 B", "64 KiB".
    pub(crate) fn title(&self) -> String {
        let content = match self.content {
            Content::Touch => "untouched results",
            _ => "results filled by the responder",
        };
        let target = match self.target {
            Target::Own => "",
            Target::Wrapped => ", into memory of the host's own",
        };
        format!("nrdma {} over {}, {content}{target}", version(), self.engine)
    }

    fn text(&self) -> String {
        let mut heading = vec!["size", "path", "p50", "p99", "p99.9", "max", "window", "MiB/s"];
        if let Some(tool) = self.against {
            heading.extend([tool.latency_name(), "ratio", tool.bandwidth_name(), "ratio"]);
        }
        let mut rows = vec![heading.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        let rate = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
        let maybe = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let ratio = |ratio: f64| format!("{ratio:.2}");
        for row in &self.rows {
            let l = row.latency;
            let mut cells = vec![plot::size(row.bytes), path_name(row.path).to_owned()];
            cells.extend([l.p50, l.p99, l.p999, l.max].map(time));
            cells.extend([row.window.to_string(), rate(row.bandwidth)]);
            if self.against.is_some() {
                cells.extend([
                    maybe(row.theirs.and_then(|theirs| theirs.latency).map(time)),
                    maybe(row.latency_ratio().map(ratio)),
                    maybe(row.theirs.and_then(|theirs| theirs.bandwidth).map(rate)),
                    maybe(row.bandwidth_ratio().map(ratio)),
                ]);
            }
            rows.push(cells);
        }
        format!(
            "{}; peer {:?}\nlatency of one result at a time, then bandwidth with a window of several\n\n{}",
            self.title(),
            self.host,
            table::columns(&rows)
        )
    }

    fn document(&self) -> Json {
        let micros = |time: Duration| Json::Float(time.as_secs_f64() * 1e6);
        let float = |value: Option<f64>| value.map_or(Json::Null, Json::Float);
        let one = |row: &Row| {
            let theirs = row.theirs.unwrap_or_default();
            Json::Object(vec![
                ("bytes", row.bytes.into()),
                ("path", path_name(row.path).into()),
                ("latency_p50_us", micros(row.latency.p50)),
                ("latency_p99_us", micros(row.latency.p99)),
                ("latency_p999_us", micros(row.latency.p999)),
                ("latency_max_us", micros(row.latency.max)),
                ("window", row.window.into()),
                ("bytes_per_second", Json::Float(row.bandwidth)),
                ("against_latency_us", theirs.latency.map_or(Json::Null, micros)),
                ("against_latency_ratio", float(row.latency_ratio())),
                ("against_bytes_per_second", float(theirs.bandwidth)),
                ("against_bandwidth_ratio", float(row.bandwidth_ratio())),
            ])
        };
        Json::Object(vec![
            ("schema", SCHEMA.into()),
            ("version", version().into()),
            ("engine", self.engine.clone().into()),
            ("host", self.host.clone().into()),
            ("content", if self.content == Content::Touch { "untouched" } else { "filled" }.into()),
            ("memory", if self.target == Target::Own { "own" } else { "wrapped" }.into()),
            ("against", self.against.map(|tool| tool.name().to_owned()).into()),
            ("rows", Json::List(self.rows.iter().map(one).collect())),
        ])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn report() -> Report {
        let row = |bits: u32| {
            let micros = |n: u64| Duration::from_micros(n + (1 << bits) / 1000);
            Row {
                bytes: 1 << bits,
                window: 8,
                path: 1,
                latency: Latency { p50: micros(10), p99: micros(20), p999: micros(30), max: micros(90) },
                bandwidth: f64::from(1 << bits) * 1e4,
                theirs: Some(Figures {
                    latency: Some(micros(20)),
                    bandwidth: Some(f64::from(1 << bits) * 2e4),
                }),
            }
        };
        Report {
            engine: "shm".to_owned(),
            host: "worker-1".to_owned(),
            rows: [3, 10, 20, 30].map(row).to_vec(),
            against: Some(Tool::Ucx),
            content: Content::Fill,
            target: Target::Own,
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_size_and_ratios() {
        let text = report().text();
        let row = text.lines().find(|line| line.starts_with("8 B ")).unwrap();
        assert!(row.contains("10.0 us") && row.contains("0.50"), "{text}");
        assert_eq!(text.lines().count(), 4 + 4);
        assert!(report().document().document().contains("\"against_latency_ratio\": 0.5"));
    }

    #[test]
    fn runs_are_neither_endless_nor_empty() {
        let outcome = |micros, n| Outcome {
            wall: Duration::from_micros(micros),
            times: vec![Duration::ZERO; n],
            ..Outcome::default()
        };
        assert_eq!(fitting(&outcome(10, 10), 0.5), MOST);
        assert_eq!(fitting(&outcome(10_000_000, 10), 0.5), FEWEST);
        assert_eq!(fitting(&outcome(10_000, 10), 0.5), 500);
    }
}
