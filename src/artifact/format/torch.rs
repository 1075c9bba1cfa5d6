//! The zip files of `torch.save` and TorchScript: one storage an entry, stored without compression, under `data/`.
//!
//! What names and shapes the tensors have stands in a pickle, which is a program and is never run: a storage goes by its
//! entry's name, and tensors that share it are one. Only the number types of storages are picked out of it ([`pickle`]).

mod pickle;

use std::collections::HashMap;

use super::super::header::HeaderReader;
use super::super::{ArtifactError, Layout, Tensor};
use super::Parsed;
use super::zip::{self, Entry};

/// Reads the central directory of a zip file; `None` if it is one, but not as `torch.save` writes it.
pub fn read(reader: &mut HeaderReader) -> Result<Option<Parsed>, ArtifactError> {
    let directory = zip::directory(reader, |name| is_storage(name) || is_pickle(name))?;
    let (storages, pickles): (Vec<Entry>, Vec<Entry>) =
        directory.entries.into_iter().partition(|entry| is_storage(&entry.name));
    let Some(pickled) = pickles.last() else { return Ok(None) };
    let said = number_types(reader, pickled, directory.offset);

    zip::all_differ(reader, &storages)?;
    let mut places = Vec::new();
    for entry in &storages {
        places.push((entry, zip::place(reader, entry, directory.offset)?));
    }
    zip::none_overlap(reader, &mut places)?;
    let tensors = places.into_iter().map(|(entry, bytes)| {
        let length = bytes.end - bytes.start;
        let said = entry.name.split_once("/data/").and_then(|(_, key)| said.get(key));
        let said = said.filter(|said| said.bytes() == Some(length));
        let dtype = said.map_or_else(String::new, |said| said.kind.dtype.to_owned());
        Tensor { name: entry.name.clone(), dtype, shape: Vec::new(), offset: bytes.start, length }
    });
    let layout = Layout::of(tensors.collect(), Vec::new());
    Ok(Some(Parsed { layout, digest: directory.digest }))
}

/// What the pickle says of the storages. One that cannot be read, or is larger than a model's, says nothing: payload
/// does not depend on it.
fn number_types(reader: &mut HeaderReader, entry: &Entry, directory: u64) -> HashMap<String, pickle::Storage> {
    const LONGEST: u64 = 32 << 20;
    let Ok(place) = zip::place(reader, entry, directory) else { return HashMap::new() };
    let length = place.end - place.start;
    if length > LONGEST {
        return HashMap::new();
    }
    // Allocated by a length that lies within the file and within the bound.
    let mut bytes = vec![0; length as usize];
    match reader.read_at(place.start, &mut bytes) {
        Ok(()) => pickle::storages(&bytes),
        Err(_) => HashMap::new(),
    }
}

fn is_pickle(name: &str) -> bool {
    matches!(name.split_once('/'), Some((_, "data.pkl")))
}

/// `NAME/data/0`, and in TorchScript `NAME/constants/0`.
fn is_storage(name: &str) -> bool {
    let mut parts = name.split('/').skip(1);
    matches!(
        (parts.next(), parts.next(), parts.next()),
        (Some("data" | "constants"), Some(number), None) if !number.is_empty()
    )
}
