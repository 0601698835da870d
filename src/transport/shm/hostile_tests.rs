//! A peer that lies: everything it can put into the rings, the socket and the descriptors.
use super::*;
use crate::core::transport::Control;
use crate::sys::map;
use crate::sys::socket::{Name, Socket};
use crate::sys::wait::Bell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The bytes of a link's memory, two rings 32 KiB apart: attention, credit and starved lines of 128 bytes, then
/// slots of 64.
const AREA_BYTES: usize = 64 * 1024;
const CREDIT: usize = 128;
const SLOTS: usize = 384;

/// Our honest end, and the lying connector's hands: its socket and the memory.
struct Victim {
    node: Arc<Node>,
    link: Arc<dyn Link>,
    socket: Socket,
    memory: map::Mapping,
}

impl Victim {
    fn new() -> Self {
        let (node, attached, socket, memory) = attach(|memory, bell| vec![memory, bell]);
        Self { node, link: attached.unwrap(), socket, memory }
    }
    fn write(&self, offset: usize, word: u32) {
        let at = std::ptr::with_exposed_provenance_mut::<u32>(self.memory.address() + offset);
        // SAFETY: inside the mapping, aligned.
        unsafe { at.write_volatile(word) };
    }
    /// Publishes a first record with any head.
    fn record(&self, kind: u8, len: u32, words: &[u32]) {
        for (n, word) in words.iter().enumerate() {
            self.write(SLOTS + 8 + 4 * n, *word);
        }
        self.write(SLOTS + 4, u32::from(kind) << 24 | len);
        self.write(SLOTS, 1);
    }
    fn poll_error(&self) -> Error {
        self.node.poll(self.link.as_ref()).unwrap_err()
    }
    fn service_error(&self, bytes: &[u8], share: Option<&OwnedFd>) -> Error {
        let share = share.map(|fd| fd.as_fd());
        let shares: &[BorrowedFd<'_>] = share.as_slice();
        self.socket.send(bytes, shares).unwrap();
        self.node.service(self.link.as_ref()).unwrap_err()
    }
}

/// What is sent instead of memory and bell.
type Lie = fn(OwnedFd, OwnedFd) -> Vec<OwnedFd>;
type Attached = (Arc<Node>, Result<Arc<dyn Link>>, Socket, map::Mapping);

fn attach(shares: impl Fn(OwnedFd, OwnedFd) -> Vec<OwnedFd>) -> Attached {
    let listener = Unix.listen("unix:").unwrap();
    let socket = Socket::new().unwrap();
    socket.connect(&Name::Path(listener.bound()["unix:".len()..].into())).unwrap();
    let control: Box<dyn Control> = listener.accept().unwrap().unwrap();
    let memory = map::create_sealed(c"nrdma-test", AREA_BYTES).unwrap();
    let mapping = map::Mapping::shared(&memory, AREA_BYTES).unwrap();
    let bell = Bell::new().unwrap().descriptor().try_clone().unwrap();
    let shares = shares(memory, bell);
    let shares: Vec<_> = shares.iter().map(|fd| fd.as_fd()).collect();
    let honest = session(false);
    let mut liar = Liar::new(&Session { connector: true, ..honest.clone() });
    socket.send(&liar.word(b"shm open 1"), &shares).unwrap();
    socket.send(&liar.met(), &[]).unwrap();
    let node = Node::new(0);
    let shm = engines().into_iter().find(|e| e.name() == "shm").unwrap();
    let attached = super::attach(shm.as_ref(), &honest, control, &node.seat(), soon());
    (node, attached, socket, mapping)
}

#[test]
fn lies_at_attach_are_refused() {
    let file = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    let lies: [(&str, Lie); 3] = [
        ("1 descriptors", |memory, _| vec![memory]),
        ("3 descriptors", |memory, bell| vec![memory.try_clone().unwrap(), memory, bell]),
        ("sealed", |_, bell| vec![bell.try_clone().unwrap(), bell]),
    ];
    for (words, lie) in lies {
        let error = attach(lie).1.err().unwrap();
        assert_eq!(error.kind, Kind::ProtocolError, "{error}");
        assert!(error.text.contains(words), "{error}");
    }
    assert!(attach(|_, bell| vec![file(), bell]).1.is_err());
}

#[test]
fn lies_in_the_ring_are_protocol_errors() {
    let records: [(u8, u32, &[u32]); 10] = [
        (0, 0, &[]),
        (99, 8, &[]),
        (1, 2049, &[]),
        (1, 0xff_ffff, &[]),
        // Data: job, index, attempt, offset, slot, length.
        (2, 35, &[]),
        (2, 36 + 1025, &[]),
        (2, 37, &[0, 0, 0, 0, 0, u32::MAX, u32::MAX]),
        (3, 44, &[0, 0, 0, 0, 0, 0, 0, 8, 1]),
        (3, 44, &[0, 0, 0, 0, 0, 0, 0, 0, 1]),
        // Slots that we have not sent.
        (4, 4, &[3]),
    ];
    for (kind, len, words) in records {
        let victim = Victim::new();
        victim.record(kind, len, words);
        assert_eq!(victim.poll_error().kind, Kind::ProtocolError, "{kind} {len}");
    }
    let victim = Victim::new();
    victim.record(4, 4, &[u32::MAX]);
    assert_eq!(victim.poll_error().kind, Kind::ProtocolError);
}

#[test]
fn lies_about_the_position_are_protocol_errors() {
    let victim = Victim::new();
    // Our own writing goes to the second ring.
    victim.write(32 * 1024 + CREDIT, 12345);
    let error = (0..300).find_map(|_| victim.link.send(&[0; 100]).err()).unwrap();
    assert_eq!(error.kind, Kind::ProtocolError);
}

#[test]
fn lies_in_the_socket_are_protocol_errors() {
    let memory = map::create_sealed(c"nrdma-test", 4096).unwrap();
    let region = [&[2_u8][..], &[0; 20]].concat();
    let cases: [(&[u8], Option<&OwnedFd>); 8] = [
        (&[0], None),
        (&[77; 20], None),
        (&[1; 65], None),
        (&region, None),
        (&region[..20], Some(&memory)),
        (&[1], Some(&memory)),
        (&[4], None),
        // A staged area that is too small.
        (&[4], Some(&memory)),
    ];
    for (bytes, share) in cases {
        assert_eq!(Victim::new().service_error(bytes, share).kind, Kind::ProtocolError, "{bytes:?}");
    }
}

#[test]
fn a_socket_that_is_never_read_does_not_hold_us() {
    let victim = Victim::new();
    victim.write(32 * 1024, 2);
    for n in 0..2000 {
        // The peer asks to be rung by message again and again, and reads none.
        victim.write(32 * 1024, 2);
        victim.write(32 * 1024 + CREDIT, n);
        victim.link.send(b"x").unwrap();
    }
    let key = RegionKey { id: 1, generation: 1 };
    let start = Instant::now();
    let share = map::create_sealed(c"nrdma-test", 4096).unwrap();
    let error = victim.link.announce(key, 4096, share).unwrap_err();
    assert_eq!(error.kind, Kind::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(30));
}
