//! A series compared: the runs of each arm at one stopping event, and pair by pair. Pure: the same folder gives the same
//! comparison, when the series ends and ever after.
//!
//! In it are the runs of the series proper, but for those that were interrupted, and for those that failed before the
//! stopping event: each that is left out is named, and its round has no pair.

use std::path::Path;

use serde_json::{Value, json};

use super::output::{digests, verdicts};
use super::series::{RunEntry, RunState, Series, SeriesState};
use crate::account::StageTable;
use crate::account::host::Bounds;
use crate::account::ratios::Thousandths;
use crate::compare::series::{Envelope, Pair, Remark, Verdict, exact, remarks};
use crate::compare::{Arm, Cell, Comparison, Figure, Quantity, Stage};
use crate::metric::Metric;
use crate::report::compare::terminal::name;
use crate::report::compare::{paired, words};
use crate::report::terminal::Page;
use crate::report::text::plain;
use crate::run::meta::wished;
use crate::run::{Run, RunError};

/// The runs of a series, arm by arm.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub arms: Vec<Arm>,
    /// The round of each run of each arm.
    rounds: Vec<Vec<usize>>,
    /// What was left out, and why; what failed; what did not begin as it was meant to.
    pub notes: Vec<String>,
}

impl Loaded {
    /// Loads the runs; the contents' digests that the series has are theirs too. `at`: the stage at which they are compared,
    /// else the series' own.
    ///
    /// # Errors
    /// A run folder cannot be read.
    pub fn of(folder: &Path, series: &Series, at: Option<&String>) -> Result<Loaded, RunError> {
        let (mut arms, mut rounds, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for entry in &series.arms {
            let (name, given) = (&entry.name, &entry.environment);
            let mut arm = Arm { name: name.clone(), runs: Vec::new() };
            let mut own = Vec::new();
            for entry in series.runs.iter().filter(|entry| entry.arm == *name && !entry.warmup) {
                if entry.state == RunState::Interrupted {
                    notes.push(format!("run {} ({name}) was interrupted and is left out", entry.number));
                    continue;
                }
                let run = Run::load(&folder.join(entry.folder()))?;
                let table = StageTable::of(&run);
                let at_end = at.or(series.until.as_ref()).or(run.meta.until.as_ref());
                let is_at_end = at_end.is_some_and(|end| table.reached().any(|row| row.outcome.stage == *end));
                if entry.state == RunState::Failed {
                    let reached = match is_at_end {
                        true => "after the event at which it is compared",
                        false => "before that event, and is left out",
                    };
                    notes.push(failed(entry, reached));
                    if !is_at_end {
                        continue;
                    }
                }
                notes.extend(missed(entry, &run));
                own.push(entry.round);
                let mut run = with_contents(run, series);
                // What was given to an arm alone is a difference, whether or not runs keep that variable.
                for (name, value) in given {
                    run.meta.environment.entry(name.clone()).or_insert_with(|| value.clone());
                }
                arm.runs.push((run, table));
            }
            arms.push(arm);
            rounds.push(own);
        }
        Ok(Loaded { arms, rounds, notes })
    }
}

/// That a run did not begin in the condition that was asked for.
fn missed(entry: &RunEntry, run: &Run) -> Option<String> {
    let condition = &run.meta.condition;
    let (asked, reached) = (condition.asked.as_ref()?, condition.reached.as_ref()?);
    let is_so = wished(asked).is_some_and(|wished| wished == reached);
    (!is_so).then(|| format!("run {} ({}) began {reached}, not {asked} as was asked for", entry.number, entry.arm))
}

fn failed(entry: &RunEntry, when: &str) -> String {
    let said = entry.said.as_ref().and_then(|said| said.lines().next_back()).map(|said| format!(": {said}"));
    format!(
        "run {} ({}) failed with exit status {} {when}{}",
        entry.number,
        entry.arm,
        entry.status,
        said.unwrap_or_default()
    )
}

/// The run, its artifacts with the digests that were made before the series, where they are of the same files.
fn with_contents(mut run: Run, series: &Series) -> Run {
    for artifact in &mut run.meta.artifacts {
        let same = |content: &&super::Content| {
            (&content.real_path, content.size_bytes, content.modified_ns)
                == (&artifact.real_path, artifact.size_bytes, artifact.modified_ns)
        };
        if let Some(content) = series.identity.iter().find(same) {
            artifact.content_sha256 = content.sha256.clone();
            artifact.content_reason = content.reason.clone();
        }
    }
    run
}

/// One figure of an arm against the reference's.
struct Against<'a> {
    arm: &'a str,
    pairs: Vec<Pair>,
    verdict: Verdict,
}

