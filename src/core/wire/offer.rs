//! What each end says of its engines, and the order in which they are tried.
use std::sync::Arc;

use super::hello::{self, MAX_NAME, MAX_TEXT, Sections, section, tag, text};
use crate::core::error::{Error, Result};
use crate::core::transport::{Candidate, Control, Engine, MAX_OFFER, Session};

/// Most engines that one end speaks of.
const MAX_ENGINES: usize = 16;

/// What the peer said of an engine: its offer, or why it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) engine: String,
    pub(super) what: Result<Vec<u8>, String>,
}

impl Offer {
    pub(super) fn decode_all(bytes: &[u8]) -> Result<Vec<Self>> {
        let mut offers = Vec::new();
        for item in Sections(bytes) {
            let (tag::OFFER, value) = item? else { continue };
            let (fit, value) = value.split_first().ok_or_else(|| Error::protocol("an empty offer"))?;
            let (engine, rest) = unpair(value)?;
            if rest.len() > MAX_OFFER || offers.len() == MAX_ENGINES {
                let text = format!("an offer of {} bytes, or over {MAX_ENGINES} of them", rest.len());
                return Err(Error::protocol(text));
            }
            let what = if *fit == 1 { Ok(rest.to_vec()) } else { Err(text(rest, MAX_TEXT)) };
            offers.push(Self { engine, what });
        }
        Ok(offers)
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let (fit, rest) = match &self.what {
            Ok(offer) => (1, offer.as_slice()),
            Err(why) => (0, hello::clip(why, MAX_TEXT).as_bytes()),
        };
        let mut value = vec![fit];
        pair(&mut value, &self.engine, rest);
        section(to, tag::OFFER, &value);
    }
}

/// Our own engines, each with its part in this connection.
pub(super) struct Offers(pub(super) Vec<Own>);

/// An engine's name, and its part or why it has none.
type Own = (String, Result<Box<dyn Candidate>, String>);

impl Offers {
    pub(super) fn collect(engines: &[Arc<dyn Engine>], session: &Session, control: &dyn Control) -> Self {
        let offer = |engine: &Arc<dyn Engine>| {
            let candidate = engine.offer(session, control).map_err(|error| error.text);
            let bounded = candidate.and_then(|candidate| match candidate.offer().len() {
                0..=MAX_OFFER => Ok(candidate),
                len => Err(format!("its offer has {len} bytes; at most {MAX_OFFER} are allowed")),
            });
            (engine.name().to_owned(), bounded)
        };
        Self(engines.iter().take(MAX_ENGINES).map(offer).collect())
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        for (engine, candidate) in &self.0 {
            let what = candidate.as_ref().map(|c| c.offer().to_vec()).map_err(String::clone);
            Offer { engine: engine.clone(), what }.encode(to);
        }
    }
}

/// An engine's place in the order: it is tried, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Listed {
    Candidate(String),
    Not(String, String),
}

impl Listed {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Listed::Candidate(engine) => section(to, tag::CANDIDATE, engine.as_bytes()),
            Listed::Not(engine, why) => {
                let mut value = Vec::new();
                pair(&mut value, engine, hello::clip(why, MAX_TEXT).as_bytes());
                section(to, tag::WHY_NOT, &value);
            }
        }
    }

    /// In the order of the message. The listener also lists what only the connector has.
    pub(super) fn decode_all(bytes: &[u8]) -> Result<Vec<Self>> {
        let mut listed = Vec::new();
        for item in Sections(bytes) {
            match item? {
                (tag::CANDIDATE, value) => listed.push(Listed::Candidate(text(value, MAX_NAME))),
                (tag::WHY_NOT, value) => {
                    let (engine, why) = unpair(value)?;
                    listed.push(Listed::Not(engine, text(why, MAX_TEXT)));
                }
                _ => {}
            }
            if listed.len() > 2 * MAX_ENGINES {
                return Err(Error::protocol(format!("more than {} engines listed", 2 * MAX_ENGINES)));
            }
        }
        Ok(listed)
    }
}

fn pair(to: &mut Vec<u8>, first: &str, second: &[u8]) {
    let first = hello::clip(first, MAX_NAME);
    to.push(u8::try_from(first.len()).unwrap_or(0));
    to.extend_from_slice(first.as_bytes());
    to.extend_from_slice(second);
}

fn unpair(bytes: &[u8]) -> Result<(String, &[u8])> {
    let split = bytes.split_first().and_then(|(len, rest)| rest.split_at_checked(usize::from(*len)));
    let (first, second) = split.ok_or_else(|| Error::protocol("an engine's name is cut off"))?;
    Ok((text(first, MAX_NAME), second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers() -> Vec<Offer> {
        vec![
            Offer { engine: "inproc".into(), what: Err("another process".into()) },
            Offer { engine: "shm".into(), what: Ok(vec![0, 255, 7]) },
        ]
    }

    #[test]
    fn offers_and_lists_round_trip() {
        let mut bytes = Vec::new();
        offers().iter().for_each(|offer| offer.encode(&mut bytes));
        let listed = vec![Listed::Not("inproc".into(), "no".into()), Listed::Candidate("shm".into())];
        listed.iter().for_each(|one| one.encode(&mut bytes));
        assert_eq!(Offer::decode_all(&bytes).unwrap(), offers());
        assert_eq!(Listed::decode_all(&bytes).unwrap(), listed);
    }

    #[test]
    fn too_many_and_too_long_ones_are_refused() {
        let mut bytes = Vec::new();
        let long = |len| Offer { engine: "shm".into(), what: Ok(vec![1; len]) };
        long(MAX_OFFER).encode(&mut bytes);
        assert_eq!(Offer::decode_all(&bytes).unwrap(), [long(MAX_OFFER)]);
        long(MAX_OFFER + 1).encode(&mut bytes);
        assert!(Offer::decode_all(&bytes).is_err());
        let mut bytes = Vec::new();
        (0..=MAX_ENGINES).for_each(|_| long(1).encode(&mut bytes));
        assert!(Offer::decode_all(&bytes).is_err());
        let mut bytes = Vec::new();
        (0..=2 * MAX_ENGINES).for_each(|_| Listed::Candidate("shm".into()).encode(&mut bytes));
        assert!(Listed::decode_all(&bytes).is_err());
    }

    #[test]
    fn changed_bytes_are_errors_or_other_words() {
        let mut bytes = Vec::new();
        offers().iter().for_each(|offer| offer.encode(&mut bytes));
        Listed::Not("inproc".into(), "no".into()).encode(&mut bytes);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 0xff;
            }
            let _ = (Offer::decode_all(&changed), Listed::decode_all(&changed));
        }
    }
}
