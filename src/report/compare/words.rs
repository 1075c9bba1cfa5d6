//! Figures side by side, in words: `17.7 times faster`, `13% slower`, `cannot be told apart`.
//!
//! Times are faster or slower, everything else is more or less. From twice on it is times, below it parts of a hundred,
//! each rounded to what a reader takes in. Where bounds are apart, what is said holds at the least.

use crate::compare::figures::Ratio;
use crate::compare::{Cell, Judged, Known, Quantity, Told};
use crate::metric::Unit;
use crate::report::terminal::ABSENT;
use crate::units;

/// A figure as people read it: `1.42 GiB`, `1.20–1.42 GiB`, `≥ 12 s`; a dash where it is absent.
pub fn figure(of: Quantity, cell: &Cell) -> String {
    let Ok(Known { value, low, high, .. }) = cell else { return ABSENT.to_owned() };
    let shown = |amount: u64| amount_of(of.unit(), amount);
    match (low, high) {
        (Some(low), Some(high)) => between(of.unit(), *low, *high),
        (Some(low), None) => format!("≥ {}", shown(*low)),
        (None, Some(high)) => format!("≤ {}", shown(*high)),
        (None, None) => value.map_or_else(|| ABSENT.to_owned(), shown),
    }
}

/// An arm's figure; of several runs their median, and from the least to the most where that is another.
pub fn of_runs(of: Quantity, cell: &Cell, runs: usize) -> (String, Option<String>) {
    let range = figure(of, cell);
    match cell {
        Ok(Known { value: Some(median), .. }) if runs > 1 => {
            let median = amount_of(of.unit(), *median);
            let range = (range != median).then_some(range);
            (median, range)
        }
        _ => (range, None),
    }
}

/// The same in one text.
pub fn of_runs_at_once(of: Quantity, cell: &Cell, runs: usize) -> String {
    match of_runs(of, cell, runs) {
        (median, Some(range)) => format!("{median} ({range})"),
        (figure, None) => figure,
    }
}

/// An exact number with its unit.
pub fn amount_of(unit: Unit, amount: u64) -> String {
    match unit {
        Unit::Bytes => units::bytes(amount),
        Unit::Nanoseconds => units::duration(amount),
        Unit::Count => units::count(amount),
    }
}

/// Two amounts as a range, in the unit of the higher; one where a reader sees no difference.
fn between(unit: Unit, low: u64, high: u64) -> String {
    let shown = amount_of(unit, high);
    let number = match unit {
        Unit::Bytes => units::bytes_in(low, units::byte_unit(high)),
        Unit::Nanoseconds => units::duration_in(low, units::time_unit(high)),
        Unit::Count => units::count(low),
    };
    let of_high = shown.split(' ').next().unwrap_or_default();
    // `4` is exactly that, and `4.00` about that.
    let same = match (number.parse::<f64>(), of_high.parse::<f64>()) {
        (Ok(low), Ok(high)) => low == high,
        _ => number == of_high,
    };
    if same { shown } else { format!("{number}–{shown}") }
}

/// How a figure stands to the first arm's.
pub fn standing(of: Quantity, first: &Cell, this: &Cell) -> String {
    let judged = Judged::of(first, this);
    match judged.told {
        Told::Unknown => String::new(),
        Told::Same => "the same".to_owned(),
        Told::NotApart => "cannot be told apart".to_owned(),
        Told::Samples => match judged.ratio {
            Some(ratio) => format!("samples: {}", ratio_words(of, ratio)),
            // Nothing to divide by.
            None if judged.difference == Some(0) => "samples: the same".to_owned(),
            None => "samples: more than none".to_owned(),
        },
        Told::More | Told::Less => apart(of, &judged),
    }
}

fn apart(of: Quantity, judged: &Judged) -> String {
    let nearest = if judged.told == Told::More { judged.ratio_low } else { judged.ratio_high };
    let [ratio, nearest] = [judged.ratio, nearest].map(|ratio| ratio.map(|ratio| ratio_words(of, ratio)));
    match (ratio, nearest) {
        (Some(ratio), Some(nearest)) if ratio == nearest => ratio,
        (_, Some(nearest)) => format!("at least {nearest}"),
        (Some(ratio), None) => ratio,
        // Nothing to divide by.
        (None, None) => "more than none".to_owned(),
    }
}

/// A ratio in words.
pub fn ratio_words(of: Quantity, ratio: Ratio) -> String {
    let [more, less] = match (of.is_time(), of.unit()) {
        (true, _) => ["slower", "faster"],
        (false, Unit::Count) => ["more", "fewer"],
        (false, _) => ["more", "less"],
    };
    let ratio = ratio.number();
    match ratio {
        0.0 => "none".to_owned(),
        1.0 => "the same".to_owned(),
        r if r >= 2.0 && of.is_time() => format!("{} times slower", times(r)),
        r if r >= 2.0 => format!("{} times as {}", times(r), if of.unit() == Unit::Count { "many" } else { "much" }),
        r if r > 1.0 => format!("{} {more}", percent(r - 1.0)),
        r if r <= 0.5 => format!("{} times {less}", times(1.0 / r)),
        r => format!("{} {less}", percent(1.0 - r)),
    }
}

