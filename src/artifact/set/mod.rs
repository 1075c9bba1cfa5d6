//! Which files a launch is about: declared, named by the command line, or discovered.
//!
//! Looks only where it was pointed: it goes into no folder of a folder, and an index may name no file outside of its
//! own folder. Nothing found is a failure; the launch goes on and the warnings say what is missing.

mod arguments;
mod folder;
mod hub;
mod index;

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Artifact, Format};
use crate::event::{Found, text_of};
use arguments::Argument;

/// What the command line and the environment say of the artifacts, before exec.
#[derive(Debug, Default)]
pub struct Resolution {
    /// Opened, each file once (by device and inode), in a stable order.
    pub artifacts: Vec<Artifact>,
    /// What could not be resolved or read, and what is odd, for people, naming path and remedy.
    pub warnings: Vec<String>,
    /// How many of the warnings say that something is missing or could not be understood.
    pub failures: usize,
}

/// Finds the artifacts of a launch before it starts.
///
/// `declared` are the `--artifact` paths: files, indexes, or directories; `raw:PATH` is a file that is all payload.
/// Where none is declared the command line is searched: an argument, or the value in `--flag=value`, that is a model
/// file, an index, or a directory that holds some; or a Hugging Face id resolved in the local cache through
/// `environment`. Relative paths are relative to `directory`.
pub fn resolve(
    declared: &[PathBuf],
    argv: &[OsString],
    environment: &BTreeMap<OsString, OsString>,
    directory: &Path,
) -> Resolution {
    let mut search = Search::default();
    if declared.is_empty() {
        search.command_line(argv, environment, directory);
    } else {
        declared.iter().for_each(|path| search.declared(path, directory));
    }
    search.resolution
}

/// Extensions of model files, in lower case.
const EXTENSIONS: &[&str] =
    &["safetensors", "gguf", "ggml", "pt", "pth", "pt2", "bin", "ckpt", "onnx", "onnx_data", "npz", "npy"];

/// Whether a file that a process opened or mapped is worth a look as an artifact, by its name alone.
///
/// Besides the extensions of model files, the names that content-addressed model caches give their files: a SHA-256
/// in a folder `blobs`. A trailing ` (deleted)` is the caller's to take off.
pub fn has_model_name(path: &OsStr) -> bool {
    let path = Path::new(path);
    let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    if extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
        return true;
    }
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    let digest = name.strip_prefix(b"sha256-").unwrap_or(name);
    digest.len() == 64
        && digest.iter().all(u8::is_ascii_hexdigit)
        && path.parent().and_then(Path::file_name) == Some(OsStr::new("blobs"))
}

/// A search in progress.
#[derive(Default)]
struct Search {
    resolution: Resolution,
    seen: HashSet<(u64, u64)>,
}

impl Search {
    fn declared(&mut self, path: &Path, directory: &Path) {
        if let Some(raw) = path.as_os_str().as_bytes().strip_prefix(b"raw:") {
            let path = directory.join(OsStr::from_bytes(raw));
            match Artifact::open_raw(&path, Found::Declared) {
                Ok(artifact) => self.take(artifact),
                Err(error) => self.fail(error.to_string()),
            }
            return;
        }
        let path = directory.join(path);
        match folder::members(&path) {
            Ok(members) => {
                if members.files.is_empty() && members.warnings.is_empty() {
                    self.fail(format!(
                        "{}: no model files are in this folder itself; name the files, an index, or the folder they are in",
                        text_of(&path)
                    ));
                }
                self.members(members, &Found::Declared);
            }
            Err(error) => self.fail(format!("{}: {error}", text_of(&path))),
        }
    }

    fn command_line(&mut self, argv: &[OsString], environment: &BTreeMap<OsString, OsString>, directory: &Path) {
        let revision = arguments::revision(argv);
        for Argument { value, names_model } in arguments::candidates(argv) {
            let path = directory.join(value);
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => {
                    if let Ok(members) = folder::members(&path) {
                        self.members(members, &Found::CommandLine);
                    }
                }
                Ok(metadata) if metadata.is_file() => self.named_file(&path),
                // Not there under this name; perhaps it is an id.
                _ => {
                    if let Some(id) = names_model.then(|| hub::Id::parse(value)).flatten() {
                        self.hub(&id, revision, environment, directory);
                    } else if names_model && has_model_name(value) {
                        self.fail(format!(
                            "{}: not found, though the command line names it as the model",
                            text_of(&path)
                        ));
                    }
                }
            }
        }
    }

    /// A file that stands on the command line: most are no model.
    fn named_file(&mut self, path: &Path) {
        if arguments::is_script(path) {
            return;
        }
        if index::is_index(path) || folder::split(path).is_some() {
            if let Ok(members) = folder::members(path) {
                self.members(members, &Found::CommandLine);
            }
            return;
        }
        match Artifact::open(path, Found::CommandLine) {
            Ok(artifact) if artifact.format != Format::Unknown => self.take(artifact),
            // By name a model of a format that is not read here. `.bin` is too common a name to go by.
            Ok(artifact) if has_model_name(path.as_os_str()) && !folder::has_extension(path, &["bin"]) => {
                self.take(artifact);
            }
            Ok(_) => {}
            Err(error) if has_model_name(path.as_os_str()) => self.fail(error.to_string()),
            Err(_) => {}
        }
    }

    fn hub(
        &mut self,
        id: &hub::Id,
        revision: Option<&OsStr>,
        environment: &BTreeMap<OsString, OsString>,
        directory: &Path,
    ) {
        match hub::snapshot(id, revision, environment, directory) {
            Ok(snapshot) => match folder::members(&snapshot.folder) {
                Ok(mut members) => {
                    id.keep_quantisation(&mut members.files);
                    if members.files.is_empty() && members.warnings.is_empty() {
                        self.fail(format!(
                            "{}: no model files in the cached snapshot {}; download them first, or say --artifact PATH",
                            id.repository,
                            text_of(&snapshot.folder)
                        ));
                    }
                    let found =
                        Found::HubCache { repository: id.repository.clone(), revision: snapshot.commit.clone() };
                    self.members(members, &found);
                }
                Err(error) => self.fail(format!("{}: {error}", text_of(&snapshot.folder))),
            },
            Err(reason) => self.fail(reason),
        }
    }

    fn members(&mut self, members: folder::Members, found: &Found) {
        members.warnings.into_iter().for_each(|warning| self.fail(warning));
        for path in members.files {
            match Artifact::open(&path, found.clone()) {
                Ok(artifact) => self.take(artifact),
                Err(error) => self.fail(error.to_string()),
            }
        }
    }

    fn take(&mut self, artifact: Artifact) {
        if !self.seen.insert((artifact.device, artifact.inode)) {
            return;
        }
        let path = text_of(&artifact.path);
        match &artifact.layout {
            Ok(layout) => {
                self.resolution.warnings.extend(layout.notes.iter().map(|note| format!("{path}: {note}")));
            }
            Err(reason) => self.fail(format!("{path}: the payload is unknown: {reason}")),
        }
        self.resolution.artifacts.push(artifact);
    }

    fn fail(&mut self, warning: String) {
        self.resolution.failures += 1;
        self.resolution.warnings.push(warning);
    }
}
