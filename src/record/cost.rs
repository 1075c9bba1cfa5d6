//! What the profiling itself takes: CPU time from the beginning of the launch's preparation, and memory.

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

use crate::launch::Helpers;
use crate::proc::text::Memory;
use crate::run::meta::Cost;

/// Counts from its making.
pub struct Meter {
    before_ns: u64,
    helpers: Helpers,
}

impl Meter {
    /// Whatever this process did before is not of the launch.
    pub fn begin() -> Meter {
        Meter { before_ns: cpu_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID), helpers: Helpers::default() }
    }

    /// Counts these processes too, from their own beginning.
    pub fn count_in(&mut self, helpers: Helpers) {
        self.helpers = helpers;
    }

    /// The cost so far but for what only the schedule of ticks knows. To be asked by the recorder's own thread.
    pub fn read(&self) -> Cost {
        let helpers = self.helpers.cpu_ns();
        let own = cpu_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(self.before_ns);
        Cost {
            cpu_ns: own + helpers,
            recorder_cpu_ns: Some(cpu_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)),
            helper_cpu_ns: Some(helpers),
            peak_rss_bytes: peak_rss(),
            ..Cost::default()
        }
    }
}

fn cpu_ns(clock: ClockId) -> u64 {
    // Both clocks exist since Linux 2.6.12.
    let time = clock_gettime(clock).expect("CPU-time clocks exist");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// VmHWM. getrusage(2) would tell of the program too that this process was before its exec; it is what is left where
/// `/proc` cannot be read.
fn peak_rss() -> u64 {
    let memory = std::fs::read("/proc/self/status").ok().and_then(|text| Memory::parse(&text));
    memory.map(|memory| memory.peak_rss).unwrap_or_else(|| {
        getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() {
        let begun = cpu_ns(ClockId::CLOCK_THREAD_CPUTIME_ID);
        while cpu_ns(ClockId::CLOCK_THREAD_CPUTIME_ID) - begun < 5_000_000 {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn what_was_done_before_is_not_counted_and_other_threads_are() {
        std::thread::spawn(|| {
            work();
            let meter = Meter::begin();
            std::thread::spawn(work).join().unwrap();
            let cost = meter.read();
            let recorder = cost.recorder_cpu_ns.unwrap();
            assert!(cost.cpu_ns >= 5_000_000, "the other thread's work: {cost:?}");
            assert!((5_000_000..1_000_000_000).contains(&recorder), "this thread's own: {cost:?}");
            assert_eq!(cost.helper_cpu_ns, Some(0));
            assert!(cost.peak_rss_bytes > 0);
        })
        .join()
        .unwrap();
    }
}
