//! The recorder's thread: ticks, closer looks at marks, and a row for everything.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use super::absence::Absence;
use super::cost::Meter;
use super::death::DeathWatch;
use super::detail::{self, DetailLog};
use super::discover::{Discovered, Discovery};
use super::early::EarlyReports;
use super::faults::FaultLog;
use super::folder::Folder;
use super::kernel::Kernel;
use super::lacking;
use super::live::Board;
use super::look::{Closeness, Probes};
use super::options::Then;
use super::pace::Pace;
use super::place;
use super::state;
use super::surroundings::Surroundings;
use crate::artifact::Artifact;
use crate::ask::Asking;
use crate::clock::{At, Clock, Mono};
use crate::event::{ArtifactId, Event, Evidence, Found, Pid, What};
use crate::host::{self, Mounts};
use crate::launch::Control;
use crate::launch::tree::{Process, ProcessKey, Sighting};
use crate::metric::Metric;
use crate::probe::device::FigureOf;
use crate::run::meta::{Absent, ArtifactMeta, Cost, Exit};
use crate::run::{LoggedLine, Meta, Scope};
use crate::sample::Sample;
use crate::stage::condition::Mapped;
use crate::stage::{self, Condition, Matcher};
use crate::watch::{self, Observed, Seen};

/// The closer look at a mark: a loader may be waiting for it.
const LOOK: Duration = Duration::from_millis(50);
/// What is left of it is for the tensors, and in any case so many nanoseconds.
const LEAST_FOR_TENSORS: u64 = 5_000_000;
/// The first look at an artifact that was found after start.
const FIRST_LOOK: Duration = Duration::from_millis(5);

/// While a file is read that was mapped, and for whose mapping a stage may wait, it is asked for so often.
const BEING_READ: Duration = Duration::from_micros(250);

/// A look is left for a mapping so many times, and then goes through: there may be very many.
const MOST_LEFT: usize = 3;

/// What was seen beside a look is matched with it, up to so many things.
const MOST_AT_ONCE: usize = 10_000;
/// Longest value of an environment variable that is taken, in bytes.
const LONGEST_VALUE: usize = 1024;
/// Command lines that are kept for telling a client from a loader.
const MOST_ARGVS: usize = 1_000;

/// Whether a mapping may yet decide it: `any` and `all` say whether a first artifact, and all of them, were mapped.
fn waits_for_mapping(condition: &Condition, any: bool, all: bool) -> bool {
    match condition {
        Condition::Mapping(Mapped::Any) => !any,
        Condition::Mapping(Mapped::All) => !all,
        Condition::All(parts) | Condition::Any(parts) => parts.iter().any(|part| waits_for_mapping(part, any, all)),
        // What is unmapped has no record that could be waited for.
        _ => false,
    }
}

/// Everything that the recorder's thread owns.
pub struct Recorder {
    clock: Clock,
    /// What stages wait for and nobody says.
    asking: Asking,
    /// Of the matcher, when what is asked was last looked at.
    asked_at: Option<u64>,
    receiver: Receiver<Seen>,
    /// The reports of the stopping event, being made. Before the folder, which must not be let go while they are written.
    reports: Option<EarlyReports>,
    /// Whoever waits until everything so far was heard and recorded.
    waiting: Vec<OwnedFd>,
    folder: Option<Folder>,
    probes: Probes,
    artifacts: Vec<Artifact>,
    discovery: Option<Discovery>,
    /// `--faults`.
    faults: Option<FaultLog>,
    mounts: Mounts,
    matcher: Matcher,
    meta: Meta,
    meter: Meter,
    /// Until `run.json` is first written.
    surroundings: Option<Surroundings>,
    /// `--until`; the stage file's own stopping event holds without it.
    until: Option<String>,
    then: Then,
    control: Control,
    /// The live line's figures, where there is one.
    board: Option<Board>,
    reset_peaks: bool,
    absence: Absence,
    deaths: DeathWatch,
    detail: DetailLog,
    pace: Pace,
    last_t: At,
    /// When the artifacts' own figures were last looked at.
    artifacts_told: At,
    /// The last sample with a process in it.
    last_alive: Option<At>,
    first_mapping_seen: bool,
    /// The marks so far, each with the sample beside it.
    beside: Vec<(At, At)>,
    /// Processes whose end is recorded: the supervisor and the tree both see it.
    gone: HashSet<Pid>,
    /// The command lines that ran, as far as they are few.
    argvs: Vec<Vec<String>>,
    stopped: bool,
}

