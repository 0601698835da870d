//! Sends known bytes over every path that this machine offers to itself, and compares them.
use std::time::Duration;

use nrdma::doctor::Finding;

use crate::crew::{Crew, Plan};
use crate::node::{Node, Replica, Settings};
use crate::probe::{Content, Probe, Target, exchange, path_name};
use crate::table;

/// How long a worker process may take to connect.
const JOINING: Duration = Duration::from_secs(10);
/// Results that share a page, that have pages of their own, and that do not end where a page does.
const SIZES: [u64; 3] = [1000, 64 << 10, (8 << 20) + 5];

/// One finding for each engine, on this machine.
pub(crate) fn run() -> Vec<Finding> {
    ["inproc", "shm", "tcp"]
        .into_iter()
        .map(|engine| match test(engine) {
            Ok(text) => Finding::ok("selftest", format!("{engine}: {text}")),
            Err(why) => Finding::fail("selftest", format!("{engine}: {why}"))
                .why(format!("results over {engine} are lost or wrong on this machine"))
                .remedy(format!(
                    "NRDMA_LOG=debug nrdma doctor; without it: NRDMA_TRANSPORTS={}",
                    others(engine)
                )),
        })
        .collect()
}

fn test(engine: &str) -> Result<String, String> {
    match engine {
        "inproc" => inproc(),
        "shm" => between(engine, "unix:"),
        _ => between(engine, "127.0.0.1:0"),
    }
}

fn others(engine: &str) -> String {
    ["inproc", "shm", "tcp"].into_iter().filter(|other| *other != engine).collect::<Vec<_>>().join(",")
}

fn node(name: &str, engine: &str) -> Result<Node, String> {
    let settings = Settings {
        name: name.to_owned(),
        worker_threads: 1,
        transports: Some(engine.to_owned()),
        ..Settings::default()
    };
    Node::new(&settings).map_err(|why| why.to_string())
}

/// Two nodes of this process.
fn inproc() -> Result<String, String> {
    let (here, there) = (node("doctor", "inproc")?, node("responder", "inproc")?);
    there.register::<Probe>().map_err(|why| why.to_string())?;
    let address = there.listen("unix:").map_err(|why| why.to_string())?;
    here.connect(&address).map_err(|why| why.to_string())?;
    verify(&here)
}

/// This process and another.
fn between(engine: &str, door: &str) -> Result<String, String> {
    let here = node("doctor", engine)?;
    let address = here.listen(door).map_err(|why| why.to_string())?;
    let crew = Crew::start(&Plan { hosts: 1, address: &address, threads: 1, transports: Some(engine) })
        .map_err(|why| format!("cannot start a worker process: {why}"))?;
    here.wait_peers(1, JOINING).map_err(|why| why.to_string())?;
    let result = verify(&here);
    crew.dismiss();
    result
}

/// Sends results of every size into memory of both kinds; says which paths they took.
fn verify(node: &Node) -> Result<String, String> {
    let mut paths: Vec<&str> = Vec::new();
    for bytes in SIZES {
        for target in [Target::Own, Target::Wrapped] {
            let probe = Probe { content: Content::Pattern, bytes, seed: bytes ^ Probe::CLASS.id1 as u64 };
            let outcome = exchange(node, probe, target, 3, 2, true)
                .map_err(|why| format!("a result of {}: {why}", table::bytes(bytes)))?;
            paths.push(path_name(outcome.path));
        }
    }
    paths.sort_unstable();
    paths.dedup();
    let largest = SIZES.into_iter().max().unwrap_or(0);
    Ok(format!("results up to {} arrive as sent ({})", table::bytes(largest), paths.join(", ")))
}
