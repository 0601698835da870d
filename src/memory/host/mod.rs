//! Main memory: anonymous pages for ourselves, sealed memory files for what a peer may map.
pub(crate) mod slots;
mod sys;

use std::sync::Arc;

use crate::core::error::{Error, Result};
use crate::core::memory::{Block, Kind, Memory, Share};
use crate::sys::limits;
use crate::sys::map::{self, HUGE, Mapping};
use sys::{HostBlock, WrappedBlock};

const UNIT: usize = 64 * 1024;
const MOST_IDLE: u64 = 1 << 30;

/// Main memory.
pub(crate) struct HostMemory;

fn alignment(bytes: usize) -> usize {
    if bytes >= HUGE { HUGE } else { UNIT }
}

impl Memory for HostMemory {
    fn allocate(&self, kind: Kind, bytes: usize) -> Result<(Arc<dyn Block>, Option<Share>)> {
        match kind {
            Kind::Private => {
                let mapping = Mapping::anonymous(bytes, alignment(bytes))?;
                Ok((Arc::new(HostBlock::private(mapping)), None))
            }
            Kind::Shared => {
                let file = map::create_sealed(c"nrdma", bytes)?;
                let mapping = Mapping::shared_aligned(&file, bytes, alignment(bytes))?;
                Ok((Arc::new(HostBlock::shared(mapping)), Some(file)))
            }
            Kind::Wrapped | Kind::Window => {
                Err(Error::invalid(format!("{kind:?} memory is somebody else's and cannot be allocated")))
            }
        }
    }

    fn map(&self, share: Share, bytes: usize) -> Result<Arc<dyn Block>> {
        map::check_sealed(&share, bytes)?;
        let mapping = Mapping::shared_aligned(&share, bytes, alignment(bytes))?;
        Ok(Arc::new(HostBlock::window(mapping)))
    }

    fn wrap(&self, address: usize, bytes: usize) -> Arc<dyn Block> {
        Arc::new(WrappedBlock::new(address, bytes))
    }

    fn default_budget(&self) -> u64 {
        MOST_IDLE.min(limits::memory_limit() / 8)
    }
}

#[cfg(test)]
mod tests;
