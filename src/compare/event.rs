//! One start and one stopping event for all runs, or a refusal.
//!
//! The start is the same for every run: the exec of the launched command. The stopping event is one where its stage has
//! the same name, the same normalised definition and the same kind of evidence in all of them. Whoever knows that two
//! definitions or two kinds of evidence show one event may declare it; then that is part of the answer.
//!
//! What a run was recorded with counts, not what a stage file of that name says today.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::account::StageRow;
use crate::clock::At;
use crate::event::{Evidence, word_of};
use crate::stage::{Definition, Status};

use super::{MOST_TOLD, Options, Party};

/// The event at which all runs end.
#[derive(Clone, Debug, PartialEq)]
pub struct StoppingEvent {
    pub stage: String,
    /// The digest of its definition; `None` where it is by notification alone, or where there are several.
    pub definition: Option<String>,
    /// The kinds of evidence that showed it, each once.
    pub evidence: Vec<Evidence>,
    /// What differs between the runs and was declared not to matter (`--same-event`). Empty: it is one event.
    pub declared: Vec<String>,
}

/// A stage that is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub stage: String,
    pub why: String,
}

/// There is no common stopping event.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub why: Why,
    /// What each run reached, in the order of its marks.
    pub reached: Vec<(String, Vec<(String, At)>)>,
    /// The latest stage that all reached by one definition and one kind of evidence, in the order of the first run.
    pub latest_shared: Option<String>,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// These runs were recorded without a stopping event, and none was named.
    NoStoppingEvent { runs: Vec<String> },
    /// Each run, and the stopping event that it was recorded with.
    Several { ends: Vec<(String, String)> },
    /// These runs did not reach it, each with what is known of it.
    NotReached { stage: String, runs: Vec<(String, String)> },
    /// The stage is defined otherwise in these runs than in the first.
    OtherDefinition { stage: String, first: String, others: Vec<String> },
    /// What showed it in each run.
    OtherEvidence { stage: String, shown: Vec<(String, Evidence)> },
}

fn seconds(at: At) -> String {
    format!("{:.3} s", at.seconds())
}

/// Runs that did not reach a stage; those of which the same is known share it.
fn unreached(runs: &[(String, String)]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (run, why) in runs {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, runs)) => runs.push(run),
            None => reasons.push((why, vec![run])),
        }
    }
    let reasons: Vec<String> =
        reasons.into_iter().map(|(why, runs)| format!("{} ({why})", runs.join(" and "))).collect();
    reasons.join(", ")
}

impl Why {
    /// A sentence.
    pub fn sentence(&self) -> String {
        match self {
            Why::NoStoppingEvent { runs } => {
                let were = if runs.len() == 1 { "was" } else { "were" };
                format!(
                    "{} {were} recorded without a stopping event: say at which stage, with --at",
                    runs.join(" and ")
                )
            }
            Why::Several { ends } => {
                let ends: Vec<String> = ends.iter().map(|(run, stage)| format!("{run} ends at {stage}")).collect();
                format!("{}: different finish lines, and no figure holds across them", ends.join(", "))
            }
            Why::NotReached { stage, runs } => format!("{stage} was not reached by {}", unreached(runs)),
            Why::OtherDefinition { stage, first, others } => format!(
                "{stage} is not defined in {} as it is in {first}: not known to be one event; --same-event declares that \
                 it is",
                others.join(", ")
            ),
            Why::OtherEvidence { stage, shown } => {
                let shown: Vec<String> = shown.iter().map(|(run, by)| format!("in {run} by {}", word_of(by))).collect();
                format!(
                    "{stage} was shown {}: not known to be one event; --same-event declares that it is",
                    shown.join(", ")
                )
            }
        }
    }
}

impl Refusal {
    fn of(why: Why, parties: &[Named]) -> Refusal {
        let reached = parties.iter().map(|party| {
            let stages = party.party.table.reached().filter_map(|row| Some((row.outcome.stage.clone(), row.at()?)));
            (party.label(), stages.collect())
        });
        let latest_shared = parties.first().and_then(|first| {
            let mut stages = first.party.table.reached().rev().map(|row| row.outcome.stage.as_str());
            stages.find(|stage| unlike(parties, stage).is_none()).map(str::to_owned)
        });
        Refusal { why, reached: reached.collect(), latest_shared }
    }

