//! The largest value of a gauge in an interval, as a low and a high bound with a basis.
//!
//! A sample is a lower bound of a peak: a level between two samples may have been higher. So a sampled peak has a low
//! and no high. Both ends of the interval belong to it, and so does the mark's own sample.

use crate::clock::At;
use crate::metric::{Metric, Values};
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

/// The largest known value of each gauge.
pub fn largest(samples: &[Sample]) -> Values {
    let mut largest = Values::ABSENT;
    samples.iter().for_each(|sample| raise(&mut largest, &sample.values));
    largest
}

fn raise(largest: &mut Values, values: &Values) {
    for metric in Metric::gauges() {
        // None is less than any value.
        largest.set(metric, largest.get(metric).max(values.get(metric)));
    }
}

pub fn peaks_of(largest: &Values) -> Vec<(Metric, Peak)> {
    Metric::gauges()
        .filter_map(|metric| {
            let low = largest.get(metric)?;
            Some((metric, Peak { low: Some(low), high: None, basis: Basis::Sampled }))
        })
        .collect()
}

/// Peaks over start → a sample, each sample looked at once as long as the ends asked for do not fall.
pub struct RunningPeaks<'a> {
    samples: &'a [Sample],
    first: usize,
    next: usize,
    largest: Values,
}

impl<'a> RunningPeaks<'a> {
    pub fn new(samples: &'a [Sample]) -> RunningPeaks<'a> {
        let first = samples.partition_point(|sample| sample.t < At(0));
        RunningPeaks { samples, first, next: first, largest: Values::ABSENT }
    }

    pub fn to(&mut self, index: usize) -> Vec<(Metric, Peak)> {
        if index + 1 < self.next || index < self.first {
            return peaks_of(&largest(&self.samples[self.first.min(index)..=index]));
        }
        for sample in &self.samples[self.next..=index] {
            raise(&mut self.largest, &sample.values);
        }
        self.next = index + 1;
        peaks_of(&self.largest)
    }
}
