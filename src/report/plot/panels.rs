//! The panels: payload, devices' memory where there is any, resident set, faults, reads.

use super::scale::{Quantity, TimeAxis, ValueAxis};
use super::scene::{Colour, Point, Scene, Side, Text};
use super::series::{self, Path, Stretch};
use super::{Shown, font, least_interval, never};
use crate::account::{StageRow, StageTable};
use crate::metric::{Metric, Values};
use crate::report::text::{elide, plain};
use crate::run::Scope;
use crate::sample::Sample;
use crate::units;

/// The picture's colours, after Okabe and Ito.
pub struct Palette;

impl Palette {
    pub const PAPER: Colour = Colour(0xffffff, 1.0);
    pub const INK: Colour = Colour(0x1a1a1a, 1.0);
    pub const GREY: Colour = Colour(0x555555, 1.0);
    pub const GRID: Colour = Colour(0xe4e4e4, 1.0);
    pub const FRAME: Colour = Colour(0x999999, 1.0);
    pub const MARK: Colour = Colour(0x333333, 1.0);
    pub const UNCERTAIN: Colour = Colour(0x333333, 0.12);
    /// A stage that has a beginning and an end.
    pub const SPAN: Colour = Colour(0x333333, 0.75);
    /// A file's bytes, none of which was seen touched.
    pub const BAND: Colour = Colour(0xf6f6f6, 1.0);
    pub const HATCH: Colour = Colour(0xbbbbbb, 1.0);
    pub const VERMILION: Colour = Colour(0xd55e00, 1.0);
    /// Over what only joins two samples.
    const FADED: Colour = Colour(0xffffff, 0.55);
    /// Vermilion as a tint: what is mapped and not there.
    const ABSENT_PAYLOAD: Colour = Colour(0xfae0cc, 1.0);
    pub const SKY: Colour = Colour(0x56b4e9, 1.0);
    pub const BLUE: Colour = Colour(0x0072b2, 1.0);
    pub const GREEN: Colour = Colour(0x009e73, 1.0);
    pub const PURPLE: Colour = Colour(0xcc79a7, 1.0);
    pub const ORANGE: Colour = Colour(0xe69f00, 1.0);
    const VIOLET: Colour = Colour(0x5e3c99, 1.0);
}

const TICK_EM: i32 = 23;
const NAME_EM: i32 = 28;
pub const KEY_EM: i32 = 24;
const HEADER: i32 = 50;

/// Where a panel's data stand, below its header.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// The baseline of its header.
    header: i32,
    pub top: i32,
    pub bottom: i32,
}

impl Panel {
    /// A panel whose header has this baseline and whose data lie between these heights.
    pub fn new(header: i32, top: i32, bottom: i32) -> Panel {
        Panel { header, top, bottom }
    }

    /// Four panels between two heights, the first ones higher, as they tell most, and one more below the first with
    /// devices. The marks' labels stand in a band between the first one's header and its data.
    pub fn stack(top: i32, band: i32, bottom: i32, with_devices: bool) -> Vec<Panel> {
        let shares: &[(i32, i32)] = match with_devices {
            false => &[(40, band), (28, 0), (16, 0), (16, 0)],
            true => &[(32, band), (22, 0), (22, 0), (12, 0), (12, 0)],
        };
        let count = shares.len() as i32;
        let room = bottom - top - band - count * HEADER - (count - 1) * 8;
        let mut y = top;
        shares
            .iter()
            .map(|(share, band)| {
                let data = y + HEADER + band;
                let panel = Panel { header: y + HEADER - 14, top: data, bottom: data + room * share / 100 };
                y = panel.bottom + 8;
                panel
            })
            .collect()
    }
}

/// One entry of a panel's key.
pub struct Key {
    pub looks: Looks,
    pub text: String,
}

pub enum Looks {
    Fill(Colour),
    Line(Colour),
    Dashes(Colour),
}

/// What is left to draw over the panels.
pub struct Drawn {
    /// The payload panel's scale.
    pub payload: ValueAxis,
    /// What the panels could not show, and why.
    pub notes: Vec<Text>,
}

