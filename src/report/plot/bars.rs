//! Bars in blocks, one under the other: each as long as a median, with the extremes as a line over its end. In a block the
//! longest bar sets the scale.

use super::font;
use super::panels::Palette;
use super::scene::{Colour, HEIGHT, Scene, Side, WIDTH};
use super::{EDGE, RIGHT};
use crate::compare::series::Envelope;

/// Okabe and Ito's light blue.
const PALE: Colour = Colour(0x56b4e9, 1.0);

/// Where the bars begin.
const BARS: i32 = 520;

/// The room for the figure behind the longest bar.
const FIGURE: i32 = 320;

/// The most blocks; what is beyond is told of in the footnote.
const MOST: usize = 4;

/// How a bar looks beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    Usual,
    /// What the others are measured against.
    Reference,
    /// Of another kind than the others.
    Pale,
}

/// One bar.
pub struct Bar {
    pub name: String,
    pub tint: Tint,
    /// Absent where there is nothing to draw: then `figure` says why.
    pub length: Option<Envelope>,
    /// Behind its end.
    pub figure: String,
}

/// Bars that belong together.
pub struct Block {
    pub heading: String,
    pub bars: Vec<Bar>,
}

/// The picture as PNG; every text is fit to be shown.
pub fn png(title: &str, about: &str, blocks: &[Block]) -> anyhow::Result<Vec<u8>> {
    let mut scene = Scene { title: title.to_owned(), ..Scene::default() };
    scene.rect((0, 0), (WIDTH, HEIGHT), Palette::PAPER);
    let room = WIDTH - 2 * EDGE;
    scene.text((EDGE, 66), Side::Left, 40, Palette::INK, font::fit(title, 40, room));
    scene.text((EDGE, 108), Side::Left, 26, Palette::GREY, font::fit(about, 26, room));
    let shown = &blocks[..blocks.len().min(MOST)];
    let rows: i32 = shown.iter().map(|block| block.bars.len() as i32 + 2).sum();
    let top = 140;
    let pitch = ((HEIGHT - 70 - top) / rows.max(1)).min(58);
    let mut y = top;
    for block in shown {
        y = draw(&mut scene, block, y, pitch);
    }
    if blocks.len() > shown.len() {
        let more =
            format!("and {} more in the table", crate::units::counted((blocks.len() - shown.len()) as u64, "block"));
        scene.text((EDGE, HEIGHT - 24), Side::Left, 22, Palette::GREY, more);
    }
    scene.png()
}

/// One block; returns where the next one begins.
fn draw(scene: &mut Scene, block: &Block, top: i32, pitch: i32) -> i32 {
    let em = (pitch * 11 / 20).clamp(14, 26);
    let base = |row: i32| top + row * pitch + pitch * 7 / 10;
    let heading = font::fit(&block.heading, em + 4, WIDTH - 2 * EDGE);
    scene.text((EDGE, base(0)), Side::Left, em + 4, Palette::INK, heading);
    let longest = block.bars.iter().filter_map(|bar| bar.length).map(|length| length.max).max().unwrap_or(0).max(1);
    let x = |value: u64| BARS + (value as f64 / longest as f64 * f64::from(RIGHT - FIGURE - BARS)).round() as i32;
    for (bar, row) in block.bars.iter().zip(1..) {
        let (upper, lower) = (top + row * pitch + pitch / 6, top + (row + 1) * pitch - pitch / 6);
        scene.text((BARS - 20, base(row)), Side::Right, em, Palette::INK, font::fit(&bar.name, em, BARS - 20 - EDGE));
        let Some(length) = bar.length else {
            scene.text((BARS, base(row)), Side::Left, em, Palette::GREY, font::fit(&bar.figure, em, RIGHT - BARS));
            continue;
        };
        let fill = match bar.tint {
            Tint::Usual => Palette::BLUE,
            Tint::Reference => Palette::VERMILION,
            Tint::Pale => PALE,
        };
        scene.rect((BARS, upper), (x(length.median), lower), fill);
        let (middle, from) = ((upper + lower) / 2, x(length.min));
        scene.rect((from, middle - 1), (x(length.max).max(from + 2), middle + 2), Palette::INK);
        let figure = font::fit(&bar.figure, em, FIGURE - 14);
        scene.text((x(length.max) + 14, base(row)), Side::Left, em, Palette::INK, figure);
    }
    top + (block.bars.len() as i32 + 2) * pitch
}
