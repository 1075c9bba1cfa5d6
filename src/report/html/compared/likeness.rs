//! Every fact by which the runs are alike or not, by its state.

use super::super::markup::{Cell, Html, Table};
use crate::compare::Likeness;
use crate::compare::likeness::{Field, State};
use crate::report::compare::terminal;
use crate::report::text::plain;

/// Up to so many runs have a column each; more share one.
const COLUMNS: usize = 4;
/// So much of a value stands behind what is shown of it.
const EXACT: usize = 2_000;

/// The table: what was not expected first.
pub fn table(likeness: &Likeness) -> Html {
    let labels: Vec<&String> =
        likeness.fields.first().iter().flat_map(|field| &field.values).map(|(run, _)| run).collect();
    let beside = labels.len() <= COLUMNS;
    let mut head = vec![Cell::text("fact")];
    match beside {
        true => head.extend(labels.into_iter().map(|label| Cell::text(plain(label)))),
        false => head.push(Cell::text("the runs")),
    }
    head.push(Cell::text("compared"));
    let mut table = Table::new(Some("facts"), head);
    for state in [State::Unexplained, State::Unknown, State::Expected, State::Same] {
        let fields = likeness.fields.iter().filter(|field| field.state == state);
        let rows: Vec<Vec<Cell>> = fields.map(|field| row(field, beside)).collect();
        table.group(format!("{}: {}", state.name(), rows.len()), rows);
    }
    table.html()
}

fn row(field: &Field, beside: bool) -> Vec<Cell> {
    let mut cells = vec![Cell::text(terminal::fact(field)).exactly(field.subject.title())];
    let value = |value: Option<&str>| {
        let shown = terminal::recorded(field, value);
        match value.filter(|value| *value != shown) {
            Some(value) => Cell::text(shown).exactly(value.chars().take(EXACT).collect::<String>()),
            None => Cell::text(shown),
        }
    };
    match (beside, field.state) {
        (true, _) => cells.extend(field.values.iter().map(|(_, of_run)| value(of_run.as_deref()))),
        (false, State::Same) => cells.push(value(field.values.first().and_then(|(_, of_run)| of_run.as_deref()))),
        (false, _) => cells.push(Cell::text(terminal::who_has_what(field))),
    }
    cells.push(Cell::text(field.note.clone().unwrap_or_default()));
    cells
}
