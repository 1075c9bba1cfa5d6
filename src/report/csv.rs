//! `stages.csv`: the deliverable of a capacity review. RFC 4180, numbers bare, empty for absent, nothing that a
//! spreadsheet would run as a formula.
//!
//! Columns, in this order: what became of the stage (`stage` … `sampled_ns`); each metric at the mark, under its own
//! name; `delta_<counter>` since the previous mark; `change_<gauge>`, signed, since the previous mark;
//! `peak_<gauge>_low`, `_high`, `_basis` over start → mark; `span_peak_<gauge>_…` over previous mark → mark; the host
//! account: `host_<part>_bytes_low`, `_high`, which do not overlap and may be added; `host_swap_bytes`, which is not in
//! the total; `host_basis`, how it is known; and the total, `host_bytes_low`, `host_bytes_high`; the ratios of
//! [`crate::account::ratios`], as decimal numbers; where the payload's data came from since the previous mark
//! (`data_from`) and since start (`data_from_start`), with the reason; what the counters since start may lack
//! (`unaccounted_…`); `after_<metric>`, signed, what came from the mark to the stopping event; and, at the stopping
//! event's row alone, `steady_<metric>`, the level of device memory that stood longest after it, and
//! `peak_over_steady_<metric>`, signed, by how much the largest sample up to it was above that, with `steady_reason`
//! where there is none.

use std::io::Write;

use csv::{Terminator, WriterBuilder};

use crate::account::host::Part;
use crate::account::ratios::RATIOS;
use crate::account::source::{DataFrom, Verdict};
use crate::account::{AFTER, Peak, STEADY, StageRow, StageTable, Work};
use crate::event::word_of;
use crate::metric::{ALL, Metric};

use super::text::plain;

/// Writes the table.
pub fn write(table: &StageTable, out: &mut dyn Write) -> csv::Result<()> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
    writer.write_record(header())?;
    let mut before = None;
    // Looked for once: there may be thousands of rows.
    let stop = table.stopping_row();
    for row in &table.rows {
        writer.write_record(cells(stop, row, before))?;
        before = Some(row);
    }
    writer.flush()?;
    Ok(())
}

/// The header, from the table of metrics.
pub fn header() -> Vec<String> {
    let own = ["stage", "status", "reason", "begin_ns", "t_ns", "uncertainty_ns", "evidence", "detail", "sampled_ns"];
    let mut header: Vec<String> = own.map(str::to_owned).into();
    header.extend(ALL.iter().map(|metric| metric.name().to_owned()));
    header.extend(Metric::counters().map(|metric| format!("delta_{}", metric.name())));
    header.extend(Metric::levels().map(|metric| format!("change_{}", metric.name())));
    for prefix in ["peak", "span_peak"] {
        for metric in Metric::gauges() {
            header.extend(["low", "high", "basis"].map(|part| format!("{prefix}_{}_{part}", metric.name())));
        }
    }
    header.extend(Part::ALL.iter().flat_map(|part| ["low", "high"].map(|end| format!("{}_{end}", part.column()))));
    header.extend(["host_swap_bytes", "host_basis", "host_bytes_low", "host_bytes_high"].map(str::to_owned));
    header.extend(RATIOS.iter().map(|ratio| ratio.name.to_owned()));
    header.extend(WORK.map(str::to_owned));
    header.extend(AFTER.iter().map(|metric| format!("after_{}", metric.name())));
    header.extend(STEADY.iter().map(|metric| format!("steady_{}", metric.name())));
    header.extend(STEADY.iter().map(|metric| format!("peak_over_steady_{}", metric.name())));
    header.push("steady_reason".to_owned());
    header
}

