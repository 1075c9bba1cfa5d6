//! Stage files: one TOML a loader family, embedded in the binary or given by `--stages`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A stage file, parsed and checked. Serialises to its normalised form, which is what is digested and compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageFile {
    pub name: String,
    pub about: String,
    /// `verified`: run against the real program; `unverified` otherwise.
    pub status: String,
    /// Chosen when any exec in the tree has one of these words in a row in its command line.
    pub argv: Vec<String>,
    /// Default stopping event.
    pub until: Option<String>,
    pub vars: BTreeMap<String, Variable>,
    /// Retained application state to record at start.
    pub state: Vec<String>,
    #[serde(rename = "stage")]
    pub stages: Vec<Definition>,
}

/// A value taken from the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    pub flag: String,
    pub default: String,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    pub name: String,
    /// `None`: by notification alone.
    pub when: Option<Condition>,
}

/// When a stage is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {}

/// What is wrong with a stage file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{origin}:{line}:{column}: {problem}")]
pub struct StageError {
    pub origin: String,
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

impl StageFile {
    /// Parses a stage file; `origin` names it in errors.
    pub fn parse(text: &str, origin: &str) -> Result<StageFile, StageError> {
        let _ = (text, origin);
        todo!()
    }

    /// By name among the embedded ones, or from a file.
    pub fn load(name_or_path: &str) -> anyhow::Result<StageFile> {
        let _ = name_or_path;
        todo!()
    }

    /// Every embedded file, `generic` last.
    pub fn embedded() -> Vec<StageFile> {
        todo!()
    }

    /// Adds a one-off stage from the command line, `NAME=KIND:ARGUMENT` (`loaded=log:REGEX`, `half=residency:50%`).
    /// A stage of that name is replaced.
    pub fn add_one_off(&mut self, text: &str) -> Result<(), StageError> {
        let _ = text;
        todo!()
    }

    /// Whether an exec with this command line is of this family.
    pub fn fits(&self, argv: &[String]) -> bool {
        let _ = argv;
        todo!()
    }

    /// SHA-256 of the normalised form, in hexadecimal.
    pub fn digest(&self) -> String {
        todo!()
    }
}
