//! Which files a launch is about: declared, named by the command line, or discovered.
//!
//! Looks only where it was pointed: into the folders of a folder only where that is what the model is (a pipeline of
//! several parts) or where the folder was named as the model and holds no model files itself, and no deeper; an index
//! may name no file outside of its own folder. Nothing found is a failure; the launch goes on and the warnings say what is missing.

mod arguments;
mod external;
mod folder;
mod hub;
mod index;
mod shell;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Artifact, ArtifactError, Format, format};
use crate::event::{Found, text_of};
use arguments::Argument;
use folder::has_extension;

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
/// `environment`. The words of a shell's `-c` argument are searched too. Relative paths are relative to `directory`.
pub fn resolve(
    declared: &[PathBuf],
    argv: &[OsString],
    environment: &BTreeMap<OsString, OsString>,
    directory: &Path,
) -> Resolution {
    let mut search = Search { of_launch: !argv.is_empty(), ..Search::default() };
    if declared.is_empty() {
        search.command_line(argv, environment, Some(directory), SHELLS);
    } else {
        declared.iter().for_each(|path| search.declared(path, directory));
    }
    search.resolution
}

/// Extensions of model files, in lower case.
const EXTENSIONS: &[&str] =
    &["safetensors", "gguf", "ggml", "pt", "pth", "pt2", "bin", "ckpt", "onnx", ONNX_DATA, "npz", "npy"];

/// Extension of the files that hold what is too much for one ONNX file; of further ones a number follows.
const ONNX_DATA: &str = "onnx_data";

/// Shells within shells whose scripts are searched.
const SHELLS: u32 = 3;

/// Whether a file that a process opened or mapped is worth a look as an artifact, by its name alone.
///
/// Besides the extensions of model files, the names that content-addressed model caches give their files: a SHA-256
/// in a folder `blobs`. A trailing ` (deleted)` is the caller's to take off.
pub fn has_model_name(path: &OsStr) -> bool {
    let path = Path::new(path);
    let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    if extension.is_some_and(|extension| {
        EXTENSIONS.contains(&extension.as_str()) || extension.starts_with(&format!("{ONNX_DATA}_"))
    }) {
        return true;
    }
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    if name.ends_with(b".onnx.data") && name.len() > b".onnx.data".len() {
        return true;
    }
    blob_digest(path).is_some()
}

/// The SHA-256 of its contents by which a content-addressed cache names a file: `blobs/DIGEST` (Hugging Face),
/// `blobs/sha256-DIGEST` (Ollama).
pub fn blob_digest(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let digest = name.strip_prefix("sha256-").unwrap_or(name);
    let is_blob = digest.len() == 64
        && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
        && path.parent().and_then(Path::file_name) == Some(OsStr::new("blobs"));
    is_blob.then_some(digest)
}

/// Opens a file that the tree was seen to open or map; `None` if it is no model after all.
///
/// A `.pth` or `.pt` must hold what `torch.save` writes: every Python start reads the `.pth` files of its
/// site-packages, which are lists of paths.
///
/// # Errors
/// Where it cannot be opened, or is not a regular file.
pub fn discover(path: &Path) -> Result<Option<Artifact>, ArtifactError> {
    let artifact = if_model(path, Found::Discovered)?;
    Ok(artifact.filter(|artifact| !has_extension(path, &["pt", "pth"]) || format::is_known_content(&artifact.file)))
}

/// The files that a discovered model names as holding its data, and what is missing of them.
pub fn discover_named_by(model: &Artifact) -> (Vec<Artifact>, Vec<String>) {
    external::named_by(model)
}

/// The same of a file that must not be opened, because of `why`: by its name alone, where that is enough.
///
/// # Errors
/// Where it cannot be found, or is not a regular file.
pub fn discover_unopened(path: &Path, why: String) -> Result<Option<Artifact>, ArtifactError> {
    if !is_model_by_name(path) || has_extension(path, &["pt", "pth"]) {
        return Ok(None);
    }
    Artifact::unopened(path, Found::Discovered, why).map(Some)
}

