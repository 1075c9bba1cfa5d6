//! `copy-paths.png`: a bar a way, in a block for each place, destination and number of ranks.

use super::heading;
use crate::copy_paths::record::{Progress, Record};
use crate::copy_paths::summary::{Group, groups};
use crate::copy_paths::way::Way;
use crate::report::plot::bars::{self, Bar, Block, Tint};
use crate::report::text::plain;
use crate::units;

/// What a reader who divides the medians would stumble over.
const NOTE: &str = "one scale for all blocks; of heap: the median over repeats of way ÷ heap of the same repeat, so not \
                    the ratio of the medians shown";

/// The picture as PNG.
pub fn png(record: &Record) -> anyhow::Result<Vec<u8>> {
    let path = record.artifacts.first().map(|artifact| plain(&artifact.path)).unwrap_or_default();
    let title = format!("copy paths of {}", path.rsplit('/').next().unwrap_or(&path));
    let repeats = match record.state {
        Progress::Done => units::counted(record.repeats.into(), "repeat"),
        _ => "the finished repeats".to_owned(),
    };
    let about = format!(
        "time to copy {} of tensors; the median of {repeats}, their extremes as a line; warm ways dark, cold ones light, heap orange",
        units::bytes(record.tensors.bytes),
    );
    let block = |place| {
        let of = move |group: Group| Block { heading: heading(record, place, &group), bars: all(&group) };
        groups(place).into_iter().map(of)
    };
    bars::png(&title, &about, NOTE, &record.places.iter().flat_map(block).collect::<Vec<_>>())
}

fn all(group: &Group) -> Vec<Bar> {
    let bar = |line: &crate::copy_paths::summary::Line| {
        let length = line.total();
        let figure = match length {
            Some(total) => {
                let ratio = group.to_heap(line).map(|ratio| format!(", {} of heap", ratio.middle()));
                format!("{}{}", units::duration(total.median), ratio.unwrap_or_default())
            }
            None => line.refused.as_deref().map_or("not measured".to_owned(), plain),
        };
        let tint = match line.way {
            way if way.regime.is_cold() => Tint::Pale,
            Way::HEAP => Tint::Reference,
            _ => Tint::Usual,
        };
        Bar { name: line.way.to_string(), tint, length, figure }
    };
    group.lines.iter().map(bar).collect()
}
