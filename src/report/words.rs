//! What a table says in words, for every report that people read.

use crate::account::{StageRow, StageTable};
use crate::metric::Metric;
use crate::run::Run;
use crate::run::meta::wished;
use crate::stage::Status;

use super::text::plain;
use super::units;

/// The gap between mapped and resident, a sentence a line: how much of the payload was in memory at each stage. Stages
/// in a row of which the same is to be said share a sentence.
pub fn gap(table: &StageTable) -> Vec<String> {
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for row in table.reached() {
        let what = payload(row);
        let stage = plain(&row.outcome.stage);
        match said.last_mut() {
            Some((same, stages)) if *same == what => stages.push(stage),
            _ => said.push((what, vec![stage])),
        }
    }
    let sentence = |(what, stages): (String, Vec<String>)| match stages.as_slice() {
        [first, .., last] => format!("From {first} to {last} {what}."),
        stages => format!("At {} {what}.", stages.concat()),
    };
    said.into_iter().map(sentence).collect()
}

fn payload(row: &StageRow) -> String {
    let get = |metric| row.values.get(metric);
    // Where it is not known, what the page tables show is less than it, or as much.
    let (at_least, resident) = match (get(Metric::ResidentPayloadBytes), get(Metric::ResidentPayloadLowBytes)) {
        (None, Some(low)) => ("at least ", Some(low)),
        (known, _) => ("", known),
    };
    let (Some(payload), Some(resident)) = (get(Metric::PayloadBytes), resident) else {
        return match get(Metric::MappedBytes) {
            Some(mapped) => format!("the resident payload is not known, {} of the files mapped", units::bytes(mapped)),
            None => "the resident payload is not known".to_owned(),
        };
    };
    let unit = units::byte_unit(payload);
    let shown = |bytes| units::bytes_in(bytes, unit);
    let mapped = match get(Metric::MappedPayloadBytes) {
        Some(0) => ", none mapped".to_owned(),
        Some(mapped) => format!(", {} mapped", shown(mapped)),
        None => String::new(),
    };
    format!("{at_least}{} of {} {} of the payload was resident{mapped}", shown(resident), shown(payload), unit.name)
}

