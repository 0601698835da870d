use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::super::auth::{Role, Transcript};
use super::super::handshake::tests::{Fake, Setup, pair, shake_over, shake_over_kept};
use super::*;
use crate::core::transport::{Direct, Engine, Incoming, Link, Source, Waiter};

const LONG: Duration = Duration::from_secs(20);

/// One engine's round and its start, between two ends that have a session: what a node does after the hellos.
pub(crate) fn attach(
    engine: &dyn Engine,
    session: &Session,
    control: Box<dyn Control>,
    seat: &Seat,
    deadline: Instant,
) -> Result<Arc<dyn Link>> {
    let (met, control) = attach_to(engine, session, control, seat, deadline)?;
    met.start(control)
}

/// As `attach`, up to the last word before the start.
pub(crate) fn attach_to(
    engine: &dyn Engine,
    session: &Session,
    mut control: Box<dyn Control>,
    seat: &Seat,
    deadline: Instant,
) -> Result<(Box<dyn Met>, Box<dyn Control>)> {
    let ours = engine.offer(session, control.as_ref())?;
    // Both ends are alike: what one offers the other does.
    let theirs = ours.offer().to_vec();
    let names = Names { own: "own".into(), peer: "peer".into() };
    let mut talk = SealedTalk { control: control.as_mut(), deadline, seals: seals(session)? };
    let meeting =
        Meeting { talk: &mut talk, session, seat, theirs: &theirs, deadline, verdict: None, broken: None };
    let met = round(meeting, ours, &names)?.map_err(Error::protocol)?;
    Ok((met, control))
}

fn seals(session: &Session) -> Result<Seals> {
    let role = if session.connector { Role::Connector } else { Role::Listener };
    Seals::new(&Transcript::default().keys(&session.key)?, role)
}

/// What a lying peer says in a round of `attach` with the other end.
pub(crate) struct Liar(Seals);

impl Liar {
    pub(crate) fn new(session: &Session) -> Self {
        Self(seals(session).unwrap())
    }
    pub(crate) fn word(&mut self, word: &[u8]) -> Vec<u8> {
        self.0.close([&[sealed::WORD][..], word].concat())
    }
    pub(crate) fn met(&mut self) -> Vec<u8> {
        self.0.close(vec![sealed::VERDICT, 1])
    }
}

