//! Which filesystem a path lies on, by the mount table of this process's mount namespace (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::look;

/// Larger than the table of a busy container host; what lies beyond is not seen.
const CAP: u64 = 8 << 20;

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub id: u32,
    /// The mount that this one is mounted on.
    pub parent: u32,
    /// Major and minor number as the table has them. stat(2) gives others on btrfs and, on some kernels, on overlay.
    pub device: (u32, u32),
    /// The part of the filesystem that is mounted: `/` but for bind mounts, subvolumes and control groups.
    pub root: PathBuf,
    pub mount_point: PathBuf,
    /// Options of this mount (`ro,noatime`).
    pub options: String,
    pub fs_type: String,
    /// What is mounted: a device, a server's export, or any word.
    pub source: String,
    /// Options of the filesystem itself: overlay's layers, a control group's controllers.
    pub super_options: String,
}

impl Mount {
    /// Whether a word stands in either list of options, alone or as `word=…`.
    pub fn has_option(&self, word: &str) -> bool {
        let mut all = self.options.split(',').chain(self.super_options.split(','));
        all.any(|option| option.split_once('=').map_or(option, |(name, _)| name) == word)
    }
}

/// The mount table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// This process's table, as `proc_root` (`/proc`) shows it; empty where it cannot be read.
    pub fn read(proc_root: &Path) -> Mounts {
        look::bytes(&proc_root.join("self/mountinfo"), CAP).map_or_else(Mounts::default, |bytes| Mounts::parse(&bytes))
    }

    /// A table from its text. Lines that are none are left out.
    pub fn parse(table: &[u8]) -> Mounts {
        Mounts(table.split(|&byte| byte == b'\n').filter_map(parse_line).collect())
    }

    /// The mount that a path lies on, symlinks resolved; a path that cannot be resolved is taken as it stands.
    pub fn of(&self, path: &Path) -> Option<Mount> {
        match std::fs::canonicalize(path) {
            Ok(resolved) => self.of_resolved(&resolved),
            Err(_) => self.of_resolved(path),
        }
    }

    /// The mount that an absolute path without symlinks lies on.
    ///
    /// This walks down the tree of mounts as the kernel does in looking a path up. The longest mount point alone would
    /// not do: a later mount on a directory hides all that was mounted below it before.
    pub fn of_resolved(&self, path: &Path) -> Option<Mount> {
        let mut current: Option<&Mount> = None;
        // A table that names a mount its own ancestor would never end.
        for _ in 0..self.0.len() {
            let below = self.0.iter().rev().filter(|mount| match current {
                Some(current) => mount.parent == current.id && mount.id != current.id,
                // At the top: mounted on something that this process cannot see.
                None => mount.parent == mount.id || !self.0.iter().any(|other| other.id == mount.parent),
            });
            // The first mount point met on the way down; of two at one place the later, which is seen.
            let next = below
                .filter(|mount| path.starts_with(&mount.mount_point))
                .min_by_key(|mount| mount.mount_point.components().count());
            match next {
                Some(next) => current = Some(next),
                None => break,
            }
        }
        current.cloned()
    }

    /// All of them, in the table's order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mount> {
        self.0.iter()
    }
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = unescaped(fields.next()?);
    let mount_point = unescaped(fields.next()?);
    let options = text(fields.next()?);
    // Any number of optional fields (`shared:1`), ended by a dash of their own.
    fields.find(|field| *field == b"-")?;
    let fs_type = text(fields.next()?);
    let source = text(fields.next()?);
    let super_options = fields.next().map(text).unwrap_or_default();
    Some(Mount {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: PathBuf::from(OsString::from_vec(root)),
        mount_point: PathBuf::from(OsString::from_vec(mount_point)),
        options,
        fs_type,
        source,
        super_options,
    })
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescaped(field)).into_owned()
}

