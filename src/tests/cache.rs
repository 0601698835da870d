use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use super::fake::Rig;
use crate::core::buffer::{Lease, Path};
use crate::core::class::Class;
use crate::core::error::{Error, Kind as Broken};
use crate::core::home::Home;
use crate::core::memory::{Kind, Memory};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn closed() -> Error {
    Error::new(Broken::ShutDown, "the node was shut down")
}

fn write(lease: &Lease, bytes: &[u8]) {
    let span = lease.span(lease.size()).unwrap();
    span.block.write(span.offset, bytes).unwrap();
}

fn read(lease: &Lease, count: usize) -> Vec<u8> {
    let span = lease.span(lease.size()).unwrap();
    let mut bytes = vec![0; count];
    span.block.read(span.offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_buffer_is_what_was_asked_for() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    let mut ids = HashSet::new();
    for size in [1, 63, 64, 65, 4096, 32768, 32769, 65535, 65536, 65537, MIB, MIB + 1, 3 * MIB] {
        for _ in 0..3 {
            let lease = home.get(Kind::Private, size, -1).unwrap();
            assert_eq!((lease.size(), lease.gpu(), lease.path()), (size, -1, Path::None));
            assert_eq!(lease.address() % if size >= 65536 { 65536 } else { 64 }, 0);
            assert!(ids.insert(lease.id()));
            assert!(lease.is_sole() && lease.same_home(&home));
            assert_eq!(lease.whole_pages(), size > 32768);
            write(&lease, &vec![1; usize::try_from(size).unwrap()]);
            assert!(lease.span(size + 1).is_err());
        }
    }
}

#[test]
fn bad_arguments_are_told_with_their_numbers() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    let error = |size, gpu| home.get(Kind::Private, size, gpu).err().unwrap();
    for (size, gpu, kind, text) in [
        (0, -1, Broken::InvalidParameter, "0 bytes"),
        (u64::MAX, -1, Broken::InvalidParameter, "18446744073709551615"),
        (u64::MAX - 65535, -1, Broken::InvalidParameter, "18446744073709486080"),
        (1, -2, Broken::InvalidParameter, "-2"),
        (1, 99, Broken::NotSupported, "gpu_id 99: there are no buffers on GPUs"),
    ] {
        let error = error(size, gpu);
        assert_eq!(error.kind, kind);
        assert!(error.text.contains(text), "{error}");
    }
    let wrap = |address, size, gpu| home.wrap(address, size, gpu, None).err().unwrap();
    assert!(wrap(0, 5, -1).text.contains("NULL"));
    assert!(wrap(4096, 0, -1).text.contains("0 bytes"));
    assert!(wrap(4096, u64::MAX, -1).text.contains("18446744073709551615"));
    assert!(wrap(4096, 5, 0).text.contains("no buffers on GPUs"));
    let lease = home.get(Kind::Private, 100, -1).unwrap();
    for (offset, size) in
        [(0, 0), (0, 101), (100, 1), (99, 2), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)]
    {
        let error = Home::view(lease.carrier(), offset, size).err().unwrap();
        assert!(error.text.contains(&size.to_string()), "{error}");
    }
    assert_eq!(rig.shared.stats().live_buffers, 1);
}

#[test]
fn a_released_buffer_comes_back() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    for size in [64, 65536, MIB, 5 * MIB] {
        let first = home.get(Kind::Private, size, -1).unwrap();
        let (address, id, made) = (first.address(), first.id(), rig.made());
        drop(first);
        let again = home.get(Kind::Private, size - 1, -1).unwrap();
        assert_eq!((again.address(), rig.made()), (address, made));
        assert!(again.id() > id);
    }
    let stats = rig.shared.stats();
    assert_eq!((stats.hits, stats.misses, stats.live_buffers, stats.live_bytes), (4, 4, 0, 0));
    assert_eq!(stats.idle_bytes, 64 + 65536 + MIB + 5 * MIB);
}

#[test]
fn a_larger_buffer_serves_when_it_is_not_much_larger() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    for (kept, asked, served) in
        [(96 * 1024, 65536, true), (112 * 1024, 65536, false), (6 * MIB, 4 * MIB, true)]
    {
        let address = home.get(Kind::Private, kept, -1).unwrap().address();
        let lease = home.get(Kind::Private, asked, -1).unwrap();
        assert_eq!(lease.address() == address, served, "{kept}");
        rig.shared.trim(0);
    }
}

