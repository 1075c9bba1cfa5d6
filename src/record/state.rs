//! Retained application state: how much of what a stage file names under `state` (compile caches and the like) was
//! there when the launch began.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::event::text_of;

/// No more files than this are looked at, in all: a cache may hold millions.
const MOST_FILES: usize = 20_000;

/// Bytes below each named place that exists. A place is a path, `~/…`, or `env:NAME` for the path in a variable. One
/// with too many files to count is left out.
pub fn sizes(places: &[String], variable: impl Fn(&str) -> Option<OsString>) -> BTreeMap<String, u64> {
    let mut left = MOST_FILES;
    places
        .iter()
        .filter_map(|place| path_of(place, &variable))
        .filter_map(|path| Some((text_of(&path), size(&path, &mut left)?)))
        .collect()
}

fn path_of(place: &str, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = if let Some(name) = place.strip_prefix("env:") {
        PathBuf::from(variable(name)?)
    } else if let Some(rest) = place.strip_prefix("~/") {
        PathBuf::from(variable("HOME")?).join(rest)
    } else {
        PathBuf::from(place)
    };
    (!path.as_os_str().is_empty()).then_some(path)
}

/// Links are not followed, so that a loop of them ends.
fn size(path: &Path, left: &mut usize) -> Option<u64> {
    *left = left.checked_sub(1)?;
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_dir() {
        return Some(metadata.len());
    }
    let mut total = 0;
    for entry in path.read_dir().ok()? {
        total += size(&entry.ok()?.path(), left)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_and_counted() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("cache/deep")).unwrap();
        std::fs::write(home.path().join("cache/a"), [0; 10]).unwrap();
        std::fs::write(home.path().join("cache/deep/b"), [0; 5]).unwrap();
        std::os::unix::fs::symlink("..", home.path().join("cache/deep/loop")).unwrap();
        let variable = |name: &str| match name {
            "HOME" => Some(home.path().as_os_str().to_owned()),
            "CACHE" => Some(home.path().join("cache/a").into_os_string()),
            _ => None,
        };
        let places = ["~/cache", "env:CACHE", "env:NONE", "~/missing"].map(String::from);
        let found = sizes(&places, variable);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[&text_of(home.path().join("cache/a"))], 10);
        // The link counts as itself: two bytes of target.
        assert_eq!(found[&text_of(home.path().join("cache"))], 10 + 5 + 2);
    }
}
