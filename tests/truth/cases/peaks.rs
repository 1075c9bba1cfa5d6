//! The largest memory of a launch, between two looks that are half a minute apart: held against what getrusage(2) told
//! the loader itself.

use crate::bench::{Bench, MIB, word};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::needs::Need;
use crate::profile::{OWN_FILES, OWN_MEMORY, Profile, rss_error};

pub const CASES: &[Case] = &[
    Case::new("peak_between_two_looks", between_two_looks),
    Case::new("peak_of_the_program_before", program_before),
    Case::new("peak_of_a_forked_tree", forked_tree),
    Case::new("peak_with_a_child_unread", child_unread),
    Case::new("peak_of_each_interval_with_reset", reset),
    Case::new("peak_of_a_control_group", control_group).needs(&[Need::Root, Need::CgroupV1("memory")]),
];

/// Ticks that never come: what is looked at is what the stages are looked at for.
const NO_TICKS: [&str; 2] = ["--interval", "30s"];

fn spike(mib: u64) -> String {
    format!("anon spike {mib}M\n write spike 0 {mib}M\n unmap spike 0 {mib}M\n")
}

fn run(bench: &Bench, script: &str) -> Profile {
    bench.acts(script).options(NO_TICKS).run()
}

/// What the three parts of a resident set may be off by together.
fn error() -> u64 {
    3 * rss_error()
}

fn told(run: &Profile, stage: &str) -> u64 {
    run.mark(stage).get("peak_bytes")
}

/// A peak has room for what the loader was told, and its bounds are no wider than the counters' error.
fn peak(run: &Profile, column: &str, stage: &str, truth: u64) -> Claim {
    let figure = run.bounds(stage, &format!("{column}_low"), &format!("{column}_high"));
    let within = truth - error()..=truth + error();
    Claim::between(format!("{column} at {stage}"), within, figure).widest(4 * error())
}

fn basis(run: &Profile, column: &str, stage: &str, basis: &str) -> Claim {
    let said = run.stage(stage).text(&format!("{column}_basis")).to_owned();
    Claim::words(format!("basis of {column} at {stage}"), basis, said)
}

fn between_two_looks(bench: &Bench) -> Vec<Claim> {
    let run = run(bench, &format!("mark before\n {} mark after\n mark quiet\n", spike(512)));
    let (before, after) = (told(&run, "before"), told(&run, "after"));
    let seen = run.run.largest("rss_bytes").unwrap();
    let now = run.stage("quiet").known("rss_bytes");
    vec![
        Claim::between("what the loader was told", 512 * MIB..=512 * MIB + 16 * MIB, Figure::Exact(after)),
        Claim::holds("no sample has it", seen < 64 * MIB, format!("at most {seen}")),
        // What came later is not in it.
        peak(&run, "peak_rss_bytes", "before", before),
        peak(&run, "peak_rss_bytes", "after", after),
        basis(&run, "peak_rss_bytes", "after", "kernel"),
        peak(&run, "span_peak_rss_bytes", "after", after),
        basis(&run, "span_peak_rss_bytes", "after", "kernel"),
        peak(&run, "peak_rss_bytes", "exited", after),
        // Nothing rose from there on; the mark is still the old one's.
        Claim::between(
            "span_peak_rss_bytes at quiet",
            now - error()..=now + error(),
            run.span_peak("quiet", "rss_bytes"),
        )
        .widest(after + error()),
        basis(&run, "span_peak_rss_bytes", "quiet", "bounds"),
    ]
}

fn program_before(bench: &Bench) -> Vec<Claim> {
    let small = bench.script("small", "mark small\n");
    let run = run(bench, &format!("{} mark large\n exec {}\n", spike(256), word(&small)));
    // ru_maxrss is of both programs.
    let truth = told(&run, "small");
    let now = run.stage("small").known("rss_bytes");
    vec![
        Claim::holds("the second program is small", now < 32 * MIB, format!("{now} B")),
        peak(&run, "peak_rss_bytes", "large", told(&run, "large")),
        peak(&run, "peak_rss_bytes", "small", truth),
        peak(&run, "peak_rss_bytes", "exited", truth),
    ]
}

