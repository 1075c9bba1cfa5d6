//! The comparison for a terminal: 80 columns, no colours, nothing that a run folder holds can move the cursor.
//!
//! Two arms of a run each stand beside each other; more stand below each other. It shows the figures that a reader signs
//! for; `compare.csv` has all of them.

use super::words;
use crate::account::host::Part;
use crate::compare::likeness::{Field, State, Verdict};
use crate::compare::{Arm, Cell, Comparison, Figure, Likeness, MOST_TOLD, Quantity, Refusal, Stage, Subject};
use crate::event::{text_of, word_of};
use crate::metric::Metric;
use crate::report::terminal::{ABSENT, Page, WIDTH};
use crate::report::text::{columns, elide, padded, plain};
use crate::units;

/// Columns of a figure's name, and the least of a figure: a longer one takes what it needs, since a figure that is cut is
/// another figure.
const NAME: usize = 20;
const FIGURE: usize = 14;
/// Columns of an arm's name where arms stand below each other.
const ARM: usize = 12;

/// What is shown of a stage, after host memory, device memory and time.
const SHOWN: &[Quantity] = &[
    Quantity::Interval,
    Quantity::HostPart(Part::Anonymous),
    Quantity::HostPart(Part::Payload),
    Quantity::Value(Metric::MappedPayloadBytes),
    Quantity::Value(Metric::RssBytes),
    Quantity::Peak(Metric::RssBytes),
    Quantity::Value(Metric::DeviceLaunchBytes),
    Quantity::Delta(Metric::MinorFaults),
    Quantity::Delta(Metric::MajorFaults),
    Quantity::Delta(Metric::RcharBytes),
    Quantity::Delta(Metric::ReadBytes),
    Quantity::Delta(Metric::CpuUserNs),
    Quantity::Delta(Metric::CpuSystemNs),
];

/// The comparison.
pub fn text(arms: &[Arm], comparison: &Comparison) -> String {
    let mut page = Page::default();
    who(&mut page, arms);
    event(&mut page, comparison);
    if let Some((end, before, _)) = comparison.told_stages() {
        stage(&mut page, comparison, end);
        before.iter().for_each(|earlier| stage(&mut page, comparison, earlier));
    }
    page.blank();
    absences(&mut page, comparison, |stage| shown(stage).collect());
    limits(&mut page, comparison, |stage| shown(stage).collect());
    likeness(&mut page, comparison);
    if !comparison.notes.is_empty() {
        page.blank();
        comparison.notes.iter().for_each(|note| page.line(&plain(note)));
    }
    page.text()
}

/// The refusal: a sentence a paragraph.
pub fn refusal(refusal: &Refusal) -> String {
    let mut page = Page::default();
    refusal.sentences().iter().for_each(|sentence| page.line(&plain(sentence)));
    page.text()
}

/// The arms: their names, folders and commands.
fn who(page: &mut Page, arms: &[Arm]) {
    let width = arms.iter().map(|arm| columns(&plain(&arm.name))).max().unwrap_or(0).min(ARM);
    for arm in arms {
        let name = padded(&elide(&plain(&arm.name), ARM), width);
        for (nth, (run, _)) in arm.runs.iter().enumerate() {
            let name = if nth == 0 { name.clone() } else { " ".repeat(width) };
            page.raw(&elide(&format!("{name}  {}", plain(&text_of(&run.folder))), WIDTH));
        }
        let commands: Vec<String> = arm.runs.iter().map(|(run, _)| run.meta.argv.join(" ")).collect();
        if let Some((first, rest)) = commands.split_first() {
            let more = if rest.iter().all(|other| other == first) { "" } else { " …" };
            let command = elide(&plain(first), WIDTH - width - 2 - columns(more));
            page.raw(&format!("{}  {command}{more}", " ".repeat(width)));
        }
    }
}

