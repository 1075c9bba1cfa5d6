//! Stages: what their definitions say, which definitions a launch follows, and which events mark them. Pure: the same
//! events give the same marks, live and later from a run folder.

pub mod file;
pub mod matcher;

use serde::{Deserialize, Serialize};

use crate::clock::At;
use crate::event::{Event, Mark};
pub use file::{Condition, Definition, StageError, StageFile};
pub use matcher::Matcher;

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

/// What became of each stage, in the stage file's order, from the recorded marks and whatever else explains their lack.
pub fn outcomes(stages: &StageFile, events: &[Event]) -> Vec<Outcome> {
    let _ = (stages, events);
    todo!()
}
