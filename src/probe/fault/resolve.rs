//! From the stream's records to faults with what lies behind them: an artifact's byte, another file, or no file.
//!
//! What the stream has not told (a process from before a loss, memory that mremap(2) moved) is looked up in
//! `/proc/PID/maps`, now and then. Both questions that leave this module, which artifact a file is and what a process
//! maps now, are asked through [`Outside`], so that recorded streams can be resolved in tests.

use std::collections::{HashMap, VecDeque};

use super::record::{FileName, Kind, Record, Stamped};
use super::space::{Behind, FileId, Map, Spaces};
use crate::clock::Mono;
use crate::event::{ArtifactId, Pid};
use crate::proc::maps::Mapping;

/// Whom the resolver asks.
pub trait Outside {
    /// The artifact that a file is, as seen by this process.
    fn artifact(&mut self, pid: Pid, file: &FileName) -> Option<ArtifactId>;

    /// Whether a file that is none may become one in a moment.
    fn may_become(&mut self, file: &FileName) -> bool;

    /// The text of `/proc/PID/maps` now.
    fn maps(&mut self, pid: Pid) -> Option<Vec<u8>>;
}

/// What lies behind an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Artifact {
        artifact: ArtifactId,
        offset: u64,
    },
    OtherFile,
    Anonymous,
    /// Neither the stream nor `/proc/PID/maps` knew of anything at that address.
    Unknown,
}

/// A sampled fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: Mono,
    pub kind: Kind,
    pub pid: Pid,
    pub address: u64,
    pub place: Place,
}

/// A process's maps are not read for one address more often than this.
const REREAD_NS: u64 = 100_000_000;
/// A process that touches artifacts is looked at this often, because mremap(2) leaves no record.
const RECONCILE_NS: u64 = 1_000_000_000;
/// Files that are told apart.
const FILES: usize = 65_536;
/// Faults that wait for their file to join the set, and for how long.
const WAITING: usize = 65_536;
const WAIT_NS: u64 = 2_000_000_000;

/// The one that stands for all files beyond [`FILES`].
const NAMELESS: FileId = FileId(u32::MAX);

struct File {
    name: FileName,
    /// `None`: not asked yet, of the artifacts as they are now.
    artifact: Option<Option<ArtifactId>>,
    may_become: bool,
}

/// A fault in a file that may yet turn out to be an artifact.
struct Waiting {
    fault: Fault,
    file: FileId,
    offset: u64,
}

/// Follows a stream.
#[derive(Default)]
pub struct Resolver {
    spaces: Spaces,
    files: Vec<File>,
    by_name: HashMap<FileName, FileId>,
    waiting: VecDeque<Waiting>,
    /// When maps was last read.
    read_at: HashMap<Pid, Mono>,
    /// Processes that touched artifacts since their maps were last compared.
    touching: HashMap<Pid, Mono>,
    /// Records were lost.
    must_reread: bool,
}

impl Resolver {
    /// Takes one record, in order of time; a fault comes out unless it has to wait.
    pub fn take(&mut self, stamped: Stamped, outside: &mut dyn Outside) -> Option<Fault> {
        let at = stamped.at;
        match stamped.record {
            Record::Fault { kind, pid, address } => return self.fault(at, kind, pid, address, outside),
            Record::Mapped { pid, addresses, offset, file, is_stack } => {
                let behind = self.behind(file, offset);
                self.spaces.map(pid, addresses, behind, is_stack);
            }
            Record::Forked { pid, parent } => {
                self.read_at.remove(&pid);
                self.spaces.fork(parent, pid);
            }
            Record::Execed { pid } => {
                self.read_at.remove(&pid);
                self.spaces.exec(pid);
            }
            Record::Ended { pid } => {
                self.read_at.remove(&pid);
                self.touching.remove(&pid);
                self.spaces.end(pid);
            }
            Record::Lost => self.must_reread = true,
            Record::Reread { pid, maps } => {
                let map = self.map_of(&maps);
                self.spaces.replace(pid, map);
            }
        }
        None
    }

