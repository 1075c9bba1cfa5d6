//! The stage table for a terminal: 80 columns, no colours, nothing that the launch printed or named can move the
//! cursor.

use std::path::Path;

use crate::account::{StageRow, StageTable, reason_of_absence};
use crate::clock::At;
use crate::finding;
use crate::metric::Metric;
use crate::run::Run;

use super::text::{columns, elide, padded, plain, wrap};
use super::{account, death, device, eviction, faults, findings, repeats, units, words, work};

pub(crate) const WIDTH: usize = 80;
/// An uncertainty or an age that is worth a sentence.
const WIDE_NS: u64 = 100_000_000;
/// What stands for a value that is not known.
pub(super) const ABSENT: &str = "–";

/// A column after the stage's name: its head, its width, and the metrics that it shows, to say why one is absent.
pub(super) struct Column {
    pub(super) head: &'static str,
    width: usize,
    metrics: &'static [Metric],
    pub(super) value: fn(&StageRow) -> Option<String>,
}

/// The name takes what these leave: 18 of 80.
pub(super) const COLUMNS: [Column; 7] = [
    Column { head: "time (s)", width: 8, metrics: &[], value: |row| row.at().map(seconds) },
    Column {
        head: "mapped",
        width: 8,
        metrics: &[Metric::MappedPayloadBytes],
        value: |row| bytes(row, Metric::MappedPayloadBytes),
    },
    Column {
        head: "resident",
        width: 8,
        metrics: &[Metric::ResidentPayloadBytes],
        value: |row| bytes(row, Metric::ResidentPayloadBytes),
    },
    Column { head: "RSS", width: 8, metrics: &[Metric::RssBytes], value: |row| bytes(row, Metric::RssBytes) },
    Column { head: "anon", width: 8, metrics: &[Metric::RssAnonBytes], value: |row| bytes(row, Metric::RssAnonBytes) },
    Column { head: "+faults", width: 7, metrics: &[Metric::MinorFaults, Metric::MajorFaults], value: faults },
    Column {
        head: "+read",
        width: 8,
        metrics: &[Metric::ReadBytes],
        value: |row| row.deltas.get(Metric::ReadBytes).map(units::bytes),
    },
];

fn bytes(row: &StageRow, metric: Metric) -> Option<String> {
    row.values.get(metric).map(units::bytes)
}

/// Minor and major page faults since the stage before.
pub(super) fn faults(row: &StageRow) -> Option<String> {
    let (minor, major) = (row.deltas.get(Metric::MinorFaults)?, row.deltas.get(Metric::MajorFaults)?);
    minor.checked_add(major).map(units::count)
}

/// Seconds to the millisecond, as far as the column has room for it.
pub(super) fn seconds(at: At) -> String {
    if at.seconds().abs() < 1e4 { format!("{:.3}", at.seconds()) } else { format!("{:.0}", at.seconds()) }
}

/// The table, what it says in words, the profiler's own cost, and warnings. The paths that it ends with are in the run's
/// folder.
pub fn text(run: &Run, table: &StageTable) -> String {
    text_in(run, table, &run.folder)
}

