//! What the kernel counts of this process, before and after.

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use crate::proc::text::Io;

/// Since the process began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    faults: Option<(u64, u64)>,
    read_bytes: Option<u64>,
}

/// Between two looks. What could not be read is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// getrusage(2), `ru_minflt`.
    pub minor_faults: Option<u64>,
    /// `ru_majflt`.
    pub major_faults: Option<u64>,
    /// `read_bytes` of proc_pid_io(5): what storage was made to deliver for this process.
    pub read_bytes: Option<u64>,
}

impl Counters {
    pub fn now() -> Counters {
        let count = |value: i64| u64::try_from(value).ok();
        let faults = getrusage(UsageWho::RUSAGE_SELF)
            .ok()
            .and_then(|usage| Some((count(usage.minor_page_faults())?, count(usage.major_page_faults())?)));
        let read_bytes = std::fs::read("/proc/self/io").ok().and_then(|text| Io::parse(&text)).map(|io| io.read_bytes);
        Counters { faults, read_bytes }
    }

    pub fn since(&self, before: &Counters) -> Taken {
        let faults = self.faults.zip(before.faults);
        Taken {
            minor_faults: faults.and_then(|(now, before)| now.0.checked_sub(before.0)),
            major_faults: faults.and_then(|(now, before)| now.1.checked_sub(before.1)),
            read_bytes: self.read_bytes.zip(before.read_bytes).and_then(|(now, before)| now.checked_sub(before)),
        }
    }
}