fn forked_tree(bench: &Bench) -> Vec<Claim> {
    let child = |mib| format!("child\n {} ready\n await\n end\n", spike(mib));
    let script = format!("{}{}{} mark held\n release\n wait\n mark alone\n", child(64), child(128), child(192));
    let run = run(bench, &script);
    let own = told(&run, "held");
    let ready = |line: &&crate::profile::Said| line.kind == "step" && line.name == "ready";
    let peaks: Vec<u64> = run.truth.iter().filter(ready).map(|line| line.get("peak_bytes")).collect();
    assert_eq!(peaks.len(), 3);
    // One after the other: at the last one's peak the others held next to nothing.
    let (largest, sum) = (peaks[2], peaks.iter().sum::<u64>() + own);
    let within = largest - error()..=largest + own + 2 * (OWN_MEMORY + OWN_FILES);
    let claim =
        |stage| Claim::between(format!("peak_rss_bytes at {stage}"), within.clone(), run.peak(stage, "rss_bytes"));
    let high = run.stage("held").known("peak_rss_bytes_high");
    vec![
        claim("held").widest(sum - largest + 8 * error()),
        Claim::between("its high, the sum of all peaks", sum - 4 * error()..=sum + 8 * error(), Figure::Exact(high)),
        basis(&run, "peak_rss_bytes", "held", "bounds"),
        // They have ended, and what is still known is a low bound at least.
        claim("alone").widest(sum - largest + 8 * error()),
    ]
}

fn child_unread(bench: &Bench) -> Vec<Claim> {
    let run = run(bench, &format!("mark before\n child\n {} end\n wait\n mark after\n", spike(64)));
    let child = run.truth.iter().find(|line| line.name == "child").unwrap().get("peak_bytes");
    let (low, high) =
        (run.stage("after").known("peak_rss_bytes_low"), run.stage("after").number("peak_rss_bytes_high"));
    let reason = run.reason("rss_high_water_high_bytes", i64::MAX);
    let high = match high {
        None => Figure::Absent(reason),
        Some(high) => Figure::Exact(high),
    };
    vec![
        peak(&run, "peak_rss_bytes", "before", told(&run, "before")),
        Claim::absent("peak_rss_bytes_high at after", "between two looks", high),
        Claim::holds("the low bound is no more than it had", low <= child + OWN_FILES + OWN_MEMORY, format!("{low} B")),
    ]
}

fn reset(bench: &Bench) -> Vec<Claim> {
    let script = format!("mark a\n {} mark b\n {} mark c\n", spike(256), spike(64));
    let run = bench.acts(&script).options(NO_TICKS).options(["--reset-peaks"]).run();
    let (first, second) = (told(&run, "b"), told(&run, "c"));
    vec![
        Claim::holds("the second is the smaller one", second < 128 * MIB && first > 256 * MIB, format!("{second} B")),
        peak(&run, "span_peak_rss_bytes", "b", first),
        basis(&run, "span_peak_rss_bytes", "b", "kernel"),
        peak(&run, "span_peak_rss_bytes", "c", second),
        basis(&run, "span_peak_rss_bytes", "c", "kernel"),
        peak(&run, "peak_rss_bytes", "c", first),
        Claim::words("what the reset changes is said", "--reset-peaks lowers", run.warnings()),
    ]
}

/// Page cache and kernel memory that is charged to the group beside what the loader wrote, and what processors hold in
/// advance.
const BESIDE: u64 = 32 * MIB;

fn control_group(bench: &Bench) -> Vec<Claim> {
    let script =
        format!("anon a 128M\n write a 0 128M\n mark a\n child\n {} end\n wait\n mark b\n mark c\n", spike(256));
    let run = bench.acts(&script).options(NO_TICKS).options(["--cgroup", "auto"]).run();
    let truth = 384 * MIB..=384 * MIB + BESIDE;
    let group = run.run.json()["cgroup"]["path"].as_str().unwrap_or_default().to_owned();
    let gone = !group.is_empty() && !std::path::Path::new(&group).exists();
    vec![
        run.within("a", "cgroup_anon_bytes", 128 * MIB - MIB..=128 * MIB + OWN_MEMORY + MIB),
        run.within("a", "cgroup_peak_bytes", 128 * MIB..=128 * MIB + BESIDE),
        // Of a child that no look and no mark of a process could show.
        run.within("b", "cgroup_peak_bytes", truth.clone()),
        Claim::between("peak_cgroup_bytes at b", truth.clone(), run.peak("b", "cgroup_bytes")).widest(0),
        basis(&run, "peak_cgroup_bytes", "b", "kernel"),
        Claim::between("span_peak_cgroup_bytes at b", truth, run.span_peak("b", "cgroup_bytes")).widest(0),
        Claim::between(
            "span_peak_cgroup_bytes at c",
            128 * MIB..=128 * MIB + BESIDE,
            run.span_peak("c", "cgroup_bytes"),
        )
        .widest(256 * MIB + BESIDE),
        basis(&run, "span_peak_cgroup_bytes", "c", "bounds"),
        Claim::holds("the group is gone", gone, group),
    ]
}