/// The same of reports that were made in another folder.
pub fn text_in(run: &Run, table: &StageTable, folder: &Path) -> String {
    let mut page = Page::default();
    death::section(&mut page, run);
    table_of_stages(&mut page, table);
    page.blank();
    // Without an artifact there is no payload of which it could be said how much is there.
    let gap = if run.meta.artifacts.is_empty() { Vec::new() } else { words::gap(table) };
    gap.iter().for_each(|sentence| page.line(sentence));
    words::after(table).iter().for_each(|sentence| page.line(sentence));
    uncertain_times(&mut page, table);
    stale_residency(&mut page, table);
    eviction::sentences(run, table).iter().for_each(|sentence| page.line(sentence));
    findings::section(&mut page, &run.folder, &finding::findings(run, table));
    account::section(&mut page, run, table);
    device::section(&mut page, run, table);
    absences(&mut page, run, table);
    super::sources::sentence(&run.meta).iter().for_each(|sentence| page.line(sentence));
    work::lines(run, table).iter().for_each(|line| page.line(line));
    faults::sentences(run).iter().for_each(|sentence| page.line(sentence));
    repeats::sentences(run).iter().for_each(|sentence| page.line(sentence));
    page.blank();
    page.line(&words::condition(run));
    page.line(&format!("{} · stages: {}", words::stopping_event(run, table), words::stage_file(run)));
    page.line(&exit(run));
    if let Some(cost) = cost(run) {
        page.line(&cost);
    }
    let notes = words::notes(run, table);
    if !notes.is_empty() {
        page.blank();
        notes.iter().for_each(|note| page.line(note));
    }
    page.blank();
    // Paths are not broken, so that they can be copied.
    page.raw(&format!("run       {}", plain(&folder.display().to_string())));
    page.raw(&format!("page      {}", plain(&folder.join("report.html").display().to_string())));
    page.raw(&format!("timeline  {}", plain(&folder.join("timeline.svg").display().to_string())));
    if run.tensors.is_some() {
        page.raw(&format!("touched   {}", plain(&folder.join("touched.svg").display().to_string())));
    }
    page.text()
}

/// The page so far.
#[derive(Default)]
pub(crate) struct Page {
    parts: Vec<Written>,
}

enum Written {
    /// A line as it is.
    Raw(String),
    /// A paragraph, not yet broken into lines, and by how many columns it is indented.
    Paragraph(usize, String),
}

impl Page {
    /// A line as it is; the caller keeps it to [`WIDTH`].
    pub(crate) fn raw(&mut self, line: &str) {
        self.parts.push(Written::Raw(line.trim_end().to_owned()));
    }

    /// A paragraph, its further lines indented.
    pub(crate) fn line(&mut self, text: &str) {
        self.indented(0, text);
    }

    /// The same, all of it indented by so many columns.
    pub(crate) fn indented(&mut self, by: usize, text: &str) {
        self.parts.push(Written::Paragraph(by, text.to_owned()));
    }

    /// An empty line, unless the last one is.
    pub(crate) fn blank(&mut self) {
        if !matches!(self.parts.last(), Some(Written::Raw(line)) if line.is_empty()) {
            self.raw("");
        }
    }

    /// All of it, paragraphs broken.
    pub(crate) fn text(self) -> String {
        let mut text = String::new();
        for part in self.parts {
            match part {
                // Whoever forgot to make a text plain moves no cursor with it.
                Written::Raw(lines) => lines.split('\n').for_each(|line| text.push_str(&format!("{}\n", plain(line)))),
                Written::Paragraph(by, paragraph) => {
                    for (index, line) in wrap(&paragraph, WIDTH - 2 - by).into_iter().enumerate() {
                        let by = if index == 0 { by } else { by + 2 };
                        text.push_str(&format!("{}\n", format!("{}{line}", " ".repeat(by)).trim_end()));
                    }
                }
            }
        }
        text
    }

    /// Its paragraphs alone, for a report that has its own tables.
    pub(in crate::report) fn paragraphs(self) -> Vec<String> {
        let paragraph = |part| match part {
            Written::Paragraph(_, text) => Some(text),
            Written::Raw(_) => None,
        };
        self.parts.into_iter().filter_map(paragraph).collect()
    }
}

/// The widths of [`COLUMNS`]; narrower, where that is what the longest name needs.
fn widths(table: &StageTable) -> [usize; COLUMNS.len()] {
    let usual = COLUMNS.map(|column| column.width);
    let longest = table.reached().map(|row| columns(&plain(&row.outcome.stage))).max().unwrap_or(0);
    if longest <= room_for_names(&usual) {
        return usual;
    }
    COLUMNS.map(|column| {
        let values = table.reached().map(|row| (column.value)(row).map_or(1, |value| columns(&value)));
        values.max().unwrap_or(0).max(columns(column.head)).min(column.width)
    })
}

