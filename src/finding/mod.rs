//! Stage table → findings: what the figures say of a launch, each with the figures and with what would settle it.
//!
//! A rule is a file. It speaks where two independent kinds of evidence agree (a counter of faults and a counter of
//! reads; mappings and residency; the log and the CPU time), never from one threshold alone; where a figure that it
//! needs is absent it is silent, and guesses nothing. The same run gives the same findings, in the same order: that of
//! the rules, the most telling first.
//!
//! It measures nothing and mends nothing: figures are the stage table's, in the columns' own names and exact. Sentences
//! may hold text that came from the launch (stages' names, lines of its log); who shows them makes it fit to be shown.

mod copied;
mod deferred;
mod early;
mod evicted;
mod peak;
mod readahead;
mod serial;
mod silence;
mod source;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::account::ratios::Thousandths;
use crate::account::source::touched;
use crate::account::{StageRow, StageTable};
use crate::clock::At;
use crate::metric::{Metric, Values};
use crate::run::Run;
use crate::run::silence::Silence;
use crate::sample::Sample;
use crate::units;

/// A rule: its name, what it looks for, and what it finds in a run.
pub struct Rule {
    pub id: &'static str,
    /// What it looks for, on which evidence.
    pub about: &'static str,
    find: fn(&Ground) -> Vec<Finding>,
}

/// Every rule, the most telling first.
pub const RULES: &[Rule] = &[
    deferred::RULE,
    copied::RULE,
    serial::RULE,
    readahead::RULE,
    evicted::RULE,
    peak::HOST,
    peak::DEVICE,
    silence::RULE,
    early::RULE,
    source::RULE,
];

/// What a rule found.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// All of it in a sentence, without the full stop.
    pub title: String,
    /// What speaks for it, and what it means.
    pub sentences: Vec<String>,
    pub figures: Vec<Figure>,
    /// What would settle it, or what to do next.
    pub settles: String,
    #[serde(rename = "interval")]
    pub place: Place,
}

/// The stretch that a finding is of: from a stage, or `start`, to a stage.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    pub from: String,
    pub to: String,
}

/// One figure that a finding stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The column's name, or that of a derived figure, with its unit; then where it is of one moment ` at STAGE`.
    pub name: String,
    pub value: Quantity,
    /// Where it comes from.
    pub source: &'static str,
}

/// An exact value with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Bytes(u64),
    Nanoseconds(u64),
    Count(u64),
    Ratio(Thousandths),
}

impl Quantity {
    /// The word that files have for the unit.
    pub fn unit(self) -> &'static str {
        match self {
            Quantity::Bytes(_) => "bytes",
            Quantity::Nanoseconds(_) => "ns",
            Quantity::Count(_) => "count",
            Quantity::Ratio(_) => "ratio",
        }
    }

    /// A metric's value.
    fn of(metric: Metric, value: u64) -> Quantity {
        match metric.definition().unit {
            crate::metric::Unit::Bytes => Quantity::Bytes(value),
            crate::metric::Unit::Nanoseconds => Quantity::Nanoseconds(value),
            crate::metric::Unit::Count => Quantity::Count(value),
        }
    }
}

impl std::fmt::Display for Quantity {
    /// As people read it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&match self {
            Quantity::Bytes(bytes) => units::bytes(*bytes),
            Quantity::Nanoseconds(ns) => units::duration(*ns),
            Quantity::Count(count) => units::count(*count),
            Quantity::Ratio(ratio) => ratio.to_string(),
        })
    }
}

impl Serialize for Figure {
    /// `name`, `value` (a bare number), `unit`, `source`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Figure", 4)?;
        fields.serialize_field("name", &self.name)?;
        match self.value {
            Quantity::Bytes(value) | Quantity::Nanoseconds(value) | Quantity::Count(value) => {
                fields.serialize_field("value", &value)?;
            }
            Quantity::Ratio(ratio) => fields.serialize_field("value", &ratio)?,
        }
        fields.serialize_field("unit", self.value.unit())?;
        fields.serialize_field("source", self.source)?;
        fields.end()
    }
}

/// Everything that the rules find in a run.
pub fn findings(run: &Run, table: &StageTable) -> Vec<Finding> {
    let ground = Ground::of(run, table);
    RULES.iter().flat_map(|rule| (rule.find)(&ground)).collect()
}

/// Rules of which these findings have none: they do not hold, or the run cannot tell.
pub fn silent(findings: &[Finding]) -> impl Iterator<Item = &'static Rule> {
    RULES.iter().filter(|rule| findings.iter().all(|finding| finding.rule != rule.id))
}

/// Less than this is a program's own.
const LITTLE: u64 = 1 << 20;
/// Where counters were read.
const COUNTED: &str = "counters of the processes, between the samples at both ends";

/// A share of a whole, in percent.
fn share(whole: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// What the rules look at: the run up to its stopping event, or to the last stage that was reached.
struct Ground<'a> {
    run: &'a Run,
    table: &'a StageTable,
    /// In the order of marks.
    rows: Vec<&'a StageRow>,
    silence: Option<Silence>,
}

