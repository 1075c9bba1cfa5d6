//! Which artifact a path of `/proc` stands for.
//!
//! A file's identity is its path and what stat(2) says through that path, in the view of the process that maps it. The
//! device and inode in maps are a hint: on btrfs files of two subvolumes can show the same pair, and on overlays they can
//! be another file's. How maps shows an artifact of such a filesystem is found out by mapping it.
//!
//! Where the path leads nowhere (deleted, too long, a view that may not be looked into, a process that is gone) the hint
//! is what is left. It is an answer where no other file can have it: the artifact is held open, so its inode's number is
//! nobody else's. Else the match is ambiguous: `/proc/PID/map_files` is asked, which takes CAP_CHECKPOINT_RESTORE; then a
//! name decides together with the hint; and without one the mapping is no artifact's. The latter two are said, each once
//! a process.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FUSE_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC};
use nix::sys::statfs::{TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs, statfs};

use crate::artifact::{Artifact, ArtifactId};
use crate::event::{Pid, text_of};
use crate::probe::stream::MapRecord;
use crate::proc::maps::{self, Mapping};
use crate::sys::cache::{self, page_size};
use crate::sys::pagemap;

/// What is appended to the name of a file that has none any more.
const DELETED: &[u8] = b" (deleted)";
/// Beyond so many names everything is asked anew.
const MOST_REMEMBERED: usize = 65_536;
/// So many ambiguous matches are said.
const MOST_DOUBTS: usize = 32;
/// So many files that had one name in turn are told.
const MOST_OF_A_NAME: usize = 8;
/// Artifacts that are named in one of them.
const MOST_NAMED: usize = 4;

/// A device and inode.
type Pair = (u64, u64);

/// A path as a process sees it (proc_pid_root(5)).
fn in_view_of(pid: Pid, path: &Path) -> PathBuf {
    let mut rooted = PathBuf::from(format!("/proc/{pid}/root"));
    rooted.as_mut_os_string().push(path.as_os_str());
    rooted
}

/// Whether device and inode of a mapping may be those of the file beneath (overlayfs before Linux 6.8, say).
fn shows_another_s_inodes(path: &Path) -> bool {
    statfs(path).is_ok_and(|filesystem| filesystem.filesystem_type() == OVERLAYFS_SUPER_MAGIC)
}

/// How maps shows an artifact's device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// As stat(2) does.
    AsItIs,
    /// As these, by trying: files of other subvolumes may show the same. `None` where it could not be tried.
    Otherwise(Option<Pair>),
    /// Not known; taken to be as it is, without an answer being refused for it.
    Unknown,
}

fn shown(artifact: &Artifact) -> Shown {
    match fstatfs(&*artifact.file).map(|filesystem| filesystem.filesystem_type()) {
        Ok(EXT4_SUPER_MAGIC | XFS_SUPER_MAGIC | TMPFS_MAGIC) => Shown::AsItIs,
        Ok(BTRFS_SUPER_MAGIC | OVERLAYFS_SUPER_MAGIC) => match shown_here(&artifact.file) {
            Some(pair) if pair == (artifact.device, artifact.inode) => Shown::AsItIs,
            pair => Shown::Otherwise(pair),
        },
        _ => Shown::Unknown,
    }
}

fn is_on_overlay(artifact: &Artifact) -> bool {
    fstatfs(&*artifact.file).is_ok_and(|filesystem| filesystem.filesystem_type() == OVERLAYFS_SUPER_MAGIC)
}

/// What this process's own maps say of a file that it maps.
fn shown_here(file: &File) -> Option<Pair> {
    let window = cache::Mapping::new(file, 0..page_size()).ok()?;
    let address = window.address();
    if let Ok(Some(at)) = pagemap::mapping_at(&File::open("/proc/self/maps").ok()?, address) {
        return Some((at.device, at.inode));
    }
    let mut text = Vec::new();
    maps::read(Pid::try_from(std::process::id()).ok()?, &mut text).ok()?;
    let mut all = Mapping::all(&text);
    all.find(|mapping| (mapping.start..mapping.end).contains(&address)).map(|mapping| (mapping.device, mapping.inode))
}

