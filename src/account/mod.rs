//! Run → stage table: values at each mark, what each counter did since the mark before, peaks with their bounds, and
//! the host account. Pure; invents nothing: what a run does not know is absent in its table.
//!
//! # Which sample stands at a mark
//!
//! The one that was taken for it ([`Mark::sampled`](crate::event::Mark)); where that is not there, the first that was
//! begun at or after the mark while something of the launch was there, else the first that was over by then, and where the
//! run ended before one, the last before it. A mark that was heard late, when a later one
//! had been looked at already, has that one's sample: it is nearer, and so no row's values are older than those of the
//! row before. `sampled` always says which. Values are of the moment that it names, not of the mark: between the two
//! the launch went on, unless it waited for its mark to be heard.
//!
//! # What must hold
//!
//! Checked in every sample, and said in [`StageTable::problems`] where it does not; values are never mended:
//!
//! - `payload_bytes` = `resident_payload_bytes` + `nonresident_payload_bytes`, exactly;
//! - `mapped_payload_bytes` is at most `payload_bytes` and at most `mapped_bytes`;
//! - `rss_bytes` = `rss_anon_bytes` + `rss_file_bytes` + `rss_shmem_bytes`;
//! - no counter falls.

mod after;
pub mod host;
mod peaks;
pub mod ratios;
pub mod source;
mod steady;
pub mod unaccounted;
mod work;

use std::collections::BTreeMap;

use crate::clock::At;
use crate::event::{Event, What};
use crate::metric::{self, Metric, Values};
use crate::run::Run;
use crate::run::meta::Exit;
use crate::sample::Sample;
use crate::stage::{Beside, Outcome};

pub use after::AFTER;
pub use host::HostAccount;
pub use peaks::{Basis, Peak, bases};
use peaks::{Before, Peaks};
pub use steady::{STEADY, Steady};
pub use work::Work;

/// One row: a stage, and everything at it.
#[derive(Clone, Debug, PartialEq)]
pub struct StageRow {
    pub outcome: Outcome,
    /// When the values beside the mark were taken.
    pub sampled: Option<At>,
    pub values: Values,
    /// Per counter, since the previous mark (start, for the first).
    pub deltas: Values,
    /// Per level, how much it rose or fell since the previous mark; absent for the first, as start has no values.
    pub changes: Vec<(Metric, i64)>,
    /// Per gauge, over start → this mark.
    pub peaks: Vec<(Metric, Peak)>,
    /// Per gauge, over the previous mark → this mark.
    pub span_peaks: Vec<(Metric, Peak)>,
    /// What the interval before was spent on.
    pub work: Work,
    /// What the launch holds of the host's memory.
    pub host: HostAccount,
    /// Of the stopping event: what stood after it.
    pub steady: Steady,
}

impl StageRow {
    /// A row of a stage at which nothing is known.
    pub(crate) fn of(outcome: Outcome) -> StageRow {
        StageRow {
            outcome,
            sampled: None,
            values: Values::ABSENT,
            deltas: Values::ABSENT,
            changes: Vec::new(),
            peaks: Vec::new(),
            span_peaks: Vec::new(),
            work: Work::default(),
            host: HostAccount::default(),
            steady: Steady::default(),
        }
    }

    /// When the stage was reached.
    pub fn at(&self) -> Option<At> {
        self.outcome.mark.as_ref().map(|(at, _, _)| *at)
    }

    /// The change of a level since the previous mark.
    pub fn change(&self, metric: Metric) -> Option<i64> {
        self.changes.iter().find(|(of, _)| *of == metric).map(|(_, change)| *change)
    }

    /// The peak of a gauge over start → this mark.
    pub fn peak(&self, metric: Metric) -> Option<Peak> {
        self.peaks.iter().find(|(of, _)| *of == metric).map(|(_, peak)| *peak)
    }

    /// The peak of a gauge over the previous mark → this mark.
    pub fn span_peak(&self, metric: Metric) -> Option<Peak> {
        self.span_peaks.iter().find(|(of, _)| *of == metric).map(|(_, peak)| *peak)
    }
}

/// The stage-aligned table: rows in the order of marks (ties in the stage file's order), then those without a mark.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTable {
    pub rows: Vec<StageRow>,
    /// The stopping event, where one was asked for and reached.
    pub stopping_event: Option<String>,
    /// Where the recorded values contradict themselves, for people.
    pub problems: Vec<String>,
}