/// What the recorder leaves behind.
pub struct Recorded {
    pub folder: Option<Folder>,
    pub meta: Meta,
}

/// What the recorder needs to begin.
pub struct Setup {
    pub clock: Clock,
    pub asking: Asking,
    pub receiver: Receiver<Seen>,
    pub folder: Option<Folder>,
    pub probes: Probes,
    pub artifacts: Vec<Artifact>,
    /// Whether files that nobody named join the set.
    pub discover: bool,
    pub faults: Option<FaultLog>,
    pub mounts: Mounts,
    pub matcher: Matcher,
    pub meta: Meta,
    pub meter: Meter,
    pub surroundings: Surroundings,
    pub until: Option<String>,
    pub then: Then,
    pub control: Control,
    pub deaths: DeathWatch,
    pub board: Option<Board>,
    /// Whether high-water marks are reset at each stage.
    pub reset_peaks: bool,
}

/// What one look saw beside its values: it may have been an event by which a stage is reached.
struct Looked {
    sample: Sample,
    found: Vec<Event>,
}

impl Recorder {
    pub fn new(setup: Setup) -> Recorder {
        let Setup {
            clock,
            asking,
            receiver,
            folder,
            probes,
            artifacts,
            discover,
            faults,
            mounts,
            matcher,
            meta,
            meter,
            surroundings,
            until,
            then,
            control,
            deaths,
            board,
            reset_peaks,
        } = setup;
        Recorder {
            pace: Pace::new(meta.interval_ns, clock.start()),
            clock,
            asking,
            asked_at: None,
            receiver,
            waiting: Vec::new(),
            folder,
            probes,
            artifacts,
            discovery: discover.then(Discovery::new),
            faults,
            mounts,
            matcher,
            meta,
            meter,
            surroundings: Some(surroundings),
            until,
            then,
            control,
            board,
            reset_peaks,
            absence: Absence::default(),
            deaths,
            detail: DetailLog::default(),
            last_t: At(i64::MIN),
            artifacts_told: At(i64::MIN),
            last_alive: None,
            first_mapping_seen: false,
            beside: Vec::new(),
            gone: HashSet::new(),
            argvs: Vec::new(),
            stopped: false,
            reports: None,
        }
    }

