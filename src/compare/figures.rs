//! The figures at a stage, run by run, and how two of them stand to each other.
//!
//! | figure | what it is | as a bound |
//! |---|---|---|
//! | host memory | the host account's total at the mark, and its parts | low and high |
//! | time | start → mark, and the shared stage before → mark | the event lies in `[t − uncertainty, t]`; without an uncertainty there is no low |
//! | value | a metric at the mark, under its own name | exact |
//! | `delta_…` | of a counter, since the shared stage before; start, for the first | exact |
//! | `peak_…` | of a gauge, over start → mark | low, high and basis |
//!
//! An interval is between two stages that all runs have, not between a run's own marks: one run may have a stage more.
//! Where the two came in another order in some run there is no interval in it.
//!
//! Bounds are compared as bounds: apart, they differ; overlapping, they cannot be told apart. Two largest samples, which
//! have no upper bound, are never called different; that one is larger than the other is said as what it is.

use std::collections::BTreeMap;

use crate::account::host::{Bounds, Part};
use crate::account::{Absences, Basis, StageRow};
use crate::clock::At;
use crate::event::word_of;
use crate::metric::{ALL, Kind, Metric, Unit};

use super::Arm;
use super::event::Named;
use super::series::Envelope;

/// What a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The host account's total.
    Host,
    HostPart(Part),
    /// Start → mark.
    Time,
    /// The shared stage before → mark.
    Interval,
    Value(Metric),
    Delta(Metric),
    Peak(Metric),
}

impl Quantity {
    /// The name that files have for it; where `stages.csv` has the figure, that column's, without `_low` and `_high`.
    pub fn name(self) -> String {
        match self {
            Quantity::Host => "host_bytes".to_owned(),
            Quantity::HostPart(part) => part.column().to_owned(),
            Quantity::Time => "t_ns".to_owned(),
            Quantity::Interval => "interval_ns".to_owned(),
            Quantity::Value(metric) => metric.name().to_owned(),
            Quantity::Delta(metric) => format!("delta_{}", metric.name()),
            Quantity::Peak(metric) => format!("peak_{}", metric.name()),
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Quantity::Host | Quantity::HostPart(_) => Unit::Bytes,
            Quantity::Time | Quantity::Interval => Unit::Nanoseconds,
            Quantity::Value(metric) | Quantity::Delta(metric) | Quantity::Peak(metric) => metric.definition().unit,
        }
    }

    /// Whether less of it is faster.
    pub fn is_time(self) -> bool {
        matches!(self, Quantity::Time | Quantity::Interval)
    }
}

/// A figure that is known, or known in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The figure; absent where only bounds are known.
    pub value: Option<u64>,
    /// It is at least this, and at most that; absent where there is no such bound.
    pub low: Option<u64>,
    pub high: Option<u64>,
    /// How it is known.
    pub basis: String,
}

impl Known {
    pub fn exactly(value: u64, basis: impl Into<String>) -> Known {
        Known { value: Some(value), low: Some(value), high: Some(value), basis: basis.into() }
    }

    /// Between two bounds, either of which may be missing; the figure itself where they are one.
    pub fn between(low: Option<u64>, high: Option<u64>, basis: impl Into<String>) -> Known {
        Known { value: low.filter(|_| low == high), low, high, basis: basis.into() }
    }

    pub fn is_exact(&self) -> bool {
        self.low.is_some() && self.low == self.high
    }

    /// The largest sample, above which it may have been.
    fn is_sampled(&self) -> bool {
        self.high.is_none() && self.low.is_some() && self.basis == Basis::Sampled.name()
    }
}

/// A figure of one run, or the reason of its absence.
pub type Cell = Result<Known, String>;

/// A figure of every run: by arm, then by run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    pub of: Quantity,
    pub cells: Vec<Vec<Cell>>,
}

impl Figure {
    /// What an arm has: the run's own figure, or of several runs their median between the least and the most.
    pub fn of_arm(&self, arm: usize) -> Cell {
        match self.cells.get(arm).map(Vec::as_slice) {
            None | Some([]) => Err("no run".to_owned()),
            Some([one]) => one.clone(),
            Some(several) => median(several),
        }
    }

