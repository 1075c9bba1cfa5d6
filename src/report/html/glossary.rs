//! The glossary: the table of metrics, as it is.

use super::markup::{Cell, Html, Table};
use crate::account::bases;
use crate::metric::{ALL, Metric};

/// Each column with its meaning.
pub fn table() -> Html {
    let head = ["column", "unit", "kind", "meaning", "includes", "overlaps", "basis of its peaks"];
    let mut table = Table::new(Some("glossary"), head.map(Cell::text).to_vec());
    let line = |metric: &Metric| {
        let row = metric.definition();
        let basis = bases(*metric).iter().map(|basis| basis.name()).collect::<Vec<_>>().join(", ");
        let texts = [row.name, row.unit.name(), row.kind.words(), row.meaning, row.includes, row.overlaps, &basis];
        texts.map(Cell::text).to_vec()
    };
    table.group("", ALL.iter().map(line).collect());
    let mut html = Html::default();
    html.raw("<details><summary>Every column, its unit, and what it includes and overlaps</summary>\n");
    html.piece(&table.html()).raw("</details>\n");
    html
}
