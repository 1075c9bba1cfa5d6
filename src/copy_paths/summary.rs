//! Raw repeats → one line a way: medians, the envelope of the extremes, ratios to the heap on the same place. Pure.

use super::destination::Kind;
use super::rank::Pass;
use super::record::{Measured, Place, Series};
use super::way::Way;

/// A median and the extremes that it lies between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread<T> {
    pub median: T,
    pub low: T,
    pub high: T,
}

impl Spread<f64> {
    /// Of some values; of an even number the median is the mean of the two in the middle. `None` of no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread<f64>> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, low, high })
    }

    /// Whether all values lie beyond 1% on one side of 1: then it is a difference.
    pub fn is_a_difference(&self) -> bool {
        self.high < 0.99 || self.low > 1.01
    }
}

/// One way at one place, to one destination, by so many ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub destination: Kind,
    pub ranks: u32,
    pub way: Way,
    /// Why there are no figures.
    pub refused: Option<String>,
    /// Nanoseconds until the slowest rank was done, a repeat each.
    pub totals: Vec<f64>,
    /// Of the copies alone, of the slowest rank.
    pub copies: Vec<f64>,
    /// A rank's, the median over repeats and ranks; absent where one is.
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub read_bytes: Option<u64>,
    /// What the copies were out of; several, where they differed.
    pub sources: Vec<String>,
    /// Of the tensors' bytes before the passes: the least and the most; absent where one is.
    pub resident_before: Option<(u64, u64)>,
    /// Whether every comparison of the destination's bytes said that they were the file's; absent where there was none.
    pub verified: Option<bool>,
}

impl Line {
    pub fn of(series: &Series) -> Line {
        let repeats = series.repeats();
        let slowest = |of: fn(&Pass) -> u64| -> Vec<f64> {
            let longest = |passes: &Vec<&Measured>| passes.iter().map(|measured| of(&measured.pass)).max();
            repeats.iter().filter_map(longest).map(|ns| ns as f64).collect()
        };
        let all: Vec<&Measured> = repeats.iter().flatten().copied().collect();
        let median = |of: fn(&Pass) -> Option<u64>| -> Option<u64> {
            let values = all.iter().map(|measured| of(&measured.pass)).collect::<Option<Vec<u64>>>()?;
            Spread::of(values.into_iter().map(|value| value as f64)).map(|spread| spread.median.round() as u64)
        };
        let mut sources: Vec<String> = all.iter().map(|measured| measured.pass.source.clone()).collect();
        sources.sort();
        sources.dedup();
        let resident = all.iter().map(|measured| measured.resident_before_bytes).collect::<Option<Vec<u64>>>();
        let verified: Vec<bool> = series.passes.iter().filter_map(|measured| measured.pass.verified).collect();
        Line {
            destination: series.destination.clone(),
            ranks: series.ranks,
            way: series.way,
            refused: series.refused.clone(),
            totals: slowest(Pass::total_ns),
            copies: slowest(|pass| pass.copy_ns),
            minor_faults: median(|pass| pass.taken.minor_faults),
            major_faults: median(|pass| pass.taken.major_faults),
            read_bytes: median(|pass| pass.taken.read_bytes),
            sources,
            resident_before: resident.and_then(|values| Some((*values.iter().min()?, *values.iter().max()?))),
            verified: (!verified.is_empty()).then(|| verified.iter().all(|equal| *equal)),
        }
    }

    pub fn total(&self) -> Option<Spread<f64>> {
        Spread::of(self.totals.iter().copied())
    }

    pub fn copy(&self) -> Option<Spread<f64>> {
        Spread::of(self.copies.iter().copied())
    }
}

/// Ratios of times, `one` ÷ `other`, repeat by repeat.
pub fn ratio(one: &[f64], other: &[f64]) -> Option<Spread<f64>> {
    (one.len() == other.len()).then_some(())?;
    Spread::of(std::iter::zip(one, other).map(|(one, other)| one / other))
}

/// The lines of a place that belong together: one destination, so many ranks.
pub struct Group {
    pub destination: Kind,
    pub ranks: u32,
    pub lines: Vec<Line>,
}

impl Group {
    pub fn line(&self, way: Way) -> Option<&Line> {
        self.lines.iter().find(|line| line.way == way && !line.totals.is_empty())
    }

    /// A line's time ÷ the heap's on the same place, so that storage is held constant.
    pub fn to_heap(&self, line: &Line) -> Option<Spread<f64>> {
        ratio(&line.totals, &self.line(Way::HEAP)?.totals)
    }
}

/// The groups of a place, in the order in which they were measured.
pub fn groups(place: &Place) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for series in &place.series {
        let line = Line::of(series);
        let same = |group: &&mut Group| group.destination == line.destination && group.ranks == line.ranks;
        match groups.iter_mut().find(same) {
            Some(group) => group.lines.push(line),
            None => groups.push(Group { destination: line.destination.clone(), ranks: line.ranks, lines: vec![line] }),
        }
    }
    groups
}
