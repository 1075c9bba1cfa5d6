//! From where it started: what of each artifact was in memory, what the application had kept of former runs, and what
//! else the machine was doing.
//!
//! These waver by themselves, and are the same within:
//!
//! | fact | tolerance |
//! |---|---|
//! | resident share of each artifact's payload | one part in a hundred of the payload |
//! | retained application state | one part in a hundred of the larger |
//! | pressure, `some` over ten seconds | 5% of the time |
//! | load of the last minute | a tenth of the CPUs, and no less than a half |
//! | memory available | 5% of the machine's |

use std::collections::BTreeSet;

use super::artifacts::Pairing;
use super::{Facts, Outcome, Party, Subject};

/// Shares and sizes that are the same within a hundredth.
const HUNDREDTH: f64 = 0.01;
const PRESSURE: f64 = 5.0;
const LOAD: f64 = 0.5;
const AVAILABLE: f64 = 0.05;

pub(super) fn compare(facts: &mut Facts, pairing: &Pairing) {
    residency(facts, pairing);
    retained(facts);
    for resource in ["cpu", "memory", "io"] {
        facts.near(
            Subject::Condition,
            &format!("pressure.{resource}"),
            |party| {
                let share = some_of_ten_seconds(party.run.meta.condition.pressure.get(resource)?)?;
                Some((share, format!("{share}%")))
            },
            (PRESSURE, format!("{PRESSURE}% of the time")),
        );
    }
    let first = facts.parties.first();
    let cpus = first.and_then(|first| first.run.meta.host.logical_cpus).unwrap_or(0) as f64;
    let tolerance = LOAD.max(cpus / 10.0);
    facts.near(
        Subject::Condition,
        "load",
        |party| {
            let load: f64 = party.run.meta.condition.load.as_deref()?.split(' ').next()?.parse().ok()?;
            load.is_finite().then(|| (load, load.to_string()))
        },
        (tolerance, format!("{tolerance}")),
    );
    let total = first.and_then(|first| first.run.meta.host.memory_total_bytes);
    let tolerance = total.unwrap_or(0) as f64 * AVAILABLE;
    facts.near(
        Subject::Condition,
        "memory_available_bytes",
        |party| party.run.meta.condition.memory_available_bytes.map(|bytes| (bytes as f64, bytes.to_string())),
        (tolerance, "5% of the machine's memory".to_owned()),
    );
}

/// `avg10` of the `some` line of a file of `/proc/pressure`, in parts of a hundred.
fn some_of_ten_seconds(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    let share: f64 = line.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    share.is_finite().then_some(share)
}

/// The resident share of each artifact of the set. Where the sets are not the same it is the whole's.
fn residency(facts: &mut Facts, pairing: &Pairing) {
    let share = |resident: u64, payload: u64| if payload == 0 { 0.0 } else { resident as f64 / payload as f64 };
    let whole = |party: &Party| {
        let artifacts = &party.run.meta.artifacts;
        let resident =
            artifacts.iter().map(|artifact| artifact.resident_at_start_bytes).collect::<Option<Vec<u64>>>()?;
        let payload = artifacts.iter().map(|artifact| artifact.payload_bytes).collect::<Option<Vec<u64>>>()?;
        let sum = |all: &[u64]| all.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        (!artifacts.is_empty()).then(|| (sum(&resident), sum(&payload)))
    };
    let values = facts.parties.iter().map(|party| {
        let (resident, payload) = whole(party)?;
        Some(format!("{}, {resident} of {payload} bytes resident", party.run.meta.condition.artifacts))
    });
    let values: Vec<Option<String>> = values.collect();
    let near = |one: f64, other: f64| (one - other).abs() <= HUNDREDTH;
    let Some(first) = facts.parties.first() else { return };
    let whole_share = |party: &Party| whole(party).map(|(resident, payload)| share(resident, payload));
    let mut same = facts.parties.iter().all(|party| match (whole_share(first), whole_share(party)) {
        (Some(one), Some(other)) => near(one, other),
        _ => false,
    });
    let mut apart: Vec<String> = Vec::new();
    for (party, places) in facts.parties.iter().zip(&pairing.places) {
        for (artifact, place) in first.run.meta.artifacts.iter().zip(places) {
            let Some(this) = place.and_then(|place| party.run.meta.artifacts.get(place)) else { continue };
            let of = |artifact: &crate::run::meta::ArtifactMeta| {
                Some(share(artifact.resident_at_start_bytes?, artifact.payload_bytes?))
            };
            if let (Some(one), Some(other)) = (of(artifact), of(this))
                && !near(one, other)
            {
                same = false;
                let name = super::artifacts::name(&artifact.path).to_owned();
                if !apart.contains(&name) {
                    apart.push(name);
                }
            }
        }
    }
    let note = match (apart.len(), first.run.meta.artifacts.len()) {
        (0, _) | (_, 1) => "same within 1% of the payload".to_owned(),
        (some, all) => format!("same within 1% of the payload; {some} of {all} artifacts are not"),
    };
    let note = values.iter().all(Option::is_some).then_some(note);
    facts.push(Subject::Condition, "residency", values, Outcome { same, note });
}

/// What the application kept of former runs, path by path. What a stage file does not name was not looked for.
fn retained(facts: &mut Facts) {
    let paths: BTreeSet<String> =
        facts.parties.iter().flat_map(|party| party.run.meta.condition.state.keys().cloned()).collect();
    for path in paths {
        let bytes = |party: &Party| party.run.meta.condition.state.get(&path).copied();
        let largest = facts.parties.iter().filter_map(bytes).max().unwrap_or(0) as f64;
        facts.near(
            Subject::Condition,
            &format!("state.{path}"),
            |party| {
                let bytes = bytes(party);
                Some((
                    bytes.unwrap_or(0) as f64,
                    bytes.map_or_else(|| "not there".to_owned(), |bytes| format!("{bytes} bytes")),
                ))
            },
            (largest * HUNDREDTH, "1%".to_owned()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_from_its_some_line() {
        let text = "some avg10=1.25 avg60=0.90 avg300=0.51 total=1\nfull avg10=1.02 avg60=0.80 avg300=0.4 total=1";
        assert_eq!(some_of_ten_seconds(text), Some(1.25));
        for wrong in ["", "full avg10=1.02", "some avg10=", "some avg10=nan", "some avg10=inf", "some"] {
            assert_eq!(some_of_ten_seconds(wrong), None, "{wrong}");
        }
    }
}
