//! Sends log records to the host, or to stderr when `NRDMA_LOG` asks for it.
use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::fmt::Arguments;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, Once, OnceLock, PoisonError};

use super::error::{NRDMA_OK, nrdma_status};
use super::guard::guarded;
use super::{config, fork};
use crate::core::error::{Error, Result};
use crate::core::log::{self, Level};
use crate::core::sync::lock;

/// No records.
pub const NRDMA_LOG_OFF: i32 = 0;
/// What failed.
pub const NRDMA_LOG_ERROR: i32 = 1;
/// What is likely wrong.
pub const NRDMA_LOG_WARN: i32 = 2;
/// What happens, once in a while.
pub const NRDMA_LOG_INFO: i32 = 3;
/// Why something happened as it did.
pub const NRDMA_LOG_DEBUG: i32 = 4;
/// Everything.
pub const NRDMA_LOG_TRACE: i32 = 5;

/// Receives one record: its level NRDMA_LOG_*, where it comes from, and its text. Called on any thread,
/// several at once.
pub type nrdma_log_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, level: i32, target: *const c_char, message: *const c_char),
>;

type Function = unsafe extern "C" fn(*mut c_void, i32, *const c_char, *const c_char);

/// The host's function, and how many threads are in it.
struct HostSink {
    function: Function,
    user: *mut c_void,
    most: u8,
    running: Mutex<usize>,
    left: Condvar,
}
// SAFETY: the caller of nrdma_set_log promises that `user` may be used on any thread.
unsafe impl Send for HostSink {}
// SAFETY: as above.
unsafe impl Sync for HostSink {}

static CURRENT: Mutex<Option<Arc<HostSink>>> = Mutex::new(None);
/// The level that `NRDMA_LOG` asks for.
static STDERR: OnceLock<u8> = OnceLock::new();

thread_local! {
    /// Whether this thread is inside the host's function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn stderr_level() -> u8 {
    *STDERR.get_or_init(|| {
        let level = config::env("NRDMA_LOG").map(|value| value.to_string_lossy().to_ascii_lowercase());
        match level.as_deref() {
            Some("error") => 1,
            Some("warn") => 2,
            Some("info") => 3,
            Some("debug") => 4,
            Some("trace") => 5,
            _ => 0,
        }
    })
}

/// Connects the core's records to this file; called at every way in that may log.
pub(crate) fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        log::set_level(lock(&CURRENT).as_ref().map_or_else(stderr_level, |sink| sink.most));
        log::set_sink(write);
    });
}

fn write(level: Level, target: &str, text: Arguments<'_>) {
    // A record made while the host handles one would call it inside itself; in a fork, the locks may be
    // held by threads that are not here.
    if INSIDE.try_with(Cell::get).unwrap_or(true) || fork::is_child() {
        return;
    }
    let sink = lock(&CURRENT).as_ref().map(Arc::clone);
    match sink {
        Some(sink) => to_host(&sink, level, target, text),
        None if level as u8 <= stderr_level() => to_stderr(level, target, text),
        None => {}
    }
}

