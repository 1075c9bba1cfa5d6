//! The kernel's own records of the tree: each fork, exec, end and mapping of a file, with its time.
//!
//! One inherited software event that counts nothing (PERF_COUNT_SW_DUMMY, perf_event_open(2)), its rings emptied by a
//! thread of its own and by whoever wants to know how things stand now. What the records mean for the tree and for the
//! artifacts is decided elsewhere; here, mappings that can be of no artifact are left out.
//!
//! A record's time is right however late it is read, so the rings are polled: being woken by each record would slow a
//! process that maps much two to three times. The thread polls so seldom as the rate of the records allows, and often
//! while somebody waits for a mapping ([`Stream::set_awaited`]), of which it tells.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use perf_event_open::config::{Opts, UseBuildId};
use perf_event_open::event::sw::Software;
use perf_event_open::sample::record::Record as Raw;
use perf_event_open::sample::record::mmap::Info;

use super::ring::{self, Rings};
use crate::artifact::Artifact;
use crate::clock::Mono;
use crate::event::Pid;
use crate::launch::tree::LifeRecord;

/// Ring sizes that are tried, as powers of two of pages: 512 KiB first, which holds some 4,000 records.
const SIZES: [u8; 6] = [7, 6, 5, 4, 3, 2];
/// Between two polls of the thread, unless a ring gets full.
const SELDOM: Duration = Duration::from_millis(10);
const LEAST: Duration = Duration::from_millis(1);
/// While a mapping is awaited: between two polls…
const SOON: Duration = Duration::from_micros(250);
/// … for so long. Each takes some 15 µs on a virtual CPU: whoever imports libraries for half a minute first should not pay
/// a twentieth of a core for it…
const IN_HASTE_NS: u64 = 5_000_000_000;
/// … and then so often, which leaves the sample beside the mapping time to be taken within 1 ms.
const PATIENT: Duration = Duration::from_micros(400);
/// So full a ring makes the next poll come sooner…
const FULL: f64 = 0.25;
/// … and so empty ones make it come later.
const EMPTY: f64 = 0.05;
/// Records that wait for a recorder that does not take them.
const MOST_WAITING: usize = 1 << 20;
/// The kernel's own count of losses is asked so often.
const COUNT_NS: u64 = 1_000_000_000;

/// Whether and how the records are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    #[default]
    Usual,
    /// Not at all: for comparisons.
    Off,
    /// With rings of 2^n pages: for tests of what happens when they overflow.
    Pages(u8),
}

impl Choice {
    /// `STAGEMARK_STREAM`: `off`, or a power of two of pages. For tests and benchmarks, and no part of the command line.
    pub fn from_environment() -> Choice {
        match std::env::var("STAGEMARK_STREAM").as_deref() {
            Ok("off") => Choice::Off,
            Ok(pages) => pages.parse().map_or(Choice::Usual, Choice::Pages),
            Err(_) => Choice::Usual,
        }
    }
}

/// A mapping of a file, as it was made. Its path and inode are hints: see `probe::mapping`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRecord {
    pub pid: Pid,
    /// Address.
    pub start: u64,
    /// Of its first byte in the file, and how many there are.
    pub offset: u64,
    pub length: u64,
    /// As maps writes them.
    pub permissions: [u8; 4],
    pub device: u64,
    pub inode: u64,
    /// As the mapping process sees it; ` (deleted)` may be appended.
    pub path: Vec<u8>,
}

/// What a record tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Life(LifeRecord),
    Map(MapRecord),
}

/// What the rings gave since the last time.
#[derive(Debug, Default)]
pub struct Taken {
    /// In order of time.
    pub records: Vec<(Mono, Record)>,
    /// How many were lost meanwhile.
    pub lost: u64,
}

/// The records of one launch.
pub struct Stream {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    rings: Rings<Record>,
    waiting: Vec<(Mono, Record)>,
    interest: Interest,
    /// Known to be lost, and told of by [`Stream::take`].
    lost: u64,
    lost_told: u64,
    /// Of these, for want of room in `waiting`.
    dropped: u64,
    counted_at: Mono,
    drained_at: Mono,
    /// Whether a mapping is among `waiting`, and whether that was told.
    mapped: bool,
    mapped_told: bool,
    /// Since when somebody waits for one.
    awaited: Option<Mono>,
    /// Whether the thread runs.
    is_watched: bool,
    /// The share of its ring that the fullest would hold by now if nobody but the thread took anything out, at most.
    filled: f64,
    stop: bool,
}

