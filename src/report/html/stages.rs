//! Every figure that is known at a stage: a row a figure, a column a stage, so that a figure is read along the launch.

use super::markup::{Cell, Html, Table};
use crate::account::ratios::RATIOS;
use crate::account::{AFTER, Basis, Peak, StageRow, StageTable};
use crate::event::word_of;
use crate::metric::{ALL, Metric, Unit};
use crate::report::text::plain;
use crate::report::units;
use crate::run::Run;

/// So many stages have a column; `stages.csv` has them all.
const MOST: usize = 40;

/// The table; nothing where no stage was reached.
pub fn table(run: &Run, table: &StageTable) -> Html {
    let mut html = Html::default();
    let rows: Vec<&StageRow> = table.reached().take(MOST).collect();
    if rows.is_empty() {
        return html;
    }
    let mut head = vec![Cell::text("figure")];
    head.extend(rows.iter().map(|row| Cell::figure(Some(plain(&row.outcome.stage)))));
    let mut figures = Table::new(Some("wide"), head);
    figures.group("the mark", marks(&rows));
    figures.group("at the mark", values(&rows));
    figures.group("growth of counters since the stage before", deltas(&rows));
    figures.group("change of levels since the stage before", changes(&rows));
    figures.group("peaks from start to the stage", peaks(&rows, StageRow::peak));
    figures.group("peaks from the stage before to the stage", peaks(&rows, StageRow::span_peak));
    figures.group("ratios, and where the data came from", ratios(&rows));
    figures.group("from the stage to the stopping event", after(table, &rows));
    html.raw("<p class=\"small\">");
    html.text(
        "Values are of the sample that stands at the mark. A peak that was sampled is at least what it says (≥); one of \
         two figures lies between them. Under the pointer a figure is exact, and stages.csv has each of them exactly. What \
         was known at no stage is left out here, and stands with its reason under How the figures are known.",
    );
    html.raw("</p>\n").piece(&figures.html());
    let more = table.reached().count().saturating_sub(MOST);
    if more > 0 {
        html.element("p", Some("small"), &format!("{more} more stages are in stages.csv."));
    }
    if run.samples.is_empty() {
        html.element("p", Some("small"), "The run has no samples, so that there is no value at any mark.");
    }
    html
}

/// A value of a metric as people read it.
pub fn shown(metric: Metric) -> fn(u64) -> String {
    match metric.definition().unit {
        Unit::Bytes => units::bytes,
        Unit::Nanoseconds => units::duration,
        Unit::Count => units::count,
    }
}

/// A signed figure.
fn signed(metric: Metric, change: Option<i64>) -> Cell {
    let text = change.map(|change| match change {
        0 => "0".to_owned(),
        _ => format!("{}{}", if change < 0 { "−" } else { "+" }, shown(metric)(change.unsigned_abs())),
    });
    match change {
        Some(change) => Cell::figure(text).exactly(change.to_string()),
        None => Cell::figure(None),
    }
}

/// A row of cells, one a stage; nothing where none is known.
fn line(name: &str, rows: &[&StageRow], cell: impl Fn(usize) -> Cell) -> Option<Vec<Cell>> {
    let cells: Vec<Cell> = (0..rows.len()).map(cell).collect();
    let known = cells.iter().any(|cell| *cell != Cell::figure(None));
    known.then(|| std::iter::once(Cell::text(name)).chain(cells).collect())
}

fn marks(rows: &[&StageRow]) -> Vec<Vec<Cell>> {
    let time = |at: Option<crate::clock::At>| match at {
        Some(at) => Cell::figure(Some(units::time(at))).exactly(format!("{} ns", at.0)),
        None => Cell::figure(None),
    };
    let mark = |index: usize| rows[index].outcome.mark.as_ref();
    let lines = [
        line("time", rows, |index| time(rows[index].at())),
        line("may have been earlier by", rows, |index| {
            let uncertainty = mark(index).map(|(_, uncertainty, _)| *uncertainty);
            match uncertainty {
                Some(Some(0)) => Cell::figure(Some("0".to_owned())).exactly("0 ns"),
                Some(None) => Cell::figure(Some("no bound".to_owned())),
                Some(Some(ns)) => Cell::figure(Some(units::duration(ns))).exactly(format!("{ns} ns")),
                None => Cell::figure(None),
            }
        }),
        line("began", rows, |index| time(rows[index].outcome.begin)),
        line("shown by", rows, |index| {
            let shown = mark(index).map(|(_, _, mark)| (word_of(&mark.evidence), plain(&mark.detail)));
            shown.map_or_else(|| Cell::figure(None), |(word, detail)| Cell::figure(Some(word)).exactly(detail))
        }),
        line("values of", rows, |index| time(rows[index].sampled)),
    ];
    lines.into_iter().flatten().collect()
}

