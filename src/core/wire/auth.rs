//! Proofs and keys: how two ends show each other that they know the same secret, without telling it.
//!
//! T = SHA-256 of every byte exchanged so far (versions, mode and both nonces); K = HKDF-SHA-256(salt T, ikm
//! secret, info "nrdma1"). The connector proves HMAC(K, "client" || T), the listener HMAC(K, "server" || T):
//! fresh nonces make a recorded proof worthless, the labels make a reflected one worthless.
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::core::error::{Error, Kind, Result};

/// Bytes of a key, a hash or a proof.
pub(crate) const KEY_BYTES: usize = 32;
/// Bytes of the MAC at the end of a sealed message.
pub(crate) const MAC_BYTES: usize = 16;

/// A key, hash or proof.
pub(crate) type Key = [u8; KEY_BYTES];

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Connector,
    Listener,
}

impl Role {
    fn proof_label(self) -> &'static [u8] {
        match self {
            Role::Connector => b"client",
            Role::Listener => b"server",
        }
    }
    fn key_label(self) -> &'static [u8] {
        match self {
            Role::Connector => b"nrdma1 frames client",
            Role::Listener => b"nrdma1 frames server",
        }
    }
    pub(crate) fn other(self) -> Self {
        match self {
            Role::Connector => Role::Listener,
            Role::Listener => Role::Connector,
        }
    }
}

/// The hash over everything said so far.
#[derive(Clone, Default)]
pub(crate) struct Transcript(Sha256);

impl Transcript {
    pub(crate) fn add(&mut self, message: &[u8]) {
        self.0.update(message);
    }

    /// The keys that this transcript and the secret make.
    pub(crate) fn keys(&self, secret: &[u8]) -> Result<Keys> {
        let transcript: Key = self.0.clone().finalize().into();
        let root = expand(&Hkdf::new(Some(&transcript), secret), b"nrdma1")?;
        Ok(Keys { transcript, root })
    }
}

/// Everything that is derived from transcript and secret.
pub(crate) struct Keys {
    transcript: Key,
    root: Key,
}

impl Keys {
    /// What `role` sends to prove that it knows the secret.
    pub(crate) fn proof(&self, role: Role) -> Result<Key> {
        Ok(self.proof_mac(role)?.finalize().into_bytes().into())
    }

    /// Whether `proof` is `role`'s; takes the same time wherever it differs.
    pub(crate) fn proves(&self, role: Role, proof: &[u8]) -> Result<bool> {
        Ok(self.proof_mac(role)?.verify_slice(proof).is_ok())
    }

    fn proof_mac(&self, role: Role) -> Result<Hmac<Sha256>> {
        Ok(mac(&self.root)?.chain_update(role.proof_label()).chain_update(self.transcript))
    }

    /// Seals what `role` sends.
    pub(crate) fn seal(&self, role: Role) -> Result<Seal> {
        Ok(Seal { key: self.derive(role.key_label())?, sequence: 0 })
    }

    /// A key for a named purpose.
    pub(crate) fn derive(&self, label: &[u8]) -> Result<Key> {
        expand(&Hkdf::from_prk(&self.root).map_err(|_| broken())?, label)
    }
}

/// One direction's key and count: messages cannot be changed, left out, repeated or reordered.
pub(crate) struct Seal {
    key: Key,
    sequence: u64,
}

impl Seal {
    /// Appends the MAC.
    pub(crate) fn close(&mut self, mut message: Vec<u8>) -> Result<Vec<u8>> {
        let tag: Key = self.next(&message)?.finalize().into_bytes().into();
        message.extend(tag.iter().take(MAC_BYTES));
        Ok(message)
    }

    /// Checks and removes the MAC.
    pub(crate) fn open<'m>(&mut self, sealed: &'m [u8]) -> Result<&'m [u8]> {
        let split = sealed.len().checked_sub(MAC_BYTES).and_then(|at| sealed.split_at_checked(at));
        let Some((message, tag)) = split else {
            return Err(Error::protocol(format!("a sealed message of {} bytes is too short", sealed.len())));
        };
        let sequence = self.sequence;
        self.next(message)?.verify_truncated_left(tag).map_err(|_| {
            Error::new(
                Kind::AuthFailed,
                format!("message {sequence} was changed, repeated or not the peer's"),
            )
        })?;
        Ok(message)
    }

    fn next(&mut self, message: &[u8]) -> Result<Hmac<Sha256>> {
        let mac = mac(&self.key)?.chain_update(self.sequence.to_le_bytes()).chain_update(message);
        self.sequence = self.sequence.wrapping_add(1);
        Ok(mac)
    }
}

fn mac(key: &Key) -> Result<Hmac<Sha256>> {
    Hmac::new_from_slice(key).map_err(|_| broken())
}

fn expand(from: &Hkdf<Sha256>, info: &[u8]) -> Result<Key> {
    let mut key = [0; KEY_BYTES];
    from.expand(info, &mut key).map_err(|_| broken())?;
    Ok(key)
}

/// Lengths are constants: cannot happen.
fn broken() -> Error {
    Error::new(Kind::NotSupported, "the key derivation refused its key length")
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    fn keys(secret: &[u8]) -> Keys {
        let mut transcript = Transcript::default();
        transcript.add(b"versions");
        transcript.add(b"nonces");
        transcript.keys(secret).unwrap()
    }

    /// RFC 5869 test case 1 goes through the same calls: catches a swapped salt and key.
    #[test]
    fn hkdf_matches_the_rfc() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let okm = expand(&Hkdf::new(Some(&salt), &[0x0b; 22]), &info).unwrap();
        assert_eq!(okm[..8], [0x3c, 0xb2, 0x5f, 0x25, 0xfa, 0xac, 0xd5, 0x7a]);
    }

    #[test]
    fn proofs_need_the_secret_and_the_role() {
        let (ours, wrong) = (keys(b"secret"), keys(b"secreT"));
        let proof = ours.proof(Role::Connector).unwrap();
        assert!(keys(b"secret").proves(Role::Connector, &proof).unwrap());
        assert!(!ours.proves(Role::Listener, &proof).unwrap());
        assert!(!wrong.proves(Role::Connector, &proof).unwrap());
        assert!(!ours.proves(Role::Connector, &proof[..31]).unwrap());
        assert!(!ours.proves(Role::Connector, &[]).unwrap());
    }

    #[test]
    fn seals_catch_changes_repeats_and_reflection() {
        let keys = keys(b"secret");
        let (mut out, mut into) = (keys.seal(Role::Connector).unwrap(), keys.seal(Role::Connector).unwrap());
        let first = out.close(b"first".to_vec()).unwrap();
        let second = out.close(b"second".to_vec()).unwrap();
        assert_eq!(into.open(&first).unwrap(), b"first");
        assert_eq!(into.open(&first).unwrap_err().kind, Kind::AuthFailed);
        assert_eq!(into.open(&second).unwrap_err().kind, Kind::AuthFailed);
        assert_eq!(keys.seal(Role::Listener).unwrap().open(&first).unwrap_err().kind, Kind::AuthFailed);
        let mut changed = first.clone();
        changed[0] ^= 1;
        assert!(keys.seal(Role::Connector).unwrap().open(&changed).is_err());
        assert_eq!(into.open(&first[..15]).unwrap_err().kind, Kind::ProtocolError);
    }
}