    /// How an arm's figure stands to the first arm's.
    pub fn judged(&self, arm: usize) -> Judged {
        Judged::of(&self.of_arm(0), &self.of_arm(arm))
    }
}

/// The median of several runs, with the least and the most of them as bounds. With one that lacks it there is none: what
/// is left may be the better half.
pub fn median(cells: &[Cell]) -> Cell {
    let mut known: Vec<&Known> = Vec::new();
    for (cell, number) in cells.iter().zip(1..) {
        match cell {
            Ok(figure) => known.push(figure),
            Err(why) => return Err(format!("run {number}: {why}")),
        }
    }
    let bases: Vec<&str> = known.iter().map(|figure| figure.basis.as_str()).collect();
    let basis = match bases.as_slice() {
        [first, rest @ ..] if rest.iter().all(|other| other == first) => (*first).to_owned(),
        _ => "several".to_owned(),
    };
    let values: Option<Vec<u64>> = known.iter().map(|figure| figure.value).collect();
    let value = values.and_then(|values| Some(Envelope::of(&values)?.median));
    let bounds: Vec<Bounds> = known.iter().map(|figure| Bounds { low: figure.low, high: figure.high }).collect();
    let Bounds { low, high } = Envelope::of_bounds(&bounds);
    Ok(Known { value, low, high, basis })
}

/// One figure divided by another, as a fraction; what it is divided by is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    of: u64,
    to: u64,
}

impl Ratio {
    /// `of` ÷ `to`; absent where there is nothing to divide by.
    pub fn of(of: u64, to: u64) -> Option<Ratio> {
        (to != 0).then_some(Ratio { of, to })
    }

    pub fn number(self) -> f64 {
        self.of as f64 / self.to as f64
    }
}

impl std::fmt::Display for Ratio {
    /// As a bare decimal number with six significant digits, cut nowhere before the point.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.number();
        let before = if number > 0.0 { number.log10().floor() as i32 } else { 0 };
        let digits = usize::try_from(5 - before).unwrap_or(0);
        let text = format!("{number:.digits$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        formatter.write_str(text)
    }
}

/// What two figures tell of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Same,
    Less,
    More,
    /// The bounds overlap.
    NotApart,
    /// Largest samples: this is how they stand, and not how the peaks do.
    Samples,
    /// One of them is absent.
    Unknown,
}

impl Told {
    /// The word that files have for it.
    pub fn name(self) -> &'static str {
        match self {
            Told::Same => "same",
            Told::Less => "less",
            Told::More => "more",
            Told::NotApart => "not_told_apart",
            Told::Samples => "samples",
            Told::Unknown => "unknown",
        }
    }
}

/// How a figure stands to the one of the first arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    pub told: Told,
    /// This less the first one's, and between what it lies.
    pub difference: Option<i128>,
    pub difference_low: Option<i128>,
    pub difference_high: Option<i128>,
    /// This ÷ the first one's, and between what it lies. Of largest samples it is theirs.
    pub ratio: Option<Ratio>,
    pub ratio_low: Option<Ratio>,
    pub ratio_high: Option<Ratio>,
}

impl Judged {
    const UNKNOWN: Judged = Judged {
        told: Told::Unknown,
        difference: None,
        difference_low: None,
        difference_high: None,
        ratio: None,
        ratio_low: None,
        ratio_high: None,
    };

    pub fn of(first: &Cell, this: &Cell) -> Judged {
        let (Ok(first), Ok(this)) = (first, this) else { return Judged::UNKNOWN };
        let above = |high: Option<u64>, low: Option<u64>| matches!((high, low), (Some(high), Some(low)) if low > high);
        let told = if first.is_exact() && this.is_exact() && first.low == this.low {
            Told::Same
        } else if above(first.high, this.low) {
            Told::More
        } else if above(this.high, first.low) {
            Told::Less
        } else if first.is_sampled() && this.is_sampled() {
            Told::Samples
        } else {
            Told::NotApart
        };
        let samples = told == Told::Samples;
        let figure = |known: &Known| if samples { known.low } else { known.value };
        let over = |of: Option<u64>, to: Option<u64>| Ratio::of(of?, to?);
        let less = |this: Option<u64>, first: Option<u64>| Some(i128::from(this?) - i128::from(first?));
        Judged {
            told,
            difference: less(figure(this), figure(first)),
            difference_low: less(this.low, first.high),
            difference_high: less(this.high, first.low),
            ratio: over(figure(this), figure(first)),
            ratio_low: over(this.low, first.high),
            ratio_high: over(this.high, first.low),
        }
    }
}

