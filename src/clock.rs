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
