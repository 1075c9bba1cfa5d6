//! Which files a launch is about: declared, named by the command line, or discovered.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::Artifact;

/// What the command line and the environment say of the artifacts, before exec.
#[derive(Debug, Default)]
pub struct Resolution {
    /// Opened, each file once (by device and inode), in a stable order.
    pub artifacts: Vec<Artifact>,
    /// What could not be resolved or read, for people, naming path and remedy.
    pub warnings: Vec<String>,
}

/// Finds the artifacts of a launch before it starts.
///
/// `declared` are the `--artifact` paths: files, indexes, or directories. Where none is declared the command line is
/// searched: an argument, or the value in `--flag=value`, that is a model file, an index, or a directory that holds
/// some; or a Hugging Face id resolved in the local cache through `environment`.
pub fn resolve(
    declared: &[PathBuf],
    argv: &[OsString],
    environment: &BTreeMap<OsString, OsString>,
    directory: &Path,
) -> Resolution {
    let _ = (declared, argv, environment, directory);
    todo!()
}

/// Whether a file that a process opened or mapped is worth a look as an artifact, by its name alone.
pub fn has_model_name(path: &OsStr) -> bool {
    let _ = path;
    todo!()
}
