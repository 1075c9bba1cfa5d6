//! Every figure at every shared stage: a row a figure, an arm a column, and how it stands to the first arm's.

use std::fmt::Display;

use super::super::markup::{Cell, Html, Table};
use super::runs;
use crate::compare::{Comparison, Figure, Judged, Stage};
use crate::report::compare::csv::unit;
use crate::report::compare::{terminal, words};
use crate::report::terminal::Page;
use crate::report::text::elide;

/// So many runs of an arm are listed behind a figure.
const MOST: usize = 20;

/// The figures that a reader signs for, as in the terminal, and then the others.
pub fn table(comparison: &Comparison) -> Html {
    let mut html = Html::default();
    let signed_for = of(comparison, |stage| terminal::shown(stage).collect());
    if signed_for.is_empty() {
        return html;
    }
    let told = "Rows with a + count from the shared stage before. Under the pointer stand a figure's column, its exact value \
                and how it is known, and exact differences and ratios; compare.csv has all of them.";
    html.element("p", Some("small"), told).raw("\n").piece(&signed_for);
    let others = of(comparison, |stage| {
        let shown: Vec<&Figure> = terminal::shown(stage).collect();
        stage.figures.iter().filter(|figure| !shown.contains(figure)).collect()
    });
    if !others.is_empty() {
        html.raw("<details><summary>Every other figure of these stages</summary>\n").piece(&others);
        html.raw("</details>\n");
    }
    let mut page = Page::default();
    terminal::absences(&mut page, comparison, |stage| stage.figures.iter().collect());
    html.raw("<div class=\"small\">\n").paragraphs(&page.paragraphs()).raw("</div>\n");
    html
}

/// A table of some of the figures: the stopping event first, then the stages before it.
fn of(comparison: &Comparison, shown: fn(&Stage) -> Vec<&Figure>) -> Html {
    let mut head = vec![Cell::text("figure")];
    for (arm, (name, runs)) in comparison.arms.iter().enumerate() {
        let name = elide(name, 40);
        head.push(Cell::figure(Some(match runs {
            0 | 1 => name.clone(),
            runs => format!("{name}: median of {}, and range", runs::count(*runs)),
        })));
        if arm > 0 {
            head.push(Cell::text(format!("{name} is")));
        }
    }
    let mut table = Table::new(Some("wide compared"), head);
    if let Some((end, before, _)) = comparison.told_stages() {
        table.group(title(end, true), rows(comparison, shown(end)));
        before.iter().for_each(|stage| table.group(title(stage, false), rows(comparison, shown(stage))));
    }
    table.html()
}

fn title(stage: &Stage, is_end: bool) -> String {
    let since = stage.before.as_ref().map(|before| format!("; + since {}", elide(before, 80))).unwrap_or_default();
    format!("at {}{}{since}", elide(&stage.name, 80), if is_end { ", the stopping event" } else { "" })
}

fn rows(comparison: &Comparison, figures: Vec<&Figure>) -> Vec<Vec<Cell>> {
    let row = |figure: &Figure| {
        let mut cells = vec![Cell::text(terminal::name(figure.of).trim()).exactly(figure.of.name())];
        let first = figure.of_arm(0);
        for (arm, (_, runs)) in comparison.arms.iter().enumerate() {
            let this = figure.of_arm(arm);
            let shown = words::of_runs_at_once(figure.of, &this, *runs);
            cells.push(Cell::figure(Some(shown)).exactly(exact(figure, arm)));
            if arm > 0 {
                let standing = Cell::text(words::standing(figure.of, &first, &this));
                cells.push(match apart(&figure.judged(arm)) {
                    Some(exact) => standing.exactly(exact),
                    None => standing,
                });
            }
        }
        cells
    };
    figures.into_iter().map(row).collect()
}

/// What each run of an arm has: exactly, and how it is known or why it is not.
pub fn exact(figure: &Figure, arm: usize) -> String {
    let cells = figure.cells.get(arm).map(Vec::as_slice).unwrap_or_default();
    let end = |end: Option<u64>| end.map_or_else(|| "not known".to_owned(), |value| value.to_string());
    let unit = unit(figure.of.unit());
    let one = |cell: &crate::compare::Cell| match cell {
        Ok(known) => match known.value.filter(|_| known.is_exact()) {
            Some(value) => format!("{value} {unit}; {}", known.basis),
            None => format!("at least {}, at most {} {unit}; {}", end(known.low), end(known.high), known.basis),
        },
        Err(why) => format!("absent: {why}"),
    };
    match cells {
        [cell] => one(cell),
        several => {
            let told = several.iter().zip(1..).take(MOST).map(|(cell, number)| format!("run {number}: {}", one(cell)));
            let more = if several.len() > MOST { " · …" } else { "" };
            format!("{}{more}", told.collect::<Vec<_>>().join(" · "))
        }
    }
}

/// The difference and the ratio, or between what they lie.
fn apart(judged: &Judged) -> Option<String> {
    let difference = told("difference", judged.difference, judged.difference_low, judged.difference_high);
    let ratio = told("ratio", judged.ratio, judged.ratio_low, judged.ratio_high);
    let both: Vec<String> = difference.into_iter().chain(ratio).collect();
    (!both.is_empty()).then(|| both.join(", "))
}

/// A figure, or what is known of it.
fn told<T: Display>(name: &str, exact: Option<T>, low: Option<T>, high: Option<T>) -> Option<String> {
    match (exact, low, high) {
        (Some(exact), ..) => Some(format!("{name} {exact}")),
        (None, Some(low), Some(high)) => Some(format!("{name} {low} to {high}")),
        (None, Some(low), None) => Some(format!("{name} at least {low}")),
        (None, None, Some(high)) => Some(format!("{name} at most {high}")),
        (None, None, None) => None,
    }
}
