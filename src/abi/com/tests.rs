// One SAFETY line covers a row of calls on one object.
#![allow(clippy::multiple_unsafe_ops_per_block, non_camel_case_types)]
use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::thread;

use super::*;

#[repr(C)]
pub(super) struct probe_interface {
    vtbl: *const c_void,
}
type Vtbl = unsafe extern "C" fn(*const probe_interface) -> u32;
static TABLE: Table<Vtbl> = Table::new(retain::<Probe>);

/// Plain memory that whoever holds the object may read, and whoever has it alone may write.
struct Probe(UnsafeCell<u64>);
// SAFETY: only touched as said above; that it holds is what the tests are about.
unsafe impl Send for Probe {}
// SAFETY: as above.
unsafe impl Sync for Probe {}

static RESTING: Mutex<Vec<Arc<Object<Probe>>>> = Mutex::new(Vec::new());

impl Class for Probe {
    type Interface = probe_interface;
    type Vtbl = Vtbl;
    type Line = ();
    const NAME: &'static str = "probe";
    const IIDS: &'static [nrdma_uuid] = &[nrdma_uuid::new(1, 2, 3, 4), nrdma_uuid::new(5, 6, 7, 8)];
    fn table() -> &'static Table<Vtbl> {
        &TABLE
    }
    #[cfg(windows)]
    fn msvc() -> *const c_void {
        TABLE.address()
    }
    fn rest(object: Arc<Object<Self>>) {
        // Alone now: the other holders' reads must have happened before.
        let cell = object.value().0.get();
        // SAFETY: see above.
        unsafe { *cell += 1 };
        RESTING.lock().unwrap().push(object);
    }
}

fn read(object: &Object<Probe>) -> u64 {
    // SAFETY: the caller holds a reference.
    unsafe { *object.value().0.get() }
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    #[test]
    fn counts_are_exact_and_a_resting_object_lives() {
        let com = Com::new(Probe(UnsafeCell::new(0)));
        let object = com.arc();
        let raw = com.into_raw(Face::Itanium);
        // SAFETY: `raw` holds a reference until it is released.
        unsafe {
            assert_eq!(retain::<Probe>(raw), 2);
            assert_eq!(retain::<Probe>(raw), 3);
            assert_eq!(release::<Probe>(raw), 2);
            assert_eq!(release::<Probe>(raw), 1);
            assert_eq!(release::<Probe>(raw), 0);
        }
        assert_eq!(read(&object), 1);
        let again = Com::share(&object);
        assert_eq!(again.references(), 1);
        assert_eq!(Arc::strong_count(&object), 3, "here, resting, and what C holds");
        drop(again);
        assert_eq!(read(&object), 2);
    }

    #[test]
    fn interfaces_are_found_by_their_ids() {
        let com = Com::new(Probe(UnsafeCell::new(0)));
        let raw = com.interface(Face::Itanium);
        for iid in [nrdma_uuid::new(1, 2, 3, 4), nrdma_uuid::new(5, 6, 7, 8), NRDMA_ZERO_UUID] {
            // SAFETY: live.
            assert_eq!(unsafe { get_interface::<Probe>(raw, &raw const iid) }, raw.cast());
        }
        assert_eq!(com.references(), 4);
        let other = nrdma_uuid::new(1, 2, 3, 5);
        // SAFETY: live.
        assert!(unsafe { get_interface::<Probe>(raw, &raw const other) }.is_null());
        // SAFETY: live.
        assert!(unsafe { get_interface::<Probe>(raw, ptr::null()) }.is_null());
        assert_eq!(com.references(), 4);
        // SAFETY: live.
        assert_eq!(unsafe { get_iid::<Probe>(raw) }, nrdma_uuid::new(1, 2, 3, 4));
        // SAFETY: gives up the three references.
        (0..3).for_each(|left| assert_eq!(unsafe { release::<Probe>(raw) }, 3 - left));
    }

    #[test]
    fn the_words_in_front_of_the_table_are_there() {
        let com = Com::new(Probe(UnsafeCell::new(0)));
        let raw = com.interface(Face::Itanium);
        // SAFETY: live.
        let vtbl = unsafe { (*raw).vtbl }.cast::<usize>();
        // SAFETY: the table has two words in front.
        assert_eq!(unsafe { (*vtbl.sub(2), *vtbl.sub(1)) }, (0, 0));
        // SAFETY: the first slot.
        assert_eq!(unsafe { *vtbl }, retain::<Probe> as *const () as usize);
    }

    #[test]
    fn foreign_objects_are_told_apart() {
        let com = Com::new(Probe(UnsafeCell::new(0)));
        // SAFETY: live.
        assert!(unsafe { checked::<Probe>(com.interface(Face::Itanium)) }.is_ok());
        let table = 0_usize;
        let foreign = probe_interface { vtbl: ptr::from_ref(&table).cast() };
        // SAFETY: starts with an address.
        let error = unsafe { checked::<Probe>(&raw const foreign) }.err().unwrap();
        assert!(error.text.contains("not a probe"), "{error}");
        // SAFETY: null is allowed.
        assert!(unsafe { checked::<Probe>(ptr::null()) }.is_err());
    }

    #[test]
    fn the_last_release_sees_everything() {
        for _ in 0..200 {
            let com = Com::new(Probe(UnsafeCell::new(0)));
            let hands: Vec<_> = (0..4)
                .map(|_| {
                    let hand = com.clone();
                    thread::spawn(move || assert_eq!(read(&hand), 0))
                })
                .collect();
            drop(com);
            hands.into_iter().for_each(|hand| hand.join().unwrap());
            let object = RESTING.lock().unwrap().pop();
            assert!(object.is_some());
        }
    }
}

