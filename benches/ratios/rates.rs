//! Rates by size with eight results under way: over tcp against `ucx_perftest` on this machine, and over `rc_verbs`
//! against `ib_write_bw` in emulated machines, both sides of a ratio in the same boot.
use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lexopt::prelude::*;

use crate::report::Skipped;
use crate::responder::Kind;
use crate::rig::{OUR_CPU, Plan, Probe, Rig, THEIR_CPU};
use crate::verbs::Device;
use crate::{plot, ucx};

/// Results under way at a time.
const AT_ONCE: u64 = 8;
const SIZES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];
/// About how long each side is measured.
const SECONDS: f64 = 1.5;
/// Where the emulated machines come from.
const MACHINES: &str = "c_tests/rigs/soft_roce/run.sh";
/// What a yardstick with as few outstanding as we have is called.
const SHALLOW: &str = "ib_write_bw -t 8";

/// One pair of measurements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rate {
    pub(crate) engine: String,
    /// What ours is compared with.
    pub(crate) against: String,
    /// Which boot of the machine, from 1.
    pub(crate) boot: u32,
    /// Of a result.
    pub(crate) bytes: usize,
    /// Bytes per second.
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

impl Rate {
    pub(crate) fn ratio(&self) -> f64 {
        self.ours / self.theirs
    }

    fn json(&self) -> String {
        format!(
            "{{\"engine\": \"{}\", \"against\": \"{}\", \"boot\": {}, \"bytes\": {}, \"ours\": {:.0}, \"theirs\": {:.0}}}",
            self.engine, self.against, self.boot, self.bytes, self.ours, self.theirs
        )
    }

    /// Reads what `json` wrote: one object of a line, without quotes or commas in its strings.
    fn read(line: &str) -> Option<Self> {
        let body = line.trim().trim_end_matches(',').strip_prefix('{')?.strip_suffix('}')?;
        let value = |key: &str| {
            let mut fields = body.split(',').filter_map(|field| field.split_once(':'));
            fields.find(|(name, _)| name.trim().trim_matches('"') == key).map(|(_, value)| value.trim())
        };
        let text = |key| value(key).map(|value| value.trim_matches('"').to_owned());
        Some(Self {
            engine: text("engine")?,
            against: text("against")?,
            boot: value("boot")?.parse().ok()?,
            bytes: value("bytes")?.parse().ok()?,
            ours: value("ours")?.parse().ok()?,
            theirs: value("theirs")?.parse().ok()?,
        })
    }
}

/// For each yardstick and size the boot with the best ratio, in the order in which they were measured.
pub(crate) fn best(rates: &[Rate]) -> Vec<&Rate> {
    let mut best: Vec<&Rate> = Vec::new();
    for rate in rates {
        match best.iter_mut().find(|known| known.against == rate.against && known.bytes == rate.bytes) {
            Some(known) if rate.ratio() > known.ratio() => *known = rate,
            Some(_) => {}
            None => best.push(rate),
        }
    }
    best
}

/// The least that a promise allows.
pub(crate) fn bar(rate: &Rate) -> Option<f64> {
    match (rate.against.as_str(), rate.bytes) {
        ("ib_write_bw", 65_536) => Some(0.85),
        ("ib_write_bw", 1_048_576) => Some(0.90),
        ("ib_write_bw", 16_777_216) => Some(0.95),
        ("ucx_perftest", 1_048_576 | 16_777_216) => Some(1.0),
        _ => None,
    }
}

struct Options {
    boots: u32,
    json: Option<PathBuf>,
    plot: Option<PathBuf>,
    /// Measures nothing, but reads what was.
    from: Option<PathBuf>,
    /// Measures over the RDMA device that has this address, and prints lines of JSON: inside a machine.
    at: Option<Ipv4Addr>,
    tcp: bool,
}

/// `ratios rates [--boots N] [--json FILE] [--plot FILE.svg] [--from FILE] [--no-tcp]`.
pub(crate) fn main(arguments: &[String]) -> Result<(), String> {
    let options = options(arguments).map_err(|why| why.to_string())?;
    if let Some(at) = options.at {
        return inside(at).map_err(|why| why.0);
    }
    let rates = match &options.from {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
            text.lines().filter_map(Rate::read).collect()
        }
        None => measure(&options),
    };
    print!("{}", table(&rates));
    let save =
        |file: &Path, text: String| fs::write(file, text).map_err(|why| format!("{}: {why}", file.display()));
    if let Some(file) = &options.json {
        let lines: Vec<String> = rates.iter().map(|rate| format!("  {}", rate.json())).collect();
        save(file, format!("[\n{}\n]\n", lines.join(",\n")))?;
    }
    options.plot.as_ref().map_or(Ok(()), |file| save(file, plot::svg(&rates)))
}

