//! Which bytes of which artifacts are mapped, and which artifacts are open: `/proc/PID/maps`, `/proc/PID/fd`.
//!
//! Maps is dear (about 1 µs a mapping) and holds up the target's own mmap calls, so it is read when a process's size
//! moved, and in a slow rotation for what does not show in the size (mprotect, a mapping over a reserved range). What a
//! reading cost is paid off by the budgets of later ticks.
//!
//! Where the kernel's records come too ([`MappingProbe::heed`]), they say what was mapped and when, and maps is read
//! when one names an artifact, and of processes that hold some when their size moved.

mod identity;
mod records;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use super::Reading;
use crate::artifact::extent::Ranges;
use crate::artifact::{Artifact, ArtifactId};
use crate::clock::{Beat, Mono};
use crate::event::{Pid, What};
use crate::launch::tree::{Process, ProcessKey, Sighting, Tree};
use crate::metric::Metric;
use crate::probe::stream::MapRecord;
use crate::proc::Unread;
use crate::proc::maps::{self, Mapping};
use crate::sys::cache::length_as_known;
use identity::Doubt;
pub(crate) use identity::Identities;

/// What a look at the mappings found.
#[derive(Debug, Default)]
pub struct MappingReading {
    pub reading: Reading,
    /// Artifacts opened, mapped, unmapped: what, the moment it was seen, and for how long it cannot have been so.
    pub changes: Vec<Sighting>,
    /// Files opened or mapped that look like artifacts and are not in the set.
    pub discovered: Vec<PathBuf>,
    /// Whether every process's mappings were read in this look.
    pub complete: bool,
}

/// The mapped part of one artifact, for `detail.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMapping {
    pub artifact: ArtifactId,
    pub mapped_bytes: u64,
    /// Absent where the payload is unknown.
    pub mapped_payload_bytes: Option<u64>,
}

/// A glance reads what takes no longer than this, as far as is known, and in all no more than twice as long.
const GLANCE_NS: u64 = 100_000;
/// A process's mappings are not read again before so many times what the last reading took…
const REST: u64 = 20;
/// … or fewer, down to this many, where the caller's budget is larger than the usual one.
const LEAST_REST: u64 = 2;
const USUAL_BUDGET_NS: u64 = 200_000;
/// So many budgets may be saved up.
const MOST_SAVED: u64 = 10;
/// Descriptors are looked at so often while some artifact has not been opened, and so often afterwards…
const OPEN_PERIOD_NS: u64 = 50_000_000;
const OPEN_PERIOD_LATER_NS: u64 = 2_000_000_000;
/// … and never for more than one part in this many of the time, with so much saved up.
const OPEN_SHARE: u64 = 100;
const OPEN_MOST_SAVED_NS: i64 = 1_000_000;

/// Where one mapping of an artifact lies in a process, as its maps had it when last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Addresses.
    pub start: u64,
    pub end: u64,
    /// Of its first byte in the file.
    pub offset: u64,
    /// As maps shows them: for telling whether it is still the same mapping, not for telling of which file.
    pub device: u64,
    pub inode: u64,
}

/// What one process maps of one artifact.
#[derive(Clone, Debug)]
struct Holding {
    ranges: Ranges,
    permissions: String,
    places: Vec<Place>,
    /// When it was last known to.
    seen: Mono,
}

/// Whether it is the same but for when that was seen.
impl PartialEq for Holding {
    fn eq(&self, other: &Holding) -> bool {
        self.covers_the_same(other) && self.places == other.places
    }
}

impl Holding {
    /// Whether the same bytes are mapped in the same way, wherever.
    fn covers_the_same(&self, other: &Holding) -> bool {
        (&self.ranges, &self.permissions) == (&other.ranges, &other.permissions)
    }
}

