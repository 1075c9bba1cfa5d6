//! Who belongs to the tree, asked from other threads.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Mono;
use crate::event::Pid;
use crate::proc::stat::Stat;
use crate::proc::{Buffer, ProcFile};

/// A process stays a member for so long after its end: what it sent may be heard later.
const REMEMBERED_NS: u64 = 5_000_000_000;
/// So many parents are asked for at most.
const DEEPEST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Members {
    /// Pid → when it was found gone.
    pub pids: HashMap<Pid, Option<Mono>>,
    pub excluded: HashSet<Pid>,
    /// Whose orphans are the tree's.
    pub profiler: Option<Pid>,
    /// No process of the tree is older (clock ticks since boot).
    pub root_start: Option<u64>,
}

impl Members {
    pub fn forget_old(&mut self, now: Mono) {
        self.pids.retain(|_, gone| gone.is_none_or(|gone| now.since(gone) < REMEMBERED_NS));
    }
}

/// A look at the tree's membership from any thread.
#[derive(Clone, Debug, Default)]
pub struct TreeView(Arc<Mutex<Members>>);

impl TreeView {
    pub(super) fn lock(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves out a child of the profiler that is a helper of its own, with all its descendants.
    pub fn exclude(&self, pid: Pid) {
        self.lock().excluded.insert(pid);
    }

    /// Whether a pid is, or was within the last seconds, a process of the tree. One that no sweep has seen yet is asked
    /// for its parents, so the answer is right as long as the process is there.
    pub fn contains(&self, pid: Pid) -> bool {
        let mut buffer = Buffer::new();
        let asked = pid;
        let mut pid = pid;
        for _ in 0..DEEPEST {
            {
                let members = self.lock();
                if members.excluded.contains(&pid) {
                    return false;
                }
                if members.pids.contains_key(&pid) {
                    return true;
                }
            }
            let Some(stat) = ProcFile::of(pid, "stat").read(&mut buffer).ok().and_then(Stat::parse) else {
                if pid == asked {
                    return false;
                }
                // A parent that ended meanwhile: its children have another by now.
                pid = asked;
                continue;
            };
            let members = self.lock();
            if stat.parent <= 0 || members.root_start.is_some_and(|start| stat.start_time < start) {
                return false;
            }
            if Some(stat.parent) == members.profiler {
                return true;
            }
            pid = stat.parent;
        }
        false
    }
}