/// The thread that empties the rings.
pub struct StreamWatch {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// Which mappings may be of an artifact.
struct Interest {
    is_model: fn(&OsStr) -> bool,
    artifacts: usize,
    inodes: HashSet<u64>,
    paths: HashSet<Vec<u8>>,
}

impl Stream {
    /// Opens the event on the calling thread, which must be the one that starts the command: see [`Rings::open`].
    /// `is_model` says of a file's name whether it is worth a look as an artifact.
    ///
    /// # Errors
    /// Why the kernel's records cannot be had, for people.
    pub fn open(choice: Choice, is_model: fn(&OsStr) -> bool, artifacts: &[Artifact]) -> Result<Stream, String> {
        let mut options = Opts::default();
        // Nothing is counted, so nothing is left out by this, and an ordinary user may not watch the kernel.
        options.exclude.kernel = true;
        options.exclude.hv = true;
        let extra = &mut options.extra_record;
        (extra.task, extra.comm, extra.mmap.code, extra.mmap.data) = (true, true, true, true);
        extra.mmap.ext = Some(UseBuildId(false));
        let rings = match choice {
            Choice::Off => return Err("turned off".to_owned()),
            Choice::Usual => Rings::open(Software::Dummy, &options, &SIZES)?,
            Choice::Pages(size) => Rings::open(Software::Dummy, &options, &[size])?,
        };
        let mut interest = Interest { is_model, artifacts: 0, inodes: HashSet::new(), paths: HashSet::new() };
        interest.learn(artifacts);
        let state = State {
            rings,
            waiting: Vec::new(),
            interest,
            lost: 0,
            lost_told: 0,
            dropped: 0,
            counted_at: Mono(0),
            drained_at: Mono(0),
            mapped: false,
            mapped_told: false,
            awaited: None,
            is_watched: false,
            filled: 0.0,
            stop: false,
        };
        Ok(Stream { shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }) })
    }

    /// Starts the thread that empties the rings. It calls `tell` when a mapping is awaited and one was recorded that may
    /// be of an artifact.
    pub fn watch(&self, tell: impl Fn() + Send + 'static) -> std::io::Result<StreamWatch> {
        let shared = Arc::clone(&self.shared);
        let run = move || keep_empty(&shared, &tell);
        let thread = std::thread::Builder::new().name("stream".into()).spawn(run)?;
        Ok(StreamWatch { shared: Arc::clone(&self.shared), thread })
    }

    /// Whether a mapping that may be of an artifact was recorded and has not been taken.
    pub fn has_mapping(&self) -> bool {
        let mut state = self.shared.lock();
        state.drain();
        state.mapped
    }

    /// Says whether somebody waits for a mapping.
    pub fn set_awaited(&self, awaited: bool) {
        let mut state = self.shared.lock();
        match awaited {
            false => state.awaited = None,
            true if state.awaited.is_some() => {}
            true => {
                state.awaited = Some(Mono::now());
                drop(state);
                self.shared.changed.notify_all();
            }
        }
    }

    /// Whether a mapping that is awaited will be told of: else whoever waits has to ask.
    pub fn is_watched(&self) -> bool {
        self.shared.lock().is_watched
    }

    /// Takes new artifacts in: their mappings are of interest from here on, under whatever name.
    pub fn learn(&self, artifacts: &[Artifact]) {
        self.shared.lock().interest.learn(artifacts);
    }

    /// Everything that was recorded before this call and not yet taken.
    pub fn take(&self) -> Taken {
        let mut state = self.shared.lock();
        state.drain();
        (state.mapped, state.mapped_told) = (false, false);
        let lost = state.lost - state.lost_told;
        state.lost_told = state.lost;
        Taken { records: std::mem::take(&mut state.waiting), lost }
    }

    /// Has the kernel count its losses now.
    pub fn count(&self) {
        self.shared.lock().count();
    }

    /// How many records were lost so far.
    pub fn lost(&self) -> u64 {
        self.shared.lock().lost
    }

    /// When the rings were last emptied.
    pub fn drained_at(&self) -> Mono {
        self.shared.lock().drained_at
    }

    /// How many rings there are, and of how many bytes each.
    pub fn size(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.rings.cpus(), state.rings.bytes())
    }
}

