//! A payload that is in memory twice: mapped, and copied into the heap while the mapping stands.
//!
//! Evidence: mappings say that the payload is mapped whole; the tree's file pages say that it was used through them;
//! and anonymous memory, counted apart from both, grew by about as much as the payload since it was mapped.

use super::{Finding, Ground, Rule, at, derived, share};
use crate::account::host::Part;
use crate::clock::At;
use crate::metric::Metric::*;
use crate::units;

pub(super) const RULE: Rule = Rule {
    id: "copied",
    about: "anonymous memory that grew by about the payload while the mapping stands: by mappings, file pages and \
            the heap",
    find,
};

/// About as much as the payload, in percent of it. More may be anything.
const ABOUT: std::ops::RangeInclusive<u64> = 80..=150;
const WHOLE: u64 = 95;

/// Of the first mark of which it holds.
fn find(ground: &Ground) -> Vec<Finding> {
    ground.rows.iter().find_map(|row| of(ground, row)).into_iter().collect()
}

fn of(ground: &Ground, row: &crate::account::StageRow) -> Option<Finding> {
    let payload = row.values.get(PayloadBytes).filter(|payload| *payload > 0)?;
    let mapped = row.values.get(MappedPayloadBytes).filter(|mapped| *mapped >= share(payload, WHOLE))?;
    // Forks share a heap: what is there at least.
    let now = row.host.part(Part::Anonymous).low?;
    let samples = ground.samples(At(i64::MIN), row.sampled?);
    let first =
        samples.iter().position(|sample| sample.values.get(MappedPayloadBytes).is_some_and(|mapped| mapped > 0))?;
    // What it was before the mapping, at most: the sum.
    let before = match first.checked_sub(1) {
        Some(before) => samples[before].values.get(RssAnonBytes)?,
        None => samples[first].values.get(RssAnonBytes)?,
    };
    let grown = now.checked_sub(before)?;
    if grown < share(payload, *ABOUT.start()) || grown > share(payload, *ABOUT.end()) {
        return None;
    }
    let used = ground.used_since_start(row.sampled?).filter(|used| *used >= share(payload, 50))?;
    let stage = &row.outcome.stage;
    let mut sentences = vec![format!(
        "Since the payload was mapped anonymous memory grew by {}, against a payload of {}; the tree used {} of file \
         pages, and {} of payload is still mapped.",
        units::bytes(grown),
        units::bytes(payload),
        units::bytes(used),
        units::bytes(mapped)
    )];
    if let Some(resident) = row.values.get(ResidentPayloadBytes) {
        sentences.push(format!(
            "{} of it is in the page cache as well, which can be reclaimed; the copy cannot.",
            units::bytes(resident)
        ));
    }
    Some(Finding {
        rule: RULE.id,
        title: format!(
            "The payload was copied: {} of anonymous memory beside {} that is still mapped at {stage}",
            units::bytes(grown),
            units::bytes(mapped)
        ),
        sentences,
        figures: vec![
            at(row, PayloadBytes, payload),
            at(row, MappedPayloadBytes, mapped),
            derived(
                "anonymous_before_mapping_bytes",
                super::Quantity::Bytes(before),
                "rss_anon_bytes, the last sample before the mapping",
            ),
            derived(&format!("host_anon_bytes_low at {stage}"), super::Quantity::Bytes(now), "the host account"),
            derived(
                "file_pages_used_bytes",
                super::Quantity::Bytes(used),
                "growth of rss_file_bytes while payload was mapped",
            ),
        ],
        settles:
            "Keep the mapping instead of the copy (torch: assign=True, safetensors: no .clone() or dtype change on the \
                  host), or drop it after the copy; with --faults, tensors.csv says which tensors were read."
                .to_owned(),
        place: ground_place(ground, row),
    })
}

fn ground_place(ground: &Ground, row: &crate::account::StageRow) -> super::Place {
    super::Place { to: row.outcome.stage.clone(), ..ground.whole() }
}
