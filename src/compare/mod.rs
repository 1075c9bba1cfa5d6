//! Runs side by side at the same stopping event, or a refusal in words.
//!
//! ```text
//! arms ─┬─► event: one start and one stopping event for all, or a Refusal ─► the stages before it that all share
//!       ├─► figures: at each of those stages, each figure of each run, and how it stands to the first arm's
//!       └─► likeness: whether the runs were alike but for what was meant to differ
//! series: whether a difference is more than chance, from pairs of runs taken by turns
//! ```
//!
//! Pure: the same run folders give the same comparison. It never puts two numbers of different finish lines side by
//! side, never says more of a bound than that it is one, and never averages: an arm of several runs has each run's
//! figure. Whether a difference is more than chance is for [`series`] to say; that takes pairs of runs.

pub mod event;
pub mod figures;
pub mod likeness;
pub mod series;

use crate::account::StageTable;
use crate::run::Run;

pub use event::{LeftOut, Refusal, StoppingEvent};
pub use figures::{Cell, Figure, Judged, Known, Quantity, Stage, Told};
pub use likeness::vary::{Vary, VaryError};
pub use likeness::{Likeness, Subject};

/// So many stages before the stopping event are told to people, and so many of those that are left out.
pub const MOST_TOLD: usize = 40;

/// Runs that were made in one way, under one name. The first arm is the one to which the others are held.
#[derive(Clone, Debug)]
pub struct Arm {
    pub name: String,
    pub runs: Vec<(Run, StageTable)>,
}

/// What was asked of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The stopping event (`--at`); else the runs' own, which has to be one.
    pub at: Option<String>,
    /// The stopping event is declared to be one, whatever its definitions and evidence are (`--same-event`).
    pub same_event: bool,
    /// What was meant to differ.
    pub vary: Vec<Vary>,
    /// The artifacts' contents are to be the same, not their headers alone (`--identity full`).
    pub contents: bool,
}

/// A run in a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Party<'a> {
    /// The place of its arm, and its own place in that.
    pub arm: usize,
    pub number: usize,
    pub run: &'a Run,
    pub table: &'a StageTable,
    arms: &'a [Arm],
}

impl Party<'_> {
    /// The arm's name, and where that has several runs, which of them it is.
    pub fn label(&self) -> String {
        match self.arms.get(self.arm) {
            Some(arm) if arm.runs.len() > 1 => format!("{} run {}", arm.name, self.number + 1),
            Some(arm) => arm.name.clone(),
            None => String::new(),
        }
    }
}

/// Every run, arm by arm.
pub fn parties(arms: &[Arm]) -> Vec<Party<'_>> {
    let of_arm = |(arm, this): (usize, &'_ Arm)| (0..this.runs.len()).map(move |number| (arm, number));
    arms.iter()
        .enumerate()
        .flat_map(of_arm)
        .filter_map(|(arm, number)| {
            let (run, table) = arms.get(arm)?.runs.get(number)?;
            Some(Party { arm, number, run, table, arms })
        })
        .collect()
}

/// Runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The arms' names, and of each how many runs it has.
    pub arms: Vec<(String, usize)>,
    pub event: StoppingEvent,
    /// The stages that all share up to the stopping event, which is the last, in the order of the first run's marks.
    pub stages: Vec<Stage>,
    /// Stages that some run reached and that are not compared, and why.
    pub left_out: Vec<LeftOut>,
    pub likeness: Likeness,
    /// What a reader has to know of single runs: killed, gaps, losses, contradictions.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Compares.
    ///
    /// # Errors
    /// A [`Refusal`] where there is no stopping event that is one for all runs.
    pub fn of(arms: &[Arm], options: &Options) -> Result<Comparison, Refusal> {
        let parties = parties(arms);
        let named: Vec<event::Named> = parties.iter().copied().map(event::Named::of).collect();
        let event = event::stopping_event(&named, options)?;
        let (shared, left_out) = event::shared(&named, &event);
        let mut notes: Vec<String> = parties.iter().flat_map(notes).collect();
        notes.extend(one_folder_twice(&parties));
        Ok(Comparison {
            arms: arms.iter().map(|arm| (arm.name.clone(), arm.runs.len())).collect(),
            stages: figures::stages(&named, arms, &shared),
            likeness: likeness::of(&parties, options),
            event,
            left_out,
            notes,
        })
    }

    /// What people are told of: the stopping event, the last of the stages before it, and how many more there are, which
    /// are for files.
    pub fn told_stages(&self) -> Option<(&Stage, &[Stage], usize)> {
        let (end, before) = self.stages.split_last()?;
        let more = before.len().saturating_sub(MOST_TOLD);
        Some((end, before.get(more..).unwrap_or_default(), more))
    }

    /// The figures at the stopping event.
    pub fn at_the_end(&self) -> Option<&Stage> {
        self.stages.last()
    }
}

/// What a reader has to know of one run.
fn notes(party: &Party) -> Vec<String> {
    let label = party.label();
    let meta = &party.run.meta;
    let mut notes = Vec::new();
    if meta.exit.is_none() {
        notes.push(format!("{label}: no exit was recorded: it was still running, or its profiler was killed"));
    }
    let death = meta.death.as_ref().map(|death| format!("{label}: ended before its time: {}", death.evidence));
    notes.extend(death);
    notes.extend(meta.losses.iter().map(|loss| format!("{label}: lost: {loss}")));
    notes.extend(party.run.gaps.iter().map(|gap| format!("{label}: not read: {gap}")));
    notes.extend(party.table.problems.iter().map(|problem| format!("{label}: contradiction: {problem}")));
    if meta.stages.status != "verified" {
        notes.push(format!(
            "{label}: its stage file {} was not run against the real program (unverified)",
            meta.stages.name
        ));
    }
    notes
}

/// Runs that are one and the same, be it in two folders: started at one time, with the same rows.
fn one_folder_twice(parties: &[Party]) -> Option<String> {
    let same = |a: &Party, b: &Party| {
        let (one, other) = (&a.run.meta, &b.run.meta);
        (&one.started, one.start_monotonic_ns, &one.argv) == (&other.started, other.start_monotonic_ns, &other.argv)
            && a.run.events == b.run.events
            && a.run.samples == b.run.samples
    };
    parties.iter().zip(1..).find_map(|(party, next)| {
        let twin = parties.get(next..)?.iter().find(|other| same(party, other))?;
        Some(format!("{} and {} are one and the same run", party.label(), twin.label()))
    })
}
