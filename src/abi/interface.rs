//! What all objects have in common: interface ids, the two C++ ABIs, and the host's run-time type information.
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::guard::guard;
use super::process::pin_module_of;

/// An interface id or a class id, laid out as mi::base::Uuid.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct nrdma_uuid {
    /// First word.
    pub id1: u32,
    /// Second word.
    pub id2: u32,
    /// Third word.
    pub id3: u32,
    /// Fourth word.
    pub id4: u32,
}

impl nrdma_uuid {
    pub(crate) const fn new(id1: u32, id2: u32, id3: u32, id4: u32) -> Self {
        Self { id1, id2, id3, id4 }
    }
}

/// mi::base::IInterface's own id.
pub(crate) const NRDMA_ZERO_UUID: nrdma_uuid = nrdma_uuid::new(0, 0, 0, 0);

/// Which C++ compiler's layout an object has.
pub type nrdma_cxx_abi = i32;
/// GCC, Clang, MinGW.
pub const NRDMA_CXX_ABI_ITANIUM: nrdma_cxx_abi = 0;
/// Microsoft's.
pub const NRDMA_CXX_ABI_MSVC: nrdma_cxx_abi = 1;

/// Typeinfos that a host may give, in the order of nrdma_donate_rtti.
const TYPE_INFOS: usize = 8;

/// Where they go: each one's number and a place for it. The plugin is in a library of its own.
fn type_infos() -> [(usize, &'static AtomicPtr<c_void>); 8] {
    use super::{
        buffer, context, deserializer, dice_configuration, execution_context, scheduler, serializer,
    };
    [
        (0, buffer::TABLE.type_info()),
        (1, context::TABLE.type_info()),
        (2, scheduler::TABLE.type_info()),
        (3, dice_configuration::TABLE.type_info()),
        (3, dice_configuration::TABLE_2019.type_info()),
        (4, serializer::TABLE.type_info()),
        (5, deserializer::TABLE.type_info()),
        (6, execution_context::TABLE.type_info()),
    ]
}

/// Gives nrdma the host's typeinfos, so that dynamic_cast, typeid and sanitizers work on its objects;
/// nrdma.hpp calls this. The order is buffer, context, scheduler, dice_configuration, serializer,
/// deserializer, job_execution_context, plugin; NULL is none. The first ones stay, and their module is
/// kept loaded.
///
/// # Safety
/// `typeinfos` points to `count` pointers, each NULL or a typeinfo.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_donate_rtti(typeinfos: *const *const c_void, count: u64) {
    guard(|| {
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(TYPE_INFOS);
        if typeinfos.is_null() || count == 0 {
            return;
        }
        // SAFETY: by the contract above.
        let given = unsafe { std::slice::from_raw_parts(typeinfos, count) };
        for (number, place) in type_infos() {
            if let Some(given) = given.get(number)
                && !given.is_null()
                && place
                    .compare_exchange(ptr::null_mut(), given.cast_mut(), Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
            {
                pin_module_of(*given);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_typeinfo_stays() {
        let (one, two) = (1_u64, 2_u64);
        let mut infos = [ptr::null(); 8];
        infos[7] = ptr::from_ref(&one).cast::<c_void>();
        // SAFETY: eight pointers; those of classes that are not here are ignored.
        unsafe { nrdma_donate_rtti(infos.as_ptr(), 8) };
        // SAFETY: as above.
        unsafe { nrdma_donate_rtti(ptr::null(), 5) };
        let place = super::super::buffer::TABLE.type_info();
        let first = ptr::from_ref(&one).cast::<c_void>();
        let second = ptr::from_ref(&two).cast::<c_void>();
        // SAFETY: one pointer each.
        unsafe { nrdma_donate_rtti(&raw const first, 1) };
        // SAFETY: as above.
        unsafe { nrdma_donate_rtti(&raw const second, 1) };
        assert_eq!(place.load(Ordering::Acquire).cast_const(), first);
        place.store(ptr::null_mut(), Ordering::Release);
    }

    #[test]
    fn ids_are_laid_out_as_uuids() {
        assert_eq!((size_of::<nrdma_uuid>(), align_of::<nrdma_uuid>()), (16, 4));
    }
}