/// Draws all panels' data and headers.
pub fn draw(scene: &mut Scene, shown: &Shown, table: &StageTable, axis: &TimeAxis, panels: &[Panel]) -> Drawn {
    let mut notes = Vec::new();
    let payload = payload(scene, shown, table, axis, panels[0], &mut notes);
    let mut rest = panels[1..].iter().copied();
    let mut next = || rest.next().unwrap_or(panels[0]);
    if has_devices(shown) {
        devices(scene, shown, axis, next(), &mut notes);
    }
    resident_set(scene, shown, table, axis, next(), &mut notes);
    rates(scene, shown, axis, next(), &FAULTS, &mut notes);
    rates(scene, shown, axis, next(), &READS, &mut notes);
    for (from, to) in pauses(shown, axis) {
        panels.iter().for_each(|panel| scene.rect((from, panel.top), (to, panel.bottom - 1), Palette::FADED));
    }
    Drawn { payload, notes }
}

fn payload(
    scene: &mut Scene,
    shown: &Shown,
    table: &StageTable,
    axis: &TimeAxis,
    panel: Panel,
    notes: &mut Vec<Text>,
) -> ValueAxis {
    use Metric::{MappedBytes, MappedPayloadBytes, PayloadBytes, ResidentPayloadBytes};
    let samples = &shown.held;
    let of = |metric: Metric| move |values: &Values| values.get(metric);
    let total = series::stretches(samples, of(PayloadBytes));
    let mut mapped = series::stretches(samples, of(MappedPayloadBytes));
    // Where the payload is not known, what is mapped of the files still is.
    let whole = mapped.is_empty();
    if whole {
        mapped = series::stretches(samples, of(MappedBytes));
    }
    let resident = series::stretches(samples, of(ResidentPayloadBytes));
    let largest =
        [&total, &mapped, &resident].into_iter().map(|stretches| series::largest(stretches)).fold(0.0, f64::max);
    let scale = ValueAxis::new(Quantity::Bytes, largest, panel.top, panel.bottom);

    grid(scene, axis, &scale, !(total.is_empty() && mapped.is_empty() && resident.is_empty()));
    let both =
        series::stretches(samples, |values| values.get(ResidentPayloadBytes).and(values.get(MappedPayloadBytes)));
    fill(scene, axis, &scale, &both, Path::Held, Palette::ABSENT_PAYLOAD);
    fill(scene, axis, &scale, &resident, Path::Straight, Palette::SKY);
    if !resident.is_empty() {
        for (begin, end) in series::gaps(samples, of(ResidentPayloadBytes)) {
            scene.hatch((axis.x(begin.0), panel.top), (axis.x(end.0), panel.bottom), Palette::HATCH);
        }
    }
    stroke(scene, axis, &scale, &resident, Path::Straight, Palette::BLUE, 3);
    for stretch in &total {
        for piece in levels(stretch) {
            let (left, y) = (axis.x(piece.0), scale.y(piece.2));
            scene.dashed((left, y), axis.x(piece.1).max(left + 6), Palette::INK, 3);
        }
    }
    stroke(scene, axis, &scale, &mapped, Path::Held, Palette::VERMILION, 5);

    let last = table.last_stage_reached();
    let mut keys = Vec::new();
    if !total.is_empty() {
        keys.push(Key { looks: Looks::Dashes(Palette::INK), text: with_value("payload", last, PayloadBytes) });
    }
    if !mapped.is_empty() {
        keys.push(Key {
            looks: Looks::Line(Palette::VERMILION),
            text: none_or(if whole { "mapped extent, headers included" } else { "mapped" }, &mapped),
        });
    }
    if samples.iter().any(|sample| {
        sample
            .values
            .get(ResidentPayloadBytes)
            .is_some_and(|resident| sample.values.get(MappedPayloadBytes) > Some(resident))
    }) {
        keys.push(Key { looks: Looks::Fill(Palette::ABSENT_PAYLOAD), text: "mapped, not resident".to_owned() });
    }
    if !resident.is_empty() {
        keys.push(Key { looks: Looks::Fill(Palette::SKY), text: "resident in host memory".to_owned() });
    }
    header(scene, panel, "Payload", keys);
    let names = [
        (PayloadBytes, "payload"),
        (if whole { MappedBytes } else { MappedPayloadBytes }, "mapped"),
        (ResidentPayloadBytes, "resident payload"),
    ];
    let nothing = total.is_empty() && mapped.is_empty() && resident.is_empty();
    if nothing && shown.run.meta.artifacts.is_empty() {
        scene.hatch((super::LEFT, panel.top), (super::RIGHT, panel.bottom), Palette::GRID);
        let at = ((super::LEFT + super::RIGHT) / 2, (panel.top + panel.bottom) / 2);
        let text = "no model file was named, and none was seen opened".to_owned();
        notes.push(Text { at, side: Side::Middle, em: KEY_EM, colour: Palette::GREY, text });
        return scale;
    }
    absent(scene, notes, shown, panel, &names);
    scale
}

