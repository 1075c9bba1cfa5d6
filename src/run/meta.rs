//! `run.json`: what a run was, on what, from which condition, and how its figures are known.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::death::Death;
use super::peaks::{OwnCgroup, PeaksMeta};
use super::sources::Sources;
use super::{META, RunError, SERIES};
use crate::artifact::{Artifact, Format};
use crate::clock::At;
use crate::event::{Found, text_of};
use crate::host::storage::Boundary;
use crate::host::{self, ConditionNow, Host, Mounts, Roots};
use crate::metric::Metric;
use crate::probe::device::{Device, DeviceProbeMeta};
use crate::probe::residency::Trust;
use crate::stage::StageFile;
use crate::watch::Printed;

/// The version of the run folder's form. A reader refuses a larger one.
pub const SCHEMA: u32 = 1;

/// `run.json`. Written after the first sample, again when the stage file is chosen, and at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    pub schema: u32,
    /// The version of stagemark that made it.
    pub stagemark: String,
    /// The command, secrets masked.
    pub argv: Vec<String>,
    pub directory: String,
    /// Wall-clock time of start, UTC, RFC 3339.
    pub started: String,
    /// The CLOCK_MONOTONIC time of start, in nanoseconds since boot; 0 until the command has started.
    pub start_monotonic_ns: u64,
    /// The tick that was asked for.
    pub interval_ns: u64,
    /// Environment variables that matter, secrets masked.
    pub environment: BTreeMap<String, String>,
    pub host: Host,
    pub artifacts: Vec<ArtifactMeta>,
    pub condition: Condition,
    /// The stage definitions in use.
    pub stages: StageFile,
    /// SHA-256 of their normalised form.
    pub stages_digest: String,
    /// SHA-256 of each stage's own normalised form. Empty in runs of versions that did not tell.
    #[serde(default)]
    pub stage_digests: BTreeMap<String, String>,
    /// The values of the stage definitions' variables in this run.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// The stopping event asked for (`--until`, or the stage file's).
    pub until: Option<String>,
    /// Which source each kind of event is known from. Empty in runs of versions that did not tell.
    #[serde(default)]
    pub sources: Sources,
    /// Metrics that no probe could fill; at the end, every metric that was absent at any time, with its last reason.
    pub absent: Vec<Absent>,
    pub warnings: Vec<String>,
    /// `None` while the command runs, and for a run whose profiler was killed.
    pub exit: Option<Exit>,
    /// What was printed, as digests: of the streams that went through the profiler and were seen whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<Printed>,
    /// A death before its time, and its likely cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death: Option<Death>,
    pub cost: Option<Cost>,
    #[serde(default)]
    pub peaks: PeaksMeta,
    /// The launch's own control group, where it had one.
    #[serde(default)]
    pub cgroup: Option<OwnCgroup>,
    /// What could not be written, where something could not.
    pub losses: Vec<String>,
    /// Of runs with `--faults`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<super::faults::FaultSamples>,
    /// The devices and mounts behind the artifacts.
    #[serde(default)]
    pub storage: Vec<Boundary>,
    /// The devices that compute; an entry's place is its id in `detail.csv`.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// How their memory was known.
    #[serde(default)]
    pub device_probe: DeviceProbeMeta,
}

/// One artifact of the set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactMeta {
    pub path: String,
    /// Symlinks resolved; content-addressed caches name a blob by its digest.
    pub real_path: String,
    pub found: Found,
    pub format: Format,
    pub size_bytes: u64,
    pub device: u64,
    pub inode: u64,
    pub modified_ns: i64,
    pub header_digest: Option<String>,
    /// SHA-256 of all of the file, where it was hashed; else why not, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_reason: Option<String>,
    pub tensors: Option<usize>,
    pub payload_bytes: Option<u64>,
    /// Why the payload is unknown.
    pub payload_reason: Option<String>,
    /// The stored numerical representation: payload bytes by dtype.
    pub bytes_by_dtype: BTreeMap<String, u64>,
    /// Filesystem type and mount point behind the path (mountinfo).
    pub filesystem: Option<String>,
    pub mount: Option<String>,
    pub trust: Trust,
    /// Resident payload before the exec.
    pub resident_at_start_bytes: Option<u64>,
    pub resident_at_start_reason: Option<String>,
    /// `declared`, `opened`, `mapped`: the furthest it came.
    pub state: String,
}

/// What was true at start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// `artifact-cold` (under 1% of the payload resident), `partial`, `artifact-warm` (over 99%), `unverified`.
    pub artifacts: String,
    /// The condition that was asked for (`--cache`): `cold`, `warm`. Absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The condition that was reached, where one was asked for: a word as `artifacts` has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<String>,
    /// Where one was asked for: other caches that may hold the artifacts' bytes, which nobody touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_touched: Vec<String>,
    /// Retained application state: path → bytes, for the stage file's `state` entries that exist.
    pub state: BTreeMap<String, u64>,
    /// /proc/pressure: resource → its `some`/`full` lines.
    pub pressure: BTreeMap<String, String>,
    /// /proc/loadavg.
    pub load: Option<String>,
    /// MemAvailable.
    pub memory_available_bytes: Option<u64>,
}

/// A metric that a run does not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Absent {
    pub metric: Metric,
    pub reason: String,
}

/// How the command ended (wait(2)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    pub at: At,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// Whether the profiler ended it at the stopping event (`--then stop`).
    pub stopped: bool,
    /// That stopping event, where it did. Absent in runs of versions that did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<String>,
}

