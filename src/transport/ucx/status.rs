//! What UCX's functions answer.
use std::ffi::{CStr, c_void};
use std::fmt;

use super::ffi::{self, ucs_status_ptr_t, ucs_status_t};
use super::functions::Functions;
use crate::core::error::{Error, Kind, Result};

/// What a call or a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status(pub(super) ucs_status_t);

impl Status {
    pub(super) fn is_ok(self) -> bool {
        self.0 == ffi::UCS_OK
    }

    pub(super) fn is_error(self) -> bool {
        self.0 < 0
    }

    /// UCX's own words for it.
    pub(super) fn words(self, ucx: &Functions) -> String {
        // SAFETY: any number is allowed.
        let text = unsafe { ucx.ucs_status_string(self.0) };
        if text.is_null() {
            return self.to_string();
        }
        // SAFETY: a C string that lives until this thread asks again.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Err when it is an error: "`what` failed: words (status)".
    pub(super) fn check(self, ucx: &Functions, what: &str) -> Result<()> {
        if !self.is_error() {
            return Ok(());
        }
        Err(Error::new(self.kind(), format!("{what} failed: {} (UCX status {})", self.words(ucx), self.0)))
    }

    /// What an error means for the caller of nrdma.
    pub(super) fn kind(self) -> Kind {
        match self.0 {
            ffi::UCS_ERR_NO_MEMORY | ffi::UCS_ERR_NO_RESOURCE => Kind::OutOfMemory,
            ffi::UCS_ERR_EXCEEDS_LIMIT => Kind::BufferTooSmall,
            ffi::UCS_ERR_UNREACHABLE | ffi::UCS_ERR_INVALID_ADDR | ffi::UCS_ERR_NO_DEVICE => {
                Kind::Unreachable
            }
            ffi::UCS_ERR_REJECTED => Kind::Refused,
            ffi::UCS_ERR_TIMED_OUT => Kind::TimedOut,
            ffi::UCS_ERR_BUSY => Kind::AddressInUse,
            ffi::UCS_ERR_UNSUPPORTED | ffi::UCS_ERR_NOT_IMPLEMENTED => Kind::NotSupported,
            ffi::UCS_ERR_CANCELED => Kind::Cancelled,
            ffi::UCS_ERR_CONNECTION_RESET | ffi::UCS_ERR_NOT_CONNECTED | ffi::UCS_ERR_ENDPOINT_TIMEOUT => {
                Kind::PeerLost
            }
            // Failures of a link or an endpoint that have no name.
            -89..=-40 => Kind::PeerLost,
            _ => Kind::DriverError,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UCX status {}", self.0)
    }
}

/// What a `*_nbx` call answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Posted {
    /// Finished; the callback is not called, nothing is to be freed.
    Done,
    /// Under way; the caller owns the request and frees it with `ucp_request_free` when it has completed.
    Request(*mut c_void),
    /// Refused; the callback is not called, nothing is to be freed.
    Failed(Status),
}

impl Posted {
    /// The macros `UCS_PTR_IS_ERR` and `UCS_PTR_STATUS` of UCX's header.
    pub(super) fn of(answer: ucs_status_ptr_t) -> Self {
        if answer.is_null() {
            return Self::Done;
        }
        let number = answer.addr().cast_signed();
        match ucs_status_t::try_from(number) {
            Ok(status) if (ffi::UCS_ERR_LAST..0).contains(&status) => Self::Failed(Status(status)),
            _ => Self::Request(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let answer = |number: isize| Posted::of(std::ptr::without_provenance_mut(number.cast_unsigned()));
        assert_eq!(answer(0), Posted::Done);
        assert_eq!(answer(-1), Posted::Failed(Status(-1)));
        assert_eq!(answer(-100), Posted::Failed(Status(-100)));
        for number in [1, 0x1000, -101, isize::MIN, isize::MAX] {
            assert!(matches!(answer(number), Posted::Request(_)), "{number}");
        }
    }

    #[test]
    fn statuses_mean_something_here() {
        assert_eq!(Status(ffi::UCS_ERR_CONNECTION_RESET).kind(), Kind::PeerLost);
        assert_eq!(Status(-45).kind(), Kind::PeerLost);
        assert_eq!(Status(ffi::UCS_ERR_IO_ERROR).kind(), Kind::DriverError);
        assert!(Status(ffi::UCS_OK).is_ok() && !Status(ffi::UCS_INPROGRESS).is_ok());
        assert!(!Status(ffi::UCS_INPROGRESS).is_error() && Status(-5).is_error());
    }
}
