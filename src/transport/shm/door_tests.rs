#![allow(clippy::unwrap_used)]
use std::fs;
use std::thread;

use super::*;
use crate::sys::runtime_dir::tests::Scratch;

fn session(connector: bool) -> Session {
    Session { connector, id: [0xa5; 16], key: [7; 32] }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().count() == 0
}

#[test]
fn two_that_know_the_session_meet_and_leave_nothing() {
    let scratch = Scratch::new();
    let door = Door::open(&scratch.0, &session(false)).unwrap();
    let file = scratch.0.join(format!("shm-{}", "a5".repeat(16)));
    assert_eq!(fs::symlink_metadata(&file).unwrap().mode() & 0o777, 0o600);
    let knock = Knock::new(&scratch.0, &session(true)).unwrap();
    let listener = door.let_in(&session(false)).unwrap();
    let connector = knock.answered(&session(true), soon()).unwrap();
    assert!(is_empty(&scratch.0));
    connector.send(b"to the listener", &[], soon()).unwrap();
    assert_eq!(listener.receive(100, soon()).unwrap().0, b"to the listener");
    drop(connector);
    assert!(listener.receive(100, soon()).unwrap_err().text.contains("hung up"));
}

#[test]
fn strangers_at_the_door_are_left_standing() {
    let scratch = Scratch::new();
    let door = Door::open(&scratch.0, &session(false)).unwrap();
    let name = Name::Path(door.path.clone());
    let stranger = |words: &[u8]| {
        let socket = Socket::new().unwrap();
        socket.connect(&name).unwrap();
        if !words.is_empty() {
            socket.send(words, &[]).unwrap();
        }
        socket
    };
    let wrong = |session: Session, channel| ChannelProof::make(&session, channel).unwrap().bytes().to_vec();
    let _strangers = [
        stranger(b""),
        stranger(b"GET / HTTP/1.1"),
        stranger(&[7; 4096]),
        stranger(&wrong(Session { key: [8; 32], ..session(true) }, CHANNEL)),
        stranger(&wrong(Session { id: [8; 16], ..session(true) }, CHANNEL)),
        // The data connection of tcp is another channel.
        stranger(&wrong(session(true), 1)),
    ];
    let knock = Knock::new(&scratch.0, &session(true)).unwrap();
    let listener = door.let_in(&session(false)).unwrap();
    let connector = knock.answered(&session(true), soon()).unwrap();
    listener.send(b"you", &[], soon()).unwrap();
    assert_eq!(connector.receive(100, soon()).unwrap().0, b"you");
    // Nobody but strangers: no waiting.
    let door = Door::open(&scratch.0, &session(false)).unwrap();
    let _strangers = [stranger(b""), stranger(b"x")];
    assert!(door.let_in(&session(false)).err().unwrap().text.contains("not at the socket"));
    assert!(is_empty(&scratch.0));
}

#[test]
fn a_squatted_name_is_neither_used_nor_removed() {
    let scratch = Scratch::new();
    let file = path(&scratch.0, &session(true));
    fs::write(&file, b"mine").unwrap();
    let error = Door::open(&scratch.0, &session(false)).err().unwrap();
    assert!(error.text.contains("no socket can be made"), "{error}");
    assert!(Knock::new(&scratch.0, &session(true)).is_err());
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    fs::remove_file(&file).unwrap();
    // Somebody of this user who listens there, but is not the peer.
    let squatter = Socket::new().unwrap();
    squatter.bind(&Name::Path(file)).unwrap();
    squatter.listen(4).unwrap();
    assert!(Door::open(&scratch.0, &session(false)).is_err());
    for answer in [&[0; 32][..], &[], b"shm opened 1"] {
        let knock = Knock::new(&scratch.0, &session(true)).unwrap();
        let taken = squatter.accept().unwrap();
        let mut proof = [0; ChannelProof::BYTES];
        taken.receive(&mut proof).unwrap();
        if !answer.is_empty() {
            taken.send(answer, &[]).unwrap();
        }
        drop(taken);
        assert!(knock.answered(&session(true), soon()).is_err(), "{answer:?}");
    }
    // The proof itself, sent back.
    let knock = Knock::new(&scratch.0, &session(true)).unwrap();
    let taken = squatter.accept().unwrap();
    let mut proof = [0; ChannelProof::BYTES];
    taken.receive(&mut proof).unwrap();
    taken.send(&proof, &[]).unwrap();
    assert_eq!(knock.answered(&session(true), soon()).err().unwrap().kind, Kind::AuthFailed);
}

#[test]
fn no_door_is_told_at_once_and_a_silent_one_at_the_deadline() {
    let scratch = Scratch::new();
    let error = Knock::new(&scratch.0, &session(true)).err().unwrap();
    assert!(error.text.contains("not to be found"), "{error}");
    assert!(Door::open(&scratch.0.join("gone"), &session(false)).is_err());
    let _door = Door::open(&scratch.0, &session(false)).unwrap();
    let knock = Knock::new(&scratch.0, &session(true)).unwrap();
    let start = Instant::now();
    assert!(knock.answered(&session(true), start + Duration::from_millis(20)).is_err());
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_killed_processes_left_is_swept() {
    let scratch = Scratch::new();
    let left = Socket::new().unwrap();
    left.bind(&Name::Path(scratch.0.join("shm-00"))).unwrap();
    left.bind(&Name::Path(scratch.0.join("other"))).unwrap_err();
    fs::write(scratch.0.join("shm-file"), b"no socket").unwrap();
    sweep(&scratch.0, LEFT_BEHIND);
    assert!(scratch.0.join("shm-00").exists());
    thread::sleep(Duration::from_millis(20));
    sweep(&scratch.0, Duration::from_millis(1));
    assert!(!scratch.0.join("shm-00").exists() && scratch.0.join("shm-file").exists());
}
