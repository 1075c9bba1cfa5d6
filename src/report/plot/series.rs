//! Samples → lines of pixels. What is absent is a gap. Many samples in one column of pixels keep the first, the
//! smallest, the largest and the last, so that no peak is lost however long the run.

use crate::clock::At;
use crate::event::What;
use crate::metric::{Metric, Values};
use crate::run::Run;
use crate::sample::Sample;
use crate::stage::is_over;

/// What the panels draw: of these no peak may be lost.
const DRAWN: [Metric; 13] = [
    Metric::PayloadBytes,
    Metric::MappedPayloadBytes,
    Metric::ResidentPayloadBytes,
    Metric::RssBytes,
    Metric::RssAnonBytes,
    Metric::RssFileBytes,
    Metric::RssShmemBytes,
    Metric::DeviceUsedBytes,
    Metric::DeviceLaunchBytes,
    Metric::MinorFaults,
    Metric::MajorFaults,
    Metric::RcharBytes,
    Metric::ReadBytes,
];

/// Figures that are known in some samples only, between two answers of a driver: that is no gap.
const NOW_AND_THEN: [Metric; 2] = [Metric::DeviceUsedBytes, Metric::DeviceLaunchBytes];

/// So many beginnings and ends of a figure's being known are kept in a column.
const FLIPS: usize = 16;

/// Far fewer samples that look the same, thinned to columns of pixels. A rate is then at least one over a column.
pub fn thin(samples: &[Sample], x: impl Fn(i64) -> i32) -> Vec<Sample> {
    kept(samples, |index| x(samples[index].t.0)).into_iter().map(|index| samples[index].clone()).collect()
}

