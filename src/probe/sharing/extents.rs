//! How many bytes of files and of shared memory are mapped, artifacts apart: no more than that can be resident through
//! the mappings, however often the resident sets count it.
//!
//! What a mapping is of is told by its device (mountinfo): memory of tmpfs, memfd, System V and shared anonymous
//! mappings is counted by the kernel as shared memory, everything else as file-backed. A device that is not in the
//! table counts as both, so that each bound holds.
//!
//! How much of other files the page tables point at is asked for too, of as many processes as there is time for: libraries
//! are mapped whole and used in part, so that this is the tighter bound by far. A walk is about a millisecond for a
//! process of 1,000 mappings and 100 MiB.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;

use super::proportional::cpu_ns;
use crate::artifact::extent::Ranges;
use crate::artifact::{Artifact, ArtifactId};
use crate::clock::Mono;
use crate::host::Mounts;
use crate::launch::tree::ProcessKey;
use crate::probe::mapping::Identities;
use crate::probe::pagetable::walk;
use crate::proc::Unread;
use crate::proc::maps::{self, Mapping};
use crate::sys::cache::page_size;
use crate::sys::pagemap::Region;

/// What one process maps, in bytes of the files, each byte once. A mapping reaches to the end of a page, so these may
/// be more than the files have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Artifacts whose pages count as file-backed…
    pub artifact_file: u64,
    /// … and as shared memory: those on tmpfs.
    pub artifact_shmem: u64,
    pub other_file: u64,
    /// Shared memory that is no artifact.
    pub shmem: u64,
    /// Of the other files, what page tables point at.
    pub present_other_file: Option<u64>,
}

/// What was found.
pub struct Found {
    pub processes: Vec<(ProcessKey, Extent)>,
    /// Other files and shared memory over the processes that were read, each byte once.
    pub union: (u64, u64),
    /// Those whose mappings were not read, and why.
    pub unread: Vec<(ProcessKey, String)>,
    /// Of other files what page tables point at, over the processes, each byte once; or why that is not known of some.
    pub present: Result<u64, String>,
}

/// Where other files are mapped in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherFile {
    addresses: Range<u64>,
    offset: u64,
    /// As in [`Parts`].
    file: u64,
}

/// How the kernel counts a resident page of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    File,
    Shmem,
    Either,
    /// A device's own memory, which is in no resident set.
    None,
}

/// Ranges of one file by how they count: which artifact, if any, and a key for the file. Two files that show the same
/// device and inode (btrfs subvolumes) are told apart by their names; one file under two names counts twice, which an
/// upper bound can bear.
type Parts = HashMap<(Kind, Option<ArtifactId>, u64), Vec<Range<u64>>>;

/// Ranges of other files that page tables point at.
type Present = HashMap<u64, Vec<Range<u64>>>;

/// The CPU time that a mark's walks over the page tables of other files take in all, but for one piece.
const WALKS_NS: u64 = 10_000_000;
/// Addresses that are walked in one go.
const PIECE: u64 = 64 << 20;
/// Regions that one call gives at most.
const REGIONS: usize = 4_096;

/// Reads and remembers.
pub struct Extents {
    identities: Identities,
    /// By device; filled at the first look.
    kinds: Option<HashMap<u64, Kind>>,
    /// Of files in `/dev`, which may be devices.
    devices: HashMap<u64, bool>,
    text: Vec<u8>,
    page_size: u64,
    /// Whether `PAGEMAP_SCAN` was found to be missing.
    no_scan: bool,
    regions: Vec<Region>,
}

impl Default for Extents {
    fn default() -> Extents {
        // What is discovered is the mapping probe's to tell.
        Extents {
            identities: Identities::new(|_| false),
            kinds: None,
            devices: HashMap::new(),
            text: Vec::new(),
            page_size: page_size(),
            no_scan: false,
            regions: Vec::with_capacity(REGIONS),
        }
    }
}

