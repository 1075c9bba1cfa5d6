//! `timeline.svg` and `timeline.png`: mapped extent against resident payload, the RSS split, fault and read rates, and
//! the marks as labelled lines.
//!
//! One picture is composed as shapes (`scene`) and painted twice. It shows nothing that was not measured: an absent
//! value is a gap, and a panel says why it has none. Colours are Okabe and Ito's, which differ for every kind of
//! colour vision.

use std::borrow::Cow;

pub mod bars;
pub mod compared;
mod font;
mod marks;
mod panels;
mod scale;
mod scene;
pub(super) mod series;
mod smooth;
#[cfg(test)]
mod tests;
pub mod touched;

use crate::account::{StageRow, StageTable};
use crate::clock::At;
use crate::event::{Evidence, What};
use crate::metric::Metric;
use crate::run::Run;
use crate::sample::Sample;

use super::text::plain;
use super::{units, words};
use marks::Placement;
use panels::{Palette, Panel};
use scale::TimeAxis;
use scene::{Scene, Side, WIDTH};

/// The panels' left and right edges.
const LEFT: i32 = 190;
const RIGHT: i32 = 2330;
/// The edges of everything else.
const EDGE: i32 = 50;

/// The timeline as SVG.
pub fn svg(run: &Run, table: &StageTable) -> anyhow::Result<String> {
    compose(run, table).svg()
}

/// The timeline as PNG, the same picture, two pixels to each of the SVG's.
pub fn png(run: &Run, table: &StageTable) -> anyhow::Result<Vec<u8>> {
    compose(run, table).png()
}

/// Both at once.
pub fn svg_and_png(run: &Run, table: &StageTable) -> anyhow::Result<(String, Vec<u8>)> {
    both(&compose(run, table))
}

/// A picture as SVG and as PNG, each on a thread of its own.
fn both(scene: &Scene) -> anyhow::Result<(String, Vec<u8>)> {
    std::thread::scope(|scope| {
        let svg = std::thread::Builder::new().name("svg".into()).spawn_scoped(scope, || scene.svg());
        let png = scene.png()?;
        let svg = match svg {
            // Its panic has been printed.
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("drawing the timeline failed"))),
            // No thread to be had.
            Err(_) => scene.svg(),
        };
        Ok((svg?, png))
    })
}

/// What of the run is shown: all of it, but for a steady state that would squeeze the way to it.
pub(super) fn view(run: &Run, table: &StageTable) -> (At, At, At) {
    // The end is what a steady state ends in, unless the account goes that far.
    let tells = |row: &&StageRow| {
        let stopping = table.stopping_event.as_ref() == Some(&row.outcome.stage);
        stopping || row.outcome.mark.as_ref().is_some_and(|(_, _, mark)| mark.evidence != Evidence::Exit)
    };
    let last_mark = table.reached().filter(tells).filter_map(|row| row.at().max(row.sampled)).max();
    let exit = run.meta.exit.as_ref().map(|exit| exit.at).or_else(|| {
        run.events.iter().rev().find(|event| matches!(event.what, What::Exit { .. })).map(|event| event.at)
    });
    let first = run.samples.first().map_or(At(0), |sample| sample.t).min(At(0));
    let end = run.samples.last().map(|sample| sample.t).max(last_mark).max(exit).unwrap_or(At(0)).max(At(0));
    let shown = match last_mark {
        Some(mark) if table.stopping_event.is_some() && mark.0 > 0 && end.0 / 5 > mark.0 / 4 => {
            At(mark.0.saturating_add(mark.0 / 8))
        }
        _ => end,
    };
    // So that differences of times stay in range, whatever a file says.
    let shown = shown.min(At(i64::MAX / 4));
    // A run of no length still needs an axis.
    let shown = if shown <= first { At(first.0.saturating_add(1_000_000)) } else { shown };
    // What is long before the start tells nothing of the launch.
    (first.max(At(-shown.0.abs() / 20)), shown, end)
}

