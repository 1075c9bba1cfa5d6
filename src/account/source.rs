//! Where the payload's data came from in an interval: storage, the page cache, both, or nobody can tell.
//!
//! No one figure says it. `read_bytes` counts what the tree fetched from a block device, whatever file it was of; it
//! stays 0 where another process fetched for it, and where a filesystem moves data by itself (FUSE, 9p, virtiofs);
//! direct reads count there although the page cache holds the file. Residency says what came in, and not by whom. So
//! the rules take them together, and what they leave open stays open:
//!
//! | what was seen in the interval | verdict |
//! |---|---|
//! | payload came in, and the tree read at least nine tenths as much from storage | `storage`; `mixed` where it visibly used more than came in, and some was resident before |
//! | payload came in, and the tree read less than that, but some | `mixed`: others brought in the rest |
//! | payload came in, and the tree read nothing | `unknown`: another process, or the filesystem's daemon |
//! | none came in, the tree used some that was resident, and read nothing from storage | `page_cache` |
//! | none came in, and the tree read at least a tenth of the payload from storage | `unknown`: direct reads, or other files |
//! | none came in, and nothing was used | none yet |
//!
//! On NFS the mount's own counter stands in for `read_bytes`. On a mount without counters only the residency before
//! settles it: all of it resident, or used through a mapping without more coming in. "Some" is 1 MiB, or a hundredth
//! of the payload where that is more: a program reads as much of its own at its start.
//!
//! What read(2) gave may be of any file: it counts as use of the payload from when an artifact was opened in the interval,
//! and where none is mapped ([`Asked`]). A verdict over several intervals does not contradict theirs ([`over_all`]).

use crate::clock::At;
use crate::event::{Event, What};
use crate::host::storage::{Boundary, Kind};
use crate::metric::{Metric, Values};
use crate::run::Meta;
use crate::sample::Sample;

/// Where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFrom {
    Storage,
    PageCache,
    Mixed,
    Unknown,
}

impl DataFrom {
    /// The word that files have for it.
    pub fn name(self) -> &'static str {
        match self {
            DataFrom::Storage => "storage",
            DataFrom::PageCache => "page_cache",
            DataFrom::Mixed => "mixed",
            DataFrom::Unknown => "unknown",
        }
    }
}

/// A verdict and why; `from` is absent where nothing was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub from: Option<DataFrom>,
    /// In words, with the figures, in bytes.
    pub reason: String,
}

impl Verdict {
    fn of(from: impl Into<Option<DataFrom>>, reason: String) -> Verdict {
        Verdict { from: from.into(), reason }
    }
}

/// Which counter tells of the data that an artifact's filesystem moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Block devices: the reader's `read_bytes`.
    ReadBytes,
    /// NFS: the mounts' own, in `storage_read_bytes`.
    Mount,
    /// None; its name.
    Nothing(String),
    /// There is nothing behind it but memory.
    Memory,
}

impl Behind {
    /// By a run's `storage`; of a run that has none, by its artifacts' filesystems.
    pub fn of(meta: &Meta) -> Behind {
        if meta.storage.is_empty() {
            let names = meta.artifacts.iter().filter_map(|artifact| artifact.filesystem.as_deref());
            let moves_by_itself = |name: &&str| {
                name.starts_with("fuse") || ["9p", "virtiofs", "nfs", "nfs4", "cifs", "ceph"].contains(name)
            };
            return names
                .into_iter()
                .find(moves_by_itself)
                .map_or(Behind::ReadBytes, |name| Behind::Nothing(name.to_owned()));
        }
        let hidden = |boundary: &&Boundary| matches!(boundary.kind, Kind::Fuse | Kind::Network | Kind::Unknown);
        // A daemon gives the bytes although a device is named.
        let by_daemon = |boundary: &&Boundary| boundary.chains.iter().any(|chain| chain.contains("(fuse"));
        if let Some(boundary) = meta.storage.iter().find(|boundary| hidden(boundary) || by_daemon(boundary)) {
            let name = boundary.chains.first().map_or(boundary.name.as_str(), String::as_str);
            return Behind::Nothing(name.to_owned());
        }
        if meta.storage.iter().any(|boundary| boundary.kind == Kind::Nfs) {
            return Behind::Mount;
        }
        match meta.storage.iter().all(|boundary| boundary.kind == Kind::Memory) {
            true => Behind::Memory,
            false => Behind::ReadBytes,
        }
    }
}

