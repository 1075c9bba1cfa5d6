//! `compare.svg` and `compare.png`: the timelines of several runs in one picture, twice: from the start on, and up to the
//! stopping event. A colour is an arm. A run is drawn up to the sample that stands for its stopping event; what came later
//! is not compared.

use std::borrow::Cow;

use super::marks::{self, Placement};
use super::panels::{self, KEY_EM, Key, Looks, Palette, Panel};
use super::scale::{Quantity, TimeAxis, ValueAxis};
use super::scene::{self, Colour, Scene, Side, Text, WIDTH};
use super::series::{self, Path, Stretch};
use super::{EDGE, LEFT, MANY, RIGHT, both, font, mark_labels};
use crate::account::{StageRow, reason_of_absence};
use crate::clock::At;
use crate::compare::event::Named;
use crate::compare::{Arm, Comparison, Party, parties};
use crate::metric::{Metric, Values};
use crate::report::text::{elide, plain};
use crate::sample::Sample;
use crate::units;

/// The picture as SVG and as PNG.
pub fn svg_and_png(arms: &[Arm], comparison: &Comparison) -> anyhow::Result<(String, Vec<u8>)> {
    both(&compose(arms, comparison))
}

/// The picture as SVG.
pub fn svg(arms: &[Arm], comparison: &Comparison) -> anyhow::Result<String> {
    compose(arms, comparison).svg()
}

/// Colours of arms, in their order, and again from the first.
const ARMS: [Colour; 8] = [
    Palette::BLUE,
    Palette::VERMILION,
    Palette::GREEN,
    Palette::PURPLE,
    Palette::ORANGE,
    Palette::SKY,
    Palette::INK,
    Palette::FRAME,
];
/// So many marks have labels beside the stopping events'.
const LABELLED: usize = 9;
/// Space for a time axis's labels, and between the halves.
const AXIS: i32 = 54;
const APART: i32 = 22;
const HEADER: i32 = 50;

/// A run as it is drawn.
struct Drawn<'a> {
    party: Party<'a>,
    colour: Colour,
    /// How much wider its lines are than the last arm's: so that of two that lie over each other both are seen.
    wider: u32,
    /// When its stopping event was.
    stop: i64,
    samples: Cow<'a, [Sample]>,
}

fn colour(arm: usize) -> Colour {
    ARMS[arm % ARMS.len()]
}

/// So that differences of times stay in range, whatever a file says.
fn in_range(at: At) -> i64 {
    at.0.clamp(i64::MIN / 8, i64::MAX / 8)
}

