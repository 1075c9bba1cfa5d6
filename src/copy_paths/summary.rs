//! Raw repeats → one line a way: medians, the envelope of the extremes, ratios to the heap on the same place. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::destination::Kind;
use super::rank::Pass;
use super::record::{Measured, Place, Series};
use super::turns::Turns;
use super::way::Way;
use crate::account::host::Bounds;
use crate::compare::series::{Answer, Envelope, Pair, Verdict};
use crate::units;

const MILLION: u128 = 1_000_000;

/// Times of one way ÷ those of another, repeat by repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Finer than is shown, so that it is rounded once.
    millionths: Envelope,
    verdict: Verdict,
}

impl Ratio {
    /// `None` where they were not measured in the same repeats, or took no time.
    pub fn of(times: &[u64], reference: &[u64]) -> Option<Ratio> {
        (times.len() == reference.len()).then_some(())?;
        let both = || std::iter::zip(times.iter().copied(), reference.iter().copied());
        let exactly = |(time, reference)| Pair { reference: Bounds::exactly(reference), other: Bounds::exactly(time) };
        let ratio = |(time, reference): (u64, u64)| {
            u64::try_from((u128::from(time) * MILLION).checked_div(u128::from(reference))?).ok()
        };
        let ratios = both().map(ratio).collect::<Option<Vec<u64>>>()?;
        let verdict = Verdict::of(&both().map(exactly).collect::<Vec<_>>());
        Some(Ratio { millionths: Envelope::of(&ratios)?, verdict })
    }

    /// Whether it took longer in every repeat, or shorter in every one, beyond 1%.
    pub fn is_a_difference(&self) -> bool {
        self.is_shorter() || self.verdict.answer == Answer::Higher
    }

    /// Whether it took shorter in every repeat, beyond 1%.
    pub fn is_shorter(&self) -> bool {
        self.verdict.answer == Answer::Lower
    }

    /// Whether it is at most so many hundredths in every repeat; `None` where in some it is, and in some not.
    pub fn is_at_most(&self, hundredths: u64) -> Option<bool> {
        let most = hundredths * 10_000;
        match (self.millionths.min <= most, self.millionths.max <= most) {
            (_, true) => Some(true),
            (false, _) => Some(false),
            _ => None,
        }
    }

    /// The median, for people.
    pub fn middle(&self) -> String {
        shown(self.millionths.median)
    }

    /// The extremes, for people.
    pub fn extremes(&self) -> (String, String) {
        (shown(self.millionths.min), shown(self.millionths.max))
    }
}

fn shown(millionths: u64) -> String {
    units::significant(millionths as f64 / 1e6)
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
    pub totals: Vec<u64>,
    /// Of the copies alone, of the slowest rank.
    pub copies: Vec<u64>,
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
    /// Of the repeats that every way of its group finished.
    fn of(series: &Series, finished: &BTreeSet<u32>) -> Line {
        let mut repeats = series.repeats();
        repeats.retain(|passes| passes.first().is_some_and(|measured| finished.contains(&measured.repeat)));
        let slowest = |of: fn(&Pass) -> u64| -> Vec<u64> {
            let longest = |passes: &Vec<&Measured>| passes.iter().map(|measured| of(&measured.pass)).max();
            repeats.iter().filter_map(longest).collect()
        };
        let all: Vec<&Measured> = repeats.iter().flatten().copied().collect();
        let median = |of: fn(&Pass) -> Option<u64>| -> Option<u64> {
            let values = all.iter().map(|measured| of(&measured.pass)).collect::<Option<Vec<u64>>>()?;
            Envelope::of(&values).map(|values| values.median)
        };
        let mut sources: Vec<String> = all.iter().map(|measured| measured.pass.source.clone()).collect();
        sources.sort();
        sources.dedup();
        let resident = all.iter().map(|measured| measured.resident_before_bytes).collect::<Option<Vec<u64>>>();
        let verified: Vec<bool> = series.passes.iter().filter_map(|measured| measured.pass.verified).collect();
        Line {
            destination: series.destination,
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

    /// Whether it has figures that may be held against others': it brought the file's bytes, as far as that was looked at.
    pub fn counts(&self) -> bool {
        !self.totals.is_empty() && self.verified != Some(false)
    }

    pub fn total(&self) -> Option<Envelope> {
        Envelope::of(&self.totals)
    }

    pub fn copy(&self) -> Option<Envelope> {
        Envelope::of(&self.copies)
    }
}

/// The lines of a place that belong together: one destination, so many ranks.
pub struct Group {
    pub destination: Kind,
    pub ranks: u32,
    /// Counted repeats that were finished: of one that was interrupted no way has a figure.
    pub repeats: usize,
    pub turns: Turns,
    pub lines: Vec<Line>,
}

impl Group {
    /// A way's line, if it was measured and what it brought was right.
    pub fn line(&self, way: Way) -> Option<&Line> {
        self.lines.iter().find(|line| line.way == way && line.counts())
    }

    /// A line's time ÷ the heap's on the same place, so that storage is held constant.
    pub fn to_heap(&self, line: &Line) -> Option<Ratio> {
        Ratio::of(&line.totals, &self.line(Way::HEAP)?.totals)
    }
}

/// The groups of a place, in the order in which they were measured.
pub fn groups(place: &Place) -> Vec<Group> {
    let mut together: Vec<Vec<&Series>> = Vec::new();
    let mut met: BTreeMap<(Kind, u32), usize> = BTreeMap::new();
    for series in &place.series {
        let at = *met.entry((series.destination, series.ranks)).or_insert(together.len());
        match together.get_mut(at) {
            Some(group) => group.push(series),
            None => together.push(vec![series]),
        }
    }
    together.iter().map(|group| of_series(group)).collect()
}

fn of_series(group: &[&Series]) -> Group {
    // A way that was refused holds up no other.
    let mut finished: Option<BTreeSet<u32>> = None;
    for series in group.iter().filter(|series| series.refused.is_none()) {
        let own: BTreeSet<u32> =
            series.repeats().iter().filter_map(|passes| passes.first()).map(|first| first.repeat).collect();
        finished = Some(finished.map_or_else(|| own.clone(), |all| &all & &own));
    }
    let finished = finished.unwrap_or_default();
    Group {
        destination: group[0].destination,
        ranks: group[0].ranks,
        repeats: finished.len(),
        turns: Turns::of(group, &finished),
        lines: group.iter().map(|series| Line::of(series, &finished)).collect(),
    }
}