/// A stage that all runs share, with its figures: host memory, device peak and time first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    pub name: String,
    /// The shared stage before it, from which intervals and deltas count; start, for the first.
    pub before: Option<String>,
    pub figures: Vec<Figure>,
}

impl Stage {
    pub fn figure(&self, of: Quantity) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.of == of)
    }
}

/// The figures at each of these stages. Those that no run has are left out, but for the first three.
pub fn stages(parties: &[Named], arms: &[Arm], shared: &[String]) -> Vec<Stage> {
    let device = device_metric(parties, shared);
    let absences: Vec<Absences> = parties.iter().map(|party| Absences::of(party.party.run)).collect();
    let mut before: Option<&String> = None;
    let mut stages = Vec::new();
    for name in shared {
        let first = [Quantity::Host, Quantity::Peak(device), Quantity::Time];
        let mut all: Vec<Quantity> = first.into();
        all.extend(before.map(|_| Quantity::Interval));
        all.extend(Part::ALL.map(Quantity::HostPart));
        for &metric in ALL {
            all.push(Quantity::Value(metric));
            match metric.definition().kind {
                Kind::Counter => all.push(Quantity::Delta(metric)),
                Kind::Gauge if metric != device => all.push(Quantity::Peak(metric)),
                Kind::Gauge | Kind::MarkGauge | Kind::HighWater => {}
            }
        }
        // Looked for once a stage: a run may have thousands of them, and there are some hundred figures.
        let rows: Vec<Rows> =
            parties.iter().zip(&absences).map(|(party, why)| Rows::of(party, why, name, before)).collect();
        let figures = all.into_iter().map(|of| {
            let mut cells: Vec<Vec<Cell>> = arms.iter().map(|_| Vec::new()).collect();
            for (party, rows) in parties.iter().zip(&rows) {
                if let Some(cells) = cells.get_mut(party.party.arm) {
                    cells.push(cell(of, rows));
                }
            }
            Figure { of, cells }
        });
        let is_known = |figure: &Figure| figure.cells.iter().flatten().any(Result::is_ok) || first.contains(&figure.of);
        stages.push(Stage { name: name.clone(), before: before.cloned(), figures: figures.filter(is_known).collect() });
        before = Some(name);
    }
    stages
}

/// The figure of device memory that all runs have at the end: the launch's share, else the rise, else what is in use.
/// Where none is in all, the first that is in some.
fn device_metric(parties: &[Named], shared: &[String]) -> Metric {
    let wanted = [Metric::DeviceLaunchBytes, Metric::DeviceRiseBytes, Metric::DeviceUsedBytes];
    let Some(end) = shared.last() else { return wanted[0] };
    let has = |party: &Named, metric| party.row(end).is_some_and(|row| row.peak(metric).is_some());
    let in_all = |metric: &&Metric| parties.iter().all(|party| has(party, **metric));
    let in_some = |metric: &&Metric| parties.iter().any(|party| has(party, **metric));
    let found = wanted.iter().find(in_all).or_else(|| wanted.iter().find(in_some));
    found.copied().unwrap_or(wanted[0])
}

/// A row of a run's table, and why each metric that it lacks is absent.
struct Placed<'a> {
    row: &'a StageRow,
    why: BTreeMap<Metric, &'a str>,
}