impl StageTable {
    /// The table of a run, by the stage definitions that it was recorded with.
    pub fn of(run: &Run) -> StageTable {
        let stopped_at = run.meta.exit.as_ref().and_then(Exit::stop);
        let beside = Beside { stopped_at, values: Some(&run.meta.variables) };
        StageTable::build(crate::stage::outcomes(&run.meta.stages, &run.events, beside), run)
    }

    /// The table of a run in which these became of its stages, in the stage file's order.
    pub fn build(outcomes: Vec<Outcome>, run: &Run) -> StageTable {
        let (mut marked, unmarked): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|outcome| outcome.mark.is_some());
        // Stable: a tie keeps the stage file's order.
        marked.sort_by_key(|outcome| outcome.mark.as_ref().map(|(at, _, _)| *at));

        let openings = source::Openings::of(&run.events);
        let mut problems = contradictions(&run.samples);
        let mut of_run = Peaks::new(run);
        let mut before: Option<Before> = None;
        let mut rows: Vec<StageRow> = Vec::new();
        let indices = samples_at(&marked, &run.samples);
        let indices: Vec<Option<usize>> = std::iter::zip(&marked, indices)
            .map(|(outcome, index)| index.filter(|&index| is_of_the_launch(outcome, &run.samples[index], run)))
            .collect();
        let times = indices.iter().flatten().map(|&index| run.samples[index].t);
        let processes = host::Processes::at(&run.details, times);
        for (outcome, index) in marked.into_iter().zip(indices) {
            let sample = index.map(|index| &run.samples[index]);
            let values = sample.map(|sample| sample.values.clone()).unwrap_or_default();
            let previous = rows.last();
            let deltas = deltas(previous, &values, &outcome.stage, &mut problems);
            let changes = previous.map(|previous| changes(&previous.values, &values)).unwrap_or_default();
            let at = outcome.mark.as_ref().map_or(At(0), |(at, _, _)| *at);
            let peaks = index.map(|index| of_run.since_start(index, at)).unwrap_or_default();
            let span_peaks = match (index, before) {
                // From start, the first interval is the whole.
                (Some(_), None) => peaks.clone(),
                (Some(index), Some(before)) => of_run.span(before, index, at),
                (None, _) => Vec::new(),
            };
            let work = index.map(|index| {
                let first = before.and_then(|before| before.sample).map_or(0, |last| last + 1).min(index);
                Work::of(&run.meta, &openings, &rows, &values, &run.samples[..=index], first)
            });
            before = Some(Before { at, sample: index });
            let host = sample.map(|sample| processes.account(sample, &run.meta.artifacts)).unwrap_or_default();
            problems.extend(host::contradiction(&outcome.stage, &values, &host));
            rows.push(StageRow {
                sampled: sample.map(|sample| sample.t),
                deltas,
                changes,
                peaks,
                span_peaks,
                work: work.unwrap_or_default(),
                host,
                steady: Steady::default(),
                values,
                outcome,
            });
        }
        rows.extend(unmarked.into_iter().map(StageRow::of));

        let stopping_event = run
            .meta
            .until
            .clone()
            .filter(|until| rows.iter().any(|row| row.outcome.stage == *until && row.at().is_some()));
        for row in &mut rows {
            row.steady = match row.at().filter(|_| stopping_event.as_ref() == Some(&row.outcome.stage)) {
                Some(stop) => Steady::after(run, stop),
                None => Steady::elsewhere(stopping_event.is_some()),
            };
        }
        StageTable { rows, stopping_event, problems }
    }

    /// The rows of the stages that were reached, in the order of marks.
    pub fn reached(&self) -> impl DoubleEndedIterator<Item = &StageRow> {
        self.rows.iter().filter(|row| row.outcome.mark.is_some())
    }

    /// Each row by its stage's name; of two of one name the first.
    pub fn by_name(&self) -> BTreeMap<&str, &StageRow> {
        // A later one takes the place of an earlier one.
        self.rows.iter().rev().map(|row| (row.outcome.stage.as_str(), row)).collect()
    }

    /// The stage that was reached last, at the stopping event or before it where there is one.
    pub fn last_stage_reached(&self) -> Option<&StageRow> {
        self.stopping_row().or_else(|| self.reached().next_back())
    }

    /// The row of the stopping event.
    pub fn stopping_row(&self) -> Option<&StageRow> {
        let stage = self.stopping_event.as_ref()?;
        self.reached().find(|row| row.outcome.stage == *stage)
    }

    /// The interval that ends at each mark: `start → a`, `a → b`.
    pub fn interval_names(&self) -> Vec<String> {
        let names: Vec<&str> =
            std::iter::once("start").chain(self.reached().map(|row| row.outcome.stage.as_str())).collect();
        names.windows(2).map(|pair| format!("{} → {}", pair[0], pair[1])).collect()
    }
}

