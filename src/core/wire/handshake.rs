//! The first words between two nodes: versions, proof of the shared secret, hellos, choice of the engine.
//!
//! ```text
//! connector                                   listener
//! magic, versions min..max, nonce   ------>
//!                                   <------   magic, version, mode, nonce
//! HMAC(K, "client" || T)            ------>
//!                                   <------   HMAC(K, "server" || T)
//! [hello]                           ------>
//!                                   <------   [hello, offers]         [..] = sealed, see `auth`
//! [offers]                          ------>
//!                                   <------   [choice]
//! ```
//! Strictly in turns, so that whoever refuses has read everything and its words reach the other end. No host
//! code runs and nothing of a peer is believed before its proof, except which mistake to report.
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::auth::{Keys, Role, Seal, Transcript};
use super::hello::{self, Choice, Hello, Offer};
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Control, Engine, Session};

/// Protocol versions that this build speaks.
pub(crate) const VERSIONS: RangeInclusive<u16> = 1..=1;
/// Fewest bytes of a token.
pub(crate) const MIN_TOKEN: usize = 16;
/// A handshake that takes longer is given up: a silent stranger must not hold a place.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Longest message before the proofs.
const STRANGER_LIMIT: usize = 4096;
/// Longest message after them.
const PEER_LIMIT: usize = 64 * 1024;
const MAGIC: [u8; 8] = *b"nrdma\r\n\x01";
const REFUSAL: [u8; 8] = *b"nrdma\r\n\x00";
const NONCE_BYTES: usize = 32;

mod sealed {
    pub(super) const REFUSAL: u8 = 0;
    pub(super) const HELLO: u8 = 1;
    pub(super) const OFFERS: u8 = 2;
    pub(super) const CHOICE: u8 = 3;
}

/// What both ends must know, or have, to become peers.
#[derive(Clone, Copy)]
pub(crate) enum Policy<'a> {
    /// The cookie that only this user's processes can read (`sys::runtime_dir`), and the same user by the
    /// kernel's word.
    SameUser(&'a [u8; 32]),
    /// A token of at least [`MIN_TOKEN`] bytes.
    Token(&'a [u8]),
    /// Nothing.
    Insecure,
}

impl Policy<'_> {
    fn secret(&self) -> Result<&[u8]> {
        match self {
            Policy::SameUser(cookie) => Ok(cookie.as_slice()),
            Policy::Token(token) if token.len() >= MIN_TOKEN => Ok(token),
            Policy::Token(token) => {
                let text = format!(
                    "a token of {} bytes is too short; it needs {MIN_TOKEN}",
                    token.len()
                );
                Err(Error::invalid(text))
            }
            Policy::Insecure => Ok(&[]),
        }
    }
    fn mode(&self) -> u8 {
        match self {
            Policy::SameUser(_) => 1,
            Policy::Token(_) => 2,
            Policy::Insecure => 3,
        }
    }
    fn advice(&self) -> &'static str {
        match self {
            Policy::SameUser(_) => {
                "both nodes must see the same cookie file (same user, same XDG_RUNTIME_DIR)"
            }
            Policy::Token(_) => "both nodes need the same auth_token",
            Policy::Insecure => "the bytes were changed on the way",
        }
    }
}

fn mode_name(mode: u8) -> String {
    match mode {
        1 => "same user".into(),
        2 => "token".into(),
        3 => "insecure".into(),
        other => format!("mode {other}"),
    }
}

/// What came out of a handshake.
pub(crate) struct Agreed {
    /// The other node.
    pub(crate) peer: Hello,
    /// Keys and ids for the engine.
    pub(crate) session: Session,
    /// Index into the engines that were passed in.
    pub(crate) engine: usize,
    /// Each better engine, and why it was not taken.
    pub(crate) why_not: Vec<(String, String)>,
}

