//! Which files a path stands for: a folder, an index, one part of a split file, or the file itself.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::index;
use crate::artifact::{Artifact, Format};
use crate::event::{Found, text_of};

/// The most entries of a folder that are looked at, and the most parts of a split file.
const ENTRIES: usize = 100_000;

/// The files that a path stands for, and what is missing of them.
#[derive(Debug, Default)]
pub struct Members {
    pub files: Vec<PathBuf>,
    pub warnings: Vec<String>,
}

/// The files that a path stands for. A folder without model files stands for none.
///
/// # Errors
/// Where there is nothing under this path, or a folder cannot be read.
pub fn members(path: &Path) -> io::Result<Members> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        folder(path)
    } else if index::is_index(path) {
        Ok(index::members(path))
    } else if let Some(split) = split(path) {
        Ok(split.members(path))
    } else {
        Ok(Members { files: vec![path.to_owned()], warnings: Vec::new() })
    }
}

/// Loaders prefer safetensors to pickles and an index to a glob; so does this.
fn folder(path: &Path) -> io::Result<Members> {
    let (names, mut warnings) = names(path)?;
    let of = |extensions: &[&str]| -> Vec<PathBuf> {
        names.iter().filter(|name| has_extension(name, extensions)).map(|name| path.join(name)).collect()
    };
    let index_of = |preferred: &str, suffix: &str| {
        let fits = |name: &&PathBuf| name.as_os_str().as_bytes().ends_with(suffix.as_bytes());
        let name = names.iter().find(|name| name.as_os_str() == preferred).or_else(|| names.iter().find(fits));
        name.map(|name| index::members(&path.join(name)))
    };

    if let Some(mut members) = index_of("model.safetensors.index.json", ".safetensors.index.json") {
        warnings.append(&mut members.warnings);
        if !members.files.is_empty() {
            return Ok(Members { files: members.files, warnings });
        }
    }
    let safetensors = without_twins(of(&["safetensors"]));
    if !safetensors.is_empty() {
        return Ok(Members { files: safetensors, warnings });
    }
    if let Some(mut members) = index_of("pytorch_model.bin.index.json", ".bin.index.json") {
        warnings.append(&mut members.warnings);
        if !members.files.is_empty() {
            return Ok(Members { files: members.files, warnings });
        }
    }
    let gguf = of(&["gguf"]);
    if !gguf.is_empty() {
        return Ok(Members { files: gguf, warnings });
    }
    let pickles = of(&["bin", "pt", "pth", "ckpt"]).into_iter().filter(|path| is_weights(path)).collect();
    Ok(Members { files: without_twins(pickles), warnings })
}

/// The names in a folder, sorted. Not those of folders in it.
fn names(path: &Path) -> io::Result<(Vec<PathBuf>, Vec<String>)> {
    let mut names = Vec::new();
    let mut warnings = Vec::new();
    for entry in std::fs::read_dir(path)? {
        if names.len() == ENTRIES {
            warnings.push(format!("{}: more than {ENTRIES} entries; the rest was not looked at", text_of(path)));
            break;
        }
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            names.push(PathBuf::from(entry.file_name()));
        }
    }
    names.sort();
    Ok((names, warnings))
}

/// Without `consolidated*`, the same weights once more in their maker's own layout, where there are others.
fn without_twins(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_twin = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"consolidated"));
    if files.iter().all(is_twin) { files } else { files.into_iter().filter(|path| !is_twin(path)).collect() }
}

/// Whether a file that `torch.save` may have written holds weights: training leaves its own state beside them.
fn is_weights(path: &Path) -> bool {
    const STATE: [&[u8]; 4] = [b"training_args", b"optimizer", b"scheduler", b"rng_state"];
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    !STATE.iter().any(|state| name.starts_with(state))
        && Artifact::open(path, Found::CommandLine).is_ok_and(|artifact| artifact.format != Format::Unknown)
}

/// Whether a path ends in one of these extensions, whatever their case.
pub fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let own = path.extension().and_then(OsStr::to_str);
    own.is_some_and(|own| extensions.iter().any(|extension| own.eq_ignore_ascii_case(extension)))
}

/// One part of a split GGUF file: `NAME-00001-of-00003.gguf`.
pub struct Split {
    prefix: String,
    parts: usize,
}

/// Takes the name of a part apart.
pub fn split(path: &Path) -> Option<Split> {
    let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (head, parts) = name.rsplit_once("-of-")?;
    let (prefix, part) = head.rsplit_once('-')?;
    let number = |digits: &str| {
        (digits.len() == 5 && digits.bytes().all(|digit| digit.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
    };
    let (part, parts): (usize, usize) = (number(part)?, number(parts)?);
    (1..=parts).contains(&part).then(|| Split { prefix: prefix.to_owned(), parts })
}

impl Split {
    fn members(&self, path: &Path) -> Members {
        let mut members = Members::default();
        for part in 1..=self.parts {
            let file = path.with_file_name(format!("{}-{part:05}-of-{:05}.gguf", self.prefix, self.parts));
            match std::fs::metadata(&file) {
                Ok(_) => members.files.push(file),
                Err(error) if members.warnings.is_empty() => {
                    members
                        .warnings
                        .push(format!("{}: a part of the split model cannot be had ({error})", text_of(&file)));
                }
                Err(_) => {}
            }
        }
        members
    }
}
