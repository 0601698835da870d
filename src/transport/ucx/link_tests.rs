//! Two ends in one process over UCX's TCP: memory that is written to, strangers, and lies.
//!
//! Writing is emulated here, which is good enough for tests in which nobody is killed.
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::device::Device;
use super::domain::{Domain, MOST_PASSED};
use super::header::{Head, Kind as Message, Target, encode_key};
use super::inbox::Inbox;
use super::line::{CHANNEL, MAX_CHUNK};
use super::link::UcxLink;
use super::pending::Pending;
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::{self, Block, Memory, Span};
use crate::core::transport::{
    ChannelProof, Direct, Incoming, Link, Place, RegionKey, Seat, Session, TAG_BYTES,
};
use crate::memory::host::HostMemory;
use crate::sys::socket::Socket;
use crate::sys::wait::Epoll;

const SIZE: usize = 1 << 20;
const KEY: RegionKey = RegionKey { id: 5, generation: 2 };
const PLACE: Place = Place { job: 1, index: 2, attempt: 3 };
const LONG: Duration = Duration::from_secs(30);

struct Nobody;
impl Direct for Nobody {
    fn incoming(&self, _: u64, _: Incoming<'_>) -> Result<()> {
        Ok(())
    }
}

fn seat() -> Seat {
    Seat {
        token: 7,
        leader: Arc::new(Epoll::new().unwrap()),
        progress: Arc::new(Epoll::new().unwrap()),
        direct: Arc::new(Nobody),
    }
}

fn domain(seat: &Seat) -> Arc<Domain> {
    let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut device = Device::choose(at, true).unwrap();
    device.writes = true;
    Domain::open(&device, at, seat).unwrap()
}

fn session(connector: bool) -> Session {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let mut id = [9; 16];
    id.iter_mut().zip(NUMBER.fetch_add(1, Ordering::Relaxed).to_le_bytes()).for_each(|(to, from)| *to = from);
    Session { connector, id, key: [3; 32] }
}

/// The other end's.
fn other(session: &Session) -> Session {
    Session { connector: !session.connector, ..session.clone() }
}

fn inbox() -> Arc<Inbox> {
    Arc::new(Inbox::new().unwrap())
}

/// Moves both on until it holds.
fn until(domains: [&Arc<Domain>; 2], done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        for domain in domains {
            domain.turn(None, |port| port.progress());
        }
        assert!(begun.elapsed() < LONG);
        thread::yield_now();
    }
}

struct End {
    link: Arc<UcxLink>,
    domain: Arc<Domain>,
    session: Session,
}

impl End {
    fn poll(&self) -> Result<usize> {
        self.link.poll(100, &mut |_| Ok(()))
    }
    /// Sends what is no message of the link's.
    fn forge(&self, head: Head, tag: [u8; TAG_BYTES], bytes: &[u8]) {
        let header = [head.encode().as_slice(), &tag].concat();
        self.domain.turn(None, |port| {
            let (line, worker) = port.line(&self.session.id).unwrap();
            worker.send(line.ep, header, bytes.to_vec(), false, Pending::Nothing).unwrap();
        });
    }
    fn head(&self, kind: Message, sequence: u64, len: usize) -> Head {
        let target = (kind == Message::Data).then_some(Target { place: PLACE, offset: 0 });
        Head { session: self.session.id, sequence, kind, len: u32::try_from(len).unwrap(), target }
    }
}

/// The connecting end first.
fn pair() -> (End, End) {
    let (seat_a, seat_b) = (seat(), seat());
    let (a, b) = (domain(&seat_a), domain(&seat_b));
    let ours = session(true);
    let (in_a, in_b) = (inbox(), inbox());
    let theirs = other(&ours);
    let expected = b.expect(&theirs, &in_b);
    a.turn(None, |port| port.call(&ours, b.listening, &in_a)).unwrap();
    until([&a, &b], || in_a.is_open() && in_b.is_open());
    drop(expected);
    let (near, far) = Socket::pair().unwrap();
    let link = |session: &Session, domain: &Arc<Domain>, inbox, control, seat| {
        let domain = Arc::clone(domain);
        UcxLink::start(session.id, domain, inbox, control, "peer".into(), seat).unwrap()
    };
    let link_a = link(&ours, &a, in_a, near, &seat_a);
    let link_b = link(&theirs, &b, in_b, far, &seat_b);
    (End { link: link_a, domain: a, session: ours }, End { link: link_b, domain: b, session: theirs })
}

fn block(kind: memory::Kind) -> Arc<dyn Block> {
    HostMemory.allocate(kind, SIZE).unwrap().0
}

fn read(block: &dyn Block, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    block.read(offset, &mut bytes).unwrap();
    bytes
}

/// Polls both until it holds.
fn poll_until(a: &End, b: &End, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        a.poll().unwrap();
        b.poll().unwrap();
        assert!(begun.elapsed() < LONG);
        thread::yield_now();
    }
}

type Slot = Arc<Mutex<Option<Result<()>>>>;

