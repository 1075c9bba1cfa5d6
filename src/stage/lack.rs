//! Why a stage has no mark. Pure.
//!
//! One table, so that no two stages of a run contradict each other. The first line that fits is told:
//!
//! | the stage | is | for it |
//! |---|---|---|
//! | waits (`after`) for one without a mark | what that one is | *waits for `a`, which was not reached*, *is unknown*, *does not apply* |
//! | is a span that did not begin | what its beginning is | *not begun: …* |
//! | is reached by notification | unknown where none could be heard, or where no artifact was opened, else not reached | *none came* |
//! | is told of by an artifact (mapping, residency, unmapping, anonymous memory) and none was opened | unknown | *no artifact was seen opened in this tree* |
//! | is told of by what a client does that has others do the loading (its lines, counters, devices) | unknown | the same, and the client |
//! | is told of by a source that did not see all | unknown | *cannot be read*, *is not known* |
//! | needs a device where there is none | not applicable | the probe's own reason |
//! | else | not reached | what was not seen, and what ended the wait: the command's own end, or that the run was stopped at its stopping event |
//!
//! Of an `all` or `any` a part that does not apply, or that is unknown, decides before one that was not reached: that
//! it held cannot be told. What somebody asked, and the command's end, are known whatever was opened.

use std::collections::{BTreeMap, BTreeSet};

use super::asked::Values;
use super::condition::{Condition, Count};
use super::{Beside, Definition, StageFile, Status, ending};
use crate::clock::At;
use crate::event::{Event, Evidence as Shown, Stream, What};
use crate::metric::Metric;
use crate::probe::device::{NO_DEVICE, NO_VISIBLE_DEVICE};
use crate::watch::{tells_a_loss, unheard, unseen_stream};

/// Nothing in the tree was about a model.
const NOTHING_OPENED: &str = "no artifact was seen opened in this tree";

/// What the events say of the sources that could have shown a stage.
pub(super) struct Evidence<'a> {
    stages: &'a StageFile,
    /// Each variable as it was, or as it would have been by default.
    values: Values,
    /// The variables without a value.
    unknown: BTreeSet<&'a str>,
    /// How the command ended.
    end: Option<String>,
    /// The stopping event at which it was ended.
    stopped_at: Option<&'a str>,
    opened: bool,
    mapped: bool,
    /// The program, where the launch is a client that opened nothing.
    client: Option<&'a str>,
    streams: BTreeSet<&'static str>,
    /// Some of the output passed by without being matched.
    lost: bool,
    no_notifications: Option<&'a str>,
    no_residency: Option<String>,
    no_mapping: Option<String>,
    no_faults: Option<String>,
    no_reads: Option<String>,
    no_device: Option<String>,
    /// Whether device memory was looked at.
    device: bool,
    /// Whether the launch used one, where that was told.
    device_use: Option<(Option<bool>, String)>,
    no_anon: Option<String>,
    /// Of each condition that was asked, by its digest, the attempts and what came of the last one.
    asked: BTreeMap<String, (u64, String)>,
}

type Lack = (Status, String);

