//! What of the tree's memory is shared, so that a page held by several processes can be counted once: at marks only,
//! within a box of time.
//!
//! Three questions, from cheap to dear:
//!
//! - Who may share anonymous memory at all? Only processes that were forked from one another without an exec between:
//!   a *family*, told by where the parts of its program lie in memory (`/proc/PID/stat`). Free.
//! - How far do mappings reach? What is mapped bounds what can be resident through it (`/proc/PID/maps`, in `extents`).
//!   About 1 µs a mapping.
//! - How much is each process's share? PSS (`/proc/PID/smaps_rollup`, in `proportional`). The kernel walks the page
//!   tables with the target's mmap lock held for reading, some 15 ns a page: what would not fit is not begun.
//!
//! Looks at nothing on a tick, and never waits for a target: what the kernel makes it wait for is in the cost of a mark.

mod extents;
mod proportional;

use std::time::Duration;

use super::Reading;
use super::process::{ProcessFigure, ProcessProbe};
use crate::artifact::Artifact;
use crate::clock::Mono;
use crate::launch::tree::{ProcessKey, Tree};
use crate::metric::Metric;
use crate::proc::stat::Image;
use extents::Extents;
pub(super) use proportional::cpu_ns;
use proportional::{Proportional, Subject};

/// The CPU time that a mark's walks over page tables take in all, but for one that took longer than was to be expected.
const BOX: Duration = Duration::from_millis(20);

/// The sharing probe.
#[derive(Default)]
pub struct SharingProbe {
    extents: Extents,
    proportional: Proportional,
    figures: Vec<ProcessFigure>,
}

impl SharingProbe {
    pub fn new() -> SharingProbe {
        SharingProbe::default()
    }

