//! Locks that a panic elsewhere does not break.
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks; data behind a lock is consistent at every point where somebody could panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // ThreadSanitizer does not see into the standard library, where contended locks are taken.
    while cfg!(tsan) {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
