//! ucx_perftest (Debian: ucx-utils) over shared memory, as two child processes on the rig's processors.
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::os;
use crate::report::Skipped;
use crate::rig::{OUR_CPU, THEIR_CPU};

/// The median time of one operation, in seconds.
pub(crate) fn typical(test: &str, bytes: usize, iterations: usize) -> Result<f64, Skipped> {
    let port = free_port()?.to_string();
    let server = Server(start(&["-p", &port], THEIR_CPU, Stdio::null())?);
    // The server says nothing when it is ready.
    thread::sleep(Duration::from_millis(300));
    let warm_up = (iterations / 10).max(3).to_string();
    let (bytes, iterations) = (bytes.to_string(), iterations.to_string());
    let arguments =
        ["-p", &port, "127.0.0.1", "-t", test, "-s", &bytes, "-n", &iterations, "-w", &warm_up, "-f"];
    let output = start(&arguments, OUR_CPU, Stdio::piped())?.wait_with_output()?;
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

fn start(arguments: &[&str], cpu: usize, output: Stdio) -> Result<Child, Skipped> {
    // A child starts on the processors of the thread that starts it.
    if !os::pin(cpu) {
        return Err(Skipped(format!("there is no processor {cpu} to pin to")));
    }
    let child = Command::new("ucx_perftest")
        .args(arguments)
        .env("UCX_TLS", "posix")
        .env("UCX_WARN_UNUSED_ENV_VARS", "n")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null())
        .spawn();
    os::unpin();
    child.map_err(|why| Skipped(format!("ucx_perftest does not start ({why}): install ucx-utils")))
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The second number of the last line that begins with one: the 50th percentile in microseconds.
fn parse(text: &str) -> Option<f64> {
    let figures = |line: &str| -> Option<f64> {
        let mut words = line.trim_start_matches("Final:").split_whitespace();
        words.next()?.parse::<u64>().ok()?;
        words.next()?.parse().ok()
    };
    text.lines().filter_map(figures).next_back().map(|microseconds| microseconds / 1e6)
}
