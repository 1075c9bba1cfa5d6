//! Turns events, log lines and samples into marks.
//!
//! Refuses to look at anything itself, the clock included: what it is fed is all it knows, so the same sequence gives
//! the same marks.

use std::collections::{BTreeSet, VecDeque};

use super::condition::{Condition, ExitIs, LogLine, Mapped, Share};
use super::file::StageFile;
use crate::clock::At;
use crate::event::{ArtifactId, Event, Evidence, Mark, Stream, What, text_of};
use crate::metric::Metric;
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

/// Matching lines remembered for a stage that still waits for others (`after`).
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
}

impl Matcher {
    /// `candidates`: the files to choose from by exec; a single one is followed at once.
    ///
    /// # Panics
    /// If there is no candidate.
    pub fn new(candidates: Vec<StageFile>) -> Matcher {
        let followed = candidates.len().checked_sub(1).expect("a matcher has a stage file to follow");
        let following = Following::new(&candidates[followed]);
        Matcher { chosen: candidates.len() == 1, candidates, followed, following, kept: Kept::default() }
    }

    /// The file that is followed now.
    pub fn stages(&self) -> &StageFile {
        &self.candidates[self.followed]
    }

    /// Feeds something that happened. Returns what follows from it: marks, log matches.
    pub fn event(&mut self, event: &Event) -> Vec<Event> {
        let relevant = matches!(
            event.what,
            What::Artifact { .. } | What::Mapped { .. } | What::Notify { .. } | What::Exit { .. } | What::Exec { .. }
        );
        if !relevant {
            return Vec::new();
        }
        let mut out = Vec::new();
        if let What::Exec { argv, .. } = &event.what {
            self.choose(argv, event.at, &mut out);
            return out;
        }
        if !self.chosen {
            self.kept.push(Input::Event(event.clone()));
        }
        self.following.event(event, &mut out);
        out
    }

    /// Feeds a line that the command printed.
    pub fn line(&mut self, at: At, uncertainty_ns: Option<u64>, line: &Line) -> Vec<Event> {
        if !self.chosen {
            self.kept.push(Input::Line(at, uncertainty_ns, line.clone()));
        }
        let mut out = Vec::new();
        self.following.line(at, uncertainty_ns, line, &mut out);
        out
    }

    /// Feeds a sample.
    pub fn sample(&mut self, sample: &Sample) -> Vec<Event> {
        let mut out = Vec::new();
        if let Some(look) = Look::of(sample) {
            if !self.chosen {
                self.kept.push(Input::Look(look));
            }
            self.following.look(look, &mut out);
        }
        out
    }

    /// Whether a stage has its mark.
    pub fn reached(&self, stage: &str) -> bool {
        self.following.reached(stage)
    }

    fn choose(&mut self, argv: &[String], at: At, out: &mut Vec<Event>) {
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

/// What a sample says of residency.
#[derive(Clone, Copy)]
struct Look {
    t: At,
    payload: u64,
    resident: u64,
    stale_ns: u64,
}

impl Look {
    fn of(sample: &Sample) -> Option<Look> {
        Some(Look {
            t: sample.t,
            payload: sample.values.get(Metric::PayloadBytes)?,
            resident: sample.values.get(Metric::ResidentPayloadBytes)?,
            stale_ns: sample.values.get(Metric::ResidentStaleNs).unwrap_or(0),
        })
    }

    /// When its oldest part was seen.
    fn oldest(&self) -> At {
        At(self.t.0.saturating_sub_unsigned(self.stale_ns))
    }
}

/// A moment that lies in `[low, at]`; `low` is `None` where it has no lower bound.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: At,
    low: Option<At>,
}

impl Moment {
    fn new(at: At, uncertainty_ns: Option<u64>) -> Moment {
        Moment { at, low: uncertainty_ns.map(|ns| At(at.0.saturating_sub_unsigned(ns))) }
    }

    fn uncertainty_ns(&self) -> Option<u64> {
        self.low.map(|low| self.at.0.saturating_sub(low.0).max(0).unsigned_abs())
    }

