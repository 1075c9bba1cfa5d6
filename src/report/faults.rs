//! What a run with `--faults` says of its samples, for a terminal.

use super::tensors;
use super::text::plain;
use super::units::{bytes, count, counted, significant};
use crate::run::Run;
use crate::run::faults::{Counts, FaultSamples};

/// Sentences; none for a run without `--faults`.
pub fn sentences(run: &Run) -> Vec<String> {
    let Some(samples) = &run.meta.faults else { return Vec::new() };
    if let Some(why) = &samples.unavailable {
        return vec![format!("Fault samples: none: {}.", plain(why))];
    }
    let mut said = vec![sampled(samples)];
    said.extend(of_tensors(run, samples));
    if samples.kernel == Some(false) {
        said.push(
            "Faults that the kernel takes for a process are not among them, those of read() into fresh memory: \
             kernel.perf_event_paranoid allows this user no others."
                .to_owned(),
        );
    }
    if samples.lost_records > 0 {
        said.push(format!(
            "Lost for want of room in rings of {} a CPU: {} of faults and mappings; mappings were read again.",
            bytes(samples.ring_bytes),
            counted(samples.lost_records, "record")
        ));
    }
    if samples.left_out.total() > 0 {
        said.push(format!(
            "faults.csv ends at its limit; in the totals alone: {}.",
            counted(samples.left_out.total(), "sample")
        ));
    }
    said
}

fn sampled(samples: &FaultSamples) -> String {
    let all = samples.all();
    let kinds = |counts: Counts| format!("{} minor and {} major", count(counts.minor), count(counts.major));
    let mut places = Vec::new();
    for (counts, place) in [
        (samples.artifacts, "in artifacts"),
        (samples.other_files, "in other files"),
        (samples.anonymous, "in anonymous memory"),
        (samples.unknown, "at addresses of which nothing is known"),
    ] {
        if counts.total() > 0 {
            let share = 100.0 * samples.estimate(counts) as f64 / samples.estimate(all).max(1) as f64;
            places.push(format!("{} ({}%) {place}", kinds(counts), significant(share)));
        }
    }
    let minor = match samples.minor_period {
        1 => "each one".to_owned(),
        period => format!("one in {period}"),
    };
    let head = format!("Page faults sampled (minor: {minor}, major: each one): {}", kinds(all));
    if places.is_empty() { format!("{head}.") } else { format!("{head}; {}.", places.join(", ")) }
}

fn of_tensors(run: &Run, samples: &FaultSamples) -> Option<String> {
    let tensors = run.tensors.as_ref()?;
    let all: usize = tensors.layouts.values().map(Vec::len).sum();
    if all == 0 {
        return None;
    }
    let touched = tensors::touched(tensors).len();
    let between = if samples.minor_period > 1 { "between two samples, " } else { "" };
    Some(if touched == all {
        let each = if all == 1 { "The one tensor".to_owned() } else { format!("Each of the {all} tensors") };
        format!("{each} has a sampled fault (tensors.csv, touched.svg).")
    } else {
        format!(
            "{touched} of {all} tensors have a sampled fault (tensors.csv, touched.svg). The others may have been \
             touched without one: {between}through pages that a neighbour's fault mapped too, or inside \
             get_user_pages (MAP_POPULATE, mlock, O_DIRECT), which perf does not see; what read() copies is not \
             mapped, and has none."
        )
    })
}
