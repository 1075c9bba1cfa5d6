//! Mappings as the kernel recorded them: when each was made, and of what, those included that are gone before anybody
//! can read maps.
//!
//! There is no record of munmap and mremap, and a second one of mprotect: what a process holds by its records is taken
//! until its maps are read again, which a record asks for.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::{Holding, MappingProbe, Place, Watched};
use crate::artifact::extent::Ranges;
use crate::artifact::{Artifact, ArtifactId};
use crate::clock::Mono;
use crate::event::{Pid, What};
use crate::launch::tree::{LifeRecord, Sighting, Tree};
use crate::probe::stream::{MapRecord, Record};

/// Records of model files that are no artifacts yet, kept until they are.
const MOST_UNCLAIMED: usize = 4096;

/// What processes mapped of artifacts in one batch of records, after the first mapping of each, which is told at once:
/// these together are worth one event, and one union of ranges.
type Told = HashMap<(Pid, ArtifactId), Later>;

struct Later {
    first: Mono,
    last: Mono,
    ranges: Vec<Range<u64>>,
    places: Vec<Place>,
    permissions: BTreeSet<[u8; 4]>,
}

/// Where a record says that its mapping lies.
fn place_of(map: &MapRecord) -> Place {
    let MapRecord { start, length, offset, device, inode, .. } = *map;
    Place { start, end: start.saturating_add(length), offset, device, inode }
}

impl MappingProbe {
    /// Takes records in, in order of time, after [`Tree::merge`] has had them. What follows from them goes to `changes`,
    /// where readings of maps that were made since the last call may have told of the same.
    pub fn heed(
        &mut self,
        tree: &Tree,
        artifacts: &[Artifact],
        records: &[(Mono, Record)],
        changes: &mut Vec<Sighting>,
    ) {
        self.by_records = true;
        let mut told = Told::new();
        if self.learn(artifacts) {
            for (at, map) in std::mem::take(&mut self.unclaimed) {
                self.mapped(tree, artifacts, at, &map, &mut told, changes);
            }
        }
        for (at, record) in records {
            match record {
                Record::Life(LifeRecord::Exec { pid, .. }) => {
                    let of_it = |(other, _): &(Pid, ArtifactId), _: &mut Later| other == pid;
                    let later = told.extract_if(of_it).collect();
                    self.tell_later(tree, later, changes);
                    self.left(tree, *at, *pid, changes);
                }
                Record::Life(_) => {}
                Record::Map(map) => self.mapped(tree, artifacts, *at, map, &mut told, changes),
            }
        }
        self.tell_later(tree, told.into_iter().collect(), changes);
        let is_over = |pid: &Pid| tree.end_of(*pid);
        for (pid, holdings) in self.strangers.extract_if(|pid, _| is_over(pid).is_some()) {
            let Some(end) = is_over(&pid) else { continue };
            changes.extend(unmapped(pid, end, holdings));
        }
        self.tell_doubts(changes);
    }

    /// Records were lost: everything is to be read again.
    pub fn rescan(&mut self) {
        self.watched.values_mut().for_each(|watched| watched.wanted = true);
    }

    /// An exec leaves every mapping behind.
    fn left(&mut self, tree: &Tree, at: Mono, pid: Pid, changes: &mut Vec<Sighting>) {
        let holdings = match watched_of(&mut self.watched, tree, at, pid) {
            // Read since: what it holds, it holds after the exec.
            Some(watched) if watched.read_at.is_some_and(|read| read >= at) => return,
            Some(watched) => {
                watched.wanted = true;
                std::mem::take(&mut watched.holdings)
            }
            None => self.strangers.remove(&pid).unwrap_or_default(),
        };
        self.stale |= !holdings.is_empty();
        self.version += u64::from(!holdings.is_empty());
        changes.extend(unmapped(pid, at, holdings));
    }

