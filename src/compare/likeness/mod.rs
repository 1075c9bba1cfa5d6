//! Whether runs were alike but for what was meant to differ: every fact that a run folder has of what was loaded, by
//! what, where, within which limits, from which condition, and how its figures are known.
//!
//! | state | when |
//! |---|---|
//! | `same` | all runs have it, and it is the same; of what wavers by itself, within a stated tolerance |
//! | `expected` | it differs or is not known, and that was declared (`--vary`) |
//! | `unexplained` | it differs, and nobody said that it would |
//! | `unknown` | a run did not record it, so that it cannot be told |
//!
//! A fact that no run recorded is left out where kernels and machines may lack it, and `unknown` where every run should
//! have it. With anything unexplained the comparison is not like for like; with anything unknown that cannot be told.
//!
//! Paths are no facts: a file is what is in it, wherever it lies.

pub mod artifacts;
mod command;
mod condition;
mod machine;
mod sources;
pub mod vary;

use super::{Options, Party};
use artifacts::Pairing;
use vary::Vary;

/// What a fact is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    Artifact,
    Representation,
    Argv,
    Program,
    Interpreter,
    Python,
    Package,
    Commit,
    Env,
    Host,
    Storage,
    Device,
    Limit,
    Condition,
    Source,
}

impl Subject {
    pub const ALL: [Subject; 15] = [
        Subject::Artifact,
        Subject::Representation,
        Subject::Argv,
        Subject::Program,
        Subject::Interpreter,
        Subject::Python,
        Subject::Package,
        Subject::Commit,
        Subject::Env,
        Subject::Host,
        Subject::Storage,
        Subject::Device,
        Subject::Limit,
        Subject::Condition,
        Subject::Source,
    ];

    /// The word of `--vary` and of files.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Artifact => "artifact",
            Subject::Representation => "representation",
            Subject::Argv => "argv",
            Subject::Program => "program",
            Subject::Interpreter => "interpreter",
            Subject::Python => "python",
            Subject::Package => "package",
            Subject::Commit => "commit",
            Subject::Env => "env",
            Subject::Host => "host",
            Subject::Storage => "storage",
            Subject::Device => "device",
            Subject::Limit => "limit",
            Subject::Condition => "condition",
            Subject::Source => "source",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Subject::Artifact => "artifacts",
            Subject::Representation => "representation",
            Subject::Argv => "command line",
            Subject::Program => "program",
            Subject::Interpreter => "interpreter",
            Subject::Python => "Python",
            Subject::Package => "packages",
            Subject::Commit => "commit",
            Subject::Env => "environment",
            Subject::Host => "host",
            Subject::Storage => "storage",
            Subject::Device => "devices",
            Subject::Limit => "limits",
            Subject::Condition => "start condition",
            Subject::Source => "how it is known",
        }
    }
}

/// How a fact stands between the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Same,
    Expected,
    Unknown,
    Unexplained,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Same => "same",
            State::Expected => "expected",
            State::Unknown => "unknown",
            State::Unexplained => "unexplained",
        }
    }
}

/// One fact of every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub subject: Subject,
    /// Its name within the subject; `--vary` takes `SUBJECT:NAME`.
    pub name: String,
    /// Each run by its label, and what it recorded.
    pub values: Vec<(String, Option<String>)>,
    pub state: State,
    /// What of it differs, or how it was compared, where that is not plain from the values.
    pub note: Option<String>,
}

/// Whether the runs were alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    LikeForLike,
    /// Something could not be told, and nothing else is unexplained.
    CannotBeTold,
    NotLikeForLike,
}

impl Verdict {
    /// The word that files have for it: the answer to whether they are.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::LikeForLike => "yes",
            Verdict::CannotBeTold => "unknown",
            Verdict::NotLikeForLike => "no",
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::LikeForLike => "like for like",
            Verdict::CannotBeTold => "like for like: cannot be told",
            Verdict::NotLikeForLike => "not like for like",
        }
    }
}