/// Whether a file's name is that of a model format, and of nothing else.
fn is_model_by_name(path: &Path) -> bool {
    has_model_name(path.as_os_str()) && !has_extension(path, &["bin", "npy", "npz"])
}

/// A file that nobody declared is an artifact if its content is a model's, or if its name is that of a model format
/// which is not read here. `.bin` is too common a name to go by, NumPy's files are inputs as often as models and would
/// make the totals absent where they cannot be read, and a script is none whatever it holds.
fn if_model(path: &Path, found: Found) -> Result<Option<Artifact>, ArtifactError> {
    if arguments::is_script(path) {
        return Ok(None);
    }
    let artifact = open(path, found)?;
    let is_one = match artifact.format {
        Format::Unknown => is_model_by_name(path),
        Format::Npy | Format::Npz => artifact.layout.is_ok(),
        _ => true,
    };
    Ok(Some(artifact).filter(|_| is_one))
}

/// Opens a file by its content, or by what a model beside it says of that.
fn open(path: &Path, found: Found) -> Result<Artifact, ArtifactError> {
    Artifact::open(path, found).map(external::adopted)
}

/// What is said of a path declared for a launch that cannot be had. A mistyped one must not pass for a model that nobody
/// loaded.
fn declared_in_vain(path: &Path, problem: &str) -> String {
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return format!(
            "{problem}: nothing is measured of it; correct the path if it is mistyped. A file that appears while a command \
             runs is found when it is opened, unless another artifact was declared"
        );
    }
    problem.to_owned()
}

/// A search in progress.
#[derive(Default)]
struct Search {
    resolution: Resolution,
    /// Whether a command is to be run.
    of_launch: bool,
    /// Their places in the resolution, by device and inode.
    seen: HashMap<(u64, u64), usize>,
}

impl Search {
    fn declared(&mut self, path: &Path, directory: &Path) {
        if let Some(raw) = path.as_os_str().as_bytes().strip_prefix(b"raw:") {
            let path = directory.join(OsStr::from_bytes(raw));
            match Artifact::open_raw(&path, Found::Declared) {
                Ok(artifact) => self.take(artifact),
                Err(error) => self.in_vain(&path, error.to_string()),
            }
            return;
        }
        let path = directory.join(path);
        match folder::members_below(&path) {
            Ok(members) => {
                if members.files.is_empty() && members.warnings.is_empty() {
                    self.fail(format!(
                        "{}: no model files are in this folder or in its folders; name the files or an index",
                        text_of(&path)
                    ));
                }
                self.members(members, &Found::Declared);
            }
            Err(error) => self.in_vain(&path, format!("{}: {error}", text_of(&path))),
        }
    }

    fn in_vain(&mut self, path: &Path, problem: String) {
        self.fail(if self.of_launch { declared_in_vain(path, &problem) } else { problem });
    }