    /// Records until every sender is gone, which is after the command's end.
    pub fn run(mut self) -> Recorded {
        // What comes 50 µs late, as the kernel's default allows, is late for the sample beside a mark.
        let _ = nix::sys::prctl::set_timerslack(1_000);
        self.begin();
        // Before anything else: what is on the disk can wait, and what the command does first cannot.
        self.tick();
        self.settle_in();
        self.ask_for_mapping();
        loop {
            self.ask();
            match self.receiver.recv_timeout(self.wait()) {
                Ok(seen) => {
                    let found = self.hear_in_order(seen);
                    self.follow(found);
                }
                Err(RecvTimeoutError::Timeout) => self.ask_for_mapping(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tick();
        }
        self.finish()
    }

    /// Until the next tick, or until a mapping is to be asked for again, or what was mapped, which is being read.
    fn wait(&self) -> Duration {
        let until_tick = Duration::from_nanos(self.pace.wait_ns(Mono::now()));
        let Some(kernel) = &self.probes.kernel else { return until_tick };
        let is_read = kernel.is_pending() && self.discovery.as_ref().is_some_and(Discovery::is_busy);
        let soon = if is_read { Some(BEING_READ) } else { kernel.ask_after() };
        soon.map_or(until_tick, |soon| soon.min(until_tick))
    }

    /// Follows up a mapping that a stage waits for, if one was recorded, or what was mapped has been read by now.
    fn ask_for_mapping(&mut self) {
        if !self.probes.kernel.as_ref().is_some_and(Kernel::is_pending) {
            return;
        }
        if self.probes.kernel.as_ref().is_some_and(Kernel::has_awaited) {
            // Whatever else was seen before it comes first.
            let heard = self.receiver.try_iter().take(MOST_AT_ONCE).collect();
            let found = self.hear_all(heard, Vec::new());
            self.follow(found);
        }
        let known = self.artifacts.len();
        let mut found = self.adopt();
        if self.artifacts.len() > known {
            // What it was mapped for was recorded before it was known.
            let heard = self.receiver.try_iter().take(MOST_AT_ONCE).collect();
            found.extend(self.hear_all(heard, Vec::new()));
        }
        self.follow(found);
        self.set_pending();
    }

    fn set_pending(&mut self) {
        let pending = self.mapping_pending();
        if let Some(kernel) = &mut self.probes.kernel {
            kernel.set_pending(pending);
        }
    }

    /// Takes a sample, if one is due.
    fn tick(&mut self) {
        let Some(due) = self.pace.due(Mono::now()) else { return };
        self.set_pending();
        let mapping_pending = self.mapping_pending();
        let interval = Duration::from_nanos(self.pace.interval());
        let looked = self.look(due.late_ns, Closeness::Tick { interval, mapping_pending, leaves: mapping_pending });
        self.follow(looked.found);
        self.flush();
    }

    /// Has asked what stages wait for now, and nothing else.
    fn ask(&mut self) {
        if self.asked_at == Some(self.matcher.changes()) {
            return;
        }
        self.asked_at = Some(self.matcher.changes());
        // Once nobody is left to answer nothing new is asked; what is in flight may have been answered before.
        if !self.stopped && self.meta.exit.is_none() {
            self.asking.follow(self.matcher.wanted());
        }
        if self.meta.variables != *self.matcher.values() {
            self.meta.variables = self.matcher.values().clone();
            self.write_meta();
        }
    }

    /// What the matcher must know before the first look, and the folder before its first rows.
    fn begin(&mut self) {
        let found = self.meta.artifacts.iter().map(|artifact| artifact.found.clone()).collect::<Vec<_>>();
        for (index, found) in found.into_iter().enumerate() {
            let at = self.clock.start();
            self.happened(at, Some(0), What::Artifact { artifact: ArtifactId(index), found });
        }
        if self.probes.device.devices().iter().any(|device| device.is_counted) {
            let what = What::Present { metric: Metric::DeviceUsedBytes };
            self.write(&Event { at: At(0), uncertainty_ns: Some(0), what });
        }
        for text in self.meta.warnings.clone() {
            self.write(&Event {
                at: self.clock.at(Mono::now()),
                uncertainty_ns: Some(0),
                what: What::Warning { text },
            });
        }
    }

    /// After the first look.
    fn settle_in(&mut self) {
        if self.meta.condition.state.is_empty() {
            self.look_at_state();
        }
        self.write_meta();
    }

    fn finish(mut self) -> Recorded {
        if let Some(kernel) = &self.probes.kernel {
            kernel.count();
        }
        let looked = self.look(0, Closeness::Mark { limit: LOOK });
        let last = looked.sample.values;
        self.follow(looked.found);
        self.end_history();
        if let Some((used, reason)) = self.probes.device.verdict() {
            self.happened(Mono::now(), Some(0), What::DeviceUse { used, reason });
        }
        let reason = |metric| self.absence.ever().find(|(of, _)| *of == metric).map_or("", |(_, why)| why).to_owned();
        self.meta.warnings.extend(lacking::caveats(self.probes.process.caveats(), &last, reason));
        self.faults.iter_mut().for_each(FaultLog::finish);
        if let Some(text) = place::fits_nothing(&self.meta.stages, self.matcher.has_fitted()) {
            self.happened(Mono::now(), Some(0), What::Warning { text });
        }
        if self.then == Then::Stop && !self.stopped {
            let text = place::never_stopped(self.meta.until.as_deref());
            self.happened(Mono::now(), Some(0), What::Warning { text });
        }
        if self.meta.artifacts.iter().all(|artifact| artifact.state == "declared") {
            let told = place::nothing_opened(self.argvs.iter().map(Vec::as_slice), !self.artifacts.is_empty());
            self.happened(Mono::now(), Some(0), What::Warning { text: told });
        }
        self.meta.death = self.deaths.conclude(&self.meta, self.last_alive);
        self.survivors();
        self.tell_absences();
        for (index, artifact) in self.meta.artifacts.iter_mut().enumerate() {
            artifact.trust = self.probes.residency.trust(ArtifactId(index)).unwrap_or(artifact.trust.clone());
        }
        self.flush();
        // Those of the end are made from the whole folder.
        self.reports = None;
        self.meta.cost = Some(self.cost());
        self.write_meta();
        Recorded { folder: self.folder, meta: self.meta }
    }

    /// Processes of the launch that outlive the command. What is stopped at the stopping event is all of it.
    fn survivors(&mut self) {
        let left: Vec<ProcessKey> = self.probes.tree.live();
        let mut names = Vec::new();
        for key in left {
            // It may have ended since the last look.
            if self.probes.tree.reread(key).is_none_or(|stat| stat.has_ended()) {
                continue;
            }
            names.extend(self.probes.tree.process(key.pid).map(Process::label));
            if self.stopped {
                // Whoever ended meanwhile needs no signal.
                let _ = kill(nix::unistd::Pid::from_raw(key.pid), Signal::SIGTERM);
            }
        }
        if let Some(text) = place::survivors(&names, self.stopped) {
            self.happened(Mono::now(), Some(0), What::Warning { text });
        }
    }

    /// What the kernel's records leave to be told, and how far they went.
    fn end_history(&mut self) {
        for (at, uncertainty_ns, what) in self.probes.tree.settle() {
            let found = self.happened(at, uncertainty_ns, what);
            self.follow(found);
        }
        let Some(kernel) = &mut self.probes.kernel else { return };
        kernel.enter(&mut self.meta.sources, &self.clock);
        let missed = kernel
            .has_missed_cpus()
            .then(|| "CPUs came online while the command ran: what ran on them was seen by looking only".to_owned());
        for text in [kernel.warning(true), missed].into_iter().flatten() {
            self.happened(Mono::now(), Some(0), What::Warning { text });
        }
    }

    /// Puts every metric that was absent at some time into `run.json`, beside those that nothing could fill.
    fn tell_absences(&mut self) {
        let why =
            "looked at in the closer look at a mark only; beside a mapping the sample is taken at once, without one";
        let at_marks = Metric::levels().filter(|metric| !metric.is_gauge()).map(|metric| (metric, why));
        let owned = |(metric, reason): (Metric, &str)| Absent { metric, reason: reason.to_owned() };
        let ever = self.absence.ever().map(owned);
        let between = self.probes.around.between().chain(self.probes.device.between());
        let by_design = at_marks.chain(between).map(|(metric, reason)| owned((metric, reason)));
        for absent in ever.chain(by_design) {
            if !self.meta.absent.iter().any(|known| known.metric == absent.metric) {
                self.meta.absent.push(absent);
            }
        }
    }

    /// Takes what a watcher saw, together with what else was seen and recorded before it, where their order matters: the
    /// earlier of two things that show a stage marks it, whichever is heard first.
    fn hear_in_order(&mut self, seen: Seen) -> Vec<Event> {
        let is_line = matches!(seen.what, Observed::Line(_) | Observed::Lost { .. });
        if self.probes.kernel.is_none() || (is_line && !self.mapping_pending()) {
            return self.hear(seen);
        }
        let mut heard = vec![seen];
        heard.extend(self.receiver.try_iter().take(MOST_AT_ONCE));
        self.hear_all(heard, Vec::new())
    }

    /// Takes things that were seen and whatever the kernel recorded before them, in order of time.
    fn hear_all(&mut self, mut heard: Vec<Seen>, mut sightings: Vec<Sighting>) -> Vec<Event> {
        // Their ends are told with the records' times.
        heard.retain(|seen| match &seen.what {
            Observed::Event(what @ What::Gone { .. }) => !self.probes.tree.reaped(seen.at, seen.uncertainty_ns, what),
            _ => true,
        });
        self.probes.hear_kernel(&self.artifacts, Vec::new(), &mut sightings);
        let discovered = self.probes.mapping.take_discovered();
        self.discover(discovered);
        for seen in &mut heard {
            if let Observed::Event(What::Exit { pid, .. }) = seen.what
                && let Some(end) = self.probes.tree.end_of(pid).filter(|end| *end <= seen.at)
            {
                (seen.at, seen.uncertainty_ns) = (end, Some(0));
            }
        }
        heard.extend(sightings.into_iter().map(|(at, uncertainty_ns, what)| Seen {
            at,
            uncertainty_ns,
            what: Observed::Event(what),
        }));
        heard.sort_by_key(|seen| seen.at);
        let mut found: Vec<Event> = heard.into_iter().flat_map(|seen| self.hear(seen)).collect();
        if let Some(text) = self.probes.kernel.as_mut().and_then(|kernel| kernel.warning(false)) {
            found.extend(self.happened(Mono::now(), Some(0), What::Warning { text }));
        }
        found
    }

    /// Takes what a watcher saw; returns the marks and matches that follow from it, not yet recorded.
    fn hear(&mut self, seen: Seen) -> Vec<Event> {
        match seen.what {
            Observed::Line(line) => {
                // What may fill the disk comes after what says what the run is.
                if self.surroundings.is_some() {
                    self.write_meta();
                }
                let (at, line) = (self.clock.at(seen.at), line.into_line());
                let logged = LoggedLine { at, uncertainty_ns: seen.uncertainty_ns, line };
                if let Some(folder) = &mut self.folder {
                    folder.line(&logged);
                }
                self.matcher.line(logged.at, logged.uncertainty_ns, &logged.line)
            }
            Observed::Event(what) => self.happened(seen.at, seen.uncertainty_ns, what),
            Observed::Lost { stream, lines, bytes } => {
                let what = watch::lost(&format!("{lines} lines ({bytes} bytes) of {stream:?}"));
                self.happened(seen.at, seen.uncertainty_ns, what)
            }
            Observed::Response { stage, part, text } => {
                if let Some(folder) = &mut self.folder {
                    folder.response(&stage, part, &text);
                }
                Vec::new()
            }
            Observed::Printed(printed) => {
                self.meta.printed.push(printed);
                Vec::new()
            }
            Observed::Answer(row) => {
                self.folder.iter_mut().for_each(|folder| folder.answer(row.clone()));
                Vec::new()
            }
            // Its record was taken by now.
            Observed::Recorded => Vec::new(),
            Observed::Barrier(waiting) => {
                self.waiting.push(waiting);
                Vec::new()
            }
        }
    }

    /// Records something that happened; returns the marks and matches that follow from it, not yet recorded.
    fn happened(&mut self, at: Mono, uncertainty_ns: Option<u64>, what: What) -> Vec<Event> {
        let event = Event { at: self.clock.at(at), uncertainty_ns, what };
        let mut marks = Vec::new();
        if let What::Exit { pid, .. } = event.what
            && self.argvs.is_empty()
        {
            // It ended before anybody had looked. What it ran is known all the same, and a stage file goes by that.
            self.enter_surroundings();
            let exec = What::Exec { pid, argv: self.meta.argv.clone() };
            marks = self.happened(self.clock.start(), Some(0), exec);
        }
        // A history tells each end once, and may tell it when its number is another's.
        if let What::Gone { pid, .. } = event.what
            && self.probes.kernel.is_none()
            && !self.gone.insert(pid)
        {
            return Vec::new();
        }
        if let What::Exec { pid, argv } = &event.what {
            self.tell_environment(event.at, *pid, argv);
        }
        self.note(&event);
        self.write(&event);
        marks.extend(self.matcher.event(&event));
        if self.matcher.stages().name != self.meta.stages.name {
            self.chosen();
        }
        marks
    }

    /// Tells the matcher of the variables from which a stage file takes values, as a program has them that it fits. A
    /// process that is gone by now has those of its launch, as far as anybody knows.
    fn tell_environment(&mut self, at: At, pid: Pid, argv: &[String]) {
        let names = self.matcher.environment_of(argv);
        if names.is_empty() {
            return;
        }
        let own = std::fs::read(format!("/proc/{pid}/environ")).ok().filter(|own| !own.is_empty());
        for name in names {
            let of_process = own.as_ref().map(|own| {
                let entries = own.split(|&byte| byte == 0);
                entries
                    .filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
                    .next()
                    .map(<[u8]>::to_vec)
            });
            let of_launch = || std::env::var_os(&name).map(OsStringExt::into_vec);
            let Some(value) = of_process.unwrap_or_else(of_launch) else { continue };
            let value = String::from_utf8_lossy(&value[..value.len().min(LONGEST_VALUE)]);
            if value.is_empty() {
                continue;
            }
            let value = host::mask::mask_text(&value).into_owned();
            let event = Event { at, uncertainty_ns: Some(0), what: What::Environment { pid, name, value } };
            self.write(&event);
            self.matcher.event(&event);
        }
    }

    /// What an event changes in `run.json`.
    fn note(&mut self, event: &Event) {
        let mut state = |ArtifactId(index): ArtifactId, state: &str| {
            if let Some(artifact) = self.meta.artifacts.get_mut(index)
                && artifact.state != "mapped"
            {
                artifact.state = state.to_owned();
            }
        };
        match &event.what {
            What::Opened { artifact, .. } => state(*artifact, "opened"),
            What::Mapped { artifact, .. } => {
                state(*artifact, "mapped");
                self.first_mapping_seen = true;
            }
            What::Born { pid, .. } => drop(self.gone.remove(pid)),
            What::Exec { argv, .. } if self.argvs.len() < MOST_ARGVS => self.argvs.push(argv.clone()),
            What::Gone { pid, .. } => self.end_of(*pid),
            What::Warning { text } => self.meta.warnings.push(text.clone()),
            What::Exit { code, signal, .. } => {
                let stopped_at = self.meta.until.clone().filter(|_| self.stopped);
                let (code, signal, stopped) = (*code, *signal, self.stopped);
                self.meta.exit = Some(Exit { at: event.at, code, signal, stopped, stopped_at });
            }
            _ => {}
        }
    }

    fn end_of(&mut self, pid: Pid) {
        for row in self.detail.end(pid) {
            if let Some(folder) = &mut self.folder {
                folder.detail(&row);
            }
        }
    }

    /// A stage file was chosen by an exec in the tree.
    fn chosen(&mut self) {
        self.meta.stages = self.matcher.stages().clone();
        self.meta.stages_digest = self.meta.stages.digest();
        self.meta.stage_digests = self.meta.stages.digests();
        self.meta.until = self.until.clone().or_else(|| self.meta.stages.until.clone());
        self.look_at_state();
        self.write_meta();
    }

    /// What the stage file names as retained state, before the launch has had time to change it.
    fn look_at_state(&mut self) {
        self.meta.condition.state = state::sizes(&self.meta.stages.state, |name| std::env::var_os(name));
    }

    /// Records marks, each beside a closer look, and what follows from that look. Then nobody need wait any more.
    fn follow(&mut self, mut found: Vec<Event>) {
        while !found.is_empty() {
            let mut next = Vec::new();
            let is_mark = |event: &Event| matches!(event.what, What::Mark(_));
            let closeness = self.closeness_of(&found);
            let sample = found.iter().any(is_mark).then(|| {
                let looked = self.look(0, closeness);
                next = looked.found;
                if self.reset_peaks {
                    self.probes.reset_peaks();
                    let at = self.clock.at(Mono::now());
                    self.write(&Event { at, uncertainty_ns: Some(0), what: What::PeaksReset {} });
                }
                looked.sample
            });
            for mut event in found {
                if let (What::Mark(mark), Some(sample)) = (&mut event.what, &sample) {
                    // What was heard after the launch was over has the values from before.
                    let heard_late = stage::outlives_the_launch(mark.evidence) || mark.evidence == Evidence::Mapping;
                    let before = stage::is_over(sample) && heard_late;
                    let taken = self.last_alive.filter(|_| before).unwrap_or(sample.t);
                    // What is known only afterwards names its own sample.
                    let taken = mark.sampled.unwrap_or(taken);
                    // A line that is read after the end has the values from before it. The end has its own all the same:
                    // what the processes were last seen to have is not what they took.
                    let is_end = mark.evidence == Evidence::Exit;
                    mark.sampled = Some(if is_end { taken } else { self.beside(event.at, taken) });
                }
                self.write(&event);
                if let (What::Mark(mark), Some(board)) = (&event.what, &self.board) {
                    board.stage(&mark.stage);
                }
                if let What::Mark(mark) = event.what
                    && Some(&mark.stage) == self.meta.until.as_ref()
                {
                    self.stopping_event();
                }
            }
            found = next;
        }
        if !self.waiting.is_empty() {
            self.flush();
            self.waiting.clear();
        }
    }

    /// The sample that stands beside a mark: this one, or an earlier one that stands beside a later mark already, where
    /// this one was heard of after that. So what happened between two marks is never less than nothing.
    fn beside(&mut self, mark: At, taken: At) -> At {
        let later = self.beside.iter().filter(|(at, _)| *at > mark).map(|(_, sample)| *sample);
        let taken = later.fold(taken, At::min);
        self.beside.push((mark, taken));
        taken
    }

    /// Nobody waits for a mapping to be marked, and the sample beside it is worth the more the sooner it is taken.
    fn closeness_of(&self, found: &[Event]) -> Closeness {
        let is_mark = |event: &&Event| matches!(event.what, What::Mark(_));
        let by_mapping = |event: &Event| matches!(&event.what, What::Mark(mark) if mark.evidence == Evidence::Mapping);
        let mut marks = found.iter().filter(is_mark);
        match marks.next_back() {
            Some(last) if by_mapping(last) && marks.all(by_mapping) && self.probes.kernel.is_some() => {
                let at = u64::try_from(last.at.0).unwrap_or(0);
                Closeness::Glance { mapped: self.clock.start().plus(at) }
            }
            _ => Closeness::Mark { limit: LOOK },
        }
    }

    /// The account ends here: reports are made, the set is closed, and sampling goes on slowly.
    fn stopping_event(&mut self) {
        if self.stopped {
            return;
        }
        // An empty set stays open: a load that was over before its file was found is better known late than not at all.
        if !self.artifacts.is_empty() {
            self.discovery = None;
            self.faults.iter().for_each(FaultLog::set_closed);
        }
        self.pace.slow_down(Mono::now());
        if self.meta.exit.is_none() {
            self.meta.cost = Some(self.cost());
            self.flush();
            self.write_meta();
            self.reports = self.folder.as_ref().map(Folder::place).and_then(EarlyReports::begin);
            if self.then == Then::Stop {
                self.stopped = true;
                self.control.stop();
            }
        }
    }

    /// Looks at everything once, writes the sample, and matches what was seen meanwhile, in order of time.
    fn look(&mut self, late_ns: u64, mut closeness: Closeness) -> Looked {
        // To take a new file in is not quick.
        let mut found = if let Closeness::Glance { .. } = closeness { Vec::new() } else { self.adopt() };
        let mut patience = MOST_LEFT;
        let look = loop {
            let left = match self.probes.look(&self.artifacts, closeness) {
                Ok(look) => break look,
                Err(left) => left,
            };
            self.discover(left.discovered);
            let heard = self.receiver.try_iter().take(MOST_AT_ONCE).collect();
            found.extend(self.hear_all(heard, left.sightings));
            self.follow(std::mem::take(&mut found));
            patience -= 1;
            if let Closeness::Tick { leaves, .. } = &mut closeness {
                *leaves = patience > 0 && self.mapping_pending();
            }
        };
        self.deaths.look(&self.probes.tree);
        self.discover(look.discovered);
        let heard = self.receiver.try_iter().take(MOST_AT_ONCE).collect();
        found.extend(self.hear_all(heard, look.sightings));

        // Two looks may end in one nanosecond's reading of the clock; a sample's time is its name in the folder.
        let t = At(self.clock.at(look.ended).0.max(self.last_t.0.saturating_add(1)));
        self.last_t = t;
        let sample = Sample { t, late_ns, cost_ns: look.ended.since(look.began), values: look.values };
        if !stage::is_over(&sample) {
            self.last_alive = Some(t);
            self.board.iter().for_each(|board| board.sample(&sample.values));
        }
        if let Some(folder) = &mut self.folder {
            folder.sample(&sample);
        }
        for what in self.absence.update(&sample.values, look.absences) {
            self.write(&Event { at: t, uncertainty_ns: Some(0), what });
        }
        if let (Some(faults), Closeness::Mark { limit }) = (&self.faults, closeness) {
            let limit = look.began.plus(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
            let deadline = limit.max(Mono::now().plus(LEAST_FOR_TENSORS));
            faults.residency(t, self.probes.residency.tensors(&self.artifacts, deadline));
        }
        self.details(t, matches!(closeness, Closeness::Mark { .. }));
        if let Some(doubled) = self.pace.took(sample.cost_ns) {
            found.extend(self.happened(look.ended, Some(0), What::warning(doubled)));
        }
        found.extend(self.matcher.sample(&sample));
        Looked { sample, found }
    }

    /// Has files read that look like artifacts.
    fn discover(&mut self, paths: Vec<PathBuf>) {
        if let Some(discovery) = &mut self.discovery {
            paths.into_iter().for_each(|path| discovery.look(path));
        }
    }

    /// Whether a stage waits for a mapping.
    fn mapping_pending(&self) -> bool {
        if self.stopped || self.meta.exit.is_some() {
            return false;
        }
        let all = !self.artifacts.is_empty() && self.meta.artifacts.iter().all(|artifact| artifact.state == "mapped");
        self.matcher.stages().stages.iter().any(|stage| {
            let waits = stage.when.as_ref().is_some_and(|when| waits_for_mapping(when, self.first_mapping_seen, all));
            waits && !self.matcher.reached(&stage.name)
        })
    }

    /// Takes into the set what was discovered and has been read by now.
    fn adopt(&mut self) -> Vec<Event> {
        let mut marks = Vec::new();
        for found in self.discovery.as_mut().map(Discovery::ready).unwrap_or_default() {
            let artifact = match found {
                Discovered::Left(why) if why.is_empty() => continue,
                Discovered::Left(why) => {
                    marks.extend(self.happened(Mono::now(), Some(0), What::warning(why)));
                    continue;
                }
                Discovered::Unopened(artifact, why) => {
                    marks.extend(self.happened(Mono::now(), Some(0), What::warning(why)));
                    artifact
                }
                Discovered::Artifact(artifact) => artifact,
            };
            let known = |other: &Artifact| (other.device, other.inode) == (artifact.device, artifact.inode);
            if self.artifacts.iter().any(known) {
                continue;
            }
            let trust = self.probes.residency.add(&artifact, FIRST_LOOK);
            let at_start = Err("discovered after start".to_owned());
            self.meta.artifacts.push(ArtifactMeta::of(&artifact, trust, at_start, &self.mounts));
            self.artifacts.push(*artifact);
            self.faults.iter().for_each(|faults| faults.artifacts(self.artifacts.clone()));
            let what = What::Artifact { artifact: ArtifactId(self.artifacts.len() - 1), found: Found::Discovered };
            marks.extend(self.happened(Mono::now(), Some(0), what));
            self.write_meta();
        }
        marks
    }

    fn details(&mut self, t: At, at_mark: bool) {
        let Some(folder) = &mut self.folder else { return };
        let mut offer = |scope, metric, value| {
            if let Some(row) = self.detail.offer(t, scope, metric, value, at_mark) {
                folder.detail(&row);
            }
        };
        let mut figures = self.probes.process.figures();
        if at_mark {
            figures.extend_from_slice(self.probes.sharing.figures());
        }
        for figure in &figures {
            offer(Scope::Process(figure.pid), figure.metric, figure.value);
        }
        for (index, given) in self.probes.around.storage.figures() {
            offer(Scope::Storage(index), "read_bytes", given.read_bytes);
            offer(Scope::Storage(index), "reads", given.reads);
            if let Some(busy) = given.busy_ns {
                offer(Scope::Storage(index), "busy_ns", busy);
            }
        }
        for figure in self.probes.device.figures() {
            let scope = match figure.of {
                FigureOf::Device(index) => Scope::Device(index),
                FigureOf::Process(pid) => Scope::Process(pid),
            };
            offer(scope, figure.metric, figure.value);
        }
        for figure in self.probes.ranks.figures(figures.iter()) {
            offer(Scope::Rank(figure.rank), figure.metric, figure.value);
        }
        // They have no end at which their last figures would be wanted, and many tensors make them dear.
        if !at_mark && t.0.saturating_sub(self.artifacts_told.0) < detail::APART_NS {
            return;
        }
        self.artifacts_told = t;
        for file in self.probes.residency.files(self.clock.start().plus(t.0.max(0) as u64)) {
            if let Ok(resident) = file.resident {
                offer(Scope::Artifact(file.artifact), "resident_bytes", resident);
            }
        }
        if at_mark || self.probes.residency.is_withheld() {
            for file in self.probes.pagetable.files() {
                offer(Scope::Artifact(file.artifact), "resident_low_bytes", file.low);
            }
        }
        if at_mark {
            for (index, evicted) in self.probes.residency.recently_evicted().into_iter().enumerate() {
                if let Some(bytes) = evicted {
                    offer(Scope::Artifact(ArtifactId(index)), "recently_evicted_bytes", bytes);
                }
            }
        }
        for file in self.probes.mapping.files(&self.artifacts) {
            offer(Scope::Artifact(file.artifact), "mapped_bytes", file.mapped_bytes);
            if let Some(payload) = file.mapped_payload_bytes {
                offer(Scope::Artifact(file.artifact), "mapped_payload_bytes", payload);
            }
        }
    }

    fn cost(&self) -> Cost {
        Cost {
            ticks: self.pace.rows(),
            late_ticks: self.pace.late(),
            tick_cost_median_ns: self.pace.cost_percentile(50),
            tick_cost_p99_ns: self.pace.cost_percentile(99),
            interval_ns: self.pace.interval(),
            ..self.meter.read()
        }
    }

    fn write(&mut self, event: &Event) {
        self.deaths.event(event);
        if let Some(folder) = &mut self.folder {
            folder.event(event);
        }
    }

    fn enter_surroundings(&mut self) {
        if let Some(surroundings) = self.surroundings.take() {
            surroundings.enter(&mut self.meta);
        }
    }

    fn write_meta(&mut self) {
        self.enter_surroundings();
        if let Some(folder) = &mut self.folder {
            self.meta.losses = folder.losses();
            if let Some(faults) = &self.faults {
                self.meta.losses.extend(faults.losses());
                self.meta.faults = Some(faults.samples());
            }
            self.meta.storage = self.probes.around.storage.boundaries().to_vec();
            self.meta.devices = self.probes.device.devices().to_vec();
            self.meta.device_probe = self.probes.device.meta().clone();
            folder.meta(&self.meta);
        }
    }

    fn flush(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.flush();
        }
    }
}