fn resident_set(
    scene: &mut Scene,
    shown: &Shown,
    table: &StageTable,
    axis: &TimeAxis,
    panel: Panel,
    notes: &mut Vec<Text>,
) {
    use Metric::{RssAnonBytes, RssBytes, RssFileBytes, RssShmemBytes};
    let samples = &shown.held;
    let anon = series::stretches(samples, |values| values.get(RssAnonBytes));
    let file = series::stretches(samples, |values| stack(values, &[RssAnonBytes, RssFileBytes]));
    let shmem = series::stretches(samples, |values| stack(values, &[RssAnonBytes, RssFileBytes, RssShmemBytes]));
    let total = series::stretches(samples, |values| values.get(RssBytes));
    let largest =
        [&anon, &file, &shmem, &total].into_iter().map(|stretches| series::largest(stretches)).fold(0.0, f64::max);
    let scale = ValueAxis::new(Quantity::Bytes, largest, panel.top, panel.bottom);

    grid(scene, axis, &scale, !(anon.is_empty() && total.is_empty()));
    if !anon.is_empty() {
        for (begin, end) in series::gaps(samples, |values| values.get(RssAnonBytes)) {
            scene.hatch((axis.x(begin.0), panel.top), (axis.x(end.0), panel.bottom), Palette::HATCH);
        }
    }
    // From the highest of the stack down, each over the one before.
    fill(scene, axis, &scale, &shmem, Path::Straight, Palette::PURPLE);
    fill(scene, axis, &scale, &file, Path::Straight, Palette::SKY);
    fill(scene, axis, &scale, &anon, Path::Straight, Palette::GREEN);
    stroke(scene, axis, &scale, &total, Path::Straight, Palette::INK, 3);

    let mut keys = Vec::new();
    let mut entry = |known: &[Stretch], looks, text: &str| {
        if !known.is_empty() {
            keys.push(Key { looks, text: text.to_owned() });
        }
    };
    let to_stop = table.stopping_row().and_then(|row| Some((row.peak(RssBytes)?, &row.outcome.stage)));
    let text = match to_stop {
        Some((peak, stage)) => {
            let figure = match (peak.low, peak.high) {
                (_, Some(_)) => format!(": {}", super::super::peak::between(peak)),
                (low, None) => format!(" ≥ {}", units::bytes(low.unwrap_or(0))),
            };
            format!("total, peak to {}{figure}", elide(&plain(stage), 24))
        }
        None => format!("total, peak ≥ {}", units::bytes(series::largest(&total) as u64)),
    };
    entry(&total, Looks::Line(Palette::INK), &text);
    entry(&shmem, Looks::Fill(Palette::PURPLE), "shared memory");
    entry(&file, Looks::Fill(Palette::SKY), "file-backed");
    entry(&anon, Looks::Fill(Palette::GREEN), "anonymous");
    header(scene, panel, "Resident set of the processes, summed", keys);
    let names = [
        (RssBytes, "resident set"),
        (RssAnonBytes, "anonymous"),
        (RssFileBytes, "file-backed"),
        (RssShmemBytes, "shared memory"),
    ];
    absent(scene, notes, shown, panel, &names);
}

/// Whether there is device memory to show.
pub fn has_devices(shown: &Shown) -> bool {
    let known = |values: &Values| values.get(Metric::DeviceUsedBytes).or(values.get(Metric::DeviceLaunchBytes));
    shown.run.meta.devices.iter().any(|device| device.is_counted)
        && shown.samples.iter().any(|sample| known(&sample.values).is_some())
}

