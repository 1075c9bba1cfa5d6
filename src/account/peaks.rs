//! The largest value of a gauge in an interval, as a low and a high bound with a basis.
//!
//! An interval ends with the sample that stands at its mark, and begins with the one that stands at the mark before, or
//! at start; both samples belong to it. A sample is a lower bound of a peak: a level between two samples may have been
//! higher. So of most gauges a peak has a low, the largest sample, and no high: basis `sampled`.
//!
//! # The resident set
//!
//! `rss_high_water_low_bytes` and `rss_high_water_high_bytes` bound what the tree held at any time since start
//! (`src/probe/process/high_water.rs`): the low by the end of the sample's look, the high at any time before the look
//! began. The look at a mark begins when the mark has been heard, so its high holds for the mark. Where the sample that
//! stands at a mark was begun before it, or had no high, a later one's does: what was never exceeded until then was not
//! exceeded before.
//!
//! | over | low | high |
//! |---|---|---|
//! | start → mark | `rss_high_water_low_bytes`, which the largest sample is part of | `rss_high_water_high_bytes` |
//! | mark → mark, the low rose in it | the same: a mark rises when the resident set does | the same |
//! | mark → mark, it did not rise | the largest sample | the same |
//!
//! With `--reset-peaks` the kernel's marks begin anew with an interval, at the reset that follows the sample of the mark
//! before, and `rss_span_high_water_…` is what they came to.
//!
//! The basis is `kernel` where the tree was one process with one image all the time, so that both bounds are its
//! counter with the counter's error; `bounds` where the figures are of several images, or where only a low is known that
//! is more than the largest sample; else `sampled`.
//!
//! Anonymous, file-backed and shared memory are parts of the resident set, and have no marks of their own: their low is
//! the largest sample, and their high is the whole's.
//!
//! # Devices
//!
//! Of the launch's device memory NVML's accounting mode has each process's most on each device, the driver's own figure:
//! with one process it is the peak, with several the largest is a low and their sum a high. Without it the peak is the
//! largest sample.
//!
//! # The control group
//!
//! `cgroup_peak_bytes` is the kernel's own and exact: low and high are both it, in an interval in which it rose; in
//! another the peak lies between the largest sample and it. Its anonymous memory and its page cache are parts of what is
//! charged, and never more than that.

use crate::clock::At;
use crate::event::What;
use crate::metric::{Kind, Metric, Values};
use crate::run::Run;
use crate::sample::Sample;

/// How a peak is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A high-water counter of the kernel, its error in the bounds.
    Kernel,
    /// Low is the largest sample; high is absent.
    Sampled,
    /// Between two figures.
    Bounds,
}

impl Basis {
    /// The word that files have for it.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Kernel => "kernel",
            Basis::Sampled => "sampled",
            Basis::Bounds => "bounds",
        }
    }
}

/// A largest value in an interval, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    pub low: Option<u64>,
    pub high: Option<u64>,
    pub basis: Basis,
}

/// The bases that a metric's peak can have, the best first; none for what has no peaks.
pub fn bases(metric: Metric) -> &'static [Basis] {
    match bounding(metric) {
        _ if !metric.is_gauge() => &[],
        None => &[Basis::Sampled],
        Some(bounding) if bounding.low.is_some() => &[Basis::Kernel, Basis::Bounds, Basis::Sampled],
        Some(_) => &[Basis::Bounds, Basis::Sampled],
    }
}

/// Which columns bound a gauge.
#[derive(Clone, Copy)]
struct Bounding {
    /// The largest level so far was at least this.
    low: Option<Metric>,
    high: Metric,
    /// The same since the last reset.
    span_low: Option<Metric>,
    span_high: Metric,
    /// Whether both are one counter that has no error.
    exact: bool,
}

fn bounding(metric: Metric) -> Option<Bounding> {
    use Metric::*;
    let resident = Bounding {
        low: Some(RssHighWaterLowBytes),
        high: RssHighWaterHighBytes,
        span_low: Some(RssSpanHighWaterLowBytes),
        span_high: RssSpanHighWaterHighBytes,
        exact: false,
    };
    let charged = Bounding {
        low: Some(CgroupPeakBytes),
        high: CgroupPeakBytes,
        span_low: Some(CgroupSpanPeakBytes),
        span_high: CgroupSpanPeakBytes,
        exact: true,
    };
    let part = |whole: Bounding| Bounding { low: None, span_low: None, exact: false, ..whole };
    Some(match metric {
        RssBytes => resident,
        RssAnonBytes | RssFileBytes | RssShmemBytes => part(resident),
        CgroupBytes => charged,
        // Accounting mode's marks are never reset: since the start they bound what was reached since.
        DeviceLaunchBytes => Bounding {
            low: Some(DevicePeakLowBytes),
            high: DevicePeakHighBytes,
            span_low: None,
            span_high: DevicePeakHighBytes,
            exact: false,
        },
        CgroupAnonBytes | CgroupFileBytes => part(charged),
        _ => return None,
    })
}

/// The row before: when its mark was, and the index of its sample.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    pub at: At,
    pub sample: Option<usize>,
}

/// The peaks of a run.
pub struct Peaks<'a> {
    samples: &'a [Sample],
    /// The first sample since start.
    first: usize,
    /// From here on the tree is known to have had more than one process or image.
    several: Option<At>,
    /// When the kernel's marks were reset.
    resets: Vec<At>,
    /// The largest values over the samples before `next`.
    largest: Values,
    next: usize,
}

