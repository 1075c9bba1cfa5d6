use super::*;
use crate::event::Event;
use crate::metric::Metric::*;
use crate::run::Meta;

fn run(samples: &[(i64, &[(Metric, u64)])], events: &[(i64, What)]) -> Run {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs/ml-216");
    let sample = |&(t, values): &(i64, &[(Metric, u64)])| {
        let mut sample = Sample { t: At(t), late_ns: 0, cost_ns: 2, values: Values::ABSENT };
        values.iter().for_each(|&(metric, value)| sample.values.set(metric, value));
        sample
    };
    let event = |(at, what): &(i64, What)| Event { at: At(*at), uncertainty_ns: Some(0), what: what.clone() };
    Run {
        meta: Meta::load(&folder).unwrap(),
        folder,
        samples: samples.iter().map(sample).collect(),
        events: events.iter().map(event).collect(),
        details: Vec::new(),
        tensors: None,
        responses: Vec::new(),
        gaps: Vec::new(),
    }
}

fn born(at: i64) -> (i64, What) {
    (at, What::Born { pid: at as i32, parent: 1 })
}

fn exec(at: i64) -> (i64, What) {
    (at, What::Exec { pid: at as i32, argv: Vec::new() })
}

fn of(peaks: Vec<(Metric, Peak)>, metric: Metric) -> (u64, Option<u64>, Basis) {
    let (_, peak) = peaks.into_iter().find(|(of, _)| *of == metric).unwrap();
    (peak.low.unwrap(), peak.high, peak.basis)
}

const LOW: Metric = RssHighWaterLowBytes;
const HIGH: Metric = RssHighWaterHighBytes;

#[test]
fn one_image_is_known_by_its_counter_and_several_are_bounded() {
    let samples: &[(i64, &[(Metric, u64)])] = &[(10, &[(RssBytes, 5), (RssAnonBytes, 3), (LOW, 90), (HIGH, 110)])];
    let one = run(samples, &[born(1), exec(1)]);
    assert_eq!(of(Peaks::new(&one).since_start(0, At(8)), RssBytes), (90, Some(110), Basis::Kernel));
    assert_eq!(of(Peaks::new(&one).since_start(0, At(8)), RssAnonBytes), (3, Some(110), Basis::Bounds));
    for second in [born(9), exec(9)] {
        let several = run(samples, &[born(1), exec(1), second]);
        assert_eq!(of(Peaks::new(&several).since_start(0, At(8)), RssBytes), (90, Some(110), Basis::Bounds));
    }
    // A second one that came later changes nothing of what was.
    let later = run(samples, &[born(1), exec(1), born(11)]);
    assert_eq!(of(Peaks::new(&later).since_start(0, At(8)), RssBytes).2, Basis::Kernel);
}

#[test]
fn a_low_alone_is_a_bound_only_where_it_says_more_than_the_samples() {
    let tree = |low| run(&[(10, &[(RssBytes, 50), (LOW, low)])], &[born(1), born(2)]);
    assert_eq!(of(Peaks::new(&tree(90)).since_start(0, At(8)), RssBytes), (90, None, Basis::Bounds));
    assert_eq!(of(Peaks::new(&tree(50)).since_start(0, At(8)), RssBytes), (50, None, Basis::Sampled));
    let old = run(&[(10, &[(RssBytes, 50)])], &[]);
    assert_eq!(of(Peaks::new(&old).since_start(0, At(8)), RssBytes), (50, None, Basis::Sampled));
}

#[test]
fn a_high_holds_for_what_was_before_its_look() {
    let samples: &[(i64, &[(Metric, u64)])] = &[
        (10, &[(RssBytes, 5), (LOW, 5), (HIGH, 7)]),
        (20, &[(RssBytes, 6), (LOW, 6)]),
        (30, &[(RssBytes, 6), (LOW, 6), (HIGH, 9)]),
    ];
    let run = run(samples, &[born(1)]);
    // The look at 10 began at 8: what came after that is not in its high, and the one at 20 had none.
    assert_eq!(of(Peaks::new(&run).since_start(0, At(8)), RssBytes).1, Some(7));
    assert_eq!(of(Peaks::new(&run).since_start(0, At(9)), RssBytes).1, Some(9));
    assert_eq!(of(Peaks::new(&run).since_start(1, At(15)), RssBytes).1, Some(9));
    // The command ended after the last look.
    assert_eq!(of(Peaks::new(&run).since_start(2, At(29)), RssBytes), (6, None, Basis::Sampled));
}

