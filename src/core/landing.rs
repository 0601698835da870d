//! Results that the system copies straight into their buffers.
use std::sync::Arc;

use super::error::{Error, Result};
use super::flight::flight_of;
use super::memory::Span;
use super::peer::Peer;
use super::run::Run;
use super::transport::{Landing, Place};

impl Run {
    /// Bytes for a result are about to be received: straight into its buffer. False: it has none, or is no
    /// longer wanted.
    pub(crate) fn on_ready(
        self: &Arc<Self>,
        peer: &Peer,
        place: Place,
        offset: u64,
        len: usize,
        receive: &mut dyn FnMut(Landing<'_>) -> Result<usize>,
    ) -> Result<bool> {
        let lease = {
            let mut state = self.lock();
            let Some(flight) = flight_of(&mut state, peer, place) else {
                return Ok(false);
            };
            flight.check_range(offset, len as u64)?;
            let Some(lease) = flight.lease.clone() else {
                return Ok(false);
            };
            // Whoever takes the flight back meanwhile waits for this, which does not wait for the peer.
            state.calling += 1;
            lease
        };
        let received = lease.span(lease.size()).and_then(|to| {
            let at = usize::try_from(offset).map_err(|_| Error::protocol("an offset is too large"))?;
            receive(Landing::Memory(&Span { block: to.block, offset: to.offset + at, len }))
        });
        drop(lease);
        let mut state = self.lock();
        state.calling -= 1;
        let wanted = flight_of(&mut state, peer, place).is_some();
        match received {
            Ok(received) => self.placed(state, peer, place, received as u64)?,
            Err(error) => {
                drop(state);
                self.notify();
                return Err(error);
            }
        }
        if !wanted {
            self.notify();
        }
        Ok(true)
    }
}
