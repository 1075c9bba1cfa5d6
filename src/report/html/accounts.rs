//! The accounts of host and device memory.

use super::markup::{Cell, Html, Table};
use crate::account::StageTable;
use crate::account::host::Bounds;
use crate::metric::Metric;
use crate::report::terminal::Page;
use crate::report::text::plain;
use crate::report::{account, device};
use crate::run::{Run, Scope};

/// The host account at the stage that stands for the launch, in its parts and in words.
pub fn host(run: &Run, table: &StageTable) -> Html {
    let mut html = Html::default();
    if let Some(row) = account::row(table).filter(|row| account::tells(run, row) && row.host.total != Bounds::ABSENT) {
        let head = format!("at {}", plain(&row.outcome.stage));
        let head =
            vec![Cell::text(head), Cell::figure(Some("at least".to_owned())), Cell::figure(Some("at most".to_owned()))];
        let mut parts = Table::new(Some("parts"), head);
        let line =
            |(name, bounds): (&str, Bounds)| vec![Cell::text(name), Cell::bytes(bounds.low), Cell::bytes(bounds.high)];
        parts.group("", account::shown_parts(&row.host, !run.meta.artifacts.is_empty()).map(line).collect());
        let mut total = vec![line(("total", row.host.total))];
        if let Some(swap) = row.host.swap.filter(|swap| *swap > 0) {
            total.push(vec![
                Cell::text("swapped out, not in the total"),
                Cell::bytes(Some(swap)),
                Cell::bytes(Some(swap)),
            ]);
        }
        parts.group("", total);
        html.piece(&parts.html());
    }
    let mut page = Page::default();
    account::section(&mut page, run, table);
    html.paragraphs(&page.paragraphs());
    html
}

/// Device memory at each stage and of each device; nothing on a host without one.
pub fn devices(run: &Run, table: &StageTable) -> Html {
    let mut html = Html::default();
    let mut page = Page::default();
    device::section(&mut page, run, table);
    let said = page.paragraphs();
    let head = ["at", "in use", "launch's", "rise"].map(str::to_owned);
    let [at, figures @ ..] = head;
    let mut stages =
        Table::new(None, std::iter::once(Cell::text(at)).chain(figures.map(|text| Cell::figure(Some(text)))).collect());
    let known = |metric: &Metric| table.reached().any(|row| row.values.get(*metric).is_some());
    if device::USED.iter().any(known) {
        let line = |row: &crate::account::StageRow| {
            let cells = device::USED.map(|metric| Cell::bytes(row.values.get(metric)));
            std::iter::once(Cell::text(plain(&row.outcome.stage))).chain(cells).collect()
        };
        stages.group("", table.reached().map(line).collect());
        html.piece(&stages.html());
    }
    html.paragraphs(&said).piece(&each(run));
    html
}

/// A row a device.
fn each(run: &Run) -> Html {
    let head =
        ["before the exec", "largest seen", "last seen", "total"].map(|text| Cell::figure(Some(text.to_owned())));
    let mut head: Vec<Cell> = std::iter::once(Cell::text("device")).chain(head).collect();
    head.push(Cell::text("known by"));
    let mut table = Table::new(None, head);
    let line = |(index, device): (usize, &crate::probe::device::Device)| {
        let used = || {
            let own = run.details.iter().filter(move |row| row.scope == Scope::Device(index));
            own.filter(|row| row.metric == "used_bytes").map(|row| row.value)
        };
        let how = match (&device.reason, device.is_counted) {
            (Some(why), _) => plain(why),
            (None, true) => crate::event::word_of(&device.source),
            (None, false) if device.is_divided => "counted in its instances".to_owned(),
            (None, false) => "not counted: the launch may not use it".to_owned(),
        };
        vec![
            Cell::text(device.label(index)),
            Cell::bytes(device.baseline_bytes),
            Cell::bytes(used().max()),
            Cell::bytes(used().next_back()),
            Cell::bytes(device.total_bytes),
            Cell::text(how),
        ]
    };
    table.group("", run.meta.devices.iter().enumerate().map(line).collect());
    table.html()
}