fn values(rows: &[&StageRow]) -> Vec<Vec<Cell>> {
    let mut lines: Vec<Vec<Cell>> = ALL
        .iter()
        .filter_map(|&metric| {
            line(metric.name(), rows, |index| Cell::value(rows[index].values.get(metric), shown(metric)))
        })
        .collect();
    lines.extend(line("host_bytes: the host account's total", rows, |index| {
        let total = rows[index].host.total;
        peak_cell(Some(Peak { low: total.low, high: total.high, basis: Basis::Bounds }), Metric::RssBytes)
    }));
    lines
}

fn deltas(rows: &[&StageRow]) -> Vec<Vec<Cell>> {
    let delta =
        |metric: Metric| line(metric.name(), rows, |index| Cell::value(rows[index].deltas.get(metric), shown(metric)));
    Metric::counters().filter_map(delta).collect()
}

fn changes(rows: &[&StageRow]) -> Vec<Vec<Cell>> {
    Metric::levels()
        .filter_map(|metric| line(metric.name(), rows, |index| signed(metric, rows[index].change(metric))))
        .collect()
}

fn peaks(rows: &[&StageRow], peak: fn(&StageRow, Metric) -> Option<Peak>) -> Vec<Vec<Cell>> {
    Metric::gauges()
        .filter_map(|metric| line(metric.name(), rows, |index| peak_cell(peak(rows[index], metric), metric)))
        .collect()
}

fn peak_cell(peak: Option<Peak>, metric: Metric) -> Cell {
    let (low, high) = peak.map_or((None, None), |peak| (peak.low, peak.high));
    let shown = shown(metric);
    let exact = |end: Option<u64>| end.map_or_else(|| "not known".to_owned(), |value| value.to_string());
    let text = match (low, high) {
        (Some(low), Some(high)) if shown(low) == shown(high) => shown(high),
        (Some(low), Some(high)) => format!("{} – {}", shown(low), shown(high)),
        (Some(low), None) => format!("≥ {}", shown(low)),
        (None, Some(high)) => format!("≤ {}", shown(high)),
        (None, None) => return Cell::figure(None),
    };
    let basis = peak.map_or("", |peak| peak.basis.name());
    Cell::figure(Some(text)).exactly(format!("at least {}, at most {}; {basis}", exact(low), exact(high)))
}

fn ratios(rows: &[&StageRow]) -> Vec<Vec<Cell>> {
    let ratio = |ratio: &crate::account::ratios::Ratio| {
        line(ratio.name, rows, |index| {
            let before = index.checked_sub(1).map(|before| rows[before]);
            Cell::figure((ratio.of)(rows[index], before).map(|ratio| ratio.to_string()))
        })
    };
    let mut lines: Vec<Vec<Cell>> = RATIOS.iter().filter_map(ratio).collect();
    lines.extend(line("data_from", rows, |index| match &rows[index].work.source {
        Some(verdict) => {
            let word = verdict.from.map_or("nothing loaded", |from| from.name());
            Cell::figure(Some(word.to_owned())).exactly(verdict.reason.clone())
        }
        None => Cell::figure(None),
    }));
    lines
}

fn after(table: &StageTable, rows: &[&StageRow]) -> Vec<Vec<Cell>> {
    let stop = table.stopping_row();
    AFTER
        .into_iter()
        .filter_map(|metric| line(metric.name(), rows, |index| signed(metric, rows[index].rise_to(stop, metric))))
        .collect()
}