fn to_stderr(level: Level, target: &str, text: Arguments<'_>) {
    let name = match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    // One write, so that lines of threads and processes do not mix.
    let line = format!("nrdma {name}: {text} ({target})\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn to_host(sink: &Arc<HostSink>, level: Level, target: &str, text: Arguments<'_>) {
    if level as u8 > sink.most || !enter(sink) {
        return;
    }
    let c_string = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let (target, text) = (c_string(target.to_owned()), c_string(text.to_string()));
    INSIDE.set(true);
    // SAFETY: valid by nrdma_set_log's contract: it has not returned to who replaced this sink.
    unsafe { (sink.function)(sink.user, i32::from(level as u8), target.as_ptr(), text.as_ptr()) };
    INSIDE.set(false);
    *lock(&sink.running) -= 1;
    sink.left.notify_all();
}

/// Counts this thread into the sink, unless it was replaced meanwhile.
fn enter(sink: &Arc<HostSink>) -> bool {
    let current = lock(&CURRENT);
    let same = current.as_ref().is_some_and(|now| Arc::ptr_eq(now, sink));
    if same {
        *lock(&sink.running) += 1;
    }
    same
}

/// Waits until no thread is in the sink, unless this one is itself in one.
fn wait_until_left(sink: &HostSink) {
    if INSIDE.get() {
        return;
    }
    let mut running = lock(&sink.running);
    while *running > 0 {
        running = sink.left.wait(running).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Sets the function that receives log records up to max_level; NULL sets none. After the return the old
/// one no longer runs, unless this is called from it. previous and previous_user, which may be NULL, get the
/// old one. Without a function, the environment's NRDMA_LOG=error|warn|info|debug|trace sends records to
/// stderr.
///
/// # Safety
/// `function` and `user` stay valid until replaced and may be used on any thread; `previous` and
/// `previous_user` are NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_set_log(
    function: nrdma_log_fn,
    user: *mut c_void,
    max_level: i32,
    previous: *mut nrdma_log_fn,
    previous_user: *mut *mut c_void,
) -> nrdma_status {
    guarded(|| {
        let old = replace(function, user, max_level)?;
        // SAFETY: by the contract above.
        if let Some(previous) = unsafe { previous.as_mut() } {
            *previous = old.as_ref().map(|sink| sink.function);
        }
        // SAFETY: by the contract above.
        if let Some(previous_user) = unsafe { previous_user.as_mut() } {
            *previous_user = old.as_ref().map_or(std::ptr::null_mut(), |sink| sink.user);
        }
        Ok(NRDMA_OK)
    })
}

fn replace(function: nrdma_log_fn, user: *mut c_void, max_level: i32) -> Result<Option<Arc<HostSink>>> {
    let most = u8::try_from(max_level).ok().filter(|most| *most <= 5).ok_or_else(|| {
        Error::invalid(format!(
            "log level {max_level} is not between NRDMA_LOG_OFF (0) and NRDMA_LOG_TRACE (5)"
        ))
    })?;
    start();
    let new = function.map(|function| {
        Arc::new(HostSink { function, user, most, running: Mutex::new(0), left: Condvar::new() })
    });
    let old = {
        let mut current = lock(&CURRENT);
        log::set_level(if new.is_some() { most } else { stderr_level() });
        std::mem::replace(&mut *current, new)
    };
    if let Some(old) = &old {
        wait_until_left(old);
    }
    Ok(old)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// The sink is the process's: one test at a time.
    static ONE: Mutex<()> = Mutex::new(());

    unsafe extern "C" fn collect(
        user: *mut c_void,
        level: i32,
        target: *const c_char,
        message: *const c_char,
    ) {
        // SAFETY: the tests pass a Mutex that outlives the sink.
        let records = unsafe { &*user.cast::<Mutex<Vec<(i32, String)>>>() };
        // SAFETY: C strings by the type's contract.
        let target = unsafe { CStr::from_ptr(target) };
        // SAFETY: as above.
        let message = unsafe { CStr::from_ptr(message) };
        if target.to_str().unwrap().contains("abi::log::tests") {
            records.lock().unwrap().push((level, message.to_str().unwrap().to_owned()));
        }
    }

    fn set(
        function: nrdma_log_fn,
        user: *const c_void,
        level: i32,
    ) -> (nrdma_status, nrdma_log_fn, *mut c_void) {
        let (mut previous, mut previous_user) = (None, ptr::null_mut());
        // SAFETY: the tests' users outlive their sinks.
        let status = unsafe {
            nrdma_set_log(function, user.cast_mut(), level, &raw mut previous, &raw mut previous_user)
        };
        (status, previous, previous_user)
    }

    #[test]
    fn records_reach_the_host_up_to_its_level() {
        let _one = lock(&ONE);
        let records = Mutex::new(Vec::<(i32, String)>::new());
        let user = ptr::from_ref(&records).cast::<c_void>();
        assert_eq!(set(Some(collect), user, NRDMA_LOG_WARN).0, 0);
        log::error!("one {}", 1);
        log::warn!("two\0{}", 2);
        log::info!("three");
        let (status, previous, previous_user) = set(None, ptr::null(), NRDMA_LOG_OFF);
        assert_eq!(status, 0);
        assert_eq!(previous.map(|f| f as *const ()), Some(collect as *const ()));
        assert_eq!(previous_user.cast_const(), user);
        log::error!("four");
        let want = [(1, "one 1".to_owned()), (2, "two 2".to_owned())];
        assert_eq!(*records.lock().unwrap(), want);
    }

    #[test]
    fn unknown_levels_are_refused() {
        assert_eq!(set(Some(collect), ptr::null(), 6).0, -1);
        assert_eq!(set(Some(collect), ptr::null(), -1).0, -1);
    }

    static IN: AtomicBool = AtomicBool::new(false);
    static DONE: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn slow(_: *mut c_void, _: i32, _: *const c_char, _: *const c_char) {
        IN.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        DONE.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn a_replaced_sink_no_longer_runs() {
        let _one = lock(&ONE);
        set(Some(slow), ptr::null(), NRDMA_LOG_ERROR);
        let logger = std::thread::spawn(|| log::error!("slow"));
        while !IN.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        set(None, ptr::null(), 0);
        assert_eq!(DONE.load(Ordering::SeqCst), 1, "set_log returned while the sink ran");
        logger.join().unwrap();
    }

    static CALLS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn from_inside(_: *mut c_void, _: i32, _: *const c_char, _: *const c_char) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        log::error!("a record from inside is not delivered");
        assert_eq!(set(None, ptr::null(), 0).0, 0);
    }

    #[test]
    fn a_sink_may_replace_itself() {
        let _one = lock(&ONE);
        set(Some(from_inside), ptr::null(), NRDMA_LOG_ERROR);
        log::error!("x");
        log::error!("y");
        assert_eq!(CALLS.load(Ordering::SeqCst), 1);
    }
}
