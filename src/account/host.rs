//! The host account: what the launch holds of the host's memory, in parts that do not overlap and may be added, each as
//! a low and a high bound.
//!
//! | part | low | high |
//! |---|---|---|
//! | anonymous memory | per family of forks: the largest member, or the sum of PSS if that is more | per family: PSS of those whose share was read, the resident set of the others |
//! | payload in the page cache | `resident_payload_bytes`; where that is withheld what the page tables show, or 0 | the same; where that is withheld the whole payload |
//! | other bytes of the artifacts | `artifact_resident_bytes` less the payload; else 0 | the same, to the end of the last page; else all of them |
//! | other file-backed pages | the most that one process holds beyond what can be artifacts; or the sum of PSS beyond it | what page tables point at of other files (`present_other_file_bytes`); of processes whose tables were not walked, what is resident, and no more than is mapped of other files |
//! | shared memory | the same of shared memory | the same of shared memory |
//! | page tables | `page_table_bytes` | the same |
//! | huge pages of hugetlbfs | mean over the processes: all may be shared | `hugetlb_bytes` |
//!
//! A *family* is what was forked from one another without an exec between: nobody else can share anonymous memory,
//! copy-on-write. A process alone in its family has its anonymous resident set to itself, and needs no PSS. Within a
//! family a page counts one `n`th in each of its `n` holders' PSS, so that a sum over all is each page once, and a sum
//! over some is never more than the pages. (KSM may merge pages of strangers; where it did, the high bound has all of
//! them.)
//!
//! Resident sets count pages of artifacts too, where they are mapped, and those on tmpfs as shared memory: they are in
//! the artifacts' parts already, once, whoever maps them. What of a resident set is something else is bounded by how far
//! mappings reach: a process cannot hold more of the artifacts than it maps of them, nor more of other files than it maps
//! of those.
//!
//! Swapped-out memory is not host memory and is apart. What is in no part: page cache of files that are no artifact and
//! that nobody maps; tmpfs files and memfds that nobody maps, which hold memory all the same; kernel memory other than
//! page tables (socket buffers, slabs); what devices and drivers pin outside of resident sets. The fall of MemAvailable
//! and the control group's own charge, where known, show whether that matters.
//!
//! Bounds are of the sample's moment as far as one look is a moment: what moves during the look can make two readings
//! cross, and then both stand as the bounds. A bound is absent when something in it is not known; the low one is a bound
//! without it, and absent only with the anonymous part.

use std::collections::{BTreeMap, HashMap};

use crate::clock::At;
use crate::event::Pid;
use crate::metric::{Metric, Values};
use crate::run::meta::ArtifactMeta;
use crate::run::{Detail, Run, Scope};
use crate::sample::Sample;

/// At least, at most; `None` where there is no such bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub low: Option<u64>,
    pub high: Option<u64>,
}

impl Bounds {
    /// No bound at all.
    pub const ABSENT: Bounds = Bounds { low: None, high: None };

    /// Both bounds at one figure.
    pub fn exactly(bytes: u64) -> Bounds {
        Bounds { low: Some(bytes), high: Some(bytes) }
    }

    /// In order, whichever is larger: two readings that crossed are both possible.
    fn between(one: u64, other: u64) -> Bounds {
        Bounds { low: Some(one.min(other)), high: Some(one.max(other)) }
    }
}

/// The parts, in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Anonymous,
    Payload,
    ArtifactOther,
    OtherFile,
    SharedMemory,
    PageTables,
    HugePages,
}

impl Part {
    pub const ALL: [Part; 7] = [
        Part::Anonymous,
        Part::Payload,
        Part::ArtifactOther,
        Part::OtherFile,
        Part::SharedMemory,
        Part::PageTables,
        Part::HugePages,
    ];

    /// The column's name, to which `_low` and `_high` are added.
    pub fn column(self) -> &'static str {
        match self {
            Part::Anonymous => "host_anon_bytes",
            Part::Payload => "host_payload_bytes",
            Part::ArtifactOther => "host_artifact_other_bytes",
            Part::OtherFile => "host_file_bytes",
            Part::SharedMemory => "host_shmem_bytes",
            Part::PageTables => "host_page_table_bytes",
            Part::HugePages => "host_hugetlb_bytes",
        }
    }
}

