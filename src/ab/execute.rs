//! The series itself: what is run, in which order, and what is kept of it whatever happens.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;

use super::Options;
use super::arm::Arm;
use super::child::{self, Ended};
use super::progress::{Progress, shown};
use super::series::{ArmEntry, Content, RunEntry, RunState, SCHEMA, Series, SeriesState};
use crate::artifact::Artifact;
use crate::artifact::set::{self, Resolution};
use crate::clock::now_utc;
use crate::compare::series::order;
use crate::launch::ending::Ending;
use crate::probe::contents;
use crate::record::{FolderError, Then, create_fresh, refuse_what_is_there};
use crate::report;
use crate::run::META;

/// Why a series was not begun.
#[derive(Debug, thiserror::Error)]
pub enum AbError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
}

/// A series that has come to its end, or was ended.
#[derive(Debug)]
pub struct Done {
    pub folder: PathBuf,
    pub series: Series,
    /// The signal that ended it.
    pub signal: Option<Signal>,
}

/// Runs a series.
///
/// # Errors
/// Its folder cannot be made or written.
pub fn execute(options: &Options) -> Result<Done, AbError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error| AbError::Io { what, error }
    };
    let folder = make_folder(options.out.as_deref())?;
    let program = std::env::current_exe().map_err(failed("this program cannot be found"))?;
    let directory = std::env::current_dir().map_err(failed("the working directory"))?;
    let signals = Ending::hold().map_err(failed("signals cannot be held"))?;
    let mut course = Course {
        series: begun(options),
        progress: Progress::new(options.quiet, options.arms.len()),
        options,
        program,
        directory,
        signals,
        folder,
    };
    course.write()?;
    let outcome = course.go();
    // Whatever was set up is taken away again.
    let cleaned = course.own_command("--cleanup", options.cleanup.as_deref());
    course.series.state = match (&outcome, course.signals.interrupted) {
        (_, Some(signal)) => {
            course.series.problem = Some(format!("ended by {signal}"));
            SeriesState::Interrupted
        }
        (Err(problem), None) => {
            course.series.problem = Some(problem.clone());
            SeriesState::Failed
        }
        (Ok(()), None) => SeriesState::Done,
    };
    if let Err(problem) = cleaned {
        course.progress.say(&problem);
        course.series.problem.get_or_insert(problem);
    }
    course.write()?;
    Ok(Done { signal: course.signals.interrupted, folder: course.folder, series: course.series })
}

fn make_folder(out: Option<&Path>) -> Result<PathBuf, AbError> {
    let failed = |path: &Path, error| AbError::Io { what: crate::event::text_of(path), error };
    let path = match out {
        Some(path) => {
            refuse_what_is_there(path)?;
            path.to_owned()
        }
        None => {
            let runs = Path::new("stagemark-runs");
            std::fs::create_dir_all(runs).map_err(|error| failed(runs, error))?;
            let name = format!("{}-ab", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ"));
            create_fresh(&runs.join(name)).map_err(|error| failed(runs, error))?
        }
    };
    std::fs::create_dir_all(path.join("runs")).map_err(|error| failed(&path, error))?;
    // Commands may be run elsewhere, and the folder stays.
    std::path::absolute(&path).map_err(|error| failed(&path, error))
}

/// What is known of a series before anything was run.
fn begun(options: &Options) -> Series {
    let arm =
        |arm: &Arm| ArmEntry { name: arm.name.clone(), argv: arm.masked_argv(), environment: arm.masked_environment() };
    let name = |place: usize| options.arms[place].name.clone();
    Series {
        schema: SCHEMA,
        stagemark: env!("CARGO_PKG_VERSION").to_owned(),
        started: now_utc(),
        state: SeriesState::Running,
        problem: None,
        arms: options.arms.iter().map(arm).collect(),
        order: planned(options).into_iter().map(|run| name(run.arm)).collect(),
        cache: options.cache.word().to_owned(),
        until: options.until.clone(),
        same_output: options.same_output.iter().map(|of| of.word().to_owned()).collect(),
        identity: Vec::new(),
        runs: Vec::new(),
    }
}

/// A run that is to be.
#[derive(Clone, Copy)]
struct Planned {
    arm: usize,
    round: usize,
    warmup: bool,
}

fn planned(options: &Options) -> Vec<Planned> {
    let arms = options.arms.len();
    let part = |runs: usize, warmup: bool| {
        order(arms, runs).into_iter().enumerate().map(move |(place, arm)| Planned {
            arm,
            round: place / arms.max(1),
            warmup,
        })
    };
    part(options.warmup, true).chain(part(options.runs, false)).collect()
}

struct Course<'a> {
    options: &'a Options,
    folder: PathBuf,
    program: PathBuf,
    directory: PathBuf,
    signals: Ending,
    progress: Progress,
    series: Series,
}

