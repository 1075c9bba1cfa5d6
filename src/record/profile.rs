//! One launch from end to end: prepare, start, supervise, report. Everything that could fail is done before the
//! command starts; from then on nothing is allowed to stop it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::cost::Meter;
use super::folder::{Folder, FolderError};
use super::look::Probes;
use super::recorder::{Recorded, Recorder, Setup};
use super::surroundings::Surroundings;
use crate::artifact::Found;
use crate::artifact::set::{self, Resolution};
use crate::clock::{Clock, Mono};
use crate::event::{Pid, text_of};
use crate::host::{self, Host, Mounts};
use crate::launch::tree::{Tree, TreeView};
use crate::launch::{self, Control, Finals, Outputs, StartError};
use crate::metric::Metric;
use crate::probe::counters::Counters;
use crate::probe::mapping::MappingProbe;
use crate::probe::process::ProcessProbe;
use crate::probe::residency::ResidencyProbe;
use crate::report;
use crate::run::Meta;
use crate::run::meta::{Absent, ArtifactMeta, Condition, SCHEMA};
use crate::stage::file::hint;
use crate::stage::{Matcher, StageError, StageFile};
use crate::sys::process::{exit_on_abort, outlive_aborts};
use crate::watch::{self, Observed, Seen, is_stage_name, log, notify, unseen};

/// How long the first look at the artifacts may delay the launch, in all.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// How long the end waits for output that its reader does not take.
const DRAIN: Duration = Duration::from_secs(2);

/// Descriptors that a launch itself takes: a few at a time to start a process, one to wait for its end.
const RESERVE: usize = 6;

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
    pub output_log: bool,
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
    #[error("cannot prepare the launch: {0}")]
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

/// Runs the command under the profiler; returns the exit status.
pub fn profile(options: &Options) -> Result<u8, ProfileError> {
    let mut meter = Meter::begin();
    launch::signals::hold();
    // Before the folder, which wrong usage should not leave behind.
    let candidates = candidates(options)?;
    let unreachable = check_until(options, &candidates)?;
    let program = options.argv.first().map(text_of).unwrap_or_default();
    let (folder, mut warnings) = Folder::create(options.out.as_deref(), &folder_name(&program), options.output_log)?;

    let directory = std::env::current_dir().unwrap_or_default();
    let surroundings = Surroundings::look(options.argv.iter().map(text_of).collect(), directory.clone());
    let environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    let Resolution { artifacts, warnings: unresolved, .. } =
        set::resolve(&options.artifacts, &options.argv, &environment, &directory);
    warnings.extend(unreachable);
    warnings.extend(unresolved);

    let mounts = Mounts::read(Path::new("/proc"));
    let mut residency = ResidencyProbe::new();
    let first = FIRST_LOOK / u32::try_from(artifacts.len().max(1)).unwrap_or(u32::MAX);
    let artifact_metas: Vec<ArtifactMeta> = artifacts
        .iter()
        .enumerate()
        .map(|(index, artifact)| {
            let trust = residency.add(artifact, first);
            let at_start = residency.files(Mono::now()).swap_remove(index).resident;
            ArtifactMeta::of(artifact, trust, at_start, &mounts)
        })
        .collect();

    let matcher = Matcher::new(candidates);
    let stages = matcher.stages().clone();
    let mut meta = Meta {
        schema: SCHEMA,
        stagemark: env!("CARGO_PKG_VERSION").to_owned(),
        argv: Vec::new(),
        directory: text_of(&directory),
        started: now_utc(),
        start_monotonic_ns: 0,
        interval_ns: options.interval.as_nanos() as u64,
        environment: BTreeMap::new(),
        host: Host::default(),
        condition: Condition::at_start(&artifact_metas),
        artifacts: artifact_metas,
        stages_digest: stages.digest(),
        until: options.until.clone().or_else(|| stages.until.clone()),
        stages,
        absent: absent_by_design(),
        warnings: Vec::new(),
        exit: None,
        cost: None,
        losses: Vec::new(),
    };

    let (sender, receiver) = channel();
    let control = Control::new()?;
    let finals = Finals::default();
    // From here on what is refused (descriptors, threads) costs what it was for, and not the launch.
    let reserve = reserve();
    let notify = notify::Notify::bind(environment.get(OsStr::new("NOTIFY_SOCKET")).map(Path::new))
        .map_err(|error| warnings.push(format!("notifications cannot be heard: {error}")))
        .ok();
    let command = launch::Command {
        argv: options.argv.clone(),
        environment: notify.as_ref().map(notify::Notify::environment).unwrap_or_default(),
    };
    let mut outputs = Outputs::prepare(&options.argv)?;
    let mut logs = Vec::new();
    for source in outputs.take_sources() {
        let stream = source.stream();
        match log::watch(source, sender.clone()) {
            Ok(log) => logs.push(log),
            Err(error) => {
                // The receiver lives as long as this function.
                let what = Observed::Event(unseen(stream, &error.to_string()));
                let _ = sender.send(Seen { at: Mono::now(), uncertainty_ns: Some(0), what });
            }
        }
    }
    // Inherited counters belong to the thread that opens them: the one that starts the command, which is this one.
    let counters = Counters::open();
    drop(reserve);
    let started = match launch::child::start(&command, &mut outputs) {
        Ok(started) => started,
        Err(error) => {
            folder.into_iter().for_each(Folder::discard);
            return Err(error.into());
        }
    };

    // The command runs: nothing from here on may return before it has ended.
    outlive_aborts();
    let clock = Clock::new(started.start);
    meta.start_monotonic_ns = started.start.0;
    let tree = Tree::new(started.pid, started.start, finals.clone(), host::mask_argv);
    outputs.keep_out_of(tree.view());
    meter.count_in(outputs.helpers());
    let view = tree.view();
    let notified = notify.and_then(|notify| {
        let watch = notify.watch(sender.clone(), Box::new(move |pid| belongs(&view, pid)));
        watch.map_err(|error| warnings.push(format!("notifications cannot be heard: {error}"))).ok()
    });
    meta.warnings = warnings;
    let recorder = Recorder::new(Setup {
        clock,
        receiver,
        folder,
        probes: Probes {
            tree,
            process: ProcessProbe::new(),
            mapping: MappingProbe::new(set::has_model_name),
            residency,
            counters,
        },
        discover: !artifacts.iter().any(|artifact| artifact.found == Found::Declared),
        artifacts,
        mounts,
        matcher,
        meta,
        meter,
        surroundings,
        until: options.until.clone(),
        then: options.then,
        control: control.clone(),
    });
    let recording = std::thread::Builder::new().name("recorder".into()).spawn(move || recorder.run());

    let ended = launch::supervise(&started, &mut outputs, &finals, &control, &sender);
    outputs.drain(DRAIN);
    if let Ok(ended) = &ended {
        exit_on_abort(ended.status());
    }
    logs.into_iter().for_each(log::LogWatch::finish);
    notified.into_iter().for_each(notify::NotifyWatch::finish);
    if outputs.log_bytes_lost() > 0 {
        let what = Observed::Event(watch::lost(&format!("{} bytes of output", outputs.log_bytes_lost())));
        // The recorder may have failed; the command's end is told all the same.
        let _ = sender.send(Seen { at: Mono::now(), uncertainty_ns: Some(0), what });
    }
    drop(sender);
    let recorded = recording.ok().and_then(|thread| thread.join().ok());
    let stopped = recorded.as_ref().and_then(|recorded| recorded.meta.exit.as_ref()).is_some_and(|exit| exit.stopped);
    // A mistake in the reports must not cost the command its exit status; the panic has been printed.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| report(recorded, options.quiet)));
    match ended {
        Ok(_) if stopped => Ok(0),
        Ok(ended) => Ok(ended.status()),
        Err(error) => Err(error.into()),
    }
}

