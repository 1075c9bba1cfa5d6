//! `touched.svg` and `touched.png`: which part of the artifacts was touched when, as far as sampled faults tell. Time to
//! the right, the file's bytes upwards, one band an artifact, the marks as in the timeline.

use std::collections::BTreeMap;

use super::panels::{self, Key, Looks, Palette, Panel};
use super::scale::{Quantity, TimeAxis, ValueAxis};
use super::scene::{self, Scene, Side, WIDTH};
use super::{EDGE, LEFT, RIGHT, font, mark_labels, mark_lines, marks, placed, title, view, words};
use crate::account::StageTable;
use crate::event::ArtifactId;
use crate::probe::fault::Kind;
use crate::report::text::plain;
use crate::report::{tensors as table_of_tensors, units};
use crate::run::Run;
use crate::run::faults::Tensors;

/// Samples are told apart by cells of this size…
const CELL: i32 = 4;
/// … and drawn a little larger, so that a lone one is seen.
const DOT: i32 = 6;
/// Up to so many artifacts have a line with their name over them.
const NAMED: usize = 8;
const NAME: i32 = 40;
/// A lower band has no scale.
const SCALED: i32 = 130;
/// Up to so many tensors have their edges drawn.
const EDGES: usize = 64;
const EM: i32 = 22;
const SMALL: i32 = 18;

/// The picture as SVG, of a run that has samples.
pub fn svg(run: &Run, tensors: &Tensors, table: &StageTable) -> anyhow::Result<String> {
    compose(run, tensors, table).svg()
}

/// The picture as PNG.
pub fn png(run: &Run, tensors: &Tensors, table: &StageTable) -> anyhow::Result<Vec<u8>> {
    compose(run, tensors, table).png()
}

/// One artifact's part of the picture.
struct Band {
    artifact: ArtifactId,
    size: u64,
    top: i32,
    bottom: i32,
}

fn compose(run: &Run, tensors: &Tensors, table: &StageTable) -> Scene {
    let (from, to, _) = view(run, table);
    let axis = TimeAxis { from: from.0, to: to.0, left: LEFT, right: RIGHT };
    let footnotes = footnotes(run);
    let mut scene = Scene {
        title: format!("{}: which part of the files was touched when", title(run)),
        description: footnotes.join(" "),
        ..Scene::default()
    };
    scene.rect((0, 0), (WIDTH, scene::HEIGHT), Palette::PAPER);
    let room = WIDTH - 2 * EDGE;
    let footnotes: Vec<String> = footnotes.iter().flat_map(|line| font::wrap(line, EM, room)).collect();
    scene.text((EDGE, 66), Side::Left, 40, Palette::INK, font::fit(&title(run), 40, room));
    scene.text((EDGE, 108), Side::Left, 26, Palette::GREY, font::fit(&words::condition(run), 26, room));

    let visible = table.rows.iter().filter(|row| row.at().is_none_or(|at| at <= to)).cloned().collect();
    let table = &StageTable { rows: visible, ..table.clone() };
    let (marks, placement) = placed(table, &axis);
    let (list, band) = match &placement {
        marks::Placement::Beside(_, rows) => (0, *rows as i32 * marks::ROW),
        marks::Placement::Numbered { rows, .. } => (*rows as i32 * marks::ROW + 14, 2 * marks::ROW),
    };
    let legend = panels::legend_of_marks(table, &axis);
    let signs = usize::from(!legend.is_empty());
    let foot = scene::HEIGHT - 30 - (footnotes.len() + signs) as i32 * 32;
    let axis_bottom = foot - 62;
    let list_bottom = 136 + list;
    let top = list_bottom + 50 + band;
    let panel = Panel::new(list_bottom + 36, top, axis_bottom);

    panels::header(&mut scene, panel, "Sampled page faults in the artifacts, by byte of the file", keys(run, tensors));
    let bands = bands(run, top, axis_bottom);
    bands.iter().for_each(|band| draw(&mut scene, tensors, &axis, band, bands.len()));
    mark_lines(&mut scene, table, &axis, &[panel]);
    mark_labels(&mut scene, &marks, &placement, list_bottom, top);
    names(&mut scene, run, tensors, &bands);
    panels::time_axis(&mut scene, &axis, axis_bottom);
    if let Some(why) = nothing(run, tensors) {
        for band in &bands {
            scene.hatch((LEFT, band.top), (RIGHT, band.bottom), Palette::GRID);
        }
        let text = font::fit(&why, panels::KEY_EM, RIGHT - LEFT - 60);
        let at = ((LEFT + RIGHT) / 2, (top + axis_bottom) / 2);
        let colour = Palette::GREY;
        panels::note(&mut scene, scene::Text { at, side: Side::Middle, em: panels::KEY_EM, colour, text });
    }
    panels::draw_legend(&mut scene, (EDGE, foot + 22), legend);
    for (index, line) in footnotes.into_iter().enumerate() {
        let y = foot + 32 * ((index + signs) as i32 + 1) - 10;
        scene.text((EDGE, y), Side::Left, EM, Palette::GREY, line);
    }
    scene
}

