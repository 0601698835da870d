//! Buffers, and the references by which they are held.
use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::class::Class;
use super::error::{Error, Result};
use super::home::Home;
use super::magazine::Shelf;
use super::memory::{Block, Kind, Span};
use super::region::Region;
use super::sync::lock;
use super::transport::RegionKey;

/// The reference-counted object that carries a buffer across the C line; `abi::buffer` implements it. The
/// count is the C one: it may be 0 while the object rests in the cache.
pub(crate) trait Carrier: Send + Sync {
    /// The buffer inside.
    fn buffer(&self) -> &Buffer;
    /// References held right now.
    fn references(&self) -> u32;
    /// Counts the first reference of an object at rest that nobody else can reach; this very `Arc` becomes
    /// the one that the count stands for.
    fn start(self: Arc<Self>);
    /// Adds a reference; returns the new count.
    fn retain(&self) -> u32;
    /// Drops a reference; returns the new count. At 0 the object goes back to its home.
    fn release(&self) -> u32;
}

/// One owned reference to a buffer.
pub(crate) struct Lease(Arc<dyn Carrier>);

impl Lease {
    /// Takes over a reference that is already counted.
    pub(crate) fn adopt(carrier: Arc<dyn Carrier>) -> Self {
        Self(carrier)
    }
    /// The first reference to an object at rest that nobody else can reach.
    pub(crate) fn first(carrier: Arc<dyn Carrier>) -> Self {
        Arc::clone(&carrier).start();
        Self(carrier)
    }
    /// One more reference to an object that the caller knows to be held.
    pub(crate) fn share(carrier: &Arc<dyn Carrier>) -> Self {
        carrier.retain();
        Self(Arc::clone(carrier))
    }
    /// Whether nobody else holds the buffer.
    pub(crate) fn is_sole(&self) -> bool {
        self.0.references() == 1
    }
    /// The object.
    pub(crate) fn carrier(&self) -> &Arc<dyn Carrier> {
        &self.0
    }
}
impl Clone for Lease {
    fn clone(&self) -> Self {
        Self::share(&self.0)
    }
}
impl Drop for Lease {
    fn drop(&mut self) {
        self.0.release();
    }
}
impl Deref for Lease {
    type Target = Buffer;
    fn deref(&self) -> &Buffer {
        self.0.buffer()
    }
}

/// How the bytes of a buffer last travelled; the numbers are those of `NRDMA_PATH_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(dead_code)]
pub(crate) enum Path {
    /// Not at all yet.
    None = 0,
    /// Both ends use the same memory.
    Mapped = 1,
    /// RDMA, memory to memory.
    Direct = 2,
    /// Through a bounce buffer.
    Staged = 3,
    /// Copied by the processor.
    Copied = 4,
}

impl Path {
    /// Its number.
    pub(crate) fn number(self) -> u32 {
        self as u32
    }
    /// The path of that number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Mapped,
            2 => Self::Direct,
            3 => Self::Staged,
            4 => Self::Copied,
            _ => return None,
        })
    }
}

/// A buffer's bookkeeping. It lives as long as the object that carries it, which the cache hands out again
/// and again: what changes from one holder to the next is atomic.
pub(crate) struct Buffer {
    address: AtomicUsize,
    size: AtomicU64,
    id: AtomicU64,
    gpu: AtomicI32,
    path: AtomicU32,
    home: Arc<Home>,
    body: Body,
}

enum Body {
    /// A piece of a region, from birth to destruction.
    Cached(Piece),
    /// A shell that takes the shape of a view, of the host's memory or of a window.
    Shell(Mutex<Option<Content>>),
}

/// A piece of a region: all of it, or a chunk of a slab.
pub(crate) struct Piece {
    pub(crate) region: Arc<Region>,
    pub(crate) offset: usize,
    pub(crate) class: Class,
    pub(crate) capacity: u64,
    pub(crate) shelf: Option<Shelf>,
    /// The kind of memory it was made as, which decides the depot it returns to.
    pub(crate) kind: Kind,
}