fn room_for_names(widths: &[usize]) -> usize {
    WIDTH - widths.iter().map(|width| width + 1).sum::<usize>()
}

fn table_of_stages(page: &mut Page, table: &StageTable) {
    let widths = widths(table);
    let name = room_for_names(&widths);
    let shown: Vec<String> = table.reached().map(|row| elide(&plain(&row.outcome.stage), name)).collect();
    let line = |stage: &str, cells: &[String; COLUMNS.len()]| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!(" {:>width$}", elide(cell, width)));
        format!("{}{}", padded(stage, name), cells.collect::<String>())
    };
    page.raw(&line("stage", &COLUMNS.map(|column| column.head.to_owned())));
    for (row, stage) in table.reached().zip(&shown) {
        // The name is what the reader will look for: where its ends are another's too, it has a line of its own.
        let is_alone = shown.iter().filter(|other| *other == stage).count() == 1;
        if !is_alone {
            page.raw(&elide(&plain(&row.outcome.stage), WIDTH));
        }
        let cells = COLUMNS.map(|column| (column.value)(row).unwrap_or_else(|| ABSENT.to_owned()));
        page.raw(&line(if is_alone { stage } else { "" }, &cells));
        if let Some(begin) = row.outcome.begin {
            let mut cells = [const { String::new() }; COLUMNS.len()];
            cells[0] = seconds(begin);
            page.raw(&line("  begun at", &cells));
        }
    }
    let elided =
        table.reached().map(|row| plain(&row.outcome.stage)).zip(&shown).filter(|(name, shown)| name != *shown);
    elided.for_each(|(name, shown)| page.line(&format!("{shown}: {name}")));
    words::missing(table).iter().for_each(|sentence| page.line(sentence));
    if table.reached().next().is_some() {
        page.raw("time since start; memory at the stage; +faults and +read since the stage before");
    }
}

/// Times that may be much too late: a wide uncertainty in words, since the table has no column for it.
pub(super) fn uncertain_times(page: &mut Page, table: &StageTable) {
    for row in table.reached() {
        let Some((_, uncertainty, _)) = row.outcome.mark else { continue };
        let stage = plain(&row.outcome.stage);
        match uncertainty {
            Some(ns) if ns >= WIDE_NS => {
                page.line(&format!("{stage} may have been up to {} earlier than said.", units::duration(ns)));
            }
            None => page.line(&format!("{stage} may have been earlier than said; by how much is not known.")),
            Some(_) => {}
        }
    }
}

/// Stages whose resident payload is in part from before the mark: what has come in since is not in it.
pub(super) fn stale_residency(page: &mut Page, table: &StageTable) {
    for row in table.reached() {
        let (Some(sampled), Some(at), Some(stale)) =
            (row.sampled, row.at(), row.values.get(Metric::ResidentStaleNs).map(|ns| ns as i64))
        else {
            continue;
        };
        if stale as u64 >= WIDE_NS && sampled.0 - stale < at.0 {
            let stage = plain(&row.outcome.stage);
            let age = units::duration(stale as u64);
            page.line(&format!(
                "The resident payload at {stage} is in part {age} old, and may be off by what changed."
            ));
        }
    }
}

/// Why cells of the table are absent: each reason once, with the columns that it is for.
pub(super) fn absences(page: &mut Page, run: &Run, table: &StageTable) {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for column in &COLUMNS {
        for row in table.reached().filter(|row| (column.value)(row).is_none()) {
            let at = row.sampled.or(row.at()).unwrap_or(At(i64::MAX));
            let why = column.metrics.iter().find_map(|metric| reason_of_absence(run, *metric, at));
            let why = match why {
                Some(why) => plain(why),
                None if row.sampled.is_none() => "no sample was taken".to_owned(),
                None => "no reason recorded".to_owned(),
            };
            let columns = match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, columns)) => columns,
                None => &mut reasons.push_mut((why, Vec::new())).1,
            };
            let head = column.head.trim_start_matches('+');
            if !columns.contains(&head) {
                columns.push(head);
            }
        }
    }
    for (reason, columns) in reasons {
        page.line(&format!("{ABSENT} {}: {reason}", columns.join(", ")));
    }
}