/// The account at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAccount {
    pub(crate) parts: [Bounds; Part::ALL.len()],
    /// Swapped-out memory, which is in no part and not in the total.
    pub swap: Option<u64>,
    /// The sum of the parts' bounds.
    pub total: Bounds,
    /// How the anonymous part is known, and what is odd about the others, in words; empty where nothing is known.
    pub basis: String,
}

impl HostAccount {
    /// One part's bounds.
    pub fn part(&self, part: Part) -> Bounds {
        self.parts[part as usize]
    }

    /// What the kernel cannot take back without swapping: anonymous memory, shared memory, page tables. The rest is page
    /// cache, which MemAvailable counts as available, or set aside for huge pages before.
    pub fn unreclaimable(&self) -> Bounds {
        let parts = [Part::Anonymous, Part::SharedMemory, Part::PageTables].map(|part| self.part(part));
        Bounds {
            low: parts.iter().map(|part| part.low).sum::<Option<u64>>(),
            high: parts.iter().map(|part| part.high).sum::<Option<u64>>(),
        }
    }
}

/// What is known of one process at a mark, from `detail.csv`; `None` where its row is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    anon: Option<u64>,
    file: Option<u64>,
    shmem: Option<u64>,
    family: Option<u64>,
    pss_anon: Option<u64>,
    pss_file: Option<u64>,
    pss_shmem: Option<u64>,
    ksm: Option<u64>,
    mapped_artifact: Option<u64>,
    mapped_artifact_shmem: Option<u64>,
    mapped_other_file: Option<u64>,
    mapped_shmem: Option<u64>,
    present_other_file: Option<u64>,
}

impl Process {
    fn take(&mut self, figure: &Detail) {
        let field = match figure.metric.as_str() {
            "rss_anon_bytes" => &mut self.anon,
            "rss_file_bytes" => &mut self.file,
            "rss_shmem_bytes" => &mut self.shmem,
            "memory_family" => &mut self.family,
            "pss_anon_bytes" => &mut self.pss_anon,
            "pss_file_bytes" => &mut self.pss_file,
            "pss_shmem_bytes" => &mut self.pss_shmem,
            "ksm_bytes" => &mut self.ksm,
            "mapped_artifact_bytes" => &mut self.mapped_artifact,
            "mapped_artifact_shmem_bytes" => &mut self.mapped_artifact_shmem,
            "mapped_other_file_bytes" => &mut self.mapped_other_file,
            "present_other_file_bytes" => &mut self.present_other_file,
            "mapped_shmem_bytes" => &mut self.mapped_shmem,
            _ => return,
        };
        *field = Some(figure.value);
    }
}

/// The processes at some moments, each by its pid.
pub struct Processes(HashMap<At, BTreeMap<Pid, Process>>);

impl Processes {
    /// Those of the samples taken at `times`.
    pub fn at(details: &[Detail], times: impl Iterator<Item = At>) -> Processes {
        let mut found: HashMap<At, BTreeMap<Pid, Process>> = times.map(|at| (at, BTreeMap::new())).collect();
        for figure in details {
            if let (Scope::Process(pid), Some(processes)) = (figure.scope, found.get_mut(&figure.at)) {
                processes.entry(pid).or_default().take(figure);
            }
        }
        Processes(found)
    }

    /// The account of a sample.
    pub fn account(&self, sample: &Sample, artifacts: &[ArtifactMeta]) -> HostAccount {
        let processes: Vec<Process> =
            self.0.get(&sample.t).map(|processes| processes.values().copied().collect()).unwrap_or_default();
        account(&sample.values, &processes, artifacts)
    }
}

/// The account of any one sample of a run.
pub fn account_at(run: &Run, sample: &Sample) -> HostAccount {
    Processes::at(&run.details, std::iter::once(sample.t)).account(sample, &run.meta.artifacts)
}

/// Residency older than this says little of what is mapped and resident now.
const STALE_NS: u64 = 100_000_000;

/// What the kernel cuts off each sum of PSS: it gives whole KiB.
const PSS_CUT: u64 = 1024;