fn write(end: &End, offset: u64, span: &Span) -> Result<Slot> {
    let slot = Slot::default();
    let to = Arc::clone(&slot);
    let written = Box::new(move |result| *to.lock().unwrap() = Some(result));
    end.link.write(KEY, offset, span, written).map(|()| slot)
}

/// A region of `a`'s that `b` can write to, and memory of `b`'s to write from.
fn exposed(a: &End, b: &End) -> (Arc<dyn Block>, Weak<dyn Block>, Span) {
    let inner = block(memory::Kind::Shared);
    let weak = Arc::downgrade(&inner);
    let region = a.link.expose(KEY, inner).unwrap();
    poll_until(a, b, || b.link.exposed(KEY).is_ok());
    let source = b.link.keep(block(memory::Kind::Private));
    source.write(0, &[7; 5000]).unwrap();
    (region, weak, Span { block: source, offset: 0, len: 5000 })
}

#[test]
fn a_region_is_written_to_until_it_is_forgotten() {
    let (a, b) = pair();
    let (region, weak, span) = exposed(&a, &b);
    assert_eq!(b.link.exposed(KEY).unwrap(), region.capacity() as u64);
    let slot = write(&b, 100, &span).unwrap();
    poll_until(&a, &b, || slot.lock().unwrap().is_some());
    assert_eq!(slot.lock().unwrap().clone(), Some(Ok(())));
    assert_eq!(read(region.as_ref(), 99, 5002), [&[0], [7; 5000].as_slice(), &[0]].concat());
    // The ends count, and so does the generation.
    let capacity = region.capacity() as u64;
    for offset in [capacity - 4999, capacity, u64::MAX] {
        assert_eq!(write(&b, offset, &span).unwrap_err().kind, Kind::InvalidParameter);
    }
    for stale in [RegionKey { generation: 1, ..KEY }, RegionKey { id: 6, ..KEY }] {
        assert_eq!(b.link.exposed(stale).unwrap_err().kind, Kind::Stale);
        assert_eq!(b.link.write(stale, 0, &span, Box::new(|_| ())).unwrap_err().kind, Kind::Stale);
    }
    // Memory that nobody gave the link is not its to register.
    let foreign = Span { block: block(memory::Kind::Private), offset: 0, len: 10 };
    assert_eq!(write(&b, 0, &foreign).unwrap_err().kind, Kind::NotSupported);
    // Given up while it is being written to: both ends are done with it before its memory goes.
    let slot = write(&b, 0, &span).unwrap();
    a.link.forget(KEY).unwrap();
    drop(region);
    assert!(weak.upgrade().is_some());
    poll_until(&a, &b, || slot.lock().unwrap().is_some() && weak.upgrade().is_none());
    assert_eq!(b.link.exposed(KEY).unwrap_err().kind, Kind::Stale);
    assert_eq!(write(&b, 0, &span).unwrap_err().kind, Kind::Stale);
}

#[test]
fn a_late_write_reaches_nobody() {
    late_write(|a| a.link.close());
    late_write(|a| {
        // In two steps, of which the first waits for nothing.
        a.link.cut();
        assert_eq!(a.link.send(b"words").unwrap_err().kind, Kind::PeerLost);
        a.link.close();
    });
}

