//! What the interactive timeline is drawn from, as one JSON object: columns of samples, what each panel shows, and the
//! marks.
//!
//! Few samples are all there. Of many those are kept that a drawing needs ([`series::kept`]), those of the marks, and
//! the largest of each gauge; and where a sample between two kept ones is larger than both, its value stands in
//! `above`. So the largest value and the growth of a counter between two kept samples are those of all samples,
//! whatever was left out, and the page lets an interval end at kept samples and marks alone.
//!
//! Times and values are exact integers, written as differences from the one before, since they repeat themselves.

use std::borrow::Cow;

use serde::Serialize;

use crate::account::StageTable;
use crate::clock::At;
use crate::metric::{Kind, Metric, Unit};
use crate::report::plot::{self, series};
use crate::report::text::plain;
use crate::run::{Run, Scope};
use crate::sample::Sample;

/// Up to so many samples are all kept.
const WHOLE: usize = 4_000;
/// More are put into so many parts of equally many…
const PARTS: usize = 600;
/// … or half as many as long as more than this would be kept.
const MOST: usize = WHOLE;
/// So many devices are drawn, and so many changes of each.
const DEVICES: usize = 16;
const CHANGES: usize = 900;
/// So many stretches without a value are shown.
const GAPS: usize = 200;

/// Gauges whose levels can be had of an interval, in the order in which they are shown.
const GAUGES: [Metric; 22] = [
    Metric::PayloadBytes,
    Metric::MappedBytes,
    Metric::MappedPayloadBytes,
    Metric::ResidentPayloadBytes,
    Metric::NonresidentPayloadBytes,
    Metric::ResidentPayloadLowBytes,
    Metric::RssBytes,
    Metric::RssAnonBytes,
    Metric::RssFileBytes,
    Metric::RssShmemBytes,
    Metric::SwapBytes,
    Metric::PageTableBytes,
    Metric::HugetlbBytes,
    Metric::CgroupBytes,
    Metric::CgroupAnonBytes,
    Metric::CgroupFileBytes,
    Metric::DeviceUsedBytes,
    Metric::DeviceLaunchBytes,
    Metric::DeviceRiseBytes,
    Metric::HostAvailableBytes,
    Metric::Processes,
    Metric::Threads,
];

/// All of it.
#[derive(Serialize)]
struct Data {
    /// Nanoseconds shown at first, and all there are.
    view: (i64, i64),
    all: (i64, i64),
    samples: usize,
    kept: usize,
    t: Vec<i64>,
    /// Rows that are no samples: what was held until the end is drawn until the end.
    drawn_only: Vec<usize>,
    /// Where no sample was taken for many ticks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pauses: Vec<(At, At)>,
    columns: Vec<Column>,
    rates: Vec<Rate>,
    panels: Vec<Panel>,
    marks: Vec<MarkAt>,
}

#[derive(Serialize)]
struct Column {
    name: &'static str,
    unit: &'static str,
    counter: bool,
    values: Vec<Option<i64>>,
    /// A row, and the largest of the samples left out after it where that is larger than both its neighbours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    above: Vec<(usize, u64)>,
}

#[derive(Serialize)]
struct Rate {
    name: &'static str,
    /// A second; of the time that led to the row.
    values: Vec<Option<u64>>,
}

#[derive(Serialize)]
struct MarkAt {
    name: String,
    t: i64,
    uncertainty: Option<u64>,
    stopping: bool,
    /// The row of the sample that stands at it.
    row: Option<usize>,
    /// The first row that belongs to the interval after it.
    first: usize,
}

/// How a series is drawn.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Looks {
    Fill,
    Line,
    Dashes,
}

/// How a value leads to the next.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Path {
    Straight,
    /// It holds until the next.
    Held,
    /// It is of the time that led to it.
    Led,
}

