//! The processes of the launch, keyed by pid and start time: children, grandchildren, those that called setsid or were
//! double-forked (the profiler is their subreaper).

use super::supervise::Finals;
use crate::clock::Mono;
use crate::event::{Pid, What};

/// A process for good: pids are used again, pid and start time are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessKey {
    pub pid: Pid,
    /// Clock ticks since boot (stat, field starttime).
    pub start_time: u64,
}

/// The tree.
pub struct Tree;

impl Tree {
    /// The tree that grows from `root`. `finals` holds the last readings of those that the profiler reaps.
    pub fn new(root: Pid, finals: Finals) -> Tree {
        let _ = (root, finals);
        todo!()
    }

    /// Looks for processes born, changed by exec, or gone since the last sweep; each with the moment it was seen, and
    /// for how long before it cannot have been so.
    pub fn sweep(&mut self, now: Mono) -> Vec<(Mono, Option<u64>, What)> {
        let _ = now;
        todo!()
    }

    /// The live processes, parents before their children.
    pub fn live(&self) -> Vec<ProcessKey> {
        todo!()
    }

    /// Whether a pid is, or was within the last seconds, a process of the tree.
    pub fn contains(&self, pid: Pid) -> bool {
        let _ = pid;
        todo!()
    }
}
