//! What lies behind a file: the block devices, or the network mount, from which its bytes come.
//!
//! The way down is followed in the kernel's own files: mountinfo names the filesystem and its device; sysfs names a
//! partition's disk, the parts of device-mapper, md and bcache devices (`slaves`), a loop device's file and a btrfs
//! filesystem's devices; an overlay's options name its layers. What ends the way is a leaf: a device that has counters
//! of its own, a network mount, memory, or a filesystem behind which nothing can be seen, with the reason.
//!
//! It looks and never acts: no device is opened. A disk that another machine or a hypervisor makes up is a leaf like
//! any other; what is behind that cannot be seen from here.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::mounts::{Mount, Mounts};
use super::{Roots, look};
use crate::event::text_of;

/// So many steps down at most: a chain is a handful, and a loop device may lie on itself by mistake.
const DEEPEST: usize = 16;

/// What a leaf is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A block device with no parts of its own.
    Block,
    /// A mount of NFS.
    Nfs,
    /// Another filesystem of another machine, or of the hypervisor (9p, virtiofs).
    Network,
    /// A filesystem in user space: a daemon gives the bytes, from wherever it has them.
    Fuse,
    /// tmpfs and its kin: nothing is behind it but memory and swap.
    Memory,
    /// It could not be seen.
    #[default]
    Unknown,
}

/// One thing behind the artifacts: a line of `run.json`'s `storage`, and scope `storage` in `detail.csv` by its index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Boundary {
    pub kind: Kind,
    /// The device's name (`nvme0n1`), or what is mounted (`server:/models`).
    pub name: String,
    /// Its number, `MAJOR:MINOR`; that of the filesystem for a mount.
    pub device: Option<String>,
    /// The ways that lead here, in words: `/models (ext4) → dm-0 (vg-models) → nvme0n1`.
    pub chains: Vec<String>,
    /// The artifacts behind which it is, by their index in `artifacts`.
    pub artifacts: Vec<usize>,
    /// The file that holds its counters.
    pub counters: Option<String>,
    /// Why it has none.
    pub reason: Option<String>,
}

/// Where a leaf's counters are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counters {
    /// `/sys/dev/block/MAJOR:MINOR/stat`.
    Block((u32, u32)),
    /// The entry of `/proc/self/mountstats` for this mount point.
    Nfs(PathBuf),
}

/// The end of one way down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub kind: Kind,
    pub name: String,
    pub device: Option<(u32, u32)>,
    pub chain: Vec<String>,
    pub counters: Result<Counters, String>,
}

/// The leaves behind the file at `path`, an absolute path with symlinks resolved. Never empty.
pub fn behind(path: &Path, roots: &Roots, mounts: &Mounts) -> Vec<Leaf> {
    let mut way = Way { roots, mounts, leaves: Vec::new() };
    way.file(path, Vec::new());
    way.leaves
}

struct Way<'a> {
    roots: &'a Roots,
    mounts: &'a Mounts,
    leaves: Vec<Leaf>,
}

