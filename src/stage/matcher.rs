//! Turns events, log lines and samples into marks.
//!
//! Refuses to look at anything itself, the clock included: what it is fed is all it knows, so the same sequence gives
//! the same marks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::asked::Values;
use super::condition::{Condition, ExitIs, FirstIs, FirstOutput, LogLine, Mapped};
use super::file::{Definition, StageFile};
use super::measured::{Before, Growing, Look, Moment, Still, Unmapping};
use crate::clock::At;
use crate::event::{ArtifactId, Event, Evidence, Mark, Pid, Probe, Stream, What, text_of};
use crate::sample::Sample;
use crate::watch::Line;

/// How much of a line or message is kept as a mark's detail, in bytes.
const LONGEST_DETAIL: usize = 400;

/// What is kept until a stage file is chosen: this many inputs…
const KEPT_INPUTS: usize = 50_000;

/// … and this many bytes of lines.
const KEPT_BYTES: usize = 32 << 20;

/// Stages that no stage file knows are marked when a notification names them, up to this many of them.
const MOST_UNKNOWN_STAGES: usize = 256;

/// Variables of environments that are remembered.
const MOST_VARIABLES: usize = 1024;

/// The name that `READY=1` is a notification by.
const READY: &str = "ready";

/// Matching lines and notifications remembered for a stage that still waits for others (`after`).
const PENDING_LINES: usize = 64;

/// The state of matching one launch.
///
/// It is given the stage files that may be chosen, follows the first that fits an exec of the tree, and until then
/// the last one given (`generic`); what was seen before the choice is matched again after it.
///
/// Marks made before a choice and those made after it are told apart by a warning between them (see
/// [`super::replaces_marks`]), which is there only if marks were made before.
pub struct Matcher {
    candidates: Vec<StageFile>,
    followed: usize,
    chosen: bool,
    following: Following,
    kept: Kept,
    /// Variables of the environments of processes, as far as they were told of.
    environment: BTreeMap<(Pid, String), String>,
    changes: u64,
    /// How many conditions were met when what has to be asked was last told to have changed.
    met: usize,
}

/// A condition that has to be asked now: nothing else can show that its stage is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub stage: String,
    /// Which of the stage's conditions it is, from 0.
    pub part: usize,
    pub condition: Condition,
    /// The stage file's variables.
    pub values: Values,
}

impl Matcher {
    /// `candidates`: the files to choose from by exec; a single one is followed at once.
    ///
    /// # Panics
    /// If there is no candidate.
    pub fn new(candidates: Vec<StageFile>) -> Matcher {
        let followed = candidates.len().checked_sub(1).expect("a matcher has a stage file to follow");
        let following = Following::new(&candidates[followed]);
        Matcher {
            chosen: candidates.len() == 1,
            candidates,
            followed,
            following,
            kept: Kept::default(),
            environment: BTreeMap::new(),
            changes: 0,
            met: 0,
        }
    }

    /// A number that is another one whenever [`Matcher::wanted`] may be.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What has to be asked now, of the stages that are open and not reached.
    pub fn wanted(&self) -> Vec<Wanted> {
        self.following.wanted()
    }

    /// The values of the variables, as far as they are known: none is before a program that the file fits runs.
    pub fn values(&self) -> &Values {
        &self.following.values
    }

    /// Whether a program has run that the followed file's `argv` fits; a file without any fits every program.
    pub fn has_fitted(&self) -> bool {
        self.following.has_fitted
    }

    /// Counts what was fed as a change, if it may be one.
    fn count_changes(&mut self, out: &[Event]) {
        let met = self.following.met();
        self.changes += out.len() as u64 + u64::from(met != self.met);
        self.met = met;
    }

    /// The variables of a process's environment that matter, if it runs with this command line: they are to be fed as
    /// [`What::Environment`] before the exec is.
    pub fn environment_of(&self, argv: &[String]) -> Vec<String> {
        let file = match self.candidates.iter().find(|candidate| candidate.fits(argv)) {
            Some(candidate) if !self.chosen => candidate,
            _ => self.stages(),
        };
        match file.argv.is_empty() || file.fits(argv) {
            true => file.vars.values().flat_map(|variable| variable.env.iter().cloned()).collect(),
            false => Vec::new(),
        }
    }

    /// The file that is followed now.
    pub fn stages(&self) -> &StageFile {
        &self.candidates[self.followed]
    }

