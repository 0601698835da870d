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

use super::auth::{Keys, Role};
use super::hello::{self, Choice, Hello, Offer};
pub(crate) use super::policy::Policy;
use super::policy::mode_name;
use super::talk::{Talk, sealed};
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Control, Engine, Session};

/// Protocol versions that this build speaks.
pub(crate) const VERSIONS: RangeInclusive<u16> = 1..=1;
/// A handshake that takes longer is given up: a silent stranger must not hold a place.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(5);

const MAGIC: [u8; 8] = *b"nrdma\r\n\x01";
const NONCE_BYTES: usize = 32;

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
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(Kind::NotSupported, format!("the system gave no random bytes: {e}")))?;
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
    talk.check_user(&side.policy)?;
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
    talk.check_proof(&keys, Role::Listener, &proof, &side.policy)?;

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
    let both = |offers: &[Offer]| offers.iter().any(|o| o.engine == choice.engine && o.unfit.is_none());
    let engine = side.engines.iter().position(|e| e.name() == choice.engine);
    match engine.filter(|_| both(&ours) && both(&theirs)) {
        Some(engine) => Ok(Agreed { peer, session, engine, why_not: choice.why_not }),
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
    talk.check_user(&side.policy)?;
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
    talk.check_proof(&keys, Role::Connector, &proof, &side.policy)?;
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
    Ok(Agreed { peer, session, engine, why_not: choice.why_not })
}

fn complete(own: &Hello) -> Result<Hello> {
    Ok(Hello { process: hello::process_name()?, ..own.clone() })
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
                return Ok(Choice { engine: own.engine.clone(), why_not });
            }
            (Some(reason), _) => format!("{own_name}: {reason}"),
            (None, Some(Offer { unfit: Some(reason), .. })) => format!("{peer_name}: {reason}"),
            (None, None) => format!("not offered by {peer_name}"),
        };
        why_not.push((own.engine.clone(), reason));
    }
    let reasons: Vec<_> = why_not.iter().map(|(engine, reason)| format!("{engine} ({reason})")).collect();
    let text = format!("{own_name} and {peer_name} have no engine in common: {}", reasons.join(", "));
    Err(Error::new(Kind::Unreachable, text))
}

fn choose_version(first: &[u8], ours: &RangeInclusive<u16>) -> Result<u16> {
    let short =
        || Error::protocol(format!("the first message has {} bytes and is no nrdma greeting", first.len()));
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
    let short = || Error::protocol(format!("the answer has {} bytes and is no nrdma greeting", answer.len()));
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

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
