//! Device memory for a terminal: at each stage, its peak on the way and what stays, and beside it what the files hold.

use crate::account::{StageRow, StageTable, reason_of_absence};
use crate::clock::At;
use crate::metric::Metric;
use crate::probe::device::Basis;
use crate::run::Run;

use super::terminal::{ABSENT, Page};
use super::text::{elide, padded, plain};
use super::units;

/// Columns of the stages' names.
const NAME: usize = 44;
/// Columns of a figure.
const FIGURE: usize = 10;
/// A rise for which nobody is named, from which on it is worth a word.
const UNEXPLAINED: u64 = 64 << 20;
/// The relations that are told apart, each from so many thousandths of the payload to so many: contexts and what is beside
/// the payload may be in it, and what was left out may not.
const RELATIONS: [(std::ops::RangeInclusive<u128>, Relation); 4] = [
    (237..=300, Relation::Quarter),
    (475..=600, Relation::Half),
    (950..=1_200, Relation::AsStored),
    (1_900..=2_400, Relation::Double),
];

/// What a rise is beside the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Quarter,
    Half,
    AsStored,
    Double,
    Less,
    More,
}

pub(super) const USED: [Metric; 3] = [Metric::DeviceUsedBytes, Metric::DeviceLaunchBytes, Metric::DeviceRiseBytes];

/// What the devices' section says; nothing on a host without one.
pub(super) fn section(page: &mut Page, run: &Run, table: &StageTable) {
    if run.meta.devices.is_empty() {
        return;
    }
    page.blank();
    let known = |row: &StageRow| USED.iter().any(|metric| row.values.get(*metric).is_some());
    if table.reached().any(known) {
        stages(page, table);
        basis(page, run, table);
        peak(page, run, table);
        representation(page, run, table);
    } else {
        let at = table.last_stage_reached().and_then(|row| row.sampled.or(row.at())).unwrap_or(At(i64::MAX));
        let why = reason_of_absence(run, Metric::DeviceUsedBytes, at).unwrap_or("no reason recorded");
        page.line(&format!("Device memory is not known: {}.", plain(why)));
    }
    for (index, device) in run.meta.devices.iter().enumerate() {
        if device.is_counted && device.is_unified {
            page.line(&format!(
                "{} uses the host's memory: what it has is in the host account already, and is not to be added to it.",
                plain(&device.label(index))
            ));
        }
    }
    for (index, device) in run.meta.devices.iter().enumerate() {
        let Some(context) = &device.context else { continue };
        let takes = match (context.bytes, &context.reason) {
            (Some(bytes), _) => {
                format!("it takes {} of the device, in use before the start too and so in no rise", units::bytes(bytes))
            }
            (None, Some(why)) => format!("what it takes is not known: {}", plain(why)),
            (None, None) => "what it takes is not known".to_owned(),
        };
        page.line(&format!(
            "{} is told by the CUDA driver, for which stagemark has a context there in a process of its own: {takes}.",
            plain(&device.label(index))
        ));
    }
    run.meta.device_probe.notes.iter().for_each(|note| page.line(&plain(note)));
}

fn stages(page: &mut Page, table: &StageTable) {
    let mut line = |name: &str, cells: [String; 3]| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>FIGURE$}")).collect();
        page.raw(&format!("{}{cells}", padded(&elide(name, NAME), NAME)));
    };
    line("device memory at", ["in use", "launch's", "rise"].map(str::to_owned));
    for row in table.reached() {
        let cells = USED.map(|metric| row.values.get(metric).map_or_else(|| ABSENT.to_owned(), units::bytes));
        line(&format!("  {}", plain(&row.outcome.stage)), cells);
    }
}

fn basis(page: &mut Page, run: &Run, table: &StageTable) {
    let probe = &run.meta.device_probe;
    match probe.launch_basis {
        Some(Basis::Processes) => {
            page.line("The launch's share is what its processes are named for; the rise is since before the start.");
        }
        Some(Basis::Rise) => {
            let why = probe.basis_reason.as_ref().map(|why| format!(": {}", plain(why))).unwrap_or_default();
            page.line(&format!(
                "The launch's share is the rise since before the start, whoever took it, for its processes cannot be told \
                 apart{why}."
            ));
        }
        None => {}
    }
    let last = table.last_stage_reached();
    if let Some(bytes) = last.and_then(|row| row.values.get(Metric::DeviceUnexplainedBytes))
        && bytes > UNEXPLAINED
    {
        page.line(&format!(
            "{} of the rise is named for no process of the launch: the driver's own, or other programs'.",
            units::bytes(bytes)
        ));
    }
}

/// The figure that a run has of the launch: its share, or else the rise, or else what is in use.
pub(super) fn best(row: &StageRow) -> Option<(Metric, &'static str)> {
    let words = [
        (Metric::DeviceLaunchBytes, "the launch's device memory"),
        (Metric::DeviceRiseBytes, "the rise of device memory"),
        (Metric::DeviceUsedBytes, "device memory in use"),
    ];
    words.into_iter().find(|(metric, _)| row.values.get(*metric).is_some())
}

fn peak(page: &mut Page, run: &Run, table: &StageTable) {
    let Some(last) = table.last_stage_reached() else { return };
    let Some((metric, what)) = best(last) else { return };
    let Some(low) = last.peak(metric).and_then(|peak| peak.low) else { return };
    let high = last.peak(metric).and_then(|peak| peak.high);
    let every = run.meta.device_probe.mean_interval_ns.map(units::duration);
    let every = every.map(|every| format!(", a reading every {every}")).unwrap_or_default();
    let mut text =
        format!("Largest sample of {what} up to {}: {}{every}", plain(&last.outcome.stage), units::bytes(low));
    match table.steady(run, metric) {
        Some(steady) if steady < low => text.push_str(&format!(
            "; steady after it {}, so that loading took {} more for a while",
            units::bytes(steady),
            units::bytes(low - steady)
        )),
        Some(steady) => text.push_str(&format!("; steady after it {}", units::bytes(steady))),
        None => {}
    }
    if let Some(high) = high {
        text.push_str(&format!("; by the driver's accounting at most {}", units::bytes(high)));
    }
    page.line(&format!("{text}."));
}

