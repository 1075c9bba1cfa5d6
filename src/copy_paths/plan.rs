//! What is measured, in which order, and how much memory that takes. Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::way::{Regime, Way};
use crate::artifact::Artifact;
use crate::sys::cache::page_size;

/// How many of the tensors are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// As many, spread over the file, as have about so many bytes together.
    Bytes(u64),
    /// So many, spread over the file.
    Count(usize),
    All,
}

/// A tensor that is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which of the artifacts.
    pub file: usize,
    pub offset: u64,
    pub length: u64,
}

/// The tensors to copy: all that have bytes, or some of them at even distances in the order of files and offsets, so that
/// large and small ones are among them as they are in the model. A storage that several tensors share is copied once; a file
/// without tensors that is payload all the same is one of them.
pub fn choose(artifacts: &[Artifact], choice: Choice) -> Vec<Chosen> {
    let mut all: Vec<Chosen> = Vec::new();
    for (file, artifact) in artifacts.iter().enumerate() {
        let Ok(layout) = &artifact.layout else { continue };
        let tensors = layout.tensors.iter().map(|tensor| (tensor.offset, tensor.length));
        // A file that is all payload (`raw:`) has no tensors that anybody named.
        let payload = layout.payload.iter().map(|range| (range.start, range.end - range.start));
        let payload = payload.filter(|_| layout.tensors.is_empty());
        for (offset, length) in tensors.chain(payload).filter(|(_, length)| *length > 0) {
            let chosen = Chosen { file, offset, length };
            if all.last() != Some(&chosen) {
                all.push(chosen);
            }
        }
    }
    match choice {
        Choice::All => all,
        Choice::Count(count) => spread(all, count),
        Choice::Bytes(bytes) => {
            let total: u64 = all.iter().map(|tensor| tensor.length).sum();
            if total <= bytes {
                return all;
            }
            // Halved until they fit; one tensor stays, however large it is.
            let mut count = all.len();
            loop {
                let some = spread(all.clone(), count);
                if count <= 1 || some.iter().map(|tensor| tensor.length).sum::<u64>() <= bytes {
                    return some;
                }
                count = (count - count / 8).min(count - 1);
            }
        }
    }
}

/// So many at even distances.
fn spread(all: Vec<Chosen>, count: usize) -> Vec<Chosen> {
    let (have, count) = (all.len(), count.max(1));
    if have <= count {
        return all;
    }
    let mut all = all.into_iter().map(Some).collect::<Vec<_>>();
    (0..count).filter_map(|index| all[index * have / count].take()).collect()
}

/// Bytes of memory that the measurement holds at once: each rank its destination and the two buffers of the largest tensor,
/// and the tensors' pages in the page cache, once.
pub fn memory_needed(chosen: &[Chosen], ranks: usize) -> u64 {
    let page = page_size();
    let pages = |length: u64| length.next_multiple_of(page).saturating_add(page);
    let all = chosen.iter().fold(0u64, |sum, tensor| sum.saturating_add(pages(tensor.length)));
    let largest = chosen.iter().map(|tensor| pages(tensor.length)).max().unwrap_or(0);
    let rank = all.saturating_add(largest.saturating_mul(2));
    rank.saturating_mul(ranks as u64).saturating_add(all)
}

/// The ways in the order of a counted repeat, from 0. Every second order is the one before it backwards: over each such pair
/// every way stands before and after each of the others, and all have the same place on average. From pair to pair the
/// neighbours change, as far as so many ways allow it, and others come first and last, until all have been both.
pub fn order(ways: &[Way], repeat: usize) -> Vec<Way> {
    let count = ways.len();
    // With a stride that shares no factor with the count each is met once; one beyond the half is one below it backwards.
    let strides: Vec<usize> = (1..=(count / 2).max(1)).filter(|&stride| common(stride, count) == 1).collect();
    let mut outer: BTreeSet<usize> = BTreeSet::new();
    let (mut begin, mut stride) = (0, 1);
    for pair in 0..=repeat / 2 {
        if count == 0 || outer.len() == count {
            outer.clear();
        }
        stride = strides.get(pair % strides.len().max(1)).copied().unwrap_or(1);
        let ends = |begin: usize| [begin, (begin + (count - 1) * stride) % count];
        let fresh = |begin: &usize| ends(*begin).iter().filter(|end| !outer.contains(end)).count();
        begin = (0..count).max_by_key(|begin| (fresh(begin), Reverse(*begin))).unwrap_or(0);
        if count > 0 {
            outer.extend(ends(begin));
        }
    }
    let mut order: Vec<Way> = (0..count).map(|place| ways[(begin + place * stride) % count]).collect();
    if repeat % 2 == 1 {
        order.reverse();
    }
    order
}