    /// Feeds something that happened. Returns what follows from it: marks, log matches.
    pub fn event(&mut self, event: &Event) -> Vec<Event> {
        let relevant = matches!(
            event.what,
            What::Artifact { .. }
                | What::Mapped { .. }
                | What::Unmapped { .. }
                | What::Opened { .. }
                | What::Notify { .. }
                | What::Exit { .. }
                | What::Exec { .. }
                | What::Probe(_)
                | What::FirstOutput { .. }
                | What::Environment { .. }
        );
        if !relevant {
            return Vec::new();
        }
        let mut out = Vec::new();
        match &event.what {
            What::Exec { pid, argv } => {
                self.changes += 1;
                self.choose(*pid, argv, event.at, &mut out);
                self.following.exec(*pid, argv, &self.environment);
                self.following.settle(&mut out);
                return out;
            }
            What::Environment { pid, name, value } => {
                if self.environment.len() < MOST_VARIABLES {
                    self.environment.insert((*pid, name.clone()), value.clone());
                }
                return out;
            }
            // Most attempts say "not yet", and there may be thousands of them.
            What::Probe(Probe { accepted: false, .. }) => return out,
            What::Probe(_) => self.changes += 1,
            _ => {}
        }
        if !self.chosen {
            self.kept.push(Input::Event(event.clone()));
        }
        self.following.event(event, &mut out);
        self.count_changes(&out);
        out
    }

    /// Feeds a line that the command printed.
    pub fn line(&mut self, at: At, uncertainty_ns: Option<u64>, line: &Line) -> Vec<Event> {
        if !self.chosen {
            self.kept.push(Input::Line(at, uncertainty_ns, line.clone()));
        }
        let mut out = Vec::new();
        self.following.line(at, uncertainty_ns, line, &mut out);
        self.count_changes(&out);
        out
    }

    /// Feeds a sample.
    pub fn sample(&mut self, sample: &Sample) -> Vec<Event> {
        let mut out = Vec::new();
        let look = Look::of(sample);
        if !self.chosen {
            self.kept.push(Input::Look(look));
        }
        self.following.look(look, &mut out);
        self.count_changes(&out);
        out
    }

    /// Whether a stage has its mark.
    pub fn reached(&self, stage: &str) -> bool {
        self.following.reached(stage)
    }

    fn choose(&mut self, pid: Pid, argv: &[String], at: At, out: &mut Vec<Event>) {
        if self.chosen {
            return;
        }
        let Some(index) = self.candidates.iter().position(|candidate| candidate.fits(argv)) else { return };
        self.chosen = true;
        let kept = std::mem::take(&mut self.kept);
        if index == self.followed {
            return;
        }
        if self.following.has_marked() {
            out.push(Event { at, uncertainty_ns: None, what: super::replacing_marks(&self.candidates[index].name) });
        }
        if kept.lost > 0 {
            let text = format!(
                "the stage file `{}` was chosen late: {} lines and events before that are no longer there to be matched",
                self.candidates[index].name, kept.lost
            );
            out.push(Event { at, uncertainty_ns: None, what: What::warning(text) });
        }
        self.followed = index;
        self.following = Following::new(&self.candidates[index]);
        self.following.exec(pid, argv, &self.environment);
        for input in kept.inputs {
            match input {
                Input::Event(event) => self.following.event(&event, out),
                Input::Line(at, uncertainty_ns, line) => self.following.line(at, uncertainty_ns, &line, out),
                Input::Look(look) => self.following.look(look, out),
            }
        }
    }
}

/// Something that was fed, kept until a file is chosen.
enum Input {
    Event(Event),
    Line(At, Option<u64>, Line),
    Look(Look),
}

/// The inputs so far, the oldest given up first.
#[derive(Default)]
struct Kept {
    inputs: VecDeque<Input>,
    bytes: usize,
    lost: u64,
}

impl Kept {
    fn push(&mut self, input: Input) {
        self.bytes += Kept::size(&input);
        self.inputs.push_back(input);
        while self.inputs.len() > KEPT_INPUTS || self.bytes > KEPT_BYTES {
            let Some(oldest) = self.inputs.pop_front() else { break };
            self.bytes -= Kept::size(&oldest);
            self.lost += u64::from(!matches!(oldest, Input::Look(_)));
        }
    }

    fn size(input: &Input) -> usize {
        match input {
            Input::Line(_, _, line) => line.bytes.len(),
            _ => 0,
        }
    }
}

/// What shows that a condition holds.
#[derive(Clone, Debug)]
struct Proof {
    moment: Moment,
    evidence: Evidence,
    detail: String,
    /// The sample that it is known by, where it was known only later.
    sampled: Option<At>,
}

impl Proof {
    fn new(moment: Moment, evidence: Evidence, detail: String) -> Proof {
        Proof { moment, evidence, detail, sampled: None }
    }
}

