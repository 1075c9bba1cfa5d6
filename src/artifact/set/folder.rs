//! Which files a path stands for: a folder, an index, one part of a split file, or the file itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

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

/// The files that a path stands for. A folder without model files stands for none, unless it is a pipeline, whose parts
/// lie in folders of their own.
///
/// # Errors
/// Where there is nothing under this path, or a folder cannot be read.
pub fn members(path: &Path) -> io::Result<Members> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        folder(path, false)
    } else if index::is_index(path) {
        Ok(index::members(path))
    } else if let Some(split) = split(path) {
        Ok(split.members(path))
    } else {
        Ok(Members { files: vec![path.to_owned()], warnings: Vec::new() })
    }
}

/// As [`members`], but a folder without model files stands for those in its folders.
pub fn members_below(path: &Path) -> io::Result<Members> {
    if std::fs::metadata(path)?.is_dir() { folder(path, true) } else { members(path) }
}

fn folder(path: &Path, below: bool) -> io::Result<Members> {
    let mut warnings = Vec::new();
    let pipeline = path.join(PIPELINE);
    if pipeline.is_file() {
        match parts(&pipeline) {
            Ok(parts) => {
                let members = of_folders(parts.iter().map(|part| path.join(part)).filter(|part| part.is_dir()));
                if !members.files.is_empty() || !members.warnings.is_empty() {
                    return Ok(members);
                }
            }
            Err(problem) => warnings.push(format!("{}: {problem}", text_of(&pipeline))),
        }
    }
    let names = names(path)?;
    let folders = names.folders.clone();
    let mut members = own(path, names);
    if members.files.is_empty() && members.warnings.is_empty() && below {
        members = of_folders(folders.iter().map(|name| path.join(name)));
    }
    warnings.append(&mut members.warnings);
    Ok(Members { files: members.files, warnings })
}

/// What lies in these folders themselves. Those that cannot be read are told.
fn of_folders(folders: impl Iterator<Item = PathBuf>) -> Members {
    let mut all = Members::default();
    for folder in folders {
        match names(&folder) {
            Ok(names) => {
                let mut members = own(&folder, names);
                all.files.append(&mut members.files);
                all.warnings.append(&mut members.warnings);
            }
            Err(error) => all.warnings.push(format!("{}: {error}", text_of(&folder))),
        }
    }
    all
}

/// Says which parts a pipeline of diffusers has, each in a folder of that name.
const PIPELINE: &str = "model_index.json";

/// The names of a pipeline's parts: the keys whose value says by what class a part is loaded.
fn parts(pipeline: &Path) -> Result<BTreeSet<String>, String> {
    const LARGEST: u64 = 1 << 20;
    let file = File::open(pipeline).map_err(|error| error.to_string())?;
    let entries: BTreeMap<String, serde_json::Value> = serde_json::from_reader(BufReader::new(file.take(LARGEST)))
        .map_err(|error| format!("no index of a pipeline: {error}"))?;
    let is_part = |(name, value): &(String, serde_json::Value)| {
        let mut components = Path::new(name).components();
        value.is_array() && matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
    };
    Ok(entries.into_iter().filter(is_part).map(|(name, _)| name).collect())
}

/// Loaders prefer safetensors to pickles and an index to a glob; so does this. Where ONNX lies beside others it is their
/// conversion. Arrays of NumPy are mostly something else; an archive of them by itself is a model's.
fn own(path: &Path, names: Names) -> Members {
    let Names { files: names, mut warnings, .. } = names;
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
            return Members { files: members.files, warnings };
        }
    }
    let safetensors = without_twins(of(&["safetensors"]));
    if !safetensors.is_empty() {
        return Members { files: safetensors, warnings };
    }
    if let Some(mut members) = index_of("pytorch_model.bin.index.json", ".bin.index.json") {
        warnings.append(&mut members.warnings);
        if !members.files.is_empty() {
            return Members { files: members.files, warnings };
        }
    }
    let gguf = of(&["gguf"]);
    if !gguf.is_empty() {
        return Members { files: gguf, warnings };
    }
    let pickles: Vec<PathBuf> = of(&["bin", "pt", "pth", "ckpt"]).into_iter().filter(|path| is_weights(path)).collect();
    if !pickles.is_empty() {
        return Members { files: without_twins(pickles), warnings };
    }
    let onnx = without_conversions(of(&["onnx"]));
    if !onnx.is_empty() {
        return Members { files: onnx, warnings };
    }
    Members { files: of(&["npz"]), warnings }
}

/// The names in a folder, sorted.
#[derive(Default)]
struct Names {
    files: Vec<PathBuf>,
    /// Folders, and links to some; not hidden ones.
    folders: Vec<PathBuf>,
    warnings: Vec<String>,
}

fn names(path: &Path) -> io::Result<Names> {
    let mut names = Names::default();
    for (count, entry) in std::fs::read_dir(path)?.enumerate() {
        if count == ENTRIES {
            let text = text_of(path);
            names.warnings.push(format!("{text}: more than {ENTRIES} entries; the rest was not looked at"));
            break;
        }
        let entry = entry?;
        let (name, kind) = (PathBuf::from(entry.file_name()), entry.file_type()?);
        if kind.is_dir() || kind.is_symlink() && entry.path().is_dir() {
            if !name.as_os_str().as_bytes().starts_with(b".") {
                names.folders.push(name);
            }
        } else if kind.is_file() || kind.is_symlink() {
            // Nothing else is a model: a FIFO of that name is passed over.
            names.files.push(name);
        }
    }
    names.files.sort();
    names.folders.sort();
    Ok(names)
}

/// Without `consolidated*`, the same weights once more in their maker's own layout, where there are others.
///
/// Nor with `model.fp16.safetensors` beside `model.safetensors`: a variant, which is taken only where it is asked for.
fn without_twins(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    let all: BTreeSet<PathBuf> = files.iter().cloned().collect();
    files.retain(|path| !variant_of(path).is_some_and(|plain| all.contains(&plain)));
    let is_twin = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"consolidated"));
    if files.iter().all(is_twin) { files } else { files.into_iter().filter(|path| !is_twin(path)).collect() }
}

/// The file of which this one is a variant, by the names that transformers and diffusers write.
fn variant_of(path: &Path) -> Option<PathBuf> {
    let (stem, extension) = (Path::new(path.file_stem()?), path.extension()?);
    let (plain, _) = (stem.file_stem()?, stem.extension()?);
    let written = ["model", "diffusion_pytorch_model", "pytorch_model"].iter().any(|name| plain == *name);
    written.then(|| path.with_file_name(plain).with_extension(extension))
}

/// Without `model_q4.onnx` beside `model.onnx`: the same once more in another precision, by the names that exporters for
/// the hub give; it is taken only where it is asked for.
fn without_conversions(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    const SUFFIXES: [&str; 10] =
        ["fp16", "bf16", "int8", "uint8", "quantized", "q4", "q4f16", "q8", "bnb4", "optimized"];
    let all: BTreeSet<PathBuf> = files.iter().cloned().collect();
    files.retain(|path| {
        let stem = path.file_stem().and_then(OsStr::to_str).and_then(|stem| stem.rsplit_once('_'));
        let plain = stem.filter(|(_, suffix)| SUFFIXES.contains(suffix));
        !plain.is_some_and(|(plain, _)| all.contains(&path.with_file_name(format!("{plain}.onnx"))))
    });
    files
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