/// What is known of one process.
#[derive(Debug, Default)]
struct Watched {
    label: String,
    born_after: Option<Mono>,
    /// When its mappings were last read, of which program, and at which size.
    read_at: Option<Mono>,
    image: u32,
    size: u64,
    cost_ns: u64,
    /// How many artifacts there were then.
    knew: usize,
    /// Something may have changed since.
    wanted: bool,
    holdings: BTreeMap<ArtifactId, Holding>,
    unread: Option<String>,
    descriptors_at: Option<Mono>,
    descriptors_image: u32,
    opened: HashSet<ArtifactId>,
}

impl Watched {
    /// For how long before `at` its mappings had not been read.
    fn unread_before(&self, at: Mono) -> Option<u64> {
        self.read_at.or(self.born_after).map(|since| at.since(since))
    }
}

/// Watches mappings of the artifact set.
pub struct MappingProbe {
    identities: Identities,
    watched: HashMap<ProcessKey, Watched>,
    /// The union over the processes, by artifact.
    mapped: Vec<Ranges>,
    stale: bool,
    /// Counts the changes of what is mapped where.
    version: u64,
    opened: HashSet<ArtifactId>,
    credit_ns: Option<i64>,
    open_credit_ns: i64,
    last_tick: Option<Mono>,
    /// One process of the rotation is read so often, if nothing else is wanted…
    turn: Beat,
    /// … or, where the kernel's records tell of what is mapped, so often: what is left is a mapping that another took the
    /// place of.
    turn_beside_records: Beat,
    /// Whether the kernel's records come too.
    by_records: bool,
    /// What processes map by their records that no sweep has seen, or not yet.
    strangers: HashMap<Pid, BTreeMap<ArtifactId, Holding>>,
    unclaimed: Vec<(Mono, MapRecord)>,
    text: Vec<u8>,
}

impl MappingProbe {
    /// `is_model` says of a file's name whether it is worth a look as an artifact.
    pub fn new(is_model: fn(&OsStr) -> bool) -> MappingProbe {
        MappingProbe {
            identities: Identities::new(is_model),
            watched: HashMap::new(),
            mapped: Vec::new(),
            stale: true,
            version: 0,
            opened: HashSet::new(),
            credit_ns: None,
            open_credit_ns: OPEN_MOST_SAVED_NS,
            last_tick: None,
            turn: Beat::MAPS,
            turn_beside_records: Beat::MAPS_BESIDE_RECORDS,
            by_records: false,
            strangers: HashMap::new(),
            unclaimed: Vec::new(),
            text: Vec::new(),
        }
    }

    /// Looks where something may have changed, spending at most about `budget` a tick on the average: a process of many
    /// mappings takes several ticks' worth at once, and then nothing is read until that is paid off.
    ///
    /// Artifacts are numbered by their place in `artifacts`, which only grows.
    pub fn tick(&mut self, tree: &Tree, artifacts: &[Artifact], budget: Duration) -> MappingReading {
        let now = Mono::now();
        let budget_ns = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX).min(1 << 40);
        let most = budget_ns.saturating_mul(MOST_SAVED) as i64;
        let mut credit = self.credit_ns.map_or(most, |credit| (credit + budget_ns as i64).min(most));
        let mut found = MappingReading::default();
        self.follow(tree, artifacts, now, &mut found);

