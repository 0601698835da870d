//! Size classes: the capacities that cached buffers come in.

/// Classes below 64 KiB: 64 B, 128 B, ... 32 KiB. Their buffers are chunks of slabs.
const SMALL: usize = 10;
const SMALL_MIN_LOG: u32 = 6;
/// From here on four classes per doubling: at most 25 % more than was asked for.
const UNIT: u64 = 64 * 1024;
const UNIT_LOG: u32 = 16;
const LARGEST_LOG: u32 = 46;
/// More than this is not asked for by anybody who can have it.
pub(crate) const LARGEST: u64 = 1 << LARGEST_LOG;

/// A size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

impl Class {
    /// How many there are.
    pub(crate) const COUNT: usize = SMALL + 1 + 4 * (LARGEST_LOG - UNIT_LOG) as usize;
    /// How many of them, from the first one on, threads keep to themselves: up to 1 MiB.
    pub(crate) const IN_MAGAZINES: usize = SMALL + 17;

    /// The class that holds `size` bytes; None for 0 and for more than [`LARGEST`].
    #[inline]
    pub(crate) fn of(size: u64) -> Option<Self> {
        if size == 0 || size > LARGEST {
            return None;
        }
        if size <= UNIT / 2 {
            let log = size.next_power_of_two().ilog2().max(SMALL_MIN_LOG);
            return Self::at((log - SMALL_MIN_LOG) as usize);
        }
        let size = size.max(UNIT);
        let log = (size - 1).ilog2();
        let quarters = size.div_ceil(1 << (log - 2));
        Self::at(SMALL + (4 * (log - 15)) as usize + usize::try_from(quarters).ok()? - 8)
    }

    fn at(index: usize) -> Option<Self> {
        u8::try_from(index).ok().filter(|_| index < Self::COUNT).map(Self)
    }

    /// All of them, smallest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT).filter_map(Self::at)
    }

    /// Its number, from 0.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Whether its buffers are chunks of slabs.
    pub(crate) fn is_small(self) -> bool {
        self.index() < SMALL
    }

    /// Whether threads keep its buffers in magazines.
    pub(crate) fn in_magazines(self) -> bool {
        self.index() < Self::IN_MAGAZINES
    }

    /// Bytes of a buffer of this class.
    pub(crate) fn capacity(self) -> u64 {
        let Some(step) = self.index().checked_sub(SMALL) else {
            return 1 << (SMALL_MIN_LOG + u32::from(self.0));
        };
        let Some(step) = step.checked_sub(1) else {
            return UNIT;
        };
        let quarters = 5 + (step % 4) as u64;
        quarters << (step / 4 + 14)
    }

    /// The classes whose buffers may serve in place of this one's: at most half as large again.
    pub(crate) fn substitutes(self) -> impl Iterator<Item = Self> {
        let last = if self.is_small() { 0 } else { 2 };
        (1..=last).filter_map(move |up| Self::at(self.index() + up))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_holds_its_capacity_and_not_one_byte_more() {
        let mut below = 0;
        for class in Class::all() {
            let capacity = class.capacity();
            assert!(capacity > below);
            assert_eq!(Class::of(capacity), Some(class));
            assert_eq!(Class::of(below + 1), Some(class));
            assert_ne!(Class::of(capacity + 1), Some(class));
            below = capacity;
        }
        assert_eq!(below, LARGEST);
        assert_eq!(Class::all().count(), Class::COUNT);
    }

    #[test]
    fn the_ends() {
        assert_eq!(Class::of(0), None);
        assert_eq!(Class::of(u64::MAX), None);
        assert_eq!(Class::of(LARGEST + 1), None);
        let capacity = |size| Class::of(size).unwrap().capacity();
        assert_eq!((capacity(1), capacity(64), capacity(65)), (64, 64, 128));
        assert_eq!((capacity(32768), capacity(32769), capacity(65536)), (32768, 65536, 65536));
        assert_eq!((capacity(65537), capacity(1 << 20), capacity((1 << 20) + 1)), (81920, 1 << 20, 5 << 18));
        assert!(Class::of(1 << 20).unwrap().in_magazines());
        assert!(!Class::of((1 << 20) + 1).unwrap().in_magazines());
    }

    #[test]
    fn slack_is_at_most_a_quarter_and_a_half_for_substitutes() {
        let mut size = 65536;
        while size < 1 << 40 {
            let class = Class::of(size).unwrap();
            assert!(class.capacity() * 4 <= size * 5, "{size}");
            for substitute in class.substitutes() {
                assert!(substitute.capacity() * 2 <= class.capacity() * 3, "{size}");
            }
            size += size / 97;
        }
        assert_eq!(Class::of(4096).unwrap().substitutes().count(), 0);
    }
}
