//! ucx_perftest (Debian: ucx-utils), as two child processes on the rig's processors.
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::os;
use crate::report::Skipped;
use crate::rig::{OUR_CPU, THEIR_CPU};

/// The median time of one operation over shared memory, in seconds.
pub(crate) fn typical(test: &str, bytes: usize, iterations: usize) -> Result<f64, Skipped> {
    Ok(run("posix", test, bytes, iterations, &[])?.typical)
}

/// What the last line says, in seconds.
pub(crate) struct Figures {
    /// The median time of one operation.
    pub(crate) typical: f64,
    /// The mean time of one operation, over the whole run.
    pub(crate) overall: f64,
}

/// Runs a test over the transports that `tls` names.
pub(crate) fn run(
    tls: &str,
    test: &str,
    bytes: usize,
    iterations: usize,
    more: &[&str],
) -> Result<Figures, Skipped> {
    let port = free_port()?.to_string();
    let server = Server(start(tls, &["-p", &port], THEIR_CPU, Stdio::null())?);
    // The server says nothing when it is ready.
    thread::sleep(Duration::from_millis(300));
    let warm_up = (iterations / 10).max(3).to_string();
    let (bytes, iterations) = (bytes.to_string(), iterations.to_string());
    let mut arguments =
        vec!["-p", &port, "127.0.0.1", "-t", test, "-s", &bytes, "-n", &iterations, "-w", &warm_up, "-f"];
    arguments.extend(more);
    let output = start(tls, &arguments, OUR_CPU, Stdio::piped())?.wait_with_output()?;
    drop(server);
    parse(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| Skipped(format!("ucx_perftest {test} printed no figures: {}", output.status)))
}

/// Kills the server, should it not have ended with its client.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for one that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(tls: &str, arguments: &[&str], cpu: usize, output: Stdio) -> Result<Child, Skipped> {
    // A child starts on the processors of the thread that starts it.
    if !os::pin(cpu) {
        return Err(Skipped(format!("there is no processor {cpu} to pin to")));
    }
    let child = os::bound(Command::new("ucx_perftest"))
        .args(arguments)
        .env("UCX_TLS", tls)
        .env("UCX_NET_DEVICES", "all")
        .env("UCX_WARN_UNUSED_ENV_VARS", "n")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null())
        .spawn();
    os::unpin();
    child.map_err(|why| Skipped(format!("ucx_perftest does not start ({why}): install ucx-utils")))
}

pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The last line that begins with a number: iterations, then microseconds: 50th percentile, average, overall.
fn parse(text: &str) -> Option<Figures> {
    let figures = |line: &str| -> Option<Figures> {
        let mut words = line.trim_start_matches("Final:").split_whitespace();
        words.next()?.parse::<u64>().ok()?;
        let microseconds: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        Some(Figures { typical: microseconds.first()? / 1e6, overall: microseconds.get(2)? / 1e6 })
    };
    text.lines().filter_map(figures).next_back()
}
