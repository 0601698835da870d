//! For how long a peer has been silent while we listened.
use std::time::{Duration, Instant};

/// Of the time between two looks, this part of what is allowed counts at most: a process that was itself stopped,
/// frozen with its machine or starved must not take its own absence for that of its peers.
const PARTS: u32 = 4;

/// For how long a peer has been silent while we listened.
#[derive(Debug)]
pub(crate) struct Silence {
    looked: Instant,
    observed: Duration,
}

impl Silence {
    /// From now on.
    pub(crate) fn new(now: Instant) -> Self {
        Self { looked: now, observed: Duration::ZERO }
    }

    /// Looks again, now; `quiet`: for how long nothing has arrived. Whether that has been too long.
    pub(crate) fn is_over(&mut self, now: Instant, quiet: Duration, limit: Duration) -> bool {
        let absent = now.saturating_duration_since(self.looked);
        self.looked = now;
        let most = limit / PARTS;
        self.observed = match quiet < absent {
            true => quiet.min(most),
            false => self.observed.saturating_add(absent.min(most)).min(quiet),
        };
        quiet >= limit && self.observed >= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Looks at these times, in milliseconds; something was heard last at `heard`. When the silence was over.
    fn over(heard: u64, looks: impl IntoIterator<Item = u64>) -> Option<u64> {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut silence = Silence::new(start);
        looks.into_iter().find(|ms| {
            let quiet = at(*ms).saturating_duration_since(at((*ms).min(heard)));
            silence.is_over(at(*ms), quiet, LIMIT)
        })
    }

    #[test]
    fn a_silent_peer_is_lost_in_time() {
        assert_eq!(over(0, (1..).map(|n| n * 500)), Some(5000));
        assert_eq!(over(1200, (1..).map(|n| n * 500)), Some(6500));
        // Also when it is looked at much more often.
        assert_eq!(over(1200, 1..), Some(6200));
    }

    #[test]
    fn our_own_absence_is_not_theirs() {
        // Stopped for a minute: what arrives meanwhile is read right after.
        let stopped = (1..8).map(|n| n * 500).chain((60_000..60_100).chain([60_500, 61_000]));
        assert_eq!(over(3400, stopped), None);
        // And if nothing does, that is noticed soon.
        let stopped = (1..8).map(|n| n * 500).chain((120..).map(|n| n * 500));
        let noticed = over(3400, stopped).unwrap();
        assert!((61_000..65_000).contains(&noticed), "{noticed}");
    }

    #[test]
    fn whoever_is_always_late_still_notices() {
        assert_eq!(over(0, (1..).map(|n| n * 4000)), Some(16_000));
    }
}