/// What the panels draw: a run, its samples thinned to what the picture can show.
struct Shown<'run> {
    run: &'run Run,
    samples: Cow<'run, [Sample]>,
    /// The same, and what processes held until their end.
    held: Vec<Sample>,
}

/// From how many samples on thinning is worth its while.
const MANY: usize = 20_000;

fn compose(run: &Run, table: &StageTable) -> Scene {
    let (from, to, end) = view(run, table);
    let axis = TimeAxis { from: from.0, to: to.0, left: LEFT, right: RIGHT };
    let samples = match run.samples.len() {
        0..MANY => Cow::from(&run.samples),
        _ => Cow::from(series::thin(&run.samples, |t| axis.x(t))),
    };
    let held = series::held_to_the_end(&samples, series::end(run));
    let shown = Shown { run, samples, held };
    let mut scene = Scene { title: title(run), description: words::gap(table).join(" "), ..Scene::default() };
    scene.rect((0, 0), (WIDTH, scene::HEIGHT), Palette::PAPER);

    let room = WIDTH - 2 * EDGE;
    scene.text((EDGE, 66), Side::Left, 40, Palette::INK, font::fit(&scene.title.clone(), 40, room));
    scene.text((EDGE, 108), Side::Left, 26, Palette::GREY, font::fit(&words::condition(run), 26, room));

    let footnotes = footnotes(run, table, to, end, room);
    let legend = panels::legend(&shown, table, &axis);
    // A mark that is not shown has a footnote.
    let visible = table.rows.iter().filter(|row| row.at().is_none_or(|at| at <= to)).cloned().collect();
    let table = &StageTable { rows: visible, ..table.clone() };
    let (marks, placement) = placed(table, &axis);
    let (list, band) = match &placement {
        Placement::Beside(_, rows) => (0, *rows as i32 * marks::ROW),
        Placement::Numbered { rows, .. } => (*rows as i32 * marks::ROW + 14, 2 * marks::ROW),
    };

    let foot = scene::HEIGHT - 30 - (footnotes.len() + usize::from(!legend.is_empty())) as i32 * 32;
    let axis_bottom = foot - 62;
    let list_bottom = 136 + list;
    let panels = Panel::stack(list_bottom, band, axis_bottom, panels::has_devices(&shown));

    // Lines lie over the panels' data, and under their notes.
    let drawn = panels::draw(&mut scene, &shown, table, &axis, &panels);
    mark_lines(&mut scene, table, &axis, &panels);
    spans(&mut scene, table, &axis, &panels[0]);
    mark_labels(&mut scene, &marks, &placement, list_bottom, panels[0].top);
    panels::values_at_marks(&mut scene, table, &axis, &panels[0], &drawn.payload);
    drawn.notes.into_iter().for_each(|note| panels::note(&mut scene, note));
    panels::time_axis(&mut scene, &axis, axis_bottom);

    let baselines = (1..).map(|line| foot + 32 * line - 10);
    let first = usize::from(!legend.is_empty());
    panels::draw_legend(&mut scene, (EDGE, foot + 22), legend);
    for (line, baseline) in footnotes.into_iter().zip(baselines.skip(first)) {
        scene.text((EDGE, baseline), Side::Left, FOOT_EM, Palette::GREY, line);
    }
    scene
}

/// Size of the letters at the picture's foot, and the most lines that stand there.
const FOOT_EM: i32 = 22;
const FOOT_LINES: usize = 6;

/// The marks to label, and where their labels stand.
fn placed(table: &StageTable, axis: &TimeAxis) -> (Vec<marks::Mark>, Placement) {
    let marks: Vec<marks::Mark> = table
        .reached()
        .filter_map(|row| {
            let (at, uncertainty, mark) = row.outcome.mark.as_ref()?;
            // Without a bound the event was at this time or at any before it.
            let time = if uncertainty.is_none() { format!("≤ {}", axis.label(at.0)) } else { axis.label(at.0) };
            let time = row.outcome.begin.map_or(time.clone(), |begin| format!("{} – {time}", axis.label(begin.0)));
            Some(marks::Mark { x: axis.x(at.0), name: plain(&mark.stage), time })
        })
        .collect();
    let placement = marks::place(&marks, EDGE, WIDTH - EDGE);
    (marks, placement)
}

