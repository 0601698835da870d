//! How long a warm get and release takes; run by hand:
//! `cargo test --release --lib speed -- --ignored --nocapture`
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;

use super::fake::Rig;
use crate::abi::buffer::{nrdma_buffer, nrdma_buffer_vtbl_itanium, start_raw};
use crate::core::home::Home;
use crate::core::memory::Kind;

const ROUNDS: u32 = 20_000;
const BATCHES: usize = 60;

fn through_the_table(home: &Arc<Home>) {
    let buffer: *mut nrdma_buffer =
        black_box(start_raw(home.take(Kind::Private, black_box(1 << 20), -1).unwrap()));
    // SAFETY: a live buffer of ours.
    let table = unsafe { &*(*buffer).vtbl.cast::<nrdma_buffer_vtbl_itanium>() };
    // SAFETY: live.
    black_box(unsafe { (table.get_data)(buffer) });
    // SAFETY: gives up the only reference.
    unsafe { (table.release)(buffer) };
}

fn malloc() {
    // SAFETY: plain calls.
    let memory = black_box(unsafe { libc::malloc(black_box(1 << 20)) });
    // SAFETY: there is 1 MiB.
    unsafe { memory.cast::<u8>().write_volatile(1) };
    // SAFETY: just allocated.
    unsafe { libc::free(memory) };
}

/// This thread's own time, so that other processes do not count.
fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The fastest batch of each thread; of those, the slowest.
fn nanoseconds(threads: usize, work: impl Fn() + Sync) -> f64 {
    let start = Barrier::new(threads);
    let batch = || {
        let begin = thread_time();
        (0..ROUNDS).for_each(|_| work());
        (thread_time() - begin) / f64::from(ROUNDS)
    };
    let one = || {
        start.wait();
        (0..BATCHES).map(|_| batch()).fold(f64::MAX, f64::min)
    };
    thread::scope(|scope| {
        let hands: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        hands.into_iter().map(|hand| hand.join().unwrap()).fold(0.0, f64::max)
    })
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let rig = Rig::new(1 << 30);
    let home = rig.home();
    for threads in [1, 2] {
        let ours = nanoseconds(threads, || through_the_table(&home));
        let glibc = nanoseconds(threads, malloc);
        println!("{threads} threads: get + get_data + release {ours:.1} ns, malloc + free {glibc:.1} ns");
    }
}