impl<'a> Placed<'a> {
    fn of(row: &'a StageRow, absences: &Absences<'a>) -> Placed<'a> {
        let at = row.sampled.or(row.at()).unwrap_or(At(i64::MAX));
        Placed { row, why: absences.at(at) }
    }

    fn value(&self, metric: Metric) -> Result<u64, String> {
        self.row.values.get(metric).ok_or_else(|| self.why_absent(metric))
    }

    fn why_absent(&self, metric: Metric) -> String {
        match self.why.get(&metric) {
            Some(why) => (*why).to_owned(),
            None if self.row.sampled.is_none() => "no sample was taken".to_owned(),
            None => "no reason recorded".to_owned(),
        }
    }
}

/// Where a run's figures at a stage stand.
struct Rows<'a> {
    this: Option<Placed<'a>>,
    /// The shared stage before, if it came before in this run too; start, for the first.
    earlier: Result<Option<Placed<'a>>, String>,
}

impl<'a> Rows<'a> {
    fn of(party: &Named<'a>, absences: &Absences<'a>, stage: &str, before: Option<&String>) -> Rows<'a> {
        let this = party.row(stage);
        let earlier = match (this, before) {
            (Some(this), Some(name)) => match party.row(name) {
                Some(earlier) if earlier.at() <= this.at() => Ok(Some(Placed::of(earlier, absences))),
                _ => Err(format!("{name} came later in this run")),
            },
            _ => Ok(None),
        };
        Rows { this: this.map(|this| Placed::of(this, absences)), earlier }
    }

    fn earlier(&self) -> Result<Option<&Placed<'a>>, String> {
        self.earlier.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }
}

fn cell(of: Quantity, rows: &Rows) -> Cell {
    // Shared stages are reached in every run.
    let Some(this) = &rows.this else { return Err("not reached".to_owned()) };
    match of {
        Quantity::Host => account(this.row, this.row.host.total),
        Quantity::HostPart(part) => account(this.row, this.row.host.part(part)),
        Quantity::Time => time(this.row),
        Quantity::Interval => interval(this.row, rows.earlier()?.map(|earlier| earlier.row)),
        Quantity::Value(metric) => Ok(Known::exactly(this.value(metric)?, "sample")),
        Quantity::Delta(metric) => delta(this, metric, rows.earlier()?),
        Quantity::Peak(metric) => match this.row.peak(metric) {
            Some(peak) => Ok(Known::between(peak.low, peak.high, peak.basis.name())),
            None => Err(this.why_absent(metric)),
        },
    }
}

fn account(row: &StageRow, bounds: Bounds) -> Cell {
    match bounds {
        Bounds::ABSENT => Err("parts of the host account are absent".to_owned()),
        Bounds { low, high } => Ok(Known::between(low, high, row.host.basis.clone())),
    }
}

/// When the event was at the earliest and at the latest; no event of a launch is before its start.
fn span(row: &StageRow) -> Option<(Option<u64>, u64, String)> {
    let (at, uncertainty, mark) = row.outcome.mark.as_ref()?;
    let latest = u64::try_from(at.0).ok()?;
    Some((uncertainty.map(|ns| latest.saturating_sub(ns)), latest, word_of(&mark.evidence)))
}

fn time(row: &StageRow) -> Cell {
    match span(row) {
        Some((low, high, basis)) => Ok(Known { value: Some(high), low, high: Some(high), basis }),
        None => Err("its mark is before the start".to_owned()),
    }
}

fn interval(this: &StageRow, earlier: Option<&StageRow>) -> Cell {
    let Some(earlier) = earlier else { return time(this) };
    let (Some((from_low, from, _)), Some((to_low, to, basis))) = (span(earlier), span(this)) else {
        return Err("a mark is before the start".to_owned());
    };
    Ok(Known {
        value: Some(to - from.min(to)),
        low: to_low.map(|low| low.saturating_sub(from)),
        // Without a bound it may have begun at start.
        high: Some(to - from_low.unwrap_or(0).min(to)),
        basis,
    })
}

