//! An early low residency that does not answer for the peak: the payload has its addresses, little of it is in memory,
//! and later it is.
//!
//! Evidence: mappings, which promise the whole payload at the early mark, and residency, which is low then and high
//! later.

use super::{Finding, Ground, Rule, at, share};
use crate::metric::Metric::*;
use crate::units;

pub(super) const RULE: Rule = Rule {
    id: "early-residency",
    about: "a payload mapped whole and hardly resident at a mark, and resident later: by mappings and by residency",
    find,
};

/// At most so much was resident at the early mark, and at least twice as much later, in percent of the payload.
const LOW: u64 = 50;
/// Mapped whole, but for what a loader leaves out.
const WHOLE: u64 = 95;

/// Of the first mark of which it holds.
fn find(ground: &Ground) -> Vec<Finding> {
    ground.rows.iter().find_map(|row| of(ground, row)).into_iter().collect()
}

fn of(ground: &Ground, row: &crate::account::StageRow) -> Option<Finding> {
    let payload = row.values.get(PayloadBytes).filter(|payload| *payload > 0)?;
    let (mapped, resident) = (row.values.get(MappedPayloadBytes)?, row.values.get(ResidentPayloadBytes)?);
    if mapped < share(payload, WHOLE) || resident > share(payload, LOW) {
        return None;
    }
    let later = ground.rows.iter().filter(|later| later.at() > row.at() && later.sampled > row.sampled);
    // The first of the largest.
    let most = later
        .filter_map(|later| Some((later.values.get(ResidentPayloadBytes)?, *later)))
        .reduce(|most, other| if other.0 > most.0 { other } else { most })?;
    let (then, later) = most;
    if then < resident.saturating_mul(2) || then.saturating_sub(resident) < share(payload, LOW / 2) {
        return None;
    }
    let mut figures = vec![
        at(row, PayloadBytes, payload),
        at(row, MappedPayloadBytes, mapped),
        at(row, ResidentPayloadBytes, resident),
        at(later, ResidentPayloadBytes, then),
    ];
    let (stage, end) = (&row.outcome.stage, &later.outcome.stage);
    let mut sentences = vec![format!(
        "A mapping gives addresses before there is memory: at {stage} all of the payload is mapped, and {} of it is \
         not resident.",
        units::bytes(payload.saturating_sub(resident))
    )];
    if let (Some(early), Some(late)) = (row.host.total.low, later.host.total.low) {
        sentences.push(format!(
            "The host account has at least {} at {stage} and at least {} at {end}.",
            units::bytes(early),
            units::bytes(late)
        ));
        for (row, value) in [(row, early), (later, late)] {
            let name = format!("host_bytes_low at {}", row.outcome.stage);
            figures.push(super::derived(&name, super::Quantity::Bytes(value), "the host account"));
        }
    }
    Some(Finding {
        rule: RULE.id,
        title: format!(
            "The low residency at {stage}, {} of {}, does not answer for the peak: at {end} it is {}",
            units::bytes(resident),
            units::bytes(payload),
            units::bytes(then)
        ),
        sentences,
        figures,
        settles: format!(
            "Plan memory by {end} or later, never by {stage}; nonresident_payload_bytes is what is still to come."
        ),
        place: super::Place { from: stage.clone(), to: end.clone() },
    })
}
