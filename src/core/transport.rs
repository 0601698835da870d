//! What an engine must offer to carry frames and result bytes between two nodes.
//!
//! Control first: a [`Control`] channel connects two processes, both ends prove themselves and exchange
//! hellos with what each [`Engine`] offers (`core::wire::handshake`), then the best one by which they can meet
//! (`core::wire::meeting`) makes the [`Link`].
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, Kind, Result};
use super::memory::{Block, Span};
pub(crate) use super::source::{Share, Source};
pub(crate) use super::wire::channel::{ChannelProof, Sealer, TAG_BYTES};
pub(crate) use super::wire::meeting::Meeting;

/// The largest frame a link carries.
pub(crate) const MAX_FRAME: usize = 2048;

/// Where bytes of a result (or of a job's payload) belong on the receiving side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The job, numbered by its requester.
    pub(crate) job: u64,
    /// The fragment, or [`Place::PAYLOAD`].
    pub(crate) index: u64,
    /// Which try of the fragment: data of a superseded one is dropped.
    pub(crate) attempt: u32,
}
impl Place {
    /// The index that names the job's payload instead of a fragment.
    pub(crate) const PAYLOAD: u64 = u64::MAX;
}

/// Identifies shared memory on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RegionKey {
    /// Never reused by its node.
    pub(crate) id: u64,
    /// Guards against a stale descriptor.
    pub(crate) generation: u32,
}

/// Something that arrived on a link.
pub(crate) enum Incoming<'a> {
    /// A control frame (`core::wire::frame`).
    Frame(&'a [u8]),
    /// Bytes for a place. `chunk` is copied out and dropped, soon, by any thread; until then its room on the
    /// link is taken.
    Data { place: Place, offset: u64, chunk: Chunk },
    /// At most `len` bytes for a place are about to be read from the system. `receive` reads what there is,
    /// without waiting, straight to where they belong, and says how many it was; call it once at most. Not
    /// called: the bytes are dropped.
    Ready { place: Place, offset: u64, len: usize, receive: &'a mut dyn FnMut(Landing<'_>) -> Result<usize> },
    /// The peer made a region that it may name as a window.
    Region { key: RegionKey, capacity: u64, share: Share },
    /// The peer gives a region up; nothing will name it again.
    Forget(RegionKey),
}

/// Where bytes are received.
pub(crate) enum Landing<'a> {
    /// Memory that may be larger than what is read.
    Memory(&'a Span),
    /// Bytes of our own.
    Bytes(&'a mut [u8]),
}

/// Bytes waiting in a link's own memory; dropping it makes room.
pub(crate) struct Chunk {
    /// The bytes.
    pub(crate) span: Span,
    /// Runs on drop: gives the room back to the sender.
    pub(crate) done: Option<Box<dyn FnOnce() + Send>>,
}
impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done();
        }
    }
}

/// Who looks at a link's incoming side, and so what a sender must do after it has put something there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Attention {
    /// A thread polls it: nothing to do.
    Polled = 0,
    /// The leader sleeps in the node's leader [`Waiter`]: ring its bell.
    Leader = 1,
    /// Nobody polls: wake the progress thread through its [`Waiter`].
    Progress = 2,
}

/// What a link can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    /// The peer can map our shared memory: read memory is made shared, announced, and named as windows.
    pub(crate) maps: bool,
    /// What is put is received straight into its place.
    pub(crate) in_place: bool,
    /// It writes into the peer's memory by itself: read memory is exposed, and named as windows.
    pub(crate) writes: bool,
}

/// What is done when a write is over: it is in place, or why not.
pub(crate) type Written = Box<dyn FnOnce(Result<()>) + Send>;

