//! Other tools that measure the same, run beside ours: their processes, and what they print.
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::args;

/// How long one measurement of another tool may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// None of them says when its server listens.
const STARTING: Duration = Duration::from_millis(400);

/// Another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `ucx_perftest`: active messages.
    Ucx,
    /// `ib_write_bw`: RDMA writes; bandwidth only.
    Ib,
    /// `iperf3`: one TCP stream; bandwidth only.
    Iperf,
}

/// What it measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Figures {
    /// There and back.
    pub(crate) latency: Option<Duration>,
    /// Bytes in a second.
    pub(crate) bandwidth: Option<f64>,
}

/// What one run printed.
struct Run<'a> {
    program: &'a str,
    server: Vec<String>,
    client: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Tool {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "ucx" | "ucx_perftest" => Ok(Self::Ucx),
            "ib" | "ib_write_bw" => Ok(Self::Ib),
            "iperf" | "iperf3" => Ok(Self::Iperf),
            _ => Err("it is ucx (ucx_perftest), ib (ib_write_bw) or iperf3".to_owned()),
        }
    }
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ucx => "ucx_perftest",
            Self::Ib => "ib_write_bw",
            Self::Iperf => "iperf3",
        }
    }
    pub(crate) fn latency_name(self) -> &'static str {
        if self == Self::Ucx { "2x am_lat" } else { "-" }
    }
    pub(crate) fn bandwidth_name(self) -> &'static str {
        match self {
            Self::Ucx => "am_bw",
            Self::Ib => "ib_write",
            Self::Iperf => "iperf3",
        }
    }
    fn package(self) -> &'static str {
        match self {
            Self::Ucx => "ucx-utils",
            Self::Ib => "perftest",
            Self::Iperf => "iperf3",
        }
    }

    /// Results of this size, over what the engine uses; on another host its server must run already.
    pub(crate) fn measure(
        self,
        options: &args::Bench,
        engine: &str,
        bytes: u64,
        window: u64,
    ) -> Result<Figures, String> {
        let host = options.address.as_deref().and_then(host_of);
        let port = if host.is_some() { self.port() } else { free_port()? };
        let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
        let local = host == "127.0.0.1";
        let text = |run: &Run<'_>| {
            output(run, local)
                .map_err(|why| format!("{}: {why} (Debian: apt-get install {})", self.name(), self.package()))
        };
        let work = (bytes, iterations(bytes, options.seconds));
        match self {
            Self::Ucx => {
                let run = |test: &str, more: &[&str]| ucx(engine, test, work, &host, port, more);
                let latency = parse_ucx(&text(&run("ucp_am_lat", &[]))?).map(|(typical, _)| typical * 2.0);
                let window = window.to_string();
                let overall =
                    parse_ucx(&text(&run("ucp_am_bw", &["-O", &window]))?).map(|(_, overall)| overall);
                Ok(Figures {
                    latency: latency.map(Duration::from_secs_f64),
                    bandwidth: overall.map(|seconds| bytes as f64 / seconds.max(1e-12)),
                })
            }
            Self::Ib => Ok(Figures { latency: None, bandwidth: parse_ib(&text(&ib(work, &host, port))?) }),
            // A stream has no messages; below a page it measures system calls.
            Self::Iperf if bytes < 4096 => Ok(Figures::default()),
            Self::Iperf => {
                Ok(Figures { latency: None, bandwidth: parse_iperf(&text(&iperf(bytes, &host, port))?) })
            }
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Ucx => 13337,
            Self::Ib => 18515,
            Self::Iperf => 5201,
        }
    }
}

/// The host of a TCP address; none for a socket of this host.
fn host_of(address: &str) -> Option<String> {
    if address.starts_with("unix:") {
        return None;
    }
    let (host, _) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!matches!(host, "127.0.0.1" | "localhost" | "::1" | "")).then(|| host.to_owned())
}

fn free_port() -> Result<u16, String> {
    let found = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    found.map(|address| address.port()).map_err(|why| format!("no free port: {why}"))
}

/// As many as take the time of a measurement at 4 GiB/s, and not so many that tools which only poll take minutes where
/// others want the processors, too.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped; `as` saturates besides.
fn iterations(bytes: u64, seconds: f64) -> u64 {
    let fitting = (seconds * 4e9 / bytes.max(1) as f64) as u64;
    fitting.min((seconds * 7000.0) as u64).max(5)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn ucx<'a>(
    engine: &str,
    test: &str,
    (bytes, n): (u64, u64),
    host: &str,
    port: u16,
    more: &[&str],
) -> Run<'a> {
    let transports = match engine {
        "shm" | "inproc" => "posix",
        "ucx" => "rc,ud",
        _ => "tcp",
    };
    let (port, size) = (port.to_string(), bytes.to_string());
    let (count, warm) = (n.to_string(), (n / 20).max(3).to_string());
    let mut client = words(&["-p", &port, host, "-t", test, "-s", &size, "-n", &count, "-w", &warm, "-f"]);
    client.extend(words(more));
    Run {
        program: "ucx_perftest",
        server: words(&["-p", &port]),
        client,
        variables: vec![("UCX_TLS", transports.to_owned()), ("UCX_WARN_UNUSED_ENV_VARS", "n".to_owned())],
    }
}

