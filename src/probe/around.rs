//! What is around the tree: the storage behind its artifacts, the pressure on host and control group, and how long its
//! threads waited. Kept together, since each counts from before the exec and is read beside the tree's own figures.

use super::Reading;
use super::pressure::{self, PressureProbe};
use super::storage::StorageProbe;
use super::wait::WaitProbe;
use crate::artifact::Artifact;
use crate::clock::Mono;
use crate::host::{Mounts, Roots};
use crate::launch::tree::Tree;

/// The three probes.
pub struct Around {
    pub storage: StorageProbe,
    pub pressure: PressureProbe,
    pub wait: WaitProbe,
}

impl Around {
    /// Over these mounts; [`Around::begin`] must come before the exec.
    pub fn new(mounts: &Mounts) -> Around {
        let roots = Roots::default();
        let group = pressure::group(&roots, mounts);
        Around {
            storage: StorageProbe::new(mounts.clone()),
            pressure: PressureProbe::new(group),
            wait: WaitProbe::new(),
        }
    }

    /// Takes the state of all counters before the exec.
    pub fn begin(&mut self) {
        self.storage.begin();
        self.pressure.begin();
    }

    /// Reads everything once; [`Tree::sweep`] comes before.
    pub fn look(&mut self, tree: &Tree, artifacts: &[Artifact], now: Mono, at_mark: bool) -> [Reading; 3] {
        self.storage.follow(artifacts);
        [self.storage.look(now, at_mark), self.pressure.look(), self.wait.look(tree, now, at_mark)]
    }
}