/// Where the comparison begins and ends, and whether that was declared.
pub(in crate::report) fn event(page: &mut Page, comparison: &Comparison) {
    page.blank();
    let event = &comparison.event;
    let evidence: Vec<String> = event.evidence.iter().map(word_of).collect();
    let stage = plain(&event.stage);
    if event.declared.is_empty() {
        page.line(&format!(
            "From the command's start to {stage}: one definition, shown by {} in all.",
            evidence.join(", ")
        ));
    } else {
        page.line(&format!(
            "From the command's start to {stage}, which was DECLARED to be the same event in all (--same-event):"
        ));
        event.declared.iter().for_each(|what| page.indented(2, &plain(what)));
    }
}

/// The name of a figure for people.
pub fn name(of: Quantity) -> String {
    use Metric::*;
    let name = match of {
        Quantity::Host => "host memory",
        Quantity::HostPart(Part::Anonymous) => "  anonymous",
        Quantity::HostPart(Part::Payload) => "  payload in memory",
        Quantity::Time => "time",
        Quantity::Interval => "+time",
        Quantity::Value(MappedPayloadBytes) => "payload mapped",
        Quantity::Value(RssBytes) => "resident set, summed",
        Quantity::Peak(RssBytes) => "resident set, peak",
        Quantity::Peak(DeviceLaunchBytes) => "device memory, peak",
        Quantity::Peak(DeviceRiseBytes) => "device rise, peak",
        Quantity::Peak(DeviceUsedBytes) => "device in use, peak",
        Quantity::Value(DeviceLaunchBytes) => "device memory",
        Quantity::Delta(MinorFaults) => "+minor faults",
        Quantity::Delta(MajorFaults) => "+major faults",
        Quantity::Delta(RcharBytes) => "+asked of read()",
        Quantity::Delta(ReadBytes) => "+read from storage",
        Quantity::Delta(CpuUserNs) => "+CPU, user",
        Quantity::Delta(CpuSystemNs) => "+CPU, kernel",
        other => return other.name(),
    };
    name.to_owned()
}

/// The figures of a stage that are shown: host memory, device memory and time, known or not, then what some run has.
pub(in crate::report) fn shown(stage: &Stage) -> impl Iterator<Item = &Figure> {
    let is_shown =
        |of: Quantity| matches!(of, Quantity::Host | Quantity::Time) || SHOWN.contains(&of) || is_device_peak(of);
    let first = stage.figures.iter().take(3);
    first.chain(stage.figures.iter().skip(3).filter(move |figure| is_shown(figure.of)))
}

fn is_device_peak(of: Quantity) -> bool {
    use Metric::*;
    matches!(of, Quantity::Peak(DeviceLaunchBytes))
}

fn is_beside(comparison: &Comparison) -> bool {
    comparison.arms.len() == 2 && comparison.arms.iter().all(|(_, runs)| *runs == 1)
}

fn stage(page: &mut Page, comparison: &Comparison, stage: &Stage) {
    page.blank();
    let since = match &stage.before {
        Some(before) => format!("; + since {}", plain(before)),
        None => String::new(),
    };
    let title = format!("at {}{since}", plain(&stage.name));
    page.raw(&elide(&title, WIDTH));
    if is_beside(comparison) {
        let rows: Vec<(&Figure, [String; 2])> = shown(stage)
            .map(|figure| (figure, [0, 1].map(|arm| words::figure(figure.of, &figure.of_arm(arm)))))
            .collect();
        let width = widest(FIGURE, rows.iter().flat_map(|(_, cells)| cells));
        let heads = comparison.arms.iter().map(|(name, _)| format!(" {}", right(&elide(&plain(name), width), width)));
        let last = comparison.arms.last().map(|(name, _)| elide(&plain(name), ARM)).unwrap_or_default();
        page.raw(&format!("{}{}  {last} is", " ".repeat(NAME), heads.collect::<String>()));
        rows.iter().for_each(|(figure, cells)| beside(page, figure, cells, width));
    } else {
        let rows: Vec<(&Figure, Vec<String>)> =
            shown(stage).map(|figure| (figure, of_arms(comparison, figure))).collect();
        let several = comparison.arms.iter().any(|(_, runs)| *runs > 1);
        let least = if several { FIGURE + 8 } else { FIGURE };
        let width = widest(least, rows.iter().flat_map(|(_, cells)| cells));
        rows.iter().for_each(|(figure, cells)| below(page, comparison, figure, cells, width));
    }
}

