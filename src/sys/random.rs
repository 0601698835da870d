//! Random bytes from the kernel.
use crate::core::error::{Error, Kind, Result};

/// `N` bytes that nobody can guess.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(Kind::NotSupported, format!("the system gave no random bytes: {e}")))?;
    Ok(bytes)
}
