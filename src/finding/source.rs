//! Whether the payload was served from the page cache or from storage, and by which kind of access.
//!
//! Evidence: the account's verdict, which stands on residency before and after and on the counters of storage
//! ([`crate::account::source`]); and the kind of access, which stands on the tree's file pages (mapped faults) and on
//! what read(2) was asked for. What neither of the two shows is told as that: io_uring and a daemon's reads are in no
//! counter of read(2).

use super::{Finding, Ground, Quantity, Rule, at, derived, share};
use crate::account::source::DataFrom;
use crate::metric::Metric::*;
use crate::units;

pub(super) const RULE: Rule = Rule {
    id: "source",
    about: "where the payload came from and by which access: by residency and storage reads, and by file pages and \
            read(2)",
    find: |ground| of(ground).into_iter().collect(),
};

/// So much of the payload, in percent, went this way.
const HALF: u64 = 50;
/// So little did not.
const NONE: u64 = 10;

/// The way that the payload was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Mapped,
    Read,
    Both,
    Neither,
}

impl Access {
    fn of(payload: u64, used: u64, asked: u64) -> Option<Access> {
        let (half, none) = (share(payload, HALF), share(payload, NONE));
        match (used >= half, asked >= half) {
            (true, true) => Some(Access::Both),
            (true, false) => Some(Access::Mapped),
            (false, true) => Some(Access::Read),
            // Between the two nothing can be said.
            (false, false) => (used < none && asked < none).then_some(Access::Neither),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Access::Mapped => "by page faults of its mapping",
            Access::Read => "by read()",
            Access::Both => "by read() and by page faults of its mapping",
            Access::Neither => "neither by read() nor by its mapping",
        }
    }
}

fn of(ground: &Ground) -> Option<Finding> {
    let last = ground.last()?;
    let payload = ground.payload()?;
    let verdict = last.work.source_from_start.as_ref()?;
    let from = verdict.from?;
    let used = ground.used_since_start(last.sampled?)?;
    let (asked, read) = (last.values.get(RcharBytes)?, last.values.get(ReadBytes)?);
    let resident = last.values.get(ResidentPayloadBytes)?;
    let artifacts = &ground.run.meta.artifacts;
    let before: u64 = artifacts.iter().map(|artifact| artifact.resident_at_start_bytes).sum::<Option<u64>>()?;
    let access = Access::of(payload, used, asked)?;
    let came = resident.saturating_sub(before);
    // The growth is known from below: other files' pages may have gone in the meantime.
    if access == Access::Neither && ground.most_file_pages(last.sampled?) >= share(payload, HALF).min(came.max(1)) {
        return None;
    }
    let much = share(payload, 90);
    let unseen = "io_uring, or a filesystem's daemon or another process that read for it";
    let title = match (from, access) {
        (DataFrom::PageCache, Access::Neither) => return None,
        (DataFrom::PageCache, access) => format!("The payload was served from the page cache, {}", access.words()),
        (DataFrom::Storage | DataFrom::Mixed, Access::Neither) if came < share(payload, HALF) => return None,
        (DataFrom::Storage, Access::Neither) => {
            format!("The payload was read from storage, {}: {unseen}", access.words())
        }
        (DataFrom::Storage, access) => format!("The payload was read from storage, {}", access.words()),
        (DataFrom::Mixed, access) => {
            format!("The payload came from storage in part and from the page cache in part, {}", access.words())
        }
        // As much as the payload was read, and none of it stayed.
        (DataFrom::Unknown, Access::Read) if read >= much && came < share(payload, NONE) => {
            "The payload was read past the page cache (O_DIRECT), or as much of other files".to_owned()
        }
        (DataFrom::Unknown, Access::Neither) if read >= much && came < share(payload, NONE) => {
            "The payload was read past the page cache and not by read(): io_uring with O_DIRECT, or other files"
                .to_owned()
        }
        (DataFrom::Unknown, Access::Neither) if came >= share(payload, HALF) => {
            format!("The payload came into memory, {}: {unseen}", access.words())
        }
        (DataFrom::Unknown, _) => return None,
    };
    let sentence = format!(
        "Of {} {} was resident before the start and {} at {}; the tree fetched {} from storage, asked for {} by \
         read(2), and its file pages grew by {} while payload was mapped.",
        units::bytes(payload),
        units::bytes(before),
        units::bytes(resident),
        last.outcome.stage,
        units::bytes(read),
        units::bytes(asked),
        units::bytes(used)
    );
    Some(Finding {
        rule: RULE.id,
        title,
        sentences: vec![sentence],
        figures: vec![
            at(last, PayloadBytes, payload),
            derived("resident_at_start_bytes", Quantity::Bytes(before), "residency before the exec (run.json)"),
            at(last, ResidentPayloadBytes, resident),
            at(last, ReadBytes, read),
            at(last, RcharBytes, asked),
            derived(
                "file_pages_used_bytes",
                Quantity::Bytes(used),
                "growth of rss_file_bytes while payload was mapped",
            ),
        ],
        settles: match from {
            DataFrom::PageCache => {
                "It says nothing of a first start: launch again with the files out of memory, and compare runs of \
                 one start condition alone."
            }
            DataFrom::Storage => "Launch again with the files in memory: the difference is what storage costs.",
            DataFrom::Mixed => "Launch once with the files in memory and once without, and compare each with its like.",
            DataFrom::Unknown => {
                "The counters of the devices or the mount (storage_read_bytes), and strace -f -e \
                 trace=io_uring_enter,openat, would tell which."
            }
        }
        .to_owned(),
        place: ground.whole(),
    })
}