/// Whether a process sees files as this one does; `None` where it may not be asked, or is gone.
fn shares_our_view(pid: Pid) -> Option<bool> {
    let of = |who: &str| {
        let root = std::fs::metadata(format!("/proc/{who}/root/")).ok()?;
        Some((std::fs::read_link(format!("/proc/{who}/ns/mnt")).ok()?, root.dev(), root.ino()))
    };
    Some(of(&pid.to_string())? == of("self")?)
}

/// What was answered for a name and hint.
#[derive(Clone, Debug, Default)]
struct Answer {
    artifact: Option<ArtifactId>,
    /// Why it may be wrong, for people.
    doubt: Option<Unsure>,
    /// Whether it holds for every process that shows the same.
    lasts: bool,
}

/// What an ambiguous match is of: these artifacts, in words.
#[derive(Clone, Debug)]
struct Unsure {
    between: Vec<ArtifactId>,
    text: String,
}

impl Answer {
    fn sure(artifact: Option<ArtifactId>) -> Answer {
        Answer { artifact, doubt: None, lasts: true }
    }
}

/// An ambiguous match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    pub pid: Pid,
    /// What is ambiguous, and which way the figures went; begins after the process's name.
    pub text: String,
}

/// Answers for one name.
type Named = (Vec<u8>, Option<ArtifactId>);

