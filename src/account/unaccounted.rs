//! What `/proc`'s counters may lack, held against the inherited perf counters.
//!
//! Where the kernel reaps a child by itself (its parent ignores SIGCHLD, or set SA_NOCLDWAIT), what it took is in no
//! parent's counters, and one that lived between two looks was never read. The perf counters of the launch are
//! inherited and keep what such a child took. The two differ for other reasons too, and each difference is one bound:
//!
//! - **Faults: at least.** perf misses the faults taken inside get_user_pages and those before the exec, which `/proc`
//!   counts; it sees no fewer of the lost. So what perf counted more is lacking for certain, and more may be. (A program
//!   that handles SIGSEGV, as some runtimes do by design, has faults that only perf counts: they show here too.)
//! - **CPU: at most.** perf counts every nanosecond on a CPU, interrupts and time stolen by a hypervisor included,
//!   from the exec on; `/proc` leaves those out, rounds down to clock ticks, and counts from the fork. So no more
//!   than the difference, and a tick for the time before the exec, is lacking.
//!
//! Faults are read from perf before `/proc` is, and CPU time after it, so that a launch that goes on meanwhile moves
//! neither to the wrong side. Of bytes read and written perf knows nothing: what the lost took of those has no bound.

use crate::metric::{Metric, Values};

/// A clock tick at its usual 100 a second: what the child may have taken between its fork and its exec.
const BEFORE_EXEC_NS: u64 = 10_000_000;

/// Faults of the tree that are in neither `minor_faults` nor `major_faults`: at least so many.
pub fn faults_low(values: &Values) -> Option<u64> {
    let counted = values.get(Metric::MinorFaults)?.checked_add(values.get(Metric::MajorFaults)?)?;
    Some(values.get(Metric::PerfPageFaults)?.saturating_sub(counted))
}

/// CPU time of the tree that is in neither `cpu_user_ns` nor `cpu_system_ns`: at most so much.
pub fn cpu_high_ns(values: &Values) -> Option<u64> {
    let counted = values.get(Metric::CpuUserNs)?.checked_add(values.get(Metric::CpuSystemNs)?)?;
    Some(values.get(Metric::PerfTaskClockNs)?.saturating_add(BEFORE_EXEC_NS).saturating_sub(counted))
}

/// The two bounds in words, or why there are none.
pub fn told(values: &Values, reason: impl Fn(Metric) -> String) -> String {
    let faults = match faults_low(values) {
        Some(faults) => format!("at least {faults} faults"),
        None => format!("faults that cannot be bounded ({})", reason(Metric::PerfPageFaults)),
    };
    let cpu = match cpu_high_ns(values) {
        Some(ns) => format!("at most {:.2} s of CPU time", ns as f64 / 1e9),
        None => format!("CPU time that cannot be bounded ({})", reason(Metric::PerfTaskClockNs)),
    };
    format!("{faults}, {cpu}, and reads and writes that cannot be bounded")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(known: &[(Metric, u64)]) -> Values {
        let mut values = Values::ABSENT;
        known.iter().for_each(|&(metric, value)| values.set(metric, value));
        values
    }

    #[test]
    fn perf_shows_what_proc_lacks() {
        use Metric::*;
        let all = values(&[
            (MinorFaults, 90),
            (MajorFaults, 10),
            (PerfPageFaults, 350),
            (CpuUserNs, 1_000_000_000),
            (CpuSystemNs, 500_000_000),
            (PerfTaskClockNs, 1_730_000_000),
        ]);
        assert_eq!((faults_low(&all), cpu_high_ns(&all)), (Some(250), Some(240_000_000)));
        let text = told(&all, |_| String::new());
        assert!(text.starts_with("at least 250 faults, at most 0.24 s of CPU time, "), "{text}");
        // get_user_pages: perf saw fewer.
        assert_eq!(faults_low(&values(&[(MinorFaults, 9), (MajorFaults, 0), (PerfPageFaults, 4)])), Some(0));
        let none = told(&values(&[(MinorFaults, 9), (MajorFaults, 0)]), |_| "denied".to_owned());
        assert!(none.contains("faults that cannot be bounded (denied)") && none.contains("CPU time that cannot"));
    }
}
