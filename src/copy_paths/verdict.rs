//! What the figures say of this host, each sentence with its margin, and nothing beyond the spread. Pure.

use super::summary::{Group, Line, Spread, ratio};
use super::way::{Mapped, Regime, Way};

/// Fewer repeats carry no verdict.
pub const LEAST_REPEATS: usize = 3;

/// The sentences of one group: the fastest way, whether pre-faulting suffices, whether staging pays.
pub fn sentences(group: &Group) -> Vec<String> {
    let repeats = group.lines.iter().map(|line| line.totals.len()).max().unwrap_or(0);
    if repeats < LEAST_REPEATS {
        return vec![format!("no verdict from {repeats} of the {LEAST_REPEATS} repeats that it takes")];
    }
    let mut sentences = vec![fastest(group)];
    sentences.extend(prefaulting(group));
    sentences.extend(staging(group));
    sentences
}

/// The warm ways compete; what a cold file costs is storage.
fn fastest(group: &Group) -> String {
    let median = |line: &Line| line.total().map_or(f64::INFINITY, |total| total.median);
    let mut lines: Vec<&Line> =
        group.lines.iter().filter(|line| !line.totals.is_empty() && !line.way.regime.is_cold()).collect();
    lines.sort_by(|one, other| median(one).total_cmp(&median(other)));
    let Some((best, others)) = lines.split_first() else { return "nothing could be measured".to_owned() };
    let beyond = |line: &Line| ratio(&line.totals, &best.totals).filter(Spread::is_a_difference);
    let equals: Vec<String> =
        others.iter().filter(|line| beyond(line).is_none()).map(|line| line.way.to_string()).collect();
    let next = others.iter().find_map(|line| Some((line.way, beyond(line)?)));
    match (equals.as_slice(), next) {
        (_, None) => "no difference beyond the spread between any two of the warm ways".to_owned(),
        ([], Some((way, ratio))) => format!("fastest: {}; {way} takes {}", best.way, times(ratio)),
        (equals, Some((way, ratio))) => format!(
            "fastest, with no difference beyond the spread: {}, {}; {way} takes {}",
            best.way,
            equals.join(", "),
            times(ratio)
        ),
    }
}

/// Whether a mapping that was touched before is as good to copy out of as the heap.
fn prefaulting(group: &Group) -> Vec<String> {
    each(|mapped| {
        let heap = group.line(Way::HEAP)?;
        let touched = group.line(Way::mapping(Regime::Prefaulted, mapped))?;
        let ratio = ratio(&touched.copies, &heap.copies)?;
        let verdict = match ratio {
            ratio if ratio.high <= SUFFICIENT => "pre-faulting suffices",
            ratio if ratio.low > SUFFICIENT => "pre-faulting does not suffice",
            _ => "whether pre-faulting suffices cannot be told",
        };
        Some(format!(
            "{verdict}: a copy out of a {} mapping that was touched takes {} as one out of the heap",
            name(mapped),
            times(ratio)
        ))
    })
}

/// Whether it pays to copy each tensor to anonymous memory first.
fn staging(group: &Group) -> Vec<String> {
    each(|mapped| {
        let direct = group.line(Way::mapping(Regime::FirstTouchWarm, mapped))?;
        let cloned = group.line(Way::mapping(Regime::Cloned, mapped))?;
        let ratio = ratio(&cloned.totals, &direct.totals)?;
        let verdict = match ratio {
            ratio if !ratio.is_a_difference() => "staging makes no difference beyond the spread",
            ratio if ratio.median < 1.0 => "staging pays",
            _ => "staging costs",
        };
        Some(format!(
            "{verdict}: by way of anonymous memory a {} mapping takes {} as without",
            name(mapped),
            times(ratio)
        ))
    })
}

/// A touched mapping is as good as the heap up to this ratio of the copies.
const SUFFICIENT: f64 = 1.05;

fn each(said: impl Fn(Mapped) -> Option<String>) -> Vec<String> {
    [Mapped::Private, Mapped::Shared].into_iter().filter_map(said).collect()
}

fn name(mapped: Mapped) -> &'static str {
    match mapped {
        Mapped::Private => "private",
        Mapped::Shared => "shared",
    }
}

/// `1.46 times as long (1.08 to 1.52)`.
fn times(ratio: Spread<f64>) -> String {
    format!("{:.2} times as long ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::copy_paths::destination::Kind;

    fn line(way: Way, totals: &[f64], copies: &[f64]) -> Line {
        Line {
            destination: Kind::Host,
            ranks: 1,
            way,
            refused: None,
            totals: totals.to_vec(),
            copies: copies.to_vec(),
            minor_faults: None,
            major_faults: None,
            read_bytes: None,
            sources: Vec::new(),
            resident_before: None,
            verified: None,
        }
    }

    fn said(lines: Vec<Line>) -> Vec<String> {
        sentences(&Group { destination: Kind::Host, ranks: 1, lines })
    }

    #[test]
    fn a_host_on_which_mappings_are_slow_to_copy_out_of() {
        let private = |regime| Way::mapping(regime, Mapped::Private);
        let said = said(vec![
            line(private(Regime::FirstTouchWarm), &[1184.0, 1190.0, 1180.0], &[1184.0, 1190.0, 1180.0]),
            line(private(Regime::Prefaulted), &[700.0, 705.0, 699.0], &[650.0, 655.0, 649.0]),
            line(Way::HEAP, &[70.0, 71.0, 69.0], &[10.0, 10.0, 10.0]),
            line(private(Regime::Cloned), &[67.0, 67.0, 66.0], &[10.0, 10.0, 10.0]),
        ]);
        assert_eq!(
            said,
            [
                "fastest: cloned private; heap takes 1.05 times as long (1.04 to 1.06)",
                "pre-faulting does not suffice: a copy out of a private mapping that was touched takes 65.00 times as \
                 long (64.90 to 65.50) as one out of the heap",
                "staging pays: by way of anonymous memory a private mapping takes 0.06 times as long (0.06 to 0.06) as \
                 without",
            ]
        );
    }

    #[test]
    fn what_lies_within_the_spread_is_no_difference() {
        let shared = |regime| Way::mapping(regime, Mapped::Shared);
        let said = said(vec![
            line(shared(Regime::FirstTouchWarm), &[100.0, 103.0, 99.0], &[100.0, 103.0, 99.0]),
            line(shared(Regime::Cloned), &[101.0, 100.0, 102.0], &[50.0, 50.0, 50.0]),
        ]);
        assert_eq!(said[0], "no difference beyond the spread between any two of the warm ways");
        assert!(said[1].starts_with("staging makes no difference beyond the spread"), "{said:?}");
    }

    #[test]
    fn two_repeats_carry_no_verdict() {
        let two = vec![line(Way::HEAP, &[1.0, 1.0], &[1.0, 1.0])];
        assert_eq!(said(two), ["no verdict from 2 of the 3 repeats that it takes"]);
    }
}
