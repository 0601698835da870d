//! The node's threads: what each does, and how any thread waits inside nrdma.
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admission::{Load, aside, step_in, step_out};
use super::error::{Error, Kind, Result};
use super::lead::Rest;
use super::node::Node;
use super::pool::{Pool, Turn};
use super::remote::{Order, Remote};
use super::run::Run;
use super::sleeper::Sleeper;

/// How long a thread beyond its pool's strength stays, in case it is needed again.
const LINGER: Duration = Duration::from_secs(1);
/// How often a thread that waits for room on a link looks by itself, should the news be late.
const ROOM: Duration = Duration::from_millis(20);

/// Something for an executor or a deliverer to do.
pub(crate) enum Work {
    /// Make a replica.
    Create(Arc<Remote>),
    /// Run a fragment for another host.
    Run(Arc<Remote>, Order),
    /// Run one fragment of a job of our own.
    Here(Arc<Run>),
    /// Deliver results and hand out fragments.
    Attend(Arc<Run>),
    /// Anything else.
    Call(Box<dyn FnOnce() + Send>),
}

impl Work {
    fn perform(self) {
        match self {
            Self::Create(remote) => remote.create(),
            Self::Run(remote, order) => remote.run(order),
            Self::Here(run) => run.here(),
            Self::Attend(run) => run.attend(),
            Self::Call(call) => call(),
        }
    }

    /// A panic, which would be a bug of ours, ends this piece of work and not the thread: the node goes on.
    fn perform_guarded(self) {
        survive("a worker thread", || self.perform());
    }
}

/// Runs `body`; a panic is logged and goes no further. False: there was one.
pub(crate) fn survive(whose: &str, body: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(body)) else {
        return true;
    };
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    super::log::error!("a bug in nrdma: {whose} panicked: {text}; please report it");
    // Dropping what somebody else threw could throw again.
    std::mem::forget(payload);
    false
}

/// Which pool the calling thread belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Foreign,
    Executor,
    Deliverer,
    Progress,
}

thread_local! {
    /// The calling thread's role, and the instance of its node.
    static ROLE: Cell<(Role, u64)> = const { Cell::new((Role::Foreign, 0)) };
    /// The callbacks that the calling thread is inside: each one's node, and how deep its job is nested.
    static CALLBACKS: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
    /// What the innermost callback gave up by suspending itself.
    static SUSPENDED: Cell<Option<Suspended>> = const { Cell::new(None) };
    /// The thread has no place in its pool: a callback that it is inside of is suspended.
    static AWAY: Cell<bool> = const { Cell::new(false) };
}

/// What a suspended callback takes back when it goes on.
#[derive(Clone, Copy)]
struct Suspended {
    load: Load,
    /// It gave up the thread's place in its pool.
    place: bool,
}

/// The calling thread is the progress thread of a node.
pub(crate) fn become_progress(node: &Node) {
    ROLE.set((Role::Progress, node.instance()));
}

/// Whether the calling thread is a progress thread: it must not be kept from its rounds.
pub(crate) fn is_progress() -> bool {
    ROLE.try_with(Cell::get).is_ok_and(|(role, _)| role == Role::Progress)
}

/// Jobs nested inside each other's callbacks, over all hosts.
const DEEPEST_JOB: u32 = 256;

/// Runs host code for a job at `depth`, remembering that this thread is inside a callback of `node`.
pub(crate) fn callback<R>(node: &Arc<Node>, depth: u32, body: impl FnOnce() -> R) -> R {
    struct Leave<'a>(&'a Node, Option<Suspended>);
    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            // Host code that suspended itself may return without having resumed.
            self.0.resume_callback();
            let _ = SUSPENDED.try_with(|suspended| suspended.set(self.1));
            let _ = CALLBACKS.try_with(|inside| inside.borrow_mut().pop());
        }
    }
    let instance = node.instance();
    let _ = CALLBACKS.try_with(|inside| inside.borrow_mut().push((instance, depth)));
    let _leave = Leave(node, SUSPENDED.try_with(Cell::take).ok().flatten());
    body()
}

/// Whether the calling thread is inside a callback of that node.
pub(crate) fn inside_callback(node: &Node) -> bool {
    let instance = node.instance();
    CALLBACKS.try_with(|inside| inside.borrow().iter().any(|(other, _)| *other == instance)).unwrap_or(false)
}

/// How deep a job is nested that starts here: 0 outside of all callbacks.
pub(crate) fn depth() -> u32 {
    let outer = CALLBACKS.try_with(|inside| inside.borrow().last().map(|(_, depth)| *depth));
    outer.ok().flatten().map_or(0, |depth| depth.saturating_add(1))
}

/// The body of an executor's thread.
pub(crate) fn execute(node: &Arc<Node>) {
    serve(node, Role::Executor, &node.executors);
}

/// The body of a deliverer's thread.
pub(crate) fn deliver(node: &Arc<Node>) {
    serve(node, Role::Deliverer, &node.deliverers);
}

/// Runs what is queued until the pool is stopped or the thread is one too many.
fn serve(node: &Arc<Node>, role: Role, pool: &Pool<Work>) {
    ROLE.set((role, node.instance()));
    let me = Sleeper::current();
    let mut finished = false;
    loop {
        match pool.turn(finished) {
            Turn::Work(work) => {
                work.perform_guarded();
                finished = true;
                continue;
            }
            Turn::Leave => return,
            Turn::Idle => finished = false,
        }
        if role == Role::Executor && lead_meanwhile(node, &me) || !pool.fall_asleep(&me) {
            continue;
        }
        let began = Instant::now();
        // An executor looks now and then whether it can lead.
        me.park((role == Role::Executor || pool.has_spares()).then_some(LINGER));
        pool.wake_up(&me);
        if began.elapsed() >= LINGER && pool.dismiss() {
            return;
        }
    }
}

