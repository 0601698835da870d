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
