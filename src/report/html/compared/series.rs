//! What a series of runs by turns adds: values and verdicts pair by pair, and whether the runs produced the same.

use super::super::markup::{Cell, Html, Table};
use crate::compare::Comparison;
use crate::report::compare::paired::{Figure, Paired};
use crate::report::compare::terminal;
use crate::report::text::{elide, plain};

/// So many digests of an output have a row.
const MOST: usize = 200;

/// Each figure: every arm's values in the order of running, then each arm against the first.
pub fn pairs(comparison: &Comparison, series: Option<&Paired>) -> Html {
    let mut html = Html::default();
    let Some(series) = series.filter(|series| !series.figures.is_empty()) else { return html };
    let reference = comparison.arms.first().map(|(name, _)| elide(&plain(name), 40)).unwrap_or_default();
    let head = ["arm", "values in the order of running; ratios of the pairs, and what they say"].map(Cell::text);
    let mut table = Table::new(Some("pairs"), head.to_vec());
    for figure in &series.figures {
        table.group(terminal::name(figure.of).trim(), rows(figure, &reference));
    }
    let told = format!(
        "At {}, the stopping event. A pair is a run of an arm and the run of {reference} in the same round. No value is \
         left out, and fewer than three pairs make no verdict.",
        elide(&plain(&comparison.event.stage), 80)
    );
    html.element("p", Some("small"), &told).raw("\n").piece(&table.html());
    html
}

fn rows(figure: &Figure, reference: &str) -> Vec<Vec<Cell>> {
    if let Some((value, runs)) = &figure.all_same {
        return vec![vec![Cell::text("all"), Cell::text(format!("{value} in all {runs} runs"))]];
    }
    let values = figure.arms.iter().map(|arm| {
        let told: Vec<&str> = std::iter::once(&arm.values).chain(&arm.remarks).map(String::as_str).collect();
        vec![Cell::text(elide(&arm.arm, 40)), Cell::text(told.join(" · "))]
    });
    let against = figure.against.iter().map(|against| {
        let told = match against.ratios.as_str() {
            "" => against.verdict.clone(),
            ratios => format!("{ratios} · {}", against.verdict),
        };
        vec![Cell::text(format!("{} ÷ {reference}", elide(&against.arm, 40))), Cell::text(told)]
    });
    values.chain(against).collect()
}

/// Whether they produced the same, and each run's digest.
pub fn outputs(series: Option<&Paired>) -> Html {
    let mut html = Html::default();
    for output in series.iter().flat_map(|series| &series.outputs) {
        html.element("h3", None, &elide(&output.of, 80)).raw("\n");
        html.element("p", None, &output.verdict).raw("\n");
        let mut table = Table::new(Some("facts"), ["run", "SHA-256, or why there is none"].map(Cell::text).to_vec());
        let row = |(run, digest): &(String, Result<String, String>)| {
            let (Ok(told) | Err(told)) = digest;
            vec![Cell::text(run.clone()), Cell::text(told.clone())]
        };
        table.group("", output.digests.iter().take(MOST).map(row).collect());
        html.piece(&table.html());
        if output.digests.len() > MOST {
            html.element("p", Some("small"), &format!("{} more are in series.json.", output.digests.len() - MOST));
        }
    }
    html
}
