//! The glossary of the columns, from THE table of metrics and nothing else: for people, as Markdown
//! (`reports/columns.md`), as JSON.

use serde::Serialize;

use crate::account::{Basis, bases};
use crate::metric::{ALL, Definition, Metric};

use super::terminal::Page;

/// How it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Markdown,
    Json,
}

/// What `stagemark columns` prints.
///
/// # Errors
/// None that is known: the table is text.
pub fn answer(form: Form) -> serde_json::Result<String> {
    match form {
        Form::Text => Ok(text()),
        Form::Markdown => Ok(markdown()),
        Form::Json => json(),
    }
}

/// The table as Markdown.
pub fn markdown() -> String {
    let mut text = String::from(
        "| column | unit | kind | meaning | includes | overlaps | basis of its peaks \
         |\n|---|---|---|---|---|---|---|\n",
    );
    for &metric in ALL {
        let Definition { name, kind, unit, meaning, includes, overlaps } = metric.definition();
        let (unit, kind, basis) = (unit.name(), kind.words(), basis(metric));
        text.push_str(&format!("| `{name}` | {unit} | {kind} | {meaning} | {includes} | {overlaps} | {basis} |\n"));
    }
    text
}

/// The bases that its peaks can have, in words; empty for what has no peaks.
fn basis(metric: Metric) -> String {
    bases(metric).iter().map(|basis| basis.name()).collect::<Vec<_>>().join(", ")
}

/// A paragraph a column, in 80 columns.
fn text() -> String {
    let mut page = Page::default();
    page.line(
        "Values are exact integers of the unit; an empty cell is absent, never 0. In stages.csv a counter has \
         delta_<column> too, since the previous mark; a gauge change_<column>, and peak_<column>_low, _high and \
         _basis over start → stage, span_peak_<column>_… over previous mark → stage.",
    );
    for &metric in ALL {
        let Definition { name, kind, unit, meaning, includes, overlaps } = metric.definition();
        page.blank();
        page.raw(&format!("{name}  {}, {}", unit.name(), kind.words()));
        page.indented(2, meaning);
        for (word, said) in [("includes", *includes), ("overlaps", *overlaps), ("basis of its peaks", &basis(metric))] {
            if !said.is_empty() {
                page.indented(2, &format!("{word}: {said}"));
            }
        }
    }
    page.text()
}

/// One column, as JSON.
#[derive(Serialize)]
struct Column {
    column: &'static str,
    unit: &'static str,
    kind: &'static str,
    meaning: &'static str,
    includes: &'static str,
    overlaps: &'static str,
    peak_basis: Vec<&'static str>,
}

fn json() -> serde_json::Result<String> {
    let column = |&metric: &Metric| {
        let Definition { name, kind, unit, meaning, includes, overlaps } = metric.definition();
        Column {
            column: name,
            unit: unit.name(),
            kind: kind.words(),
            meaning,
            includes,
            overlaps,
            peak_basis: bases(metric).iter().map(|basis: &Basis| basis.name()).collect(),
        }
    };
    let mut text = serde_json::to_string_pretty(&ALL.iter().map(column).collect::<Vec<_>>())?;
    text.push('\n');
    Ok(text)
}