/// Why a metric is absent at a time, as far as the run says.
pub fn reason_of_absence(run: &Run, metric: Metric, at: At) -> Option<&str> {
    Absences::of(run).at(at).remove(&metric)
}

/// Why metrics are absent, as far as a run says, to be asked at many times: most of its events say nothing of it.
#[derive(Clone, Debug)]
pub struct Absences<'a> {
    of_run: BTreeMap<Metric, &'a str>,
    /// In the order of the events; without a reason the metric is there again.
    changes: Vec<(At, Metric, Option<&'a str>)>,
}

impl<'a> Absences<'a> {
    pub fn of(run: &'a Run) -> Absences<'a> {
        // Of two reasons in `run.json` the first counts.
        let of_run = run.meta.absent.iter().rev().map(|absent| (absent.metric, absent.reason.as_str()));
        let change = |event: &'a Event| match &event.what {
            What::Absent { metric, reason } => Some((event.at, *metric, Some(reason.as_str()))),
            What::Present { metric } => Some((event.at, *metric, None)),
            _ => None,
        };
        Absences { of_run: of_run.collect(), changes: run.events.iter().filter_map(change).collect() }
    }

    /// Why each metric that is absent at a time is so.
    pub fn at(&self, at: At) -> BTreeMap<Metric, &'a str> {
        let mut reasons = self.of_run.clone();
        for (_, metric, reason) in self.changes.iter().filter(|(since, ..)| *since <= at) {
            match reason {
                Some(reason) => _ = reasons.insert(*metric, reason),
                None => _ = reasons.remove(metric),
            }
        }
        reasons
    }
}

/// The index of the sample whose values stand at each mark, the marks in order of time.
fn samples_at(marked: &[Outcome], samples: &[Sample]) -> Vec<Option<usize>> {
    let mut indices: Vec<Option<usize>> = marked.iter().map(|outcome| sample_at(outcome, samples)).collect();
    for row in (1..indices.len()).rev() {
        let at = marked[row - 1].mark.as_ref().map(|(at, _, _)| *at);
        if let (Some(own), Some(next), Some(at)) = (indices[row - 1], indices[row], at)
            && next < own
            && samples[next].t >= at
        {
            indices[row - 1] = Some(next);
        }
    }
    indices
}

/// The index of the sample whose values stand at a mark.
fn sample_at(outcome: &Outcome, samples: &[Sample]) -> Option<usize> {
    let (at, _, mark) = outcome.mark.as_ref()?;
    if let Some(sampled) = mark.sampled {
        let index = samples.partition_point(|sample| sample.t < sampled);
        if samples.get(index).is_some_and(|sample| sample.t == sampled) {
            return Some(index);
        }
    }
    let index = samples.partition_point(|sample| sample.t < *at);
    // A look takes time, most of all where others have the CPU: one that was going on then may have read its values before.
    let later = &samples[index..];
    let begun_since = later.iter().position(|sample| sample.t.0.saturating_sub_unsigned(sample.cost_ns) >= at.0);
    let has_something = |nth: &usize| !crate::stage::is_over(&later[*nth]) || crate::stage::is_over(&later[0]);
    match begun_since.filter(has_something) {
        Some(nth) => Some(index + nth),
        None if index < samples.len() => Some(index),
        None => samples.len().checked_sub(1),
    }
}

