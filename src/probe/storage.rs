//! What the devices and network mounts behind the artifacts gave: by their own counters, whoever asked them.
//!
//! Block devices: `/sys/dev/block/MAJOR:MINOR/stat` (Documentation/block/stat.rst; a sector there is 512 bytes, whatever
//! the device's own is). NFS: `/proc/self/mountstats`, bytes read from the server (fs/nfs/iostat.h, SERVERREADBYTES)
//! and READ calls. Each is counted from a baseline of every device taken before the exec, so that what lies behind an
//! artifact found later is counted from the start too; and each device once, however many artifacts lie on it.
//!
//! Where something is behind an artifact that has no counters, the sums are absent: they would lack it unnoticed. A
//! counter's reading that proves dear is made at marks and once a second, and the samples between have none.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::Reading;
use crate::artifact::Artifact;
use crate::clock::Mono;
use crate::host::mounts::unescaped;
use crate::host::storage::{self, Boundary, Counters, Kind};
use crate::host::{Mounts, Roots};
use crate::metric::Metric;
use crate::proc::{Buffer, ProcFile};

/// A reading of all counters that takes longer than this is not made at every tick…
const DEAR_NS: u64 = 60_000;
/// … but once in so long, and at marks.
const DEAR_PERIOD_NS: u64 = 1_000_000_000;

/// What a device or mount has given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub read_bytes: u64,
    pub reads: u64,
    /// `None` where there is no such counter.
    pub busy_ns: Option<u64>,
}

/// The metrics, in the order of [`Given`]'s fields.
pub(super) const METRICS: [Metric; 3] = [Metric::StorageReadBytes, Metric::StorageReads, Metric::StorageBusyNs];

/// A counter file, and what it showed before the start and when last read.
struct Source {
    counters: Counters,
    /// A block device's own file; mounts share one.
    file: Option<ProcFile>,
    base: Given,
    /// The device's busy time as last read, in its own 32 bits of milliseconds, and what it has come to.
    busy_ms: u32,
    busy_total_ms: u64,
    last: Result<Given, String>,
}

/// The counters behind the artifacts of a launch.
pub struct StorageProbe {
    roots: Roots,
    mounts: Mounts,
    boundaries: Vec<Boundary>,
    /// One beside each boundary; `None` where it has no counters.
    sources: Vec<Option<Source>>,
    /// Artifacts taken in so far.
    artifacts: usize,
    /// The boundaries behind each mount that was looked behind, by its id: shards lie side by side.
    behind: HashMap<u32, Vec<usize>>,
    blocks: Result<HashMap<(u32, u32), Given>, String>,
    mountstats: Result<Vec<u8>, String>,
    buffer: Buffer,
    cost_ns: u64,
    was_dear: bool,
    read_at: Option<Mono>,
}

impl StorageProbe {
    /// A probe over nothing yet; [`StorageProbe::begin`] must come before the exec.
    pub fn new(mounts: Mounts) -> StorageProbe {
        StorageProbe {
            roots: Roots::default(),
            mounts,
            boundaries: Vec::new(),
            sources: Vec::new(),
            artifacts: 0,
            behind: HashMap::new(),
            blocks: Err("nothing was read of it before the start".to_owned()),
            mountstats: Ok(Vec::new()),
            buffer: Buffer::new(),
            cost_ns: 0,
            was_dear: false,
            read_at: None,
        }
    }

    /// Takes the baseline of everything that could lie behind an artifact. To be called just before the exec.
    pub fn begin(&mut self) {
        let diskstats = std::fs::read_to_string(self.roots.proc.join("diskstats"));
        self.blocks = diskstats.map(|text| parse_diskstats(&text)).map_err(|error| format!("/proc/diskstats: {error}"));
        if self.mounts.iter().any(|mount| mount.fs_type.starts_with("nfs")) {
            let mountstats = std::fs::read(self.roots.proc.join("self/mountstats"));
            self.mountstats = mountstats.map_err(|error| format!("/proc/self/mountstats at the start: {error}"));
        }
        let mut sources = std::mem::take(&mut self.sources);
        sources.iter_mut().flatten().for_each(|source| self.rebase(source));
        self.sources = sources;
    }

    /// Takes in the artifacts of the set that are new.
    pub fn follow(&mut self, artifacts: &[Artifact]) {
        for artifact in artifacts.iter().skip(self.artifacts) {
            self.add(self.artifacts, &artifact.real_path);
            self.artifacts += 1;
        }
    }

