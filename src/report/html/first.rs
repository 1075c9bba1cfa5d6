//! The first screen: what was launched, on what, from which start condition, to which stopping event, the figures to
//! sign for, and one line a stage.

use super::markup::{ABSENT, Cell, Html, Table, list};
use crate::account::host::Bounds;
use crate::account::{Basis, Peak, StageRow, StageTable, reason_of_absence};
use crate::clock::At;
use crate::event::word_of;
use crate::metric::Metric;
use crate::report::terminal::{self, Page};
use crate::report::text::{elide, plain};
use crate::report::{account, death, device, eviction, faults, peak, plot, units, words};
use crate::run::Run;

/// A longer command line is cut in the middle; `run.json` has all of it.
const LONGEST_COMMAND: usize = 2_000;

/// The head of the page.
pub fn screen(run: &Run, table: &StageTable) -> Html {
    let mut html = Html::default();
    html.raw("<header>\n<p class=\"over\">");
    html.text("stagemark · start-up of a launch");
    if !run.meta.started.is_empty() {
        html.raw(" · ").element("span", Some("when"), &run.meta.started);
    }
    html.raw("</p>\n").element("h1", None, &program(run)).raw("\n");
    html.element("p", Some("command"), &elide(&command(run), LONGEST_COMMAND)).raw("\n");
    html.piece(&death_note(run));
    html.piece(&list(&facts(run, table)));
    html.raw("<div class=\"cards\">\n");
    html.piece(&host_card(run, table)).piece(&peak_card(run, table)).piece(&device_card(run, table));
    html.raw("</div>\n").piece(&stages(run, table));
    html.raw("</header>\n");
    html
}

fn program(run: &Run) -> String {
    let first = run.meta.argv.first().map(|program| program.rsplit('/').next().unwrap_or(program));
    elide(&plain(first.unwrap_or("a launch")), 80)
}

