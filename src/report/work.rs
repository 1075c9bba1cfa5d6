//! What each interval was spent on, a line each: cores busy of those that the launch may use, where the data came from,
//! and how long it took.

use crate::account::ratios::{self, Thousandths};
use crate::account::source::{Behind, DataFrom, Verdict};
use crate::account::{StageRow, StageTable};
use crate::host::Cores;
use crate::metric::Metric;
use crate::run::Run;

use super::text::plain;
use super::units;

/// So many intervals at most have a line: the longest ones…
const MOST: usize = 6;
/// … and none that is shorter than this part of the whole.
const SHARE: u64 = 50;
/// CPU time is counted in clock ticks of 10 ms: in less time than this it says too little of the cores.
const COARSE_NS: u64 = 200_000_000;
/// So many of the things behind the artifacts are named.
const NAMED: usize = 4;

/// The lines up to the stopping event, in the order of time; and what they count as a core. Empty where nothing is
/// known of any interval.
pub fn lines(run: &Run, table: &StageTable) -> Vec<String> {
    let behind = Behind::of(&run.meta);
    let cores = cores(run);
    let end = table.last_stage_reached().and_then(StageRow::at);
    let rows: Vec<(&StageRow, String)> =
        table.reached().zip(table.interval_names()).filter(|(row, _)| row.at() <= end).collect();
    let whole = end.and_then(|end| u64::try_from(end.0).ok()).unwrap_or(0);
    let mut spans: Vec<(u64, usize, String)> = Vec::new();
    let mut left_out: Vec<u64> = Vec::new();
    let mut any_known = false;
    let mut begin = 0;
    for (index, (row, name)) in rows.iter().enumerate() {
        let Some((at, _)) = row.at().zip(row.sampled) else { continue };
        let length = u64::try_from(at.0 - begin).unwrap_or(0);
        begin = at.0;
        let source = row.work.source.as_ref();
        let before = index.checked_sub(1).map(|before| rows[before].0);
        let busy = ratios::cores_busy(row, before).filter(|_| length >= COARSE_NS);
        let spent = spent(busy, ratios::user_share(&row.deltas), cores.as_ref());
        let data = data(run, source, row.deltas.get(counter(&behind)), &behind);
        let is_known = spent.is_some() || tells(source);
        any_known |= is_known;
        if length < whole / SHARE || (!is_known && length < COARSE_NS) {
            left_out.push(length);
            continue;
        }
        spans.push((length, index, line(name, spent, data, length)));
    }
    if !any_known {
        spans.clear();
        left_out.clear();
    }
    spans.sort_by_key(|(length, ..)| std::cmp::Reverse(*length));
    left_out.extend(spans.drain(MOST.min(spans.len())..).map(|(length, ..)| length));
    spans.sort_by_key(|(_, index, _)| *index);
    let mut lines: Vec<String> = spans.into_iter().map(|(.., line)| line).collect();
    if lines.len() > 1
        && let Some(last) = table.last_stage_reached()
    {
        let since = last.sampled.and_then(|sampled| u64::try_from(sampled.0).ok());
        let busy = since.zip(ratios::cpu_ns(&last.values)).and_then(|(since, cpu)| Thousandths::of(cpu, since));
        let busy = busy.filter(|_| whole >= COARSE_NS);
        let spent = spent(busy, ratios::user_share(&last.values), cores.as_ref());
        let data = data(run, last.work.source_from_start.as_ref(), last.values.get(counter(&behind)), &behind);
        lines.push(line(&format!("start → {}", last.outcome.stage), spent, data, whole));
    }
    lines.extend(not_shown(&left_out));
    let told = lines.iter().any(|line| line.contains(" cores busy"));
    if let (true, Some((_, why))) = (told, cores) {
        lines.push(why);
    }
    lines.extend(storage(run));
    lines
}

/// That shorter intervals have no line.
fn not_shown(left_out: &[u64]) -> Option<String> {
    let longest = units::duration(*left_out.iter().max()?);
    Some(match left_out.len() {
        1 => format!("1 shorter interval ({longest}) has no line here; it is in stages.csv."),
        count => {
            format!("{count} shorter intervals (each {longest} or less) have no line here; they are in stages.csv.")
        }
    })
}

