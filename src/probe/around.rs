//! What is around the tree: the storage behind its artifacts, the pressure on host and control group, and how long its
//! threads waited. Kept together, since each counts from before the exec and is read beside the tree's own figures.

use super::Reading;
use super::pressure::{self, PressureProbe};
use super::storage::{self, StorageProbe};
use super::wait::WaitProbe;
use crate::artifact::Artifact;
use crate::clock::{Beat, Mono};
use crate::host::group_files::GroupFiles;
use crate::host::{Mounts, Roots};
use crate::launch::tree::Tree;
use crate::metric::Metric;

/// Pressure and waits are read ten times a second, each at a tick of its own, and at marks; the samples between have none
/// of them. After a pause of 20 ms, when nothing of it is in the CPU's caches any more, the three files of the host's
/// pressure take 32 µs and one thread some 20, where a tick may take 350 in all; the storage's counters take 6, and are
/// read at every tick.
/// What is not in every sample.
const SLOW: [Metric; 10] = [
    Metric::RunWaitNs,
    Metric::IoWaitNs,
    Metric::PressureCpuSomeNs,
    Metric::PressureIoSomeNs,
    Metric::PressureIoFullNs,
    Metric::PressureMemorySomeNs,
    Metric::PressureMemoryFullNs,
    Metric::CgroupPressureCpuSomeNs,
    Metric::CgroupPressureIoSomeNs,
    Metric::CgroupPressureMemorySomeNs,
];

/// The three probes.
pub struct Around {
    pressure_beat: Beat,
    wait_beat: Beat,
    pub storage: StorageProbe,
    pub pressure: PressureProbe,
    pub wait: WaitProbe,
}

impl Around {
    /// Over these mounts; `own` is the launch's own control group, if it has one. [`Around::begin`] must come before the
    /// exec.
    pub fn new(mounts: &Mounts, own: Option<&GroupFiles>) -> Around {
        let roots = Roots::default();
        let group = match own.filter(|own| own.version == 2) {
            Some(own) => Ok(own.directory.clone()),
            None => pressure::group(&roots, mounts),
        };
        Around {
            pressure_beat: Beat::PRESSURE,
            wait_beat: Beat::WAITS,
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

    /// Why those metrics are not in every sample that are known in others. Said once for a run, and not as something
    /// that happened: it would happen all the time.
    pub fn between(&self) -> impl Iterator<Item = (Metric, &'static str)> {
        let slow = SLOW.map(|metric| {
            (metric, "read ten times a second and in the closer look at a mark: other samples have none")
        });
        let dear = "dear to read on this host: read once a second and at marks";
        let dear = storage::METRICS.map(|metric| (metric, dear)).into_iter().filter(|_| self.storage.was_dear());
        slow.into_iter().chain(dear)
    }

    /// The storage alone, where the sample is in a hurry.
    pub fn glance(&mut self, artifacts: &[Artifact], now: Mono) -> Reading {
        self.storage.follow(artifacts);
        self.storage.look(now, false)
    }

    /// The figures of the last look are in no sample: what is read seldom is read at the next.
    pub fn was_left(&mut self) {
        self.pressure_beat.again();
        self.wait_beat.again();
    }

    /// Reads everything once; [`Tree::sweep`] comes before.
    pub fn look(&mut self, tree: &Tree, artifacts: &[Artifact], now: Mono, at_mark: bool) -> Vec<Reading> {
        self.storage.follow(artifacts);
        let mut readings = vec![self.storage.look(now, at_mark)];
        if at_mark || self.pressure_beat.is_due(now) {
            self.pressure_beat.done(now);
            readings.push(self.pressure.look());
        }
        if at_mark || self.wait_beat.is_due(now) {
            self.wait_beat.done(now);
            readings.push(self.wait.look(tree, now, at_mark));
        }
        readings
    }
}