/// What a shell stands for at the moment.
pub(crate) struct Content {
    pub(crate) block: Arc<dyn Block>,
    pub(crate) offset: usize,
    pub(crate) kind: Kind,
    /// The region that `offset` counts in, when the memory is one of ours.
    pub(crate) region: Option<Arc<Region>>,
    /// What a view is a view of.
    pub(crate) parent: Option<Lease>,
}

impl Buffer {
    /// A piece of a region.
    pub(crate) fn cached(home: Arc<Home>, piece: Piece) -> Self {
        let address = piece.region.block().address() + piece.offset;
        Self::new(home, address, Body::Cached(piece))
    }

    /// An empty shell.
    pub(crate) fn shell(home: Arc<Home>) -> Self {
        Self::new(home, 0, Body::Shell(Mutex::new(None)))
    }

    fn new(home: Arc<Home>, address: usize, body: Body) -> Self {
        Self {
            address: AtomicUsize::new(address),
            size: AtomicU64::new(0),
            id: AtomicU64::new(0),
            gpu: AtomicI32::new(-1),
            path: AtomicU32::new(0),
            home,
            body,
        }
    }

    /// Begins another life with a holder.
    pub(crate) fn begin(&self, id: u64, size: u64) {
        self.id.store(id, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.path.store(0, Ordering::Relaxed);
    }

    /// Gives a shell its content.
    pub(crate) fn fill(&self, content: Content) {
        if let Some(mut slot) = self.shell_content() {
            self.address.store(content.block.address() + content.offset, Ordering::Relaxed);
            *slot = Some(content);
        }
    }

    /// Takes a shell's content out; the caller drops it.
    pub(crate) fn empty(&self) -> Option<Content> {
        self.shell_content()?.take()
    }

    fn shell_content(&self) -> Option<MutexGuard<'_, Option<Content>>> {
        match &self.body {
            Body::Shell(content) => Some(lock(content)),
            Body::Cached(_) => None,
        }
    }

    /// The piece of a region it is, or None for a shell.
    pub(crate) fn piece(&self) -> Option<&Piece> {
        match &self.body {
            Body::Cached(piece) => Some(piece),
            Body::Shell(_) => None,
        }
    }