/// Finds artifacts by what `/proc` calls them, and remembers the answers.
pub struct Identities {
    is_model: fn(&OsStr) -> bool,
    known: usize,
    /// As maps writes it, the artifact's path and its real path.
    by_path: HashMap<Vec<u8>, ArtifactId>,
    /// Those whose paths maps writes as it writes the path of one in `by_path`: a newline and the four characters `\012`
    /// look alike there.
    alike: HashMap<Vec<u8>, Vec<ArtifactId>>,
    by_inode: HashMap<Pair, ArtifactId>,
    inodes: HashSet<u64>,
    shown: Vec<Shown>,
    /// Their paths, for people.
    names: Vec<String>,
    /// Those that maps shows as another pair than stat(2): any file of their filesystem may be shown so.
    by_hint: HashMap<Pair, Vec<ArtifactId>>,
    /// By inode, those of which it is not known how maps shows them…
    unplaced: HashMap<u64, Vec<ArtifactId>>,
    /// … and how the kernel's records do: all on overlays, whose records are of the file beneath.
    unplaced_in_records: HashMap<u64, Vec<ArtifactId>>,
    /// Whether processes were asked for their view, and whether one had another than this one.
    viewed: HashSet<Pid>,
    elsewhere: bool,
    /// Ambiguous matches that were said, and those to be.
    doubted: HashSet<(Pid, Option<ArtifactId>, Vec<ArtifactId>)>,
    doubts: Vec<Doubt>,
    /// Answers given for (device, inode) of maps, by path.
    mapped: HashMap<Pair, Vec<Named>>,
    /// The same for those of the kernel's records.
    recorded: HashMap<Pair, Vec<Named>>,
    /// Answers given for the links of `/proc/PID/fd`.
    open: HashMap<Vec<u8>, Option<ArtifactId>>,
    /// Files that look like artifacts and were told, by path: one name may be of several in turn.
    told: HashMap<PathBuf, Vec<Pair>>,
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
            shown: Vec::new(),
            names: Vec::new(),
            by_hint: HashMap::new(),
            unplaced: HashMap::new(),
            unplaced_in_records: HashMap::new(),
            viewed: HashSet::new(),
            elsewhere: false,
            doubted: HashSet::new(),
            doubts: Vec::new(),
            mapped: HashMap::new(),
            recorded: HashMap::new(),
            open: HashMap::new(),
            told: HashMap::new(),
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
            self.names.push(text_of(&artifact.path));
            let shown = shown(artifact);
            match shown {
                Shown::AsItIs | Shown::Unknown => {}
                Shown::Otherwise(Some(pair)) => {
                    self.inodes.insert(pair.1);
                    self.by_hint.entry(pair).or_default().push(id);
                }
                Shown::Otherwise(None) => self.unplaced.entry(artifact.inode).or_default().push(id),
            }
            if shown == Shown::Otherwise(None) || is_on_overlay(artifact) {
                self.unplaced_in_records.entry(artifact.inode).or_default().push(id);
            }
            self.shown.push(shown);
        }
        self.known = artifacts.len();
        self.mapped.clear();
        self.recorded.clear();
        self.open.clear();
        true
    }

    /// The model files seen that are no artifacts yet; each is told once, and again when another has taken its name.
    pub fn take_discovered(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.discovered)
    }

    /// The ambiguous matches that are to be said, each once a process.
    pub fn take_doubts(&mut self) -> Vec<Doubt> {
        std::mem::take(&mut self.doubts)
    }

    /// The artifact that a mapping is of.
    pub fn of_mapping(&mut self, pid: Pid, mapping: &Mapping<'_>) -> Option<ArtifactId> {
        let hint = (mapping.device, mapping.inode);
        self.view(pid);
        if let Some((_, answer)) =
            self.mapped.get(&hint).and_then(|known| known.iter().find(|(path, _)| path == mapping.path))
        {
            return *answer;
        }
        let answer = self.ask_of_mapping(pid, mapping);
        if answer.lasts {
            if self.mapped.len() >= MOST_REMEMBERED {
                self.mapped.clear();
            }
            self.mapped.entry(hint).or_default().push((mapping.path.to_vec(), answer.artifact));
        }
        self.concluded(pid, answer)
    }

    /// Says what is to be said of an answer.
    fn concluded(&mut self, pid: Pid, answer: Answer) -> Option<ArtifactId> {
        if let Some(Unsure { between, text }) = answer.doubt
            && self.doubted.len() <= MOST_DOUBTS
            && self.doubted.insert((pid, answer.artifact, between))
        {
            let last = self.doubted.len() > MOST_DOUBTS;
            let text = if last { "further mappings that are ambiguous in this way are not told".into() } else { text };
            self.doubts.push(Doubt { pid, text });
        }
        answer.artifact
    }

    /// Finds out once whether a process has a view of its own, where that matters.
    fn view(&mut self, pid: Pid) {
        if !self.elsewhere && !self.by_hint.is_empty() && !self.viewed.contains(&pid) {
            if self.viewed.len() >= MOST_REMEMBERED {
                self.viewed.clear();
            }
            self.viewed.insert(pid);
            self.elsewhere = shares_our_view(pid) == Some(false);
        }
    }

    /// Artifacts that show this pair, and need not be the only ones.
    fn candidates(&self, hint: Pair, in_record: bool) -> Vec<ArtifactId> {
        let unplaced = if in_record { &self.unplaced_in_records } else { &self.unplaced };
        let mut all: Vec<ArtifactId> =
            [self.by_hint.get(&hint), unplaced.get(&hint.1)].into_iter().flatten().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether a file that is this artifact by stat(2) may be shown with this pair.
    fn may_show(&self, id: ArtifactId, hint: Pair, in_record: bool) -> bool {
        let as_it_is = || self.by_inode.get(&hint) == Some(&id);
        let is_of_a_layer = || in_record && self.unplaced_in_records.values().flatten().any(|other| *other == id);
        match self.shown.get(id.0) {
            Some(Shown::AsItIs) => as_it_is() || is_of_a_layer(),
            Some(Shown::Otherwise(Some(pair))) => *pair == hint || is_of_a_layer(),
            Some(Shown::Otherwise(None) | Shown::Unknown) | None => true,
        }
    }

    /// A path names a file only in the mount namespace and root directory of the process that mapped it, and only until
    /// another file takes the name. So it is believed where maps' hint agrees, and else looked through.
    fn ask_of_mapping(&mut self, pid: Pid, mapping: &Mapping<'_>) -> Answer {
        let hint = (mapping.device, mapping.inode);
        let hinted = self.by_inode.get(&hint).copied();
        // With ` (deleted)` taken off too: the artifact is held open, so its inode's number is not another file's.
        let stripped = mapping.path.strip_suffix(DELETED);
        let names = || [Some(mapping.path), stripped].into_iter().flatten();
        if hinted.is_some_and(|id| names().any(|name| self.has_name(name, id))) {
            return Answer::sure(hinted);
        }
        let decoded = maps::decode(mapping.path);
        let may_be_model = (self.is_model)(OsStr::from_bytes(&decoded));
        let named = names().any(|name| self.by_path.contains_key(name));
        if !named && !may_be_model && !self.inodes.contains(&mapping.inode) {
            return Answer::sure(None);
        }
        // By another name, or by a name of another file: a hard link, a bind mount, the view from another mount namespace;
        // or a filesystem whose hints are another's (btrfs, overlay).
        let candidates = self.candidates(hint, false);
        let lasts = candidates.is_empty();
        let as_written = Some(mapping.path).filter(|path| *path != &*decoded);
        for path in std::iter::once(&*decoded).chain(as_written) {
            let path = Path::new(OsStr::from_bytes(path));
            let there = std::fs::metadata(in_view_of(pid, path)).ok();
            let here = std::fs::metadata(path).ok();
            // From here where its own view may not be looked into, or is gone.
            let seen = there.as_ref().or(here.as_ref());
            if let Some(id) = seen.and_then(|seen| self.by_stat(seen)).filter(|id| self.may_show(*id, hint, false)) {
                let doubt = (there.is_none() && !lasts).then(|| self.unsure(&candidates, hint, mapping.path, Some(id)));
                return Answer { artifact: Some(id), doubt, lasts };
            }
            if let (true, Some(seen)) = (may_be_model, seen) {
                self.discover_from(pid, path, here.as_ref(), seen);
            }
            // Another file, of which the hint tells as much as the path.
            if there.is_some_and(|there| there.ino() == mapping.inode) {
                return Answer { artifact: None, doubt: None, lasts };
            }
        }
        if hinted.is_some() || lasts {
            return Answer { artifact: hinted, doubt: None, lasts };
        }
        self.among(&candidates, pid, mapping.start..mapping.end, hint, mapping.path)
    }

    /// Which of several artifacts a mapping is of, whose path leads nowhere.
    fn among(
        &self,
        candidates: &[ArtifactId],
        pid: Pid,
        addresses: std::ops::Range<u64>,
        hint: Pair,
        written: &[u8],
    ) -> Answer {
        let link = format!("/proc/{pid}/map_files/{:x}-{:x}", addresses.start, addresses.end);
        if let Ok(seen) = std::fs::metadata(link) {
            // The mapping's own file, whatever it is called.
            return Answer { artifact: self.by_stat(&seen), doubt: None, lasts: false };
        }
        let names = [Some(written), written.strip_suffix(DELETED)];
        let mut named =
            candidates.iter().filter(|id| names.into_iter().flatten().any(|name| self.has_name(name, **id))).copied();
        let artifact = named.next().filter(|_| named.next().is_none());
        let doubt = Some(self.unsure(candidates, hint, written, artifact));
        Answer { artifact, doubt, lasts: false }
    }

    /// An ambiguous match, in words.
    fn unsure(&self, candidates: &[ArtifactId], hint: Pair, written: &[u8], taken: Option<ArtifactId>) -> Unsure {
        let name = |id: &ArtifactId| self.names.get(id.0).map_or("", String::as_str);
        let mut shown = text_of(OsStr::from_bytes(&written[..written.len().min(1024)]));
        if written.len() > 1024 {
            shown.push('…');
        }
        let pair = format!("device {}:{}, inode {}", libc::major(hint.0), libc::minor(hint.0), hint.1);
        let begin = format!("a mapping of {shown}, which cannot be looked up: by {pair} it may be");
        let text = match taken {
            Some(id) => format!(
                "{begin} any of several files of a btrfs or overlay file system; by its name it is counted as {}",
                name(&id)
            ),
            None => {
                let mut names: Vec<&str> = candidates.iter().take(MOST_NAMED).map(name).collect();
                if candidates.len() > MOST_NAMED {
                    names.push("…");
                }
                format!("{begin} {}, or another file of that file system; it is counted as none", names.join(", "))
            }
        };
        let mut between = candidates.to_vec();
        between.extend(taken.filter(|id| !candidates.contains(id)));
        Unsure { between, text }
    }

    /// Whether a file of this name, as a record has it, is worth a look as an artifact.
    pub fn may_be_model(&self, path: &[u8]) -> bool {
        (self.is_model)(OsStr::from_bytes(path.strip_suffix(DELETED).unwrap_or(path)))
    }

    /// The artifact that a recorded mapping is of. Its path is the mapping process's own, which may lead to another file
    /// from here.
    pub fn of_record(&mut self, record: &MapRecord) -> Option<ArtifactId> {
        let hint = (record.device, record.inode);
        self.view(record.pid);
        if let Some((_, answer)) =
            self.recorded.get(&hint).and_then(|known| known.iter().find(|(path, _)| *path == record.path))
        {
            return *answer;
        }
        let answer = self.ask_of_record(record);
        // Another may yet map it whose view can be looked into.
        let lasts = answer.lasts && (answer.artifact.is_some() || !self.may_be_model(&record.path));
        if lasts {
            if self.recorded.len() >= MOST_REMEMBERED {
                self.recorded.clear();
            }
            self.recorded.entry(hint).or_default().push((record.path.clone(), answer.artifact));
        }
        self.concluded(record.pid, answer)
    }

    /// By the rules for mappings, as far as the process is there to be asked. Where it is gone, a path leads to the same
    /// file from here only if that has the inode of the record, or lies on a filesystem that shows another's.
    fn ask_of_record(&mut self, record: &MapRecord) -> Answer {
        let hint = (record.device, record.inode);
        let name = record.path.strip_suffix(DELETED).unwrap_or(&record.path);
        let written = maps::encode(name);
        let named = self.by_path.contains_key(written.as_ref());
        let hinted = self.by_inode.get(&hint).copied();
        if hinted.is_some_and(|id| self.has_name(&written, id)) {
            return Answer::sure(hinted);
        }
        let may_be_model = self.may_be_model(name);
        if !named && !may_be_model && !self.inodes.contains(&record.inode) {
            return Answer::sure(None);
        }
        let candidates = self.candidates(hint, true);
        let lasts = candidates.is_empty();
        // The whole path: what it leads to without ` (deleted)` is another file.
        let path = Path::new(OsStr::from_bytes(&record.path));
        let there = std::fs::metadata(in_view_of(record.pid, path)).ok();
        let here = std::fs::metadata(path).ok();
        let from_here = || here.as_ref().filter(|here| here.ino() == record.inode || shows_another_s_inodes(path));
        if let Some(seen) = there.as_ref().or_else(from_here) {
            let id = self.by_stat(seen).filter(|id| self.may_show(*id, hint, true));
            if let Some(id) = id {
                // From here: by path and inode, of which the latter may be another's, and the former another view's.
                let unsure = there.is_none() && (seen.ino() != record.inode || (!lasts && self.elsewhere));
                let doubt = unsure.then(|| self.unsure(&candidates, hint, &written, Some(id)));
                return Answer { artifact: Some(id), doubt, lasts };
            }
            if may_be_model {
                self.discover_from(record.pid, path, here.as_ref(), seen);
            }
            if seen.ino() == record.inode {
                return Answer { artifact: None, doubt: None, lasts };
            }
        }
        if hinted.is_some() || lasts {
            return Answer { artifact: hinted, doubt: None, lasts };
        }
        let addresses = record.start..record.start.saturating_add(record.length);
        self.among(&candidates, record.pid, addresses, hint, &written)
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
        if same { self.discover(pid, path, seen) } else { self.discover(pid, &in_view_of(pid, path), seen) }
    }

    fn discover(&mut self, pid: Pid, path: &Path, seen: &Metadata) {
        let pair = (seen.dev(), seen.ino());
        let told = self.told.get(path).map_or(&[][..], Vec::as_slice);
        if !seen.is_file() || told.contains(&pair) || told.len() >= MOST_OF_A_NAME {
            return;
        }
        // There a file that was closed may have another number when it is next opened.
        let is_fuse = || statfs(path).is_ok_and(|filesystem| filesystem.filesystem_type() == FUSE_SUPER_MAGIC);
        if !told.is_empty() && is_fuse() {
            return;
        }
        let files = self.told.entry(path.to_owned()).or_default();
        files.push(pair);
        if files.len() == MOST_OF_A_NAME {
            let name = text_of(path);
            let text = format!("{name} is the name of {MOST_OF_A_NAME} files in turn: further ones are not looked at");
            self.doubts.push(Doubt { pid, text });
        }
        self.discovered.push(path.to_owned());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event::Found;
    use tempfile::TempDir;

    const GONE: Pid = Pid::MAX;

    fn me() -> Pid {
        std::process::id() as Pid
    }

    /// Two files, and whoever knows them.
    fn two() -> (TempDir, Vec<Artifact>, Identities) {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![1; 8192]).unwrap();
            Artifact::open_raw(&path, Found::Declared).unwrap()
        };
        let artifacts = vec![open("one"), open("other")];
        let mut identities = Identities::new(|_| false);
        assert!(identities.learn(&artifacts));
        identities.shown.fill(Shown::AsItIs);
        identities.by_hint.clear();
        (folder, artifacts, identities)
    }

    /// The same where maps shows both as one pair, as btrfs does files of two subvolumes.
    fn alike() -> (TempDir, Vec<Artifact>, Identities, Pair) {
        let (folder, artifacts, mut identities) = two();
        let pair = (0x2e, artifacts[1].inode);
        identities.shown.fill(Shown::Otherwise(Some(pair)));
        identities.by_hint.insert(pair, vec![ArtifactId(0), ArtifactId(1)]);
        (folder, artifacts, identities, pair)
    }

    fn mapping((device, inode): Pair, path: &[u8]) -> Mapping<'_> {
        Mapping { start: 0, end: 0, permissions: *b"r--s", offset: 0, device, inode, path }
    }

    fn record((device, inode): Pair, path: &[u8]) -> MapRecord {
        let permissions = *b"r--s";
        MapRecord { pid: GONE, start: 0, offset: 0, length: 8192, permissions, device, inode, path: path.to_vec() }
    }

    fn text(identities: &mut Identities) -> Vec<String> {
        identities.take_doubts().into_iter().map(|doubt| doubt.text).collect()
    }

    #[test]
    fn a_file_that_takes_a_name_is_told_too_and_each_once() {
        let (folder, _, mut identities) = two();
        identities.is_model = |_| true;
        let (name, next) = (folder.path().join("model"), folder.path().join("next"));
        let mut files = Vec::new();
        for number in 1..=MOST_OF_A_NAME + 2 {
            std::fs::write(&next, "").unwrap();
            // Held open, so that no other has its inode's number.
            files.push(File::open(&next).unwrap());
            std::fs::rename(&next, &name).unwrap();
            for _ in 0..2 {
                let link = name.as_os_str();
                assert_eq!(identities.of_descriptor(me(), link, || std::fs::metadata(&name).ok()), None);
            }
            let told = if number <= MOST_OF_A_NAME { vec![name.clone()] } else { Vec::new() };
            assert_eq!(identities.take_discovered(), told, "{number}");
        }
        let said = text(&mut identities);
        assert!(matches!(&said[..], [one] if one.ends_with("further ones are not looked at")), "{said:?}");
    }

    #[test]
    fn where_the_pair_is_the_files_own_it_is_enough() {
        let (_folder, artifacts, mut identities) = two();
        let own = (artifacts[1].device, artifacts[1].inode);
        for path in [&b"/a/name/that/is/gone (deleted)"[..], b"//toolong"] {
            assert_eq!(identities.of_mapping(me(), &mapping(own, path)), Some(ArtifactId(1)));
            assert_eq!(identities.of_record(&record(own, path)), Some(ArtifactId(1)));
        }
        // The name is an artifact's, and what is mapped another file, which had it before.
        let name = artifacts[0].path.as_os_str().as_bytes();
        let another = (own.0, own.1 + 1_000_000);
        assert_eq!(identities.of_mapping(me(), &mapping(another, name)), None);
        assert_eq!(text(&mut identities), [""; 0]);
    }

    #[test]
    fn of_two_that_look_alike_a_path_tells_and_a_name_is_said() {
        let (_folder, artifacts, mut identities, pair) = alike();
        let name = artifacts[1].path.as_os_str().as_bytes().to_vec();
        assert_eq!(identities.of_mapping(me(), &mapping(pair, &name)), Some(ArtifactId(1)));
        assert_eq!(identities.of_record(&record(pair, &name)), Some(ArtifactId(1)), "from here, by path and pair");
        assert_eq!(text(&mut identities), [""; 0]);

        std::fs::remove_file(&artifacts[1].path).unwrap();
        let deleted = [&name[..], b" (deleted)"].concat();
        for _ in 0..2 {
            assert_eq!(identities.of_mapping(me(), &mapping(pair, &deleted)), Some(ArtifactId(1)));
        }
        assert_eq!(identities.of_record(&record(pair, &deleted)), Some(ArtifactId(1)));
        let doubts = identities.take_doubts();
        assert_eq!(doubts.iter().map(|doubt| doubt.pid).collect::<Vec<_>>(), [me(), GONE], "once a process");
        let counted = format!("it is counted as {}", artifacts[1].path.display());
        assert!(doubts[0].text.ends_with(&counted), "{}", doubts[0].text);
        let shown = format!("by device 0:46, inode {} it may be", pair.1);
        assert!(doubts[0].text.contains(&shown), "{}", doubts[0].text);
    }

    #[test]
    fn what_has_no_name_of_theirs_is_counted_as_none_and_said() {
        let (_folder, artifacts, mut identities, pair) = alike();
        assert_eq!(identities.of_mapping(me(), &mapping(pair, b"/gone (deleted)")), None);
        let said = text(&mut identities).pop().unwrap();
        let both = artifacts.iter().map(|artifact| artifact.path.display().to_string()).collect::<Vec<_>>().join(", ");
        assert!(said.contains(&both) && said.ends_with("it is counted as none"), "{said}");
        // Many are cut short.
        for pid in 1..1_000 {
            identities.of_mapping(pid, &mapping(pair, b"/gone (deleted)"));
        }
        let said = text(&mut identities);
        assert_eq!(said.len(), MOST_DOUBTS);
        assert!(said.last().unwrap().starts_with("further mappings"));
    }

    #[test]
    fn a_process_that_is_gone_may_have_had_another_view() {
        let (_folder, artifacts, mut identities, pair) = alike();
        identities.elsewhere = true;
        let name = artifacts[1].path.as_os_str().as_bytes();
        assert_eq!(identities.of_record(&record(pair, name)), Some(ArtifactId(1)));
        assert_eq!(text(&mut identities).len(), 1);
        assert_eq!(shares_our_view(me()), Some(true));
        assert_eq!(shares_our_view(GONE), None);
    }

    #[test]
    fn the_mapping_itself_is_asked_where_that_is_allowed() {
        let (_folder, artifacts, mut identities, pair) = alike();
        let window = cache::Mapping::new(&artifacts[1].file, 0..page_size()).unwrap();
        assert_eq!(shown_here(&artifacts[1].file).unwrap().1, artifacts[1].inode);
        let (start, end) = (window.address(), window.address() + page_size());
        if std::fs::metadata(format!("/proc/self/map_files/{start:x}-{end:x}")).is_err() {
            eprintln!("not tested here: /proc/PID/map_files may not be followed");
            return;
        }
        let deleted = [artifacts[0].path.as_os_str().as_bytes(), b" (deleted)"].concat();
        let mapping = Mapping { start, end, ..mapping(pair, &deleted) };
        assert_eq!(identities.of_mapping(me(), &mapping), Some(ArtifactId(1)), "whatever its name");
        assert_eq!(text(&mut identities), [""; 0]);
    }
}
