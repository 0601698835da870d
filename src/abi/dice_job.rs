//! Real DiCE jobs, on the requester: an IFragmented_job driven through its virtual table.
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::buffer::{lease_as_raw, lease_from_raw, nrdma_buffer};
use super::context::{Context, nrdma_context};
use super::deserializer;
use super::dice_class::in_call;
use super::error::nrdma_status;
use super::execution_context;
use super::face::Face;
use super::foreign::{Held, Pointer, call, class_id, slot};
use super::guard::guarded;
use super::interface::nrdma_cxx_abi;
use super::node::{borrow, nrdma_node};
use super::serializer;
use crate::core::admission::{Load, WHOLE};
use crate::core::buffer::Lease;
use crate::core::error::{Error, Kind, Result};
use crate::core::home::Home;
use crate::core::job::{FragmentInfo, Job, Mode, ResultInfo, Spec};
use crate::core::log;
use crate::core::memory::Span;
use crate::core::node::Node;

/// What an asynchronous job keeps until its end.
struct Kept {
    /// Released by being dropped.
    _job: Held,
    listener: Option<Held>,
}

/// A job of the host's.
struct DiceJob {
    job: Pointer,
    face: Face,
    transaction: Pointer,
    mode: Mode,
    node: Weak<Node>,
    /// Its bytes, which the payload's span refers to.
    data: Vec<u8>,
    kept: Mutex<Option<Kept>>,
    /// Intermediate results that the job threw at, by fragment: they make the last one fail.
    refused: Mutex<HashMap<u64, (u32, Error)>>,
}

impl DiceJob {
    fn payload(&self, node: &Node) -> Option<Span> {
        let len = self.data.len();
        let block = || node.memory().wrap(self.data.as_ptr().expose_provenance(), len);
        (len > 0).then(|| Span { block: block(), offset: 0, len })
    }

    /// What becomes of a result that the job took, or threw at.
    fn took(&self, result: &ResultInfo, told: Result<()>) -> Result<()> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if !result.last {
            if let Err(error) = &told {
                refused.insert(result.index, (result.attempt, error.clone()));
            }
            return told;
        }
        match refused.remove(&result.index) {
            Some((attempt, error)) if attempt == result.attempt => told.and(Err(error)),
            _ => told,
        }
    }
}

impl Job for DiceJob {
    fn runs_here(&self) -> bool {
        self.mode != Mode::OncePerHost
    }

    fn goes_away(&self) -> bool {
        self.mode != Mode::Local
    }

    fn execute(&self, fragment: &FragmentInfo) -> Result<()> {
        let Pointer(transaction) = self.transaction;
        let (index, count, executing) =
            (fragment.index, fragment.count, execution_context::pointer(self.face));
        call!(
            self.job,
            slot::EXECUTE_FRAGMENT,
            fn(*mut c_void, u64, u64, *const c_void) -> (),
            transaction,
            index,
            count,
            executing
        )
        .map_err(|error| in_call("execute_fragment", error))
    }

    fn result_buffer(&self, home: &Arc<Home>, index: u64) -> Result<Option<Lease>> {
        let context = Context::of_host(home);
        let context = context.interface(self.face);
        let buffer = call!(
            self.job,
            slot::GET_RDMA_RESULT_BUFFER,
            fn(*mut nrdma_context, u64) -> *mut nrdma_buffer,
            context,
            index
        )
        .map_err(|error| in_call("get_rdma_result_buffer", error))?;
        if buffer.is_null() {
            return Ok(None);
        }
        // SAFETY: the function gives its reference away.
        unsafe { lease_from_raw(buffer) }.map(Some)
    }

    fn receive(&self, buffer: &Lease, result: &ResultInfo) -> Result<()> {
        let Pointer(transaction) = self.transaction;
        let (buffer, index, count) = (lease_as_raw(buffer, self.face), result.index, result.count);
        let told = call!(
            self.job,
            slot::RECEIVE_REMOTE_RESULT_RDMA,
            fn(*mut nrdma_buffer, *mut c_void, u64, u64) -> (),
            buffer,
            transaction,
            index,
            count
        );
        self.took(result, told.map_err(|error| in_call("receive_remote_result_rdma", error)))
    }

