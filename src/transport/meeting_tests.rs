//! From hello to link, with ends that fail, vanish, or are on different kinds of addresses.
use super::*;
use crate::core::wire::meeting::tests::attach_to;

/// Two control channels that reach each other by an address of that network; the listener goes on accepting.
fn channels(network: &dyn Network, address: &str) -> (Box<dyn Control>, Box<dyn Control>) {
    let listener = network.listen(address).unwrap();
    let control = network.connect(&listener.bound(), soon()).unwrap();
    let other = accept(listener.as_ref());
    thread::spawn(move || {
        let deadline = soon();
        while Instant::now() < deadline {
            if let Ok(Some(mut further)) = listener.accept() {
                let _ = further.claim(soon());
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    (control, other)
}

fn engine(name: &str) -> Arc<dyn Engine> {
    engines().into_iter().find(|engine| engine.name() == name).unwrap()
}

fn on_each_address(test: impl Fn(&Arc<dyn Engine>, &dyn Network, &str)) {
    for name in ["inproc", "shm", "tcp"] {
        test(&engine(name), &Tcp, "127.0.0.1:0");
        if name != "tcp" {
            test(&engine(name), &Unix, "unix:");
        }
    }
}

#[test]
fn every_engine_is_reached_by_every_address_that_it_can_serve() {
    on_each_address(|engine, network, address| {
        let (control, other) = channels(network, address);
        let ours = session(true);
        let theirs = Session { connector: false, ..ours.clone() };
        let (a, b) = (Node::new(10), Node::new(10));
        let thread = {
            let (engine, b) = (Arc::clone(engine), Arc::clone(&b));
            thread::spawn(move || attach(engine.as_ref(), &theirs, other, &b.seat(), soon()).unwrap())
        };
        let at_a = attach(engine.as_ref(), &ours, control, &a.seat(), soon()).unwrap();
        let at_b = thread.join().unwrap();
        at_a.send(b"to b").unwrap();
        at_b.send(b"to a").unwrap();
        b.poll_until(at_b.as_ref(), |b| !b.inbox.lock().unwrap().frames.is_empty());
        a.poll_until(at_a.as_ref(), |a| !a.inbox.lock().unwrap().frames.is_empty());
        let span = Span { block: Plain::of(pattern(10)), offset: 0, len: 10 };
        assert_eq!(at_a.put(PLACE, 0, &span, 0).unwrap(), 10);
        b.poll_until(at_b.as_ref(), |b| b.data() == 10);
        assert_eq!(b.result.bytes(), pattern(10));
        at_a.close();
        hangs_up(&b, at_b.as_ref());
    });
}

/// The other end is seen to be gone.
fn hangs_up(node: &Arc<Node>, link: &dyn Link) {
    let deadline = soon();
    loop {
        match node.service(link) {
            Err(error) => return assert_eq!(error.kind, Kind::PeerLost, "{error}"),
            Ok(()) => assert!(Instant::now() < deadline, "nobody hung up"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_end_that_vanishes_after_its_last_word_is_seen_to_be_gone() {
    on_each_address(|engine, network, address| {
        for vanishes in [true, false] {
            let (control, other) = channels(network, address);
            let ours = Session { connector: !vanishes, ..session(true) };
            let theirs = Session { connector: vanishes, ..ours.clone() };
            let (control, other) = if vanishes { (other, control) } else { (control, other) };
            let (a, b) = (Node::new(0), Node::new(0));
            let thread = {
                let (engine, seat) = (Arc::clone(engine), b.seat());
                // Has said that it has met, and then cannot start.
                thread::spawn(move || {
                    drop(attach_to(engine.as_ref(), &theirs, other, &seat, soon()).unwrap())
                })
            };
            let at_a = attach(engine.as_ref(), &ours, control, &a.seat(), soon()).unwrap();
            thread.join().unwrap();
            hangs_up(&a, at_a.as_ref());
        }
    });
}

#[test]
fn an_end_that_hangs_up_in_the_middle_is_an_error_at_once() {
    on_each_address(|engine, network, address| {
        for connector in [true, false] {
            let (control, other) = channels(network, address);
            let (ours, theirs) = if connector { (control, other) } else { (other, control) };
            let a = Node::new(0);
            let session = Session { connector, ..session(true) };
            let breaker = theirs.breaker();
            let thread = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                breaker.cut();
            });
            let start = Instant::now();
            let error = attach(engine.as_ref(), &session, ours, &a.seat(), soon()).err().unwrap();
            assert_eq!(error.kind, Kind::Refused, "{error}");
            assert!(start.elapsed() < Duration::from_secs(10));
            thread.join().unwrap();
            drop(theirs);
        }
    });
}

#[test]
fn a_channel_is_cut_by_another_thread_until_it_is_given_up() {
    let networks: [(&dyn Network, &str); 2] = [(&Tcp, "127.0.0.1:0"), (&Unix, "unix:")];
    for (network, address) in networks {
        let (mut control, mut other) = channels(network, address);
        let breaker = control.breaker();
        let cutter = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            breaker.cut();
        });
        let start = Instant::now();
        assert_eq!(control.receive(100, soon()).unwrap_err().kind, Kind::PeerLost);
        assert_eq!(other.receive(100, soon()).unwrap_err().kind, Kind::PeerLost);
        assert!(start.elapsed() < Duration::from_secs(10));
        cutter.join().unwrap();
        // What an engine has taken over is its own.
        let (control, mut other) = channels(network, address);
        let breaker = control.breaker();
        let kept = control.into_share();
        breaker.cut();
        assert_eq!(
            other.receive(100, Instant::now() + Duration::from_millis(20)).unwrap_err().kind,
            Kind::TimedOut
        );
        drop(kept);
        assert_eq!(other.receive(100, soon()).unwrap_err().kind, Kind::PeerLost);
    }
}
