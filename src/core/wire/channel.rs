//! What protects the channels of a session: a MAC on every frame, and a proof that a further connection belongs
//! to it.
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::auth::{Key, Role};
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::Session;

/// Bytes of the MAC behind a frame.
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes of a channel proof's MAC.
const PROOF_BYTES: usize = 32;
const NONCE_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"nrdma\r\n\x02";

/// One direction of one channel: frames cannot be changed, left out, repeated, reordered or sent back.
pub(crate) struct Sealer {
    mac: Hmac<Sha256>,
    sequence: u64,
}

impl Sealer {
    /// The MAC of the next frame.
    pub(crate) fn tag(&mut self, frame: &[u8]) -> [u8; TAG_BYTES] {
        front(self.next(frame).finalize().into_bytes().into())
    }

    /// Checks the MAC of the next frame.
    pub(crate) fn check(&mut self, frame: &[u8], tag: &[u8]) -> Result<()> {
        let sequence = self.sequence;
        let mac = self.next(frame);
        // A shorter one would be accepted, and be guessed sooner.
        if tag.len() == TAG_BYTES && mac.verify_truncated_left(tag).is_ok() {
            return Ok(());
        }
        Err(Error::protocol(format!("frame {sequence} was changed, repeated or not the peer's")))
    }

    fn next(&mut self, frame: &[u8]) -> Hmac<Sha256> {
        let mac = self.mac.clone().chain_update(self.sequence.to_le_bytes()).chain_update(frame);
        self.sequence = self.sequence.wrapping_add(1);
        mac
    }
}

impl Session {
    /// A mark by which both ends can see whether they have the same secret, without telling it to anybody.
    pub(crate) fn mark(&self, secret: &[u8]) -> Result<[u8; TAG_BYTES]> {
        let mac = keyed(&self.key)?.chain_update(b"nrdma1 mark").chain_update(secret);
        Ok(front(mac.finalize().into_bytes().into()))
    }

    /// What seals one direction of a channel: what the connector sends, or what the listener sends.
    pub(crate) fn sealer(&self, channel: u32, from_connector: bool) -> Result<Sealer> {
        let role = if from_connector { Role::Connector } else { Role::Listener };
        let key = derive(&self.key, b"nrdma1 frames", channel, role)?;
        Ok(Sealer { mac: keyed(&key)?, sequence: 0 })
    }
}

/// The first words of a further connection of a session: magic, session, channel, nonce, MAC over all of it.
pub(crate) struct ChannelProof {
    bytes: [u8; Self::BYTES],
}

impl ChannelProof {
    /// Bytes of a proof.
    pub(crate) const BYTES: usize = MAGIC.len() + 16 + 4 + NONCE_BYTES + PROOF_BYTES;
    const SIGNED: usize = Self::BYTES - PROOF_BYTES;

    /// The connector's proof for a channel.
    pub(crate) fn make(session: &Session, channel: u32) -> Result<Self> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)
            .map_err(|e| Error::new(Kind::NotSupported, format!("the system gave no random bytes: {e}")))?;
        let mut signed = MAGIC.to_vec();
        signed.extend_from_slice(&session.id);
        signed.extend_from_slice(&channel.to_le_bytes());
        signed.extend_from_slice(&nonce);
        let key = derive(&session.key, b"nrdma1 open", channel, Role::Connector)?;
        let mac: Key = keyed(&key)?.chain_update(&signed).finalize().into_bytes().into();
        signed.extend_from_slice(&mac);
        Self::read(&signed).ok_or_else(|| Error::invalid("a channel proof of the wrong length"))
    }

    /// What a peer sent, if it is a proof at all.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let bytes = <[u8; Self::BYTES]>::try_from(message).ok()?;
        bytes.starts_with(&MAGIC).then_some(Self { bytes })
    }

    /// The bytes to send.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The session that it names.
    pub(crate) fn session(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id.iter_mut().zip(self.bytes.iter().skip(MAGIC.len())).for_each(|(to, from)| *to = *from);
        id
    }

    /// Whether it proves that its sender knows the session's key and means that channel.
    pub(crate) fn proves(&self, session: &Session, channel: u32) -> Result<bool> {
        let (signed, mac) = self.bytes.split_at(Self::SIGNED);
        let named = signed.get(MAGIC.len()..MAGIC.len() + 20).unwrap_or_default();
        let key = derive(&session.key, b"nrdma1 open", channel, Role::Connector)?;
        let fits = keyed(&key)?.chain_update(signed).verify_slice(mac).is_ok();
        Ok(fits && *named == [&session.id[..], &channel.to_le_bytes()].concat())
    }

    /// The listener's answer: it knows the key, too.
    pub(crate) fn answer(&self, session: &Session, channel: u32) -> Result<Key> {
        let key = derive(&session.key, b"nrdma1 open", channel, Role::Listener)?;
        Ok(keyed(&key)?.chain_update(self.bytes).finalize().into_bytes().into())
    }

    /// Whether `answer` is the listener's.
    pub(crate) fn is_answered(&self, session: &Session, channel: u32, answer: &[u8]) -> Result<bool> {
        let key = derive(&session.key, b"nrdma1 open", channel, Role::Listener)?;
        Ok(keyed(&key)?.chain_update(self.bytes).verify_slice(answer).is_ok())
    }
}