struct Nobody;
impl Waiter for Nobody {
    fn watch(&self, _: Source, _: u64, _: bool) -> Result<()> {
        Ok(())
    }
    fn watch_for(&self, _: Source, _: u64, _: bool, _: bool) -> Result<()> {
        Ok(())
    }
    fn unwatch(&self, _: Source) {}
    fn wait(&self, _: Option<Duration>, _: &mut Vec<u64>) {}
    fn wake(&self) {}
}
impl Direct for Nobody {
    fn incoming(&self, _: u64, _: Incoming<'_>) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn seat() -> Seat {
    Seat { token: 1, leader: Arc::new(Nobody), progress: Arc::new(Nobody), direct: Arc::new(Nobody) }
}

/// What an engine does in its round.
#[derive(Clone, Copy)]
enum Act {
    Say,
    Hear,
    /// Waits for something else, as long as it may.
    Wait,
    Fail(&'static str),
}
use Act::{Fail, Hear, Say, Wait};

/// An engine that does what it is told, at the connector's end and at the listener's.
struct Scripted {
    name: &'static str,
    acts: [&'static [Act]; 2],
    unfit: Option<&'static str>,
    alive: Arc<AtomicUsize>,
}

/// A candidate, or what came of it; counted as long as it lives.
struct Part(&'static str, Vec<Act>, Option<&'static str>, Arc<AtomicUsize>);
impl Part {
    fn new(name: &'static str, acts: &[Act], unfit: Option<&'static str>, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(name, acts.to_vec(), unfit, Arc::clone(alive))
    }
}
impl Drop for Part {
    fn drop(&mut self) {
        self.3.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Engine for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }
    fn offer(&self, session: &Session, _: &dyn Control) -> Result<Box<dyn Candidate>> {
        let acts = self.acts[usize::from(!session.connector)];
        Ok(Box::new(Part::new(self.name, acts, self.unfit, &self.alive)))
    }
}

impl Candidate for Part {
    fn offer(&self) -> &[u8] {
        self.0.as_bytes()
    }
    fn unfit(&self, theirs: &[u8]) -> Option<String> {
        assert_eq!(theirs, self.0.as_bytes());
        self.2.map(str::to_owned)
    }
    fn meet(self: Box<Self>, meeting: &mut Meeting<'_, '_>) -> Result<Box<dyn Met>> {
        assert_eq!(meeting.theirs(), self.0.as_bytes());
        for act in &self.1 {
            match act {
                Say => meeting.say(b"word", &[])?,
                Hear => {
                    meeting.hear_word::<0>(b"word")?;
                }
                Wait => thread::sleep(meeting.deadline().saturating_duration_since(Instant::now())),
                Fail(why) => return Err(Error::new(Kind::Unreachable, *why)),
            }
        }
        Ok(self)
    }
}

impl Met for Part {
    /// There is no link: the error is who was taken.
    fn start(self: Box<Self>, _: Box<dyn Control>) -> Result<Arc<dyn Link>> {
        Err(Error::new(Kind::Cancelled, self.0))
    }
}

/// An engine as both ends have it: name, acts of the connector, acts of the listener.
type Line = (&'static str, &'static [Act], &'static [Act]);
type Plan = &'static [Line];

/// Who was taken and why not the others, at both ends.
type Taken = Result<(String, Vec<(String, String)>)>;

fn meet_over(ends: (Fake, Fake), plan: Plan, patience: Duration) -> (Taken, Taken) {
    let alive = Arc::new(AtomicUsize::new(0));
    let setup = || {
        let engine = |&(name, connector, listener): &Line| {
            let acts = [connector, listener];
            Arc::new(Scripted { name, acts, unfit: None, alive: Arc::clone(&alive) }) as Arc<dyn Engine>
        };
        Setup { engines: plan.iter().map(engine).collect(), ..Setup::default() }
    };
    let ((client, server), (a, b)) = shake_over_kept(ends, setup(), setup());
    let (client, server) = (client.unwrap(), server.unwrap());
    let deadline = Instant::now() + patience;
    let end = move |agreed: super::super::handshake::Agreed, mut control: Fake| {
        let outcome = agreed.rounds.meet(&mut control, &agreed.session, &seat(), deadline)?;
        let taken = outcome.met.start(Box::new(control)).err().unwrap();
        Ok((taken.text, outcome.why_not))
    };
    let other = thread::spawn(move || end(server, b));
    let taken = (end(client, a), other.join().unwrap());
    assert_eq!(alive.load(Ordering::SeqCst), 0, "something was not given up");
    taken
}

fn meet(plan: Plan) -> (Taken, Taken) {
    meet_over(pair(), plan, LONG)
}

fn assert_taken(taken: (Taken, Taken), engine: &str, why_not: &[(&str, &str)]) {
    for end in [taken.0, taken.1] {
        let (name, reasons) = end.unwrap();
        assert_eq!(name, engine);
        let reasons: Vec<_> = reasons.iter().map(|(e, why)| (e.as_str(), why.as_str())).collect();
        assert_eq!(reasons, why_not);
    }
}

#[test]
fn the_first_by_which_both_meet_is_taken() {
    assert_taken(meet(&[("a", &[], &[]), ("b", &[], &[])]), "a", &[]);
    assert_taken(meet(&[("a", &[Say, Hear], &[Hear, Say]), ("b", &[], &[])]), "a", &[]);
}

#[test]
fn either_end_may_say_not_this_one() {
    let no = ("a", "client: no");
    // While the other is ready, while it waits for a word, while it says some that nobody wants any more.
    assert_taken(meet(&[("a", &[Fail("no")], &[]), ("b", &[], &[])]), "b", &[no]);
    assert_taken(meet(&[("a", &[Fail("no")], &[Hear, Say]), ("b", &[Say], &[Hear])]), "b", &[no]);
    assert_taken(meet(&[("a", &[Fail("no")], &[Say, Say]), ("b", &[Hear], &[Say])]), "b", &[no]);
    let no = ("a", "server: no");
    assert_taken(meet(&[("a", &[], &[Fail("no")]), ("b", &[], &[])]), "b", &[no]);
    assert_taken(meet(&[("a", &[Say, Hear], &[Hear, Fail("no")]), ("b", &[Say], &[Hear])]), "b", &[no]);
    assert_taken(meet(&[("a", &[Say, Say], &[Fail("no")]), ("b", &[Hear], &[Say])]), "b", &[no]);
    // One word too few: the other end took itself for done.
    let both = meet(&[("a", &[Hear], &[]), ("b", &[], &[])]);
    let reason = "client: the other end has said its last word";
    assert_taken(both, "b", &[("a", reason)]);
}

#[test]
fn any_number_may_fail_and_both_know_all_the_reasons() {
    let plan: Plan = &[
        ("a", &[Fail("one")], &[Hear]),
        ("b", &[Hear], &[Fail("two")]),
        ("c", &[Say, Fail("three")], &[Hear, Hear]),
        ("d", &[Say, Hear], &[Hear, Say]),
    ];
    assert_taken(meet(plan), "d", &[("a", "client: one"), ("b", "server: two"), ("c", "client: three")]);
    let (client, server) = meet(&[("a", &[Fail("one")], &[Fail("two")]), ("b", &[], &[Fail("three")])]);
    for error in [client.unwrap_err(), server.unwrap_err()] {
        assert_eq!(error.kind, Kind::Unreachable);
        assert!(error.text.contains("could not meet") && error.text.contains("three"), "{error}");
        assert!(error.text.contains("one") || error.text.contains("two"), "{error}");
    }
}

#[test]
fn an_engine_that_waits_leaves_time_for_the_next() {
    let start = Instant::now();
    let taken = meet_over(pair(), &[("a", &[Wait, Fail("late")], &[Hear]), ("b", &[], &[])], LONG / 20);
    assert_taken(taken, "b", &[("a", "client: late")]);
    assert!(start.elapsed() < LONG);
}

#[test]
fn what_only_one_end_finds_unfit_is_not_tried() {
    let alive = Arc::new(AtomicUsize::new(0));
    let engine = |name, unfit| {
        let acts: [&[Act]; 2] = [&[], &[]];
        Arc::new(Scripted { name, acts, unfit, alive: Arc::clone(&alive) }) as Arc<dyn Engine>
    };
    let setup = |unfit| Setup { engines: vec![engine("a", unfit), engine("b", None)], ..Setup::default() };
    let (_, server) = shake_over(pair(), setup(None), setup(Some("too old")));
    assert_eq!(server.unwrap().rounds.listed(), [Err(("a", "too old")), Ok("b")]);
    // The connector says so when its turn comes.
    let ((client, server), (mut a, mut b)) = shake_over_kept(pair(), setup(Some("too old")), setup(None));
    let (client, server) = (client.unwrap(), server.unwrap());
    assert_eq!(server.rounds.listed(), [Ok("a"), Ok("b")]);
    let deadline = Instant::now() + LONG;
    let other = thread::spawn(move || server.rounds.meet(&mut b, &server.session, &seat(), deadline));
    let ours = client.rounds.meet(&mut a, &client.session, &seat(), deadline).unwrap();
    for outcome in [ours, other.join().unwrap().unwrap()] {
        assert_eq!(outcome.why_not, [("a".to_owned(), "client: too old".to_owned())]);
    }
}

#[test]
fn a_peer_that_hangs_up_changes_words_or_never_ends_is_an_error() {
    // Message 3 of the connector is its first word, 4 its verdict; 3 and 4 of the listener likewise.
    const PLAN: Plan = &[("a", &[Say, Hear], &[Hear, Say]), ("b", &[], &[])];
    for message in [3, 4] {
        for connector in [true, false] {
            let mut ends = pair();
            let liar = if connector { &mut ends.0 } else { &mut ends.1 };
            liar.wire = Box::new(move |n, bytes| {
                if n == message {
                    bytes[1] ^= 1;
                }
            });
            let start = Instant::now();
            let (client, server) = meet_over(ends, PLAN, LONG);
            let told = if connector { server } else { client };
            assert_eq!(told.unwrap_err().kind, Kind::AuthFailed, "{message} {connector}");
            assert!(start.elapsed() < LONG);
        }
    }
    const ENDLESS: Plan = &[("a", &[Say; 100], &[Fail("no")]), ("b", &[], &[])];
    let (_, server) = meet(ENDLESS);
    assert_eq!(server.unwrap_err().kind, Kind::ProtocolError);
}

#[test]
fn a_list_names_only_what_both_have_offered() {
    let offers = |fit: &[&'static str]| {
        let alive = Arc::new(AtomicUsize::new(0));
        let part = |name: &&'static str| {
            let part: Box<dyn Candidate> = Box::new(Part::new(name, &[], None, &alive));
            ((*name).to_owned(), Ok(part))
        };
        Offers(fit.iter().map(part).collect())
    };
    let theirs = |engine: &str, fit: bool| {
        let what = if fit { Ok(vec![]) } else { Err("no".to_owned()) };
        vec![Offer { engine: engine.into(), what }]
    };
    let session = Session { connector: true, id: [0; 16], key: [0; 32] };
    let names = || Names { own: "own".into(), peer: "peer".into() };
    let rounds = |list: &[&str], ours, theirs| {
        let listed = list.iter().map(|name| Listed::Candidate((*name).to_owned())).collect();
        Rounds::new(listed, ours, theirs, names(), (Instant::now() + LONG, seals(&session).unwrap()))
            .map(drop)
    };
    assert!(rounds(&["a"], offers(&["a"]), theirs("a", true)).is_ok());
    let wrong = [
        rounds(&["b"], offers(&["a"]), theirs("b", true)),
        rounds(&["a"], offers(&["a"]), theirs("b", true)),
        rounds(&["a"], offers(&["a"]), theirs("a", false)),
        rounds(&["a", "a"], offers(&["a"]), theirs("a", true)),
    ];
    for refused in wrong {
        assert_eq!(refused.unwrap_err().kind, Kind::ProtocolError);
    }
}
