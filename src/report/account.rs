//! The host account for a terminal: the one total that a capacity review signs for, in its parts, with how it is known
//! and what else speaks for or against it.

use crate::account::host::{Bounds, HostAccount, Part};
use crate::account::{StageRow, StageTable};
use crate::clock::At;
use crate::metric::Metric;
use crate::run::{Run, Scope};

use super::terminal::{ABSENT, Page};
use super::text::{columns, elide, plain};
use super::{peak, units};

/// Columns of the two bounds.
const BOUND: usize = 10;
/// Columns of the parts' names.
const NAME: usize = 56;

/// A fall of MemAvailable beyond the account that is worth a word.
const UNEXPLAINED: u64 = 64 << 20;

/// The stage whose account it is: the stopping event, or the last one reached before it at which the launch still held
/// something: what is left when it is over says nothing of what it took.
pub(super) fn row(table: &StageTable) -> Option<&StageRow> {
    let last = table.last_stage_reached()?;
    Some(table.reached().rev().filter(|row| row.at() <= last.at()).find(|row| is_alive(row)).unwrap_or(last))
}

fn is_alive(row: &StageRow) -> bool {
    row.values.get(Metric::RssBytes).is_some_and(|rss| rss > 0)
}

/// Whether the account at a stage tells anything: every figure would say that a launch without artifacts holds nothing
/// when it is over.
pub(super) fn tells(run: &Run, row: &StageRow) -> bool {
    !run.meta.artifacts.is_empty() || is_alive(row)
}

/// The account, in its parts and in words.
pub(super) fn section(page: &mut Page, run: &Run, table: &StageTable) {
    let (Some(last), Some(row)) = (table.last_stage_reached(), row(table)) else { return };
    let stage = plain(&row.outcome.stage);
    let has_artifacts = !run.meta.artifacts.is_empty();
    if !tells(run, row) {
        // Nothing is said.
    } else if row.host.total == Bounds::ABSENT {
        page.line(&format!("Host memory of the launch at {stage} is not known: parts of it are absent."));
    } else {
        page.blank();
        parts(page, &stage, &row.host, has_artifacts);
        page.line(&basis(&row.host));
        subsets(page, row);
        available(page, run, row);
        group(page, row, last);
    }
    let stage = plain(&last.outcome.stage);
    if let Some(sentence) = peak::sentence(run, last, &stage) {
        page.line(&sentence);
    }
    ranks(page, run, row.sampled);
}

fn parts(page: &mut Page, stage: &str, account: &HostAccount, has_artifacts: bool) {
    let mut line = |name: &str, [low, high]: [String; 2]| {
        let name = elide(name, NAME);
        let pad = " ".repeat(NAME - columns(&name));
        page.raw(&format!("{name}{pad} {low:>BOUND$} {high:>BOUND$}"));
    };
    let cells =
        |bounds: Bounds| [bounds.low, bounds.high].map(|bytes| bytes.map_or_else(|| ABSENT.to_owned(), units::bytes));
    line(&format!("host memory at {stage}"), ["at least".to_owned(), "at most".to_owned()]);
    shown_parts(account, has_artifacts).for_each(|(name, bounds)| line(&format!("  {name}"), cells(bounds)));
    line("  total", cells(account.total));
    if let Some(swap) = account.swap.filter(|swap| *swap > 0) {
        line("  swapped out, not in the total", cells(Bounds { low: Some(swap), high: Some(swap) }));
    }
}

/// The parts with their names. Few launches use huge pages, and without an artifact there is nothing that could be of
/// one: those are left out where they are none.
pub(super) fn shown_parts(account: &HostAccount, has_artifacts: bool) -> impl Iterator<Item = (&'static str, Bounds)> {
    let parts = Part::ALL.into_iter().map(|part| (part, account.part(part)));
    let shown = move |(part, bounds): &(Part, Bounds)| {
        let may_be_none = match part {
            Part::HugePages => true,
            Part::Payload | Part::ArtifactOther => !has_artifacts,
            _ => false,
        };
        !may_be_none || bounds.high.is_some_and(|bytes| bytes > 0)
    };
    parts.filter(shown).map(|(part, bounds)| (name(part), bounds))
}

fn name(part: Part) -> &'static str {
    match part {
        Part::Anonymous => "anonymous",
        Part::Payload => "payload in the page cache",
        Part::ArtifactOther => "other bytes of the artifacts",
        Part::OtherFile => "other file-backed pages",
        Part::SharedMemory => "shared memory",
        Part::PageTables => "page tables",
        Part::HugePages => "huge pages of hugetlbfs",
    }
}