/// How far one condition has come. Mapping and exit have no state of their own: they are asked of the [`World`].
enum Progress {
    Log {
        pending: VecDeque<(Stream, Proof)>,
        matched: u64,
        met: Option<Proof>,
    },
    Notice {
        pending: VecDeque<Proof>,
        met: Option<Proof>,
    },
    /// Of one that an event or a sample by itself decides.
    Once {
        met: Option<Proof>,
    },
    Unmap {
        state: Unmapping,
        met: Option<Proof>,
    },
    Still {
        state: Still,
        met: Option<Proof>,
    },
    Grown {
        state: Growing,
        met: Option<Proof>,
    },
    OfTheWorld,
    Parts(Vec<Progress>),
}

impl Progress {
    fn of(condition: &Condition) -> Progress {
        match condition {
            Condition::Log(_) => Progress::Log { pending: VecDeque::new(), matched: 0, met: None },
            Condition::Notify(_) => Progress::Notice { pending: VecDeque::new(), met: None },
            Condition::Unmap(_) => Progress::Unmap { state: Unmapping::default(), met: None },
            Condition::Quiet(_) | Condition::Device(_) => Progress::Still { state: Still::default(), met: None },
            Condition::Anon(_) => Progress::Grown { state: Growing::default(), met: None },
            Condition::Residency(_)
            | Condition::Http(_)
            | Condition::Work(_)
            | Condition::Tcp(_)
            | Condition::Unix(_)
            | Condition::File(_)
            | Condition::FirstOutput(_) => Progress::Once { met: None },
            Condition::Mapping(_) | Condition::Exit(_) => Progress::OfTheWorld,
            Condition::All(parts) | Condition::Any(parts) => Progress::Parts(parts.iter().map(Progress::of).collect()),
        }
    }

    fn met(&self) -> Option<&Proof> {
        match self {
            Progress::Log { met, .. }
            | Progress::Notice { met, .. }
            | Progress::Once { met }
            | Progress::Unmap { met, .. }
            | Progress::Grown { met, .. }
            | Progress::Still { met, .. } => met.as_ref(),
            Progress::OfTheWorld | Progress::Parts(_) => None,
        }
    }

    /// How many of its parts are met, by themselves.
    fn count(&self) -> usize {
        match self {
            Progress::Parts(parts) => parts.iter().map(Progress::count).sum(),
            leaf => usize::from(leaf.met().is_some()),
        }
    }
}

/// What has been seen so far that stays true.
#[derive(Default)]
struct World {
    artifacts: BTreeSet<ArtifactId>,
    mapped: BTreeSet<ArtifactId>,
    first_mapped: Option<Proof>,
    all_mapped: Option<Proof>,
    exit: Option<(Option<i32>, Proof)>,
    /// The last look at residency, and the time of the last look at anything.
    previous: Option<Look>,
    looked: Option<At>,
    before: Before,
}

impl World {
    fn mapping(&self, which: Mapped) -> Option<Proof> {
        match which {
            Mapped::Any => self.first_mapped.clone(),
            Mapped::All => self.all_mapped.clone(),
        }
    }

    fn exit(&self, expected: ExitIs) -> Option<Proof> {
        self.exit.as_ref().filter(|(code, _)| expected.is(*code)).map(|(_, proof)| proof.clone())
    }
}

/// A stage of the file that is followed.
struct Stage {
    name: String,
    after: Vec<String>,
    /// Of a span, what begins it, and when it did.
    begin: Option<(Condition, Progress)>,
    began: Option<Moment>,
    when: Option<(Condition, Progress)>,
    mark: Option<Moment>,
}

impl Stage {
    /// The conditions that may still decide something, each with the time since which its evidence counts: `after` is
    /// when the stages that it waits for were reached.
    fn open(&mut self, after: Opening) -> impl Iterator<Item = (&mut Condition, &mut Progress, Opening)> {
        let end = self.end_opening(after);
        let live = self.mark.is_none();
        let begin = self.begin.iter_mut().filter(move |_| live).map(move |(of, progress)| (of, progress, after));
        let when = self.when.iter_mut().filter(move |_| live).map(move |(of, progress)| (of, progress, end));
        begin.chain(when)
    }

    /// Since when evidence for its end counts.
    fn end_opening(&self, after: Opening) -> Opening {
        match (&self.begin, self.began) {
            (None, _) => after,
            (Some(_), None) => Opening::NotYet,
            (Some(_), Some(began)) => after.and(began),
        }
    }
}

/// Matching against one stage file.
struct Following {
    stages: Vec<Stage>,
    file: StageFile,
    values: Values,
    /// Variables whose value a command line or an environment gave.
    given: BTreeSet<String>,
    has_fitted: bool,
    /// Stages marked that the file does not know.
    unknown: BTreeSet<String>,
    refused: bool,
    world: World,
}

