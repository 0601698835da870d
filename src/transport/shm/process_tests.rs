//! Two real processes: the test binary starts itself again.
use std::io::BufRead;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::sys::map;

const ADDRESS: &str = "NRDMA_TEST_ADDRESS";
const TASK: &str = "NRDMA_TEST_TASK";
const COOKIE: [u8; 32] = [6; 32];
const REGION: usize = 1 << 20;
const PUT: usize = 10 << 20;

/// A child process, killed when the test ends in whatever way.
struct Killed(Child);
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(task: &str, address: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "transport::conformance::processes::child"])
        .env(ADDRESS, address)
        .env(TASK, task)
        .stdout(Stdio::null())
        .stdin(Stdio::piped());
    command
}

fn start(task: &str, result: usize) -> (Killed, Arc<Node>, Arc<dyn Link>) {
    let listener = Unix.listen("unix:").unwrap();
    let child = command(task, &listener.bound()).spawn().unwrap();
    let child = Killed(child);
    let deadline = soon();
    let mut control = loop {
        if let Some(control) = listener.accept().unwrap() {
            break control;
        }
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(2));
    };
    let all = engines();
    let own = Hello { name: "parent".into(), instance: 1, ..Hello::default() };
    let policy = Policy::SameUser(&COOKIE);
    let side = Side { own: &own, policy, engines: &all, admit: &|_: &Hello| Ok(()) };
    let agreed = handshake::accept(control.as_mut(), &side, soon()).unwrap();
    assert_eq!(agreed.peer.name, task);
    let node = Node::new(result);
    let (link, why_not) = join_saying_why(agreed, control, &node);
    assert_eq!(link.engine(), "shm");
    let (better, reason) = &why_not[0];
    assert!(better == "inproc" && reason.contains("different processes"), "{reason}");
    (child, node, link)
}

/// Not a test by itself: what the other process runs.
#[test]
fn child() {
    let (Ok(address), Ok(task)) = (std::env::var(ADDRESS), std::env::var(TASK)) else {
        return;
    };
    if task == "cycles" {
        return cycles();
    }
    // An orphan must not stay.
    thread::spawn(|| {
        let _ = std::io::stdin().lock().read_until(0, &mut Vec::new());
        std::process::exit(1);
    });
    let mut control = Unix.connect(&address, soon()).unwrap();
    let all = engines();
    let own = Hello { name: task.clone(), instance: 2, ..Hello::default() };
    let policy = Policy::SameUser(&COOKIE);
    let side = Side { own: &own, policy, engines: &all, admit: &|_: &Hello| Ok(()) };
    let agreed = handshake::connect(control.as_mut(), &side, soon()).unwrap();
    let node = Node::new(0);
    let link = join(agreed, control, &node);
    match task.as_str() {
        "serve" => serve(&node, link.as_ref()),
        "flood" => flood(link.as_ref()),
        "put" => put(&node, link.as_ref()),
        other => panic!("{other}"),
    }
}

/// Alone in its process, so that descriptors and mappings can be counted.
fn cycles() {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    let mut before = None;
    for round in 0..100 {
        on_each(|engine| {
            let ((a, at_a), (b, at_b)) = connect(engine, 5000);
            let span = Span { block: Plain::of(pattern(5000)), offset: 0, len: 5000 };
            at_a.send(b"x").unwrap();
            assert_eq!(at_a.put(PLACE, 0, &span, 0).unwrap(), 5000);
            b.poll_until(at_b.as_ref(), |b| b.data() == 5000);
            a.poll(at_a.as_ref()).unwrap();
            at_a.close();
        });
        if round == 20 {
            before = Some((count("fd"), count("map_files"), count("task")));
        }
    }
    assert_eq!(before.unwrap(), (count("fd"), count("map_files"), count("task")));
}

#[test]
fn a_hundred_links_leave_nothing_behind() {
    let child = command("cycles", "none").spawn().unwrap();
    let mut child = Killed(child);
    let deadline = Instant::now() + LONG;
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success());
}

/// Answers every frame with what it knows of regions, until the peer hangs up.
fn serve(node: &Arc<Node>, link: &dyn Link) {
    let mut mapped = Vec::new();
    loop {
        node.sleep(link, Attention::Progress);
        if node.service(link).is_err() {
            return;
        }
        for (key, capacity, share) in std::mem::take(&mut node.inbox.lock().unwrap().regions) {
            mapped.push((key, map::Mapping::shared(&share, capacity as usize).unwrap()));
        }
        for key in std::mem::take(&mut node.inbox.lock().unwrap().forgotten) {
            mapped.retain(|(have, _)| *have != key);
        }
        if node.poll(link).is_err() {
            return;
        }
        for frame in node.frames() {
            // A region named by a frame was announced before it.
            node.service(link).unwrap();
            for (key, capacity, share) in std::mem::take(&mut node.inbox.lock().unwrap().regions) {
                mapped.push((key, map::Mapping::shared(&share, capacity as usize).unwrap()));
            }
            for (_, mapping) in &mapped {
                let at = std::ptr::with_exposed_provenance_mut::<u8>(mapping.address());
                // SAFETY: inside the mapping.
                unsafe { at.write(frame[0]) };
            }
            let _ = link.send(&[frame[0], mapped.len() as u8]);
        }
    }
}