#[test]
fn kinds_and_homes_do_not_mix() {
    let rig = Rig::new(GIB);
    let ((one, link), (two, _other)) = (rig.linked(), rig.linked());
    let shared = one.get(Kind::Shared, MIB, -1).unwrap();
    assert_eq!(shared.kind(), Kind::Shared);
    assert_eq!(link.announced.lock().unwrap().len(), 1);
    let address = shared.address();
    drop(shared);
    let private = one.get(Kind::Private, MIB, -1).unwrap();
    let others = two.get(Kind::Shared, MIB, -1).unwrap();
    let own = one.get(Kind::Shared, MIB, -1).unwrap();
    assert_ne!(private.address(), address);
    assert_ne!(others.address(), address);
    assert_eq!(own.address(), address);
    assert_eq!((private.kind(), private.region_key()), (Kind::Private, None));
    assert!(own.same_home(&one) && !own.same_home(&two));
}

#[test]
fn small_shared_buffers_lie_in_one_announced_slab() {
    let rig = Rig::new(GIB);
    let (home, link) = rig.linked();
    let leases: Vec<_> = (0..100).map(|_| home.get(Kind::Shared, 1000, -1).unwrap()).collect();
    assert_eq!(link.announced.lock().unwrap().len(), 1);
    let places: HashSet<_> = leases.iter().map(|lease| lease.region_key().unwrap()).collect();
    assert_eq!(places.len(), 100);
    let view = Home::view(leases[3].carrier(), 10, 20).unwrap();
    let (key, offset) = leases[3].region_key().unwrap();
    assert_eq!(view.region_key(), Some((key, offset + 10)));
    assert!(!leases[0].whole_pages());
    drop((leases, view));
    home.close(closed());
    assert_eq!(link.forgotten.lock().unwrap().as_slice(), [key]);
}

#[test]
fn a_peer_that_cannot_be_told_gets_private_memory() {
    let rig = Rig::new(GIB);
    let (home, link) = rig.linked();
    link.deaf.store(true, Ordering::Relaxed);
    for size in [100, MIB] {
        let lease = home.get(Kind::Shared, size, -1).unwrap();
        assert_eq!((lease.kind(), lease.region_key()), (Kind::Private, None));
    }
    let address = home.get(Kind::Shared, MIB, -1).unwrap().address();
    assert_eq!(home.get(Kind::Shared, MIB, -1).unwrap().address(), address);
    assert_eq!(rig.home().get(Kind::Shared, MIB, -1).unwrap().kind(), Kind::Private);
}

#[test]
fn views_hold_their_parent_and_show_its_bytes() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    let parent = home.get(Kind::Private, MIB, -1).unwrap();
    write(&parent, b"0123456789");
    let view = Home::view(parent.carrier(), 2, 5).unwrap();
    let inner = Home::view(view.carrier(), 1, 3).unwrap();
    assert_eq!((inner.address(), inner.size()), (parent.address() + 3, 3));
    assert_ne!(inner.id(), view.id());
    assert!(!view.whole_pages() && view.same_home(&home));
    let address = parent.address();
    drop(parent);
    drop(view);
    assert_eq!(read(&inner, 3), b"345");
    assert_ne!(home.get(Kind::Private, MIB, -1).unwrap().address(), address);
    assert_eq!(rig.shared.stats().live_buffers, 3);
    drop(inner);
    assert_eq!(rig.shared.stats().live_buffers, 0);
}

#[test]
fn wrapped_memory_tells_when_it_is_free() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    let mut host = vec![5_u8; 100];
    let address = host.as_mut_ptr().expose_provenance();
    let done = Arc::new(AtomicUsize::new(0));
    let note = Arc::clone(&done);
    let lease = home
        .wrap(address, 100, -1, Some(Box::new(move || assert_eq!(note.fetch_add(1, Ordering::SeqCst), 0))))
        .unwrap();
    assert_eq!((lease.address(), lease.kind(), lease.whole_pages()), (address, Kind::Wrapped, false));
    let view = Home::view(lease.carrier(), 50, 50).unwrap();
    write(&view, &[6; 50]);
    drop(lease);
    assert_eq!(done.load(Ordering::SeqCst), 0);
    drop(view);
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert_eq!((host[49], host[50]), (5, 6));
    assert!(home.wrap(address, 100, -1, None).unwrap().detach().unwrap().is_none());
}

