//! How much of each artifact's payload is in host memory, in mincore's meaning, at a bounded cost.
//!
//! Never touches a page: files are mapped without populating and never read through the mapping.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Absences;
use crate::artifact::{Artifact, ArtifactId};
use crate::clock::Mono;

/// What the kernel lets us ask about one file, found by trying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Which call answers: `mincore`, `cachestat`, or `none`.
    pub by: String,
    /// What was tried and what it said, for `run.json`.
    pub because: String,
}

/// The state of one artifact's residency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileResidency {
    pub artifact: ArtifactId,
    /// Resident bytes of the watched ranges (payload, or the whole file where that is unknown), byte-exact at page
    /// edges; `Err` is the reason of its absence.
    pub resident: Result<u64, String>,
    /// Age of its oldest part.
    pub stale_ns: u64,
}

/// What a tick or a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidencyReading {
    /// Sum of the payload's residency over the set; absent if any artifact's is, or a payload is unknown.
    pub resident_payload: Option<u64>,
    /// Age of the oldest part of it.
    pub stale_ns: Option<u64>,
    pub absences: Absences,
}

/// Watches the residency of the artifact set.
pub struct ResidencyProbe;

impl ResidencyProbe {
    /// A probe of no file yet.
    pub fn new() -> ResidencyProbe {
        todo!()
    }

    /// Takes a file into the rotation: finds out who may be asked, and asks about all of it once, within `limit`.
    /// Files are numbered in the order of their adding, as the artifact set numbers them.
    pub fn add(&mut self, artifact: &Artifact, limit: Duration) -> Trust {
        let _ = (artifact, limit);
        todo!()
    }

    /// Spends at most about `budget` on the parts seen longest ago.
    pub fn tick(&mut self, budget: Duration) -> ResidencyReading {
        let _ = budget;
        todo!()
    }

    /// A closer look: goes on until every part is newer than the call, or `limit` is over. Trust is tried again.
    pub fn look(&mut self, limit: Duration) -> ResidencyReading {
        let _ = limit;
        todo!()
    }

    /// The state of each file as last seen, as of `now`.
    pub fn files(&self, now: Mono) -> Vec<FileResidency> {
        let _ = now;
        todo!()
    }
}