fn compose(arms: &[Arm], comparison: &Comparison) -> Scene {
    let stage = plain(&comparison.event.stage);
    let names: Vec<String> = comparison.arms.iter().map(|(name, _)| elide(&plain(name), 24)).collect();
    let verdict = comparison.likeness.verdict().words();
    let mut scene = Scene {
        title: format!("{} up to {stage}", names.join(", ")),
        description: format!("Payload and resident set of each run, from the start and up to {stage}. {verdict}."),
        ..Scene::default()
    };
    scene.rect((0, 0), (WIDTH, scene::HEIGHT), Palette::PAPER);
    let room = WIDTH - 2 * EDGE;
    scene.text((EDGE, 66), Side::Left, 40, Palette::INK, font::fit(&scene.title.clone(), 40, room));
    let declared =
        if comparison.event.declared.is_empty() { "" } else { " · declared to be one event (--same-event)" };
    let under = format!("stopping event {stage}{declared} · {verdict}");
    scene.text((EDGE, 108), Side::Left, 26, Palette::GREY, font::fit(&under, 26, room));

    let drawn = drawn(arms, comparison);
    let longest = drawn.iter().map(|run| run.stop).max().unwrap_or(0).max(1_000);
    let first = drawn.iter().filter_map(|run| run.samples.first()).map(|sample| in_range(sample.t)).min().unwrap_or(0);
    let margin = longest / 40;
    let from_start = TimeAxis { from: first.min(0).max(-longest / 20), to: longest + margin, left: LEFT, right: RIGHT };
    let to_stop = TimeAxis { from: -longest, to: margin, left: LEFT, right: RIGHT };

    let labelled = labelled(&drawn, comparison, &from_start);
    let placement = marks::place(&labelled, EDGE, WIDTH - EDGE);
    let (list, band) = match &placement {
        Placement::Beside(_, rows) => (0, *rows as i32 * marks::ROW),
        Placement::Numbered { rows, .. } => (*rows as i32 * marks::ROW + 14, 2 * marks::ROW),
    };
    let footnotes = footnotes(&drawn, comparison, room);
    let foot = scene::HEIGHT - 30 - footnotes.len() as i32 * 32;
    let list_bottom = 132 + list;
    let heights = foot - list_bottom - band - 4 * HEADER - 2 * 8 - 2 * AXIS - APART;
    let panel = |top: i32, band: i32, share: i32| {
        let data = top + HEADER + band;
        Panel::new(top + HEADER - 14, data, data + heights * share / 100)
    };
    let payload = panel(list_bottom, band, 31);
    let resident = panel(payload.bottom + 8, 0, 22);
    let payload_again = panel(resident.bottom + AXIS + APART, 0, 27);
    let resident_again = panel(payload_again.bottom + 8, 0, 20);

    let mut notes = Vec::new();
    let look = Look { drawn: &drawn, axis: &from_start, to_stop: false };
    payloads(&mut scene, look, payload, "Payload from the start", &names, &mut notes);
    residents(&mut scene, look, resident, "Resident set from the start", &mut notes);
    lines(&mut scene, &drawn, comparison, &from_start, &[payload, resident]);
    mark_labels(&mut scene, &labelled, &placement, list_bottom, payload.top);
    panels::time_axis(&mut scene, &from_start, resident.bottom);

    let to = |what: &str| format!("{what} up to {}", elide(&stage, 40));
    let look = Look { drawn: &drawn, axis: &to_stop, to_stop: true };
    payloads(&mut scene, look, payload_again, &to("Payload"), &[], &mut notes);
    residents(&mut scene, look, resident_again, &to("Resident set"), &mut notes);
    for panel in [payload_again, resident_again] {
        let x = to_stop.x(0);
        scene.rect((x - 2, panel.top), (x + 2, panel.bottom), Palette::MARK);
    }
    panels::time_axis(&mut scene, &to_stop, resident_again.bottom);
    notes.into_iter().for_each(|note| panels::note(&mut scene, note));
    for (index, line) in footnotes.into_iter().enumerate() {
        scene.text((EDGE, foot + 32 * (index as i32 + 1) - 6), Side::Left, 22, Palette::GREY, line);
    }
    scene
}

/// Every run that reached the stopping event, up to it.
fn drawn<'a>(arms: &'a [Arm], comparison: &Comparison) -> Vec<Drawn<'a>> {
    let of = |party: Party<'a>| {
        let end = Named::of(party).row(&comparison.event.stage)?;
        let until = end.at().max(end.sampled)?;
        let samples = &party.run.samples;
        // A file may hold samples out of order.
        let count = samples.iter().position(|sample| sample.t > until).unwrap_or(samples.len());
        let samples = samples.get(..count).unwrap_or_default();
        let stop = in_range(end.at()?);
        let axis = TimeAxis { from: stop.min(0) - 1, to: stop.max(0) + 1, left: LEFT, right: RIGHT };
        let samples = match count {
            0..MANY => Cow::from(samples),
            _ => Cow::from(series::thin(samples, |t| axis.x(t))),
        };
        let wider = 2 * u32::try_from(arms.len() - 1 - party.arm).unwrap_or(0).min(3);
        Some(Drawn { party, colour: colour(party.arm), wider, stop, samples })
    };
    parties(arms).into_iter().filter_map(of).collect()
}

