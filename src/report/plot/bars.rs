//! Bars in blocks, one under the other: each as long as a median, with the extremes as a line over its end. All blocks
//! have one scale, which the longest bar sets; its axis stands under the last block.

use super::font;
use super::panels::Palette;
use super::scale::TimeAxis;
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

/// The picture as PNG; every text is fit to be shown. Lengths are nanoseconds; `note` stands at the foot.
pub fn png(title: &str, about: &str, note: &str, blocks: &[Block]) -> anyhow::Result<Vec<u8>> {
    scene(title, about, note, blocks).png()
}

fn scene(title: &str, about: &str, note: &str, blocks: &[Block]) -> Scene {
    let mut scene = Scene { title: title.to_owned(), ..Scene::default() };
    scene.rect((0, 0), (WIDTH, HEIGHT), Palette::PAPER);
    let room = WIDTH - 2 * EDGE;
    scene.text((EDGE, 66), Side::Left, 40, Palette::INK, font::fit(title, 40, room));
    scene.text((EDGE, 108), Side::Left, 26, Palette::GREY, font::fit(about, 26, room));
    let shown = &blocks[..blocks.len().min(MOST)];
    let rows: i32 = shown.iter().map(|block| block.bars.len() as i32 + 2).sum();
    let top = 140;
    let pitch = ((HEIGHT - 110 - top) / rows.max(1)).min(58);
    let longest =
        shown.iter().flat_map(|block| &block.bars).filter_map(|bar| bar.length).map(|length| length.max).max();
    let axis = TimeAxis { from: 0, to: time(longest.unwrap_or(0)).max(1), left: BARS, right: RIGHT - FIGURE };
    let mut y = top;
    for block in shown {
        y = draw(&mut scene, block, &axis, y, pitch);
    }
    if longest.is_some() {
        under(&mut scene, &axis, y - pitch);
    }
    let mut foot = note.to_owned();
    if blocks.len() > shown.len() {
        let more = crate::units::counted((blocks.len() - shown.len()) as u64, "block");
        foot = format!("and {more} more in the table; {foot}");
    }
    scene.text((EDGE, HEIGHT - 24), Side::Left, 22, Palette::GREY, font::fit(&foot, 22, room));
    scene
}

fn time(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(i64::MAX)
}

/// The axis: a line, and its labels under it.
fn under(scene: &mut Scene, axis: &TimeAxis, y: i32) {
    scene.rect((axis.left, y), (axis.right, y + 2), Palette::INK);
    for (value, label) in axis.ticks() {
        let (x, label) = (axis.x(value), if value == 0 { "0".to_owned() } else { label });
        scene.rect((x, y), (x + 2, y + 10), Palette::INK);
        scene.text((x, y + 32), Side::Middle, 22, Palette::INK, label);
    }
}

/// One block; returns where the next one begins.
fn draw(scene: &mut Scene, block: &Block, axis: &TimeAxis, top: i32, pitch: i32) -> i32 {
    let em = (pitch * 11 / 20).clamp(14, 26);
    let base = |row: i32| top + row * pitch + pitch * 7 / 10;
    let heading = font::fit(&block.heading, em + 4, WIDTH - 2 * EDGE);
    scene.text((EDGE, base(0)), Side::Left, em + 4, Palette::INK, heading);
    let x = |value: u64| axis.x(time(value));
    let bottom = top + (block.bars.len() as i32 + 1) * pitch;
    if block.bars.iter().any(|bar| bar.length.is_some()) {
        for (value, _) in axis.ticks() {
            scene.rect((x(value.unsigned_abs()), top + pitch), (x(value.unsigned_abs()) + 2, bottom), Palette::GRID);
        }
    }
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
    bottom + pitch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plot::scene::Shape;

    fn block(heading: &str, lengths: &[u64]) -> Block {
        let bar = |&length: &u64| Bar {
            name: "way".to_owned(),
            tint: Tint::Usual,
            length: Envelope::of(&[length]),
            figure: "figure".to_owned(),
        };
        Block { heading: heading.to_owned(), bars: lengths.iter().map(bar).collect() }
    }

    fn widths(scene: &Scene) -> Vec<i32> {
        let bar = |shape: &Shape| match shape {
            Shape::Rect { from, to, fill } if *fill == Palette::BLUE => Some(to.0 - from.0),
            _ => None,
        };
        scene.shapes.iter().filter_map(bar).collect()
    }

    fn texts(scene: &Scene) -> Vec<&str> {
        let texts = scene.shapes.iter().filter_map(|shape| match shape {
            Shape::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn the_same_time_is_as_long_in_every_block_and_an_axis_says_how_long() {
        let blocks = [block("one", &[10_100_000, 5_000_000]), block("two", &[18_300_000, 5_000_000])];
        let scene = scene("title", "about", "note", &blocks);
        let [slow, same, slowest, again] = widths(&scene)[..] else { panic!("{:?}", widths(&scene)) };
        assert!(slow < slowest && same == again && same < slow, "{slow} {same} {slowest} {again}");
        assert_eq!(slowest, RIGHT - FIGURE - BARS);
        let texts = texts(&scene);
        assert!(["0", "2 ms", "18 ms", "note"].iter().all(|text| texts.contains(text)), "{texts:?}");
    }

    #[test]
    fn where_nothing_was_measured_there_is_no_axis_and_no_time_is_too_long_for_one() {
        let mut nothing = block("one", &[1]);
        nothing.bars[0].length = None;
        assert!(!texts(&scene("", "", "", &[nothing])).contains(&"0"));
        for length in [0, 1, u64::MAX] {
            let scene = scene("", "", "", &[block("one", &[length])]);
            assert!((1..20).contains(&(texts(&scene).len() - 5)), "{length}: {:?}", texts(&scene));
        }
    }

    #[test]
    fn blocks_beyond_the_most_are_counted_at_the_foot_and_the_axis_has_its_room() {
        let blocks: Vec<Block> = (0..MOST + 2).map(|_| block("one", &[5; 16])).collect();
        let scene = scene("", "", "note", &blocks);
        assert!(texts(&scene).contains(&"and 2 blocks more in the table; note"), "{:?}", texts(&scene));
        let lowest = scene.shapes.iter().filter_map(|shape| match shape {
            Shape::Text(text) if text.at.0 >= BARS => Some(text.bounds().3),
            _ => None,
        });
        assert!(lowest.max().unwrap() < HEIGHT - 24 - 22, "the axis's labels and the foot");
    }
}