pub(super) fn basis(account: &HostAccount) -> String {
    let mut parts = account.basis.split("; ");
    let anonymous = match parts.next().unwrap_or_default() {
        "unshared" => "Anonymous memory is as counted: no two processes can share it",
        "pss" => "Anonymous memory that forks share is counted once, by each one's share (PSS)",
        "pss in part" => "Anonymous memory that forks may share is bounded: the shares (PSS) of only some were read",
        _ => "Anonymous memory that forks may share is bounded: their shares (PSS) were not read",
    };
    let others = parts.map(|part| {
        let mut letters = part.chars();
        letters.next().map_or_else(String::new, |first| format!(" {}{}.", first.to_uppercase(), letters.as_str()))
    });
    format!("{anonymous}.{}", others.collect::<String>())
}

/// What is a part of the parts, and must not be added to them.
fn subsets(page: &mut Page, row: &StageRow) {
    let known = [(Metric::LockedBytes, "locked"), (Metric::AnonHugeBytes, "anonymous in huge pages")];
    let told: Vec<String> = known
        .iter()
        .filter_map(|(metric, what)| Some((row.values.get(*metric).filter(|bytes| *bytes > 0)?, what)))
        .map(|(bytes, what)| format!("{} {what}", units::bytes(bytes)))
        .collect();
    if !told.is_empty() {
        page.line(&format!("Of it, and in the parts above already: {}.", told.join(", ")));
    }
}

/// MemAvailable's fall beside what of the account it falls by: a second opinion, not a correction.
fn available(page: &mut Page, run: &Run, row: &StageRow) {
    let first = || run.samples.iter().find_map(|sample| sample.values.get(Metric::HostAvailableBytes));
    let (Some(before), Some(now)) =
        (run.meta.condition.memory_available_bytes.or_else(first), row.values.get(Metric::HostAvailableBytes))
    else {
        return;
    };
    let Bounds { low: Some(low), high: Some(high) } = row.host.unreclaimable() else { return };
    let held = if low == high { units::bytes(low) } else { format!("{} to {}", units::bytes(low), units::bytes(high)) };
    let what = format!("the account has {held} that cannot be reclaimed (anonymous, shared, page tables)");
    page.line(&match before.checked_sub(now) {
        Some(fall) => {
            let beyond = fall.saturating_sub(high);
            let rest = match beyond {
                0..=UNEXPLAINED => String::new(),
                _ => format!(
                    ". The other {} are the kernel's, tmpfs files that nobody maps, or other programs'",
                    units::bytes(beyond)
                ),
            };
            format!("MemAvailable of the host fell by {} since start; {what}{rest}.", units::bytes(fall))
        }
        None => format!("MemAvailable of the host rose by {} since start; {what}.", units::bytes(now - before)),
    });
}

/// What the launch's own control group is charged at `row`, and its high-water mark up to `last`.
fn group(page: &mut Page, row: &StageRow, last: &StageRow) {
    let get = |metric| row.values.get(metric).map(units::bytes);
    if let Some(charged) = get(Metric::CgroupBytes) {
        let part = |metric, what| get(metric).map(|bytes| format!("{bytes} {what}"));
        let parts = [
            part(Metric::CgroupAnonBytes, "anonymous"),
            part(Metric::CgroupFileBytes, "page cache and shared memory first used in it"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        page.line(&format!("The launch's control group is charged {charged}{parts}."));
    }
    if let Some(peak) = last.values.get(Metric::CgroupPeakBytes).map(units::bytes) {
        let stage = plain(&last.outcome.stage);
        page.line(&format!("The most it was ever charged up to {stage}: {peak}, by the kernel's own mark."));
    }
}

/// The largest and the smallest of the ranks, where there are several.
fn ranks(page: &mut Page, run: &Run, at: Option<At>) {
    let Some(at) = at else { return };
    let mut ranks: Vec<(u64, u32)> = run
        .details
        .iter()
        .filter(|figure| figure.at == at && figure.metric == "rss_bytes")
        .filter_map(|figure| match figure.scope {
            Scope::Rank(rank) => Some((figure.value, rank)),
            _ => None,
        })
        .collect();
    ranks.sort_unstable();
    if let ([(least, small), .., (most, large)], count) = (ranks.as_slice(), ranks.len()) {
        page.line(&format!(
            "{count} ranks: the largest resident set is {} (rank {large}), the smallest {} (rank {small}).",
            units::bytes(*most),
            units::bytes(*least)
        ));
    }
}