#[test]
fn a_window_is_detached_in_place() {
    let rig = Rig::new(GIB);
    let (home, link) = rig.linked();
    let result = home.get(Kind::Shared, MIB, -1).unwrap();
    let (_, capacity, share) = link.announced.lock().unwrap().pop().unwrap();
    let window = rig.memory.map(share, usize::try_from(capacity).unwrap()).unwrap();
    let other = rig.home();
    assert!(other.lend(Arc::clone(&window), capacity + 1).is_err());
    let lease = other.lend(window, 1000).unwrap();
    assert!(lease.whole_pages() && lease.kind() == Kind::Window);
    write(&lease, b"first");
    assert_eq!(read(&result, 5), b"first");
    let address = lease.address();
    let fresh = lease.detach().unwrap().unwrap();
    assert_eq!((lease.address(), lease.kind()), (address, Kind::Private));
    assert!(!lease.whole_pages());
    write(&lease, b"kept!");
    assert_eq!(read(&result, 5), b"first");
    fresh.write(0, b"again").unwrap();
    assert_eq!(read(&result, 5), b"again");
}

#[test]
fn a_detached_result_never_comes_back() {
    let rig = Rig::new(GIB);
    let (home, link) = rig.linked();
    for size in [1000, MIB] {
        let result = home.get(Kind::Shared, size, -1).unwrap();
        let neighbour = home.get(Kind::Shared, size, -1).unwrap();
        let (key, offset) = result.region_key().unwrap();
        let announced = link.announced.lock().unwrap();
        let (_, capacity, share) = announced.iter().find(|(other, ..)| *other == key).unwrap();
        let window = rig.memory.map(share.try_clone().unwrap(), usize::try_from(*capacity).unwrap()).unwrap();
        drop(announced);
        window.write(usize::try_from(offset).unwrap(), b"done").unwrap();
        let address = result.address();
        assert!(Home::view(result.carrier(), 1, 5).unwrap().detach().unwrap().is_none());
        assert!(result.detach().unwrap().is_none());
        window.write(usize::try_from(offset).unwrap(), b"late").unwrap();
        assert_eq!((read(&result, 4).as_slice(), result.address()), (b"done".as_slice(), address));
        assert_eq!((result.kind(), result.region_key()), (Kind::Private, None));
        drop(result);
        drop(neighbour);
        let next = home.get(Kind::Shared, size, -1).unwrap();
        assert_ne!(next.region_key().map(|(key, _)| key), Some(key));
    }
    assert_eq!(rig.shared.stats().live_buffers, 0);
}

#[test]
fn the_budget_holds_over_all_homes() {
    let rig = Rig::new(16 * MIB);
    let homes = [rig.home(), rig.home()];
    for round in 0..50 {
        let leases: Vec<_> =
            (1..8).map(|n| homes[round % 2].get(Kind::Private, n * MIB, -1).unwrap()).collect();
        drop(leases);
        assert!(rig.shared.stats().idle_bytes <= 16 * MIB);
    }
    assert!(rig.shared.stats().idle_bytes > 4 * MIB);
    let none = Rig::new(0);
    let home = none.home();
    for size in [64, 65536, 4 * MIB] {
        drop(home.get(Kind::Private, size, -1).unwrap());
        assert_eq!(none.shared.stats().idle_bytes, 0);
    }
}

#[test]
fn the_oldest_of_the_largest_go_first() {
    let rig = Rig::new(32 * MIB);
    let home = rig.home();
    let leases: Vec<_> = (0..4).map(|_| home.get(Kind::Private, 8 * MIB, -1).unwrap()).collect();
    let addresses: Vec<_> = leases.iter().map(|lease| lease.address()).collect();
    leases.into_iter().for_each(drop);
    let small = home.get(Kind::Private, 2 * MIB, -1).unwrap();
    let small_address = small.address();
    drop(small);
    let now: Vec<_> = (0..3).map(|_| home.get(Kind::Private, 8 * MIB, -1).unwrap().address()).collect();
    assert_eq!(now, [addresses[3]; 3]);
    assert_eq!(home.get(Kind::Private, 2 * MIB, -1).unwrap().address(), small_address);
}

#[test]
fn trimming_forgets_and_frees() {
    let rig = Rig::new(GIB);
    let (home, link) = rig.linked();
    let leases: Vec<_> = (0..3).map(|_| home.get(Kind::Shared, 8 * MIB, -1).unwrap()).collect();
    let last = leases[2].address();
    leases.into_iter().for_each(drop);
    drop(home.get(Kind::Shared, MIB, -1).unwrap());
    rig.shared.trim(8 * MIB);
    assert_eq!(rig.shared.stats().idle_bytes, 8 * MIB);
    assert_eq!(home.get(Kind::Shared, 8 * MIB, -1).unwrap().address(), last);
    assert_eq!(link.forgotten.lock().unwrap().len(), 3);
    rig.shared.trim(0);
    assert_eq!((rig.shared.stats().idle_bytes, link.forgotten.lock().unwrap().len()), (0, 4));
    let (_, capacity, share) = link.announced.lock().unwrap().pop().unwrap();
    assert!(capacity > 0);
    // SAFETY-free proof that the pages were given back although a descriptor is still open.
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::File::from(share).metadata().unwrap());
    assert_eq!(blocks, 0);
}

