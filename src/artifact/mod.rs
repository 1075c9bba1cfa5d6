//! What a model file is: its format, where its tensors lie, and which files a launch is about.
//!
//! Headers are read with random-access advice and `pread`, so that looking does not fill the page cache, and parsed
//! with bounds: nothing in an artifact is executed, unpickled or trusted. A file that cannot be understood is still an
//! artifact; its payload is unknown, with the reason.

pub mod extent;
pub mod format;
pub mod set;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::event::{ArtifactId, Found};
use extent::Ranges;

/// A model file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Safetensors,
    Gguf,
    /// A zip file as `torch.save` writes it.
    TorchZip,
    /// The pickle stream that `torch.save` wrote before zip: recognised, never read.
    TorchLegacy,
    /// Declared as bytes without a header: all of it is payload.
    Raw,
    Unknown,
}

/// A tensor as the header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    /// The format's own word for it (`F32`, `BF16`, `Q4_K`, `type 39`); empty where the header does not say.
    pub dtype: String,
    /// Elements per dimension; empty where the header does not say.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub length: u64,
}

/// Where an artifact's tensors lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// In file order. Two tensors may share a storage; their bytes count once in `payload`.
    pub tensors: Vec<Tensor>,
    /// The payload: the union of the tensors' bytes.
    pub payload: Ranges,
    /// Payload bytes by dtype, each byte once.
    pub by_dtype: BTreeMap<String, u64>,
}

/// A model file, opened.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// As it was found, made absolute.
    pub path: PathBuf,
    /// With every symlink resolved.
    pub real_path: PathBuf,
    /// Held open from before the exec, where it was known by then: on FUSE a second open would empty the page cache.
    pub file: Arc<File>,
    /// Bytes (stat(2)).
    pub size: u64,
    pub device: u64,
    pub inode: u64,
    /// Last modification, nanoseconds since 1970.
    pub modified_ns: i64,
    pub found: Found,
    pub format: Format,
    /// `Err` is the reason why the payload is unknown.
    pub layout: Result<Arc<Layout>, String>,
    /// SHA-256 of the header as it stands in the file, in hexadecimal; absent for formats without one.
    pub header_digest: Option<String>,
}

/// What is wrong with a model file, and where.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The file could not be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The header contradicts itself or the file.
    #[error("{}: at byte {offset}: {problem}", path.display())]
    Malformed { path: PathBuf, offset: u64, problem: String },
    /// A directory, a device, a loop of links…
    #[error("{}: {problem}", path.display())]
    NotAModel { path: PathBuf, problem: String },
}

impl Artifact {
    /// Opens a file and reads its header.
    ///
    /// A header that is malformed or unreadable gives an artifact whose layout is the reason; only a file that cannot
    /// be opened at all, or is not a regular file, is an error.
    pub fn open(path: &Path, found: Found) -> Result<Artifact, ArtifactError> {
        let _ = (path, found);
        todo!()
    }

    /// Payload bytes, where known.
    pub fn payload_bytes(&self) -> Option<u64> {
        self.layout.as_ref().ok().map(|layout| layout.payload.len())
    }

    /// The ranges whose residency is asked for: the payload, or the whole file where the payload is unknown.
    pub fn watched_ranges(&self) -> Ranges {
        match &self.layout {
            Ok(layout) => layout.payload.clone(),
            Err(_) => Ranges::from_iter([0..self.size]),
        }
    }
}