/// Less than this is a program's own.
const LITTLE: u64 = 1 << 20;

/// By how much the file pages of the tree grew while it mapped payload, over these samples: what it held before it mapped
/// any is a program's own. `before` is what it held at the interval's beginning.
pub fn touched(before: &Values, samples: &[Sample]) -> Option<u64> {
    let mut base = before.get(Metric::RssFileBytes)?;
    let mut most = None;
    for values in samples.iter().map(|sample| &sample.values) {
        let Some(held) = values.get(Metric::RssFileBytes) else { continue };
        match values.get(Metric::MappedPayloadBytes) {
            Some(1..) => most = most.max(Some(held.saturating_sub(base))),
            // When the tree has ended it maps nothing, and what it did is not undone.
            _ => base = base.max(held),
        }
    }
    most.or(Some(0))
}

/// When artifacts were opened or mapped, each with the earliest moment at which it may have been.
pub struct Openings(Vec<(At, At)>);

impl Openings {
    /// By a run's events.
    pub fn of(events: &[Event]) -> Openings {
        let is_use = |event: &&Event| matches!(event.what, What::Opened { .. } | What::Mapped { .. });
        let moment = |event: &Event| {
            (event.uncertainty_ns.map_or(At(0), |ns| At(event.at.0.saturating_sub_unsigned(ns))), event.at)
        };
        Openings(events.iter().filter(is_use).map(moment).collect())
    }
}

/// What read(2) gave in an interval, as far as it may have been of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// So many bytes, since an artifact was opened in it.
    Opened(u64),
    /// So many bytes: an artifact had been opened before, and may have been read on, or other files.
    Before(u64),
    /// So many bytes, of whatever files: no artifact was ever seen open.
    Unseen(u64),
    /// Nothing: an artifact was opened later only.
    Unopened,
    /// What is used of a mapping is not asked for.
    Mapped,
}

impl Asked {
    /// Over these samples, of which the last is at the interval's end; `began` is its beginning, and `before` what was
    /// known there.
    pub fn over(before: &Values, began: At, samples: &[Sample], openings: &Openings) -> Asked {
        if samples.iter().any(|sample| sample.values.get(Metric::MappedPayloadBytes) > Some(0)) {
            return Asked::Mapped;
        }
        let Some(end) = samples.last() else { return Asked::Unopened };
        let Openings(openings) = openings;
        let since = |values: &Values| {
            let asked = end.values.get(Metric::RcharBytes).zip(values.get(Metric::RcharBytes));
            asked.map_or(0, |(now, then)| now.saturating_sub(then))
        };
        let first = openings.iter().filter(|(low, at)| *at >= began && *low <= end.t).map(|(low, _)| *low).min();
        match first {
            Some(first) => Asked::Opened(since(
                samples.iter().rev().find(|sample| sample.t <= first).map_or(before, |sample| &sample.values),
            )),
            None if !openings.is_empty() && openings.iter().all(|(low, _)| *low > end.t) => Asked::Unopened,
            None if openings.is_empty() => Asked::Unseen(since(before)),
            None => Asked::Before(since(before)),
        }
    }
}