fn flood(link: &dyn Link) {
    for n in 0_u64.. {
        let mut frame = n.to_le_bytes().to_vec();
        frame.extend(vec![n as u8; n as usize % 300]);
        if link.send(&frame).is_err() {
            return;
        }
        if n % 64 == 0 {
            let _ = link.poll(64, &mut |_| Ok(()));
            thread::yield_now();
        }
    }
}

fn put(node: &Arc<Node>, link: &dyn Link) {
    let span = Span { block: Plain::of(pattern(PUT)), offset: 0, len: PUT };
    loop {
        let mut sent = 0;
        while sent < PUT {
            let Ok(took) = link.put(PLACE, sent as u64, &span, sent) else {
                return;
            };
            sent += took;
            if took == 0 && !link.room() {
                node.sleep(link, Attention::Progress);
                if node.poll(link).is_err() {
                    return;
                }
            }
        }
    }
}

fn ask(node: &Arc<Node>, link: &dyn Link, value: u8) -> Vec<u8> {
    link.send(&[value]).unwrap();
    let mut frames = Vec::new();
    while frames.is_empty() {
        node.sleep(link, Attention::Leader);
        node.poll(link).unwrap();
        frames = node.frames();
    }
    assert_eq!(frames.len(), 1);
    frames.remove(0)
}

#[test]
fn regions_are_announced_mapped_and_forgotten() {
    let (_child, node, link) = start("serve", 0);
    assert!(link.caps().maps);
    let fd = map::create_sealed(c"nrdma-test", REGION).unwrap();
    let mapping = map::Mapping::shared(&fd, REGION).unwrap();
    let first = || {
        // SAFETY: inside the mapping.
        unsafe { std::ptr::with_exposed_provenance::<u8>(mapping.address()).read_volatile() }
    };
    assert_eq!(ask(&node, link.as_ref(), 1), [1, 0]);
    assert_eq!(first(), 0);
    let key = RegionKey { id: 9, generation: 1 };
    link.announce(key, REGION as u64, fd).unwrap();
    assert_eq!(ask(&node, link.as_ref(), 2), [2, 1]);
    assert_eq!(first(), 2);
    link.forget(key).unwrap();
    // The forget may still be on its way when the first answer comes.
    let deadline = Instant::now() + LONG;
    while ask(&node, link.as_ref(), 3) != [3, 0] {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn a_region_and_a_frame_arrive_together_a_thousand_times() {
    let (_child, node, link) = start("serve", 0);
    for n in 0..1000_u64 {
        let key = RegionKey { id: n, generation: 1 };
        link.announce(key, 4096, map::create_sealed(c"nrdma-test", 4096).unwrap()).unwrap();
        assert_eq!(ask(&node, link.as_ref(), 1)[1], 1);
        link.forget(key).unwrap();
        let deadline = Instant::now() + LONG;
        while ask(&node, link.as_ref(), 3) != [3, 0] {
            assert!(Instant::now() < deadline);
        }
    }
}

fn wait_for_hang_up(node: &Arc<Node>, link: &dyn Link) -> Duration {
    let start = Instant::now();
    loop {
        let mut ready = Vec::new();
        node.progress.wait(Some(LONG), &mut ready);
        if let Err(error) = node.service(link) {
            assert_eq!(error.kind, Kind::PeerLost);
            assert!(error.text.contains("hung up"), "{error}");
            return start.elapsed();
        }
        assert!(start.elapsed() < LONG);
    }
}

#[test]
fn a_killed_flood_leaves_whole_frames_and_is_noticed() {
    for round in 0..20_u64 {
        let (mut child, node, link) = start("flood", 0);
        let mut expected = 0_u64;
        let mut check = |frames: Vec<Vec<u8>>| {
            for frame in frames {
                let (number, rest) = frame.split_at(8);
                assert_eq!(number, expected.to_le_bytes());
                assert_eq!(rest, vec![expected as u8; expected as usize % 300]);
                expected += 1;
            }
        };
        node.poll_until(link.as_ref(), |node| !node.inbox.lock().unwrap().frames.is_empty());
        let end = Instant::now() + Duration::from_micros(500 + round * 977);
        while Instant::now() < end {
            check(node.frames());
            node.poll(link.as_ref()).unwrap();
        }
        check(node.frames());
        child.0.kill().unwrap();
        let noticed = wait_for_hang_up(&node, link.as_ref());
        assert!(noticed < Duration::from_secs(20), "{noticed:?}");
        while node.poll(link.as_ref()).unwrap() > 0 {
            check(node.frames());
        }
        assert!(expected > 0);
        assert_eq!(link.send(b"x").unwrap_err().kind, Kind::PeerLost);
    }
}

#[test]
fn a_killed_put_never_tears_a_chunk() {
    for round in 0..5_u64 {
        let (mut child, node, link) = start("put", PUT);
        let end = Instant::now() + Duration::from_millis(5 + 7 * round);
        while Instant::now() < end || node.data() == 0 {
            node.poll(link.as_ref()).unwrap();
        }
        child.0.kill().unwrap();
        wait_for_hang_up(&node, link.as_ref());
        while node.poll(link.as_ref()).unwrap() > 0 {}
        let whole = node.data().min(PUT);
        assert!(node.result.bytes()[..whole] == pattern(whole));
    }
}

#[test]
fn a_whole_put_between_processes() {
    let (_child, node, link) = start("put", PUT);
    node.poll_until(link.as_ref(), |node| node.data() >= PUT);
    assert!(node.result.bytes() == pattern(PUT));
}