/// One figure, pair by pair.
struct Paired<'a> {
    of: Quantity,
    /// Of each arm: its name, its values in order, and what is odd about them.
    arms: Vec<(&'a str, Vec<Bounds>, Vec<Remark>)>,
    against: Vec<Against<'a>>,
}

fn bounds(cell: &Cell) -> Bounds {
    cell.as_ref().map_or(Bounds::ABSENT, |known| Bounds { low: known.low, high: known.high })
}

impl<'a> Paired<'a> {
    fn of(figure: &Figure, loaded: &'a Loaded) -> Paired<'a> {
        let cells = |arm: usize| figure.cells.get(arm).map(Vec::as_slice).unwrap_or_default();
        let values = |arm: usize| -> Vec<Bounds> { cells(arm).iter().map(bounds).collect() };
        let arms = loaded.arms.iter().enumerate().map(|(arm, this)| {
            let values = values(arm);
            let exact: Option<Vec<u64>> = values.iter().map(|value| exact(*value)).collect();
            // A time's uncertainty is small beside what makes runs differ; of other bounds no shape is read.
            let shape: Option<Vec<u64>> = match figure.of.is_time() {
                true => values.iter().map(|value| value.high).collect(),
                false => exact,
            };
            (this.name.as_str(), values, remarks(&shape.unwrap_or_default()))
        });
        let against = loaded.arms.iter().enumerate().skip(1).map(|(arm, this)| {
            let pairs = pairs(&figure_rounds(loaded, 0, cells(0)), &figure_rounds(loaded, arm, cells(arm)));
            Against { arm: &this.name, verdict: Verdict::of(&pairs), pairs }
        });
        Paired { of: figure.of, arms: arms.collect(), against: against.collect() }
    }
}

/// The figure of each round of an arm.
fn figure_rounds(loaded: &Loaded, arm: usize, cells: &[Cell]) -> Vec<(usize, Bounds)> {
    let rounds = loaded.rounds.get(arm).map(Vec::as_slice).unwrap_or_default();
    let known = |(round, cell): (&usize, &Cell)| cell.is_ok().then(|| (*round, bounds(cell)));
    rounds.iter().zip(cells).filter_map(known).collect()
}

fn pairs(reference: &[(usize, Bounds)], other: &[(usize, Bounds)]) -> Vec<Pair> {
    let pair = |(round, other): &(usize, Bounds)| {
        let (_, reference) = reference.iter().find(|(of, _)| of == round)?;
        Some(Pair { reference: *reference, other: *other })
    };
    let mut pairs: Vec<(usize, Pair)> = other.iter().filter_map(|of| Some((of.0, pair(of)?))).collect();
    pairs.sort_by_key(|(round, _)| *round);
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

/// What is told of in the terminal, where a run has it; JSON has every figure.
fn is_told(stage: &Stage, figure: &Figure) -> bool {
    use Metric::*;
    // Host memory, device memory and time stand first.
    let is_first = stage.figures.iter().take(3).any(|first| first.of == figure.of);
    is_first || matches!(figure.of, Quantity::Delta(ReadBytes | MajorFaults) | Quantity::Peak(RssBytes))
}

/// What the series adds to a comparison, in words; where nothing is compared, what is to be said all the same.
pub fn told(series: &Series, loaded: &Loaded, comparison: Option<&Comparison>) -> paired::Paired {
    let stage = comparison.and_then(Comparison::at_the_end);
    let figures = stage.into_iter().flat_map(|stage| stage.figures.iter().filter(|figure| is_told(stage, figure)));
    let figures = figures
        .map(|figure| Paired::of(figure, loaded))
        .filter(|paired| paired.arms.iter().any(|(_, values, _)| values.iter().any(|value| *value != Bounds::ABSENT)));
    let outputs = verdicts(series).into_iter().map(|verdict| paired::Output {
        digests: digests(series, &verdict.of),
        of: verdict.of,
        verdict: verdict.words,
    });
    let mut notes = loaded.notes.clone();
    notes.extend(state(series));
    paired::Paired { figures: figures.map(|figure| words_of(&figure)).collect(), outputs: outputs.collect(), notes }
}

fn words_of(paired: &Paired) -> paired::Figure {
    let shown = |amount: u64| words::amount_of(paired.of.unit(), amount);
    let all: Vec<Option<u64>> =
        paired.arms.iter().flat_map(|(_, values, _)| values).map(|value| exact(*value)).collect();
    let all_same = match &all[..] {
        [Some(first), rest @ ..] if rest.iter().all(|value| *value == Some(*first)) => Some((shown(*first), all.len())),
        _ => None,
    };
    let arms = paired.arms.iter().map(|(arm, values, odd)| paired::ArmValues {
        arm: (*arm).to_owned(),
        values: listed(paired.of, values, &shown),
        remarks: odd.iter().map(|remark| remark.words(&shown)).collect(),
    });
    let against = paired.against.iter().map(|against| {
        let ratios: Vec<Thousandths> = against.pairs.iter().filter_map(|pair| pair_ratio(paired.of, pair)).collect();
        let middle = Envelope::of(&ratios.iter().map(|ratio| ratio.0).collect::<Vec<u64>>());
        let all: Vec<String> = ratios.iter().map(Thousandths::to_string).collect();
        let ratios = match (middle, ratios.len()) {
            (Some(_), 1) if against.pairs.len() == 1 => all.join(""),
            (Some(Envelope { median, .. }), pairs) if pairs == against.pairs.len() => {
                format!("{}, median {}", all.join(" "), Thousandths(median))
            }
            _ => String::new(),
        };
        paired::Against { arm: against.arm.to_owned(), ratios, verdict: against.verdict.words() }
    });
    paired::Figure { of: paired.of, all_same, arms: arms.collect(), against: against.collect() }
}

/// The verdicts for a terminal, below the comparison.
pub fn text(told: &paired::Paired, loaded: &Loaded, comparison: &Comparison) -> String {
    let mut page = Page::default();
    if let Some(stage) = comparison.at_the_end() {
        let reference = loaded.arms.first().map(|arm| arm.name.as_str()).unwrap_or_default();
        page.blank();
        page.line(&format!("Pair by pair at {}, ÷ {reference}:", plain(&stage.name)));
        told.figures.iter().for_each(|figure| tell(&mut page, figure));
    }
    end(&mut page, told);
    page.text()
}

/// What is said below a comparison, or in its place where it is refused.
pub fn end(page: &mut Page, told: &paired::Paired) {
    if !told.outputs.is_empty() {
        page.blank();
        told.outputs.iter().for_each(|output| page.line(&plain(&format!("output {}: {}", output.of, output.verdict))));
    }
    if !told.notes.is_empty() {
        page.blank();
        told.notes.iter().for_each(|why| page.line(&plain(why)));
    }
}

/// How far the series came, where that is not all there is to say.
fn state(series: &Series) -> Option<String> {
    let (ran, meant) = (series.runs.len(), series.order.len());
    let why = series.problem.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    match series.state {
        SeriesState::Done if why.is_empty() => None,
        SeriesState::Done => Some(format!("All {ran} runs were made{why}")),
        SeriesState::Running => Some(format!("The series is running, or was killed, after {ran} of {meant} runs")),
        SeriesState::Interrupted | SeriesState::Failed => {
            Some(format!("The series ended after {ran} of {meant} runs{why}"))
        }
    }
}

fn tell(page: &mut Page, figure: &paired::Figure) {
    let name = name(figure.of);
    if let Some((value, runs)) = &figure.all_same {
        page.raw(&format!("{}: {value} in all {runs} runs", plain(name.trim())));
        return;
    }
    page.raw(&plain(name.trim()));
    for arm in &figure.arms {
        page.indented(2, &format!("{}: {}", arm.arm, arm.values));
        arm.remarks.iter().for_each(|remark| page.indented(5, remark));
    }
    for against in &figure.against {
        let ratios = if against.ratios.is_empty() { String::new() } else { format!(" {}", against.ratios) };
        page.indented(2, &format!("{} ÷{ratios}: {}", against.arm, against.verdict));
    }
}

/// The values in order, and of several exact ones their median and envelope. A time is that of its mark, with how much
/// earlier it may have been where that is a hundredth of it or more.
fn listed(of: Quantity, values: &[Bounds], shown: &dyn Fn(u64) -> String) -> String {
    let figure = |value: &Bounds| if of.is_time() { value.high } else { exact(*value) };
    let figures: Option<Vec<u64>> = values.iter().map(figure).collect();
    let Some(figures) = figures else {
        return values.iter().map(|value| bounded(*value, shown)).collect::<Vec<_>>().join(", ");
    };
    let mut text = figures.iter().map(|figure| shown(*figure)).collect::<Vec<_>>().join(", ");
    if let Some(Envelope { min, median, max }) = Envelope::of(&figures).filter(|_| figures.len() > 1) {
        text.push_str(&format!("; median {}, {} to {}", shown(median), shown(min), shown(max)));
    }
    let earlier = |value: &Bounds| Some(value.high?.saturating_sub(value.low?));
    match values.iter().map(earlier).collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max()) {
        None => text.push_str("; by how much it may have been earlier is not known"),
        Some(most) if of.is_time() && figures.iter().any(|figure| most.saturating_mul(100) >= *figure && most > 0) => {
            text.push_str(&format!("; may have been up to {} earlier", shown(most)));
        }
        Some(_) => {}
    }
    text
}

/// The ratio of a pair; of times that of the marks, whose uncertainty the verdict has in it.
fn pair_ratio(of: Quantity, pair: &Pair) -> Option<Thousandths> {
    match of.is_time() {
        true => Thousandths::of(pair.other.high?, pair.reference.high?),
        false => pair.ratio(),
    }
}

fn bounded(value: Bounds, shown: &dyn Fn(u64) -> String) -> String {
    match (value.low, value.high) {
        (Some(low), Some(high)) if shown(low) == shown(high) => shown(high),
        (Some(low), Some(high)) => format!("{} to {}", shown(low), shown(high)),
        (Some(low), None) => format!("at least {}", shown(low)),
        (None, Some(high)) => format!("at most {}", shown(high)),
        (None, None) => "absent".to_owned(),
    }
}

/// What a series adds to the comparison's JSON.
pub fn json(series: &Series, loaded: &Loaded, comparison: Option<&Comparison>) -> Value {
    let figures: Vec<Value> = comparison
        .and_then(Comparison::at_the_end)
        .map(|stage| stage.figures.iter().map(|figure| figure_json(&Paired::of(figure, loaded))).collect())
        .unwrap_or_default();
    json!({
        "state": series.state,
        "problem": series.problem,
        "cache": series.cache,
        "order": series.order,
        "runs": series.runs,
        "notes": loaded.notes,
        "outputs": verdicts(series),
        "pairs": figures,
    })
}

fn figure_json(paired: &Paired) -> Value {
    let plainly = |amount: u64| amount.to_string();
    let of_bounds = |value: &Bounds| json!({"low": value.low, "high": value.high});
    let arms: Vec<Value> = paired
        .arms
        .iter()
        .map(|(arm, values, odd)| {
            let remarks: Vec<String> = odd.iter().map(|remark| remark.words(&plainly)).collect();
            let all: Option<Vec<u64>> = values.iter().map(|value| exact(*value)).collect();
            let envelope = all.as_deref().and_then(Envelope::of);
            json!({
                "arm": arm,
                "values": values.iter().map(of_bounds).collect::<Vec<_>>(),
                "median": envelope.map(|envelope| envelope.median),
                "envelope": of_bounds(&Envelope::of_bounds(values)),
                "remarks": remarks,
            })
        })
        .collect();
    let against: Vec<Value> = paired
        .against
        .iter()
        .map(|against| {
            let pairs: Vec<Value> = against
                .pairs
                .iter()
                .map(|pair| {
                    let thousandths = pair_ratio(paired.of, pair).map(|ratio| ratio.0);
                    json!({
                        "reference": of_bounds(&pair.reference),
                        "other": of_bounds(&pair.other),
                        "ratio_thousandths": thousandths,
                    })
                })
                .collect();
            json!({
                "arm": against.arm,
                "pairs": pairs,
                "is_verdict": against.verdict.is_final(),
                "answer": against.verdict.answer.word(),
                "words": against.verdict.words(),
            })
        })
        .collect();
    json!({"metric": paired.of.name(), "arms": arms, "against": against})
}