/// Who we are and what we accept.
pub(crate) struct Side<'a> {
    /// `process` is filled in here.
    pub(crate) own: &'a Hello,
    pub(crate) policy: Policy<'a>,
    /// Best first.
    pub(crate) engines: &'a [Arc<dyn Engine>],
    /// Has the last word on a proven peer; a refusal's text is told to it.
    pub(crate) admit: &'a dyn Fn(&Hello) -> Result<()>,
}

/// The connecting end. Both ends fail with the same kind and both values in the text where the other end can
/// still be told.
pub(crate) fn connect(control: &mut dyn Control, side: &Side<'_>, deadline: Instant) -> Result<Agreed> {
    connect_with(control, side, deadline, VERSIONS)
}

/// The listening end.
pub(crate) fn accept(control: &mut dyn Control, side: &Side<'_>, deadline: Instant) -> Result<Agreed> {
    accept_with(control, side, deadline, VERSIONS)
}

/// Random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::new(
            Kind::NotSupported,
            format!("the system gave no random bytes: {e}"),
        )
    })?;
    Ok(bytes)
}

fn connect_with(
    control: &mut dyn Control,
    side: &Side<'_>,
    deadline: Instant,
    versions: RangeInclusive<u16>,
) -> Result<Agreed> {
    let secret = side.policy.secret()?;
    let mut talk = Talk::new(control, deadline);
    talk.check_user(side)?;
    let mut first = MAGIC.to_vec();
    first.extend_from_slice(&versions.start().to_le_bytes());
    first.extend_from_slice(&versions.end().to_le_bytes());
    first.extend_from_slice(&random::<NONCE_BYTES>()?);
    talk.say(&first)?;
    let answer = talk.hear()?;
    if let Err(error) = check_answer(&answer, &versions, &side.policy) {
        return Err(talk.refuse(error));
    }
    let keys = talk.transcript.keys(secret)?;
    talk.say(&keys.proof(Role::Connector)?)?;
    let proof = talk.hear()?;
    talk.check_proof(&keys, Role::Listener, &proof, side)?;

    let mut talk = talk.seal(&keys, Role::Connector)?;
    let own = complete(side.own)?;
    talk.say(sealed::HELLO, |to| own.encode(to))?;
    let message = talk.hear(sealed::HELLO)?;
    let peer = Hello::decode(&message)?;
    let theirs = Offer::decode_all(&message)?;
    if let Err(error) = (side.admit)(&peer) {
        return Err(talk.refuse(error));
    }
    let session = session(&keys, Role::Connector, &own, &peer)?;
    let ours = offers(side.engines, &session, talk.control);
    talk.say(sealed::OFFERS, |to| Offer::encode_all(&ours, to))?;
    let choice = Choice::decode(&talk.hear(sealed::CHOICE)?)?;
    let both = |offers: &[Offer]| {
        offers
            .iter()
            .any(|o| o.engine == choice.engine && o.unfit.is_none())
    };
    let engine = side.engines.iter().position(|e| e.name() == choice.engine);
    match engine.filter(|_| both(&ours) && both(&theirs)) {
        Some(engine) => Ok(Agreed {
            peer,
            session,
            engine,
            why_not: choice.why_not,
        }),
        None => Err(Error::protocol(format!(
            "the listener chose engine {:?}, which was not offered",
            choice.engine
        ))),
    }
}

