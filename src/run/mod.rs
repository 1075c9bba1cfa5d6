//! A run folder: its files, and how they are written and read again.
//!
//! A folder is enough for every report. A killed run is readable up to its last flushed line: a torn last line is left
//! out and said.

pub mod meta;
pub mod rows;

use std::path::{Path, PathBuf};

use crate::clock::At;
use crate::event::{ArtifactId, Event, Pid};
use crate::sample::Sample;
use crate::watch::Line;
pub use meta::Meta;

/// What a figure of `detail.csv` is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Process(Pid),
    Artifact(ArtifactId),
}

/// One row of `detail.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    pub at: At,
    pub scope: Scope,
    pub metric: String,
    pub value: u64,
}

/// A line of the command's output, as kept in `output.log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine {
    pub at: At,
    pub uncertainty_ns: Option<u64>,
    pub line: Line,
}

/// A run, loaded.
#[derive(Clone, Debug)]
pub struct Run {
    pub folder: PathBuf,
    pub meta: Meta,
    /// In order of time.
    pub samples: Vec<Sample>,
    /// In the order in which they were seen.
    pub events: Vec<Event>,
    pub details: Vec<Detail>,
    /// What could not be read of the folder, for people: a torn last line, a missing file.
    pub gaps: Vec<String>,
}

/// What is wrong with a run folder, and where.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{}: not a run folder: {problem}", folder.display())]
    NotARun { folder: PathBuf, problem: String },
    #[error("{}: line {line}: {problem}", path.display())]
    Row { path: PathBuf, line: u64, problem: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

impl Run {
    /// Loads a folder. A file that is missing or ends in a torn line is a gap, not an error; a line in the middle that
    /// is no row is an error.
    pub fn load(folder: &Path) -> Result<Run, RunError> {
        let _ = folder;
        todo!()
    }

    /// The command's output as far as `output.log` keeps it.
    pub fn output(&self) -> Result<Vec<LoggedLine>, RunError> {
        todo!()
    }
}