impl StreamWatch {
    /// Ends the thread. What the rings hold then can still be taken.
    pub fn finish(self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        let _ = self.thread.join();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while it was held would have been in a parser of records; what it left is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes out what the rings hold.
    fn drain(&mut self) {
        let at = Mono::now();
        let State { rings, interest, .. } = self;
        let told_lost = rings.told_lost();
        let records = rings.drain(|raw| interest.pick(raw));
        self.filled += rings.fullest();
        if self.rings.told_lost() > told_lost || at.since(self.counted_at) > COUNT_NS {
            self.count();
        }
        self.drained_at = at;
        if self.waiting.len() + records.len() > MOST_WAITING {
            self.dropped += records.len() as u64;
            self.lost += records.len() as u64;
        } else {
            self.mapped |= records.iter().any(|(_, record)| matches!(record, Record::Map(_)));
            self.waiting.extend(records);
        }
    }

    fn count(&mut self) {
        self.counted_at = Mono::now();
        self.lost = self.lost.max(self.rings.lost() + self.dropped);
    }
}

fn keep_empty(shared: &Shared, tell: &dyn Fn()) {
    // What comes 50 µs late, as the kernel's default allows, is late for the sample beside a mapping.
    let _ = nix::sys::prctl::set_timerslack(1_000);
    let mut seldom = SELDOM;
    let mut state = shared.lock();
    state.is_watched = true;
    while !state.stop {
        state.drain();
        seldom = match std::mem::take(&mut state.filled) {
            full if full > FULL => (seldom / 2).max(LEAST),
            empty if empty < EMPTY => (seldom * 2).min(SELDOM),
            _ => seldom,
        };
        let next = match state.awaited {
            Some(since) if state.drained_at.since(since) < IN_HASTE_NS => SOON,
            Some(_) => PATIENT,
            None => seldom,
        };
        if state.awaited.is_some() && state.mapped && !state.mapped_told {
            state.mapped_told = true;
            // Whoever is told takes them.
            drop(state);
            tell();
            state = shared.lock();
        }
        state = shared.changed.wait_timeout(state, next).unwrap_or_else(PoisonError::into_inner).0;
    }
    state.is_watched = false;
}

impl Interest {
    fn learn(&mut self, artifacts: &[Artifact]) {
        for artifact in artifacts.iter().skip(self.artifacts) {
            self.inodes.insert(artifact.inode);
            self.paths.extend([&artifact.path, &artifact.real_path].map(|path| path.as_os_str().as_bytes().to_vec()));
        }
        self.artifacts = self.artifacts.max(artifacts.len());
    }

    fn wants(&self, path: &[u8], inode: u64) -> bool {
        let name = path.strip_suffix(b" (deleted)").unwrap_or(path);
        // Two slashes are the kernel's own: `//anon`; and a name that did not fit, of which the inode is left.
        if path.starts_with(b"//") {
            return matches!(path, b"//toolong" | b"//enomem") && self.inodes.contains(&inode);
        }
        path.first() == Some(&b'/')
            && (self.inodes.contains(&inode) || (self.is_model)(OsStr::from_bytes(name)) || self.paths.contains(name))
    }

