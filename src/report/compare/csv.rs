//! `compare.csv`: one row a stage, figure, arm and run. RFC 4180, numbers bare, empty for absent, nothing that a
//! spreadsheet would run as a formula.
//!
//! `value` is the figure; empty where only bounds are known, which stand in `low` and `high` (of an exact figure they are
//! the value). `basis` says how it is known, `reason` why it is absent. The rest is how it stands to the first arm's run
//! of the same number: `told` (`same`, `less`, `more`, `not_told_apart`, `samples`, `unknown`), differences (this less
//! that) and ratios (this ÷ that).

use std::io::Write;

use csv::{Terminator, WriterBuilder};

use crate::compare::{Comparison, Judged, Stage};
use crate::metric::Unit;
use crate::report::csv::{cell, text};

const HEADER: [&str; 17] = [
    "stage",
    "metric",
    "arm",
    "run",
    "value",
    "basis",
    "unit",
    "low",
    "high",
    "reason",
    "told",
    "difference",
    "difference_low",
    "difference_high",
    "ratio",
    "ratio_low",
    "ratio_high",
];

/// The word that files have for a unit.
pub fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "ns",
        Unit::Count => "count",
    }
}

/// Writes the comparison.
pub fn write(comparison: &Comparison, out: &mut dyn Write) -> csv::Result<()> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
    writer.write_record(HEADER)?;
    for stage in &comparison.stages {
        for row in rows(comparison, stage) {
            writer.write_record(row)?;
        }
    }
    writer.flush()?;
    Ok(())
}

fn rows(comparison: &Comparison, stage: &Stage) -> Vec<[String; HEADER.len()]> {
    let mut rows = Vec::new();
    for figure in &stage.figures {
        let first = figure.cells.first().map(Vec::as_slice).unwrap_or_default();
        for (arm, cells) in figure.cells.iter().enumerate() {
            let name = comparison.arms.get(arm).map(|(name, _)| text(name)).unwrap_or_default();
            for (number, this) in cells.iter().enumerate() {
                let [value, low, high, basis, reason] = match this {
                    Ok(known) => {
                        [cell(known.value), cell(known.low), cell(known.high), text(&known.basis), String::new()]
                    }
                    Err(reason) => {
                        let [value, low, high, basis] = <[String; 4]>::default();
                        [value, low, high, basis, text(reason)]
                    }
                };
                let judged = first.get(number).filter(|_| arm > 0).map(|first| Judged::of(first, this));
                let of = |part: fn(&Judged) -> String| judged.as_ref().map(part).unwrap_or_default();
                rows.push([
                    text(&stage.name),
                    figure.of.name(),
                    name.clone(),
                    (number + 1).to_string(),
                    value,
                    basis,
                    unit(figure.of.unit()).to_owned(),
                    low,
                    high,
                    reason,
                    of(|judged| judged.told.name().to_owned()),
                    of(|judged| cell(judged.difference)),
                    of(|judged| cell(judged.difference_low)),
                    of(|judged| cell(judged.difference_high)),
                    of(|judged| cell(judged.ratio)),
                    of(|judged| cell(judged.ratio_low)),
                    of(|judged| cell(judged.ratio_high)),
                ]);
            }
        }
    }
    rows
}