impl Course<'_> {
    fn write(&self) -> Result<(), AbError> {
        let what = || crate::event::text_of(self.folder.join(super::FILE));
        self.series.write(&self.folder).map_err(|error| AbError::Io { what: what(), error })
    }

    /// Everything up to the last run; `Err` is what ended it before that, unless it was a signal.
    fn go(&mut self) -> Result<(), String> {
        self.options.warnings.iter().for_each(|text| self.progress.say(&format!("stagemark: {text}")));
        self.own_command("--setup", self.options.setup.as_deref())?;
        if self.options.full_identity {
            self.series.identity = self.identities();
        }
        let planned = planned(self.options);
        for (index, run) in planned.iter().enumerate() {
            if self.signals.is_interrupted() {
                return Ok(());
            }
            let left: Vec<usize> = planned[index..].iter().map(|run| run.arm).collect();
            let entry = self.run(index + 1, *run, planned.len(), &left)?;
            let interrupted = entry.as_ref().is_some_and(|entry| entry.state == RunState::Interrupted);
            self.series.runs.extend(entry);
            self.write().map_err(|error| error.to_string())?;
            if interrupted {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One run, with what comes before and after it. `None`: it was interrupted before it began.
    fn run(&mut self, number: usize, planned: Planned, of: usize, left: &[usize]) -> Result<Option<RunEntry>, String> {
        let options = self.options;
        let arm = &options.arms[planned.arm];
        let warmup = if planned.warmup { ", warm-up" } else { "" };
        let what = format!("run {number} of {of}: {}{warmup}", arm.name);
        self.progress.begins(&what, left);
        let begun = Instant::now();
        self.own_command("--prepare", options.prepare.as_deref())?;
        if self.signals.is_interrupted() {
            return Ok(None);
        }
        let mut entry = RunEntry {
            number,
            arm: arm.name.clone(),
            round: planned.round,
            warmup: planned.warmup,
            state: RunState::Done,
            status: 0,
            said: None,
            took_ns: 0,
            outputs: Vec::new(),
        };
        let folder = self.folder.join(entry.folder());
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since = i128::try_from(since.as_nanos()).unwrap_or(0);
        let mut command = self.command(arm, &folder);
        let ended = child::run(&mut command, &mut self.signals, options.show_output);
        let Ended { status, said } = ended.map_err(|error| format!("{what}: cannot be run: {error}"))?;
        if !folder.join(META).is_file() {
            return Err(format!("{what}: could not be started (exit status {status}): {said}"));
        }
        entry.took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        entry.status = status;
        entry.state = match (self.signals.interrupted, status) {
            (Some(_), _) => RunState::Interrupted,
            (None, 0) => RunState::Done,
            (None, _) => RunState::Failed,
        };
        entry.said = (status != 0 && !said.is_empty()).then(|| crate::host::mask_text(&said).into_owned());
        entry.outputs = options.same_output.iter().map(|of| of.of_run(&folder, &self.directory, since)).collect();
        let outcome = match entry.state {
            RunState::Interrupted => "interrupted; what it recorded is kept".to_owned(),
            _ => outcome(&folder, &entry),
        };
        let took = Duration::from_nanos(entry.took_ns);
        let left = match entry.state {
            RunState::Interrupted => &[],
            _ => left.get(1..).unwrap_or_default(),
        };
        self.progress.ended(&what, &outcome, planned.arm, took, left);
        Ok(Some(entry))
    }

    /// `stagemark run` of an arm.
    fn command(&self, arm: &Arm, folder: &Path) -> Command {
        let options = self.options;
        let mut command = Command::new(&self.program);
        command.args(["run", "--quiet"]);
        command.args(["--then", if options.then == Then::Stop { "stop" } else { "keep" }]);
        command.arg("--out").arg(folder);
        command.args(&options.run_options).arg("--").args(&arm.argv);
        command.envs(arm.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A command of the series' own, by a shell.
    fn own_command(&mut self, option: &str, text: Option<&str>) -> Result<(), String> {
        let Some(text) = text else { return Ok(()) };
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(text);
        let ended = child::run(&mut command, &mut self.signals, !self.options.quiet);
        match ended {
            Ok(Ended { status: 0, .. }) => Ok(()),
            Ok(Ended { status, .. }) => Err(format!("{option} failed with exit status {status}")),
            Err(error) => Err(format!("{option} cannot be run: {error}")),
        }
    }

    /// The contents of what each arm's command line, or `--artifact`, names.
    fn identities(&mut self) -> Vec<Content> {
        let mut artifacts: Vec<Artifact> = Vec::new();
        for arm in &self.options.arms {
            let argv: Vec<OsString> = arm.argv.iter().map(OsString::from).collect();
            let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
            environment.extend(arm.environment.iter().map(|(name, value)| (name.into(), value.into())));
            let Resolution { artifacts: found, .. } =
                set::resolve(&self.options.artifacts, &argv, &environment, &self.directory);
            for artifact in found {
                let is_it = |other: &Artifact| (other.device, other.inode) == (artifact.device, artifact.inode);
                if !artifacts.iter().any(is_it) {
                    artifacts.push(artifact);
                }
            }
        }
        let mut contents_found = Vec::new();
        for artifact in &artifacts {
            if self.signals.is_interrupted() {
                break;
            }
            self.progress.begins(&format!("digesting {}", crate::event::text_of(&artifact.path)), &[]);
            let meant =
                contents::Stat { size: artifact.size, inode: artifact.inode, modified_ns: artifact.modified_ns };
            let digest = contents::sha256(&artifact.real_path, meant);
            contents_found.push(Content {
                real_path: crate::event::text_of(&artifact.real_path),
                size_bytes: artifact.size,
                modified_ns: artifact.modified_ns,
                sha256: digest.as_ref().ok().cloned(),
                reason: digest.err(),
            });
        }
        self.progress.say(&format!("{} artifacts digested", contents_found.len()));
        contents_found
    }
}

/// What a run came to, for its line.
fn outcome(folder: &Path, entry: &RunEntry) -> String {
    let failed = match (entry.status, &entry.said) {
        (0, _) => String::new(),
        (status, Some(said)) => {
            format!(", exit status {status}: {}", said.lines().next_back().unwrap_or_default())
        }
        (status, None) => format!(", exit status {status}"),
    };
    let Ok((run, table)) = report::folder::load(folder) else { return format!("cannot be read{failed}") };
    let condition = match (&run.meta.condition.asked, &run.meta.condition.reached) {
        (Some(_), Some(reached)) => format!(" ({reached})"),
        _ => String::new(),
    };
    let reached = match (&run.meta.until, table.stopping_row().and_then(|row| row.at())) {
        (Some(until), Some(at)) => format!("{until} at {}", shown(u64::try_from(at.0).unwrap_or(0))),
        (Some(until), None) => format!("{until} was not reached"),
        (None, _) => format!("ended after {}", shown(entry.took_ns)),
    };
    format!("{reached}{condition}{failed}")
}
