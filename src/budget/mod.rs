//! Whether a run kept to limits: a TOML file of them, one table a stage, against the run's stage table. Pure.
//!
//! ```toml
//! [first_response]
//! time_s = 60
//! host_bytes = "12 GiB"
//! device_peak = "70 GiB"
//! peak_rss_bytes = "20 GiB"
//! delta_major_faults = 1000
//! ```
//!
//! Every limit is the most that is allowed. A figure that is only bounded keeps it where its high bound does and breaks
//! it where its low bound does; between the two, and where a figure is absent, it cannot be known, and is not called kept.
//! A stage that was not reached breaks a limit of time once the run was watched for longer than that.

mod file;
mod table;

use std::path::Path;

use crate::account::host::{Bounds, Part};
use crate::account::ratios::RATIOS;
use crate::account::{StageRow, StageTable, reason_of_absence};
use crate::clock::At;
use crate::event::text_of;
use crate::metric::{ALL, Metric, Unit};
use crate::report;
use crate::run::Run;
use crate::stage::Status;
use crate::stage::file::hint;

pub use file::{Budget, Limit};

/// What a limit is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Start → mark.
    Time,
    /// The host account's total.
    Host,
    HostPart(Part),
    /// A metric at the mark.
    Value(Metric),
    /// Of a counter, since the mark before.
    Delta(Metric),
    /// Of a gauge, over start → mark.
    Peak(Metric),
    /// Of a gauge, over the mark before → mark.
    SpanPeak(Metric),
    /// A ratio, by its place among them.
    Ratio(usize),
}

/// Names that a limit may have beside those of the columns.
const TIME_S: &str = "time_s";
const TIME: &str = "time";
const DEVICE_PEAK: &str = "device_peak";
const HOST: &str = "host_bytes";

impl Key {
    /// By its name in a budget; peaks have no `_low` and `_high` there.
    fn of(name: &str) -> Option<Key> {
        let metric = |name: &str| ALL.iter().copied().find(|metric| metric.name() == name);
        let gauge = |name: &str| Metric::gauges().find(|metric| metric.name() == name);
        Some(match name {
            TIME_S | TIME | "t_ns" => Key::Time,
            HOST => Key::Host,
            DEVICE_PEAK => Key::Peak(Metric::DeviceLaunchBytes),
            name => {
                if let Some(metric) = metric(name) {
                    Key::Value(metric)
                } else if let Some(counter) = name.strip_prefix("delta_") {
                    Key::Delta(Metric::counters().find(|metric| metric.name() == counter)?)
                } else if let Some(of) = name.strip_prefix("span_peak_") {
                    Key::SpanPeak(gauge(of)?)
                } else if let Some(of) = name.strip_prefix("peak_") {
                    Key::Peak(gauge(of)?)
                } else if let Some(place) = RATIOS.iter().position(|ratio| ratio.name == name) {
                    Key::Ratio(place)
                } else {
                    Key::HostPart(Part::ALL.into_iter().find(|part| part.column() == name)?)
                }
            }
        })
    }

    /// Every name that a limit may have.
    fn names() -> Vec<String> {
        let own = [TIME_S, TIME, HOST, DEVICE_PEAK].map(str::to_owned);
        let prefixed = |prefix: &'static str| move |metric: Metric| format!("{prefix}{}", metric.name());
        own.into_iter()
            .chain(Part::ALL.iter().map(|part| part.column().to_owned()))
            .chain(ALL.iter().copied().map(prefixed("")))
            .chain(Metric::counters().map(prefixed("delta_")))
            .chain(Metric::gauges().map(prefixed("peak_")))
            .chain(Metric::gauges().map(prefixed("span_peak_")))
            .chain(RATIOS.iter().map(|ratio| ratio.name.to_owned()))
            .collect()
    }

    /// `None` of a ratio, which is in thousandths.
    fn unit(self) -> Option<Unit> {
        match self {
            Key::Time => Some(Unit::Nanoseconds),
            Key::Host | Key::HostPart(_) => Some(Unit::Bytes),
            Key::Value(metric) | Key::Delta(metric) | Key::Peak(metric) | Key::SpanPeak(metric) => {
                Some(metric.definition().unit)
            }
            Key::Ratio(_) => None,
        }
    }

