//! `copy-paths.png`: a bar a way, as long as its median, with the repeats' extremes as a line over its end; a block for each
//! place, destination and number of ranks.

use crate::copy_paths::record::Record;
use crate::copy_paths::summary::{Group, groups};
use crate::copy_paths::way::Way;
use crate::report::text::plain;
use crate::report::units;

use super::font;
use super::panels::Palette;
use super::scene::{Colour, HEIGHT, Scene, Side, WIDTH};
use super::{EDGE, RIGHT};

/// Okabe and Ito's light blue.
const COLD: Colour = Colour(0x56b4e9, 1.0);

/// Where the bars begin.
const BARS: i32 = 520;

/// The most blocks; what is beyond is told of in the footnote.
const MOST: usize = 4;

/// The picture as PNG.
pub fn png(record: &Record) -> anyhow::Result<Vec<u8>> {
    compose(record).png()
}

fn compose(record: &Record) -> Scene {
    let mut scene = Scene { title: title(record), ..Scene::default() };
    scene.rect((0, 0), (WIDTH, HEIGHT), Palette::PAPER);
    let room = WIDTH - 2 * EDGE;
    scene.text((EDGE, 66), Side::Left, 40, Palette::INK, font::fit(&scene.title.clone(), 40, room));
    let about = format!(
        "time to copy {} of tensors; the median of {} repeats, their extremes as a line; warm ways dark, cold ones light",
        units::bytes(record.tensors.bytes),
        record.repeats
    );
    scene.text((EDGE, 108), Side::Left, 26, Palette::GREY, font::fit(&about, 26, room));

    let all: Vec<(String, Group)> = record
        .places
        .iter()
        .flat_map(|place| groups(place).into_iter().map(move |group| (heading(place, &group), group)))
        .collect();
    let shown = &all[..all.len().min(MOST)];
    let rows: i32 = shown.iter().map(|(_, group)| group.lines.len() as i32 + 2).sum();
    let top = 140;
    let pitch = ((HEIGHT - 70 - top) / rows.max(1)).min(58);
    let mut y = top;
    for (heading, group) in shown {
        y = block(&mut scene, heading, group, y, pitch);
    }
    if all.len() > shown.len() {
        let more = format!("and {} more blocks in the table", all.len() - shown.len());
        scene.text((EDGE, HEIGHT - 24), Side::Left, 22, Palette::GREY, more);
    }
    scene
}

fn title(record: &Record) -> String {
    let name = record.artifacts.first().map(|artifact| plain(&artifact.path)).unwrap_or_default();
    format!("copy paths of {}", name.rsplit('/').next().unwrap_or(&name))
}

fn heading(place: &crate::copy_paths::record::Place, group: &Group) -> String {
    let ranks = if group.ranks == 1 { "1 rank".to_owned() } else { format!("{} ranks at once", group.ranks) };
    let filesystem = plain(place.filesystem.as_deref().unwrap_or("filesystem not known"));
    format!("{} ({filesystem}) → {} memory, {ranks}", plain(&place.directory), group.destination.name())
}

/// One block; returns where the next one begins.
fn block(scene: &mut Scene, heading: &str, group: &Group, top: i32, pitch: i32) -> i32 {
    let em = (pitch * 11 / 20).clamp(14, 26);
    let base = |row: i32| top + row * pitch + pitch * 7 / 10;
    scene.text((EDGE, base(0)), Side::Left, em + 4, Palette::INK, font::fit(heading, em + 4, WIDTH - 2 * EDGE));
    let longest = group.lines.iter().filter_map(|line| line.total()).map(|total| total.high).fold(0.0, f64::max);
    // Room for the figure behind the longest bar.
    let x = |ns: f64| BARS + (ns / longest.max(1.0) * f64::from(RIGHT - 260 - BARS)).round() as i32;
    for (line, row) in group.lines.iter().zip(1..) {
        let (upper, lower) = (top + row * pitch + pitch / 6, top + (row + 1) * pitch - pitch / 6);
        scene.text((BARS - 20, base(row)), Side::Right, em, Palette::INK, line.way.to_string());
        let Some(total) = line.total() else {
            let why = line.refused.as_deref().map_or("not measured".to_owned(), plain);
            scene.text((BARS, base(row)), Side::Left, em, Palette::GREY, font::fit(&why, em, RIGHT - BARS));
            continue;
        };
        let fill = match line.way {
            way if way.regime.is_cold() => COLD,
            Way::HEAP => Palette::VERMILION,
            _ => Palette::BLUE,
        };
        scene.rect((BARS, upper), (x(total.median), lower), fill);
        let middle = (upper + lower) / 2;
        scene.rect((x(total.low), middle - 1), (x(total.high).max(x(total.low) + 2), middle + 2), Palette::INK);
        let ratio = group.to_heap(line).map(|ratio| format!(", {:.2} of heap", ratio.median)).unwrap_or_default();
        let figure = format!("{}{ratio}", units::duration(total.median.round() as u64));
        scene.text((x(total.high) + 14, base(row)), Side::Left, em, Palette::INK, figure);
    }
    top + (group.lines.len() as i32 + 2) * pitch
}
