//! What the counters of a run may lack, in words for its end.

use crate::account::unaccounted;
use crate::metric::{Metric, Values};

/// perf counts some faults of every program that `/proc` does not; more than these, and than a hundredth of all, are
/// worth a word although nobody was seen to lose children.
const WORTH_A_WORD: u64 = 1_000;

/// The process probe's own caveats, and behind them the bounds that perf gives for the last values of the run. `reason`
/// says why a metric is absent.
pub fn caveats(mut seen: Vec<String>, last: &Values, reason: impl Fn(Metric) -> String) -> Vec<String> {
    let lost = unaccounted::faults_low(last).unwrap_or(0);
    let all = last.get(Metric::PerfPageFaults).unwrap_or(0);
    if !seen.is_empty() {
        seen.push(format!("the counters of /proc lack, by perf's: {}", unaccounted::told(last, reason)));
    } else if lost > WORTH_A_WORD.max(all / 100) {
        seen.push(format!(
            "perf counted {lost} page faults that are in no counter of /proc: children that the kernel reaped unseen, or \
             faults that a program handles itself; the counters lack {}",
            unaccounted::told(last, reason)
        ));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(proc: u64, perf: u64) -> Values {
        let mut values = Values::ABSENT;
        values.set(Metric::MinorFaults, proc);
        values.set(Metric::MajorFaults, 0);
        values.set(Metric::PerfPageFaults, perf);
        values
    }

    #[test]
    fn a_bound_is_told_where_something_may_be_lacking() {
        let denied = |_| "denied".to_owned();
        assert_eq!(caveats(Vec::new(), &values(5_000, 4_000), denied), [""; 0]);
        assert_eq!(caveats(Vec::new(), &values(500_000, 502_000), denied), [""; 0], "within a hundredth");
        let perf_alone = caveats(Vec::new(), &values(5_000, 9_000), denied);
        assert!(perf_alone[0].contains("perf counted 4000 page faults"), "{perf_alone:?}");
        let seen = caveats(vec!["x".to_owned()], &values(5_000, 4_000), denied);
        assert!(seen.len() == 2 && seen[1].contains("at least 0 faults"), "{seen:?}");
        assert!(seen[1].contains("CPU time that cannot be bounded (denied)"), "{seen:?}");
    }
}