    fn receive_bytes(&self, bytes: &[u8], result: &ResultInfo) -> Result<()> {
        let Pointer(transaction) = self.transaction;
        let (index, count) = (result.index, result.count);
        let told = deserializer::read_result(&self.node, bytes, self.face, |stream| {
            call!(
                self.job,
                slot::RECEIVE_REMOTE_RESULT,
                fn(*mut c_void, *mut c_void, u64, u64) -> (),
                stream,
                transaction,
                index,
                count
            )
            .map_err(|error| in_call("receive_remote_result", error))
        });
        self.took(result, told)
    }

    fn assign_hosts(&self, slots: &mut [u32]) -> Result<()> {
        let (count, slots) = (slots.len() as u64, slots.as_mut_ptr());
        call!(self.job, slot::ASSIGN_FRAGMENTS_TO_HOSTS, fn(*mut u32, u64) -> (), slots, count)
            .map_err(|error| in_call("assign_fragments_to_hosts", error))
    }

    fn failed(&self, index: u64, why: &Error) {
        log::warn!("fragment {index} failed: {why}");
    }

    fn cancel(&self) {
        if let Err(error) = call!(self.job, slot::CANCEL, fn() -> (),) {
            log::error!("cancel: {error}");
        }
    }

    fn finished(&self, result: Result<()>) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Err(error) = result {
            log::warn!("an asynchronous job ended: {error}");
        }
        if let Some(listener) = kept.as_ref().and_then(|kept| kept.listener.as_ref())
            && let Err(error) = call!(listener.pointer(), slot::JOB_FINISHED, fn() -> (),)
        {
            log::error!("job_finished: {error}");
        }
    }
}

/// A load as a job says it.
fn thousandths(load: f32) -> u32 {
    // A cast saturates; NaN and what is negative become 0.
    #[expect(clippy::cast_possible_truncation)]
    let thousandths = (f64::from(load) * f64::from(WHOLE)) as i64;
    u32::try_from(thousandths.max(0)).unwrap_or(u32::MAX)
}

/// What the job says of itself, its codes checked in DiCE's order.
fn describe(job: Pointer, face: Face, count: u64, asynchronous: bool) -> Result<Spec> {
    if job.0.is_null() {
        return Err(Error::invalid("the job is NULL"));
    }
    let mode = call!(job, slot::GET_SCHEDULING_MODE, fn() -> i32,)?;
    let mode = Mode::from_number(mode)?;
    if count == 0 && (asynchronous || mode != Mode::OncePerHost) {
        return Err(Error::invalid(
            "a job of 0 fragments is only allowed in mode ONCE_PER_HOST, synchronously",
        ));
    }
    if asynchronous && mode != Mode::Local {
        let text = "an asynchronous job must be LOCAL; run one of another mode synchronously in a thread";
        return Err(Error::new(Kind::NotInFragment, text));
    }
    let priority = call!(job, slot::GET_PRIORITY, fn() -> i8,)?;
    if priority < 0 {
        let text = format!("priority {priority} is negative; 0 is the most urgent");
        return Err(Error::new(Kind::InvalidPriority, text));
    }
    let id = class_id(job, face)?;
    let cpu = call!(job, slot::GET_CPU_LOAD, fn() -> f32,)?;
    let gpu = call!(job, slot::GET_GPU_LOAD, fn() -> f32,)?;
    Ok(Spec {
        class: [id.id1, id.id2, id.id3, id.id4],
        mode,
        priority: i32::from(priority),
        thread_limit: call!(job, slot::GET_THREAD_LIMIT, fn() -> u64,)?,
        timeout: None,
        rerun_after_partial: true,
        load: Load { cpu: thousandths(cpu), gpu: thousandths(gpu) },
        loss_is_done: true,
    })
}

