#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use super::*;
use crate::core::memory::Share;
use crate::core::transport::{Breaker, Candidate, Meeting, Met};

pub(crate) type Wire = Box<dyn FnMut(usize, &mut Vec<u8>) + Send>;

/// A control channel of queues. `wire` sees, and may change, every message that this end sends.
pub(crate) struct Fake {
    out: Sender<Vec<u8>>,
    into: Receiver<Vec<u8>>,
    own_uid: u32,
    peer_uid: u32,
    sent: usize,
    pub(crate) wire: Wire,
}

pub(crate) fn pair() -> (Fake, Fake) {
    let ((a, from_a), (b, from_b)) = (channel(), channel());
    let end =
        |out, into| Fake { out, into, own_uid: 1000, peer_uid: 1000, sent: 0, wire: Box::new(|_, _| ()) };
    (end(a, from_b), end(b, from_a))
}

impl Control for Fake {
    fn send(&mut self, bytes: &[u8], _: &[&Share], _: Instant) -> Result<()> {
        let mut bytes = bytes.to_vec();
        (self.wire)(self.sent, &mut bytes);
        self.sent += 1;
        self.out.send(bytes).map_err(|_| Error::new(Kind::PeerLost, "hung up"))
    }
    fn receive(&mut self, limit: usize, deadline: Instant) -> Result<(Vec<u8>, Vec<Share>)> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.into.recv_timeout(left) {
            Ok(bytes) if bytes.len() > limit => Err(Error::protocol("too long")),
            Ok(bytes) => Ok((bytes, Vec::new())),
            Err(RecvTimeoutError::Timeout) => Err(Error::new(Kind::TimedOut, "silence")),
            Err(RecvTimeoutError::Disconnected) => Err(Error::new(Kind::PeerLost, "hung up")),
        }
    }
    fn peer_uid(&self) -> u32 {
        self.peer_uid
    }
    fn own_uid(&self) -> u32 {
        self.own_uid
    }
    fn address(&self) -> String {
        "unix:@fake".into()
    }
    fn breaker(&self) -> Arc<dyn Breaker> {
        unreachable!()
    }
    fn into_share(self: Box<Self>) -> Share {
        unreachable!()
    }
}

pub(crate) struct Named(&'static str, Option<&'static str>);
impl Engine for Named {
    fn name(&self) -> &'static str {
        self.0
    }
    fn offer(&self, _: &Session, _: &dyn Control) -> Result<Box<dyn Candidate>> {
        match self.1 {
            Some(why) => Err(Error::new(Kind::NotSupported, why)),
            None => Ok(Box::new(Nothing)),
        }
    }
}
struct Nothing;
impl Candidate for Nothing {
    fn meet(self: Box<Self>, meeting: &mut Meeting<'_, '_>) -> Result<Box<dyn Met>> {
        Err(meeting.hear().err().unwrap())
    }
}

const COOKIE: [u8; 32] = [7; 32];
pub(crate) const SAME: Policy<'static> = Policy::SameUser(&COOKIE);

pub(crate) struct Setup {
    pub(crate) policy: Policy<'static>,
    pub(crate) versions: RangeInclusive<u16>,
    pub(crate) engines: Vec<Arc<dyn Engine>>,
    pub(crate) refuse: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        let engines: Vec<Arc<dyn Engine>> =
            vec![Arc::new(Named("inproc", None)), Arc::new(Named("shm", None))];
        Self { policy: SAME, versions: VERSIONS, engines, refuse: None }
    }
}

pub(crate) fn hello(name: &str, instance: u64) -> Hello {
    Hello { name: name.into(), instance, host_id: instance as u32, credits: 3, ..Hello::default() }
}

fn run(fake: &mut Fake, setup: &Setup, own: &Hello, connector: bool) -> Result<Agreed> {
    let admit = |peer: &Hello| match setup.refuse {
        Some(text) => Err(Error::new(Kind::Refused, format!("{text} {}", peer.host_id))),
        None => Ok(()),
    };
    let side = Side { own, policy: setup.policy, engines: &setup.engines, admit: &admit };
    let deadline = Instant::now() + Duration::from_secs(10);
    match connector {
        true => connect_with(fake, &side, deadline, setup.versions.clone()),
        false => accept_with(fake, &side, deadline, setup.versions.clone()),
    }
}

pub(crate) type Both = (Result<Agreed>, Result<Agreed>);

pub(crate) fn shake_over(pair: (Fake, Fake), client: Setup, server: Setup) -> Both {
    let (mut a, mut b) = pair;
    let listener = thread::spawn(move || run(&mut b, &server, &hello("server", 2), false));
    let connected = run(&mut a, &client, &hello("client", 1), true);
    drop(a);
    (connected, listener.join().unwrap())
}

/// As `shake_over`; the channel is left open.
pub(crate) fn shake_over_kept(pair: (Fake, Fake), client: Setup, server: Setup) -> (Both, (Fake, Fake)) {
    let (mut a, mut b) = pair;
    let listener = thread::spawn(move || (run(&mut b, &server, &hello("server", 2), false), b));
    let connected = run(&mut a, &client, &hello("client", 1), true);
    let (listened, b) = listener.join().unwrap();
    ((connected, listened), (a, b))
}

