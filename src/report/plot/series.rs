//! Samples → lines of pixels. What is absent is a gap. Many samples in one column of pixels keep the first, the
//! smallest, the largest and the last, so that no peak is lost however long the run.

use crate::clock::At;
use crate::metric::{Metric, Values};
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

/// What processes hold, held until they are gone: before the first sample without any, the last one with some stands
/// once more. The slow samples after the stopping event would else show a slope from the one to the other.
pub fn held_to_the_end(samples: &[Sample]) -> Vec<Sample> {
    let mut held: Vec<Sample> = Vec::with_capacity(samples.len() + 1);
    for sample in samples {
        let before = held.last().filter(|before| is_over(sample) && !is_over(before));
        if let Some(last) = before.map(|before| Sample { t: sample.t, ..before.clone() }) {
            held.push(last);
        }
        held.push(sample.clone());
    }
    held
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
        for &(t, value) in &stretch[1..] {
            if t.saturating_sub(begin.0) < least.max(1) {
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

/// The corners of a line that keeps each value until the next one.
pub fn held(points: &[(i32, f64)]) -> Vec<(i32, f64)> {
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
pub fn led(points: &[(i32, f64)]) -> Vec<(i32, f64)> {
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