fn prepare(
    node: &Arc<Node>,
    job: Pointer,
    face: Face,
    transaction: *mut c_void,
    spec: &Spec,
) -> Result<DiceJob> {
    // Once, before any fragment starts: later changes never show elsewhere.
    let data = match spec.mode {
        Mode::Local => Vec::new(),
        _ => serializer::serialize(node, job, face)?,
    };
    Ok(DiceJob {
        job,
        face,
        transaction: Pointer(transaction),
        mode: spec.mode,
        node: Arc::downgrade(node),
        data,
        kept: Mutex::new(None),
        refused: Mutex::new(HashMap::new()),
    })
}

/// Runs a job to its end.
///
/// # Safety
/// `job` is null or an IFragmented_job that any thread may call.
pub(crate) unsafe fn execute(
    node: &Arc<Node>,
    job: *mut c_void,
    transaction: *mut c_void,
    count: u64,
    face: Face,
) -> Result<()> {
    let job = Pointer(job);
    let spec = describe(job, face, count, false)?;
    let job = prepare(node, job, face, transaction, &spec)?;
    let payload = job.payload(node);
    node.execute(Box::new(job), spec, count, payload)
}

/// Starts a job; it and its listener are retained until the listener's job_finished has returned.
///
/// # Safety
/// `job` is null or an IFragmented_job, `listener` is null or an IExecution_listener; any thread may call them.
pub(crate) unsafe fn execute_async(
    node: &Arc<Node>,
    job: *mut c_void,
    transaction: *mut c_void,
    count: u64,
    listener: *mut c_void,
    face: Face,
) -> Result<()> {
    let pointer = Pointer(job);
    let spec = describe(pointer, face, count, true)?;
    let prepared = prepare(node, pointer, face, transaction, &spec)?;
    // SAFETY: by the contract above.
    let listener = unsafe { Held::share(listener, face) }?;
    // SAFETY: by the contract above.
    if let Some(job) = unsafe { Held::share(job, face) }? {
        *prepared.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Kept { _job: job, listener });
    }
    let payload = prepared.payload(node);
    node.execute_async(Box::new(prepared), spec, count, payload, |_| ())
}

/// Runs a mi::neuraylib::IFragmented_job of `count` fragments to its end, in every mode; the calling thread
/// helps. `transaction` is passed to the job as it is. 0; -1: the job is NULL, or count is 0 and its mode is not
/// ONCE_PER_HOST; -3: its priority is negative; NRDMA_FRAGMENT_FAILED: a fragment threw, or its host lacks the class
/// (nrdma_last_error says which and why).
///
/// # Safety
/// `node` is NULL or a node; the job is NULL or an object of exactly that class, of the face that `abi` names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_execute_fragmented_abi(
    node: *mut nrdma_node,
    ifragmented_job: *mut c_void,
    transaction: *mut c_void,
    count: u64,
    abi: nrdma_cxx_abi,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let face = Face::of(abi)?;
        // SAFETY: by the contract above.
        unsafe { execute(node, ifragmented_job, transaction, count, face) }?;
        Ok(0)
    })
}

/// Starts a LOCAL mi::neuraylib::IFragmented_job. The mi::neuraylib::IExecution_listener, unless NULL, is told
/// once, after the last fragment, also when the node is shut down before; it and the job are retained until then.
/// 0; -1: the job is NULL or count is 0; -2: its mode is not LOCAL; -3: its priority is negative.
///
/// # Safety
/// As nrdma_node_execute_fragmented_abi; the listener is NULL or an object of exactly that class.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nrdma_node_execute_fragmented_async_abi(
    node: *mut nrdma_node,
    ifragmented_job: *mut c_void,
    transaction: *mut c_void,
    count: u64,
    iexecution_listener: *mut c_void,
    abi: nrdma_cxx_abi,
) -> nrdma_status {
    guarded(|| {
        // SAFETY: by the contract above.
        let node = unsafe { borrow(node) }?;
        let face = Face::of(abi)?;
        // SAFETY: by the contract above.
        unsafe { execute_async(node, ifragmented_job, transaction, count, iexecution_listener, face) }?;
        Ok(0)
    })
}
