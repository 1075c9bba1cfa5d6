//! Model files, good and bad: their layouts held against what the generators wrote, and what is told of them.

mod bad;
mod good;
mod inspect;
mod set;

use std::path::Path;

use stagemark::artifact::extent::Ranges;
use stagemark::artifact::{Artifact, Format, Layout};
use stagemark::event::Found;
use stagemark_fixtures::models::{Model, TensorSpec};

/// Opens a file as if it were declared.
fn open(path: &Path) -> Artifact {
    Artifact::open(path, Found::Declared).unwrap()
}

/// The layout of a file of this format.
fn layout(path: &Path, format: Format) -> Layout {
    let artifact = open(path);
    assert_eq!(artifact.format, format);
    Layout::clone(artifact.layout.as_ref().unwrap())
}

/// Why a file's payload is unknown.
fn reason(path: &Path) -> String {
    open(path).layout.unwrap_err()
}

/// The generator's truth as a set of bytes.
fn payload(model: &Model) -> Ranges {
    model.payload.iter().cloned().collect()
}

/// A few tensors of different types, one of them empty.
fn mixed() -> Vec<TensorSpec> {
    vec![
        TensorSpec::flat("embed.weight", "F32", 1000, 4),
        TensorSpec { name: "layer.weight".into(), dtype: "BF16".into(), shape: vec![7, 11], length: 154 },
        TensorSpec::flat("layer.bias", "I8", 0, 1),
        TensorSpec::flat("head.weight", "F32", 33, 4),
    ]
}
