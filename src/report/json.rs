//! The whole stage table as JSON, for programs: what `stages.csv` has, with a reason beside each value that is absent,
//! the findings, the start condition, and what is to be known of the run.
//!
//! Names are the columns' own, units in them; values are exact integers, ratios decimal numbers, and null is absent,
//! never 0. Keys stand in the order of the columns.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::account::host::{Bounds, Part};
use crate::account::ratios::{RATIOS, Thousandths};
use crate::account::source::{DataFrom, Verdict};
use crate::account::{AFTER, Absences, Peak, StageRow, StageTable};
use crate::clock::At;
use crate::event::text_of;
use crate::finding::{self, Finding};
use crate::metric::{ALL, Metric};
use crate::run::Run;
use crate::run::meta::{Condition, Cost, Exit};
use crate::stage::Status;

use super::findings::shown;
use super::text::plain;

/// The version of this form: names are added, never renamed.
const FORM: u32 = 1;

/// The run as JSON, ended by a line end.
///
/// # Errors
/// None that is known: every key is text.
pub fn text(run: &Run, table: &StageTable) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&Document::of(run, table))?;
    text.push('\n');
    Ok(text)
}

/// An object whose keys stand in the order in which they were put.
struct Object<K, V>(Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for Object<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct Document {
    form: u32,
    /// The version that recorded the run.
    stagemark: String,
    run: String,
    argv: Vec<String>,
    started: String,
    stage_file: String,
    stages_digest: String,
    condition: Condition,
    /// The stopping event that was asked for, and whether it was reached.
    until: Option<String>,
    stopping_event: Option<String>,
    stages: Vec<Stage>,
    findings: Vec<Finding>,
    exit: Option<Exit>,
    cost: Option<Cost>,
    warnings: Vec<String>,
    /// What could not be written of the run, what could not be read of it, and where its values contradict themselves.
    losses: Vec<String>,
    gaps: Vec<String>,
    problems: Vec<String>,
}

#[derive(serde::Serialize)]
struct Stage {
    stage: String,
    status: Status,
    reason: String,
    begin_ns: Option<At>,
    t_ns: Option<At>,
    /// Null beside a time: the event may have been any time before it.
    uncertainty_ns: Option<u64>,
    evidence: Option<crate::event::Evidence>,
    detail: Option<String>,
    sampled_ns: Option<At>,
    /// At the mark; null where absent.
    values: Object<Metric, Option<u64>>,
    /// Why each null in `values` is one.
    absent: Object<Metric, String>,
    /// Of counters, since the previous mark.
    deltas: Object<Metric, Option<u64>>,
    /// Of levels, since the previous mark.
    changes: Object<Metric, Option<i64>>,
    /// Over start → stage.
    peaks: Object<Metric, Option<Extent>>,
    /// Over previous mark → stage.
    span_peaks: Object<Metric, Option<Extent>>,
    host: Host,
    ratios: Object<&'static str, Option<Thousandths>>,
    data_from: From,
    data_from_start: From,
    unaccounted_faults_low: Option<u64>,
    unaccounted_cpu_high_ns: Option<u64>,
    /// From the mark to the stopping event.
    after: Object<Metric, Option<i64>>,
}

/// A peak's bounds and how they are known.
#[derive(serde::Serialize)]
struct Extent {
    low: Option<u64>,
    high: Option<u64>,
    basis: &'static str,
}

/// The host account.
#[derive(serde::Serialize)]
struct Host {
    parts: Object<&'static str, Between>,
    host_swap_bytes: Option<u64>,
    host_bytes: Between,
    basis: String,
}

#[derive(serde::Serialize)]
struct Between {
    low: Option<u64>,
    high: Option<u64>,
}

impl From {
    fn of(verdict: Option<&Verdict>) -> From {
        From {
            from: verdict.and_then(|verdict| verdict.from).map(DataFrom::name),
            reason: verdict.map(|verdict| plain(&verdict.reason)),
        }
    }
}

/// Where data came from: null where nothing was loaded, or, without a reason, where there was no sample.
#[derive(serde::Serialize)]
struct From {
    from: Option<&'static str>,
    reason: Option<String>,
}

impl Document {
    fn of(run: &Run, table: &StageTable) -> Document {
        let meta = &run.meta;
        let lines = |texts: &[String]| texts.iter().map(|text| plain(text)).collect();
        let mut before = None;
        let (stop, absences) = (table.stopping_row(), Absences::of(run));
        let stages = table.rows.iter().map(|row| Stage::of(&absences, stop, row, before.replace(row)));
        Document {
            form: FORM,
            stagemark: plain(&meta.stagemark),
            run: text_of(&run.folder),
            argv: lines(&meta.argv),
            started: plain(&meta.started),
            stage_file: plain(&meta.stages.name),
            stages_digest: plain(&meta.stages_digest),
            condition: meta.condition.clone(),
            until: meta.until.as_deref().map(plain),
            stopping_event: table.stopping_event.as_deref().map(plain),
            stages: stages.collect(),
            findings: finding::findings(run, table).iter().map(shown).collect(),
            exit: meta.exit.clone(),
            cost: meta.cost.clone(),
            warnings: lines(&meta.warnings),
            losses: lines(&meta.losses),
            gaps: lines(&run.gaps),
            problems: lines(&table.problems),
        }
    }
}

impl Stage {
    fn of(absences: &Absences, stop: Option<&StageRow>, row: &StageRow, before: Option<&StageRow>) -> Stage {
        let outcome = &row.outcome;
        let mark = outcome.mark.as_ref();
        let at = row.sampled.or(row.at()).unwrap_or(At(i64::MAX));
        let reasons = absences.at(at);
        let why = |metric: &Metric| match (row.at(), row.sampled) {
            (None, _) => "the stage was not reached".to_owned(),
            (_, None) => "no sample was taken".to_owned(),
            _ => reasons.get(metric).map_or_else(|| "no reason recorded".to_owned(), |why| plain(why)),
        };
        let absent = ALL.iter().filter(|metric| row.values.get(**metric).is_none());
        let gauges = |peak: fn(&StageRow, Metric) -> Option<Peak>| {
            Object(Metric::gauges().map(|metric| (metric, peak(row, metric).map(Extent::of))).collect())
        };
        Stage {
            stage: plain(&outcome.stage),
            status: outcome.status,
            reason: plain(&outcome.reason),
            begin_ns: outcome.begin,
            t_ns: row.at(),
            uncertainty_ns: mark.and_then(|(_, uncertainty, _)| *uncertainty),
            evidence: mark.map(|(_, _, mark)| mark.evidence),
            detail: mark.map(|(_, _, mark)| plain(&mark.detail)),
            sampled_ns: row.sampled,
            values: Object(row.values.iter().collect()),
            absent: Object(absent.map(|metric| (*metric, why(metric))).collect()),
            deltas: Object(Metric::counters().map(|metric| (metric, row.deltas.get(metric))).collect()),
            changes: Object(Metric::levels().map(|metric| (metric, row.change(metric))).collect()),
            peaks: gauges(StageRow::peak),
            span_peaks: gauges(StageRow::span_peak),
            host: Host {
                parts: Object(
                    Part::ALL.iter().map(|part| (part.column(), Between::of(row.host.part(*part)))).collect(),
                ),
                host_swap_bytes: row.host.swap,
                host_bytes: Between::of(row.host.total),
                basis: plain(&row.host.basis),
            },
            ratios: Object(RATIOS.iter().map(|ratio| (ratio.name, (ratio.of)(row, before))).collect()),
            data_from: From::of(row.work.source.as_ref()),
            data_from_start: From::of(row.work.source_from_start.as_ref()),
            unaccounted_faults_low: row.work.unaccounted_faults_low,
            unaccounted_cpu_high_ns: row.work.unaccounted_cpu_high_ns,
            after: Object(AFTER.iter().map(|metric| (*metric, row.rise_to(stop, *metric))).collect()),
        }
    }
}

impl Extent {
    fn of(peak: Peak) -> Extent {
        Extent { low: peak.low, high: peak.high, basis: peak.basis.name() }
    }
}

impl Between {
    fn of(bounds: Bounds) -> Between {
        Between { low: bounds.low, high: bounds.high }
    }
}
