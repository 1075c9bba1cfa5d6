//! Where the data of an interval came from, and what the counters up to its end may lack.

use crate::account::StageRow;
use crate::account::source::{self, Asked, Behind, Openings, Verdict, touched};
use crate::account::unaccounted;
use crate::clock::At;
use crate::metric::{Metric, Values};
use crate::run::Meta;
use crate::sample::Sample;

/// One mark's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Over previous mark → mark; absent without a sample.
    pub source: Option<Verdict>,
    /// Over start → mark.
    pub source_from_start: Option<Verdict>,
    pub unaccounted_faults_low: Option<u64>,
    pub unaccounted_cpu_high_ns: Option<u64>,
}

impl Work {
    /// Of the mark whose values these are; `previous` are the rows before it.
    ///
    /// `samples` are all from start to it; those from `first` on belong to the interval since the previous mark.
    pub fn of(
        meta: &Meta,
        openings: &Openings,
        previous: &[StageRow],
        values: &Values,
        samples: &[Sample],
        first: usize,
    ) -> Work {
        let behind = Behind::of(meta);
        let start = at_start(meta, values);
        let verdict = |before: &Values, began: At, samples: &[Sample]| {
            let asked = Asked::over(before, began, samples, openings);
            source::verdict(before, values, touched(before, samples), asked, &behind)
        };
        let before = previous.last();
        let began = before.and_then(|before| before.sampled).unwrap_or(At(0));
        let source = verdict(before.map_or(&start, |before| &before.values), began, &samples[first..]);
        let parts = previous.iter().filter_map(|row| row.work.source.as_ref()).chain([&source]);
        Work {
            source_from_start: Some(source::over_all(verdict(&start, At(0), samples), parts)),
            source: Some(source.clone()),
            unaccounted_faults_low: unaccounted::faults_low(values),
            unaccounted_cpu_high_ns: unaccounted::cpu_high_ns(values),
        }
    }
}

/// The values at start, as far as they are known: counters are 0, the tree has no file pages yet, and the payload is
/// as resident as it was found before the exec.
fn at_start(meta: &Meta, now: &Values) -> Values {
    let mut values = Values::ABSENT;
    Metric::counters().for_each(|counter| values.set(counter, 0));
    values.set(Metric::RssFileBytes, 0);
    values.set(Metric::PayloadBytes, now.get(Metric::PayloadBytes));
    let resident: Option<u64> = meta.artifacts.iter().map(|artifact| artifact.resident_at_start_bytes).sum();
    values.set(Metric::ResidentPayloadBytes, resident.filter(|_| !meta.artifacts.is_empty()));
    values
}
