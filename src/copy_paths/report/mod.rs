//! What `stagemark copy-paths` measured → tables for people, CSV, a picture. Pure: the same record gives the same bytes.

pub mod csv;
pub mod picture;
mod switches;

use super::destination::Kind;
use super::record::{Environment, Place, Progress, Record};
use super::summary::{Group, Line, groups};
use super::verdict;
use crate::compare::series::{Remark, remarks};
use crate::report::terminal::Page;
use crate::report::text::plain;
use crate::units;

const ABSENT: &str = "–";

/// All of it, in 80 columns.
pub fn text(record: &Record) -> String {
    let mut page = Page::default();
    head(&mut page, record);
    environment(&mut page, &record.environment);
    for place in &record.places {
        for group in groups(place) {
            page.blank();
            group_of(&mut page, record, place, &group);
        }
    }
    page.blank();
    page.line(
        "total: until the slowest rank was done, the median of the repeats and their extremes; copy: of it, the \
         copies alone; ÷ heap: the median over repeats of way ÷ heap of the same repeat at the same place, and the \
         extremes of that, so not the ratio of the medians shown. populated \
         private: the kernel fills a private writable mapping with copies of the pages, hence its faults.",
    );
    let warnings: Vec<String> = record.warnings.iter().map(|text| format!("warning: {}", plain(text))).collect();
    if !warnings.is_empty() {
        page.blank();
        warnings.iter().for_each(|warning| page.line(warning));
    }
    page.text()
}

fn head(page: &mut Page, record: &Record) {
    let names: Vec<String> = record.artifacts.iter().map(|artifact| plain(&artifact.path)).collect();
    for name in names.iter().take(1) {
        page.raw(name);
    }
    if names.len() > 1 {
        page.line(&format!("and {} of its set", units::exactly(names.len() as u64 - 1, "more file")));
    }
    let tensors = &record.tensors;
    page.line(&format!(
        "{} of {}, {} (the largest {}); {} after one to warm up",
        tensors.chosen,
        units::exactly(tensors.of, "tensor"),
        units::bytes(tensors.bytes),
        units::bytes(tensors.largest_bytes),
        units::exactly(record.repeats.into(), "repeat")
    ));
    if let Some(early) = early(record) {
        page.line(&early);
    }
}

/// That it came to no end, and why.
fn early(record: &Record) -> Option<String> {
    let problem = record.problem.as_deref().map(plain).unwrap_or_default();
    let what = match record.state {
        Progress::Done => return None,
        Progress::Running => "not finished: it still runs, or was killed".to_owned(),
        Progress::Interrupted => problem,
        Progress::Failed => format!("failed: {problem}"),
    };
    Some(format!("{what}; here is what had been measured by then"))
}

fn environment(page: &mut Page, environment: &Environment) {
    page.blank();
    let known = |what: &str, value: Option<String>| value.map(|value| format!("{what} {}", plain(&value)));
    let cpus = match (environment.affinity_cpus, environment.logical_cpus) {
        (Some(ours), Some(all)) if ours != all => Some(format!("{ours} of {all}")),
        (ours, all) => ours.or(all).map(|count| count.to_string()),
    };
    let parts = [
        known("CPU", environment.cpu_model.clone()),
        known("cores", cpus),
        known("NUMA nodes", environment.numa_nodes.map(|count| count.to_string())),
        known("memory", environment.memory_total_bytes.map(units::bytes)),
        known("limited to", environment.memory_limit_bytes.map(units::bytes)),
        known("kernel", environment.kernel_release.clone()),
        known("pages of", environment.page_size_bytes.map(units::bytes)),
        known("transparent huge pages", environment.transparent_huge_pages.clone()),
        (!environment.virtualisation.is_empty()).then(|| "a virtual machine".to_owned()),
    ];
    page.line(&parts.into_iter().flatten().collect::<Vec<_>>().join(" · "));
    environment.devices.iter().for_each(|device| page.line(&plain(device)));
}

fn group_of(page: &mut Page, record: &Record, place: &Place, group: &Group) {
    page.line(&title(record, place, group));
    page.raw(&format!("{:<24} {:>9} {:>18} {:>9} {:>6}", "way", "total", "from–to", "copy", "÷ heap"));
    for line in &group.lines {
        page.raw(&row(group, line));
    }
    page.blank();
    page.raw(&format!(
        "{:<24} {:>15} {:>7} {:>6} {:>9} {:>8} {:>5}",
        "way", "copied out of", "minor", "major", "read", "resident", "equal"
    ));
    for line in group.lines.iter().filter(|line| !line.totals.is_empty()) {
        page.raw(&evidence(record, line));
    }
    page.blank();
    for line in group.lines.iter().filter(|line| line.refused.is_some()) {
        let why = line.refused.as_deref().unwrap_or_default();
        page.line(&format!("{}: not measured: {}", line.way, plain(why)));
    }
    for line in &group.lines {
        remarks_on(record, line).iter().for_each(|remark| page.line(remark));
    }
    group.turns.words().iter().for_each(|sentence| page.line(sentence));
    verdict::sentences(group).iter().for_each(|sentence| page.line(sentence));
    switches::of(group).iter().for_each(|sentence| page.line(sentence));
}