/// Where a mark's uncertainty is wide enough to be seen: from its left edge to the mark.
fn uncertain(row: &StageRow, axis: &TimeAxis) -> Option<(i32, i32)> {
    let (at, uncertainty, _) = row.outcome.mark.as_ref()?;
    let begin = axis.x(at.0.saturating_sub(i64::try_from((*uncertainty)?).unwrap_or(i64::MAX)));
    let x = axis.x(at.0);
    (x - begin > 3).then_some((begin, x))
}

/// Height of a span's bar, and how far apart two of them are.
const SPAN: i32 = 6;
const SPAN_APART: i32 = 12;

/// Spans as bars under the first panel's upper edge, one below the other.
fn spans(scene: &mut Scene, table: &StageTable, axis: &TimeAxis, panel: &Panel) {
    let rows = ((panel.bottom - panel.top) / 3 / SPAN_APART).max(1);
    let spans = table.reached().filter_map(|row| Some((row.outcome.begin?, row.at()?)));
    for ((begin, end), index) in spans.zip(0..) {
        let top = panel.top + SPAN_APART / 2 + index % rows * SPAN_APART;
        let (from, to) = (axis.x(begin.0), axis.x(end.0));
        scene.rect((from, top), (to.max(from + 2), top + SPAN), Palette::SPAN);
        scene.rect((from - 1, top - 4), (from + 2, top + SPAN + 4), Palette::SPAN);
    }
}

fn mark_lines(scene: &mut Scene, table: &StageTable, axis: &TimeAxis, panels: &[Panel]) {
    for row in table.reached() {
        let Some(at) = row.at() else { continue };
        let x = axis.x(at.0);
        let uncertain = uncertain(row, axis);
        let stopping = table.stopping_event.as_deref() == Some(row.outcome.stage.as_str());
        for panel in panels {
            if let Some((begin, x)) = uncertain {
                scene.rect((begin, panel.top), (x, panel.bottom), Palette::UNCERTAIN);
            }
            let half = if stopping { 2 } else { 1 };
            scene.rect((x - half, panel.top), (x + half, panel.bottom), Palette::MARK);
        }
    }
}

fn mark_labels(scene: &mut Scene, marks: &[marks::Mark], placement: &Placement, list_bottom: i32, panel_top: i32) {
    let baseline = |row: usize, bottom: i32| bottom - row as i32 * marks::ROW - 10;
    let mut label = |bottom: i32, label: &marks::Label, mark: Option<i32>| {
        let y = baseline(label.row, bottom);
        if let Some(x) = mark {
            scene.rect((x - 1, y - marks::EM * 3 / 4), (x + 1, panel_top), Palette::MARK);
        }
        scene.text((label.left, y), Side::Left, marks::EM, Palette::INK, label.text.clone());
    };
    match placement {
        Placement::Beside(labels, _) => {
            marks.iter().zip(labels).for_each(|(mark, text)| label(panel_top, text, Some(mark.x)));
        }
        Placement::Numbered { numbers, list, .. } => {
            list.iter().for_each(|text| label(list_bottom - 14, text, None));
            for ((mark, &x), number) in marks.iter().zip(numbers).zip(1..) {
                let elbow = panel_top - marks::ROW;
                scene.line(vec![(x, elbow), (mark.x, panel_top - 2)], Palette::MARK, 2);
                scene.text((x, elbow - 8), Side::Middle, marks::EM, Palette::INK, number.to_string());
            }
        }
    }
}