#[cfg(loom)]
mod model {
    use loom::cell::UnsafeCell as Cell;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::Count;

    struct Thing {
        count: Count,
        bytes: Cell<u64>,
    }
    // SAFETY: loom checks that the cell is never read and written at once.
    unsafe impl Sync for Thing {}

    /// Two holders read and let go; whoever was last writes (it has the object alone) and brings it to the
    /// depot; somebody else takes it out, hands it out again, and writes.
    #[test]
    fn loom_hand_off() {
        loom::model(|| {
            let depot = Arc::new(Mutex::new(None::<Arc<Thing>>));
            let thing = Arc::new(Thing { count: Count::new(0), bytes: Cell::new(0) });
            thing.count.start();
            assert_eq!(thing.count.up(), 2);
            let release = |thing: Arc<Thing>, depot: &Mutex<Option<Arc<Thing>>>| {
                thing.bytes.with(|bytes| {
                    let _ = unsafe { bytes.read() };
                });
                if thing.count.down(false) == 0 {
                    thing.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
                    *depot.lock().unwrap() = Some(thing);
                }
            };
            let other = {
                let (thing, depot) = (Arc::clone(&thing), Arc::clone(&depot));
                thread::spawn(move || release(thing, &depot))
            };
            let taker = {
                let depot = Arc::clone(&depot);
                thread::spawn(move || {
                    let Some(thing) = depot.lock().unwrap().take() else {
                        return;
                    };
                    thing.count.start();
                    thing.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
                    assert_eq!(thing.count.down(false), 0);
                    *depot.lock().unwrap() = Some(thing);
                })
            };
            release(thing, &depot);
            other.join().unwrap();
            taker.join().unwrap();
            let thing = depot.lock().unwrap().take().unwrap();
            assert_eq!(thing.count.get(), 0);
        });
    }

    /// A context is handed out (0 to 1) while its last reference is dropped (1 to 0): each step leaks or
    /// takes back one strong reference, so in the end exactly one is left out.
    #[test]
    fn loom_share_against_release() {
        loom::model(|| {
            let count = Arc::new(Count::new(1));
            let strong = Arc::new(loom::sync::atomic::AtomicUsize::new(2));
            let order = loom::sync::atomic::Ordering::Relaxed;
            let sharer = {
                let (count, strong) = (Arc::clone(&count), Arc::clone(&strong));
                thread::spawn(move || {
                    if count.up() == 1 {
                        strong.fetch_add(1, order);
                    }
                })
            };
            if count.down(true) == 0 {
                strong.fetch_sub(1, order);
            }
            sharer.join().unwrap();
            assert_eq!((count.get(), strong.load(order)), (1, 2));
        });
    }

    /// Who sees that it is the only holder may write.
    #[test]
    fn loom_sole_holder() {
        loom::model(|| {
            let thing = Arc::new(Thing { count: Count::new(2), bytes: Cell::new(0) });
            let other = {
                let thing = Arc::clone(&thing);
                thread::spawn(move || {
                    thing.bytes.with(|bytes| {
                        let _ = unsafe { bytes.read() };
                    });
                    thing.count.down(false);
                })
            };
            if thing.count.get() == 1 {
                thing.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
            }
            other.join().unwrap();
        });
    }
}