impl Following {
    fn new(file: &StageFile) -> Following {
        let stages = file.stages.iter().map(|stage| Stage {
            name: stage.name.clone(),
            after: stage.after.clone(),
            begin: stage.begin.clone().map(followed),
            began: None,
            when: stage.when.clone().map(followed),
            mark: None,
        });
        Following {
            stages: stages.collect(),
            file: file.clone(),
            values: Values::new(),
            given: BTreeSet::new(),
            has_fitted: false,
            unknown: BTreeSet::new(),
            refused: false,
            world: World::default(),
        }
    }

    /// Takes the variables from the first programs that the file fits and that say them. With the first such program
    /// all of them are known, by their defaults at least.
    fn exec(&mut self, pid: Pid, argv: &[String], environment: &BTreeMap<(Pid, String), String>) {
        if !self.file.argv.is_empty() && !self.file.fits(argv) {
            return;
        }
        self.has_fitted = true;
        for (name, variable) in &self.file.vars {
            let of_environment = || variable.env.iter().find_map(|name| environment.get(&(pid, name.clone())).cloned());
            match variable.in_argv(argv).or_else(of_environment) {
                Some(value) if self.given.insert(name.clone()) => drop(self.values.insert(name.clone(), value)),
                _ => drop(self.values.entry(name.clone()).or_insert_with(|| variable.default.clone())),
            }
        }
    }