/// A verdict over several intervals, from that by its own ends and those of the intervals, in order of time: what came in
/// and left again shows in theirs alone, and what is small in each may be none in all.
pub fn over_all<'a>(direct: Verdict, parts: impl Iterator<Item = &'a Verdict>) -> Verdict {
    let parts: Vec<DataFrom> = parts.filter_map(|part| part.from).collect();
    let is_known = |from: &&DataFrom| **from != DataFrom::Unknown;
    let known: Vec<DataFrom> = parts.iter().filter(is_known).copied().collect();
    let has = |from| known.contains(&from);
    // The page cache that is used after storage was read may have what was read.
    let together = match known.first() {
        None if parts.is_empty() => return direct,
        None => DataFrom::Unknown,
        Some(_) if has(DataFrom::Mixed) => DataFrom::Mixed,
        Some(DataFrom::PageCache) if has(DataFrom::Storage) => DataFrom::Mixed,
        Some(first) => *first,
    };
    let is_open = known.len() < parts.len() || (has(DataFrom::Storage) && has(DataFrom::PageCache));
    if direct.from == Some(together)
        || (direct.from == Some(DataFrom::Mixed) && is_open)
        || (direct.from.is_some() && known.len() < parts.len())
    {
        return direct;
    }
    Verdict::of(together, format!("by its intervals one by one; by its ends alone, {}", direct.reason))
}

