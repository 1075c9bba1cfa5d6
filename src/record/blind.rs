//! A host on which `/proc` shows no process: not mounted, or another PID namespace's.
//!
//! The tree then looks as if it were empty, and sums over an empty tree are 0. What they would be is not known.

use std::sync::LazyLock;

use crate::metric::{self, Metric, Values};
use crate::probe::Absences;

/// Why no process can be looked at; `None` where this one can.
static BLIND: LazyLock<Option<String>> = LazyLock::new(|| {
    let own = std::fs::read_to_string("/proc/self/stat");
    let own_pid = own.as_ref().ok().and_then(|stat| stat.split(' ').next()?.parse().ok());
    match own {
        _ if own_pid == Some(std::process::id()) => None,
        Ok(_) => Some("/proc is another PID namespace's, so that it shows other processes".to_owned()),
        Err(error) => Some(format!("/proc does not show this host's processes: {error}")),
    }
});

/// What to tell of it, where it is so.
pub fn warning() -> Option<String> {
    BLIND.as_ref().map(|why| format!("nothing of the launch's processes can be seen: {why}"))
}

/// Takes back what came of looking at processes that cannot be seen.
pub fn withdraw(values: &mut Values, absences: &mut Absences) {
    let Some(why) = BLIND.as_ref() else { return };
    for metric in metric::ALL.iter().copied().filter(|metric| !stands_without_processes(*metric)) {
        values.set(metric, None);
        absences.retain(|(absent, _)| *absent != metric);
        absences.push((metric, why.clone()));
    }
}

/// Whether a metric is of files, of counters that the kernel hands down to children, of devices, groups or the host,
/// whose own probes say whether they could be had.
fn stands_without_processes(metric: Metric) -> bool {
    use Metric::*;
    let elsewhere = ["perf_", "device_", "cgroup_", "storage_", "pressure_", "host_"];
    let of_files = [
        Artifacts,
        PayloadBytes,
        ResidentPayloadBytes,
        NonresidentPayloadBytes,
        ResidentStaleNs,
        ArtifactResidentBytes,
    ];
    of_files.contains(&metric) || elsewhere.iter().any(|prefix| metric.name().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_processes_does_not_stand_without_them() {
        for metric in [Metric::Processes, Metric::RssBytes, Metric::MinorFaults, Metric::MappedBytes, Metric::RunWaitNs]
        {
            assert!(!stands_without_processes(metric), "{metric:?}");
        }
        assert!(stands_without_processes(Metric::PerfPageFaults) && stands_without_processes(Metric::PayloadBytes));
    }

    #[test]
    fn here_nothing_is_taken_back() {
        let (mut values, mut absences) = (Values::ABSENT, Vec::new());
        values.set(Metric::RssBytes, 5);
        withdraw(&mut values, &mut absences);
        assert_eq!((values.get(Metric::RssBytes), absences.len(), warning()), (Some(5), 0, None));
    }
}
