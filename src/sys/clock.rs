//! A clock that costs a few nanoseconds to read.

/// Nanoseconds of the monotonic clock as of the last timer tick (1 to 10 ms ago).
///
/// `Instant::now()` costs more than a whole ring operation on virtual machines.
pub(crate) fn coarse_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    #[test]
    fn coarse_clock_advances() {
        let before = super::coarse_ns();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let passed = super::coarse_ns() - before;
        assert!(passed >= 15_000_000, "{passed}");
    }
}
