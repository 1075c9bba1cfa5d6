//! What is measured, in which order, and how much memory that takes. Pure.

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

/// The ways in the order of a repeat: forwards and backwards in turn, so that each stands before and after each of the
/// others, and each third repeat begins further on, so that it is not always the same one that comes first or last.
pub fn order(ways: &[Way], repeat: usize) -> Vec<Way> {
    let mut order = ways.to_vec();
    if !order.is_empty() {
        let step = repeat / 2 * (order.len() / 3 + 1) % order.len();
        order.rotate_left(step);
    }
    if repeat % 2 == 1 {
        order.reverse();
    }
    order
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
                let before = (0..2).filter(|&repeat| at(repeat, one) < at(repeat, other)).count();
                assert_eq!(before, 1, "{one} and {other}");
            }
        }
        let firsts: std::collections::BTreeSet<_> = (0..6).map(|repeat| order(&ways, repeat)[0]).collect();
        assert!(firsts.len() >= 4, "{firsts:?}");
        assert!(order(&[], 3).is_empty());
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
