//! What the host does at signals, kept while a library is loaded that would change it.
use std::ffi::{c_int, c_void};
use std::{mem, ptr};

use super::library;

/// Runs `work`, then gives back each signal for which a handler was installed meanwhile that belongs to a library
/// whose file name starts with `prefix`. What other threads change meanwhile stays.
pub(crate) fn kept_from<R>(prefix: &str, work: impl FnOnce() -> R) -> R {
    let before: Vec<_> =
        (1..=libc::SIGRTMAX()).filter_map(|signal| Some((signal, action(signal)?))).collect();
    let result = work();
    for (signal, old) in &before {
        let Some(now) = action(*signal) else { continue };
        if now.sa_sigaction != old.sa_sigaction && is_of(now.sa_sigaction, prefix) {
            // SAFETY: an action that the system gave us for this signal.
            unsafe { libc::sigaction(*signal, old, ptr::null_mut()) };
        }
    }
    result
}

/// None for numbers that are no signals, or the C library's own.
fn action(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: all zeroes is a valid action.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: `action` is writable; nothing is changed.
    let known = unsafe { libc::sigaction(signal, ptr::null(), &mut action) } == 0;
    known.then_some(action)
}

fn is_of(handler: libc::sighandler_t, prefix: &str) -> bool {
    let file = library::file_of(ptr::without_provenance::<c_void>(handler));
    let name = file.as_deref().and_then(|file| file.file_name()?.to_str());
    name.is_some_and(|name| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn ours(_signal: c_int) {}

    fn set(signal: c_int, handler: libc::sighandler_t) {
        let mut wanted = action(signal).unwrap();
        wanted.sa_sigaction = handler;
        // SAFETY: a handler that does nothing, or the C library's abs(), which no signal is sent to.
        assert_eq!(unsafe { libc::sigaction(signal, &wanted, ptr::null_mut()) }, 0);
    }

    fn handler(signal: c_int) -> libc::sighandler_t {
        action(signal).unwrap().sa_sigaction
    }

    #[test]
    fn only_the_librarys_handlers_are_taken_back() {
        let (mine, theirs) = (libc::SIGRTMAX() - 3, libc::SIGRTMAX() - 4);
        let library = library::Library::loaded(c"libc.so.6").unwrap().symbol(c"abs").addr();
        let ours = ours as extern "C" fn(c_int) as *const () as usize;
        set(mine, libc::SIG_IGN);
        set(theirs, libc::SIG_IGN);
        kept_from("libc.", || {
            set(mine, ours);
            set(theirs, library);
            assert_eq!(handler(theirs), library);
        });
        assert_eq!(handler(mine), ours);
        assert_eq!(handler(theirs), libc::SIG_IGN);
        set(mine, libc::SIG_DFL);
        set(theirs, libc::SIG_DFL);
    }
}