impl<'a> Peaks<'a> {
    pub fn new(run: &'a Run) -> Peaks<'a> {
        let samples = &run.samples;
        let first = samples.partition_point(|sample| sample.t < At(0));
        let second = |is: fn(&What) -> bool| run.events.iter().filter(|event| is(&event.what)).nth(1);
        let several =
            [second(|what| matches!(what, What::Born { .. })), second(|what| matches!(what, What::Exec { .. }))];
        let resets = run.events.iter().filter(|event| matches!(event.what, What::PeaksReset {}));
        Peaks {
            samples,
            first,
            several: several.into_iter().flatten().map(|event| event.at).min(),
            resets: resets.map(|event| event.at).collect(),
            largest: Values::ABSENT,
            next: first,
        }
    }

    /// Over start → a mark at `at`, at which the sample with this index stands.
    pub fn since_start(&mut self, index: usize, at: At) -> Vec<(Metric, Peak)> {
        // Each sample is looked at once as long as the ends asked for do not fall.
        let largest = if index + 1 < self.next || index < self.first {
            largest(&self.samples[self.first.min(index)..=index])
        } else {
            self.samples[self.next..=index].iter().for_each(|sample| raise(&mut self.largest, &sample.values));
            self.next = index + 1;
            self.largest.clone()
        };
        let peak = |metric| {
            let Some(bounding) = bounding(metric) else { return sampled(largest.get(metric)?) };
            let high = self.later(bounding.high, index, at);
            let low = bounding.low.and_then(|low| largest.get(low));
            self.bounded(bounding, largest.get(metric), low, high)
        };
        Metric::gauges().filter_map(|metric| Some((metric, peak(metric)?))).collect()
    }

    /// Over the mark before → a mark at `at`.
    pub fn span(&self, before: Before, index: usize, at: At) -> Vec<(Metric, Peak)> {
        let begin = self.samples.partition_point(|sample| sample.t < before.at).min(index);
        let within = largest(&self.samples[begin..=index]);
        let until_now = largest(&self.samples[self.first.min(index)..=index]);
        // What had been reached when the interval began: from a look that was begun no earlier.
        let settled = (begin..=index).find(|&place| began(&self.samples[place]) >= before.at);
        let until_then = settled.map(|place| largest(&self.samples[self.first.min(place)..=place]));
        let was_reset = self.was_reset(before, index);
        let peak = |metric| {
            let Some(bounding) = bounding(metric) else { return sampled(within.get(metric)?) };
            let sample = within.get(metric);
            let own = &self.samples[index].values;
            if let (true, Some(high)) = (was_reset, own.get(bounding.span_high)) {
                let low = bounding.span_low.and_then(|low| own.get(low));
                return self.bounded(bounding, sample, low, Some((high, index)));
            }
            let reset_low = bounding.span_low.filter(|_| was_reset).and_then(|low| own.get(low));
            let rose = bounding.low.and_then(|low| {
                let (then, now) = (until_then.as_ref()?.get(low)?, until_now.get(low)?);
                (now > then).then_some(now)
            });
            self.bounded(bounding, sample, rose.max(reset_low), self.later(bounding.high, index, at))
        };
        Metric::gauges().filter_map(|metric| Some((metric, peak(metric)?))).collect()
    }

    /// A high that holds for a mark, and the sample that it is from: this one or the first that has one after it.
    fn later(&self, high: Metric, index: usize, at: At) -> Option<(u64, usize)> {
        let known = |place: usize| Some((self.samples[place].values.get(high)?, place));
        (index..self.samples.len()).filter(|&place| began(&self.samples[place]) >= at).find_map(known)
    }

    /// Whether the marks that a sample shows began anew when the sample of the mark before had been taken.
    fn was_reset(&self, before: Before, index: usize) -> bool {
        let (Some(sample), now) = (before.sample, self.samples[index].t) else { return false };
        let Some(&reset) = self.resets.iter().rfind(|&&reset| reset <= now) else { return false };
        sample < index && self.samples[sample].t <= reset && reset <= self.samples[sample + 1].t
    }

    fn bounded(&self, by: Bounding, sample: Option<u64>, low: Option<u64>, high: Option<(u64, usize)>) -> Option<Peak> {
        let lowest = sample.max(low)?;
        // A sum of parts that were read one after the other may be more than ever was there at once.
        let (high, place) = (high.map(|(high, _)| high.max(lowest)), high.map(|(_, place)| place));
        let one_image =
            || place.is_some_and(|place| self.several.is_none_or(|several| self.samples[place].t < several));
        let basis = match (low, high) {
            (Some(low), Some(high)) if by.exact && low.max(lowest) == high => Basis::Kernel,
            (Some(_), Some(_)) if !by.exact && by.low.is_some() && one_image() => Basis::Kernel,
            (None, None) => Basis::Sampled,
            (Some(low), None) if sample.is_some_and(|sample| sample >= low) => Basis::Sampled,
            _ => Basis::Bounds,
        };
        Some(Peak { low: Some(lowest), high, basis })
    }
}

/// When a sample's look began.
fn began(sample: &Sample) -> At {
    At(sample.t.0.saturating_sub(i64::try_from(sample.cost_ns).unwrap_or(i64::MAX)))
}

fn sampled(low: u64) -> Option<Peak> {
    Some(Peak { low: Some(low), high: None, basis: Basis::Sampled })
}

/// The largest known value of each gauge, and of each column that is itself the largest of something.
fn largest(samples: &[Sample]) -> Values {
    let mut largest = Values::ABSENT;
    samples.iter().for_each(|sample| raise(&mut largest, &sample.values));
    largest
}

fn raise(largest: &mut Values, values: &Values) {
    for (metric, value) in values.iter() {
        if matches!(metric.definition().kind, Kind::Gauge | Kind::HighWater) {
            // None is less than any value.
            largest.set(metric, largest.get(metric).max(value));
        }
    }
}

#[cfg(test)]
mod tests;
