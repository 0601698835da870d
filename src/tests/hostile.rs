//! A peer that proved itself and then lies: the node drops it, goes on, and ends every fragment exactly once.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::abi;
use crate::core::admission::Load;
use crate::core::buffer::{Lease, Path};
use crate::core::config::Config;
use crate::core::error::{Error, Kind, Result};
use crate::core::fragment::Fragment;
use crate::core::home::Home;
use crate::core::job::{Class, FragmentInfo, Job, Mode, Replica, ResultInfo, Spec};
use crate::core::memory::Kind as Memory;
use crate::core::node::Node;
use crate::core::transport::{Direct, Incoming, Link, Network, Place, RegionKey, Seat};
use crate::core::wire::frame::{Frame, Part, Target};
use crate::core::wire::handshake::{self, Policy, Side};
use crate::core::wire::hello::Hello;
use crate::transport::unix::Unix;

const CLASS: [u32; 4] = [1, 2, 3, 4];
const LONG: Duration = Duration::from_secs(20);

fn node(host_id: u32) -> Arc<Node> {
    let config = Config { host_id, workers: 2, transports: vec!["shm".into()], ..Config::default() };
    Node::create(config, crate::backends(), abi::buffer::make).unwrap()
}

struct Deaf;
impl Direct for Deaf {
    fn incoming(&self, _: u64, _: Incoming<'_>) -> Result<()> {
        Ok(())
    }
}

/// The liar: it shakes hands like anybody, and from then on says what it likes.
struct Liar {
    link: Arc<dyn Link>,
}

impl Liar {
    fn new(address: &str, host_id: u32) -> Self {
        let deadline = Instant::now() + LONG;
        let mut control = Unix.connect(address, deadline).unwrap();
        let own = Hello {
            name: "liar".into(),
            instance: u64::from(host_id) << 32,
            host_id,
            credits: 4,
            classes: vec![CLASS],
        };
        let engines = crate::transport::engines();
        let shm: Vec<_> = engines.into_iter().filter(|engine| engine.name() == "shm").collect();
        let cookie = crate::transport::cookie().unwrap();
        let side = Side { own: &own, policy: Policy::SameUser(&cookie), engines: &shm, admit: &|_| Ok(()) };
        let agreed = handshake::connect(control.as_mut(), &side, deadline).unwrap();
        let waiter = || crate::transport::waiter().unwrap();
        let seat = Seat { token: 1, leader: waiter(), progress: waiter(), direct: Arc::new(Deaf) };
        let outcome = agreed.rounds.meet(control.as_mut(), &agreed.session, &seat, deadline).unwrap();
        Self { link: outcome.met.start(control).unwrap() }
    }

    fn say(&self, frame: &Frame) {
        let _ = self.link.send(frame.encode().as_ref());
    }

    /// The next fragment that it is asked to run.
    fn fragment(&self) -> Option<(Place, Target)> {
        let mut found = None;
        let start = Instant::now();
        while found.is_none() && start.elapsed() < LONG {
            let taken = self.link.poll(1, &mut |incoming| {
                if let Incoming::Frame(bytes) = incoming
                    && let Ok(Frame::Fragment { place, target }) = Frame::decode(bytes)
                {
                    found = Some((place, target));
                }
                Ok(())
            });
            if taken.is_err() || self.link.service(&mut |_| Ok(())).is_err() {
                return None;
            }
            thread::sleep(Duration::from_micros(100));
        }
        found
    }
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A random byte, the same at each run.
fn byte(seed: &mut u64) -> u8 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    seed.to_le_bytes()[5]
}