impl Way<'_> {
    fn leaf(&mut self, kind: Kind, name: String, device: Option<(u32, u32)>, chain: Vec<String>, why: &str) {
        self.leaves.push(Leaf { kind, name, device, chain, counters: Err(why.to_owned()) });
    }

    /// A file, by the mount that it lies on.
    fn file(&mut self, path: &Path, mut chain: Vec<String>) {
        let Some(mount) = self.mounts.of_resolved(path) else {
            return self.leaf(Kind::Unknown, text_of(path), None, chain, "no mount of this namespace holds it");
        };
        chain.push(format!("{} ({})", text_of(&mount.mount_point), mount.fs_type));
        let name = mount.source.clone();
        if chain.len() > DEEPEST {
            return self.leaf(Kind::Unknown, name, None, chain, "too many steps down");
        }
        let device = Some(mount.device);
        match mount.fs_type.as_str() {
            "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => {
                self.leaf(Kind::Memory, mount.fs_type, device, chain, "it lies in memory: no device is behind it");
            }
            "overlay" => self.overlay(path, &mount, chain),
            "btrfs" => self.btrfs(&mount, chain),
            "nfs" | "nfs4" => {
                let counters = Ok(Counters::Nfs(mount.mount_point));
                self.leaves.push(Leaf { kind: Kind::Nfs, name, device, chain, counters });
            }
            "9p" | "virtiofs" | "ceph" | "cifs" | "smb3" | "lustre" | "afs" | "gpfs" | "beegfs" | "vboxsf" => {
                let why = format!("no counters of a {} mount are read", mount.fs_type);
                self.leaf(Kind::Network, name, device, chain, &why);
            }
            "zfs" => self.leaf(Kind::Unknown, name, device, chain, "only ZFS knows which devices its pool has"),
            "fuseblk" => match self.device_of(&mount.source) {
                Some(device) => self.block(device, chain),
                None => self.leaf(Kind::Fuse, name, device, chain, FUSE),
            },
            fuse if fuse == "fuse" || fuse.starts_with("fuse.") => {
                self.leaf(Kind::Fuse, name, device, chain, FUSE);
            }
            _ if mount.device.0 != 0 => self.block(mount.device, chain),
            other => {
                // bcachefs names all its devices, separated by colons.
                let parts: Option<Vec<_>> = mount.source.split(':').map(|part| self.device_of(part)).collect();
                match parts {
                    Some(parts) => parts.into_iter().for_each(|part| self.block(part, chain.clone())),
                    None => {
                        let why = format!("what a {other} filesystem lies on is not known");
                        self.leaf(Kind::Unknown, name, device, chain, &why);
                    }
                }
            }
        }
    }

    /// A file of an overlay is that of its topmost layer that has it.
    fn overlay(&mut self, path: &Path, mount: &Mount, chain: Vec<String>) {
        let below = path.strip_prefix(&mount.mount_point).unwrap_or(Path::new(""));
        let root = mount.root.strip_prefix("/").unwrap_or(Path::new(""));
        let size = |path: &Path| std::fs::metadata(path).ok().filter(|file| file.is_file()).map(|file| file.len());
        let wanted = size(&self.roots.find(path));
        let found = layers(&mount.super_options).into_iter().map(|layer| layer.join(root).join(below)).find(|file| {
            // Inside a container the layers' paths are another namespace's: what is found there by chance is another
            // file.
            size(&self.roots.find(file)).is_some_and(|size| wanted.is_none_or(|wanted| wanted == size))
        });
        match found {
            Some(file) => self.file(&file, chain),
            None => {
                let why = "the layers of the overlay cannot be seen from here";
                self.leaf(Kind::Unknown, mount.fs_type.clone(), Some(mount.device), chain, why);
            }
        }
    }

    /// The data of a file may be on any of the filesystem's devices.
    fn btrfs(&mut self, mount: &Mount, chain: Vec<String>) {
        let source = self.device_of(&mount.source);
        let filesystems = self.roots.find(Path::new("/sys/fs/btrfs"));
        let devices = std::fs::read_dir(filesystems).into_iter().flatten().flatten().map(|filesystem| {
            let parts = std::fs::read_dir(filesystem.path().join("devices")).into_iter().flatten().flatten();
            parts.filter_map(|part| number(&part.path().join("dev"))).collect::<Vec<_>>()
        });
        let devices = devices.into_iter().find(|devices| source.is_some_and(|source| devices.contains(&source)));
        match (devices, source) {
            (Some(mut devices), _) => {
                devices.sort_unstable();
                devices.into_iter().for_each(|device| self.block(device, chain.clone()));
            }
            (None, Some(device)) => self.block(device, chain),
            (None, None) => {
                let why = "the filesystem's devices are not shown";
                self.leaf(Kind::Unknown, mount.source.clone(), Some(mount.device), chain, why);
            }
        }
    }

    fn block(&mut self, device: (u32, u32), mut chain: Vec<String>) {
        let (major, minor) = device;
        let directory = self.roots.find(Path::new(&format!("/sys/dev/block/{major}:{minor}")));
        let event = look::text(&directory.join("uevent"), look::SMALL_CAP).unwrap_or_default();
        let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME=").map(str::to_owned));
        let name = name.unwrap_or_else(|| format!("{major}:{minor}"));
        let more = ["dm/name", "md/level"].into_iter().find_map(|file| look::line(&directory.join(file)));
        chain.push(more.map_or_else(|| name.clone(), |more| format!("{name} ({more})")));
        if chain.len() > DEEPEST {
            return self.leaf(Kind::Unknown, name, Some(device), chain, "too many steps down");
        }
        if !directory.is_dir() {
            return self.leaf(Kind::Block, name, Some(device), chain, "sysfs does not show the device");
        }
        if directory.join("partition").exists() {
            // The directory is a link into the disk's own.
            if let Some(disk) = number(&directory.join("../dev")).filter(|disk| *disk != device) {
                return self.block(disk, chain);
            }
        }
        let slaves = std::fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
        let mut parts: Vec<_> = slaves.filter_map(|part| number(&part.path().join("dev"))).collect();
        parts.sort_unstable();
        if !parts.is_empty() {
            return parts.into_iter().for_each(|part| self.block(part, chain.clone()));
        }
        if let Some(file) = look::line(&directory.join("loop/backing_file")).filter(|file| file.starts_with('/')) {
            let file = Path::new(&file);
            let file = std::fs::canonicalize(self.roots.find(file)).unwrap_or_else(|_| self.roots.find(file));
            if file.is_file() {
                let file = file.strip_prefix(&self.roots.root).map_or(file.clone(), |file| Path::new("/").join(file));
                return self.file(&file, chain);
            }
        }
        let counters = match look::line(&directory.join("queue/iostats")).as_deref() {
            Some("0") => Err("its counters are switched off (queue/iostats)".to_owned()),
            _ => Ok(Counters::Block(device)),
        };
        self.leaves.push(Leaf { kind: Kind::Block, name, device: Some(device), chain, counters });
    }

    /// The number of the block device that a mount's source names.
    fn device_of(&self, source: &str) -> Option<(u32, u32)> {
        let path = Path::new(source);
        let name = path.strip_prefix("/dev").ok()?;
        if let Ok(node) = std::fs::metadata(self.roots.find(path))
            && node.file_type().is_block_device()
        {
            return Some((nix::sys::stat::major(node.rdev()) as u32, nix::sys::stat::minor(node.rdev()) as u32));
        }
        // A container may have no such node: sysfs names it all the same.
        if let Some(device) = number(&self.roots.find(&Path::new("/sys/class/block").join(name).join("dev"))) {
            return Some(device);
        }
        let mapped = name.strip_prefix("mapper").ok()?.to_str()?;
        let all = std::fs::read_dir(self.roots.find(Path::new("/sys/class/block"))).ok()?;
        let named = |block: &PathBuf| look::line(&block.join("dm/name")).as_deref() == Some(mapped);
        all.flatten().map(|block| block.path()).find(named).and_then(|block| number(&block.join("dev")))
    }
}