    fn add(&mut self, artifact: usize, path: &Path) {
        // Of an overlay each file may come from a layer of its own.
        let mount = self.mounts.of_resolved(path).filter(|mount| mount.fs_type != "overlay").map(|mount| mount.id);
        if let Some(known) = mount.and_then(|mount| self.behind.get(&mount)) {
            known.iter().for_each(|&index| self.boundaries[index].artifacts.push(artifact));
            return;
        }
        let mut indices = Vec::new();
        for leaf in storage::behind(path, &self.roots, &self.mounts) {
            let device = leaf.device.map(|(major, minor)| format!("{major}:{minor}"));
            let chain = leaf.chain.join(" → ");
            let same = |known: &Boundary| {
                known.kind == leaf.kind && known.device == device && (device.is_some() || known.name == leaf.name)
            };
            if let Some(index) = self.boundaries.iter().position(same) {
                let known = &mut self.boundaries[index];
                indices.push(index);
                if !known.chains.contains(&chain) {
                    known.chains.push(chain);
                }
                if !known.artifacts.contains(&artifact) {
                    known.artifacts.push(artifact);
                }
                continue;
            }
            let source = leaf.counters.clone().ok().map(|counters| {
                let file = match &counters {
                    Counters::Block((major, minor)) => {
                        Some(ProcFile::at(self.roots.sys.join(format!("dev/block/{major}:{minor}/stat"))))
                    }
                    Counters::Nfs(_) => None,
                };
                let last = Err("not read yet".to_owned());
                let mut source = Source { counters, file, base: Given::default(), busy_ms: 0, busy_total_ms: 0, last };
                self.rebase(&mut source);
                source
            });
            self.boundaries.push(Boundary {
                kind: leaf.kind,
                name: leaf.name,
                device,
                chains: vec![chain],
                artifacts: vec![artifact],
                counters: source.as_ref().map(|source| match &source.counters {
                    Counters::Block((major, minor)) => format!("/sys/dev/block/{major}:{minor}/stat"),
                    Counters::Nfs(_) => "/proc/self/mountstats".to_owned(),
                }),
                reason: leaf.counters.err(),
            });
            indices.push(self.boundaries.len() - 1);
            self.sources.push(source);
        }
        if let Some(mount) = mount {
            indices.sort_unstable();
            indices.dedup();
            self.behind.insert(mount, indices);
        }
    }

    /// Sets what a source had given before the start.
    fn rebase(&self, source: &mut Source) {
        source.base = match &source.counters {
            // What was not there had given nothing; where that could not be seen there is no figure at all.
            Counters::Block(device) => {
                self.blocks.as_ref().ok().and_then(|blocks| blocks.get(device)).copied().unwrap_or_default()
            }
            Counters::Nfs(mount) => {
                self.mountstats.as_ref().ok().and_then(|text| parse_mountstats(text, mount)).unwrap_or_default()
            }
        };
        source.busy_ms = (source.base.busy_ns.unwrap_or(0) / 1_000_000) as u32;
        source.busy_total_ms = 0;
    }

    /// What is behind the artifacts, for `run.json`.
    pub fn boundaries(&self) -> &[Boundary] {
        &self.boundaries
    }

    /// Whether some samples have no figures because reading them is dear.
    pub fn was_dear(&self) -> bool {
        self.was_dear
    }

    /// Reads the counters.
    pub fn look(&mut self, now: Mono, at_mark: bool) -> Reading {
        let dear = self.cost_ns > DEAR_NS;
        if dear && !at_mark && self.read_at.is_some_and(|at| now.since(at) < DEAR_PERIOD_NS) {
            self.was_dear = true;
            return Reading::default();
        }
        let begun = Mono::now();
        let mut sources = std::mem::take(&mut self.sources);
        let needs_mounts = sources.iter().flatten().any(|source| source.file.is_none());
        let mountstats = needs_mounts.then(|| std::fs::read(self.roots.proc.join("self/mountstats")));
        for source in sources.iter_mut().flatten() {
            let no_base = match source.counters {
                Counters::Block(_) => self.blocks.as_ref().err(),
                Counters::Nfs(_) => self.mountstats.as_ref().err(),
            };
            source.read(no_base, mountstats.as_ref(), &mut self.buffer);
        }
        self.sources = sources;
        self.cost_ns = Mono::now().since(begun);
        self.read_at = Some(now);
        self.sum()
    }