/// Whether a sample says anything of a mark: one that was taken when nothing of the launch was left does not, unless the
/// mark is no earlier than the end. What was in memory at a mark in a launch of milliseconds may be in no sample at all.
fn is_of_the_launch(outcome: &Outcome, sample: &Sample, run: &Run) -> bool {
    let (Some((at, _, _)), Some(exit)) = (&outcome.mark, &run.meta.exit) else { return true };
    !crate::stage::is_over(sample) || *at >= exit.at || sample.t <= *at
}

/// What each counter did since the previous mark.
fn deltas(previous: Option<&StageRow>, values: &Values, stage: &str, problems: &mut Vec<String>) -> Values {
    let mut deltas = Values::ABSENT;
    for metric in Metric::counters() {
        // Counters count from start, where they are 0.
        let before = match previous {
            Some(row) => row.values.get(metric),
            None => Some(0),
        };
        let (Some(before), Some(now)) = (before, values.get(metric)) else { continue };
        match now.checked_sub(before) {
            Some(delta) => deltas.set(metric, delta),
            None => problems.push(format!(
                "{stage}: {} is {now}, less than {before} at the mark before: its delta is left out",
                metric.name()
            )),
        }
    }
    deltas
}

/// How much each level rose or fell.
fn changes(before: &Values, now: &Values) -> Vec<(Metric, i64)> {
    Metric::levels()
        .filter_map(|metric| {
            let change = i128::from(now.get(metric)?) - i128::from(before.get(metric)?);
            Some((metric, i64::try_from(change).ok()?))
        })
        .collect()
}