/// Colours of devices, in their order, and again from the first.
const DEVICES: [Colour; 8] = [
    Palette::BLUE,
    Palette::VERMILION,
    Palette::ORANGE,
    Palette::PURPLE,
    Palette::INK,
    Palette::GREEN,
    Palette::SKY,
    Palette::VIOLET,
];
/// So many have room for their names in the panel's key; of more the numbers stand there.
const NAMED: usize = 4;

/// Device memory: of one device what is in use and the launch's share of it, of several what is in use on each.
fn devices(scene: &mut Scene, shown: &Shown, axis: &TimeAxis, panel: Panel, notes: &mut Vec<Text>) {
    use Metric::{DeviceLaunchBytes, DeviceUsedBytes};
    let counted: Vec<usize> = shown
        .run
        .meta
        .devices
        .iter()
        .enumerate()
        .filter(|(_, device)| device.is_counted)
        .map(|(index, _)| index)
        .collect();
    let held = &shown.held;
    // A sample between two answers of a driver has none: it is no gap. What was told holds until the next answer.
    let some = |samples: &[Sample], metric: Metric| {
        let known: Vec<_> = samples.iter().filter(|sample| sample.values.get(metric).is_some()).cloned().collect();
        series::stretches(&known, |values| values.get(metric))
    };
    // Whose memory it is is asked less often than how much is in use: in between it is no more than that.
    let bounded = series::held_within(held, DeviceLaunchBytes, DeviceUsedBytes);
    let share = if counted.len() == 1 { some(&bounded, DeviceLaunchBytes) } else { Vec::new() };
    let lines: Vec<(usize, Vec<Stretch>)> = match counted.as_slice() {
        [one] => vec![(*one, some(held, DeviceUsedBytes))],
        several => several.iter().map(|index| (*index, vec![of_device(shown, *index)])).collect(),
    };
    let lines: Vec<(usize, Vec<Stretch>)> =
        lines.into_iter().filter(|(_, line)| line.iter().any(|stretch| !stretch.is_empty())).collect();
    let largest = lines.iter().map(|(_, line)| series::largest(line)).fold(series::largest(&share), f64::max);
    let scale = ValueAxis::new(Quantity::Bytes, largest, panel.top, panel.bottom);
    grid(scene, axis, &scale, !(share.is_empty() && lines.is_empty()));
    fill(scene, axis, &scale, &share, Path::Held, Palette::GREEN);
    let mut keys = Vec::new();
    for ((index, line), colour) in lines.iter().zip(DEVICES.iter().cycle()) {
        stroke(scene, axis, &scale, line, Path::Held, *colour, 3);
        if keys.len() < DEVICES.len() {
            let text = match counted.len() {
                1 => "in use".to_owned(),
                2..=NAMED => format!("device {index}"),
                _ => index.to_string(),
            };
            keys.push(Key { looks: Looks::Line(*colour), text });
        }
    }
    if !share.is_empty() {
        keys.push(Key { looks: Looks::Fill(Palette::GREEN), text: none_or("the launch's", &share) });
    }
    let title = match counted.len() {
        1 => "Device memory".to_owned(),
        count if count > NAMED => format!("Device memory in use, each of {count} devices by number"),
        _ => "Device memory in use, each device".to_owned(),
    };
    header(scene, panel, &title, keys);
    if counted.len() == 1 {
        absent(scene, notes, shown, panel, &[(DeviceUsedBytes, "in use"), (DeviceLaunchBytes, "the launch's share")]);
    }
}

/// What is in use on one device, as `detail.csv` has it: a row a change, and so what was before holds until then.
fn of_device(shown: &Shown, index: usize) -> Stretch {
    let own = shown.run.details.iter().filter(|row| row.scope == Scope::Device(index) && row.metric == "used_bytes");
    let mut steps = Stretch::new();
    for row in own {
        // In time, not in pixels: what changes only behind the right edge is no step there.
        steps.extend(steps.last().map(|&(_, before)| (row.at.0, before)));
        steps.push((row.at.0, row.value as f64));
    }
    steps
}