fn accept_with(
    control: &mut dyn Control,
    side: &Side<'_>,
    deadline: Instant,
    versions: RangeInclusive<u16>,
) -> Result<Agreed> {
    let secret = side.policy.secret()?;
    let mut talk = Talk::new(control, deadline);
    let first = talk.hear()?;
    talk.check_user(side)?;
    let version = match choose_version(&first, &versions) {
        Ok(version) => version,
        Err(error) => return Err(talk.refuse(error)),
    };
    let mut answer = MAGIC.to_vec();
    answer.extend_from_slice(&version.to_le_bytes());
    answer.push(side.policy.mode());
    answer.extend_from_slice(&random::<NONCE_BYTES>()?);
    talk.say(&answer)?;
    let proof = talk.hear_without_adding()?;
    let keys = talk.transcript.keys(secret)?;
    talk.check_proof(&keys, Role::Connector, &proof, side)?;
    talk.say(&keys.proof(Role::Listener)?)?;

    let mut talk = talk.seal(&keys, Role::Listener)?;
    let own = complete(side.own)?;
    let peer = Hello::decode(&talk.hear(sealed::HELLO)?)?;
    if let Err(error) = (side.admit)(&peer) {
        return Err(talk.refuse(error));
    }
    let session = session(&keys, Role::Listener, &own, &peer)?;
    let ours = offers(side.engines, &session, talk.control);
    talk.say(sealed::HELLO, |to| {
        own.encode(to);
        Offer::encode_all(&ours, to);
    })?;
    let theirs = Offer::decode_all(&talk.hear(sealed::OFFERS)?)?;
    let choice = match choose(&ours, &theirs, &own.name, &peer.name) {
        Ok(choice) => choice,
        Err(error) => return Err(talk.refuse(error)),
    };
    talk.say(sealed::CHOICE, |to| choice.encode(to))?;
    let engine = side.engines.iter().position(|e| e.name() == choice.engine);
    let engine = engine.ok_or_else(|| Error::protocol("an engine that is not ours was chosen"))?;
    Ok(Agreed {
        peer,
        session,
        engine,
        why_not: choice.why_not,
    })
}

fn complete(own: &Hello) -> Result<Hello> {
    Ok(Hello {
        process: hello::process_name()?,
        ..own.clone()
    })
}

fn session(keys: &Keys, role: Role, own: &Hello, peer: &Hello) -> Result<Session> {
    let name = keys.derive(b"nrdma1 session")?;
    let mut id = [0; 16];
    for (to, from) in id.iter_mut().zip(name) {
        *to = from;
    }
    Ok(Session {
        connector: role == Role::Connector,
        id,
        key: keys.derive(b"nrdma1 channel")?,
        own_instance: own.instance,
        peer_instance: peer.instance,
        same_process: own.process == peer.process,
    })
}

fn offers(engines: &[Arc<dyn Engine>], session: &Session, control: &dyn Control) -> Vec<Offer> {
    let offer = |engine: &Arc<dyn Engine>| Offer {
        engine: engine.name().to_owned(),
        unfit: engine.unfit(session, control),
    };
    engines.iter().map(offer).collect()
}

/// The first of our own preferences that both can do.
fn choose(ours: &[Offer], theirs: &[Offer], own_name: &str, peer_name: &str) -> Result<Choice> {
    let mut why_not = Vec::new();
    for own in ours {
        let reason = match (&own.unfit, theirs.iter().find(|offer| offer.engine == own.engine)) {
            (None, Some(Offer { unfit: None, .. })) => {
                let unknown = theirs.iter().take_while(|offer| offer.engine != own.engine);
                let unknown = unknown.filter(|offer| ours.iter().all(|own| own.engine != offer.engine));
                why_not.extend(unknown.map(|o| (o.engine.clone(), format!("not offered by {own_name}"))));
                return Ok(Choice {
                    engine: own.engine.clone(),
                    why_not,
                });
            }
            (Some(reason), _) => format!("{own_name}: {reason}"),
            (
                None,
                Some(Offer {
                    unfit: Some(reason), ..
                }),
            ) => format!("{peer_name}: {reason}"),
            (None, None) => format!("not offered by {peer_name}"),
        };
        why_not.push((own.engine.clone(), reason));
    }
    let reasons: Vec<_> = why_not
        .iter()
        .map(|(engine, reason)| format!("{engine} ({reason})"))
        .collect();
    let text = format!(
        "{own_name} and {peer_name} have no engine in common: {}",
        reasons.join(", ")
    );
    Err(Error::new(Kind::Unreachable, text))
}

