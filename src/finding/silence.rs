//! The longest silence in the log, and what went on in it.
//!
//! Evidence: the times of the lines, and the counters of the processes between the samples at both ends of the silence.

use super::{Figure, Finding, Ground, Place, Quantity, Rule, START, derived, share};
use crate::clock::At;
use crate::metric::Metric::{self, *};
use crate::sample::Sample;
use crate::units;

pub(super) const RULE: Rule = Rule {
    id: "silence",
    about: "the longest silence in the log and what went on in it: by the lines' times, and by the counters meanwhile",
    find: |ground| of(ground).into_iter().collect(),
};

/// Shorter than this nobody wonders.
const SHORTEST_NS: u64 = 5_000_000_000;
/// So much of all the time, in percent.
const MUCH: u64 = 20;
/// In thousandths of a core: from here on it was busy; below the other it waited.
const BUSY: u64 = 700;
const IDLE: u64 = 100;

fn of(ground: &Ground) -> Option<Finding> {
    let silence = ground.silence.as_ref()?;
    let length = silence.length_ns();
    // A program that prints next to nothing is not silent, it is terse.
    if length < SHORTEST_NS || length < share(ground.length_ns(), MUCH) || silence.lines < 2 {
        return None;
    }
    let within = ground.samples(At(silence.from.0.saturating_sub(1)), silence.to);
    let (first, last) = (within.first()?, within.last()?);
    // What is known must be of the silence, not of an end of it.
    let known_ns = u64::try_from(last.t.0.saturating_sub(first.t.0)).ok()?;
    if known_ns < share(length, 80) {
        return None;
    }
    let grew = |metric: Metric| last.values.get(metric)?.checked_sub(first.values.get(metric)?);
    let cpu = grew(CpuUserNs)?.checked_add(grew(CpuSystemNs)?)?;
    let faults = grew(MinorFaults)?.checked_add(grew(MajorFaults)?)?;
    let busy = crate::account::ratios::Thousandths::of(cpu, known_ns)?;
    let waited = grew(IoWaitNs);
    let doing = if waited.is_some_and(|waited| waited >= share(known_ns, 50)) {
        "waiting for storage"
    } else if busy.0 >= BUSY {
        "at work"
    } else if busy.0 <= IDLE {
        "waiting, and not for a CPU"
    } else {
        "at work now and then"
    };
    let mut figures: Vec<Figure> = vec![
        derived("silence_ns", Quantity::Nanoseconds(length), "times of the lines (output.log)"),
        derived("cores_busy", Quantity::Ratio(busy), "cpu_user_ns and cpu_system_ns, between samples in the silence"),
    ];
    let mut parts =
        vec![format!("{:.1} cores busy", busy.0 as f64 / 1e3), format!("{} page faults", units::count(faults))];
    for (metric, what) in [(ReadBytes, "read from storage"), (RcharBytes, "asked for by read()")] {
        parts.extend(grew(metric).map(|bytes| format!("{} {what}", units::bytes(bytes))));
    }
    for metric in [MinorFaults, MajorFaults, ReadBytes, RcharBytes, CpuUserNs, CpuSystemNs, IoWaitNs, RunWaitNs] {
        let source = "counters, between samples in the silence";
        let name = format!("delta_{}", metric.name());
        figures.extend(grew(metric).map(|value| Figure { name, value: Quantity::of(metric, value), source }));
    }
    for (metric, what) in [
        (ResidentPayloadBytes, "of payload came in"),
        (RssAnonBytes, "more anonymous memory"),
        (DeviceLaunchBytes, "more on devices"),
    ] {
        if let Some(rise) = grew(metric).filter(|rise| *rise >= super::LITTLE) {
            parts.push(format!("{} {what}", units::bytes(rise)));
            let name = format!("rise_{}", metric.name());
            figures.push(derived(&name, Quantity::of(metric, rise), "samples at both ends of the silence"));
        }
    }
    let shown = |line: &Option<String>, nothing: &str| {
        line.as_ref().map_or_else(|| nothing.to_owned(), |line| format!("“{}”", line.trim()))
    };
    let mut sentences = vec![
        format!("In it: {}.", parts.join(", ")),
        format!(
            "It began at {} after {}, and ended with {}.",
            units::time(silence.from),
            shown(&silence.before, "the start"),
            shown(&silence.after, "the stopping event")
        ),
    ];
    if let Some(deepest) = threads(within) {
        sentences.push(deepest);
    }
    Some(Finding {
        rule: RULE.id,
        title: format!(
            "The log was silent for {} of {}, and the launch was {doing} ({:.1} cores busy)",
            units::duration(length),
            units::duration(ground.length_ns()),
            busy.0 as f64 / 1e3
        ),
        sentences,
        figures,
        settles:
            "A stack of the launch while it is silent (py-spy dump, gdb -p); unbuffered output (PYTHONUNBUFFERED=1, \
                  stdbuf -oL), so that a line comes when it is printed; a stage in this stretch (stagemark mark)."
                .to_owned(),
        place: place(ground, silence.from, silence.to),
    })
}

/// How many threads there were, where that was one number all the time.
fn threads(within: &[Sample]) -> Option<String> {
    let first = within.first()?.values.get(Threads)?;
    let same = within.iter().all(|sample| sample.values.get(Threads) == Some(first));
    (same && first > 0).then(|| format!("There were {} threads all the time.", units::count(first)))
}

/// From the last mark before it to the first one after it.
fn place(ground: &Ground, from: At, to: At) -> Place {
    let before = ground.rows.iter().rev().find(|row| row.at().is_some_and(|at| at <= from));
    let after = ground.rows.iter().find(|row| row.at().is_some_and(|at| at >= to)).copied().or(ground.last());
    let name = |row: &crate::account::StageRow| row.outcome.stage.clone();
    Place { from: before.map_or_else(|| START.to_owned(), |row| name(row)), to: after.map_or_else(String::new, name) }
}
