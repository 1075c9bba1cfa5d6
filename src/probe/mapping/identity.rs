//! Which artifact a path of `/proc` stands for.
//!
//! A file's identity is its path and what stat(2) says through that path. The device and inode in maps are a hint: on
//! btrfs two files can show the same pair, and on overlays of older kernels they are another file's.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::OVERLAYFS_SUPER_MAGIC;

use crate::artifact::{Artifact, ArtifactId};
use crate::event::Pid;
use crate::probe::stream::MapRecord;
use crate::proc::maps::{self, Mapping};

/// What is appended to the name of a file that has none any more.
const DELETED: &[u8] = b" (deleted)";
/// Beyond so many names everything is asked anew.
const MOST_REMEMBERED: usize = 65_536;

/// A path as a process sees it (proc_pid_root(5)).
fn in_view_of(pid: Pid, path: &Path) -> PathBuf {
    let mut rooted = PathBuf::from(format!("/proc/{pid}/root"));
    rooted.as_mut_os_string().push(path.as_os_str());
    rooted
}

/// Whether device and inode of a mapping may be those of the file beneath (overlayfs before Linux 6.8, say).
fn shows_another_s_inodes(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|filesystem| filesystem.filesystem_type() == OVERLAYFS_SUPER_MAGIC)
}

/// What was answered for a path.
type Answer = (Vec<u8>, Option<ArtifactId>);

/// Finds artifacts by what `/proc` calls them, and remembers the answers.
pub struct Identities {
    is_model: fn(&OsStr) -> bool,
    known: usize,
    /// As maps writes it, the artifact's path and its real path.
    by_path: HashMap<Vec<u8>, ArtifactId>,
    /// Those whose paths maps writes as it writes the path of one in `by_path`: a newline and the four characters `\012`
    /// look alike there.
    alike: HashMap<Vec<u8>, Vec<ArtifactId>>,
    by_inode: HashMap<(u64, u64), ArtifactId>,
    inodes: HashSet<u64>,
    /// Answers given for (device, inode) of maps, by path.
    mapped: HashMap<(u64, u64), Vec<Answer>>,
    /// The same for those of the kernel's records.
    recorded: HashMap<(u64, u64), Vec<Answer>>,
    /// Answers given for the links of `/proc/PID/fd`.
    open: HashMap<Vec<u8>, Option<ArtifactId>>,
    told: HashSet<PathBuf>,
    discovered: Vec<PathBuf>,
}

impl Identities {
    pub fn new(is_model: fn(&OsStr) -> bool) -> Identities {
        Identities {
            is_model,
            known: 0,
            by_path: HashMap::new(),
            alike: HashMap::new(),
            by_inode: HashMap::new(),
            inodes: HashSet::new(),
            mapped: HashMap::new(),
            recorded: HashMap::new(),
            open: HashMap::new(),
            told: HashSet::new(),
            discovered: Vec::new(),
        }
    }

    /// Takes new artifacts in; says whether there were any.
    pub fn learn(&mut self, artifacts: &[Artifact]) -> bool {
        if artifacts.len() <= self.known {
            return false;
        }
        for (index, artifact) in artifacts.iter().enumerate().skip(self.known) {
            let id = ArtifactId(index);
            for path in [&artifact.path, &artifact.real_path] {
                let written = maps::encode(path.as_os_str().as_bytes()).into_owned();
                let first = *self.by_path.entry(written.clone()).or_insert(id);
                if first != id {
                    self.alike.entry(written).or_default().push(id);
                }
            }
            self.by_inode.entry((artifact.device, artifact.inode)).or_insert(id);
            self.inodes.insert(artifact.inode);
        }
        self.known = artifacts.len();
        self.mapped.clear();
        self.recorded.clear();
        self.open.clear();
        true
    }