/// The marks with a label: each arm's first run's, the stopping event alone where there are many.
fn labelled(drawn: &[Drawn], comparison: &Comparison, axis: &TimeAxis) -> Vec<marks::Mark> {
    let first_runs = || drawn.iter().filter(|run| run.party.number == 0);
    let all = comparison.stages.len() * first_runs().count() <= LABELLED;
    let mut found: Vec<(i64, marks::Mark)> = Vec::new();
    for run in first_runs() {
        for (at, stage) in marks_of(run, comparison) {
            if all || *stage == comparison.event.stage {
                let name = format!("{} {}", elide(&run.party.label(), 16), plain(stage));
                found.push((at, marks::Mark { x: axis.x(at), name: plain(&name), time: axis.label(at) }));
            }
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, mark)| mark).collect()
}

fn marks_of<'c>(run: &Drawn, comparison: &'c Comparison) -> Vec<(i64, &'c String)> {
    let stages = comparison.stages.iter().map(|stage| &stage.name);
    let named = Named::of(run.party);
    let at = |stage: &String| named.row(stage).and_then(StageRow::at).map(in_range);
    stages.filter_map(|stage| Some((at(stage)?, stage))).collect()
}

fn lines(scene: &mut Scene, drawn: &[Drawn], comparison: &Comparison, axis: &TimeAxis, panels: &[Panel]) {
    for run in drawn {
        for (at, stage) in marks_of(run, comparison) {
            let half = if *stage == comparison.event.stage { 2 } else { 1 };
            let (x, half) = (axis.x(at), half + run.wider as i32 / 2);
            panels.iter().for_each(|panel| scene.rect((x - half, panel.top), (x + half, panel.bottom), run.colour));
        }
    }
}

/// A figure of a run over its time; with `to_stop` its stopping event is at 0.
fn over_time(run: &Drawn, to_stop: bool, figure: impl Fn(&Values) -> Option<u64>) -> Vec<Stretch> {
    let origin = if to_stop { run.stop } else { 0 };
    let mut stretches = series::stretches(&run.samples, figure);
    for (t, _) in stretches.iter_mut().flatten() {
        *t = t.saturating_sub(origin);
    }
    stretches
}

/// What the panels of one look show: the runs, over which time.
#[derive(Clone, Copy)]
struct Look<'l> {
    drawn: &'l [Drawn<'l>],
    axis: &'l TimeAxis,
    /// Whether time is counted to the stopping event rather than from the start.
    to_stop: bool,
}

fn payloads(scene: &mut Scene, look: Look, panel: Panel, title: &str, names: &[String], notes: &mut Vec<Text>) {
    let Look { drawn, axis, to_stop } = look;
    use Metric::{MappedBytes, MappedPayloadBytes, PayloadBytes, ResidentPayloadBytes};
    let of = |run: &Drawn, metric: Metric| over_time(run, to_stop, |values| values.get(metric));
    let known: Vec<(&Drawn, Vec<Stretch>, Vec<Stretch>)> = drawn
        .iter()
        .map(|run| {
            // Where the payload is not known, what is mapped of the files still is.
            let mapped = Some(of(run, MappedPayloadBytes)).filter(|mapped| !mapped.is_empty());
            (run, of(run, ResidentPayloadBytes), mapped.unwrap_or_else(|| of(run, MappedBytes)))
        })
        .collect();
    let totals = drawn.iter().map(|run| series::largest(&of(run, PayloadBytes)));
    let lines = known.iter().map(|(_, resident, mapped)| series::largest(resident).max(series::largest(mapped)));
    let scale = ValueAxis::new(Quantity::Bytes, totals.chain(lines).fold(0.0, f64::max), panel.top, panel.bottom);
    let nothing = known.iter().all(|(_, resident, mapped)| resident.is_empty() && mapped.is_empty());
    panels::grid(scene, axis, &scale, !nothing);
    for (run, resident, mapped) in &known {
        panels::stroke(scene, axis, &scale, mapped, Path::Held, Colour(run.colour.0, 0.45), 3);
        panels::stroke(scene, axis, &scale, resident, Path::Straight, run.colour, 5 + run.wider);
    }
    let mut keys: Vec<Key> = names
        .iter()
        .enumerate()
        .map(|(arm, name)| Key { looks: Looks::Line(colour(arm)), text: name.clone() })
        .collect();
    if !names.is_empty() {
        keys.push(Key { looks: Looks::Line(Colour(Palette::INK.0, 0.45)), text: "pale: mapped".to_owned() });
    }
    panels::header(scene, panel, title, keys);
    absent(notes, drawn, panel, ResidentPayloadBytes, "resident payload");
}

