//! Strangers at a TCP listener, and a peer that lies: everything that can be sent to us.
use super::*;
use crate::core::transport::ChannelProof;
use std::io::{Read, Write};
use std::net::TcpStream;

fn engine() -> Arc<dyn Engine> {
    engines().into_iter().find(|e| e.name() == "tcp").unwrap()
}

fn message(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

fn in_a_moment() -> Instant {
    Instant::now() + Duration::from_millis(200)
}

/// What a listener makes of somebody's first bytes.
fn knock(bytes: &[u8], hang_up: bool) -> Result<bool> {
    let listener = Tcp.listen("127.0.0.1:0").unwrap();
    let mut stranger = TcpStream::connect(listener.bound()).unwrap();
    stranger.write_all(bytes).unwrap();
    let kept = (!hang_up).then_some(stranger);
    let known = accept(listener.as_ref()).claim(in_a_moment());
    drop(kept);
    known
}

#[test]
fn strangers_get_nowhere() {
    let cases: [(&[u8], bool, Kind); 8] = [
        (b"", true, Kind::PeerLost),
        (b"", false, Kind::TimedOut),
        (b"\x10", false, Kind::TimedOut),
        (b"\x10\0\0\0half", true, Kind::PeerLost),
        (b"GET / HTTP/1.1\r\n\r\n", false, Kind::ProtocolError),
        (&[0; 4], false, Kind::ProtocolError),
        (&[0xff; 4], false, Kind::ProtocolError),
        (&4097_u32.to_le_bytes(), false, Kind::ProtocolError),
    ];
    for (bytes, hang_up, kind) in cases {
        assert_eq!(knock(bytes, hang_up).unwrap_err().kind, kind, "{bytes:?}");
    }
    // Anything else is for the handshake to judge.
    assert!(!knock(&message(b"hello"), false).unwrap());
    assert!(!knock(&message(&[7; 4096]), false).unwrap());
}

#[test]
fn byte_after_byte_ends_with_the_deadline() {
    let listener = Tcp.listen("127.0.0.1:0").unwrap();
    let mut stranger = TcpStream::connect(listener.bound()).unwrap();
    let mut control = accept(listener.as_ref());
    let slow = thread::spawn(move || {
        for byte in message(&[1; 4096]) {
            if stranger.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    });
    let start = Instant::now();
    assert_eq!(control.claim(in_a_moment()).unwrap_err().kind, Kind::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(5));
    drop(control);
    slow.join().unwrap();
}

/// The listening end of a session up to where it expects the data connection, in a thread of its own.
struct Expecting {
    listener: Box<dyn Listener>,
    session: Session,
    node: Arc<Node>,
    /// The lying connector's control connection.
    control: TcpStream,
    attached: thread::JoinHandle<Result<Arc<dyn Link>>>,
}

impl Expecting {
    fn new(patience: Duration) -> Self {
        let listener = Tcp.listen("127.0.0.1:0").unwrap();
        let mut control = TcpStream::connect(listener.bound()).unwrap();
        let ours = accept(listener.as_ref());
        let session = Session { key: [3; 32], ..session(true) };
        let theirs = Session { connector: false, ..session.clone() };
        let node = Node::new(100);
        let seat = node.seat();
        let attached =
            thread::spawn(move || attach(engine().as_ref(), &theirs, ours, &seat, Instant::now() + patience));
        // Length, kind, word, seal.
        let mut ready = [0; 4 + 1 + 11 + 16];
        control.read_exact(&mut ready).unwrap();
        assert_eq!(ready[5..16], *b"tcp ready 1");
        Self { listener, session, node, control, attached }
    }
    /// Connects, says something, and has it judged.
    fn knock(&self, bytes: &[u8]) -> (TcpStream, Result<bool>) {
        let mut data = TcpStream::connect(self.listener.bound()).unwrap();
        data.write_all(&message(bytes)).unwrap();
        let judged = accept(self.listener.as_ref()).claim(in_a_moment());
        (data, judged)
    }
    /// Says that the data connection is open, and that this is all; the honest end's link.
    fn opened(mut self) -> (Result<Arc<dyn Link>>, TcpStream, Arc<Node>, Session) {
        let mut liar = Liar::new(&self.session);
        for words in [liar.word(b"tcp open 1"), liar.met()] {
            self.control.write_all(&message(&words)).unwrap();
        }
        let mut verdict = [0; 4 + 2 + 16];
        self.control.read_exact(&mut verdict).unwrap();
        (self.attached.join().unwrap(), self.control, self.node, self.session)
    }
    fn victim(self) -> Victim {
        let (mut data, judged) = self.knock(ChannelProof::make(&self.session, 1).unwrap().bytes());
        assert!(judged.unwrap());
        let mut answer = [0; 36];
        data.read_exact(&mut answer).unwrap();
        let (link, control, node, session) = self.opened();
        Victim { node, link: link.unwrap(), session, control, data }
    }
}

#[test]
fn a_channel_proof_counts_once_and_for_one_session() {
    let expecting = Expecting::new(LONG);
    let proof = ChannelProof::make(&expecting.session, 1).unwrap();
    let wrong = [
        ChannelProof::make(&Session { key: [4; 32], ..expecting.session.clone() }, 1).unwrap(),
        ChannelProof::make(&Session { id: [9; 16], ..expecting.session.clone() }, 1).unwrap(),
        ChannelProof::make(&expecting.session, 0).unwrap(),
        ChannelProof::make(&expecting.session, 2).unwrap(),
    ];
    for proof in &wrong {
        let (_data, judged) = expecting.knock(proof.bytes());
        assert_eq!(judged.unwrap_err().kind, Kind::AuthFailed);
    }
    // They have not used up the right one.
    let (mut data, judged) = expecting.knock(proof.bytes());
    assert!(judged.unwrap());
    let mut answer = [0; 36];
    data.read_exact(&mut answer).unwrap();
    assert!(proof.is_answered(&expecting.session, 1, &answer[4..]).unwrap());
    // A second use, and another good proof, come too late.
    for bytes in [proof.bytes(), ChannelProof::make(&expecting.session, 1).unwrap().bytes()] {
        let (_data, judged) = expecting.knock(bytes);
        assert_eq!(judged.unwrap_err().kind, Kind::AuthFailed);
    }
    // Our own answer, sent back to us, is no proof; it is no greeting either, which the handshake will see.
    assert!(!expecting.knock(&answer[4..]).1.unwrap());
    assert!(expecting.opened().0.is_ok());
}

#[test]
fn a_channel_proof_is_not_expected_for_ever() {
    let expecting = Expecting::new(Duration::from_millis(30));
    let proof = ChannelProof::make(&expecting.session, 1).unwrap();
    let deadline = soon();
    while !expecting.attached.is_finished() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(expecting.knock(proof.bytes()).1.unwrap_err().kind, Kind::AuthFailed);
    assert_eq!(expecting.attached.join().unwrap().err().unwrap().kind, Kind::TimedOut);
}

/// Our honest end, and the lying connector's hands: it knows the keys, as every peer does.
struct Victim {
    node: Arc<Node>,
    link: Arc<dyn Link>,
    session: Session,
    control: TcpStream,
    data: TcpStream,
}

impl Victim {
    fn new() -> Self {
        Expecting::new(LONG).victim()
    }
    fn seal(&self, channel: u32, from_connector: bool, bytes: &[u8]) -> Vec<u8> {
        let tag = self.session.sealer(channel, from_connector).unwrap().tag(bytes);
        [bytes, &tag].concat()
    }
    fn outcome(&self) -> Result<()> {
        let deadline = soon();
        while self.node.poll(self.link.as_ref())? == 0 {
            assert!(Instant::now() < deadline, "nothing came of it");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
    fn control(&mut self, bytes: &[u8]) -> Result<()> {
        self.control.write_all(bytes).unwrap();
        self.outcome()
    }
    fn data(&mut self, bytes: &[u8]) -> Result<()> {
        self.data.write_all(bytes).unwrap();
        self.outcome()
    }
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), &[kind, 0, 0, 0][..], body].concat()
}

/// Place 1, 2, 3 and the rest as given.
fn head(offset: u64, len: u32, after: u64) -> Vec<u8> {
    let mut bytes = [1_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend(after.to_le_bytes());
    bytes
}

#[test]
fn the_truth_is_taken() {
    let mut victim = Victim::new();
    let frame = victim.seal(0, true, &record(1, b"frame"));
    victim.control(&frame).unwrap();
    assert_eq!(victim.node.frames(), [b"frame"]);
    let data = [victim.seal(1, true, &head(5, 3, 1)), b"abc".to_vec()].concat();
    victim.data(&data).unwrap();
    assert_eq!(victim.node.result.bytes()[4..9], *b"\0abc\0");
}

#[test]
fn data_waits_for_the_frames_before_it() {
    let mut victim = Victim::new();
    let data = [victim.seal(1, true, &head(0, 1, 1)), b"x".to_vec()].concat();
    victim.data.write_all(&data).unwrap();
    thread::sleep(Duration::from_millis(20));
    assert_eq!(victim.node.poll(victim.link.as_ref()).unwrap(), 0);
    let frame = victim.seal(0, true, &record(1, b"first"));
    victim.control(&frame).unwrap();
    victim.node.poll_until(victim.link.as_ref(), |node| node.data() == 1);
}

#[test]
fn lies_on_the_control_connection_are_protocol_errors() {
    let place = head(0, 0, 0)[..20].to_vec();
    let inline = |offset: u64, len: usize| [&place[..], &offset.to_le_bytes(), &vec![0; len]].concat();
    let signed = [
        record(0, b""),
        record(3, b"x"),
        record(2, &place),
        record(2, &inline(0, 1025)),
        record(2, &inline(u64::MAX, 1)),
        record(1, &[0; 2049]),
        [0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0].to_vec(),
        [0, 0, 0, 0, 1, 0, 0, 1].to_vec(),
    ];
    for bytes in signed {
        let mut victim = Victim::new();
        let sealed = victim.seal(0, true, &bytes);
        assert_eq!(victim.control(&sealed).unwrap_err().kind, Kind::ProtocolError, "{bytes:?}");
    }
}

#[test]
fn frames_that_are_not_the_peers_are_protocol_errors() {
    let forgeries: [fn(&Victim) -> Vec<u8>; 5] = [
        |_| [record(1, b"frame"), vec![0; 16]].concat(),
        // Sent back, from another channel, changed, twice.
        |victim| victim.seal(0, false, &record(1, b"frame")),
        |victim| victim.seal(1, true, &record(1, b"frame")),
        |victim| {
            let mut bytes = victim.seal(0, true, &record(1, b"frame"));
            bytes[9] ^= 1;
            bytes
        },
        |victim| victim.seal(0, true, &record(1, b"frame")).repeat(2),
    ];
    for (n, forge) in forgeries.into_iter().enumerate() {
        let mut victim = Victim::new();
        let bytes = forge(&victim);
        assert_eq!(victim.control(&bytes).unwrap_err().kind, Kind::ProtocolError, "{n}");
    }
}

#[test]
fn lies_on_the_data_connection_are_protocol_errors() {
    for lie in [head(0, 0, 0), head(0, (1 << 20) + 1, 0), head(u64::MAX - 1, 2, 0)] {
        let mut victim = Victim::new();
        let sealed = victim.seal(1, true, &lie);
        assert_eq!(victim.data(&sealed).unwrap_err().kind, Kind::ProtocolError, "{lie:?}");
    }
    let mut victim = Victim::new();
    let reflected = victim.seal(1, false, &head(0, 1, 0));
    assert_eq!(victim.data(&reflected).unwrap_err().kind, Kind::ProtocolError);
}

#[test]
fn a_peer_that_reads_nothing_does_not_hold_us() {
    let victim = Victim::new();
    let span = Span { block: Plain::of(vec![5; 64 << 20]), offset: 0, len: 64 << 20 };
    let start = Instant::now();
    let sent = victim.link.put(PLACE, 0, &span, 0).unwrap();
    assert!(sent < span.len, "all of it went into the socket");
    assert_eq!(victim.link.put(PLACE, sent as u64, &span, sent).unwrap(), 0);
    assert!(!victim.link.room());
    assert!(start.elapsed() < Duration::from_secs(10));
    // Frames go on meanwhile, until it is too much.
    for _ in 0..100 {
        victim.link.send(&[0; MAX_FRAME]).unwrap();
    }
    victim.link.close();
    assert_eq!(victim.link.put(PLACE, 0, &span, 0).unwrap_err().kind, Kind::PeerLost);
}
