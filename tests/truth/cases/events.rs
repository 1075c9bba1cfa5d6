//! Births, ends, programs and mappings, each with its time: held against the times of the acts themselves.

use std::fs::File;

use serde_json::Value;

use crate::bench::{Bench, MIB, word};
use crate::claim::{Claim, Figure};
use crate::folder::Row;
use crate::harness::Case;
use crate::needs::Need;
use crate::profile::{Profile, Said};

pub const CASES: &[Case] = &[
    Case::new("events_of_two_hundred_children", children).needs(&[Need::Perf]),
    Case::new("event_of_a_mapping_of_2_ms", mapping).needs(&[Need::Perf]),
    Case::new("events_of_a_chain_of_programs", chain).needs(&[Need::Perf]),
    Case::new("events_where_perf_is_denied", denied),
];

/// From a mark to the sample beside it: 1 ms is what it is, and more where others have the CPU.
const LONGEST_LAG: i64 = 200_000_000;

fn time(row: &Row) -> i64 {
    row["t_ns"].parse().unwrap()
}

fn uncertainty(row: &Row) -> Option<u64> {
    row["uncertainty_ns"].parse().ok()
}

/// How many of these moments lie within, and how uncertain they are at most.
struct Moments {
    within: u64,
    uncertain: u64,
}

impl Moments {
    fn of(rows: &[Row], brackets: &[(u64, i64, i64)]) -> Moments {
        let mut moments = Moments { within: 0, uncertain: 0 };
        for (pid, earliest, latest) in brackets {
            let mut own = rows.iter().filter(|row| row["pid"] == pid.to_string());
            // Once, and no more.
            let (Some(row), None) = (own.next(), own.next()) else { continue };
            moments.within += u64::from((*earliest..=*latest).contains(&time(row)));
            moments.uncertain += uncertainty(row).unwrap_or(u64::MAX / 1_000);
        }
        moments
    }
}

const CHILDREN: usize = 200;

fn children(bench: &Bench) -> Vec<Claim> {
    let one = "step forking\n child\n hold 1\n end\n wait\n step reaped\n";
    let run = bench.acts(&one.repeat(CHILDREN)).run();
    let own: Vec<&Said> = run.truth.iter().filter(|line| line.kind != "total").collect();
    let (mut births, mut ends) = (Vec::new(), Vec::new());
    for lines in own.chunks_exact(4).take(CHILDREN) {
        let [forking, born, last, reaped] = lines else { unreachable!() };
        assert_eq!((forking.name.as_str(), born.name.as_str()), ("forking", "born"));
        assert_eq!((last.name.as_str(), reaped.name.as_str()), ("child", "reaped"));
        births.push((born.pid, forking.t, born.t));
        ends.push((born.pid, last.counted, reaped.t));
    }
    let (born, gone) = (run.run.events("born"), run.run.events("gone"));
    let (seen, over) = (Moments::of(&born, &births), Moments::of(&gone, &ends));
    let all = CHILDREN as u64;
    vec![
        Claim::exact("births between fork and the child's first word", all, Figure::Exact(seen.within)),
        Claim::exact("uncertainty of births, summed, ns", 0, Figure::Exact(seen.uncertain)),
        Claim::exact("ends between the last word and wait", all, Figure::Exact(over.within)),
        Claim::exact("uncertainty of ends, summed, ns", 0, Figure::Exact(over.uncertain)),
        Claim::exact("births in all", all + 1, Figure::Exact(born.len() as u64)),
        Claim::exact("ends in all", all + 1, Figure::Exact(gone.len() as u64)),
        Claim::words("source of births", "perf stream", source(&run, "births")),
    ]
}

fn source(run: &Profile, kind: &str) -> String {
    let source = run.run.json()["sources"][kind].clone();
    format!("{}: {}", source["used"].as_str().unwrap_or_default(), source["because"].as_str().unwrap_or_default())
}

/// A mark's claims: within the call, with what uncertainty, and how long until it was looked at.
fn mark(run: &Profile, stage: &str, after: i64, before: i64) -> Vec<Claim> {
    let row = run.stage(stage);
    let (t, taken) = (row.time("t_ns"), row.time("sampled_ns"));
    vec![
        Claim::between(
            format!("t_ns of {stage}, by mmap's begin and end"),
            after as u64..=before as u64,
            Figure::Exact(t as u64),
        ),
        run.exactly(stage, "uncertainty_ns", 0),
        Claim::holds(
            format!("{stage} was looked at soon"),
            taken >= t && taken - t <= LONGEST_LAG,
            format!("{} ns", taken - t),
        ),
    ]
}

