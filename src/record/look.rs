//! One look at a launch: every probe asked once, and nothing decided.

use std::path::PathBuf;
use std::time::Duration;

use super::kernel::Kernel;
use crate::artifact::Artifact;
use crate::clock::Mono;
use crate::event::What;
use crate::launch::tree::{Sighting, Tree};
use crate::metric::{Metric, Values};
use crate::probe::around::Around;
use crate::probe::available::AvailableProbe;
use crate::probe::cgroup::CgroupProbe;
use crate::probe::counters::Counters;
use crate::probe::device::DeviceProbe;
use crate::probe::mapping::MappingProbe;
use crate::probe::pagetable::PageTableProbe;
use crate::probe::process::ProcessProbe;
use crate::probe::rank::RankProbe;
use crate::probe::residency::{Evicted, ResidencyProbe};
use crate::probe::sharing::SharingProbe;
use crate::probe::stream::Record;
use crate::probe::{Absences, Reading};

/// Residency work, as parts of a thousand of the time: 0.35 ms in a tick of 20 ms…
const RESIDENCY_PER_MILLE: f64 = 17.5;
/// …and a tick's at most, where ticks are far apart.
const RESIDENCY_MOST: Duration = Duration::from_millis(5);
/// What the rest of a look takes beyond so many parts of a thousand of the time is taken off its residency work, so that
/// both together keep to 0.5 ms in a tick of 20 ms…
const REST_PER_MILLE: f64 = 5.5;
/// … of which one part in so many is left in any case.
const RESIDENCY_LEAST: u32 = 4;
/// The same in a glance; half of it again for the whole artifacts.
const RESIDENCY_GLANCE: Duration = Duration::from_micros(100);
/// So long after a mapping the glance beside it no longer begins to read maps: the sample is to be taken within 1 ms, and
/// what was mapped is known by the record.
const GLANCE_NS: u64 = 500_000;
/// Of a closer look's time page tables take one part in so many at most, where residency is known.
const PAGE_TABLE_PART: u32 = 5;
/// Mapping work a tick…
const MAPPING: Duration = Duration::from_micros(200);
/// …and while a stage waits for a mapping: its time is worth more looking.
const MAPPING_PENDING: Duration = Duration::from_micros(1_000);

/// How closely to look.
#[derive(Clone, Copy, Debug)]
pub enum Closeness {
    /// What a tick can afford. `leaves`: the sooner to look beside it, this is left when a mapping is recorded that a stage
    /// waits for.
    Tick { interval: Duration, mapping_pending: bool, leaves: bool },
    /// Everything anew, as far as it goes in this time: at a mark, for which a loader may be waiting.
    Mark { limit: Duration },
    /// Nothing that may take long: beside a mapping that the kernel recorded then, for which nobody waits.
    Glance { mapped: Mono },
}

/// The probes over one launch.
pub struct Probes {
    pub tree: Tree,
    pub process: ProcessProbe,
    pub mapping: MappingProbe,
    pub residency: ResidencyProbe,
    pub pagetable: PageTableProbe,
    pub counters: Counters,
    pub cgroup: CgroupProbe,
    pub kernel: Option<Kernel>,
    pub around: Around,
    pub available: AvailableProbe,
    pub sharing: SharingProbe,
    pub ranks: RankProbe,
    pub device: DeviceProbe,
}

/// What a look found.
pub struct Look {
    pub began: Mono,
    pub ended: Mono,
    pub values: Values,
    pub absences: Absences,
    /// What happened since the last look, as far as it can be seen by looking.
    pub sightings: Vec<Sighting>,
    /// Files that look like artifacts and are not in the set.
    pub discovered: Vec<PathBuf>,
}

/// What a look saw that was left for a mapping: of its figures none is kept.
pub struct Left {
    pub sightings: Vec<Sighting>,
    pub discovered: Vec<PathBuf>,
}

impl Probes {
    /// Begins the kernel's high-water marks anew, as the one exception to looking only.
    pub fn reset_peaks(&mut self) {
        self.process.reset_peaks();
        self.cgroup.reset();
    }