pub(crate) fn shake(client: Setup, server: Setup) -> Both {
    shake_over(pair(), client, server)
}

/// Both ends fail like this, and say all of these words.
fn assert_both(both: Both, kind: Kind, words: &[&str]) {
    for error in [both.0.err().unwrap(), both.1.err().unwrap()] {
        assert_eq!(error.kind, kind, "{error}");
        for word in words {
            assert!(error.text.contains(word), "{word:?} is missing in {error}");
        }
    }
}

#[test]
fn both_ends_agree() {
    for policy in [SAME, Policy::Token(b"0123456789abcdef"), Policy::Insecure] {
        let setup = || Setup { policy, ..Setup::default() };
        let (client, server) = shake(setup(), setup());
        let (client, server) = (client.unwrap(), server.unwrap());
        assert_eq!((client.peer.name.as_str(), server.peer.name.as_str()), ("server", "client"));
        assert_eq!((client.peer.host_id, server.peer.credits), (2, 3));
        assert_eq!(client.session.id, server.session.id);
        assert_eq!(client.session.key, server.session.key);
        assert!(client.session.connector && !server.session.connector);
        assert_eq!((client.peer.instance, server.peer.instance), (2, 1));
        assert_eq!(client.rounds.listed(), server.rounds.listed());
        assert_eq!(client.rounds.listed(), [Ok("inproc"), Ok("shm")]);
    }
}

#[test]
fn sessions_never_repeat() {
    let first = shake(Setup::default(), Setup::default()).0.unwrap();
    let second = shake(Setup::default(), Setup::default()).0.unwrap();
    assert_ne!(first.session.id, second.session.id);
    assert_ne!(first.session.key, second.session.key);
}

#[test]
fn the_wrong_secret_is_refused_on_both_ends() {
    static OTHER: [u8; 32] = [8; 32];
    let other = Setup { policy: Policy::SameUser(&OTHER), ..Setup::default() };
    assert_both(shake(other, Setup::default()), Kind::AuthFailed, &["proof", "cookie"]);
    let token = |token| Setup { policy: Policy::Token(token), ..Setup::default() };
    let both = shake(token(b"0123456789abcdef"), token(b"0123456789abcdeF"));
    assert_both(both, Kind::AuthFailed, &["proof", "auth_token"]);
}

#[test]
fn modes_must_match() {
    let token = Setup { policy: Policy::Token(b"0123456789abcdef"), ..Setup::default() };
    assert_both(shake(token, Setup::default()), Kind::AuthFailed, &["\"token\"", "\"same user\""]);
    let insecure = Setup { policy: Policy::Insecure, ..Setup::default() };
    assert_both(shake(Setup::default(), insecure), Kind::AuthFailed, &["\"insecure\"", "\"same user\""]);
}

#[test]
fn short_tokens_are_refused() {
    let short = Setup { policy: Policy::Token(b"short"), ..Setup::default() };
    let error = shake(short, Setup::default()).0.err().unwrap();
    assert_eq!(error.kind, Kind::InvalidParameter);
    assert!(error.text.contains('5') && error.text.contains("16"), "{error}");
}

#[test]
fn other_users_are_refused_by_either_end() {
    let (mut a, b) = pair();
    a.peer_uid = 1001;
    assert_both(shake_over((a, b), Setup::default(), Setup::default()), Kind::AuthFailed, &["1000", "1001"]);
    let (a, mut b) = pair();
    b.peer_uid = 0;
    assert_both(
        shake_over((a, b), Setup::default(), Setup::default()),
        Kind::AuthFailed,
        &["1000", "user 0"],
    );
    // A token is enough for another user.
    let token = || Setup { policy: Policy::Token(b"0123456789abcdef"), ..Setup::default() };
    let (mut a, b) = pair();
    a.peer_uid = 1001;
    assert!(shake_over((a, b), token(), token()).0.is_ok());
}

#[test]
fn versions_are_negotiated() {
    let speaks = |versions| Setup { versions, ..Setup::default() };
    assert!(shake(speaks(1..=3), speaks(2..=5)).0.is_ok());
    let both = shake(speaks(1..=2), speaks(3..=4));
    assert_both(both, Kind::VersionMismatch, &["1..2", "3..4"]);
    let both = shake(speaks(7..=9), speaks(3..=4));
    assert_both(both, Kind::VersionMismatch, &["7..9", "3..4"]);
}

