//! The recorder's thread: ticks, closer looks at marks, and a row for everything.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::absence::Absence;
use super::detail::DetailLog;
use super::discover::{Discovered, Discovery};
use super::folder::Folder;
use super::pace::Pace;
use super::profile::Then;
use crate::artifact::Artifact;
use crate::clock::{Clock, Mono};
use crate::event::{ArtifactId, Event, Found, Pid, What};
use crate::host::Mounts;
use crate::launch::Control;
use crate::launch::tree::Tree;
use crate::metric::{Metric, Values};
use crate::probe::counters::Counters;
use crate::probe::mapping::{MappingProbe, MappingReading};
use crate::probe::process::ProcessProbe;
use crate::probe::residency::ResidencyProbe;
use crate::probe::{Absences, Reading};
use crate::run::meta::{ArtifactMeta, Cost, Exit};
use crate::run::{Detail, LoggedLine, Meta, Scope};
use crate::sample::Sample;
use crate::stage::{Condition, Matcher};
use crate::watch::{Observed, Seen};

/// Residency work a tick.
const RESIDENCY_BUDGET: Duration = Duration::from_micros(350);
/// Mapping work a tick…
const MAPPING_BUDGET: Duration = Duration::from_micros(200);
/// …and while a stage waits for a mapping.
const MAPPING_BUDGET_PENDING: Duration = Duration::from_micros(1_000);
/// The closer look at a mark: a loader may be waiting for it.
const LOOK: Duration = Duration::from_millis(50);
/// The first look at an artifact that was found after start.
const FIRST_LOOK: Duration = Duration::from_millis(5);

/// The probes over one launch.
pub struct Probes {
    pub tree: Tree,
    pub process: ProcessProbe,
    pub mapping: MappingProbe,
    pub residency: ResidencyProbe,
    pub counters: Counters,
}

/// Everything that the recorder's thread owns.
pub struct Recorder {
    clock: Clock,
    folder: Option<Folder>,
    probes: Probes,
    artifacts: Vec<Artifact>,
    discovery: Option<Discovery>,
    mounts: Mounts,
    matcher: Matcher,
    meta: Meta,
    /// `--until`; the stage file's own stopping event holds without it.
    until: Option<String>,
    then: Then,
    control: Control,
    absence: Absence,
    detail: DetailLog,
    pace: Pace,
    last_t: i64,
    first_mapping_seen: bool,
    stopped: bool,
    /// The reports of the stopping event, being made.
    reports: Option<JoinHandle<()>>,
}

/// What the recorder leaves behind.
pub struct Recorded {
    pub folder: Option<Folder>,
    pub meta: Meta,
}

/// What the recorder needs to begin.
pub struct Setup {
    pub clock: Clock,
    pub folder: Option<Folder>,
    pub probes: Probes,
    pub artifacts: Vec<Artifact>,
    /// Whether files that nobody named join the set.
    pub discover: bool,
    pub mounts: Mounts,
    pub matcher: Matcher,
    pub meta: Meta,
    pub until: Option<String>,
    pub then: Then,
    pub control: Control,
}

/// What one look saw beside its values: it may have been an event by which a stage is reached.
struct Looked {
    sample: Sample,
    marks: Vec<Event>,
}

impl Recorder {
    pub fn new(setup: Setup) -> Recorder {
        let Setup { clock, folder, probes, artifacts, discover, mounts, matcher, meta, until, then, control } = setup;
        Recorder {
            pace: Pace::new(meta.interval_ns, Mono::now()),
            clock,
            folder,
            probes,
            artifacts,
            discovery: discover.then(Discovery::new),
            mounts,
            matcher,
            meta,
            until,
            then,
            control,
            absence: Absence::default(),
            detail: DetailLog::default(),
            last_t: i64::MIN,
            first_mapping_seen: false,
            stopped: false,
            reports: None,
        }
    }