/// A panel of two rates: one as an area, one as a line over it.
struct Rates {
    title: &'static str,
    quantity: Quantity,
    area: Rate,
    line: Rate,
}

/// A counter whose rate is shown.
struct Rate {
    metric: Metric,
    colour: Colour,
    /// Its name in the panel's key, and where the key says nothing of it.
    name: &'static str,
    long_name: &'static str,
}

const FAULTS: Rates = Rates {
    title: "Page faults",
    quantity: Quantity::PerSecond,
    area: Rate { metric: Metric::MinorFaults, colour: Palette::ORANGE, name: "minor", long_name: "minor faults" },
    line: Rate { metric: Metric::MajorFaults, colour: Palette::VERMILION, name: "major", long_name: "major faults" },
};

const READS: Rates = Rates {
    title: "Reads",
    quantity: Quantity::BytesPerSecond,
    area: Rate {
        metric: Metric::ReadBytes,
        colour: Palette::BLUE,
        name: "from storage",
        long_name: "bytes from storage",
    },
    line: Rate {
        metric: Metric::RcharBytes,
        colour: Palette::ORANGE,
        name: "asked for by read()",
        long_name: "bytes asked for",
    },
};

fn rates(scene: &mut Scene, shown: &Shown, axis: &TimeAxis, panel: Panel, what: &Rates, notes: &mut Vec<Text>) {
    let Rates { title, quantity, area, line } = what;
    let least = least_interval(shown.run);
    let samples = series::until_the_end(&shown.held, series::end(shown.run));
    let filled = series::rates(samples, area.metric, least);
    let stroked = series::rates(samples, line.metric, least);
    let largest = series::largest(&filled).max(series::largest(&stroked));
    let scale = ValueAxis::new(*quantity, largest, panel.top, panel.bottom);
    let nothing = filled.is_empty() && stroked.is_empty();
    grid(scene, axis, &scale, !nothing);
    fill(scene, axis, &scale, &filled, Path::Led, area.colour);
    stroke_above_zero(scene, axis, &scale, &stroked, line.colour);
    let mut keys = Vec::new();
    if !filled.is_empty() {
        keys.push(Key { looks: Looks::Fill(area.colour), text: none_or(area.name, &filled) });
    }
    if !stroked.is_empty() {
        keys.push(Key { looks: Looks::Line(line.colour), text: none_or(line.name, &stroked) });
    }
    header(scene, panel, title, keys);
    absent(scene, notes, shown, panel, &[area, line].map(|rate| (rate.metric, rate.long_name)));
    too_few(notes, shown, panel, area.metric, nothing);
}

/// The sum of some parts, where all are known.
fn stack(values: &Values, parts: &[Metric]) -> Option<u64> {
    parts.iter().try_fold(0u64, |sum, part| sum.checked_add(values.get(*part)?))
}

/// A name, which says so where all that is known of it is 0.
fn none_or(name: &str, stretches: &[Stretch]) -> String {
    if series::largest(stretches) == 0.0 { format!("{name}: none") } else { name.to_owned() }
}

fn with_value(name: &str, row: Option<&StageRow>, metric: Metric) -> String {
    match row.and_then(|row| row.values.get(metric)) {
        Some(value) => format!("{name} {}", units::bytes(value)),
        None => name.to_owned(),
    }
}

/// The level pieces of a stretch: begin, end, value.
fn levels(stretch: &[(i64, f64)]) -> Vec<(i64, i64, f64)> {
    let mut levels: Vec<(i64, i64, f64)> = Vec::new();
    for &(t, value) in stretch {
        if let Some(level) = levels.last_mut() {
            level.1 = t;
            if level.2 == value {
                continue;
            }
        }
        levels.push((t, t, value));
    }
    levels
}

/// The pixels of a stretch, up to the edge of the picture.
fn pixels(axis: &TimeAxis, scale: &ValueAxis, stretch: &[(i64, f64)], path: Path) -> Vec<Point> {
    let within = path.within(stretch, axis.from, axis.to);
    let columns = series::columns(&within, |t| axis.x(t));
    let mut pixels: Vec<Point> = path.corners(&columns).into_iter().map(|(x, value)| (x, scale.y(value))).collect();
    pixels.dedup();
    pixels
}