fn choose_version(first: &[u8], ours: &RangeInclusive<u16>) -> Result<u16> {
    let short = || {
        Error::protocol(format!(
            "the first message has {} bytes and is no nrdma greeting",
            first.len()
        ))
    };
    let rest = first.strip_prefix(MAGIC.as_slice()).ok_or_else(short)?;
    let (min, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (max, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    if rest.len() < NONCE_BYTES {
        return Err(short());
    }
    let (min, max) = (u16::from_le_bytes(*min), u16::from_le_bytes(*max));
    let version = max.min(*ours.end());
    if version < min || version < *ours.start() {
        return Err(version_mismatch(min..=max, ours));
    }
    Ok(version)
}

fn version_mismatch(connector: RangeInclusive<u16>, listener: &RangeInclusive<u16>) -> Error {
    let text = format!(
        "the connecting node speaks protocol {}..{}, the listening node {}..{}; update the older one",
        connector.start(),
        connector.end(),
        listener.start(),
        listener.end()
    );
    Error::new(Kind::VersionMismatch, text)
}

fn check_answer(answer: &[u8], versions: &RangeInclusive<u16>, policy: &Policy<'_>) -> Result<()> {
    let short = || {
        Error::protocol(format!(
            "the answer has {} bytes and is no nrdma greeting",
            answer.len()
        ))
    };
    let rest = answer.strip_prefix(MAGIC.as_slice()).ok_or_else(short)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (mode, rest) = rest.split_first().ok_or_else(short)?;
    let version = u16::from_le_bytes(*version);
    if rest.len() < NONCE_BYTES {
        return Err(short());
    }
    if !versions.contains(&version) {
        return Err(version_mismatch(versions.clone(), &(version..=version)));
    }
    if *mode != policy.mode() {
        let (theirs, ours) = (mode_name(*mode), mode_name(policy.mode()));
        let text = format!(
            "the listening node authenticates by \"{theirs}\", the connecting node by \"{ours}\"; \
             give both the same auth_token and insecure settings"
        );
        return Err(Error::new(Kind::AuthFailed, text));
    }
    Ok(())
}

/// The exchange before the proofs.
struct Talk<'c> {
    control: &'c mut dyn Control,
    deadline: Instant,
    transcript: Transcript,
}

impl<'c> Talk<'c> {
    fn new(control: &'c mut dyn Control, deadline: Instant) -> Self {
        let deadline = deadline.min(Instant::now() + TIME_LIMIT);
        Self {
            control,
            deadline,
            transcript: Transcript::default(),
        }
    }

    fn say(&mut self, message: &[u8]) -> Result<()> {
        self.transcript.add(message);
        self.control
            .send(message, &[], self.deadline)
            .map_err(|e| explain(e, self.control))
    }

    fn hear(&mut self) -> Result<Vec<u8>> {
        let message = self.hear_without_adding()?;
        self.transcript.add(&message);
        Ok(message)
    }

    /// For the proofs: they are about the transcript so far.
    fn hear_without_adding(&mut self) -> Result<Vec<u8>> {
        let received = self.control.receive(STRANGER_LIMIT, self.deadline);
        let (message, _shares) = received.map_err(|e| explain(e, self.control))?;
        match message.strip_prefix(REFUSAL.as_slice()) {
            Some(refusal) => Err(refused(refusal, self.control)),
            None => Ok(message),
        }
    }

    /// Tells the other end why, if it still listens; hands the error back.
    fn refuse(&mut self, error: Error) -> Error {
        let mut message = REFUSAL.to_vec();
        encode_refusal(&error, &mut message);
        // It may be gone: then there is nobody to tell.
        let _ = self.control.send(&message, &[], self.deadline);
        located(error, self.control)
    }

    fn check_user(&mut self, side: &Side<'_>) -> Result<()> {
        let (own, peer) = (self.control.own_uid(), self.control.peer_uid());
        if !matches!(side.policy, Policy::SameUser(_)) || own == peer {
            return Ok(());
        }
        let text = format!(
            "a node of user {own} accepts nodes of the same user only, the other is user {peer}'s; \
             give both an auth_token"
        );
        Err(self.refuse(Error::new(Kind::AuthFailed, text)))
    }

    fn check_proof(&mut self, keys: &Keys, role: Role, proof: &[u8], side: &Side<'_>) -> Result<()> {
        if keys.proves(role, proof)? {
            return Ok(());
        }
        let who = match role {
            Role::Connector => "connecting",
            Role::Listener => "listening",
        };
        let mode = mode_name(side.policy.mode());
        let advice = side.policy.advice();
        let text = format!("the {who} node's proof (\"{mode}\") does not fit; {advice}");
        Err(self.refuse(Error::new(Kind::AuthFailed, text)))
    }

    fn seal(self, keys: &Keys, own: Role) -> Result<SealedTalk<'c>> {
        Ok(SealedTalk {
            control: self.control,
            deadline: self.deadline,
            out: keys.seal(own)?,
            into: keys.seal(own.other())?,
        })
    }
}