    fn wanted(&self) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        for stage in self.stages.iter().filter(|stage| stage.mark.is_none()) {
            let after = self.opening(stage);
            let begin = stage.begin.as_ref().filter(|_| stage.began.is_none());
            let parts_of_begin = stage.begin.as_ref().map_or(0, |(condition, _)| condition.leaves().len());
            let begin = begin.map(|(of, progress)| (of, progress, after, 0));
            let end = stage.end_opening(after);
            let when = stage.when.as_ref().map(|(of, progress)| (of, progress, end, parts_of_begin));
            for (condition, progress, opening, first) in begin.into_iter().chain(when) {
                if matches!(opening, Opening::NotYet) {
                    continue;
                }
                let mut leaves = Vec::new();
                unmet(condition, progress, &self.world, &mut leaves);
                wanted.extend(leaves.into_iter().enumerate().filter_map(|(index, leaf)| {
                    let condition = leaf?;
                    let asked = condition.is_asked();
                    let known = condition.names().iter().all(|name| self.values.contains_key(*name));
                    (asked && known).then(|| Wanted {
                        stage: stage.name.clone(),
                        part: first + index,
                        condition: condition.clone(),
                        values: self.values.clone(),
                    })
                }));
            }
        }
        wanted
    }

    /// How many conditions are met by now, of the stages that are not reached.
    fn met(&self) -> usize {
        let world = &self.world;
        let of_world = [world.first_mapped.is_some(), world.all_mapped.is_some(), world.exit.is_some()];
        let conditions = self.stages.iter().filter(|stage| stage.mark.is_none());
        let conditions = conditions.flat_map(|stage| stage.begin.iter().chain(&stage.when));
        conditions.map(|(_, progress)| progress.count()).sum::<usize>()
            + of_world.into_iter().filter(|met| *met).count()
    }

    fn reached(&self, name: &str) -> bool {
        self.unknown.contains(name) || self.mark(name).is_some()
    }

    fn mark(&self, name: &str) -> Option<Moment> {
        self.stages.iter().find(|stage| stage.name == name).and_then(|stage| stage.mark)
    }

    fn has_marked(&self) -> bool {
        !self.unknown.is_empty() || self.stages.iter().any(|stage| stage.mark.is_some())
    }

    fn event(&mut self, event: &Event, out: &mut Vec<Event>) {
        let moment = Moment::new(event.at, event.uncertainty_ns);
        match &event.what {
            What::Artifact { artifact, .. } => {
                self.world.artifacts.insert(*artifact);
            }
            What::Opened { .. } => self.world.before.opened(moment),
            What::Unmapped { .. } => return self.tell_of_mappings(moment),
            What::Mapped { pid, artifact, bytes, .. } => {
                self.tell_of_mappings(moment);
                let world = &mut self.world;
                world.before.opened(moment);
                world.artifacts.insert(*artifact);
                world.mapped.insert(*artifact);
                let proof = |detail| Some(Proof::new(moment, Evidence::Mapping, detail));
                if world.first_mapped.is_none() {
                    world.first_mapped = proof(format!("process {pid} maps {bytes} bytes of artifact {}", artifact.0));
                }
                if world.all_mapped.is_none() && world.mapped.len() == world.artifacts.len() {
                    world.all_mapped = proof(match world.mapped.len() {
                        1 => "the one artifact of the set has been mapped".to_string(),
                        count => format!("all {count} artifacts of the set have been mapped"),
                    });
                }
            }
            What::Exit { code, signal, .. } => {
                let detail = super::ending(*code, *signal);
                self.world.exit = Some((*code, Proof::new(moment, Evidence::Exit, detail)));
            }
            What::Probe(probe) if probe.accepted => {
                let mut detail = format!("{} at attempt {}", probe.target, probe.attempt);
                if let Some(first) = probe.first_byte {
                    detail.push_str(&format!(", first byte at {:.6} s", first.seconds()));
                }
                if let Some(bytes) = probe.bytes {
                    let rest = if probe.is_cut { ", the rest not read" } else { "" };
                    detail.push_str(&format!(", {bytes} bytes{rest}"));
                }
                let proof = Proof::new(moment, probe.by, shortened(detail.as_bytes()));
                for stage in self.stages.iter_mut().filter(|stage| stage.name == probe.stage) {
                    for (condition, progress) in stage.begin.iter_mut().chain(&mut stage.when) {
                        take_answer(condition, progress, probe, &proof);
                    }
                }
            }
            What::FirstOutput { stream } => {
                let proof = Proof::new(moment, Evidence::Output, format!("output on {}", super::lack::words(*stream)));
                let openings = self.openings();
                for (stage, opening) in self.stages.iter_mut().zip(openings) {
                    for (condition, progress, opening) in stage.open(opening) {
                        if !matches!(opening, Opening::NotYet) {
                            take_output(condition, progress, FirstIs::Byte, *stream, &proof);
                        }
                    }
                }
            }
            What::Notify { pid, stage, status, ready, verified } => {
                let mut detail = match (pid, verified) {
                    (Some(pid), true) => format!("by process {pid}"),
                    (Some(pid), false) => {
                        format!("unverified: by process {pid}, which was gone before it could be told")
                    }
                    (None, _) => "unverified: the sender is not known".to_string(),
                };
                if let Some(status) = status {
                    detail.push_str(": ");
                    detail.push_str(status);
                }
                let proof = Proof::new(moment, Evidence::Notify, shortened(detail.as_bytes()));
                let name = stage.as_deref().or(ready.then_some(READY));
                let is_part = name.is_some_and(|name| self.take_notice(name, &proof));
                match (stage, name) {
                    (Some(name), _) => self.notified(name, is_part, proof, out),
                    (None, Some(name)) if self.stages.iter().any(|stage| stage.name == name) => {
                        self.notified(name, is_part, proof, out);
                    }
                    _ => {}
                }
            }
            _ => return,
        }
        self.settle(out);
    }

    fn line(&mut self, at: At, uncertainty_ns: Option<u64>, line: &Line, out: &mut Vec<Event>) {
        let moment = Moment::new(at, uncertainty_ns);
        let opened = self.openings();
        let values = &self.values;
        for (stage, opened) in self.stages.iter_mut().zip(opened) {
            let name = stage.name.clone();
            for (condition, progress, opened) in stage.open(opened) {
                match_line(condition, progress, &Fed { opening: opened, moment, line, values, stage: &name }, out);
            }
        }
        self.settle(out);
    }

    fn look(&mut self, look: Look, out: &mut Vec<Event>) {
        let opened = self.openings();
        self.world.before.look(&look);
        let world = &self.world;
        for (stage, opened) in self.stages.iter_mut().zip(opened) {
            for (condition, progress, opened) in stage.open(opened) {
                match_look(condition, progress, &look, opened, world);
            }
        }
        if look.residency.is_some() {
            self.world.previous = Some(look);
        }
        self.world.looked = Some(look.t);
        self.settle(out);
    }

    /// Since when each stage's evidence counts.
    fn openings(&self) -> Vec<Opening> {
        self.stages.iter().map(|stage| self.opening(stage)).collect()
    }

    fn opening(&self, stage: &Stage) -> Opening {
        stage.after.iter().fold(Opening::Always, |opening, name| match self.mark(name) {
            None => Opening::NotYet,
            Some(mark) => opening.and(mark),
        })
    }

    /// Marks every stage whose condition holds now, until nothing follows any more: a mark may open other stages.
    fn settle(&mut self, out: &mut Vec<Event>) {
        loop {
            let mut marked = false;
            for index in 0..self.stages.len() {
                let after = self.opening(&self.stages[index]);
                let stage = &mut self.stages[index];
                if stage.mark.is_some() {
                    continue;
                }
                if stage.began.is_none()
                    && let Some((condition, progress)) = &mut stage.begin
                    && let Some(proof) =
                        conclude(condition, progress, after, &stage.name, &self.values, &self.world, out)
                {
                    stage.began = Some(proof.moment);
                    out.push(Event {
                        at: proof.moment.at,
                        uncertainty_ns: proof.moment.uncertainty_ns(),
                        what: What::Began { stage: stage.name.clone(), evidence: proof.evidence, detail: proof.detail },
                    });
                    marked = true;
                }
                let opening = stage.end_opening(after);
                let Some((condition, progress)) = &mut stage.when else { continue };
                let reached = conclude(condition, progress, opening, &stage.name, &self.values, &self.world, out);
                if let Some(proof) = reached {
                    stage.mark = Some(proof.moment);
                    out.push(marking(&stage.name, proof));
                    marked = true;
                }
            }
            if !marked {
                return;
            }
        }
    }

    /// Has every condition that goes by the mapped extent told that it may have changed.
    fn tell_of_mappings(&mut self, moment: Moment) {
        for stage in &mut self.stages {
            for (condition, progress) in stage.begin.iter_mut().chain(&mut stage.when) {
                tell_of_mapping(condition, progress, moment);
            }
        }
    }

    /// Has a notification heard by every condition that names it; says whether there is one.
    fn take_notice(&mut self, name: &str, proof: &Proof) -> bool {
        let is_named = |leaf: &&Condition| matches!(leaf, Condition::Notify(of) if of == name);
        if !self
            .file
            .stages
            .iter()
            .flat_map(Definition::conditions)
            .flat_map(Condition::leaves)
            .any(|leaf| is_named(&leaf))
        {
            return false;
        }
        let openings = self.openings();
        for (stage, opening) in self.stages.iter_mut().zip(openings) {
            for (condition, progress, opening) in stage.open(opening) {
                match_notice(condition, progress, opening, name, proof);
            }
        }
        true
    }

    /// A notification marks the stage of its name; one that is part of a condition makes no stage of its own.
    fn notified(&mut self, name: &str, is_part: bool, proof: Proof, out: &mut Vec<Event>) {
        if let Some(stage) = self.stages.iter_mut().find(|stage| stage.name == name) {
            if stage.mark.is_none() {
                stage.mark = Some(proof.moment);
                out.push(marking(name, proof));
            }
        } else if is_part || self.unknown.contains(name) {
            // Only the first counts.
        } else if self.unknown.len() < MOST_UNKNOWN_STAGES {
            self.unknown.insert(name.to_string());
            out.push(marking(name, proof));
        } else if !self.refused {
            self.refused = true;
            let text =
                format!("more than {MOST_UNKNOWN_STAGES} stages that no stage file knows: the rest get no marks");
            out.push(Event { at: proof.moment.at, uncertainty_ns: None, what: What::warning(text) });
        }
    }
}