/// The command as it can be read, on one line; secrets were masked when it was recorded.
pub(super) fn command(run: &Run) -> String {
    let shown = |argument: &String| match plot::one_line(argument) {
        line if line.is_empty() || line.contains(char::is_whitespace) => format!("'{line}'"),
        line => line,
    };
    run.meta.argv.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn death_note(run: &Run) -> Html {
    let mut html = Html::default();
    let mut page = Page::default();
    death::section(&mut page, run);
    let said = page.paragraphs();
    if said.is_empty() {
        return html;
    }
    html.raw("<div class=\"death\" role=\"note\">\n").paragraphs(&said);
    let lines = death::last_lines(run);
    if !lines.is_empty() {
        html.raw("<p>Its last lines:</p>\n<pre>");
        lines.iter().for_each(|line| {
            html.text(&elide(line, 400)).raw("\n");
        });
        html.raw("</pre>\n");
    }
    html.raw("</div>\n");
    html
}

fn facts(run: &Run, table: &StageTable) -> Vec<(String, String)> {
    let mut facts = vec![("on".to_owned(), host(run)), ("model".to_owned(), model(run))];
    let condition = words::condition(run);
    let condition = condition.strip_prefix("start: ").unwrap_or(&condition);
    // The files and the date stand elsewhere here.
    let condition: Vec<&str> = condition.split(" · ").take(2).filter(|part| *part != run.meta.started).collect();
    facts.push(("from".to_owned(), condition.join(" · ")));
    let to = words::stopping_event(run, table);
    facts.push(("to".to_owned(), to.strip_prefix("stopping event ").unwrap_or(&to).to_owned()));
    let exit = terminal::exit(run);
    facts.push(("exit".to_owned(), exit.strip_prefix("exit: ").unwrap_or(&exit).to_owned()));
    facts.push(("stages by".to_owned(), words::stage_file(run)));
    facts
}

/// The machine in a line.
fn host(run: &Run) -> String {
    let host = &run.meta.host;
    let cpus = match (host.affinity_cpus, host.logical_cpus) {
        (Some(own), Some(all)) if own != all => Some(format!("{own} of {all} CPUs")),
        (own, all) => own.or(all).map(|count| format!("{count} CPU{}", if count == 1 { "" } else { "s" })),
    };
    let limit = host.cgroups.memory_limit.as_ref();
    let mut parts: Vec<String> = host.cpu_model.clone().into_iter().chain(cpus).collect();
    parts.extend(host.memory_total_bytes.map(|bytes| format!("{} of memory", units::bytes(bytes))));
    parts.extend(limit.map(|limit| format!("{} of it allowed by its control group", units::bytes(limit.bytes))));
    parts.extend(host.kernel_release.as_ref().map(|release| format!("Linux {release}")));
    parts.extend(host.virtualisation.first().map(|_| "virtual machine".to_owned()));
    parts.extend(host.container.first().map(|_| "container".to_owned()));
    let counted = run.meta.devices.iter().enumerate().filter(|(_, device)| device.is_counted);
    let mut devices: Vec<(String, usize)> = Vec::new();
    for (index, device) in counted {
        let name = if device.name.is_empty() { device.label(index) } else { device.name.clone() };
        match devices.iter_mut().find(|(same, _)| *same == name) {
            Some((_, count)) => *count += 1,
            None => devices.push((name, 1)),
        }
    }
    parts.extend(devices.into_iter().map(|(name, count)| if count == 1 { name } else { format!("{count} × {name}") }));
    if parts.is_empty() { "the host was not recorded".to_owned() } else { parts.join(" · ") }
}

/// The artifacts in a line.
fn model(run: &Run) -> String {
    let artifacts = &run.meta.artifacts;
    let Some(first) = artifacts.first() else {
        return "no model file was named, and none was seen opened".to_owned();
    };
    let name = first.path.rsplit('/').next().unwrap_or(&first.path);
    let mut parts = vec![match artifacts.len() {
        1 => name.to_owned(),
        count => format!("{name} and {} more", count - 1),
    }];
    parts.push(match artifacts.iter().map(|artifact| artifact.payload_bytes).sum::<Option<u64>>() {
        Some(bytes) => format!("{} of payload", units::bytes(bytes)),
        None => "payload not known".to_owned(),
    });
    let mut formats: Vec<String> = artifacts.iter().map(|artifact| word_of(&artifact.format)).collect();
    formats.dedup();
    formats.truncate(3);
    parts.push(formats.join(", "));
    parts.extend(first.filesystem.clone());
    parts.join(" · ")
}

/// A figure to sign for: what it is, itself, and how it is known.
fn card(what: &str, figure: &str, exact: Option<String>, said: &str) -> Html {
    let mut html = Html::default();
    html.raw("<div class=\"card\">").element("h2", None, what);
    html.open("p", &[("class", Some("figure")), ("title", exact.as_deref())]).text(figure).raw("</p>");
    html.element("p", Some("said"), said).raw("</div>\n");
    html
}

/// Bounds as a reader signs for them.
fn signed(low: Option<u64>, high: Option<u64>) -> (String, Option<String>) {
    let exact = |end: Option<u64>| end.map_or_else(|| "not known".to_owned(), |bytes| bytes.to_string());
    let figure = match (low, high) {
        (Some(_), Some(_)) => peak::between(Peak { low, high, basis: Basis::Bounds }).replace(" to ", " – "),
        (Some(low), None) => format!("≥ {}", units::bytes(low)),
        (None, Some(high)) => format!("≤ {}", units::bytes(high)),
        (None, None) => return (ABSENT.to_owned(), None),
    };
    (figure, Some(format!("at least {} B, at most {} B", exact(low), exact(high))))
}

fn host_card(run: &Run, table: &StageTable) -> Html {
    let Some(row) = account::row(table) else {
        return card("Host memory of the launch", ABSENT, None, "No stage was reached at which there is an account.");
    };
    if !account::tells(run, row) && row.host.total != Bounds::ABSENT {
        let what = format!("Host memory at {}", plain(&row.outcome.stage));
        return card(&what, ABSENT, None, "The launch was over when it was looked at, and no artifact is in the set.");
    }
    let Bounds { low, high } = row.host.total;
    let (figure, exact) = signed(low, high);
    let bounds = if figure.contains(" – ") { ", at least – at most" } else { "" };
    let what = format!("Host memory at {}{bounds}", plain(&row.outcome.stage));
    let said = match (low, high) {
        (None, None) => {
            let at = row.sampled.or(row.at()).unwrap_or(At(i64::MAX));
            let why = reason_of_absence(run, Metric::RssAnonBytes, at);
            format!("Not known: {}.", why.map_or_else(|| "parts of it are absent".to_owned(), plain))
        }
        _ => account::basis(&row.host),
    };
    card(&what, &figure, exact, &said)
}

fn peak_card(run: &Run, table: &StageTable) -> Html {
    let Some(row) = table.last_stage_reached() else { return Html::default() };
    let stage = plain(&row.outcome.stage);
    let what = format!("Peak of the resident set up to {stage}");
    let peak = row.peak(Metric::RssBytes);
    match (peak, peak::sentence(run, row, &stage)) {
        (Some(peak), Some(sentence)) => {
            let (figure, exact) = signed(peak.low, peak.high);
            card(&what, &figure, exact, &sentence)
        }
        _ => {
            let at = row.sampled.or(row.at()).unwrap_or(At(i64::MAX));
            let why = reason_of_absence(run, Metric::RssBytes, at).map_or("no reason recorded".to_owned(), plain);
            card(&what, ABSENT, None, &format!("Not known: {why}."))
        }
    }
}

fn device_card(run: &Run, table: &StageTable) -> Html {
    let Some(row) = table.last_stage_reached() else { return Html::default() };
    let stage = plain(&row.outcome.stage);
    let best = device::best(row).and_then(|(metric, what)| Some((row.peak(metric)?, what)));
    match best {
        Some((peak, what)) => {
            let (figure, exact) = signed(peak.low, peak.high);
            let basis = match peak.basis {
                Basis::Sampled => "The largest sample",
                Basis::Kernel => "By the driver's own accounting",
                Basis::Bounds => "Between the largest sample and the driver's accounting",
            };
            card(&format!("Peak on devices up to {stage}"), &figure, exact, &format!("{basis} of {what}."))
        }
        None => {
            let at = row.sampled.or(row.at()).unwrap_or(At(i64::MAX));
            let why = reason_of_absence(run, Metric::DeviceUsedBytes, at);
            let why = why.map_or_else(|| "no device was recorded".to_owned(), plain);
            card("Device memory", ABSENT, None, &format!("Not known: {why}."))
        }
    }
}

/// One line a stage, as in the terminal's table.
fn stages(run: &Run, table: &StageTable) -> Html {
    let mut html = Html::default();
    let with_devices = table.reached().any(|row| device::best(row).is_some());
    let mut head = vec![Cell::text("stage")];
    head.extend(terminal::COLUMNS.iter().map(|column| Cell::figure(Some(column.head.to_owned()))));
    if with_devices {
        head.push(Cell::figure(Some("devices".to_owned())));
    }
    head.push(Cell::text("shown by"));
    let mut stages = Table::new(Some("lines"), head);
    let line = |(row, number): (&StageRow, usize)| {
        let stopping = table.stopping_event.as_ref() == Some(&row.outcome.stage);
        let name = plain(&row.outcome.stage);
        let mut cells = vec![Cell::text(format!("{number} {name}{}", if stopping { " ◂ stopping event" } else { "" }))];
        cells.extend(terminal::COLUMNS.iter().map(|column| Cell::figure((column.value)(row))));
        if with_devices {
            cells.push(Cell::bytes(device::best(row).and_then(|(metric, _)| row.values.get(metric))));
        }
        cells.push(match &row.outcome.mark {
            Some((_, _, mark)) => Cell::text(word_of(&mark.evidence)).exactly(plain(&mark.detail)),
            None => Cell::text(ABSENT),
        });
        cells
    };
    stages.group("", table.reached().zip(1..).map(line).collect());
    html.piece(&stages.html());
    let mut page = Page::default();
    terminal::absences(&mut page, run, table);
    let mut said: Vec<String> = words::missing(table);
    said.extend(page.paragraphs());
    if table.reached().next().is_some() {
        said.push("time since start; memory at the stage; +faults and +read since the stage before".to_owned());
    }
    if !said.is_empty() {
        html.raw("<div class=\"small\">\n").paragraphs(&said).raw("</div>\n");
    }
    html
}

/// What the table says in words.
pub fn sentences(run: &Run, table: &StageTable) -> Vec<String> {
    let mut page = Page::default();
    terminal::uncertain_times(&mut page, table);
    terminal::stale_residency(&mut page, table);
    let mut said = words::gap(table);
    said.extend(words::after(table));
    said.extend(page.paragraphs());
    said.extend(eviction::sentences(run, table));
    said.extend(faults::sentences(run));
    said
}