impl Extents {
    /// Reads each process's mappings, until `end` and within `most` CPU time: what others had the CPU for in the meantime is
    /// not held against it.
    pub fn look(
        &mut self,
        processes: &[(ProcessKey, &str)],
        artifacts: &[Artifact],
        end: Mono,
        most: Duration,
    ) -> Found {
        self.identities.learn(artifacts);
        let mut found = Found { processes: Vec::new(), union: (0, 0), unread: Vec::new(), present: Ok(0) };
        let mut all: Parts = HashMap::new();
        let mut all_present = Present::new();
        let began = cpu_ns();
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        for (key, label) in processes {
            if Mono::now() >= end || cpu_ns() - began >= most {
                found.unread.push((*key, format!("{label}: there was no time left to read its /proc/PID/maps")));
                continue;
            }
            match maps::read(key.pid, &mut self.text) {
                Ok(()) => {
                    let text = std::mem::take(&mut self.text);
                    let (parts, others) = self.parts(key.pid, &text, artifacts);
                    self.text = text;
                    let mut extent = extent(&parts);
                    let limit = (end, began.saturating_add(WALKS_NS));
                    // The kernel's own pages count as file-backed, and have no entry that a walk shows.
                    let kernels = parts.iter().filter(|((_, _, file), _)| *file == 0);
                    let mut present: Present = kernels.map(|((_, _, file), ranges)| (*file, ranges.clone())).collect();
                    match self.present(key.pid, &others, limit, &mut present) {
                        Ok(true) => {
                            extent.present_other_file = Some(length(&present));
                            present
                                .into_iter()
                                .for_each(|(file, ranges)| all_present.entry(file).or_default().extend(ranges));
                        }
                        Ok(false) => {}
                        Err(why) => {
                            let why = format!("{label}: {why}");
                            found.present = std::mem::replace(&mut found.present, Ok(0)).and(Err(why));
                        }
                    }
                    found.processes.push((*key, extent));
                    parts.into_iter().for_each(|(key, ranges)| all.entry(key).or_default().extend(ranges));
                }
                Err(Unread::Gone) => {}
                Err(error) => {
                    found.unread.push((*key, format!("{label}: its /proc/PID/maps cannot be read: {error}")));
                }
            }
        }
        let total = extent(&all);
        found.union = (total.other_file, total.shmem);
        let whole = length(&all_present);
        found.present = match (found.present, found.unread.first()) {
            (Ok(_), Some((_, why))) => Err(why.clone()),
            (Ok(_), None) => Ok(whole),
            (Err(why), _) => Err(why),
        };
        found
    }