        let rest = (REST * USUAL_BUDGET_NS / budget_ns.max(1)).clamp(LEAST_REST, REST);
        for key in self.in_need(tree, |watched| watched.wanted) {
            if credit <= 0 {
                break;
            }
            credit -= self.read_if_due(key, artifacts, rest, &mut found);
        }
        let by_records = self.by_records;
        let due = |watched: &Watched| {
            watched.read_at.is_some_and(|at| at < now) && (!by_records || !watched.holdings.is_empty())
        };
        let turn = if by_records { self.turn_beside_records } else { self.turn };
        if credit > 0
            && turn.is_due(now)
            && let Some(key) = self.in_need(tree, due).first()
        {
            credit -= self.read_if_due(*key, artifacts, rest, &mut found);
            self.turn.done(now);
            self.turn_beside_records.done(now);
        }
        self.credit_ns = Some(credit);
        self.look_at_descriptors(tree, artifacts, now, &mut found);
        self.conclude(artifacts, &mut found);
        found
    }

    /// Looks at every process, for a mark; stops at `limit`.
    pub fn look(&mut self, tree: &Tree, artifacts: &[Artifact], limit: Duration) -> MappingReading {
        let now = Mono::now();
        let end = now.plus(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let mut found = MappingReading { complete: true, ..MappingReading::default() };
        self.follow(tree, artifacts, now, &mut found);
        for key in self.in_need(tree, |_| true) {
            if Mono::now() >= end {
                found.complete = false;
                break;
            }
            self.read(key, artifacts, &mut found);
        }
        for process in tree.processes().filter(|process| !process.has_ended) {
            if Mono::now() >= end {
                break;
            }
            self.read_descriptors(process.key, &mut found);
        }
        self.conclude(artifacts, &mut found);
        found
    }

    /// Looks only where that is known to be quick, for the sample beside a mapping that a record told of, and as far as it
    /// is done by `until`, by what it took before.
    pub fn glance(&mut self, tree: &Tree, artifacts: &[Artifact], until: Mono) -> MappingReading {
        let now = Mono::now();
        let until = until.min(now.plus(2 * GLANCE_NS));
        let mut found = MappingReading::default();
        self.follow(tree, artifacts, now, &mut found);
        for key in self.in_need(tree, |watched| watched.wanted && (1..=GLANCE_NS).contains(&watched.cost_ns)) {
            let cost_ns = self.watched.get(&key).map_or(0, |watched| watched.cost_ns);
            if Mono::now().plus(cost_ns) > until {
                break;
            }
            self.read(key, artifacts, &mut found);
        }
        self.conclude(artifacts, &mut found);
        found
    }

    /// The mapped part of each artifact as last read.
    pub fn files(&self, artifacts: &[Artifact]) -> Vec<FileMapping> {
        let files = self.mapped.iter().zip(artifacts).enumerate();
        files
            .map(|(index, (mapped, artifact))| FileMapping {
                artifact: ArtifactId(index),
                mapped_bytes: mapped.len(),
                mapped_payload_bytes: mapped_payload(mapped, artifact),
            })
            .collect()
    }

    /// Where each process maps each artifact, as last read.
    pub fn places(&self) -> impl Iterator<Item = (ProcessKey, ArtifactId, &[Place])> {
        self.watched.iter().flat_map(|(key, watched)| {
            watched.holdings.iter().map(|(artifact, holding)| (*key, *artifact, holding.places.as_slice()))
        })
    }

    /// Another number whenever [`MappingProbe::places`] has changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Why the mappings of some process could not be read.
    pub fn unread(&self) -> Option<&str> {
        self.watched.values().find_map(|watched| watched.unread.as_deref())
    }

    /// Keeps up with the tree and the set.
    fn follow(&mut self, tree: &Tree, artifacts: &[Artifact], now: Mono, found: &mut MappingReading) {
        self.learn(artifacts);
        for process in tree.processes().filter(|process| !process.has_ended) {
            let watched = self.watched.entry(process.key).or_insert_with(|| {
                let holdings = self.strangers.remove(&process.key.pid).unwrap_or_default();
                self.stale |= !holdings.is_empty();
                Watched { born_after: Some(process.born_after), wanted: true, holdings, ..Watched::default() }
            });
            let moved = watched.size != process.stat.vsize && (!self.by_records || !watched.holdings.is_empty());
            watched.wanted |= moved || watched.image != process.image;
            watched.size = process.stat.vsize;
            if watched.image != process.image || watched.label.is_empty() {
                watched.image = process.image;
                watched.label = process.label();
            }
        }
        let is_there =
            |key: &ProcessKey| tree.process(key.pid).is_some_and(|process| process.key == *key && !process.has_ended);
        let gone: Vec<ProcessKey> = self.watched.keys().filter(|key| !is_there(key)).copied().collect();
        for key in gone {
            let Some(watched) = self.watched.remove(&key) else { continue };
            let end = tree.end_of(key.pid).unwrap_or(now);
            self.version += u64::from(!watched.holdings.is_empty());
            for (artifact, holding) in watched.holdings {
                let what = What::Unmapped { pid: key.pid, artifact };
                let at = if end >= holding.seen { end } else { now };
                found.changes.push((at, Some(at.since(holding.seen)), what));
                self.stale = true;
            }
        }
    }

    /// Takes new artifacts in; says whether there were any.
    fn learn(&mut self, artifacts: &[Artifact]) -> bool {
        let are_new = self.identities.learn(artifacts);
        if are_new {
            // What was nobody's mapping may be one of the new artifacts'.
            for watched in self.watched.values_mut() {
                watched.wanted = true;
                watched.descriptors_at = None;
            }
            self.stale = true;
        }
        are_new
    }

    /// The files that were found since the last look.
    pub fn take_discovered(&mut self) -> Vec<PathBuf> {
        self.identities.take_discovered()
    }

    /// The processes for which `wanted` holds, those read longest ago first.
    fn in_need(&self, tree: &Tree, wanted: impl Fn(&Watched) -> bool) -> Vec<ProcessKey> {
        let live = tree.processes().filter(|process| !process.has_ended);
        let mut keys: Vec<(Option<Mono>, ProcessKey)> = live
            .filter_map(|process: &Process| {
                let watched = self.watched.get(&process.key)?;
                wanted(watched).then_some((watched.read_at, process.key))
            })
            .collect();
        keys.sort_by_key(|(at, _)| *at);
        keys.into_iter().map(|(_, key)| key).collect()
    }

    /// Reads a process's mappings unless that was done just now; returns what it cost.
    fn read_if_due(&mut self, key: ProcessKey, artifacts: &[Artifact], rest: u64, found: &mut MappingReading) -> i64 {
        let due = self.watched.get(&key).is_some_and(|watched| {
            watched.read_at.is_none_or(|at| Mono::now().since(at) >= watched.cost_ns.saturating_mul(rest))
        });
        if due { self.read(key, artifacts, found) } else { 0 }
    }

    fn read(&mut self, key: ProcessKey, artifacts: &[Artifact], found: &mut MappingReading) -> i64 {
        let begin = Mono::now();
        let Some(watched) = self.watched.get_mut(&key) else { return 0 };
        let outcome = maps::read(key.pid, &mut self.text);
        let holdings = match &outcome {
            Ok(()) => holdings(&self.text, key.pid, artifacts, &mut self.identities, begin),
            Err(_) => BTreeMap::new(),
        };
        let at = Mono::now();
        let cost = at.since(begin);
        let unread = watched.unread_before(at);
        // What was mapped of an artifact that is new to the set may have been so at any reading before, and not been seen.
        let ever = watched.born_after.map(|since| at.since(since));
        let knew = std::mem::replace(&mut watched.knew, artifacts.len());
        (watched.read_at, watched.cost_ns, watched.wanted) = (Some(begin), cost, false);
        watched.unread = match outcome {
            // The tree will tell its end.
            Ok(()) | Err(Unread::Gone) => None,
            Err(error) => Some(format!("{}: its /proc/PID/maps cannot be read: {error}", watched.label)),
        };
        let mut tell = |what, unread| found.changes.push((at, unread, what));
        for (artifact, holding) in &holdings {
            if !watched.holdings.get(artifact).is_some_and(|before| before.covers_the_same(holding)) {
                let what = What::Mapped {
                    pid: key.pid,
                    artifact: *artifact,
                    bytes: holding.ranges.len(),
                    permissions: holding.permissions.clone(),
                };
                // It cannot have been so while it was known to be otherwise.
                let since = watched.holdings.get(artifact).map(|before| at.since(before.seen));
                let unread = if artifact.0 < knew { unread } else { ever };
                tell(what, since.or(unread).min(unread.or(since)));
                self.stale = true;
            }
        }
        for (artifact, before) in watched.holdings.iter().filter(|(artifact, _)| !holdings.contains_key(artifact)) {
            tell(What::Unmapped { pid: key.pid, artifact: *artifact }, Some(at.since(before.seen)));
            self.stale = true;
        }
        self.version += u64::from(watched.holdings != holdings);
        watched.holdings = holdings;
        i64::try_from(cost).unwrap_or(i64::MAX / 2)
    }

    fn look_at_descriptors(&mut self, tree: &Tree, artifacts: &[Artifact], now: Mono, found: &mut MappingReading) {
        let elapsed = self.last_tick.map_or(0, |last| now.since(last));
        self.last_tick = Some(now);
        self.open_credit_ns = self.open_credit_ns.saturating_add((elapsed / OPEN_SHARE) as i64).min(OPEN_MOST_SAVED_NS);
        let all_opened = !artifacts.is_empty() && self.opened.len() >= artifacts.len();
        let period = if all_opened { OPEN_PERIOD_LATER_NS } else { OPEN_PERIOD_NS };
        let mut due: Vec<(Option<Mono>, ProcessKey)> = tree
            .processes()
            .filter(|process| !process.has_ended)
            .filter_map(|process| {
                let watched = self.watched.get(&process.key)?;
                let another = watched.descriptors_image != process.image;
                let at = watched.descriptors_at.filter(|_| !another);
                at.is_none_or(|at| now.since(at) >= period).then_some((at, process.key))
            })
            .collect();
        due.sort_by_key(|(at, _)| *at);
        for (_, key) in due {
            if self.open_credit_ns <= 0 {
                break;
            }
            let begin = Mono::now();
            self.read_descriptors(key, found);
            self.open_credit_ns -= Mono::now().since(begin) as i64;
        }
    }

    fn read_descriptors(&mut self, key: ProcessKey, found: &mut MappingReading) {
        let Some(watched) = self.watched.get_mut(&key) else { return };
        let since = watched.descriptors_at.or(watched.born_after);
        watched.descriptors_at = Some(Mono::now());
        watched.descriptors_image = watched.image;
        // Where this is denied, mappings alone are left to show what is used.
        let Ok(entries) = std::fs::read_dir(format!("/proc/{}/fd", key.pid)) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(link) = std::fs::read_link(&path) else { continue };
            let artifact = self.identities.of_descriptor(key.pid, link.as_os_str(), || std::fs::metadata(&path).ok());
            if let Some(artifact) = artifact.filter(|artifact| watched.opened.insert(*artifact)) {
                let at = Mono::now();
                self.opened.insert(artifact);
                found.changes.push((at, since.map(|since| at.since(since)), What::Opened { pid: key.pid, artifact }));
            }
        }
    }

    /// Says which mappings were ambiguous matches.
    fn tell_doubts(&mut self, changes: &mut Vec<Sighting>) {
        for Doubt { pid, text } in self.identities.take_doubts() {
            let known = self.watched.iter().find(|(key, watched)| key.pid == pid && !watched.label.is_empty());
            let label = known.map_or_else(|| format!("process {pid}"), |(_, watched)| watched.label.clone());
            changes.push((Mono::now(), Some(0), What::warning(format!("{label}: {text}"))));
        }
    }

    /// The union over the processes as now known.
    fn conclude(&mut self, artifacts: &[Artifact], found: &mut MappingReading) {
        found.discovered = self.identities.take_discovered();
        self.tell_doubts(&mut found.changes);
        if self.stale {
            self.mapped = (0..artifacts.len())
                .map(|index| {
                    let holdings = self.watched.values().filter_map(|watched| watched.holdings.get(&ArtifactId(index)));
                    holdings.flat_map(|holding| holding.ranges.iter()).collect()
                })
                .collect();
            for (index, _) in self.mapped.iter().enumerate().filter(|(_, mapped)| !mapped.is_empty()) {
                self.opened.insert(ArtifactId(index));
            }
            self.stale = false;
        }
        let reading = &mut found.reading;
        let both = [Metric::MappedBytes, Metric::MappedPayloadBytes];
        if artifacts.is_empty() {
            reading.absences.extend(both.map(|metric| (metric, "no artifact is known".to_owned())));
            return;
        }
        if let Some(reason) = self.watched.values().find_map(|watched| watched.unread.as_ref()) {
            reading.absences.extend(both.map(|metric| (metric, reason.clone())));
            return;
        }
        reading.values.set(Metric::MappedBytes, self.mapped.iter().map(Ranges::len).sum::<u64>());
        let mut payload = Some(0u64);
        for (mapped, artifact) in self.mapped.iter().zip(artifacts) {
            match mapped_payload(mapped, artifact) {
                Some(bytes) => payload = payload.map(|sum| sum.saturating_add(bytes)),
                None => {
                    let reason = format!("the payload of {} is unknown", artifact.path.display());
                    reading.absences.push((Metric::MappedPayloadBytes, reason));
                    payload = None;
                    break;
                }
            }
        }
        reading.values.set(Metric::MappedPayloadBytes, payload);
    }
}

