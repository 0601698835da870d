//! A warm get and release through the C tables of a real node allocates nothing.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

use nrdma::abi::buffer::nrdma_buffer_vtbl_itanium;
use nrdma::abi::context::nrdma_context_vtbl_itanium;
use nrdma::abi::node::{nrdma_node_create, nrdma_node_destroy, nrdma_node_get_rdma_context_abi};

struct Counting;
thread_local! { static CALLS: Cell<u64> = const { Cell::new(0) }; }

fn count() {
    // A thread that ends has nothing to count.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: hands everything on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the same contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: the same contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_warm_get_and_release_allocates_nothing() {
    let mut node = ptr::null_mut();
    // SAFETY: NULL is the default configuration; `node` has room.
    assert_eq!(unsafe { nrdma_node_create(ptr::null(), &raw mut node) }, 0);
    // SAFETY: the node lives; 0 is this host.
    let context = unsafe { nrdma_node_get_rdma_context_abi(node, 0, 0) };
    assert!(!context.is_null());
    // SAFETY: an object of ours.
    let table = unsafe { (*context).vtbl };
    // SAFETY: a context's table.
    let own = unsafe { &*table.cast::<nrdma_context_vtbl_itanium>() };
    let once = |size: u64, write: bool| {
        let get = if write { own.get_write_memory } else { own.get_read_memory };
        // SAFETY: the context lives.
        let buffer = unsafe { get(context, size, -1) };
        assert!(!buffer.is_null());
        // SAFETY: an object of ours.
        let table = unsafe { (*buffer).vtbl };
        // SAFETY: a buffer's table.
        let table = unsafe { &*table.cast::<nrdma_buffer_vtbl_itanium>() };
        // SAFETY: the only reference is given up.
        assert_eq!(unsafe { (table.release)(buffer) }, 0);
    };
    for size in [1, 4096, 65536, 1 << 20, 5 << 20] {
        for write in [false, true] {
            once(size, write);
            let before = CALLS.get();
            (0..1000).for_each(|_| once(size, write));
            assert_eq!(CALLS.get() - before, 0, "{size} bytes, write: {write}");
        }
    }
    let before = CALLS.get();
    drop(std::hint::black_box(Box::new([0_u8; 100])));
    assert_eq!(CALLS.get() - before, 2, "the counter counts");
    // SAFETY: the only reference.
    assert_eq!(unsafe { (own.release)(context) }, 0);
    // SAFETY: nothing uses it any more.
    unsafe { nrdma_node_destroy(node) };
}
