//! Address spaces as the record stream tells of them: which byte of which file stands behind an address of a process.
//!
//! A fork copies the parent's map, an exec begins an empty one, a mapping replaces what was there. The stream does not
//! tell of munmap(2) and mremap(2): an address that nothing is known of is asked for in `/proc/PID/maps` by whoever
//! holds these maps, and given here as a whole new map.
//!
//! Pure: asks nobody.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::event::Pid;

/// A file by its number among those of the same stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// What stands behind an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// A byte of a file.
    File { file: FileId, offset: u64 },
    /// Memory with no file behind it.
    Anonymous,
}

/// What is mapped over a range of addresses. For a file, the byte behind the first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    behind: Behind,
    /// The kernel lets it grow downwards without a record.
    is_stack: bool,
}

/// One address space.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// By first address. Neither empty nor overlapping.
    pieces: BTreeMap<u64, Piece>,
}

/// How far below a stack's known end an address is still the stack's: the usual limit of its size.
const STACK: u64 = 8 << 20;

impl Map {
    /// Maps a range of addresses, in place of whatever was there. The offset is that of its first address.
    pub fn map(&mut self, addresses: Range<u64>, behind: Behind, is_stack: bool) {
        if addresses.start >= addresses.end {
            return;
        }
        self.cut(addresses.start);
        self.cut(addresses.end);
        while let Some((&start, _)) = self.pieces.range(addresses.clone()).next() {
            self.pieces.remove(&start);
        }
        self.pieces.insert(addresses.start, Piece { end: addresses.end, behind, is_stack });
    }

    /// Makes a piece begin at this address, if one lies over it.
    fn cut(&mut self, address: u64) {
        let Some((&start, piece)) = self.pieces.range_mut(..address).next_back() else { return };
        if piece.end <= address {
            return;
        }
        let rest = Piece { behind: piece.behind.further(address - start), ..*piece };
        piece.end = address;
        self.pieces.insert(address, rest);
    }

    /// What stands behind an address; `None` where nothing is known to be mapped.
    pub fn at(&self, address: u64) -> Option<Behind> {
        if let Some((start, piece)) = self.pieces.range(..=address).next_back()
            && address < piece.end
        {
            return Some(piece.behind.further(address - start));
        }
        let (start, above) = self.pieces.range(address..).next()?;
        (above.is_stack && start - address <= STACK).then_some(Behind::Anonymous)
    }

    /// Puts everything that another map has over what is here.
    pub fn overlay(&mut self, other: &Map) {
        for (start, piece) in &other.pieces {
            self.map(*start..piece.end, piece.behind, piece.is_stack);
        }
    }
}

impl Behind {
    fn further(self, bytes: u64) -> Behind {
        match self {
            Behind::File { file, offset } => Behind::File { file, offset: offset.saturating_add(bytes) },
            Behind::Anonymous => Behind::Anonymous,
        }
    }
}

/// The maps of processes that have ended are kept for this many of them: records of one moment come from several
/// rings, and a number may be asked for once more.
const ENDED: usize = 256;

/// The address spaces of a tree of processes.
#[derive(Debug, Default)]
pub struct Spaces {
    maps: HashMap<Pid, Arc<Map>>,
    ended: VecDeque<Pid>,
}

impl Spaces {
    /// A process has a copy of its parent's.
    pub fn fork(&mut self, parent: Pid, child: Pid) {
        self.ended.retain(|pid| *pid != child);
        match self.maps.get(&parent).cloned() {
            Some(map) => drop(self.maps.insert(child, map)),
            None => drop(self.maps.remove(&child)),
        }
    }

    /// A process begins anew with an empty one.
    pub fn exec(&mut self, pid: Pid) {
        self.maps.insert(pid, Arc::default());
    }

    /// A process maps something.
    pub fn map(&mut self, pid: Pid, addresses: Range<u64>, behind: Behind, is_stack: bool) {
        Arc::make_mut(self.maps.entry(pid).or_default()).map(addresses, behind, is_stack);
    }

    /// All that is known of a process is this.
    pub fn replace(&mut self, pid: Pid, map: Map) {
        self.maps.insert(pid, Arc::new(map));
    }

