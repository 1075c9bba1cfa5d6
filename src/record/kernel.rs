//! The kernel's records as the recorder takes them: when to be quick about it, what was lost, and where the run says so.

use std::time::Duration;

use crate::artifact::Artifact;
use crate::clock::{Clock, Mono};
use crate::probe::stream::{self, Record, Stream, StreamWatch};
use crate::run::sources::{PERF_STREAM, Source, Sources};

/// What the stream is the source of.
const KINDS: [&str; 2] = ["births", "mappings"];

/// Between two questions for a mapping that a stage waits for, where nobody tells of it.
const SOON: Duration = Duration::from_millis(1);

/// The records of one launch, and what was told of them.
pub struct Kernel {
    stream: Stream,
    artifacts: usize,
    /// Whether a stage waits for a mapping.
    pending: bool,
    lost: u64,
    lost_told: bool,
}

impl Kernel {
    pub fn new(stream: Stream, artifacts: &[Artifact]) -> Kernel {
        Kernel { stream, artifacts: artifacts.len(), pending: false, lost: 0, lost_told: false }
    }

    /// Starts to empty the rings, and calls `tell` when a mapping was recorded for which a stage waits; tells why it cannot,
    /// in which case each look does.
    pub fn watch(&self, tell: impl Fn() + Send + 'static) -> Result<StreamWatch, String> {
        self.stream.watch(tell).map_err(|error| format!("the kernel's records are read at each tick only: {error}"))
    }

    /// Takes note of whether a stage waits for a mapping.
    pub fn set_pending(&mut self, pending: bool) {
        if self.pending != pending {
            self.pending = pending;
            self.stream.set_awaited(pending);
        }
    }

    /// Whether a stage waits for a mapping.
    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// After how long to ask for a mapping again, where a stage waits for one and nobody would tell of it.
    pub fn ask_after(&self) -> Option<Duration> {
        (self.pending && !self.stream.is_watched()).then_some(SOON)
    }

    /// Whether a stage waits for a mapping and one was recorded that may be it.
    pub fn has_awaited(&self) -> bool {
        self.pending && self.stream.has_mapping()
    }

    /// Everything recorded by now, and whether some was lost since the last time.
    pub fn take(&mut self, artifacts: &[Artifact]) -> (Vec<(Mono, Record)>, bool) {
        if artifacts.len() > self.artifacts {
            self.stream.learn(artifacts);
            self.artifacts = artifacts.len();
        }
        let taken = self.stream.take();
        self.lost += taken.lost;
        (taken.records, taken.lost > 0)
    }

    /// What the user should know of losses so far: once while the launch runs, the sum at its end.
    pub fn warning(&mut self, at_end: bool) -> Option<String> {
        if self.lost == 0 || (self.lost_told && !at_end) {
            return None;
        }
        let what = "processes and mappings too short for the tick may be missing, and times of others are bounds";
        let said = match (at_end, self.lost_told) {
            (false, _) => format!("the kernel had no room for {} of its records; from here on {what}", self.lost),
            (true, _) => format!("the kernel had no room for {} of its records in all: {what}", self.lost),
        };
        self.lost_told = true;
        Some(said)
    }

    /// Counts at the end, where no further record tells of those that were lost before it.
    pub fn count(&self) {
        self.stream.count();
    }

    /// Whether CPUs came online after the rings were opened.
    pub fn has_missed_cpus(&self) -> bool {
        stream::has_more_cpus(self.stream.size().0)
    }

    /// Enters into `run.json` how far it was listened to.
    pub fn enter(&self, sources: &mut Sources, clock: &Clock) {
        let until = clock.at(self.stream.drained_at());
        for (_, source) in sources.iter_mut().filter(|(kind, _)| KINDS.contains(&kind.as_str())) {
            (source.lost_records, source.until_ns) = (Some(self.stream.lost()), Some(until));
        }
    }
}

/// What `run.json` says before the start.
pub fn sources(stream: &Result<Stream, String>) -> Sources {
    let source = match stream {
        Ok(stream) => {
            let (rings, bytes) = stream.size();
            Source {
                used: PERF_STREAM.to_owned(),
                lost_records: Some(0),
                rings: Some(rings),
                ring_bytes: Some(bytes),
                ..Source::default()
            }
        }
        Err(why) => Source::by_looking(why),
    };
    KINDS.iter().map(|kind| ((*kind).to_owned(), source.clone())).collect()
}
