//! Names to addresses, in bounded time: the system's own look-up has no time-out that a caller could set.
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use crate::core::error::{Error, Kind, Result};

/// Look-ups that may be under way in the process, with those that nobody waits for any more.
const MOST: usize = 32;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The addresses of a host: one that is an address already, or what the system finds before `deadline`. A look-up
/// that takes longer goes on in its thread, which ends when the system answers it.
pub(super) fn lookup(host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let name = host.to_owned();
    in_time(host, deadline, move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect))
}

/// Counted as long as it lives.
struct Slot;

impl Slot {
    fn take() -> Option<Self> {
        let slot = Slot;
        (UNDER_WAY.fetch_add(1, Ordering::AcqRel) < MOST).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
    }
}

fn in_time(
    host: &str,
    deadline: Instant,
    resolve: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> Result<Vec<SocketAddr>> {
    let Some(slot) = Slot::take() else {
        let text = format!("{host}: {MOST} earlier names are still being looked up; check the name service");
        return Err(Error::new(Kind::TimedOut, text));
    };
    let (answer, answered) = channel();
    let looking = move || {
        let _slot = slot;
        // Whoever asked may have given up.
        let _ = answer.send(resolve());
    };
    thread::Builder::new()
        .name("nrdma-lookup".into())
        .spawn(looking)
        .map_err(|e| Error::new(Kind::OutOfMemory, format!("{host}: no thread to look the name up: {e}")))?;
    match answered.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(Ok(found)) if found.is_empty() => {
            Err(Error::new(Kind::Unreachable, format!("{host}: the name has no address")))
        }
        Ok(Ok(found)) => Ok(found),
        Ok(Err(e)) => {
            Err(Error::new(Kind::Unreachable, format!("{host}: the name cannot be looked up: {e}")))
        }
        Err(RecvTimeoutError::Timeout) => {
            let text =
                format!("{host}: the name service did not answer in time; check it, or use an address");
            Err(Error::new(Kind::TimedOut, text))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::new(Kind::Unreachable, format!("{host}: the look-up came to nothing")))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at() -> SocketAddr {
        SocketAddr::new([127, 0, 0, 1].into(), 4000)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn addresses_need_no_look_up_and_names_do() {
        let past = Instant::now();
        assert_eq!(lookup("127.0.0.1", 4000, past).unwrap(), [at()]);
        assert_eq!(lookup("::1", 1, past).unwrap().len(), 1);
        assert!(lookup("localhost", 4000, soon()).unwrap().iter().all(|found| found.ip().is_loopback()));
        let missing = lookup("nowhere.invalid", 1, soon()).unwrap_err();
        assert!(missing.text.contains("nowhere.invalid"), "{missing}");
    }

    /// One test: they share the count.
    #[test]
    fn look_ups_end_with_the_deadline_and_are_bounded() {
        let (answer, wait) = channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let silent = || {
            let wait = std::sync::Arc::clone(&wait);
            move || {
                let _ = wait.lock().unwrap().recv();
                Ok(vec![at()])
            }
        };
        let before = Instant::now();
        let mut silences = 0;
        let full = loop {
            let error = in_time("slow", Instant::now() + Duration::from_millis(5), silent()).unwrap_err();
            assert_eq!(error.kind, Kind::TimedOut);
            if error.text.contains("still being looked up") {
                break error;
            }
            assert!(error.text.contains("did not answer in time"), "{error}");
            silences += 1;
            assert!(silences <= MOST);
        };
        assert!(before.elapsed() < Duration::from_secs(20) && full.text.contains("32"), "{full}");
        // They answer after all, and there is room again.
        drop(answer);
        let deadline = soon();
        while in_time("quick", soon(), || Ok(vec![at()])).is_err() {
            assert!(Instant::now() < deadline);
        }
        let failed = in_time("x", soon(), || Err(io::Error::other("no"))).unwrap_err();
        assert_eq!(failed.kind, Kind::Unreachable);
        assert!(in_time("x", soon(), || Ok(vec![])).unwrap_err().text.contains("no address"));
    }
}
