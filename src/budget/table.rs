//! Limit, figure, verdict: for people and as JSON.

use serde::Serialize;

use super::{Answer, Key, Verdict};
use crate::account::host::Bounds;
use crate::account::ratios::Thousandths;
use crate::metric::Unit;
use crate::report::text::{columns, json_for_terminals, padded, plain};
use crate::report::units;

/// The table, with a line of the whole below it.
pub(super) fn text(answer: Answer, verdicts: &[Verdict]) -> String {
    let rows: Vec<[String; 5]> = verdicts
        .iter()
        .map(|verdict| {
            let Verdict { limit, figure, answer, .. } = verdict;
            // Rounded, two amounts that differ may look the same, and the verdict would contradict them.
            let most = shown(limit.key, limit.most);
            let looks_equal =
                |bound: Option<u64>| bound.is_some_and(|bound| bound != limit.most && shown(limit.key, bound) == most);
            let shown = if looks_equal(figure.low) || looks_equal(figure.high) { exactly } else { shown };
            [
                plain(&limit.stage),
                plain(&limit.name),
                shown(limit.key, limit.most),
                bounds(*figure, |value| shown(limit.key, value)),
                answer.word().to_owned(),
            ]
        })
        .collect();
    let header = ["stage", "limit on", "limit", "figure", "verdict"].map(str::to_owned);
    let all = || std::iter::once(&header).chain(&rows);
    let widths: Vec<usize> =
        (0..header.len()).map(|place| all().map(|row| columns(&row[place])).max().unwrap_or(0)).collect();
    let mut text = String::new();
    let reasons = std::iter::once("").chain(verdicts.iter().map(|verdict| verdict.reason.as_str()));
    for (row, reason) in all().zip(reasons) {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| padded(cell, *width)).collect();
        let reason = if reason.is_empty() { String::new() } else { format!(": {}", plain(reason)) };
        text.push_str(&format!("{}{reason}", cells.join("  ").trim_end()));
        text.push('\n');
    }
    text.push_str(match answer {
        Answer::Kept => "\nevery limit was kept\n",
        Answer::Broken => "\na limit is broken\n",
        Answer::Unknown => "\nno limit is known to be broken, but not every one is known to be kept\n",
    });
    text
}

/// A figure with its unit.
fn shown(key: Key, value: u64) -> String {
    match key.unit() {
        Some(Unit::Bytes) => units::bytes(value),
        Some(Unit::Nanoseconds) => units::duration(value),
        Some(Unit::Count) => value.to_string(),
        None => Thousandths(value).to_string(),
    }
}

/// The same, every digit of it.
fn exactly(key: Key, value: u64) -> String {
    match key.unit() {
        Some(Unit::Bytes) => format!("{value} B"),
        Some(Unit::Nanoseconds) => format!("{value} ns"),
        Some(Unit::Count) | None => shown(key, value),
    }
}

fn bounds(figure: Bounds, shown: impl Fn(u64) -> String) -> String {
    match (figure.low, figure.high) {
        (None, None) => "not known".to_owned(),
        (Some(low), Some(high)) if shown(low) == shown(high) => shown(high),
        (Some(low), Some(high)) => format!("{} to {}", shown(low), shown(high)),
        (Some(low), None) => format!("at least {}", shown(low)),
        (None, Some(high)) => format!("at most {}", shown(high)),
    }
}

#[derive(Serialize)]
struct Told<'a> {
    run: &'a str,
    /// `kept`, `broken`, `unknown`.
    answer: &'static str,
    limits: Vec<Row<'a>>,
}

/// Absent is `null`.
#[derive(Serialize)]
struct Row<'a> {
    stage: &'a str,
    limit_on: &'a str,
    /// `bytes`, `nanoseconds`, `count`, `thousandths`: of the three figures.
    unit: &'static str,
    limit: u64,
    low: Option<u64>,
    high: Option<u64>,
    verdict: &'static str,
    reason: &'a str,
}

pub(super) fn json(run: &str, answer: Answer, verdicts: &[Verdict]) -> serde_json::Result<String> {
    fn row(verdict: &Verdict) -> Row<'_> {
        Row {
            stage: &verdict.limit.stage,
            limit_on: &verdict.limit.name,
            unit: match verdict.limit.key.unit() {
                Some(Unit::Bytes) => "bytes",
                Some(Unit::Nanoseconds) => "nanoseconds",
                Some(Unit::Count) => "count",
                None => "thousandths",
            },
            limit: verdict.limit.most,
            low: verdict.figure.low,
            high: verdict.figure.high,
            verdict: verdict.answer.word(),
            reason: &verdict.reason,
        }
    }
    let told = Told { run, answer: answer.word(), limits: verdicts.iter().map(row).collect() };
    Ok(json_for_terminals(&serde_json::to_string_pretty(&told)?) + "\n")
}
