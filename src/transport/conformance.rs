//! What every engine must do, run over each of them; and what shm does between two processes.
#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::core::error::{Error, Kind, Result};
use crate::core::memory::{Block, Span};
use crate::core::transport::{
    Attention, Chunk, Control, Direct, Engine, Incoming, Landing, Link, Listener, MAX_FRAME, Network, Place,
    RegionKey, Seat, Session, Waiter,
};
use crate::core::wire::handshake::{self, Agreed, Policy, Side};
use crate::core::wire::hello::Hello;
use crate::core::wire::meeting::tests::{Liar, attach};
use crate::sys::wait::Epoll;
use crate::transport::{engines, tcp::Tcp, unix::Unix};

const TOKEN: u64 = 42;
const PLACE: Place = Place { job: 1, index: 2, attempt: 3 };
const LONG: Duration = Duration::from_secs(60);

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Private memory of the test's own.
struct Plain(Mutex<Vec<u8>>, usize);
impl Plain {
    fn of(bytes: Vec<u8>) -> Arc<Self> {
        let address = bytes.as_ptr().expose_provenance();
        Arc::new(Self(Mutex::new(bytes), address))
    }
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}
impl Block for Plain {
    fn address(&self) -> usize {
        self.1
    }
    fn capacity(&self) -> usize {
        self.0.lock().unwrap().len()
    }
    fn detach(&self, _: usize) -> Result<Option<Arc<dyn Block>>> {
        unreachable!()
    }
    fn copy_from(&self, offset: usize, from: &dyn Block, from_offset: usize, len: usize) -> Result<()> {
        from.read(from_offset, &mut self.0.lock().unwrap()[offset..offset + len])
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap()[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&self.0.lock().unwrap()[offset..offset + bytes.len()]);
        Ok(())
    }
    fn prefault(&self, _: usize) {}
    fn discard(&self) {}
}

/// What a node was given.
#[derive(Default)]
struct Inbox {
    frames: Vec<Vec<u8>>,
    regions: Vec<(RegionKey, u64, std::os::fd::OwnedFd)>,
    forgotten: Vec<RegionKey>,
    data: usize,
}

/// A node that keeps what comes; data is copied into `result`.
struct Node {
    inbox: Mutex<Inbox>,
    result: Arc<Plain>,
    leader: Arc<Epoll>,
    progress: Arc<Epoll>,
    wakes: AtomicUsize,
}

impl Node {
    fn new(result: usize) -> Arc<Self> {
        Arc::new(Self {
            inbox: Mutex::default(),
            result: Plain::of(vec![0; result]),
            leader: Arc::new(Epoll::new().unwrap()),
            progress: Arc::new(Epoll::new().unwrap()),
            wakes: AtomicUsize::new(0),
        })
    }
    fn seat(self: &Arc<Self>) -> Seat {
        Seat {
            token: TOKEN,
            leader: Arc::<Epoll>::clone(&self.leader),
            progress: Arc::<Epoll>::clone(&self.progress),
            direct: Arc::<Self>::clone(self),
        }
    }
    fn take(&self, incoming: Incoming<'_>) -> Result<()> {
        let mut inbox = self.inbox.lock().unwrap();
        match incoming {
            Incoming::Frame(bytes) => inbox.frames.push(bytes.to_vec()),
            Incoming::Region { key, capacity, share } => inbox.regions.push((key, capacity, share)),
            Incoming::Forget(key) => inbox.forgotten.push(key),
            Incoming::Ready { place, offset, len, receive } => {
                assert_eq!(place, PLACE);
                drop(inbox);
                let block = Arc::<Plain>::clone(&self.result);
                let span = Span { block, offset: offset as usize, len };
                let got = receive(Landing::Memory(&span))?;
                self.inbox.lock().unwrap().data += got;
            }
            Incoming::Data { place, offset, chunk } => {
                assert_eq!(place, PLACE);
                inbox.data += chunk.span.len;
                drop(inbox);
                copy(&chunk, &self.result, offset as usize)?;
            }
        }
        Ok(())
    }
    fn frames(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.inbox.lock().unwrap().frames)
    }
    fn data(&self) -> usize {
        self.inbox.lock().unwrap().data
    }
    /// Sleeps as a node does: says who looks, looks again, waits for that.
    fn sleep(&self, link: &dyn Link, who: Attention) {
        if link.attention(who) {
            return;
        }
        let mut ready = Vec::new();
        let waiter = if who == Attention::Leader { &self.leader } else { &self.progress };
        let start = Instant::now();
        waiter.wait(Some(LONG), &mut ready);
        assert!(start.elapsed() < LONG / 2, "nobody rang");
        assert_eq!(ready, [TOKEN]);
        self.wakes.fetch_add(1, Ordering::Relaxed);
        if who == Attention::Progress {
            let _ = link.service(&mut |incoming| self.take(incoming));
        }
    }
    fn poll(&self, link: &dyn Link) -> Result<usize> {
        link.poll(64, &mut |incoming| self.take(incoming))
    }
    fn service(&self, link: &dyn Link) -> Result<()> {
        link.service(&mut |incoming| self.take(incoming))
    }
    fn poll_until(&self, link: &dyn Link, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + LONG;
        while !done(self) {
            self.poll(link).unwrap();
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }
}

