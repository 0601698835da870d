//! The doors between C and Rust: no panic goes out, and no exception of the host comes in.
use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use super::error::{NRDMA_PANIC, nrdma_status, set_last_text};
use super::interface::nrdma_uuid;
use super::process::pin_module_of;
use crate::core::error::{Error, Kind, Result};

/// What a C function returns when it failed.
pub(crate) trait Fallback {
    /// The value that tells the caller.
    fn fallback(status: nrdma_status) -> Self;
}
impl<T> Fallback for *const T {
    fn fallback(_: nrdma_status) -> Self {
        std::ptr::null()
    }
}
impl<T> Fallback for *mut T {
    fn fallback(_: nrdma_status) -> Self {
        std::ptr::null_mut()
    }
}
/// Statuses, and what is_gpudirect and flush return.
impl Fallback for i32 {
    fn fallback(status: nrdma_status) -> Self {
        status
    }
}
macro_rules! zero_fallback {
    ($($t:ty)*) => { $(impl Fallback for $t {
        fn fallback(_: nrdma_status) -> Self { <$t>::default() }
    })* };
}
zero_fallback!(() u8 u32 u64 bool nrdma_uuid);

/// Runs `f`; a panic becomes the thread's last error and `R::fallback(NRDMA_PANIC)`.
#[inline]
pub(crate) fn guard<R: Fallback>(f: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| panicked(payload))
}

/// As [`guard`], for functions that fail in words: the error becomes the thread's last one.
#[inline]
pub(crate) fn guarded<R: Fallback>(f: impl FnOnce() -> Result<R>) -> R {
    guard(|| f().unwrap_or_else(|error| R::fallback(super::error::set_last(&error))))
}

#[cold]
fn panicked<R: Fallback>(payload: Box<dyn Any + Send>) -> R {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    set_last_text(&format!("a bug in nrdma: {text}; please report it"));
    // Dropping what somebody else threw could throw again.
    std::mem::forget(payload);
    R::fallback(NRDMA_PANIC)
}

/// Runs body(arg) and catches what it throws: 0, or 1 with the exception's text in `what`.
pub type nrdma_guard_fn = Option<
    unsafe extern "C" fn(
        body: Option<unsafe extern "C-unwind" fn(arg: *mut c_void)>,
        arg: *mut c_void,
        what: *mut c_char,
        capacity: u64,
    ) -> i32,
>;

type Guard = unsafe extern "C" fn(
    Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    *mut c_void,
    *mut c_char,
    u64,
) -> i32;

static GUARD: OnceLock<Guard> = OnceLock::new();

/// Gives nrdma a function, compiled in the host, that catches the host's exceptions; nrdma.hpp calls this.
/// The first one stays, and its module is kept loaded.
///
/// # Safety
/// `guard` is NULL or a function that behaves as its type says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_donate_guard(guard: nrdma_guard_fn) {
    self::guard(|| {
        if let Some(function) = guard
            && GUARD.set(function).is_ok()
        {
            pin_module_of(function as *const c_void);
        }
    });
}

/// The closure and its result, on the caller's stack.
struct Call<'a, R> {
    f: &'a mut dyn FnMut() -> R,
    out: Option<R>,
}

/// Owns nothing, so that an exception may pass.
unsafe extern "C-unwind" fn body<R>(arg: *mut c_void) {
    // SAFETY: `call_foreign` passes its own `Call`, which outlives the call.
    let call = unsafe { &mut *arg.cast::<Call<'_, R>>() };
    call.out = Some((call.f)());
}

/// Calls the host's code through the guard that it donated; an exception becomes an error with its text.
/// `f` must do nothing but the one foreign call (with arguments it borrows): it must not panic, and nothing
/// in it is dropped when an exception passes. A host without a guard must not throw.
pub(crate) fn call_foreign<R>(mut f: impl FnMut() -> R) -> Result<R> {
    let Some(guard) = GUARD.get() else { return Ok(f()) };
    let mut call = Call { f: &mut f, out: None };
    let mut what: [c_char; 512] = [0; 512];
    let arg = (&raw mut call).cast::<c_void>();
    // SAFETY: the guard runs the body once with our `Call`, and writes at most the text's room.
    let thrown = unsafe { guard(Some(body::<R>), arg, what.as_mut_ptr(), 512) };
    match call.out.take() {
        Some(out) if thrown == 0 => Ok(out),
        _ => Err(exception(&mut what)),
    }
}

fn exception(what: &mut [c_char; 512]) -> Error {
    if let Some(last) = what.last_mut() {
        *last = 0;
    }
    // SAFETY: ends in a NUL, see above.
    let text = unsafe { CStr::from_ptr(what.as_ptr()) }.to_string_lossy();
    let text = if text.is_empty() { "an exception without text".into() } else { text };
    Error::new(Kind::FragmentFailed, format!("the host's code threw: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::error::nrdma_last_error;

    #[test]
    fn a_panic_is_a_status_and_a_sentence() {
        assert_eq!(guard(|| -> i32 { panic!("number {}", 7) }), NRDMA_PANIC);
        // SAFETY: a C string, until the next failing call.
        let text = unsafe { CStr::from_ptr(nrdma_last_error()) }.to_str().unwrap();
        assert!(text.contains("number 7"), "{text}");
        assert!(guard(|| -> *mut u8 { panic!("again") }).is_null());
        assert_eq!(guard(|| -> u64 { panic!("again") }), 0);
    }

    #[test]
    fn an_error_is_a_status_and_a_sentence() {
        assert_eq!(guarded(|| -> Result<i32> { Err(Error::new(Kind::TimedOut, "5000 ms")) }), -32);
        assert_eq!(guarded(|| Ok(5)), 5);
    }

    /// Stands for the C++ guard: "throws" when the body asks for it.
    unsafe extern "C" fn pretend(
        body: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
        arg: *mut c_void,
        what: *mut c_char,
        capacity: u64,
    ) -> i32 {
        // SAFETY: called by `call_foreign` with its own body.
        unsafe { body.unwrap()(arg) };
        if !THROW.get() {
            return 0;
        }
        assert!(capacity >= 5);
        // SAFETY: there is room for 5 bytes.
        unsafe { what.copy_from_nonoverlapping(c"boom".as_ptr(), 5) };
        1
    }
    thread_local! { static THROW: std::cell::Cell<bool> = const { std::cell::Cell::new(false) }; }

    #[test]
    fn foreign_calls_go_through_the_guard_once_there_is_one() {
        assert_eq!(call_foreign(|| 3).unwrap(), 3);
        // SAFETY: NULL is allowed.
        unsafe { nrdma_donate_guard(None) };
        // SAFETY: behaves as its type says.
        unsafe { nrdma_donate_guard(Some(pretend)) };
        assert_eq!(call_foreign(|| 4).unwrap(), 4);
        THROW.set(true);
        let error = call_foreign(|| 5).unwrap_err();
        assert_eq!(error.kind, Kind::FragmentFailed);
        assert!(error.text.contains("boom"), "{error}");
    }
}