/// All facts, in the order of [`Subject::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Likeness {
    pub fields: Vec<Field>,
}

impl Likeness {
    pub fn verdict(&self) -> Verdict {
        match self.fields.iter().map(|field| field.state).max() {
            Some(State::Unexplained) => Verdict::NotLikeForLike,
            Some(State::Unknown) => Verdict::CannotBeTold,
            Some(State::Same | State::Expected) | None => Verdict::LikeForLike,
        }
    }

    /// The facts of a subject.
    pub fn of(&self, subject: Subject) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(move |field| field.subject == subject)
    }

    /// The worst state of a subject; `None` where no run has a fact of it.
    pub fn state_of(&self, subject: Subject) -> Option<State> {
        self.of(subject).map(|field| field.state).max()
    }

    /// Everything that is not the same.
    pub fn differences(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.state != State::Same)
    }
}

/// Compares the facts of all runs.
pub fn of(parties: &[Party], options: &Options) -> Likeness {
    let mut facts = Facts { parties, vary: &options.vary, fields: Vec::new() };
    let pairing = Pairing::of(parties);
    artifacts::compare(&mut facts, &pairing, options.contents);
    command::compare(&mut facts, &pairing);
    machine::compare(&mut facts);
    condition::compare(&mut facts, &pairing);
    sources::compare(&mut facts);
    let mut fields = facts.fields;
    // Stable: within a subject the order is that in which they were asked.
    fields.sort_by_key(|field| field.subject);
    Likeness { fields }
}

/// What is left to decide when all values are there.
struct Outcome {
    same: bool,
    note: Option<String>,
}

/// The facts so far, and whose they are.
struct Facts<'a> {
    parties: &'a [Party<'a>],
    vary: &'a [Vary],
    fields: Vec<Field>,
}

impl Facts<'_> {
    /// A fact that a machine may lack: left out where no run has it.
    fn maybe(&mut self, subject: Subject, name: &str, value: impl Fn(&Party) -> Option<String>) {
        if self.parties.iter().any(|party| value(party).is_some()) {
            self.needed(subject, name, value);
        }
    }

    /// A fact that every run should have.
    fn needed(&mut self, subject: Subject, name: &str, value: impl Fn(&Party) -> Option<String>) {
        let values: Vec<Option<String>> = self.parties.iter().map(value).collect();
        let same = values.windows(2).all(|pair| pair[0] == pair[1]);
        self.push(subject, name, values, Outcome { same, note: None });
    }

    /// A number that wavers by itself: within `tolerance` of the first run's it is the same. Left out where no run has
    /// it.
    fn near(
        &mut self,
        subject: Subject,
        name: &str,
        value: impl Fn(&Party) -> Option<(f64, String)>,
        tolerance: (f64, String),
    ) {
        let found: Vec<Option<(f64, String)>> = self.parties.iter().map(value).collect();
        let numbers: Vec<f64> = found.iter().flatten().map(|(number, _)| *number).collect();
        if numbers.is_empty() {
            return;
        }
        let (least, most) = numbers.iter().fold((f64::MAX, f64::MIN), |(a, b), n| (a.min(*n), b.max(*n)));
        let note = (numbers.len() == found.len()).then(|| format!("same within {}", tolerance.1));
        let outcome = Outcome { same: most - least <= tolerance.0, note };
        let values = found.into_iter().map(|found| found.map(|(_, shown)| shown)).collect();
        self.push(subject, name, values, outcome);
    }

    fn push(&mut self, subject: Subject, name: &str, values: Vec<Option<String>>, outcome: Outcome) {
        let unknown = values.iter().any(Option::is_none);
        let state = match outcome.same && !unknown {
            true => State::Same,
            false if self.vary.iter().any(|vary| vary.covers(subject, name)) => State::Expected,
            false if unknown => State::Unknown,
            false => State::Unexplained,
        };
        let values = self.parties.iter().map(Party::label).zip(values).collect();
        self.fields.push(Field { subject, name: name.to_owned(), values, state, note: outcome.note });
    }
}