/// The files' payload as it is stored beside what the devices came to hold.
fn representation(page: &mut Page, run: &Run, table: &StageTable) {
    let of = |row: &StageRow| best(row).filter(|(metric, _)| *metric != Metric::DeviceUsedBytes);
    // Where no stopping event was reached, the last stage at which anything was left on a device: not the end.
    let has_some = |row: &&StageRow| of(row).and_then(|(metric, _)| row.values.get(metric)).is_some_and(|now| now > 0);
    let Some(last) = table.stopping_row().or_else(|| table.reached().rev().find(has_some)) else { return };
    let payload: Option<u64> = run.meta.artifacts.iter().map(|artifact| artifact.payload_bytes).sum();
    let Some(payload) = payload.filter(|payload| *payload > 0) else { return };
    let Some((metric, what)) = of(last) else { return };
    let Some(now) = last.values.get(metric).filter(|now| *now > 0) else { return };
    let mut dtypes: std::collections::BTreeMap<&str, u64> = Default::default();
    for (dtype, bytes) in run.meta.artifacts.iter().flat_map(|artifact| &artifact.bytes_by_dtype) {
        *dtypes.entry(dtype.as_ref()).or_insert(0) += bytes;
    }
    let mut dtypes: Vec<(&str, u64)> = dtypes.into_iter().collect();
    dtypes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let named: Vec<String> =
        dtypes.iter().take(4).map(|(dtype, bytes)| format!("{} {}", plain(dtype), units::bytes(*bytes))).collect();
    let per_mille = u128::from(now) * 1_000 / u128::from(payload);
    let verdict = words(relation(per_mille), &dtypes);
    page.line(&format!(
        "The files store {}; {what} at {} is {}, {}.{:02} times that: {verdict}.",
        named.join(", "),
        plain(&last.outcome.stage),
        units::bytes(now),
        per_mille / 1_000,
        per_mille % 1_000 / 10
    ));
}

fn relation(per_mille: u128) -> Relation {
    let known = RELATIONS.iter().find(|(range, _)| range.contains(&per_mille));
    known.map_or(if per_mille < 1_000 { Relation::Less } else { Relation::More }, |(_, relation)| *relation)
}

/// What the relation may mean for a payload of these dtypes, the largest first. It is size alone that is compared.
fn words(relation: Relation, dtypes: &[(&str, u64)]) -> &'static str {
    let is_wide = dtypes.first().is_some_and(|(dtype, _)| ["F32", "FP32", "FLOAT", "float32"].contains(dtype));
    let halves = ["F16", "BF16", "FP16", "FLOAT16", "BFLOAT16", "float16", "bfloat16"];
    let is_half = dtypes.first().is_some_and(|(dtype, _)| halves.contains(dtype));
    match relation {
        Relation::AsStored => "as much as the payload as it is stored, and what contexts take, may be",
        Relation::Half if is_wide => {
            "half of it: as the 4-byte floats that are stored would take as 2-byte ones (BF16, F16)"
        }
        Relation::Half if is_half => {
            "half of it: as the 2-byte floats that are stored would take in 8 bits, or half of them"
        }
        Relation::Half => "half of it: a narrower representation, or not all of it was copied",
        Relation::Quarter if is_wide => "a quarter of it: as the 4-byte floats that are stored would take in 8 bits",
        Relation::Quarter => "a quarter of it: a narrower representation, or not all of it was copied",
        Relation::Double if is_half => {
            "twice of it: as the 2-byte floats that are stored would take as 4-byte ones (F32), or two copies"
        }
        Relation::Double => "twice of it: a wider representation, or two copies",
        Relation::Less => {
            "less than the payload as it is stored, and no half or quarter of it: another representation, or not all of it \
             was copied"
        }
        Relation::More => {
            "more than the payload as it is stored, and not twice of it: caches and workspace beside it, copies, or another \
             representation"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_told_by_its_kind_and_by_what_is_stored() {
        let of = |per_mille, dtype| words(relation(per_mille), &[(dtype, 9), ("I64", 1)]);
        for fits in [950, 1_000, 1_200] {
            assert!(of(fits, "F32").contains("as it is stored, and what contexts take"), "{fits}");
        }
        assert!(of(500, "F32").contains("2-byte ones (BF16, F16)"));
        assert!(of(510, "BF16").contains("in 8 bits"));
        assert!(of(2_010, "BF16").contains("4-byte ones (F32)") && of(2_010, "F32").contains("two copies"));
        assert!(of(250, "F32").contains("a quarter") && !of(250, "Q4_K").contains("floats"));
        for (unrelated, dtype) in [(0, "F32"), (100, "BF16"), (360, "F32"), (700, "F32")] {
            assert!(of(unrelated, dtype).contains("no half or quarter"), "{unrelated}");
        }
        for (unrelated, dtype) in [(1_201, "F32"), (1_500, "BF16"), (7_000, "F32"), (u128::MAX, "F32")] {
            assert!(of(unrelated, dtype).contains("not twice of it"), "{unrelated}");
        }
        assert!(words(Relation::Half, &[]).contains("a narrower representation"));
    }
}
