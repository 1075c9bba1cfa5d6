//! `stagemark doctor`: what this host lets this user measure, why not, and what would change it.
//!
//! Found by trying: events are opened, files read, calls made, as the probes themselves do; never told by a kernel's
//! version. Only where there is nothing to try with (no process of another user is to be seen) does a capability speak.
//! What was tried is a plain value, and the words are a pure function of it, so that any host's answer can be recorded
//! and tested. It changes nothing that outlives it: a file to try residency on and a control group are made and removed
//! again, and its own high-water mark is reset. A file on FUSE is not opened, for that may empty its page cache.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accounts;
mod groups;
mod limits;
mod perf;
mod place;
mod processes;
mod residency;
mod table;
#[cfg(test)]
mod tests;
mod who;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use serde::Serialize;

use self::place::Place;
use self::who::Who;

/// Whether a figure may be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Yes,
    /// As a bound, less exactly, or by the next best source.
    Bounded,
    No,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name for machines; never renamed.
    pub item: &'static str,
    /// What is measured.
    pub figure: &'static str,
    /// How it is known here.
    pub source: String,
    pub state: State,
    /// Why it is not had in full; or, where it is, what there is to know about it.
    pub reason: Option<String>,
    /// What would change it: commands and settings, each enough by itself.
    pub remedies: Vec<String>,
}

impl Finding {
    fn yes(item: &'static str, figure: &'static str, source: impl Into<String>) -> Finding {
        Finding { item, figure, source: source.into(), state: State::Yes, reason: None, remedies: Vec::new() }
    }

    fn bounded(item: &'static str, figure: &'static str, source: impl Into<String>) -> Finding {
        Finding { state: State::Bounded, ..Finding::yes(item, figure, source) }
    }

    fn no(item: &'static str, figure: &'static str) -> Finding {
        Finding { state: State::No, ..Finding::yes(item, figure, "none") }
    }

    fn because(self, reason: impl Into<String>) -> Finding {
        Finding { reason: Some(reason.into()), ..self }
    }

    fn remedied_by<R: Into<String>>(self, remedies: impl IntoIterator<Item = R>) -> Finding {
        Finding { remedies: remedies.into_iter().map(R::into).collect(), ..self }
    }
}

/// Why something that was tried was refused: the kernel's own error.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    errno: Option<i32>,
    text: String,
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        let text = error.to_string();
        // People need no number beside the words.
        let text = text.split(" (os error ").next().unwrap_or(&text).to_owned();
        Refusal { errno: error.raw_os_error(), text }
    }
}

/// A group of findings under one heading.
type Section = (&'static str, Vec<Finding>);

/// Everything that was tried on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tried {
    perf: perf::Tried,
    residency: residency::Tried,
    processes: processes::Tried,
    accounts: accounts::Tried,
    groups: groups::Tried,
    limits: limits::Tried,
}

impl Tried {
    fn here() -> Tried {
        Tried {
            // First: its descriptors and rings are those of a launch's beginning.
            perf: perf::Tried::here(),
            residency: residency::Tried::here(),
            processes: processes::Tried::here(),
            accounts: accounts::Tried::here(),
            groups: groups::Tried::here(),
            limits: limits::Tried::here(),
        }
    }

    fn sections(&self, who: &Who) -> Vec<Section> {
        let page_tables = self.processes.page_tables();
        vec![
            ("Events and faults", self.perf.findings(who)),
            ("Residency", self.residency.findings(who, page_tables)),
            ("Processes and their memory", self.processes.findings(who)),
            ("I/O, waiting and pressure", self.accounts.findings(who)),
            ("Control group", self.groups.findings(who)),
            ("Host and limits", self.limits.findings(who)),
        ]
    }
}

/// The whole answer, for machines.
#[derive(Serialize)]
struct Answer<'a> {
    stagemark: &'static str,
    #[serde(flatten)]
    who: &'a Who,
    findings: Vec<&'a Finding>,
    paths: &'a [Place],
}

/// Says what may be measured here, and about each of `paths` who may be asked about it, as a table or as JSON.
///
/// Returns whether every path could be looked at.
pub fn doctor(paths: &[PathBuf], json: bool, out: &mut dyn Write) -> anyhow::Result<bool> {
    let who = Who::here();
    let tried = Tried::here();
    let sections = tried.sections(&who);
    let places = place::look(paths, &who);
    let text = if json {
        let findings = sections.iter().flat_map(|(_, findings)| findings).collect();
        let answer = Answer { stagemark: env!("CARGO_PKG_VERSION"), who: &who, findings, paths: &places };
        let mut text = serde_json::to_string_pretty(&answer)?;
        text.push('\n');
        text
    } else {
        table::table(&who, &sections, &places)
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(places.iter().all(|place| place.problem.is_none()))
}