#[test]
fn what_is_not_needed_decays() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    let leases: Vec<_> = (0..8).map(|_| home.get(Kind::Private, 2 * MIB, -1).unwrap()).collect();
    drop(leases);
    rig.shared.decay();
    assert_eq!(rig.shared.stats().idle_bytes, 16 * MIB, "all of them were used in this period");
    rig.shared.decay();
    assert_eq!(rig.shared.stats().idle_bytes, 8 * MIB);
    for _ in 0..40 {
        drop(home.get(Kind::Private, 2 * MIB, -1).unwrap());
        rig.shared.decay();
    }
    assert!(rig.shared.stats().idle_bytes >= 2 * MIB, "one is used all the time");
    for _ in 0..30 {
        rig.shared.decay();
    }
    assert_eq!(rig.shared.stats().idle_bytes, 0);
}

#[test]
fn reused_memory_is_cleared_on_request() {
    for zero in [false, true] {
        let rig = Rig::with(GIB, zero);
        let home = rig.home();
        for size in [100, MIB, 3 * MIB] {
            let lease = home.get(Kind::Private, size, -1).unwrap();
            write(&lease, &vec![9; usize::try_from(size).unwrap()]);
            drop(lease);
            let again = home.get(Kind::Private, size, -1).unwrap();
            let want = if zero { 0 } else { 9 };
            assert!(read(&again, usize::try_from(size).unwrap()).iter().all(|byte| *byte == want));
        }
    }
}

#[test]
fn idle_memory_is_given_up_when_there_is_no_other() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    drop(home.get(Kind::Private, 8 * MIB, -1).unwrap());
    rig.memory.fail.store(1, Ordering::Relaxed);
    drop(home.get(Kind::Private, 64 * MIB, -1).unwrap());
    assert_eq!(rig.shared.stats().idle_bytes, 64 * MIB);
    rig.memory.fail.store(2, Ordering::Relaxed);
    let error = home.get(Kind::Private, 128 * MIB, -1).err().unwrap();
    assert_eq!(error.kind, Broken::OutOfMemory);
}

#[test]
fn a_closed_home_frees_everything() {
    let rig = Rig::new(GIB);
    let (home, link) = rig.linked();
    let weak = Arc::downgrade(&home);
    *home.context_slot() = Some(Arc::new(Arc::clone(&home)));
    let out = home.get(Kind::Shared, MIB, -1).unwrap();
    let view = Home::view(out.carrier(), 0, 10).unwrap();
    for size in [64, 65536, MIB, 8 * MIB] {
        drop(home.get(Kind::Shared, size, -1).unwrap());
    }
    write(&out, b"readable");
    home.close(closed());
    home.close(Error::invalid("the first word counts"));
    assert_eq!(rig.shared.stats().idle_bytes, 0);
    assert_eq!(home.get(Kind::Private, 64, -1).err().unwrap().kind, Broken::ShutDown);
    assert_eq!(home.wrap(4096, 64, -1, None).err().unwrap().kind, Broken::ShutDown);
    assert!(home.context_slot().is_none());
    drop(home);
    assert_eq!(read(&out, 8), b"readable");
    let inner = Home::view(view.carrier(), 0, 4).unwrap();
    drop((out, view));
    assert_eq!(read(&inner, 4), b"read");
    assert!(weak.upgrade().is_some());
    drop(inner);
    assert!(weak.upgrade().is_none(), "a cycle keeps the home");
    assert_eq!(rig.shared.stats().live_buffers, 0);
    assert_eq!(Arc::strong_count(&link), 1);
}

#[test]
fn a_thread_that_ends_leaves_its_buffers_to_others() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    let address = thread::scope(|scope| {
        scope.spawn(|| home.get(Kind::Private, MIB, -1).unwrap().address()).join().unwrap()
    });
    assert_eq!(home.get(Kind::Private, MIB, -1).unwrap().address(), address);
    let stats = rig.shared.stats();
    assert_eq!((stats.hits, stats.misses, stats.idle_bytes, stats.live_buffers), (1, 1, MIB, 0));
}

