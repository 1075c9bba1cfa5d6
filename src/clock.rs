//! Time: nanoseconds on `CLOCK_MONOTONIC`, counted from the exec of the launched command.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment on `CLOCK_MONOTONIC`, in nanoseconds since boot (clock_gettime(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// A moment in nanoseconds since start; negative before the exec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct At(pub i64);

impl Mono {
    /// Now.
    pub fn now() -> Mono {
        // The monotonic clock always exists on Linux; a failure would be a broken kernel.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC exists");
        Mono(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
    }

    /// Nanoseconds from `earlier` to here; 0 if `earlier` is later.
    pub fn since(self, earlier: Mono) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment, `ns` nanoseconds later.
    pub fn plus(self, ns: u64) -> Mono {
        Mono(self.0.saturating_add(ns))
    }
}

/// The wall-clock time now, UTC, RFC 3339 to the millisecond: for people and for names, never for differences.
pub fn now_utc() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Work that is done once in a period, at a place in it that is its own. What is due as soon as a period is over since the
/// last time sooner or later falls due together with all else that is, and one look then pays for everything.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    period_ns: u64,
    phase_ns: u64,
    /// The number of the period that it was last done in.
    done: Option<u64>,
}

/// Whose place is where: no two within a tick of 20 ms of each other. Those of a second lie at 40 or 80 ms of a tenth.
impl Beat {
    pub const PRESSURE: Beat = Beat::new(100_000_000, 0);
    pub const MEMBERSHIP: Beat = Beat::new(100_000_000, 20_000_000);
    pub const WAITS: Beat = Beat::new(100_000_000, 60_000_000);
    pub const NUMBERS_IN_USE: Beat = Beat::new(1_000_000_000, 140_000_000);
    pub const TRUST: Beat = Beat::new(1_000_000_000, 340_000_000);
    pub const MAPS_BESIDE_RECORDS: Beat = Beat::new(1_000_000_000, 540_000_000);
    pub const GROUPS: Beat = Beat::new(1_000_000_000, 740_000_000);
    pub const DEVICE_NODES: Beat = Beat::new(1_000_000_000, 940_000_000);
    pub const MAPS: Beat = Beat::new(200_000_000, 80_000_000);
}

impl Beat {
    /// Once in each `period_ns` of the monotonic clock, from `phase_ns` after its beginning on.
    pub const fn new(period_ns: u64, phase_ns: u64) -> Beat {
        Beat { period_ns, phase_ns, done: None }
    }

    /// Whether it was not done in the period that `now` lies in. It is due at once where it was never done.
    pub fn is_due(&self, now: Mono) -> bool {
        self.done != Some(self.number(now))
    }

    /// It is done now.
    pub fn done(&mut self, now: Mono) {
        self.done = Some(self.number(now));
    }

    /// It is due at once.
    pub fn again(&mut self) {
        self.done = None;
    }

    fn number(&self, now: Mono) -> u64 {
        now.0.saturating_add(self.period_ns - self.phase_ns % self.period_ns) / self.period_ns
    }
}

/// Turns moments into times since start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Mono,
}

impl Clock {
    /// A clock whose zero is `start`.
    pub fn new(start: Mono) -> Clock {
        Clock { start }
    }

    /// The moment of its zero.
    pub fn start(&self) -> Mono {
        self.start
    }

    /// The time since start of a moment.
    pub fn at(&self, moment: Mono) -> At {
        At(moment.0 as i64 - self.start.0 as i64)
    }
}

impl At {
    /// Seconds, for people and axes.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn no_two_fall_due_at_one_tick() {
        let mut beats = [
            Beat::PRESSURE,
            Beat::MEMBERSHIP,
            Beat::WAITS,
            Beat::NUMBERS_IN_USE,
            Beat::TRUST,
            Beat::MAPS_BESIDE_RECORDS,
            Beat::GROUPS,
            Beat::DEVICE_NODES,
            Beat::MAPS,
        ];
        let mut times = [0; 9];
        // Ticks that are late now and then, as they are.
        for tick in 0..500 {
            let now = Mono(7_003 * MS + tick * 20 * MS + tick % 7 * 100_000);
            let due: Vec<usize> = (0..beats.len()).filter(|&index| beats[index].is_due(now)).collect();
            assert!(due.len() <= 1 || tick == 0, "{due:?} at {tick}");
            for index in due {
                beats[index].done(now);
                times[index] += 1;
            }
        }
        // At the first, and as often as a period began in the 9.98 s from 7.003 s on.
        assert_eq!(times, [100, 101, 101, 11, 11, 11, 11, 11, 51]);
    }

    #[test]
    fn where_looks_are_far_apart_each_is_due() {
        let mut beat = Beat::new(100 * MS, 50 * MS);
        for second in 0..5 {
            assert!(beat.is_due(Mono(second * 1_000 * MS)));
            beat.done(Mono(second * 1_000 * MS));
        }
    }
}
