//! What the processes of the tree hold and took: memory, threads, faults, I/O, CPU time.
//!
//! From `/proc/PID/{stat,status,io}`, kept open and re-read in place; never smaps.

use super::Reading;
use crate::clock::Mono;
use crate::event::Pid;
use crate::launch::tree::Tree;

/// One figure of one process, for `detail.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFigure {
    pub pid: Pid,
    /// `rss_bytes`, `peak_rss_bytes` (VmHWM), `rss_anon_bytes`, `minor_faults`, `read_bytes`…
    pub metric: &'static str,
    pub value: u64,
}

/// Sums over the tree; counters neither count a waited-for child twice nor go backwards.
pub struct ProcessProbe;

impl ProcessProbe {
    pub fn new() -> ProcessProbe {
        todo!()
    }

    /// Reads every live process of the tree once, parents before their children.
    pub fn tick(&mut self, tree: &mut Tree, now: Mono) -> Reading {
        let _ = (tree, now);
        todo!()
    }

    /// Each process's figures as last read.
    pub fn figures(&self) -> Vec<ProcessFigure> {
        todo!()
    }

    /// What the counters may lack at most, for `run.json`: children reaped by the kernel or orphaned, whose last
    /// counters were seen some time before their end. Empty if nothing may be lacking.
    pub fn caveats(&self) -> Vec<String> {
        todo!()
    }
}
