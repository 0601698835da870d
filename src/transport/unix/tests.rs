use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::sys::runtime_dir::tests::Scratch;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn exchange(address: &str) {
    let listener = Unix.listen(address).unwrap();
    assert!(listener.accept().unwrap().is_none());
    let bound = listener.bound();
    let mut client = Unix.connect(&bound, soon()).unwrap();
    let mut server = listener.accept().unwrap().unwrap();
    client.send(b"to the server", &[], soon()).unwrap();
    assert_eq!(server.receive(100, soon()).unwrap().0, b"to the server");
    server.send(b"to the client", &[], soon()).unwrap();
    assert_eq!(client.receive(100, soon()).unwrap().0, b"to the client");
    assert_eq!((client.peer_uid(), server.peer_uid()), (client.own_uid(), client.own_uid()));
    let early = client.receive(100, Instant::now() + Duration::from_millis(10)).unwrap_err();
    assert_eq!(early.kind, Kind::TimedOut);
    client.send(&[0; 101], &[], soon()).unwrap();
    assert_eq!(server.receive(100, soon()).unwrap_err().kind, Kind::ProtocolError);
    drop(server);
    let gone = client.receive(100, soon()).unwrap_err();
    assert_eq!(gone.kind, Kind::PeerLost);
    assert!(gone.text.contains("hung up"), "{gone}");
}

#[test]
fn abstract_names_and_paths_carry_messages() {
    let scratch = Scratch::new();
    exchange(&format!("unix:{}/socket", scratch.0.display()));
    exchange(&format!("unix:@nrdma-test-{}-{:p}", std::process::id(), &scratch));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn a_random_name_is_private_and_goes() {
    let listener = Unix.listen("unix:").unwrap();
    let path = listener.bound().strip_prefix("unix:").unwrap().to_owned();
    let found = fs::metadata(&path).unwrap();
    assert_eq!(found.mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(std::path::Path::new(&path).parent().unwrap()).unwrap().mode() & 0o077, 0);
    let other = Unix.listen("unix:").unwrap();
    assert_ne!(other.bound(), listener.bound());
    drop(listener);
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn addresses_in_use_are_refused_and_stale_files_replaced() {
    let scratch = Scratch::new();
    let path = scratch.0.join("socket");
    let address = format!("unix:{}", path.display());
    let first = Unix.listen(&address).unwrap();
    let error = Unix.listen(&address).err().unwrap();
    assert_eq!(error.kind, Kind::AddressInUse);
    assert!(error.text.contains(&address), "{error}");
    // What a killed process leaves behind: the file without the socket.
    let kept = scratch.0.join("kept");
    fs::hard_link(&path, &kept).unwrap();
    drop(first);
    fs::rename(&kept, &path).unwrap();
    let error = Unix.connect(&address, soon()).err().unwrap();
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(error.text.contains("nobody listens"), "{error}");
    let second = Unix.listen(&address).unwrap();
    Unix.connect(&address, soon()).unwrap();
    // Somebody else's file by the same name survives us.
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"mine").unwrap();
    drop(second);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    assert_eq!(Unix.listen(&address).err().unwrap().kind, Kind::AddressInUse);
}

#[test]
fn bad_addresses_say_why() {
    let long = format!("unix:/{}", "x".repeat(107));
    for (address, words) in [("unix:@", "names no socket"), (&long, "107 bytes"), ("unix:/a\0b", "names no")]
    {
        let error = Unix.listen(address).err().unwrap();
        assert_eq!(error.kind, Kind::InvalidParameter);
        assert!(error.text.contains(words), "{error}");
    }
    assert_eq!(Unix.connect("unix:", soon()).err().unwrap().kind, Kind::InvalidParameter);
    let missing = Unix.listen("unix:/nonexistent/nrdma/socket").err().unwrap();
    assert!(missing.text.contains("/nonexistent/nrdma/socket"), "{missing}");
    assert!(!Unix.handles("tcp:1.2.3.4:5") && Unix.handles("unix:/x"));
}

#[test]
fn a_full_queue_ends_at_the_deadline() {
    let scratch = Scratch::new();
    let socket = Socket::new().unwrap();
    let name = crate::sys::socket::Name::Path(scratch.0.join("socket"));
    socket.bind(&name).unwrap();
    socket.listen(0).unwrap();
    let address = format!("unix:{}/socket", scratch.0.display());
    let mut waiting = Vec::new();
    let error = loop {
        match Unix.connect(&address, Instant::now() + Duration::from_millis(20)) {
            Ok(control) => waiting.push(control),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100);
    };
    assert_eq!(error.kind, Kind::TimedOut);
}

#[test]
fn random_names_of_dead_processes_are_swept() {
    let keep = Unix.listen("unix:").unwrap();
    let path = std::path::PathBuf::from(keep.bound().strip_prefix("unix:").unwrap());
    let directory = path.parent().unwrap();
    // No process has so high a number.
    let left = directory.join(format!("node-4294967295-{:p}", &keep));
    let live = directory.join(format!("node-4294967294-{:p}", &keep));
    let (gone, listening) = (Socket::new().unwrap(), Socket::new().unwrap());
    gone.bind(&crate::sys::socket::Name::Path(left.clone())).unwrap();
    listening.bind(&crate::sys::socket::Name::Path(live.clone())).unwrap();
    listening.listen(10).unwrap();
    let _other = Unix.listen("unix:").unwrap();
    assert!(!left.exists() && live.exists() && path.exists());
    fs::remove_file(live).unwrap();
}

#[test]
fn files_are_closed_to_others_whatever_the_umask() {
    let scratch = Scratch::new();
    let listener = Unix.listen(&format!("unix:{}/socket", scratch.0.display())).unwrap();
    let mode = fs::metadata(scratch.0.join("socket")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(listener);
}