fn ib<'a>((bytes, n): (u64, u64), host: &str, port: u16) -> Run<'a> {
    let (port, size, count) = (port.to_string(), bytes.to_string(), n.to_string());
    let common = ["-p", &port, "-s", &size, "-n", &count, "-F", "--report_gbits"];
    let client = [&common[..], &[host]].concat();
    Run { program: "ib_write_bw", server: words(&common), client: words(&client), variables: Vec::new() }
}

fn iperf<'a>(bytes: u64, host: &str, port: u16) -> Run<'a> {
    let (port, length) = (port.to_string(), bytes.min(1 << 20).to_string());
    Run {
        program: "iperf3",
        server: words(&["-s", "-1", "-p", &port]),
        client: words(&["-c", host, "-p", &port, "-l", &length, "-t", "1", "-P", "1", "--json"]),
        variables: Vec::new(),
    }
}

/// Ended with us, should it not have ended with its client.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for one that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn output(run: &Run<'_>, local: bool) -> Result<String, String> {
    let command = |arguments: &[String], output: Stdio| {
        let variables = run.variables.iter().map(|(name, value)| (*name, value.as_str()));
        let mut command = Command::new(run.program);
        command.args(arguments).envs(variables).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        command.spawn().map_err(|why| format!("does not start ({why})"))
    };
    let _server = match local {
        true => Some(Server(command(&run.server, Stdio::null())?)),
        false => None,
    };
    thread::sleep(STARTING);
    let mut client = Server(command(&run.client, Stdio::piped())?);
    let mut pipe = client.0.stdout.take().ok_or("has no output")?;
    // Read beside, so that a full pipe cannot stop it.
    let reader = thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut pipe, &mut text).map(|_| text)
    });
    let deadline = Instant::now() + PATIENCE;
    while let Ok(None) = client.0.try_wait() {
        if Instant::now() > deadline {
            // Its figures are then missing, and ours are not lost.
            return Ok(String::new());
        }
        thread::sleep(Duration::from_millis(5));
    }
    drop(client);
    reader.join().map_err(|_| "its output cannot be read".to_owned())?.map_err(|why| why.to_string())
}

/// The last line that begins with a number: iterations, then microseconds: median, average, overall. In seconds:
/// median and overall.
fn parse_ucx(text: &str) -> Option<(f64, f64)> {
    let figures = |line: &str| {
        let mut words = line.trim_start().trim_start_matches("Final:").split_whitespace();
        words.next()?.parse::<u64>().ok()?;
        let microseconds: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        Some((microseconds.first()? / 1e6, microseconds.get(2)? / 1e6))
    };
    text.lines().filter_map(figures).next_back()
}

/// The last line of numbers: size, iterations, peak and average in Gb/s.
fn parse_ib(text: &str) -> Option<f64> {
    let figures = |line: &str| {
        let numbers: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        numbers.get(3).copied()
    };
    text.lines().filter_map(figures).next_back().map(|gigabits| gigabits * 1e9 / 8.0)
}

/// The rate that arrived, in bits.
fn parse_iperf(text: &str) -> Option<f64> {
    let (_, tail) = text.split_once("\"sum_received\"")?;
    let (_, tail) = tail.split_once("\"bits_per_second\":")?;
    let number: String = tail
        .trim_start()
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | '+' | '-'))
        .collect();
    number.parse::<f64>().ok().map(|bits| bits / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_print_is_read() {
        let ucx = "# header\nFinal:  10000  1.500  1.700  1.710  4.45  4.46  583333  584795\n";
        assert_eq!(parse_ucx(ucx), Some((1.5e-6, 1.71e-6)));
        let ib = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 65536 1000 98.1 97.5 0.18\n ----\n";
        assert_eq!(parse_ib(ib), Some(97.5e9 / 8.0));
        let iperf = "{\"end\":{\"sum_sent\":{\"bits_per_second\":9},\"sum_received\":{\n\"bits_per_second\":\t8e9,\"x\":1}}}";
        assert_eq!(parse_iperf(iperf), Some(1e9));
        assert!(parse_ucx("").is_none() && parse_ib("").is_none() && parse_iperf("{}").is_none());
    }

    #[test]
    fn hosts_of_addresses() {
        assert_eq!(host_of("unix:/x"), None);
        assert_eq!(host_of("127.0.0.1:4"), None);
        assert_eq!(host_of("[fd00::1]:4").as_deref(), Some("fd00::1"));
        assert_eq!(host_of("ib0.node7:4000").as_deref(), Some("ib0.node7"));
    }

    #[test]
    fn names() {
        for (text, tool) in [("ucx", Tool::Ucx), ("ib_write_bw", Tool::Ib), ("iperf3", Tool::Iperf)] {
            assert_eq!(Tool::parse(text), Ok(tool));
        }
        assert!(Tool::parse("x").unwrap_err().contains("ucx_perftest"));
    }
}
