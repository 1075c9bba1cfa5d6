//! What no constructed run shows: figures that are missing, and figures that are as large as a damaged file can have
//! them.

use super::*;
use crate::metric;

fn load(name: &str) -> Run {
    Run::load(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs").join(name)).unwrap()
}

fn rules(run: &Run) -> Vec<&'static str> {
    findings(run, &StageTable::of(run)).iter().map(|finding| finding.rule).collect()
}

const RUNS: [&str; 8] = ["lazy", "serial", "copied", "evicted", "peaks", "random", "overtaken", "untouched"];

/// Without one of the figures that a rule stands on it is silent, and no rule finds what it did not find before: what
/// is absent is never taken for 0.
#[test]
fn without_a_figure_no_rule_finds_more() {
    for name in RUNS {
        let run = load(name);
        let found = rules(&run);
        for &metric in metric::ALL {
            let mut without = run.clone();
            without.samples.iter_mut().for_each(|sample| sample.values.set(metric, None));
            let left = rules(&without);
            assert!(left.iter().all(|rule| found.contains(rule)), "{name} without {}: {left:?}", metric.name());
        }
        let mut without = run.clone();
        without.samples.clear();
        assert_eq!(rules(&without), [""; 0], "{name} without samples");
    }
}

/// Each rule needs both kinds of its evidence.
#[test]
fn one_kind_of_evidence_is_not_enough() {
    use Metric::*;
    let cases = [
        ("lazy", "deferred", vec![MinorFaults]),
        ("lazy", "deferred", vec![ResidentPayloadBytes, RssFileBytes]),
        ("untouched", "deferred", vec![RssFileBytes]),
        ("untouched", "deferred", vec![MappedPayloadBytes]),
        ("lazy", "early-residency", vec![MappedPayloadBytes]),
        ("lazy", "early-residency", vec![ResidentPayloadBytes]),
        ("copied", "copied", vec![MappedPayloadBytes]),
        ("copied", "copied", vec![RssFileBytes]),
        ("copied", "copied", vec![RssAnonBytes]),
        ("serial", "serial", vec![ReadBytes]),
        ("serial", "serial", vec![CpuSystemNs]),
        ("serial", "silence", vec![CpuUserNs]),
        ("random", "readahead", vec![MajorFaults]),
        ("random", "readahead", vec![ReadBytes]),
        ("overtaken", "readahead", vec![RcharBytes]),
        ("evicted", "evicted", vec![ReadBytes, CgroupBytes, CgroupPeakBytes]),
        ("peaks", "host-peak", vec![HostAvailableBytes]),
        ("peaks", "host-peak", vec![RssBytes]),
        ("peaks", "device-peak", vec![DeviceUsedBytes]),
        ("serial", "source", vec![RcharBytes]),
        ("serial", "source", vec![ReadBytes]),
    ];
    for (name, rule, missing) in cases {
        let mut run = load(name);
        assert!(rules(&run).contains(&rule), "{name} {rule}");
        for sample in &mut run.samples {
            missing.iter().for_each(|metric| sample.values.set(*metric, None));
        }
        assert!(!rules(&run).contains(&rule), "{name} {rule} without {missing:?}");
    }
    let mut run = load("evicted");
    run.events.retain(|event| !matches!(event.what, crate::event::What::Evicted { .. }));
    assert!(!rules(&run).contains(&"evicted"), "more was read, and nothing fell");
    let mut run = load("serial");
    run.meta.host = Default::default();
    assert!(!rules(&run).contains(&"serial"), "of how many cores is not known");
}

/// Nothing overflows, whatever a damaged or forged folder has.
#[test]
fn figures_as_large_as_they_can_be() {
    for name in RUNS {
        for value in [0, 1, 1 << 62, u64::MAX] {
            let mut run = load(name);
            for (index, sample) in run.samples.iter_mut().enumerate() {
                let odd = index % 2 == 1;
                metric::ALL.iter().for_each(|metric| sample.values.set(*metric, if odd { value } else { 3 }));
            }
            run.meta.artifacts.iter_mut().for_each(|artifact| artifact.resident_at_start_bytes = Some(value >> 1));
            rules(&run);
            run.samples.iter_mut().for_each(|sample| sample.t = At(i64::MAX));
            rules(&run);
            run.samples.iter_mut().for_each(|sample| sample.t = At(i64::MIN));
            rules(&run);
        }
    }
}

#[test]
fn each_rule_has_a_name_of_its_own_and_says_its_evidence() {
    let mut names: Vec<_> = RULES.iter().map(|rule| rule.id).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RULES.len());
    assert!(RULES.iter().all(|rule| rule.about.contains("by ")));
}