fn widest<'a>(least: usize, cells: impl Iterator<Item = &'a String>) -> usize {
    cells.map(|cell| columns(cell)).max().unwrap_or(0).max(least)
}

/// `text`, at the right end of `width` columns.
fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

fn beside(page: &mut Page, figure: &Figure, cells: &[String; 2], width: usize) {
    let [first, this] = [figure.of_arm(0), figure.of_arm(1)];
    let cells = cells.each_ref().map(|cell| format!(" {}", right(cell, width)));
    let name = padded(&elide(&name(figure.of), NAME), NAME);
    with_standing(page, &format!("{name}{}", cells.concat()), &words::standing(figure.of, &first, &this));
}

/// A line of figures with how they stand behind it; below it where there is no room.
fn with_standing(page: &mut Page, line: &str, standing: &str) {
    if columns(line) + 2 + columns(standing) <= WIDTH {
        page.raw(&format!("{line}  {standing}"));
    } else {
        page.raw(line);
        page.raw(&right(standing, WIDTH));
    }
}

/// What each arm has, as people read it; of several runs their median and, behind it, from the least to the most.
fn of_arms(comparison: &Comparison, figure: &Figure) -> Vec<String> {
    let of_arm =
        |(arm, (_, runs)): (usize, &(String, usize))| words::of_runs_at_once(figure.of, &figure.of_arm(arm), *runs);
    comparison.arms.iter().enumerate().map(of_arm).collect()
}

/// An arm a line.
fn below(page: &mut Page, comparison: &Comparison, figure: &Figure, cells: &[String], width: usize) {
    let first = figure.of_arm(0);
    let names = comparison.arms.iter().map(|(name, _)| columns(&elide(&plain(name), ARM))).max().unwrap_or(0);
    for (arm, ((arm_name, _), shown)) in comparison.arms.iter().zip(cells).enumerate() {
        let name = if arm == 0 { name(figure.of) } else { String::new() };
        let standing = match arm {
            0 => String::new(),
            _ => words::standing(figure.of, &first, &figure.of_arm(arm)),
        };
        let line = format!(
            "{} {} {}",
            padded(&elide(&name, NAME), NAME),
            padded(&elide(&plain(arm_name), ARM), names),
            right(shown, width),
        );
        with_standing(page, &line, &standing);
    }
}

/// The stages that are shown, the last first.
fn told(comparison: &Comparison) -> impl Iterator<Item = &Stage> {
    comparison.told_stages().into_iter().flat_map(|(end, before, _)| std::iter::once(end).chain(before.iter().rev()))
}

/// Why cells are absent. `shown`: the figures of a stage that the reader sees.
pub(in crate::report) fn absences(page: &mut Page, comparison: &Comparison, shown: fn(&Stage) -> Vec<&Figure>) {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for figure in told(comparison).flat_map(shown) {
        for (arm, cells) in figure.cells.iter().enumerate() {
            let arm = comparison.arms.get(arm).map(|(name, _)| plain(name)).unwrap_or_default();
            for why in cells.iter().filter_map(|cell: &Cell| cell.as_ref().err()) {
                let why = format!("in {arm}: {}", plain(why));
                let name = name(figure.of).trim().to_owned();
                match reasons.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, names)) if names.contains(&name) => {}
                    Some((_, names)) => names.push(name),
                    None => reasons.push((why, vec![name])),
                }
            }
        }
    }
    for (why, names) in reasons {
        page.line(&format!("{ABSENT} {} {why}", names.join(", ")));
    }
}

