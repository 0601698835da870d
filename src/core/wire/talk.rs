//! Messages of the handshake: plain before the proofs, sealed after them.
use std::time::Instant;

use super::auth::{Keys, Role, Seal, Transcript};
use super::handshake::TIME_LIMIT;
use super::hello;
use super::policy::{Policy, mode_name};
use crate::core::error::{Error, Kind, Result};
use crate::core::memory::Share;
use crate::core::transport::Control;

/// Longest message before the proofs.
const STRANGER_LIMIT: usize = 4096;
/// Longest message after them.
const PEER_LIMIT: usize = 64 * 1024;
const REFUSAL: [u8; 8] = *b"nrdma\r\n\x00";

/// Kinds of sealed messages.
pub(super) mod sealed {
    pub(crate) const REFUSAL: u8 = 0;
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const WORD: u8 = 2;
    pub(crate) const VERDICT: u8 = 3;
}

/// The exchange before the proofs.
pub(super) struct Talk<'c> {
    control: &'c mut dyn Control,
    deadline: Instant,
    pub(super) transcript: Transcript,
}

impl<'c> Talk<'c> {
    pub(super) fn new(control: &'c mut dyn Control, deadline: Instant) -> Self {
        let deadline = deadline.min(Instant::now() + TIME_LIMIT);
        Self { control, deadline, transcript: Transcript::default() }
    }

    pub(super) fn say(&mut self, message: &[u8]) -> Result<()> {
        self.transcript.add(message);
        self.control.send(message, &[], self.deadline).map_err(|e| explain(e, self.control))
    }

    pub(super) fn hear(&mut self) -> Result<Vec<u8>> {
        let message = self.hear_without_adding()?;
        self.transcript.add(&message);
        Ok(message)
    }

    /// For the proofs: they are about the transcript so far.
    pub(super) fn hear_without_adding(&mut self) -> Result<Vec<u8>> {
        let received = self.control.receive(STRANGER_LIMIT, self.deadline);
        let (message, _shares) = received.map_err(|e| explain(e, self.control))?;
        match message.strip_prefix(REFUSAL.as_slice()) {
            Some(refusal) => Err(refused(refusal, self.control)),
            None => Ok(message),
        }
    }

    /// Tells the other end why, if it still listens; hands the error back.
    pub(super) fn refuse(&mut self, error: Error) -> Error {
        let mut message = REFUSAL.to_vec();
        encode_refusal(&error, &mut message);
        // It may be gone: then there is nobody to tell.
        let _ = self.control.send(&message, &[], self.deadline);
        located(error, self.control)
    }

    pub(super) fn check_user(&mut self, policy: &Policy<'_>) -> Result<()> {
        let (own, peer) = (self.control.own_uid(), self.control.peer_uid());
        if !matches!(policy, Policy::SameUser(_)) || own == peer {
            return Ok(());
        }
        let text = format!(
            "a node of user {own} accepts nodes of the same user only, the other is user {peer}'s; \
             give both an auth_token"
        );
        Err(self.refuse(Error::new(Kind::AuthFailed, text)))
    }

    pub(super) fn check_proof(
        &mut self,
        keys: &Keys,
        role: Role,
        proof: &[u8],
        policy: &Policy<'_>,
    ) -> Result<()> {
        if keys.proves(role, proof)? {
            return Ok(());
        }
        let who = match role {
            Role::Connector => "connecting",
            Role::Listener => "listening",
        };
        let mode = mode_name(policy.mode());
        let advice = policy.advice();
        let text = format!("the {who} node's proof (\"{mode}\") does not fit; {advice}");
        Err(self.refuse(Error::new(Kind::AuthFailed, text)))
    }

    pub(super) fn seal(self, keys: &Keys, own: Role) -> Result<SealedTalk<'c>> {
        let seals = Seals::new(keys, own)?;
        Ok(SealedTalk { control: self.control, deadline: self.deadline, seals })
    }
}

/// Both directions' seals, as far as the talk has come.
pub(crate) struct Seals {
    out: Seal,
    into: Seal,
}

impl Seals {
    pub(super) fn new(keys: &Keys, own: Role) -> Result<Self> {
        Ok(Self { out: keys.seal(own)?, into: keys.seal(own.other())? })
    }

    #[cfg(test)]
    pub(super) fn close(&mut self, message: Vec<u8>) -> Vec<u8> {
        self.out.close(message).unwrap()
    }
}

/// The exchange after the proofs.
pub(super) struct SealedTalk<'c> {
    pub(super) control: &'c mut dyn Control,
    pub(super) deadline: Instant,
    pub(super) seals: Seals,
}

impl SealedTalk<'_> {
    pub(super) fn say(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.say_with(kind, &[], body)
    }

    /// With descriptors, which no seal covers.
    pub(super) fn say_with(
        &mut self,
        kind: u8,
        shares: &[&Share],
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let mut message = vec![kind];
        body(&mut message);
        let message = self.seals.out.close(message)?;
        self.control.send(&message, shares, self.deadline).map_err(|e| explain(e, self.control))
    }

    pub(super) fn hear(&mut self, expected: u8) -> Result<Vec<u8>> {
        match self.hear_any()? {
            (kind, body, _) if kind == expected => Ok(body),
            (kind, ..) => {
                let text = format!("message kind {kind} instead of {expected} in the handshake");
                Err(located(Error::protocol(text), self.control))
            }
        }
    }

    /// The next message, its kind first; a refusal is an error.
    pub(super) fn hear_any(&mut self) -> Result<(u8, Vec<u8>, Vec<Share>)> {
        let received = self.control.receive(PEER_LIMIT, self.deadline);
        let (message, shares) = received.map_err(|e| explain(e, self.control))?;
        let opened = self.seals.into.open(&message).map_err(|e| located(e, self.control))?;
        match opened.split_first() {
            Some((&sealed::REFUSAL, body)) => Err(refused(body, self.control)),
            Some((kind, body)) => Ok((*kind, body.to_vec(), shares)),
            None => Err(located(Error::protocol("an empty message in the handshake"), self.control)),
        }
    }

    pub(super) fn refuse(&mut self, error: Error) -> Error {
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
            format!("the peer at {address} hung up during the handshake: {}", error.text),
        ),
        Kind::TimedOut => {
            let text = format!("the peer at {address} was silent in the handshake: {}", error.text);
            Error::new(Kind::TimedOut, text)
        }
        _ => error,
    }
}
