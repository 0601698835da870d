//! Things to look at again and again: the busy ones in every round, of the quiet ones one per round, in turn. So a
//! round costs the same however many are quiet.

/// Rounds without anything new after which one counts as quiet.
const QUIET: u32 = 64;

struct Item<T> {
    value: T,
    /// Rounds in which it had nothing.
    rounds: u32,
}

/// Things to look at.
pub(crate) struct Turns<T> {
    /// The busy ones come first.
    items: Vec<Item<T>>,
    busy: usize,
    /// The quiet one that was looked at last.
    turn: usize,
    /// The next round looks at all.
    all: bool,
}

impl<T> Turns<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), busy: 0, turn: 0, all: false }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|item| &item.value)
    }

    /// Adds one; the next round looks at it.
    pub(crate) fn push(&mut self, value: T) {
        self.items.push(Item { value, rounds: 0 });
        self.all = true;
    }

    /// Keeps those that `keep` says. None counts as busy then, until the next round, which looks at all.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        self.items.retain_mut(|item| keep(&mut item.value));
        self.busy = 0;
        self.all = true;
    }

    /// The next round looks at all.
    pub(crate) fn look_at_all(&mut self) {
        self.all = true;
    }

    /// Looks; `look` says how much it found, and the sum is returned.
    pub(crate) fn round(&mut self, mut look: impl FnMut(&mut T) -> usize) -> usize {
        let mut found = 0;
        let mut at = 0;
        while at < self.busy {
            found += self.look(at, &mut look);
            if self.items.get(at).is_some_and(|item| item.rounds >= QUIET) {
                self.busy -= 1;
                self.items.swap(at, self.busy);
            } else {
                at += 1;
            }
        }
        if std::mem::take(&mut self.all) {
            return found + (self.busy..self.items.len()).map(|at| self.look(at, &mut look)).sum::<usize>();
        }
        let next = self.turn + 1;
        self.turn = if next < self.items.len() { next.max(self.busy) } else { self.busy };
        found + self.look(self.turn, &mut look)
    }

    fn look(&mut self, at: usize, look: &mut impl FnMut(&mut T) -> usize) -> usize {
        let Some(item) = self.items.get_mut(at) else { return 0 };
        let found = look(&mut item.value);
        item.rounds = if found == 0 { item.rounds.saturating_add(1) } else { 0 };
        if found > 0 && at >= self.busy {
            self.items.swap(at, self.busy);
            self.busy += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty, of which those in `finds` have something in every round; what each round looked at.
    fn rounds(turns: &mut Turns<u32>, finds: &[u32], count: usize) -> Vec<Vec<u32>> {
        let round = |turns: &mut Turns<u32>| {
            let mut seen = Vec::new();
            turns.round(|n| {
                seen.push(*n);
                usize::from(finds.contains(n))
            });
            seen
        };
        (0..count).map(|_| round(turns)).collect()
    }

    fn twenty() -> Turns<u32> {
        let mut turns = Turns::new();
        (0..20).for_each(|n| turns.push(n));
        turns
    }

    #[test]
    fn busy_ones_have_every_round_and_quiet_ones_take_turns() {
        let mut turns = twenty();
        let first = rounds(&mut turns, &[3, 7], 1);
        assert_eq!(first[0].len(), 20, "the first round looks at all");
        let later = rounds(&mut turns, &[3, 7], 18);
        assert!(later.iter().all(|seen| seen.len() == 3 && seen.contains(&3) && seen.contains(&7)));
        let mut quiet: Vec<u32> = later.iter().flatten().copied().filter(|n| ![3, 7].contains(n)).collect();
        quiet.sort_unstable();
        assert_eq!(quiet, (0..20).filter(|n| ![3, 7].contains(n)).collect::<Vec<_>>());
    }

    #[test]
    fn a_quiet_one_that_finds_something_is_busy_until_it_is_quiet_again() {
        let mut turns = twenty();
        rounds(&mut turns, &[], 1);
        assert!(rounds(&mut turns, &[11], 20).iter().any(|seen| seen.contains(&11)));
        let looked = rounds(&mut turns, &[], QUIET as usize + 20);
        assert!(looked[..QUIET as usize - 1].iter().all(|seen| seen.contains(&11)));
        assert!(looked[QUIET as usize + 1..].iter().all(|seen| seen.len() == 1));
    }

    #[test]
    fn nothing_is_forgotten_when_some_go() {
        let mut turns = twenty();
        rounds(&mut turns, &[1, 2, 19], 3);
        turns.retain(|n| *n % 2 == 1);
        let mut seen = rounds(&mut turns, &[1, 19], 1).swap_remove(0);
        seen.sort_unstable();
        assert_eq!(seen, (0..20).filter(|n| n % 2 == 1).collect::<Vec<_>>());
        turns.retain(|_| false);
        assert_eq!(rounds(&mut turns, &[], 2), [vec![], Vec::<u32>::new()]);
        assert_eq!(turns.iter().count(), 0);
    }
}