impl Exit {
    /// The stopping event at which the profiler ended the command, for people, if it did.
    pub fn stop(&self) -> Option<&str> {
        self.stopped.then(|| self.stopped_at.as_deref().unwrap_or("its stopping event"))
    }
}

/// What the profiling itself took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time in nanoseconds of the profiler and of its helper processes (the pumps, the signal witness), all threads,
    /// from the beginning of the launch's preparation to the writing of this figure (clock_gettime(2),
    /// CLOCK_PROCESS_CPUTIME_ID). The reports made at the stopping event are in it; those made at the end are not, since
    /// they show it, and neither is what the process did before the launch, such as `demo`'s making of a model file.
    pub cpu_ns: u64,
    /// Of it, the recorder's thread: looking, matching and writing rows. Absent in runs of versions that did not tell.
    #[serde(default)]
    pub recorder_cpu_ns: Option<u64>,
    /// Of it, the helper processes.
    #[serde(default)]
    pub helper_cpu_ns: Option<u64>,
    /// The resident high-water mark of the profiler's main process since its exec (VmHWM, proc_pid_status(5)).
    pub peak_rss_bytes: u64,
    pub ticks: u64,
    /// Ticks that began more than one interval late.
    pub late_ticks: u64,
    pub tick_cost_median_ns: u64,
    pub tick_cost_p99_ns: u64,
    /// The interval at the end, after any doubling.
    pub interval_ns: u64,
}

impl Meta {
    /// Reads a folder's `run.json`.
    pub fn load(folder: &Path) -> Result<Meta, RunError> {
        let path = folder.join(META);
        let not_a_run = |problem: String| RunError::NotARun { folder: folder.to_owned(), problem };
        let bytes = super::read_file(&path).map_err(|error| {
            let is_series = folder.join(SERIES).is_file();
            let hint =
                if is_series { "; it is the folder of a series, whose runs lie in its folder `runs`" } else { "" };
            not_a_run(format!("{META}: {error}{hint}"))
        })?;
        // The version is looked at alone first: the rest of a later version may have another form.
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let Version { schema } = serde_json::from_slice(&bytes)
            .map_err(|error| not_a_run(format!("{META} has no schema version: {error}")))?;
        if schema > SCHEMA {
            return Err(RunError::Newer { folder: folder.to_owned(), schema });
        }
        serde_json::from_slice(&bytes).map_err(|error| not_a_run(format!("{META}: {error}")))
    }
}

impl ArtifactMeta {
    /// What is known of an artifact when it joins the set. `at_start` is its resident payload before the exec.
    pub fn of(artifact: &Artifact, trust: Trust, at_start: Result<u64, String>, mounts: &Mounts) -> ArtifactMeta {
        let layout = artifact.layout.as_ref();
        let mount = mounts.of(&artifact.real_path);
        let at_start = layout.map_err(Clone::clone).and(at_start);
        ArtifactMeta {
            path: text_of(&artifact.path),
            real_path: text_of(&artifact.real_path),
            found: artifact.found.clone(),
            format: artifact.format,
            size_bytes: artifact.size,
            device: artifact.device,
            inode: artifact.inode,
            modified_ns: artifact.modified_ns,
            header_digest: artifact.header_digest.clone(),
            content_sha256: None,
            content_reason: None,
            tensors: layout.ok().map(|layout| layout.tensors.len()),
            payload_bytes: artifact.payload_bytes(),
            payload_reason: layout.err().cloned(),
            bytes_by_dtype: layout.map(|layout| layout.by_dtype.clone()).unwrap_or_default(),
            filesystem: mount.as_ref().map(|mount| mount.fs_type.clone()),
            mount: mount.as_ref().map(|mount| text_of(&mount.mount_point)),
            trust,
            resident_at_start_bytes: at_start.as_ref().ok().copied(),
            resident_at_start_reason: at_start.err(),
            state: "declared".to_owned(),
        }
    }
}

impl Condition {
    /// The condition before the exec, of these artifacts.
    pub fn at_start(artifacts: &[ArtifactMeta]) -> Condition {
        let ConditionNow { pressure, load, memory_available_bytes } = host::condition_now(&Roots::default());
        let payload = artifacts.iter().map(|artifact| artifact.payload_bytes).sum();
        let resident = artifacts.iter().map(|artifact| artifact.resident_at_start_bytes).sum();
        Condition {
            artifacts: residency_word(payload, resident).to_owned(),
            asked: None,
            reached: None,
            not_touched: Vec::new(),
            state: BTreeMap::new(),
            pressure,
            load,
            memory_available_bytes,
        }
    }
}

/// The words for how much of the artifacts is resident.
pub const COLD: &str = "artifact-cold";
pub const WARM: &str = "artifact-warm";
pub const PARTIAL: &str = "partial";
pub const UNVERIFIED: &str = "unverified";

/// The condition that a word of `--cache` asks for; `None` of one that asks for nothing.
pub fn wished(asked: &str) -> Option<&'static str> {
    match asked {
        "cold" => Some(COLD),
        "warm" => Some(WARM),
        _ => None,
    }
}

/// Under 1% of the payload resident is cold, over 99% warm; what is not known of every artifact is not called either.
pub fn residency_word(payload: Option<u64>, resident: Option<u64>) -> &'static str {
    match (payload, resident) {
        (Some(payload), Some(resident)) if payload > 0 => {
            let percent = |share: u128| u128::from(payload) * share / 100;
            match u128::from(resident) {
                resident if resident <= percent(1) => COLD,
                resident if resident >= percent(99) => WARM,
                _ => PARTIAL,
            }
        }
        _ => UNVERIFIED,
    }
}
