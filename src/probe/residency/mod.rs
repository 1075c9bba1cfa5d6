//! How much of each artifact's payload is in host memory, in mincore's meaning, at a bounded cost.
//!
//! Never touches a page: files are mapped without populating and never read through the mapping.
//!
//! mincore(2) is the meaning, cachestat(2) the means: `trust` finds out by trying which of them tells the truth about a
//! file, `rotation` spends a tick's budget on the parts seen longest ago by the cheaper one, `pages` makes exact
//! bytes of the kernel's pages, `eviction` tells when what was in memory is not any more.

mod eviction;
mod kernel;
pub(super) mod pages;
mod rest;
mod rotation;
mod tensors;
#[cfg(test)]
mod tests;
mod trust;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::eviction::Views;
use self::kernel::Kernel;
use self::pages::Watched;
use self::rotation::Rotation;
pub use self::tensors::TensorResidency;
use super::Absences;
use super::sharing::cpu_ns;
use crate::artifact::{Artifact, ArtifactId};
use crate::clock::Mono;
use crate::metric::Metric;
use crate::sys::cache::page_size;

/// A closer look takes at most so many times its limit, where others have the processor for the rest.
const PATIENCE: u32 = 3;
/// What a tick may take beyond its budget when a payload has all but come in, which is a few ticks of a launch.
const SETTLING: Duration = Duration::from_millis(5);
/// With less of its limit left no further turn is begun.
const LEAST_TURN: Duration = Duration::from_millis(1);

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

/// A file's residency fell by more than noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    pub artifact: ArtifactId,
    /// Resident bytes of the watched ranges, before and after.
    pub from: u64,
    pub to: u64,
    /// By when it had happened, and for how long before it may have.
    pub at: Mono,
    pub uncertainty_ns: u64,
}

/// What a tick or a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidencyReading {
    /// Sum of the payload's residency over the set; absent if any artifact's is, or a payload is unknown.
    pub resident_payload: Option<u64>,
    /// Age of the oldest part of it.
    pub stale_ns: Option<u64>,
    pub absences: Absences,
    /// What fell since the last look.
    pub evicted: Vec<Evicted>,
}

/// Watches the residency of the artifact set.
pub struct ResidencyProbe {
    rotation: Rotation,
    views: Views,
    /// Which calls answered for each file.
    answering: Vec<(bool, bool)>,
    artifacts: Vec<Known>,
}

/// What is kept of an artifact beside its pages.
struct Known {
    path: PathBuf,
    /// Why the payload is unknown, and the whole file watched in its place.
    unknown_payload: Option<String>,
    /// What the rotation does not watch.
    rest: Watched,
}

impl Default for ResidencyProbe {
    fn default() -> ResidencyProbe {
        ResidencyProbe::new()
    }
}

impl ResidencyProbe {
    /// A probe of no file yet.
    pub fn new() -> ResidencyProbe {
        let rotation = Rotation::new(Mono::now);
        ResidencyProbe { views: Views::new(rotation.now()), rotation, answering: Vec::new(), artifacts: Vec::new() }
    }

    /// Takes a file into the rotation: finds out who may be asked, and asks about all of it once, within `limit`.
    /// Files are numbered in the order of their adding, as the artifact set numbers them.
    ///
    /// Where `limit` is over first, the file's residency is absent until ticks or looks have covered the rest.
    pub fn add(&mut self, artifact: &Artifact, limit: Duration) -> Trust {
        let began = self.rotation.now();
        let deadline = self.deadline(limit);
        self.artifacts.push(Known {
            path: artifact.path.clone(),
            unknown_payload: artifact.layout.as_ref().err().cloned(),
            rest: rest::of(artifact),
        });
        let watched = Watched::new(&artifact.watched_ranges(), page_size());
        let trust = self.rotation.add(Box::new(Kernel::new(artifact.file.clone())), watched, deadline).trust();
        // Also a fall before the first look is one.
        self.views.first_seen(&self.rotation, self.artifacts.len() - 1, began);
        trust
    }

    /// What has fallen, if a full view of everything has ended.
    fn fallen(&mut self) -> Vec<Evicted> {
        let calls = |id: usize| {
            let verdict = self.rotation.verdict(id);
            (verdict.mincore, verdict.cachestat)
        };
        let answering: Vec<(bool, bool)> = (0..self.artifacts.len()).map(calls).collect();
        for (id, before) in self.answering.iter().enumerate() {
            if answering.get(id) != Some(before) {
                self.views.forget(id);
            }
        }
        self.answering = answering;
        self.views
            .after_turn(&self.rotation)
            .into_iter()
            .map(|fall| Evicted {
                artifact: ArtifactId(fall.file),
                from: fall.from,
                to: fall.to,
                at: fall.by,
                uncertainty_ns: fall.by.since(fall.after),
            })
            .collect()
    }

