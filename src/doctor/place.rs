//! One artifact or folder: who may be asked about its residency, and what it lies on.
//!
//! A file on FUSE is not opened: that may empty its page cache, which is what is to be measured.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use serde::Serialize;

use super::State;
use super::residency;
use super::who::Who;
use crate::artifact::set::{Resolution, resolve};
use crate::artifact::{Artifact, Format};
use crate::event::text_of;
use crate::host::storage::{self, Leaf};
use crate::host::{Mounts, Roots};

/// The most artifacts of one path that are told of one by one.
const MOST: usize = 64;

/// One path that was asked about. What is not known is `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Place {
    pub path: String,
    /// Why it could not be looked at.
    pub problem: Option<String>,
    pub filesystem: Option<String>,
    pub mount: Option<String>,
    /// What is mounted: a device, a server's export.
    pub storage: Option<String>,
    /// What its bytes come from, each by the way down that leads there: `/ (ext4) → vda`.
    pub behind: Vec<String>,
    /// What there is to know about measuring on this filesystem.
    pub warnings: Vec<String>,
    pub artifacts: Vec<File>,
    /// Artifacts beyond the first 64.
    pub left_out: usize,
}

/// A model file of the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct File {
    pub path: String,
    pub owner_uid: u32,
    pub mode: String,
    pub writable: bool,
    pub format: Option<Format>,
    pub size_bytes: u64,
    /// Exact where the header could be understood.
    pub payload_bytes: Option<u64>,
    pub payload_reason: Option<String>,
    /// `mincore`, `cachestat` or `none`; absent where it was not opened.
    pub residency_by: Option<String>,
    pub residency_state: State,
    pub residency_reason: String,
    pub remedies: Vec<String>,
}

/// Looks at each path.
pub(super) fn look(paths: &[PathBuf], who: &Who) -> Vec<Place> {
    let mounts = Mounts::read(Path::new("/proc"));
    paths.iter().map(|path| Place::of(path, &mounts, who)).collect()
}

impl Place {
    fn of(asked: &Path, mounts: &Mounts, who: &Who) -> Place {
        let path = match asked.as_os_str().as_bytes().strip_prefix(b"raw:") {
            Some(path) => Path::new(OsStr::from_bytes(path)),
            None => asked,
        };
        let mount = mounts.of(path);
        let filesystem = mount.as_ref().map(|mount| mount.fs_type.clone());
        let mut place = Place {
            path: text_of(asked),
            problem: None,
            mount: mount.as_ref().map(|mount| text_of(&mount.mount_point)),
            storage: mount.map(|mount| mount.source),
            behind: behind(path, mounts),
            warnings: filesystem.as_deref().map(warnings).unwrap_or_default(),
            filesystem,
            artifacts: Vec::new(),
            left_out: 0,
        };
        let stat = match std::fs::metadata(path) {
            Ok(stat) if stat.is_file() || stat.is_dir() => stat,
            Ok(stat) => {
                let what =
                    if stat.file_type().is_block_device() { "a block device" } else { "neither file nor folder" };
                place.problem = Some(what.to_owned());
                return place;
            }
            Err(error) => {
                place.problem = Some(super::Refusal::from(error).text);
                return place;
            }
        };
        if place.filesystem.as_deref().is_some_and(is_fuse) {
            if stat.is_file() {
                place.artifacts.push(File::unopened(path, &stat));
            }
            return place;
        }
        let directory = std::env::current_dir().unwrap_or_default();
        let Resolution { artifacts, failures, warnings } =
            resolve(&[asked.to_owned()], &[], &BTreeMap::new(), &directory);
        place.warnings.extend(warnings);
        if failures > 0 && artifacts.is_empty() {
            place.problem = Some("no model file could be opened".to_owned());
        }
        place.left_out = artifacts.len().saturating_sub(MOST);
        place.artifacts = artifacts.iter().take(MOST).map(|artifact| File::of(artifact, who)).collect();
        place
    }
}

impl File {
    fn of(artifact: &Artifact, _who: &Who) -> File {
        let stat = artifact.file.metadata().ok();
        let answer = residency::ask(&artifact.real_path);
        let (by, reason) = match answer {
            Ok(trust) => (trust.by, trust.because),
            Err(why) => ("none".to_owned(), why),
        };
        let known = by != "none";
        File {
            path: text_of(&artifact.path),
            owner_uid: stat.as_ref().map_or(u32::MAX, |stat| stat.uid()),
            mode: stat.map_or_else(String::new, |stat| format!("{:04o}", stat.mode() & 0o7777)),
            writable: access(&artifact.real_path, AccessFlags::W_OK).is_ok(),
            format: Some(artifact.format),
            size_bytes: artifact.size,
            payload_bytes: artifact.payload_bytes(),
            payload_reason: artifact.layout.as_ref().err().cloned(),
            residency_state: if known { State::Yes } else { State::Bounded },
            residency_reason: reason,
            remedies: if known { Vec::new() } else { residency::remedies(Some(&artifact.real_path)) },
            residency_by: Some(by),
        }
    }

    fn unopened(path: &Path, stat: &std::fs::Metadata) -> File {
        File {
            path: text_of(path),
            owner_uid: stat.uid(),
            mode: format!("{:04o}", stat.mode() & 0o7777),
            writable: access(path, AccessFlags::W_OK).is_ok(),
            format: None,
            size_bytes: stat.len(),
            payload_bytes: None,
            payload_reason: Some("not opened".into()),
            residency_by: None,
            residency_state: State::Bounded,
            residency_reason: "not opened, so not tried: opening it may empty its page cache".into(),
            remedies: Vec::new(),
        }
    }
}

fn is_fuse(filesystem: &str) -> bool {
    matches!(filesystem, "fuse" | "fuseblk") || filesystem.starts_with("fuse.")
}

/// What is known of measuring on such a filesystem.
fn warnings(filesystem: &str) -> Vec<String> {
    let warning = match filesystem {
        fuse if is_fuse(fuse) => {
            "FUSE: a second open may empty a file's page cache (`stagemark run` opens artifacts before the start), and \
             reads from it do not count in read_bytes"
        }
        "overlay" => "overlay: mincore alone sees the layers' page cache, which is dearer to ask",
        "hugetlbfs" => "hugetlbfs: no call tells of its pages, so residency is absent",
        "tmpfs" | "ramfs" => "in memory: every page that was written is resident, and swap can take it (tmpfs)",
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "lustre" | "virtiofs" => {
            "a network mount: no block device counts its reads, and read_bytes may not either"
        }
        _ => return Vec::new(),
    };
    vec![warning.to_owned()]
}

/// As the storage probe finds it.
fn behind(path: &Path, mounts: &Mounts) -> Vec<String> {
    let Ok(path) = path.canonicalize() else { return Vec::new() };
    let told = |leaf: Leaf| {
        let chain = leaf.chain.join(" → ");
        match leaf.counters {
            Ok(_) => chain,
            Err(why) => format!("{chain} (no counters: {why})"),
        }
    };
    storage::behind(&path, &Roots::default(), mounts).into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuse_is_told_by_its_kinds() {
        for name in ["fuse", "fuseblk", "fuse.sshfs", "fuse.bindfs"] {
            assert!(is_fuse(name) && warnings(name)[0].starts_with("FUSE"), "{name}");
        }
        assert!(!is_fuse("fusectl") && warnings("ext4").is_empty());
    }
}
