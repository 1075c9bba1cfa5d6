//! The processes of the launch, and its ranks.

use std::collections::BTreeMap;

use super::markup::{Cell, Html, Table};
use crate::clock::At;
use crate::event::{Pid, What};
use crate::report::text::elide;
use crate::report::units;
use crate::run::death::signal_name;
use crate::run::{Run, Scope};

/// So many processes have a row: those that held most.
const MOST: usize = 100;
/// So much of a command line is shown.
const COMMAND: usize = 160;

/// What is known of one.
#[derive(Default)]
struct Process {
    parent: Option<Pid>,
    born: Option<At>,
    gone: Option<At>,
    code: Option<i32>,
    signal: Option<i32>,
    program: Option<String>,
    images: usize,
    largest: BTreeMap<String, u64>,
}

/// Tables of both, as far as there are any.
pub fn tables(run: &Run) -> Html {
    let mut html = Html::default();
    html.piece(&processes(run)).piece(&ranks(run));
    html
}

fn processes(run: &Run) -> Html {
    let mut html = Html::default();
    // A number may be given again: then these are of both.
    let mut found: BTreeMap<Pid, Process> = BTreeMap::new();
    for event in &run.events {
        match &event.what {
            What::Born { pid, parent } => {
                let process = found.entry(*pid).or_default();
                (process.parent, process.born) = (Some(*parent), Some(event.at));
            }
            What::Exec { pid, argv } => {
                let process = found.entry(*pid).or_default();
                process.program = Some(argv.join(" "));
                process.images += 1;
            }
            What::Gone { pid, code, signal } | What::Exit { pid, code, signal } => {
                let process = found.entry(*pid).or_default();
                process.gone = process.gone.or(Some(event.at));
                process.code = process.code.or(*code);
                process.signal = process.signal.or(*signal);
            }
            _ => {}
        }
    }
    for figure in &run.details {
        if let Scope::Process(pid) = figure.scope {
            let largest = found.entry(pid).or_default().largest.entry(figure.metric.clone()).or_default();
            *largest = figure.value.max(*largest);
        }
    }
    let count = found.len();
    let held = |process: &Process| process.largest.get("rss_bytes").copied();
    let mut shown: Vec<(Pid, Process)> = found.into_iter().collect();
    if count > MOST {
        shown.sort_by_key(|(pid, process)| (std::cmp::Reverse(held(process)), *pid));
        shown.truncate(MOST);
    }
    shown.sort_by_key(|(pid, process)| (process.born, *pid));
    let figure = |text: &str| Cell::figure(Some(text.to_owned()));
    let mut table = Table::new(
        Some("processes"),
        vec![
            Cell::text("process"),
            figure("parent"),
            figure("born"),
            figure("ended"),
            figure("by"),
            figure("largest RSS"),
            figure("anon"),
            figure("file"),
            figure("read"),
            Cell::text("command"),
        ],
    );
    let time = |at: Option<At>| match at {
        Some(at) => Cell::figure(Some(units::time(at))).exactly(format!("{} ns", at.0)),
        None => Cell::figure(None),
    };
    let line = |(pid, process): &(Pid, Process)| {
        let end = match (process.code, process.signal) {
            (Some(code), _) => Some(format!("status {code}")),
            (None, Some(signal)) => Some(signal_name(signal)),
            (None, None) => None,
        };
        let most = |name: &str| Cell::bytes(process.largest.get(name).copied());
        let images = if process.images > 1 { format!(" ({} programs in turn)", process.images) } else { String::new() };
        let command = process.program.as_ref().map(|program| format!("{}{images}", elide(program, COMMAND)));
        vec![
            Cell::text(pid.to_string()),
            Cell::figure(process.parent.map(|parent| parent.to_string())),
            time(process.born),
            time(process.gone),
            Cell::figure(end),
            most("rss_bytes"),
            most("rss_anon_bytes"),
            most("rss_file_bytes"),
            most("read_bytes"),
            Cell::text(command.unwrap_or_default()),
        ]
    };
    table.group("", shown.iter().map(line).collect());
    html.piece(&table.html());
    if count > MOST {
        html.element(
            "p",
            Some("small"),
            &format!("{MOST} of {count} processes: those with the largest resident sets. events.csv has them all."),
        );
    }
    if count > 0 {
        html.element(
            "p",
            Some("small"),
            "The largest that detail.csv has of each, which is written at most once a second, at marks and at ends. \
             A fork without an exec has no command of its own.",
        );
    }
    html
}

/// Each rank's figures, the largest of them.
fn ranks(run: &Run) -> Html {
    let mut html = Html::default();
    let mut found: BTreeMap<u32, BTreeMap<&str, u64>> = BTreeMap::new();
    for figure in &run.details {
        if let Scope::Rank(rank) = figure.scope {
            let largest = found.entry(rank).or_default().entry(figure.metric.as_str()).or_default();
            *largest = figure.value.max(*largest);
        }
    }
    let columns = ["rss_bytes", "rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes", "read_bytes"];
    let heads = ["largest RSS", "anon", "file", "shared", "read"].map(|text| Cell::figure(Some(text.to_owned())));
    let mut table = Table::new(None, std::iter::once(Cell::text("rank")).chain(heads).collect());
    let line = |(rank, largest): (&u32, &BTreeMap<&str, u64>)| {
        let cells = columns.map(|name| Cell::bytes(largest.get(name).copied()));
        std::iter::once(Cell::text(rank.to_string())).chain(cells).collect()
    };
    table.group("", found.iter().take(MOST).map(line).collect());
    if !found.is_empty() {
        html.raw("<h3>Ranks</h3>\n").piece(&table.html());
    }
    if found.len() > MOST {
        html.element("p", Some("small"), &format!("{} more ranks are in detail.csv.", found.len() - MOST));
    }
    html
}
