//! Statistics of a series: several runs of each arm, taken by turns. Pure, and exact: every figure is a whole number of
//! the unit that it was measured in, compared by multiplication; only what is shown of a ratio is rounded.
//!
//! It refuses to make one number of values that do not belong together. A slow first run, a value apart from the others,
//! two groups of values, a drift over the series are said by listing the values, and nothing is left out because of
//! them. There is no verdict from fewer than [`PAIRS`] pairs.

use std::fmt::Write;

use crate::account::host::Bounds;
use crate::account::ratios::Thousandths;

/// So many pairs make a verdict.
pub const PAIRS: usize = 3;

/// The arm of each run in the order of running: `ABBA…`, each arm `runs` times. Every second round is taken backwards, so
/// that what drifts over time comes to all arms alike.
pub fn order(arms: usize, runs: usize) -> Vec<usize> {
    let round = |number: usize| -> Vec<usize> {
        if number.is_multiple_of(2) { (0..arms).collect() } else { (0..arms).rev().collect() }
    };
    (0..runs).flat_map(round).collect()
}

/// Where one figure lies against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// More than 1% above.
    Above,
    /// More than 1% below: the other is more than 1% above it.
    Below,
    /// No more than 1% apart.
    Within,
    /// The bounds allow more than one of these.
    Unknown,
}

/// A run of the reference and the run of another arm that was taken in the same round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub reference: Bounds,
    pub other: Bounds,
}

impl Pair {
    /// Where the other arm's figure lies.
    pub fn side(&self) -> Side {
        let exceeds = |more: Option<u64>, less: Option<u64>| {
            let (Some(more), Some(less)) = (more, less) else { return false };
            u128::from(more) * 100 > u128::from(less) * 101
        };
        let (a, b) = (self.reference, self.other);
        let known = [a.low, a.high, b.low, b.high].iter().all(Option::is_some);
        match () {
            () if exceeds(b.low, a.high) => Side::Above,
            () if exceeds(a.low, b.high) => Side::Below,
            () if known && !exceeds(b.high, a.low) && !exceeds(a.high, b.low) => Side::Within,
            () => Side::Unknown,
        }
    }

    /// Other ÷ reference; absent where a figure is only bounded, and where the reference is 0.
    pub fn ratio(&self) -> Option<Thousandths> {
        Thousandths::of(exact(self.other)?, exact(self.reference)?)
    }
}

/// The figure, where its bounds are one.
pub fn exact(bounds: Bounds) -> Option<u64> {
    bounds.low.filter(|_| bounds.low == bounds.high)
}

/// What the pairs of two arms say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub pairs: usize,
    pub answer: Answer,
}

/// See [`Verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Every pair's ratio lies beyond 1%, above.
    Higher,
    /// Every pair's ratio lies beyond 1%, below.
    Lower,
    /// Not every pair lies on one side.
    NoDifference,
    /// Bounds leave it open.
    Unknown,
}

impl Answer {
    /// The word that files have for it.
    pub fn word(self) -> &'static str {
        match self {
            Answer::Higher => "higher",
            Answer::Lower => "lower",
            Answer::NoDifference => "no_difference",
            Answer::Unknown => "unknown",
        }
    }
}

impl Verdict {
    /// From the pairs, in the order of running.
    pub fn of(pairs: &[Pair]) -> Verdict {
        let sides: Vec<Side> = pairs.iter().map(Pair::side).collect();
        let all = |side: Side| !sides.is_empty() && sides.iter().all(|is| *is == side);
        let may_all = |side: Side| sides.iter().all(|is| *is == side || *is == Side::Unknown);
        let answer = match () {
            () if all(Side::Above) => Answer::Higher,
            () if all(Side::Below) => Answer::Lower,
            // One pair that surely lies elsewhere decides it, whatever the unknown ones are.
            () if may_all(Side::Above) || may_all(Side::Below) => Answer::Unknown,
            () => Answer::NoDifference,
        };
        Verdict { pairs: pairs.len(), answer }
    }

    /// Whether there are enough pairs.
    pub fn is_final(self) -> bool {
        self.pairs >= PAIRS
    }

