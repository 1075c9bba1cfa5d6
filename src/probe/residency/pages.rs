//! Which pages of a file hold watched bytes, and how many: the step from the kernel's pages to exact bytes.
//!
//! Pure arithmetic; asks nobody.

use std::ops::Range;

use crate::artifact::extent::Ranges;

/// Watched ranges with this many wholly unwatched pages between them are asked about apart.
const GAP: u64 = 4;

/// A page that is not watched as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odd {
    pub page: u64,
    /// Its bytes that are not watched; all of them for a page in a short gap.
    pub unwatched: u64,
}

/// The watched bytes of one file, page by page.
#[derive(Debug)]
pub struct Watched {
    page_size: u64,
    /// Runs of pages to be asked about, in file order.
    runs: Vec<Range<u64>>,
    /// In file order.
    odd: Vec<Odd>,
    /// `unwatched_before[i]` is the sum over `odd[..i]`.
    unwatched_before: Vec<u64>,
}

impl Watched {
    /// Lays pages of `page_size` bytes over `ranges`.
    pub fn new(ranges: &Ranges, page_size: u64) -> Watched {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut odd: Vec<Odd> = Vec::new();
        // No file is longer than an off_t can say, whatever a header claims.
        for range in ranges.within(0..i64::MAX as u64 / page_size * page_size).iter() {
            let first = range.start / page_size;
            let end = (range.end - 1) / page_size + 1;
            match runs.last_mut() {
                // Sorted and disjoint, so that a range may share its first page with the one before it, no more.
                Some(run) if first < run.end + GAP => {
                    odd.extend((run.end..first).map(|page| Odd { page, unwatched: page_size }));
                    run.end = end;
                }
                _ => runs.push(first..end),
            }
            // The pages between the first and the last are watched as a whole.
            for page in [Some(first), (end - 1 > first).then_some(end - 1)].into_iter().flatten() {
                let start = range.start.max(page * page_size);
                let stop = range.end.min((page + 1) * page_size);
                match odd.last_mut() {
                    Some(last) if last.page == page => last.unwatched -= stop - start,
                    _ if stop - start < page_size => odd.push(Odd { page, unwatched: page_size - (stop - start) }),
                    _ => {}
                }
            }
        }
        let mut sum = 0;
        let unwatched_before = std::iter::once(0)
            .chain(odd.iter().map(|odd| {
                sum += odd.unwatched;
                sum
            }))
            .collect();
        Watched { page_size, runs, odd, unwatched_before }
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// The runs of pages that hold watched bytes, in file order.
    pub fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    fn odd_in(&self, pages: &Range<u64>) -> Range<usize> {
        self.odd.partition_point(|odd| odd.page < pages.start)..self.odd.partition_point(|odd| odd.page < pages.end)
    }

    /// The pages among `pages` that are not watched as a whole.
    pub fn odd(&self, pages: &Range<u64>) -> &[Odd] {
        &self.odd[self.odd_in(pages)]
    }

    /// Watched bytes in `pages`, a part of a run.
    pub fn bytes(&self, pages: &Range<u64>) -> u64 {
        let odd = self.odd_in(pages);
        let unwatched = self.unwatched_before[odd.end] - self.unwatched_before[odd.start];
        (pages.end - pages.start) * self.page_size - unwatched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_shared_by_two_ranges_is_one_odd_page() {
        let ranges = Ranges::from_iter([10..20, 30..40, 45..195]);
        let watched = Watched::new(&ranges, 50);
        assert_eq!(watched.runs(), [0..4]);
        assert_eq!(watched.odd(&(0..4)), [Odd { page: 0, unwatched: 25 }, Odd { page: 3, unwatched: 5 }]);
        assert_eq!(watched.bytes(&(0..4)), ranges.len());
    }

    #[test]
    fn a_claim_beyond_any_file_does_not_overflow() {
        let watched = Watched::new(&Ranges::from_iter([0..u64::MAX]), 4096);
        assert!(watched.bytes(&watched.runs()[0].clone()) <= i64::MAX as u64);
        assert!(Watched::new(&Ranges::EMPTY, 4096).runs().is_empty());
    }

    proptest! {
        #[test]
        fn every_page_has_its_bytes(pairs in prop::collection::vec((0u64..400, 1u64..60), 0..12)) {
            let ranges: Ranges = pairs.into_iter().map(|(start, length)| start..start + length).collect();
            let watched = Watched::new(&ranges, 8);
            let mut total = 0;
            for run in watched.runs() {
                for page in run.clone() {
                    let bytes = watched.bytes(&(page..page + 1));
                    prop_assert_eq!(bytes, ranges.within(page * 8..page * 8 + 8).len());
                    prop_assert_eq!(watched.odd(&(page..page + 1)).is_empty(), bytes == 8);
                    total += bytes;
                }
            }
            prop_assert_eq!(total, ranges.len());
            prop_assert!(watched.runs().windows(2).all(|pair| pair[0].end + GAP <= pair[1].start));
        }
    }
}
