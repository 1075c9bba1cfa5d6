//! Stages: what their definitions say, which definitions a launch follows, and which events mark them. Pure: the same
//! events give the same marks, live and later from a run folder.

pub mod amount;
pub mod asked;
pub mod condition;
pub mod elsewhere;
pub mod file;
mod lack;
pub mod matcher;
mod measured;
pub mod trial;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::clock::At;
use crate::event::{Event, Evidence as MarkEvidence, Mark, Pid, What};
use crate::metric::Metric;
use crate::sample::Sample;
use crate::watch::Line;
use asked::Values;
pub use condition::Condition;
pub use file::{Definition, StageError, StageErrors, StageFile};
use lack::Evidence;
pub use matcher::{Matcher, Wanted};

/// Where a stage stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Reached,
    NotReached,
    /// The launch is of a kind that has no such stage.
    NotApplicable,
    /// No source could have shown it.
    Unknown,
}

/// What became of one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub stage: String,
    pub status: Status,
    /// Why there is no mark; empty where there is one.
    pub reason: String,
    /// When a span began; `None` for a stage that is a moment.
    pub begin: Option<At>,
    /// The mark, with its time and uncertainty.
    pub mark: Option<(At, Option<u64>, Mark)>,
}

/// What is known of a run beside its events.
#[derive(Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The stopping event at which the profiler ended the command, if it did.
    pub stopped_at: Option<&'a str>,
    /// The values of the stage file's variables, as far as they were known.
    pub values: Option<&'a Values>,
}

/// So many stages of a folder have a mark: no run records as many, and a forged one would take its reader's time.
const MOST_STAGES: usize = 16_384;

/// What became of each stage, in the stage file's order, then of those that only a notification named, in order of
/// time; from the recorded marks and whatever else explains their lack.
///
/// A mark by what the launch said, heard only after all of it was gone, is set to that end: so it stands before or at
/// the end, where it belongs.
pub fn outcomes(stages: &StageFile, events: &[Event], beside: Beside) -> Vec<Outcome> {
    let marked_from = events.iter().rposition(|event| replaces_marks(&event.what)).unwrap_or(0);
    let mut marks: Vec<(At, Option<u64>, &Mark)> = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for event in &events[marked_from..] {
        if let What::Mark(mark) = &event.what
            && known.len() < MOST_STAGES
            && known.insert(&mark.stage)
        {
            marks.push((event.at, event.uncertainty_ns, mark));
        }
    }
    if let Some(over) = all_gone(events) {
        marks.iter_mut().for_each(|mark| by_the_end(mark, over));
    }
    let client = elsewhere(events);
    let seen = Evidence::of(stages, events, beside, client.as_deref());
    let elsewhere = client.as_deref().filter(|_| !seen.opened());
    let reached = |mark: (At, Option<u64>, &Mark)| match elsewhere {
        Some(program) if !is_of_this_tree(mark.2.evidence) => told_from_elsewhere(program, mark),
        _ => reached(mark),
    };
    let began = |stage: &str| {
        events[marked_from..].iter().find_map(|event| match &event.what {
            What::Began { stage: this, .. } if this == stage => Some(event.at),
            _ => None,
        })
    };
    let is_marked = |stage: &str| marks.iter().any(|(_, _, mark)| mark.stage == stage);
    let mut outcomes: Vec<Outcome> = stages
        .stages
        .iter()
        .map(|stage| match marks.iter().find(|(_, _, mark)| mark.stage == stage.name) {
            // A notification may tell of the end of a span whose beginning was not seen.
            Some(mark) => Outcome { begin: began(&stage.name).filter(|began| *began <= mark.0), ..reached(*mark) },
            None => {
                let begin = began(&stage.name);
                let (status, reason) = seen.lack(stage, &began, &is_marked);
                Outcome { stage: stage.name.clone(), status, reason, begin, mark: None }
            }
        })
        .collect();
    let mut others: Vec<_> = marks.into_iter().filter(|(_, _, mark)| stages.stage(&mark.stage).is_none()).collect();
    others.sort_by_key(|(at, _, _)| *at);
    outcomes.extend(others.into_iter().map(reached));
    outcomes
}