/// Since when a stage's evidence counts: for one that waits for others, since their marks.
#[derive(Clone, Copy)]
enum Opening {
    Always,
    Since(Moment),
    NotYet,
}

impl Opening {
    /// Not before this either.
    fn and(self, moment: Moment) -> Opening {
        match self {
            Opening::NotYet => Opening::NotYet,
            Opening::Always => Opening::Since(moment),
            Opening::Since(other) => Opening::Since(other.later(moment)),
        }
    }
}

fn followed(condition: Condition) -> (Condition, Progress) {
    let progress = Progress::of(&condition);
    (condition, progress)
}

/// The conditions of which this one is made, `None` in the place of those that decide nothing any more: they are met, or
/// what they are part of is.
fn unmet<'c>(condition: &'c Condition, progress: &Progress, world: &World, leaves: &mut Vec<Option<&'c Condition>>) {
    match (condition, progress) {
        (Condition::Any(_), progress) if proof(condition, progress, world).is_some() => {
            leaves.extend(condition.leaves().iter().map(|_| None));
        }
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            parts.iter().zip(progress).for_each(|(part, progress)| unmet(part, progress, world, leaves));
        }
        (leaf, progress) => leaves.push(progress.met().is_none().then_some(leaf)),
    }
}

/// What shows that an open condition holds, not before its opening.
fn conclude(
    condition: &Condition,
    progress: &mut Progress,
    opening: Opening,
    stage: &str,
    values: &Values,
    world: &World,
    out: &mut Vec<Event>,
) -> Option<Proof> {
    match opening {
        Opening::NotYet => None,
        Opening::Always => proof(condition, progress, world),
        Opening::Since(since) => {
            release_pending(condition, progress, since, stage, values, out);
            let mut proof = proof(condition, progress, world)?;
            if since.at > proof.moment.at {
                proof.sampled = None;
            }
            proof.moment = proof.moment.later(since);
            Some(proof)
        }
    }
}

/// Takes an accepted answer, if it is one to this very condition.
fn take_answer(condition: &Condition, progress: &mut Progress, probe: &Probe, proof: &Proof) {
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            parts.iter().zip(progress).for_each(|(part, progress)| take_answer(part, progress, probe, proof));
        }
        (condition, Progress::Once { met })
            if met.is_none() && condition.is_asked() && condition.digest() == probe.condition =>
        {
            *met = Some(proof.clone());
        }
        _ => {}
    }
}