/// Whether a verdict says more than that nobody knows, or that nothing happened.
fn tells(verdict: Option<&Verdict>) -> bool {
    verdict.and_then(|verdict| verdict.from).is_some_and(|from| from != DataFrom::Unknown)
}

/// What is behind the artifacts.
fn storage(run: &Run) -> Vec<String> {
    let all = &run.meta.storage;
    let named = all.iter().take(NAMED).map(|boundary| {
        let chain = boundary.chains.first().map_or(boundary.name.as_str(), String::as_str);
        let why = boundary.reason.as_ref().map(|why| format!(": {}", plain(why))).unwrap_or_default();
        format!("storage: {}{why}", plain(chain))
    });
    let more = all.len().checked_sub(NAMED + 1).map(|more| format!("storage: {} more, in run.json", more + 1));
    named.chain(more).collect()
}

fn line(name: &str, spent: Option<String>, data: Option<String>, length: u64) -> String {
    let parts: Vec<String> = spent.into_iter().chain(data).chain([units::duration(length)]).collect();
    format!("{}: {}", plain(name), parts.join(", "))
}

fn spent(busy: Option<Thousandths>, user: Option<Thousandths>, cores: Option<&(String, String)>) -> Option<String> {
    let of = cores.map(|(cores, _)| format!(" of {cores}")).unwrap_or_default();
    let busy = busy?.0 as f64 / 1e3;
    let busy = if busy < 99.95 { format!("{busy:.1}") } else { format!("{busy:.0}") };
    let share = user.map(|user| format!(" ({:.0}% system)", 100.0 - user.0 as f64 / 10.0)).unwrap_or_default();
    Some(format!("{busy}{of} cores busy{share}"))
}

/// The counter of bytes that left the storage for the tree.
fn counter(behind: &Behind) -> Metric {
    if *behind == Behind::Mount { Metric::StorageReadBytes } else { Metric::ReadBytes }
}

/// What was read and where the payload came from; of the latter nothing where there is no artifact that had any.
fn data(run: &Run, verdict: Option<&Verdict>, read: Option<u64>, behind: &Behind) -> Option<String> {
    let from = if *behind == Behind::Mount { "the network mount" } else { "storage" };
    let read = match (read, behind) {
        // What such a mount moves is in no counter: a figure would say that it moved nothing.
        (_, Behind::Nothing(_)) | (None, _) => None,
        (Some(0), Behind::Mount) => Some(format!("nothing read from {from}")),
        (Some(0), _) => Some("no disk I/O".to_owned()),
        (Some(read), _) => Some(format!("{} read from {from}", units::bytes(read))),
    };
    let verdict = match verdict.map(|verdict| verdict.from) {
        None => "source not known",
        Some(None) => "nothing loaded",
        Some(Some(DataFrom::Storage)) => "data from storage",
        Some(Some(DataFrom::PageCache)) => "data from the page cache",
        Some(Some(DataFrom::Mixed)) => "data from storage and page cache",
        Some(Some(DataFrom::Unknown)) => "source cannot be told",
    };
    let verdict = (!run.meta.artifacts.is_empty()).then(|| verdict.to_owned());
    let parts: Vec<String> = read.into_iter().chain(verdict).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The cores that the launch may use: how many, and by what.
fn cores(run: &Run) -> Option<(String, String)> {
    let host = &run.meta.host;
    let count = match host.cores()? {
        Cores::Quota(quota) => {
            let cpus = quota.cpus();
            let shown = if cpus.fract() == 0.0 { format!("{cpus:.0}") } else { format!("{cpus:.1}") };
            let why = format!("Cores are those of the launch: {shown}, by the quota of {}.", plain(&quota.file));
            return Some((shown, why));
        }
        Cores::Counted(count) => count,
    };
    let why = match (&host.affinity, host.logical_cpus) {
        (Some(list), Some(all)) if all != count => {
            format!("Cores are those of the launch: {count} of the host's {all}, by its affinity ({}).", plain(list))
        }
        _ => format!("Cores are those of the launch: {count}, all of the host."),
    };
    Some((count.to_string(), why))
}