    fn sum(&self) -> Reading {
        if self.boundaries.is_empty() {
            return absent(METRICS, "no artifact in the set");
        }
        let mut total = Given { busy_ns: Some(0), ..Given::default() };
        let mut counted = false;
        for (boundary, source) in self.boundaries.iter().zip(&self.sources) {
            let name = &boundary.name;
            match (boundary.kind, source) {
                (Kind::Memory, _) => {}
                (_, None) => {
                    let why = boundary.reason.as_deref().unwrap_or("it has no counters");
                    return absent(METRICS, &format!("{name}: {why}"));
                }
                (_, Some(Source { last: Err(why), .. })) => return absent(METRICS, &format!("{name}: {why}")),
                (_, Some(Source { last: Ok(given), .. })) => {
                    counted = true;
                    total.read_bytes = total.read_bytes.saturating_add(given.read_bytes);
                    total.reads = total.reads.saturating_add(given.reads);
                    total.busy_ns = total.busy_ns.zip(given.busy_ns).map(|(sum, one)| sum.saturating_add(one));
                }
            }
        }
        if !counted {
            return absent(METRICS, "the artifacts lie in memory: no storage is behind them");
        }
        let mut reading = Reading::default();
        reading.values.set(Metric::StorageReadBytes, total.read_bytes);
        reading.values.set(Metric::StorageReads, total.reads);
        reading.values.set(Metric::StorageBusyNs, total.busy_ns);
        if total.busy_ns.is_none() {
            reading.absences.push((Metric::StorageBusyNs, "a network mount has no such counter".to_owned()));
        }
        reading
    }

    /// What each boundary gave since the start, as last read: its index, and the figures.
    pub fn figures(&self) -> impl Iterator<Item = (usize, Given)> + '_ {
        let known = |(index, source): (usize, &Option<Source>)| Some((index, *source.as_ref()?.last.as_ref().ok()?));
        self.sources.iter().enumerate().filter_map(known)
    }
}

impl Source {
    fn read(&mut self, no_base: Option<&String>, mountstats: Option<&std::io::Result<Vec<u8>>>, buffer: &mut Buffer) {
        let now = match (no_base, &self.counters, &mut self.file) {
            (Some(why), ..) => Err(why.clone()),
            (None, Counters::Block(_), Some(file)) => match file.read(buffer) {
                Ok(text) => parse_stat(text).ok_or_else(|| "its stat file has another form".to_owned()),
                Err(error) => Err(format!("its counters cannot be read: {error}")),
            },
            (None, Counters::Nfs(mount), _) => match mountstats {
                Some(Ok(text)) => parse_mountstats(text, mount).ok_or_else(|| "mountstats does not show it".to_owned()),
                Some(Err(error)) => Err(format!("/proc/self/mountstats: {error}")),
                None => Err("not read".to_owned()),
            },
            (None, Counters::Block(_), None) => Err("not read".to_owned()),
        };
        self.last = now.map(|now| {
            let busy_ns = now.busy_ns.map(|busy| {
                let busy_ms = (busy / 1_000_000) as u32;
                self.busy_total_ms += u64::from(busy_ms.wrapping_sub(self.busy_ms));
                self.busy_ms = busy_ms;
                self.busy_total_ms * 1_000_000
            });
            Given {
                read_bytes: now.read_bytes.saturating_sub(self.base.read_bytes),
                reads: now.reads.saturating_sub(self.base.reads),
                busy_ns,
            }
        });
    }
}

fn absent(metrics: impl IntoIterator<Item = Metric>, why: &str) -> Reading {
    let absences = metrics.into_iter().map(|metric| (metric, why.to_owned())).collect();
    Reading { absences, ..Reading::default() }
}

/// A block device's counters, from the numbers of its stat file.
fn parse_stat(text: &[u8]) -> Option<Given> {
    let text = std::str::from_utf8(text).ok()?;
    given(text.split_ascii_whitespace())
}

fn given<'a>(numbers: impl Iterator<Item = &'a str>) -> Option<Given> {
    let numbers: Vec<u64> = numbers.take(10).map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Given {
        reads: *numbers.first()?,
        read_bytes: numbers.get(2)?.saturating_mul(512),
        busy_ns: Some(numbers.get(9)?.saturating_mul(1_000_000)),
    })
}

