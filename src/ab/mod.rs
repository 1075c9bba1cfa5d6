//! `stagemark ab`: several commands, each run several times by turns, and compared at one stopping event.
//!
//! ```text
//! setup ─► identity ─► (prepare ─► stagemark run ─► outputs)… by turns ─► cleanup ─► Comparison, pair by pair
//!                          └────── series.json after each ──────┘
//! ```
//!
//! Every run is a `stagemark run` of its own, a child with a whole run folder: nothing of a series is between a command
//! and its profiler, and a series that is killed leaves the command as a killed profiler would. What was run is kept,
//! whatever comes after it.

mod answer;
mod arm;
mod child;
mod compared;
mod execute;
mod output;
mod progress;
mod series;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cache::Wish;
use crate::record::Then;

pub use answer::{Answer, compare};
pub use arm::{Arm, ArmError};
pub use execute::{AbError, Done, execute};
pub use output::OutputOf;
pub use series::{ArmEntry, Content, FILE, RunEntry, RunState, SCHEMA, Series, SeriesError, SeriesState, is_series};

/// What was asked.
#[derive(Clone, Debug)]
pub struct Options {
    pub out: Option<PathBuf>,
    /// The first is the reference.
    pub arms: Vec<Arm>,
    /// Of each arm.
    pub runs: usize,
    /// Of each arm, before those and in no comparison.
    pub warmup: usize,
    pub cache: Wish,
    pub until: Option<String>,
    pub then: Then,
    /// Commands of a shell: once, before each run, at the end whatever happened.
    pub setup: Option<String>,
    pub prepare: Option<String>,
    pub cleanup: Option<String>,
    /// `--artifact`: else found by each arm's command line.
    pub artifacts: Vec<PathBuf>,
    /// How each run is watched, these and the condition and the stopping event included: options of `stagemark run`.
    pub run_options: Vec<OsString>,
    /// What is to be said of those before the first run.
    pub warnings: Vec<String>,
    /// `--identity full`: the artifacts' contents are digested before the series.
    pub full_identity: bool,
    pub same_output: Vec<OutputOf>,
    /// Whether what the commands print is shown on standard error.
    pub show_output: bool,
    pub quiet: bool,
}
