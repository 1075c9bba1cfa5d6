//! One launch from end to end: prepare, start, supervise, report. Everything that could fail is done before the
//! command starts; from then on nothing is allowed to stop it.
//!
//! What is opened before the start, and why in this order:
//!
//! 1. The folder and the artifacts: wrong usage and unusable paths end it here, with nothing left behind.
//!    With `--cache` the artifacts are evicted or read in here, and what was reached is looked at again.
//! 2. The control channel: without it nothing could be supervised, and so its failure is ours. Descriptors are held in
//!    reserve from here on.
//! 3. What is in use on the devices, whose driver has had the time of 1 to wake.
//! 4. Notification socket, control group, output and its logs: what the command is given at its start.
//! 5. Storage and pressure, whose counters need a figure from before the start.
//! 6. Inherited perf events, last: they belong to the thread that starts the command, and their rings take many
//!    descriptors, of which some are held back for the launch's threads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::cost::Meter;
use super::death::DeathWatch;
use super::faults;
use super::folder::Folder;
use super::kernel::{self, Kernel};
use super::live::Live;
use super::look::Probes;
use super::options::{Options, ProfileError};
use super::recorder::{Recorded, Recorder, Setup};
use super::surroundings::{self, Surroundings};
use super::tell::tell;
use crate::artifact::set::{self, Resolution};
use crate::artifact::{Artifact, Found};
use crate::ask::Asking;
use crate::ask::already::already;
use crate::cache::{self, Wish};
use crate::clock::{Clock, Mono, now_utc};
use crate::event::{Pid, text_of};
use crate::host::{self, Host, Mounts, limit_behind};
use crate::launch::tree::{Tree, TreeView};
use crate::launch::{self, Control, Finals, Outputs, OwnGroup};
use crate::probe::around::Around;
use crate::probe::available::AvailableProbe;
use crate::probe::cgroup::CgroupProbe;
use crate::probe::counters::Counters;
use crate::probe::device::DeviceProbe;
use crate::probe::mapping::MappingProbe;
use crate::probe::pagetable::PageTableProbe;
use crate::probe::process::{CounterError, ProcessProbe, memory_of_this_process};
use crate::probe::rank::RankProbe;
use crate::probe::residency::ResidencyProbe;
use crate::probe::sharing::SharingProbe;
use crate::probe::stream::{Stream, StreamWatch};
use crate::run::Meta;
use crate::run::meta::{ArtifactMeta, Condition, SCHEMA};
use crate::run::peaks::{OwnCgroup, PeaksMeta};
use crate::run::sources::Sources;
use crate::stage::asked::Values;
use crate::stage::{Matcher, StageFile};
use crate::sys::process::{await_on_abort, exit_on_abort, outlive_aborts};
use crate::watch::{self, Observed, Seen, log, notify, unseen};

/// How long the first look at the artifacts may delay the launch, in all.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// How long the first look at the devices may delay the launch: drivers that nobody uses may be slow to wake.
const BASELINE: Duration = Duration::from_secs(3);
/// The same with `--cuda-memory`: contexts are made, and weighed.
const BASELINE_WITH_CONTEXTS: Duration = Duration::from_secs(9);
/// How long the end waits for output that its reader does not take.
const DRAIN: Duration = Duration::from_secs(2);

/// Descriptors that a launch itself takes: a few at a time to start a process, one to wait for its end.
const RESERVE: usize = 6;

/// So many descriptors are needed beside those that are open from the beginning.
pub(super) const LEAST_DESCRIPTORS: usize = 8;

/// What `--reset-peaks` does to the launch.
const RESETS: &str = "--reset-peaks lowers the high-water marks of the launch's processes at each stage: what they are told of \
                      their own largest resident set (getrusage, VmHWM) is since the last stage";

/// Everything that is known before the command starts.
struct Prepared {
    folder: Option<Folder>,
    artifacts: Vec<Artifact>,
    mounts: Mounts,
    residency: ResidencyProbe,
    matcher: Matcher,
    meta: Meta,
    surroundings: Surroundings,
}