struct Nothing;
impl Class for Nothing {
    fn create(&self, _: &[u8]) -> Result<Box<dyn Replica>> {
        Ok(Box::new(Self))
    }
}
impl Replica for Nothing {
    fn execute(&self, _: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<Option<Lease>> {
        fragment.write_memory(100, -1).map(Some)
    }
    fn execute_bytes(&self, _: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<()> {
        fragment.write(b"abc")
    }
    fn cancel(&self) {}
}

/// Counts how each fragment ended.
#[derive(Default)]
struct Ends {
    received: AtomicU64,
    failed: Mutex<Vec<Kind>>,
    short: AtomicU64,
}

struct Asking {
    ends: Arc<Ends>,
    to: u32,
    bytes: bool,
}
impl Job for Asking {
    fn runs_here(&self) -> bool {
        false
    }
    fn goes_away(&self) -> bool {
        true
    }
    fn execute(&self, _: &FragmentInfo) -> Result<()> {
        Ok(())
    }
    fn result_buffer(&self, home: &Arc<Home>, _: u64) -> Result<Option<Lease>> {
        if self.bytes { Ok(None) } else { home.get(Memory::Shared, 100_000, -1).map(Some) }
    }
    fn receive(&self, _: &Lease, result: &ResultInfo) -> Result<()> {
        // Long enough for more lies to come meanwhile.
        thread::sleep(Duration::from_millis(20));
        self.ends.received.fetch_add(u64::from(result.last), SeqCst);
        Ok(())
    }
    fn receive_bytes(&self, bytes: &[u8], result: &ResultInfo) -> Result<()> {
        self.ends.short.fetch_add(u64::from((bytes.len() as u64) < result.size), SeqCst);
        self.ends.received.fetch_add(u64::from(result.last), SeqCst);
        Ok(())
    }
    fn assign_hosts(&self, slots: &mut [u32]) -> Result<()> {
        slots.fill(self.to);
        Ok(())
    }
    fn failed(&self, _: u64, why: &Error) {
        self.ends.failed.lock().unwrap().push(why.kind);
    }
    fn cancel(&self) {}
    fn finished(&self, _: Result<()>) {}
}

fn ask(node: &Arc<Node>, to: u32, count: u64, bytes: bool) -> Arc<Ends> {
    let ends = Arc::new(Ends::default());
    let spec = Spec {
        class: CLASS,
        mode: Mode::UserDefined,
        priority: 0,
        thread_limit: 0,
        timeout: Some(LONG),
        rerun_after_partial: false,
        load: Load::default(),
        loss_is_done: false,
    };
    let job = Asking { ends: Arc::clone(&ends), to, bytes };
    let _ = node.execute(Box::new(job), spec, count, None);
    ends
}

fn with_honest_peer(body: impl FnOnce(&Arc<Node>, &str)) {
    let (victim, honest) = (node(1), node(2));
    let address = victim.listen("unix:", None).unwrap();
    honest.register_class(CLASS, Box::new(Nothing)).unwrap();
    victim.register_class(CLASS, Box::new(Nothing)).unwrap();
    honest.connect(&address).unwrap();
    body(&victim, &address);
    eventually("the liars are gone", || victim.peers_sorted().len() == 1);
    let ends = ask(&victim, 2, 8, false);
    assert_eq!(ends.received.load(SeqCst), 8);
    assert!(ends.failed.lock().unwrap().is_empty());
    let ends = ask(&victim, 2, 8, true);
    assert_eq!((ends.received.load(SeqCst), ends.short.load(SeqCst)), (8, 0));
    for node in [&honest, &victim] {
        node.shutdown(Some(LONG)).unwrap();
    }
    eventually("nothing holds the node", || Arc::strong_count(&victim) == 1);
}

const HUGE: Load = Load { cpu: u32::MAX, gpu: u32::MAX };

fn open(job: u64) -> Frame {
    Frame::JobOpen {
        job,
        class: CLASS,
        count: 1,
        payload: 0,
        thread_limit: 0,
        priority: i32::MIN,
        depth: 0,
        load: HUGE,
    }
}

#[test]
fn broken_rules_cost_the_connection() {
    let place = Place { job: 1, index: 0, attempt: 0 };
    let broken: Vec<Vec<Frame>> = vec![
        vec![open(1), open(1)],
        vec![Frame::JobOpen {
            job: 1,
            class: CLASS,
            count: 1,
            payload: u64::MAX,
            thread_limit: 0,
            priority: 0,
            depth: u32::MAX,
            load: HUGE,
        }],
        (0..20_000).map(open).collect(),
    ];
    with_honest_peer(|victim, address| {
        for (frames, id) in broken.iter().zip(100..) {
            let liar = Liar::new(address, id);
            frames.iter().for_each(|frame| liar.say(frame));
            eventually("the liar is dropped", || liar.link.service(&mut |_| Ok(())).is_err());
            eventually("and forgotten", || victim.peer(id).is_none());
        }
        // What is only odd is answered, or ignored.
        let odd = Liar::new(address, 200);
        let key = RegionKey { id: 7, generation: 1 };
        odd.say(&open(5));
        for target in [
            Target::Window { key, offset: u64::MAX, capacity: u64::MAX, alias: true },
            Target::Unreachable { capacity: u64::MAX },
        ] {
            odd.say(&Frame::Fragment { place: Place { job: 5, ..place }, target });
        }
        odd.say(&Frame::Fragment { place, target: Target::Bytes });
        odd.say(&Frame::Ack { place, sequence: 9, ok: true });
        odd.say(&Frame::Result { place, sequence: 0, part: Part::Final, path: Path::Mapped, size: u64::MAX });
        odd.say(&Frame::Pong { stamp: 1 });
        odd.say(&Frame::JobClose { job: 77 });
        odd.say(&Frame::JobCancel { job: 5 });
    });
}

#[test]
fn random_frames_harm_nobody() {
    with_honest_peer(|_, address| {
        let mut seed = 1;
        for id in 100..130 {
            let liar = Liar::new(address, id);
            for _ in 0..200 {
                let len = 1 + usize::from(byte(&mut seed)) % 90;
                let mut bytes: Vec<u8> = (0..len).map(|_| byte(&mut seed)).collect();
                // Mostly kinds that exist, small numbers, and lengths that fit.
                bytes[0] %= 14;
                bytes.iter_mut().skip(1).for_each(|byte| *byte = if *byte < 200 { 0 } else { *byte });
                bytes.truncate(match bytes[0] {
                    1 => 61,
                    2 | 3 | 11 | 12 => 9,
                    5 => 35,
                    7 => 26,
                    8 | 9 => 17,
                    10 => 1,
                    _ => len,
                });
                if liar.link.send(&bytes).is_err() {
                    break;
                }
            }
        }
    });
}

#[test]
fn every_fragment_ends_once_whatever_is_said_of_it() {
    let result = |place, sequence, part, path, size| Frame::Result { place, sequence, part, path, size };
    let failed = |place| Frame::Failed { place, kind: Kind::FragmentFailed, text: "so be it".into() };
    type Answer = Box<dyn Fn(Place) -> Vec<Frame>>;
    let answers: Vec<Answer> = vec![
        Box::new(move |p| {
            vec![result(p, 0, Part::Final, Path::Mapped, 8), result(p, 1, Part::Final, Path::Mapped, 8)]
        }),
        Box::new(move |p| vec![result(p, 0, Part::Final, Path::Mapped, 8), failed(p), failed(p)]),
        Box::new(move |p| {
            vec![result(p, 0, Part::Nothing, Path::None, 0), result(p, 1, Part::Nothing, Path::None, 0)]
        }),
        Box::new(move |p| (0..100).map(|n| result(p, n, Part::Partial, Path::Mapped, 8)).collect()),
        Box::new(move |p| vec![result(p, 0, Part::Partial, Path::Mapped, 8), failed(p)]),
        Box::new(move |p| vec![result(p, 3, Part::Final, Path::Mapped, 8)]),
        Box::new(move |p| vec![result(p, 0, Part::Final, Path::Staged, 8)]),
        Box::new(move |p| vec![result(p, 0, Part::Final, Path::None, 8)]),
        Box::new(move |p| vec![result(p, 0, Part::Final, Path::Mapped, u64::MAX)]),
        Box::new(move |p| vec![failed(p), failed(p), result(p, 0, Part::Final, Path::Mapped, 8)]),
    ];
    with_honest_peer(|victim, address| {
        for (answer, id) in answers.iter().zip(100..) {
            let liar = Liar::new(address, id);
            eventually("the liar is a peer", || victim.peer(id).is_some());
            let ends = thread::scope(|scope| {
                let asked = scope.spawn(|| ask(victim, id, 3, false));
                for _ in 0..3 {
                    let Some((place, _)) = liar.fragment() else { break };
                    answer(place).iter().for_each(|frame| liar.say(frame));
                }
                thread::sleep(Duration::from_millis(50));
                liar.link.close();
                asked.join().unwrap()
            });
            let failures = ends.failed.lock().unwrap().len() as u64;
            let told = ends.received.load(SeqCst) + failures;
            match id {
                // One that ended without a result is told to nobody. A second such word is a breach while the
                // first is not dealt with, and too late after that.
                102 => assert!(told <= 2, "{told}"),
                _ => assert_eq!(told, 3, "{id}"),
            }
        }
    });
}

#[test]
fn bytes_that_come_twice_do_not_make_a_result_longer() {
    with_honest_peer(|victim, address| {
        let liar = Liar::new(address, 100);
        eventually("the liar is a peer", || victim.peer(100).is_some());
        let ends = thread::scope(|scope| {
            let asked = scope.spawn(|| ask(victim, 100, 1, true));
            let (place, target) = liar.fragment().unwrap();
            assert_eq!(target, Target::Bytes);
            let home = node(3);
            let buffer = home.home(0).unwrap().get(Memory::Private, 100, -1).unwrap();
            for _ in 0..100 {
                liar.link.put(place, 0, &buffer.span(100).unwrap(), 0).unwrap();
            }
            liar.say(&Frame::Result {
                place,
                sequence: 0,
                part: Part::Final,
                path: Path::Staged,
                size: 10_000,
            });
            drop(buffer);
            home.shutdown(Some(LONG)).unwrap();
            asked.join().unwrap()
        });
        assert_eq!((ends.received.load(SeqCst), ends.short.load(SeqCst)), (0, 0));
        assert_eq!(ends.failed.lock().unwrap().len(), 1);
    });
}

#[test]
fn nodes_that_connect_to_each_other_at_once_stay_connected() {
    for round in 0..20 {
        let (a, b) = (node(1), node(2));
        let (at_a, at_b) = (a.listen("unix:", None).unwrap(), b.listen("unix:", None).unwrap());
        let (first, second) = thread::scope(|scope| {
            let other = scope.spawn(|| b.connect(&at_a));
            (a.connect(&at_b), other.join().unwrap())
        });
        assert!(first.is_ok() || second.is_ok(), "{round}: {first:?} {second:?}");
        for refused in [first, second].into_iter().filter_map(Result::err) {
            assert_eq!(refused.kind, Kind::Refused, "{refused}");
        }
        thread::sleep(Duration::from_millis(5));
        assert_eq!((a.peers_sorted().len(), b.peers_sorted().len()), (1, 1), "{round}");
        a.shutdown(Some(LONG)).unwrap();
        b.shutdown(Some(LONG)).unwrap();
    }
}
