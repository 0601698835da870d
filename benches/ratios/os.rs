//! What the bench asks of the system directly.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting each thread's allocations.
pub(crate) struct Counting;

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as our caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as our caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// nice -20; false when that is not permitted.
pub(crate) fn raise_priority() -> bool {
    // SAFETY: takes numbers only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) == 0 }
}

/// Puts this thread, and those that it starts, on one processor.
pub(crate) fn pin(processor: usize) -> bool {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the set is a plain array of bits; numbers beyond it are ignored.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the set lives through the call and has that size.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
}

/// Lets this thread, and those that it starts, run anywhere.
pub(crate) fn unpin() {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    for processor in 0..libc::CPU_SETSIZE.unsigned_abs() as usize {
        // SAFETY: within the set.
        unsafe { libc::CPU_SET(processor, &mut set) };
    }
    // SAFETY: the set lives through the call and has that size; absent processors are left out by the kernel.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

/// Timers of this thread, and of those that it starts, fire when they are due.
pub(crate) fn exact_timers() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
}

/// This process ends with the thread that started it.
pub(crate) fn end_with_parent() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize) };
}

/// A command whose process ends with the thread that starts it: a peer that spins must not outlive the bench.
pub(crate) fn bound(mut command: Command) -> Command {
    // SAFETY: `prctl` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            end_with_parent();
            Ok(())
        })
    };
    command
}

/// malloc and free of that size.
pub(crate) fn malloc_free(bytes: usize) {
    // SAFETY: any size may be asked for.
    let memory = black_box(unsafe { libc::malloc(bytes) });
    // SAFETY: from malloc, or NULL.
    unsafe { libc::free(memory) };
}

/// CPU time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes of this process's memory that are resident.
pub(crate) fn resident() -> io::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).and_then(|word| word.parse::<usize>().ok()).unwrap_or(0);
    Ok(pages * 4096)
}

/// A counter in the kernel that a thread can wait for; inherited by children.
pub(crate) struct Event(i32);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes numbers only.
        match unsafe { libc::eventfd(0, 0) } {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(Self(fd)),
        }
    }
    /// One that was inherited.
    pub(crate) fn inherited(fd: i32) -> Self {
        Self(fd)
    }
    pub(crate) fn number(&self) -> i32 {
        self.0
    }
    pub(crate) fn signal(&self) -> bool {
        let one = 1_u64;
        // SAFETY: eight bytes that live through the call.
        unsafe { libc::write(self.0, (&raw const one).cast::<c_void>(), 8) == 8 }
    }
    pub(crate) fn wait(&self) -> bool {
        let mut count = 0_u64;
        // SAFETY: room for eight bytes that lives through the call.
        unsafe { libc::read(self.0, (&raw mut count).cast::<c_void>(), 8) == 8 }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody uses it any more.
        unsafe { libc::close(self.0) };
    }
}