#[test]
fn a_refusal_reaches_the_other_end_in_words() {
    let picky = || Setup { refuse: Some("no room for host id"), ..Setup::default() };
    let both = shake(Setup::default(), picky());
    assert_both(both, Kind::Refused, &["no room for host id 1"]);
    // The connector's last word comes when the listener looks for an engine.
    let ((client, server), (_a, mut b)) = shake_over_kept(pair(), picky(), Setup::default());
    let server = server.unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let told = server.rounds.meet(&mut b, &server.session, &super::meeting::tests::seat(), deadline);
    for error in [client.err().unwrap(), told.err().unwrap()] {
        assert_eq!(error.kind, Kind::Refused);
        assert!(error.text.contains("no room for host id 2"), "{error}");
    }
}

#[test]
fn the_listener_orders_and_both_know_why() {
    let engines = |list: &[(&'static str, Option<&'static str>)]| Setup {
        engines: list.iter().map(|(name, unfit)| Arc::new(Named(name, *unfit)) as Arc<dyn Engine>).collect(),
        ..Setup::default()
    };
    let client = engines(&[("ucx", None), ("shm", None), ("inproc", None), ("tcp", None)]);
    let server = engines(&[("rdma", None), ("inproc", Some("elsewhere")), ("tcp", None), ("shm", None)]);
    let (client, server) = shake(client, server);
    let (client, server) = (client.unwrap(), server.unwrap());
    assert_eq!(client.rounds.listed(), server.rounds.listed());
    let expected = [
        Err(("rdma", "not offered by client")),
        Err(("ucx", "not offered by server")),
        Err(("inproc", "server: elsewhere")),
        Ok("tcp"),
        Ok("shm"),
    ];
    assert_eq!(client.rounds.listed(), expected);

    let both = shake(engines(&[("shm", Some("no memfd"))]), engines(&[("shm", None), ("tcp", None)]));
    assert_both(both, Kind::Unreachable, &["no engine in common", "client: no memfd", "tcp"]);
}

/// Flips one byte of each message in turn, at each end: never agreement, never a hang.
#[test]
fn any_changed_message_ends_in_an_error() {
    for connector in [true, false] {
        for message in 0..3 {
            for at in [0, 9, 11, 30] {
                let (mut a, mut b) = pair();
                let end = if connector { &mut a } else { &mut b };
                end.wire = Box::new(move |n, bytes| {
                    if n == message {
                        let at = at % bytes.len();
                        bytes[at] ^= 0x55;
                    }
                });
                let (client, server) = shake_over((a, b), Setup::default(), Setup::default());
                // Whoever sends the last message cannot know that it was changed.
                let last = !connector && message == 2;
                assert!(client.is_err() && (server.is_err() || last), "{connector} {message} {at}");
            }
        }
    }
}

#[test]
fn truncated_oversized_and_garbage_messages_end_in_an_error() {
    let damage: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes.clear(),
        |bytes| *bytes = vec![0xa5; 4097],
        |bytes| *bytes = b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ];
    for connector in [true, false] {
        for message in 0..3 {
            for hurt in damage {
                let (mut a, mut b) = pair();
                let end = if connector { &mut a } else { &mut b };
                end.wire = Box::new(move |n, bytes| {
                    if n == message {
                        hurt(bytes);
                    }
                });
                let (client, server) = shake_over((a, b), Setup::default(), Setup::default());
                // Whoever sends the last message cannot know what became of it.
                let last = !connector && message == 2;
                assert!(client.is_err() && (server.is_err() || last), "{connector} {message}");
            }
        }
    }
}

#[test]
fn a_recorded_exchange_cannot_be_replayed() {
    let (record, recorded) = channel();
    let (mut a, b) = pair();
    a.wire = Box::new(move |_, bytes| record.send(bytes.clone()).unwrap());
    assert!(shake_over((a, b), Setup::default(), Setup::default()).1.is_ok());
    let (a, mut b) = pair();
    for message in recorded.try_iter() {
        a.out.send(message).unwrap();
    }
    let error = run(&mut b, &Setup::default(), &hello("server", 2), false).err().unwrap();
    assert_eq!(error.kind, Kind::AuthFailed);
}

#[test]
fn a_silent_stranger_is_given_up() {
    let (_a, mut b) = pair();
    let setup = Setup::default();
    let admit = |_: &Hello| Ok(());
    let own = hello("server", 2);
    let side = Side { own: &own, policy: setup.policy, engines: &setup.engines, admit: &admit };
    let error = accept(&mut b, &side, Instant::now() + Duration::from_millis(30)).err().unwrap();
    assert_eq!(error.kind, Kind::TimedOut);
    let start = Instant::now();
    let error = accept(&mut b, &side, start + Duration::from_secs(3600)).err().unwrap();
    assert_eq!(error.kind, Kind::TimedOut);
    assert!(start.elapsed() < TIME_LIMIT * 3);
}

#[test]
fn a_listener_that_answers_with_our_own_words_is_refused() {
    // Reflection: everything that the connector says comes back to it.
    let (mut a, b) = pair();
    let mirror = thread::spawn(move || {
        while let Ok(message) = b.into.recv() {
            if b.out.send(message).is_err() {
                return;
            }
        }
    });
    assert!(run(&mut a, &Setup::default(), &hello("client", 1), true).is_err());
    drop(a);
    mirror.join().unwrap();
}