impl Prepared {
    fn of(options: &Options) -> Result<Prepared, ProfileError> {
        // Before the folder, which wrong usage should not leave behind.
        let candidates = options.candidates()?;
        let unreachable = options.check_until(&candidates)?;
        let (folder, mut warnings) =
            Folder::create(options.out.as_deref(), &options.folder_name(), options.output_log)?;

        let directory = std::env::current_dir().unwrap_or_default();
        let surroundings = Surroundings::look(options.argv.iter().map(text_of).collect(), directory.clone());
        let environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let Resolution { artifacts, warnings: unresolved, .. } =
            set::resolve(&options.artifacts, &options.argv, &environment, &directory);
        let resets = options.reset_peaks.then(|| RESETS.to_owned());
        let there = already_there(&candidates, options);
        let about_options: Vec<String> = unreachable.into_iter().chain(unresolved).chain(resets).chain(there).collect();
        if !options.quiet {
            // What was asked for may never come, and a server never ends: this is said before the start.
            about_options.iter().for_each(|text| drop(writeln!(std::io::stderr(), "stagemark: {text}")));
        }
        warnings.extend(about_options);
        warnings.extend(super::blind::warning());

        let made = Made::of(options, &artifacts);
        if !options.quiet {
            made.warnings.iter().for_each(|text| drop(writeln!(std::io::stderr(), "stagemark: {text}")));
        }
        warnings.extend(made.warnings);

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

        let mut condition = Condition::at_start(&artifact_metas);
        if let Some(asked) = made.asked {
            // As it is now, and not as it was when it had been made: between the two something may have been read again.
            condition.reached = Some(condition.artifacts.clone());
            condition.asked = Some(asked);
            condition.not_touched = made.not_touched;
        }

        let matcher = Matcher::new(candidates);
        let stages = matcher.stages().clone();
        let meta = Meta {
            schema: SCHEMA,
            stagemark: env!("CARGO_PKG_VERSION").to_owned(),
            argv: Vec::new(),
            directory: text_of(&directory),
            started: now_utc(),
            start_monotonic_ns: 0,
            interval_ns: options.interval.as_nanos() as u64,
            environment: BTreeMap::new(),
            host: Host::default(),
            condition,
            artifacts: artifact_metas,
            stages_digest: stages.digest(),
            stage_digests: stages.digests(),
            variables: BTreeMap::new(),
            until: options.until.clone().or_else(|| stages.until.clone()),
            stages,
            sources: Sources::default(),
            absent: Vec::new(),
            warnings,
            exit: None,
            printed: Vec::new(),
            death: None,
            cost: None,
            peaks: PeaksMeta::of(CounterError::here(), options.reset_peaks),
            cgroup: None,
            losses: Vec::new(),
            faults: None,
            storage: Vec::new(),
            devices: Vec::new(),
            device_probe: Default::default(),
        };
        Ok(Prepared { folder, artifacts, mounts, residency, matcher, meta, surroundings })
    }
}

/// The start condition that was asked for, as far as it was made.
#[derive(Default)]
struct Made {
    asked: Option<String>,
    warnings: Vec<String>,
    not_touched: Vec<String>,
}

impl Made {
    /// Makes it. A signal for the command that comes meanwhile ends that, and is the command's once it has started.
    fn of(options: &Options, artifacts: &[Artifact]) -> Made {
        let wish = options.cache;
        if wish == Wish::AsIs {
            return Made::default();
        }
        let outcomes =
            cache::make(wish, artifacts, &mut cache::OnTerminal::unless(options.quiet), &launch::signals::waits);
        let mut not_touched: Vec<String> = outcomes.iter().flat_map(|outcome| outcome.elsewhere.clone()).collect();
        not_touched.sort();
        not_touched.dedup();
        Made { asked: Some(wish.word().to_owned()), warnings: cache::warnings(wish, &outcomes), not_touched }
    }
}

/// What is there before the start that would mark a stage of the file that the command itself fits, or that was named.
fn already_there(candidates: &[StageFile], options: &Options) -> Vec<String> {
    let argv: Vec<String> = options.argv.iter().map(text_of).collect();
    let Some(file) = candidates.iter().find(|file| file.fits(&argv)).or(candidates.last()) else { return Vec::new() };
    let variable = |name: &String| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut values = Values::new();
    // A file's variables are those of a program that it fits; one that the command starts is not known yet.
    if file.argv.is_empty() || file.fits(&argv) {
        values.extend(file.vars.iter().map(|(name, of)| {
            let value = of.in_argv(&argv).or_else(|| of.env.iter().find_map(variable));
            (name.clone(), value.unwrap_or_else(|| of.default.clone()))
        }));
    }
    already(file, &values)
}