    /// Adds what a process's page tables point at of other files; `false` if it is gone. `limit` is a time and a CPU time.
    fn present(
        &mut self,
        pid: i32,
        others: &[OtherFile],
        limit: (Mono, u64),
        present: &mut Present,
    ) -> Result<bool, String> {
        let unread = |error: io::Error| match Unread::from(error) {
            Unread::Gone => Ok(false),
            Unread::Other(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            why => Err(format!("its /proc/PID/pagemap cannot be read: {why}")),
        };
        let pagemap = match File::open(format!("/proc/{pid}/pagemap")) {
            Ok(pagemap) => pagemap,
            Err(error) => return unread(error),
        };
        for other in others {
            let mut start = other.addresses.start;
            while start < other.addresses.end {
                if Mono::now() >= limit.0 || cpu_ns() >= limit.1 {
                    return Err("there was no time left to walk its page tables".to_owned());
                }
                let end = other.addresses.end.min(start.saturating_add(PIECE));
                match walk(&pagemap, start..end, self.page_size, &mut self.no_scan, &mut self.regions) {
                    Ok(found) => {
                        let offset_of =
                            |address: u64| other.offset.saturating_add(address.saturating_sub(other.addresses.start));
                        let ranges = found.into_iter().map(|region| offset_of(region.start)..offset_of(region.end));
                        present.entry(other.file).or_default().extend(ranges);
                    }
                    Err(error) => return unread(error),
                }
                start = end;
            }
        }
        Ok(true)
    }

    fn parts(&mut self, pid: i32, text: &[u8], artifacts: &[Artifact]) -> (Parts, Vec<OtherFile>) {
        let mut parts: Parts = HashMap::new();
        let mut others = Vec::new();
        for mapping in Mapping::all(text) {
            let length = mapping.end - mapping.start;
            if mapping.path == b"[vdso]" {
                // The kernel's own pages, mapped by everybody, count as file-backed.
                parts.entry((Kind::File, None, 0)).or_default().push(0..length);
                continue;
            }
            if mapping.inode == 0 {
                continue;
            }
            let kind = self.kind(&mapping);
            if kind == Kind::None {
                continue;
            }
            let artifact = if mapping.is_of_file() { self.identities.of_mapping(pid, &mapping) } else { None };
            let mut hasher = DefaultHasher::new();
            match artifact {
                Some(id) => id.hash(&mut hasher),
                None => (mapping.device, mapping.inode, mapping.path).hash(&mut hasher),
            }
            // Of an artifact its own file system is known.
            let kind = match artifact.and_then(|id| artifacts.get(id.0)) {
                Some(artifact) if kind == Kind::Either => self.kind_of_device(artifact.device),
                _ => kind,
            };
            let range = mapping.offset..mapping.offset.saturating_add(length);
            let file = hasher.finish();
            if artifact.is_none() && matches!(kind, Kind::File | Kind::Either) {
                others.push(OtherFile { addresses: mapping.start..mapping.end, offset: mapping.offset, file });
            }
            parts.entry((kind, artifact, file)).or_default().push(range);
        }
        (parts, others)
    }

    fn kind(&mut self, mapping: &Mapping<'_>) -> Kind {
        if mapping.path.starts_with(b"/dev/") && !mapping.path.starts_with(b"/dev/shm/") {
            let mut hasher = DefaultHasher::new();
            (mapping.device, mapping.inode, mapping.path).hash(&mut hasher);
            let is_device = *self.devices.entry(hasher.finish()).or_insert_with(|| {
                // A shared mapping of /dev/zero is shared anonymous memory, and shows as deleted.
                let path = Path::new(OsStr::from_bytes(mapping.path));
                std::fs::symlink_metadata(path)
                    .is_ok_and(|seen| seen.file_type().is_char_device() && path != Path::new("/dev/zero"))
            });
            if is_device {
                return Kind::None;
            }
        }
        self.kind_of_device(mapping.device)
    }

    fn kind_of_device(&mut self, device: u64) -> Kind {
        self.kinds.get_or_insert_with(kinds).get(&device).copied().unwrap_or(Kind::Either)
    }
}

/// What the mount table says of its devices, and what the kernel's own tmpfs is, which no table names.
fn kinds() -> HashMap<u64, Kind> {
    let mut kinds = HashMap::new();
    for mount in Mounts::read(Path::new("/proc")).iter() {
        let kind = match mount.fs_type.as_str() {
            "tmpfs" | "devtmpfs" => Kind::Shmem,
            // Its pages are in no resident set.
            "hugetlbfs" => Kind::None,
            _ => Kind::File,
        };
        kinds.insert(libc::makedev(mount.device.0, mount.device.1), kind);
    }
    if let Ok(file) = memfd_create(c"stagemark", MFdFlags::MFD_CLOEXEC)
        && let Ok(seen) = fstat(file.as_fd())
    {
        kinds.insert(seen.st_dev, Kind::Shmem);
    }
    kinds
}

fn length(present: &Present) -> u64 {
    let each = present.values().map(|ranges| ranges.iter().cloned().collect::<Ranges>().len());
    each.fold(0, u64::saturating_add)
}

fn extent(parts: &Parts) -> Extent {
    let mut extent = Extent::default();
    for ((kind, artifact, _), ranges) in parts {
        let bytes = ranges.iter().cloned().collect::<Ranges>().len();
        let (file, shmem) = match artifact {
            Some(_) => (&mut extent.artifact_file, &mut extent.artifact_shmem),
            None => (&mut extent.other_file, &mut extent.shmem),
        };
        if matches!(kind, Kind::File | Kind::Either) {
            *file = file.saturating_add(bytes);
        }
        if matches!(kind, Kind::Shmem | Kind::Either) {
            *shmem = shmem.saturating_add(bytes);
        }
    }
    extent
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Duration = Duration::from_secs(60);

    #[test]
    fn each_byte_counts_once_and_what_is_unknown_counts_as_both() {
        let mut extents = Extents::default();
        let disk = libc::makedev(8, 1);
        let shm = libc::makedev(0, 1);
        extents.kinds = Some(HashMap::from([(disk, Kind::File), (shm, Kind::Shmem)]));
        let text = b"1000-3000 r--p 00000000 08:01 11   /lib/a.so\n\
            3000-4000 r-xp 00001000 08:01 11   /lib/a.so\n\
            4000-5000 rw-p 00000000 00:00 0    [heap]\n\
            5000-7000 rw-s 00000000 00:01 12   /dev/zero (deleted)\n\
            7000-8000 rw-s 00000000 00:01 13   /memfd:x (deleted)\n\
            8000-9000 rw-s 00000000 00:33 14   anon_inode:[io_uring]\n\
            9000-b000 r-xp 00000000 00:00 0    [vdso]\n";
        let (parts, others) = extents.parts(1, text, &[]);
        let expected = Extent { other_file: 0x5000, shmem: 0x4000, ..Extent::default() };
        assert_eq!(extent(&parts), expected);
        let walked: Vec<_> = others.iter().map(|other| (other.addresses.clone(), other.offset)).collect();
        assert_eq!(walked, [(0x1000..0x3000, 0), (0x3000..0x4000, 0x1000), (0x8000..0x9000, 0)]);
    }

    #[test]
    fn what_page_tables_point_at_of_other_files_is_no_more_than_is_mapped_or_resident() {
        let mut extents = Extents::default();
        let key = ProcessKey { pid: std::process::id() as i32, start_time: 0 };
        let end = Mono::now().plus(60_000_000_000);
        let found = extents.look(&[(key, "own")], &[], end, AMPLE);
        let present = found.present.unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        let resident: u64 = line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024;
        // Other tests run meanwhile, and the program with them.
        assert!(present > 0 && present <= found.union.0, "{present} of {}", found.union.0);
        assert!(present.abs_diff(resident) < resident / 2 + (4 << 20), "{present}, and {resident} by status");
        assert_eq!(found.processes[0].1.present_other_file, Some(present));
        extents.no_scan = true;
        let by_reading = extents.look(&[(key, "own")], &[], end, AMPLE).present.unwrap();
        assert!(by_reading.abs_diff(present) < present / 2, "{by_reading} after {present}");
        let none = extents.look(&[(key, "own")], &[], Mono::now(), AMPLE);
        assert!(none.present.unwrap_err().contains("no time left"));
    }

    #[test]
    fn the_kernels_own_tmpfs_is_known() {
        let file = memfd_create(c"x", MFdFlags::MFD_CLOEXEC).unwrap();
        let device = fstat(file.as_fd()).unwrap().st_dev;
        assert_eq!(kinds().get(&device), Some(&Kind::Shmem));
    }
}