    /// A mark's look; the process probe's own comes before. Takes at most `limit`, of CPU time a quarter of it
    /// for maps, and 20 ms for its walks.
    pub fn look(&mut self, tree: &Tree, artifacts: &[Artifact], process: &ProcessProbe, limit: Duration) -> Reading {
        let now = Mono::now();
        let end = now.plus(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.figures.clear();
        let mut reading = Reading::default();

        let live: Vec<(ProcessKey, Image, String)> = tree
            .processes()
            .filter(|process| !process.has_ended)
            .map(|process| (process.key, process.stat.image, process.label()))
            .collect();
        let families = families(live.iter().map(|(key, image, _)| (*key, *image)));
        for (&(key, _, _), &(family, _)) in live.iter().zip(&families) {
            self.figures.push(figure(key, "memory_family", family as u64));
        }

        // Maps first: it is cheaper by far, and without it the account has no bound for what it does not walk.
        let most_of_it = now.plus(u64::try_from((limit * 3 / 4).as_nanos()).unwrap_or(u64::MAX));
        let keys: Vec<(ProcessKey, &str)> = live.iter().map(|(key, _, label)| (*key, label.as_str())).collect();
        let mapped = self.extents.look(&keys, artifacts, most_of_it, limit / 4);
        for (key, extent) in &mapped.processes {
            self.figures.push(figure(*key, "mapped_artifact_bytes", extent.artifact_file));
            self.figures.push(figure(*key, "mapped_artifact_shmem_bytes", extent.artifact_shmem));
            self.figures.push(figure(*key, "mapped_other_file_bytes", extent.other_file));
            self.figures.push(figure(*key, "mapped_shmem_bytes", extent.shmem));
            let present = extent.present_other_file;
            self.figures.extend(present.map(|bytes| figure(*key, "present_other_file_bytes", bytes)));
        }
        // Of one that was not read no more is resident than its resident set.
        let stand_in = |(mut other_file, mut shmem): (u64, u64)| {
            for (key, why) in &mapped.unread {
                let memory = process.memory(*key).ok_or_else(|| why.clone())?;
                other_file = other_file.saturating_add(memory.file);
                shmem = shmem.saturating_add(memory.shmem);
            }
            Ok::<_, String>((other_file, shmem))
        };
        match stand_in(mapped.union) {
            Ok((other_file, shmem)) => {
                reading.values.set(Metric::MappedOtherFileBytes, other_file);
                reading.values.set(Metric::MappedShmemBytes, shmem);
            }
            Err(reason) => {
                for metric in [Metric::MappedOtherFileBytes, Metric::MappedShmemBytes] {
                    reading.absences.push((metric, reason.clone()));
                }
            }
        }

        match mapped.present {
            Ok(bytes) => reading.values.set(Metric::PresentOtherFileBytes, bytes),
            Err(reason) => reading.absences.push((Metric::PresentOtherFileBytes, reason)),
        }

        let subjects = live.iter().zip(&families).map(|((key, _, label), (_, members))| {
            let resident = process.memory(*key).map(|memory| memory.rss);
            Subject { key: *key, label, resident, has_kin: *members > 1 }
        });
        let shares = self.proportional.look(subjects.collect(), now, end, BOX);
        for (key, rollup) in &shares.rollups {
            self.figures.push(figure(*key, "pss_anon_bytes", rollup.pss_anon));
            self.figures.push(figure(*key, "pss_file_bytes", rollup.pss_file));
            self.figures.push(figure(*key, "pss_shmem_bytes", rollup.pss_shmem));
            if rollup.ksm > 0 {
                self.figures.push(figure(*key, "ksm_bytes", rollup.ksm));
            }
        }
        // A sum over only some of the processes would not be the sum.
        match shares.unread {
            None => {
                let sum = |of: fn(&crate::proc::smaps::Rollup) -> u64| {
                    shares.rollups.iter().map(|(_, rollup)| of(rollup)).fold(0, u64::saturating_add)
                };
                reading.values.set(Metric::PssAnonBytes, sum(|rollup| rollup.pss_anon));
                reading.values.set(Metric::PssFileBytes, sum(|rollup| rollup.pss_file));
                reading.values.set(Metric::PssShmemBytes, sum(|rollup| rollup.pss_shmem));
                reading.values.set(Metric::LockedBytes, sum(|rollup| rollup.locked));
                reading.values.set(Metric::AnonHugeBytes, sum(|rollup| rollup.anon_huge));
            }
            Some(reason) => {
                reading.absences.extend(PROPORTIONAL.map(|metric| (metric, reason.clone())));
            }
        }
        reading
    }

    /// Each process's figures as of the last look: `memory_family` (processes with the same number may share anonymous
    /// memory, copy-on-write), `mapped_artifact_bytes` and `mapped_artifact_shmem_bytes` (artifacts on ordinary file
    /// systems, and on tmpfs), `mapped_other_file_bytes`, `mapped_shmem_bytes`, `present_other_file_bytes`, `pss_anon_bytes`, `pss_file_bytes`,
    /// `pss_shmem_bytes`, and `ksm_bytes` where there are any.
    pub fn figures(&self) -> &[ProcessFigure] {
        &self.figures
    }
}

/// What smaps_rollup gives, summed over the tree.
const PROPORTIONAL: [Metric; 5] =
    [Metric::PssAnonBytes, Metric::PssFileBytes, Metric::PssShmemBytes, Metric::LockedBytes, Metric::AnonHugeBytes];

fn figure(key: ProcessKey, metric: &'static str, value: u64) -> ProcessFigure {
    ProcessFigure { pid: key.pid, metric, value }
}

/// For each process the lowest pid of its family, and how many are in it.
///
/// A fork leaves the program where it lies; an exec lays it out anew, at other addresses where these are randomised.
/// Where they are not, two that share nothing look like one family, which widens a bound and breaks none. Whom the
/// addresses of one process are withheld from cannot tell it from any other: all are one family then.
fn families(processes: impl Iterator<Item = (ProcessKey, Image)>) -> Vec<(i32, usize)> {
    let processes: Vec<(ProcessKey, Image)> = processes.collect();
    let all = processes.iter().any(|(_, image)| !image.is_known());
    processes
        .iter()
        .map(|(key, image)| {
            let kin = processes.iter().filter(|(_, other)| all || other == image);
            kin.fold((key.pid, 0), |(lowest, members), (kin, _)| (lowest.min(kin.pid), members + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, stack: u64) -> (ProcessKey, Image) {
        let image =
            Image { start_code: u64::from(stack != 0), end_code: 0, start_stack: stack, start_data: 0, end_data: 0 };
        (ProcessKey { pid, start_time: 1 }, image)
    }

    #[test]
    fn forks_are_kin_and_execs_are_not() {
        let told = families([process(9, 70), process(5, 70), process(6, 80)].into_iter());
        assert_eq!(told, [(5, 2), (5, 2), (6, 1)]);
        let withheld = families([process(9, 70), process(5, 0), process(6, 80)].into_iter());
        assert_eq!(withheld, [(5, 3); 3]);
    }
}