    /// The refusal in sentences.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![format!("not compared: {}.", self.why.sentence())];
        for (run, stages) in &self.reached {
            let last = stages.iter().skip(stages.len().saturating_sub(MOST_TOLD));
            let told: Vec<String> = last.map(|(stage, at)| format!("{stage} ({})", seconds(*at))).collect();
            let told = told.join(", ");
            sentences.push(match stages.len() {
                0 => format!("{run} reached no stage."),
                count if count > MOST_TOLD => format!("{run} reached {count} stages, the last of them {told}."),
                _ => format!("{run} reached {told}."),
            });
        }
        sentences.push(self.shared_words());
        sentences
    }

    /// What all share, in a sentence.
    pub fn shared_words(&self) -> String {
        match &self.latest_shared {
            Some(stage) => format!("The latest that all share with one definition is {stage}: --at {stage}"),
            None => "They share no stage with one definition.".to_owned(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sentences().join("\n"))
    }
}

impl std::error::Error for Refusal {}

/// A run whose stages are found by name: it may have thousands of them, and each is looked for in each run.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    pub party: Party<'a>,
    rows: BTreeMap<&'a str, &'a StageRow>,
    definitions: BTreeMap<&'a str, &'a Definition>,
}

impl<'a> Named<'a> {
    pub fn of(party: Party<'a>) -> Named<'a> {
        // Of two of one name the first counts.
        let definitions = party.run.meta.stages.stages.iter().rev();
        let definitions = definitions.map(|definition| (definition.name.as_str(), definition)).collect();
        Named { rows: party.table.by_name(), definitions, party }
    }

    fn label(&self) -> String {
        self.party.label()
    }

    /// The row of a stage that the run reached.
    pub fn row(&self, stage: &str) -> Option<&'a StageRow> {
        self.rows.get(stage).copied().filter(|row| row.outcome.mark.is_some())
    }

    /// The digest of a stage's definition: of the definition that the run holds, else the recorded one. `None` for a stage
    /// that only a notification named.
    fn definition(&self, stage: &str) -> Option<String> {
        let own = self.definitions.get(stage).map(|definition| definition.digest());
        own.or_else(|| self.party.run.meta.stage_digests.get(stage).cloned())
    }

    fn evidence(&self, stage: &str) -> Option<Evidence> {
        self.row(stage)?.outcome.mark.as_ref().map(|(_, _, mark)| mark.evidence)
    }
}

/// Why a stage is not one event in all runs; the gravest first.
fn unlike(parties: &[Named], stage: &str) -> Option<Why> {
    let stage = stage.to_owned();
    let unreached = |party: &Named| {
        if party.row(&stage).is_some() {
            return None;
        }
        let outcome = party.rows.get(stage.as_str()).map(|row| &row.outcome);
        let why = match outcome {
            None => "it has no such stage".to_owned(),
            Some(outcome) if outcome.reason.is_empty() => match outcome.status {
                Status::NotApplicable => "not applicable".to_owned(),
                _ => "no reason recorded".to_owned(),
            },
            Some(outcome) => outcome.reason.clone(),
        };
        Some((party.label(), why))
    };
    let runs: Vec<_> = parties.iter().filter_map(unreached).collect();
    if !runs.is_empty() {
        return Some(Why::NotReached { stage, runs });
    }
    let (first, rest) = parties.split_first()?;
    let of_first = first.definition(&stage);
    let others: Vec<String> =
        rest.iter().filter(|party| party.definition(&stage) != of_first).map(Named::label).collect();
    if !others.is_empty() {
        return Some(Why::OtherDefinition { first: first.label(), stage, others });
    }
    let shown: Vec<(String, Evidence)> =
        parties.iter().filter_map(|party| Some((party.label(), party.evidence(&stage)?))).collect();
    let one = shown.windows(2).all(|pair| pair[0].1 == pair[1].1);
    (!one).then_some(Why::OtherEvidence { stage, shown })
}