fn mapping(bench: &Bench) -> Vec<Claim> {
    let path = bench.path("model.bin");
    File::create(&path).unwrap().set_len(MIB).unwrap();
    let script = format!(
        "open f {}\n step mapping\n map m f 0 1M shared ro\n hold 2\n step unmapping\n unmap m 0 1M\n step unmapped\n \
         hold 100\n",
        word(&path)
    );
    let raw = format!("raw:{}", path.display());
    let launch = bench.acts(&script).artifact(raw).options(["--stage", "mapped=mapping:all"]);
    let run = launch.options(["--stage", "any=mapping:any"]).run();
    let step = |name: &str| run.line("step", name).unwrap().t;
    let mut claims = mark(&run, "mapped", step("mapping"), step("mapped"));
    claims.extend(mark(&run, "any", step("mapping"), step("mapped")));
    let events = run.run.events("mapped");
    claims.push(Claim::exact("mappings told of", 1, Figure::Exact(events.len() as u64)));
    let detail: Value = serde_json::from_str(&events[0]["detail"]).unwrap();
    claims.push(Claim::exact("bytes of it", MIB, Figure::Exact(detail["bytes"].as_u64().unwrap())));
    // Its end is found by looking: within the uncertainty.
    let gone = &run.run.events("unmapped")[0];
    let (from, t) = (time(gone) - uncertainty(gone).unwrap() as i64, time(gone));
    let room = from <= step("unmapped") && t >= step("unmapping");
    claims.push(Claim::holds("its end has room for munmap", room, format!("{from} to {t}")));
    claims
}

fn chain(bench: &Bench) -> Vec<Claim> {
    let argv = ["env", "nice", "-n", "0", "env", "sh", "-c", "env true; exec sleep 0.1"];
    let run = bench.command(argv).run();
    let execs = run.run.events("exec");
    let root = run.run.events("born")[0]["pid"].clone();
    let names = |own: bool| {
        let rows = execs.iter().filter(|row| (row["pid"] == root) == own);
        let name = |row: &Row| {
            let detail: Value = serde_json::from_str(&row["detail"]).unwrap();
            // Where one took the other's place at once, only its name was left, in brackets.
            detail["argv"][0].as_str().unwrap().trim_matches(['[', ']']).to_owned()
        };
        rows.map(name).collect::<Vec<_>>().join(" ")
    };
    let times: Vec<i64> = execs.iter().map(time).collect();
    let uncertain: u64 = execs.iter().map(|row| uncertainty(row).unwrap_or(u64::MAX / 1_000)).sum();
    vec![
        Claim::words("programs of the root", "<env nice env sh sleep>", format!("<{}>", names(true))),
        Claim::words("programs of its child", "<env true>", format!("<{}>", names(false))),
        Claim::holds("in the order of their times", times.is_sorted(), format!("{times:?}")),
        Claim::exact("uncertainty, summed, ns", 0, Figure::Exact(uncertain)),
    ]
}

fn denied(bench: &Bench) -> Vec<Claim> {
    let path = bench.path("model.bin");
    File::create(&path).unwrap().set_len(MIB).unwrap();
    let script = format!("open f {}\n hold 100\n step mapping\n map m f 0 1M shared ro\n hold 500\n", word(&path));
    let launch = bench.acts(&script).artifact(format!("raw:{}", path.display()));
    let launch = launch.options(["--stage", "any=mapping:any"]).denied(libc::SYS_perf_event_open, libc::EPERM);
    let run = launch.run();
    let row = run.stage("any");
    let (t, uncertain) = (row.time("t_ns"), row.known("uncertainty_ns"));
    let (before, after) = (run.line("step", "mapping").unwrap().t, run.line("step", "mapped").unwrap().t);
    let from = t - uncertain as i64;
    let born = run.run.events("born");
    let certain = born.iter().filter(|row| uncertainty(row) == Some(0)).count() as u64;
    vec![
        Claim::holds("[t − u, t] has room for the mmap", from <= after && t >= before, format!("{from} to {t}")),
        Claim::holds("u is not 0", uncertain > 0, uncertain),
        Claim::exact("births without uncertainty", 0, Figure::Exact(certain)),
        Claim::words("source of births", "procfs: perf_event_open: ", source(&run, "births")),
        Claim::words("source of mappings", "procfs: perf_event_open: ", source(&run, "mappings")),
    ]
}
