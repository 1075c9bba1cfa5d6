//! `*.index.json`: which shards a sharded model has.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};

use super::folder::Members;
use crate::artifact::header::LIMIT;
use crate::event::text_of;

/// The most shards that an index may name.
const SHARDS: usize = 100_000;

/// Whether a file is an index by its name.
pub fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().ends_with(b".index.json"))
}

/// The shards that an index names, those that are there.
pub fn members(index: &Path) -> Members {
    let mut members = Members::default();
    let shards = match read(index) {
        Ok(shards) => shards,
        Err(problem) => {
            members.warnings.push(format!("{}: {problem}", text_of(index)));
            return members;
        }
    };
    let folder = index.parent().unwrap_or(Path::new("."));
    for shard in shards {
        // The name as it stands is judged, not what it resolves to: the shards of a snapshot in a content-addressed
        // cache are links that lead out of the folder, and that is as it should be.
        let inside = Path::new(&shard).components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || shard.is_empty() {
            members.warnings.push(format!(
                "{}: refuses to follow the shard {}: an index names files in its own folder only",
                text_of(index),
                text_of(&shard)
            ));
            continue;
        }
        let path = folder.join(&shard);
        match std::fs::metadata(&path) {
            Ok(_) => members.files.push(path),
            Err(error) => members.warnings.push(format!(
                "{}: a shard named by {} cannot be had ({error}); the rest is taken without it",
                text_of(&path),
                text_of(index.file_name().unwrap_or(OsStr::new("the index")))
            )),
        }
    }
    members
}

fn read(index: &Path) -> Result<BTreeSet<String>, String> {
    // Asked before the open, which would wait for the writer of a FIFO.
    if !std::fs::metadata(index).map_err(|error| error.to_string())?.is_file() {
        return Err("is not a regular file".into());
    }
    let file = File::open(index).map_err(|error| error.to_string())?;
    let Index { weight_map } = serde_json::from_reader(BufReader::new(file.take(LIMIT)))
        .map_err(|error| format!("no index of shards: {error}"))?;
    Ok(weight_map.0)
}

#[derive(Deserialize)]
struct Index {
    weight_map: Shards,
}

/// The values of the map from tensors to shards, each once; the names of the tensors are not kept.
struct Shards(BTreeSet<String>);

impl<'de> Deserialize<'de> for Shards {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = Shards;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("an object from tensors to files")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut shards = BTreeSet::new();
                while map.next_key::<IgnoredAny>()?.is_some() {
                    shards.insert(map.next_value()?);
                    if shards.len() > SHARDS {
                        return Err(A::Error::custom(format!("more than {SHARDS} shards")));
                    }
                }
                Ok(Shards(shards))
            }
        }
        deserializer.deserialize_map(Values)
    }
}