fn fill(scene: &mut Scene, axis: &TimeAxis, scale: &ValueAxis, stretches: &[Stretch], path: Path, colour: Colour) {
    for stretch in stretches {
        let mut points = pixels(axis, scale, stretch, path);
        let (Some(&first), Some(&last)) = (points.first(), points.last()) else { continue };
        if first.0 == last.0 {
            // One sample is a moment: a thin bar, so that it is seen.
            let top = points.iter().map(|point| point.1).min().unwrap_or(scale.bottom);
            scene.rect((first.0 - 3, top), (first.0 + 3, scale.bottom), colour);
            continue;
        }
        points.push((last.0, scale.bottom));
        points.push((first.0, scale.bottom));
        scene.area(points, colour);
    }
}

pub fn stroke(
    scene: &mut Scene,
    axis: &TimeAxis,
    scale: &ValueAxis,
    stretches: &[Stretch],
    path: Path,
    colour: Colour,
    width: u32,
) {
    for stretch in stretches {
        let points = pixels(axis, scale, stretch, path);
        match points[..] {
            [] => {}
            [(x, y)] => scene.rect((x - 5, y - 5), (x + 5, y + 5), colour),
            _ => scene.line(points, colour, width),
        }
    }
}

/// Draws a rate as a line where there is any: along the axis it would look like a second axis.
fn stroke_above_zero(scene: &mut Scene, axis: &TimeAxis, scale: &ValueAxis, stretches: &[Stretch], colour: Colour) {
    for stretch in stretches {
        let points = pixels(axis, scale, stretch, Path::Led);
        let mut piece: Vec<Point> = Vec::new();
        for pair in points.windows(2) {
            if pair.iter().all(|point| point.1 == scale.bottom) {
                flush(scene, &mut piece, colour);
                continue;
            }
            if piece.is_empty() {
                piece.push(pair[0]);
            }
            piece.push(pair[1]);
        }
        flush(scene, &mut piece, colour);
    }
}

fn flush(scene: &mut Scene, piece: &mut Vec<Point>, colour: Colour) {
    if !piece.is_empty() {
        scene.line(std::mem::take(piece), colour, 3);
    }
}

/// The grid; values have no labels where there are none.
pub fn grid(scene: &mut Scene, axis: &TimeAxis, scale: &ValueAxis, known: bool) {
    for (t, _) in axis.ticks() {
        let x = axis.x(t);
        scene.rect((x, scale.top), (x + 2, scale.bottom), Palette::GRID);
    }
    let ticks = scale.ticks();
    for (value, label) in ticks.into_iter().take(if known { usize::MAX } else { 1 }) {
        let y = scale.y(value);
        scene.rect((axis.left, y - 1), (axis.right, y + 1), if value == 0.0 { Palette::FRAME } else { Palette::GRID });
        if known {
            scene.text((axis.left - 14, y + TICK_EM / 3), Side::Right, TICK_EM, Palette::GREY, label);
        }
    }
}

/// The labels of the time axis, under the last panel.
pub fn time_axis(scene: &mut Scene, axis: &TimeAxis, bottom: i32) {
    for (t, label) in axis.ticks() {
        let x = axis.x(t);
        scene.rect((x, bottom), (x + 2, bottom + 8), Palette::FRAME);
        scene.text((x, bottom + 36), Side::Middle, TICK_EM, Palette::GREY, label);
    }
}

/// A panel's name, and its key at the right end of the same line.
pub fn header(scene: &mut Scene, panel: Panel, name: &str, keys: Vec<Key>) {
    let y = panel.header;
    scene.text((super::LEFT, y), Side::Left, NAME_EM, Palette::INK, name);
    let mut right = super::RIGHT;
    for key in keys.into_iter().rev() {
        let width = font::width(&key.text, KEY_EM);
        scene.text((right, y), Side::Right, KEY_EM, Palette::GREY, key.text);
        let (from, to) = (right - width - 48, right - width - 12);
        let middle = y - KEY_EM * 3 / 8;
        match key.looks {
            Looks::Fill(colour) => scene.rect((from, middle - 9), (to, middle + 9), colour),
            Looks::Line(colour) => scene.rect((from, middle - 3), (to, middle + 3), colour),
            Looks::Dashes(colour) => {
                scene.rect((from, middle - 2), (from + 15, middle + 1), colour);
                scene.rect((to - 15, middle - 2), (to, middle + 1), colour);
            }
        }
        right = from - 34;
    }
}

