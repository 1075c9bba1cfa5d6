//! Which source each kind of event is known from, and why not from a better one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::At;

/// `run.json`'s `sources`: by what is known from it (`births`, `mappings`, …).
pub type Sources = BTreeMap<String, Source>;

/// The kernel's own records, each with its time (perf_event_open(2)).
pub const PERF_STREAM: &str = "perf stream";
/// Looking at /proc again and again: whatever came and went between two looks is not seen, and times are bounds.
pub const PROCFS: &str = "procfs";

/// One source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// `perf stream` or `procfs`.
    pub used: String,
    /// Why it is not the better one, where there is a better one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// How many records the kernel had no room for. Looking at /proc took their place from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_records: Option<u64>,
    /// Up to here it was listened to: what was recorded later is not in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<At>,
    /// How many ring buffers it came through (one a CPU), and of how many bytes each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rings: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_bytes: Option<usize>,
}

impl Source {
    /// By looking, because the records could not be had.
    pub fn by_looking(because: &str) -> Source {
        Source { used: PROCFS.to_owned(), because: Some(because.to_owned()), ..Source::default() }
    }
}