/// Three digits, and none that say nothing: `2`, `17.7`, `1250`.
fn times(times: f64) -> String {
    let text = units::significant(times);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false if times >= 1e4 => units::count(times as u64),
        false => text,
    }
}

/// Parts of a hundred: `13%`, `1.3%`, `<0.1%`.
fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p < 0.05 => "<0.1%".to_owned(),
        p if p < 9.95 => format!("{p:.1}%").replace(".0%", "%"),
        p => format!("{p:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    const TIME: Quantity = Quantity::Time;
    const BYTES: Quantity = Quantity::Host;
    const COUNT: Quantity = Quantity::Value(Metric::MinorFaults);

    fn exactly(value: u64) -> Cell {
        Ok(Known::exactly(value, "sample"))
    }

    fn between(low: u64, high: u64) -> Cell {
        Ok(Known::between(Some(low), Some(high), "bounds"))
    }

    #[test]
    fn differences_are_said_as_people_say_them() {
        for (of, first, this, said) in [
            (TIME, 1_184, 67, "17.7 times faster"),
            (TIME, 434, 490, "13% slower"),
            (TIME, 434, 429, "1.2% faster"),
            (TIME, 67, 1_184, "17.7 times slower"),
            (TIME, 2, 1, "2 times faster"),
            (TIME, 100, 99, "1% faster"),
            (TIME, 10_000_000, 10_000_001, "<0.1% slower"),
            (TIME, 5, 5, "the same"),
            (BYTES, 100, 150, "50% more"),
            (BYTES, 100, 300, "3 times as much"),
            (BYTES, 300, 100, "3 times less"),
            (BYTES, 300, 0, "none"),
            (BYTES, 0, 300, "more than none"),
            (BYTES, 0, 0, "the same"),
            (BYTES, 1, u64::MAX, "18446744074G times as much"),
            (BYTES, u64::MAX, 1, "18446744074G times less"),
            (COUNT, 100, 150, "50% more"),
            (COUNT, 150, 100, "33% fewer"),
            (COUNT, 10, 100, "10 times as many"),
        ] {
            assert_eq!(standing(of, &exactly(first), &exactly(this)), said, "{first} {this}");
        }
    }

    #[test]
    fn of_bounds_that_are_apart_what_holds_at_the_least() {
        assert_eq!(standing(BYTES, &between(80, 100), &between(300, 320)), "at least 3 times as much");
        assert_eq!(standing(BYTES, &between(300, 320), &between(80, 100)), "at least 3 times less");
        assert_eq!(standing(BYTES, &between(80, 100), &between(90, 95)), "cannot be told apart");
        assert_eq!(standing(BYTES, &between(0, 0), &between(90, 95)), "more than none");
        assert_eq!(standing(BYTES, &exactly(1), &Err("no".to_owned())), "");
        let known =
            |low, high| Ok(Known { value: Some(high), low: Some(low), high: Some(high), basis: "log".to_owned() });
        assert_eq!(standing(TIME, &known(1_183_999, 1_184_000), &known(66_999, 67_000)), "17.7 times faster");
        assert_eq!(standing(TIME, &known(90, 100), &known(180, 200)), "at least 80% slower");
        let sampled = |low| Ok(Known::between(Some(low), None, "sampled"));
        assert_eq!(standing(BYTES, &sampled(100), &sampled(300)), "samples: 3 times as much");
        assert_eq!(standing(BYTES, &sampled(0), &sampled(300)), "samples: more than none");
        assert_eq!(standing(BYTES, &sampled(0), &sampled(0)), "samples: the same");
    }

    #[test]
    fn figures_show_their_bounds() {
        let gib = 1 << 30;
        assert_eq!(figure(BYTES, &between(gib, gib * 3 / 2)), "1–1.50 GiB");
        assert_eq!(figure(BYTES, &between(gib / 2, gib * 3 / 2)), "0.50–1.50 GiB");
        assert_eq!(figure(BYTES, &between(gib * 4, gib * 4 + 1)), "4.00 GiB");
        assert_eq!(figure(BYTES, &Ok(Known::between(Some(gib), None, "sampled"))), "≥ 1 GiB");
        assert_eq!(figure(TIME, &Ok(Known::between(None, Some(1_000_000_000), "log"))), "≤ 1 s");
        assert_eq!(figure(TIME, &Err("no".to_owned())), "–");
        assert_eq!(figure(TIME, &between(520_000_000, 2_700_000_000)), "0.52–2.70 s");
        assert_eq!(figure(COUNT, &exactly(65_537)), "65.5k");
        assert_eq!(figure(COUNT, &between(360, 65_537)), "360–65.5k");
    }
}