/// What is not compared, and what a reader may not take from the figures.
pub(in crate::report) fn limits(page: &mut Page, comparison: &Comparison, shown: fn(&Stage) -> Vec<&Figure>) {
    for out in comparison.left_out.iter().take(MOST_TOLD) {
        page.line(&format!("{} is not compared: {}.", plain(&out.stage), plain(&out.why)));
    }
    let (others, earlier) = (comparison.left_out.len().saturating_sub(MOST_TOLD), comparison.told_stages());
    if others > 0 {
        page.line(&format!("{others} more are not compared; JSON says why of each."));
    }
    if let Some((_, _, earlier @ 1..)) = earlier {
        page.line(&format!("{earlier} earlier stages are in compare.csv and JSON alone."));
    }
    let samples = told(comparison)
        .flat_map(shown)
        .any(|figure| (1..comparison.arms.len()).any(|arm| figure.judged(arm).told == crate::compare::Told::Samples));
    if samples {
        page.line("samples: the largest samples stand so; the peaks themselves have no upper bound.");
    }
    if comparison.arms.iter().all(|(_, runs)| *runs == 1) {
        page.line("One run of each: how much of a difference is chance takes several runs of each to say.");
    }
}

fn likeness(page: &mut Page, comparison: &Comparison) {
    let likeness = &comparison.likeness;
    page.blank();
    page.line(&alike(likeness));
    for state in [State::Unexplained, State::Unknown, State::Expected] {
        for field in likeness.fields.iter().filter(|field| field.state == state) {
            page.indented(2, &difference(field));
        }
    }
    let is_unexplained = |subject: &Subject| likeness.of(*subject).any(|field| field.state == State::Unexplained);
    let declarations: Vec<String> =
        Subject::ALL.into_iter().filter(is_unexplained).map(|subject| format!("--vary {}", subject.name())).collect();
    if !declarations.is_empty() {
        page.indented(2, &format!("what was meant to differ is declared: {}", declarations.join(" ")));
    }
    let same = |subject: &Subject| likeness.state_of(*subject).is_some_and(|state| state == State::Same);
    let same: Vec<String> = Subject::ALL
        .into_iter()
        .filter(same)
        .map(|subject| match likeness.of(subject).count() {
            1 => subject.title().to_owned(),
            facts => format!("{} ({facts} facts)", subject.title()),
        })
        .collect();
    if !same.is_empty() {
        page.indented(2, &format!("same: {}", same.join(", ")));
    }
}

/// Whether the runs were alike, and how many facts say otherwise.
pub(in crate::report) fn alike(likeness: &Likeness) -> String {
    let count = |state| likeness.fields.iter().filter(|field| field.state == state).count();
    let counted: Vec<String> = [State::Unexplained, State::Unknown, State::Expected]
        .into_iter()
        .filter(|state| count(*state) > 0)
        .map(|state| format!("{} {}", count(state), state.name()))
        .collect();
    let counted = if counted.is_empty() { String::new() } else { format!(": {}", counted.join(", ")) };
    format!("{}{counted}", headline(likeness.verdict()))
}

fn headline(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::LikeForLike => "Like for like",
        Verdict::CannotBeTold => "Whether it is like for like CANNOT BE TOLD",
        Verdict::NotLikeForLike => "NOT LIKE FOR LIKE",
    }
}

/// Longest value shown.
const VALUE: usize = 160;
/// From so many hexadecimal digits on it is a digest, and so many of them are shown.
const DIGEST: usize = 32;
const DIGITS: usize = 12;