/// The verdict on an interval, from the values at its ends and what was [`touched`] and [`Asked`] in it.
pub fn verdict(before: &Values, now: &Values, touched: Option<u64>, asked: Asked, behind: &Behind) -> Verdict {
    use Metric::*;
    let unknown = |reason: &str| Verdict::of(DataFrom::Unknown, reason.to_owned());
    let Some(payload) = now.get(PayloadBytes).filter(|payload| *payload > 0) else {
        return unknown("the payload is not known");
    };
    let (Some(was), Some(is)) = (before.get(ResidentPayloadBytes), now.get(ResidentPayloadBytes)) else {
        return unknown("the resident payload is not known at both ends");
    };
    let grew = |metric: Metric| Some(now.get(metric)?.saturating_sub(before.get(metric)?));
    let counter = if *behind == Behind::Mount { StorageReadBytes } else { ReadBytes };
    let Some(read) = grew(counter) else {
        return unknown(&format!("{} is not known at both ends", counter.name()));
    };
    let some = LITTLE.max(payload / 100);
    let came = is.saturating_sub(was);
    // What the tree visibly used: pages of files that it maps, as far as they can be payload, and bytes that it read.
    let grown = touched;
    let touched = touched.unwrap_or(0).min(is);
    let how = asked;
    let asked = match how {
        Asked::Opened(bytes) | Asked::Before(bytes) | Asked::Unseen(bytes) => bytes.min(payload),
        Asked::Unopened | Asked::Mapped => 0,
    };
    let used = touched.max(asked);
    let figures = format!(
        "of {payload} bytes {was} were resident before and {is} after; the tree asked for {} by read(2), and its file \
         pages grew by {} while it mapped payload; {} grew by {read}",
        grew(RcharBytes).map_or_else(|| "an unknown number".to_owned(), |bytes| bytes.to_string()),
        grown.map_or_else(|| "an unknown number".to_owned(), |bytes| bytes.to_string()),
        counter.name(),
    );
    let say = |from: Option<DataFrom>, what: &str| Verdict::of(from, format!("{what}: {figures}"));

    if *behind == Behind::Memory {
        return match used >= some || came >= some {
            true => say(Some(DataFrom::PageCache), "the artifacts lie in memory (tmpfs)"),
            false => say(None, "nothing of the payload was loaded"),
        };
    }
    if came >= some {
        if read >= came - came / 10 {
            return match was >= some && used >= came.saturating_add(some) {
                true => say(Some(DataFrom::Mixed), "part came in from storage, and part was resident before"),
                false => say(Some(DataFrom::Storage), "what came in was read from storage"),
            };
        }
        if read >= some {
            return say(Some(DataFrom::Mixed), "part came in from storage, and others brought in the rest");
        }
        return match behind {
            Behind::Nothing(name) => say(
                Some(DataFrom::Unknown),
                &format!("it came in through {name}, where no counter tells whether from storage"),
            ),
            _ => say(
                Some(DataFrom::Unknown),
                "it came in, but was not read from storage by the tree: others brought it in",
            ),
        };
    }
    if read >= some && read >= payload / 10 && how != Asked::Unopened {
        return say(
            Some(DataFrom::Unknown),
            "what was read from storage made no payload resident: direct reads (O_DIRECT), or other files",
        );
    }
    if used < some || was < some {
        // A mount that keeps no pages may have given what was asked for.
        return match behind {
            Behind::Nothing(name) if asked >= some => {
                say(Some(DataFrom::Unknown), &format!("{name} may give data that never shows as resident"))
            }
            _ => say(None, "nothing of the payload was loaded"),
        };
    }
    // A loader's own modules, say, while the payload lies in the page cache for whoever will come.
    if touched < some {
        let may_be_others = "what was asked for may have been payload that was resident, or other files";
        let most = asked >= payload - payload / 10;
        match how {
            Asked::Before(_) if most => {}
            Asked::Before(_) if asked >= payload / 10 => return say(Some(DataFrom::Unknown), may_be_others),
            Asked::Unseen(_) if most => return say(Some(DataFrom::Unknown), may_be_others),
            Asked::Before(_) | Asked::Unseen(_) => return say(None, "nothing shows that the payload was used"),
            Asked::Opened(_) | Asked::Unopened | Asked::Mapped => {}
        }
    }
    let all_was_there = was >= payload - payload / 100;
    match behind {
        Behind::Nothing(name) if !all_was_there && (touched < some || touched < asked) => {
            say(Some(DataFrom::Unknown), &format!("not all was resident before, and no counter tells what {name} gave"))
        }
        _ => say(Some(DataFrom::PageCache), "what was used was resident before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Metric::*;

    const MIB: u64 = 1 << 20;

    /// Values at an end: resident, mapped file pages, rchar, read_bytes, in MiB; the payload is 256, and mapped where any
    /// of it was touched.
    fn end(resident: u64, touched: u64, asked: u64, read: u64) -> Values {
        let mut values = Values::ABSENT;
        for (metric, mib) in [
            (PayloadBytes, 256),
            (MappedPayloadBytes, if touched > 4 { 256 } else { 0 }),
            (ResidentPayloadBytes, resident),
            (RssFileBytes, touched),
            (RcharBytes, asked),
            (ReadBytes, read),
        ] {
            values.set(metric, mib * MIB);
        }
        values
    }

    fn from(before: &Values, now: &Values, behind: &Behind) -> Option<DataFrom> {
        let samples = [Sample { t: At(1), late_ns: 0, cost_ns: 0, values: now.clone() }];
        let asked = Asked::over(before, At(0), &samples, &Openings(vec![(At(0), At(1))]));
        let verdict = verdict(before, now, touched(before, &samples), asked, behind);
        assert!(!verdict.reason.is_empty());
        verdict.from
    }

    #[test]
    fn on_block_devices() {
        let disk = Behind::ReadBytes;
        let cases = [
            ("cold, mapped", end(0, 0, 0, 0), end(256, 264, 1, 260), Some(DataFrom::Storage)),
            ("cold, mapped, many imports", end(0, 0, 0, 0), end(256, 300, 400, 700), Some(DataFrom::Storage)),
            ("warm, mapped", end(256, 0, 0, 0), end(256, 264, 1, 0), Some(DataFrom::PageCache)),
            ("warm, mapped, some imports cold", end(256, 0, 0, 0), end(256, 264, 9, 8), Some(DataFrom::PageCache)),
            ("warm, read", end(256, 0, 0, 0), end(256, 4, 257, 0), Some(DataFrom::PageCache)),
            ("cold, read", end(0, 0, 0, 0), end(256, 4, 257, 258), Some(DataFrom::Storage)),
            ("half warm, mapped", end(128, 0, 0, 0), end(256, 260, 1, 130), Some(DataFrom::Mixed)),
            ("half warm, read", end(128, 0, 0, 0), end(256, 4, 257, 130), Some(DataFrom::Mixed)),
            ("half warm, the cold half alone", end(128, 0, 0, 0), end(256, 128, 1, 130), Some(DataFrom::Storage)),
            ("others read it", end(0, 0, 0, 0), end(256, 4, 1, 0), Some(DataFrom::Unknown)),
            ("others read part of it", end(0, 0, 0, 0), end(256, 256, 1, 100), Some(DataFrom::Mixed)),
            ("direct, warm", end(256, 0, 0, 0), end(256, 4, 257, 257), Some(DataFrom::Unknown)),
            ("direct, cold", end(0, 0, 0, 0), end(0, 4, 257, 257), Some(DataFrom::Unknown)),
            ("mapped and not touched", end(0, 0, 0, 0), end(0, 8, 1, 2), None),
            ("idle", end(256, 256, 9, 9), end(256, 256, 9, 9), None),
            ("evicted meanwhile", end(256, 256, 9, 9), end(100, 256, 9, 9), None),
        ];
        for (case, before, now, wanted) in cases {
            assert_eq!(from(&before, &now, &disk), wanted, "{case}");
        }
    }

    #[test]
    fn what_read_gave_is_payload_only_where_an_artifact_was_open() {
        let at = |t: i64, asked: u64| Sample { t: At(t), late_ns: 0, cost_ns: 0, values: end(256, 4, asked, 0) };
        let (before, samples) = (end(256, 4, 10, 0), [at(10, 60), at(20, 80), at(30, 90)]);
        let over = |openings: &[(i64, i64)]| {
            let openings = Openings(openings.iter().map(|(low, at)| (At(*low), At(*at))).collect());
            let asked = Asked::over(&before, At(5), &samples, &openings);
            (asked, verdict(&before, &samples[2].values, Some(0), asked, &Behind::ReadBytes).from)
        };
        let imports_before = over(&[(22, 25)]);
        assert_eq!(imports_before, (Asked::Opened(10 * MIB), Some(DataFrom::PageCache)));
        assert_eq!(over(&[(29, 35)]).0, Asked::Opened(10 * MIB), "it may have been open by the end");
        assert_eq!(over(&[(31, 35)]), (Asked::Unopened, None), "a program's own files, before it opened any");
        assert_eq!(over(&[(1, 2)]), (Asked::Before(80 * MIB), Some(DataFrom::Unknown)), "it may have been read on");
        assert_eq!(over(&[]), (Asked::Unseen(80 * MIB), None));
        let of = |asked| verdict(&before, &samples[2].values, Some(0), asked, &Behind::ReadBytes).from;
        assert_eq!(of(Asked::Before(20 * MIB)), None, "its own modules, more likely");
        assert_eq!(of(Asked::Before(255 * MIB)), Some(DataFrom::PageCache));
        assert_eq!(of(Asked::Unseen(255 * MIB)), Some(DataFrom::Unknown));
        assert_eq!(of(Asked::Mapped), None);
    }

    #[test]
    fn a_verdict_over_all_does_not_contradict_its_parts() {
        use DataFrom::*;
        let of = |from: Option<DataFrom>| Verdict::of(from, "why".to_owned());
        let over = |direct: Option<DataFrom>, parts: &[Option<DataFrom>]| {
            let parts: Vec<Verdict> = parts.iter().map(|from| of(*from)).collect();
            over_all(of(direct), parts.iter()).from
        };
        assert_eq!(over(Some(Storage), &[Some(Storage), Some(PageCache)]), Some(Storage), "its own, used again");
        assert_eq!(over(Some(Storage), &[Some(PageCache), Some(Storage)]), Some(Mixed));
        assert_eq!(over(None, &[Some(Storage), None]), Some(Storage), "evicted meanwhile");
        assert_eq!(over(Some(Mixed), &[Some(Storage), None]), Some(Storage));
        assert_eq!(over(Some(Mixed), &[Some(Storage), Some(PageCache)]), Some(Mixed));
        assert_eq!(over(Some(Storage), &[Some(Unknown), Some(Storage)]), Some(Storage), "the whole is known better");
        assert_eq!(over(None, &[Some(Unknown)]), Some(Unknown));
        assert_eq!(over(Some(PageCache), &[None, None]), Some(PageCache), "little by little");
        assert_eq!(over(None, &[None]), None);
    }

    #[test]
    fn what_is_touched_is_counted_from_the_mapping_on_and_stays() {
        let at = |mapped: u64, held: u64| {
            let mut values = end(0, held, 0, 0);
            values.set(MappedPayloadBytes, mapped * MIB);
            Sample { t: At(1), late_ns: 0, cost_ns: 0, values }
        };
        let samples = [at(0, 2), at(0, 7), at(256, 9), at(256, 260), at(0, 0)];
        assert_eq!(touched(&end(0, 0, 0, 0), &samples), Some(253 * MIB));
        assert_eq!(touched(&end(0, 0, 0, 0), &samples[..2]), Some(0), "libraries are no payload");
        assert_eq!(touched(&Values::ABSENT, &samples), None);
    }

    #[test]
    fn where_no_counter_tells() {
        let fuse = Behind::Nothing("/models (fuse.sshfs)".to_owned());
        let cases = [
            ("warm, mapped", end(256, 0, 0, 0), end(256, 264, 1, 0), Some(DataFrom::PageCache)),
            ("cold", end(0, 0, 0, 0), end(256, 264, 1, 0), Some(DataFrom::Unknown)),
            ("half warm, read", end(128, 0, 0, 0), end(128, 4, 257, 0), Some(DataFrom::Unknown)),
            ("a mount that keeps no pages", end(0, 0, 0, 0), end(0, 4, 257, 0), Some(DataFrom::Unknown)),
            ("idle", end(0, 4, 0, 0), end(0, 4, 0, 0), None),
        ];
        for (case, before, now, wanted) in cases {
            assert_eq!(from(&before, &now, &fuse), wanted, "{case}");
        }
        let reason = verdict(&end(0, 0, 0, 0), &end(256, 264, 1, 0), Some(264 * MIB), Asked::Mapped, &fuse).reason;
        assert!(reason.contains("fuse.sshfs") && reason.contains("268435456"), "{reason}");
    }

    #[test]
    fn a_network_mount_by_its_own_counter() {
        let (mut before, mut now) = (end(0, 0, 0, 0), end(256, 264, 1, 0));
        assert_eq!(from(&before, &now, &Behind::Mount), Some(DataFrom::Unknown), "the counter is absent");
        before.set(StorageReadBytes, 0);
        now.set(StorageReadBytes, 257 * MIB);
        assert_eq!(from(&before, &now, &Behind::Mount), Some(DataFrom::Storage));
        assert_eq!(from(&end(0, 0, 0, 0), &end(0, 256, 0, 0), &Behind::Memory), None);
        assert_eq!(from(&end(256, 0, 0, 0), &end(256, 256, 0, 0), &Behind::Memory), Some(DataFrom::PageCache));
    }

    #[test]
    fn what_is_not_known_gives_no_verdict_but_a_reason() {
        for missing in [PayloadBytes, ResidentPayloadBytes, ReadBytes] {
            let mut now = end(256, 264, 1, 260);
            now.set(missing, None);
            let verdict = verdict(&end(0, 0, 0, 0), &now, None, Asked::Mapped, &Behind::ReadBytes);
            assert_eq!(verdict.from, Some(DataFrom::Unknown));
            assert!(verdict.reason.contains("not known"));
        }
    }
}
