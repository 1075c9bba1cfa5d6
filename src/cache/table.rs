//! What became of each file, for people and as JSON.

use serde::Serialize;

use super::{Answer, Outcome, Wish, reached};
use crate::inspect::percent;
use crate::report::text::{json_for_terminals, plain};
use crate::report::units;

/// So many processes are named of one file.
const NAMED: usize = 8;

/// What the resident bytes are a part of.
fn resident_of(outcome: &Outcome) -> &'static str {
    if outcome.payload.is_some() { "payload" } else { "file" }
}

/// What stands in the way, in words.
pub(super) fn reasons(outcome: &Outcome) -> Vec<String> {
    let mut reasons = outcome.notes.clone();
    if let Err(why) = &outcome.after {
        reasons.push(format!("how much is resident is not known: {why}"));
    }
    for holder in outcome.holders.iter().take(NAMED) {
        let locked = if holder.locked { ", locked in memory" } else { "" };
        let bytes = units::bytes(holder.bytes);
        reasons.push(format!("process {} ({}) maps {bytes} of it{locked}", holder.pid, holder.name));
    }
    if outcome.holders.len() > NAMED {
        reasons.push(format!("{} more processes map it", outcome.holders.len() - NAMED));
    }
    reasons
}

/// The answer for people.
pub(super) fn text(wish: Wish, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let of = resident_of(outcome);
        text.push_str(&format!("{}\n  {}", plain(&outcome.path), outcome.condition()));
        if let Ok(after) = outcome.after {
            let share =
                if outcome.watched == 0 { String::new() } else { format!(", {}", percent(after, outcome.watched)) };
            let whole = units::bytes(outcome.watched);
            text.push_str(&format!(": {} of {whole} {of} resident{share}", units::bytes(after)));
        }
        if let (Ok(before), true) = (&outcome.before, wish != Wish::AsIs) {
            text.push_str(&format!("; before, {}", units::bytes(*before)));
        }
        text.push_str(&format!(" (by {})\n", plain(&outcome.trust.by)));
        reasons(outcome).iter().for_each(|reason| text.push_str(&format!("  {}\n", plain(reason))));
        if !outcome.elsewhere.is_empty() {
            text.push_str(&format!("  not touched: {}\n", plain(&outcome.elsewhere.join("; "))));
        }
    }
    if outcomes.len() > 1 {
        text.push_str(&format!("In all: {} files, {}\n", outcomes.len(), reached(outcomes)));
    }
    text
}

#[derive(Serialize)]
struct Told<'a> {
    asked: &'static str,
    /// `yes`, `no`, `unknown`.
    answer: &'static str,
    /// The condition of all together.
    reached: &'static str,
    files: Vec<File<'a>>,
    warnings: &'a [String],
}

/// Absent is `null`, with the reason beside it.
#[derive(Serialize)]
struct File<'a> {
    path: &'a str,
    condition: &'static str,
    filesystem: Option<&'a str>,
    size_bytes: u64,
    payload_bytes: Option<u64>,
    /// What the resident bytes are a part of: `payload`, or `file` where the payload is unknown.
    resident_of: &'static str,
    resident_before_bytes: Option<u64>,
    resident_bytes: Option<u64>,
    resident_reason: Option<&'a str>,
    resident_by: &'a str,
    resident_because: &'a str,
    notes: &'a [String],
    holders: Vec<Held<'a>>,
    /// Caches that may hold the same bytes.
    not_touched: &'a [String],
}

#[derive(Serialize)]
struct Held<'a> {
    pid: i32,
    name: &'a str,
    mapped_bytes: u64,
    locked: bool,
}

/// The answer as JSON.
pub(super) fn json(
    wish: Wish,
    answer: Answer,
    outcomes: &[Outcome],
    warnings: &[String],
) -> serde_json::Result<String> {
    let files = outcomes
        .iter()
        .map(|outcome| File {
            path: &outcome.path,
            condition: outcome.condition(),
            filesystem: outcome.filesystem.as_deref(),
            size_bytes: outcome.size,
            payload_bytes: outcome.payload,
            resident_of: resident_of(outcome),
            resident_before_bytes: outcome.before.as_ref().ok().copied(),
            resident_bytes: outcome.after.as_ref().ok().copied(),
            resident_reason: outcome.after.as_ref().err().map(String::as_str),
            resident_by: &outcome.trust.by,
            resident_because: &outcome.trust.because,
            notes: &outcome.notes,
            holders: outcome
                .holders
                .iter()
                .map(|of| Held { pid: of.pid, name: &of.name, mapped_bytes: of.bytes, locked: of.locked })
                .collect(),
            not_touched: &outcome.elsewhere,
        })
        .collect();
    let answer = match answer {
        Answer::Yes => "yes",
        Answer::No => "no",
        Answer::Unknown => "unknown",
    };
    let told = Told { asked: wish.word(), answer, reached: reached(outcomes), files, warnings };
    Ok(json_for_terminals(&serde_json::to_string_pretty(&told)?) + "\n")
}