/// Descriptors to be held while the profiler opens its own, so that where they are short the launch itself has some.
fn reserve() -> Vec<File> {
    (0..RESERVE).map_while(|_| File::open("/dev/null").ok()).collect()
}

/// Whether a sender is of the launch; a process that is gone by now and was never seen cannot be told.
fn belongs(view: &TreeView, pid: Pid) -> Option<bool> {
    let ours = view.contains(pid);
    (ours || Path::new(&format!("/proc/{pid}")).exists()).then_some(ours)
}

/// The stage files that may be followed, each with the one-off stages of the command line.
fn candidates(options: &Options) -> Result<Vec<StageFile>, StageError> {
    let mut candidates = options.stages.clone().map_or_else(StageFile::embedded, |stages| vec![stages]);
    for stages in &mut candidates {
        options.one_offs.iter().try_for_each(|text| stages.add_one_off(text))?;
    }
    Ok(candidates)
}

/// Whether `--until` names a stage that can be reached. It cannot where the one stage file that was asked for has none
/// of that name; where the file is chosen by what runs, a warning must do, since a notification may have any name.
fn check_until(options: &Options, candidates: &[StageFile]) -> Result<Option<String>, ProfileError> {
    let Some(until) = &options.until else { return Ok(None) };
    if candidates.iter().any(|file| file.stage(until).is_some()) {
        return Ok(None);
    }
    let names: BTreeSet<&str> =
        candidates.iter().flat_map(|file| &file.stages).map(|stage| stage.name.as_str()).collect();
    let hint = hint(until, &names.into_iter().collect::<Vec<_>>());
    let until = text_of(until);
    match (&options.stages, is_stage_name(&until)) {
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

/// The metrics that this version has no probe for.
fn absent_by_design() -> Vec<Absent> {
    let reason = "this version looks at no device";
    [Metric::DeviceUsedBytes, Metric::DeviceLaunchBytes]
        .map(|metric| Absent { metric, reason: reason.to_owned() })
        .into()
}

/// Makes the reports and tells the user, on standard error: the command's own output is not ours to add to.
fn report(recorded: Option<Recorded>, quiet: bool) {
    let mut told = String::new();
    let mut tell = |text: &str| told.push_str(&format!("stagemark: {text}\n"));
    match recorded {
        None => tell("the recorder failed; the command was not harmed"),
        Some(Recorded { folder: None, meta }) => meta.warnings.iter().for_each(|warning| tell(warning)),
        Some(Recorded { folder: Some(folder), .. }) => {
            let losses = folder.losses();
            match report::folder::load(folder.path()) {
                Ok((run, table)) => {
                    if let Err(error) = report::folder::write(&run, &table, folder.path()) {
                        tell(&format!("a report could not be written: {error:#}"));
                    }
                    losses.iter().for_each(|loss| tell(loss));
                    told.push_str(&report::terminal::text(&run, &table));
                }
                Err(error) => {
                    losses.iter().for_each(|loss| tell(loss));
                    tell(&format!("the run could not be read: {error:#}"));
                }
            }
        }
    }
    if !quiet {
        // Standard error may be closed by now; there is nowhere else to say so.
        let _ = std::io::stderr().write_all(told.as_bytes());
    }
}

/// UTC time and program: `20260131T101500Z-vllm`.
fn folder_name(program: &str) -> String {
    let file_name = program.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = file_name.chars().take(64).map(plain).collect();
    format!("{}-{name}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ"))
}

fn now_utc() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