/// The kernel writes space, tab, newline, backslash and `#` as a backslash and three octal digits.
pub(crate) fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'\\'
            && let Some(digits) = tail.get(..3)
            && digits.iter().all(|digit| (b'0'..=b'7').contains(digit))
            && digits[0] <= b'3'
        {
            bytes.push(digits.iter().fold(0, |value, digit| value * 8 + (digit - b'0')));
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::recorded;
    use proptest::prelude::*;

    fn table(tree: &str) -> Mounts {
        Mounts::read(&recorded(tree).proc)
    }

    fn mount_point(mounts: &Mounts, path: &str) -> PathBuf {
        mounts.of_resolved(Path::new(path)).unwrap().mount_point
    }

    #[test]
    fn the_root_of_an_overlay_container_and_its_volumes() {
        let mounts = table("v1-docker");
        let root = mounts.of_resolved(Path::new("/opt/models/model.safetensors")).unwrap();
        assert_eq!((root.fs_type.as_str(), root.device), ("overlay", (0, 54)));
        assert!(root.has_option("lowerdir") && root.has_option("rw") && !root.has_option("lower"));
        let volume = mounts.of_resolved(Path::new("/models/a/b.gguf")).unwrap();
        assert_eq!((volume.fs_type.as_str(), volume.source.as_str()), ("xfs", "/dev/nvme1n1"));
        assert_eq!(volume.root, Path::new("/exports/models"));
        assert_eq!(mount_point(&mounts, "/models-of-others/x"), Path::new("/"), "a prefix of whole names only");
    }

    #[test]
    fn escapes_optional_fields_and_subvolumes() {
        let mounts = table("v2-systemd");
        let spaces = mounts.of_resolved(Path::new("/mnt/My Models/llama.gguf")).unwrap();
        assert_eq!((spaces.fs_type.as_str(), spaces.source.as_str()), ("fuse.sshfs", "me@store:/My Models"));
        let home = mounts.of_resolved(Path::new("/home/me/.cache/model")).unwrap();
        assert_eq!((home.fs_type.as_str(), home.root.as_path()), ("btrfs", Path::new("/@home")));
        assert_eq!(home.device, mounts.of_resolved(Path::new("/")).unwrap().device, "two subvolumes, one device");
        assert!(home.has_option("subvol") && home.has_option("noatime"));
        let odd = mounts.of_resolved(Path::new("/mnt/tab\tback\\slash\nline/x")).unwrap();
        assert_eq!(odd.fs_type, "nfs4");
        assert_eq!(odd.options, "ro,relatime");
    }

    #[test]
    fn later_mounts_hide_earlier_ones() {
        let mounts = table("v1-host");
        assert_eq!(mounts.of_resolved(Path::new("/dev/shm/x")).unwrap().device, (0, 27), "two at one place");
        let hidden = Mounts::parse(
            b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
              2 1 8:2 / /a/b rw - xfs /dev/b rw\n\
              3 1 8:3 / /a rw - btrfs /dev/c rw\n\
              4 3 8:4 / /a/c rw - nfs4 s:/d rw\n",
        );
        assert_eq!(mount_point(&hidden, "/a/b/model"), Path::new("/a"), "what was below is out of sight");
        assert_eq!(mount_point(&hidden, "/a/c/model"), Path::new("/a/c"));
        assert_eq!(mount_point(&hidden, "/b"), Path::new("/"));
    }

    #[test]
    fn odd_tables_end() {
        for odd in [
            &b"1 1 8:1 / / rw - ext4 a rw\n"[..],
            b"1 2 8:1 / / rw - ext4 a rw\n2 1 8:1 / / rw - ext4 a rw\n",
            b"1 0 8:1 / / rw shared:1 master:2\n",
            b"1 0 8 / / rw - ext4 a\n\n \n1 0 8:1",
            b"",
        ] {
            Mounts::parse(odd).of_resolved(Path::new("/a"));
        }
        let chroot = Mounts::parse(b"9 4 8:1 / /models rw - ext4 a rw\n");
        assert_eq!(chroot.of_resolved(Path::new("/etc")), None);
        assert_eq!(mount_point(&chroot, "/models/m"), Path::new("/models"));
        assert_eq!(unescaped(b"a\\040b\\9\\04\\777"), b"a b\\9\\04\\777");
    }

    proptest! {
        #[test]
        fn any_table_is_read_without_harm(table in "([0-3] [0-3] [0-9]:[0-9] / /[a/ ]{0,4} rw (- |)[a-z] [a-z\\\\0-9]{0,6} rw\n){0,6}", path in "/[a/]{0,6}") {
            let mounts = Mounts::parse(table.as_bytes());
            if let Some(mount) = mounts.of_resolved(Path::new(&path)) {
                prop_assert!(Path::new(&path).starts_with(&mount.mount_point));
            }
        }
    }

    #[test]
    fn symlinks_are_resolved_first() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc/self/status", &link).unwrap();
        assert_eq!(Mounts::read(Path::new("/proc")).of(&link).unwrap().fs_type, "proc");
    }
}
