//! In which order the ways were measured, as their record has it: what that order leaves to chance is to be seen. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::record::Series;
use super::way::Way;
use crate::units;

/// How the ways of a group were taken by turns, over the finished repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Ways that were measured in them.
    pub ways: usize,
    /// Ways that were the first of some repeat and the last of some other.
    pub both_ends: usize,
    /// How much oftener at most one way came before another than after it.
    pub lean: usize,
}

impl Turns {
    /// Ways that were refused at some time stand nowhere.
    pub fn of(group: &[&Series], finished: &BTreeSet<u32>) -> Turns {
        let mut repeats: BTreeMap<u32, Vec<(u32, Way)>> = BTreeMap::new();
        let whole = || group.iter().filter(|series| series.refused.is_none());
        for series in whole() {
            for measured in series.passes.iter().filter(|measured| measured.rank == 0) {
                if finished.contains(&measured.repeat) {
                    repeats.entry(measured.repeat).or_default().push((measured.position, series.way));
                }
            }
        }
        let orders: Vec<Vec<Way>> = repeats
            .into_values()
            .map(|mut places| {
                places.sort();
                // A record that names a way twice is no record of ours, and bounded all the same.
                let mut met = BTreeSet::new();
                places.into_iter().map(|(_, way)| way).filter(|way| met.insert(*way)).collect()
            })
            .collect();
        let ways: BTreeSet<Way> = orders.iter().flatten().copied().collect();
        let ends =
            |end: fn(&[Way]) -> Option<&Way>| orders.iter().filter_map(|order| end(order)).collect::<BTreeSet<_>>();
        let (first, last) = (ends(<[Way]>::first), ends(<[Way]>::last));
        let mut before: BTreeMap<(Way, Way), i64> = BTreeMap::new();
        for order in &orders {
            for (at, one) in order.iter().enumerate() {
                for other in &order[at + 1..] {
                    *before.entry((*one, *other)).or_default() += 1;
                    *before.entry((*other, *one)).or_default() -= 1;
                }
            }
        }
        Turns {
            ways: ways.len(),
            both_ends: ways.iter().filter(|way| first.contains(way) && last.contains(way)).count(),
            lean: before.into_values().max().and_then(|lean| usize::try_from(lean).ok()).unwrap_or(0),
        }
    }

    /// In words; nothing where there is no order.
    pub fn words(&self) -> Option<String> {
        let evenly = match self.lean {
            _ if self.ways < 2 => return None,
            0 => "each way came before each other one as often as after it".to_owned(),
            lean => format!(
                "ways came before others as often as after them, but for {}",
                units::exactly(lean as u64, "repeat")
            ),
        };
        Some(format!("order: {evenly}; {} of {} came both first and last", self.both_ends, self.ways))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy_paths::destination::Kind;
    use crate::copy_paths::plan;
    use crate::copy_paths::rank::Pass;
    use crate::copy_paths::record::Measured;

    fn series(ways: &[Way], orders: &[Vec<Way>]) -> Vec<Series> {
        let pass =
            || Pass { prepare_ns: 1, copy_ns: 1, taken: Default::default(), source: String::new(), verified: None };
        let of = |&way: &Way| {
            let passes = orders.iter().zip(1..).map(|(order, repeat)| Measured {
                repeat,
                position: order.iter().position(|other| *other == way).unwrap_or(0) as u32,
                rank: 0,
                resident_before_bytes: None,
                resident_before_reason: None,
                pass: pass(),
            });
            Series { destination: Kind::Host, ranks: 1, way, refused: None, passes: passes.collect() }
        };
        ways.iter().map(of).collect()
    }

    fn turns(ways: &[Way], repeats: u32, orders: &[Vec<Way>]) -> Turns {
        Turns::of(&series(ways, orders).iter().collect::<Vec<_>>(), &(1..=repeats).collect())
    }

    #[test]
    fn the_order_is_told_as_it_was() {
        let ways = plan::ways(&[]);
        let orders: Vec<Vec<Way>> = (0..6).map(|repeat| plan::order(&ways, repeat)).collect();
        assert_eq!(turns(&ways, 6, &orders), Turns { ways: 16, both_ends: 6, lean: 0 });
        assert_eq!(turns(&ways, 5, &orders), Turns { ways: 16, both_ends: 4, lean: 1 });
        let always: Vec<Vec<Way>> = vec![ways.clone(); 4];
        let said = turns(&ways, 4, &always);
        assert_eq!(said, Turns { ways: 16, both_ends: 0, lean: 4 });
        assert!(said.words().is_some_and(|words| words.contains("but for 4 repeats; 0 of 16")), "{said:?}");
        assert_eq!(turns(&ways[..1], 1, &[ways[..1].to_vec()]).words(), None);
        assert_eq!(turns(&ways, 0, &[]), Turns::default(), "no repeat was finished");
        let doubled: Vec<Way> = ways.iter().chain(&ways).copied().collect();
        assert_eq!(turns(&doubled, 6, &orders), Turns { ways: 16, both_ends: 6, lean: 0 });
    }
}
