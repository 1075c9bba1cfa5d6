//! What a model file is: its format, where its tensors lie, and which files a launch is about.
//!
//! Headers are read with random-access advice and `pread`, so that looking does not fill the page cache, and parsed
//! with bounds: nothing in an artifact is executed, unpickled or trusted. A file that cannot be understood is still an
//! artifact; its payload is unknown, with the reason.

pub mod extent;
pub mod format;
mod header;
pub mod locate;
pub mod set;

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::text_of;
pub use crate::event::{ArtifactId, Found};
use extent::Ranges;
pub use format::{External, ExternalTensor};
use header::HeaderReader;
pub(crate) use header::{hexadecimal, sha256};

/// A model file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Safetensors,
    Gguf,
    /// A zip file as `torch.save` writes it. Its tensors are its storages, by the names of their entries.
    TorchZip,
    /// The pickle stream that `torch.save` wrote before zip: recognised, never read.
    TorchLegacy,
    /// A protobuf of graphs, with its tensors in itself or in files beside it ([`Layout::external`]).
    Onnx,
    /// A file that an ONNX model beside it names as holding tensors' data; what lies where in it, the model says.
    OnnxData,
    /// One array of NumPy.
    Npy,
    /// A zip file of arrays of NumPy, as `numpy.savez` writes it.
    Npz,
    /// Declared as bytes without a header: all of it is payload.
    Raw,
    Unknown,
}

/// A tensor as the header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    /// The format's own word for it (`BF16`, `Q4_K`, `type 200`, `bfloat16`); empty where the header does not say.
    pub dtype: String,
    /// Elements per dimension, in the file's order (GGUF: the innermost first); empty where the header does not say.
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
    /// Payload bytes by dtype, each byte once; `unknown` where the header does not say, `other` for
    /// all dtypes past the first thousand.
    pub by_dtype: BTreeMap<String, u64>,
    /// What is odd about the file and does not make its payload unknown, for people, with the byte's offset.
    pub notes: Vec<String>,
    /// What lies in other files, by the file: of ONNX. No part of `tensors` and `payload`, which are of this file.
    pub external: Vec<External>,
}

/// A model file, opened.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// As it was found, made absolute.
    pub path: PathBuf,
    /// With every symlink resolved.
    pub real_path: PathBuf,
    /// Held open from before the exec, where it was known by then: on FUSE a second open would empty the page cache. What
    /// was found there later is not open (`O_PATH`).
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
    /// SHA-256 of the header as it stands in the file, in hexadecimal: of the length and the JSON of safetensors, of
    /// all up to the last tensor's description in GGUF, of the central directory of a zip file (which holds a checksum
    /// of each storage), of a `.npy` up to its data, of ONNX but for tensors' data and what else is longer than 64 KiB.
    /// Absent for formats without one, and where it could not be read.
    pub header_digest: Option<String>,
}

/// What is wrong with a model file, and where.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The file could not be opened or read.
    #[error("{}: {source}", text_of(path))]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The header contradicts itself or the file.
    #[error("{}: at byte {offset}: {problem}", text_of(path))]
    Malformed { path: PathBuf, offset: u64, problem: String },
    /// A directory, a device, a loop of links…
    #[error("{}: {problem}", text_of(path))]
    NotAModel { path: PathBuf, problem: String },
}

impl ArtifactError {
    /// The problem without the path, for where that stands beside it.
    pub fn reason(&self) -> String {
        match self {
            ArtifactError::Io { source, .. } => source.to_string(),
            ArtifactError::Malformed { offset, problem, .. } => format!("at byte {offset}: {problem}"),
            ArtifactError::NotAModel { problem, .. } => problem.clone(),
        }
    }
}

impl Artifact {
    /// Opens a file and reads its header.
    ///
    /// A header that is malformed or unreadable gives an artifact whose layout is the reason; only a file that cannot
    /// be opened at all, or is not a regular file, is an error.
    pub fn open(path: &Path, found: Found) -> Result<Artifact, ArtifactError> {
        let mut artifact = Artifact::open_raw(path, found)?;
        let mut reader = HeaderReader::new(&artifact.path, &artifact.file, artifact.size);
        let (format, parsed) = format::read(&artifact.path, &mut reader);
        artifact.format = format;
        match parsed {
            Ok(parsed) => {
                artifact.layout = Ok(Arc::new(parsed.layout));
                artifact.header_digest = Some(parsed.digest);
            }
            Err(error) => artifact.layout = Err(error.reason()),
        }
        Ok(artifact)
    }

    /// Opens a file as bytes without a header: all of it is payload.
    pub fn open_raw(path: &Path, found: Found) -> Result<Artifact, ArtifactError> {
        let failed = |source| ArtifactError::Io { path: path.to_owned(), source };
        let regular = |metadata: std::fs::Metadata| {
            if metadata.is_file() {
                return Ok(metadata);
            }
            let problem = if metadata.is_dir() { "is a directory" } else { "is not a regular file" };
            Err(ArtifactError::NotAModel { path: path.to_owned(), problem: problem.into() })
        };
        // Asked before the open, for that can do something to a device; and after, of the very file that was opened.
        regular(std::fs::metadata(path).map_err(failed)?)?;
        // Without O_NONBLOCK the open of a FIFO that has just come into the file's place would wait for a writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
        let metadata = regular(file.metadata().map_err(failed)?)?;
        let layout = Ok(Arc::new(format::raw(metadata.size())));
        Artifact::of_file(path, file, &metadata, found, Format::Raw, layout).map_err(failed)
    }

    /// A file that must not be opened: only found, so that it has an identity and a length, and nothing of it is read.
    /// Its payload is unknown because of `why`.
    pub fn unopened(path: &Path, found: Found, why: String) -> Result<Artifact, ArtifactError> {
        let failed = |source| ArtifactError::Io { path: path.to_owned(), source };
        // Of this the filesystem is not told (open(2), O_PATH).
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(ArtifactError::NotAModel { path: path.to_owned(), problem: "is not a regular file".into() });
        }
        Artifact::of_file(path, file, &metadata, found, Format::Unknown, Err(why)).map_err(failed)
    }

    /// By what stat(2) says of a regular file that is held by its descriptor.
    fn of_file(
        path: &Path,
        file: File,
        metadata: &Metadata,
        found: Found,
        format: Format,
        layout: Result<Arc<Layout>, String>,
    ) -> std::io::Result<Artifact> {
        Ok(Artifact {
            path: std::path::absolute(path)?,
            real_path: std::fs::canonicalize(path)?,
            file: Arc::new(file),
            size: metadata.size(),
            device: metadata.dev(),
            inode: metadata.ino(),
            modified_ns: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
            found,
            format,
            layout,
            header_digest: None,
        })
    }

    /// Payload bytes, where known.
    pub fn payload_bytes(&self) -> Option<u64> {
        self.layout.as_ref().ok().map(|layout| layout.payload.len())
    }

    /// The ranges whose residency is asked for: the payload, or the whole file where the payload is unknown.
    pub fn watched_ranges(&self) -> Ranges {
        match &self.layout {
            Ok(layout) => layout.payload.clone(),
            Err(_) => std::iter::once(0..self.size).collect(),
        }
    }
}