    fn mapped(
        &mut self,
        tree: &Tree,
        artifacts: &[Artifact],
        at: Mono,
        map: &MapRecord,
        told: &mut Told,
        changes: &mut Vec<Sighting>,
    ) {
        let pid = map.pid;
        let id = self.identities.of_record(map);
        let Some((id, file)) = id.and_then(|id| Some((id, artifacts.get(id.0)?))) else {
            if self.identities.may_be_model(&map.path) && self.unclaimed.len() < MOST_UNCLAIMED {
                self.unclaimed.push((at, map.clone()));
            }
            return;
        };
        // A mapping goes to the end of a page, the file may end before.
        let end = map.offset.saturating_add(map.length).min(file.size);
        let range = map.offset.min(end)..end;
        let later = match told.entry((pid, id)) {
            Entry::Occupied(later) => later.into_mut(),
            Entry::Vacant(first) => {
                first.insert(Later {
                    first: at,
                    last: at,
                    ranges: Vec::new(),
                    places: Vec::new(),
                    permissions: BTreeSet::new(),
                });
                let permissions = BTreeSet::from([map.permissions]);
                let added = Later {
                    first: at,
                    last: at,
                    ranges: vec![range.clone()],
                    places: vec![place_of(map)],
                    permissions: permissions.clone(),
                };
                let is_shown = told_by_reading(changes, at, pid, id).is_some();
                match watched_of(&mut self.watched, tree, at, pid) {
                    // A reading takes time: it may also show what was mapped after it began.
                    Some(watched)
                        if is_shown || watched.read_at.is_some_and(|read| read >= at) && id.0 < watched.knew =>
                    {
                        read_since(watched, at, pid, id, range, permissions, changes);
                    }
                    _ => self.add(tree, (pid, id), added, changes),
                }
                return;
            }
        };
        // What maps showed since need not be added; it is read again if something was.
        later.last = at;
        later.ranges.push(range);
        later.places.push(place_of(map));
        later.permissions.insert(map.permissions);
    }

    fn tell_later(&mut self, tree: &Tree, later: Vec<((Pid, ArtifactId), Later)>, changes: &mut Vec<Sighting>) {
        for (of, later) in later {
            let read = watched_of(&mut self.watched, tree, later.last, of.0).and_then(|watched| watched.read_at);
            if !later.ranges.is_empty() && read.is_none_or(|read| read < later.last) {
                self.add(tree, of, later, changes);
            }
        }
    }

    /// Adds mappings to what a process holds, until its maps are read; tells it if that is more than before.
    fn add(
        &mut self,
        tree: &Tree,
        (pid, artifact): (Pid, ArtifactId),
        Later { first, last, ranges, places, permissions }: Later,
        changes: &mut Vec<Sighting>,
    ) {
        // Any of several may have been the last to add something.
        let window = if ranges.len() == 1 { 0 } else { last.since(first) };
        let holdings = match watched_of(&mut self.watched, tree, last, pid) {
            Some(watched) => {
                watched.wanted = true;
                &mut watched.holdings
            }
            None => self.strangers.entry(pid).or_default(),
        };
        let nothing =
            || Holding { ranges: Ranges::default(), permissions: String::new(), places: Vec::new(), seen: last };
        let holding = holdings.entry(artifact).or_insert_with(nothing);
        holding.seen = holding.seen.max(first);
        let more = holding.ranges.union(&ranges.into_iter().collect());
        let words: Vec<String> = permissions.iter().map(text_of_permissions).collect();
        let known = holding.permissions.split(',').filter(|each| !each.is_empty()).map(str::to_owned);
        let all: BTreeSet<String> = known.chain(words).collect();
        let all = all.into_iter().collect::<Vec<_>>().join(",");
        if more != holding.ranges || all != holding.permissions {
            (holding.ranges, holding.permissions) = (more, all.clone());
            // One that took another's place is told apart when maps is read.
            holding.places.extend(places);
            self.version += 1;
            let what = What::Mapped { pid, artifact, bytes: holding.ranges.len(), permissions: all };
            changes.push((last, Some(window), what));
            self.stale = true;
            self.opened.insert(artifact);
        }
    }
}

/// What a process held until its address space ended, as far as it had not given it back before.
fn unmapped(pid: Pid, at: Mono, holdings: BTreeMap<ArtifactId, Holding>) -> impl Iterator<Item = Sighting> {
    let end = move |(artifact, holding): (ArtifactId, Holding)| {
        (at, Some(at.since(holding.seen)), What::Unmapped { pid, artifact })
    };
    holdings.into_iter().map(end)
}

