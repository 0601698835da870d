//! `mi::neuraylib::IScheduler`: runs jobs without a transaction.
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use super::com::{self, Class, Com, Table, method};
use super::dice_job;
use super::error::{set_last, status};
use super::face::{Face, GetIid};
use super::fork;
use super::guard::guarded;
use super::interface::{nrdma_cxx_abi, nrdma_uuid};
use super::node::{borrow, nrdma_node};
use crate::core::error::Result;
use crate::core::node::{Node, shut_down};

/// What C++ points to.
#[repr(C)]
pub(crate) struct IScheduler {
    vtbl: *const c_void,
}

/// The function table, with the slots of mi::neuraylib::IScheduler.
#[repr(C)]
pub(crate) struct Vtbl<Iid = GetIid<IScheduler>> {
    retain: unsafe extern "C" fn(this: *const IScheduler) -> u32,
    release: unsafe extern "C" fn(this: *const IScheduler) -> u32,
    get_interface_const: unsafe extern "C" fn(*const IScheduler, *const nrdma_uuid) -> *const c_void,
    get_interface: unsafe extern "C" fn(*mut IScheduler, *const nrdma_uuid) -> *mut c_void,
    get_iid: Iid,
    execute_fragmented: unsafe extern "C" fn(this: *mut IScheduler, job: *mut c_void, count: u64) -> i32,
    execute_fragmented_async:
        unsafe extern "C" fn(*mut IScheduler, job: *mut c_void, count: u64, listener: *mut c_void) -> i32,
    suspend_current_job: unsafe extern "C" fn(this: *mut IScheduler),
    resume_current_job: unsafe extern "C" fn(this: *mut IScheduler),
    yield_: unsafe extern "C" fn(this: *mut IScheduler),
}

const VTBL: Vtbl = Vtbl {
    retain: com::retain::<Scheduler>,
    release: com::release::<Scheduler>,
    get_interface_const: com::get_interface_const::<Scheduler>,
    get_interface: com::get_interface::<Scheduler>,
    get_iid: com::get_iid::<Scheduler>,
    execute_fragmented: method!(Scheduler, |this: *mut IScheduler, job: *mut c_void, count: u64| -> i32 {
        this.value().with(|node| {
            // SAFETY: C++ passes a live job or NULL.
            unsafe { dice_job::execute(node, job, ptr::null_mut(), count, this.face) }
        })
    }),
    execute_fragmented_async: method!(Scheduler, |this: *mut IScheduler,
                                                  job: *mut c_void,
                                                  count: u64,
                                                  listener: *mut c_void|
     -> i32 {
        this.value().with(|node| {
            // SAFETY: C++ passes a live job and a live listener, or NULL.
            unsafe { dice_job::execute_async(node, job, ptr::null_mut(), count, listener, this.face) }
        })
    }),
    suspend_current_job: method!(Scheduler, |this: *mut IScheduler| -> () {
        this.value().with(|node| {
            node.suspend_callback();
            Ok(())
        });
    }),
    resume_current_job: method!(Scheduler, |this: *mut IScheduler| -> () {
        this.value().with(|node| {
            node.resume_callback();
            Ok(())
        });
    }),
    yield_: method!(Scheduler, |this: *mut IScheduler| -> () {
        this.value().with(|node| {
            node.yield_callback();
            Ok(())
        });
    }),
};

pub(crate) static TABLE: Table<Vtbl> = Table::new(VTBL);

#[cfg(windows)]
static MSVC: super::face::MsvcTable<Vtbl<super::face::GetIidMsvc<IScheduler>>> = super::face::MsvcTable::new(
    &super::rtti_msvc::SCHEDULER,
    Vtbl {
        retain: VTBL.retain,
        release: VTBL.release,
        get_interface_const: VTBL.get_interface_const,
        get_interface: VTBL.get_interface,
        get_iid: super::face::get_iid_msvc::<Scheduler>,
        execute_fragmented: VTBL.execute_fragmented,
        execute_fragmented_async: VTBL.execute_fragmented_async,
        suspend_current_job: VTBL.suspend_current_job,
        resume_current_job: VTBL.resume_current_job,
        yield_: VTBL.yield_,
    },
);

/// A node's scheduler. The node may end before it.
pub(crate) struct Scheduler(Weak<Node>);

impl Class for Scheduler {
    type Interface = IScheduler;
    type Vtbl = Vtbl;
    type Line = ();
    const NAME: &'static str = "scheduler";
    const IIDS: &'static [nrdma_uuid] =
        &[nrdma_uuid::new(0xd075_4018, 0x48e0_ca8f, 0x83eb_378a, 0x2085_b731)];
    fn table() -> &'static Table<Vtbl> {
        &TABLE
    }
    #[cfg(windows)]
    fn msvc() -> *const c_void {
        MSVC.address()
    }
}

impl Scheduler {
    fn with(&self, call: impl FnOnce(&Arc<Node>) -> Result<()>) -> i32 {
        let node = fork::check().and_then(|()| self.0.upgrade().ok_or_else(shut_down));
        match node.and_then(|node| call(&node)) {
            Ok(()) => 0,
            Err(error) => {
                set_last(&error);
                status(error.kind)
            }
        }
    }
}

/// The node's mi::neuraylib::IScheduler, +1. Its execute_fragmented runs jobs of every mode, with NULL as their
/// transaction; after the end of the node it returns NRDMA_SHUT_DOWN.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_get_scheduler_abi(
    node: *mut nrdma_node,
    abi: nrdma_cxx_abi,
) -> *mut c_void {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let face = Face::of(abi)?;
        Ok(Com::new(Scheduler(Arc::downgrade(node))).into_raw(face).cast::<c_void>())
    })
}
