//! `mi::neuraylib::IDice_configuration`, in both of its layouts.
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use super::com::{self, Class, Com, Table, method};
use super::context::{Context, nrdma_context};
use super::dice_class;
use super::error::set_last;
use super::face::{Face, GetIid};
use super::foreign::Transactions;
use super::fork;
use super::guard::guarded;
use super::interface::{nrdma_cxx_abi, nrdma_uuid};
use super::node::{borrow, nrdma_node};
use super::serializer::told;
use crate::core::error::{Error, Kind, Result};
use crate::core::node::{Node, shut_down};

/// The first API version whose table has unregister_serializable_class.
const UNREGISTERS: u32 = 45;

/// What C++ points to.
#[repr(C)]
pub(crate) struct IDice_configuration {
    vtbl: *const c_void,
}
type This = *mut IDice_configuration;

/// IInterface's part.
#[repr(C)]
pub(crate) struct Base<Iid> {
    retain: unsafe extern "C" fn(this: *const IDice_configuration) -> u32,
    release: unsafe extern "C" fn(this: *const IDice_configuration) -> u32,
    get_interface_const: unsafe extern "C" fn(*const IDice_configuration, *const nrdma_uuid) -> *const c_void,
    get_interface: unsafe extern "C" fn(This, *const nrdma_uuid) -> *mut c_void,
    get_iid: Iid,
}

/// What both layouts end with.
#[repr(C)]
pub(crate) struct Rest {
    set_gpu_enabled: unsafe extern "C" fn(this: This, value: bool) -> i32,
    get_gpu_enabled: unsafe extern "C" fn(this: This) -> bool,
    get_rdma_context: unsafe extern "C" fn(this: This, host_id: u32) -> *mut nrdma_context,
    get_highest_gpu_id: unsafe extern "C" fn(this: This, host_id: u32) -> u32,
    get_gpu_description: unsafe extern "C" fn(this: This, gpu_id: u32, host_id: u32) -> *const c_void,
}

type Register = unsafe extern "C" fn(this: This, class_id: nrdma_uuid, factory: *mut c_void) -> bool;

/// The function table since API version 45.
#[repr(C)]
pub(crate) struct Vtbl<Iid = GetIid<IDice_configuration>> {
    base: Base<Iid>,
    register_serializable_class: Register,
    unregister_serializable_class: unsafe extern "C" fn(this: This, class_id: nrdma_uuid) -> bool,
    rest: Rest,
}

/// The function table before, under the same id.
#[repr(C)]
pub(crate) struct Vtbl2019<Iid = GetIid<IDice_configuration>> {
    base: Base<Iid>,
    register_serializable_class: Register,
    rest: Rest,
}

/// The functions that both layouts have.
macro_rules! base {
    ($class:ty, $iid:expr) => {
        Base {
            retain: com::retain::<$class>,
            release: com::release::<$class>,
            get_interface_const: com::get_interface_const::<$class>,
            get_interface: com::get_interface::<$class>,
            get_iid: $iid,
        }
    };
}
macro_rules! register {
    ($class:ty) => {
        method!($class, |this: This, class_id: nrdma_uuid, factory: *mut c_void| -> bool {
            // SAFETY: C++ passes a live factory or NULL.
            told(unsafe { this.value().0.register(class_id, factory, this.face) })
        })
    };
}
macro_rules! rest {
    ($class:ty) => {
        Rest {
            set_gpu_enabled: method!($class, |this: This, value: bool| -> i32 {
                let _ = this;
                if told(set_gpu_enabled(value)) { 0 } else { -1 }
            }),
            get_gpu_enabled: method!($class, |this: This| -> bool {
                let _ = this;
                false
            }),
            get_rdma_context: method!($class, |this: This, host_id: u32| -> *mut nrdma_context {
                this.value().0.rdma_context(host_id, this.face)
            }),
            get_highest_gpu_id: method!($class, |this: This, host_id: u32| -> u32 {
                let _ = (this, host_id);
                0
            }),
            get_gpu_description: method!($class, |this: This, gpu_id: u32, host_id: u32| -> *const c_void {
                let _ = (this, gpu_id, host_id);
                ptr::null()
            }),
        }
    };
}

/// The table of a layout, with a face's get_iid: all else is the same.
macro_rules! vtbl {
    ($class:ty, $iid:expr) => {
        Vtbl {
            base: base!($class, $iid),
            register_serializable_class: register!($class),
            unregister_serializable_class: method!($class, |this: This, class_id: nrdma_uuid| -> bool {
                told(this.value().0.unregister(class_id))
            }),
            rest: rest!($class),
        }
    };
}
macro_rules! vtbl_2019 {
    ($class:ty, $iid:expr) => {
        Vtbl2019 {
            base: base!($class, $iid),
            register_serializable_class: register!($class),
            rest: rest!($class),
        }
    };
}