impl Direct for Node {
    fn incoming(&self, token: u64, incoming: Incoming<'_>) -> Result<()> {
        assert_eq!(token, TOKEN);
        self.take(incoming)
    }
}

fn copy(chunk: &Chunk, to: &Plain, offset: usize) -> Result<()> {
    chunk.span.copy_to(to, offset)
}

type Linked = (Arc<Node>, Arc<dyn Link>);

fn session(connector: bool) -> Session {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    Session { connector, id, key: [0; 32] }
}

/// A listener of the kind that the engine needs.
fn listen(engine: &Arc<dyn Engine>) -> (Box<dyn Network>, Box<dyn Listener>) {
    let (network, address): (Box<dyn Network>, _) = match engine.name() {
        "tcp" | "ucx" => (Box::new(Tcp), "127.0.0.1:0"),
        _ => (Box::new(Unix), "unix:"),
    };
    let listener = network.listen(address).unwrap();
    (network, listener)
}

fn accept(listener: &dyn Listener) -> Box<dyn Control> {
    let deadline = soon();
    loop {
        if let Some(control) = listener.accept().unwrap() {
            return control;
        }
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

fn connect(engine: &Arc<dyn Engine>, result: usize) -> (Linked, Linked) {
    let (network, listener) = listen(engine);
    let control = network.connect(&listener.bound(), soon()).unwrap();
    let other = accept(listener.as_ref());
    if engine.name() == "tcp" {
        // As a node does with whoever comes.
        thread::spawn(move || assert!(accept(listener.as_ref()).claim(soon()).unwrap()));
    }
    let ours = session(true);
    let theirs = Session { connector: false, ..ours.clone() };
    let (a, b) = (Node::new(result), Node::new(result));
    let thread = {
        let (engine, b) = (Arc::clone(engine), Arc::clone(&b));
        thread::spawn(move || attach(engine.as_ref(), &theirs, other, &b.seat(), soon()).unwrap())
    };
    let link = attach(engine.as_ref(), &ours, control, &a.seat(), soon()).unwrap();
    ((a, link), (b, thread.join().unwrap()))
}

/// What a node does after the hellos.
fn join(agreed: Agreed, control: Box<dyn Control>, node: &Arc<Node>) -> Arc<dyn Link> {
    join_saying_why(agreed, control, node).0
}

fn join_saying_why(
    agreed: Agreed,
    mut control: Box<dyn Control>,
    node: &Arc<Node>,
) -> (Arc<dyn Link>, Vec<(String, String)>) {
    let outcome = agreed.rounds.meet(control.as_mut(), &agreed.session, &node.seat(), soon()).unwrap();
    (outcome.met.start(control).unwrap(), outcome.why_not)
}

fn on_each(test: impl Fn(&Arc<dyn Engine>)) {
    for engine in engines() {
        eprintln!("engine {}", engine.name());
        engine.insist();
        test(&engine);
    }
}

/// Memory is there at once; the network's stack may take a moment.
fn in_transit(link: &dyn Link) {
    if matches!(link.engine(), "tcp" | "ucx") {
        thread::sleep(Duration::from_millis(5));
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

#[test]
fn frames_arrive_in_order_both_ways() {
    on_each(|engine| {
        let ((a, at_a), (b, at_b)) = connect(engine, 0);
        assert_eq!(at_a.engine(), engine.name());
        for n in 0..1000_usize {
            at_a.send(&pattern(n * 7 % MAX_FRAME)).unwrap();
            at_b.send(&n.to_le_bytes()).unwrap();
            if n % 3 == 0 {
                b.poll(at_b.as_ref()).unwrap();
            }
        }
        at_a.send(&pattern(MAX_FRAME)).unwrap();
        assert_eq!(at_a.send(&[0; MAX_FRAME + 1]).unwrap_err().kind, Kind::InvalidParameter);
        let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
        while to_a.len() < 1000 || to_b.len() < 1001 {
            a.poll(at_a.as_ref()).unwrap();
            b.poll(at_b.as_ref()).unwrap();
            to_a.extend(a.frames());
            to_b.extend(b.frames());
        }
        for n in 0..1000_usize {
            assert_eq!(to_a[n], n.to_le_bytes());
            assert_eq!(to_b[n], pattern(n * 7 % MAX_FRAME));
        }
        assert_eq!(to_b[1000].len(), MAX_FRAME);
    });
}

#[test]
fn polls_are_limited_and_not_reentrant() {
    on_each(|engine| {
        let ((_a, at_a), (_b, at_b)) = connect(engine, 0);
        for n in 0..10_u8 {
            at_a.send(&[n]).unwrap();
        }
        in_transit(at_b.as_ref());
        let mut got = Vec::new();
        let mut inner = None;
        let count = at_b.poll(4, &mut |incoming| {
            let Incoming::Frame(bytes) = incoming else { unreachable!() };
            got.push(bytes[0]);
            inner = Some(at_b.poll(4, &mut |_| unreachable!()).unwrap());
            Ok(())
        });
        assert_eq!((count.unwrap(), inner), (4, Some(0)));
        assert_eq!(got, [0, 1, 2, 3]);
        let failed = at_b.poll(4, &mut |_| Err(Error::protocol("no")));
        assert_eq!(failed.unwrap_err().text, "no");
    });
}

#[test]
fn sleepers_are_woken_however_they_sleep() {
    on_each(|engine| {
        for who in [Attention::Leader, Attention::Progress] {
            let ((a, at_a), (b, at_b)) = connect(engine, 0);
            const ROUNDS: usize = 500;
            let echo = {
                let (b, at_b) = (Arc::clone(&b), Arc::clone(&at_b));
                thread::spawn(move || {
                    let mut seen = 0;
                    while seen < ROUNDS {
                        b.sleep(at_b.as_ref(), who);
                        b.poll(at_b.as_ref()).unwrap();
                        for frame in b.frames() {
                            at_b.send(&frame).unwrap();
                            seen += 1;
                        }
                    }
                })
            };
            for n in 0..ROUNDS {
                at_a.send(&n.to_le_bytes()).unwrap();
                let mut frames = Vec::new();
                while frames.is_empty() {
                    a.sleep(at_a.as_ref(), who);
                    a.poll(at_a.as_ref()).unwrap();
                    frames = a.frames();
                }
                assert_eq!(frames, [n.to_le_bytes()]);
            }
            echo.join().unwrap();
            assert!(a.wakes.load(Ordering::Relaxed) > 0);
        }
    });
}

#[test]
fn a_flood_queues_and_arrives_whole() {
    on_each(|engine| {
        let ((a, at_a), (b, at_b)) = connect(engine, 0);
        const COUNT: usize = 20_000;
        // Nobody reads yet: most of it waits in the sender.
        for n in 0..COUNT {
            at_a.send(&n.to_le_bytes()).unwrap();
        }
        // Now the receiver reads, and the sender does nothing but answer wake-ups.
        let sender = {
            let (a, at_a) = (Arc::clone(&a), Arc::clone(&at_a));
            thread::spawn(move || {
                loop {
                    a.sleep(at_a.as_ref(), Attention::Leader);
                    a.poll(at_a.as_ref()).unwrap();
                    if a.frames().contains(&b"done".to_vec()) {
                        return;
                    }
                }
            })
        };
        let mut got = Vec::new();
        while got.len() < COUNT {
            b.sleep(at_b.as_ref(), Attention::Leader);
            b.poll(at_b.as_ref()).unwrap();
            got.extend(b.frames());
        }
        for (n, frame) in got.iter().enumerate() {
            assert_eq!(*frame, n.to_le_bytes());
        }
        at_b.send(b"done").unwrap();
        sender.join().unwrap();
    });
}

#[test]
fn ten_mebibytes_are_put_in_place() {
    on_each(|engine| {
        const SIZE: usize = 10 << 20;
        let ((a, at_a), (b, at_b)) = connect(engine, SIZE + 500);
        let span = Span { block: Plain::of(pattern(SIZE + 100)), offset: 77, len: SIZE };
        let reader = {
            let (b, at_b) = (Arc::clone(&b), Arc::clone(&at_b));
            thread::spawn(move || {
                while b.data() < SIZE {
                    b.sleep(at_b.as_ref(), Attention::Leader);
                    b.poll(at_b.as_ref()).unwrap();
                    if engine_is_direct(at_b.as_ref()) {
                        return;
                    }
                }
            })
        };
        let mut sent = 0;
        while sent < SIZE {
            let took = at_a.put(PLACE, 400 + sent as u64, &span, sent).unwrap();
            sent += took;
            if took == 0 {
                while !at_a.room() {
                    a.sleep(at_a.as_ref(), Attention::Leader);
                    a.poll(at_a.as_ref()).unwrap();
                }
            }
        }
        // The inproc reader has nothing else to wake for.
        at_a.send(b"end").unwrap();
        while !reader.is_finished() {
            a.poll(at_a.as_ref()).unwrap();
            thread::yield_now();
        }
        reader.join().unwrap();
        b.poll_until(at_b.as_ref(), |b| b.data() == SIZE);
        assert!(b.result.bytes()[400..400 + SIZE] == pattern(SIZE + 77)[77..]);
        assert!(at_a.put(PLACE, 0, &span, SIZE + 1).is_err());
        // Room comes back.
        a.poll_until(at_a.as_ref(), |_| at_a.room());
    });
}

fn engine_is_direct(link: &dyn Link) -> bool {
    link.engine() == "inproc"
}

#[test]
fn small_data_travels_too() {
    on_each(|engine| {
        let ((_a, at_a), (b, at_b)) = connect(engine, 5000);
        let mut total = 0;
        for len in [1, 7, 1000, 1024, 1025] {
            let span = Span { block: Plain::of(pattern(len)), offset: 0, len };
            assert_eq!(at_a.put(PLACE, total as u64, &span, 0).unwrap(), len);
            total += len;
            b.poll_until(at_b.as_ref(), |b| b.data() == total);
            assert_eq!(b.result.bytes()[total - len..total], pattern(len));
        }
    });
}

#[test]
fn hang_up_is_seen_and_told() {
    on_each(|engine| {
        let ((a, at_a), (b, at_b)) = connect(engine, 100);
        at_a.send(b"last words").unwrap();
        assert!(b.service(at_b.as_ref()).is_ok());
        at_a.close();
        at_a.close();
        let mut ready = Vec::new();
        b.progress.wait(Some(LONG), &mut ready);
        assert_eq!(ready, [TOKEN]);
        let error = b.service(at_b.as_ref()).unwrap_err();
        assert_eq!(error.kind, Kind::PeerLost);
        assert!(error.text.contains("hung up"), "{error}");
        b.poll(at_b.as_ref()).unwrap();
        assert_eq!(b.frames(), [b"last words"]);
        assert_eq!(at_b.send(b"x").unwrap_err().kind, Kind::PeerLost);
        let span = Span { block: Plain::of(vec![1; 10]), offset: 0, len: 10 };
        for link in [&at_a, &at_b] {
            assert_eq!(link.send(b"x").unwrap_err().kind, Kind::PeerLost);
            assert_eq!(link.put(PLACE, 0, &span, 0).unwrap_err().kind, Kind::PeerLost);
        }
        assert_eq!(a.service(at_a.as_ref()).unwrap_err().kind, Kind::PeerLost);
        assert_eq!(a.poll(at_a.as_ref()).unwrap_err().kind, Kind::PeerLost);
        // Nothing keeps the progress thread from sleeping any more.
        at_b.close();
        let mut ready = Vec::new();
        b.progress.wait(Some(Duration::from_millis(10)), &mut ready);
        assert!(ready.is_empty());
    });
}

#[test]
fn what_arrives_is_heard() {
    on_each(|engine| {
        let ((a, at_a), (b, at_b)) = connect(engine, 0);
        thread::sleep(Duration::from_millis(60));
        assert!(at_b.last_heard().elapsed() >= Duration::from_millis(40));
        let before = Instant::now();
        at_a.send(b"x").unwrap();
        in_transit(at_b.as_ref());
        b.poll(at_b.as_ref()).unwrap();
        // The clock behind it ticks every 10 ms at worst.
        assert!(at_b.last_heard() + Duration::from_millis(15) >= before);
        let before = Instant::now();
        at_b.send(b"x").unwrap();
        thread::sleep(Duration::from_millis(20));
        a.poll(at_a.as_ref()).unwrap();
        assert!(at_a.last_heard() >= before);
    });
}

#[test]
fn a_dropped_link_hangs_up() {
    on_each(|engine| {
        let ((_a, at_a), (b, at_b)) = connect(engine, 0);
        drop(at_a);
        let mut ready = Vec::new();
        b.progress.wait(Some(LONG), &mut ready);
        assert_eq!(ready, [TOKEN]);
        assert_eq!(b.service(at_b.as_ref()).unwrap_err().kind, Kind::PeerLost);
    });
}

#[test]
fn attach_without_the_other_half_ends() {
    on_each(|engine| {
        let (network, listener) = listen(engine);
        let control = network.connect(&listener.bound(), soon()).unwrap();
        let a = Node::new(0);
        let deadline = Instant::now() + Duration::from_millis(50);
        let error = attach(engine.as_ref(), &session(true), control, &a.seat(), deadline).err().unwrap();
        assert_eq!(error.kind, Kind::TimedOut, "{error}");
    });
}

#[test]
fn the_handshake_picks_inproc_here() {
    let cookie = [5; 32];
    let listener = Unix.listen("unix:").unwrap();
    let all = engines();
    let admit = |_: &Hello| Ok(());
    let own = |name: &str, instance| Hello { name: name.into(), instance, host_id: 1, ..Hello::default() };
    let mut control = Unix.connect(&listener.bound(), soon()).unwrap();
    let mut other = listener.accept().unwrap().unwrap();
    let thread = {
        let all = engines();
        thread::spawn(move || {
            let own = own("b", 2);
            let policy = Policy::SameUser(&cookie);
            let side = Side { own: &own, policy, engines: &all, admit: &|_: &Hello| Ok(()) };
            let agreed = handshake::accept(other.as_mut(), &side, soon()).unwrap();
            let node = Node::new(0);
            let link = join(agreed, other, &node);
            (node, link)
        })
    };
    let side = Side { own: &own("a", 1), policy: Policy::SameUser(&cookie), engines: &all, admit: &admit };
    let agreed = handshake::connect(control.as_mut(), &side, soon()).unwrap();
    let a = Node::new(0);
    let link = join(agreed, control, &a);
    let (b, at_b) = thread.join().unwrap();
    assert_eq!((link.engine(), at_b.engine()), ("inproc", "inproc"));
    link.send(b"hello").unwrap();
    b.poll(at_b.as_ref()).unwrap();
    assert_eq!(b.frames(), [b"hello"]);
}

#[cfg(test)]
#[path = "meeting_tests.rs"]
mod meetings;

#[cfg(test)]
#[path = "shm/process_tests.rs"]
mod processes;

#[cfg(test)]
#[path = "shm/hostile_tests.rs"]
mod hostile;

#[cfg(test)]
#[path = "tcp/hostile_tests.rs"]
mod tcp_hostile;
