//! What happened after a mark that a reader would think was before it: from each mark to the stopping event.

use super::{StageRow, StageTable};
use crate::metric::Metric;

/// What is told of: what came into memory, what it took, and what the devices hold.
pub const AFTER: [Metric; 5] = [
    Metric::ResidentPayloadBytes,
    Metric::MinorFaults,
    Metric::MajorFaults,
    Metric::ReadBytes,
    Metric::DeviceLaunchBytes,
];

impl StageTable {
    /// How much a metric rose (or fell) from a row's mark to the stopping event; absent where there is none, where the mark
    /// is later, and where one of the values is. Both ends are the samples beside the marks.
    pub fn after(&self, row: &StageRow, metric: Metric) -> Option<i64> {
        let stop = self.stopping_row()?;
        if row.at()? > stop.at()? || row.sampled? > stop.sampled? {
            return None;
        }
        let difference = i128::from(stop.values.get(metric)?) - i128::from(row.values.get(metric)?);
        i64::try_from(difference).ok()
    }
}