    /// Takes what the kernel recorded since the last time, and puts it together with what the last sweep saw and what
    /// `sightings` has from readings of maps since. Without its records only the sweep's own come out.
    pub fn hear_kernel(&mut self, artifacts: &[Artifact], swept: Vec<Sighting>, sightings: &mut Vec<Sighting>) {
        let Some(kernel) = &mut self.kernel else { return sightings.extend(swept) };
        let (records, lost) = kernel.take(artifacts);
        if lost {
            self.tree.records_lost();
            self.mapping.rescan();
        }
        let lives = records.iter().filter_map(|(at, record)| match record {
            Record::Life(life) => Some((*at, life.clone())),
            Record::Map(_) => None,
        });
        let lives: Vec<_> = lives.collect();
        sightings.extend(self.tree.merge(lives, swept));
        self.mapping.heed(&self.tree, artifacts, &records, sightings);
    }

    /// Whether a look is to be left, that saw this much.
    fn is_awaited(&self, closeness: Closeness, sightings: &[Sighting]) -> bool {
        let Closeness::Tick { leaves: true, .. } = closeness else { return false };
        let is_mapping = |(_, _, what): &Sighting| matches!(what, What::Mapped { .. });
        sightings.iter().any(is_mapping) || self.kernel.as_ref().is_some_and(Kernel::has_awaited)
    }

    /// Looks at everything once, unless that is left for a mapping.
    ///
    /// # Errors
    /// What was seen until it was left.
    pub fn look(&mut self, artifacts: &[Artifact], closeness: Closeness) -> Result<Look, Left> {
        let began = Mono::now();
        let at_mark = matches!(closeness, Closeness::Mark { .. });
        if let (Some(kernel), true) = (&self.kernel, at_mark) {
            // What was lost before a mark is to be known at it.
            kernel.count();
        }
        let swept = match closeness {
            Closeness::Glance { .. } => self.tree.glance(began),
            _ => self.tree.sweep(began),
        };
        // Asked first and taken last: what the reader reads meanwhile is of this look.
        self.device.ask(&self.tree, at_mark);
        let faults = self.counters.faults();
        let mut sightings = Vec::new();
        // Before the processes are read: who came and went unseen takes their bound away.
        self.hear_kernel(artifacts, swept, &mut sightings);
        if self.is_awaited(closeness, &sightings) {
            return Err(Left { sightings, discovered: Vec::new() });
        }
        self.cgroup.follow(&self.tree, began, at_mark);
        let mut readings =
            vec![faults, self.process.tick(&mut self.tree, began), self.counters.clock(), self.cgroup.read()];
        // And again before their maps are: one that ended meanwhile did so when its record says.
        self.hear_kernel(artifacts, Vec::new(), &mut sightings);
        if self.is_awaited(closeness, &sightings) {
            return Err(Left { sightings, discovered: Vec::new() });
        }
        readings.push(self.available.read());
        if let Closeness::Glance { .. } = closeness {
            readings.push(self.around.glance(artifacts, began));
        } else {
            readings.extend(self.around.look(&self.tree, artifacts, began, at_mark));
            if self.is_awaited(closeness, &sightings) {
                self.around.was_left();
                return Err(Left { sightings, discovered: Vec::new() });
            }
            self.ranks.tick(&self.tree);
        }
        let mapping = match closeness {
            Closeness::Glance { mapped } => self.mapping.glance(&self.tree, artifacts, mapped.plus(GLANCE_NS)),
            Closeness::Mark { limit } => self.mapping.look(&self.tree, artifacts, limit / 2),
            Closeness::Tick { mapping_pending, .. } => {
                let by_looking_alone = mapping_pending && self.kernel.is_none();
                self.mapping.tick(&self.tree, artifacts, if by_looking_alone { MAPPING_PENDING } else { MAPPING })
            }
        };
        sightings.extend(mapping.changes);
        if self.is_awaited(closeness, &sightings) {
            self.around.was_left();
            return Err(Left { sightings, discovered: mapping.discovered });
        }
        readings.push(mapping.reading);
        // The page tables take the residency's place where that is withheld, and of its time what it leaves.
        let withheld = self.residency.is_withheld();
        let resident = match closeness {
            Closeness::Mark { limit } => {
                // Parts of the time are for the whole artifacts and for what processes share.
                let limit = limit * 6 / 10;
                let left = |began: Mono| limit.saturating_sub(Duration::from_nanos(Mono::now().since(began)));
                let share = if withheld { left(began) } else { limit / PAGE_TABLE_PART };
                readings.push(self.pagetable.look(&self.mapping, artifacts, share));
                self.residency.look(left(began))
            }
            Closeness::Glance { .. } => self.residency.tick(RESIDENCY_GLANCE),
            Closeness::Tick { interval, .. } => {
                let budget = residency_budget(interval, Duration::from_nanos(Mono::now().since(began)));
                if withheld {
                    readings.push(self.pagetable.tick(&self.mapping, artifacts, budget));
                }
                self.residency.tick(budget)
            }
        };

        sightings.extend(resident.evicted.iter().map(|evicted| {
            let Evicted { artifact, from, to, .. } = *evicted;
            let what = What::Evicted { artifact, bytes: from - to, from, to };
            (evicted.at, Some(evicted.uncertainty_ns), what)
        }));
        if let Closeness::Glance { .. } = closeness {
            readings.push(whole_artifacts(&mut self.residency, RESIDENCY_GLANCE / 2));
        }
        if let Closeness::Mark { limit } = closeness {
            readings.push(whole_artifacts(&mut self.residency, limit / 10));
            // What it may cost its targets is limited by itself, in CPU time; where others have the CPU it takes longer.
            readings.push(self.sharing.look(&self.tree, artifacts, &self.process, limit * 2));
        }

        let left = match closeness {
            Closeness::Mark { limit } => Some(limit.saturating_sub(Duration::from_nanos(Mono::now().since(began)))),
            _ => None,
        };
        readings.push(self.device.take(began, left));

        let mut look = Look {
            began,
            ended: Mono::now(),
            values: Values::ABSENT,
            absences: resident.absences,
            sightings,
            discovered: mapping.discovered,
        };
        for Reading { values, absences } in readings {
            look.values.merge(&values);
            look.absences.extend(absences);
        }
        let values = &mut look.values;
        values.set(Metric::Artifacts, artifacts.len() as u64);
        let payload = artifacts.iter().map(Artifact::payload_bytes).sum::<Option<u64>>();
        let payload = payload.filter(|_| !artifacts.is_empty());
        values.set(Metric::PayloadBytes, payload);
        if payload.is_none() {
            let unknown = artifacts.iter().find_map(|artifact| Some((&artifact.path, artifact.layout.as_ref().err()?)));
            let why = match unknown {
                Some((path, why)) => format!("{}: payload unknown: {why}", path.display()),
                None => "no artifact in the set".to_owned(),
            };
            look.absences.push((Metric::PayloadBytes, why));
        }
        values.set(Metric::ResidentPayloadBytes, resident.resident_payload);
        values.set(Metric::ResidentStaleNs, resident.stale_ns);
        let nonresident = payload.zip(resident.resident_payload).map(|(all, resident)| all.saturating_sub(resident));
        values.set(Metric::NonresidentPayloadBytes, nonresident);
        super::blind::withdraw(&mut look.values, &mut look.absences);
        Ok(look)
    }
}