/// `before`: the row before it, which stands at the mark before it.
fn cells(stop: Option<&StageRow>, row: &StageRow, before: Option<&StageRow>) -> Vec<String> {
    let outcome = &row.outcome;
    let mut cells = vec![text(&outcome.stage), word_of(&outcome.status), text(&outcome.reason)];
    cells.push(cell(outcome.begin.map(|at| at.0)));
    match &outcome.mark {
        Some((at, uncertainty, mark)) => {
            cells.extend([cell(Some(at.0)), cell(*uncertainty), word_of(&mark.evidence), text(&mark.detail)]);
        }
        None => cells.extend(std::iter::repeat_n(String::new(), 4)),
    }
    cells.push(cell(row.sampled.map(|at| at.0)));
    cells.extend(ALL.iter().map(|&metric| cell(row.values.get(metric))));
    cells.extend(Metric::counters().map(|metric| cell(row.deltas.get(metric))));
    cells.extend(Metric::levels().map(|metric| cell(row.change(metric))));
    cells.extend(Metric::gauges().flat_map(|metric| peak_cells(row.peak(metric))));
    cells.extend(Metric::gauges().flat_map(|metric| peak_cells(row.span_peak(metric))));
    cells.extend(Part::ALL.iter().flat_map(|&part| {
        let bounds = row.host.part(part);
        [cell(bounds.low), cell(bounds.high)]
    }));
    cells.extend([cell(row.host.swap), text(&row.host.basis), cell(row.host.total.low), cell(row.host.total.high)]);
    cells.extend(RATIOS.iter().map(|ratio| cell((ratio.of)(row, before))));
    cells.extend(work_cells(&row.work));
    cells.extend(AFTER.iter().map(|&metric| cell(row.rise_to(stop, metric))));
    cells.extend(STEADY.iter().map(|&metric| cell(row.steady.level(metric))));
    cells.extend(STEADY.iter().map(|&metric| cell(row.peak_over_steady(metric))));
    cells.push(text(&row.steady.reason));
    cells
}

/// What the interval was spent on.
const WORK: [&str; 6] = [
    "data_from",
    "data_from_reason",
    "data_from_start",
    "data_from_start_reason",
    "unaccounted_faults_low",
    "unaccounted_cpu_high_ns",
];

fn work_cells(work: &Work) -> [String; WORK.len()] {
    let verdict = |verdict: &Option<Verdict>| match verdict {
        Some(Verdict { from, reason }) => [from.map_or("", DataFrom::name).to_owned(), text(reason)],
        None => Default::default(),
    };
    let ([from, why], [from_start, why_start]) = (verdict(&work.source), verdict(&work.source_from_start));
    let (faults, cpu) = (cell(work.unaccounted_faults_low), cell(work.unaccounted_cpu_high_ns));
    [from, why, from_start, why_start, faults, cpu]
}

fn peak_cells(peak: Option<Peak>) -> [String; 3] {
    match peak {
        Some(peak) => [cell(peak.low), cell(peak.high), peak.basis.name().to_owned()],
        None => Default::default(),
    }
}

pub(super) fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Text on one line that no spreadsheet takes for a formula: one that begins like a formula has a quote before it,
/// which spreadsheets take for "this is text". The full-width forms count, as some programs take them for the others.
pub(crate) fn text(text: &str) -> String {
    let text = plain(text);
    match text.chars().next() {
        Some('=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠') => format!("'{text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::HostAccount;
    use crate::clock::At;
    use crate::event::{Evidence, Mark};
    use crate::metric::Values;
    use crate::stage::{Outcome, Status};

    fn written(table: &StageTable) -> String {
        let mut bytes = Vec::new();
        write(table, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_row_has_the_headers_width_and_no_column_stands_twice() {
        let names = header();
        let unique: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        let mark = Mark { stage: "s".into(), evidence: Evidence::Log, detail: "=1+1\r\n\"x\",y".into(), sampled: None };
        let outcome = Outcome {
            stage: "@s".into(),
            status: Status::Reached,
            reason: String::new(),
            begin: None,
            mark: Some((At(5), None, mark)),
        };
        // Its parts are private to it.
        #[allow(clippy::field_reassign_with_default)]
        let host = {
            let mut host = HostAccount::default();
            host.swap = Some(1);
            host
        };
        let row = StageRow {
            outcome,
            sampled: None,
            values: Values::ABSENT,
            deltas: Values::ABSENT,
            changes: vec![(Metric::RssBytes, -7)],
            peaks: Vec::new(),
            span_peaks: Vec::new(),
            work: Work::default(),
            host,
            steady: Default::default(),
        };
        let table = StageTable { rows: vec![row], stopping_event: None, problems: Vec::new() };
        assert_eq!(cells(table.stopping_row(), &table.rows[0], None).len(), names.len());
        let text = written(&table);
        assert_eq!(text.matches("\r\n").count(), 2);
        assert!(text.contains("\r\n'@s,reached,,,5,,log,\"'=1+1\\r\\n\"\"x\"\",y\",,"), "{text}");
        assert!(
            text.ends_with(&format!(
                ",1,,,{}\r\n",
                ",".repeat(RATIOS.len() + WORK.len() + AFTER.len() + 2 * STEADY.len() + 1)
            )),
            "{text}"
        );
        let place = names.iter().position(|name| name == "change_rss_bytes").unwrap();
        assert!(text.lines().nth(1).unwrap().contains(",-7,") && place > 0);
    }
}