fn tell_of_mapping(condition: &Condition, progress: &mut Progress, moment: Moment) {
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            parts.iter().zip(progress).for_each(|(part, progress)| tell_of_mapping(part, progress, moment));
        }
        (_, Progress::Unmap { state, .. }) => state.tell(moment),
        _ => {}
    }
}

fn take_output(condition: &Condition, progress: &mut Progress, is: FirstIs, stream: Stream, proof: &Proof) {
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            parts.iter().zip(progress).for_each(|(part, progress)| take_output(part, progress, is, stream, proof));
        }
        (Condition::FirstOutput(FirstOutput { what, stream: wanted }), Progress::Once { met })
            if met.is_none() && *what == is && (stream == Stream::Both || stream == *wanted) =>
        {
            *met = Some(proof.clone());
        }
        _ => {}
    }
}

fn marking(stage: &str, proof: Proof) -> Event {
    let Proof { moment, evidence, detail, sampled } = proof;
    let mark = Mark { stage: stage.to_string(), evidence, detail, sampled };
    Event { at: moment.at, uncertainty_ns: moment.uncertainty_ns(), what: What::Mark(mark) }
}

/// A line, and what it is matched for.
struct Fed<'a> {
    opening: Opening,
    moment: Moment,
    line: &'a Line,
    values: &'a Values,
    stage: &'a str,
}

fn match_line(condition: &Condition, progress: &mut Progress, fed: &Fed, out: &mut Vec<Event>) {
    let Fed { opening, moment, line, values, stage } = *fed;
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            for (part, progress) in parts.iter().zip(progress) {
                match_line(part, progress, fed, out);
            }
        }
        (Condition::FirstOutput(_), progress)
            if !matches!(opening, Opening::NotYet) && !line.bytes.trim_ascii().is_empty() =>
        {
            let proof = Proof::new(moment, Evidence::Output, shortened(&line.bytes));
            take_output(condition, progress, FirstIs::Line, line.stream, &proof);
        }
        (Condition::Log(log), Progress::Log { pending, matched, met }) if met.is_none() && log.is_on(line.stream) => {
            let Some(detail) = detail_of(log, &line.bytes) else { return };
            let proof = Proof::new(moment, Evidence::Log, detail);
            match opening {
                Opening::Always => {}
                Opening::Since(since) if moment.at >= since.at => {}
                Opening::Since(_) => return,
                // The marks that it waits for may have been earlier than this line and still be on their way here.
                Opening::NotYet => {
                    if pending.len() == PENDING_LINES {
                        pending.pop_front();
                    }
                    pending.push_back((line.stream, proof));
                    return;
                }
            }
            count_line(log, (matched, met), proof, line.stream, stage, values, out);
        }
        _ => {}
    }
}

/// A notification of this name. One that came before its stage opened may be of a time after that.
fn match_notice(condition: &Condition, progress: &mut Progress, opening: Opening, name: &str, proof: &Proof) {
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            for (part, progress) in parts.iter().zip(progress) {
                match_notice(part, progress, opening, name, proof);
            }
        }
        (Condition::Notify(of), Progress::Notice { pending, met }) if met.is_none() && of == name => match opening {
            Opening::Since(since) if proof.moment.at < since.at => {}
            Opening::Always | Opening::Since(_) => *met = Some(proof.clone()),
            Opening::NotYet => {
                if pending.len() == PENDING_LINES {
                    pending.pop_front();
                }
                pending.push_back(proof.clone());
            }
        },
        _ => {}
    }
}

fn count_line(
    log: &LogLine,
    (matched, met): (&mut u64, &mut Option<Proof>),
    proof: Proof,
    stream: Stream,
    stage: &str,
    values: &Values,
    out: &mut Vec<Event>,
) {
    *matched += 1;
    if log.count.number(values).is_some_and(|count| *matched >= count) {
        out.push(Event {
            at: proof.moment.at,
            uncertainty_ns: proof.moment.uncertainty_ns(),
            what: What::LogMatch { stream, stage: stage.to_string(), line: proof.detail.clone() },
        });
        *met = Some(proof);
    }
}

/// Counts the lines and notifications that were seen before a stage opened and are not older than its opening.
fn release_pending(
    condition: &Condition,
    progress: &mut Progress,
    since: Moment,
    stage: &str,
    values: &Values,
    out: &mut Vec<Event>,
) {
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            for (part, progress) in parts.iter().zip(progress) {
                release_pending(part, progress, since, stage, values, out);
            }
        }
        (Condition::Log(log), Progress::Log { pending, matched, met }) => {
            for (stream, proof) in pending.drain(..) {
                if met.is_none() && proof.moment.at >= since.at {
                    count_line(log, (matched, met), proof, stream, stage, values, out);
                }
            }
        }
        (Condition::Notify(_), Progress::Notice { pending, met }) if met.is_none() => {
            *met = pending.drain(..).find(|proof| proof.moment.at >= since.at);
        }
        _ => {}
    }
}

