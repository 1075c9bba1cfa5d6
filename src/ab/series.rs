//! `series.json`: what a series was, and how far it came. Written anew after each run, read again to compare.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::arm::is_name;
use super::output::Output;
use crate::event::text_of;
use crate::run;

/// The file's name in a series' folder.
pub const FILE: &str = run::SERIES;
/// The version of its form. A reader refuses a larger one.
pub const SCHEMA: u32 = 1;
/// No series has more runs: what a forged file can make a reader do is bounded.
const MOST_RUNS: usize = 10_000;
const MOST_ARMS: usize = 26;

/// How far a series came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesState {
    /// It runs, or was killed.
    Running,
    Done,
    /// By a signal; what was run before is kept.
    Interrupted,
    /// One of its own commands (`--setup`, `--prepare`) failed, or a run could not be started.
    Failed,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The command ended with status 0, or was stopped at the stopping event.
    Done,
    /// It ended with another status.
    Failed,
    /// The series was interrupted meanwhile.
    Interrupted,
}

/// One run of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// From 1, in the order of running.
    pub number: usize,
    pub arm: String,
    /// Runs of one round are held against each other, from 0.
    pub round: usize,
    /// Whether it is in no comparison (`--warmup`).
    pub warmup: bool,
    pub state: RunState,
    /// The exit status, as of `stagemark run`.
    pub status: i32,
    /// The last that a failed one said on standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// From its start to its end, with its preparation, in nanoseconds.
    pub took_ns: u64,
    /// What it produced (`--same-output`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
}

impl RunEntry {
    /// Its run folder in that of the series.
    pub fn folder(&self) -> PathBuf {
        Path::new("runs").join(format!("{:02}-{}", self.number, self.arm))
    }
}

/// An arm as it is kept, secrets masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmEntry {
    pub name: String,
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
}

/// The content of an artifact, digested before the series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Symlinks resolved.
    pub real_path: String,
    pub size_bytes: u64,
    pub modified_ns: i64,
    /// SHA-256 in hexadecimal.
    pub sha256: Option<String>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub schema: u32,
    /// The version of stagemark that made it.
    pub stagemark: String,
    /// Wall-clock time of its start, UTC, RFC 3339.
    pub started: String,
    pub state: SeriesState,
    /// What ended it before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The first is the reference.
    pub arms: Vec<ArmEntry>,
    /// The arm of each run that was meant to be, in order.
    pub order: Vec<String>,
    /// The condition asked for: `cold`, `warm`, `as-is`.
    pub cache: String,
    pub until: Option<String>,
    /// What `--same-output` asked for.
    #[serde(default)]
    pub same_output: Vec<String>,
    /// With `--identity full`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identity: Vec<Content>,
    /// Those that were run, in order.
    pub runs: Vec<RunEntry>,
}

/// What is wrong with a series' folder.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    #[error("{}: not a series: {problem}", text_of(folder))]
    NotASeries { folder: PathBuf, problem: String },
    #[error(
        "{}: {FILE} is of schema {schema}, and this version of stagemark reads up to {SCHEMA}: use a newer one",
        text_of(folder)
    )]
    Newer { folder: PathBuf, schema: u32 },
}

/// Whether a folder looks like that of a series.
pub fn is_series(folder: &Path) -> bool {
    folder.join(FILE).is_file()
}

impl Series {
    /// Reads a folder's `series.json`.
    ///
    /// # Errors
    /// It is not there, or is none.
    pub fn load(folder: &Path) -> Result<Series, SeriesError> {
        let not = |problem: String| SeriesError::NotASeries { folder: folder.to_owned(), problem };
        let bytes = run::read_file(&folder.join(FILE)).map_err(|error| not(format!("{FILE}: {error}")))?;
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let Version { schema } =
            serde_json::from_slice(&bytes).map_err(|error| not(format!("{FILE} has no schema version: {error}")))?;
        if schema > SCHEMA {
            return Err(SeriesError::Newer { folder: folder.to_owned(), schema });
        }
        let series: Series = serde_json::from_slice(&bytes).map_err(|error| not(format!("{FILE}: {error}")))?;
        series.check().map_err(|problem| not(format!("{FILE}: {problem}")))?;
        Ok(series)
    }

    /// Names become parts of paths: only what this program writes is taken.
    fn check(&self) -> Result<(), String> {
        let names: Vec<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !is_name(name)) {
            return Err(format!("`{}` cannot be an arm's name", text_of(name)));
        }
        if names.is_empty() || names.len() > MOST_ARMS || self.runs.len() > MOST_RUNS || self.order.len() > MOST_RUNS {
            return Err(format!("a series has 1 to {MOST_ARMS} arms and at most {MOST_RUNS} runs"));
        }
        for entry in &self.runs {
            if !names.contains(&entry.arm.as_str()) {
                return Err(format!("run {} is of no arm", entry.number));
            }
        }
        Ok(())
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// As writing and renaming a file.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(std::io::Error::other)?;
        run::replace(&folder.join(FILE), &bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;

    pub fn series(runs: &[(&str, RunState)]) -> Series {
        let arm = |name: &str| ArmEntry { name: name.into(), argv: vec!["x".into()], environment: BTreeMap::new() };
        let entry = |(index, (arm, state)): (usize, &(&str, RunState))| RunEntry {
            number: index + 1,
            arm: arm.to_string(),
            round: index / 2,
            warmup: false,
            state: *state,
            status: 0,
            said: None,
            took_ns: 1,
            outputs: Vec::new(),
        };
        Series {
            schema: SCHEMA,
            stagemark: "0".into(),
            started: String::new(),
            state: SeriesState::Done,
            problem: None,
            arms: vec![arm("A"), arm("B")],
            order: runs.iter().map(|(arm, _)| arm.to_string()).collect(),
            cache: "cold".into(),
            until: None,
            same_output: Vec::new(),
            identity: Vec::new(),
            runs: runs.iter().enumerate().map(entry).collect(),
        }
    }

    #[test]
    fn a_series_comes_back_as_it_was_and_a_forged_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_series(folder.path()));
        let mut written = series(&[("A", RunState::Done), ("B", RunState::Failed)]);
        written.write(folder.path()).unwrap();
        assert!(is_series(folder.path()));
        assert_eq!(Series::load(folder.path()).unwrap(), written);
        assert_eq!(written.runs[1].folder(), Path::new("runs/02-B"));
        let refused = |series: &Series| {
            series.write(folder.path()).unwrap();
            Series::load(folder.path()).unwrap_err().to_string()
        };
        written.runs[1].arm = "../B".into();
        assert!(refused(&written).ends_with("series.json: run 2 is of no arm"), "{}", refused(&written));
        written.arms[1].name = "../B".into();
        assert!(refused(&written).ends_with("`../B` cannot be an arm's name"));
        written.schema = SCHEMA + 1;
        assert!(refused(&written).contains("use a newer one"));
    }
}