    /// `directory` is what relative paths are relative to, where that is known.
    fn command_line(
        &mut self,
        argv: &[OsString],
        environment: &BTreeMap<OsString, OsString>,
        directory: Option<&Path>,
        shells: u32,
    ) {
        let revision = arguments::revision(argv);
        for Argument { value, names_model } in arguments::candidates(argv) {
            let at = |value: &OsStr| directory.map_or_else(|| PathBuf::from(value), |directory| directory.join(value));
            let path = at(value);
            // A relative path of an unknown place is not looked up; it may still be an id.
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() && path.is_absolute() => {
                    let members = if names_model { folder::members_below(&path) } else { folder::members(&path) };
                    if let Ok(members) = members {
                        self.members(members, &Found::CommandLine);
                    }
                }
                Ok(metadata) if metadata.is_file() && path.is_absolute() => self.named_file(&path),
                // Not there under this name; perhaps it is several, or an id.
                _ => {
                    let several = arguments::listed(value).map(at);
                    let several: Vec<PathBuf> = several.filter(|path| path.is_absolute() && path.is_file()).collect();
                    several.iter().for_each(|path| self.named_file(path));
                    if !several.is_empty() {
                        continue;
                    }
                    if let Some(id) = names_model.then(|| hub::Id::parse(value)).flatten() {
                        self.hub(&id, revision, environment, directory.unwrap_or(Path::new("/")));
                    } else if names_model && has_model_name(value) && path.is_absolute() {
                        self.fail(format!(
                            "{}: not found, though the command line names it as the model",
                            text_of(&path)
                        ));
                    }
                }
            }
        }
        if let Some(at) = shell::script_at(argv).filter(|_| shells > 0) {
            self.script(&argv[at], environment, directory, shells - 1);
        }
    }

    /// What a shell was given to run. Its changes of directory are followed where they are plain words.
    fn script(
        &mut self,
        script: &OsStr,
        environment: &BTreeMap<OsString, OsString>,
        directory: Option<&Path>,
        shells: u32,
    ) {
        let mut directory = directory.map(Path::to_owned);
        for words in shell::commands(script) {
            if words[0] == "cd" || words[0] == "pushd" {
                directory = match words.as_slice() {
                    [_, place] if !place.is_empty() && !place.as_bytes().starts_with(b"-") => {
                        let place = directory.map_or_else(|| PathBuf::from(place), |directory| directory.join(place));
                        Some(place).filter(|place| place.is_absolute())
                    }
                    _ => None,
                };
            } else {
                self.command_line(&words, environment, directory.as_deref(), shells);
            }
        }
    }

    /// A file that stands on the command line: most are no model.
    fn named_file(&mut self, path: &Path) {
        if index::is_index(path) || folder::split(path).is_some() {
            if let Ok(members) = folder::members(path) {
                self.members(members, &Found::CommandLine);
            }
            return;
        }
        match if_model(path, Found::CommandLine) {
            Ok(Some(artifact)) => self.take(artifact),
            Ok(None) => {}
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
            Ok(snapshot) => match folder::members_below(&snapshot.folder) {
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
            match open(&path, found.clone()) {
                Ok(artifact) => self.take(artifact),
                Err(error) => self.fail(error.to_string()),
            }
        }
    }

    fn take(&mut self, artifact: Artifact) {
        match self.seen.entry((artifact.device, artifact.inode)) {
            Entry::Occupied(place) => {
                let index = *place.get();
                return self.take_again(index, artifact);
            }
            Entry::Vacant(place) => place.insert(self.resolution.artifacts.len()),
        };
        let path = text_of(&artifact.path);
        match &artifact.layout {
            Ok(layout) => {
                self.resolution.warnings.extend(layout.notes.iter().map(|note| format!("{path}: {note}")));
            }
            Err(reason) => self.fail(format!("{path}: the payload is unknown: {reason}")),
        }
        let (files, warnings) = external::named_by(&artifact);
        self.resolution.artifacts.push(artifact);
        warnings.into_iter().for_each(|warning| self.fail(warning));
        files.into_iter().for_each(|file| self.take(file));
    }

    /// A file that is in the set already. Where several models have their data in it, it is all of theirs.
    fn take_again(&mut self, index: usize, artifact: Artifact) {
        let known = &mut self.resolution.artifacts[index];
        if artifact.format != Format::OnnxData {
            return;
        }
        let layout = match (known.format, &known.layout, &artifact.layout) {
            (Format::Onnx | Format::OnnxData, Ok(known), Ok(other)) => Ok(external::joined(known, other).into()),
            (Format::Onnx | Format::OnnxData, Ok(_), Err(reason)) => Err(reason.clone()),
            (Format::Unknown, Err(_), _) => artifact.layout.clone(),
            _ => return,
        };
        if known.format == Format::Unknown {
            known.format = Format::OnnxData;
        }
        let told =
            layout.as_ref().err().map(|reason| format!("{}: the payload is unknown: {reason}", text_of(&known.path)));
        known.layout = layout;
        told.into_iter().for_each(|warning| self.fail(warning));
    }

    fn fail(&mut self, warning: String) {
        self.resolution.failures += 1;
        self.resolution.warnings.push(warning);
    }
}