/// Every block device's counters (Documentation/admin-guide/iostats.rst).
fn parse_diskstats(text: &str) -> HashMap<(u32, u32), Given> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let device = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next()?;
        Some((device, given(words)?))
    };
    text.lines().filter_map(line).collect()
}

/// What an NFS mount's entry says of reading from its server.
fn parse_mountstats(text: &[u8], mount: &Path) -> Option<Given> {
    let mut lines = text.split(|&byte| byte == b'\n');
    lines.find(|line| mount_point(line).is_some_and(|point| point == mount))?;
    let mut given = Given::default();
    let mut found = false;
    for line in lines.take_while(|line| !line.starts_with(b"device ")) {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            // Asked for by read(2) and direct reads, written so, then from and to the server.
            Some("bytes:") => (given.read_bytes, found) = (words.nth(4)?.parse().ok()?, true),
            Some("READ:" | "READ_PLUS:") => given.reads += words.next()?.parse::<u64>().ok()?,
            _ => {}
        }
    }
    found.then_some(given)
}

/// `device SOURCE mounted on POINT with fstype nfs4 …` → POINT.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let rest = line.strip_prefix(b"device ")?;
    let mut words = rest.split(|&byte| byte == b' ');
    let (_, mounted, on, point) = (words.next()?, words.next()?, words.next()?, words.next()?);
    (mounted == b"mounted" && on == b"on").then(|| PathBuf::from(OsString::from_vec(unescaped(point))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTSTATS: &str = include_str!("../../fixtures/proc/mountstats-nfs");

    #[test]
    fn a_recorded_disk() {
        let text =
            b"   84446     4503  5812074    61917    12015    59960 35741904   149758        0    15268   213966";
        let given = parse_stat(text).unwrap();
        assert_eq!((given.reads, given.read_bytes, given.busy_ns), (84446, 5812074 * 512, Some(15_268_000_000)));
        assert_eq!(parse_stat(b"1 2 3"), None);
        let all = parse_diskstats(
            " 254       0 vda 84446 4503 5812074 61917 12015 59960 35741904 149758 0 15268 213966\nx\n",
        );
        assert_eq!(all, HashMap::from([((254, 0), given)]));
    }

    #[test]
    fn a_recorded_mount_of_nfs() {
        let given = parse_mountstats(MOUNTSTATS.as_bytes(), Path::new("/mnt/my models")).unwrap();
        assert_eq!(given, Given { read_bytes: 1_073_741_824, reads: 1_024 + 7, busy_ns: None });
        assert_eq!(parse_mountstats(MOUNTSTATS.as_bytes(), Path::new("/")), None, "no NFS");
        assert_eq!(parse_mountstats(MOUNTSTATS.as_bytes(), Path::new("/elsewhere")), None);
    }

    #[test]
    fn busy_time_goes_round_its_32_bits() {
        let mut source = Source {
            counters: Counters::Block((1, 2)),
            file: None,
            base: Given::default(),
            busy_ms: u32::MAX - 4,
            busy_total_ms: 0,
            last: Err(String::new()),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stat");
        std::fs::write(&path, "1 0 8 0 0 0 0 0 0 5 0").unwrap();
        source.file = Some(ProcFile::at(path));
        source.read(None, None, &mut Buffer::new());
        assert_eq!(source.last, Ok(Given { reads: 1, read_bytes: 4096, busy_ns: Some(10_000_000) }));
    }

    #[test]
    fn a_file_of_this_machine_is_counted_once_by_its_device() {
        let mounts = Mounts::read(Path::new("/proc"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, b"x").unwrap();
        let mut probe = StorageProbe::new(mounts);
        probe.add(0, &std::fs::canonicalize(&file).unwrap());
        probe.begin();
        probe.add(1, &std::fs::canonicalize(&file).unwrap());
        assert!(probe.boundaries().iter().all(|boundary| boundary.artifacts == [0, 1] && boundary.chains.len() == 1));
        let reading = probe.look(Mono::now(), true);
        for metric in METRICS {
            let known = reading.values.get(metric).is_some();
            assert_ne!(known, reading.absences.iter().any(|(absent, why)| *absent == metric && !why.is_empty()));
        }
    }
}