/// Where no sample was taken for many ticks, if that is wide enough to be seen.
fn pauses(shown: &Shown, axis: &TimeAxis) -> Vec<(i32, i32)> {
    let pauses = series::pauses(shown.run).into_iter().map(|(from, to)| (axis.x(from.0), axis.x(to.0)));
    pauses.filter(|(from, to)| to - from > 6).collect()
}

/// What a look that stands in every panel means.
pub enum Sign {
    Band,
    Faded,
    Hatch,
    Span,
}

/// The signs that the picture has, of those that no panel's own key tells of.
pub fn legend(shown: &Shown, table: &StageTable, axis: &TimeAxis) -> Vec<(Sign, &'static str)> {
    use Metric::{ResidentPayloadBytes, RssAnonBytes};
    let has_gaps = |samples: &[Sample], metric: Metric| {
        let is_known = samples.iter().any(|sample| sample.values.get(metric).is_some());
        let gaps = series::gaps(samples, |values| values.get(metric));
        is_known && gaps.iter().any(|(begin, end)| axis.x(begin.0) < axis.x(end.0))
    };
    let hatched = has_gaps(&shown.samples, ResidentPayloadBytes) || has_gaps(&shown.held, RssAnonBytes);
    let spans = table.reached().any(|row| row.outcome.begin.is_some());
    let faded = !pauses(shown, axis).is_empty();
    let signs = [
        (hatched, Sign::Hatch, "not known"),
        (spans, Sign::Span, "a span, from its beginning to its mark"),
        (faded, Sign::Faded, "pale: no sample in between"),
    ];
    let signs = signs.into_iter().filter(|(is_there, ..)| *is_there).map(|(_, sign, text)| (sign, text));
    legend_of_marks(table, axis).into_iter().chain(signs).collect()
}

/// The same of a picture that has nothing else than marks.
pub fn legend_of_marks(table: &StageTable, axis: &TimeAxis) -> Vec<(Sign, &'static str)> {
    let banded = table.reached().any(|row| super::uncertain(row, axis).is_some());
    let text = "the stage was reached somewhere in the band, at its line at the latest";
    if banded { vec![(Sign::Band, text)] } else { Vec::new() }
}

/// Draws them in a row, whose baseline begins here.
pub fn draw_legend(scene: &mut Scene, (left, baseline): Point, signs: Vec<(Sign, &'static str)>) {
    let mut x = left;
    for (sign, text) in signs {
        let middle = baseline - KEY_EM * 3 / 8;
        let (from, to) = ((x, middle - 9), (x + 36, middle + 9));
        match sign {
            Sign::Band => scene.rect(from, to, Palette::UNCERTAIN),
            Sign::Faded => {
                scene.rect(from, to, Palette::SKY);
                scene.rect(from, to, Palette::FADED);
            }
            Sign::Hatch => scene.hatch(from, to, Palette::HATCH),
            Sign::Span => scene.rect((from.0, middle - 3), (to.0, middle + 3), Palette::SPAN),
        }
        scene.text((to.0 + 12, baseline), Side::Left, KEY_EM, Palette::GREY, text);
        x = to.0 + 12 + font::width(text, KEY_EM) + 34;
    }
}

/// Says in the panel what it has no values of, and why.
fn absent(scene: &mut Scene, notes: &mut Vec<Text>, shown: &Shown, panel: Panel, names: &[(Metric, &str)]) {
    let missing: Vec<(&str, String)> =
        names.iter().filter_map(|(metric, name)| Some((*name, never(shown.run, &shown.samples, *metric)?))).collect();
    // Several that are missing for one reason are said at once.
    let mut lines: Vec<(Vec<&str>, String)> = Vec::new();
    for (name, reason) in missing {
        match lines.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => names.push(name),
            None => lines.push((vec![name], reason)),
        }
    }
    let all = lines.iter().map(|(names, _)| names.len()).sum::<usize>() == names.len();
    if all {
        scene.hatch((super::LEFT, panel.top), (super::RIGHT, panel.bottom), Palette::GRID);
    }
    let room = super::RIGHT - super::LEFT - 60;
    let rows = ((panel.bottom - panel.top) / 36).max(1) as usize;
    let middle = (panel.top + panel.bottom) / 2 - (lines.len().min(rows) as i32 - 1) * 18 + KEY_EM / 3;
    for (index, (names, reason)) in lines.into_iter().take(rows).enumerate() {
        let text = font::fit(&format!("{} not measured: {reason}", names.join(", ")), KEY_EM, room);
        let (at, side) = match all {
            true => (((super::LEFT + super::RIGHT) / 2, middle + 36 * index as i32), Side::Middle),
            // Below the highest level, which is a tenth of the panel under its top.
            false => {
                ((super::LEFT + 20, panel.top + 52.max((panel.bottom - panel.top) / 4) + 36 * index as i32), Side::Left)
            }
        };
        notes.push(Text { at, side, em: KEY_EM, colour: Palette::GREY, text });
    }
}

