//! Which of a node's two waiters watches a link's sockets, and for what.
use crate::core::error::Result;
use crate::core::transport::{Attention, Seat, Source};

/// Who looks, and what waits for room.
pub(super) struct Watch {
    sources: [Source; 2],
    /// None: nobody yet.
    who: Option<Attention>,
    /// Something waits for room on the control connection, on the data connection.
    out: [bool; 2],
    /// As the waiters know it: read and write. The progress thread always learns of a hang-up.
    leader: [Option<(bool, bool)>; 2],
    progress: [Option<(bool, bool)>; 2],
    closed: bool,
}

impl Watch {
    pub(super) fn new(sources: [Source; 2]) -> Self {
        Self { sources, who: None, out: [false; 2], leader: [None; 2], progress: [None; 2], closed: false }
    }

    /// From now on `who` looks.
    pub(super) fn attend(&mut self, who: Attention, seat: &Seat) -> Result<()> {
        if self.who == Some(who) {
            return Ok(());
        }
        self.who = Some(who);
        self.apply(seat)
    }

    /// Whether something waits for room on a connection.
    pub(super) fn set_out(&mut self, connection: usize, waits: bool, seat: &Seat) -> Result<()> {
        match self.out.get_mut(connection) {
            Some(out) if *out != waits => *out = waits,
            _ => return Ok(()),
        }
        self.apply(seat)
    }

    /// Tells the waiters what has changed.
    pub(super) fn apply(&mut self, seat: &Seat) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let sides = self.leader.iter_mut().zip(&mut self.progress);
        for ((source, out), (leader, progress)) in self.sources.iter().zip(self.out).zip(sides) {
            let (for_leader, for_progress) = match self.who {
                None => (None, (false, out)),
                Some(Attention::Progress) => (None, (true, out)),
                // The leader goes back to sleep soon: what watches for it may stay.
                Some(Attention::Polled) => (*leader, (false, false)),
                Some(Attention::Leader) => (Some((true, out)), (false, false)),
            };
            if *leader != for_leader {
                match for_leader {
                    Some((read, write)) => seat.leader.watch_for(*source, seat.token, read, write)?,
                    None => seat.leader.unwatch(*source),
                }
                *leader = for_leader;
            }
            if *progress != Some(for_progress) {
                seat.progress.watch_for(*source, seat.token, for_progress.0, for_progress.1)?;
                *progress = Some(for_progress);
            }
        }
        Ok(())
    }

    /// Nobody looks any more.
    pub(super) fn close(&mut self, seat: &Seat) {
        self.closed = true;
        for source in self.sources {
            seat.leader.unwatch(source);
            seat.progress.unwatch(source);
        }
    }
}