/// Runs the command under the profiler; returns the exit status.
pub fn profile(options: &Options) -> Result<u8, ProfileError> {
    let mut meter = Meter::begin();
    launch::signals::hold();
    few_descriptors()?;
    // The threads of the preparation may abort while the command is being started.
    outlive_aborts();
    // Drivers wake while the rest is prepared.
    let devices = || DeviceProbe::begin(options.devices.clone());
    let device = surroundings::descriptors_suffice().then(devices);
    // Before the folder, which wrong usage should not leave behind.
    let secrets = options.secrets(|name| std::env::var_os(name))?;
    let Prepared { folder, artifacts, mounts, residency, matcher, mut meta, surroundings } = Prepared::of(options)?;
    let mut warnings = std::mem::take(&mut meta.warnings);
    let mut device = device.unwrap_or_else(devices);
    let limit = if options.devices.cuda.is_some() { BASELINE_WITH_CONTEXTS } else { BASELINE };
    warnings.extend(device.baseline(limit));

    let (sender, receiver) = channel();
    let control = Control::new()?;
    let finals = Finals::default();
    // From here on what is refused (descriptors, threads) costs what it was for, and not the launch.
    let reserve = reserve();
    let notify = notify::Notify::bind(std::env::var_os("NOTIFY_SOCKET").as_deref().map(Path::new))
        .map_err(|error| warnings.push(watch::not_heard(&error)))
        .ok();
    let mut group = options.cgroup.then(OwnGroup::create);
    let command = launch::Command {
        argv: options.argv.clone(),
        environment: notify.as_ref().map(notify::Notify::environment).unwrap_or_default(),
        group: group.as_ref().and_then(|group| Some(group.as_ref().ok()?.entrance())),
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
    let mut around = Around::new(&mounts, group.as_ref().and_then(|group| Some(group.as_ref().ok()?.files())));
    around.storage.follow(&artifacts);
    around.begin();
    // Rings take a descriptor a CPU: with these, the launch's threads have some left too.
    let spare = self::reserve();
    // Inherited counters belong to the thread that opens them: the one that starts the command, which is this one.
    let counters = Counters::open();
    let stream = Stream::open(options.stream, set::has_model_name, &artifacts);
    meta.sources = kernel::sources(&stream);
    let deaths = DeathWatch::begin();
    let faults = options.faults.map(|period| faults::Prepared::open(period, folder.as_ref()));
    drop((reserve, spare));
    let started = match launch::child::start(&command, &mut outputs) {
        Ok(started) => started,
        Err(error) => {
            folder.into_iter().for_each(Folder::discard);
            group.and_then(Result::ok).map(OwnGroup::remove);
            return Err(error.into());
        }
    };

    // The command runs: nothing from here on may return before it has ended.
    await_on_abort(started.pid);
    // Whatever the fork had of this process was no more than this.
    let own_rss = memory_of_this_process();
    if let (Some(error), Some(Ok(_))) = (started.group_error, &group) {
        let error = std::io::Error::from_raw_os_error(error);
        if let Some(Ok(unused)) = group.replace(Err(format!("the command could not be put into it: {error}"))) {
            let _ = unused.remove();
        }
    }
    let cgroup = match &group {
        None => CgroupProbe::none("the launch has no control group of its own (--cgroup auto)"),
        Some(Err(why)) => {
            warnings.push(format!("the launch has no control group of its own: {why}"));
            CgroupProbe::none(format!("no control group of its own: {why}"))
        }
        Some(Ok(group)) => {
            meta.cgroup = Some(OwnCgroup { path: group.files().path(), version: group.files().version, left: None });
            CgroupProbe::of(group.files(), options.reset_peaks)
        }
    };
    let clock = Clock::new(started.start);
    meta.start_monotonic_ns = started.start.0;
    let mut tree = Tree::new(started.pid, started.start, finals.clone(), host::mask_argv);
    let kernel = stream.ok().map(|stream| Kernel::new(stream, &artifacts));
    if kernel.is_some() {
        tree.keep_history(started.start, options.argv.iter().map(text_of).collect());
    }
    let mapped = {
        let sender = sender.clone();
        move || drop(sender.send(Seen { at: Mono::now(), uncertainty_ns: Some(0), what: Observed::Recorded }))
    };
    let recorded = kernel.as_ref().and_then(|kernel| kernel.watch(mapped).map_err(|why| warnings.push(why)).ok());
    device.helper().into_iter().for_each(|pid| outputs.adopt(pid));
    outputs.keep_out_of(tree.view());
    meter.count_in(outputs.helpers());
    let view = tree.view();
    let notified = notify.and_then(|notify| {
        let watch = notify.watch(sender.clone(), Box::new(move |pid| belongs(&view, pid)));
        watch.map_err(|error| warnings.push(watch::not_heard(&error))).ok()
    });
    meta.warnings = warnings;
    let discover = !artifacts.iter().any(|artifact| artifact.found == Found::Declared);
    let faults = faults.map(|prepared| prepared.start(clock, artifacts.clone(), discover));
    let asking = Asking::new(clock, secrets, options.repeat_response, sender.clone());
    let live = if options.quiet { None } else { outputs.live_line() };
    let live = live.and_then(|line| Live::begin(line, clock));
    let recorder = Recorder::new(Setup {
        clock,
        asking: asking.clone(),
        receiver,
        folder,
        probes: Probes {
            tree,
            process: ProcessProbe::of_launch(options.argv.iter().map(text_of).collect(), own_rss, options.reset_peaks),
            mapping: MappingProbe::new(set::has_model_name),
            residency,
            pagetable: PageTableProbe::new(),
            counters,
            kernel,
            around,
            available: AvailableProbe::default(),
            sharing: SharingProbe::new(),
            ranks: RankProbe::default(),
            device,
            cgroup,
        },
        discover,
        faults,
        artifacts,
        mounts,
        matcher,
        meta,
        meter,
        surroundings,
        until: options.until.clone(),
        then: options.then,
        control: control.clone(),
        deaths,
        board: live.as_ref().map(Live::board),
        reset_peaks: options.reset_peaks,
    });
    let recording = std::thread::Builder::new().name("recorder".into()).spawn(move || recorder.run());
    let recording = recording.map_err(|error| format!("its thread cannot be had: {error}{}", limit_behind(&error)));

    let ended = launch::supervise(&started, &mut outputs, &finals, &control, &sender);
    live.into_iter().for_each(Live::finish);
    outputs.drain(DRAIN);
    if let Ok(ended) = &ended {
        exit_on_abort(ended.status());
    }
    let printed: Vec<watch::Printed> = logs.into_iter().filter_map(log::LogWatch::finish).collect();
    notified.into_iter().for_each(notify::NotifyWatch::finish);
    asking.finish();
    recorded.into_iter().for_each(StreamWatch::finish);
    if outputs.log_bytes_lost() > 0 {
        let what = Observed::Event(watch::lost(&format!("{} bytes of output", outputs.log_bytes_lost())));
        // The recorder may have failed; the command's end is told all the same.
        let _ = sender.send(Seen { at: Mono::now(), uncertainty_ns: Some(0), what });
    } else {
        // With a part missing no digest is of what was printed.
        for printed in printed {
            let what = Observed::Printed(printed);
            let _ = sender.send(Seen { at: Mono::now(), uncertainty_ns: Some(0), what });
        }
    }
    drop(sender);
    let mut recorded = recording.and_then(|thread| thread.join().map_err(|panic| cause_of(&*panic)));
    if let Some(Ok(group)) = group
        && let Err(left) = group.remove()
        && let Ok(Recorded { folder, meta }) = &mut recorded
    {
        meta.warnings.push(left.clone());
        meta.cgroup.iter_mut().for_each(|cgroup| cgroup.left = Some(left.clone()));
        folder.iter_mut().for_each(|folder| folder.meta(meta));
    }
    let exit = recorded.as_ref().ok().and_then(|recorded| recorded.meta.exit.as_ref());
    let stopped = exit.is_some_and(|exit| exit.stopped);
    // A mistake in the reports must not cost the command its exit status; the panic has been printed.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| tell(recorded, options.quiet, options.color)));
    match ended {
        Ok(_) if stopped => Ok(0),
        Ok(ended) => Ok(ended.status()),
        Err(error) => Err(error.into()),
    }
}

/// What a thread that panicked said.
fn cause_of(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("it panicked: {}", said.unwrap_or("without a word"))
}

/// Refuses what would end half-way: whether one descriptor more or less is there at each step is chance.
fn few_descriptors() -> Result<(), ProfileError> {
    let mut had = Vec::new();
    while had.len() < LEAST_DESCRIPTORS {
        match File::open("/dev/null") {
            Ok(file) => had.push(file),
            Err(source) if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                return Err(ProfileError::Descriptors { had: had.len(), source });
            }
            // Nothing else is asked here.
            Err(_) => break,
        }
    }
    Ok(())
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
