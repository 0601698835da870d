//! The first words between two nodes: versions, proof of the shared secret, hellos with what each engine offers.
//!
//! ```text
//! connector                                   listener
//! magic, versions min..max, nonce   ------>
//!                                   <------   magic, version, mode, nonce
//! HMAC(K, "client" || T)            ------>
//!                                   <------   HMAC(K, "server" || T)
//! [hello, offers]                   ------>
//!                                   <------   [hello, offers, order]    [..] = sealed, see `auth`
//! ```
//! Strictly in turns, so that whoever refuses has read everything and its words reach the other end. No host
//! code runs and nothing of a peer is believed before its proof, except which mistake to report. Then `meeting`
//! goes through the engines in that order.
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::auth::{Keys, Role};
use super::hello::Hello;
use super::meeting::{self, Names, Rounds};
use super::offer::{Listed, Offer, Offers};
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
    /// The engines to try.
    pub(crate) rounds: Rounds,
}

/// Who we are and what we accept.
pub(crate) struct Side<'a> {
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
    let session = session(&keys, Role::Connector)?;
    let ours = Offers::collect(side.engines, &session, talk.control);
    talk.say(sealed::HELLO, |to| {
        side.own.encode(to);
        ours.encode(to);
    })?;
    let message = talk.hear(sealed::HELLO)?;
    let peer = Hello::decode(&message)?;
    if let Err(error) = (side.admit)(&peer) {
        return Err(talk.refuse(error));
    }
    let (theirs, listed) = (Offer::decode_all(&message)?, Listed::decode_all(&message)?);
    let rounds = Rounds::new(listed, ours, theirs, names(side, &peer), (talk.deadline, talk.seals))?;
    Ok(Agreed { peer, session, rounds })
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
    let message = talk.hear(sealed::HELLO)?;
    let (peer, theirs) = (Hello::decode(&message)?, Offer::decode_all(&message)?);
    if let Err(error) = (side.admit)(&peer) {
        return Err(talk.refuse(error));
    }
    let session = session(&keys, Role::Listener)?;
    let ours = Offers::collect(side.engines, &session, talk.control);
    let names = names(side, &peer);
    let listed = meeting::order(&ours, &theirs, &names);
    if let Err(error) = meeting::check_any(&listed, &names) {
        return Err(talk.refuse(error));
    }
    talk.say(sealed::HELLO, |to| {
        side.own.encode(to);
        ours.encode(to);
        listed.iter().for_each(|one| one.encode(to));
    })?;
    let rounds = Rounds::new(listed, ours, theirs, names, (talk.deadline, talk.seals))?;
    Ok(Agreed { peer, session, rounds })
}

fn names(side: &Side<'_>, peer: &Hello) -> Names {
    Names { own: side.own.name.clone(), peer: peer.name.clone() }
}

fn session(keys: &Keys, role: Role) -> Result<Session> {
    let name = keys.derive(b"nrdma1 session")?;
    let mut id = [0; 16];
    for (to, from) in id.iter_mut().zip(name) {
        *to = from;
    }
    Ok(Session { connector: role == Role::Connector, id, key: keys.derive(b"nrdma1 channel")? })
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
pub(super) mod tests;
