use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::core::error;

fn shared(bytes: usize) -> (Arc<dyn Block>, Arc<dyn Block>) {
    let (ours, share) = HostMemory.allocate(Kind::Shared, bytes).unwrap();
    let theirs = HostMemory.map(share.unwrap(), bytes).unwrap();
    (ours, theirs)
}

#[test]
fn blocks_are_aligned_and_large_enough() {
    for kind in [Kind::Private, Kind::Shared] {
        for bytes in [1, 65536, 65537, 2 << 20, (2 << 20) + 1] {
            let (block, share) = HostMemory.allocate(kind, bytes).unwrap();
            assert!(block.capacity() >= bytes);
            assert_eq!(block.address() % if bytes >= 2 << 20 { 2 << 20 } else { 65536 }, 0);
            assert_eq!(share.is_some(), kind == Kind::Shared);
        }
    }
}

#[test]
fn copies_are_checked_and_may_overlap() {
    let (block, _) = HostMemory.allocate(Kind::Private, 65536).unwrap();
    block.write(0, b"abcdef").unwrap();
    block.copy_from(2, block.as_ref(), 0, 4).unwrap();
    let mut got = [0; 6];
    block.read(0, &mut got).unwrap();
    assert_eq!(&got, b"ababcd");
    for (offset, len) in [(65536, 1), (65535, 2), (usize::MAX, 2), (0, 65537)] {
        assert!(block.copy_from(offset, block.as_ref(), 0, len).is_err());
        assert!(block.copy_from(0, block.as_ref(), offset, len).is_err());
    }
    assert!(block.write(65535, b"ab").is_err());
    assert!(block.read(65536, &mut got).is_err());
}

#[test]
fn wrapped_memory_is_only_touched_inside() {
    let mut host = vec![1_u8; 300];
    let block = HostMemory.wrap(host.as_mut_ptr().expose_provenance() + 100, 100);
    block.write(0, &[2; 100]).unwrap();
    assert!(block.write(1, &[3; 100]).is_err());
    block.discard();
    drop(block);
    assert!(host.iter().enumerate().all(|(i, b)| *b == if (100..200).contains(&i) { 2 } else { 1 }));
}

#[test]
fn the_peer_sees_shared_memory_until_it_is_detached() {
    let (ours, theirs) = shared(128 * 1024);
    theirs.write(9, b"result").unwrap();
    assert!(ours.detach(15).unwrap().is_some());
    theirs.write(9, b"zombie").unwrap();
    let mut got = [0; 6];
    ours.read(9, &mut got).unwrap();
    assert_eq!(&got, b"result");
}

#[test]
fn a_detached_window_leaves_a_fresh_one() {
    let (ours, window) = shared(65536);
    let address = window.address();
    window.write(0, b"kept").unwrap();
    let fresh = window.detach(4).unwrap().unwrap();
    assert_eq!(window.address(), address);
    assert_ne!(fresh.address(), address);
    assert_eq!(fresh.address() % 65536, 0);
    window.write(0, b"mine").unwrap();
    let mut got = [0; 4];
    ours.read(0, &mut got).unwrap();
    assert_eq!(&got, b"kept");
    fresh.write(0, b"next").unwrap();
    ours.read(0, &mut got).unwrap();
    assert_eq!(&got, b"next");
    assert!(window.detach(4).unwrap().is_none());
}

#[test]
fn discarded_shared_memory_reads_as_zero_and_private_memory_stays() {
    let (ours, theirs) = shared(65536);
    ours.write(0, b"x").unwrap();
    theirs.discard();
    let mut got = [0];
    ours.read(0, &mut got).unwrap();
    assert_eq!(&got, b"x", "a window is the peer's: not ours to discard");
    ours.discard();
    theirs.read(0, &mut got).unwrap();
    assert_eq!(got, [0]);
    let (private, _) = HostMemory.allocate(Kind::Private, 65536).unwrap();
    private.write(0, b"x").unwrap();
    private.discard();
    private.read(0, &mut got).unwrap();
    assert_eq!(&got, b"x");
}

#[test]
fn a_reader_never_sees_a_detach() {
    const BYTES: usize = 256 * 1024;
    let stop = AtomicBool::new(false);
    let mut windows = Vec::new();
    let (_ours, first) = shared(BYTES);
    first.write(0, &[0x5a; BYTES]).unwrap();
    windows.push(first);
    for _ in 0..50 {
        let window = windows.pop().unwrap();
        stop.store(false, Ordering::Relaxed);
        let fresh = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bytes = vec![0; 4096];
                let mut at = 0;
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) || rounds < 64 {
                    window.read(at, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|b| *b == 0x5a));
                    at = (at + 4096) % BYTES;
                    rounds += 1;
                }
            });
            let fresh = window.detach(BYTES).unwrap().unwrap();
            stop.store(true, Ordering::Relaxed);
            reader.join().unwrap();
            fresh
        });
        windows.push(fresh);
    }
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    for kind in [Kind::Private, Kind::Shared] {
        let error = HostMemory.allocate(kind, 1 << 46).err().unwrap();
        assert_eq!(error.kind, error::Kind::OutOfMemory, "{error}");
    }
    assert!(HostMemory.allocate(Kind::Wrapped, 4096).is_err());
}

#[test]
fn the_default_budget_is_sane() {
    let budget = HostMemory.default_budget();
    assert!((1 << 20..=1 << 30).contains(&budget), "{budget}");
}
