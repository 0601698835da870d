//! `nrdma demo`: worker processes render a picture in fragments; the results arrive without being copied.
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::args;
use crate::crew::{Crew, Plan};
use crate::node::{Failure, Node, Options, Replica, Settings};
use crate::painting::Painting;
use crate::progress;
use crate::scene::Scene;
use crate::summary::{Check, Summary};

/// How long the workers may take to connect.
const JOINING: Duration = Duration::from_secs(20);

/// What `demo` has to say.
pub(crate) struct Outcome {
    pub(crate) text: String,
    /// Whether the picture is complete and right.
    pub(crate) complete: bool,
}

/// Runs the demonstration.
pub(crate) fn run(options: &args::Demo) -> Result<Outcome, String> {
    // Before the work, not after it. An older picture stays until the new one is there.
    let file = &options.out;
    File::options().create(true).append(true).open(file).map_err(|why| unwritable(file, &why))?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = (u32::try_from(cores).unwrap_or(u32::MAX) / (options.hosts + 1)).max(1);
    let node = Node::new(&Settings {
        name: "demo".to_owned(),
        worker_threads: threads,
        transports: options.transports.clone(),
        peer_timeout_ms: options.timeout_ms,
        ..Settings::default()
    })
    .map_err(|why| format!("cannot make a node: {why}"))?;
    let crew = gather(&node, options, threads)?;
    let mut peers = node.peers().map_err(|why| why.to_string())?;
    peers.sort_by(|a, b| a.name.cmp(&b.name));

    let painting = Painting::new(options, &crew);
    let how = Options { class: Scene::CLASS, payload: &options.scene.encode(), here: true, thread_limit: 0 };
    let count = options.scene.count();
    let start = Instant::now();
    let result = progress::during("tiles", count, painting.done(), || node.execute(&painting, &how, count));
    let wall = start.elapsed();

    let stats = node.stats().map_err(|why| why.to_string())?;
    let reports = crew.dismiss();
    // The picture is what counts; a host that does not answer the goodbye is only worth a word.
    let goodbye = node.shutdown().err();
    let check = verify(options, &painting, &result, cores);
    let file = &options.out;
    painting.canvas().save(file).map_err(|why| format!("cannot write {}: {why}", file.display()))?;
    let complete = result.is_ok() && check.is_fine();
    let summary = Summary {
        options,
        peers: &peers,
        tallies: painting.tallies(),
        stats: &stats,
        reports: &reports,
        killed: painting.killed(),
        wall,
        check,
        troubles: painting.troubles(result.err(), goodbye),
    };
    Ok(Outcome { text: summary.text(), complete })
}

/// Where the workers connect to: only a Unix socket serves shm, only TCP serves tcp (and is all there is on Windows).
fn door(options: &args::Demo) -> &'static str {
    match options.transports.as_deref() {
        Some(engines) if engines.split(',').all(|engine| engine.trim() == "tcp") => "127.0.0.1:0",
        _ if cfg!(windows) => "127.0.0.1:0",
        _ => "unix:",
    }
}

fn unwritable(file: &Path, why: &io::Error) -> String {
    format!("cannot write {}: {why}", file.display())
}

/// Starts the workers and waits until all have connected.
fn gather(node: &Node, options: &args::Demo, threads: u32) -> Result<Crew, String> {
    let address = match options.hosts {
        0 => String::new(),
        _ => node.listen(door(options)).map_err(|why| format!("cannot listen: {why}"))?,
    };
    for server in &options.connect {
        node.connect(server).map_err(|why| why.to_string())?;
    }
    let transports = options.transports.as_deref();
    let crew = Crew::start(&Plan { hosts: options.hosts, address: &address, threads, transports })
        .map_err(|why| format!("cannot start a worker: {why}"))?;
    let deadline = Instant::now() + JOINING;
    let hosts = options.hosts as usize + options.connect.len();
    loop {
        match node.wait_peers(hosts, Duration::from_millis(100)) {
            Ok(()) => return Ok(crew),
            Err(why) if !why.is_timeout() => return Err(format!("waiting for the workers: {why}")),
            Err(_) => {}
        }
        if let Some((number, status)) = crew.ended() {
            return Err(format!("{} ended before it had connected ({status})", Crew::name(number)));
        }
        if Instant::now() > deadline {
            return Err(format!("not all of {hosts} workers connected within {} s", JOINING.as_secs()));
        }
    }
}

fn verify(
    options: &args::Demo,
    painting: &Painting<'_>,
    result: &Result<(), Failure>,
    cores: usize,
) -> Check {
    if result.is_err() {
        let done = painting.done().load(Ordering::Relaxed);
        return Check::Incomplete { tiles: options.scene.count(), done };
    }
    if !options.verify {
        return Check::Skipped;
    }
    Check::Compared { tiles: options.scene.count(), wrong: painting.canvas().wrong_tiles(cores) }
}