/// Bytes of a page, to whose end the last page of a file reaches. It is only for that; larger pages are few.
const PAGE: u64 = 4096;

fn account(values: &Values, processes: &[Process], artifacts: &[ArtifactMeta]) -> HostAccount {
    let get = |metric| values.get(metric);
    let mut account = HostAccount { swap: get(Metric::SwapBytes), ..HostAccount::default() };
    // The rows of a process may be missing; then sums over processes are all there is.
    let sum_of = |of: fn(&Process) -> Option<u64>| processes.iter().filter_map(of).fold(0, u64::saturating_add);
    let told = !processes.is_empty()
        && get(Metric::RssAnonBytes).is_none_or(|sum| sum == sum_of(|process| process.anon))
        && get(Metric::RssFileBytes).is_none_or(|sum| sum == sum_of(|process| process.file));
    let processes = if told { processes } else { &[] };

    let (anonymous, basis) = anonymous(values, processes);
    let mut basis = vec![basis.to_owned()];
    let known = get(Metric::Artifacts).map_or(artifacts.len(), |count| count as usize).min(artifacts.len());
    let (payload, other) = artifact_pages(values, &artifacts[..known], &mut basis);
    account.parts[Part::Anonymous as usize] = anonymous;
    account.parts[Part::Payload as usize] = payload;
    account.parts[Part::ArtifactOther as usize] = other;

    // What of the artifacts can be in a resident set at all.
    let fresh = get(Metric::ResidentStaleNs).is_none_or(|stale| stale < STALE_NS);
    let resident = payload.high.unwrap_or(0).saturating_add(other.high.unwrap_or(u64::MAX));
    let artifacts_resident = if fresh { resident } else { u64::MAX };
    account.parts[Part::OtherFile as usize] = beyond_artifacts(
        get(Metric::RssFileBytes),
        least_of(get(Metric::MappedOtherFileBytes), get(Metric::PresentOtherFileBytes)),
        artifacts_resident,
        processes.iter().map(|process| Held {
            resident: process.file,
            pss: process.pss_file,
            mapped_artifact: process.mapped_artifact,
            mapped_other: process.mapped_other_file,
            present: process.present_other_file,
        }),
    );
    account.parts[Part::SharedMemory as usize] = beyond_artifacts(
        get(Metric::RssShmemBytes),
        get(Metric::MappedShmemBytes),
        artifacts_resident,
        processes.iter().map(|process| Held {
            resident: process.shmem,
            pss: process.pss_shmem,
            mapped_artifact: process.mapped_artifact_shmem,
            mapped_other: process.mapped_shmem,
            present: None,
        }),
    );
    account.parts[Part::PageTables as usize] = get(Metric::PageTableBytes).map_or(Bounds::ABSENT, Bounds::exactly);
    account.parts[Part::HugePages as usize] = huge_pages(values);

    account.total = total(&account, payload == Bounds::ABSENT && other.high.is_some());
    if account.total == Bounds::ABSENT {
        basis.clear();
    }
    account.basis = basis.join("; ");
    account
}

/// The sum. An unknown payload may be counted with the artifacts' other bytes; huge pages are in no run of versions that
/// did not look at them.
fn total(account: &HostAccount, payload_is_elsewhere: bool) -> Bounds {
    let counted = |part: &Part| match part {
        Part::Payload => !payload_is_elsewhere,
        Part::HugePages => account.part(*part) != Bounds::ABSENT,
        _ => true,
    };
    let parts = || Part::ALL.iter().filter(|part| counted(part)).map(|part| account.part(*part));
    let low = account
        .part(Part::Anonymous)
        .low
        .and_then(|_| parts().filter_map(|part| part.low).try_fold(0u64, u64::checked_add));
    let high = parts().try_fold(0u64, |sum, part| sum.checked_add(part.high?));
    match (low, high) {
        (Some(low), Some(high)) => Bounds::between(low, high),
        (low, high) => Bounds { low, high },
    }
}