#[derive(Serialize)]
struct Series {
    label: String,
    /// Columns whose sum is drawn; the last one's own value is in the key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sum: Vec<&'static str>,
    /// Drawn where this is known too, and less by it in the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    less: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<&'static str>,
    /// Of a panel with times of its own: rows of it, and values there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    own: Vec<(usize, u64)>,
    looks: Looks,
    path: Path,
    colour: &'static str,
    /// Whether a sample without a value is no gap.
    now_and_then: bool,
}

impl Series {
    fn of(label: &str, sum: &[Metric], looks: Looks, path: Path, colour: &'static str) -> Series {
        Series {
            label: label.to_owned(),
            sum: sum.iter().map(|metric| metric.name()).collect(),
            less: None,
            rate: None,
            own: Vec::new(),
            looks,
            path,
            colour,
            now_and_then: false,
        }
    }

    fn rate(label: &str, metric: Metric, looks: Looks, colour: &'static str) -> Series {
        Series { rate: Some(metric.name()), ..Series::of(label, &[], looks, Path::Led, colour) }
    }
}

#[derive(Serialize)]
struct Panel {
    title: &'static str,
    /// `bytes`, `bytes_per_second`, `per_second`.
    unit: &'static str,
    share: u32,
    /// Times of its own, where it has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    t: Vec<i64>,
    series: Vec<Series>,
    /// What is absent, and why.
    notes: Vec<String>,
    /// Stretches over which what it is about is not known.
    gaps: Vec<(At, At)>,
}

