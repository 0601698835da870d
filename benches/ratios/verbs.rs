//! `ib_write_bw` (Debian: perftest), as two child processes over one RDMA device.
use std::fs;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::report::Skipped;

/// How often a run that shows nothing is tried again: `ib_write_bw` measures the processor's clock first, which an
/// emulated one does not always let it.
const TRIES: usize = 3;

/// The device that has an address, and where its table has it.
pub(crate) struct Device {
    name: String,
    gid: String,
    at: Ipv4Addr,
}

impl Device {
    pub(crate) fn at(at: Ipv4Addr) -> Result<Self, Skipped> {
        let [a, b, c, d] = at.octets();
        let wanted = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
        for device in fs::read_dir("/sys/class/infiniband")?.flatten() {
            let Ok(gids) = fs::read_dir(device.path().join("ports/1/gids")) else { continue };
            for entry in gids.flatten() {
                if fs::read_to_string(entry.path()).is_ok_and(|gid| gid.trim() == wanted) {
                    let text = |name: std::ffi::OsString| name.to_string_lossy().into_owned();
                    return Ok(Self { name: text(device.file_name()), gid: text(entry.file_name()), at });
                }
            }
        }
        Err(Skipped(format!("no RDMA device has the address {at}")))
    }

    /// Bytes per second of one-sided writes, with that many outstanding (None: its own choice, 128).
    pub(crate) fn writes(&self, bytes: usize, count: usize, depth: Option<u64>) -> Result<f64, Skipped> {
        let mut said = String::new();
        for _ in 0..TRIES {
            said = self.run(bytes, count, depth)?;
            if let Some(rate) = parse(&said).filter(|rate| *rate > 0.0) {
                return Ok(rate);
            }
        }
        Err(Skipped(format!("ib_write_bw printed no figures: {said}")))
    }

    fn run(&self, bytes: usize, count: usize, depth: Option<u64>) -> Result<String, Skipped> {
        let mut server = self.start(bytes, count, depth, None)?;
        // The server says nothing when it is ready.
        thread::sleep(Duration::from_millis(700));
        let output = self.start(bytes, count, depth, Some(self.at))?.wait_with_output();
        // Both fail only for one that has ended.
        let _ = server.kill();
        let _ = server.wait();
        Ok(String::from_utf8_lossy(&output?.stdout).into_owned())
    }

    fn start(
        &self,
        bytes: usize,
        count: usize,
        depth: Option<u64>,
        to: Option<Ipv4Addr>,
    ) -> Result<Child, Skipped> {
        let mut command = Command::new("ib_write_bw");
        command.args(["-F", "-d", &self.name, "-x", &self.gid, "-s", &bytes.to_string(), "-n"]);
        command.arg(count.to_string());
        if let Some(depth) = depth {
            // One completion for each write, or the last ones would be waited for in vain.
            command.args(["-t", &depth.to_string(), "-Q", "1"]);
        }
        command.args(to.map(|at| at.to_string()));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        child.map_err(|why| Skipped(format!("ib_write_bw does not start ({why}): install perftest")))
    }
}

/// The average of the line after the heading, which is in MiB/s whatever it says.
fn parse(text: &str) -> Option<f64> {
    let line = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes")).nth(1)?;
    Some(line.split_whitespace().nth(3)?.parse::<f64>().ok()? * f64::from(1 << 20))
}
