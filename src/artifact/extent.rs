//! Byte-range arithmetic: sets of bytes of a file as sorted, disjoint, non-adjacent ranges.

use std::ops::Range;

/// A set of bytes. Its ranges are sorted, non-empty, and neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// The empty set.
    pub const EMPTY: Ranges = Ranges(Vec::new());

    /// How many bytes.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there is no byte in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// The bytes in either.
    pub fn union(&self, other: &Ranges) -> Ranges {
        self.iter().chain(other.iter()).collect()
    }

    /// The bytes in both.
    pub fn intersection(&self, other: &Ranges) -> Ranges {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let (start, end) = (a.start.max(b.start), a.end.min(b.end));
            if start < end {
                common.push(start..end);
            }
            if a.end < b.end {
                left.next()
            } else {
                right.next()
            };
        }
        Ranges(common)
    }

    /// The bytes of a file of this size that are not in this set.
    pub fn complement(&self, size: u64) -> Ranges {
        let ends = std::iter::once(0).chain(self.iter().map(|range| range.end));
        let starts = self.iter().map(|range| range.start).chain(std::iter::once(size));
        ends.zip(starts).map(|(end, start)| end..start.min(size)).collect()
    }

    /// The bytes of this set that lie in `window`.
    pub fn within(&self, window: Range<u64>) -> Ranges {
        self.intersection(&Ranges::from_iter([window]))
    }
}

impl FromIterator<Range<u64>> for Ranges {
    /// From ranges in any order, overlapping or not; empty ones are left out.
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Ranges {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|range| range.start < range.end).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged.shrink_to_fit();
        Ranges(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(ranges: &Ranges) -> Vec<u64> {
        ranges.iter().flatten().collect()
    }

    fn some() -> impl Strategy<Value = Ranges> {
        prop::collection::vec((0u64..60, 0u64..12), 0..8)
            .prop_map(|pairs| pairs.into_iter().map(|(start, length)| start..start + length).collect())
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(a in some(), b in some()) {
            let (left, right) = (bytes(&a), bytes(&b));
            let both: Vec<u64> = left.iter().copied().filter(|byte| right.contains(byte)).collect();
            let mut either: Vec<u64> = left.iter().chain(&right).copied().collect();
            either.sort_unstable();
            either.dedup();
            prop_assert_eq!(bytes(&a.intersection(&b)), both);
            prop_assert_eq!(bytes(&a.union(&b)), either.clone());
            prop_assert_eq!(a.union(&b).len(), either.len() as u64);
            let outside: Vec<u64> = (0..50).filter(|byte| !left.contains(byte)).collect();
            prop_assert_eq!(bytes(&a.complement(50)), outside);
            prop_assert!(a.iter().zip(a.iter().skip(1)).all(|(x, y)| x.end < y.start));
        }
    }
}
