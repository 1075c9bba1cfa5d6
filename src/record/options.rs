//! What `stagemark run` was asked to do, and what of it can be told to be wrong before anything is made or started.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use super::folder::FolderError;
use super::profile::LEAST_DESCRIPTORS;
use crate::ask::Secrets;
use crate::cache::Wish;
use crate::event::text_of;
use crate::host::limit_behind;
use crate::launch::StartError;
use crate::probe::stream::Choice;
use crate::report::color::Color;
use crate::stage::asked::Work;
use crate::stage::file::{each_once, hint};
use crate::stage::{StageError, StageFile};
use crate::watch::is_stage_name;

/// What happens to the command at the stopping event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Keep,
    Stop,
}

/// What `stagemark run` was asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    pub out: Option<PathBuf>,
    pub artifacts: Vec<PathBuf>,
    /// `--stages`, loaded; `None` chooses by exec.
    pub stages: Option<StageFile>,
    /// `--stage NAME=KIND:ARGUMENT`, checked.
    pub one_offs: Vec<String>,
    pub until: Option<String>,
    pub then: Then,
    pub interval: Duration,
    pub quiet: bool,
    /// Whether the table at the end has colour.
    pub color: Color,
    pub output_log: bool,
    /// Whether the launch is put into a control group of its own, where one can be had.
    pub cgroup: bool,
    /// Whether high-water marks are reset at each stage.
    pub reset_peaks: bool,
    /// `--faults`: one minor fault in so many is a sample.
    pub faults: Option<NonZeroU64>,
    /// Where the devices are found: `--nvidia-ml`, and for tests the environment.
    pub devices: crate::probe::device::Place,
    /// `--header-env HEADER=VARIABLE` or `VARIABLE`: what goes with the requests of stage definitions, and into no file.
    pub header_env: Vec<String>,
    /// `--workload`: requests after the first response.
    pub workload: Option<Work>,
    /// `--repeat-response`: how often the first response's request is repeated.
    pub repeat_response: u64,
    /// `--cache`: the condition that the artifacts are to be in at the start.
    pub cache: Wish,
    /// How the kernel's records are taken. No option of the command line.
    pub stream: Choice,
    pub argv: Vec<OsString>,
}

/// Why a launch was not begun.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{0}")]
    Stage(#[from] StageError),
    #[error("--until {0}")]
    Until(String),
    #[error("--header-env: {0}")]
    HeaderEnv(String),
    #[error(
        "the command was not started: its profiler needs {LEAST_DESCRIPTORS} descriptors and could have {had}: \
         {source}{limit}",
        limit = limit_behind(.source)
    )]
    Descriptors { had: usize, source: std::io::Error },
    #[error("cannot prepare the launch: {0}{limit}", limit = limit_behind(.0))]
    Io(#[from] std::io::Error),
}

impl ProfileError {
    /// 127 or 126 where the command could not be started, 125 for everything of our own.
    pub fn status(&self) -> u8 {
        match self {
            ProfileError::Start(error) => error.status(),
            _ => 125,
        }
    }
}

impl Options {
    /// Whether this can be done, as far as it can be told before anything is made; a warning where it may never come to its
    /// end. `variable`: the environment of the run.
    ///
    /// # Errors
    /// Wrong usage.
    pub fn check(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<String>, ProfileError> {
        self.secrets(variable)?;
        self.check_until(&self.candidates()?)
    }

    /// What goes with each request, read from the environment.
    pub(super) fn secrets(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Secrets, ProfileError> {
        Secrets::from_environment(&self.header_env, variable).map_err(ProfileError::HeaderEnv)
    }

    /// The stage files that may be followed, each with the one-off stages of the command line.
    pub(super) fn candidates(&self) -> Result<Vec<StageFile>, StageError> {
        each_once(&self.one_offs)?;
        let mut candidates = self.stages.clone().map_or_else(StageFile::embedded, |stages| vec![stages]);
        for stages in &mut candidates {
            self.one_offs.iter().try_for_each(|text| stages.add_one_off(text))?;
            self.workload.iter().for_each(|work| stages.add_work(work.clone()));
        }
        Ok(candidates)
    }

    /// Whether `--until` names a stage that can be reached. It cannot where the one stage file that was asked for has none
    /// of that name; where the file is chosen by what runs, a warning must do, since a notification may have any name.
    pub(super) fn check_until(&self, candidates: &[StageFile]) -> Result<Option<String>, ProfileError> {
        let Some(until) = &self.until else { return Ok(None) };
        if candidates.iter().any(|file| file.stage(until).is_some()) {
            return Ok(None);
        }
        let names: BTreeSet<&str> =
            candidates.iter().flat_map(|file| &file.stages).map(|stage| stage.name.as_str()).collect();
        let hint = hint(until, &names.into_iter().collect::<Vec<_>>());
        let until = text_of(until);
        match (&self.stages, is_stage_name(&until)) {
            (None, true) => {
                let problem =
                    format!("no stage file has a stage `{until}`{hint}; only a notification by that name reaches it");
                Ok(Some(format!("--until {until}: {problem}")))
            }
            (Some(file), true) => Err(ProfileError::Until(format!(
                "{until}: the stage file `{}` has no such stage{hint}; `--stage {until}=notify` adds one that the command \
                 marks itself",
                file.name
            ))),
            (_, false) => Err(ProfileError::Until(format!("{until}: no stage can have that name{hint}"))),
        }
    }

    /// The name of the run folder where none is given: UTC time and program, `20260131T101500Z-vllm`.
    pub(super) fn folder_name(&self) -> String {
        let program = self.argv.first().map(text_of).unwrap_or_default();
        let file_name = program.rsplit('/').next().unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = file_name.chars().take(64).map(plain).collect();
        format!("{}-{name}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ"))
    }
}
