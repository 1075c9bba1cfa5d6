//! A load that one core or two carry while the others and the storage wait, and whether page faults are what it is
//! bound by.
//!
//! Evidence: CPU time, which says that few of many cores were busy all the time; and the counters of storage, which say
//! that it was not waiting for data. Bound by faults: most of that CPU time is the kernel's, and faults are many.

use super::{Figure, Finding, Ground, Quantity, Rule, Span, delta, derived, share};
use crate::account::ratios::{Thousandths, cores_busy, cpu_ns, user_share};
use crate::account::source::Behind;
use crate::metric::Metric::{self, *};
use crate::units;

pub(super) const RULE: Rule = Rule {
    id: "serial",
    about: "few of many cores busy for long, and no waiting for storage: by CPU time and by the counters of reads",
    find,
};

/// In less time there is nothing to win.
const SHORTEST_NS: u64 = 5_000_000_000;
/// So much of all the time, in percent.
const MUCH: u64 = 25;
/// With fewer cores there is little to share the work among.
const CORES: f64 = 4.0;
/// At least this was busy, in thousandths of a core: else it waited.
const BUSY: u64 = 700;
/// Most of the CPU time is the kernel's, in thousandths.
const SYSTEM: u64 = 500;
/// Faults a second of CPU time: at half a microsecond to some ten each they take most of it.
const FAULTS: u64 = 20_000;
/// Reads in percent of the payload that are no load from storage.
const READ: u64 = 2;
/// Waiting for storage in percent of the time.
const WAITED: u64 = 10;
/// A change of device memory that is none.
const STILL: u64 = 64 << 20;

/// Of the longest interval of which it holds.
fn find(ground: &Ground) -> Vec<Finding> {
    let found = ground.spans().into_iter().filter_map(|span| Some((span.length_ns, of(ground, &span)?)));
    found
        .reduce(|longest, other| if other.0 > longest.0 { other } else { longest })
        .map(|(_, found)| found)
        .into_iter()
        .collect()
}

fn of(ground: &Ground, span: &Span) -> Option<Finding> {
    if span.length_ns < SHORTEST_NS || span.length_ns < share(ground.length_ns(), MUCH) {
        return None;
    }
    let cores = ground.run.meta.host.cores()?.number();
    let busy = cores_busy(span.row, span.before)?;
    // A quarter of them at most.
    if cores < CORES || busy.0 < BUSY || busy.0 as f64 > cores * 250.0 {
        return None;
    }
    let (counter, read) = no_reads(ground, span)?;
    let system = 1000 - user_share(&span.row.deltas)?.0.min(1000);
    let faults = span.faults();
    let a_second = faults
        .zip(cpu_ns(&span.row.deltas))
        .and_then(|(faults, cpu)| u64::try_from(u128::from(faults) * 1_000_000_000 / u128::from(cpu.max(1))).ok());
    let by_faults = system >= SYSTEM && a_second.is_some_and(|faults| faults >= FAULTS);

    let shown = |thousandths: u64| format!("{:.1}", thousandths as f64 / 1e3);
    let of_cores = if cores.fract() == 0.0 { format!("{cores:.0}") } else { format!("{cores:.1}") };
    let reads = if read == 0 { "no disk I/O".to_owned() } else { format!("{} read from storage", units::bytes(read)) };
    // A start in which no payload moves may be serial as well.
    let loads = span.row.work.source.as_ref().is_some_and(|source| source.from.is_some());
    let what = if loads { "a serial load" } else { "serial work" };
    let kind = if by_faults { ", bound by page faults" } else { "" };
    let place = span.place();
    let mut sentences = vec![format!(
        "{}% of the CPU time was the kernel's{}.",
        units::significant(system as f64 / 10.0),
        match (faults, a_second) {
            (Some(faults), Some(a_second)) =>
                format!(", with {} page faults, {} in each second of it", units::count(faults), units::count(a_second)),
            _ => String::new(),
        }
    )];
    let mut figures: Vec<Figure> = vec![
        derived("length_ns", Quantity::Nanoseconds(span.length_ns), "between the samples at both ends"),
        derived("span_cores_busy", Quantity::Ratio(busy), "cpu_user_ns and cpu_system_ns by the time"),
        derived(
            "cores",
            Quantity::Ratio(Thousandths((cores * 1e3).min(1e12) as u64)),
            "the launch's affinity or quota",
        ),
        derived("span_system_share", Quantity::Ratio(Thousandths(system)), "cpu_system_ns by both"),
        delta(counter, read),
    ];
    for metric in [MinorFaults, MajorFaults, IoWaitNs, RunWaitNs] {
        figures.extend(span.delta(metric).map(|value| delta(metric, value)));
    }
    let device = device_change(span);
    if let Some(change) = device {
        figures.push(derived("device_change_bytes", Quantity::Bytes(change), "device_launch_bytes at both ends"));
        if change <= STILL {
            sentences.push("The devices' memory stood still meanwhile: nothing was being placed on them.".to_owned());
        }
    }
    Some(Finding {
        rule: RULE.id,
        title: format!(
            "{place}: {} of {of_cores} cores busy for {}, {reads}: {what}{kind}",
            shown(busy.0),
            units::duration(span.length_ns)
        ),
        sentences,
        figures,
        settles: if by_faults {
            "Fewer, larger faults: MAP_POPULATE or MADV_POPULATE_READ, huge pages, read() in large pieces; or touch \
             the mapping from several threads. --faults says where they are."
        } else {
            "A profile of the busy thread (perf top -p PID, py-spy dump) in this interval; then several loading \
             threads or processes."
        }
        .to_owned(),
        place,
    })
}

/// What was read from storage, where that is known and next to nothing: by the counter of the tree or of the mount.
fn no_reads(ground: &Ground, span: &Span) -> Option<(Metric, u64)> {
    let counter = match Behind::of(&ground.run.meta) {
        Behind::Mount => StorageReadBytes,
        Behind::ReadBytes | Behind::Memory => ReadBytes,
        // What such a mount moves is in no counter.
        Behind::Nothing(_) => return None,
    };
    let read = span.delta(counter)?;
    let little = ground.payload().map_or(0, |payload| share(payload, READ)).max(16 * super::LITTLE);
    let waited = span.delta(IoWaitNs).is_some_and(|waited| waited > share(span.length_ns, WAITED));
    (read <= little && !waited).then_some((counter, read))
}

/// How much the launch's device memory changed, whichever way; absent where there is no device.
fn device_change(span: &Span) -> Option<u64> {
    let now = span.row.values.get(DeviceLaunchBytes)?;
    let before = span.before?.values.get(DeviceLaunchBytes)?;
    Some(now.abs_diff(before))
}