/// Anonymous memory, and in words how it is known.
fn anonymous(values: &Values, processes: &[Process]) -> (Bounds, &'static str) {
    let sum = values.get(Metric::RssAnonBytes);
    if processes.is_empty() {
        // The largest process has at least the mean, and all others may share with it.
        return match (sum, values.get(Metric::Processes)) {
            (Some(0), _) => (Bounds::exactly(0), "unshared"),
            (Some(sum), Some(1)) => (Bounds::exactly(sum), "unshared"),
            (Some(sum), Some(count)) if count > 1 => (Bounds::between(sum.div_ceil(count), sum), "bounds"),
            (high, _) => (Bounds { low: None, high }, "bounds"),
        };
    }
    let mut families: BTreeMap<Option<u64>, Vec<&Process>> = BTreeMap::new();
    let unknown = processes.iter().any(|process| process.family.is_none());
    for process in processes {
        families.entry(process.family.filter(|_| !unknown)).or_default().push(process);
    }
    let (mut low, mut high) = (0u64, 0u64);
    let (mut shared, mut read) = (0, 0);
    for members in families.values() {
        let resident = |process: &&&Process| process.anon.unwrap_or(0);
        let largest = members.iter().map(|process| resident(&process)).max().unwrap_or(0);
        if members.len() == 1 {
            low = low.saturating_add(largest);
            high = high.saturating_add(largest);
            continue;
        }
        shared += members.len();
        let mut shares = 0u64;
        let mut most = 0u64;
        for process in members {
            let anon = resident(&process);
            match process.pss_anon {
                Some(pss) => {
                    read += 1;
                    shares = shares.saturating_add(pss);
                    let ksm = process.ksm.unwrap_or(0);
                    most = most.saturating_add(pss.saturating_add(PSS_CUT).saturating_add(ksm).min(anon.max(pss)));
                }
                None => most = most.saturating_add(anon),
            }
        }
        let least = largest.max(shares);
        low = low.saturating_add(least.min(most));
        high = high.saturating_add(least.max(most));
    }
    let basis = match (shared, read) {
        (0, _) => "unshared",
        (_, 0) => "bounds",
        (shared, read) if shared == read => "pss",
        _ => "pss in part",
    };
    // Where a process's memory could not be read, nothing bounds the sum.
    (Bounds { low: Some(low), high: sum.map(|_| high) }, basis)
}

/// The artifacts' page cache: payload, and other bytes.
fn artifact_pages(values: &Values, artifacts: &[ArtifactMeta], basis: &mut Vec<String>) -> (Bounds, Bounds) {
    let get = |metric| values.get(metric);
    if get(Metric::Artifacts) == Some(0) {
        basis.push("no artifact in the set".to_owned());
        return (Bounds::exactly(0), Bounds::exactly(0));
    }
    // Unknown where the run does not describe its artifacts.
    let whole_pages = (!artifacts.is_empty()).then(|| {
        let pages = artifacts.iter().map(|artifact| artifact.size_bytes.next_multiple_of(PAGE));
        pages.fold(0, u64::saturating_add)
    });
    let tails = artifacts.iter().map(|artifact| artifact.size_bytes.next_multiple_of(PAGE) - artifact.size_bytes);
    let tails = tails.fold(0, u64::saturating_add);
    let whole = get(Metric::ArtifactResidentBytes);
    let Some(size) = get(Metric::PayloadBytes) else {
        if artifacts.is_empty() && whole.is_none() {
            return (Bounds::ABSENT, Bounds::ABSENT);
        }
        basis.push("payload unknown, counted with the artifacts' other bytes".to_owned());
        let high = whole.map(|whole| whole.saturating_add(tails)).or(whole_pages);
        return (Bounds::ABSENT, Bounds { low: Some(whole.unwrap_or(0)), high });
    };
    let payload = match get(Metric::ResidentPayloadBytes) {
        Some(resident) => Bounds::exactly(resident),
        None => {
            basis.push("payload by bounds".to_owned());
            Bounds { low: Some(get(Metric::ResidentPayloadLowBytes).unwrap_or(0)), high: Some(size) }
        }
    };
    let other = match (whole, get(Metric::ResidentPayloadBytes)) {
        (Some(whole), Some(resident)) => {
            let other = whole.saturating_sub(resident);
            Bounds { low: Some(other), high: Some(other.saturating_add(tails)) }
        }
        _ => Bounds { low: Some(0), high: whole_pages.map(|whole| whole.saturating_sub(size)) },
    };
    (payload, other)
}

