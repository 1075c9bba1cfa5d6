//! The peak of the resident set in a sentence: its bounds, and how they are known.

use crate::account::{Basis, Peak, StageRow, reason_of_absence};
use crate::clock::At;
use crate::metric::Metric;
use crate::run::Run;

use super::text::plain;
use super::units;

/// The peak over start → the stage of this row, whose name is `stage`; `None` where nothing is known of it.
pub fn sentence(run: &Run, row: &StageRow, stage: &str) -> Option<String> {
    let peak = row.peak(Metric::RssBytes)?;
    let low = units::bytes(peak.low?);
    let up_to = format!("up to {stage}");
    Some(match (peak.basis, peak.high) {
        (Basis::Sampled, _) if row.values.get(Metric::RssHighWaterLowBytes).is_none() => {
            format!("Resident set, largest sample {up_to}: {low}.")
        }
        (Basis::Sampled, _) => format!("Resident set, largest sample {up_to}: {low}; {}.", no_upper_bound(run, row)),
        (Basis::Kernel, Some(_)) => {
            format!("Resident set, peak {up_to}: {}, by the kernel's own mark.", between(peak))
        }
        (_, Some(_)) => format!(
            "Resident set, peak {up_to}: {}. The low is of one moment or one process; the high adds up the peaks of all \
             processes, as if they had been at one time.",
            between(peak)
        ),
        (_, None) => format!(
            "Resident set, peak {up_to}: at least {low}, by the kernel's mark of one process; {}.",
            no_upper_bound(run, row)
        ),
    })
}

fn no_upper_bound(run: &Run, row: &StageRow) -> String {
    let at = row.sampled.or(row.at()).unwrap_or(At(i64::MAX));
    match reason_of_absence(run, Metric::RssHighWaterHighBytes, at) {
        Some(why) => format!("no upper bound is known: {}", plain(why)),
        None => "no upper bound is known".to_owned(),
    }
}

/// Both bounds of a peak that has a high, in one unit.
pub(super) fn between(peak: Peak) -> String {
    let (low, high) = (peak.low.unwrap_or(0), peak.high.unwrap_or(0));
    let unit = units::byte_unit(high);
    let (from, to) = (units::bytes_in(low, unit), units::bytes_in(high, unit));
    if from == to { format!("{to} {}", unit.name) } else { format!("{from} to {to} {}", unit.name) }
}
