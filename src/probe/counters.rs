//! Inherited perf counters: they count the whole tree, the dead that nobody waited for included.
//!
//! Opened disabled on the thread that will start the command, with `inherit` and `enable_on_exec` (perf_event_open(2)):
//! the child gets them with its fork, and they count from its exec on. The profiler itself, which never execs, is not
//! counted.

use perf_event_open::config::{Cpu, Inherit, OnExecve, Opts, Proc};
use perf_event_open::count::Counter;
use perf_event_open::event::sw::Software;

use super::Reading;
use crate::metric::Metric;

/// The two counters, or why there is none.
pub struct Counters {
    faults: Result<Counter, String>,
    clock: Result<Counter, String>,
}

impl Counters {
    /// Opens them on the calling thread, which must be the one that starts the command. Whatever else it starts from
    /// here on would be counted too if it execs, so the profiler's own helpers come before.
    pub fn open() -> Counters {
        // Without the kernel's faults those of read() into fresh memory are missing, which are most of a loader's that
        // reads: no count is better than that one.
        let faults = open(Software::PageFault, false).map_err(|reason| match open(Software::PageFault, true) {
            Ok(_) => format!(
                "only faults in user mode may be counted ({}), which misses those of read(2)",
                paranoid().unwrap_or(reason)
            ),
            Err(_) => reason,
        });
        // A task's clock runs in both modes, whatever is excluded.
        let clock = open(Software::TaskClock, false).or_else(|_| open(Software::TaskClock, true));
        Counters { faults, clock }
    }

    /// The counts of the whole tree since the exec.
    pub fn read(&self) -> Reading {
        self.read_those(&[Metric::PerfPageFaults, Metric::PerfTaskClockNs])
    }

    /// The faults alone: to be read before `/proc`'s counters, so that what perf has more of them is not what came
    /// between (see [`crate::account::unaccounted`]).
    pub fn faults(&self) -> Reading {
        self.read_those(&[Metric::PerfPageFaults])
    }

    /// The time on CPUs alone: to be read after `/proc`'s counters.
    pub fn clock(&self) -> Reading {
        self.read_those(&[Metric::PerfTaskClockNs])
    }

    fn read_those(&self, metrics: &[Metric]) -> Reading {
        let mut reading = Reading::default();
        let counters = [(Metric::PerfPageFaults, &self.faults), (Metric::PerfTaskClockNs, &self.clock)];
        for (metric, counter) in counters.into_iter().filter(|(metric, _)| metrics.contains(metric)) {
            let count = counter.as_ref().map_err(String::clone).and_then(|counter| {
                counter
                    .stat()
                    .map(|stat| stat.count)
                    .map_err(|error| format!("the perf counter cannot be read: {error}"))
            });
            match count {
                Ok(count) => reading.values.set(metric, count),
                Err(reason) => reading.absences.push((metric, reason)),
            }
        }
        reading
    }
}

fn open(event: Software, exclude_kernel: bool) -> Result<Counter, String> {
    let mut options = Opts { inherit: Some(Inherit::NewChild), on_execve: Some(OnExecve::Enable), ..Opts::default() };
    options.exclude.kernel = exclude_kernel;
    options.exclude.hv = exclude_kernel;
    Counter::new(event, (Proc::CURRENT, Cpu::ALL), &options).map_err(|error| match paranoid() {
        Some(paranoid) => format!("perf_event_open: {error} ({paranoid})"),
        None => format!("perf_event_open: {error}; this kernel has no perf events"),
    })
}

/// The kernel's setting, in its own words.
fn paranoid() -> Option<String> {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    Some(format!("kernel.perf_event_paranoid is {}", level.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_child_is_counted_and_this_process_is_not() {
        let counters = Counters::open();
        let before = counters.read();
        // Touches memory here, which must not show.
        let touched: u64 = vec![1u8; 16 << 20].iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(touched, 16 << 20);
        let after = counters.read();
        for metric in [Metric::PerfPageFaults, Metric::PerfTaskClockNs] {
            assert_eq!(before.values.get(metric), after.values.get(metric));
            let known = before.values.get(metric).is_some();
            assert_ne!(known, before.absences.iter().any(|(absent, reason)| *absent == metric && !reason.is_empty()));
        }
        // The grandchild's parent does not wait for it, and it outlives that parent.
        let script = "(head -c 8M /dev/zero | tr '\\0' x | sort >/dev/null) & exit 0";
        assert!(Command::new("sh").args(["-c", script]).output().unwrap().status.success());
        let counted = counters.read();
        for metric in [Metric::PerfPageFaults, Metric::PerfTaskClockNs] {
            if let (Some(before), Some(counted)) = (after.values.get(metric), counted.values.get(metric)) {
                assert!(counted > before, "{metric:?} {before} {counted}");
            }
        }
    }
}