/// When the last process of the launch was gone: the latest of their ends as told, each one's earliest. `None` where
/// one was not seen to end.
fn all_gone(events: &[Event]) -> Option<At> {
    // Of each pid, its last birth, and that process's end.
    let mut ends: BTreeMap<Pid, (At, Option<At>)> = BTreeMap::new();
    let mut exited = false;
    for event in events {
        match event.what {
            What::Born { pid, .. } => drop(ends.insert(pid, (event.at, None))),
            // The supervisor tells of the root's end what the tree may have seen before or after.
            What::Gone { pid, .. } | What::Exit { pid, .. } => {
                exited |= matches!(event.what, What::Exit { .. });
                let (born, end) = ends.entry(pid).or_insert((At(i64::MIN), None));
                // An end may be told when its number was given to another process already.
                if event.at >= *born {
                    *end = Some(end.map_or(event.at, |end| end.min(event.at)));
                }
            }
            _ => {}
        }
    }
    let ends: Option<Vec<At>> = ends.into_values().map(|(_, end)| end).collect();
    ends.filter(|_| exited)?.into_iter().max()
}

/// A line or a message that is heard when the last process was gone was sent before that, unless it is known to have
/// come later, from somebody else who holds the stream.
fn by_the_end((at, uncertainty_ns, mark): &mut (At, Option<u64>, &Mark), over: At) {
    let Ok(late) = u64::try_from(at.0.saturating_sub(over.0)) else { return };
    if outlives_the_launch(mark.evidence) && uncertainty_ns.is_none_or(|uncertainty| uncertainty >= late) {
        *at = over;
        *uncertainty_ns = uncertainty_ns.map(|uncertainty| uncertainty - late);
    }
}

/// The program that the launched command is, if that has others do the loading where this tree is not.
fn elsewhere(events: &[Event]) -> Option<String> {
    let mut execs = events.iter().filter_map(|event| match &event.what {
        What::Exec { pid, argv } => Some((*pid, argv)),
        _ => None,
    });
    let (root, first) = execs.next()?;
    let mut of_root = std::iter::once(first).chain(execs.filter(|(pid, _)| *pid == root).map(|(_, argv)| argv));
    of_root
        .find_map(|argv| elsewhere::client(argv))
        .filter(|client| client.is_remote)
        .map(|client| client.program.into())
}

/// Whether what shows a mark can only have happened in the launch's own tree.
fn is_of_this_tree(evidence: MarkEvidence) -> bool {
    matches!(evidence, MarkEvidence::Exit | MarkEvidence::Notify)
}

/// A client may print what it was told: the stage was reached, but not here, and figures of this tree are not its cost.
fn told_from_elsewhere(program: &str, (at, _, mark): (At, Option<u64>, &Mark)) -> Outcome {
    let reason = format!(
        "no artifact was seen opened in this tree: `{program}` told of it after {:.3} s, and has others do the loading",
        at.seconds()
    );
    Outcome { stage: mark.stage.clone(), status: Status::Unknown, reason, begin: None, mark: None }
}

fn reached((at, uncertainty_ns, mark): (At, Option<u64>, &Mark)) -> Outcome {
    Outcome {
        stage: mark.stage.clone(),
        status: Status::Reached,
        reason: String::new(),
        begin: None,
        mark: Some((at, uncertainty_ns, mark.clone())),
    }
}

/// How a process ended, in words.
pub(crate) fn ending(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "status not known".to_string(),
    }
}

const FOLLOWED: &str = "the stage file `";
const REPLACED: &str = "` fits a program that was started later: the marks before this are replaced by its own";

/// Says that the marks recorded so far are not those of the stage file now followed, whose own come next.
pub(crate) fn replacing_marks(stage_file: &str) -> What {
    What::warning(format!("{FOLLOWED}{stage_file}{REPLACED}"))
}

/// Whether this is what the matcher says when the marks before it no longer count.
pub fn replaces_marks(what: &What) -> bool {
    matches!(what, What::Warning { text } if text.starts_with(FOLLOWED) && text.ends_with(REPLACED))
}

