//! How two nodes that have said hello find the engine by which they can meet.
//!
//! One engine after the other, best first, in rounds. In a round both ends try, saying to each other what the
//! engine needs (`WORD`), and each ends with one verdict: met, or why not. Nothing is said after it, so what an
//! end reads until the other's verdict belongs to the round, and an end that gives up early only has to read on
//! to be where the other is. The engine is taken when both verdicts say so.
use std::time::Instant;

use super::hello::{MAX_TEXT, clip, text};
use super::offer::{Listed, Offer, Offers};
use super::talk::{SealedTalk, Seals, sealed};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Share;
use crate::core::transport::{Candidate, Control, Met, Seat, Session};

/// Words of a round that are read after our own verdict; a peer that says more has no end.
const MOST_WORDS: usize = 64;

/// How the two nodes are called.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) own: String,
    pub(super) peer: String,
}

/// The engines in the order in which they are tried.
pub(crate) struct Rounds {
    /// When the other end gives up at the latest, if it is like us.
    deadline: Instant,
    turns: Vec<Turn>,
    names: Names,
    seals: Seals,
}

enum Turn {
    Try { engine: String, ours: Box<dyn Candidate>, theirs: Vec<u8> },
    Not(String, String),
}

/// By what two nodes have met.
pub(crate) struct Outcome {
    pub(crate) met: Box<dyn Met>,
    /// Each better engine, and why it was not taken.
    pub(crate) why_not: Vec<(String, String)>,
}

/// The listener's order: its own, each with why it cannot serve, if so; and what only the connector has, before
/// what the connector likes less.
pub(super) fn order(ours: &Offers, theirs: &[Offer], names: &Names) -> Vec<Listed> {
    let is_ours = |offer: &&Offer| ours.0.iter().any(|(own, _)| *own == offer.engine);
    let mut listed: Vec<Listed> = Vec::new();
    for (engine, own) in &ours.0 {
        let at = theirs.iter().position(|offer| offer.engine == *engine);
        for offer in theirs.iter().take(at.unwrap_or(0)).filter(|offer| !is_ours(offer)) {
            let unknown = Listed::Not(offer.engine.clone(), format!("not offered by {}", names.own));
            if !listed.contains(&unknown) {
                listed.push(unknown);
            }
        }
        let why_not = match (own, at.and_then(|at| theirs.get(at)).map(|offer| &offer.what)) {
            (Err(why), _) => Some(format!("{}: {why}", names.own)),
            (_, None) => Some(format!("not offered by {}", names.peer)),
            (_, Some(Err(why))) => Some(format!("{}: {why}", names.peer)),
            (Ok(own), Some(Ok(theirs))) => own.unfit(theirs),
        };
        listed.push(match why_not {
            Some(why) => Listed::Not(engine.clone(), why),
            None => Listed::Candidate(engine.clone()),
        });
    }
    listed
}

/// Why there is nothing to try, if so.
pub(super) fn check_any(listed: &[Listed], names: &Names) -> Result<()> {
    let why_not = |one: &Listed| match one {
        Listed::Candidate(_) => None,
        Listed::Not(engine, why) => Some((engine.clone(), why.clone())),
    };
    let reasons: Vec<_> = listed.iter().filter_map(why_not).collect();
    if reasons.len() < listed.len() {
        return Ok(());
    }
    Err(nothing_left("have no engine in common", names, &reasons))
}

fn nothing_left(what: &str, names: &Names, why_not: &[(String, String)]) -> Error {
    let reasons: Vec<_> = why_not.iter().map(|(engine, reason)| format!("{engine} ({reason})")).collect();
    let text = format!("{} and {} {what}: {}", names.own, names.peer, reasons.join(", "));
    Error::new(Kind::Unreachable, text)
}

