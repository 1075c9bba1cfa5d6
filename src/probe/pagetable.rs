//! The page-table view: how much of the payload the page tables of the tree's processes point at. It needs no right on
//! the files, only on the processes (ptrace(2), `PTRACE_MODE_READ`), and so is there where residency is withheld.
//!
//! A lower bound of the resident payload, and never more:
//!
//! - What is in the page cache and mapped by nobody of the tree, or mapped and not touched yet, is not in it.
//! - A page of a private mapping that was written is the process's own by then and no page of the file: the kernel tells
//!   the two apart, and it is not counted.
//! - A page that several processes map is counted once: the file is looked at piece by piece, each in all processes.
//! - A process whose tables may not be read is left out. Only where that leaves nothing to look at is there no figure.
//! - An address stands for a place of a file only as long as the same mapping lies there. That is asked again after the
//!   page tables were read (`PROCMAP_QUERY`, or maps where the kernel has not got that); where it does not, what was seen
//!   is dropped.
//! - A piece that was looked at some time ago may have lost pages since. Its age is told; what is mapped is the last
//!   thing that the kernel reclaims.
//!
//! Refuses to look for long: the walk holds the target's mmap lock for reading, for 16 MiB at a time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

use super::Reading;
use super::mapping::{MappingProbe, Place};
use super::residency::pages::Watched;
use crate::artifact::extent::Ranges;
use crate::artifact::{Artifact, ArtifactId};
use crate::clock::Mono;
use crate::event::Pid;
use crate::launch::tree::ProcessKey;
use crate::metric::Metric;
use crate::proc::Unread;
use crate::proc::maps::{self, Mapping};
use crate::sys::cache::page_size;
use crate::sys::pagemap::{self, MappingAt, Region};

/// Bytes of a file that are looked at in one go: 60 µs a process where each page has an entry of its own, 2 µs where 2 MiB
/// have one or nothing is present.
const PIECE: u64 = 16 << 20;
/// Mappings of one file that are looked through at most, in all processes together: without the others it is still a
/// bound, and each costs a question or two.
const MOST_PLACES: usize = 2_048;
/// Regions that one call gives at most.
const REGIONS: usize = 4_096;

/// Watches the page tables of the tree.
pub struct PageTableProbe {
    page_size: u64,
    files: Vec<Mapped>,
    /// Pieces of the files that some process maps, those seen longest ago first.
    queue: VecDeque<Piece>,
    version: Option<u64>,
    /// Whether `PAGEMAP_SCAN` and `PROCMAP_QUERY` were found to be missing.
    no_scan: bool,
    no_query: bool,
    /// What ticks took beyond their budgets: later ones pay it off.
    owed: Duration,
    /// Why the tables of some process could not be read in the last turn.
    denied: Option<String>,
    regions: Vec<Region>,
    text: Vec<u8>,
}

/// One artifact.
struct Mapped {
    watched: Watched,
    /// Why its payload is unknown, and all of the file watched.
    unknown_payload: Option<String>,
    /// Where its payload is mapped.
    places: Vec<(ProcessKey, Place)>,
    /// The sum over its pieces.
    low: u64,
}

/// Some pages of one file.
#[derive(Clone, Debug)]
struct Piece {
    file: usize,
    pages: Range<u64>,
    /// Watched bytes that page tables pointed at.
    low: u64,
    seen: Option<Mono>,
}

/// What a turn keeps of the processes that it looked at.
#[derive(Default)]
struct Turn {
    pagemaps: HashMap<Pid, Option<File>>,
    looked_at: HashSet<(usize, usize)>,
}

/// A file's own figure, for `detail.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLow {
    pub artifact: ArtifactId,
    /// Watched bytes (the payload, or the whole file where that is unknown) that page tables point at.
    pub low: u64,
}

impl Default for PageTableProbe {
    fn default() -> PageTableProbe {
        PageTableProbe::new()
    }
}

impl PageTableProbe {
    /// A probe of nothing yet.
    pub fn new() -> PageTableProbe {
        PageTableProbe {
            page_size: page_size(),
            files: Vec::new(),
            queue: VecDeque::new(),
            version: None,
            no_scan: false,
            no_query: false,
            owed: Duration::ZERO,
            denied: None,
            regions: Vec::with_capacity(REGIONS),
            text: Vec::new(),
        }
    }

    /// What a tick can afford: `budget` on the average, for one piece that many processes map may take more.
    pub fn tick(&mut self, mapping: &MappingProbe, artifacts: &[Artifact], budget: Duration) -> Reading {
        if self.owed >= budget {
            self.owed -= budget;
            self.follow(mapping, artifacts);
            return self.reading(mapping, artifacts);
        }
        let began = Mono::now();
        let reading = self.look(mapping, artifacts, budget - self.owed);
        self.owed = (self.owed + Duration::from_nanos(Mono::now().since(began))).saturating_sub(budget);
        reading
    }

