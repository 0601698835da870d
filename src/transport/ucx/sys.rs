//! UCX behind safe types. Whoever has `&mut Worker` owns it for the moment; what UCX calls back with becomes an
//! event that the owner takes later, when no call of UCX is under way.
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::mem;
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::address::{Raw, from_raw};
use super::context::{Context, Mapped};
use super::ffi::*;
use super::library::Ucx;
use super::pending::Pending;
use super::status::{Posted, Status};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Span;

/// The number of our active messages.
const MESSAGE: u32 = 110;
/// The longest header that is looked at.
const MAX_HEADER: usize = 256;
/// The most bytes that come with a message; more are asked for by their receiver.
pub(super) const MAX_EAGER: usize = 64 << 10;

/// Locks; what a panic left behind a lock of ours is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of a peer's registered memory, for one endpoint; given back with [`Worker::drop_key`].
pub(super) struct Key(ucp_rkey_h);
// SAFETY: only ever given to UCX by a worker's owner.
unsafe impl Send for Key {}

/// An endpoint's number; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct EpId(u64);

/// Somebody who wants to connect. To be accepted or rejected.
pub(super) struct Caller(ucp_conn_request_h);
// SAFETY: only ever given to UCX by a worker's owner.
unsafe impl Send for Caller {}

/// What came with a message.
pub(super) enum Data {
    Bytes(Vec<u8>),
    /// Bytes that still wait at the sender; to be received or refused.
    Waiting(Waiting),
    /// More bytes than anybody who keeps to the rules sends this way.
    TooLong(usize),
}

/// Bytes that wait at their sender.
pub(super) struct Waiting {
    raw: *mut c_void,
    pub(super) len: usize,
}
// SAFETY: only ever given to UCX by a worker's owner.
unsafe impl Send for Waiting {}

/// What happened.
pub(super) enum Event {
    /// A message; `from`: the endpoint, if the sender wants an answer.
    Message { header: Vec<u8>, data: Data, from: Option<EpId> },
    /// Something that was begun is over; with the bytes that it was about.
    Over { what: Pending, bytes: Vec<u8>, status: Status },
    /// An endpoint has failed.
    Failed { ep: EpId, status: Status },
    /// Somebody wants to connect.
    Called(Caller),
}

/// As the callbacks leave it.
enum Told {
    Message { header: Vec<u8>, data: Data, reply: ucp_ep_h },
    Over { op: *mut Op, status: ucs_status_t, request: *mut c_void },
    Failed { ep: EpId, status: ucs_status_t },
    Called(Caller),
}
// SAFETY: only looked into by the worker's owner.
unsafe impl Send for Told {}

type Events = Mutex<VecDeque<Told>>;

/// What an operation is about, for as long as UCX may look at it.
struct Op {
    events: Arc<Events>,
    what: Option<Pending>,
    header: Vec<u8>,
    bytes: Vec<u8>,
    /// The source of a write, and its registration.
    _source: Option<(Span, Arc<Mapped>)>,
}

/// What an endpoint's callback is told.
struct Cookie {
    events: Arc<Events>,
    id: EpId,
}

/// Where operations begin and events come from; one thread at a time.
pub(super) struct Worker {
    context: Arc<Context>,
    raw: ucp_worker_h,
    efd: i32,
    /// Callbacks have its address.
    events: Arc<Events>,
    ops: HashSet<*mut Op>,
    endpoints: HashMap<EpId, ucp_ep_h>,
    /// Endpoints have their addresses, for as long as the worker lives.
    cookies: Vec<Arc<Cookie>>,
    next: u64,
    listener: Option<ucp_listener_h>,
}
// SAFETY: a worker in mode SERIALIZED may be used by any thread, one at a time: `&mut self` everywhere.
unsafe impl Send for Worker {}