/// The greatest common divisor.
fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}

/// The ways that are asked for: all, or those of some regimes.
pub fn ways(regimes: &[Regime]) -> Vec<Way> {
    let asked = |way: &Way| regimes.is_empty() || regimes.contains(&way.regime);
    Way::all().into_iter().filter(asked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(lengths: &[u64]) -> Vec<Chosen> {
        lengths.iter().map(|&length| Chosen { file: 0, offset: 0, length }).collect()
    }

    #[test]
    fn some_are_spread_over_all() {
        let all = tensors(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let lengths = |some: Vec<Chosen>| some.iter().map(|tensor| tensor.length).collect::<Vec<_>>();
        assert_eq!(lengths(spread(all.clone(), 3)), [0, 3, 6]);
        assert_eq!(lengths(spread(all.clone(), 0)), [0]);
        assert_eq!(spread(all.clone(), 100), all);
    }

    #[test]
    fn each_way_comes_before_and_after_each_other() {
        let ways = ways(&[]);
        let at = |repeat: usize, way: &Way| order(&ways, repeat).iter().position(|other| other == way);
        for one in &ways {
            for other in ways.iter().filter(|other| *other != one) {
                for pair in 0..3 {
                    let before = (2 * pair..2 * pair + 2).filter(|&repeat| at(repeat, one) < at(repeat, other)).count();
                    assert_eq!(before, 1, "{one} and {other}");
                }
            }
        }
        // In six repeats no more can be first, nor last.
        let ends = |end: fn(Vec<Way>) -> Option<Way>| (0..6).filter_map(|repeat| end(order(&ways, repeat))).collect();
        let (first, last): (BTreeSet<Way>, BTreeSet<Way>) =
            (ends(|all| all.first().copied()), ends(|mut all| all.pop()));
        assert_eq!((first.len(), &first), (6, &last));
        // Nor does any follow another twice.
        let mut followers = BTreeSet::new();
        for repeat in 0..6 {
            for pair in order(&ways, repeat).windows(2) {
                assert!(followers.insert((pair[0], pair[1])), "{} after {} again", pair[1], pair[0]);
            }
        }
    }

    #[test]
    fn each_of_any_number_of_ways_is_first_and_last_in_time() {
        assert!(order(&[], 3).is_empty());
        for count in 1..=16 {
            let ways = &ways(&[])[..count];
            let orders: Vec<Vec<Way>> = (0..2 * count).map(|repeat| order(ways, repeat)).collect();
            for way in ways {
                assert!(orders.iter().all(|order| order.len() == count && order.contains(way)), "{count}");
                assert!(orders.iter().any(|order| order.first() == Some(way)), "{way} of {count}");
                assert!(orders.iter().any(|order| order.last() == Some(way)), "{way} of {count}");
            }
        }
    }

    #[test]
    fn the_figure_of_the_memory_is_no_less_than_what_is_held() {
        let chosen = tensors(&[100 << 20, 50 << 20]);
        let mib = memory_needed(&chosen, 2) >> 20;
        // Twice 150 and twice 100, and 150 of page cache.
        assert!((850..855).contains(&mib), "{mib}");
        assert_eq!(memory_needed(&tensors(&[u64::MAX / 2]), 64), u64::MAX);
    }
}