/// The exchange after the proofs.
struct SealedTalk<'c> {
    control: &'c mut dyn Control,
    deadline: Instant,
    out: Seal,
    into: Seal,
}

impl SealedTalk<'_> {
    fn say(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut message = vec![kind];
        body(&mut message);
        let message = self.out.close(message)?;
        self.control
            .send(&message, &[], self.deadline)
            .map_err(|e| explain(e, self.control))
    }

    fn hear(&mut self, expected: u8) -> Result<Vec<u8>> {
        let received = self.control.receive(PEER_LIMIT, self.deadline);
        let (message, _shares) = received.map_err(|e| explain(e, self.control))?;
        let opened = self.into.open(&message).map_err(|e| located(e, self.control))?;
        match opened.split_first() {
            Some((kind, body)) if *kind == expected => Ok(body.to_vec()),
            Some((&sealed::REFUSAL, body)) => Err(refused(body, self.control)),
            other => {
                let kind = other.map(|(kind, _)| *kind);
                let text = format!("message kind {kind:?} instead of {expected} in the handshake");
                Err(located(Error::protocol(text), self.control))
            }
        }
    }

    fn refuse(&mut self, error: Error) -> Error {
        // The other end may be gone: then there is nobody to tell.
        let _ = self.say(sealed::REFUSAL, |to| encode_refusal(&error, to));
        error
    }
}

fn encode_refusal(error: &Error, to: &mut Vec<u8>) {
    to.push(match error.kind {
        Kind::AuthFailed => 2,
        Kind::VersionMismatch => 3,
        Kind::ProtocolError => 4,
        Kind::Unreachable => 5,
        _ => 1,
    });
    to.extend_from_slice(hello::clip(&error.text, hello::MAX_TEXT).as_bytes());
}

fn refused(body: &[u8], control: &dyn Control) -> Error {
    let (kind, text) = body.split_first().unwrap_or((&1, &[]));
    let kind = match kind {
        2 => Kind::AuthFailed,
        3 => Kind::VersionMismatch,
        4 => Kind::ProtocolError,
        5 => Kind::Unreachable,
        _ => Kind::Refused,
    };
    let text = hello::text(text, hello::MAX_TEXT);
    Error::new(kind, format!("the peer at {} refused: {text}", control.address()))
}

fn located(error: Error, control: &dyn Control) -> Error {
    Error::new(error.kind, format!("{}: {}", control.address(), error.text))
}

fn explain(error: Error, control: &dyn Control) -> Error {
    let address = control.address();
    match error.kind {
        Kind::PeerLost => Error::new(
            Kind::Refused,
            format!(
                "the peer at {address} hung up during the handshake: {}",
                error.text
            ),
        ),
        Kind::TimedOut => {
            let text = format!(
                "the peer at {address} was silent in the handshake: {}",
                error.text
            );
            Error::new(Kind::TimedOut, text)
        }
        _ => error,
    }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