/// An idle executor leads until there is work; false: somebody else does.
fn lead_meanwhile(node: &Node, me: &Arc<Sleeper>) -> bool {
    let pool = &node.executors;
    let Some(mut leading) = node.lead.stand_in(node.progress.as_ref()) else {
        return false;
    };
    let mut news = || pool.has_work() || pool.is_stopping() || node.lead.is_wanted();
    leading.until(me, None, &mut Idle { pool }, &mut news);
    true
}

/// An executor with nothing to do sleeps.
struct Idle<'a> {
    pool: &'a Pool<Work>,
}
impl Rest for Idle<'_> {
    fn before(&mut self, me: &Arc<Sleeper>) -> bool {
        self.pool.fall_asleep(me)
    }
    fn after(&mut self, me: &Arc<Sleeper>) {
        self.pool.wake_up(me);
    }
}

/// A thread with work to do waits inside it: a spare takes its place meanwhile.
struct Blocked<'a> {
    pool: Option<&'a Pool<Work>>,
}
impl Rest for Blocked<'_> {
    fn before(&mut self, _: &Arc<Sleeper>) -> bool {
        if let Some(pool) = self.pool {
            pool.block();
        }
        true
    }
    fn after(&mut self, _: &Arc<Sleeper>) {
        if let Some(pool) = self.pool {
            pool.unblock();
        }
    }
}

impl Node {
    fn own_pool(&self) -> Option<&Pool<Work>> {
        if AWAY.try_with(Cell::get).unwrap_or(true) {
            return None;
        }
        match ROLE.try_with(Cell::get).unwrap_or((Role::Foreign, 0)) {
            (Role::Executor, instance) if instance == self.instance() => Some(&self.executors),
            (Role::Deliverer, instance) if instance == self.instance() => Some(&self.deliverers),
            _ => None,
        }
    }

    /// The calling thread's callback is about to wait for something that nrdma does not see: its place is free
    /// for others until [`Node::resume_callback`], at the latest until it returns.
    pub(crate) fn suspend_callback(&self) {
        if !self.is_innermost() || SUSPENDED.get().is_some() {
            return;
        }
        let pool = self.own_pool();
        SUSPENDED.set(Some(Suspended { load: step_out(self), place: pool.is_some() }));
        if let Some(pool) = pool {
            AWAY.set(true);
            pool.block();
            // Jobs ask for as many threads as the pool is strong, and ours no longer counts.
            self.runs().iter().for_each(Run::spread);
        }
    }

    /// A suspended callback goes on, as soon as there is a place for it.
    pub(crate) fn resume_callback(&self) {
        if !self.is_innermost() {
            return;
        }
        let Some(Suspended { load, place }) = SUSPENDED.try_with(Cell::take).ok().flatten() else {
            return;
        };
        if place {
            AWAY.set(false);
            if let Some(pool) = self.own_pool() {
                pool.unblock_in_turn();
            }
        }
        step_in(self, load);
    }

    /// Whether the calling thread's innermost callback is one of this node.
    fn is_innermost(&self) -> bool {
        let last = CALLBACKS.try_with(|inside| inside.borrow().last().map(|(instance, _)| *instance));
        last.ok().flatten() == Some(self.instance())
    }

    /// Lets other work have the calling callback's place for a turn.
    pub(crate) fn yield_callback(&self) {
        match self.own_pool().filter(|_| self.is_innermost()) {
            Some(pool) => aside(self, || pool.give_way()),
            None => std::thread::yield_now(),
        }
    }

    /// Refuses a call that may wait when too many threads of the pool already do.
    pub(crate) fn check_depth(&self) -> Result<()> {
        if depth() >= DEEPEST_JOB {
            return Err(Error::new(
                Kind::OutOfMemory,
                format!(
                    "{DEEPEST_JOB} jobs already run inside each other's callbacks; nest jobs less deeply"
                ),
            ));
        }
        self.own_pool().map_or(Ok(()), Pool::check_depth)
    }

    /// Waits until `done` or `deadline`; whether it is done. Whoever makes it done wakes the thread's
    /// [`Sleeper`]. While it waits the thread polls the links for everybody, if nobody else does.
    pub(crate) fn wait(&self, deadline: Option<Instant>, done: &mut dyn FnMut() -> bool) -> bool {
        let me = Sleeper::current();
        let mut rest = Blocked { pool: self.own_pool() };
        if done() {
            return true;
        }
        let _wanted = self.lead.want();
        loop {
            if done() {
                return true;
            }
            if let Some(mut leading) = self.lead.take(self.progress.as_ref()) {
                return leading.until(&me, deadline, &mut rest, done);
            }
            let timeout = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if timeout.is_some_and(|t| t.is_zero()) {
                return done();
            }
            self.lead.follow(&me, timeout, &mut rest, done);
        }
    }

    /// Runs `body`, in which the calling thread mostly waits for another host: a spare may have its place meanwhile.
    pub(crate) fn meanwhile<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Back<'a>(&'a Pool<Work>);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                AWAY.set(false);
                self.0.unblock();
            }
        }
        let Some(pool) = self.own_pool() else { return body() };
        AWAY.set(true);
        pool.block();
        let _back = Back(pool);
        body()
    }

    /// Waits until a link has room. Nobody wakes us for that: we poll, or look now and then.
    pub(crate) fn wait_for_room(&self, room: &mut dyn FnMut() -> bool) {
        while !room() {
            self.wait(Some(Instant::now() + ROOM), room);
        }
    }
}