#[test]
fn an_interval_has_its_own_peak_only_where_the_mark_rose_in_it() {
    let samples: &[(i64, &[(Metric, u64)])] = &[
        (10, &[(RssBytes, 50), (LOW, 60), (HIGH, 70)]),
        (20, &[(RssBytes, 20), (LOW, 60), (HIGH, 70)]),
        (30, &[(RssBytes, 20), (LOW, 60), (HIGH, 70)]),
        (40, &[(RssBytes, 20), (LOW, 95), (HIGH, 105)]),
    ];
    let one = run(samples, &[born(1)]);
    let peaks = Peaks::new(&one);
    let before = |at, sample| Before { at: At(at), sample: Some(sample) };
    assert_eq!(of(peaks.span(before(8, 0), 1, At(18)), RssBytes), (50, Some(70), Basis::Bounds));
    assert_eq!(of(peaks.span(before(18, 1), 2, At(28)), RssBytes), (20, Some(70), Basis::Bounds));
    assert_eq!(of(peaks.span(before(28, 2), 3, At(38)), RssBytes), (95, Some(105), Basis::Kernel));
    // A sample whose look had begun before the mark may hold what rose before it: no rise is seen.
    assert_eq!(of(peaks.span(before(39, 3), 3, At(39)), RssBytes), (20, None, Basis::Sampled));
    let two = run(samples, &[born(1), born(2)]);
    assert_eq!(of(Peaks::new(&two).span(before(28, 2), 3, At(38)), RssBytes), (95, Some(105), Basis::Bounds));
}

#[test]
fn a_reset_makes_an_interval_the_kernels() {
    let samples: &[(i64, &[(Metric, u64)])] = &[
        (10, &[(RssBytes, 50), (LOW, 60), (HIGH, 70)]),
        (20, &[(RssBytes, 20), (LOW, 60), (HIGH, 70), (RssSpanHighWaterLowBytes, 52), (RssSpanHighWaterHighBytes, 62)]),
    ];
    let before = Before { at: At(8), sample: Some(0) };
    let reset = run(samples, &[born(1), (11, What::PeaksReset {})]);
    assert_eq!(of(Peaks::new(&reset).since_start(1, At(18)), RssBytes), (60, Some(70), Basis::Kernel));
    assert_eq!(of(Peaks::new(&reset).span(before, 1, At(18)), RssBytes), (52, Some(62), Basis::Kernel));
    // One that was not at the mark before says nothing of the interval's first part.
    for at in [9, 21] {
        let other = run(samples, &[born(1), (at, What::PeaksReset {})]);
        assert_eq!(of(Peaks::new(&other).span(before, 1, At(18)), RssBytes), (50, Some(70), Basis::Bounds));
    }
}

#[test]
fn a_control_groups_mark_is_exact_where_it_rose() {
    let samples: &[(i64, &[(Metric, u64)])] = &[
        (10, &[(CgroupBytes, 50), (CgroupAnonBytes, 10), (CgroupPeakBytes, 80)]),
        (20, &[(CgroupBytes, 20), (CgroupAnonBytes, 10), (CgroupPeakBytes, 80)]),
        (30, &[(CgroupBytes, 20), (CgroupAnonBytes, 10), (CgroupPeakBytes, 99)]),
    ];
    let run = run(samples, &[born(1), born(2)]);
    let before = |at, sample| Before { at: At(at), sample: Some(sample) };
    assert_eq!(of(Peaks::new(&run).since_start(1, At(18)), CgroupBytes), (80, Some(80), Basis::Kernel));
    assert_eq!(of(Peaks::new(&run).since_start(1, At(18)), CgroupAnonBytes), (10, Some(80), Basis::Bounds));
    assert_eq!(of(Peaks::new(&run).span(before(8, 0), 1, At(18)), CgroupBytes), (50, Some(80), Basis::Bounds));
    assert_eq!(of(Peaks::new(&run).span(before(18, 1), 2, At(28)), CgroupBytes), (99, Some(99), Basis::Kernel));
}