    /// In words, of an arm against the reference.
    pub fn words(self) -> String {
        let pairs = match self.pairs {
            0 => return "no verdict: no pair of runs has this figure".to_owned(),
            1 => "1 pair".to_owned(),
            pairs => format!("{pairs} pairs"),
        };
        let found = match self.answer {
            Answer::Higher => "higher, beyond 1% in every pair",
            Answer::Lower => "lower, beyond 1% in every pair",
            Answer::NoDifference => "no difference beyond the spread",
            Answer::Unknown => "cannot be told from the bounds",
        };
        match (self.is_final(), self.answer) {
            (false, _) => format!("no verdict from fewer than {PAIRS} pairs ({pairs}: {found})"),
            (true, Answer::Higher | Answer::Lower) => format!("different: {found} ({pairs})"),
            (true, _) => format!("{found} ({pairs})"),
        }
    }
}

/// Smallest, middle and largest. Of an even number of values the middle is the mean of two, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub min: u64,
    pub median: u64,
    pub max: u64,
}

impl Envelope {
    /// `None` of no value.
    pub fn of(values: &[u64]) -> Option<Envelope> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Envelope { min, median: lower + (upper - lower) / 2, max })
    }

    /// The same of bounds: of the low ones the smallest, of the high ones the largest; the median only where every value is
    /// exact.
    pub fn of_bounds(values: &[Bounds]) -> Bounds {
        if values.is_empty() {
            return Bounds::ABSENT;
        }
        let low = values.iter().map(|value| value.low).collect::<Option<Vec<u64>>>();
        let high = values.iter().map(|value| value.high).collect::<Option<Vec<u64>>>();
        Bounds { low: low.and_then(|low| low.into_iter().min()), high: high.and_then(|high| high.into_iter().max()) }
    }
}

/// What is odd about one arm's values: each is told with all of them listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The first run's value is apart from all the others.
    FirstApart { first: u64, others: Vec<u64> },
    /// One other value is.
    OneApart { value: u64, others: Vec<u64> },
    /// The values lie in two groups, which one middle value would hide.
    TwoModes { low: Vec<u64>, high: Vec<u64> },
    /// The largest is more than a tenth above the smallest, in no such shape.
    Scattered { values: Vec<u64> },
    /// Every value of the later half lies on one side of every value of the earlier half, and their medians are more than
    /// 1% apart.
    Drift { earlier: Vec<u64>, later: Vec<u64> },
}

/// What is odd about an arm's values, given in the order of running.
///
/// The values fall into two groups at the widest gap between neighbours, if it is at least three times as wide as the
/// wider group, and more than a tenth of the value below it. A group of one is a value apart, if there are three values
/// or more; two groups of two or more are two modes.
pub fn remarks(values: &[u64]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    remarks.extend(shape(values));
    remarks.extend(drift(values));
    remarks
}

fn shape(values: &[u64]) -> Option<Remark> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    if values.len() < 2 || u128::from(max) * 10 <= u128::from(min) * 11 {
        return None;
    }
    // At the first of equal gaps.
    let (gap, place) =
        (1..sorted.len()).map(|at| (sorted[at] - sorted[at - 1], at)).rev().max_by_key(|(gap, _)| *gap)?;
    let (low, high) = sorted.split_at(place);
    let width = |group: &[u64]| group[group.len() - 1] - group[0];
    let wider = width(low).max(width(high));
    let is_apart = u128::from(gap) >= 3 * u128::from(wider) && u128::from(gap) * 10 > u128::from(low[low.len() - 1]);
    if !is_apart || values.len() < 3 {
        return Some(Remark::Scattered { values: values.to_vec() });
    }
    let alone = match (low, high) {
        (low, [value]) if low.len() > 1 => Some(*value),
        ([value], high) if high.len() > 1 => Some(*value),
        _ => None,
    };
    Some(match alone {
        None => Remark::TwoModes { low: low.to_vec(), high: high.to_vec() },
        Some(value) => {
            let at = values.iter().position(|is| *is == value)?;
            let mut others = values.to_vec();
            others.remove(at);
            match at {
                0 => Remark::FirstApart { first: value, others },
                _ => Remark::OneApart { value, others },
            }
        }
    })
}

