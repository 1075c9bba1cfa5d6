//! When to look: the tick, its lateness and cost, and how it adapts so that a run stays bounded.

use crate::clock::Mono;

/// Rows after which the tick doubles for the first time…
const MANY_ROWS: u64 = 500_000;
/// …and again after so many more.
const MORE_ROWS: u64 = 100_000;

/// The share of the time that looking may take, in parts of a hundred, before the tick doubles.
const BUDGET_PERCENT: u64 = 20;
/// Ticks in a row over which that is judged, by their median: a tick that others had the CPU in, or a closer look at a
/// mark, says nothing of the usual one.
const JUDGED: usize = 100;

/// Between ticks after the stopping event.
const STEADY_NS: u64 = 1_000_000_000;

/// The schedule of ticks.
pub struct Pace {
    interval: u64,
    steady: bool,
    planned: Mono,
    rows: u64,
    doubles_at: u64,
    /// Cost of each tick so far, for the percentiles; ns, saturating at 4.29 s.
    costs: Vec<u32>,
    late: u64,
    /// Where in `costs` the ticks begin that were not judged yet.
    judged: usize,
}

/// A tick that is due: how late it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub late_ns: u64,
}

impl Pace {
    /// A schedule whose first tick is due at `now`.
    pub fn new(interval_ns: u64, now: Mono) -> Pace {
        Pace {
            interval: interval_ns.max(100_000),
            steady: false,
            planned: now,
            rows: 0,
            doubles_at: MANY_ROWS,
            costs: Vec::new(),
            late: 0,
            judged: 0,
        }
    }

    /// How long until the next tick; 0 if it is due.
    pub fn wait_ns(&self, now: Mono) -> u64 {
        self.planned.since(now)
    }

    /// The tick, if it is due. Ticks that were missed altogether are not made up for.
    pub fn due(&mut self, now: Mono) -> Option<Due> {
        if now < self.planned {
            return None;
        }
        let late_ns = now.since(self.planned);
        let interval = self.interval();
        if late_ns > interval {
            self.late += 1;
        }
        self.planned = self.planned.plus(interval * (late_ns / interval + 1));
        Some(Due { late_ns })
    }

    /// The time between two ticks now.
    pub fn interval(&self) -> u64 {
        if self.steady { self.interval.max(STEADY_NS) } else { self.interval }
    }

    /// From here on ticks are few: the stopping event was reached.
    pub fn slow_down(&mut self, now: Mono) {
        self.steady = true;
        self.planned = now.plus(self.interval());
    }

    /// Counts a row that was written, and what it took. Says why, if the tick doubled for it.
    pub fn took(&mut self, cost_ns: u64) -> Option<String> {
        self.rows += 1;
        self.costs.push(cost_ns.min(u64::from(u32::MAX)) as u32);
        if self.rows >= self.doubles_at {
            self.doubles_at += MORE_ROWS;
            return Some(self.double(format!("{} rows", self.rows)));
        }
        if self.costs.len() - self.judged == JUDGED {
            let median = percentile(&self.costs[self.judged..], 50);
            self.judged = self.costs.len();
            if median * 100 > self.interval() * BUDGET_PERCENT {
                return Some(self.double(format!("looks that take {} µs", median / 1_000)));
            }
        }
        None
    }

    fn double(&mut self, why: String) -> String {
        self.interval *= 2;
        format!("the tick doubled to {} ms after {why}", self.interval as f64 / 1e6)
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Ticks that began more than one interval late.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The cost that `percent` of the ticks stayed within; 0 without ticks.
    pub fn cost_percentile(&self, percent: usize) -> u64 {
        percentile(&self.costs, percent)
    }
}

/// The value that `percent` of these stay within; 0 without any.
fn percentile(costs: &[u32], percent: usize) -> u64 {
    let mut costs = costs.to_vec();
    if costs.is_empty() {
        return 0;
    }
    let rank = (costs.len() * percent).div_ceil(100).clamp(1, costs.len()) - 1;
    u64::from(*costs.select_nth_unstable(rank).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn ticks_keep_their_grid_and_missed_ones_are_not_made_up_for() {
        let mut pace = Pace::new(20 * MS, Mono(0));
        assert_eq!(pace.due(Mono(0)), Some(Due { late_ns: 0 }));
        assert_eq!(pace.due(Mono(19 * MS)), None);
        assert_eq!(pace.wait_ns(Mono(19 * MS)), MS);
        assert_eq!(pace.due(Mono(21 * MS)), Some(Due { late_ns: MS }));
        assert_eq!(pace.late(), 0);
        assert_eq!(pace.due(Mono(105 * MS)), Some(Due { late_ns: 65 * MS }));
        assert_eq!(pace.late(), 1);
        assert_eq!(pace.wait_ns(Mono(105 * MS)), 15 * MS);
    }

    #[test]
    fn many_rows_double_the_tick() {
        let mut pace = Pace::new(MS, Mono(0));
        let doubled = (0..700_000).filter_map(|_| pace.took(1)).count();
        assert_eq!(doubled, 3);
        assert_eq!(pace.interval(), 8 * MS);
    }

    #[test]
    fn dear_looks_double_the_tick() {
        let mut pace = Pace::new(MS, Mono(0));
        let doubled = (0..100).filter_map(|_| pace.took(MS)).count();
        assert_eq!(doubled, 1);
        assert_eq!(pace.interval(), 2 * MS);
    }

    #[test]
    fn percentiles_are_ranks() {
        let mut pace = Pace::new(MS, Mono(0));
        assert_eq!(pace.cost_percentile(50), 0);
        (1..=100).for_each(|cost| drop(pace.took(cost)));
        assert_eq!((pace.cost_percentile(50), pace.cost_percentile(99)), (50, 99));
    }
}
