//! What stood after the stopping event, when loading is over: the level that device memory kept for the longest time
//! between two samples that know it, up to the end of the launch. Not its last one: a launch that ends gives its memory
//! back first.

use std::collections::HashMap;

use super::StageRow;
use crate::clock::At;
use crate::metric::Metric;
use crate::run::Run;
use crate::sample::Sample;
use crate::stage::is_over;

/// What is told of.
pub const STEADY: [Metric; 3] = [Metric::DeviceUsedBytes, Metric::DeviceLaunchBytes, Metric::DeviceRiseBytes];

/// The levels after the stopping event, at its row; none at another's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steady {
    levels: Vec<(Metric, u64)>,
    /// Why there is none.
    pub reason: String,
}

impl Steady {
    /// At the row of the stopping event, which was at `stop`.
    pub fn after(run: &Run, stop: At) -> Steady {
        let after = run.samples.iter().filter(|sample| sample.t > stop && !is_over(sample));
        let after: Vec<&Sample> = after.collect();
        let levels: Vec<(Metric, u64)> =
            STEADY.into_iter().filter_map(|metric| Some((metric, longest(&after, metric)?))).collect();
        let reason = match (levels.is_empty(), after.is_empty()) {
            (false, _) => "",
            (true, true) => "nothing of the launch was looked at after the stopping event",
            (true, false) => "no figure of device memory after the stopping event",
        };
        Steady { levels, reason: reason.to_owned() }
    }

    /// At another row.
    pub fn elsewhere(has_stopping_event: bool) -> Steady {
        let reason = match has_stopping_event {
            true => "at the stopping event's row alone",
            false => "no stopping event was reached",
        };
        Steady { levels: Vec::new(), reason: reason.to_owned() }
    }

    pub fn level(&self, metric: Metric) -> Option<u64> {
        self.levels.iter().find(|(of, _)| *of == metric).map(|(_, level)| *level)
    }
}

impl StageRow {
    /// The largest sample up to the stopping event less what stood after it: what loading took for a while. Less than
    /// nothing where more was taken only afterwards. At least this: between two samples there may have been more.
    pub fn peak_over_steady(&self, metric: Metric) -> Option<i64> {
        let peak = self.peak(metric)?.low?;
        i64::try_from(i128::from(peak) - i128::from(self.steady.level(metric)?)).ok()
    }
}

/// The value that stood for the longest time in all, each from the sample that first knows it to the next that knows
/// any; of several the later.
fn longest(samples: &[&Sample], metric: Metric) -> Option<u64> {
    let known: Vec<(At, u64)> =
        samples.iter().filter_map(|sample| Some((sample.t, sample.values.get(metric)?))).collect();
    let mut stood: HashMap<u64, (u64, At)> = HashMap::new();
    for (index, (t, level)) in known.iter().enumerate() {
        let end = known.get(index + 1).map_or(*t, |(next, _)| *next);
        let (time, last) = stood.entry(*level).or_insert((0, *t));
        *time = time.saturating_add(end.0.saturating_sub(t.0).unsigned_abs());
        *last = *t;
    }
    stood.into_iter().max_by_key(|(_, held)| *held).map(|(level, _)| level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Values;

    fn sample(t: i64, device: Option<u64>) -> Sample {
        let mut values = Values::ABSENT;
        values.set(Metric::DeviceLaunchBytes, device);
        Sample { t: At(t), late_ns: 0, cost_ns: 0, values }
    }

    #[test]
    fn the_level_that_stood_longest_is_the_steady_one() {
        let of = |all: &[(i64, Option<u64>)]| {
            let samples: Vec<Sample> = all.iter().map(|(t, device)| sample(*t, *device)).collect();
            longest(&samples.iter().collect::<Vec<_>>(), Metric::DeviceLaunchBytes)
        };
        // Given back before the end, and a look that knows nothing between.
        assert_eq!(
            of(&[(0, Some(9)), (10, Some(5)), (20, None), (30, Some(5)), (40, Some(1)), (41, Some(0))]),
            Some(5)
        );
        // It stood twice.
        assert_eq!(of(&[(0, Some(5)), (10, Some(9)), (25, Some(5)), (35, Some(0))]), Some(5));
        assert_eq!(of(&[(0, Some(3))]), Some(3));
        assert_eq!(of(&[(0, Some(3)), (5, Some(4)), (10, Some(4))]), Some(4), "the later of two");
        assert_eq!(of(&[(0, None)]), None);
    }
}