impl Worker {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let ucx = context.ucx;
        let params = ucp_worker_params_t {
            field_mask: UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
            thread_mode: UCS_THREAD_MODE_SERIALIZED,
            flags: UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the context lives; room for the answer.
        let made = unsafe { ucx.ucp_worker_create(context.raw, &params, &mut raw) };
        Status(made).check(ucx, "making a worker")?;
        let mut worker = Self {
            context: Arc::clone(context),
            raw,
            efd: -1,
            events: Arc::default(),
            ops: HashSet::new(),
            endpoints: HashMap::new(),
            cookies: Vec::new(),
            next: 0,
            listener: None,
        };
        let handler = ucp_am_handler_param_t {
            field_mask: UCP_AM_HANDLER_PARAM_FIELD_ID
                | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                | UCP_AM_HANDLER_PARAM_FIELD_CB
                | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            id: MESSAGE,
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb: Some(on_message),
            arg: worker.events_address(),
        };
        // SAFETY: the worker was just made; the queue lives longer than it.
        let set = unsafe { ucx.ucp_worker_set_am_recv_handler(raw, &handler) };
        Status(set).check(ucx, "setting the message handler")?;
        // SAFETY: room for the answer.
        let got = unsafe { ucx.ucp_worker_get_efd(raw, &mut worker.efd) };
        Status(got).check(ucx, "getting the worker's descriptor")?;
        Ok(worker)
    }

