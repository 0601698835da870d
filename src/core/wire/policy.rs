//! What both ends must know, or have, to become peers.
use crate::core::error::{Error, Result};

/// Fewest bytes of a token.
pub(crate) const MIN_TOKEN: usize = 16;

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
    pub(super) fn secret(&self) -> Result<&[u8]> {
        match self {
            Policy::SameUser(cookie) => Ok(cookie.as_slice()),
            Policy::Token(token) if token.len() >= MIN_TOKEN => Ok(token),
            Policy::Token(token) => {
                let text = format!("a token of {} bytes is too short; it needs {MIN_TOKEN}", token.len());
                Err(Error::invalid(text))
            }
            Policy::Insecure => Ok(&[]),
        }
    }
    pub(super) fn mode(&self) -> u8 {
        match self {
            Policy::SameUser(_) => 1,
            Policy::Token(_) => 2,
            Policy::Insecure => 3,
        }
    }
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Policy::SameUser(_) => {
                "both nodes must see the same cookie file (same user, same XDG_RUNTIME_DIR)"
            }
            Policy::Token(_) => "both nodes need the same auth_token",
            Policy::Insecure => "the bytes were changed on the way",
        }
    }
}

/// A mode in words, also a peer's that we do not know.
pub(super) fn mode_name(mode: u8) -> String {
    match mode {
        1 => "same user".into(),
        2 => "token".into(),
        3 => "insecure".into(),
        other => format!("mode {other}"),
    }
}