fn late_write(close: fn(&End)) {
    let (a, b) = pair();
    let (region, _, span) = exposed(&a, &b);
    region.write(0, &[1; 6000]).unwrap();
    let slot = write(&b, 0, &span).unwrap();
    // The one that lost its peer closes the link and uses the memory again.
    close(&a);
    region.detach(6000).unwrap();
    region.write(0, &[2; 6000]).unwrap();
    for _ in 0..200 {
        let _ = (a.poll(), b.poll());
        a.domain.turn(None, |port| port.progress());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(read(region.as_ref(), 0, 6000), [2; 6000]);
    // The writer is told in the end, at the latest when it closes.
    b.link.close();
    assert!(slot.lock().unwrap().as_ref().is_some());
}

#[test]
fn memory_outlives_the_write_that_reads_it() {
    let (a, b) = pair();
    let (region, _, span) = exposed(&a, &b);
    let weak = Arc::downgrade(&span.block);
    let slot = write(&b, 0, &span).unwrap();
    drop(span);
    poll_until(&a, &b, || slot.lock().unwrap().is_some());
    assert_eq!(read(region.as_ref(), 0, 5000), [7; 5000]);
    // Its end was taken, and nothing holds it any more.
    assert!(weak.upgrade().is_none());
}

#[test]
fn strangers_get_nowhere() {
    let (seat_a, seat_b) = (seat(), seat());
    let (a, b) = (domain(&seat_a), domain(&seat_b));
    // Nobody is expected.
    let lonely = (session(true), inbox());
    a.turn(None, |port| port.call(&lonely.0, b.listening, &lonely.1)).unwrap();
    until([&a, &b], || lonely.1.failure().is_some());
    // Somebody is, but not this one: another session, another key.
    let real = session(true);
    let theirs = other(&real);
    let in_b = inbox();
    let expected = b.expect(&theirs, &in_b);
    for stranger in [session(true), Session { key: [4; 32], ..real.clone() }] {
        let inbox = inbox();
        a.turn(None, |port| port.call(&stranger, b.listening, &inbox)).unwrap();
        until([&a, &b], || inbox.failure().is_some());
        assert!(!inbox.is_open() && !in_b.is_open());
        drop(a.begin_end(&stranger.id));
    }
    // The real one still gets in, once.
    let in_a = inbox();
    a.turn(None, |port| port.call(&real, b.listening, &in_a)).unwrap();
    until([&a, &b], || in_a.is_open() && in_b.is_open());
    let (seat_c, again) = (seat(), inbox());
    let c = domain(&seat_c);
    c.turn(None, |port| port.call(&real, b.listening, &again)).unwrap();
    until([&c, &b], || again.failure().is_some());
    assert!(!again.is_open());
    drop(expected);
}

#[test]
fn a_proof_is_good_for_its_own_channel_only() {
    let (seat_a, seat_b) = (seat(), seat());
    let (a, b) = (domain(&seat_a), domain(&seat_b));
    let real = session(true);
    let (theirs, in_a, in_b) = (other(&real), inbox(), inbox());
    let _expected = b.expect(&theirs, &in_b);
    // Connects with words of its own in the place of the proof.
    let proof = ChannelProof::make(&real, CHANNEL + 1).unwrap().bytes().to_vec();
    a.turn(None, |port| port.call_with(&real, b.listening, &in_a, proof)).unwrap();
    until([&a, &b], || in_a.failure().is_some());
    assert!(!in_b.is_open());
}

#[test]
fn lies_are_breaches_of_the_protocol() {
    type Lie = fn(&End);
    let lies: [(&str, Lie); 7] = [
        ("a notify with a wrong MAC", |a| a.forge(a.head(Message::Frame, 1, 3), [0; TAG_BYTES], b"abc")),
        ("one that came before", |a| a.forge(a.head(Message::Frame, 0, 3), [0; TAG_BYTES], b"abc")),
        ("bytes with a wrong MAC", |a| a.forge(a.head(Message::Data, 1, 3), [0; TAG_BYTES], b"abc")),
        ("many bytes with a wrong MAC", |a| {
            a.forge(a.head(Message::Data, 1, MAX_CHUNK), [0; TAG_BYTES], &vec![1; MAX_CHUNK]);
        }),
        ("a region that is not known", |a| a.say(Message::Forget, &encode_key(KEY))),
        ("room that nobody took", |a| a.say(Message::Release, &1_u32.to_le_bytes())),
        ("a region whose key is none", |a| a.say(Message::Region, &[1; 5])),
    ];
    for (what, lie) in lies {
        let (a, b) = pair();
        lie(&a);
        let begun = Instant::now();
        let error = loop {
            let _ = a.poll();
            if let Err(error) = b.poll() {
                break error;
            }
            assert!(begun.elapsed() < LONG, "{what}");
        };
        assert_eq!(error.kind, Kind::ProtocolError, "{what}: {error}");
    }
}

#[test]
fn messages_of_no_session_are_not_heard() {
    let (a, b) = pair();
    for n in 0..100 {
        let head = Head { session: [n; 16], ..a.head(Message::Frame, 1, 3) };
        a.forge(head, [0; TAG_BYTES], b"abc");
        a.forge(Head { kind: Message::Hello, ..head }, [0; TAG_BYTES], b"abc");
    }
    a.link.send(b"the truth").unwrap();
    let begun = Instant::now();
    let mut heard = Vec::new();
    while heard.is_empty() {
        a.poll().unwrap();
        let mut take = |incoming: Incoming<'_>| match incoming {
            Incoming::Frame(bytes) => {
                heard.push(bytes.to_vec());
                Ok(())
            }
            _ => Err(Error::protocol("what is that?")),
        };
        b.link.poll(100, &mut take).unwrap();
        assert!(begun.elapsed() < LONG);
    }
    assert_eq!(heard, [b"the truth"]);
}

#[test]
fn whoever_polls_lets_others_go_first_but_not_for_ever() {
    let (a, b) = pair();
    let heard = AtomicU64::new(0);
    let poll = || {
        let mut take = |_: Incoming<'_>| {
            heard.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        b.link.poll(100, &mut take).unwrap()
    };
    a.link.send(b"words").unwrap();
    // As if another thread waited for its turn and were not woken.
    b.domain.waiting.store(1, Ordering::SeqCst);
    let begun = Instant::now();
    while heard.load(Ordering::Relaxed) == 0 {
        assert_eq!((0..MOST_PASSED).map(|_| poll()).sum::<usize>(), 0);
        poll();
        a.poll().unwrap();
        assert!(begun.elapsed() < LONG);
    }
    b.domain.waiting.store(0, Ordering::SeqCst);
    a.link.send(b"more words").unwrap();
    while heard.load(Ordering::Relaxed) == 1 {
        a.poll().unwrap();
        poll();
        assert!(begun.elapsed() < LONG);
    }
}

impl End {
    /// Sends a well sealed lie.
    fn say(&self, kind: Message, bytes: &[u8]) {
        self.domain.turn(None, |port| {
            let (line, worker) = port.line(&self.session.id).unwrap();
            line.send(worker, kind, bytes.to_vec()).unwrap();
        });
    }
}