fn delta(this: &Placed, metric: Metric, earlier: Option<&Placed>) -> Cell {
    let now = this.value(metric)?;
    // Counters count from start, where they are 0.
    let was = earlier.map_or(Ok(0), |earlier| earlier.value(metric))?;
    let grew = now.checked_sub(was).ok_or_else(|| format!("it fell from {was} to {now}"))?;
    Ok(Known::exactly(grew, "sample"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exactly(value: u64) -> Cell {
        Ok(Known::exactly(value, "sample"))
    }

    fn between(low: u64, high: u64) -> Cell {
        Ok(Known::between(Some(low), Some(high), "bounds"))
    }

    fn at_least(low: u64) -> Cell {
        Ok(Known::between(Some(low), None, "sampled"))
    }

    fn absent() -> Cell {
        Err("not measured".to_owned())
    }

    #[test]
    fn bounds_differ_only_where_they_are_apart() {
        let cases = [
            (exactly(5), exactly(5), Told::Same),
            (exactly(5), exactly(6), Told::More),
            (exactly(0), exactly(0), Told::Same),
            (between(4, 6), between(7, 9), Told::More),
            (between(7, 9), between(4, 6), Told::Less),
            (between(4, 7), between(7, 9), Told::NotApart),
            (between(4, 7), between(4, 7), Told::NotApart),
            (between(4, 9), exactly(5), Told::NotApart),
            (exactly(3), between(4, 9), Told::More),
            (at_least(5), at_least(50), Told::Samples),
            (at_least(5), between(1, 4), Told::Less),
            (at_least(5), between(1, 6), Told::NotApart),
            (exactly(4), at_least(5), Told::More),
            (exactly(5), absent(), Told::Unknown),
            (absent(), absent(), Told::Unknown),
        ];
        for (first, this, told) in cases {
            let judged = Judged::of(&first, &this);
            assert_eq!(judged.told, told, "{first:?} {this:?}");
            let mirrored = match told {
                Told::Less => Told::More,
                Told::More => Told::Less,
                other => other,
            };
            assert_eq!(Judged::of(&this, &first).told, mirrored, "{this:?} {first:?}");
        }
    }

    #[test]
    fn a_ratio_is_absent_where_there_is_nothing_to_divide_by() {
        let of = |first, this| Judged::of(&first, &this);
        assert_eq!(of(exactly(0), exactly(7)).ratio, None);
        assert_eq!(of(exactly(0), exactly(7)).difference, Some(7));
        assert_eq!(of(exactly(7), exactly(0)).ratio.unwrap().to_string(), "0");
        assert_eq!(of(between(0, 4), between(6, 8)).ratio_high, None);
        assert_eq!(of(between(0, 4), between(6, 8)).ratio_low.unwrap().to_string(), "1.5");
        assert_eq!(of(between(1, 4), between(6, 8)).ratio, None, "bounds have no ratio of their own");
        assert_eq!(of(at_least(4), at_least(6)).ratio.unwrap().to_string(), "1.5");
        let huge = of(exactly(u64::MAX), exactly(0));
        assert_eq!(huge.difference, Some(-i128::from(u64::MAX)));
    }

    #[test]
    fn ratios_are_decimal_numbers_of_six_digits() {
        for (of, to, shown) in [
            (67_000, 1_184_000, "0.0565878"),
            (490, 434, "1.12903"),
            (1, 1, "1"),
            (0, 5, "0"),
            (u64::MAX, 1, "18446744073709551616"),
            (1, u64::MAX, "0.0000000000000000000542101"),
            (1_000_000, 1, "1000000"),
            (5, 2, "2.5"),
        ] {
            assert_eq!(Ratio::of(of, to).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn several_runs_have_a_median_between_the_least_and_the_most() {
        let values = [9, 1, 5].map(exactly);
        let Known { value, low, high, .. } = median(&values).unwrap();
        assert_eq!((value, low, high), (Some(5), Some(1), Some(9)));
        let Known { value, .. } = median(&[exactly(4), exactly(8)]).unwrap();
        assert_eq!(value, Some(6));
        let Known { value, low, high, .. } = median(&[between(1, 2), exactly(8)]).unwrap();
        assert_eq!((value, low, high), (None, Some(1), Some(8)));
        assert_eq!(median(&[exactly(4), absent()]), Err("run 2: not measured".to_owned()));
    }
}