pub(super) fn title(run: &Run) -> String {
    let command: Vec<String> = run.meta.argv.iter().map(|argument| plain(&one_line(argument))).collect();
    // The program's path tells little; its name is enough.
    let program = command.first().map(|program| program.rsplit('/').next().unwrap_or(program).to_owned());
    match program {
        Some(program) => std::iter::once(program).chain(command.into_iter().skip(1)).collect::<Vec<_>>().join(" "),
        None => "a launch".to_owned(),
    }
}

/// An argument as it stands in `run.json`, its line ends and tabs as spaces: scripts are given as arguments too.
pub(super) fn one_line(argument: &str) -> String {
    let mut line = String::new();
    let mut rest = argument;
    while let Some(at) = rest.find('\\') {
        line.push_str(&rest[..at]);
        rest = &rest[at..];
        let space = ["\\x0a", "\\x0d", "\\x09"].iter().any(|escape| rest.starts_with(escape));
        let length = if space { 4 } else { 2.min(rest.len()) };
        // Escapes are ASCII; what is none is left to the next turn.
        let length = if rest.is_char_boundary(length) { length } else { 1 };
        line.push_str(if space { " " } else { &rest[..length] });
        rest = &rest[length..];
    }
    line.push_str(rest);
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a reader has to know to trust the picture, in lines that fit.
fn footnotes(run: &Run, table: &StageTable, shown: At, end: At, room: i32) -> Vec<String> {
    let mut notes = vec![words::stopping_event(run, table)];
    if shown < end {
        notes.push(format!("shown to {} of {}", units::time(shown), units::time(end)));
        for row in table.reached() {
            if let Some(at) = row.at().filter(|at| *at > shown) {
                notes.push(format!("{} at {}", plain(&row.outcome.stage), units::time(at)));
            }
        }
    }
    notes.push(format!("tick {}", units::duration(run.meta.interval_ns)));
    // A high-water mark of the kernel has two bounds, a largest sample has one.
    let sampled = |row: &StageRow| row.peak(Metric::RssBytes).is_none_or(|peak| peak.high.is_none());
    if table.stopping_row().is_none_or(sampled) {
        notes.push("a peak is at least that".to_owned());
    }
    notes.extend(words::cost(run));
    let mut lines = font::wrap(&notes.join(" · "), FOOT_EM, room);
    let mut second = words::missing(table);
    second.extend(table.problems.iter().map(|problem| format!("contradiction: {problem}")));
    second.extend(run.gaps.iter().map(|gap| plain(gap)));
    lines.extend(font::wrap(&second.join(" · "), FOOT_EM, room));
    if lines.len() > FOOT_LINES {
        const MORE: &str = " … the rest is in stages.csv";
        lines.truncate(FOOT_LINES);
        if let Some(last) = lines.last_mut() {
            // Cut at its end, in words, so that what is there is whole.
            while font::width(&format!("{last}{MORE}"), FOOT_EM) > room
                && let Some((rest, _)) = last.rsplit_once(' ')
            {
                *last = rest.to_owned();
            }
            last.push_str(MORE);
        }
    }
    lines
}

/// The least interval over which a rate is taken.
pub(super) fn least_interval(run: &Run) -> i64 {
    let tick = run.meta.cost.as_ref().map_or(run.meta.interval_ns, |cost| cost.interval_ns.min(run.meta.interval_ns));
    i64::try_from(tick / 2).unwrap_or(i64::MAX).max(1)
}

/// Why a metric has no value anywhere in a run, whose samples these are.
pub(super) fn never(run: &Run, samples: &[Sample], metric: Metric) -> Option<String> {
    if samples.iter().any(|sample| sample.values.get(metric).is_some()) {
        return None;
    }
    let Some(last) = samples.last() else { return Some("the run has no samples".to_owned()) };
    let reason = crate::account::reason_of_absence(run, metric, last.t);
    Some(reason.map_or_else(|| "no reason recorded".to_owned(), plain))
}