#[test]
fn one_thread_gets_and_another_releases() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    let (send, receive) = mpsc::sync_channel::<Lease>(16);
    thread::scope(|scope| {
        scope.spawn(move || {
            for lease in receive {
                assert_eq!(read(&lease, 8), lease.id().to_le_bytes());
            }
        });
        for _ in 0..2000 {
            let lease = home.get(Kind::Private, 65536, -1).unwrap();
            write(&lease, &lease.id().to_le_bytes());
            send.send(lease).unwrap();
        }
        drop(send);
    });
    assert!(rig.made() <= 16 + 2 + 2 * 8 + 4, "{}", rig.made());
    let stats = rig.shared.stats();
    assert_eq!((stats.hits + stats.misses, stats.live_buffers, stats.live_bytes), (2000, 0, 0));
}

#[test]
fn many_threads_never_share_a_buffer() {
    let rig = Rig::new(64 * MIB);
    let homes = [rig.home(), rig.home(), rig.home()];
    let start = Barrier::new(4);
    let ids: Vec<Vec<u64>> = thread::scope(|scope| {
        let work = |seed: u64| {
            start.wait();
            let (mut random, mut held, mut ids) = (seed, Vec::<Lease>::new(), Vec::new());
            for _ in 0..1500 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let home = &homes[usize::try_from(random >> 60).unwrap() % 3];
                let size =
                    8 + (random >> 33) % [1000, 100_000, 2 * MIB][usize::try_from(random >> 30).unwrap() % 3];
                let lease = home.get(Kind::Private, size, -1).unwrap();
                write(&lease, &lease.id().to_le_bytes());
                ids.push(lease.id());
                held.push(lease);
                if random >> 50 & 63 == 0 {
                    rig.shared.trim(MIB);
                }
                while held.len() > usize::try_from(random >> 45).unwrap() % 12 {
                    let lease = held.swap_remove(usize::try_from(random >> 20).unwrap() % held.len());
                    assert_eq!(read(&lease, 8), lease.id().to_le_bytes());
                }
            }
            ids
        };
        let hands: Vec<_> = (1..=4).map(|seed| scope.spawn(move || work(seed))).collect();
        hands.into_iter().map(|hand| hand.join().unwrap()).collect()
    });
    assert_eq!(ids.iter().flatten().collect::<HashSet<_>>().len(), 6000);
    let stats = rig.shared.stats();
    assert_eq!((stats.hits + stats.misses, stats.live_buffers, stats.live_bytes), (6000, 0, 0));
    assert!(stats.idle_bytes <= 64 * MIB);
    homes.iter().for_each(|home| home.close(closed()));
    assert_eq!(rig.shared.stats().idle_bytes, 0);
}

#[test]
fn homes_closed_while_threads_use_them_leave_nothing() {
    let rig = Rig::new(GIB);
    let home = rig.home();
    let weak = Arc::downgrade(&home);
    let start = Barrier::new(3);
    thread::scope(|scope| {
        let work = || {
            start.wait();
            while let Ok(lease) = home.get(Kind::Private, 65536, -1) {
                drop(Home::view(lease.carrier(), 0, 1).unwrap());
            }
        };
        let hands = [scope.spawn(work), scope.spawn(work)];
        start.wait();
        for _ in 0..1000 {
            drop(home.get(Kind::Private, 4096, -1).unwrap());
        }
        home.close(closed());
        // The end of the scope does not wait for what the threads do at their end.
        hands.into_iter().for_each(|hand| hand.join().unwrap());
    });
    drop(home);
    assert!(weak.upgrade().is_none());
    let stats = rig.shared.stats();
    assert_eq!((stats.idle_bytes, stats.live_buffers, stats.live_bytes), (0, 0, 0));
}

#[test]
fn a_thread_gives_up_what_it_kept_for_a_closed_home_at_its_next_use() {
    let rig = Rig::new(GIB);
    let (first, second) = (rig.home(), rig.home());
    let weak = Arc::downgrade(&first);
    let (go, wait) = mpsc::channel::<()>();
    let (told, tell) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (first, second) = (Arc::clone(&first), &second);
        scope.spawn(move || {
            drop(first.get(Kind::Private, 65536, -1).unwrap());
            drop(first);
            told.send(()).unwrap();
            wait.recv().unwrap();
            drop(second.get(Kind::Private, 65536, -1).unwrap());
            told.send(()).unwrap();
            wait.recv().unwrap();
        });
        tell.recv().unwrap();
        rig.shared.stats();
        let first = weak.upgrade().unwrap();
        first.close(closed());
        drop(first);
        go.send(()).unwrap();
        tell.recv().unwrap();
        go.send(()).unwrap();
    });
    drop(first);
    assert!(weak.upgrade().is_none());
    assert_eq!(rig.shared.stats().idle_bytes, Class::of(65536).unwrap().capacity());
}