    /// The later of two. It is not before either, so the higher of the lower bounds holds for it.
    fn later(self, other: Moment) -> Moment {
        Moment { at: self.at.max(other.at), low: self.low.max(other.low) }
    }
}

/// What shows that a condition holds.
#[derive(Clone, Debug)]
struct Proof {
    moment: Moment,
    evidence: Evidence,
    detail: String,
}

/// How far one condition has come. Mapping and exit have no state of their own: they are asked of the [`World`].
enum Progress {
    Log { pending: VecDeque<(Stream, Proof)>, matched: u64, met: Option<Proof> },
    Residency { met: Option<Proof> },
    OfTheWorld,
    Parts(Vec<Progress>),
}

impl Progress {
    fn of(condition: &Condition) -> Progress {
        match condition {
            Condition::Log(_) => Progress::Log { pending: VecDeque::new(), matched: 0, met: None },
            Condition::Residency(_) => Progress::Residency { met: None },
            Condition::Mapping(_) | Condition::Exit(_) => Progress::OfTheWorld,
            Condition::All(parts) | Condition::Any(parts) => Progress::Parts(parts.iter().map(Progress::of).collect()),
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
    previous: Option<Look>,
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
    when: Option<(Condition, Progress)>,
    mark: Option<Moment>,
}

/// Matching against one stage file.
struct Following {
    stages: Vec<Stage>,
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
            when: stage.when.clone().map(|condition| {
                let progress = Progress::of(&condition);
                (condition, progress)
            }),
            mark: None,
        });
        Following { stages: stages.collect(), unknown: BTreeSet::new(), refused: false, world: World::default() }
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
            What::Mapped { pid, artifact, bytes, .. } => {
                let world = &mut self.world;
                world.artifacts.insert(*artifact);
                world.mapped.insert(*artifact);
                let proof = |detail| Some(Proof { moment, evidence: Evidence::Mapping, detail });
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
                self.world.exit = Some((*code, Proof { moment, evidence: Evidence::Exit, detail }));
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
                let proof = Proof { moment, evidence: Evidence::Notify, detail: shortened(detail.as_bytes()) };
                match stage {
                    Some(name) => self.notified(name, proof, out),
                    None if *ready && self.stages.iter().any(|stage| stage.name == "ready") => {
                        self.notified("ready", proof, out);
                    }
                    None => {}
                }
            }
            _ => return,
        }
        self.settle(out);
    }

    fn line(&mut self, at: At, uncertainty_ns: Option<u64>, line: &Line, out: &mut Vec<Event>) {
        let moment = Moment::new(at, uncertainty_ns);
        let opened = self.openings();
        for (stage, opened) in self.stages.iter_mut().zip(opened).filter(|(stage, _)| stage.mark.is_none()) {
            if let Some((condition, progress)) = &mut stage.when {
                match_line(condition, progress, opened, moment, line, &stage.name, out);
            }
        }
        self.settle(out);
    }

    fn look(&mut self, look: Look, out: &mut Vec<Event>) {
        // The share may have been reached at any time since the last look, and since the oldest part of that one.
        let moment = Moment { at: look.t, low: self.world.previous.map(|previous| previous.oldest()) };
        let opened = self.openings();
        for (stage, opened) in self.stages.iter_mut().zip(opened).filter(|(stage, _)| stage.mark.is_none()) {
            if let (Some((condition, progress)), Opening::Since(_) | Opening::Always) = (&mut stage.when, opened) {
                match_look(condition, progress, look, moment);
            }
        }
        self.world.previous = Some(look);
        self.settle(out);
    }

    /// Since when each stage's evidence counts.
    fn openings(&self) -> Vec<Opening> {
        self.stages.iter().map(|stage| self.opening(stage)).collect()
    }

    fn opening(&self, stage: &Stage) -> Opening {
        stage.after.iter().fold(Opening::Always, |opening, name| match (opening, self.mark(name)) {
            (Opening::NotYet, _) | (_, None) => Opening::NotYet,
            (Opening::Always, Some(mark)) => Opening::Since(mark),
            (Opening::Since(other), Some(mark)) => Opening::Since(other.later(mark)),
        })
    }

    /// Marks every stage whose condition holds now, until nothing follows any more: a mark may open other stages.
    fn settle(&mut self, out: &mut Vec<Event>) {
        loop {
            let mut marked = false;
            for index in 0..self.stages.len() {
                let opening = self.opening(&self.stages[index]);
                let stage = &mut self.stages[index];
                if stage.mark.is_some() || matches!(opening, Opening::NotYet) {
                    continue;
                }
                let Some((condition, progress)) = &mut stage.when else { continue };
                if let Opening::Since(since) = opening {
                    release_pending(condition, progress, since, &stage.name, out);
                }
                let Some(mut proof) = proof(condition, progress, &self.world) else { continue };
                if let Opening::Since(since) = opening {
                    proof.moment = proof.moment.later(since);
                }
                stage.mark = Some(proof.moment);
                out.push(marking(&stage.name, proof));
                marked = true;
            }
            if !marked {
                return;
            }
        }
    }

    fn notified(&mut self, name: &str, proof: Proof, out: &mut Vec<Event>) {
        if let Some(stage) = self.stages.iter_mut().find(|stage| stage.name == name) {
            if stage.mark.is_none() {
                stage.mark = Some(proof.moment);
                out.push(marking(name, proof));
            }
        } else if self.unknown.contains(name) {
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

fn marking(stage: &str, proof: Proof) -> Event {
    let Proof { moment, evidence, detail } = proof;
    let mark = Mark { stage: stage.to_string(), evidence, detail, sampled: None };
    Event { at: moment.at, uncertainty_ns: moment.uncertainty_ns(), what: What::Mark(mark) }
}

fn match_line(
    condition: &Condition,
    progress: &mut Progress,
    opening: Opening,
    moment: Moment,
    line: &Line,
    stage: &str,
    out: &mut Vec<Event>,
) {
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            for (part, progress) in parts.iter().zip(progress) {
                match_line(part, progress, opening, moment, line, stage, out);
            }
        }
        (Condition::Log(log), Progress::Log { pending, matched, met }) if met.is_none() && log.is_on(line.stream) => {
            let Some(detail) = detail_of(log, &line.bytes) else { return };
            let proof = Proof { moment, evidence: Evidence::Log, detail };
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
            count_line(log, matched, met, proof, line.stream, stage, out);
        }
        _ => {}
    }
}