/// Why there is nothing to see.
fn nothing(run: &Run, tensors: &Tensors) -> Option<String> {
    let samples = run.meta.faults.as_ref()?;
    if let Some(why) = &samples.unavailable {
        return Some(format!("no samples: {}", plain(why)));
    }
    if run.meta.artifacts.is_empty() {
        return Some("no model file was named, and none was seen mapped".to_owned());
    }
    let few = match samples.minor_period {
        0 | 1 => String::new(),
        period => format!("only one minor fault in {period} is a sample, and "),
    };
    let why = || format!("no sampled fault lies in an artifact: {few}what read() copies is not mapped");
    tensors.touches.is_empty().then(why)
}

/// Heights by size, the first artifact at the top; none is lower than can be seen.
fn bands(run: &Run, top: i32, bottom: i32) -> Vec<Band> {
    let artifacts = &run.meta.artifacts;
    let count = artifacts.len() as i32;
    let named = artifacts.len() <= NAMED;
    let apart = match artifacts.len() {
        0..=NAMED => NAME,
        9..=60 => 6,
        _ => 0,
    };
    // The first one's name stands under the marks' labels.
    let room = (bottom - top - if named { count * apart } else { (count - 1).max(0) * apart }).max(count);
    let least = if named { 40 } else { (room / count.max(1)).clamp(1, 12) };
    let total: u128 = artifacts.iter().map(|artifact| u128::from(artifact.size_bytes)).sum::<u128>().max(1);
    let spare = (room - least * count).max(0);
    let mut y = top;
    let mut bands = Vec::new();
    for (index, artifact) in artifacts.iter().enumerate() {
        if named || index > 0 {
            y += apart;
        }
        let height = least + (u128::from(artifact.size_bytes) * spare as u128 / total) as i32;
        bands.push(Band { artifact: ArtifactId(index), size: artifact.size_bytes, top: y, bottom: y + height });
        y += height;
    }
    bands
}

/// Which band is which file: in a line over each, or, where they are many, beside them.
fn names(scene: &mut Scene, run: &Run, tensors: &Tensors, bands: &[Band]) {
    let names: Vec<String> = run
        .meta
        .artifacts
        .iter()
        .map(|artifact| plain(artifact.path.rsplit('/').next().unwrap_or(&artifact.path)))
        .collect();
    if bands.len() > NAMED {
        let short = distinct(&names);
        // Where they are too low for a name each, those that have room.
        let mut free = i32::MIN;
        for (band, name) in bands.iter().zip(short) {
            let middle = (band.top + band.bottom) / 2;
            if middle < free {
                continue;
            }
            free = middle + 22;
            let text = font::fit(&format!("{name} · {}", units::bytes(band.size)), SMALL, LEFT - 30);
            let at = (LEFT - 12, middle + SMALL / 3);
            scene.text(at, Side::Right, SMALL, Palette::GREY, text);
        }
        return;
    }
    let touched = table_of_tensors::touched(tensors);
    for (band, name) in bands.iter().zip(&names) {
        let own = touched.keys().filter(|(id, _)| *id == band.artifact).count();
        let of = match tensors.layouts.get(&band.artifact).map_or(0, Vec::len) {
            0 => String::new(),
            all => format!(" · {own} of {all} tensors with a sampled fault"),
        };
        let text = font::fit(&format!("{name} · {}{of}", units::bytes(band.size)), EM, RIGHT - LEFT);
        // Over the marks' lines.
        let at = (LEFT, band.top - 12);
        panels::note(scene, scene::Text { at, side: Side::Left, em: EM, colour: Palette::INK, text });
    }
}

/// The part of each name that tells it from the others: shards differ by a number.
fn distinct(names: &[String]) -> Vec<String> {
    let Some(first) = names.first() else { return Vec::new() };
    let common = |of: &dyn Fn(&str) -> usize| names.iter().map(|name| of(name)).min().unwrap_or(0);
    let same = |name: &str| first.chars().zip(name.chars()).take_while(|(a, b)| a == b).count();
    let same_end = |name: &str| first.chars().rev().zip(name.chars().rev()).take_while(|(a, b)| a == b).count();
    // A number is kept whole.
    let head: Vec<char> = first.chars().take(common(&same)).collect();
    let head = head.len() - head.iter().rev().take_while(|c| c.is_ascii_digit()).count();
    let tail = common(&same_end);
    let part = |name: &String| {
        let length = name.chars().count();
        let part: String = name.chars().take(length.saturating_sub(tail)).skip(head).collect();
        if part.is_empty() { name.clone() } else { part }
    };
    names.iter().map(part).collect()
}