fn text_of_permissions(permissions: &[u8; 4]) -> String {
    String::from_utf8_lossy(permissions).into_owned()
}

/// The process that had this pid at that time, if it is followed and still there.
fn watched_of<'w>(
    watched: &'w mut HashMap<crate::launch::tree::ProcessKey, Watched>,
    tree: &Tree,
    at: Mono,
    pid: Pid,
) -> Option<&'w mut Watched> {
    let process = tree.process(pid).filter(|process| !process.has_ended && tree.is_same(pid, at))?;
    watched.get_mut(&process.key)
}

/// What a reading of maps, made since, tells of a mapping by this process of this artifact that may have been made then.
fn told_by_reading(changes: &mut [Sighting], at: Mono, pid: Pid, id: ArtifactId) -> Option<&mut Sighting> {
    changes.iter_mut().find(|(seen, window, what)| {
        let same = matches!(what, What::Mapped { pid: p, artifact, .. } if (*p, *artifact) == (pid, id));
        same && *window != Some(0) && *seen >= at && window.is_none_or(|window| seen.since(at) <= window)
    })
}

/// A mapping whose process's maps were read after it was made: either they show it, or it was gone by then.
fn read_since(
    watched: &Watched,
    at: Mono,
    pid: Pid,
    id: ArtifactId,
    range: Range<u64>,
    permissions: BTreeSet<[u8; 4]>,
    changes: &mut Vec<Sighting>,
) {
    let permissions = permissions.iter().map(text_of_permissions).collect();
    let bytes = range.end - range.start;
    let what = What::Mapped { pid, artifact: id, bytes, permissions };
    match told_by_reading(changes, at, pid, id) {
        Some((seen, window, by_reading)) if *by_reading == what => (*seen, *window) = (at, Some(0)),
        Some((seen, window, _)) => {
            // It had come to more by the time it was read.
            *window = Some(seen.since(at));
            changes.push((at, Some(0), what));
        }
        // Told already, by what was read before.
        None if watched.holdings.contains_key(&id) => {}
        None => {
            let read = watched.read_at.unwrap_or(at);
            changes.push((at, Some(0), what));
            changes.push((read, Some(read.since(at)), What::Unmapped { pid, artifact: id }));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event::Found;
    use crate::launch::Finals;
    use std::time::Duration;

    #[test]
    fn what_was_mapped_while_maps_was_read_has_its_records_time() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let artifacts = [Artifact::open_raw(file.path(), Found::Declared).unwrap()];
        let start = Mono::now();
        let _mapping = crate::sys::cache::Mapping::new(file.as_file(), 0..8192).unwrap();
        let pid = std::process::id() as Pid;
        let mut tree = Tree::without_orphans(pid, start, Finals::default(), |argv| argv.to_vec());
        tree.sweep(Mono::now());
        let mut probe = MappingProbe::new(|_| false);
        let mut changes = probe.look(&tree, &artifacts, Duration::from_secs(1)).changes;
        let key = tree.process(pid).unwrap().key;
        // The reading began just before the mapping was made, and shows it.
        let made = probe.watched[&key].read_at.unwrap().plus(1);
        let place = probe.watched[&key].holdings[&ArtifactId(0)].places[0];
        let record = Record::Map(MapRecord {
            pid,
            start: place.start,
            offset: 0,
            length: 8192,
            permissions: *b"r--s",
            device: artifacts[0].device,
            inode: artifacts[0].inode,
            path: file.path().as_os_str().as_encoded_bytes().to_vec(),
        });
        let is_mapped = |what: &What| matches!(what, What::Mapped { .. });
        let by_reading: Vec<_> = changes.iter().filter(|(_, _, what)| is_mapped(what)).cloned().collect();
        assert!(matches!(by_reading[..], [(seen, Some(1..), _)] if seen > made), "{by_reading:?}");
        probe.heed(&tree, &artifacts, &[(made, record)], &mut changes);
        let told: Vec<_> = changes.iter().filter(|(_, _, what)| is_mapped(what)).collect();
        assert!(told.iter().all(|(_, _, what)| *what == by_reading[0].2), "{told:?} {by_reading:?}");
        assert!(matches!(told[..], [(at, Some(0), _)] if *at == made), "{told:?}");
    }
}
