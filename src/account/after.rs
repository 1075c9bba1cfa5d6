//! What happened after a mark that a reader would think was before it: from each mark to the stopping event.

use super::{StageRow, StageTable};
use crate::metric::Metric;
use crate::run::Run;
use crate::stage::is_over;

/// What is told of: what came into memory, what it took, and what the devices hold.
pub const AFTER: [Metric; 5] = [
    Metric::ResidentPayloadBytes,
    Metric::MinorFaults,
    Metric::MajorFaults,
    Metric::ReadBytes,
    Metric::DeviceLaunchBytes,
];

impl StageRow {
    /// How much a metric rose (or fell) from this mark to the stopping event, where there is one; absent where the mark is
    /// later, and where one of the values is; of resident payload also where files joined the set since. Both ends are the
    /// samples beside the marks.
    pub fn rise_to(&self, stop: Option<&StageRow>, metric: Metric) -> Option<i64> {
        let stop = stop?;
        if self.at()? > stop.at()? || self.sampled? > stop.sampled? {
            return None;
        }
        // What a file that joined the set since had in memory at this mark, nobody has seen.
        let has_grown = self.values.get(Metric::PayloadBytes) != stop.values.get(Metric::PayloadBytes);
        if metric == Metric::ResidentPayloadBytes && has_grown {
            return None;
        }
        let difference = i128::from(stop.values.get(metric)?) - i128::from(self.values.get(metric)?);
        i64::try_from(difference).ok()
    }
}

impl StageTable {
    /// What stays when loading is over: of device memory the level that stood longest after the stopping event, of all else
    /// the last value known while the launch was there.
    pub fn steady(&self, run: &Run, metric: Metric) -> Option<u64> {
        let row = self.stopping_row()?;
        if let Some(level) = row.steady.level(metric) {
            return Some(level);
        }
        let stop = row.at()?;
        let after = run.samples.iter().rev().take_while(|sample| sample.t > stop);
        after.filter(|sample| !is_over(sample)).find_map(|sample| sample.values.get(metric))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::At;
    use crate::event::{Evidence, Mark};
    use crate::metric::Values;
    use crate::stage::{Outcome, Status};

    fn row(stage: &str, at: i64, resident: Option<u64>) -> StageRow {
        let mark = Mark { stage: stage.into(), evidence: Evidence::Log, detail: String::new(), sampled: Some(At(at)) };
        let mut values = Values::ABSENT;
        values.set(Metric::ResidentPayloadBytes, resident);
        values.set(Metric::MinorFaults, at as u64);
        let outcome = Outcome {
            stage: stage.into(),
            status: Status::Reached,
            reason: String::new(),
            begin: None,
            mark: Some((At(at), Some(0), mark)),
        };
        StageRow { sampled: Some(At(at)), values, ..StageRow::of(outcome) }
    }

    #[test]
    fn what_came_after_a_mark_ends_at_the_stopping_event() {
        let rows = vec![row("a", 1, Some(70)), row("b", 5, None), row("stop", 9, Some(50)), row("later", 11, Some(60))];
        let mut table = StageTable { rows, stopping_event: Some("stop".into()), problems: Vec::new() };
        let after = |table: &StageTable, index: usize, metric| table.rows[index].rise_to(table.stopping_row(), metric);
        assert_eq!(after(&table, 0, Metric::ResidentPayloadBytes), Some(-20));
        assert_eq!(after(&table, 1, Metric::ResidentPayloadBytes), None);
        let faults: Vec<_> = (0..4).map(|index| after(&table, index, Metric::MinorFaults)).collect();
        assert_eq!(faults, [Some(8), Some(4), Some(0), None]);
        // Its residency is not what came in.
        table.rows[2].values.set(Metric::PayloadBytes, 100);
        assert_eq!(after(&table, 0, Metric::ResidentPayloadBytes), None);
        assert_eq!(after(&table, 0, Metric::MinorFaults), Some(8));
        table.rows[0].values.set(Metric::PayloadBytes, 100);
        assert_eq!(after(&table, 0, Metric::ResidentPayloadBytes), Some(-20));
        table.stopping_event = None;
        assert_eq!(after(&table, 0, Metric::MinorFaults), None);
    }
}
