//! Payload that left memory again and was read again.
//!
//! Evidence: storage was read for more than the payload, and falls of residency were seen, of as much as the
//! difference; or residency fell while the control group, whose limit counts the page cache, was full. Reads alone may
//! be of other files, and a fall alone a loader's own MADV_DONTNEED or POSIX_FADV_DONTNEED.

use super::{Finding, Ground, Quantity, Rule, at, derived, figure, share};
use crate::account::ratios::{Thousandths, reread};
use crate::event::What;
use crate::metric::Metric::*;
use crate::units;

pub(super) const RULE: Rule = Rule {
    id: "evicted",
    about: "payload that left memory and was read again: by falls of residency, and by storage reads or a full \
            control group",
    find,
};

/// Read so many times over, in thousandths: what lies below is the loader's own program and libraries.
const AGAIN: Thousandths = Thousandths(1_100);
/// Falls of less than this, in percent of the payload, are the kernel's housekeeping.
const MUCH: u64 = 5;
/// A group is full from here on, in percent of its limit.
const FULL: u64 = 95;

fn find(ground: &Ground) -> Vec<Finding> {
    of(ground).into_iter().collect()
}

fn of(ground: &Ground) -> Option<Finding> {
    let last = ground.last()?;
    let payload = ground.payload()?;
    let until = last.sampled?;
    let falls = ground.run.events.iter().filter(|event| event.at <= until).filter_map(|event| match event.what {
        What::Evicted { bytes, .. } => Some(bytes),
        _ => None,
    });
    let (count, fallen) = falls.fold((0u64, 0u64), |(count, sum), bytes| (count + 1, sum.saturating_add(bytes)));
    if fallen < share(payload, MUCH) {
        return None;
    }
    let ratio = reread(last).filter(|ratio| *ratio > AGAIN);
    let read = last.values.get(ReadBytes);
    // What was read beyond the payload was there and fell: at least a half of it.
    let again = ratio.is_some() && read.is_some_and(|read| fallen >= read.saturating_sub(payload) / 2);
    let limit = limit(ground);
    let full = limit.filter(|(limit, _)| {
        let charged = last.values.get(CgroupPeakBytes).or(last.values.get(CgroupBytes));
        charged.is_some_and(|charged| charged >= share(*limit, FULL))
    });
    if !again && full.is_none() {
        return None;
    }
    let stage = &last.outcome.stage;
    let mut figures = vec![
        at(last, PayloadBytes, payload),
        derived("evicted_bytes", Quantity::Bytes(fallen), "falls of residency (events.csv, evicted)"),
        derived("evictions", Quantity::Count(count), "falls of residency (events.csv, evicted)"),
    ];
    figures.extend(read.map(|read| at(last, ReadBytes, read)));
    figures.extend(ratio.map(|ratio| derived("reread_ratio", Quantity::Ratio(ratio), "read_bytes by payload_bytes")));
    let mut sentences = vec![match (ratio, read) {
        (Some(ratio), Some(read)) if again => format!(
            "Storage was read {} times the payload, {} in all, and {} of payload left memory in {} before {stage}.",
            units::significant(ratio.0 as f64 / 1e3),
            units::bytes(read),
            units::bytes(fallen),
            falls_in_words(count)
        ),
        _ => format!("{} of payload left memory in {} before {stage}.", units::bytes(fallen), falls_in_words(count)),
    }];
    if let Some((bytes, file)) = limit {
        figures.push(derived("memory_limit_bytes", Quantity::Bytes(bytes), "the control group's files"));
        figures.extend(
            last.values.get(CgroupPeakBytes).map(|bytes| figure(CgroupPeakBytes, bytes, "the kernel's own mark")),
        );
        sentences.push(format!(
            "The control group may have {} ({file}), and page cache counts in it{}.",
            units::bytes(bytes),
            if full.is_some() { ": it was full" } else { "" }
        ));
    }
    let title = match ratio.filter(|_| again) {
        Some(ratio) => format!(
            "Payload was evicted and read again: {} left memory, storage was read {} times the payload",
            units::bytes(fallen),
            units::significant(ratio.0 as f64 / 1e3)
        ),
        None => format!("Payload was evicted from a full control group: {} left memory", units::bytes(fallen)),
    };
    Some(Finding {
        rule: RULE.id,
        title,
        sentences,
        figures,
        settles: match limit {
            Some((bytes, _)) if bytes < payload.saturating_mul(5) / 4 => {
                "A limit with room for the payload beside the heap; or mlock, so that it cannot leave.".to_owned()
            }
            _ => {
                "memory.events and /proc/pressure/memory while it loads; more memory, a smaller working set, or mlock."
                    .to_owned()
            }
        },
        place: ground.whole(),
    })
}

fn falls_in_words(count: u64) -> String {
    if count == 1 { "one fall".to_owned() } else { format!("{} falls", units::count(count)) }
}

/// The tightest limit on the group's memory, and the file that sets it.
fn limit<'a>(ground: &'a Ground) -> Option<(u64, &'a str)> {
    let groups = &ground.run.meta.host.cgroups;
    [&groups.memory_limit, &groups.memory_high]
        .into_iter()
        .flatten()
        .map(|limit| (limit.bytes, limit.file.as_str()))
        .min_by_key(|(bytes, _)| *bytes)
}
