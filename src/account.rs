//! Run → stage table: values at each mark, what each counter did since the mark before, peaks with their bounds, and
//! the host account. Pure; invents nothing: what a run does not know is absent in its table.

use crate::clock::At;
use crate::metric::{Metric, Values};
use crate::run::Run;
use crate::stage::Outcome;

/// How a peak is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A high-water counter of the kernel, its error in the bounds.
    Kernel,
    /// Low is the largest sample; high is absent.
    Sampled,
    /// Between two figures.
    Bounds,
}

/// A largest value in an interval, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    pub low: Option<u64>,
    pub high: Option<u64>,
    pub basis: Basis,
}

/// One row: a stage, and everything at it.
#[derive(Clone, Debug, PartialEq)]
pub struct StageRow {
    pub outcome: Outcome,
    /// When the values beside the mark were taken.
    pub sampled: Option<At>,
    pub values: Values,
    /// Per counter, since the previous mark (start, for the first).
    pub deltas: Values,
    /// Per gauge, over start → this mark.
    pub peaks: Vec<(Metric, Peak)>,
    /// Per gauge, over the previous mark → this mark.
    pub span_peaks: Vec<(Metric, Peak)>,
    /// The host account's total.
    pub host_low: Option<u64>,
    pub host_high: Option<u64>,
}

/// The stage-aligned table: rows in the order of marks (ties in the stage file's order), then those without a mark.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTable {
    pub rows: Vec<StageRow>,
    /// The stopping event, where one was asked for and reached.
    pub stopping_event: Option<String>,
}

impl StageTable {
    /// The table of a run.
    pub fn of(run: &Run) -> StageTable {
        let _ = run;
        todo!()
    }
}
