//! A descriptor that becomes readable again and again.
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::core::transport::Source;

/// Becomes readable at an interval; stays so until [`Timer::clear`].
pub(crate) struct Timer(OwnedFd);

impl Timer {
    pub(crate) fn every(interval: Duration) -> io::Result<Self> {
        // SAFETY: no pointers.
        let raw =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just made and nobody else owns it.
        let timer = Self(unsafe { OwnedFd::from_raw_fd(raw) });
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(interval.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: interval.subsec_nanos().into(),
        };
        let what = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: `what` is readable; null is allowed for what was set before.
        if unsafe { libc::timerfd_settime(raw, 0, &what, std::ptr::null_mut()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(timer)
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn source(&self) -> Source {
        Source(self.raw())
    }

    /// Makes it unreadable until the interval is over again.
    pub(crate) fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: eight writable bytes. Failing means that there was nothing to clear.
        unsafe { libc::read(self.raw(), count.as_mut_ptr().cast(), count.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::wait::readable;

    #[test]
    fn it_is_readable_again_and_again() {
        let timer = Timer::every(Duration::from_millis(5)).unwrap();
        for _ in 0..3 {
            assert!(readable(timer.raw(), Duration::from_secs(20)));
            timer.clear();
        }
    }
}