    /// Spends at most about `budget` on the parts seen longest ago.
    pub fn tick(&mut self, budget: Duration) -> ResidencyReading {
        let since = self.rotation.now();
        let deadline = self.deadline(budget);
        self.rotation.judge_one();
        self.rotation.turn(since, deadline);
        let evicted = self.fallen();
        // That all of a payload is in memory is said by stages, and not before its last pages have been read.
        if self.rotation.is_nearly_whole() {
            self.rotation.settle_in_flight(self.deadline(SETTLING));
        }
        ResidencyReading { evicted, ..self.reading() }
    }

    /// A closer look: goes on until every part is newer than the call, or `limit` is over. Trust is tried again.
    ///
    /// Where others had the processor in the meantime it goes on, until it has had `limit` itself, for up to
    /// three times as long.
    pub fn look(&mut self, limit: Duration) -> ResidencyReading {
        let (since, before) = (self.rotation.now(), cpu_ns());
        let (deadline, quarter) = (self.deadline(limit), self.deadline(limit / 4));
        let last = self.deadline(limit * PATIENCE);
        self.rotation.judge_all(quarter);
        self.rotation.turn(since, deadline);
        while self.rotation.oldest().is_some_and(|oldest| oldest < since) && self.rotation.now() < last {
            let left = limit.saturating_sub(Duration::from_nanos(cpu_ns().saturating_sub(before)));
            if left < LEAST_TURN {
                break;
            }
            self.rotation.turn(since, self.deadline(left).min(last));
        }
        let evicted = self.fallen();
        self.rotation.settle_in_flight(deadline);
        self.rotation.count_evicted(deadline);
        ResidencyReading { evicted, ..self.reading() }
    }

    /// The state of each file as last seen, as of `now`. The age is 0 where there is no figure.
    pub fn files(&self, now: Mono) -> Vec<FileResidency> {
        self.rotation
            .oldest_of_each()
            .into_iter()
            .enumerate()
            .map(|(id, oldest)| FileResidency {
                artifact: ArtifactId(id),
                resident: self.rotation.resident(id).map_err(str::to_owned),
                stale_ns: oldest.map_or(0, |oldest| now.since(oldest)),
            })
            .collect()
    }

    /// Bytes of each file that were evicted not long ago, as of the last look; `None` where cachestat was not asked about
    /// all of it (cachestat(2), `nr_recently_evicted`).
    pub fn recently_evicted(&self) -> Vec<Option<u64>> {
        self.rotation.recently_evicted()
    }

    /// Who may be asked about a file, as last tried; `None` for one that was never added.
    pub fn trust(&self, artifact: ArtifactId) -> Option<Trust> {
        (artifact.0 < self.artifacts.len()).then(|| self.rotation.verdict(artifact.0).trust())
    }

    /// Whether nobody may answer for some file, so that the set has no figure.
    pub fn is_withheld(&self) -> bool {
        (0..self.artifacts.len()).any(|id| self.rotation.verdict(id).is_none())
    }

    fn deadline(&self, limit: Duration) -> Mono {
        self.rotation.now().plus(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX))
    }

    fn reading(&self) -> ResidencyReading {
        match self.total() {
            Ok(resident) => ResidencyReading {
                resident_payload: Some(resident),
                // With nothing to ask about, nothing is stale.
                stale_ns: Some(self.rotation.oldest().map_or(0, |oldest| self.rotation.now().since(oldest))),
                absences: Vec::new(),
                evicted: Vec::new(),
            },
            Err(why) => ResidencyReading {
                resident_payload: None,
                stale_ns: None,
                absences: [Metric::ResidentPayloadBytes, Metric::NonresidentPayloadBytes, Metric::ResidentStaleNs]
                    .map(|metric| (metric, why.clone()))
                    .into(),
                evicted: Vec::new(),
            },
        }
    }

    /// The sum over the set, or why there is none.
    fn total(&self) -> Result<u64, String> {
        if self.artifacts.is_empty() {
            return Err("no artifact in the set".into());
        }
        let mut sum = 0;
        for (id, known) in self.artifacts.iter().enumerate() {
            if let Some(why) = &known.unknown_payload {
                return Err(format!("{}: payload unknown: {why}", known.path.display()));
            }
            sum += self.rotation.resident(id).map_err(|why| format!("{}: {why}", known.path.display()))?;
        }
        Ok(sum)
    }
}