impl<'a> Evidence<'a> {
    /// `client`: the program that the command is, if that has others do the loading.
    pub fn of(stages: &'a StageFile, events: &'a [Event], beside: Beside<'a>, client: Option<&'a str>) -> Evidence<'a> {
        let exit = events.iter().find_map(|event| match &event.what {
            What::Exit { code, signal, .. } => Some(ending(*code, *signal)),
            _ => None,
        });
        // A metric that is absent after the command's end was not missing while it ran.
        let while_running = || events.iter().take_while(|event| !matches!(event.what, What::Exit { .. }));
        let absent = |metric: Metric| {
            while_running().fold(None, |absent, event| match &event.what {
                What::Absent { metric: this, reason } if *this == metric => Some(reason.clone()),
                What::Present { metric: this } if *this == metric => None,
                _ => absent,
            })
        };
        let warnings = || {
            events.iter().filter_map(|event| match &event.what {
                What::Warning { text } => Some(text.as_str()),
                _ => None,
            })
        };
        let asked = events.iter().filter_map(|event| match &event.what {
            What::Probe(probe) => Some((probe.condition.clone(), (probe.attempt, probe.outcome.clone()))),
            _ => None,
        });
        let known = beside.values.cloned().unwrap_or_default();
        let unknown = stages.vars.keys().map(String::as_str).filter(|name| !known.contains_key(*name)).collect();
        let mut values = stages.defaults();
        values.extend(known);
        let is_of_an_artifact = |what: &What| match what {
            What::Opened { .. } | What::Mapped { .. } => true,
            What::Mark(mark) => mark.evidence == Shown::Mapping,
            _ => false,
        };
        let opened = events.iter().any(|event| is_of_an_artifact(&event.what));
        Evidence {
            stages,
            values,
            unknown,
            end: exit,
            stopped_at: beside.stopped_at,
            opened,
            mapped: events.iter().any(|event| matches!(event.what, What::Mapped { .. })),
            client: client.filter(|_| !opened),
            streams: warnings().filter_map(unseen_stream).map(key).collect(),
            lost: warnings().any(tells_a_loss),
            no_notifications: warnings().find_map(unheard),
            no_residency: absent(Metric::ResidentPayloadBytes),
            no_mapping: absent(Metric::MappedBytes),
            no_faults: absent(Metric::MinorFaults).or_else(|| absent(Metric::MajorFaults)),
            no_reads: absent(Metric::ReadBytes),
            no_device: absent(Metric::DeviceLaunchBytes),
            device: events.iter().any(|event| event.what == What::Present { metric: Metric::DeviceUsedBytes }),
            device_use: events.iter().rev().find_map(|event| match &event.what {
                What::DeviceUse { used, reason } => Some((*used, reason.clone())),
                _ => None,
            }),
            no_anon: absent(Metric::RssAnonBytes),
            asked: asked.collect(),
        }
    }

    /// Whether an artifact was seen opened or mapped.
    pub fn opened(&self) -> bool {
        self.opened
    }

    /// Why a stage has no mark. `began`: when a span began, by its name.
    pub fn lack(
        &self,
        stage: &Definition,
        began: &dyn Fn(&str) -> Option<At>,
        is_marked: &dyn Fn(&str) -> bool,
    ) -> Lack {
        let awaited = stage.after.iter().find(|name| !is_marked(name));
        // A stage file has no circle of stages that wait for each other.
        if let Some(awaited) = awaited.and_then(|name| self.stages.stage(name)) {
            let (status, _) = self.lack(awaited, began, is_marked);
            let is = match status {
                Status::Unknown => "is unknown",
                Status::NotApplicable => "does not apply",
                Status::NotReached | Status::Reached => "was not reached",
            };
            return (status, format!("waits for `{}`, which {is}", awaited.name));
        }
        let Some(condition) = &stage.when else { return self.no_notification("only by notification, and none came") };
        let (status, reason) = match (&stage.begin, began(&stage.name)) {
            (None, _) => self.lack_of(condition),
            (Some(begin), None) => {
                let (status, reason) = self.lack_of(begin);
                (status, format!("not begun: {reason}"))
            }
            (Some(_), Some(began)) => {
                let (status, reason) = self.lack_of(condition);
                (status, format!("begun at {:.3} s, and not ended: {reason}", began.seconds()))
            }
        };
        match (status, self.stopped_at, &self.end) {
            (Status::NotReached, ..) if matches!(condition, Condition::Exit(_)) => (status, reason),
            (Status::NotReached, Some(stop), _) => (status, format!("{reason}; the run was stopped at {stop} first")),
            (Status::NotReached, None, Some(end)) => (status, format!("{reason}; the command ended first: {end}")),
            _ => (status, reason),
        }
    }

    fn no_notification(&self, none_came: &str) -> Lack {
        match self.no_notifications {
            Some(why) => (Status::Unknown, format!("{none_came}; notifications could not be heard: {why}")),
            None if !self.opened => (Status::Unknown, format!("{NOTHING_OPENED}; {none_came}")),
            None => (Status::NotReached, none_came.to_string()),
        }
    }

    /// What only this tree's own doings could have shown, where they could not.
    fn nothing_here(&self, condition: &Condition) -> Option<Lack> {
        use Condition::*;
        let of_artifacts = matches!(condition, Mapping(_) | Residency(_) | Unmap(_) | Anon(_));
        let of_the_tree = matches!(condition, Log(_) | FirstOutput(_) | Quiet(_) | Device(_));
        match self.client {
            Some(program) if of_artifacts || of_the_tree => {
                Some((Status::Unknown, format!("{NOTHING_OPENED}: `{program}` has others do the loading")))
            }
            _ if of_artifacts && !self.opened => Some((Status::Unknown, NOTHING_OPENED.to_string())),
            _ => None,
        }
    }

    fn lack_of(&self, condition: &Condition) -> Lack {
        if let Some(lack) = self.nothing_here(condition) {
            return lack;
        }
        let shown = condition.shown(&self.values);
        match condition {
            Condition::Mapping(which) => match (&self.no_mapping, which) {
                (Some(reason), _) if !self.mapped => (Status::Unknown, format!("mappings could not be seen: {reason}")),
                _ if !self.mapped => (Status::NotReached, "no artifact was mapped".to_string()),
                _ => (Status::NotReached, "not every artifact was mapped".to_string()),
            },
            Condition::Notify(name) => self.no_notification(&format!("no notification `{name}` came")),
            Condition::Log(log) => {
                let unseen = |stream| self.streams.contains(key(stream));
                let may_be_on = |stream: &Stream| log.is_on(*stream) && unseen(*stream);
                let unseen = [Stream::Stdout, Stream::Stderr, Stream::Both].into_iter().find(may_be_on);
                let count = log.count.number(&self.values);
                match (unseen, count) {
                    (Some(stream), _) => {
                        (Status::Unknown, format!("{shown} was not seen, and {} cannot be read", words(stream)))
                    }
                    (None, _) if self.lost => {
                        (Status::Unknown, format!("{shown} was not seen, but not all of the output was looked at"))
                    }
                    _ if !self.known(condition) => (Status::Unknown, format!("{shown}: {}", NO_VALUES)),
                    (None, None) => (
                        Status::Unknown,
                        format!("{shown} cannot be counted: `{}` is no number", self.filled(&log.count)),
                    ),
                    (None, Some(1)) => (Status::NotReached, format!("no line matched {:?}", log.pattern)),
                    (None, Some(count)) => {
                        (Status::NotReached, format!("fewer than {count} lines matched {:?}", log.pattern))
                    }
                }
            }
            Condition::Residency(share) => match &self.no_residency {
                Some(reason) => (Status::Unknown, format!("the resident payload is not known: {reason}")),
                None => (Status::NotReached, format!("no sample has {share} of the payload resident")),
            },
            Condition::Exit(_) => match (self.stopped_at, &self.end) {
                (Some(stop), _) => (Status::NotReached, format!("the run was stopped at {stop} first")),
                (None, Some(end)) => (Status::NotReached, format!("the command ended otherwise: {end}")),
                (None, None) => (Status::NotReached, "the end of the command was not recorded".to_string()),
            },
            Condition::Http(_) | Condition::Work(_) | Condition::Tcp(_) | Condition::Unix(_) | Condition::File(_) => {
                match self.asked.get(&condition.digest()) {
                    Some((1, outcome)) => {
                        (Status::NotReached, format!("{shown} was not seen in one attempt: {outcome}"))
                    }
                    Some((attempts, outcome)) => (
                        Status::NotReached,
                        format!("{shown} was not seen in {attempts} attempts; the last: {outcome}"),
                    ),
                    None => {
                        let why = if self.known(condition) { "" } else { NO_VALUES_TOO };
                        (Status::Unknown, format!("{shown}: no attempt by this definition is recorded{why}"))
                    }
                }
            }
            Condition::FirstOutput(first) => {
                let hidden = |stream: &Stream| {
                    self.streams.contains(key(*stream)) && (*stream == Stream::Both || *stream == first.stream)
                };
                match [Stream::Stdout, Stream::Stderr, Stream::Both].into_iter().find(hidden) {
                    Some(stream) => (Status::Unknown, format!("{} cannot be read", words(stream))),
                    None => (Status::NotReached, format!("no {}", shown.to_string().trim_start_matches("a "))),
                }
            }
            Condition::Unmap(_) => match &self.no_mapping {
                Some(reason) => (Status::Unknown, format!("mappings could not be seen: {reason}")),
                None => (Status::NotReached, format!("no sample has {shown}")),
            },
            Condition::Quiet(quiet) => {
                let unknown = self.no_faults.iter().filter(|_| quiet.faults);
                let unknown = unknown.chain(self.no_reads.iter().filter(|_| quiet.reads)).next();
                match unknown {
                    Some(reason) => (Status::Unknown, format!("faults or reads are not known: {reason}")),
                    None => (Status::NotReached, format!("at no time were there {shown}")),
                }
            }
            Condition::Device(_) => match &self.no_device {
                Some(reason) if [NO_DEVICE, NO_VISIBLE_DEVICE].iter().any(|why| reason.starts_with(why)) => {
                    (Status::NotApplicable, reason.clone())
                }
                Some(reason) => (Status::Unknown, format!("device memory is not known: {reason}")),
                None if self.device => match &self.device_use {
                    // There are devices, and it is no launch that places anything on one.
                    Some((Some(false), why)) => (Status::NotApplicable, why.clone()),
                    Some((None, why)) => (Status::Unknown, format!("at no time was there {shown}, and {why}")),
                    Some((Some(true), _)) | None => (Status::NotReached, format!("at no time was there {shown}")),
                },
                None => (Status::Unknown, "no device probe looked at device memory in this run".to_string()),
            },
            Condition::Anon(_) => match &self.no_anon {
                Some(reason) => (Status::Unknown, format!("anonymous memory is not known: {reason}")),
                None => (Status::NotReached, format!("at no time was {shown}")),
            },
            Condition::All(parts) | Condition::Any(parts) => {
                let lacks: Vec<Lack> = parts.iter().map(|part| self.lack_of(part)).collect();
                let with = |wanted: Status| lacks.iter().find(|(status, _)| *status == wanted).cloned();
                // What needs a device and something else does not apply without one.
                let needs_all = matches!(condition, Condition::All(_));
                let none_applies = lacks.iter().all(|(status, _)| *status == Status::NotApplicable);
                let not_applicable = with(Status::NotApplicable).filter(|_| needs_all || none_applies);
                not_applicable
                    .or_else(|| with(Status::Unknown))
                    .unwrap_or_else(|| (Status::NotReached, format!("without {shown}")))
            }
        }
    }

    /// Whether every variable in it had a value.
    fn known(&self, condition: &Condition) -> bool {
        condition.names().iter().all(|name| !self.unknown.contains(name))
    }

    fn filled(&self, count: &Count) -> String {
        match count {
            Count::Number(number) => number.to_string(),
            Count::Of(text) => text.fill_known(&self.values),
        }
    }
}

/// Why nothing that needs a variable could be decided.
const NO_VALUES: &str = "its variables have no value, since no program ran that the stage file's `argv` fits";
const NO_VALUES_TOO: &str = "; its variables have no value, since no program ran that the stage file's `argv` fits";

fn key(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Both => "both",
    }
}

/// A stream, for people.
pub(super) fn words(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "standard output",
        Stream::Stderr => "standard error",
        Stream::Both => "the output",
    }
}