/// The time for residency in a tick whose other work took so long. What is rare, and what met cold memory, makes a few ticks
/// dearer than the rest: those leave some parts of the artifacts to the next, and `resident_stale_ns` shows it.
fn residency_budget(interval: Duration, spent: Duration) -> Duration {
    let budget = interval.mul_f64(RESIDENCY_PER_MILLE / 1_000.0).min(RESIDENCY_MOST);
    let beyond = spent.saturating_sub(interval.mul_f64(REST_PER_MILLE / 1_000.0));
    budget.saturating_sub(beyond).max(budget / RESIDENCY_LEAST)
}

/// The whole artifacts in memory, headers and padding included.
fn whole_artifacts(residency: &mut ResidencyProbe, limit: Duration) -> Reading {
    let mut reading = Reading::default();
    match residency.whole(limit) {
        Ok(bytes) => reading.values.set(Metric::ArtifactResidentBytes, bytes),
        Err(reason) => reading.absences.push((Metric::ArtifactResidentBytes, reason)),
    }
    reading
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dear_tick_leaves_residency_to_the_next() {
        let budget = |spent| residency_budget(Duration::from_millis(20), Duration::from_micros(spent)).as_micros();
        assert_eq!([0, 110, 300, 5_000].map(budget), [350, 350, 160, 87]);
    }
}