/// Matches a recorded run again, also with other stage definitions: [`What::LogMatch`] and [`What::Mark`] events in the
/// order in which they follow, each mark with the first sample at or after it as its own.
///
/// `lines` is the command's output as far as it was kept. Each of the three is taken in the order in which it was
/// recorded, which is the order in which the launch's own matcher was fed: a notification may tell of a time before
/// what was seen when it came. Between them time decides, and at the same time events go before lines before samples.
/// The marks and log matches among `events` are passed over.
pub fn rematch(
    candidates: Vec<StageFile>,
    events: &[Event],
    lines: &[(At, Option<u64>, Line)],
    samples: &[Sample],
) -> Vec<Event> {
    enum Input<'a> {
        Event(&'a Event),
        Line(&'a (At, Option<u64>, Line)),
        Sample(&'a Sample),
    }
    let events = events.iter().filter(|event| !follows_from_matching(&event.what));
    let mut inputs: Vec<(At, Input)> = in_recorded_order(events.map(|event| (event.at, Input::Event(event))));
    inputs.extend(in_recorded_order(lines.iter().map(|line| (line.0, Input::Line(line)))));
    inputs.extend(in_recorded_order(samples.iter().map(|sample| (sample.t, Input::Sample(sample)))));
    inputs.sort_by_key(|(at, _)| *at);
    let mut matcher = Matcher::new(candidates);
    let mut matched = Vec::new();
    for (_, input) in inputs {
        let following = match input {
            Input::Event(event) => matcher.event(event),
            Input::Line((at, uncertainty_ns, line)) => matcher.line(*at, *uncertainty_ns, line),
            Input::Sample(sample) => matcher.sample(sample),
        };
        if following.iter().any(|event| replaces_marks(&event.what)) {
            matched.clear();
        }
        matched.extend(following);
    }
    matched.retain(|event| matches!(event.what, What::Mark(_) | What::Began { .. } | What::LogMatch { .. }));
    for event in &mut matched {
        let at = event.at;
        if let What::Mark(mark) = &mut event.what {
            mark.sampled = sampled_beside(samples, at, mark.evidence);
        }
    }
    matched
}

/// The values that a stage file takes from the programs of a recorded run.
pub fn values(file: &StageFile, events: &[Event]) -> Values {
    let mut matcher = Matcher::new(vec![file.clone()]);
    for event in events.iter().filter(|event| matches!(event.what, What::Exec { .. } | What::Environment { .. })) {
        matcher.event(event);
    }
    matcher.values().clone()
}

/// The sample whose values stand beside a mark: the first at or after it. Where the launch was over by then, its
/// processes gone, that is the last one in which they were there, if the evidence outlives them. `samples` are in order
/// of time.
fn sampled_beside(samples: &[Sample], at: At, evidence: MarkEvidence) -> Option<At> {
    let next = samples.partition_point(|sample| sample.t < at);
    let after = samples.get(next)?;
    let last_alive = samples[..next].iter().rfind(|sample| !is_over(sample));
    match last_alive {
        Some(alive) if is_over(after) && outlives_the_launch(evidence) => Some(alive.t),
        _ => Some(after.t),
    }
}

/// Whether a mark's evidence may be heard after the launch is over: a line or a message waits for its reader. The end
/// itself does not outlive the launch, and a sample's share is that sample's own.
pub fn outlives_the_launch(evidence: MarkEvidence) -> bool {
    use MarkEvidence::*;
    !matches!(evidence, Exit | Residency | Unmap | Quiet | Device | Anon)
}

/// Whether a sample was taken when no process of the launch was left, or none that holds anything: one on its way out
/// has given its memory back some time before it has ended.
pub fn is_over(sample: &Sample) -> bool {
    [Metric::Processes, Metric::RssBytes].iter().any(|metric| sample.values.get(*metric) == Some(0))
}

/// Each input with the latest time up to it, by which it can be sorted among others and stays in its own order.
fn in_recorded_order<T>(inputs: impl Iterator<Item = (At, T)>) -> Vec<(At, T)> {
    let latest = |latest: &mut At, (at, input): (At, T)| {
        *latest = at.max(*latest);
        Some((*latest, input))
    };
    inputs.scan(At(i64::MIN), latest).collect()
}

/// A run's events with other marks: those that [`rematch`] found, in place of the recorded ones, in order of time.
pub fn with_marks(events: &[Event], matched: Vec<Event>) -> Vec<Event> {
    let mut all: Vec<Event> = events.iter().filter(|event| !follows_from_matching(&event.what)).cloned().collect();
    all.extend(matched);
    all.sort_by_key(|event| event.at);
    all
}

/// Whether an event was made by a matcher, and so is made again by another.
fn follows_from_matching(what: &What) -> bool {
    matches!(what, What::Mark(_) | What::Began { .. } | What::LogMatch { .. }) || replaces_marks(what)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