/// The common stopping event.
pub fn stopping_event(parties: &[Named], options: &Options) -> Result<StoppingEvent, Refusal> {
    let refused = |why| Err(Refusal::of(why, parties));
    let stage = match &options.at {
        Some(stage) => stage.clone(),
        None => {
            let without: Vec<String> =
                parties.iter().filter(|party| party.party.run.meta.until.is_none()).map(Named::label).collect();
            if !without.is_empty() {
                return refused(Why::NoStoppingEvent { runs: without });
            }
            let ends: Vec<(String, String)> =
                parties.iter().filter_map(|party| Some((party.label(), party.party.run.meta.until.clone()?))).collect();
            match ends.as_slice() {
                [] => return refused(Why::NoStoppingEvent { runs: Vec::new() }),
                [(_, stage), rest @ ..] if rest.iter().all(|(_, other)| other == stage) => stage.clone(),
                _ => return refused(Why::Several { ends }),
            }
        }
    };
    let declared = match unlike(parties, &stage) {
        None => Vec::new(),
        Some(why @ Why::NotReached { .. }) => return refused(why),
        Some(why) if !options.same_event => return refused(why),
        // Of two that differ, the second is no reason to ask again.
        Some(_) => differences(parties, &stage),
    };
    let definitions: Vec<Option<String>> = parties.iter().map(|party| party.definition(&stage)).collect();
    let one = definitions.windows(2).all(|pair| pair[0] == pair[1]);
    let mut kinds: Vec<Evidence> = Vec::new();
    for kind in parties.iter().filter_map(|party| party.evidence(&stage)) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let definition = definitions.into_iter().next().flatten().filter(|_| one);
    Ok(StoppingEvent { stage, definition, evidence: kinds, declared })
}

/// In what the definitions and the evidence of a stage differ.
fn differences(parties: &[Named], stage: &str) -> Vec<String> {
    let when = |party: &Named| match party.definitions.get(stage).map(|definition| &definition.when) {
        Some(Some(condition)) => format!("when {condition}"),
        Some(None) | None => "by notification alone".to_owned(),
    };
    let by =
        |party: &Named| party.evidence(stage).map_or_else(String::new, |by| format!(", shown by {}", word_of(&by)));
    parties.iter().map(|party| format!("{}: {}{}", party.label(), when(party), by(party))).collect()
}

/// The stages up to the stopping event, itself included as the last, that are one event in all runs, in the order of the
/// first run's marks; and the others that some run reached by then, with why they are not compared.
pub fn shared(parties: &[Named], event: &StoppingEvent) -> (Vec<String>, Vec<LeftOut>) {
    let (mut shared, mut left_out) = (Vec::new(), Vec::new());
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    // A tie with the stopping event is not after it.
    let late = |party: &&Named, stage: &str| {
        let (at, end) = (party.row(stage).and_then(StageRow::at), party.row(&event.stage).and_then(StageRow::at));
        at > end
    };
    for party in parties {
        for reached in party.party.table.reached().map(|row| &row.outcome.stage) {
            if *reached == event.stage || late(&party, reached) || !seen.insert(reached) {
                continue;
            }
            let why = match unlike(parties, reached) {
                Some(Why::NotReached { runs, .. }) => Some(format!("not reached by {}", unreached(&runs))),
                Some(Why::OtherDefinition { others, first, .. }) => {
                    Some(format!("not defined in {} as it is in {first}", others.join(", ")))
                }
                Some(Why::OtherEvidence { shown, .. }) => {
                    let shown: Vec<String> =
                        shown.iter().map(|(run, by)| format!("by {} in {run}", word_of(by))).collect();
                    Some(format!("shown {}", shown.join(", ")))
                }
                Some(other) => Some(other.sentence()),
                None => {
                    let late: Vec<String> =
                        parties.iter().filter(|party| late(party, reached)).map(Named::label).collect();
                    (!late.is_empty()).then(|| format!("after the stopping event in {}", late.join(", ")))
                }
            };
            match why {
                Some(why) => left_out.push(LeftOut { stage: reached.clone(), why }),
                None => shared.push(reached.clone()),
            }
        }
    }
    // What a later run reached and the first too stands in the order of the first already.
    shared.push(event.stage.clone());
    (shared, left_out)
}