impl Rounds {
    /// What the list makes of both ends' offers. It may name only what both have offered.
    pub(super) fn new(
        listed: Vec<Listed>,
        ours: Offers,
        theirs: Vec<Offer>,
        names: Names,
        (deadline, seals): (Instant, Seals),
    ) -> Result<Self> {
        let mut ours = ours.0;
        let turn = |listed| {
            let engine = match listed {
                Listed::Not(engine, why) => return Ok(Turn::Not(engine, why)),
                Listed::Candidate(engine) => engine,
            };
            let own = ours.iter().position(|(own, candidate)| *own == engine && candidate.is_ok());
            let own = own.and_then(|at| ours.swap_remove(at).1.ok());
            let offer = theirs.iter().find(|offer| offer.engine == engine).map(|offer| &offer.what);
            match (own, offer) {
                (Some(ours), Some(Ok(theirs))) => Ok(Turn::Try { engine, ours, theirs: theirs.clone() }),
                _ => Err(Error::protocol(format!("engine {engine:?} is to be tried, which was not offered"))),
            }
        };
        Ok(Self { turns: listed.into_iter().map(turn).collect::<Result<_>>()?, names, seals, deadline })
    }

    /// What is tried, and why what is not.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> Vec<Result<&str, (&str, &str)>> {
        self.turns
            .iter()
            .map(|turn| match turn {
                Turn::Try { engine, .. } => Ok(engine.as_str()),
                Turn::Not(engine, why) => Err((engine.as_str(), why.as_str())),
            })
            .collect()
    }

    /// Tries one engine after the other, with the other end, which does the same. An error is the end of the
    /// connection.
    pub(crate) fn meet(
        self,
        control: &mut dyn Control,
        session: &Session,
        seat: &Seat,
        deadline: Instant,
    ) -> Result<Outcome> {
        let deadline = deadline.min(self.deadline);
        let mut talk = SealedTalk { control, deadline, seals: self.seals };
        let mut why_not = Vec::new();
        let mut left = self.turns.iter().filter(|turn| matches!(turn, Turn::Try { .. })).count();
        for turn in self.turns {
            let (engine, ours, theirs) = match turn {
                Turn::Not(engine, why) => {
                    why_not.push((engine, why));
                    continue;
                }
                Turn::Try { engine, ours, theirs } => (engine, ours, theirs),
            };
            left -= 1;
            let end = limit(deadline, left);
            let meeting = Meeting {
                talk: &mut talk,
                session,
                seat,
                theirs: &theirs,
                deadline: end,
                verdict: None,
                broken: None,
            };
            match round(meeting, ours, &self.names)? {
                Ok(met) => return Ok(Outcome { met, why_not }),
                Err(why) => why_not.push((engine, why)),
            }
        }
        Err(nothing_left("could not meet", &self.names, &why_not))
    }
}

/// When a round has to be over: there must be time for those that follow.
fn limit(deadline: Instant, more: usize) -> Instant {
    let now = Instant::now();
    let left = deadline.saturating_duration_since(now);
    if more == 0 { deadline } else { now + left / 2 }
}

/// One engine's round. Ok(Err(why)): not this one. Err: the connection is over.
fn round(
    mut meeting: Meeting<'_, '_>,
    ours: Box<dyn Candidate>,
    names: &Names,
) -> Result<Result<Box<dyn Met>, String>> {
    let tried = match ours.unfit(meeting.theirs) {
        Some(why) => Err(Error::new(Kind::NotSupported, why)),
        None => ours.meet(&mut meeting),
    };
    let Meeting { talk, verdict, broken, .. } = meeting;
    if let Some(error) = broken {
        return Err(error);
    }
    let why_not = tried.as_ref().err().map(|error| error.text.as_str());
    talk.say(sealed::VERDICT, |to| encode_verdict(why_not, to))?;
    let was_first = verdict.is_some();
    let theirs = match verdict {
        Some(verdict) => verdict,
        None => hear_verdict(talk)?,
    };
    Ok(match (tried, theirs) {
        (Ok(met), Ok(())) => Ok(met),
        // What we say then only follows from it.
        (Err(_), Err(why)) if was_first => Err(format!("{}: {why}", names.peer)),
        (Err(error), _) => Err(format!("{}: {}", names.own, error.text)),
        (Ok(_), Err(why)) => Err(format!("{}: {why}", names.peer)),
    })
}

/// Met, or why not.
type Verdict = Result<(), String>;

fn encode_verdict(why_not: Option<&str>, to: &mut Vec<u8>) {
    to.push(u8::from(why_not.is_none()));
    to.extend_from_slice(clip(why_not.unwrap_or(""), MAX_TEXT).as_bytes());
}

