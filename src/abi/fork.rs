//! Notices that this process is a fork: the threads, sockets and shared pages are its parent's.
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use super::process;
use crate::core::error::{Error, Kind, Result};
use crate::core::log;

static CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    CHILD.store(true, Ordering::Relaxed);
}

/// From now on forks are noticed; called before the first node is made.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        if !process::at_fork(in_child) {
            log::warn!("forks will not be noticed: there is no memory for a handler");
        }
    });
}

/// Whether this process is a fork of one that had nodes.
#[inline]
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// An error in a fork.
pub(crate) fn check() -> Result<()> {
    match is_child() {
        false => Ok(()),
        true => Err(Error::new(
            Kind::AfterFork,
            "this process is a fork of the one that made the node; make a node of its own before forking threads of work",
        )),
    }
}