fn title(record: &Record, place: &Place, group: &Group) -> String {
    let storage = place.storage.iter().map(|chain| plain(chain)).collect::<Vec<_>>().join(", ");
    let storage = if storage.is_empty() { String::new() } else { format!(" · {storage}") };
    format!("== {}{storage}", heading(record, place, group))
}

/// From where to where, by how many; how often, where that is not as often as was meant.
fn heading(record: &Record, place: &Place, group: &Group) -> String {
    let copy = if place.is_copy { "a copy in " } else { "" };
    let filesystem = plain(place.filesystem.as_deref().unwrap_or("filesystem not known"));
    let at_once = if group.ranks == 1 { "" } else { " at once" };
    let repeats = match record.state {
        Progress::Done => String::new(),
        _ if group.repeats as u64 >= u64::from(record.repeats) => String::new(),
        _ => format!(" · {} of {}", group.repeats, units::exactly(record.repeats.into(), "repeat")),
    };
    format!(
        "{copy}{} ({filesystem}) → {} memory · {}{at_once}{repeats}",
        plain(&place.directory),
        group.destination.name(),
        units::exactly(group.ranks.into(), "rank")
    )
}

fn row(group: &Group, line: &Line) -> String {
    let (total, range) = line.total().map_or((ABSENT.to_owned(), String::new()), |total| {
        (units::duration(total.median), format!("{}–{}", units::duration(total.min), units::duration(total.max)))
    });
    let copy = line.copy().map_or(ABSENT.to_owned(), |copy| units::duration(copy.median));
    let (ratio, envelope) = group.to_heap(line).map_or((ABSENT.to_owned(), String::new()), |ratio| {
        let (least, most) = ratio.extremes();
        (ratio.middle(), format!("{least}–{most}"))
    });
    format!("{:<24} {total:>9} {range:>18} {copy:>9} {ratio:>6} {envelope:>9}", line.way.to_string())
}

fn evidence(record: &Record, line: &Line) -> String {
    let absent = || ABSENT.to_owned();
    let resident = line.resident_before.map_or_else(absent, |(low, high)| {
        let percent = |bytes: u64| bytes as f64 / record.tensors.bytes.max(1) as f64 * 100.0;
        match (percent(low).round(), percent(high).round()) {
            (low, high) if low == high => format!("{low}%"),
            (low, high) => format!("{low}–{high}%"),
        }
    });
    let equal = match line.verified {
        Some(true) => "yes",
        Some(false) => "NO",
        None => ABSENT,
    };
    format!(
        "{:<24} {:>15} {:>7} {:>6} {:>9} {resident:>8} {equal:>5}",
        line.way.to_string(),
        plain(&line.sources.join(", ")),
        line.minor_faults.map_or_else(absent, units::count),
        line.major_faults.map_or_else(absent, units::count),
        line.read_bytes.map_or_else(absent, units::bytes),
    )
}

/// The values of a way that took two kinds of time, of one that was to be cold and was not, and of one that was not what it is
/// called.
fn remarks_on(record: &Record, line: &Line) -> Vec<String> {
    let duration = |ns: u64| units::duration(ns);
    let modes = remarks(&line.totals).into_iter().filter(|remark| matches!(remark, Remark::TwoModes { .. }));
    let mut said: Vec<String> = modes.map(|remark| format!("{}: {}", line.way, remark.words(&duration))).collect();
    if line.verified == Some(false) {
        said.push(format!("{}: the bytes that came were not the file's: it is in no verdict", line.way));
    }
    let other = |class: &String| line.sources.iter().any(|source| source != class);
    if let Some(class) = line.way.class(line.destination != Kind::Host).filter(other) {
        let sources = plain(&line.sources.join(", "));
        said.push(format!("{}: copied out of {sources}, not of {class}: the figures are of that", line.way));
    }
    if line.way.regime.is_cold() && !line.totals.is_empty() {
        // The bound below which a run's start is called artifact-cold.
        match line.resident_before {
            Some((_, most)) if most > record.tensors.bytes / 100 => said.push(format!(
                "{}: not cold: up to {} of the tensors stayed in memory (memory itself, as tmpfs, or held by others)",
                line.way,
                units::bytes(most)
            )),
            None => said.push(format!("{}: whether it was cold is unverified: who asks is not told", line.way)),
            Some(_) => {}
        }
    }
    said
}