/// The indices of far fewer samples that look the same, in order: of each column the first and the last, those with the
/// smallest and the largest value of each figure that is drawn, and those where a figure begins or ceases to be known.
pub fn kept(samples: &[Sample], column_of: impl Fn(usize) -> i32) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    let mut begin = 0;
    while begin < samples.len() {
        let column = column_of(begin);
        // A file can hold samples out of order: those belong to the column that they stand in.
        let end = (begin + 1..samples.len()).find(|&index| column_of(index) > column).unwrap_or(samples.len());
        kept.extend([begin, end - 1]);
        let mut smallest = [(u64::MAX, begin); DRAWN.len()];
        let mut largest = [(0, begin); DRAWN.len()];
        let (mut before, mut flips) = (None, 0);
        for (index, sample) in samples.iter().enumerate().take(end).skip(begin) {
            let mut known = 0u32;
            for (place, metric) in DRAWN.into_iter().enumerate() {
                let Some(value) = sample.values.get(metric) else { continue };
                known |= u32::from(!NOW_AND_THEN.contains(&metric)) << place;
                if value < smallest[place].0 {
                    smallest[place] = (value, index);
                }
                if value > largest[place].0 {
                    largest[place] = (value, index);
                }
            }
            if flips < FLIPS && before.is_some_and(|before| before != known) {
                kept.extend([index - 1, index]);
                flips += 1;
            }
            before = Some(known);
        }
        kept.extend(smallest.iter().chain(&largest).map(|(_, index)| *index));
        begin = end;
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// When the launch's last process ended, as far as events tell.
pub fn end(run: &Run) -> Option<At> {
    let ends = run.events.iter().filter(|event| matches!(event.what, What::Exit { .. } | What::Gone { .. }));
    ends.map(|event| event.at).max()
}

/// What processes hold, held until they are gone: between the last sample with any and the first without, what is drawn
/// [`at_the_end`]. The slow samples after the stopping event would else show a slope from the one to the other.
pub fn held_to_the_end(samples: &[Sample], end: Option<At>) -> Vec<Sample> {
    let mut held: Vec<Sample> = Vec::with_capacity(samples.len() + 2);
    for sample in samples {
        let dropped = held.last().map(|before| at_the_end(before, sample, end)).unwrap_or_default();
        held.extend(dropped);
        held.push(sample.clone());
    }
    held
}

/// What is drawn between the last sample of living processes and the first of none, and is no sample: what they held, once
/// more at their end, and there nothing. Where the end is not known to be between the two, it is at the second.
/// What is not theirs is as it would be without: their files in memory on the straight line between the two, the rest as
/// before. Counters, which end with them, have their last values.
pub fn at_the_end(before: &Sample, after: &Sample, end: Option<At>) -> Vec<Sample> {
    if is_over(before) || !is_over(after) {
        return Vec::new();
    }
    let at = end.filter(|end| before.t < *end && *end <= after.t).unwrap_or(after.t);
    let mut last = Sample { t: at, ..before.clone() };
    for metric in Metric::counters() {
        last.values.set(metric, after.values.get(metric));
    }
    let resident = |sample: &Sample| Some(sample.values.get(Metric::ResidentPayloadBytes)? as f64);
    let joined = resident(before)
        .zip(resident(after))
        .map(|(from, to)| between((before.t.0, from), (after.t.0, to), at.0).round() as u64);
    last.values.set(Metric::ResidentPayloadBytes, joined);
    if at == after.t {
        return vec![last];
    }
    let mut nothing = Sample { t: at, ..after.clone() };
    for metric in [Metric::PayloadBytes, Metric::ResidentPayloadBytes, Metric::DeviceUsedBytes] {
        nothing.values.set(metric, last.values.get(metric));
    }
    vec![last, nothing]
}

/// Samples as far as something lived, for what is drawn of the time that led to a sample: nothing leads beyond the end.
pub fn until_the_end(held: &[Sample], end: Option<At>) -> &[Sample] {
    let alive = held.iter().rposition(|sample| !is_over(sample));
    match alive.zip(end) {
        Some((last, end)) if held[last].t == end => &held[..=last],
        _ => held,
    }
}

/// The value at a time on the straight line between two points.
fn between((from, value): (i64, f64), (to, next): (i64, f64), t: i64) -> f64 {
    let done = t.saturating_sub(from) as f64 / (to.saturating_sub(from) as f64).max(1.0);
    value + (next - value) * done.clamp(0.0, 1.0)
}

/// After more ticks than that without a sample, it is no matter of a late one.
const PAUSE: u64 = 10;

/// The spans far longer than the tick asked for over which no sample was taken, as after the stopping event: lines there
/// only join what is at their ends.
pub fn pauses(run: &Run) -> Vec<(At, At)> {
    let least = i64::try_from(run.meta.interval_ns.saturating_mul(PAUSE)).unwrap_or(i64::MAX).max(1);
    let pairs = run.samples.windows(2).map(|pair| (pair[0].t, pair[1].t));
    pairs.filter(|(from, to)| to.0.saturating_sub(from.0) > least).collect()
}

/// A part of a whole, of which the samples know less often than of the whole: where one of them knows the whole alone, the
/// part is no more than that, and so it is drawn no higher.
pub fn held_within(samples: &[Sample], part: Metric, whole: Metric) -> Vec<Sample> {
    let mut last: Option<u64> = None;
    let bounded = samples.iter().map(|sample| {
        let mut sample = sample.clone();
        match (sample.values.get(part), sample.values.get(whole), last) {
            (None, Some(most), Some(before)) if before > most => {
                sample.values.set(part, most);
                last = Some(most);
            }
            (Some(known), ..) => last = Some(known),
            _ => {}
        }
        sample
    });
    bounded.collect()
}

/// Values at times, without a gap between the first and the last.
pub type Stretch = Vec<(i64, f64)>;

/// The stretches over which a figure is known.
pub fn stretches(samples: &[Sample], figure: impl Fn(&Values) -> Option<u64>) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut open = false;
    for sample in samples {
        match figure(&sample.values) {
            Some(value) => {
                if !open {
                    stretches.push(Vec::new());
                }
                open = true;
                if let Some(stretch) = stretches.last_mut() {
                    stretch.push((sample.t.0, value as f64));
                }
            }
            None => open = false,
        }
    }
    stretches
}

/// The spans between samples over which a figure is not known, though samples were taken.
pub fn gaps(samples: &[Sample], figure: impl Fn(&Values) -> Option<u64>) -> Vec<(At, At)> {
    let mut gaps: Vec<(At, At)> = Vec::new();
    let mut known_until: Option<At> = None;
    let mut open = false;
    for sample in samples {
        let known = figure(&sample.values).is_some();
        match (known, open) {
            (false, false) => gaps.push((known_until.unwrap_or(sample.t), sample.t)),
            (_, true) => {
                if let Some(gap) = gaps.last_mut() {
                    gap.1 = sample.t;
                }
            }
            (true, false) => {}
        }
        open = !known;
        if known {
            known_until = Some(sample.t);
        }
    }
    gaps
}