fn match_look(condition: &Condition, progress: &mut Progress, look: &Look, opening: Opening, world: &World) {
    let since = match opening {
        Opening::Always => Some(At(i64::MIN)),
        Opening::Since(since) => Some(since.at),
        Opening::NotYet => None,
    };
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            for (part, progress) in parts.iter().zip(progress) {
                match_look(part, progress, look, opening, world);
            }
        }
        (Condition::Residency(share), Progress::Once { met }) if met.is_none() && since.is_some() => {
            let Some((resident, payload)) = look.residency else { return };
            if share.is_reached(resident, payload) {
                // The share may have been reached at any time since the last look, and since the oldest part of that one. At
                // the first one it may have been so from the start on, which is the earliest that a stage can be reached.
                let low = world.previous.map_or(At(0), |previous| previous.oldest().max(At(0)));
                let moment = Moment { at: look.t, low: Some(low.min(look.t)) };
                let detail = format!("{resident} of {payload} payload bytes resident");
                *met = Some(Proof::new(moment, Evidence::Residency, detail));
            }
        }
        (Condition::Unmap(share), Progress::Unmap { state, met }) if met.is_none() => {
            if let (Some((moment, detail)), Some(_)) = (state.look(look, *share, world.looked), since) {
                *met = Some(Proof::new(moment, Evidence::Unmap, detail));
            }
        }
        (Condition::Anon(growth), Progress::Grown { state, met }) if met.is_none() => {
            if let Some((moment, detail)) = state.look(*growth, look, &world.before, world.looked, since) {
                *met = Some(Proof { sampled: Some(moment.at), ..Proof::new(moment, Evidence::Anon, detail) });
            }
        }
        (condition @ (Condition::Quiet(_) | Condition::Device(_)), Progress::Still { state, met }) if met.is_none() => {
            let evidence = match condition {
                Condition::Quiet(_) => Evidence::Quiet,
                _ => Evidence::Device,
            };
            if let Some((moment, detail)) = state.look(condition, look, world.looked, since) {
                *met = Some(Proof { sampled: Some(moment.at), ..Proof::new(moment, evidence, detail) });
            }
        }
        _ => {}
    }
}

/// What shows that a condition holds, if it does.
fn proof(condition: &Condition, progress: &Progress, world: &World) -> Option<Proof> {
    match (condition, progress) {
        (Condition::Mapping(which), _) => world.mapping(*which),
        (Condition::Exit(expected), _) => world.exit(*expected),
        (Condition::Any(parts), Progress::Parts(progress)) => {
            let proofs = parts.iter().zip(progress).filter_map(|(part, progress)| proof(part, progress, world));
            proofs.min_by_key(|proof| proof.moment.at)
        }
        (Condition::All(parts), Progress::Parts(progress)) => {
            let proofs = parts.iter().zip(progress).map(|(part, progress)| proof(part, progress, world));
            let proofs = proofs.collect::<Option<Vec<Proof>>>()?;
            let moment = proofs.iter().map(|proof| proof.moment).reduce(Moment::later)?;
            let evidence = match &proofs[..] {
                [proof] => proof.evidence,
                _ => Evidence::Several,
            };
            let details: Vec<&str> = proofs.iter().map(|proof| proof.detail.as_str()).collect();
            let latest = proofs.iter().filter(|proof| proof.moment.at == moment.at);
            let sampled = latest.filter_map(|proof| proof.sampled).next();
            Some(Proof { moment, evidence, detail: shortened(details.join("; ").as_bytes()), sampled })
        }
        (_, progress) => progress.met().cloned(),
    }
}

/// The line as a mark's detail, if it matches: its text, then the values of the pattern's named groups.
fn detail_of(log: &LogLine, line: &[u8]) -> Option<String> {
    let regex = log.pattern.regex();
    let names: Vec<&str> = regex.capture_names().flatten().collect();
    if names.is_empty() {
        return regex.is_match(line).then(|| shortened(line));
    }
    let captures = regex.captures(line)?;
    let mut detail = shortened(line);
    for name in names {
        if let Some(value) = captures.name(name) {
            detail.push_str(&format!(" [{name}={}]", shortened(value.as_bytes())));
        }
    }
    Some(detail)
}

/// Bytes as text, cut where a detail must end.
fn shortened(bytes: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    if bytes.len() <= LONGEST_DETAIL {
        return text_of(std::ffi::OsStr::from_bytes(bytes));
    }
    let mut end = LONGEST_DETAIL;
    // Not in the middle of a character, where there are characters.
    while end > LONGEST_DETAIL - 4 && bytes[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    text_of(std::ffi::OsStr::from_bytes(&bytes[..end])) + "…"
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
