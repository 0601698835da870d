//! The text form of a Unix socket's address.
use std::fmt;
use std::path::PathBuf;

use crate::core::error::{Error, Result};
use crate::sys::socket::{MAX_NAME, Name};
use crate::sys::{random, runtime_dir};

pub(super) const SCHEME: &str = "unix:";
/// Random names are `node-PID-RANDOM`.
pub(super) const RANDOM_PREFIX: &str = "node-";

/// An address that can be listened at or connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) name: Name,
}

impl Address {
    /// `unix:` alone is a random name.
    pub(super) fn to_listen(text: &str) -> Result<Self> {
        if text == SCHEME {
            let random = u64::from_le_bytes(random::bytes()?);
            let name = format!("{RANDOM_PREFIX}{}-{random:016x}", std::process::id());
            let path = runtime_dir::runtime_dir()?.join(name);
            return Ok(Self { name: Name::Path(path) });
        }
        Self::to_connect(text)
    }

    pub(super) fn to_connect(text: &str) -> Result<Self> {
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (name, len) = match rest.strip_prefix('@') {
            Some(name) => (Name::Abstract(name.to_owned()), name.len()),
            None => (Name::Path(PathBuf::from(rest)), rest.len()),
        };
        if len == 0 || rest.contains('\0') {
            let text = format!("{text:?} names no socket; write unix:/path or unix:@name");
            return Err(Error::invalid(text));
        }
        if len > MAX_NAME {
            let text = format!(
                "{text:?}: a socket's name has at most {MAX_NAME} bytes, not {len}; use a shorter one"
            );
            return Err(Error::invalid(text));
        }
        Ok(Self { name })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Path(path) => write!(f, "{SCHEME}{}", path.display()),
            Name::Abstract(name) => write!(f, "{SCHEME}@{name}"),
        }
    }
}
