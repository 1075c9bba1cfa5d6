//! How far the high-water marks of a run may be off, for `run.json`.

use serde::{Deserialize, Serialize};

use crate::probe::process::CounterError;

/// What the bounds of resident-set peaks stand on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeaksMeta {
    /// The most that VmHWM of one process image may be off either way, in bytes: by what each processor holds back of the
    /// kernel's counters. Absent on kernels before 6.2, where it is each thread.
    pub counter_error_bytes: Option<u64>,
    /// The same for each thread of the image, on kernels before 6.2.
    pub counter_error_bytes_per_thread: Option<u64>,
    /// Whether the marks were reset at each stage (`--reset-peaks`), which lowers what getrusage(2) tells the processes.
    pub reset: bool,
}

impl PeaksMeta {
    pub fn of(error: CounterError, reset: bool) -> PeaksMeta {
        let (image, thread) = match error {
            CounterError::Processors { bytes } => (Some(bytes), None),
            CounterError::Threads { bytes } => (None, Some(bytes)),
        };
        PeaksMeta { counter_error_bytes: image, counter_error_bytes_per_thread: thread, reset }
    }
}

/// The launch's own control group (`--cgroup auto`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnCgroup {
    /// Its directory.
    pub path: String,
    /// 1 or 2.
    pub version: u8,
    /// Why it was left there at the end.
    pub left: Option<String>,
}