    /// Looks at the pieces seen longest ago until all are newer than the call or `limit` is over; at one in any case.
    pub fn look(&mut self, mapping: &MappingProbe, artifacts: &[Artifact], limit: Duration) -> Reading {
        self.follow(mapping, artifacts);
        let since = Mono::now();
        let deadline = since.plus(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.denied = None;
        let mut turn = Turn::default();
        while self.queue.front().is_some_and(|piece| piece.seen.is_none_or(|seen| seen < since)) {
            let Some(piece) = self.queue.pop_front() else { break };
            self.visit(piece, &mut turn, deadline);
            if Mono::now() >= deadline {
                break;
            }
        }
        self.confirm(&turn);
        self.reading(mapping, artifacts)
    }

    /// Each file's figure as last seen.
    pub fn files(&self) -> impl Iterator<Item = FileLow> {
        self.files.iter().enumerate().map(|(index, file)| FileLow { artifact: ArtifactId(index), low: file.low })
    }

    /// Keeps up with what is mapped.
    fn follow(&mut self, mapping: &MappingProbe, artifacts: &[Artifact]) {
        for artifact in &artifacts[self.files.len().min(artifacts.len())..] {
            self.files.push(Mapped {
                watched: Watched::new(&artifact.watched_ranges(), self.page_size),
                unknown_payload: artifact.layout.as_ref().err().cloned(),
                places: Vec::new(),
                low: 0,
            });
            self.version = None;
        }
        if self.version == Some(mapping.version()) {
            return;
        }
        self.version = Some(mapping.version());
        let mut now: Vec<Vec<(ProcessKey, Place)>> = self.files.iter().map(|_| Vec::new()).collect();
        for (key, artifact, places) in mapping.places() {
            if let Some(all) = now.get_mut(artifact.0) {
                let room = MOST_PLACES - all.len();
                all.extend(places.iter().take(room).map(|place| (key, *place)));
            }
        }
        for (id, places) in now.into_iter().enumerate() {
            let file = &mut self.files[id];
            let was = std::mem::replace(&mut file.places, places);
            // More mappings leave a bound a bound; one that went may have been what it rested on.
            let are: HashSet<&(ProcessKey, Place)> = file.places.iter().collect();
            if was.is_empty() || are.is_empty() || !was.iter().all(|place| are.contains(place)) {
                self.begin_anew(id);
            }
        }
    }

    /// Forgets what was seen of a file. One that nobody maps has no pieces to look at.
    fn begin_anew(&mut self, id: usize) {
        self.queue.retain(|piece| piece.file != id);
        let file = &mut self.files[id];
        file.low = 0;
        if file.places.is_empty() {
            return;
        }
        let most = (PIECE / self.page_size).max(1);
        for run in file.watched.runs().iter().rev() {
            let pieces = (run.end - run.start).div_ceil(most);
            for nth in (0..pieces).rev() {
                let start = run.start + nth * most;
                let pages = start..run.end.min(start + most);
                self.queue.push_front(Piece { file: id, pages, low: 0, seen: None });
            }
        }
    }

    /// Looks at one piece in every process that maps it, until `deadline`: what was not looked through is not counted.
    fn visit(&mut self, mut piece: Piece, turn: &mut Turn, deadline: Mono) {
        let file = &mut self.files[piece.file];
        let seen = Mono::now();
        let mut present = Ranges::EMPTY;
        for (index, (key, place)) in file.places.iter().enumerate() {
            let first = place.offset / self.page_size;
            let mapped = first..first + (place.end - place.start) / self.page_size;
            let pages = piece.pages.start.max(mapped.start)..piece.pages.end.min(mapped.end);
            if pages.start >= pages.end {
                continue;
            }
            let pagemap = turn.pagemaps.entry(key.pid).or_insert_with(|| {
                File::open(format!("/proc/{}/pagemap", key.pid))
                    .map_err(|error| self.denied = denial(key.pid, error).or(self.denied.take()))
                    .ok()
            });
            let Some(pagemap) = pagemap else { continue };
            let addresses = place.start + (pages.start - first) * self.page_size
                ..place.start + (pages.end - first) * self.page_size;
            match walk(pagemap, addresses, self.page_size, &mut self.no_scan, &mut self.regions) {
                Ok(found) => {
                    let page_of = |address: u64| first + (address - place.start) / self.page_size;
                    let found = found.into_iter().map(|region| page_of(region.start)..page_of(region.end));
                    present = present.iter().chain(found).collect();
                    turn.looked_at.insert((piece.file, index));
                }
                Err(error) => self.denied = denial(key.pid, error).or(self.denied.take()),
            }
            if present.len() == piece.pages.end - piece.pages.start || Mono::now() >= deadline {
                break;
            }
        }
        let low = present.iter().map(|pages| file.watched.bytes(&pages)).sum::<u64>();
        file.low = file.low - piece.low + low;
        (piece.low, piece.seen) = (low, Some(seen));
        self.queue.push_back(piece);
    }

    /// Drops what was seen through mappings that are not there any more.
    fn confirm(&mut self, turn: &Turn) {
        let mut by_process: HashMap<Pid, Vec<(usize, Place)>> = HashMap::new();
        for &(id, index) in &turn.looked_at {
            let (key, place) = self.files[id].places[index];
            by_process.entry(key.pid).or_default().push((id, place));
        }
        let mut wrong = HashSet::new();
        for (pid, places) in by_process {
            let there = self.are_there(pid, &places);
            wrong.extend(places.iter().zip(there).filter(|(_, there)| !there).map(|((id, _), _)| *id));
        }
        for id in wrong {
            self.begin_anew(id);
        }
    }

    /// Whether each of these mappings still lies where it did.
    fn are_there(&mut self, pid: Pid, places: &[(usize, Place)]) -> Vec<bool> {
        if !self.no_query
            && let Ok(maps) = File::open(format!("/proc/{pid}/maps"))
        {
            let ask = |(_, place): &(usize, Place)| {
                Ok(pagemap::mapping_at(&maps, place.start)?.is_some_and(|at| place.is(&at)))
            };
            match places.iter().map(ask).collect::<io::Result<Vec<bool>>>() {
                Ok(there) => return there,
                Err(error) => self.no_query = error.raw_os_error() == Some(libc::ENOTTY),
            }
        }
        let known = maps::read(pid, &mut self.text).is_ok();
        let now: HashMap<u64, MappingAt> = if known {
            Mapping::all(&self.text)
                .map(|Mapping { start, end, offset, device, inode, .. }| {
                    (start, MappingAt { start, end, offset, device, inode })
                })
                .collect()
        } else {
            HashMap::new()
        };
        places.iter().map(|(_, place)| now.get(&place.start).is_some_and(|at| place.is(at))).collect()
    }

    fn reading(&self, mapping: &MappingProbe, artifacts: &[Artifact]) -> Reading {
        let mut reading = Reading::default();
        match self.total(mapping, artifacts) {
            Ok(low) => {
                // Those not seen yet, which count for nothing, stand before them.
                let oldest = self.queue.iter().find_map(|piece| piece.seen);
                let stale = oldest.map_or(0, |oldest| Mono::now().since(oldest));
                reading.values.set(Metric::ResidentPayloadLowBytes, low);
                reading.values.set(Metric::ResidentLowStaleNs, stale);
            }
            Err(why) => {
                let both = [Metric::ResidentPayloadLowBytes, Metric::ResidentLowStaleNs];
                reading.absences.extend(both.map(|metric| (metric, why.clone())));
            }
        }
        reading
    }

    /// The sum over the set, or why there is none.
    fn total(&self, mapping: &MappingProbe, artifacts: &[Artifact]) -> Result<u64, String> {
        if artifacts.is_empty() {
            return Err("no artifact in the set".into());
        }
        for (file, artifact) in self.files.iter().zip(artifacts) {
            if let Some(why) = &file.unknown_payload {
                return Err(format!("{}: payload unknown: {why}", artifact.path.display()));
            }
        }
        let low: u64 = self.files.iter().map(|file| file.low).sum();
        // Where something was seen it is a bound, whatever was not.
        match self.denied.as_deref().or(mapping.unread()) {
            Some(why) if low == 0 => Err(why.to_owned()),
            _ => Ok(low),
        }
    }
}

impl Place {
    fn is(&self, at: &MappingAt) -> bool {
        *self == Place { start: at.start, end: at.end, offset: at.offset, device: at.device, inode: at.inode }
    }
}

/// Why a process's tables could not be read; one that is gone needs no telling.
fn denial(pid: Pid, error: io::Error) -> Option<String> {
    match Unread::from(error) {
        Unread::Gone => None,
        Unread::Other(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
        why => Some(format!("process {pid}: its /proc/PID/pagemap cannot be read: {why}")),
    }
}

/// The regions of `addresses` that page tables point at and that are a file's.
pub(super) fn walk(
    pagemap: &File,
    addresses: Range<u64>,
    page_size: u64,
    no_scan: &mut bool,
    room: &mut Vec<Region>,
) -> io::Result<Vec<Region>> {
    let mut all = Vec::new();
    let mut at = addresses.start;
    while at < addresses.end {
        let answered = if *no_scan {
            pagemap::read(pagemap, at..addresses.end, page_size, room)
        } else {
            pagemap::scan(pagemap, at..addresses.end, room)
        };
        match answered {
            // Neither call says less than a page.
            Ok(to) if to > at => {
                at = to;
                all.extend_from_slice(room);
            }
            Ok(_) => break,
            Err(error) if !*no_scan && matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                *no_scan = true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use crate::sys::cache::Mapping as Window;
    use std::os::unix::fs::{FileExt, MetadataExt};

    const MIB: u64 = 1 << 20;

    /// The mappings of a file in a process, as the mapping probe has them.
    fn places(pid: Pid, file: &File) -> Vec<(ProcessKey, Place)> {
        let mut text = Vec::new();
        maps::read(pid, &mut text).unwrap();
        let inode = file.metadata().unwrap().ino();
        Mapping::all(&text)
            .filter(|mapping| mapping.inode == inode)
            .map(|Mapping { start, end, offset, device, inode, .. }| {
                (ProcessKey { pid, start_time: 0 }, Place { start, end, offset, device, inode })
            })
            .collect()
    }

    /// A probe of one file, all of which is payload, and of these mappings of it.
    fn probe(file: &File, places: Vec<(ProcessKey, Place)>) -> PageTableProbe {
        let mut probe = PageTableProbe::new();
        let watched = Watched::new(&Ranges::from_iter([0..file.metadata().unwrap().len()]), probe.page_size);
        probe.files.push(Mapped { watched, unknown_payload: None, places, low: 0 });
        probe.begin_anew(0);
        probe
    }

    /// Looks at everything once, and asks whether it is still so.
    fn low(probe: &mut PageTableProbe) -> u64 {
        let mut turn = Turn::default();
        for _ in 0..probe.queue.len() {
            let piece = probe.queue.pop_front().unwrap();
            probe.visit(piece, &mut turn, Mono(u64::MAX));
        }
        probe.confirm(&turn);
        probe.files[0].low
    }

    fn me() -> Pid {
        std::process::id() as Pid
    }

    #[test]
    fn what_no_page_table_points_at_is_not_counted() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; 20 * MIB as usize], 0).unwrap();
        // Mapped as for mincore: never touched.
        let _mapping = Window::new(&file, 0..20 * MIB).unwrap();
        let mut probe = probe(&file, places(me(), &file));
        assert_eq!(probe.files[0].places.len(), 1);
        assert_eq!(low(&mut probe), 0);
        assert!(probe.queue.len() > 1 && probe.queue.iter().all(|piece| piece.seen.is_some()));
    }

    #[test]
    fn both_calls_see_the_same_of_this_program_and_each_page_counts_once() {
        let file = File::open("/proc/self/exe").unwrap();
        let mine = places(me(), &file);
        assert!(mine.len() > 1);
        let size = file.metadata().unwrap().len();
        let once = low(&mut probe(&file, mine.clone()));
        assert!(once > 0 && once < size, "{once} of {size}");
        let twice = mine.iter().chain(&mine).copied().collect();
        let mut by_reading = probe(&file, twice);
        (by_reading.no_scan, by_reading.no_query) = (true, true);
        // Other tests run meanwhile, and the program with them.
        let again = low(&mut by_reading);
        assert!(again >= once / 2 && again <= once + size / 2 && again < size, "{again} after {once} of {size}");
    }

    #[test]
    fn what_was_seen_through_a_mapping_that_is_gone_does_not_stand() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        crate::testing::program::copy(std::path::Path::new("/bin/sh"), &program);
        let file = File::open(&program).unwrap();
        let mut child = std::process::Command::new(&program)
            .args(["-c", "echo up; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as Pid;
        // The spawn comes back when the old program is gone, which is before the new one is laid out; its own loader
        // then changes the protection of a part, which makes two mappings of one.
        let mut said = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut said).unwrap();
        assert_eq!(said, "up\n");
        let theirs = places(pid, &file);
        for no_query in [false, true] {
            let mut there = probe(&file, theirs.clone());
            there.no_query = no_query;
            assert!(low(&mut there) > 0);
            // The same addresses, and other bytes of the file: as after another mapping has come into its place.
            let moved = |(key, place): &(ProcessKey, Place)| (*key, Place { offset: place.offset ^ 4096, ..*place });
            let mut not_there = probe(&file, theirs.iter().map(moved).collect());
            not_there.no_query = no_query;
            assert_eq!(low(&mut not_there), 0);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut gone = probe(&file, theirs);
        assert_eq!(low(&mut gone), 0);
        assert_eq!(gone.denied, None, "one that is gone has denied nothing");
    }
}
