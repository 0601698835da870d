//! Two nodes that reach each other by whatever address take the best engine that both have.
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::abi;
use crate::core::config::Config;
use crate::core::error::Kind;
use crate::core::node::Node;

const LONG: Duration = Duration::from_secs(20);

fn node(host_id: u32, transports: &[&str]) -> Arc<Node> {
    let transports = transports.iter().map(|name| (*name).to_owned()).collect();
    let config = Config { name: format!("n{host_id}"), host_id, workers: 1, transports, ..Config::default() };
    Node::create(config, crate::backends(), abi::buffer::make).unwrap()
}

/// The engines that both ends came to use.
fn taken(address: &str, first: &[&str], second: &[&str]) -> (&'static str, &'static str) {
    let (a, b) = (node(1, first), node(2, second));
    let bound = a.listen(address, None).unwrap();
    b.connect(&bound).unwrap();
    let engine = |node: &Arc<Node>, peer| node.peer(peer).unwrap().link.engine();
    let engines = (engine(&a, 2), engine(&b, 1));
    a.shutdown(Some(LONG)).unwrap();
    b.shutdown(Some(LONG)).unwrap();
    engines
}

#[test]
fn one_address_is_enough_for_the_best_engine() {
    for address in ["127.0.0.1:0", "unix:"] {
        assert_eq!(taken(address, &[], &[]), ("inproc", "inproc"));
        assert_eq!(taken(address, &["shm"], &[]), ("shm", "shm"));
        assert_eq!(taken(address, &[], &["tcp", "shm"]), ("shm", "shm"));
        assert_eq!(taken(address, &["shm", "inproc"], &[]), ("shm", "shm"));
    }
    assert_eq!(taken("127.0.0.1:0", &["tcp"], &[]), ("tcp", "tcp"));
    assert_eq!(taken("127.0.0.1:0", &["tcp", "shm"], &["shm", "tcp"]), ("tcp", "tcp"));
}

#[test]
fn engines_that_cannot_meet_are_told_at_both_ends() {
    let (a, b) = (node(1, &["tcp"]), node(2, &["shm"]));
    let bound = a.listen("127.0.0.1:0", None).unwrap();
    let error = b.connect(&bound).unwrap_err();
    assert_eq!(error.kind, Kind::Unreachable);
    for words in ["no engine in common", "shm (n1: left out", "tcp (not offered by n2)"] {
        assert!(error.text.contains(words), "{words:?} is missing in {error}");
    }
    a.shutdown(Some(LONG)).unwrap();
    b.shutdown(Some(LONG)).unwrap();
}

#[test]
fn many_that_connect_at_once_all_meet() {
    let first = node(1, &[]);
    let bound = first.listen("127.0.0.1:0", None).unwrap();
    let others: Vec<_> = (2..26).map(|id| node(id, [&["tcp"][..], &["shm"], &[]][id as usize % 3])).collect();
    let threads: Vec<_> = others
        .iter()
        .map(|other| {
            let (other, bound) = (Arc::clone(other), bound.clone());
            thread::spawn(move || other.connect(&bound).unwrap())
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(first.peers_sorted().len(), others.len());
    for peer in first.peers_sorted() {
        assert_eq!(peer.link.engine(), ["tcp", "shm", "inproc"][peer.host_id as usize % 3]);
    }
    for node in others.iter().chain([&first]) {
        node.shutdown(Some(LONG)).unwrap();
    }
    let deadline = Instant::now() + LONG;
    while Arc::strong_count(&first) > 1 {
        assert!(Instant::now() < deadline, "something holds the node");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_node_that_ends_ends_its_own_connecting_too() {
    // Takes connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let end = || {
        let config = Config { host_id: 1, workers: 1, connect_timeout: 10 * LONG, ..Config::default() };
        let node = Node::create(config, crate::backends(), abi::buffer::make).unwrap();
        let connecting = {
            let (node, address) = (Arc::clone(&node), address.clone());
            thread::spawn(move || node.connect(&address))
        };
        let (_guest, _) = silent.accept().unwrap();
        let start = Instant::now();
        node.shutdown(Some(LONG)).unwrap();
        assert_eq!(connecting.join().unwrap().unwrap_err().kind, Kind::ShutDown);
        assert_eq!(node.connect(&address).unwrap_err().kind, Kind::ShutDown);
        start.elapsed()
    };
    // The handshake's own limit is 5 s. A busy machine may be slow, but not always.
    assert!((0..4).any(|_| end() < Duration::from_secs(3)));
}

#[test]
fn nodes_that_end_while_others_connect_leave_nothing() {
    for round in 0..30_u64 {
        let (a, b) = (node(1, &[]), node(2, if round % 2 == 0 { &["tcp"] } else { &[] }));
        let bound = a.listen("127.0.0.1:0", None).unwrap();
        let connecting = {
            let b = Arc::clone(&b);
            thread::spawn(move || b.connect(&bound).map(drop))
        };
        thread::sleep(Duration::from_micros(round * 150));
        let ends = if round % 3 == 0 { &b } else { &a };
        ends.shutdown(Some(LONG)).unwrap();
        let _ = connecting.join().unwrap();
        a.shutdown(Some(LONG)).unwrap();
        b.shutdown(Some(LONG)).unwrap();
        let deadline = Instant::now() + LONG;
        while Arc::strong_count(&a) + Arc::strong_count(&b) > 2 {
            assert!(Instant::now() < deadline, "something holds a node in round {round}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