fn decode_verdict(body: &[u8]) -> Result<Verdict> {
    match body.split_first() {
        Some((1, [])) => Ok(Ok(())),
        Some((0, why)) => Ok(Err(text(why, MAX_TEXT))),
        _ => Err(Error::protocol(format!("a verdict of {} bytes in the handshake", body.len()))),
    }
}

/// Reads over what the other end said before it knew of ours.
fn hear_verdict(talk: &mut SealedTalk<'_>) -> Result<Verdict> {
    for _ in 0..=MOST_WORDS {
        match talk.hear_any()? {
            (sealed::WORD, ..) => {}
            (sealed::VERDICT, body, _) => return decode_verdict(&body),
            (kind, ..) => {
                return Err(Error::protocol(format!("message kind {kind} instead of a verdict")));
            }
        }
    }
    Err(Error::protocol(format!("more than {MOST_WORDS} words without a verdict")))
}

/// One engine's talk with its like at the other end, over the control channel: sealed, and only for this round.
pub(crate) struct Meeting<'m, 'c> {
    talk: &'m mut SealedTalk<'c>,
    session: &'m Session,
    seat: &'m Seat,
    theirs: &'m [u8],
    deadline: Instant,
    /// The other end's, when it came while we waited for a word.
    verdict: Option<Verdict>,
    /// The control channel's end.
    broken: Option<Error>,
}

impl Meeting<'_, '_> {
    /// Keys and names.
    pub(crate) fn session(&self) -> &Session {
        self.session
    }
    /// Where the link will belong.
    pub(crate) fn seat(&self) -> &Seat {
        self.seat
    }
    /// What the peer's engine offered; [`Candidate::unfit`] found nothing against it.
    #[allow(dead_code, reason = "no engine of this build meets by what the other end offered")]
    pub(crate) fn theirs(&self) -> &[u8] {
        self.theirs
    }
    /// When to give up, if not before: then there is still time for another engine.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }
    /// The control channel, to ask for addresses.
    pub(crate) fn control(&self) -> &dyn Control {
        self.talk.control
    }

    /// Says something to the same engine at the other end. Descriptors only over a channel that carries them.
    pub(crate) fn say(&mut self, word: &[u8], shares: &[&Share]) -> Result<()> {
        let said = self.talk.say_with(sealed::WORD, shares, |to| to.extend_from_slice(word));
        said.map_err(|error| self.broke(error))
    }

    /// Waits for what the other end says. Err: it gave up, or the connection is over.
    pub(crate) fn hear(&mut self) -> Result<(Vec<u8>, Vec<Share>)> {
        if self.verdict.is_some() {
            return Err(Error::protocol("the other end has said its last word"));
        }
        match self.talk.hear_any() {
            Ok((sealed::WORD, word, shares)) => Ok((word, shares)),
            Ok((sealed::VERDICT, body, _)) => {
                let verdict = decode_verdict(&body).map_err(|error| self.broke(error))?;
                let why =
                    verdict.clone().err().unwrap_or_else(|| "the other end has said its last word".into());
                self.verdict = Some(verdict);
                Err(Error::new(Kind::NotSupported, why))
            }
            Ok((kind, ..)) => {
                Err(self.broke(Error::protocol(format!("message kind {kind} between two engines"))))
            }
            Err(error) => Err(self.broke(error)),
        }
    }

    /// As [`Meeting::hear`], for one known word with so many descriptors.
    pub(crate) fn hear_word<const N: usize>(&mut self, expected: &[u8]) -> Result<[Share; N]> {
        let (word, shares) = self.hear()?;
        let count = shares.len();
        match <[Share; N]>::try_from(shares) {
            Ok(shares) if word == expected => Ok(shares),
            _ => Err(Error::protocol(format!(
                "{}: {count} descriptors and {:?} instead of {N} and {:?}",
                self.talk.control.address(),
                String::from_utf8_lossy(&word),
                String::from_utf8_lossy(expected)
            ))),
        }
    }

    fn broke(&mut self, error: Error) -> Error {
        self.broken = Some(error.clone());
        error
    }
}

#[cfg(test)]
#[path = "meeting_tests.rs"]
pub(crate) mod tests;