fn draw(scene: &mut Scene, tensors: &Tensors, axis: &TimeAxis, band: &Band, count: usize) {
    let height = band.bottom - band.top;
    let scale = ValueAxis::exactly(Quantity::Bytes, band.size as f64, band.top, band.bottom);
    scene.rect((axis.left, band.top), (axis.right, band.bottom), Palette::BAND);
    let places = tensors.layouts.get(&band.artifact).map(Vec::as_slice).unwrap_or_default();
    if places.len() <= EDGES && places.len() as i32 * 8 <= height {
        for place in places {
            let y = scale.y(place.begin as f64);
            scene.rect((axis.left, y), (axis.right, y + 1), Palette::GRID);
        }
    }
    if height >= SCALED && count <= NAMED {
        panels::grid(scene, axis, &scale, true);
    } else {
        scene.rect((axis.left, band.bottom - 1), (axis.right, band.bottom + 1), Palette::FRAME);
    }
    // By row and column; whether minor, major faults were sampled there.
    let mut cells: BTreeMap<(i32, i32), [bool; 2]> = BTreeMap::new();
    for touch in tensors.touches.iter().filter(|touch| touch.artifact == band.artifact) {
        if touch.at.0 < axis.from || touch.at.0 > axis.to {
            continue;
        }
        let row = (band.bottom - scale.y(touch.offset as f64)) / CELL;
        let column = (axis.x(touch.at.0) - axis.left) / CELL;
        cells.entry((row, column)).or_default()[usize::from(touch.kind == Kind::Major)] = true;
    }
    for (kind, colour) in [(0, Palette::BLUE), (1, Palette::VERMILION)] {
        // Neighbours of a row are one bar.
        let mut bar: Option<(i32, i32, i32)> = None;
        let mut bars = Vec::new();
        for (row, column) in cells.iter().filter(|(_, kinds)| kinds[kind]).map(|(cell, _)| *cell) {
            match &mut bar {
                Some((of, _, last)) if *of == row && *last + 1 == column => *last = column,
                _ => bars.extend(bar.replace((row, column, column))),
            }
        }
        bars.extend(bar);
        for (row, first, last) in bars {
            let bottom = (band.bottom - row * CELL + (DOT - CELL) / 2).min(band.bottom);
            let top = (bottom - DOT).max(band.top);
            let left = (axis.left + first * CELL - (DOT - CELL) / 2).max(axis.left);
            let right = (axis.left + (last + 1) * CELL + (DOT - CELL) / 2).min(axis.right);
            scene.rect((left.min(right - DOT), top.min(bottom - 2)), (right, bottom), colour);
        }
    }
}

fn keys(run: &Run, tensors: &Tensors) -> Vec<Key> {
    let Some(samples) = run.meta.faults.as_ref().filter(|samples| samples.unavailable.is_none()) else {
        return Vec::new();
    };
    let mut keys = Vec::new();
    let has = |kind| tensors.touches.iter().any(|touch| touch.kind == kind);
    let none = |kind, text: String| if has(kind) { text } else { format!("{text}: none") };
    let minor = match samples.minor_period {
        1 => "minor, each one".to_owned(),
        period => format!("minor, one in {period}"),
    };
    keys.push(Key { looks: Looks::Fill(Palette::BLUE), text: none(Kind::Minor, minor) });
    keys.push(Key {
        looks: Looks::Fill(Palette::VERMILION),
        text: none(Kind::Major, "major (waited for I/O), each one".to_owned()),
    });
    keys
}

/// What a reader has to know to trust the picture.
fn footnotes(run: &Run) -> Vec<String> {
    let Some(samples) = &run.meta.faults else { return Vec::new() };
    let mut first = vec!["a square: at least one sampled fault at that time in that part of the file".to_owned()];
    if samples.lost_records > 0 {
        first.push(format!("{} lost", units::counted(samples.lost_records, "record")));
    }
    if samples.left_out.total() > 0 {
        first.push(format!("{} not shown (limit of faults.csv)", units::counted(samples.left_out.total(), "sample")));
    }
    if samples.kernel == Some(false) {
        first.push("without faults in the kernel (kernel.perf_event_paranoid)".to_owned());
    }
    let between = if samples.minor_period > 1 { "between two samples, " } else { "" };
    let blank = format!(
        "what is blank may have been touched: {between}through pages that a neighbour's fault mapped too (fault-around, \
         large folios),"
    );
    let unseen = "or inside get_user_pages (MAP_POPULATE, mlock, O_DIRECT into fresh memory), which perf does not see; what \
                  read() copies is not mapped";
    vec![first.join(" · "), blank, unseen.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_told_apart_by_their_numbers() {
        let names = |names: &[&str]| distinct(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let shards = ["model-00001-of-00012.gguf", "model-00002-of-00012.gguf", "model-00010-of-00012.gguf"];
        assert_eq!(names(&shards), ["00001", "00002", "00010"]);
        assert_eq!(names(&["unet.safetensors", "vae.safetensors"]), ["unet", "vae"]);
        assert_eq!(names(&["a", "a"]), ["a", "a"]);
        assert!(names(&[]).is_empty());
    }
}
