//! The probes: each asks the kernel one kind of question and says what it could not learn.

pub mod around;
pub mod available;
pub mod cgroup;
pub mod contents;
pub mod counters;
pub mod device;
pub mod fault;
pub mod mapping;
pub mod pagetable;
pub mod pressure;
pub mod process;
pub mod rank;
pub mod residency;
pub mod ring;
pub mod sharing;
pub mod storage;
pub mod stream;
pub mod wait;

use crate::metric::{Metric, Values};

/// Why metrics are absent in a reading. Probes repeat a reason as long as it holds; the recorder tells changes.
pub type Absences = Vec<(Metric, String)>;

/// What a probe saw: values where it could, reasons where it could not.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub values: Values,
    pub absences: Absences,
}
