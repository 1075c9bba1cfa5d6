//! What the figures say of this host, each sentence with its margin, and nothing beyond the spread. Pure.

use super::summary::{Group, Line, Ratio};
use super::way::{Mapped, Regime, Way};
use crate::compare::series::PAIRS;

/// The sentences of one group: the fastest way, whether pre-faulting suffices, whether staging pays.
pub fn sentences(group: &Group) -> Vec<String> {
    if group.repeats < PAIRS {
        return vec![format!("no verdict from {} of the {PAIRS} repeats that it takes", group.repeats)];
    }
    let mut sentences = vec![fastest(group)];
    sentences.extend(prefaulting(group));
    sentences.extend(staging(group));
    sentences
}

/// The warm ways compete; what a cold file costs is storage.
fn fastest(group: &Group) -> String {
    let median = |line: &Line| line.total().map(|total| total.median);
    let mut lines: Vec<&Line> = group.lines.iter().filter(|line| line.counts() && !line.way.regime.is_cold()).collect();
    lines.sort_by_key(|line| median(line));
    let Some((best, others)) = lines.split_first() else { return "nothing could be measured".to_owned() };
    let beyond = |line: &Line| Ratio::of(&line.totals, &best.totals).filter(Ratio::is_a_difference);
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
        let ratio = Ratio::of(&touched.copies, &heap.copies)?;
        let verdict = match ratio.is_at_most(SUFFICIENT) {
            Some(true) => "pre-faulting suffices",
            Some(false) => "pre-faulting does not suffice",
            None => "whether pre-faulting suffices cannot be told",
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
        let ratio = Ratio::of(&cloned.totals, &direct.totals)?;
        let verdict = match ratio {
            ratio if !ratio.is_a_difference() => "staging makes no difference beyond the spread",
            ratio if ratio.is_shorter() => "staging pays",
            _ => "staging costs",
        };
        Some(format!(
            "{verdict}: by way of anonymous memory a {} mapping takes {} as without",
            name(mapped),
            times(ratio)
        ))
    })
}

/// A touched mapping is as good as the heap up to this ratio of the copies, in hundredths.
const SUFFICIENT: u64 = 105;

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
fn times(ratio: Ratio) -> String {
    let (least, most) = ratio.extremes();
    format!("{} times as long ({least} to {most})", ratio.middle())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::copy_paths::destination::Kind;

    fn line(way: Way, totals: &[u64], copies: &[u64]) -> Line {
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
        let repeats = lines.iter().map(|line| line.totals.len()).max().unwrap_or(0);
        sentences(&Group { destination: Kind::Host, ranks: 1, repeats, turns: Default::default(), lines })
    }

    #[test]
    fn a_host_on_which_mappings_are_slow_to_copy_out_of() {
        let private = |regime| Way::mapping(regime, Mapped::Private);
        let said = said(vec![
            line(private(Regime::FirstTouchWarm), &[1184, 1190, 1180], &[1184, 1190, 1180]),
            line(private(Regime::Prefaulted), &[700, 705, 699], &[650, 655, 649]),
            line(Way::HEAP, &[70, 71, 69], &[10, 10, 10]),
            line(private(Regime::Cloned), &[67, 67, 66], &[10, 10, 10]),
        ]);
        assert_eq!(
            said,
            [
                "fastest: cloned private; heap takes 1.05 times as long (1.04 to 1.06)",
                "pre-faulting does not suffice: a copy out of a private mapping that was touched takes 65.0 times as \
                 long (64.9 to 65.5) as one out of the heap",
                "staging pays: by way of anonymous memory a private mapping takes 0.06 times as long (0.06 to 0.06) as \
                 without",
            ]
        );
    }

    #[test]
    fn what_lies_within_the_spread_is_no_difference() {
        let shared = |regime| Way::mapping(regime, Mapped::Shared);
        let said = said(vec![
            line(shared(Regime::FirstTouchWarm), &[100, 103, 99], &[100, 103, 99]),
            line(shared(Regime::Cloned), &[101, 100, 102], &[50, 50, 50]),
        ]);
        assert_eq!(said[0], "no difference beyond the spread between any two of the warm ways");
        assert!(said[1].starts_with("staging makes no difference beyond the spread"), "{said:?}");
    }

    #[test]
    fn two_repeats_carry_no_verdict() {
        let two = vec![line(Way::HEAP, &[1, 1], &[1, 1])];
        assert_eq!(said(two), ["no verdict from 2 of the 3 repeats that it takes"]);
    }
}