    fn pick(&self, raw: Raw) -> Option<Record> {
        let pid = |pid: u32| Pid::try_from(pid).ok().filter(|pid| *pid > 0);
        let comm = |name: &CStr| name.to_bytes().to_vec();
        let life = match raw {
            Raw::Fork(fork) if fork.task.pid == fork.parent_task.pid => LifeRecord::Thread { pid: pid(fork.task.pid)? },
            Raw::Fork(fork) => LifeRecord::Fork { pid: pid(fork.task.pid)?, parent: pid(fork.parent_task.pid)? },
            Raw::Exit(exit) => LifeRecord::ThreadEnd { pid: pid(exit.task.pid)? },
            Raw::Comm(named) if named.by_execve => {
                LifeRecord::Exec { pid: pid(named.task.pid)?, comm: comm(&named.comm) }
            }
            // The process has its main thread's name.
            Raw::Comm(named) if named.task.pid == named.task.tid => {
                LifeRecord::Renamed { pid: pid(named.task.pid)?, comm: comm(&named.comm) }
            }
            Raw::Mmap(mapping) => {
                let extra = mapping.ext.as_ref()?;
                let Info::Device { major, minor, inode, .. } = extra.info else { return None };
                let path = mapping.file.to_bytes();
                if !self.wants(path, inode) {
                    return None;
                }
                return Some(Record::Map(MapRecord {
                    pid: pid(mapping.task.pid)?,
                    start: mapping.addr,
                    offset: mapping.page_offset,
                    length: mapping.len,
                    permissions: permissions(extra.prot, extra.flags),
                    device: libc::makedev(major, minor),
                    inode,
                    path: path.to_vec(),
                }));
            }
            _ => return None,
        };
        Some(Record::Life(life))
    }
}

/// Protection and sharing as maps writes them (mmap(2)).
fn permissions(protection: u32, flags: u32) -> [u8; 4] {
    let bit = |flag: libc::c_int, letter| if protection & flag as u32 != 0 { letter } else { b'-' };
    let shared = flags & libc::MAP_SHARED as u32 != 0;
    [
        bit(libc::PROT_READ, b'r'),
        bit(libc::PROT_WRITE, b'w'),
        bit(libc::PROT_EXEC, b'x'),
        if shared { b's' } else { b'p' },
    ]
}

/// Whether a CPU came online since so many rings were opened: what ran there was not recorded.
pub fn has_more_cpus(rings: usize) -> bool {
    ring::online().len() > rings
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::process::Command;

    fn stream(choice: Choice) -> Option<Stream> {
        let opened = Stream::open(choice, |name| name.as_bytes().ends_with(b".safetensors"), &[]);
        opened.inspect_err(|why| eprintln!("not tested here: {why}")).ok()
    }

    #[test]
    fn permissions_as_maps_writes_them() {
        let both = (libc::PROT_READ | libc::PROT_WRITE) as u32;
        assert_eq!(&permissions(both, libc::MAP_PRIVATE as u32), b"rw-p");
        assert_eq!(&permissions(libc::PROT_READ as u32, libc::MAP_SHARED as u32), b"r--s");
        assert_eq!(&permissions((libc::PROT_READ | libc::PROT_EXEC) as u32, libc::MAP_PRIVATE as u32), b"r-xp");
    }

    #[test]
    fn what_may_be_of_an_artifact() {
        let mut interest = Interest {
            is_model: |name| name.as_bytes().ends_with(b".gguf"),
            artifacts: 0,
            inodes: HashSet::from([7]),
            paths: HashSet::new(),
        };
        interest.paths.insert(b"/m/raw".to_vec());
        assert!(interest.wants(b"/x.gguf", 1) && interest.wants(b"/x.gguf (deleted)", 1));
        assert!(interest.wants(b"/other", 7) && interest.wants(b"/m/raw", 1));
        assert!(interest.wants(b"//toolong", 7) && !interest.wants(b"//toolong", 8));
        assert!(!interest.wants(b"/other", 1) && !interest.wants(b"//anon", 7) && !interest.wants(b"[heap]", 7));
    }

    #[test]
    fn lives_are_told_and_libraries_are_not() {
        let Some(stream) = stream(Choice::Usual) else { return };
        let watch = stream.watch(|| {}).unwrap();
        assert!(Command::new("sh").args(["-c", "true & wait; ls / >/dev/null"]).status().unwrap().success());
        let taken = stream.take();
        assert_eq!(taken.lost, 0);
        let lives: Vec<&LifeRecord> = taken
            .records
            .iter()
            .map(|(_, record)| match record {
                Record::Life(life) => life,
                Record::Map(map) => panic!("{map:?}"),
            })
            .collect();
        assert!(matches!(lives[0], LifeRecord::Exec { comm, .. } if comm == b"sh"), "{lives:?}");
        assert!(lives.iter().any(|life| matches!(life, LifeRecord::Exec { comm, .. } if comm == b"ls")));
        assert!(matches!(lives.last().unwrap(), LifeRecord::ThreadEnd { .. }));
        watch.finish();
        assert!(stream.drained_at() > Mono(0));
    }
}