fn mapped_payload(mapped: &Ranges, artifact: &Artifact) -> Option<u64> {
    artifact.layout.as_ref().ok().map(|layout| mapped.intersection(&layout.payload).len())
}

/// The mappings of one artifact: which bytes, each kind of permissions once, and where.
type Parts = (Vec<std::ops::Range<u64>>, BTreeSet<[u8; 4]>, Vec<Place>);

/// What a text of maps holds of the artifacts.
fn holdings(
    text: &[u8],
    pid: Pid,
    artifacts: &[Artifact],
    identities: &mut Identities,
    seen: Mono,
) -> BTreeMap<ArtifactId, Holding> {
    let mut parts: BTreeMap<ArtifactId, Parts> = BTreeMap::new();
    // Neighbours are mostly parts of one file.
    let mut last: Option<(Mapping<'_>, Option<ArtifactId>)> = None;
    let mut sizes: BTreeMap<ArtifactId, u64> = BTreeMap::new();
    for mapping in Mapping::all(text).filter(Mapping::is_of_file) {
        let artifact = match &last {
            Some((before, answer))
                if (before.device, before.inode, before.path) == (mapping.device, mapping.inode, mapping.path) =>
            {
                *answer
            }
            _ => identities.of_mapping(pid, &mapping),
        };
        last = Some((mapping, artifact));
        let Some((id, file)) = artifact.and_then(|id| Some((id, artifacts.get(id.0)?))) else { continue };
        // A mapping goes to the end of a page or beyond, the file may end before; it may have been cut short or have grown.
        let size = *sizes.entry(id).or_insert_with(|| length_as_known(&file.file).unwrap_or(file.size));
        let end = mapping.offset.saturating_add(mapping.end - mapping.start).min(size);
        let (ranges, permissions, places) = parts.entry(id).or_default();
        ranges.push(mapping.offset.min(end)..end);
        let Mapping { start, end, offset, device, inode, .. } = mapping;
        places.push(Place { start, end, offset, device, inode });
        permissions.insert(mapping.permissions);
    }
    parts
        .into_iter()
        .map(|(id, (ranges, permissions, places))| {
            let permissions: Vec<_> = permissions.iter().map(|each| String::from_utf8_lossy(each)).collect();
            let (ranges, permissions) = (ranges.into_iter().collect(), permissions.join(","));
            (id, Holding { ranges, permissions, places, seen })
        })
        .collect()
}