    /// The figure at a row, as far as it is bounded; `before` is the row before it.
    fn figure(self, row: &StageRow, before: Option<&StageRow>) -> Bounds {
        let exactly = |value: Option<u64>| value.map_or(Bounds::ABSENT, Bounds::exactly);
        match self {
            Key::Time => match &row.outcome.mark {
                Some((at, uncertainty, _)) => {
                    let high = u64::try_from(at.0).unwrap_or(0);
                    Bounds { low: uncertainty.map(|uncertainty| high.saturating_sub(uncertainty)), high: Some(high) }
                }
                None => Bounds::ABSENT,
            },
            Key::Host => row.host.total,
            Key::HostPart(part) => row.host.part(part),
            Key::Value(metric) => exactly(row.values.get(metric)),
            Key::Delta(metric) => exactly(row.deltas.get(metric)),
            Key::Peak(metric) => {
                row.peak(metric).map_or(Bounds::ABSENT, |peak| Bounds { low: peak.low, high: peak.high })
            }
            Key::SpanPeak(metric) => {
                row.span_peak(metric).map_or(Bounds::ABSENT, |peak| Bounds { low: peak.low, high: peak.high })
            }
            Key::Ratio(place) => {
                exactly(RATIOS.get(place).and_then(|ratio| (ratio.of)(row, before)).map(|thousandths| thousandths.0))
            }
        }
    }

    fn metric(self) -> Option<Metric> {
        match self {
            Key::Value(metric) | Key::Delta(metric) | Key::Peak(metric) | Key::SpanPeak(metric) => Some(metric),
            _ => None,
        }
    }
}

/// Whether a limit was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Kept,
    Broken,
    Unknown,
}

impl Answer {
    /// The word that files have for it.
    pub fn word(self) -> &'static str {
        match self {
            Answer::Kept => "kept",
            Answer::Broken => "broken",
            Answer::Unknown => "unknown",
        }
    }
}

/// A limit held against a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub limit: Limit,
    pub figure: Bounds,
    pub answer: Answer,
    /// Why it cannot be known, or what else is to say; empty where nothing is.
    pub reason: String,
}

/// Each limit held against the run, in the budget's order.
pub fn judge(budget: &Budget, run: &Run, table: &StageTable) -> Vec<Verdict> {
    budget.limits.iter().map(|limit| verdict(limit, run, table)).collect()
}

/// All limits together: broken where one is, else unknown where one is.
pub fn answer(verdicts: &[Verdict]) -> Answer {
    let any = |answer: Answer| verdicts.iter().any(|verdict| verdict.answer == answer);
    [Answer::Broken, Answer::Unknown].into_iter().find(|answer| any(*answer)).unwrap_or(Answer::Kept)
}

fn verdict(limit: &Limit, run: &Run, table: &StageTable) -> Verdict {
    let told =
        |figure: Bounds, answer: Answer, reason: String| Verdict { limit: limit.clone(), figure, answer, reason };
    let Some(place) = table.rows.iter().position(|row| row.outcome.stage == limit.stage) else {
        let names: Vec<&str> = table.rows.iter().map(|row| row.outcome.stage.as_str()).collect();
        return told(
            Bounds::ABSENT,
            Answer::Unknown,
            format!("the run has no such stage{}", hint(&limit.stage, &names)),
        );
    };
    let row = &table.rows[place];
    if row.outcome.mark.is_none() {
        return not_reached(limit, run, row);
    }
    let before = place.checked_sub(1).map(|before| &table.rows[before]);
    let figure = limit.key.figure(row, before);
    match figure {
        Bounds { high: Some(high), .. } if high <= limit.most => told(figure, Answer::Kept, String::new()),
        Bounds { low: Some(low), .. } if low > limit.most => told(figure, Answer::Broken, String::new()),
        Bounds::ABSENT => {
            let at = row.sampled.or(row.at()).unwrap_or(At(i64::MAX));
            let reason = limit.key.metric().and_then(|metric| reason_of_absence(run, metric, at));
            let reason = reason.map_or_else(|| "absent at this stage".to_owned(), |why| format!("absent: {why}"));
            told(figure, Answer::Unknown, reason)
        }
        Bounds { low: Some(_), high: Some(_) } => {
            told(figure, Answer::Unknown, "the limit lies between its bounds".to_owned())
        }
        Bounds { high: None, .. } => told(figure, Answer::Unknown, "it has no upper bound".to_owned()),
        Bounds { low: None, .. } => told(figure, Answer::Unknown, "it has no lower bound".to_owned()),
    }
}

/// Of a stage that could have been seen and was not, the time is more than that for which the run was watched.
fn not_reached(limit: &Limit, run: &Run, row: &StageRow) -> Verdict {
    let status = match row.outcome.status {
        Status::NotApplicable => "this launch has no such stage",
        Status::Unknown => "no source could have shown the stage",
        _ => "the stage was not reached",
    };
    let reason = match row.outcome.reason.as_str() {
        "" => status.to_owned(),
        why => format!("{status}: {why}"),
    };
    let watched = run.samples.last().and_then(|sample| u64::try_from(sample.t.0).ok());
    let low = watched.filter(|_| limit.key == Key::Time && row.outcome.status == Status::NotReached);
    let answer = if low.is_some_and(|low| low > limit.most) { Answer::Broken } else { Answer::Unknown };
    Verdict { limit: limit.clone(), figure: Bounds { low, high: None }, answer, reason }
}

