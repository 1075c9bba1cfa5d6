//! The host account: what the launch holds of the host's memory, in parts that may be added.
//!
//! Resident sets count a page once for each process that maps it, and file-backed ones count page cache that the
//! payload's residency counts too. So the host memory that a launch holds is given as two bounds, and named as such:
//!
//! | part | low | high |
//! |---|---|---|
//! | anonymous memory | mean over the processes, rounded up: the largest process has at least that, and the others may share all of it, copy-on-write | their sum |
//! | payload in the page cache | `resident_payload_bytes` | the same |
//! | other file-backed pages | 0: all may be payload, and counted above | `rss_file_bytes` |
//! | shared memory | 0: one tmpfs page may be payload, or shared by all | `rss_shmem_bytes` |
//! | page tables | `page_table_bytes` | the same |
//!
//! Swapped-out memory is not host memory and is in neither. Kernel memory other than page tables (socket buffers,
//! slabs) and page cache of files that are no artifact and that nobody maps are not counted at all. A bound is absent
//! when one of its parts is.

use crate::metric::{Metric, Values};

/// The host account's lower bound.
pub fn low(values: &Values) -> Option<u64> {
    let anonymous = values.get(Metric::RssAnonBytes)?;
    let largest_at_least = match (anonymous, values.get(Metric::Processes)?) {
        (0, _) => 0,
        (_, 0) => return None,
        (anonymous, processes) => anonymous.div_ceil(processes),
    };
    sum(&[largest_at_least, values.get(Metric::ResidentPayloadBytes)?, values.get(Metric::PageTableBytes)?])
}

/// The host account's upper bound.
pub fn high(values: &Values) -> Option<u64> {
    sum(&[
        values.get(Metric::RssAnonBytes)?,
        values.get(Metric::ResidentPayloadBytes)?,
        values.get(Metric::RssFileBytes)?,
        values.get(Metric::RssShmemBytes)?,
        values.get(Metric::PageTableBytes)?,
    ])
}

pub fn sum(parts: &[u64]) -> Option<u64> {
    parts.iter().try_fold(0u64, |sum, part| sum.checked_add(*part))
}