/// The object, with nothing in it that could end a script element.
pub fn json(run: &Run, table: &StageTable) -> serde_json::Result<String> {
    let samples = in_order(&run.samples);
    let (from, to, end) = plot::view(run, table);
    let marks = marks(table, &samples);
    let rows = Rows::of(&samples, &marks, series::end(run));
    let rates = rates(run, &rows);
    let data = Data {
        view: (from.0, to.0),
        all: (from.0, end.max(to).0),
        samples: samples.len(),
        kept: rows.kept.len(),
        t: differences(rows.rows.iter().map(|sample| Some(sample.t.0))).into_iter().flatten().collect(),
        pauses: series::pauses(run).into_iter().take(GAPS).collect(),
        columns: columns(&samples, &rows),
        panels: panels(run, &samples, &rows, &rates),
        rates,
        marks: marks.into_iter().map(|mark| rows.place(mark)).collect(),
        drawn_only: rows.drawn_only,
    };
    let text = serde_json::to_string(&data)?;
    Ok(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

/// A file may hold samples out of order; a line goes forward.
fn in_order(samples: &[Sample]) -> Cow<'_, [Sample]> {
    if samples.is_sorted_by_key(|sample| sample.t) {
        return samples.into();
    }
    let mut samples = samples.to_vec();
    samples.sort_by_key(|sample| sample.t);
    samples.into()
}

/// Marks by the indices of samples.
fn marks(table: &StageTable, samples: &[Sample]) -> Vec<MarkAt> {
    let mark = |row: &crate::account::StageRow| {
        let (at, uncertainty, mark) = row.outcome.mark.as_ref()?;
        let index = row.sampled.map(|sampled| samples.partition_point(|sample| sample.t < sampled));
        let index = index.filter(|index| samples.get(*index).map(|sample| sample.t) == row.sampled);
        let first = samples.partition_point(|sample| sample.t < *at);
        Some(MarkAt {
            name: plain(&mark.stage),
            t: at.0,
            uncertainty: *uncertainty,
            stopping: table.stopping_event.as_ref() == Some(&row.outcome.stage),
            row: index,
            first: index.map_or(first, |index| first.min(index)),
        })
    };
    table.reached().filter_map(mark).collect()
}

/// The samples that are kept, and the rows that are drawn.
struct Rows {
    /// Indices of samples.
    kept: Vec<usize>,
    /// The kept samples, and what is drawn only.
    rows: Vec<Sample>,
    drawn_only: Vec<usize>,
    /// The row of each kept sample.
    places: Vec<usize>,
}

impl Rows {
    fn of(samples: &[Sample], marks: &[MarkAt], end: Option<At>) -> Rows {
        let start = samples.partition_point(|sample| sample.t < At(0));
        let mut always: Vec<usize> = marks.iter().flat_map(|mark| mark.row.into_iter().chain([mark.first])).collect();
        always.extend([start, samples.len().saturating_sub(1)]);
        let kept = kept(samples, &always);
        let mut rows: Vec<Sample> = Vec::with_capacity(kept.len() + 1);
        let (mut drawn_only, mut places) = (Vec::new(), Vec::with_capacity(kept.len()));
        for &index in &kept {
            let sample = &samples[index];
            // The slow samples after the stopping event would else show a slope from what was held to nothing.
            let dropped = rows.last().map(|last| series::at_the_end(last, sample, end)).unwrap_or_default();
            drawn_only.extend(rows.len()..rows.len() + dropped.len());
            rows.extend(dropped);
            places.push(rows.len());
            rows.push(sample.clone());
        }
        Rows { kept, rows, drawn_only, places }
    }

    /// The row of a sample that is kept; the end for one that is not there.
    fn row(&self, index: usize) -> usize {
        self.kept.binary_search(&index).map_or(self.rows.len(), |place| self.places[place])
    }

    fn place(&self, mark: MarkAt) -> MarkAt {
        MarkAt { row: mark.row.map(|index| self.row(index)), first: self.row(mark.first), ..mark }
    }
}

fn kept(samples: &[Sample], always: &[usize]) -> Vec<usize> {
    if samples.len() <= WHOLE {
        return (0..samples.len()).collect();
    }
    let mut parts = PARTS;
    loop {
        let mut kept = series::kept(samples, |index| (index * parts / samples.len()) as i32);
        kept.extend(always.iter().filter(|index| **index < samples.len()));
        kept.sort_unstable();
        kept.dedup();
        if kept.len() <= MOST || parts <= 25 {
            return kept;
        }
        parts /= 2;
    }
}

fn columns(samples: &[Sample], rows: &Rows) -> Vec<Column> {
    let known = |metric: &Metric| rows.rows.iter().any(|sample| sample.values.get(*metric).is_some());
    GAUGES.into_iter().chain(Metric::counters()).filter(known).map(|metric| column(samples, rows, metric)).collect()
}

fn column(samples: &[Sample], rows: &Rows, metric: Metric) -> Column {
    let definition = metric.definition();
    let counter = definition.kind == Kind::Counter;
    let mut above = Vec::new();
    if !counter {
        for (pair, place) in rows.kept.windows(2).zip(&rows.places) {
            let (left, right) = (pair[0], pair[1]);
            let between = samples[left + 1..right].iter().filter_map(|sample| sample.values.get(metric)).max();
            let ends = samples[left].values.get(metric).max(samples[right].values.get(metric));
            above.extend(between.filter(|between| Some(*between) > ends).map(|between| (*place, between)));
        }
    }
    let values = rows.rows.iter().map(|sample| sample.values.get(metric).and_then(|value| i64::try_from(value).ok()));
    let unit = match definition.unit {
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "ns",
        Unit::Count => "count",
    };
    Column { name: metric.name(), unit, counter, values: differences(values), above }
}

/// Each known value less the known one before it.
fn differences(values: impl Iterator<Item = Option<i64>>) -> Vec<Option<i64>> {
    let mut before = 0i64;
    values
        .map(|value| {
            let value = value?;
            // Values of a run folder are at most 2^62 either way.
            let difference = value.saturating_sub(before);
            before = value;
            Some(difference)
        })
        .collect()
}

const RATES: [Metric; 4] = [Metric::MinorFaults, Metric::MajorFaults, Metric::ReadBytes, Metric::RcharBytes];

/// At each row the rate of the time that led to it.
fn rates(run: &Run, rows: &Rows) -> Vec<Rate> {
    let least = plot::least_interval(run);
    RATES
        .into_iter()
        .map(|metric| {
            let stretches = series::rates(series::until_the_end(&rows.rows, series::end(run)), metric, least);
            let mut steps = stretches.iter().flat_map(|stretch| {
                let from = stretch.first().map_or(0, |(t, _)| *t);
                stretch.iter().map(move |&(t, rate)| (from, t, rate))
            });
            let mut step = steps.next();
            let values = rows
                .rows
                .iter()
                .map(|sample| {
                    while step.is_some_and(|(_, t, _)| t < sample.t.0) {
                        step = steps.next();
                    }
                    step.filter(|(from, ..)| *from <= sample.t.0).map(|(.., rate)| rate.round() as u64)
                })
                .collect();
            Rate { name: metric.name(), values }
        })
        .filter(|rate| rate.values.iter().any(Option::is_some))
        .collect()
}

fn panels(run: &Run, samples: &[Sample], rows: &Rows, rates: &[Rate]) -> Vec<Panel> {
    use Metric::*;
    let rated: Vec<&str> = rates.iter().map(|rate| rate.name).collect();
    let known = |metric: Metric| rows.rows.iter().any(|sample| sample.values.get(metric).is_some());
    let mut panels = Vec::new();
    let mut push = |title, unit, share, about: Option<Metric>, series: Vec<Series>, named: &[(Metric, &str)]| {
        let has_values = |series: &Series| {
            let mut names = series.sum.iter().chain(&series.less);
            series.rate.is_some_and(|name| rated.contains(&name))
                || series.rate.is_none() && names.all(|name| Metric::by_name(name).is_some_and(known))
        };
        let series: Vec<Series> = series.into_iter().filter(has_values).collect();
        let mut notes = notes(run, samples, named);
        if series.is_empty() && notes.is_empty() {
            notes.push("too few samples".to_owned());
        }
        let mut gaps = match about.filter(|metric| known(*metric)) {
            Some(metric) => series::gaps(&rows.rows, |values| values.get(metric)),
            None => Vec::new(),
        };
        gaps.truncate(GAPS);
        panels.push(Panel { title, unit, share, t: Vec::new(), series, notes, gaps });
    };
    let mapped = if known(MappedPayloadBytes) { MappedPayloadBytes } else { MappedBytes };
    let mapped_name = if mapped == MappedBytes { "mapped, headers included" } else { "mapped" };
    push(
        "Payload",
        "bytes",
        34,
        Some(ResidentPayloadBytes),
        vec![
            Series {
                less: Some(ResidentPayloadBytes.name()),
                ..Series::of("mapped, not resident", &[mapped], Looks::Fill, Path::Held, "absent")
            },
            Series::of("resident in host memory", &[ResidentPayloadBytes], Looks::Fill, Path::Straight, "sky"),
            Series::of("payload", &[PayloadBytes], Looks::Dashes, Path::Held, "ink"),
            Series::of(mapped_name, &[mapped], Looks::Line, Path::Held, "vermilion"),
        ],
        &[(PayloadBytes, "payload"), (mapped, "mapped"), (ResidentPayloadBytes, "resident payload")],
    );
    push(
        "Resident set of the processes, summed",
        "bytes",
        26,
        Some(RssAnonBytes),
        vec![
            Series::of(
                "shared memory",
                &[RssAnonBytes, RssFileBytes, RssShmemBytes],
                Looks::Fill,
                Path::Straight,
                "purple",
            ),
            Series::of("file-backed", &[RssAnonBytes, RssFileBytes], Looks::Fill, Path::Straight, "sky"),
            Series::of("anonymous", &[RssAnonBytes], Looks::Fill, Path::Straight, "green"),
            Series::of("total", &[RssBytes], Looks::Line, Path::Straight, "ink"),
        ],
        &[
            (RssBytes, "resident set"),
            (RssAnonBytes, "anonymous"),
            (RssFileBytes, "file-backed"),
            (RssShmemBytes, "shared memory"),
        ],
    );
    push(
        "Page faults",
        "per_second",
        16,
        None,
        vec![
            Series::rate("minor", MinorFaults, Looks::Fill, "orange"),
            Series::rate("major (waited for I/O)", MajorFaults, Looks::Line, "vermilion"),
        ],
        &[(MinorFaults, "minor faults"), (MajorFaults, "major faults")],
    );
    push(
        "Reads",
        "bytes_per_second",
        16,
        None,
        vec![
            Series::rate("from storage", ReadBytes, Looks::Fill, "blue"),
            Series::rate("asked for by read()", RcharBytes, Looks::Line, "orange"),
        ],
        &[(ReadBytes, "bytes from storage"), (RcharBytes, "bytes asked for")],
    );
    if let Some(devices) = devices(run, samples, known(DeviceUsedBytes), known(DeviceLaunchBytes)) {
        panels.insert(1, devices);
    }
    panels
}

fn notes(run: &Run, samples: &[Sample], named: &[(Metric, &str)]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for (metric, name) in named {
        let Some(why) = plot::never(run, samples, *metric) else { continue };
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons.into_iter().map(|(why, names)| format!("{}: not known: {why}", names.join(", "))).collect()
}

const COLOURS: [&str; 5] = ["blue", "vermilion", "orange", "purple", "ink"];

/// Device memory: of one device what is in use and the launch's share of it, of several what is in use on each.
fn devices(run: &Run, samples: &[Sample], used: bool, launch: bool) -> Option<Panel> {
    use Metric::{DeviceLaunchBytes, DeviceUsedBytes};
    let devices = &run.meta.devices;
    let counted: Vec<usize> = (0..devices.len()).filter(|&index| devices[index].is_counted).collect();
    if counted.is_empty() || !(used || launch) {
        return None;
    }
    let mut panel = Panel {
        title: "Device memory",
        unit: "bytes",
        share: 24,
        t: Vec::new(),
        series: Vec::new(),
        notes: notes(
            run,
            samples,
            &[(DeviceUsedBytes, "in use on devices"), (DeviceLaunchBytes, "the launch's share of device memory")],
        ),
        gaps: Vec::new(),
    };
    if counted.len() == 1 {
        let series = [
            (launch, Series::of("the launch's", &[DeviceLaunchBytes], Looks::Fill, Path::Held, "green")),
            (used, Series::of("in use", &[DeviceUsedBytes], Looks::Line, Path::Held, "blue")),
        ];
        let series = series.into_iter().filter(|(known, _)| *known);
        panel.series = series.map(|(_, series)| Series { now_and_then: true, ..series }).collect();
        return Some(panel);
    }
    panel.title = "Device memory in use, each device";
    if counted.len() > DEVICES {
        panel.notes.push(format!("{DEVICES} of {} devices are shown; detail.csv has them all", counted.len()));
    }
    let shown = &counted[..counted.len().min(DEVICES)];
    let changes: Vec<Vec<(At, u64)>> = shown.iter().map(|index| changes_of(run, *index)).collect();
    let mut times: Vec<At> = changes.iter().flatten().map(|(at, _)| *at).collect();
    times.sort_unstable();
    times.dedup();
    for ((index, changes), colour) in shown.iter().zip(changes).zip(COLOURS.iter().cycle()) {
        let row = |(at, value)| times.binary_search(&at).ok().map(|row| (row, value));
        let own = changes.into_iter().filter_map(row).collect();
        let label = plain(&devices[*index].label(*index));
        panel.series.push(Series {
            own,
            now_and_then: true,
            ..Series::of(&label, &[], Looks::Line, Path::Held, colour)
        });
    }
    panel.t = differences(times.into_iter().map(|at| Some(at.0))).into_iter().flatten().collect();
    Some(panel)
}

/// What is in use on one device, as `detail.csv` has it; of many changes the smallest and the largest of each stretch.
fn changes_of(run: &Run, index: usize) -> Vec<(At, u64)> {
    let own = run.details.iter().filter(|row| row.scope == Scope::Device(index) && row.metric == "used_bytes");
    let mut changes: Vec<(At, u64)> = own.map(|row| (row.at, row.value)).collect();
    changes.sort_by_key(|(at, _)| *at);
    if changes.len() <= CHANGES {
        return changes;
    }
    let mut thinned = Vec::new();
    for part in changes.chunks(changes.len().div_ceil(CHANGES / 3)) {
        let least = part.iter().min_by_key(|(_, value)| *value);
        let most = part.iter().max_by_key(|(_, value)| *value);
        let mut few: Vec<(At, u64)> = [least, most, part.last()].into_iter().flatten().copied().collect();
        few.sort_unstable();
        few.dedup();
        thinned.extend(few);
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Values;

    fn sample(t: i64, values: &[(Metric, u64)]) -> Sample {
        let mut sample = Sample { t: At(t), late_ns: 0, cost_ns: 0, values: Values::ABSENT };
        values.iter().for_each(|&(metric, value)| sample.values.set(metric, value));
        sample
    }

    /// As the page does it: the largest over kept rows, and what stands above them.
    fn largest(samples: &[Sample], rows: &Rows, metric: Metric, from: usize, to: usize) -> Option<u64> {
        let above = column(samples, rows, metric).above;
        let kept = rows.rows[from..=to].iter().filter_map(|sample| sample.values.get(metric));
        kept.chain(above.into_iter().filter(|(row, _)| (from..to).contains(row)).map(|(_, value)| value)).max()
    }

    #[test]
    fn an_interval_of_kept_samples_has_the_largest_of_all() {
        // A long run of noise, in which some gauges are known now and then only.
        let mut noise = 1u64;
        let mut next = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            noise >> 40
        };
        let samples: Vec<Sample> = (0..50_000)
            .map(|index| {
                let mut sample = sample(index, &[(Metric::RssBytes, next()), (Metric::SwapBytes, next())]);
                sample.values.set(Metric::DeviceUsedBytes, Some(next()).filter(|_| index % 7 == 0));
                sample.values.set(Metric::MinorFaults, index as u64);
                sample
            })
            .collect();
        let rows = Rows::of(&samples, &[], None);
        assert!(rows.kept.len() <= MOST, "{}", rows.kept.len());
        for metric in [Metric::RssBytes, Metric::SwapBytes, Metric::DeviceUsedBytes] {
            for (from, to) in [(0, rows.kept.len() - 1), (17, 18), (100, 103), (1_000, 2_345)] {
                let all = &samples[rows.kept[from]..=rows.kept[to]];
                let true_one = all.iter().filter_map(|sample| sample.values.get(metric)).max();
                assert_eq!(largest(&samples, &rows, metric, from, to), true_one, "{} {from} {to}", metric.name());
            }
        }
    }

    #[test]
    fn a_row_that_is_drawn_only_stands_before_the_end() {
        let samples = [
            sample(0, &[(Metric::RssBytes, 5)]),
            sample(1, &[(Metric::RssBytes, 7)]),
            sample(9, &[(Metric::RssBytes, 0)]),
        ];
        let rows = Rows::of(&samples, &[], None);
        assert_eq!((rows.drawn_only.as_slice(), rows.places.as_slice()), (&[2][..], &[0, 1, 3][..]));
        assert_eq!((rows.rows[2].t, rows.rows[2].values.get(Metric::RssBytes)), (At(9), Some(7)));
        assert_eq!(rows.row(2), 3);
    }

    #[test]
    fn values_are_differences_and_come_back() {
        let values = [Some(5), None, Some(5), Some(2), None, Some(1 << 60)];
        let coded = differences(values.into_iter());
        assert_eq!(coded, [Some(5), None, Some(0), Some(-3), None, Some((1 << 60) - 2)]);
    }
}