    /// Records until every sender is gone, which is after the command's end.
    pub fn run(mut self, receiver: Receiver<Seen>) -> Recorded {
        self.begin();
        loop {
            let wait = Duration::from_nanos(self.pace.wait_ns(Mono::now()));
            match receiver.recv_timeout(wait) {
                Ok(seen) => self.hear(seen),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(due) = self.pace.due(Mono::now()) {
                let looked = self.look(due.late_ns, None);
                self.follow(looked.marks);
                self.flush();
            }
        }
        self.finish()
    }

    fn begin(&mut self) {
        let found = self.meta.artifacts.iter().map(|artifact| artifact.found.clone()).collect::<Vec<_>>();
        for (index, found) in found.into_iter().enumerate() {
            let at = self.clock.start();
            self.happened(at, Some(0), What::Artifact { artifact: ArtifactId(index), found });
        }
        for text in self.meta.warnings.clone() {
            self.write(&Event {
                at: self.clock.at(Mono::now()),
                uncertainty_ns: Some(0),
                what: What::Warning { text },
            });
        }
        self.write_meta();
    }

    fn finish(mut self) -> Recorded {
        let looked = self.look(0, Some(LOOK));
        self.follow(looked.marks);
        self.meta.warnings.extend(self.probes.process.caveats());
        self.meta.cost = Some(self.cost());
        self.flush();
        // The reports of the end are made from the whole folder, after those of the stopping event.
        if let Some(reports) = self.reports.take() {
            let _ = reports.join();
        }
        self.write_meta();
        Recorded { folder: self.folder, meta: self.meta }
    }

    /// Takes what a watcher saw.
    fn hear(&mut self, seen: Seen) {
        match seen.what {
            Observed::Line(line) => {
                let (at, line) = (self.clock.at(seen.at), line.into_line());
                let logged = LoggedLine { at, uncertainty_ns: seen.uncertainty_ns, line };
                if let Some(folder) = &mut self.folder {
                    folder.line(&logged);
                }
                let marks = self.matcher.line(logged.at, logged.uncertainty_ns, &logged.line);
                self.follow(marks);
            }
            Observed::Event(what) => {
                let marks = self.happened(seen.at, seen.uncertainty_ns, what);
                self.follow(marks);
            }
            Observed::Lost { stream, lines, bytes } => {
                let text = format!("{lines} lines ({bytes} bytes) of {stream:?} came too fast to be matched or kept");
                let marks = self.happened(seen.at, seen.uncertainty_ns, What::warning(text));
                self.follow(marks);
            }
            Observed::Barrier(waiting) => {
                self.flush();
                drop(waiting);
            }
        }
    }

    /// Records something that happened; returns the marks and matches that follow from it, not yet recorded.
    fn happened(&mut self, at: Mono, uncertainty_ns: Option<u64>, what: What) -> Vec<Event> {
        let event = Event { at: self.clock.at(at), uncertainty_ns, what };
        self.note(&event);
        self.write(&event);
        let marks = self.matcher.event(&event);
        if self.matcher.stages().name != self.meta.stages.name {
            self.chosen();
        }
        marks
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
            What::Gone { pid, .. } => self.end_of(*pid),
            What::Warning { text } => self.meta.warnings.push(text.clone()),
            What::Exit { code, signal, .. } => {
                self.meta.exit = Some(Exit { at: event.at, code: *code, signal: *signal, stopped: self.stopped });
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
        self.meta.until = self.until.clone().or_else(|| self.meta.stages.until.clone());
        self.write_meta();
    }

    /// Records marks, each beside a closer look, and what follows from that look.
    fn follow(&mut self, mut found: Vec<Event>) {
        while !found.is_empty() {
            let mut next = Vec::new();
            let is_mark = |event: &Event| matches!(event.what, What::Mark(_));
            let sampled = found.iter().any(is_mark).then(|| {
                let looked = self.look(0, Some(LOOK));
                next = looked.marks;
                looked.sample.t
            });
            for mut event in found {
                if let What::Mark(mark) = &mut event.what {
                    mark.sampled = sampled;
                }
                self.write(&event);
                if let What::Mark(mark) = event.what
                    && Some(&mark.stage) == self.meta.until.as_ref()
                {
                    self.stopping_event();
                }
            }
            found = next;
        }
    }

    /// The account ends here: reports are made, the set is closed, and sampling goes on slowly.
    fn stopping_event(&mut self) {
        if self.stopped {
            return;
        }
        self.discovery = None;
        self.pace.slow_down(Mono::now());
        if self.meta.exit.is_none() {
            self.meta.cost = Some(self.cost());
            self.flush();
            self.write_meta();
            if let Some(path) = self.folder.as_ref().map(|folder| folder.path().to_owned()) {
                let made = std::thread::Builder::new().name("reports".into()).spawn(move || {
                    // Made again at the end, where a failure is told.
                    let _ = crate::report::folder::make(&path);
                });
                self.reports = made.ok();
            }
            if self.then == Then::Stop {
                self.stopped = true;
                self.control.stop();
            }
        }
    }

    /// Looks at everything once and writes the sample; `closer` bounds a look at a mark.
    fn look(&mut self, late_ns: u64, closer: Option<Duration>) -> Looked {
        let began = Mono::now();
        let mut marks = self.adopt();
        for (at, uncertainty_ns, what) in self.probes.tree.sweep(began) {
            marks.extend(self.happened(at, uncertainty_ns, what));
        }
        let budget = self.mapping_budget();
        let Probes { tree, process, mapping, counters, .. } = &mut self.probes;
        let mut readings = vec![process.tick(tree, began), counters.read()];
        let MappingReading { reading, changes, discovered, .. } = match closer {
            Some(limit) => mapping.look(tree, &self.artifacts, limit / 2),
            None => mapping.tick(tree, &self.artifacts, budget),
        };
        readings.push(reading);
        let resident = match closer {
            Some(limit) => {
                self.probes.residency.look(limit.saturating_sub(Duration::from_nanos(Mono::now().since(began))))
            }
            None => self.probes.residency.tick(RESIDENCY_BUDGET),
        };
        for (at, uncertainty_ns, what) in changes {
            marks.extend(self.happened(at, uncertainty_ns, what));
        }
        if let Some(discovery) = &mut self.discovery {
            discovered.into_iter().for_each(|path| discovery.look(path));
        }

        let mut absences: Absences = Vec::new();
        let mut values = Values::ABSENT;
        for Reading { values: seen, absences: missing } in readings {
            values.merge(&seen);
            absences.extend(missing);
        }
        values.set(Metric::Artifacts, self.artifacts.len() as u64);
        let payload = self.artifacts.iter().map(Artifact::payload_bytes).sum::<Option<u64>>();
        let payload = payload.filter(|_| !self.artifacts.is_empty());
        values.set(Metric::PayloadBytes, payload);
        values.set(Metric::ResidentPayloadBytes, resident.resident_payload);
        values.set(Metric::ResidentStaleNs, resident.stale_ns);
        if let (Some(payload), Some(resident)) = (payload, resident.resident_payload) {
            values.set(Metric::NonresidentPayloadBytes, payload.saturating_sub(resident));
        }
        absences.extend(resident.absences);

        let ended = Mono::now();
        // Two looks may end in one nanosecond's reading of the clock; a sample's time is its name in the folder.
        let t = self.clock.at(ended).0.max(self.last_t + 1);
        self.last_t = t;
        let sample = Sample { t: crate::clock::At(t), late_ns, cost_ns: ended.since(began), values };
        if let Some(folder) = &mut self.folder {
            folder.sample(&sample);
        }
        for what in self.absence.update(&sample.values, absences) {
            self.write(&Event { at: sample.t, uncertainty_ns: Some(0), what });
        }
        self.details(&sample, closer.is_some());
        if let Some(doubled) = self.pace.took(sample.cost_ns) {
            marks.extend(self.happened(ended, Some(0), What::warning(doubled)));
        }
        marks.extend(self.matcher.sample(&sample));
        Looked { sample, marks }
    }

    /// While a stage waits for a mapping its time is worth more looking.
    fn mapping_budget(&self) -> Duration {
        let waits = |condition: &Option<Condition>| condition.as_ref().is_some_and(Condition::needs_mapping);
        let pending = !self.first_mapping_seen && self.matcher.stages().stages.iter().any(|stage| waits(&stage.when));
        if pending { MAPPING_BUDGET_PENDING } else { MAPPING_BUDGET }
    }

    /// Takes into the set what was discovered and has been read by now.
    fn adopt(&mut self) -> Vec<Event> {
        let mut marks = Vec::new();
        for found in self.discovery.as_ref().map(Discovery::ready).unwrap_or_default() {
            match found {
                Discovered::Left(why) if why.is_empty() => {}
                Discovered::Left(why) => marks.extend(self.happened(Mono::now(), Some(0), What::warning(why))),
                Discovered::Artifact(artifact) => {
                    let known = |other: &Artifact| (other.device, other.inode) == (artifact.device, artifact.inode);
                    if self.artifacts.iter().any(known) {
                        continue;
                    }
                    let trust = self.probes.residency.add(&artifact, FIRST_LOOK);
                    let at_start = Err("discovered after start".to_owned());
                    self.meta.artifacts.push(ArtifactMeta::of(&artifact, trust, at_start, &self.mounts));
                    self.artifacts.push(*artifact);
                    let what =
                        What::Artifact { artifact: ArtifactId(self.artifacts.len() - 1), found: Found::Discovered };
                    marks.extend(self.happened(Mono::now(), Some(0), what));
                    self.write_meta();
                }
            }
        }
        marks
    }

    fn details(&mut self, sample: &Sample, at_mark: bool) {
        let Some(folder) = &mut self.folder else { return };
        let mut offer = |scope, metric, value| {
            if let Some(row) = self.detail.offer(sample.t, scope, metric, value, at_mark) {
                folder.detail(&Detail { ..row });
            }
        };
        for figure in self.probes.process.figures() {
            offer(Scope::Process(figure.pid), figure.metric, figure.value);
        }
        for file in self.probes.residency.files(self.clock.start().plus(sample.t.0.max(0) as u64)) {
            if let Ok(resident) = file.resident {
                offer(Scope::Artifact(file.artifact), "resident_bytes", resident);
            }
        }
    }

    fn cost(&self) -> Cost {
        let own = super::profile::own_cost();
        Cost {
            ticks: self.pace.rows(),
            late_ticks: self.pace.late(),
            tick_cost_median_ns: self.pace.cost_percentile(50),
            tick_cost_p99_ns: self.pace.cost_percentile(99),
            interval_ns: self.pace.interval(),
            ..own
        }
    }

    fn write(&mut self, event: &Event) {
        if let Some(folder) = &mut self.folder {
            folder.event(event);
        }
    }

    fn write_meta(&mut self) {
        if let Some(folder) = &mut self.folder {
            self.meta.losses = folder.losses();
            folder.meta(&self.meta);
        }
    }

    fn flush(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.flush();
        }
    }
}