/// Where samples contradict themselves: the first place of each kind, and how often.
fn contradictions(samples: &[Sample]) -> Vec<String> {
    use Metric::*;
    let mut kinds: Vec<(String, u64)> = Vec::new();
    let mut found: Vec<Option<usize>> = vec![None; 4 + metric::COUNT];
    let mut report = |kind: usize, text: &dyn Fn() -> String| match found[kind] {
        Some(index) => kinds[index].1 += 1,
        None => {
            found[kind] = Some(kinds.len());
            kinds.push((text(), 1));
        }
    };
    let mut before = Values::ABSENT;
    for sample in samples {
        let get = |metric| sample.values.get(metric);
        let at = sample.t.0;
        if let (Some(payload), Some(resident), Some(nonresident)) =
            (get(PayloadBytes), get(ResidentPayloadBytes), get(NonresidentPayloadBytes))
            && resident.checked_add(nonresident) != Some(payload)
        {
            report(0, &|| {
                format!(
                    "at {at} ns resident payload {resident} and nonresident {nonresident} do not add up to the payload {payload}"
                )
            });
        }
        if let (Some(mapped), Some(payload)) = (get(MappedPayloadBytes), get(PayloadBytes))
            && mapped > payload
        {
            report(1, &|| format!("at {at} ns mapped payload {mapped} is more than the payload {payload}"));
        }
        if let (Some(payload), Some(mapped)) = (get(MappedPayloadBytes), get(MappedBytes))
            && payload > mapped
        {
            report(2, &|| format!("at {at} ns mapped payload {payload} is more than the mapped extent {mapped}"));
        }
        if let (Some(rss), Some(anon), Some(file), Some(shmem)) =
            (get(RssBytes), get(RssAnonBytes), get(RssFileBytes), get(RssShmemBytes))
            && host::sum(&[anon, file, shmem]) != Some(rss)
        {
            report(3, &|| {
                format!(
                    "at {at} ns anonymous {anon}, file-backed {file} and shared memory {shmem} do not add up to the resident set {rss}"
                )
            });
        }
        for counter in Metric::counters() {
            if let Some(value) = get(counter) {
                if let Some(earlier) = before.get(counter)
                    && value < earlier
                {
                    report(4 + counter as usize, &|| {
                        format!("at {at} ns {} fell from {earlier} to {value}", counter.name())
                    });
                }
                before.set(counter, value);
            }
        }
    }
    kinds
        .into_iter()
        .map(|(text, times)| if times == 1 { text } else { format!("{text} (and in {} more samples)", times - 1) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Evidence, Mark};
    use crate::metric::Metric::*;
    use crate::run::Meta;
    use crate::stage::Status;

    fn sample(t: i64, values: &[(Metric, u64)]) -> Sample {
        let mut sample = Sample { t: At(t), late_ns: 0, cost_ns: 0, values: Values::ABSENT };
        values.iter().for_each(|&(metric, value)| sample.values.set(metric, value));
        sample
    }

    /// A run of these samples; its `run.json` is that of one of the constructed runs.
    fn run(samples: Vec<Sample>) -> Run {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs/ml-216");
        let meta = Meta::load(&folder).unwrap();
        Run {
            folder,
            meta,
            samples,
            events: Vec::new(),
            details: Vec::new(),
            tensors: None,
            responses: Vec::new(),
            gaps: Vec::new(),
        }
    }

    fn reached(stage: &str, at: i64, sampled: Option<i64>) -> Outcome {
        let mark =
            Mark { stage: stage.into(), evidence: Evidence::Log, detail: String::new(), sampled: sampled.map(At) };
        Outcome {
            stage: stage.into(),
            status: Status::Reached,
            reason: String::new(),
            begin: None,
            mark: Some((At(at), Some(0), mark)),
        }
    }

    fn missed(stage: &str) -> Outcome {
        let status = Status::Unknown;
        Outcome { stage: stage.into(), status, reason: "why".into(), begin: None, mark: None }
    }

    #[test]
    fn rows_stand_in_the_order_of_marks_and_ties_in_that_of_the_file() {
        let outcomes =
            vec![missed("a"), reached("b", 9, None), reached("c", 5, None), reached("d", 5, None), missed("e")];
        let table = StageTable::build(outcomes, &run(Vec::new()));
        let names: Vec<_> = table.rows.iter().map(|row| row.outcome.stage.as_str()).collect();
        assert_eq!(names, ["c", "d", "b", "a", "e"]);
        assert_eq!(table.interval_names(), ["start → c", "c → d", "d → b"]);
        assert_eq!(table.last_stage_reached().unwrap().outcome.stage, "b");
        assert_eq!(table.stopping_event, None);
        assert!(table.rows.iter().all(|row| row.values == Values::ABSENT && row.sampled.is_none()));
    }

    #[test]
    fn a_mark_takes_its_own_sample_else_the_next_else_the_last() {
        let run = run((1..=4).map(|t| sample(10 * t, &[(RssBytes, t as u64)])).collect());
        let outcomes = vec![
            reached("own", 21, Some(30)),
            reached("exactly then", 20, None),
            reached("next", 12, Some(31)),
            reached("after the end", 99, Some(120)),
        ];
        let table = StageTable::build(outcomes, &run);
        let of = |stage: &str| {
            let row = table.rows.iter().find(|row| row.outcome.stage == stage).unwrap();
            (row.sampled.unwrap().0, row.values.get(RssBytes).unwrap())
        };
        assert_eq!(of("own"), (30, 3));
        assert_eq!(of("exactly then"), (20, 2));
        assert_eq!(of("next"), (20, 2));
        assert_eq!(of("after the end"), (40, 4));
    }

    #[test]
    fn a_look_that_was_going_on_at_a_mark_may_have_read_its_values_before() {
        let mut run = run((1..=3).map(|t| sample(10 * t, &[(RssBytes, t as u64), (Processes, 1)])).collect());
        run.samples[1].cost_ns = 9;
        let at = |at| StageTable::build(vec![reached("a", at, None)], &run).rows[0].sampled;
        assert_eq!([9, 11, 12, 21, 31].map(at), [10, 20, 30, 30, 30].map(|at| Some(At(at))));
        // What was over by the next look is better known by the one before.
        run.samples[2].values.set(Processes, 0);
        let at = |at| StageTable::build(vec![reached("a", at, None)], &run).rows[0].sampled;
        assert_eq!(at(12), Some(At(20)));
    }

    #[test]
    fn a_mark_that_was_heard_late_takes_the_sample_of_the_next() {
        let run = run((1..=4).map(|t| sample(10 * t, &[(MinorFaults, t as u64)])).collect());
        let table = StageTable::build(vec![reached("late", 12, Some(40)), reached("a", 15, Some(20))], &run);
        assert_eq!(table.rows.iter().map(|row| row.sampled.unwrap().0).collect::<Vec<_>>(), [20, 20]);
        assert_eq!(table.rows.iter().map(|row| row.deltas.get(MinorFaults)).collect::<Vec<_>>(), [Some(2), Some(0)]);
        assert_eq!(table.problems, Vec::<String>::new());
        // Not one from before it was reached.
        let table = StageTable::build(vec![reached("late", 25, Some(40)), reached("a", 26, Some(20))], &run);
        assert_eq!(table.rows[0].sampled, Some(At(40)));
    }

    #[test]
    fn deltas_are_since_the_mark_before_and_absent_where_either_end_is() {
        let run = run(vec![
            sample(10, &[(MinorFaults, 7), (ReadBytes, 5)]),
            sample(20, &[(MinorFaults, 9)]),
            sample(30, &[(MinorFaults, 8), (ReadBytes, 50)]),
        ]);
        let table =
            StageTable::build(vec![reached("a", 10, None), reached("b", 20, None), reached("c", 30, None)], &run);
        let deltas = |metric| table.rows.iter().map(|row| row.deltas.get(metric)).collect::<Vec<_>>();
        // The last is a counter that fell: no delta, and a problem that names it.
        assert_eq!(deltas(MinorFaults), [Some(7), Some(2), None]);
        assert_eq!(deltas(ReadBytes), [Some(5), None, None]);
        assert_eq!(deltas(WcharBytes), [None, None, None]);
        assert!(
            table.problems.iter().any(|problem| problem.contains("minor_faults fell from 9 to 8")),
            "{:?}",
            table.problems
        );
        assert!(table.problems.iter().any(|problem| problem.starts_with("c: minor_faults")), "{:?}", table.problems);
    }

    #[test]
    fn peaks_are_lower_bounds_over_closed_intervals() {
        let levels = [(-5, 900), (0, 3), (10, 8), (20, 4), (30, 6), (40, 5), (50, 99)];
        let run = run(levels.map(|(t, level)| sample(t, &[(RssBytes, level)])).into());
        let table = StageTable::build(vec![reached("a", 20, None), reached("b", 40, Some(40))], &run);
        let low = |peak: Option<Peak>| {
            let peak = peak.unwrap();
            assert_eq!((peak.high, peak.basis), (None, Basis::Sampled));
            peak.low.unwrap()
        };
        // What was before the start is not the launch's, and what is after the mark is not the interval's.
        assert_eq!((low(table.rows[0].peak(RssBytes)), low(table.rows[0].span_peak(RssBytes))), (8, 8));
        assert_eq!((low(table.rows[1].peak(RssBytes)), low(table.rows[1].span_peak(RssBytes))), (8, 6));
        assert_eq!(table.rows[1].change(RssBytes), Some(1));
        assert_eq!(table.rows[0].change(RssBytes), None);
        assert_eq!(table.rows[1].peak(SwapBytes), None);
        assert_eq!(table.rows[1].peak(MinorFaults), None);
    }

    #[test]
    fn values_that_contradict_themselves_are_said_once_and_kept() {
        let broken =
            [(PayloadBytes, 10), (ResidentPayloadBytes, 4), (NonresidentPayloadBytes, 7), (MappedPayloadBytes, 11)];
        let run = run(vec![sample(1, &broken), sample(2, &broken), sample(3, &[(RssBytes, 5), (RssAnonBytes, 5)])]);
        let table = StageTable::build(vec![reached("a", 1, None)], &run);
        assert_eq!(table.problems.len(), 2, "{:?}", table.problems);
        assert!(table.problems[0].contains("do not add up to the payload 10 (and in 1 more samples)"));
        assert_eq!(table.rows[0].values.get(NonresidentPayloadBytes), Some(7));
    }

    #[test]
    fn the_reason_of_an_absence_is_the_last_one_before_it() {
        let mut run = run(Vec::new());
        let what = |at, what| Event { at: At(at), uncertainty_ns: Some(0), what };
        run.events = vec![
            what(5, What::Absent { metric: RssBytes, reason: "denied".into() }),
            what(9, What::Present { metric: RssBytes }),
        ];
        assert_eq!(reason_of_absence(&run, RssBytes, At(4)), Some("not in the published figures"));
        assert_eq!(reason_of_absence(&run, RssBytes, At(5)), Some("denied"));
        assert_eq!(reason_of_absence(&run, RssBytes, At(10)), None);
        assert_eq!(reason_of_absence(&run, PayloadBytes, At(10)), None);
    }
}
