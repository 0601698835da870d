//! Descriptors that a library opens for us, and forgets to keep from the programs that the host starts.
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};

/// One at a time, so that nobody takes another's for his own.
static ONE: Mutex<()> = Mutex::new(());

fn open() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// What a descriptor stands for, as the system names it.
fn target(fd: i32) -> String {
    fs::read_link(format!("/proc/self/fd/{fd}"))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Runs `work`, and keeps the descriptors that it opened from programs that are started later. Files and
/// terminals are left alone: those another thread of the host opened meanwhile.
pub(crate) fn kept_from_children<R>(work: impl FnOnce() -> R) -> R {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = open();
    let result = work();
    for fd in open().difference(&before) {
        let what = target(*fd);
        let ours = ["socket:", "anon_inode:", "pipe:", "/dev/infiniband/"];
        if ours.iter().any(|kind| what.starts_with(kind)) {
            // SAFETY: no pointers; the descriptor may be gone already.
            unsafe { libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use super::*;

    #[test]
    fn what_was_opened_is_closed_on_exec() {
        let flags = |fd: &OwnedFd| {
            // SAFETY: no pointers.
            unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }
        };
        let make = || {
            // SAFETY: no pointers.
            let raw = unsafe { libc::eventfd(0, 0) };
            // SAFETY: just made.
            unsafe { OwnedFd::from_raw_fd(raw) }
        };
        let before = make();
        let (inside, file) = kept_from_children(|| (make(), fs::File::open("/dev/null").unwrap()));
        assert_eq!(flags(&before), 0);
        assert_eq!(flags(&inside), libc::FD_CLOEXEC);
        drop(file);
    }
}