    /// The number of this use of the buffer; never given twice.
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }
    /// Bytes asked for.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }
    /// The GPU that holds the memory; -1 is main memory.
    pub(crate) fn gpu(&self) -> i32 {
        self.gpu.load(Ordering::Relaxed)
    }
    /// The first byte.
    pub(crate) fn address(&self) -> usize {
        self.address.load(Ordering::Relaxed)
    }
    /// How its bytes last travelled.
    pub(crate) fn path(&self) -> Path {
        Path::from_number(self.path.load(Ordering::Relaxed)).unwrap_or(Path::None)
    }
    /// Notes how its bytes travelled.
    pub(crate) fn set_path(&self, path: Path) {
        self.path.store(path.number(), Ordering::Relaxed);
    }
    /// Node and peer it belongs to.
    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.home
    }
    /// Whether it belongs to that node and peer.
    pub(crate) fn same_home(&self, home: &Arc<Home>) -> bool {
        Arc::ptr_eq(&self.home, home)
    }

    /// Whose memory it is.
    pub(crate) fn kind(&self) -> Kind {
        match &self.body {
            Body::Cached(piece) => piece.region.kind(),
            Body::Shell(_) => {
                self.shell_content().and_then(|c| c.as_ref().map(Content::kind)).unwrap_or(Kind::Private)
            }
        }
    }

    /// Whether no other buffer has bytes on its pages and the host does not own them: false for views, chunks
    /// of slabs and wrapped memory.
    pub(crate) fn whole_pages(&self) -> bool {
        match &self.body {
            Body::Cached(piece) => piece.region.is_whole(),
            Body::Shell(_) => self
                .shell_content()
                .is_some_and(|c| c.as_ref().is_some_and(|c| c.kind == Kind::Window && c.parent.is_none())),
        }
    }

    /// The region of ours that it lies in.
    pub(crate) fn region(&self) -> Option<Arc<Region>> {
        match &self.body {
            Body::Cached(piece) => Some(Arc::clone(&piece.region)),
            Body::Shell(_) => self.shell_content()?.as_ref()?.region.clone(),
        }
    }

    /// The region the peer knows it by, and the offset in there.
    pub(crate) fn region_key(&self) -> Option<(RegionKey, u64)> {
        let (region, offset) = match &self.body {
            Body::Cached(piece) => (Arc::clone(&piece.region), piece.offset),
            Body::Shell(_) => {
                let content = self.shell_content()?;
                let content = content.as_ref()?;
                (Arc::clone(content.region.as_ref()?), content.offset)
            }
        };
        Some((region.key()?, u64::try_from(offset).ok()?))
    }

    /// Its first `len` bytes as a range of memory.
    pub(crate) fn span(&self, len: u64) -> Result<Span> {
        let fits = usize::try_from(len).ok().filter(|_| len <= self.size());
        let Some(len) = fits else {
            return Err(Error::invalid(format!(
                "{len} bytes do not lie inside a buffer of {} bytes",
                self.size()
            )));
        };
        match &self.body {
            Body::Cached(piece) => {
                Ok(Span { block: Arc::clone(piece.region.block()), offset: piece.offset, len })
            }
            Body::Shell(_) => self
                .shell_content()
                .and_then(|c| c.as_ref().map(|c| Span { block: Arc::clone(&c.block), offset: c.offset, len }))
                .ok_or_else(|| Error::invalid("the buffer was released")),
        }
    }

    /// Cuts a window that was lent as buffer `id` off from the peer, if that buffer is still out: shells are
    /// used again. Returns a fresh mapping of the peer's memory.
    pub(crate) fn detach_if(&self, id: u64) -> Result<Option<Arc<dyn Block>>> {
        let size = usize::try_from(self.size()).unwrap_or(usize::MAX);
        let Some(mut content) = self.shell_content() else {
            return Ok(None);
        };
        // Held meanwhile, so that the shell does not come to rest.
        let Some(now) = content.as_mut().filter(|now| now.kind == Kind::Window && self.id() == id) else {
            return Ok(None);
        };
        let fresh = now.block.detach(size)?;
        now.kind = Kind::Private;
        Ok(fresh)
    }

    /// Brings its first `len` bytes over from the pages that the peer has filled, if its region was cut off
    /// meanwhile because of another buffer.
    pub(crate) fn bring_over(&self, len: u64) -> Result<()> {
        let span = self.span(len)?;
        self.region().map_or(Ok(()), |region| region.bring_over(span.offset, span.len))
    }

    /// Cuts the buffer off from the peer, at the same address and with its bytes kept; from then on its
    /// memory is private and does not go back to the cache. For a window, returns a fresh mapping of the
    /// peer's memory.
    pub(crate) fn detach(&self) -> Result<Option<Arc<dyn Block>>> {
        self.detach_for(false)
    }

    /// `divided`: on behalf of a view.
    fn detach_for(&self, divided: bool) -> Result<Option<Arc<dyn Block>>> {
        let size = usize::try_from(self.size()).unwrap_or(usize::MAX);
        if let Some(piece) = self.piece() {
            piece.region.detach(size, divided)?;
            return Ok(None);
        }
        let Some(content) = self.shell_content() else {
            return Ok(None);
        };
        let Some(now) = content.as_ref() else {
            return Ok(None);
        };
        if let Some(parent) = now.parent.clone() {
            drop(content);
            return parent.detach_for(true);
        }
        if now.kind != Kind::Window {
            return Ok(None);
        }
        let block = Arc::clone(&now.block);
        drop(content);
        let fresh = block.detach(size)?;
        if let Some(mut content) = self.shell_content()
            && let Some(content) = content.as_mut()
        {
            content.kind = Kind::Private;
        }
        Ok(fresh)
    }
}

impl Content {
    fn kind(&self) -> Kind {
        match (&self.parent, &self.region) {
            (Some(parent), _) => parent.kind(),
            (None, Some(region)) => region.kind(),
            (None, None) => self.kind,
        }
    }
}
