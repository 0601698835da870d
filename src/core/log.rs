//! Log records, for whoever set a sink.
use std::fmt::Arguments;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much a record matters; larger is less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
// The levels of the C interface; nothing is as small as Trace yet.
#[allow(dead_code)]
pub(crate) enum Level {
    Error = 1,
    Warn = 2,
    Info = 3,
    Debug = 4,
    Trace = 5,
}

/// Takes a record: level, the module it came from, its text.
pub(crate) type Sink = fn(Level, &str, Arguments<'_>);

/// Until a sink is set, everything passes: the sink may still have to read its settings.
static MOST: AtomicU8 = AtomicU8::new(u8::MAX);
static SINK: OnceLock<Sink> = OnceLock::new();

/// Sets where records go, once per process.
pub(crate) fn set_sink(sink: Sink) {
    let _ = SINK.set(sink);
}

/// Sets the least important level that passes; 0 is off.
pub(crate) fn set_level(most: u8) {
    MOST.store(most, Ordering::Relaxed);
}

/// Whether a record of this level would go anywhere.
pub(crate) fn enabled(level: Level) -> bool {
    level as u8 <= MOST.load(Ordering::Relaxed) && SINK.get().is_some()
}

/// Sends a record; use the macros.
pub(crate) fn write(level: Level, target: &str, text: Arguments<'_>) {
    if let Some(sink) = SINK.get() {
        sink(level, target, text);
    }
}

macro_rules! log_at {
    ($level:ident, $($text:tt)*) => {
        if $crate::core::log::enabled($crate::core::log::Level::$level) {
            $crate::core::log::write($crate::core::log::Level::$level, module_path!(), format_args!($($text)*));
        }
    };
}
macro_rules! log_error { ($($text:tt)*) => { $crate::core::log::log_at!(Error, $($text)*) }; }
macro_rules! log_warn { ($($text:tt)*) => { $crate::core::log::log_at!(Warn, $($text)*) }; }
macro_rules! log_info { ($($text:tt)*) => { $crate::core::log::log_at!(Info, $($text)*) }; }
macro_rules! log_debug { ($($text:tt)*) => { $crate::core::log::log_at!(Debug, $($text)*) }; }
pub(crate) use {log_at, log_debug as debug, log_error as error, log_info as info, log_warn as warn};