fn residents(scene: &mut Scene, look: Look, panel: Panel, title: &str, notes: &mut Vec<Text>) {
    let Look { drawn, axis, to_stop } = look;
    let known: Vec<(&Drawn, Vec<Stretch>)> =
        drawn.iter().map(|run| (run, over_time(run, to_stop, |values| values.get(Metric::RssBytes)))).collect();
    let largest = known.iter().map(|(_, line)| series::largest(line)).fold(0.0, f64::max);
    let scale = ValueAxis::new(Quantity::Bytes, largest, panel.top, panel.bottom);
    panels::grid(scene, axis, &scale, known.iter().any(|(_, line)| !line.is_empty()));
    for (run, line) in &known {
        panels::stroke(scene, axis, &scale, line, Path::Straight, run.colour, 3 + run.wider);
    }
    panels::header(scene, panel, &format!("{title}, summed over processes"), Vec::new());
    absent(notes, drawn, panel, Metric::RssBytes, "resident set");
}

/// Says in the panel which runs it has no line of, and why.
fn absent(notes: &mut Vec<Text>, drawn: &[Drawn], panel: Panel, metric: Metric, name: &str) {
    let mut missing: Vec<(String, Vec<String>)> = Vec::new();
    for run in drawn {
        if run.samples.iter().any(|sample| sample.values.get(metric).is_some()) {
            continue;
        }
        let last = run.samples.last().map_or(At(i64::MAX), |sample| sample.t);
        let reason = reason_of_absence(run.party.run, metric, last);
        let reason = reason.map_or_else(|| "no reason recorded".to_owned(), plain);
        match missing.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, runs)) => runs.push(plain(&run.party.label())),
            None => missing.push((reason, vec![plain(&run.party.label())])),
        }
    }
    let said =
        |(reason, runs): (String, Vec<String>)| format!("{} of {} not measured: {reason}", name, runs.join(", "));
    let missing: Vec<String> = missing.into_iter().map(said).collect();
    let rows = ((panel.bottom - panel.top) / 40).max(1) as usize;
    for (index, text) in missing.into_iter().take(rows).enumerate() {
        let text = font::fit(&text, KEY_EM, RIGHT - LEFT - 60);
        let at = ((LEFT + RIGHT) / 2, panel.top + 40 * (index as i32 + 1));
        notes.push(Text { at, side: Side::Middle, em: KEY_EM, colour: Palette::GREY, text });
    }
}

/// Up to so many runs have a line each.
const LINES: usize = 4;

fn footnotes(drawn: &[Drawn], comparison: &Comparison, room: i32) -> Vec<String> {
    let runs: Vec<String> = drawn
        .iter()
        .map(|run| {
            let command = plain(&run.party.run.meta.argv.join(" "));
            let command = if drawn.len() > LINES { elide(&command, 40) } else { command };
            format!("{} to {}: {command}", plain(&run.party.label()), units::time(At(run.stop)))
        })
        .collect();
    let runs = if runs.len() > LINES { vec![runs.join(" · ")] } else { runs };
    let mut lines: Vec<String> = runs.iter().map(|line| font::fit(line, 22, room)).collect();
    if !comparison.event.declared.is_empty() {
        let declared: Vec<String> = comparison.event.declared.iter().map(|what| plain(what)).collect();
        lines.push(font::fit(&format!("declared to be one event: {}", declared.join(" · ")), 22, room));
    }
    lines
}