    /// A process has ended. What is known of it is forgotten after a while.
    pub fn end(&mut self, pid: Pid) {
        self.ended.push_back(pid);
        if self.ended.len() > ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.maps.remove(&oldest);
        }
    }

    /// All that is known of a process.
    pub fn of(&self, pid: Pid) -> Option<&Map> {
        self.maps.get(&pid).map(|map| &**map)
    }

    /// What stands behind an address of a process.
    pub fn at(&self, pid: Pid, address: u64) -> Option<Behind> {
        self.maps.get(&pid)?.at(address)
    }

    /// The processes that have not ended.
    pub fn alive(&self) -> Vec<Pid> {
        self.maps.keys().filter(|pid| !self.ended.contains(pid)).copied().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(number: u32, offset: u64) -> Behind {
        Behind::File { file: FileId(number), offset }
    }

    #[test]
    fn a_mapping_over_the_middle_leaves_both_ends() {
        let mut map = Map::default();
        map.map(100..200, file(1, 1000), false);
        map.map(140..160, Behind::Anonymous, false);
        assert_eq!(map.at(139), Some(file(1, 1039)));
        assert_eq!(map.at(140), Some(Behind::Anonymous));
        assert_eq!(map.at(160), Some(file(1, 1060)));
        assert_eq!((map.at(99), map.at(200)), (None, None));
        assert_eq!(map.pieces.len(), 3);
    }

    #[test]
    fn a_stack_grows_downwards_without_being_told() {
        let mut map = Map::default();
        map.map(1 << 30..(1 << 30) + 4096, Behind::Anonymous, true);
        assert_eq!(map.at((1 << 30) - 4096), Some(Behind::Anonymous));
        assert_eq!(map.at((1 << 30) - STACK - 1), None);
        map.map((1 << 30) - 8192..(1 << 30) - 4096, file(0, 0), false);
        assert_eq!(map.at((1 << 30) - 8192), Some(file(0, 0)), "what is told goes before what is guessed");
    }

    #[test]
    fn a_child_keeps_what_its_parent_had_and_each_goes_its_own_way() {
        let mut spaces = Spaces::default();
        spaces.map(1, 0..100, file(7, 0), false);
        spaces.fork(1, 2);
        assert_eq!(spaces.at(2, 50), Some(file(7, 50)));
        spaces.map(1, 0..100, Behind::Anonymous, false);
        assert_eq!(spaces.at(2, 50), Some(file(7, 50)));
        assert_eq!(spaces.at(1, 50), Some(Behind::Anonymous));
        spaces.exec(2);
        assert_eq!(spaces.at(2, 50), None);
        assert!(spaces.of(2).is_some());
    }

    #[test]
    fn a_process_number_that_comes_again_has_nothing_of_the_one_before() {
        let mut spaces = Spaces::default();
        spaces.map(5, 0..10, file(1, 0), false);
        spaces.end(5);
        assert_eq!(spaces.at(5, 0), Some(file(1, 0)), "records of other rings may still come");
        spaces.fork(99, 5);
        assert_eq!(spaces.at(5, 0), None);
        assert!(spaces.alive().is_empty());
        for pid in 100..1000 {
            spaces.map(pid, 0..10, Behind::Anonymous, false);
            spaces.end(pid);
        }
        assert!(spaces.of(100).is_none());
        assert!(spaces.maps.len() <= ENDED + 1);
    }

    proptest! {
        /// Against a map that holds every address for itself.
        #[test]
        fn it_behaves_as_one_address_after_the_other(
            calls in prop::collection::vec((0u64..60, 0u64..30, 0u32..5, 0u64..1000), 0..40)
        ) {
            let mut map = Map::default();
            let mut plain = [None; 100];
            for (start, length, number, offset) in calls {
                let behind = if number == 0 { Behind::Anonymous } else { file(number, offset) };
                map.map(start..start + length, behind, false);
                for at in start..start + length {
                    plain[at as usize] = Some(behind.further(at - start));
                }
            }
            for (address, expected) in plain.iter().enumerate() {
                prop_assert_eq!(map.at(address as u64), *expected);
            }
            let pieces: Vec<_> = map.pieces.iter().map(|(start, piece)| (*start, piece.end)).collect();
            prop_assert!(pieces.iter().all(|(start, end)| start < end));
            prop_assert!(pieces.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }
}
