//! What a call of the library said, and texts across the C interface.
use std::ffi::{CStr, CString, c_char};
use std::fmt;

use crate::sys;

/// What a call of the library said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: i32,
    pub(crate) text: String,
}

impl Failure {
    /// A failure that the tool itself found.
    pub(crate) fn own(text: &str) -> Self {
        Self { status: sys::NRDMA_FRAGMENT_FAILED, text: text.to_owned() }
    }
    /// This thread's last error.
    pub(super) fn last(status: i32) -> Self {
        let text = text_of(sys::nrdma_last_error());
        let text = if text.is_empty() { text_of(sys::nrdma_status_string(status)) } else { text };
        Self { status, text }
    }
    /// Whether time ran out.
    pub(crate) fn is_timeout(&self) -> bool {
        self.status == sys::NRDMA_TIMED_OUT
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {})", self.text, self.status)
    }
}

pub(super) fn check(status: i32) -> Result<(), Failure> {
    if status == sys::NRDMA_OK { Ok(()) } else { Err(Failure::last(status)) }
}

/// A C string's text; "" for NULL.
pub(super) fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library's strings end in NUL and outlive this call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// The text in a fixed array that ends in NUL.
pub(super) fn text_in(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|c| c.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn c_text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure { status: -1, text: format!("{text:?} holds a NUL byte") })
}