/// How fast a counter grew, in units a second, as a step at the end of each stretch of time.
///
/// Samples that an event caused may follow another at once; a rate over so short a time is all noise, so intervals are
/// joined until they are at least `least` nanoseconds long. A counter that fell has no rate there.
pub fn rates(samples: &[Sample], counter: Metric, least: i64) -> Vec<Stretch> {
    let mut rates: Vec<Stretch> = Vec::new();
    for stretch in stretches(samples, |values| values.get(counter)) {
        let mut steps: Stretch = Vec::new();
        let mut begin = stretch[0];
        for (index, &(t, value)) in stretch.iter().enumerate().skip(1) {
            if t.saturating_sub(begin.0) < least.max(1) {
                // What is left over at the end belongs to the last interval.
                let rest = index + 1 == stretch.len() && t > begin.0 && value >= begin.1;
                if let Some(from) = steps.len().checked_sub(2).filter(|_| rest).and_then(|place| steps.get(place))
                    && let Some(last) = steps.last().copied()
                {
                    let grown = last.1 * (last.0.saturating_sub(from.0) as f64 / 1e9) + (value - begin.1);
                    let rate = grown / (t.saturating_sub(from.0) as f64 / 1e9);
                    let first = steps.len() == 2;
                    steps.pop();
                    steps.push((t, rate));
                    if first {
                        steps[0].1 = rate;
                    }
                }
                continue;
            }
            if value < begin.1 {
                rates.push(std::mem::take(&mut steps));
            } else {
                let rate = (value - begin.1) / (t.saturating_sub(begin.0) as f64 / 1e9);
                if steps.is_empty() {
                    steps.push((begin.0, rate));
                }
                steps.push((t, rate));
            }
            begin = (t, value);
        }
        rates.push(steps);
    }
    rates.retain(|steps| !steps.is_empty());
    rates
}

/// The largest value of some stretches.
pub fn largest(stretches: &[Stretch]) -> f64 {
    stretches.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max)
}

/// Thins a stretch to what its columns of pixels can show.
pub fn columns(stretch: &[(i64, f64)], x: impl Fn(i64) -> i32) -> Vec<(i32, f64)> {
    let mut thinned: Vec<(i32, f64)> = Vec::new();
    let mut rest = stretch;
    while let Some(&(t, first)) = rest.first() {
        let column = x(t);
        let length = rest.partition_point(|(t, _)| x(*t) <= column).max(1);
        let (here, later) = rest.split_at(length);
        rest = later;
        let mut smallest = 0;
        let mut largest = 0;
        for (index, (_, value)) in here.iter().enumerate() {
            if *value < here[smallest].1 {
                smallest = index;
            }
            if *value > here[largest].1 {
                largest = index;
            }
        }
        let mut last = first;
        thinned.push((column, first));
        for index in [smallest.min(largest), smallest.max(largest), length - 1] {
            if here[index].1 != last {
                last = here[index].1;
                thinned.push((column, last));
            }
        }
    }
    thinned
}

/// How a value leads to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Straight,
    /// It holds until the next.
    Held,
    /// It is of the time that led to it.
    Led,
}

impl Path {
    /// The corners of a line through points.
    pub fn corners(self, points: &[(i32, f64)]) -> Vec<(i32, f64)> {
        match self {
            Path::Straight => points.to_vec(),
            Path::Held => held(points),
            Path::Led => led(points),
        }
    }

    /// What of a stretch lies between two times. A line that goes on beyond is cut there: what comes later is not drawn
    /// at the edge.
    pub fn within(self, stretch: &[(i64, f64)], from: i64, to: i64) -> Stretch {
        let first = stretch.partition_point(|(t, _)| *t < from);
        let last = stretch.partition_point(|(t, _)| *t <= to).max(first);
        let cut = |index: usize, t: i64| {
            let (before, after) = (*stretch.get(index.checked_sub(1)?)?, *stretch.get(index)?);
            let value = match self {
                Path::Straight => between(before, after, t),
                Path::Held => before.1,
                Path::Led => after.1,
            };
            Some((t, value))
        };
        let begin = cut(first, from).filter(|_| stretch.get(first).is_some_and(|(t, _)| *t > from));
        let inside = stretch.get(first..last).unwrap_or_default();
        let end = cut(last, to).filter(|_| stretch.get(last.wrapping_sub(1)).is_some_and(|(t, _)| *t < to));
        begin.into_iter().chain(inside.iter().copied()).chain(end).collect()
    }
}

/// The corners of a line that keeps each value until the next one.
fn held(points: &[(i32, f64)]) -> Vec<(i32, f64)> {
    let mut corners: Vec<(i32, f64)> = Vec::with_capacity(points.len() * 2);
    for &(x, value) in points {
        if let Some(&(_, before)) = corners.last()
            && before != value
        {
            corners.push((x, before));
        }
        corners.push((x, value));
    }
    corners
}

