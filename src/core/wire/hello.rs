//! What two ends tell each other after they proved themselves: who they are, which engines they have.
//!
//! Every message is a kind byte and sections {tag u16, length u32, bytes}, little-endian; a reader skips tags
//! that it does not know, so that later versions can say more.
use crate::core::error::{Error, Result};

/// Longest node name on the wire.
pub(crate) const MAX_NAME: usize = 255;
/// Most job classes in one hello.
pub(crate) const MAX_CLASSES: usize = 1024;
/// Longest reason or refusal.
pub(crate) const MAX_TEXT: usize = 512;

/// Who a node is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hello {
    /// For logs and peer info.
    pub(crate) name: String,
    /// Random; a restarted node is another instance.
    pub(crate) instance: u64,
    /// Cluster-wide number.
    pub(crate) host_id: u32,
    /// Fragments it takes at a time.
    pub(crate) credits: u32,
    /// Job classes it has registered so far (`nrdma_uuid` words).
    pub(crate) classes: Vec<[u32; 4]>,
}

pub(super) mod tag {
    pub(super) const NAME: u16 = 1;
    pub(super) const INSTANCE: u16 = 2;
    pub(super) const HOST_ID: u16 = 3;
    pub(super) const CREDITS: u16 = 4;
    pub(super) const CLASSES: u16 = 5;
    pub(crate) const OFFER: u16 = 6;
    pub(crate) const CANDIDATE: u16 = 7;
    pub(crate) const WHY_NOT: u16 = 8;
}

impl Hello {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        section(to, tag::NAME, clip(&self.name, MAX_NAME).as_bytes());
        section(to, tag::INSTANCE, &self.instance.to_le_bytes());
        section(to, tag::HOST_ID, &self.host_id.to_le_bytes());
        section(to, tag::CREDITS, &self.credits.to_le_bytes());
        let classes = self.classes.iter().take(MAX_CLASSES).flatten().flat_map(|word| word.to_le_bytes());
        section(to, tag::CLASSES, &classes.collect::<Vec<u8>>());
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut hello = Hello::default();
        let mut seen = [false; 2];
        for item in Sections(bytes) {
            let (tag, value) = item?;
            match tag {
                tag::NAME => hello.name = text(value, MAX_NAME),
                tag::INSTANCE => (hello.instance, seen[0]) = (u64::from_le_bytes(array(value)?), true),
                tag::HOST_ID => (hello.host_id, seen[1]) = (u32::from_le_bytes(array(value)?), true),
                tag::CREDITS => hello.credits = u32::from_le_bytes(array(value)?),
                tag::CLASSES => hello.classes = classes(value)?,
                _ => {}
            }
        }
        if seen != [true; 2] {
            return Err(Error::protocol("a hello without instance or host id"));
        }
        Ok(hello)
    }
}

fn classes(bytes: &[u8]) -> Result<Vec<[u32; 4]>> {
    let (ids, rest) = bytes.as_chunks::<16>();
    if !rest.is_empty() || ids.len() > MAX_CLASSES {
        return Err(Error::protocol(format!("a class list of {} bytes", bytes.len())));
    }
    ids.iter()
        .map(|id| {
            let (words, _) = id.as_chunks::<4>();
            let mut class = [0; 4];
            for (to, from) in class.iter_mut().zip(words) {
                *to = u32::from_le_bytes(*from);
            }
            Ok(class)
        })
        .collect()
}

/// A peer's words, made safe to show: bounded, no control characters.
pub(super) fn text(bytes: &[u8], limit: usize) -> String {
    let shown = String::from_utf8_lossy(bytes).replace(char::is_control, " ");
    clip(&shown, limit).to_owned()
}

/// The longest prefix of at most `limit` bytes.
pub(super) fn clip(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or("")
}

pub(super) fn section(to: &mut Vec<u8>, tag: u16, value: &[u8]) {
    // All values are bounded far below 4 GiB by the limits above.
    let len = u32::try_from(value.len()).unwrap_or(0);
    to.extend_from_slice(&tag.to_le_bytes());
    to.extend_from_slice(&len.to_le_bytes());
    to.extend_from_slice(value);
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    let exact = || Error::protocol(format!("a field of {} bytes instead of {N}", bytes.len()));
    bytes.first_chunk::<N>().copied().ok_or_else(exact)
}

/// Walks {tag, length, value}; ends after the first error.
pub(super) struct Sections<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Sections<'a> {
    type Item = Result<(u16, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let left = self.0.len();
        let parsed = self.split();
        if parsed.is_none() {
            self.0 = &[];
        }
        Some(parsed.ok_or_else(|| Error::protocol(format!("a section of the hello ends after {left} bytes"))))
    }
}

impl<'a> Sections<'a> {
    fn split(&mut self) -> Option<(u16, &'a [u8])> {
        let (tag, rest) = self.0.split_first_chunk::<2>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        self.0 = rest;
        Some((u16::from_le_bytes(*tag), value))
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    fn sample() -> Hello {
        Hello {
            name: "render-1".into(),
            instance: 0x0123_4567_89ab_cdef,
            host_id: 7,
            credits: 5,
            classes: vec![[1, 2, 3, 4], [5, 6, 7, 8]],
        }
    }

    #[test]
    fn hellos_round_trip_and_skip_what_they_do_not_know() {
        let mut bytes = Vec::new();
        section(&mut bytes, 999, b"from the future");
        sample().encode(&mut bytes);
        section(&mut bytes, 1000, b"");
        assert_eq!(Hello::decode(&bytes).unwrap(), sample());
    }

    #[test]
    fn every_truncation_is_an_error_or_a_shorter_hello() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        for end in 0..bytes.len() {
            // What comes last may be left out whole.
            let shorter = Hello { classes: vec![], ..sample() };
            let bare = Hello { credits: 0, ..shorter.clone() };
            let cut = Hello::decode(&bytes[..end]);
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut == shorter || cut == bare), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let _ = Hello::decode(&changed);
        }
    }

    #[test]
    fn words_of_a_peer_are_made_safe() {
        assert_eq!(text(b"a\x1b[31mb\nc\xff", 64), "a [31mb c\u{fffd}");
        assert_eq!(clip("\u{e9}\u{e9}", 3), "\u{e9}");
    }

    #[test]
    fn too_many_classes_are_refused() {
        assert!(classes(&[0; 16 * (MAX_CLASSES + 1)]).is_err());
        assert!(classes(&[0; 17]).is_err());
    }
}