/// A recorded value with its bytes and times as people read them, and the beginnings of digests.
fn for_people(name: &str, value: &str) -> String {
    let number = value.parse::<u64>().ok();
    if let Some(bytes) = number.filter(|_| name.ends_with("_bytes")) {
        return units::bytes(bytes);
    }
    if let Some(ns) = number.filter(|_| name.ends_with("_ns")) {
        return units::duration(ns);
    }
    let words: Vec<&str> = value.split(' ').collect();
    let mut shown: Vec<String> = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let unit = words.get(place + 1).copied().unwrap_or_default();
        let beyond = words.get(place + 3).copied().unwrap_or_default();
        // `5 bytes`, and `5 of 8 bytes`.
        let is_bytes = unit.starts_with("bytes") || unit == "of" && beyond.starts_with("bytes");
        match (word.parse::<u64>(), word.strip_prefix("bytes")) {
            (Ok(bytes), _) if is_bytes => shown.push(units::bytes(bytes)),
            (_, Some(after)) if place > 0 && words[place - 1].parse::<u64>().is_ok() => {
                // The unit stands there already.
                shown.last_mut().into_iter().for_each(|last| last.push_str(after));
            }
            _ if word.len() >= DIGEST && word.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                shown.push(format!("{}…", &word[..DIGITS]));
            }
            _ => shown.push((*word).to_owned()),
        }
    }
    elide(&plain(&shown.join(" ")), VALUE)
}

/// What a run has of a fact.
pub(in crate::report) fn recorded(field: &Field, value: Option<&str>) -> String {
    match (value, field.subject) {
        (None, _) => "not known".to_owned(),
        // Words that somebody chose stand as they are.
        (Some(value), Subject::Argv | Subject::Env) => elide(&plain(value), VALUE),
        (Some(value), _) => for_people(&field.name, value),
    }
}

/// Who has what of a fact. Runs that have the same share a place.
pub(in crate::report) fn who_has_what(field: &Field) -> String {
    let mut values: Vec<(String, Vec<String>)> = Vec::new();
    for (run, value) in &field.values {
        let value = recorded(field, value.as_deref());
        match values.iter_mut().find(|(known, _)| *known == value) {
            Some((_, runs)) => runs.push(plain(run)),
            None => values.push((value, vec![plain(run)])),
        }
    }
    let values: Vec<String> = values.into_iter().map(|(value, runs)| format!("{}: {value}", runs.join(", "))).collect();
    values.join(" · ")
}

/// A fact's name, as `--vary` takes it.
pub(in crate::report) fn fact(field: &Field) -> String {
    match field.name == field.subject.name() {
        true => field.subject.name().to_owned(),
        false => format!("{}:{}", field.subject.name(), plain(&field.name)),
    }
}

/// A fact that is not the same.
pub(in crate::report) fn difference(field: &Field) -> String {
    let note = field.note.as_ref().map(|note| format!(" ({})", plain(note))).unwrap_or_default();
    format!("{} {} — {}{note}", field.state.name(), fact(field), who_has_what(field))
}

#[cfg(test)]
mod tests {
    use super::for_people;

    #[test]
    fn recorded_values_are_shown_as_people_read_them() {
        let digest = "5a".repeat(32);
        for (name, value, shown) in [
            ("memory_total_bytes", "1073741824", "1 GiB"),
            ("interval_ns", "20000000", "20 ms"),
            ("logical_cpus", "1073741824", "1073741824"),
            ("residency", "partial, 1048576 of 1073741824 bytes resident", "partial, 1 MiB of 1 GiB resident"),
            ("identity", &format!("1 file, 2048 bytes, headers {digest}"), "1 file, 2 KiB, headers 5a5a5a5a5a5a…"),
            ("commit", &digest, "5a5a5a5a5a5a…"),
            ("name", "bytes 7 of bytes", "bytes 7 of bytes"),
            ("name", "", ""),
            ("name", "é5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a", "é5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"),
        ] {
            assert_eq!(for_people(name, value), shown, "{value}");
        }
    }
}
