//! What was measured, raw: every repeat of every rank. All tables are derived from it, now or later.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::destination::Kind;
use super::rank::Pass;
use super::way::Way;

/// The version of the form. A reader refuses a larger one.
pub const SCHEMA: u32 = 1;

/// Longest file that is read.
const LONGEST: u64 = 256 << 20;

/// `copy-paths.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub schema: u32,
    /// The version of stagemark that made it.
    pub stagemark: String,
    /// Wall-clock time of the beginning, UTC, RFC 3339.
    pub started: String,
    pub environment: Environment,
    pub artifacts: Vec<ArtifactOf>,
    pub tensors: Tensors,
    /// Counted repeats; repeat 0 is the warm-up, whose bytes were compared.
    pub repeats: u32,
    pub places: Vec<Place>,
    pub warnings: Vec<String>,
    /// How far it came.
    #[serde(default)]
    pub state: Progress,
    /// What ended it before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How far a measurement came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// It runs, or was killed.
    Running,
    #[default]
    Done,
    /// By a signal; what was measured before is kept.
    Interrupted,
    /// Something that it needs could not be had, when other things had been measured.
    Failed,
}

/// The machine, as far as it bears on copies. What could not be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    pub cpu_model: Option<String>,
    pub logical_cpus: Option<u64>,
    /// CPUs that this process may run on.
    pub affinity_cpus: Option<u64>,
    pub numa_nodes: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    /// The tightest limit of a control group on memory.
    pub memory_limit_bytes: Option<u64>,
    pub kernel_release: Option<String>,
    pub page_size_bytes: Option<u64>,
    pub transparent_huge_pages: Option<String>,
    pub virtualisation: Vec<String>,
    /// Graphics processors and the like: name, driver and link, in words.
    pub devices: Vec<String>,
}

/// A file that was copied from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactOf {
    pub path: String,
    pub format: String,
    pub size_bytes: u64,
    pub header_digest: Option<String>,
}

/// The tensors that were copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensors {
    pub chosen: u64,
    pub of: u64,
    /// Of the chosen ones, as they were copied.
    pub bytes: u64,
    pub largest_bytes: u64,
}

/// Where the artifact lay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The folder; a copy there had no name.
    pub directory: String,
    pub is_copy: bool,
    pub filesystem: Option<String>,
    /// What lies behind it, in words: `/models (ext4) → nvme0n1`.
    pub storage: Vec<String>,
    pub series: Vec<Series>,
}

/// One way at one place, to one destination, by so many ranks at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub destination: Kind,
    pub ranks: u32,
    pub way: Way,
    /// Why it could not be measured here.
    pub refused: Option<String>,
    pub passes: Vec<Measured>,
}

/// One rank's pass in one repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub repeat: u32,
    /// Which of the ways of its repeat it was, from 0.
    pub position: u32,
    pub rank: u32,
    /// Of the tensors' bytes, before; absent with its reason.
    pub resident_before_bytes: Option<u64>,
    pub resident_before_reason: Option<String>,
    #[serde(flatten)]
    pub pass: Pass,
}

impl Record {
    /// Whether something was measured in all ways at least once, the warm-up not counted.
    pub fn is_of_use(&self) -> bool {
        self.places.iter().flat_map(super::summary::groups).any(|group| group.repeats > 0)
    }

    /// Reads one that was written.
    pub fn load(path: &Path) -> anyhow::Result<Record> {
        let told = || crate::event::text_of(path);
        let length = std::fs::metadata(path).with_context(told)?.len();
        anyhow::ensure!(length <= LONGEST, "{}: larger than {LONGEST} bytes", told());
        let bytes = crate::run::read_file(path).with_context(told)?;
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let not_one = || format!("{}: not what `stagemark copy-paths --out` wrote", told());
        let Version { schema } = serde_json::from_slice(&bytes).with_context(not_one)?;
        anyhow::ensure!(schema <= SCHEMA, "{}: made by a later stagemark (schema {schema})", told());
        serde_json::from_slice(&bytes).with_context(not_one)
    }
}

impl Series {
    /// The counted repeats in their order, each with the passes of all its ranks; one that lacks a rank is left out.
    pub fn repeats(&self) -> Vec<Vec<&Measured>> {
        let mut repeats: BTreeMap<u32, Vec<&Measured>> = BTreeMap::new();
        for measured in self.passes.iter().filter(|measured| measured.repeat > 0) {
            repeats.entry(measured.repeat).or_default().push(measured);
        }
        repeats.into_values().filter(|passes| passes.len() == self.ranks as usize).collect()
    }
}