    /// The artifacts are others than before: every file is asked about again.
    pub fn forget_artifacts(&mut self) {
        self.files.iter_mut().for_each(|file| file.artifact = None);
    }

    /// The faults that need not wait any longer as of `now`: their file has joined the set, or will not.
    pub fn settled(&mut self, now: Mono, outside: &mut dyn Outside) -> Vec<Fault> {
        let mut settled = Vec::new();
        let mut rest = VecDeque::new();
        for Waiting { mut fault, file, offset } in std::mem::take(&mut self.waiting) {
            match self.artifact(fault.pid, file, outside) {
                Some(artifact) => {
                    fault.place = Place::Artifact { artifact, offset };
                    settled.push(fault);
                }
                None if now.since(fault.at) >= WAIT_NS => settled.push(fault),
                None => rest.push_back(Waiting { fault, file, offset }),
            }
        }
        self.waiting = rest;
        settled
    }

    /// The processes whose maps are to be read now, because records were lost or may not have been made; each with its
    /// maps goes back in as [`Record::Reread`], with the time from before they were read.
    pub fn doubtful(&mut self, now: Mono) -> Vec<Pid> {
        if std::mem::take(&mut self.must_reread) {
            return self.spaces.alive();
        }
        let due = self.touching.iter_mut().filter(|(_, read)| now.since(**read) >= RECONCILE_NS);
        let due: Vec<Pid> = due.map(|(pid, _)| *pid).collect();
        self.touching.retain(|pid, _| !due.contains(pid));
        due
    }

    fn fault(&mut self, at: Mono, kind: Kind, pid: Pid, address: u64, outside: &mut dyn Outside) -> Option<Fault> {
        let mut behind = self.spaces.at(pid, address);
        if behind.is_none() && self.read_at.get(&pid).is_none_or(|read| at.since(*read) >= REREAD_NS) {
            self.read_at.insert(pid, at);
            if let Some(maps) = outside.maps(pid) {
                self.fill(pid, &maps);
                behind = self.spaces.at(pid, address);
            }
        }
        let mut fault = Fault { at, kind, pid, address, place: Place::Unknown };
        match behind {
            None => {}
            Some(Behind::Anonymous) => fault.place = Place::Anonymous,
            Some(Behind::File { file, offset }) => {
                fault.place = Place::OtherFile;
                if let Some(artifact) = self.artifact(pid, file, outside) {
                    fault.place = Place::Artifact { artifact, offset };
                    self.touching.entry(pid).or_insert(at);
                } else if self.waiting.len() < WAITING
                    && self.files.get(file.0 as usize).is_some_and(|file| file.may_become)
                {
                    self.waiting.push_back(Waiting { fault, file, offset });
                    return None;
                }
            }
        }
        Some(fault)
    }

    fn artifact(&mut self, pid: Pid, file: FileId, outside: &mut dyn Outside) -> Option<ArtifactId> {
        let file = self.files.get_mut(file.0 as usize)?;
        if let Some(known) = file.artifact {
            return known;
        }
        let artifact = outside.artifact(pid, &file.name);
        file.artifact = Some(artifact);
        file.may_become = artifact.is_none() && outside.may_become(&file.name);
        artifact
    }

    fn behind(&mut self, file: Option<FileName>, offset: u64) -> Behind {
        let Some(name) = file else { return Behind::Anonymous };
        let file = match self.by_name.get(&name) {
            Some(id) => *id,
            None if self.files.len() >= FILES => NAMELESS,
            None => {
                let id = FileId(self.files.len() as u32);
                self.files.push(File { name: name.clone(), artifact: None, may_become: false });
                self.by_name.insert(name, id);
                id
            }
        };
        Behind::File { file, offset }
    }

    /// What a text of maps says.
    fn map_of(&mut self, maps: &[u8]) -> Map {
        let mut map = Map::default();
        for mapping in Mapping::all(maps) {
            let file = mapping.is_of_file().then(|| FileName {
                path: mapping.path.to_vec(),
                device: mapping.device,
                inode: mapping.inode,
            });
            let behind = self.behind(file, mapping.offset);
            map.map(mapping.start..mapping.end, behind, mapping.path == b"[stack]");
        }
        map
    }