pub(crate) static TABLE: Table<Vtbl> = Table::new(vtbl!(Configuration, com::get_iid::<Configuration>));
pub(crate) static TABLE_2019: Table<Vtbl2019> =
    Table::new(vtbl_2019!(Configuration2019, com::get_iid::<Configuration2019>));

#[cfg(windows)]
static MSVC: super::face::MsvcTable<Vtbl<super::face::GetIidMsvc<IDice_configuration>>> =
    super::face::MsvcTable::new(
        &super::rtti_msvc::DICE_CONFIGURATION,
        vtbl!(Configuration, super::face::get_iid_msvc::<Configuration>),
    );
#[cfg(windows)]
static MSVC_2019: super::face::MsvcTable<Vtbl2019<super::face::GetIidMsvc<IDice_configuration>>> =
    super::face::MsvcTable::new(
        &super::rtti_msvc::DICE_CONFIGURATION,
        vtbl_2019!(Configuration2019, super::face::get_iid_msvc::<Configuration2019>),
    );

const IIDS: &[nrdma_uuid] = &[nrdma_uuid::new(0xfccb_f7b8, 0x4fbf_30d1, 0x963b_c6bd, 0x6a40_fbe1)];

/// What both do; the node may end before it.
struct Settings(Weak<Node>);
/// With the newer table.
pub(crate) struct Configuration(Settings);
/// With the older one.
pub(crate) struct Configuration2019(Settings);

impl Class for Configuration {
    type Interface = IDice_configuration;
    type Vtbl = Vtbl;
    type Line = ();
    const NAME: &'static str = "DiCE configuration";
    const IIDS: &'static [nrdma_uuid] = IIDS;
    fn table() -> &'static Table<Vtbl> {
        &TABLE
    }
    #[cfg(windows)]
    fn msvc() -> *const c_void {
        MSVC.address()
    }
}

impl Class for Configuration2019 {
    type Interface = IDice_configuration;
    type Vtbl = Vtbl2019;
    type Line = ();
    const NAME: &'static str = "DiCE configuration";
    const IIDS: &'static [nrdma_uuid] = IIDS;
    fn table() -> &'static Table<Vtbl2019> {
        &TABLE_2019
    }
    #[cfg(windows)]
    fn msvc() -> *const c_void {
        MSVC_2019.address()
    }
}

fn set_gpu_enabled(value: bool) -> Result<()> {
    match value {
        false => Ok(()),
        true => Err(Error::new(Kind::NotSupported, "there are no buffers on GPUs in this version")),
    }
}

impl Settings {
    fn node(&self) -> Result<Arc<Node>> {
        fork::check()?;
        self.0.upgrade().ok_or_else(shut_down)
    }

    /// # Safety
    /// `factory` is null or an IUser_class_factory that any thread may call.
    unsafe fn register(&self, class_id: nrdma_uuid, factory: *mut c_void, face: Face) -> Result<()> {
        let transactions = Transactions::new(None, ptr::null_mut());
        // SAFETY: by the contract above.
        unsafe { dice_class::register(&self.node()?, class_id, factory, transactions, face) }
    }

    fn unregister(&self, class_id: nrdma_uuid) -> Result<()> {
        let nrdma_uuid { id1, id2, id3, id4 } = class_id;
        let node = self.node()?;
        node.unregister_class([id1, id2, id3, id4], Some(node.config.shutdown_timeout))
    }

    fn rdma_context(&self, host_id: u32, face: Face) -> *mut nrdma_context {
        match self.node().and_then(|node| node.home(host_id)) {
            Ok(home) => Context::of_host(&home).into_raw(face),
            Err(error) => {
                set_last(&error);
                ptr::null_mut()
            }
        }
    }
}

/// The node's mi::neuraylib::IDice_configuration, +1, in the layout of that API version
/// (MI_NEURAYLIB_API_VERSION; its functions moved at version 45). GPUs are not known in this version.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_get_dice_configuration_abi(
    node: *mut nrdma_node,
    neuray_api_version: u32,
    abi: nrdma_cxx_abi,
) -> *mut c_void {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let face = Face::of(abi)?;
        let settings = Settings(Arc::downgrade(node));
        Ok(match neuray_api_version < UNREGISTERS {
            true => Com::new(Configuration2019(settings)).into_raw(face).cast::<c_void>(),
            false => Com::new(Configuration(settings)).into_raw(face).cast::<c_void>(),
        })
    })
}
