//! What `stagemark copy-paths` measured → tables for people, CSV, a picture. Pure: the same record gives the same bytes.

pub mod csv;
mod switches;

use crate::copy_paths::record::{Environment, Place, Record};
use crate::copy_paths::summary::{Group, Line, Spread, groups};
use crate::copy_paths::verdict;

use super::terminal::Page;
use super::text::plain;
use super::units;

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
         copies alone; ÷ heap: the total in relation to that of heap on the same place, repeat by repeat. populated \
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
        page.line(&format!("and {} more files of its set", names.len() - 1));
    }
    let tensors = &record.tensors;
    page.line(&format!(
        "{} of {} tensors, {} (the largest {}); {} repeats after one to warm up",
        tensors.chosen,
        tensors.of,
        units::bytes(tensors.bytes),
        units::bytes(tensors.largest_bytes),
        record.repeats
    ));
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
    page.line(&title(place, group));
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
        if let Some(modes) = modes(line) {
            page.line(&modes);
        }
    }
    verdict::sentences(group).iter().for_each(|sentence| page.line(sentence));
    switches::of(group).iter().for_each(|sentence| page.line(sentence));
}

fn title(place: &Place, group: &Group) -> String {
    let copy = if place.is_copy { "a copy in " } else { "" };
    let filesystem = place.filesystem.as_deref().unwrap_or("filesystem not known");
    let ranks = if group.ranks == 1 { "1 rank".to_owned() } else { format!("{} ranks at once", group.ranks) };
    let storage = place.storage.iter().map(|chain| plain(chain)).collect::<Vec<_>>().join(", ");
    let storage = if storage.is_empty() { String::new() } else { format!(" · {storage}") };
    format!(
        "== {copy}{} ({}){storage} → {} memory · {ranks}",
        plain(&place.directory),
        plain(filesystem),
        group.destination.name()
    )
}

fn row(group: &Group, line: &Line) -> String {
    let duration = |ns: f64| units::duration(ns.max(0.0).round() as u64);
    let (total, range) = line.total().map_or((ABSENT.to_owned(), String::new()), |Spread { median, low, high }| {
        (duration(median), format!("{}–{}", duration(low), duration(high)))
    });
    let copy = line.copy().map_or(ABSENT.to_owned(), |copy| duration(copy.median));
    let (ratio, envelope) = group.to_heap(line).map_or((ABSENT.to_owned(), String::new()), |ratio| {
        (
            units::significant(ratio.median),
            format!("{}–{}", units::significant(ratio.low), units::significant(ratio.high)),
        )
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

/// The values of a way that took two kinds of time.
fn modes(line: &Line) -> Option<String> {
    let mut sorted = line.totals.clone();
    sorted.sort_by(f64::total_cmp);
    let gap =
        sorted.windows(2).map(|pair| pair[1] - pair[0]).enumerate().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let (below, above) = sorted.split_at(gap.0 + 1);
    let width = |values: &[f64]| values.last().zip(values.first()).map_or(0.0, |(last, first)| last - first);
    let two =
        below.len() > 1 && above.len() > 1 && gap.1 > 3.0 * width(below).max(width(above)) && gap.1 > below[0] / 10.0;
    let told = |ns: &f64| units::duration(ns.round() as u64);
    two.then(|| {
        let values: Vec<String> = line.totals.iter().map(told).collect();
        format!("{}: two modes, in the order of the repeats: {}", line.way, values.join(", "))
    })
}
