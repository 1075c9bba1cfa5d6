//! Which bytes of which artifacts are mapped, and which artifacts are open: `/proc/PID/maps`, `/proc/PID/fd`.
//!
//! Maps is dear (KERNEL: about 1 µs a mapping), so it is read when a process's size moved, and in a slow rotation.

use std::path::PathBuf;
use std::time::Duration;

use super::Reading;
use crate::artifact::Artifact;
use crate::clock::Mono;
use crate::event::What;
use crate::launch::tree::Tree;

/// What a look at the mappings found.
#[derive(Debug, Default)]
pub struct MappingReading {
    pub reading: Reading,
    /// Artifacts opened, mapped, unmapped: what, the moment it was seen, and for how long it cannot have been so.
    pub changes: Vec<(Mono, Option<u64>, What)>,
    /// Files opened or mapped that look like artifacts and are not in the set.
    pub discovered: Vec<PathBuf>,
}

/// Watches mappings of the artifact set.
pub struct MappingProbe;

impl MappingProbe {
    pub fn new() -> MappingProbe {
        todo!()
    }

    /// Looks where something may have changed, spending at most about `budget`.
    pub fn tick(&mut self, tree: &Tree, artifacts: &[Artifact], budget: Duration) -> MappingReading {
        let _ = (tree, artifacts, budget);
        todo!()
    }

    /// Looks at every process, for a mark; stops at `limit`.
    pub fn look(&mut self, tree: &Tree, artifacts: &[Artifact], limit: Duration) -> MappingReading {
        let _ = (tree, artifacts, limit);
        todo!()
    }
}
