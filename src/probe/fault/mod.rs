//! Samples of page faults, each with its address, and what lay behind the address at that time: which byte of which
//! artifact, by which process, minor or major.
//!
//! `rings` opens and drains the kernel's record stream, `record` reads it, `order` puts the records of several CPUs in
//! order, `space` knows what each process maps, `resolve` joins them. What can be asked of the machine is asked here,
//! on whatever thread calls; nothing is written.
//!
//! One in so many minor faults is a sample, counted by the kernel for each thread on each CPU apart, so that samples
//! times the period is a low estimate of the faults. A tensor without a sampled fault may have been touched all the
//! same: between two samples, through pages that a neighbour's fault mapped too (fault-around, large folios), or inside
//! get_user_pages, which perf does not see.

mod order;
mod record;
mod resolve;
mod rings;
mod space;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

pub use record::Kind;
pub use resolve::{Fault, Place};
pub use rings::{FaultRings, MAJOR_PERIOD};

use super::mapping::Identities;
use crate::artifact::{Artifact, set};
use crate::clock::Mono;
use crate::event::{ArtifactId, Pid};
use crate::proc::maps::{self, Mapping};
use order::Order;
use record::{FileName, Record, Stamped};
use resolve::{Outside, Resolver};

/// What no event of the kernel shows, for people.
pub const UNSEEN: &str = "faults inside get_user_pages (MAP_POPULATE, mlock, O_DIRECT into fresh memory) reach no perf \
                          event, and a fault may map neighbouring pages too (fault-around, large folios)";

/// The machine, as the resolver asks it.
struct Machine {
    identities: Identities,
    discover: bool,
    text: Vec<u8>,
}

impl Outside for Machine {
    fn artifact(&mut self, pid: Pid, file: &FileName) -> Option<ArtifactId> {
        let mapping = Mapping {
            start: 0,
            end: 0,
            permissions: *b"r--p",
            offset: 0,
            device: file.device,
            inode: file.inode,
            path: &file.path,
        };
        self.identities.of_mapping(pid, &mapping)
    }

    fn may_become(&mut self, file: &FileName) -> bool {
        self.discover && set::has_model_name(OsStr::from_bytes(&maps::decode(&file.path)))
    }

    fn maps(&mut self, pid: Pid) -> Option<Vec<u8>> {
        maps::read(pid, &mut self.text).ok()?;
        Some(self.text.clone())
    }
}

/// Follows the faults of a launch.
pub struct FaultProbe {
    rings: FaultRings,
    order: Order,
    resolver: Resolver,
    machine: Machine,
    /// When the last drain began: what is older is all in at the next.
    drained: Mono,
}

impl FaultProbe {
    /// Over rings that were opened before the launch. `discover`: files may join the set after start.
    pub fn new(rings: FaultRings, discover: bool) -> FaultProbe {
        let machine = Machine { identities: Identities::new(set::has_model_name), discover, text: Vec::new() };
        FaultProbe { rings, order: Order::default(), resolver: Resolver::default(), machine, drained: Mono(0) }
    }

    /// Takes the artifacts as they are now; they are numbered by their place and only grow in number.
    pub fn learn(&mut self, artifacts: &[Artifact]) {
        if self.machine.identities.learn(artifacts) {
            self.resolver.forget_artifacts();
        }
    }

    /// The set is closed: nothing waits for a file to join it.
    pub fn close(&mut self) {
        self.machine.discover = false;
    }

    /// Drains the rings; the faults of which no earlier one can come any more, in order of time but for those that had
    /// waited for their file to join the set.
    pub fn drain(&mut self) -> Vec<Fault> {
        let began = Mono::now();
        let lost_before = self.rings.told_lost();
        self.rings.drain(|record| self.order.push(record));
        if self.rings.told_lost() > lost_before {
            self.order.push(Stamped { at: began, record: Record::Lost });
        }
        let horizon = std::mem::replace(&mut self.drained, began);
        let mut faults = self.resolve(horizon);
        faults.extend(self.resolver.settled(began, &mut self.machine));
        for pid in self.resolver.doubtful(began) {
            let at = Mono::now();
            if let Some(maps) = self.machine.maps(pid) {
                self.order.push(Stamped { at, record: Record::Reread { pid, maps } });
            }
        }
        faults
    }

    /// Drains the rings for the last time: nothing waits any longer.
    pub fn finish(&mut self) -> Vec<Fault> {
        self.rings.drain(|record| self.order.push(record));
        let mut faults = self.resolve(Mono(u64::MAX));
        faults.extend(self.resolver.settled(Mono(u64::MAX), &mut self.machine));
        faults
    }

    /// What was opened.
    pub fn rings(&self) -> &FaultRings {
        &self.rings
    }

    fn resolve(&mut self, horizon: Mono) -> Vec<Fault> {
        let records = self.order.release(horizon);
        records.into_iter().filter_map(|stamped| self.resolver.take(stamped, &mut self.machine)).collect()
    }
}
