//! The process's environment: read when it can be trusted, and added to for the time that a library is loaded.
//!
//! `setenv` moves the environment's memory while other threads read it, and crashes them. Here a new array is
//! built beside the old one, which stays as it is, and one pointer is stored; arrays that were once published are
//! never freed.
use std::cell::Cell;
use std::ffi::{CStr, OsString, c_char};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

unsafe extern "C" {
    /// The C library's; one pointer, which others read and write as one word too.
    static environ: AtomicPtr<*mut c_char>;
}

/// One window at a time; and the address of the array of the last one, which will often do for the next.
static WINDOW: Mutex<usize> = Mutex::new(0);

/// Whether the process has more rights than its user (set-user-id, file capabilities): its environment is then
/// not to be trusted.
pub(crate) fn is_secure() -> bool {
    // SAFETY: a plain call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A setting from the environment; None when it is unset, empty, or not to be trusted.
pub(crate) fn setting(name: &str) -> Option<OsString> {
    if is_secure() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Runs `work` while the environment also has `additions` (each `NAME=value`), except names that it has anyway, and
/// lacks what begins with one of `hidden`.
///
/// What other threads change meanwhile stays; what they read is whole at any time. Within itself it does nothing more.
pub(crate) fn with<R>(additions: &[&'static CStr], hidden: &[&str], work: impl FnOnce() -> R) -> R {
    let Some(_inside) = Inside::enter() else { return work() };
    let mut last = WINDOW.lock().unwrap_or_else(PoisonError::into_inner);
    let window = Window::open(additions, hidden, *last);
    *last = window.new.expose_provenance();
    work()
}

thread_local! {
    /// Whether this thread has a window open.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// That this thread has a window open.
struct Inside;

impl Inside {
    /// None: it has one already, and would wait for itself.
    fn enter() -> Option<Self> {
        (!INSIDE.replace(true)).then_some(Self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// A published environment; dropping it publishes what was there before.
struct Window<'a> {
    /// What was there.
    old: *mut *mut c_char,
    /// What is there now: never freed, since other threads may go through it at any later time.
    new: *mut *mut c_char,
    /// What `new` was made of.
    made_of: Vec<*mut c_char>,
    /// What of the old entries is not in `new`.
    hidden: Vec<*mut c_char>,
    /// Those of the entries that are ours.
    additions: &'a [&'static CStr],
}

impl<'a> Window<'a> {
    fn open(additions: &'a [&'static CStr], hide: &[&str], last: usize) -> Self {
        let old = variable().load(Ordering::Acquire);
        let hides =
            |&entry: &*mut c_char| hide.iter().any(|prefix| text(entry).starts_with(prefix.as_bytes()));
        let (hidden, mut entries): (Vec<_>, Vec<_>) = self::entries(old).into_iter().partition(hides);
        let absent =
            |addition: &CStr| !entries.iter().any(|&entry| name(text(entry)) == name(addition.to_bytes()));
        let added: Vec<_> = additions.iter().filter(|addition| absent(addition)).collect();
        entries.extend(added.iter().map(|addition| addition.as_ptr().cast_mut()));
        let last = ptr::with_exposed_provenance_mut(last);
        let new = if self::entries(last) == entries { last } else { array(&entries) };
        variable().store(new, Ordering::Release);
        Self { old, new, made_of: entries, hidden, additions }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let now = variable().load(Ordering::Acquire);
        let mut current = entries(now);
        let untouched = now == self.new && current == self.made_of;
        let back = if untouched {
            self.old
        } else {
            // The host changed something: that stays, without our part.
            current.retain(|&entry| !self.additions.iter().any(|ours| ptr::eq(ours.as_ptr(), entry)));
            current.append(&mut self.hidden);
            array(&current)
        };
        // When it moved once more in between, our entries stay: they are constants and harm nobody.
        let _ = variable().compare_exchange(now, back, Ordering::AcqRel, Ordering::Acquire);
    }
}

fn variable() -> &'static AtomicPtr<*mut c_char> {
    // SAFETY: an aligned pointer that lives as long as the process.
    unsafe { &environ }
}

/// The entries of an array that ends with null.
fn entries(mut at: *mut *mut c_char) -> Vec<*mut c_char> {
    let mut found = Vec::new();
    if at.is_null() {
        return found;
    }
    loop {
        // SAFETY: not beyond the null at the end.
        let entry = unsafe { at.read_volatile() };
        if entry.is_null() {
            return found;
        }
        found.push(entry);
        // SAFETY: at most to the null at the end.
        at = unsafe { at.add(1) };
    }
}

/// An array of these entries that is never freed.
fn array(entries: &[*mut c_char]) -> *mut *mut c_char {
    /// Where checkers of leaks find them.
    static PUBLISHED: Mutex<Vec<AtomicPtr<*mut c_char>>> = Mutex::new(Vec::new());
    let with_end: Vec<_> = entries.iter().copied().chain([ptr::null_mut()]).collect();
    let array = with_end.leak().as_mut_ptr();
    PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner).push(AtomicPtr::new(array));
    array
}

fn text<'a>(entry: *mut c_char) -> &'a [u8] {
    // SAFETY: entries of the environment are C strings that stay where they are while they are in it.
    unsafe { CStr::from_ptr(entry) }.to_bytes()
}

fn name(entry: &[u8]) -> &[u8] {
    entry.split(|&byte| byte == b'=').next().unwrap_or_default()
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