/// What came after each mark and before the stopping event, a sentence a line: who takes a mark for the end of a load
/// thinks that it was before. The last three such marks; `stages.csv` has all of them. Marks after which nothing is known
/// to have come are left out.
pub fn after(table: &StageTable) -> Vec<String> {
    let Some(stop) = table.stopping_row() else { return Vec::new() };
    let sentence = |row: &StageRow| {
        let rise =
            |metric| row.rise_to(Some(stop), metric).and_then(|rise| u64::try_from(rise).ok()).filter(|rise| *rise > 0);
        let faults = [Metric::MinorFaults, Metric::MajorFaults].map(|metric| row.rise_to(Some(stop), metric));
        let faults = faults.into_iter().sum::<Option<i64>>().and_then(|faults| u64::try_from(faults).ok());
        let parts: Vec<String> = [
            rise(Metric::ResidentPayloadBytes).map(|bytes| format!("{} of payload came in", units::bytes(bytes))),
            faults.filter(|faults| *faults > 0).map(|faults| units::counted(faults, "page fault")),
            rise(Metric::ReadBytes).map(|bytes| format!("{} read from storage", units::bytes(bytes))),
            rise(Metric::DeviceLaunchBytes).map(|bytes| format!("{} more on devices", units::bytes(bytes))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let (stage, until) = (plain(&row.outcome.stage), plain(&stop.outcome.stage));
        (!parts.is_empty()).then(|| format!("After {stage} and until {until}: {}.", parts.join(", ")))
    };
    let mut said: Vec<String> =
        table.reached().filter(|row| row.outcome.stage != stop.outcome.stage).filter_map(sentence).collect();
    said.drain(..said.len().saturating_sub(3));
    said
}

/// What was true at start.
pub fn condition(run: &Run) -> String {
    let condition = &run.meta.condition;
    let known = !condition.artifacts.is_empty();
    let mut parts =
        vec![format!("start: {}", if known { plain(&condition.artifacts) } else { "condition unverified".to_owned() })];
    if let Some(asked) = condition.asked.as_ref().filter(|asked| condition.reached.as_deref() != wished(asked)) {
        parts.push(format!("not the {} that was asked for", plain(asked)));
    }
    let artifacts = &run.meta.artifacts;
    let residents: Option<u64> = artifacts.iter().map(|artifact| artifact.resident_at_start_bytes).sum();
    let payloads: Option<u64> = artifacts.iter().map(|artifact| artifact.payload_bytes).sum();
    if let (false, Some(resident), Some(payload)) = (artifacts.is_empty(), residents, payloads) {
        parts.push(format!("{} of {} resident", units::bytes(resident), units::bytes(payload)));
    }
    match artifacts.as_slice() {
        [] => {}
        [one] => parts.push(plain(one.path.rsplit('/').next().unwrap_or(&one.path))),
        several => parts.push(format!("{} artifacts", several.len())),
    }
    if !run.meta.started.is_empty() {
        parts.push(plain(&run.meta.started));
    }
    parts.join(" · ")
}

/// The stage file that was followed; whether it has been run against the real program is said where it has not.
pub fn stage_file(run: &Run) -> String {
    let verified = if run.meta.stages.status == "verified" { "" } else { " (unverified)" };
    format!("{}{verified}", plain(&run.meta.stages.name))
}

/// Where the account ends.
pub fn stopping_event(run: &Run, table: &StageTable) -> String {
    match (&run.meta.until, table.stopping_row().and_then(StageRow::at)) {
        (Some(until), Some(at)) => format!("stopping event {} at {}", plain(until), units::time(at)),
        (Some(until), None) => format!("stopping event {} not reached", plain(until)),
        (None, _) => "no stopping event".to_owned(),
    }
}

/// What the profiling took: CPU as a share of one core over the run, memory, and how the ticks went.
pub fn cost(run: &Run) -> Option<String> {
    let cost = run.meta.cost.as_ref()?;
    let length = run.meta.exit.as_ref().map(|exit| exit.at.0).or(run.samples.last().map(|sample| sample.t.0));
    let cpu = match length.and_then(|ns| u64::try_from(ns).ok()).filter(|ns| *ns > 0) {
        // In a run of milliseconds the start alone may take more than the run.
        Some(ns) if ns >= 500_000_000 => {
            format!("{}% of a core", units::significant(100.0 * cost.cpu_ns as f64 / ns as f64))
        }
        _ => format!("{} of CPU", units::duration(cost.cpu_ns)),
    };
    Some(format!("profiler: {cpu}, {} of memory", units::bytes(cost.peak_rss_bytes)))
}

/// Why stages have no mark, a sentence a line. Those of which the same is to be said share one.
pub fn missing(table: &StageTable) -> Vec<String> {
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for row in table.rows.iter().filter(|row| row.at().is_none()) {
        let status = match row.outcome.status {
            Status::Reached => "reached",
            Status::NotReached => "not reached",
            Status::NotApplicable => "not applicable",
            Status::Unknown => "unknown",
        };
        let why = match row.outcome.reason.as_str() {
            "" => status.to_owned(),
            reason => format!("{status}: {}", plain(reason)),
        };
        let stage = plain(&row.outcome.stage);
        match said.iter_mut().find(|(same, _)| *same == why) {
            Some((_, stages)) => stages.push(stage),
            None => said.push((why, vec![stage])),
        }
    }
    said.into_iter().map(|(why, stages)| format!("{}: {why}", stages.join(", "))).collect()
}

/// Warnings, what was lost or could not be read, and contradictions.
pub fn notes(run: &Run, table: &StageTable) -> Vec<String> {
    let said = run.meta.warnings.iter().map(|text| format!("warning: {}", plain(text)));
    let lost = run.meta.losses.iter().map(|text| format!("lost: {}", plain(text)));
    let torn = run.gaps.iter().map(|text| format!("not read: {}", plain(text)));
    let wrong = table.problems.iter().map(|text| format!("contradiction: {}", plain(text)));
    said.chain(lost).chain(torn).chain(wrong).collect()
}