    fn ucx(&self) -> &'static Ucx {
        self.context.ucx
    }

    fn events_address(&self) -> *mut c_void {
        ptr::from_ref(self.events.as_ref()).cast_mut().cast()
    }

    /// Readable when an armed worker has something to do.
    pub(super) fn efd(&self) -> i32 {
        self.efd
    }

    /// Moves everything on a little; how much there was to do.
    pub(super) fn progress(&mut self) -> u32 {
        // SAFETY: the worker lives, and callbacks only add to the queue.
        unsafe { self.ucx().ucp_worker_progress(self.raw) }
    }

    /// Asks for the descriptor to become readable. False: there is something to do first.
    pub(super) fn arm(&mut self) -> bool {
        // SAFETY: the worker lives.
        let armed = unsafe { self.ucx().ucp_worker_arm(self.raw) };
        armed == UCS_OK
    }

    /// Makes the descriptor readable.
    pub(super) fn signal(&mut self) {
        // SAFETY: the worker lives. Whoever cannot be woken looks by himself before long.
        unsafe { self.ucx().ucp_worker_signal(self.raw) };
    }

    /// Takes what happened, in order.
    pub(super) fn take(&mut self) -> Option<Event> {
        let told = lock(&self.events).pop_front()?;
        Some(match told {
            Told::Message { header, data, reply } => {
                let from = self.endpoints.iter().find(|(_, raw)| **raw == reply).map(|(id, _)| *id);
                Event::Message { header, data, from }
            }
            Told::Over { op, status, request } => {
                if !request.is_null() {
                    // SAFETY: ours, and completed.
                    unsafe { self.ucx().ucp_request_free(request) };
                }
                self.ops.remove(&op);
                // SAFETY: it was made by `op` below, and is over: UCX does not look at it any more.
                let op = unsafe { Box::from_raw(op) };
                let what = op.what.unwrap_or(Pending::Nothing);
                Event::Over { what, bytes: op.bytes, status: Status(status) }
            }
            Told::Failed { ep, status } => Event::Failed { ep, status: Status(status) },
            Told::Called(caller) => Event::Called(caller),
        })
    }

    // ---- connections

    /// Listens; the port.
    pub(super) fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr> {
        let at = Raw::of(at);
        let params = ucp_listener_params_t {
            field_mask: UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
            sockaddr: at.borrow(),
            conn_handler: ucp_listener_conn_handler_t { cb: Some(on_call), arg: self.events_address() },
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: all of it lives during the call, the queue longer than the listener.
        let made = unsafe { self.ucx().ucp_listener_create(self.raw, &params, &mut raw) };
        Status(made).check(self.ucx(), "listening")?;
        self.listener = Some(raw);
        let mut attr =
            ucp_listener_attr_t { field_mask: UCP_LISTENER_ATTR_FIELD_SOCKADDR, ..Default::default() };
        // SAFETY: room for the answer.
        let asked = unsafe { self.ucx().ucp_listener_query(raw, &mut attr) };
        Status(asked).check(self.ucx(), "asking for the listener's address")?;
        from_raw(&attr.sockaddr)
            .ok_or_else(|| Error::invalid("the listener has an address of a strange kind"))
    }

    fn endpoint(&mut self, mut params: ucp_ep_params_t) -> Result<EpId> {
        self.next += 1;
        let id = EpId(self.next);
        let cookie = Arc::new(Cookie { events: Arc::clone(&self.events), id });
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler =
            ucp_err_handler_t { cb: Some(on_failure), arg: ptr::from_ref(cookie.as_ref()).cast_mut().cast() };
        let mut raw = ptr::null_mut();
        // SAFETY: what the caller put in lives during the call; the cookie lives as long as the worker.
        let made = unsafe { self.ucx().ucp_ep_create(self.raw, &params, &mut raw) };
        self.cookies.push(cookie);
        Status(made).check(self.ucx(), "connecting")?;
        self.endpoints.insert(id, raw);
        Ok(id)
    }

    /// Begins to connect; failing later is an event.
    pub(super) fn connect(&mut self, to: SocketAddr) -> Result<EpId> {
        let to = Raw::of(to);
        self.endpoint(ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
            flags: UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
            sockaddr: to.borrow(),
            ..Default::default()
        })
    }

    pub(super) fn accept(&mut self, caller: Caller) -> Result<EpId> {
        self.endpoint(ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_CONN_REQUEST,
            conn_request: caller.0,
            ..Default::default()
        })
    }

    pub(super) fn reject(&mut self, caller: Caller) {
        if let Some(listener) = self.listener {
            // SAFETY: it came from this listener, and is used up by this.
            unsafe { self.ucx().ucp_listener_reject(listener, caller.0) };
        }
    }

    /// Gives an endpoint up without a word to its other end. What was begun on it is over soon, and so is
    /// `what`. False: it was gone.
    pub(super) fn close(&mut self, ep: EpId, what: Pending) -> bool {
        let Some(raw) = self.endpoints.remove(&ep) else { return false };
        let (op, mut params) = self.op(what, Vec::new(), Vec::new(), None);
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = UCP_EP_CLOSE_FLAG_FORCE;
        params.cb = ucp_request_cb_t { send: Some(on_sent) };
        // SAFETY: the endpoint lived until now.
        let posted = unsafe { self.ucx().ucp_ep_close_nbx(raw, &params) };
        self.posted(op, posted, "closing").is_ok()
    }

    // ---- operations

    fn op(
        &mut self,
        what: Pending,
        header: Vec<u8>,
        bytes: Vec<u8>,
        source: Option<(Span, Arc<Mapped>)>,
    ) -> (*mut Op, ucp_request_param_t) {
        let events = Arc::clone(&self.events);
        let op = Box::into_raw(Box::new(Op { events, what: Some(what), header, bytes, _source: source }));
        self.ops.insert(op);
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
            user_data: op.cast(),
            ..Default::default()
        };
        (op, params)
    }

    /// Err: it was not begun, and what it was about is dropped.
    fn posted(&mut self, op: *mut Op, answer: ucs_status_ptr_t, what: &str) -> Result<()> {
        match Posted::of(answer) {
            Posted::Done => {
                let over = Told::Over { op, status: UCS_OK, request: ptr::null_mut() };
                lock(&self.events).push_back(over);
                Ok(())
            }
            Posted::Request(_) => Ok(()),
            Posted::Failed(status) => {
                self.ops.remove(&op);
                // SAFETY: made by `op`; UCX did not take it.
                drop(unsafe { Box::from_raw(op) });
                status.check(self.ucx(), what)
            }
        }
    }

    fn raw_endpoint(&self, ep: EpId) -> Result<ucp_ep_h> {
        let raw = self.endpoints.get(&ep).copied();
        raw.ok_or_else(|| Error::new(Kind::PeerLost, "the endpoint was closed"))
    }

    /// Sends a message. More than [`MAX_EAGER`] bytes wait until their receiver asks for them. `answer`: the
    /// receiver is told which endpoint they came by.
    pub(super) fn send(
        &mut self,
        ep: EpId,
        header: Vec<u8>,
        bytes: Vec<u8>,
        answer: bool,
        what: Pending,
    ) -> Result<()> {
        let ep = self.raw_endpoint(ep)?;
        let kind = if bytes.len() > MAX_EAGER { UCP_AM_SEND_FLAG_RNDV } else { UCP_AM_SEND_FLAG_EAGER };
        let (op, mut params) = self.op(what, header, bytes, None);
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = kind | if answer { UCP_AM_SEND_FLAG_REPLY } else { 0 };
        params.cb = ucp_request_cb_t { send: Some(on_sent) };
        // SAFETY: just made.
        let Op { header, bytes, .. } = unsafe { &*op };
        let (head, head_len) = (header.as_ptr().cast(), header.len());
        let (data, len) = (if bytes.is_empty() { ptr::null() } else { bytes.as_ptr().cast() }, bytes.len());
        // SAFETY: the endpoint lives; header and bytes live until the operation is over.
        let posted = unsafe { self.ucx().ucp_am_send_nbx(ep, MESSAGE, head, head_len, data, len, &params) };
        self.posted(op, posted, "sending")
    }

    /// Receives bytes that wait at their sender.
    pub(super) fn receive(&mut self, waiting: Waiting, what: Pending) -> Result<()> {
        let mut room = Vec::new();
        if room.try_reserve_exact(waiting.len).is_err() {
            let text = format!("no memory for {} bytes that a peer sent", waiting.len);
            self.refuse(waiting);
            return Err(Error::new(Kind::OutOfMemory, text));
        }
        room.resize(waiting.len, 0);
        let (op, mut params) = self.op(what, Vec::new(), room, None);
        params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        params.cb = ucp_request_cb_t { recv_am: Some(on_received) };
        // SAFETY: just made, and not looked at by anybody else.
        let to = unsafe { (*op).bytes.as_mut_ptr() };
        // SAFETY: the worker lives; the room lives until the operation is over.
        let posted = unsafe {
            self.ucx().ucp_am_recv_data_nbx(self.raw, waiting.raw, to.cast(), waiting.len, &params)
        };
        self.posted(op, posted, "receiving")
    }

    /// Lets bytes go that wait at their sender.
    pub(super) fn refuse(&mut self, waiting: Waiting) {
        // SAFETY: kept by the message's callback, and used up by this.
        unsafe { self.ucx().ucp_am_data_release(self.raw, waiting.raw) };
    }

    /// Writes a span of registered memory into a peer's.
    pub(super) fn put(
        &mut self,
        ep: EpId,
        span: &Span,
        source: &Arc<Mapped>,
        to: u64,
        key: &Key,
        what: Pending,
    ) -> Result<()> {
        let ep = self.raw_endpoint(ep)?;
        let (op, mut params) =
            self.op(what, Vec::new(), Vec::new(), Some((span.clone(), Arc::clone(source))));
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        params.memh = source.raw;
        params.memory_type = UCS_MEMORY_TYPE_HOST;
        params.cb = ucp_request_cb_t { send: Some(on_sent) };
        let from = ptr::with_exposed_provenance::<c_void>(span.block.address() + span.offset);
        // SAFETY: endpoint and key live; the source and its registration live until the operation is over.
        let posted = unsafe { self.ucx().ucp_put_nbx(ep, from, span.len, to, key.0, &params) };
        self.posted(op, posted, "writing")
    }

    /// Over when all that was sent and written before has reached the peer.
    pub(super) fn flush(&mut self, ep: EpId, what: Pending) -> Result<()> {
        let ep = self.raw_endpoint(ep)?;
        let (op, mut params) = self.op(what, Vec::new(), Vec::new(), None);
        params.cb = ucp_request_cb_t { send: Some(on_sent) };
        // SAFETY: the endpoint lives.
        let posted = unsafe { self.ucx().ucp_ep_flush_nbx(ep, &params) };
        self.posted(op, posted, "flushing")
    }

    /// A peer's key as it packed it. UCX believes what is written there: only from a peer that proved itself.
    pub(super) fn unpack(&mut self, ep: EpId, packed: &[u8]) -> Result<Key> {
        let ep = self.raw_endpoint(ep)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the endpoint lives; the bytes are those that an authenticated UCX of the peer's packed.
        let unpacked = unsafe { self.ucx().ucp_ep_rkey_unpack(ep, packed.as_ptr().cast(), &mut raw) };
        Status(unpacked).check(self.ucx(), "unpacking a key")?;
        Ok(Key(raw))
    }

    /// Before its endpoint is closed, and after the writes that use it.
    pub(super) fn drop_key(&mut self, key: Key) {
        // SAFETY: made by `unpack`, used up by this.
        unsafe { self.ucx().ucp_rkey_destroy(key.0) };
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.context.is_ours() {
            // What a child would clean up here is its parent's.
            mem::forget(mem::take(&mut self.events));
            mem::forget(mem::take(&mut self.cookies));
            return;
        }
        let open: Vec<EpId> = self.endpoints.keys().copied().collect();
        for ep in open {
            self.close(ep, Pending::Nothing);
        }
        for _ in 0..1000 {
            if self.ops.is_empty() {
                break;
            }
            self.progress();
            while let Some(event) = self.take() {
                match event {
                    Event::Called(caller) => self.reject(caller),
                    Event::Message { data: Data::Waiting(waiting), .. } => self.refuse(waiting),
                    _ => {}
                }
            }
        }
        if let Some(listener) = self.listener.take() {
            // SAFETY: made by `listen`.
            unsafe { self.ucx().ucp_listener_destroy(listener) };
        }
        // SAFETY: nothing uses the worker any more.
        unsafe { self.ucx().ucp_worker_destroy(self.raw) };
        for op in self.ops.drain() {
            // SAFETY: made by `op`; with its worker gone nobody looks at it any more.
            drop(unsafe { Box::from_raw(op) });
        }
    }
}