/// Of an odd number of values the one in the middle belongs to neither half.
fn drift(values: &[u64]) -> Option<Remark> {
    let half = values.len() / 2;
    if half < 2 {
        return None;
    }
    let (earlier, later) = (&values[..half], &values[values.len() - half..]);
    let (before, after) = (Envelope::of(earlier)?, Envelope::of(later)?);
    let is_apart = before.max < after.min || after.max < before.min;
    let (less, more) = (before.median.min(after.median), before.median.max(after.median));
    let counts = is_apart && u128::from(more) * 100 > u128::from(less) * 101;
    counts.then(|| Remark::Drift { earlier: earlier.to_vec(), later: later.to_vec() })
}

impl Remark {
    /// In words; `figure` shows a value with its unit.
    pub fn words(&self, figure: &dyn Fn(u64) -> String) -> String {
        let list = |values: &[u64]| {
            let mut text = String::new();
            for (index, value) in values.iter().enumerate() {
                let _ = write!(text, "{}{}", if index == 0 { "" } else { ", " }, figure(*value));
            }
            text
        };
        match self {
            Remark::FirstApart { first, others } => {
                format!("the first run is apart: {}; the others: {}", figure(*first), list(others))
            }
            Remark::OneApart { value, others } => {
                format!("one run is apart: {}; the others: {}", figure(*value), list(others))
            }
            Remark::TwoModes { low, high } => {
                format!("two modes: {} and {}; no middle value stands for both", list(low), list(high))
            }
            Remark::Scattered { values } => format!("more than a tenth apart, in order: {}", list(values)),
            Remark::Drift { earlier, later } => {
                format!("drift over the series: earlier {}; later {}", list(earlier), list(later))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(reference: &[u64], other: &[u64]) -> Vec<Pair> {
        let exactly = Bounds::exactly;
        std::iter::zip(reference, other).map(|(a, b)| Pair { reference: exactly(*a), other: exactly(*b) }).collect()
    }

    /// Tenths of a second, as people write them.
    fn tenths(value: u64) -> String {
        format!("{}.{}", value / 10, value % 10)
    }

    #[test]
    fn arms_are_taken_by_turns_there_and_back() {
        assert_eq!(order(2, 4), [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(order(3, 2), [0, 1, 2, 2, 1, 0]);
        assert_eq!(order(2, 1), [0, 1]);
        assert!(order(2, 0).is_empty());
    }

    #[test]
    fn figures_of_two_runs_each_are_no_verdict() {
        let verdict = Verdict::of(&pairs(&[434, 431], &[429, 430]));
        assert_eq!(verdict, Verdict { pairs: 2, answer: Answer::NoDifference });
        assert!(!verdict.is_final());
        assert_eq!(verdict.words(), "no verdict from fewer than 3 pairs (2 pairs: no difference beyond the spread)");
        let one = pairs(&[434, 431], &[490]);
        assert_eq!(one[0].ratio().unwrap().to_string(), "1.129");
        let verdict = Verdict::of(&one);
        assert_eq!(verdict, Verdict { pairs: 1, answer: Answer::Higher });
        assert!(
            verdict.words().starts_with("no verdict from fewer than 3 pairs (1 pair: higher"),
            "{}",
            verdict.words()
        );
        assert!(Verdict::of(&[]).words().starts_with("no verdict: no pair"));
    }

    #[test]
    fn different_is_every_pair_beyond_the_margin_on_one_side() {
        let words = |a: &[u64], b: &[u64]| Verdict::of(&pairs(a, b)).words();
        assert_eq!(words(&[1184, 1180, 1190], &[67, 66, 67]), "different: lower, beyond 1% in every pair (3 pairs)");
        assert_eq!(words(&[100, 100, 100], &[102, 103, 104]), "different: higher, beyond 1% in every pair (3 pairs)");
        // One pair just at 1% is enough to take it back, and so is one on the other side.
        assert_eq!(words(&[100, 100, 100], &[101, 103, 104]), "no difference beyond the spread (3 pairs)");
        assert_eq!(words(&[100, 100, 100], &[98, 103, 104]), "no difference beyond the spread (3 pairs)");
    }

    #[test]
    fn bounds_compare_as_bounds() {
        let of = |a: (u64, Option<u64>), b: (u64, Option<u64>)| Pair {
            reference: Bounds { low: Some(a.0), high: a.1 },
            other: Bounds { low: Some(b.0), high: b.1 },
        };
        assert_eq!(of((10, Some(12)), (20, None)).side(), Side::Above);
        assert_eq!(of((20, None), (10, Some(12))).side(), Side::Below);
        assert_eq!(of((10, None), (20, None)).side(), Side::Unknown);
        assert_eq!(of((100, Some(101)), (100, Some(100))).side(), Side::Within);
        assert_eq!(of((10, Some(12)), (11, Some(13))).side(), Side::Unknown);
        assert_eq!(of((10, Some(12)), (20, None)).ratio(), None);
        let open = of((10, None), (20, None));
        let above = of((10, Some(12)), (20, None));
        assert_eq!(Verdict::of(&[above, above, open]).answer, Answer::Unknown);
        let within = of((100, Some(100)), (100, Some(100)));
        assert_eq!(Verdict::of(&[above, within, open]).answer, Answer::NoDifference);
        assert_eq!(Envelope::of_bounds(&[above.reference, above.other]), Bounds { low: Some(10), high: None });
        assert_eq!(Envelope::of_bounds(&[]), Bounds::ABSENT);
    }

    #[test]
    fn two_modes_are_listed() {
        let found = remarks(&[1351, 749, 1388, 777, 1382]);
        assert_eq!(found, [Remark::TwoModes { low: vec![749, 777], high: vec![1351, 1382, 1388] }]);
        let told = found[0].words(&tenths);
        assert_eq!(told, "two modes: 74.9, 77.7 and 135.1, 138.2, 138.8; no middle value stands for both");
    }

    #[test]
    fn what_stands_apart_is_said_with_all_values() {
        let found = remarks(&[900, 500, 510, 505, 500]);
        assert_eq!(found, [Remark::FirstApart { first: 900, others: vec![500, 510, 505, 500] }]);
        assert_eq!(found[0].words(&tenths), "the first run is apart: 90.0; the others: 50.0, 51.0, 50.5, 50.0");
        assert!(matches!(&remarks(&[500, 510, 905])[..], [Remark::OneApart { value: 905, .. }]));
        assert!(matches!(&remarks(&[100, 500, 510])[..], [Remark::FirstApart { first: 100, .. }]));
        // Three values evenly apart are no groups; two are not enough for any.
        assert!(matches!(&remarks(&[100, 200, 300])[..], [Remark::Scattered { .. }]));
        assert!(matches!(&remarks(&[100, 200])[..], [Remark::Scattered { .. }]));
        assert_eq!(remarks(&[500, 510, 505, 500]), []);
        assert_eq!(remarks(&[0, 0, 0]), []);
        assert_eq!(remarks(&[7]), []);
    }

    #[test]
    fn drift_is_shown() {
        let found = remarks(&[500, 503, 515, 520, 525]);
        assert_eq!(found, [Remark::Drift { earlier: vec![500, 503], later: vec![520, 525] }]);
        assert_eq!(remarks(&[500, 501, 502, 503]), [], "less than 1% is none");
    }

    #[test]
    fn the_middle_of_an_even_number_is_between() {
        assert_eq!(Envelope::of(&[9, 1, 4, 6]), Some(Envelope { min: 1, median: 5, max: 9 }));
        assert_eq!(Envelope::of(&[u64::MAX, u64::MAX]).unwrap().median, u64::MAX);
        assert_eq!(Envelope::of(&[]), None);
    }

    proptest! {
        #[test]
        fn swapping_the_arms_swaps_the_answer(
            a in prop::collection::vec(any::<u64>(), 0..6), b in prop::collection::vec(any::<u64>(), 0..6),
        ) {
            let (there, back) = (Verdict::of(&pairs(&a, &b)).answer, Verdict::of(&pairs(&b, &a)).answer);
            let swapped = match there {
                Answer::Higher => Answer::Lower,
                Answer::Lower => Answer::Higher,
                other => other,
            };
            prop_assert_eq!(back, swapped);
        }

        #[test]
        fn no_value_is_left_out(values in prop::collection::vec(any::<u64>(), 0..12)) {
            for remark in remarks(&values) {
                let mut listed = match remark {
                    Remark::FirstApart { first: value, others } | Remark::OneApart { value, others } => {
                        [vec![value], others].concat()
                    }
                    Remark::TwoModes { low, high } => [low, high].concat(),
                    Remark::Scattered { values } => values,
                    Remark::Drift { .. } => continue,
                };
                let mut all = values.clone();
                all.sort_unstable();
                listed.sort_unstable();
                prop_assert_eq!(listed, all);
            }
        }
    }
}