    /// The model files seen that are no artifacts yet; each is told once.
    pub fn take_discovered(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.discovered)
    }

    /// The artifact that a mapping is of.
    pub fn of_mapping(&mut self, pid: Pid, mapping: &Mapping<'_>) -> Option<ArtifactId> {
        let hint = (mapping.device, mapping.inode);
        if let Some((_, answer)) =
            self.mapped.get(&hint).and_then(|known| known.iter().find(|(path, _)| path == mapping.path))
        {
            return *answer;
        }
        let answer = self.ask_of_mapping(pid, mapping);
        if self.mapped.len() >= MOST_REMEMBERED {
            self.mapped.clear();
        }
        self.mapped.entry(hint).or_default().push((mapping.path.to_vec(), answer));
        answer
    }

    /// A path names a file only in the mount namespace and root directory of the process that mapped it, and only until
    /// another file takes the name. So it is believed where maps' hint agrees, and else looked through.
    fn ask_of_mapping(&mut self, pid: Pid, mapping: &Mapping<'_>) -> Option<ArtifactId> {
        let hinted = self.by_inode.get(&(mapping.device, mapping.inode)).copied();
        // With ` (deleted)` taken off too: the artifact is held open, so its inode's number is not another file's.
        let stripped = mapping.path.strip_suffix(DELETED);
        if hinted
            .is_some_and(|id| [Some(mapping.path), stripped].into_iter().flatten().any(|name| self.has_name(name, id)))
        {
            return hinted;
        }
        let decoded = maps::decode(mapping.path);
        let may_be_model = (self.is_model)(OsStr::from_bytes(&decoded));
        let named = self.by_path.contains_key(mapping.path);
        if !named && !may_be_model && !self.inodes.contains(&mapping.inode) {
            return None;
        }
        // By another name, or by a name of another file: a hard link, a bind mount, the view from another mount namespace;
        // or a filesystem whose hints are another's (btrfs, overlay).
        let as_written = Some(mapping.path).filter(|path| *path != &*decoded);
        for path in std::iter::once(&*decoded).chain(as_written) {
            let path = Path::new(OsStr::from_bytes(path));
            let there = std::fs::metadata(in_view_of(pid, path));
            let here = std::fs::metadata(path).ok();
            // From here where its own view may not be looked into, or is gone.
            let seen = there.as_ref().ok().or(here.as_ref());
            if let Some(id) = seen.and_then(|seen| self.by_stat(seen)) {
                return Some(id);
            }
            if let (true, Some(seen)) = (may_be_model, seen) {
                self.discover_from(pid, path, here.as_ref(), seen);
            }
        }
        None
    }

    /// Whether a file of this name, as a record has it, is worth a look as an artifact.
    pub fn may_be_model(&self, path: &[u8]) -> bool {
        (self.is_model)(OsStr::from_bytes(path.strip_suffix(DELETED).unwrap_or(path)))
    }

    /// The artifact that a recorded mapping is of. Its path is the mapping process's own, which may lead to another file
    /// from here.
    pub fn of_record(&mut self, record: &MapRecord) -> Option<ArtifactId> {
        let hint = (record.device, record.inode);
        if let Some((_, answer)) =
            self.recorded.get(&hint).and_then(|known| known.iter().find(|(path, _)| *path == record.path))
        {
            return *answer;
        }
        let answer = self.ask_of_record(record);
        // Another may yet map it whose view can be looked into.
        if answer.is_none() && self.may_be_model(&record.path) {
            return None;
        }
        if self.recorded.len() >= MOST_REMEMBERED {
            self.recorded.clear();
        }
        self.recorded.entry(hint).or_default().push((record.path.clone(), answer));
        answer
    }

    /// By the rules for mappings, as far as the process is there to be asked. Where it is gone, a path leads to the same
    /// file from here only if that has the inode of the record, or lies on a filesystem that shows another's.
    fn ask_of_record(&mut self, record: &MapRecord) -> Option<ArtifactId> {
        let name = record.path.strip_suffix(DELETED).unwrap_or(&record.path);
        let written = maps::encode(name);
        let named = self.by_path.contains_key(written.as_ref());
        let hinted = self.by_inode.get(&(record.device, record.inode)).copied();
        if hinted.is_some_and(|id| self.has_name(&written, id)) {
            return hinted;
        }
        let may_be_model = self.may_be_model(name);
        if !named && !may_be_model && !self.inodes.contains(&record.inode) {
            return None;
        }
        // The whole path: what it leads to without ` (deleted)` is another file.
        let path = Path::new(OsStr::from_bytes(&record.path));
        let there = std::fs::metadata(in_view_of(record.pid, path)).ok();
        let here = std::fs::metadata(path).ok();
        let from_here = || here.as_ref().filter(|here| here.ino() == record.inode || shows_another_s_inodes(path));
        let seen = there.as_ref().or_else(from_here)?;
        let id = self.by_stat(seen);
        if id.is_none() && may_be_model {
            self.discover_from(record.pid, path, here.as_ref(), seen);
        }
        id
    }

    /// Whether a path as maps writes it is an artifact's.
    fn has_name(&self, written: &[u8], id: ArtifactId) -> bool {
        self.by_path.get(written) == Some(&id) || self.alike.get(written).is_some_and(|others| others.contains(&id))
    }

    /// The artifact that a link of `/proc/PID/fd` leads to; `stat` looks through the link.
    pub fn of_descriptor(
        &mut self,
        pid: Pid,
        link: &OsStr,
        stat: impl FnOnce() -> Option<Metadata>,
    ) -> Option<ArtifactId> {
        let link = link.as_bytes();
        if link.first() != Some(&b'/') {
            return None;
        }
        let may_be_model = (self.is_model)(OsStr::from_bytes(link));
        // The same name is another file's after a while, or for another process: what may be one is asked each time.
        if let Some(None) = self.open.get(link).filter(|_| !may_be_model) {
            return None;
        }
        let seen = stat()?;
        let answer = self.by_stat(&seen);
        if answer.is_none() && may_be_model && !link.ends_with(DELETED) {
            let path = Path::new(OsStr::from_bytes(link));
            let here = std::fs::metadata(path).ok();
            self.discover_from(pid, path, here.as_ref(), &seen);
        }
        if self.open.len() >= MOST_REMEMBERED {
            self.open.clear();
        }
        self.open.insert(link.to_vec(), answer);
        answer
    }

    fn by_stat(&self, seen: &Metadata) -> Option<ArtifactId> {
        self.by_inode.get(&(seen.dev(), seen.ino())).copied()
    }

    /// A file that a process sees by this path: where the path leads to another from here, it is looked at through the
    /// process's own view.
    fn discover_from(&mut self, pid: Pid, path: &Path, here: Option<&Metadata>, seen: &Metadata) {
        let same = here.is_some_and(|here| (here.dev(), here.ino()) == (seen.dev(), seen.ino()));
        if same { self.discover(path, seen) } else { self.discover(&in_view_of(pid, path), seen) }
    }

    fn discover(&mut self, path: &Path, seen: &Metadata) {
        if seen.is_file() && !self.told.contains(path) {
            self.told.insert(path.to_owned());
            self.discovered.push(path.to_owned());
        }
    }
}