    /// Adds what a text of maps says to what the stream has told. The stream goes before it: maps was read later than
    /// the fault that is asked about, and what was there then may be gone.
    fn fill(&mut self, pid: Pid, maps: &[u8]) {
        let now = self.map_of(maps);
        match self.spaces.of(pid) {
            Some(told) => {
                let mut filled = now;
                filled.overlay(told);
                self.spaces.replace(pid, filled);
            }
            None => self.spaces.replace(pid, now),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Artifacts by path, and the maps of processes.
    #[derive(Default)]
    struct World {
        artifacts: HashMap<&'static [u8], usize>,
        maps: HashMap<Pid, &'static str>,
        rereads: usize,
    }

    impl Outside for World {
        fn artifact(&mut self, _: Pid, file: &FileName) -> Option<ArtifactId> {
            self.artifacts.get(file.path.as_slice()).map(|index| ArtifactId(*index))
        }

        fn may_become(&mut self, file: &FileName) -> bool {
            file.path.ends_with(b".gguf")
        }

        fn maps(&mut self, pid: Pid) -> Option<Vec<u8>> {
            self.rereads += 1;
            self.maps.get(&pid).map(|text| text.as_bytes().to_vec())
        }
    }

    struct Stream {
        resolver: Resolver,
        world: World,
        now: u64,
    }

    impl Stream {
        fn new(artifacts: &[(&'static str, usize)]) -> Stream {
            let artifacts = artifacts.iter().map(|(path, index)| (path.as_bytes(), *index)).collect();
            Stream { resolver: Resolver::default(), world: World { artifacts, ..World::default() }, now: 0 }
        }

        fn tell(&mut self, record: Record) -> Option<Fault> {
            self.now += 1;
            self.resolver.take(Stamped { at: Mono(self.now), record }, &mut self.world)
        }

        fn map(&mut self, pid: Pid, addresses: std::ops::Range<u64>, path: &str, offset: u64) {
            let file = (!path.is_empty()).then(|| FileName { path: path.into(), device: 1, inode: 2 });
            let record = Record::Mapped { pid, addresses, offset, file, is_stack: false };
            assert_eq!(self.tell(record), None);
        }

        fn fault(&mut self, pid: Pid, address: u64) -> Option<Place> {
            self.tell(Record::Fault { kind: Kind::Minor, pid, address }).map(|fault| fault.place)
        }
    }

    fn artifact(index: usize, offset: u64) -> Option<Place> {
        Some(Place::Artifact { artifact: ArtifactId(index), offset })
    }

    #[test]
    fn each_address_is_what_it_was_at_that_time() {
        let mut stream = Stream::new(&[("/m", 0), ("/n", 1)]);
        stream.map(7, 0x1000..0x9000, "/m", 0x4000);
        assert_eq!(stream.fault(7, 0x2345), artifact(0, 0x5345));
        // Unmapped without a record, and mapped again: first the other file, then memory.
        stream.map(7, 0x1000..0x3000, "/n", 0);
        assert_eq!(stream.fault(7, 0x2345), artifact(1, 0x1345));
        assert_eq!(stream.fault(7, 0x3000), artifact(0, 0x6000));
        stream.map(7, 0x2000..0x4000, "", 0);
        assert_eq!(stream.fault(7, 0x2345), Some(Place::Anonymous));
        assert_eq!(stream.fault(7, 0x1fff), artifact(1, 0xfff));
        stream.map(7, 0x2000..0x4000, "/lib/libc.so", 0);
        assert_eq!(stream.fault(7, 0x2345), Some(Place::OtherFile));
    }

    #[test]
    fn a_fork_inherits_and_an_exec_forgets() {
        let mut stream = Stream::new(&[("/m", 0)]);
        stream.map(7, 0x1000..0x9000, "/m", 0);
        stream.tell(Record::Forked { pid: 8, parent: 7 });
        assert_eq!(stream.fault(8, 0x1000), artifact(0, 0));
        stream.tell(Record::Execed { pid: 8 });
        assert_eq!(stream.fault(8, 0x1000), Some(Place::Unknown));
        assert_eq!(stream.fault(7, 0x1000), artifact(0, 0));
    }

    #[test]
    fn what_the_stream_has_not_told_is_looked_up_but_not_at_every_fault() {
        let mut stream = Stream::new(&[("/m", 0)]);
        stream.world.maps.insert(7, "1000-5000 r--p 00002000 00:01 2   /m\n8000-9000 rw-p 00000000 00:00 0 \n");
        assert_eq!(stream.fault(7, 0x1004), artifact(0, 0x2004));
        assert_eq!(stream.fault(7, 0x8004), Some(Place::Anonymous));
        assert_eq!(stream.fault(7, 0xffff), Some(Place::Unknown));
        assert_eq!(stream.fault(7, 0xffff), Some(Place::Unknown));
        assert_eq!(stream.world.rereads, 1);
        stream.now += REREAD_NS;
        // The stream's word stays: maps shows a later moment.
        stream.map(7, 0x1000..0x2000, "", 0);
        stream.world.maps.insert(7, "1000-5000 r--p 00002000 00:01 2   /m\nf000-11000 r--p 00007000 00:01 2   /m\n");
        assert_eq!(stream.fault(7, 0xffff), artifact(0, 0x7fff));
        assert_eq!(stream.fault(7, 0x1004), Some(Place::Anonymous));
        assert_eq!(stream.world.rereads, 2);
    }

    #[test]
    fn after_a_loss_all_maps_are_read_anew() {
        let mut stream = Stream::new(&[("/m", 0)]);
        stream.map(7, 0x1000..0x9000, "/m", 0);
        stream.map(8, 0x1000..0x9000, "/m", 0);
        stream.tell(Record::Ended { pid: 8 });
        assert!(stream.resolver.doubtful(Mono(5)).is_empty());
        stream.tell(Record::Lost);
        assert_eq!(stream.resolver.doubtful(Mono(6)), [7]);
        assert!(stream.resolver.doubtful(Mono(7)).is_empty());
        let maps = b"1000-2000 rw-p 00000000 00:00 0 \n".to_vec();
        stream.tell(Record::Reread { pid: 7, maps });
        assert_eq!(stream.fault(7, 0x1000), Some(Place::Anonymous));
        assert_eq!(stream.fault(7, 0x3000), Some(Place::Unknown));
    }

    #[test]
    fn a_process_that_touches_artifacts_is_compared_now_and_then() {
        let mut stream = Stream::new(&[("/m", 0)]);
        stream.map(7, 0x1000..0x9000, "/m", 0);
        stream.fault(7, 0x1000);
        assert!(stream.resolver.doubtful(Mono(stream.now)).is_empty());
        assert_eq!(stream.resolver.doubtful(Mono(stream.now + RECONCILE_NS)), [7]);
        assert!(
            stream.resolver.doubtful(Mono(stream.now + 3 * RECONCILE_NS)).is_empty(),
            "it has touched nothing since"
        );
    }

    #[test]
    fn a_fault_waits_for_a_file_that_may_become_an_artifact() {
        let mut stream = Stream::new(&[]);
        stream.map(7, 0x1000..0x9000, "/found.gguf", 0x1000);
        stream.map(7, 0x9000..0xa000, "/never.gguf", 0);
        assert_eq!(stream.fault(7, 0x1008), None);
        assert_eq!(stream.fault(7, 0x9000), None);
        let mut world = World::default();
        world.artifacts.insert(b"/found.gguf", 4);
        stream.resolver.forget_artifacts();
        let settled = stream.resolver.settled(Mono(100), &mut world);
        assert_eq!(
            settled.iter().map(|fault| (fault.at.0, Some(fault.place))).collect::<Vec<_>>(),
            [(3, artifact(4, 0x1008))]
        );
        let settled = stream.resolver.settled(Mono(10 + WAIT_NS), &mut world);
        assert_eq!(settled.len(), 1);
        assert_eq!(settled[0].place, Place::OtherFile);
        assert!(stream.resolver.settled(Mono(u64::MAX), &mut world).is_empty());
    }
}
