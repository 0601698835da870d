//! What UCX says in its log while it makes something for us: the reasons of its failures are nowhere else.
//!
//! Nothing of the host's runs inside UCX: messages of the calling thread are kept until UCX has returned. All others
//! go where UCX would send them without us.
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::library::Version;
use crate::sys::environment;
use crate::sys::library::Library;

/// The last version whose log functions are known to be as declared here: the header that has them is UCX's own and
/// promises nothing.
const KNOWN: Version = Version::new(1, 22);
/// A message is cut after so many bytes, and so is all that is kept.
const LONGEST: usize = 400;

/// `ucs_log_func_t`; the last argument is a `va_list`, which is passed as a pointer on x86-64 and aarch64.
type Handler = unsafe extern "C" fn(
    *const c_char,
    c_uint,
    *const c_char,
    c_uint,
    *const c_void,
    *const c_char,
    *mut c_void,
) -> c_uint;

/// `UCS_LOG_FUNC_RC_STOP`: no other handler sees it.
pub(super) const STOP: c_uint = 0;
/// `UCS_LOG_FUNC_RC_CONTINUE`
pub(super) const CONTINUE: c_uint = 1;
/// `UCS_LOG_LEVEL_ERROR`, the most important that does not end the process.
pub(super) const ERROR: c_uint = 1;
/// `UCS_LOG_LEVEL_WARN`
pub(super) const WARN: c_uint = 2;

thread_local! {
    /// None: nobody listens.
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

unsafe extern "C" {
    fn vsnprintf(to: *mut c_char, size: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// Makes [`hear`] work, for a UCX that is ours alone. Not where the user wants messages somewhere.
pub(super) fn listen(library: Library, version: Version) {
    let push = library.symbol(c"ucs_log_push_handler");
    let wanted =
        ["UCX_LOG_LEVEL", "UCX_LOG_FILE"].into_iter().any(|name| environment::setting(name).is_some());
    let known = (version.major, version.minor) <= (KNOWN.major, KNOWN.minor);
    if push.is_null() || wanted || !known || !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return;
    }
    // SAFETY: this function, in a version in which it has this type.
    let push: unsafe extern "C" fn(Handler) = unsafe { std::mem::transmute(push) };
    // SAFETY: a handler of the type that it calls; neither library is ever unloaded.
    unsafe { push(keep) };
}

/// Runs `work`, and returns what UCX said of errors and warnings in this thread meanwhile.
pub(super) fn hear<R>(work: impl FnOnce() -> R) -> (R, String) {
    HEARD.with(|heard| heard.replace(Some(String::new())));
    let result = work();
    (result, HEARD.with(|heard| heard.take()).unwrap_or_default())
}

/// The handler.
///
/// # Safety
/// `format` and `arguments` go together.
unsafe extern "C" fn keep(
    _file: *const c_char,
    _line: c_uint,
    _function: *const c_char,
    level: c_uint,
    _component: *const c_void,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_uint {
    if !(ERROR..=WARN).contains(&level) {
        return CONTINUE;
    }
    let kept = HEARD.try_with(|heard| {
        let Ok(mut heard) = heard.try_borrow_mut() else { return false };
        let Some(text) = heard.as_mut() else { return false };
        // SAFETY: by the contract above.
        append(text, &unsafe { written(format, arguments) });
        true
    });
    if kept.unwrap_or(false) { STOP } else { CONTINUE }
}

/// # Safety
/// `format` and `arguments` go together.
unsafe fn written(format: *const c_char, arguments: *mut c_void) -> String {
    let mut bytes = [0_u8; LONGEST];
    // SAFETY: room for as many bytes; the rest by the contract above.
    unsafe { vsnprintf(bytes.as_mut_ptr().cast(), bytes.len(), format, arguments) };
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

fn append(text: &mut String, more: &str) {
    // One line.
    let more = more.split_whitespace().collect::<Vec<_>>().join(" ");
    if more.is_empty() || text.contains(&more) || text.len() + more.len() > 2 * LONGEST {
        return;
    }
    if !text.is_empty() {
        text.push_str("; ");
    }
    text.push_str(&more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_one_line() {
        let mut text = String::new();
        for more in ["one\ntwo", "", "three ", "three", &"x".repeat(2 * LONGEST)] {
            append(&mut text, more);
        }
        assert_eq!(text, "one two; three");
    }

    #[test]
    fn only_who_listens_hears() {
        // As long as a va_list, and none is read.
        let mut none = [0_u64; 8];
        let none = none.as_mut_ptr().cast();
        let (file, format) = (c"file".as_ptr(), c"words".as_ptr());
        // SAFETY: a format without arguments.
        let say = |level| unsafe { keep(file, 1, file, level, std::ptr::null(), format, none) };
        assert_eq!(say(ERROR), CONTINUE);
        let (answers, heard) = hear(|| [0, ERROR, WARN, 3].map(say));
        assert_eq!(answers, [CONTINUE, STOP, STOP, CONTINUE]);
        assert_eq!(heard, "words");
        assert_eq!(say(ERROR), CONTINUE);
    }
}