fn derive(key: &Key, what: &[u8], channel: u32, role: Role) -> Result<Key> {
    let role: &[u8] = match role {
        Role::Connector => b" client",
        Role::Listener => b" server",
    };
    let mac = keyed(key)?.chain_update(what).chain_update(channel.to_le_bytes()).chain_update(role);
    Ok(mac.finalize().into_bytes().into())
}

fn front(whole: Key) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    tag.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    tag
}

fn keyed(key: &Key) -> Result<Hmac<Sha256>> {
    // Its length is a constant: cannot fail.
    Hmac::new_from_slice(key).map_err(|_| Error::new(Kind::NotSupported, "the MAC refused its key length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session { connector: true, id: [7; 16], key: [9; 32] }
    }

    #[test]
    fn frames_are_sealed_by_channel_direction_and_order() {
        let session = session();
        let mut out = session.sealer(0, true).unwrap();
        let (first, second) = (out.tag(b"one"), out.tag(b"two"));
        let mut into = session.sealer(0, true).unwrap();
        into.check(b"one", &first).unwrap();
        into.check(b"two", &second).unwrap();
        for (channel, from_connector) in [(0, false), (1, true)] {
            let mut other = session.sealer(channel, from_connector).unwrap();
            assert_eq!(other.check(b"one", &first).unwrap_err().kind, Kind::ProtocolError);
        }
        let mut repeated = session.sealer(0, true).unwrap();
        repeated.check(b"one", &first).unwrap();
        assert!(repeated.check(b"one", &first).is_err());
        assert!(session.sealer(0, true).unwrap().check(b"two", &second).is_err());
        assert!(session.sealer(0, true).unwrap().check(b"onE", &first).is_err());
        assert!(session.sealer(0, true).unwrap().check(b"one", &first[..15]).is_err());
    }

    #[test]
    fn channel_proofs_fit_one_session_and_channel() {
        let session = session();
        let proof = ChannelProof::make(&session, 1).unwrap();
        let read = ChannelProof::read(proof.bytes()).unwrap();
        assert_eq!(read.session(), session.id);
        assert!(read.proves(&session, 1).unwrap());
        assert!(!read.proves(&session, 2).unwrap());
        assert!(!read.proves(&Session { id: [8; 16], ..session.clone() }, 1).unwrap());
        assert!(!read.proves(&Session { key: [8; 32], ..session.clone() }, 1).unwrap());
        for at in 8..ChannelProof::BYTES {
            let mut bytes = proof.bytes().to_vec();
            bytes[at] ^= 1;
            assert!(!ChannelProof::read(&bytes).unwrap().proves(&session, 1).unwrap(), "byte {at}");
        }
        assert!(ChannelProof::read(&proof.bytes()[1..]).is_none());
        assert!(ChannelProof::read(&[0; ChannelProof::BYTES]).is_none());
        let answer = read.answer(&session, 1).unwrap();
        assert!(proof.is_answered(&session, 1, &answer).unwrap());
        // A proof sent back is no answer.
        assert!(!proof.is_answered(&session, 1, &proof.bytes()[ChannelProof::BYTES - 32..]).unwrap());
        assert!(!proof.is_answered(&session, 2, &answer).unwrap());
    }
}
