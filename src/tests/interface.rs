use std::ffi::{CStr, c_void};
use std::ptr;

use super::fake::Rig;
use crate::abi::buffer::*;
use crate::abi::error::nrdma_last_error;
use crate::abi::face::Face;
use crate::abi::interface::nrdma_uuid;
use crate::core::buffer::Path;
use crate::core::home::Home;
use crate::core::memory::Kind;
use std::sync::Arc;

fn last() -> String {
    // SAFETY: a C string, until the next failing call.
    unsafe { CStr::from_ptr(nrdma_last_error()) }.to_str().unwrap().to_owned()
}

fn get(home: &Arc<Home>, size: u64) -> *mut nrdma_buffer {
    start_raw(home.take(Kind::Private, size, -1).unwrap(), Face::Itanium)
}

fn table(buffer: *mut nrdma_buffer) -> &'static nrdma_buffer_vtbl_itanium {
    // SAFETY: a live buffer of ours.
    unsafe { &*(*buffer).vtbl.cast() }
}

#[test]
fn every_slot_and_function_answers() {
    let rig = Rig::new(1 << 30);
    let home = rig.home();
    let b = get(&home, 100_000);
    let t = table(b);
    // SAFETY: `b` is live until its last release below.
    unsafe {
        assert_eq!(((t.retain)(b), nrdma_buffer_retain(b)), (2, 3));
        assert_eq!(((t.release)(b), nrdma_buffer_release(b)), (2, 1));
        assert_eq!(((t.get_size)(b), nrdma_buffer_get_size(b)), (100_000, 100_000));
        assert_eq!(((t.get_gpu_id)(b), nrdma_buffer_get_gpu_id(b)), (-1, -1));
        assert!((t.get_id)(b) > 0 && (t.get_id)(b) == nrdma_buffer_get_id(b));
        let data = (t.get_data)(b);
        assert_eq!(data.addr() % 65536, 0);
        assert_eq!(((t.get_data_const)(b), nrdma_buffer_get_data(b)), (data.cast_const(), data));
        assert_eq!(nrdma_buffer_get_const_data(b), data.cast_const());
        data.write_bytes(7, 100_000);
        assert_eq!((nrdma_buffer_is_gpudirect(b), (t.is_gpudirect)(b)), (0, false));
        assert_eq!(nrdma_buffer_get_path(b), NRDMA_PATH_NONE);
        let view = (t.duplicate)(b, 1000, 5);
        assert_eq!(((t.get_data)(view), (t.get_size)(view)), (data.add(1000), 5));
        assert_eq!(nrdma_buffer_release(b), 1);
        assert_eq!(((t.get_data)(view)).read(), 7);
        let constant = (t.duplicate_const)(view, 4, 1);
        assert_eq!((t.get_data_const)(constant), data.add(1004).cast_const());
        assert_eq!((t.release)(constant), 0);
        assert_eq!((t.release)(view), 0);
    }
    assert_eq!(rig.shared.stats().live_buffers, 0);
}

#[test]
fn both_generations_of_the_interface_are_known() {
    let rig = Rig::new(1 << 30);
    let b = get(&rig.home(), 5);
    let newer = nrdma_uuid { id1: 0x9b7b_00e6, id2: 0x4a07_9539, id3: 0xdd9d_1a88, id4: 0xfe6d_5c91 };
    let older = nrdma_uuid { id1: 0xa2c7_5819, id2: 0x4348_752a, id3: 0x5a95_629f, id4: 0x12ed_cf2a };
    // SAFETY: `b` is live until its last release.
    unsafe {
        assert_eq!((table(b).get_iid)(b), newer);
        let mut iid = nrdma_uuid::default();
        nrdma_buffer_get_iid(b, &raw mut iid);
        assert_eq!(iid, newer);
        for (n, iid) in [newer, older, nrdma_uuid::default()].iter().enumerate() {
            assert_eq!((table(b).get_interface)(b, iid), b.cast::<c_void>());
            assert_eq!(nrdma_buffer_release(b), 1, "{n}");
            assert_eq!(nrdma_buffer_get_interface(b, iid), b.cast::<c_void>());
            assert_eq!(nrdma_buffer_release(b), 1, "{n}");
        }
        iid.id4 ^= 1;
        assert!(nrdma_buffer_get_interface(b, &raw const iid).is_null());
        assert_eq!(nrdma_buffer_release(b), 0);
    }
}

#[test]
fn null_and_foreign_pointers_are_refused() {
    let table = [0_usize; 16];
    let foreign = nrdma_buffer { vtbl: table.as_ptr().cast() };
    for b in [ptr::null_mut(), ptr::from_ref(&foreign).cast_mut()] {
        // SAFETY: NULL, or something that starts with an address.
        unsafe {
            assert_eq!((nrdma_buffer_retain(b), nrdma_buffer_release(b)), (0, 0));
            assert_eq!((nrdma_buffer_get_size(b), nrdma_buffer_get_gpu_id(b)), (0, -1));
            assert!(nrdma_buffer_get_data(b).is_null() && nrdma_buffer_duplicate(b, 0, 1).is_null());
            assert!(lease_from_raw(b).is_err() && lease_borrowed(b).is_err());
        }
    }
    assert!(last().contains("NULL") || last().contains("not a buffer"), "{}", last());
}

#[test]
fn a_bad_duplicate_says_why() {
    let rig = Rig::new(1 << 30);
    let b = get(&rig.home(), 100);
    // SAFETY: `b` is live until its release.
    unsafe {
        assert!(nrdma_buffer_duplicate(b, 99, 2).is_null());
        assert!(last().contains("2 bytes at 99") && last().contains("100 bytes"), "{}", last());
        assert_eq!(nrdma_buffer_release(b), 0);
    }
}

#[test]
fn references_move_between_c_and_the_core() {
    let rig = Rig::new(1 << 30);
    let home = rig.home();
    let b = get(&home, 100);
    // SAFETY: `b` is live as counted.
    unsafe {
        let borrowed = lease_borrowed(b).unwrap();
        assert!(!borrowed.is_sole());
        borrowed.set_path(Path::Mapped);
        assert_eq!(nrdma_buffer_get_path(b), NRDMA_PATH_MAPPED);
        let owned = lease_from_raw(b).unwrap();
        drop(borrowed);
        assert!(owned.is_sole());
        assert_eq!(lease_as_raw(&owned, Face::Itanium), b);
        assert_eq!(lease_into_raw(owned, Face::Itanium), b);
        assert_eq!(nrdma_buffer_release(b), 0);
    }
    assert_eq!(rig.shared.stats().live_buffers, 0);
}