pub(super) fn exit(run: &Run) -> String {
    match &run.meta.exit {
        None => "exit: not recorded; the command was still running, or the profiler was killed".to_owned(),
        Some(exit) => {
            let how = match (exit.code, exit.signal) {
                (Some(code), _) => format!("status {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "status not known".to_owned(),
            };
            let stopped = if exit.stopped { ", stopped at the stopping event" } else { "" };
            format!("exit: {how} after {}{stopped}", units::time(exit.at))
        }
    }
}

pub(super) fn cost(run: &Run) -> Option<String> {
    let cost = run.meta.cost.as_ref()?;
    let interval = match cost.interval_ns {
        same if same == run.meta.interval_ns => units::duration(same),
        last => format!("{}, at the end {}", units::duration(run.meta.interval_ns), units::duration(last)),
    };
    let ticks = format!("{} tick{}", cost.ticks, if cost.ticks == 1 { "" } else { "s" });
    Some(format!(
        "{}; {} ({interval}), {} late, median {}, p99 {}",
        words::cost(run)?,
        ticks,
        cost.late_ticks,
        units::duration(cost.tick_cost_median_ns),
        units::duration(cost.tick_cost_p99_ns)
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event::What;

    /// The table of a recorded run, its marks' names changed, without what stands below it.
    fn table(rename: impl Fn(usize, &str) -> String, begin: Option<At>) -> Vec<String> {
        let mut run = Run::load(std::path::Path::new("fixtures/runs/lazy")).unwrap();
        let mut number = 0;
        for event in &mut run.events {
            if let What::Mark(mark) = &mut event.what {
                let name = rename(number, &mark.stage);
                for stage in &mut run.meta.stages.stages {
                    if stage.name == mark.stage {
                        stage.name.clone_from(&name);
                    }
                }
                (mark.stage, number) = (name, number + 1);
            }
        }
        let mut table = StageTable::of(&run);
        table.rows[0].outcome.begin = begin;
        let mut page = Page::default();
        table_of_stages(&mut page, &table);
        page.text().lines().take_while(|line| !line.starts_with("first_response:")).map(str::to_owned).collect()
    }

    #[test]
    fn a_long_name_does_not_break_the_rows() {
        let usual = table(|_, name| name.to_owned(), None);
        for length in [18, 20, 24, 40, 64] {
            let lines = table(|number, _| format!("{number}{}", "x".repeat(length - 1)), None);
            let (lines, below) = lines.split_at(usual.len());
            // What is elided in the table is told in full below it.
            let is_elided = lines[1].contains('…');
            let full = below.iter().filter(|line| line.contains(&"x".repeat(length - 1))).count();
            assert_eq!(full, if is_elided { usual.len() - 1 } else { 0 }, "{lines:#?} {below:#?}");
            assert!(lines.iter().all(|line| columns(line) <= WIDTH), "{lines:#?}");
            let numbers = |lines: &[String]| {
                lines
                    .iter()
                    .skip(1)
                    .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
                    .collect::<Vec<_>>()
            };
            assert_eq!(numbers(lines), numbers(&usual));
        }
        assert!(table(|_, _| "x".repeat(20), None)[1].starts_with(&"x".repeat(20)), "the columns give way first");
        // Names of which the same would be left have a line of their own each.
        let alike = table(|number, _| format!("{}{number}{}", "x".repeat(30), "y".repeat(30)), None);
        assert!(alike[1].len() == 61 && alike[2].starts_with("   "), "{alike:#?}");
    }

    #[test]
    fn a_span_has_a_row_for_its_beginning() {
        let lines = table(|_, name| name.to_owned(), Some(At(1_250_000_000)));
        assert_eq!(lines[2], format!("{:<18} {:>8}", "  begun at", "1.250"), "{lines:#?}");
    }
}