// ---- what UCX calls: in `progress`, with the owner waiting. They only add to the queue.

fn tell(events: &Events, told: Told) {
    lock(events).push_back(told);
}

/// The queue whose address UCX was given.
///
/// # Safety
/// It is that of a living worker.
unsafe fn queue<'a>(arg: *mut c_void) -> &'a Events {
    // SAFETY: by the contract above.
    unsafe { &*arg.cast::<Events>() }
}

unsafe extern "C" fn on_sent(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void) {
    let op = user_data.cast::<Op>();
    // SAFETY: the operation lives until its end was taken.
    let events = unsafe { &(*op).events };
    tell(events, Told::Over { op, status, request });
}

unsafe extern "C" fn on_received(
    request: *mut c_void,
    status: ucs_status_t,
    _length: usize,
    user_data: *mut c_void,
) {
    let op = user_data.cast::<Op>();
    // SAFETY: as in `on_sent`.
    let events = unsafe { &(*op).events };
    tell(events, Told::Over { op, status, request });
}

unsafe extern "C" fn on_failure(arg: *mut c_void, _ep: ucp_ep_h, status: ucs_status_t) {
    // SAFETY: the endpoint's cookie, which lives as long as the worker.
    let cookie = unsafe { &*arg.cast::<Cookie>() };
    tell(&cookie.events, Told::Failed { ep: cookie.id, status });
}

unsafe extern "C" fn on_call(request: ucp_conn_request_h, arg: *mut c_void) {
    // SAFETY: UCX calls only while the worker lives.
    let events = unsafe { queue(arg) };
    tell(events, Told::Called(Caller(request)));
}

unsafe extern "C" fn on_message(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    let copy = |from: *const c_void, len: usize, most: usize| match from.is_null() || len > most {
        true => Vec::new(),
        // SAFETY: valid during this callback.
        false => unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec(),
    };
    // SAFETY: valid during this callback.
    let param = unsafe { &*param };
    let replies = param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP != 0;
    let waits = param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV != 0;
    let bytes = match (waits, length) {
        (true, len) => Data::Waiting(Waiting { raw: data, len }),
        (false, len) if len > MAX_EAGER => Data::TooLong(len),
        (false, len) => Data::Bytes(copy(data, len, MAX_EAGER)),
    };
    let reply = if replies { param.reply_ep } else { ptr::null_mut() };
    // SAFETY: UCX calls only while the worker lives.
    let events = unsafe { queue(arg) };
    tell(events, Told::Message { header: copy(header, header_length, MAX_HEADER), data: bytes, reply });
    if waits { UCS_INPROGRESS } else { UCS_OK }
}
