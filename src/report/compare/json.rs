//! The comparison, or its refusal, as JSON: exact numbers, `null` for absent, the words of the terminal beside them.

use serde_json::{Map, Number, Value, json};

use super::csv::unit;
use super::words;
use crate::compare::event::Why;
use crate::compare::figures::Ratio;
use crate::compare::likeness::Field;
use crate::compare::{Arm, Cell, Comparison, Figure, Refusal, Stage};
use crate::event::{text_of, word_of};

/// A comparison of these arms.
pub fn comparison(arms: &[Arm], comparison: &Comparison) -> Value {
    let event = &comparison.event;
    json!({
        "arms": arms.iter().map(arm).collect::<Vec<_>>(),
        "event": {
            "stage": event.stage,
            "definition": event.definition,
            "evidence": event.evidence.iter().map(word_of).collect::<Vec<_>>(),
            "declared": event.declared,
        },
        "like_for_like": comparison.likeness.verdict().name(),
        "likeness": comparison.likeness.fields.iter().map(field).collect::<Vec<_>>(),
        "stages": comparison.stages.iter().map(|of| stage(comparison, of)).collect::<Vec<_>>(),
        "left_out": comparison.left_out.iter().map(|out| json!({"stage": out.stage, "why": out.why})).collect::<Vec<_>>(),
        "notes": comparison.notes,
    })
}

/// A refusal.
pub fn refusal(refusal: &Refusal) -> Value {
    let kind = match refusal.why {
        Why::NoStoppingEvent { .. } => "no_stopping_event",
        Why::Several { .. } => "several_stopping_events",
        Why::NotReached { .. } => "not_reached",
        Why::OtherDefinition { .. } => "other_definition",
        Why::OtherEvidence { .. } => "other_evidence",
    };
    let reached = refusal.reached.iter().map(|(run, stages)| {
        let stages: Vec<Value> = stages.iter().map(|(stage, at)| json!({"stage": stage, "t_ns": at.0})).collect();
        json!({"run": run, "stages": stages})
    });
    json!({
        "refused": {
            "why": kind,
            "words": refusal.why.sentence(),
            "reached": reached.collect::<Vec<_>>(),
            "latest_shared": refusal.latest_shared,
        }
    })
}

fn arm(arm: &Arm) -> Value {
    let runs = arm
        .runs
        .iter()
        .map(|(run, _)| json!({"folder": text_of(&run.folder), "argv": run.meta.argv, "started": run.meta.started}));
    json!({"name": arm.name, "runs": runs.collect::<Vec<_>>()})
}

fn field(field: &Field) -> Value {
    let values: Vec<Value> = field.values.iter().map(|(run, value)| json!({"run": run, "value": value})).collect();
    json!({
        "subject": field.subject.name(),
        "name": field.name,
        "state": field.state.name(),
        "values": values,
        "note": field.note,
    })
}

fn stage(comparison: &Comparison, stage: &Stage) -> Value {
    let figures: Vec<Value> = stage.figures.iter().map(|of| figure(comparison, of)).collect();
    json!({"stage": stage.name, "since": stage.before.as_deref().unwrap_or("start"), "figures": figures})
}

fn figure(comparison: &Comparison, figure: &Figure) -> Value {
    let first = figure.of_arm(0);
    let arms = comparison.arms.iter().enumerate().map(|(arm, (name, _))| {
        let runs = figure.cells.get(arm).map(|cells| cells.iter().map(cell).collect::<Vec<_>>()).unwrap_or_default();
        let mut value = json!({"arm": name, "runs": runs});
        if let (Value::Object(object), 1..) = (&mut value, arm) {
            object.insert("to_first".to_owned(), standing(figure, &first, arm));
        }
        value
    });
    json!({"metric": figure.of.name(), "unit": unit(figure.of.unit()), "arms": arms.collect::<Vec<_>>()})
}

fn cell(cell: &Cell) -> Value {
    match cell {
        Ok(known) => json!({"value": known.value, "low": known.low, "high": known.high, "basis": known.basis}),
        Err(reason) => json!({"value": null, "reason": reason}),
    }
}

fn standing(figure: &Figure, first: &Cell, arm: usize) -> Value {
    let judged = figure.judged(arm);
    // The difference of two u64 may need one bit more than a number of JSON is read with.
    let number = |difference: Option<i128>| difference.and_then(Number::from_i128).map(Value::Number);
    let ratio = |ratio: Option<Ratio>| ratio.map(Ratio::number);
    let mut standing = Map::new();
    standing.insert("told".to_owned(), judged.told.name().into());
    standing.insert("words".to_owned(), words::standing(figure.of, first, &figure.of_arm(arm)).into());
    for (name, value) in [
        ("difference", json!(number(judged.difference))),
        ("difference_low", json!(number(judged.difference_low))),
        ("difference_high", json!(number(judged.difference_high))),
        ("ratio", json!(ratio(judged.ratio))),
        ("ratio_low", json!(ratio(judged.ratio_low))),
        ("ratio_high", json!(ratio(judged.ratio_high))),
    ] {
        standing.insert(name.to_owned(), value);
    }
    Value::Object(standing)
}
