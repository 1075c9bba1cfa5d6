//! Figures that are one column divided by another: what they say stands in no column alone, and they are derived, never
//! recorded.
//!
//! A ratio is absent where one of its parts is, and where what it is divided by is 0. It is kept in thousandths, so that
//! files have the same three digits whoever writes them.

use crate::clock::At;
use crate::metric::{Metric, Values};

use super::StageRow;

/// A ratio in thousandths, rounded to the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thousandths(pub u64);

impl Thousandths {
    /// `part` ÷ `whole`; absent where there is nothing to divide by, or where it does not fit.
    pub fn of(part: u64, whole: u64) -> Option<Thousandths> {
        let (part, whole) = (u128::from(part), u128::from(whole));
        let ratio = (part * 1000 + whole / 2).checked_div(whole)?;
        u64::try_from(ratio).ok().map(Thousandths)
    }
}

impl std::fmt::Display for Thousandths {
    /// As a bare decimal number with three digits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

impl serde::Serialize for Thousandths {
    /// As a bare number.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e3)
    }
}

/// A column of `stages.csv` that is a ratio.
pub struct Ratio {
    /// The column's name.
    pub name: &'static str,
    /// At a row, the row before it given where there is one: start stands before the first.
    pub of: fn(&StageRow, Option<&StageRow>) -> Option<Thousandths>,
}

/// Least time between two samples for a statement of cores.
const SHORTEST_NS: u64 = 100_000_000;

/// Every ratio, in the order of the columns.
pub const RATIOS: &[Ratio] = &[
    Ratio { name: "reread_ratio", of: |row, _| reread(row) },
    Ratio { name: "span_cores_busy", of: cores_busy },
    Ratio { name: "span_user_share", of: |row, _| user_share(&row.deltas) },
];

/// Bytes fetched from storage for the tree since start, by the payload: how many times over it would have been read if
/// nothing else had been. More than 1 is other files, or payload that was evicted and read again.
pub fn reread(row: &StageRow) -> Option<Thousandths> {
    Thousandths::of(row.values.get(Metric::ReadBytes)?, row.values.get(Metric::PayloadBytes)?)
}

/// CPU time of the tree by the time between the samples at both ends, since the counters are of those moments: how many
/// cores it kept busy on average. The counters' resolution is a clock tick (10 ms) a process, and a sample takes some time
/// itself: of less than a tenth of a second nothing can be said.
pub fn cores_busy(row: &StageRow, before: Option<&StageRow>) -> Option<Thousandths> {
    let begin = before.map_or(Some(At(0)), |before| before.sampled)?;
    let length = u64::try_from(row.sampled?.0 - begin.0).ok().filter(|length| *length >= SHORTEST_NS)?;
    Thousandths::of(cpu_ns(&row.deltas)?, length)
}

/// The part of that CPU time that was in user mode.
pub fn user_share(deltas: &Values) -> Option<Thousandths> {
    Thousandths::of(deltas.get(Metric::CpuUserNs)?, cpu_ns(deltas)?)
}

/// CPU time in both modes.
pub fn cpu_ns(counters: &Values) -> Option<u64> {
    counters.get(Metric::CpuUserNs)?.checked_add(counters.get(Metric::CpuSystemNs)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_rounded_and_nothing_by_nothing() {
        let text = |part, whole| Thousandths::of(part, whole).map(|ratio| ratio.to_string());
        assert_eq!(text(3, 2).as_deref(), Some("1.500"));
        assert_eq!(text(0, 7).as_deref(), Some("0.000"));
        assert_eq!(text(2, 3).as_deref(), Some("0.667"));
        assert_eq!(text(1, 30_000).as_deref(), Some("0.000"));
        assert_eq!(text(7, 0), None);
        assert_eq!(text(u64::MAX, 1), None);
        assert_eq!(text(u64::MAX, u64::MAX).as_deref(), Some("1.000"));
    }

    #[test]
    fn the_share_of_user_mode() {
        let mut deltas = Values::ABSENT;
        deltas.set(Metric::CpuUserNs, 234_000_000);
        assert_eq!(user_share(&deltas), None);
        deltas.set(Metric::CpuSystemNs, 1_066_000_000);
        assert_eq!((cpu_ns(&deltas), user_share(&deltas)), (Some(1_300_000_000), Some(Thousandths(180))));
        deltas.set(Metric::CpuUserNs, 0);
        deltas.set(Metric::CpuSystemNs, 0);
        assert_eq!(user_share(&deltas), None, "no time is of neither mode");
    }
}