fn options(arguments: &[String]) -> Result<Options, lexopt::Error> {
    let mut options = Options { boots: 3, json: None, plot: None, from: None, at: None, tcp: true };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("boots") => options.boots = parser.value()?.parse()?,
            Long("json") => options.json = Some(parser.value()?.into()),
            Long("plot") => options.plot = Some(parser.value()?.into()),
            Long("from") => options.from = Some(parser.value()?.into()),
            Long("at") => options.at = Some(parser.value()?.parse()?),
            Long("no-tcp") => options.tcp = false,
            // cargo bench says this.
            Long("bench") => {}
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn measure(options: &Options) -> Vec<Rate> {
    let mut rates = Vec::new();
    for bytes in SIZES.into_iter().filter(|_| options.tcp) {
        match tcp(bytes) {
            Ok(rate) => rates.push(rate),
            Err(why) => eprintln!("ratios: tcp, {bytes} B: {}", why.0),
        }
    }
    for boot in 1..=options.boots {
        match machines(boot) {
            Ok(more) => rates.extend(more),
            Err(why) => eprintln!("ratios: boot {boot}: {}", why.0),
        }
    }
    rates
}

/// The rate of results of that size, eight at a time.
fn ours(door: &str, cpus: Option<(usize, usize)>, bytes: usize) -> Result<f64, Skipped> {
    let plan = Plan { cpu: cpus.map(|cpus| cpus.1), threads: 8, ..Plan::default() };
    let rig = Rig::at(door, cpus.map(|cpus| cpus.0), &[plan])?;
    let probe = Probe { bytes, ..Probe::default() };
    // Touches all pages on both sides.
    rig.run(&probe, Kind::Fill, 24, AT_ONCE - 1)?;
    let each = |count: usize| -> Result<f64, Skipped> {
        Ok(rig.run(&probe, Kind::Touch, count, AT_ONCE - 1)?.whole() / count as f64)
    };
    let count = often(each(64)?);
    Ok(bytes as f64 / each(count)?)
}

/// How many operations fill the time.
#[allow(clippy::cast_possible_truncation, reason = "clamped to what fits")]
fn often(each: f64) -> usize {
    (SECONDS / each).clamp(16.0, 200_000.0) as usize
}

fn tcp(bytes: usize) -> Result<Rate, Skipped> {
    let ours = ours("127.0.0.1:0", Some((OUR_CPU, THEIR_CPU)), bytes)?;
    let count = often(bytes as f64 / ours);
    let window = AT_ONCE.to_string();
    let theirs = ucx::run("tcp,self", "ucp_am_bw", bytes, count, &["-O", &window])?.overall;
    Ok(Rate {
        engine: "tcp".to_owned(),
        against: "ucx_perftest".to_owned(),
        boot: 1,
        bytes,
        ours,
        theirs: bytes as f64 / theirs,
    })
}

/// Inside a machine: the processors are left to the device, which is software and needs them too.
fn inside(at: Ipv4Addr) -> Result<(), Skipped> {
    let device = Device::at(at)?;
    for bytes in SIZES {
        let first = ours(&format!("{at}:0"), None, bytes)?;
        let count = often(bytes as f64 / first);
        let theirs = device.writes(bytes, count, None)?;
        let second = ours(&format!("{at}:0"), None, bytes)?;
        let again = device.writes(bytes, count, None)?;
        let rate = Rate {
            engine: "ucx".to_owned(),
            against: "ib_write_bw".to_owned(),
            boot: 0,
            bytes,
            ours: f64::midpoint(first, second),
            theirs: f64::midpoint(theirs, again),
        };
        println!("{}", rate.json());
        if bytes == SIZES[0] {
            let theirs = device.writes(bytes, count, Some(AT_ONCE))?;
            println!("{}", Rate { against: SHALLOW.to_owned(), theirs, ..rate }.json());
        }
    }
    Ok(())
}

/// One boot: this program again, inside.
fn machines(boot: u32) -> Result<Vec<Rate>, Skipped> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let report = root.join("build/rdma/rates/report");
    // Its name inside is the one that the step knows.
    let program = report.with_file_name("ratios");
    fs::create_dir_all(report.with_file_name(""))?;
    fs::copy(std::env::current_exe()?, &program)?;
    let status = Command::new("bash")
        .arg(root.join(MACHINES))
        .args(["--steps", "bench", "--cache"])
        .arg(root.join("build/rdma"))
        .arg("--report")
        .arg(&report)
        .arg("--program")
        .arg(&program)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    let text = fs::read_to_string(&report)?;
    let rates: Vec<Rate> = text.lines().filter_map(Rate::read).map(|rate| Rate { boot, ..rate }).collect();
    if rates.is_empty() {
        return Err(Skipped(format!("{MACHINES} ended with {status}: {text}")));
    }
    Ok(rates)
}

fn table(rates: &[Rate]) -> String {
    let mut text = format!(
        "{:6}  {:16}  {:>8}  {:>12}  {:>12}  {:>6}  {:>5}  met\n",
        "engine", "against", "size", "ours MB/s", "theirs MB/s", "ratio", "bar"
    );
    for rate in best(rates) {
        let (bar, met) = match bar(rate) {
            Some(bar) if rate.ratio() >= bar => (format!("{bar:.2}"), "yes"),
            Some(bar) => (format!("{bar:.2}"), "NO"),
            None => ("-".to_owned(), "-"),
        };
        let (ours, theirs) = (rate.ours / 1e6, rate.theirs / 1e6);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:6}  {:16}  {:>8}  {ours:>12.1}  {theirs:>12.1}  {:>6.2}  {bar:>5}  {met}",
            rate.engine,
            rate.against,
            plot::size(rate.bytes),
            rate.ratio(),
        );
    }
    text
}