/// `stagemark check`: the answer, and the table or JSON of it.
///
/// # Errors
/// The run or the budget cannot be read.
pub fn check(folder: &Path, budget: &Path, json: bool) -> anyhow::Result<(Answer, String)> {
    let budget = Budget::load(budget)?;
    let (run, table) = report::folder::load(folder)?;
    let verdicts = judge(&budget, &run, &table);
    let answer = answer(&verdicts);
    let text = match json {
        true => table::json(&text_of(folder), answer, &verdicts)?,
        false => table::text(answer, &verdicts),
    };
    Ok((answer, text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::account::{Basis, Peak};
    use crate::clock::At;
    use crate::event::{Evidence, Mark};
    use crate::metric::Values;
    use crate::sample::Sample;
    use crate::stage::Outcome;

    fn row(stage: &str, mark: Option<(i64, Option<u64>)>) -> StageRow {
        let mark = mark.map(|(at, uncertainty)| {
            let mark = Mark { stage: stage.into(), evidence: Evidence::Log, detail: String::new(), sampled: None };
            (At(at), uncertainty, mark)
        });
        let status = if mark.is_some() { Status::Reached } else { Status::NotReached };
        StageRow::of(Outcome { stage: stage.into(), status, reason: String::new(), begin: None, mark })
    }

    /// What a budget says of a run whose table has these rows, watched for 100 s.
    fn judged(budget: &str, rows: Vec<StageRow>) -> Vec<(Answer, String)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/runs/lazy");
        let mut run = Run::load(Path::new(folder)).unwrap();
        run.samples = vec![Sample { t: At(100_000_000_000), late_ns: 0, cost_ns: 0, values: Values::ABSENT }];
        let table = StageTable { rows, stopping_event: None, problems: Vec::new() };
        let budget = Budget::parse(budget, "b.toml").unwrap();
        judge(&budget, &run, &table).into_iter().map(|verdict| (verdict.answer, verdict.reason)).collect()
    }

    #[test]
    fn a_time_is_kept_broken_or_within_its_uncertainty() {
        let at = |uncertainty| vec![row("up", Some((60_000_000_000, uncertainty)))];
        let one = |budget: &str, uncertainty| judged(budget, at(uncertainty)).remove(0);
        assert_eq!(one("[up]\ntime_s = 60", Some(5)).0, Answer::Kept);
        assert_eq!(one("[up]\ntime = \"59.9 s\"", Some(5)).0, Answer::Broken);
        assert_eq!(
            one("[up]\ntime_s = 59.9", Some(200_000_000)),
            (Answer::Unknown, "the limit lies between its bounds".into())
        );
        assert_eq!(one("[up]\ntime_s = 59.9", None), (Answer::Unknown, "it has no lower bound".into()));
    }

    #[test]
    fn bounds_and_absence_are_not_called_kept() {
        let mut row = row("up", Some((5, Some(0))));
        row.peaks = vec![
            (Metric::RssBytes, Peak { low: Some(10 << 30), high: Some(12 << 30), basis: Basis::Bounds }),
            (Metric::DeviceLaunchBytes, Peak { low: Some(70 << 30), high: None, basis: Basis::Sampled }),
        ];
        row.host.total = Bounds { low: Some(1 << 30), high: Some(2 << 30) };
        row.values.set(Metric::ReadBytes, 7);
        let found = judged(
            "[up]\npeak_rss_bytes = \"12 GiB\"\nhost_bytes = \"1.5 GiB\"\ndevice_peak = \"69 GiB\"\nread_bytes = 6\n\
             swap_bytes = 1",
            vec![row.clone()],
        );
        let answers: Vec<Answer> = found.iter().map(|found| found.0).collect();
        use Answer::{Broken, Kept, Unknown};
        assert_eq!(answers, [Kept, Unknown, Broken, Broken, Unknown], "{found:?}");
        assert!(found[4].1.starts_with("absent"), "{found:?}");
        let found = judged("[up]\ndevice_peak = \"80 GiB\"", vec![row]);
        assert_eq!(found, [(Unknown, "it has no upper bound".to_owned())]);
    }

    #[test]
    fn a_stage_that_never_came_breaks_a_time_and_nothing_else() {
        let found = judged("[up]\ntime_s = 99\nrss_bytes = 1\n[down]\ntime_s = 1", vec![row("up", None)]);
        assert_eq!(found[0], (Answer::Broken, "the stage was not reached".into()));
        assert_eq!(found[1].0, Answer::Unknown);
        assert_eq!(found[2].0, Answer::Unknown);
        assert!(found[2].1.starts_with("the run has no such stage; expected `up`"), "{found:?}");
        assert_eq!(judged("[up]\ntime_s = 100", vec![row("up", None)])[0].0, Answer::Unknown);
    }

    #[test]
    fn every_name_is_a_key_and_once_only() {
        let names = Key::names();
        let unique: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        for name in &names {
            assert!(Key::of(name).is_some(), "{name}");
        }
        assert_eq!(Key::of("peak_minor_faults"), None, "a counter has no peak");
    }
}