/// One process's part of a kind of memory that artifacts are a part of.
struct Held {
    resident: Option<u64>,
    pss: Option<u64>,
    mapped_artifact: Option<u64>,
    mapped_other: Option<u64>,
    /// Of other files, what page tables point at.
    present: Option<u64>,
}

/// The smaller of two upper bounds, as far as they are known.
fn least_of(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// What of a kind of memory (file-backed, shared) is no artifact's: `sum` over the processes' resident sets, `mapped` of
/// other files over the tree (or what page tables point at of them), and the most of the artifacts that can be resident.
fn beyond_artifacts(
    sum: Option<u64>,
    mapped: Option<u64>,
    artifacts_resident: u64,
    processes: impl Iterator<Item = Held>,
) -> Bounds {
    let (mut least, mut most, mut shares, mut mapped_artifacts) = (0u64, Some(0u64), Some(0u64), 0u64);
    let mut any = false;
    for held in processes {
        any = true;
        let Some(resident) = held.resident else {
            (most, shares) = (None, None);
            continue;
        };
        let artifact = held.mapped_artifact.unwrap_or(u64::MAX).min(artifacts_resident);
        least = least.max(resident.saturating_sub(artifact));
        // What page tables show is exact; the counter of the resident set may lag behind it.
        let other = held.present.unwrap_or(resident).min(held.mapped_other.unwrap_or(u64::MAX));
        most = most.map(|most| most.saturating_add(other));
        shares = shares.zip(held.pss).map(|(shares, pss)| shares.saturating_add(pss));
        mapped_artifacts = mapped_artifacts.saturating_add(held.mapped_artifact.unwrap_or(u64::MAX));
    }
    if !any {
        return Bounds { low: sum.map(|_| 0), high: sum.map(|sum| sum.min(mapped.unwrap_or(u64::MAX))) };
    }
    // A page counts in PSS at most once over all processes, whoever else holds it.
    let shares = shares.unwrap_or(0).saturating_sub(mapped_artifacts.min(artifacts_resident));
    let least = least.max(shares);
    match (sum.and(most), mapped) {
        (Some(most), mapped) => Bounds::between(least, most.min(mapped.unwrap_or(u64::MAX))),
        // One process's resident set is not known; what all of them map was read all the same.
        (None, Some(mapped)) => Bounds::between(least, mapped),
        (None, None) => Bounds { low: Some(least), high: None },
    }
}

fn huge_pages(values: &Values) -> Bounds {
    match (values.get(Metric::HugetlbBytes), values.get(Metric::Processes)) {
        (None, _) => Bounds::ABSENT,
        (Some(0), _) => Bounds::exactly(0),
        (Some(sum), Some(processes)) if processes > 0 => Bounds::between(sum.div_ceil(processes), sum),
        (Some(sum), _) => Bounds { low: Some(0), high: Some(sum) },
    }
}

/// By how much the control group's count of anonymous memory and the account's may differ: each CPU holds back charges of
/// 64 pages (mm/memcontrol.c, MEMCG_CHARGE_BATCH), version 2 updates its figures every two seconds, and the group counts
/// pages of the swap cache.
const GROUP_SLACK: u64 = 64 << 20;

/// Where the control group's own count of anonymous memory contradicts the account.
pub fn contradiction(stage: &str, values: &Values, account: &HostAccount) -> Option<String> {
    let group = values.get(Metric::CgroupAnonBytes)?;
    let Bounds { low, high } = account.part(Part::Anonymous);
    let slack = GROUP_SLACK.max(group / 50).saturating_add(values.get(Metric::SwapBytes).unwrap_or(0));
    if low.is_some_and(|low| low > group.saturating_add(slack)) {
        return Some(format!(
            "{stage}: the control group is charged {group} bytes of anonymous memory, and the processes hold at least {}: \
             some of it is charged to another group",
            low.unwrap_or(0)
        ));
    }
    if high.is_some_and(|high| high.saturating_add(slack) < group) {
        return Some(format!(
            "{stage}: the control group is charged {group} bytes of anonymous memory, and the processes hold at most {}",
            high.unwrap_or(0)
        ));
    }
    None
}

pub fn sum(parts: &[u64]) -> Option<u64> {
    parts.iter().try_fold(0u64, |sum, part| sum.checked_add(*part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric::Processes;
    use crate::metric::Metric::*;

    const MIB: u64 = 1 << 20;

    fn values(known: &[(Metric, u64)]) -> Values {
        let mut values = Values::ABSENT;
        known.iter().for_each(|&(metric, value)| values.set(metric, value));
        values
    }

    fn between(low: u64, high: u64) -> Bounds {
        Bounds { low: Some(low), high: Some(high) }
    }

    fn forked(anon: u64, family: u64) -> Process {
        Process { anon: Some(anon), file: Some(0), shmem: Some(0), family: Some(family), ..Process::default() }
    }

    fn anonymous_of(processes: &[Process]) -> (Bounds, String) {
        let sum: u64 = processes.iter().filter_map(|process| process.anon).sum();
        let account =
            account(&values(&[(RssAnonBytes, sum), (RssFileBytes, 0), (Processes, 1), (Artifacts, 0)]), processes, &[]);
        (account.part(Part::Anonymous), account.basis)
    }

    #[test]
    fn strangers_share_nothing_and_forks_may_share_all() {
        let (bounds, basis) = anonymous_of(&[forked(100, 1), forked(70, 2)]);
        assert_eq!((bounds, basis.as_str()), (between(170, 170), "unshared; no artifact in the set"));
        let (bounds, basis) = anonymous_of(&[forked(100, 1), forked(90, 1), forked(70, 2)]);
        assert_eq!((bounds, basis.as_str()), (between(170, 260), "bounds; no artifact in the set"));
        // Whose family is not known may be of any.
        let (bounds, _) = anonymous_of(&[forked(100, 1), Process { family: None, ..forked(70, 2) }]);
        assert_eq!(bounds, between(100, 170));
    }

    #[test]
    fn shares_make_each_page_count_once() {
        let share = |anon, pss| Process { pss_anon: Some(pss), ..forked(anon, 1) };
        let (bounds, basis) = anonymous_of(&[share(100 * MIB, 55 * MIB), share(90 * MIB, 45 * MIB)]);
        assert_eq!(bounds, between(100 * MIB, 100 * MIB + 2 * PSS_CUT));
        assert!(basis.starts_with("pss;"));
        // One of them was not read: what it holds may all be its own.
        let (bounds, basis) = anonymous_of(&[share(100 * MIB, 55 * MIB), forked(90 * MIB, 1)]);
        assert_eq!(bounds, between(100 * MIB, 145 * MIB + PSS_CUT));
        assert!(basis.starts_with("pss in part;"));
        // Merged pages may be held by strangers too.
        let merged = Process { ksm: Some(10 * MIB), ..share(100 * MIB, 50 * MIB) };
        let (bounds, _) = anonymous_of(&[merged, share(90 * MIB, 45 * MIB)]);
        assert_eq!(bounds, between(100 * MIB, 105 * MIB + 2 * PSS_CUT));
    }

    #[test]
    fn without_rows_of_processes_there_are_the_sums() {
        let all = [
            (RssAnonBytes, 1001),
            (RssFileBytes, 300),
            (RssShmemBytes, 20),
            (PageTableBytes, 7),
            (PayloadBytes, 260),
            (ResidentPayloadBytes, 250),
            (ArtifactResidentBytes, 254),
            (Processes, 4),
            (SwapBytes, 1 << 40),
        ];
        let total = |without: Option<Metric>| {
            let known: Vec<_> = all.into_iter().filter(|(metric, _)| Some(*metric) != without).collect();
            account(&values(&known), &[], &[]).total
        };
        assert_eq!(total(None), between(251 + 250 + 4 + 7, 1001 + 250 + 4 + 300 + 20 + 7));
        assert_eq!(total(Some(SwapBytes)), total(None), "swap is apart");
        // Withheld residency: anything between nothing and all of it.
        let withheld = total(Some(ResidentPayloadBytes));
        assert_eq!((withheld.low, withheld.high), (Some(251 + 7), None), "the artifacts' sizes are not known here");
        assert_eq!(total(Some(Processes)), Bounds { low: None, high: Some(1582) });
        assert_eq!(total(Some(RssFileBytes)), Bounds { low: Some(512), high: None });
        assert_eq!(total(Some(RssAnonBytes)), Bounds::ABSENT);
        assert_eq!(account(&Values::ABSENT, &[], &[]), HostAccount::default());
    }

    #[test]
    fn what_of_a_resident_set_is_the_artifacts_is_bounded_by_what_is_mapped() {
        let held = |resident, mapped_artifact, mapped_other| Held {
            resident: Some(resident),
            pss: None,
            mapped_artifact: Some(mapped_artifact),
            mapped_other: Some(mapped_other),
            present: None,
        };
        let of = |held: Vec<Held>, mapped, artifacts| {
            let sum = held.iter().filter_map(|held| held.resident).sum();
            beyond_artifacts(Some(sum), mapped, artifacts, held.into_iter())
        };
        // A gigabyte of artifact, all touched, and ten of libraries: exact from both sides but for what is mapped more.
        assert_eq!(of(vec![held(1010, 1000, 30)], Some(30), 1000), between(10, 30));
        // Not all of the mapped artifact is in memory: less of the resident set can be of it.
        assert_eq!(of(vec![held(210, 1000, 300)], Some(300), 200), between(10, 210));
        // Two with the same libraries: at least the larger, at most what is mapped of them over all.
        assert_eq!(of(vec![held(10, 0, 30), held(12, 0, 30)], Some(35), 0), between(12, 22));
        assert_eq!(of(vec![held(30, 0, 30), held(30, 0, 30)], Some(35), 0), between(30, 35));
        // Its mappings were not read: all of it may be artifact, and none.
        let blind = Held { mapped_artifact: None, mapped_other: None, ..held(50, 0, 0) };
        assert_eq!(of(vec![blind], None, 1000), between(0, 50));
        // Libraries that are mapped whole and used in part; of the second process the tables were not walked.
        let walked = Held { present: Some(12), ..held(1010, 1000, 800) };
        assert_eq!(of(vec![walked], Some(12), 1000), between(10, 12));
        let walked = || Held { present: Some(12), ..held(1010, 1000, 800) };
        assert_eq!(of(vec![walked(), held(1020, 1000, 800)], Some(800), 1000), between(20, 800));
        assert_eq!(of(vec![walked(), held(30, 0, 800)], Some(800), 1000), between(30, 42));
        // Shares: a page counts at most once over all, so that what goes beyond the artifacts is something else.
        let shared = |pss| Held { pss: Some(pss), ..held(40, 20, 100) };
        assert_eq!(of(vec![shared(30), shared(35)], Some(100), 20), between(45, 80));
    }

    #[test]
    fn a_group_that_counts_otherwise_is_said() {
        let account = |low, high| {
            let mut account = HostAccount::default();
            account.parts[Part::Anonymous as usize] = between(low, high);
            account
        };
        let charged = values(&[(CgroupAnonBytes, 1000 * MIB)]);
        assert_eq!(contradiction("s", &charged, &account(900 * MIB, 1000 * MIB)), None);
        assert_eq!(contradiction("s", &charged, &account(950 * MIB, 4000 * MIB)), None);
        let more = contradiction("s", &charged, &account(1100 * MIB, 1200 * MIB)).unwrap();
        assert!(more.starts_with("s: the control group is charged") && more.contains("another group"), "{more}");
        assert!(contradiction("s", &charged, &account(500 * MIB, 900 * MIB)).is_some());
        assert_eq!(contradiction("s", &Values::ABSENT, &account(1, 2)), None);
    }

    #[test]
    fn huge_pages_may_all_be_shared() {
        assert_eq!(huge_pages(&values(&[(HugetlbBytes, 9), (Processes, 2)])), between(5, 9));
        assert_eq!(huge_pages(&values(&[(HugetlbBytes, 0)])), between(0, 0));
        assert_eq!(huge_pages(&Values::ABSENT), Bounds::ABSENT);
    }
}