const FUSE: &str = "a daemon gives its bytes, and no counter of the kernel tells from where it has them";

/// `MAJOR:MINOR` from a `dev` file.
fn number(file: &Path) -> Option<(u32, u32)> {
    let text = look::line(file)?;
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The layers of an overlay, the topmost first (Documentation/filesystems/overlayfs.rst).
fn layers(options: &str) -> Vec<PathBuf> {
    let (mut upper, mut lower) = (Vec::new(), Vec::new());
    for option in options.split(',') {
        match option.split_once('=') {
            Some(("upperdir", path)) => upper.push(PathBuf::from(path)),
            Some(("lowerdir", paths)) => lower.extend(split_layers(paths)),
            Some(("lowerdir+" | "datadir+", path)) => lower.push(PathBuf::from(path)),
            _ => {}
        }
    }
    upper.extend(lower);
    upper
}

/// Paths between colons; a colon of a path's own has a backslash before it.
fn split_layers(paths: &str) -> Vec<PathBuf> {
    let mut layers = vec![String::new()];
    let mut characters = paths.chars();
    while let Some(character) = characters.next() {
        match (character, layers.last_mut()) {
            ('\\', Some(layer)) => layer.extend(characters.next()),
            (':', _) => layers.push(String::new()),
            (other, Some(layer)) => layer.push(other),
            (_, None) => {}
        }
    }
    // Two colons stand before layers that only hold data.
    layers.into_iter().filter(|layer| !layer.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded machine.
    fn machine() -> (tempfile::TempDir, Roots, Mounts) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        stagemark_fixtures::recorded::unpack(include_str!("../../fixtures/host/storage.txt"), root);
        let roots = Roots::recorded(root);
        let mounts = Mounts::read(&roots.proc);
        (folder, roots, mounts)
    }

    fn shown(path: &str) -> Vec<(Kind, String, bool)> {
        let (_folder, roots, mounts) = machine();
        let leaves = behind(Path::new(path), &roots, &mounts);
        leaves.into_iter().map(|leaf| (leaf.kind, leaf.chain.join(" → "), leaf.counters.is_ok())).collect()
    }

    #[test]
    fn a_partition_is_its_disks() {
        let (kind, chain, counted) = shown("/etc/model").swap_remove(0);
        assert_eq!((kind, counted), (Kind::Block, true));
        assert_eq!(chain, "/ (ext4) → nvme0n1p2 → nvme0n1");
    }

    #[test]
    fn device_mapper_over_md_over_two_disks() {
        let leaves = shown("/models/a.gguf");
        assert_eq!(leaves.len(), 2);
        assert_eq!(leaves[0].1, "/models (xfs) → dm-0 (vg-models) → md127 (raid0) → nvme1n1");
        assert_eq!(leaves[1].1, "/models (xfs) → dm-0 (vg-models) → md127 (raid0) → nvme2n1");
    }

    #[test]
    fn a_loop_device_is_its_files() {
        let leaves = shown("/image/a.gguf");
        assert_eq!(leaves[0].1, "/image (ext4) → loop3 → / (ext4) → nvme0n1p2 → nvme0n1");
    }

    #[test]
    fn anonymous_devices_are_resolved_by_their_filesystem() {
        let btrfs = shown("/pool/a.gguf");
        assert_eq!(
            btrfs.iter().map(|leaf| leaf.1.as_str()).collect::<Vec<_>>(),
            ["/pool (btrfs) → nvme3n1", "/pool (btrfs) → nvme4n1"]
        );
        assert_eq!(shown("/merged/base/a.gguf")[0].1, "/merged (overlay) → / (ext4) → nvme0n1p2 → nvme0n1");
        assert_eq!(
            shown("/merged/new.gguf")[0].1,
            "/merged (overlay) → /models (xfs) → dm-0 (vg-models) → md127 (raid0) → nvme1n1"
        );
        let hidden = shown("/merged/nowhere.gguf");
        assert_eq!((hidden[0].0, hidden[0].2), (Kind::Unknown, false));
    }

    #[test]
    fn mounts_without_a_device() {
        for (path, kind, counted) in [
            ("/nfs/a.gguf", Kind::Nfs, true),
            ("/dev/shm/a", Kind::Memory, false),
            ("/sshfs/a", Kind::Fuse, false),
            ("/host/a", Kind::Network, false),
            ("/tank/a", Kind::Unknown, false),
            ("/ntfs/a", Kind::Block, true),
            ("/quiet/a", Kind::Block, false),
        ] {
            let leaves = shown(path);
            assert_eq!((leaves.len(), leaves[0].0, leaves[0].2), (1, kind, counted), "{path}");
        }
    }

    #[test]
    fn colons_of_a_path_are_its_own() {
        let paths = layers("rw,lowerdir=/a\\:b:/c::/data,upperdir=/u,workdir=/w");
        assert_eq!(paths, ["/u", "/a:b", "/c", "/data"].map(PathBuf::from));
        assert_eq!(layers("lowerdir+=/a,lowerdir+=/b,datadir+=/d"), ["/a", "/b", "/d"].map(PathBuf::from));
    }

    #[test]
    fn this_machine_has_an_end() {
        let mounts = Mounts::read(Path::new("/proc"));
        let file = std::fs::canonicalize("/proc/self/exe").unwrap();
        assert!(!behind(&file, &Roots::default(), &mounts).is_empty());
    }
}