impl<'a> Ground<'a> {
    fn of(run: &'a Run, table: &'a StageTable) -> Ground<'a> {
        let end = table.last_stage_reached().and_then(StageRow::at);
        let rows: Vec<&StageRow> = table.reached().filter(|row| row.at() <= end).collect();
        // A log that cannot be read is a log of which nothing is known.
        let silence = end.and_then(|end| run.longest_silence(end).ok().flatten());
        Ground { run, table, rows, silence }
    }

    /// The row at which the account ends.
    fn last(&self) -> Option<&'a StageRow> {
        self.table.last_stage_reached()
    }

    /// The payload, where it is known and there is one.
    fn payload(&self) -> Option<u64> {
        self.last()?.values.get(Metric::PayloadBytes).filter(|payload| *payload > 0)
    }

    /// The time from start to the end of the account.
    fn length_ns(&self) -> u64 {
        self.last().and_then(StageRow::at).and_then(|at| u64::try_from(at.0).ok()).unwrap_or(0)
    }

    /// The intervals between marks that have a length and values at both ends.
    fn spans(&self) -> Vec<Span<'a>> {
        let before = std::iter::once(None).chain(self.rows.iter().map(|row| Some(*row)));
        std::iter::zip(before, self.rows.iter().copied()).filter_map(|(before, row)| Span::of(before, row)).collect()
    }

    /// The samples taken after `from` and up to `to`.
    fn samples(&self, from: At, to: At) -> &'a [Sample] {
        let samples = &self.run.samples;
        let begin = samples.partition_point(|sample| sample.t <= from);
        let end = samples.partition_point(|sample| sample.t <= to);
        samples.get(begin..end).unwrap_or_default()
    }

    /// By how much the tree's file pages grew while it mapped payload, after `from` and up to `to`; `before` is what
    /// stood at `from`. Absent where it is not known what was mapped and held, from the first time on that it was.
    fn used(&self, before: &Values, from: At, to: At) -> Option<u64> {
        let samples = self.samples(from, to);
        let known = |sample: &Sample| {
            [Metric::MappedPayloadBytes, Metric::RssFileBytes].iter().all(|metric| sample.values.get(*metric).is_some())
        };
        let first = samples.iter().position(known)?;
        samples[first..].iter().all(known).then(|| touched(before, samples))?
    }

    /// The same from start on, where there are no file pages yet.
    fn used_since_start(&self, to: At) -> Option<u64> {
        let mut nothing = Values::ABSENT;
        nothing.set(Metric::RssFileBytes, 0);
        self.used(&nothing, At(i64::MIN), to)
    }

    /// The most file pages that the tree was seen to hold while it mapped payload, up to `to`: no more of the payload was
    /// touched by its mappings at a time.
    fn most_file_pages(&self, to: At) -> u64 {
        let mapped = |sample: &&Sample| sample.values.get(Metric::MappedPayloadBytes).is_some_and(|mapped| mapped > 0);
        let held = self.samples(At(i64::MIN), to).iter().filter(mapped);
        held.filter_map(|sample| sample.values.get(Metric::RssFileBytes)).max().unwrap_or(0)
    }

    /// From start to the end of the account.
    fn whole(&self) -> Place {
        Place { from: START.to_owned(), to: self.last().map_or_else(String::new, |row| row.outcome.stage.clone()) }
    }

    /// From a row's mark to the end of the account.
    fn since(&self, row: &StageRow) -> Place {
        Place { from: row.outcome.stage.clone(), ..self.whole() }
    }
}

const START: &str = "start";

/// An interval between two marks, or from start to the first.
#[derive(Clone, Copy)]
struct Span<'a> {
    before: Option<&'a StageRow>,
    row: &'a StageRow,
    /// Between the samples at both ends: what counters did is of that time.
    length_ns: u64,
}

impl<'a> Span<'a> {
    fn of(before: Option<&'a StageRow>, row: &'a StageRow) -> Option<Span<'a>> {
        let begin = before.map_or(Some(At(0)), |before| before.sampled)?;
        let length_ns = u64::try_from(row.sampled?.0.saturating_sub(begin.0)).ok().filter(|length| *length > 0)?;
        Some(Span { before, row, length_ns })
    }

    fn begin(&self) -> At {
        self.before.and_then(|before| before.sampled).unwrap_or(At(0))
    }

    fn end(&self) -> At {
        self.row.sampled.unwrap_or(At(0))
    }

    fn place(&self) -> Place {
        let from = self.before.map_or_else(|| START.to_owned(), |before| before.outcome.stage.clone());
        Place { from, to: self.row.outcome.stage.clone() }
    }

    fn delta(&self, counter: Metric) -> Option<u64> {
        self.row.deltas.get(counter)
    }

    /// Minor and major page faults.
    fn faults(&self) -> Option<u64> {
        self.delta(Metric::MinorFaults)?.checked_add(self.delta(Metric::MajorFaults)?)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} → {}", self.from, self.to)
    }
}

/// A figure under a metric's own name.
fn figure(metric: Metric, value: u64, source: &'static str) -> Figure {
    Figure { name: metric.name().to_owned(), value: Quantity::of(metric, value), source }
}

/// A counter's figure over an interval.
fn delta(metric: Metric, value: u64) -> Figure {
    Figure { name: format!("delta_{}", metric.name()), value: Quantity::of(metric, value), source: COUNTED }
}

/// A figure of one moment.
fn at(row: &StageRow, metric: Metric, value: u64) -> Figure {
    let name = format!("{} at {}", metric.name(), row.outcome.stage);
    Figure { name, value: Quantity::of(metric, value), source: "the sample beside the mark" }
}

/// A figure that no column has alone.
fn derived(name: &str, value: Quantity, source: &'static str) -> Figure {
    Figure { name: name.to_owned(), value, source }
}

#[cfg(test)]
mod tests;