fn count_line(
    log: &LogLine,
    matched: &mut u64,
    met: &mut Option<Proof>,
    proof: Proof,
    stream: Stream,
    stage: &str,
    out: &mut Vec<Event>,
) {
    *matched += 1;
    if *matched == log.count {
        out.push(Event {
            at: proof.moment.at,
            uncertainty_ns: proof.moment.uncertainty_ns(),
            what: What::LogMatch { stream, stage: stage.to_string(), line: proof.detail.clone() },
        });
        *met = Some(proof);
    }
}

/// Counts the lines that were seen before a stage opened and are not older than its opening.
fn release_pending(condition: &Condition, progress: &mut Progress, since: Moment, stage: &str, out: &mut Vec<Event>) {
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            for (part, progress) in parts.iter().zip(progress) {
                release_pending(part, progress, since, stage, out);
            }
        }
        (Condition::Log(log), Progress::Log { pending, matched, met }) => {
            for (stream, proof) in pending.drain(..) {
                if met.is_none() && proof.moment.at >= since.at {
                    count_line(log, matched, met, proof, stream, stage, out);
                }
            }
        }
        _ => {}
    }
}

fn match_look(condition: &Condition, progress: &mut Progress, look: Look, moment: Moment) {
    match (condition, progress) {
        (Condition::All(parts) | Condition::Any(parts), Progress::Parts(progress)) => {
            for (part, progress) in parts.iter().zip(progress) {
                match_look(part, progress, look, moment);
            }
        }
        (Condition::Residency(share), Progress::Residency { met }) if met.is_none() => {
            if Share::is_reached(*share, look.resident, look.payload) {
                let detail = format!("{} of {} payload bytes resident", look.resident, look.payload);
                *met = Some(Proof { moment, evidence: Evidence::Residency, detail });
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
        (Condition::Log(_), Progress::Log { met, .. }) | (Condition::Residency(_), Progress::Residency { met }) => {
            met.clone()
        }
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
            Some(Proof { moment, evidence, detail: shortened(details.join("; ").as_bytes()) })
        }
        _ => None,
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
mod tests;