/// The corners of a line in which each value holds back to the one before: a rate is that of the time that led to it.
fn led(points: &[(i32, f64)]) -> Vec<(i32, f64)> {
    let mut corners: Vec<(i32, f64)> = Vec::with_capacity(points.len() * 2);
    for &(x, value) in points {
        if let Some(&(before, last)) = corners.last()
            && last != value
        {
            corners.push((before, value));
        }
        corners.push((x, value));
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[(i64, Option<u64>)]) -> Vec<Sample> {
        let sample = |&(t, value): &(i64, Option<u64>)| {
            let mut values = Values::ABSENT;
            values.set(Metric::MinorFaults, value);
            Sample { t: At(t), late_ns: 0, cost_ns: 0, values }
        };
        values.iter().map(sample).collect()
    }

    #[test]
    fn what_is_absent_is_a_gap() {
        let samples = samples(&[(0, Some(1)), (1, None), (2, None), (3, Some(4)), (4, Some(5)), (5, None)]);
        let figure = |values: &Values| values.get(Metric::MinorFaults);
        assert_eq!(stretches(&samples, figure), [vec![(0, 1.0)], vec![(3, 4.0), (4, 5.0)]]);
        assert_eq!(gaps(&samples, figure), [(At(0), At(3)), (At(4), At(5))]);
    }

    #[test]
    fn a_line_is_cut_at_the_edge() {
        let stretch = [(0, 4.0), (10, 8.0), (20, 0.0)];
        assert_eq!(Path::Held.within(&stretch, 5, 15), [(5, 4.0), (10, 8.0), (15, 8.0)]);
        assert_eq!(Path::Straight.within(&stretch, 5, 15), [(5, 6.0), (10, 8.0), (15, 4.0)]);
        assert_eq!(Path::Led.within(&stretch, 5, 15), [(5, 8.0), (10, 8.0), (15, 0.0)]);
        assert_eq!(Path::Held.within(&stretch, 0, 20), stretch);
        assert_eq!(Path::Held.within(&stretch, 12, 15), [(12, 8.0), (15, 8.0)]);
        assert_eq!(Path::Held.within(&stretch, 21, 30), []);
        assert_eq!(Path::Held.within(&stretch, -9, -1), []);
    }

    #[test]
    fn what_is_left_at_the_end_belongs_to_the_last_interval() {
        let second = 1_000_000_000;
        let samples = samples(&[(0, Some(0)), (second, Some(10)), (2 * second, Some(20)), (5 * second / 2, Some(60))]);
        assert_eq!(
            rates(&samples, Metric::MinorFaults, second),
            [vec![(0, 10.0), (second, 10.0), (5 * second / 2, 50.0 / 1.5)]]
        );
    }

    #[test]
    fn a_part_that_is_not_known_is_no_more_than_the_whole() {
        let whole = [Some(9), Some(9), Some(3), None, Some(5), Some(7)];
        let part = [Some(8), None, None, None, None, Some(6)];
        let samples: Vec<Sample> = std::iter::zip(whole, part)
            .zip(0..)
            .map(|((whole, part), t)| {
                let mut values = Values::ABSENT;
                values.set(Metric::DeviceUsedBytes, whole);
                values.set(Metric::DeviceLaunchBytes, part);
                Sample { t: At(t), late_ns: 0, cost_ns: 0, values }
            })
            .collect();
        let held = held_within(&samples, Metric::DeviceLaunchBytes, Metric::DeviceUsedBytes);
        let part: Vec<_> = held.iter().map(|sample| sample.values.get(Metric::DeviceLaunchBytes)).collect();
        assert_eq!(part, [Some(8), None, Some(3), None, None, Some(6)]);
    }

    #[test]
    fn a_rate_is_never_taken_over_an_instant() {
        let second = 1_000_000_000;
        let samples = samples(&[
            (0, Some(0)),
            (second, Some(10)),
            (second + 1, Some(20)),
            (2 * second, Some(30)),
            (2 * second, Some(30)),
        ]);
        assert_eq!(
            rates(&samples, Metric::MinorFaults, second / 2),
            [vec![(0, 10.0), (second, 10.0), (2 * second, 20.0)]]
        );
    }

    #[test]
    fn a_peak_survives_thinning() {
        let mut stretch: Stretch = (0..100_000).map(|t| (t, 5.0)).collect();
        stretch[51_234].1 = 99.0;
        stretch[51_240].1 = 1.0;
        let thinned = columns(&stretch, |t| (t / 1000) as i32);
        assert!(thinned.len() <= 400);
        assert!(thinned.contains(&(51, 99.0)) && thinned.contains(&(51, 1.0)));
        assert_eq!(held(&[(0, 1.0), (5, 2.0)]), [(0, 1.0), (5, 1.0), (5, 2.0)]);
        assert_eq!(led(&[(0, 1.0), (5, 2.0)]), [(0, 1.0), (0, 2.0), (5, 2.0)]);
    }
}