/// One connected peer over one engine. All methods may be called from any thread.
pub(crate) trait Link: Send + Sync {
    /// `inproc`, `shm`, ...
    fn engine(&self) -> &'static str;
    /// What the link can do.
    fn caps(&self) -> Caps;
    /// Sends one frame of at most [`MAX_FRAME`] bytes, in order; never blocks (queues when there is no room;
    /// the queue is drained by later sends, polls and services). Err: the peer is gone.
    fn send(&self, frame: &[u8]) -> Result<()>;
    /// Takes at most `limit` frames or chunks that arrived and hands each to `sink`, in order. Returns how many;
    /// 0 also when another thread is polling this link right now. Err: the peer broke the protocol.
    fn poll(&self, limit: usize, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<usize>;
    /// As `poll` without a limit, but waits for another thread that polls: for a last look before the end.
    fn drain(&self, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<()>;
    /// Says who will look. True when something is already waiting: look again. Includes the full fence that
    /// makes "set, then look" and the peer's "put, then read" race-free.
    fn attention(&self, who: Attention) -> bool;
    /// The slow side, called by the progress thread when the link's watched source is ready or a bell
    /// arrived, and by others that miss a region: regions, forgets, hang-up. Err: the peer is gone
    /// ([`super::error::Kind::PeerLost`] with "hung up" = confirmed dead).
    fn service(&self, sink: &mut dyn FnMut(Incoming<'_>) -> Result<()>) -> Result<()>;
    /// When anything last arrived.
    fn last_heard(&self) -> Instant;
    /// Tells the peer of a new region. The share is closed on return. May wait shortly (up to 1 s) for room.
    fn announce(&self, key: RegionKey, capacity: u64, share: Share) -> Result<()>;
    /// Tells the peer to unmap a region.
    fn forget(&self, key: RegionKey) -> Result<()>;
    /// Sends as many bytes of `span`, from `skip` on, as there is room for now; returns how many (0 = no room;
    /// wait for [`Link::room`]). `offset` is where `span[skip]` goes at the place. The span may be reused at once.
    fn put(&self, place: Place, offset: u64, span: &Span, skip: usize) -> Result<usize>;
    /// Whether `put` would take anything.
    fn room(&self) -> bool;
    /// Memory of our own that may be given to [`Link::write`] later: the block to use in its place. A link that
    /// writes by itself registers it when it is first needed, and gives the registration up when it is dropped.
    fn keep(&self, block: Arc<dyn Block>) -> Arc<dyn Block> {
        block
    }
    /// Registers memory of our own for the peer to write to and tells it so, if the link [`writes`](Caps::writes).
    /// The block to use in its place: once that is detached, or the link closed, nothing that the peer writes
    /// reaches it any more. It is given up by [`Link::forget`].
    fn expose(&self, _key: RegionKey, _block: Arc<dyn Block>) -> Result<Arc<dyn Block>> {
        Err(Error::new(Kind::NotSupported, format!("{} does not write by itself", self.engine())))
    }
    /// The size of a region that the peer has exposed. Err: it has exposed no such region.
    fn exposed(&self, key: RegionKey) -> Result<u64> {
        Err(Error::new(Kind::Stale, format!("region {} was not exposed", key.id)))
    }
    /// Writes a span into an exposed region of the peer's. The span is in use until `written` is called, once,
    /// by [`Link::poll`], [`Link::drain`] or [`Link::close`] in any thread. Err: nothing was begun, `written` is
    /// dropped; [`Link::put`] may still do.
    fn write(&self, key: RegionKey, _offset: u64, _span: &Span, _written: Written) -> Result<()> {
        self.exposed(key).map(drop)
    }
    /// Hangs up on a peer that is lost, as [`Link::close`] does, without waiting for anything and without last words.
    /// What may take a while, that the peer no longer reaches our memory among it, is over when `close` has returned,
    /// which is called soon, by a thread that may wait.
    fn cut(&self) {
        self.close();
    }
    /// Hangs up; idempotent. The peer sees it at once; our own later calls fail.
    fn close(&self);
}

/// Where a thread sleeps until a descriptor is ready, `wake` is called, or time is over. One thread at a time
/// waits; anyone may watch, forget or wake.
pub(crate) trait Waiter: Send + Sync {
    /// Adds a descriptor to wait for. `edge`: an eventfd that is never read (each write wakes once); else
    /// level-triggered readability and hang-up.
    fn watch(&self, source: Source, token: u64, edge: bool) -> Result<()>;
    /// Watches a descriptor, or changes what it is watched for: always hang-up, and as told whether it can be
    /// read or written (all level-triggered).
    fn watch_for(&self, source: Source, token: u64, read: bool, write: bool) -> Result<()>;
    /// Removes a descriptor; call before it is closed.
    fn unwatch(&self, source: Source);
    /// Sleeps; tokens of what became ready are appended, each once. A `wake` before the call makes it return at once.
    fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>);
    /// Wakes the sleeper, or the next one.
    fn wake(&self);
}

/// What a link needs of its node.
#[derive(Clone)]
pub(crate) struct Seat {
    /// Token for the link's descriptors on both waiters.
    pub(crate) token: u64,
    /// Where the leader sleeps: watches the link's bell.
    pub(crate) leader: Arc<dyn Waiter>,
    /// Where the progress thread sleeps: watches the link's socket.
    pub(crate) progress: Arc<dyn Waiter>,
    /// The node itself, for engines that can hand over without a queue.
    pub(crate) direct: Arc<dyn Direct>,
}

/// A node that takes something in the calling thread; what it takes is used up on return.
pub(crate) trait Direct: Send + Sync {
    /// `token` is that of the receiving node's seat.
    fn incoming(&self, token: u64, incoming: Incoming<'_>) -> Result<()>;
}

/// A message channel to another process, before an engine takes it over: whole messages, with descriptors.
pub(crate) trait Control: Send {
    /// Sends one message of at most 64 KiB with at most 4 descriptors before `deadline`.
    fn send(&mut self, bytes: &[u8], shares: &[&Share], deadline: Instant) -> Result<()>;
    /// Receives one message before `deadline`. Err(PeerLost) at hang-up.
    fn receive(&mut self, limit: usize, deadline: Instant) -> Result<(Vec<u8>, Vec<Share>)>;
    /// User id of the process at the other end, by the kernel's word.
    fn peer_uid(&self) -> u32;
    /// Ours.
    fn own_uid(&self) -> u32;
    /// The address in words, for logs and peer info.
    fn address(&self) -> String;
    /// Whether it carries descriptors.
    fn carries_shares(&self) -> bool {
        false
    }
    /// Whether the other end may be on another host.
    fn is_remote(&self) -> bool {
        false
    }
    /// Where the listening end takes further connections of a session; None: nowhere.
    fn more_at(&self) -> Option<std::net::SocketAddr> {
        None
    }
    /// Our own end's address, when it has one.
    fn local(&self) -> Option<std::net::SocketAddr> {
        None
    }
    /// For a connection that was just accepted: waits for its first words, and hands it over if it is a further
    /// one of a session that expects it. False: it is a new peer's.
    fn claim(&mut self, _deadline: Instant) -> Result<bool> {
        Ok(false)
    }
    /// By which another thread ends it.
    fn breaker(&self) -> Arc<dyn Breaker>;
    /// Gives up the descriptor itself.
    fn into_share(self: Box<Self>) -> Share;
}

/// Ends a control channel that another thread has: whoever waits there gets an error at once, and the other end
/// sees a hang-up. Without effect once the channel is dropped or was given up.
pub(crate) trait Breaker: Send + Sync {
    /// Hangs up.
    fn cut(&self);
}

/// A listening address; dropping it stops listening and removes what it left in the file system.
pub(crate) trait Listener: Send + Sync {
    /// The address to connect to.
    fn bound(&self) -> String;
    /// Whether other hosts can connect.
    fn is_exposed(&self) -> bool {
        false
    }
    /// What to watch for readability.
    fn source(&self) -> Source;
    /// Takes one waiting connection, or None when there is none (any more).
    fn accept(&self) -> Result<Option<Box<dyn Control>>>;
}

/// A kind of address: how control channels come to be.
pub(crate) trait Network: Send + Sync {
    /// Whether the address is of this kind (`unix:...`).
    fn handles(&self, address: &str) -> bool;
    /// Listens.
    fn listen(&self, address: &str) -> Result<Box<dyn Listener>>;
    /// Listens; an address that leaves the interface open means this one (name, address or CIDR).
    fn listen_on(&self, address: &str, _interface: &str) -> Result<Box<dyn Listener>> {
        self.listen(address)
    }
    /// Connects.
    fn connect(&self, address: &str, deadline: Instant) -> Result<Box<dyn Control>>;
}

/// What both ends agreed on before an engine takes over.
#[derive(Clone)]
pub(crate) struct Session {
    /// The node that connected, or the one that listened.
    pub(crate) connector: bool,
    /// The same on both ends, random, names this connection.
    pub(crate) id: [u8; 16],
    /// Key for channels of this session, derived in the handshake.
    pub(crate) key: [u8; 32],
}

/// The longest offer.
pub(crate) const MAX_OFFER: usize = 512;

/// An engine: a way to carry frames and bytes between two nodes that have proved themselves.
///
/// How two nodes come to use one:
///
/// 1. Both ends call [`Engine::offer`] of each of their engines. The offers travel in the hellos, sealed: what a
///    peer reads there was said by somebody who knows the secret.
/// 2. The listener's end calls [`Candidate::unfit`] with the connector's offer, and sends the list of those that
///    are left, in its own order of preference. The connector's end calls it when the engine's turn comes.
/// 3. For one after the other both ends call [`Candidate::meet`] at the same time. When both say that they have
///    met, both call [`Met::start`], and the link is there. When either fails, both go on to the next.
///
/// Whatever a candidate holds it gives up when it is dropped: it may be dropped at any of these steps.
pub(crate) trait Engine: Send + Sync {
    /// `inproc`, `shm`, ...; the order in `backends` is the order of preference.
    fn name(&self) -> &'static str;
    /// It is the only engine that the node may use: it serves also where another would do better.
    fn insist(&self) {}
    /// This engine's part in one connection. Err: why it cannot serve here, in words that both ends log. Must not
    /// wait: it is called for each connection, also for those that will use another engine.
    fn offer(&self, session: &Session, control: &dyn Control) -> Result<Box<dyn Candidate>>;
}

/// An engine's part in one connection, until both ends have met.
pub(crate) trait Candidate: Send {
    /// What the same engine at the other end needs to know, at most [`MAX_OFFER`] bytes: a version, how to find
    /// us, what we have. It may be read by others on the way.
    fn offer(&self) -> &[u8] {
        &[]
    }
    /// Why this one cannot serve with the peer's offer, in words, or None. The peer's offer is its word only:
    /// nothing in it is used as a path, size or index without a look at it.
    fn unfit(&self, _theirs: &[u8]) -> Option<String> {
        None
    }
    /// Gets everything ready that may fail: memory, connections, proofs. Err: not this one, because. A peer that
    /// waits in [`Meeting::hear`] learns of it at once, so wait there wherever possible; waits of other kinds end
    /// at [`Meeting::deadline`]. Ok is only a proposal: the other end may still say no.
    fn meet(self: Box<Self>, meeting: &mut Meeting<'_, '_>) -> Result<Box<dyn Met>>;
}

/// An engine that is ready at both ends.
pub(crate) trait Met: Send {
    /// Makes the link; from here on nothing is told to the other end but by the link. An engine that is attached
    /// beside the control channel may keep it, to see the peer's death, or drop it; nothing is read or written
    /// there any more. Err: the connection has failed, there is no going on to the next.
    fn start(self: Box<Self>, control: Box<dyn Control>) -> Result<Arc<dyn Link>>;
}