/// Says why there is no rate though there are values.
fn too_few(notes: &mut Vec<Text>, shown: &Shown, panel: Panel, metric: Metric, nothing: bool) {
    if nothing && never(shown.run, &shown.samples, metric).is_none() {
        let at = ((super::LEFT + super::RIGHT) / 2, (panel.top + panel.bottom) / 2 + KEY_EM / 3);
        let text = "too few samples for a rate".to_owned();
        notes.push(Text { at, side: Side::Middle, em: KEY_EM, colour: Palette::GREY, text });
    }
}

/// A text on a piece of paper, to be read over what lies behind it.
pub fn note(scene: &mut Scene, text: Text) {
    let (left, top, right, bottom) = text.bounds();
    scene.rect((left - 8, top - 5), (right + 8, bottom + 4), Colour(0xffffff, 0.85));
    scene.shapes.push(super::scene::Shape::Text(text));
}

/// How much of the payload was resident at each mark, beside its line, where there is room.
pub fn values_at_marks(scene: &mut Scene, table: &StageTable, axis: &TimeAxis, panel: &Panel, scale: &ValueAxis) {
    let em = KEY_EM;
    let lines: Vec<i32> = table.reached().filter_map(|row| Some(axis.x(row.at()?.0))).collect();
    let mut taken: Vec<(i32, i32, i32, i32)> = Vec::new();
    let mut said = String::new();
    for (row, &x) in table.reached().zip(&lines) {
        let Some(resident) = row.values.get(Metric::ResidentPayloadBytes) else { continue };
        let y = scale.y(resident as f64);
        let text = format!("{} resident", units::bytes(resident));
        let width = font::width(&text, em);
        // Below a level that is high, above one that is low: so that the line itself stays seen.
        let level = if y < (panel.top + panel.bottom) / 2 { y + em + 16 } else { y - 16 };
        let places = [(x + 18, level), (x - 18 - width, level), (x + 18, level - 44), (x - 18 - width, level - 44)];
        let place = places.into_iter().find_map(|(left, baseline)| {
            let text = Text { at: (left, baseline), side: Side::Left, em, colour: Palette::INK, text: text.clone() };
            let room = text.bounds();
            let free = axis.left < room.0 - 8
                && room.2 + 8 < axis.right
                && panel.top < room.1
                && lines.iter().all(|line| *line < room.0 - 8 || room.2 + 8 < *line)
                && taken.iter().all(|other| {
                    room.2 + 12 < other.0 || other.2 + 12 < room.0 || room.3 < other.1 || other.3 < room.1
                });
            free.then_some((text, room))
        });
        if text != said
            && let Some((text, room)) = place
        {
            taken.push(room);
            said = text.text.clone();
            note(scene, text);
        }
        scene.rect((x - 7, y - 7), (x + 7, y + 7), Palette::PAPER);
        scene.rect((x - 5, y - 5), (x + 5, y + 5), Palette::BLUE);
    }
}
