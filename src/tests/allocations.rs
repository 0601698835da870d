//! A warm get and release allocates nothing: shown by an allocator that counts for each thread.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::fake::Rig;
use crate::abi::buffer::{nrdma_buffer_get_data, nrdma_buffer_release, start_raw};
use crate::abi::face::Face;
use crate::core::home::Home;
use crate::core::memory::Kind;

struct Counting;
thread_local! { static CALLS: Cell<u64> = const { Cell::new(0) }; }

fn called() {
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        called();
        // SAFETY: the same contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        called();
        // SAFETY: the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        called();
        // SAFETY: the same contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn calls(work: impl Fn()) -> u64 {
    work();
    let before = CALLS.get();
    (0..1000).for_each(|_| work());
    CALLS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(calls(|| drop(Box::new([0_u8; 100]))), 2000);
}

#[test]
fn a_warm_get_and_release_allocates_nothing() {
    let rig = Rig::new(1 << 30);
    let home = rig.home();
    for size in [1, 4096, 65536, 1 << 20, 5 << 20] {
        let through_c = || {
            let buffer = start_raw(home.take(Kind::Private, size, -1).unwrap(), Face::Itanium);
            // SAFETY: live until the release.
            assert!(!unsafe { nrdma_buffer_get_data(buffer) }.is_null());
            // SAFETY: gives up the only reference.
            assert_eq!(unsafe { nrdma_buffer_release(buffer) }, 0);
        };
        assert_eq!(calls(through_c), 0, "{size}");
        assert_eq!(calls(|| drop(home.get(Kind::Private, size, -1).unwrap())), 0, "{size}");
    }
}

#[test]
fn a_warm_view_allocates_nothing() {
    let rig = Rig::new(1 << 30);
    let home = rig.home();
    let lease = home.get(Kind::Private, 1 << 20, -1).unwrap();
    assert_eq!(calls(|| drop(Home::view(lease.carrier(), 1, 2).unwrap())), 0);
}

#[test]
fn many_at_once_allocate_nothing_either() {
    let rig = Rig::new(1 << 30);
    let home = rig.home();
    let held = Cell::new(Vec::with_capacity(100));
    let work = || {
        let mut leases = held.take();
        leases.extend((0..100).map(|_| home.get(Kind::Private, 65536, -1).unwrap()));
        leases.clear();
        held.set(leases);
    };
    assert_eq!(calls(work), 0);
}
