//! Figures that are one column divided by another: what they say stands in no column alone, and they are derived, never
//! recorded.
//!
//! A ratio is absent where one of its parts is, and where what it is divided by is 0. It is kept in thousandths, so that
//! files have the same three digits whoever writes them.

use crate::metric::Metric;

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

/// A column of `stages.csv` that is a ratio.
pub struct Ratio {
    /// The column's name.
    pub name: &'static str,
    /// At a row, the row before it given where there is one: start stands before the first.
    pub of: fn(&StageRow, Option<&StageRow>) -> Option<Thousandths>,
}

/// Every ratio, in the order of the columns.
pub const RATIOS: &[Ratio] = &[Ratio { name: "reread_ratio", of: |row, _| reread(row) }];

/// Bytes fetched from storage for the tree since start, by the payload: how many times over it would have been read if
/// nothing else had been. More than 1 is other files, or payload that was evicted and read again.
pub fn reread(row: &StageRow) -> Option<Thousandths> {
    Thousandths::of(row.values.get(Metric::ReadBytes)?, row.values.get(Metric::PayloadBytes)?)
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
}
