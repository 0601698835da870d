//! Classes of real DiCE objects: made by an IUser_class_factory, filled by deserialize. One that is an
//! IFragmented_job can be run here for others.
use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use super::buffer::{lease_from_raw, nrdma_buffer};
use super::context::{Context, nrdma_context};
use super::deserializer;
use super::error::nrdma_status;
use super::execution_context;
use super::face::Face;
use super::foreign::{Held, IFRAGMENTED_JOB, Pointer, Transactions, call, slot};
use super::guard::guarded;
use super::interface::{nrdma_cxx_abi, nrdma_uuid};
use super::node::{borrow, nrdma_node};
use super::serializer;
use crate::core::buffer::Lease;
use crate::core::error::{Error, Kind, Result};
use crate::core::fragment::Fragment;
use crate::core::job::{Class, FragmentInfo, Replica};
use crate::core::log;
use crate::core::node::{Node, shut_down};
use crate::core::registry::Registered;
use crate::core::wire::frame::Uuid;

/// A class as its factory makes it.
struct DiceClass {
    factory: Held,
    transactions: Transactions,
    node: Weak<Node>,
}

/// A job's replica.
struct DiceReplica {
    job: Held,
    transactions: Transactions,
    node: Weak<Node>,
}

/// The registered class of that id, if objects of it can be made.
pub(crate) fn find(node: &Node, class: Uuid) -> Option<Arc<Registered>> {
    node.class(&class).filter(|registered| registered.class().as_any().is::<DiceClass>())
}

/// Makes an empty object of a class that [`find`] found, for code of that face.
pub(crate) fn make(registered: &Registered, iid: &nrdma_uuid, face: Face) -> Result<Held> {
    match registered.class().as_any().downcast_ref::<DiceClass>() {
        Some(class) if class.factory.face() != face => Err(Error::new(
            Kind::NotRegistered,
            "the class was registered by code of another C++ compiler than asks for an object of it",
        )),
        Some(class) => class.make(iid),
        None => Err(Error::new(Kind::NotRegistered, "objects of this class cannot be made")),
    }
}

impl DiceClass {
    fn make(&self, iid: &nrdma_uuid) -> Result<Held> {
        let (factory, none) = (self.factory.pointer(), ptr::null_mut::<c_void>());
        let made = call!(
            factory,
            slot::CREATE,
            fn(*mut c_void, u32, *const *const c_void) -> *mut c_void,
            none,
            0,
            ptr::null()
        )
        .map_err(|error| in_call("create", error))?;
        // SAFETY: create gives NULL or a reference away.
        let object = unsafe { Held::adopt(made, self.factory.face()) };
        object.ok_or_else(|| Error::new(Kind::FragmentFailed, "create returned NULL"))?.as_interface(iid)
    }
}

/// A failure, with the function in which it happened.
pub(crate) fn in_call(function: &str, error: Error) -> Error {
    Error::new(error.kind, format!("{function}: {}", error.text))
}

impl Class for DiceClass {
    fn create(&self, payload: &[u8]) -> Result<Box<dyn Replica>> {
        let node = self.node.upgrade().ok_or_else(shut_down)?;
        let job = self.make(&IFRAGMENTED_JOB)?;
        deserializer::deserialize(&node, &job, payload)?;
        Ok(Box::new(DiceReplica { job, transactions: self.transactions, node: Weak::clone(&self.node) }))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Replica for DiceReplica {
    fn execute(&self, info: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<Option<Lease>> {
        let Pointer(transaction) = self.transactions.get()?;
        let context = Context::of_fragment(fragment);
        let (index, count, context, executing) = (
            info.index,
            info.count,
            context.interface(self.job.face()),
            execution_context::pointer(self.job.face()),
        );
        let buffer = call!(
            self.job.pointer(),
            slot::EXECUTE_FRAGMENT_REMOTE_RDMA,
            fn(*mut c_void, u64, u64, *mut nrdma_context, *const c_void) -> *mut nrdma_buffer,
            transaction,
            index,
            count,
            context,
            executing
        )
        .map_err(|error| in_call("execute_fragment_remote_rdma", error))?;
        if buffer.is_null() {
            return Ok(None);
        }
        // SAFETY: the function gives its reference away.
        unsafe { lease_from_raw(buffer) }.map(Some)
    }

    fn execute_bytes(&self, info: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<()> {
        let node = self.node.upgrade().ok_or_else(shut_down)?;
        let Pointer(transaction) = self.transactions.get()?;
        let face = self.job.face();
        let (index, count, executing) = (info.index, info.count, execution_context::pointer(face));
        serializer::write_result(&node, fragment, face, |stream| {
            call!(
                self.job.pointer(),
                slot::EXECUTE_FRAGMENT_REMOTE,
                fn(*mut c_void, *mut c_void, u64, u64, *const c_void) -> (),
                stream,
                transaction,
                index,
                count,
                executing
            )
            .map_err(|error| in_call("execute_fragment_remote", error))
        })
    }

    fn cancel(&self) {
        if let Err(error) = call!(self.job.pointer(), slot::CANCEL, fn() -> (),) {
            log::error!("cancel: {error}");
        }
    }
}

/// Registers a class; the factory is retained until it is taken back.
///
/// # Safety
/// `factory` is null or an IUser_class_factory that any thread may call.
pub(crate) unsafe fn register(
    node: &Arc<Node>,
    id: nrdma_uuid,
    factory: *mut c_void,
    transactions: Transactions,
    face: Face,
) -> Result<()> {
    // SAFETY: by the contract above.
    let factory = unsafe { Held::share(factory, face) }?;
    let factory = factory.ok_or_else(|| Error::invalid("the class factory is NULL"))?;
    let class = DiceClass { factory, transactions, node: Arc::downgrade(node) };
    node.register_class([id.id1, id.id2, id.id3, id.id4], Box::new(class))
}

/// Makes a class of DiCE objects known: jobs that this host runs for others, and what is serialized with them.
/// `iuser_class_factory` is a mi::neuraylib::IUser_class_factory, which is retained. `transaction`, unless NULL,
/// gives what a fragment of the class is passed as its transaction; it is called once for each, on the
/// executing thread. nrdma_node_unregister_class takes the class back.
///
/// # Safety
/// `node` is NULL or a node; the factory is NULL or an object of exactly that class, of the face that `abi` names;
/// `transaction` may be called with `user` on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_register_serializable_class_abi(
    node: *mut nrdma_node,
    class_id: nrdma_uuid,
    iuser_class_factory: *mut c_void,
    transaction: Option<unsafe extern "C-unwind" fn(user: *mut c_void) -> *mut c_void>,
    user: *mut c_void,
    abi: nrdma_cxx_abi,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let face = Face::of(abi)?;
        let transactions = Transactions::new(transaction, user);
        // SAFETY: by the contract above.
        unsafe { register(node, class_id, iuser_class_factory, transactions, face) }?;
        Ok(0)
    })
}
