//! Hugging Face ids, resolved in the local cache: what the loader would find there. Nothing is downloaded.
//!
//! The cache's form: `models--ORG--NAME/refs/REVISION` holds a commit, `models--ORG--NAME/snapshots/COMMIT/` the files,
//! links into `models--ORG--NAME/blobs/`
//! (<https://huggingface.co/docs/huggingface_hub/guides/manage-cache>).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::event::text_of;

/// `ORG/NAME`, in llama.cpp's flags also `ORG/NAME:QUANTISATION`.
#[derive(Debug, PartialEq, Eq)]
pub struct Id {
    pub repository: String,
    quantisation: Option<String>,
}

/// A snapshot in the cache.
#[derive(Debug)]
pub struct Snapshot {
    pub folder: PathBuf,
    /// The name of the folder: the commit that the revision stands for.
    pub commit: String,
}

impl Id {
    /// An id, if the argument has the form of one.
    pub fn parse(argument: &OsStr) -> Option<Id> {
        let text = argument.to_str()?;
        let (repository, quantisation) = match text.split_once(':') {
            Some((repository, quantisation)) => (repository, Some(quantisation.to_owned())),
            None => (text, None),
        };
        let (organisation, name) = repository.split_once('/')?;
        let is_part = |part: &str| {
            (1..=96).contains(&part.len())
                && part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
                && !part.contains("..")
                && !part.contains("--")
        };
        let simple = quantisation.as_deref().is_none_or(is_part);
        (simple && is_part(organisation) && is_part(name))
            .then(|| Id { repository: repository.to_owned(), quantisation })
    }

    /// Keeps the files of the quantisation that was asked for, if there are some.
    pub fn keep_quantisation(&self, files: &mut Vec<PathBuf>) {
        let Some(wanted) = self.quantisation.as_ref().map(|wanted| wanted.to_ascii_lowercase()) else { return };
        let fits = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().contains(&wanted))
        };
        if files.iter().any(fits) {
            files.retain(fits);
        }
    }
}

/// Finds the snapshot that a loader would use; `Err` says where it was looked for.
pub fn snapshot(
    id: &Id,
    revision: Option<&OsStr>,
    environment: &BTreeMap<OsString, OsString>,
    directory: &Path,
) -> Result<Snapshot, String> {
    let repository = &id.repository;
    let Some(cache) = cache(environment, directory) else {
        return Err(format!("{repository}: no Hugging Face cache to look in: neither HF_HOME nor HOME is set"));
    };
    let model = cache.join(format!("models--{}", repository.replace('/', "--")));
    let revision = revision.unwrap_or(OsStr::new("main"));
    let named = |problem: &str| {
        format!(
            "{repository} at revision {}: {problem} ({}); download it first, or say --artifact PATH",
            text_of(revision),
            text_of(&model)
        )
    };
    if !model.is_dir() {
        return Err(named("not in the local cache"));
    }
    if !Path::new(revision).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(named("no name of a revision"));
    }
    // A revision is a branch or tag, which a file of refs/ turns into a commit, or a commit itself.
    let commit = match File::open(model.join("refs").join(revision)) {
        Ok(file) => {
            let mut commit = String::new();
            file.take(4096).read_to_string(&mut commit).map_err(|error| named(&error.to_string()))?;
            commit.trim().to_owned()
        }
        Err(_) => text_of(revision),
    };
    let mut parts = Path::new(&commit).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
        return Err(named("what refs/ holds is no commit"));
    }
    let folder = model.join("snapshots").join(&commit);
    if !folder.is_dir() {
        return Err(named("no snapshot of it in the local cache"));
    }
    Ok(Snapshot { folder, commit })
}

/// The cache's folder, by the rules of the `huggingface_hub` package.
fn cache(environment: &BTreeMap<OsString, OsString>, directory: &Path) -> Option<PathBuf> {
    let set = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
    let home = set("HOME").map(PathBuf::from);
    let path = |value: &OsString| match (Path::new(value).strip_prefix("~"), &home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => directory.join(value),
    };
    set("HF_HUB_CACHE")
        .or_else(|| set("HUGGINGFACE_HUB_CACHE"))
        .map(path)
        .or_else(|| set("HF_HOME").map(|value| path(value).join("hub")))
        .or_else(|| set("XDG_CACHE_HOME").map(|value| path(value).join("huggingface/hub")))
        .or_else(|| home.as_ref().map(|home| home.join(".cache/huggingface/hub")))
}
