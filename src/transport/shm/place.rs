//! Where a node is, as far as meeting it through a file is concerned.
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::core::error::Result;
use crate::core::transport::{Session, TAG_BYTES};
use crate::sys::{runtime_dir, socket};

/// The layout of these bytes and of what follows.
const VERSION: u8 = 1;
/// Bytes of a place on the wire.
pub(super) const BYTES: usize = 1 + 4 + 8 + TAG_BYTES;

/// What two nodes must have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    user: u32,
    /// The network namespace's number; 0 = not known.
    network: u64,
    /// Made of the cookie in the runtime directory: who has the same one sees the same directory.
    directory: [u8; TAG_BYTES],
}

impl Place {
    /// Ours, and the directory.
    pub(super) fn here(session: &Session) -> Result<(Self, PathBuf)> {
        let directory = runtime_dir::runtime_dir()?;
        let cookie = runtime_dir::cookie(&directory)?;
        let network = fs::metadata("/proc/self/ns/net").map_or(0, |found| found.ino());
        let place = Self { user: socket::own_uid(), network, directory: session.mark(&cookie)? };
        Ok((place, directory))
    }

    pub(super) fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [VERSION; BYTES];
        let fields = self.user.to_le_bytes().into_iter().chain(self.network.to_le_bytes());
        bytes.iter_mut().skip(1).zip(fields.chain(self.directory)).for_each(|(to, from)| *to = from);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = bytes.split_first()? else { return None };
        let (user, rest) = rest.split_first_chunk()?;
        let (network, rest) = rest.split_first_chunk()?;
        let directory = rest.try_into().ok()?;
        Some(Self { user: u32::from_le_bytes(*user), network: u64::from_le_bytes(*network), directory })
    }

    /// Why a node at the other place cannot be met, or None. Its word is not proof: the socket is.
    pub(super) fn far_from(&self, theirs: &[u8]) -> Option<String> {
        let Some(other) = Self::decode(theirs) else {
            return Some(format!("the other node's offer ({} bytes) is of an unknown version", theirs.len()));
        };
        if other.user != self.user {
            return Some(format!("the nodes belong to users {} and {}", self.user, other.user));
        }
        if other.directory != self.directory {
            let text = "the nodes have different runtime directories, as on different hosts or in different \
                        containers (XDG_RUNTIME_DIR)";
            return Some(text.to_owned());
        }
        if other.network != self.network && other.network != 0 && self.network != 0 {
            let text = "the nodes are in different network namespaces, which count as hosts; use a unix: \
                        address to meet nevertheless";
            return Some(text.to_owned());
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn places_differ_by_user_directory_and_network() {
        let here = Place { user: 7, network: 8, directory: [9; TAG_BYTES] };
        let why_not = |other: &Place| here.far_from(&other.encode()).unwrap_or_default();
        assert_eq!(here.far_from(&here.encode()), None);
        assert!(why_not(&Place { user: 6, ..here.clone() }).contains("users 7 and 6"));
        assert!(why_not(&Place { directory: [1; TAG_BYTES], ..here.clone() }).contains("XDG_RUNTIME_DIR"));
        assert!(why_not(&Place { network: 1, ..here.clone() }).contains("network namespaces"));
        assert!(why_not(&Place { network: 0, ..here.clone() }).is_empty());
        let bytes = here.encode();
        for wrong in [&bytes[..BYTES - 1], &[], &[&bytes[..], &[0]].concat(), &[2; BYTES]] {
            assert!(here.far_from(wrong).unwrap().contains("unknown version"));
        }
    }

    #[test]
    fn a_place_is_the_same_for_both_ends_of_one_session_only() {
        let session = Session { connector: true, id: [1; 16], key: [2; 32] };
        let (here, directory) = Place::here(&session).unwrap();
        let (there, _) = Place::here(&Session { connector: false, ..session.clone() }).unwrap();
        assert_eq!(here, there);
        assert!(here.network != 0 && directory.is_absolute());
        let (other, _) = Place::here(&Session { key: [3; 32], ..session }).unwrap();
        assert_ne!(here.directory, other.directory);
    }
}
