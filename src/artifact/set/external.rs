//! The files that an ONNX model names as holding its tensors' data.

use std::path::{Component, Path, PathBuf};

use crate::artifact::{Artifact, ArtifactError, External, Format, Layout};
use crate::event::{Found, text_of};

/// The files that a model names, those that can be had, and for people what is missing of them.
pub fn named_by(model: &Artifact) -> (Vec<Artifact>, Vec<String>) {
    let (mut files, mut warnings) = (Vec::new(), Vec::new());
    let Ok(layout) = &model.layout else { return (files, warnings) };
    for external in &layout.external {
        let Some(path) = path_of(&model.path, external) else {
            warnings.push(format!(
                "{}: refuses to follow the external data {}: a model names files in its own folder only",
                text_of(&model.path),
                text_of(&external.location)
            ));
            continue;
        };
        match open(&path, model.found.clone(), external) {
            Ok(file) => files.push(file),
            Err(error) => warnings.push(format!(
                "{}: external data of {} cannot be had ({}); the rest is taken without it",
                text_of(&path),
                text_of(model.path.file_name().unwrap_or(model.path.as_os_str())),
                error.reason()
            )),
        }
    }
    (files, warnings)
}

/// Where external data lies. As with an index the name is judged as it stands, not what it resolves to: in a
/// content-addressed cache it is a link that leads out of the folder.
fn path_of(model: &Path, external: &External) -> Option<PathBuf> {
    // Writers may put `./` before it.
    let location = external.location.trim_start_matches("./");
    let inside = Path::new(location).components().all(|part| matches!(part, Component::Normal(_)));
    let usable = inside && !location.is_empty() && !location.contains('\0') && !external.location.starts_with('/');
    usable.then(|| model.with_file_name("").join(location))
}

fn open(path: &Path, found: Found, external: &External) -> Result<Artifact, ArtifactError> {
    let mut file = Artifact::open_raw(path, found)?;
    file.format = Format::OnnxData;
    file.layout = external.layout(file.size).map(Into::into);
    Ok(file)
}

/// A file whose content says nothing is external data, if a model beside it, whose name it has, names it.
pub fn adopted(mut file: Artifact) -> Artifact {
    if file.format != Format::Unknown {
        return file;
    }
    let model = model_of(&file.path).and_then(|path| Artifact::open(&path, file.found.clone()).ok());
    let Some(Artifact { path, layout: Ok(layout), .. }) = model else { return file };
    let is_it = |external: &&External| {
        path_of(&path, external)
            .and_then(|path| std::fs::canonicalize(path).ok())
            .is_some_and(|at| at == file.real_path)
    };
    if let Some(external) = layout.external.iter().find(is_it) {
        file.format = Format::OnnxData;
        file.layout = external.layout(file.size).map(Into::into);
    }
    file
}

/// The model that external data of this name belongs to: `m.onnx` of `m.onnx_data`, `m.onnx.data`, `m.onnx_data_1`,
/// `m.data`, `m.bin`…
fn model_of(data: &Path) -> Option<PathBuf> {
    let name = data.file_name()?.to_str()?;
    let model = match name.rfind(".onnx") {
        Some(at) => data.with_file_name(&name[..at + ".onnx".len()]),
        None => data.with_extension("onnx"),
    };
    (model != data && model.is_file()).then_some(model)
}

/// What one file holds of two models' tensors, of each tensor once.
pub fn joined(one: &Layout, other: &Layout) -> Layout {
    let mut tensors = [one.tensors.as_slice(), other.tensors.as_slice()].concat();
    let key = |tensor: &crate::artifact::Tensor| (tensor.offset, tensor.length, tensor.name.clone());
    tensors.sort_by_cached_key(key);
    tensors.dedup();
    let mut layout = Layout::of(tensors, one.notes.clone());
    layout.external = one.external.clone();
    layout
}
