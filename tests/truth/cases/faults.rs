//! `--faults`: which byte was touched, when, and by whom.

use std::collections::BTreeMap;

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB, Model, PAGE, word};
use crate::claim::{Claim, Figure};
use crate::folder::Row;
use crate::harness::Case;
use crate::needs::Need;
use crate::profile::Profile;

pub const CASES: &[Case] = &[
    Case::new("faults_of_every_page", every_page).needs(&[Need::Perf]),
    Case::new("faults_in_their_order", in_order).needs(&[Need::Perf]).alone(),
    Case::new("faults_by_the_child", by_the_child).needs(&[Need::Perf]),
    Case::new("faults_of_reading_into_the_heap", heap).needs(&[Need::Perf]),
    Case::new("faults_one_in_64", one_in_64).needs(&[Need::Perf]),
    Case::new("faults_of_moved_memory", moved).needs(&[Need::Perf]),
];

/// The tensors of every model here: eight of 4 MiB.
const TENSOR: u64 = 4 * MIB;

fn model(bench: &Bench) -> Model {
    bench.model(8 * TENSOR, Fill::Pattern)
}

/// A script about one model, mapped as `m` with no read-ahead, so that each page that is not in memory is a fault.
fn run(bench: &Bench, model: &Model, option: &str, script: &str) -> Profile {
    let script = format!(
        "open f {}\nmap m f 0 {size} shared ro\nadvise m 0 {size} random\n{script}",
        word(&model.path),
        size = model.size
    );
    let run = bench.acts(&script).options([option]).artifact(&model.path).payload(model.payload).run();
    let samples = &run.run.json()["faults"];
    assert!(samples["unavailable"].is_null(), "{samples}");
    assert_eq!(samples["kernel"], true, "faults in the kernel are denied");
    run
}

fn touch(model: &Model, tensor: u64) -> String {
    format!("touch m {} {TENSOR}\n", model.start + tensor * TENSOR)
}

/// Rows of `faults.csv` that lie in the model.
fn in_model(run: &Profile) -> Vec<Row> {
    run.run.rows("faults.csv").into_iter().filter(|row| row["behind"] == "artifact").collect()
}

fn number(row: &Row, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is no number: {row:?}"))
}

/// A cell of `tensors.csv`.
fn cell(row: &Row, column: &str) -> Figure {
    match row[column].parse() {
        Ok(value) => Figure::Exact(value),
        Err(_) => Figure::Absent("the cell is empty".into()),
    }
}

/// That the record stream was whole, and what it knew of every address.
fn whole(run: &Profile) -> [Claim; 2] {
    let samples = run.run.json()["faults"].clone();
    let unknown = samples["unknown"]["minor"].as_u64().unwrap() + samples["unknown"]["major"].as_u64().unwrap();
    [
        Claim::exact("lost_records", 0, Figure::Exact(samples["lost_records"].as_u64().unwrap())),
        Claim::exact("samples at unknown addresses", 0, Figure::Exact(unknown)),
    ]
}

/// Faults in pages of these tensors: each page has its one, and no other page has any.
fn once_each(run: &Profile, model: &Model, tensors: &[u64]) -> Vec<Claim> {
    let rows = in_model(run);
    let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
    rows.iter().for_each(|row| *pages.entry(number(row, "offset") / PAGE).or_default() += 1);
    let touched =
        |page: u64| (page * PAGE).checked_sub(model.start).is_some_and(|byte| tensors.contains(&(byte / TENSOR)));
    let there = pages.keys().filter(|page| touched(**page)).count() as u64;
    let elsewhere = pages.keys().filter(|page| !touched(**page)).count() as u64;
    let again = pages.values().filter(|count| **count > 1).count() as u64;
    let named = |row: &&Row| {
        let tensor = (number(row, "offset") - model.start) / TENSOR;
        row["tensor"] == format!("layers.{tensor:05}.weight")
    };
    let count = tensors.len() as u64 * TENSOR / PAGE;
    let named = rows.iter().filter(named).count() as u64;
    vec![
        Claim::exact("touched pages with a sample", count, Figure::Exact(there)),
        Claim::exact("other pages with a sample", 0, Figure::Exact(elsewhere)),
        // A fault that was broken off, by a signal or by the lack of memory, is begun anew.
        Claim::between("pages with more than one", 0..=count / 1000, Figure::Exact(again)),
        Claim::exact("samples with their tensor's name", rows.len() as u64, Figure::Exact(named)),
    ]
}

fn every_page(bench: &Bench) -> Vec<Claim> {
    let model = model(bench);
    let script = [6, 0, 3].map(|tensor| touch(&model, tensor)).concat() + "mark touched\n";
    let run = run(bench, &model, "--faults=1", &script);
    let mut claims = once_each(&run, &model, &[0, 3, 6]);
    claims.extend(whole(&run));
    // Each waited for the disk, as the kernel counts it too.
    let majors = in_model(&run).iter().filter(|row| row["kind"] == "major").count() as u64;
    claims.push(Claim::exact("major faults in the model", 3 * TENSOR / PAGE, Figure::Exact(majors)));
    for (tensor, row) in run.run.rows("tensors.csv").iter().enumerate() {
        let truth = if [0, 3, 6].contains(&tensor) { TENSOR / PAGE } else { 0 };
        claims.push(Claim::between(
            format!("faults_estimate of tensor {tensor}"),
            truth..=truth + truth / 100,
            cell(row, "faults_estimate"),
        ));
    }
    claims
}

fn in_order(bench: &Bench) -> Vec<Claim> {
    let model = model(bench);
    const ORDER: [(u64, &str); 3] = [(5, "first"), (1, "second"), (4, "third")];
    // The look at a mark is over before the next tensor is begun.
    let script: String =
        ORDER.map(|(tensor, stage)| touch(&model, tensor) + &format!("mark {stage}\nhold 300\n")).concat();
    let run = run(bench, &model, "--faults=1", &script);
    let rows = run.run.rows("tensors.csv");
    let mut claims = Vec::new();
    let mut before = run.line("step", "mapped").unwrap().t;
    for (place, (tensor, stage)) in ORDER.into_iter().enumerate() {
        let mark = run.mark(stage).t;
        let row = &rows[tensor as usize];
        let within = before as u64..=mark as u64;
        claims.push(Claim::between(
            format!("first_touched_at_most_ns of tensor {tensor}"),
            within.clone(),
            cell(row, "first_touched_at_most_ns"),
        ));
        let own = in_model(&run).into_iter().filter(|row| row["tensor"] == format!("layers.{tensor:05}.weight"));
        let times: Vec<u64> = own.map(|row| number(&row, "t_ns")).collect();
        claims.push(Claim::holds(
            format!("every fault of tensor {tensor} lies within the touching"),
            times.iter().all(|time| within.contains(time)),
            format!("{} to {}", times.iter().min().unwrap_or(&0), times.iter().max().unwrap_or(&0)),
        ));
        for (index, row) in rows.iter().enumerate() {
            let touched = ORDER[..=place].iter().any(|(tensor, _)| *tensor == index as u64);
            claims.push(Claim::exact(
                format!("resident bytes of tensor {index} at {stage}"),
                if touched { TENSOR } else { 0 },
                cell(row, &format!("resident_{stage}")),
            ));
        }
        before = mark;
    }
    claims.extend(whole(&run));
    claims
}

fn by_the_child(bench: &Bench) -> Vec<Claim> {
    let model = model(bench);
    let script = format!(
        "{}child\n{}ready\nawait\nend\nmark touched\nhold 200\nrelease\nwait\n",
        touch(&model, 2),
        touch(&model, 7)
    );
    let run = run(bench, &model, "--faults=1", &script);
    let parent = run.speaker();
    let child = run.truth.iter().find(|line| line.name == "born").unwrap().pid;
    let rows = run.run.rows("tensors.csv");
    let mut claims = once_each(&run, &model, &[2, 7]);
    for (tensor, pid) in [(2, parent), (7, child)] {
        claims.push(Claim::exact(
            format!("first_touched_pid of tensor {tensor}"),
            pid,
            cell(&rows[tensor], "first_touched_pid"),
        ));
        let own = in_model(&run).into_iter().filter(|row| row["tensor"] == format!("layers.{tensor:05}.weight"));
        let others = own.filter(|row| number(row, "pid") != pid).count() as u64;
        claims.push(Claim::exact(format!("faults of tensor {tensor} by another"), 0, Figure::Exact(others)));
    }
    claims.extend(whole(&run));
    claims
}

fn heap(bench: &Bench) -> Vec<Claim> {
    let model = model(bench);
    let script = format!("anon b 32M\nfill b f {} 32M\nmark filled\n", model.start);
    let run = run(bench, &model, "--faults=1", &script);
    let samples = run.run.json()["faults"].clone();
    let count = |place: &str| samples[place]["minor"].as_u64().unwrap() + samples[place]["major"].as_u64().unwrap();
    let mut claims = vec![Claim::exact("samples in artifacts", 0, Figure::Exact(count("artifacts")))];
    let empty = |row: &&Row| row["first_touched_at_most_ns"].is_empty() && row["first_touched_pid"].is_empty();
    let blank = run.run.rows("tensors.csv").iter().filter(empty).count() as u64;
    claims.push(Claim::exact("tensors that nobody touched", 8, Figure::Exact(blank)));
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !huge.contains("[always]") {
        let faults = run.mark("filled").faults();
        let own = 8 * TENSOR / PAGE;
        claims.push(Claim::between(
            "samples in anonymous memory",
            own..=own + faults,
            Figure::Exact(count("anonymous")),
        ));
    }
    claims.extend(whole(&run));
    claims
}

fn one_in_64(bench: &Bench) -> Vec<Claim> {
    let model = model(bench);
    // Each page is copied by a minor fault of its own: written, in a file that is in memory.
    let model = model.warm();
    let script = format!("map w f 0 {} private rw\nwrite w {} 32M\nmark written\n", model.size, model.start);
    let run = run(bench, &model, "--faults", &script);
    let samples = run.run.json()["faults"].clone();
    let (before, written) = (run.line("step", "mapped").unwrap(), run.mark("written"));
    let pages = 8 * TENSOR / PAGE;
    // Those of the whole launch, its start and end with them, as the kernel has counted them.
    let minor = |name: &str| samples[name]["minor"].as_u64().unwrap();
    let all: u64 = ["artifacts", "other_files", "anonymous", "unknown"].into_iter().map(minor).sum();
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    // One period for each thread on each CPU stays behind; threads: the loader's, and the one before its exec.
    let slack = 64 * cpus * 2;
    let total = run.at("exited", "minor_faults");
    let Figure::Exact(total) = total else { panic!("{total:?}") };
    let mut claims = vec![
        Claim::between("minor samples × 64", total.saturating_sub(slack)..=total, Figure::Exact(all * 64)),
        Claim::between(
            "minor samples in the model × 64",
            pages - slack..=pages + slack,
            Figure::Exact(minor("artifacts") * 64),
        ),
        Claim::holds("the writing took a fault a page", written.faults() - before.faults() >= pages, written.faults()),
    ];
    for (tensor, row) in run.run.rows("tensors.csv").iter().enumerate() {
        let own = TENSOR / PAGE;
        claims.push(Claim::between(
            format!("faults_estimate of tensor {tensor}"),
            own - 64 * cpus..=own + 64 * cpus,
            cell(row, "faults_estimate"),
        ));
    }
    claims.extend(whole(&run));
    claims
}

fn moved(bench: &Bench) -> Vec<Claim> {
    let model = model(bench);
    // The kernel tells nobody of a mapping that mremap(2) moved; it is found in /proc/PID/maps.
    let script = touch(&model, 0) + "move m\nmark moved\nhold 1500\n" + &touch(&model, 3) + "mark touched\nhold 100\n";
    let run = run(bench, &model, "--faults=1", &script);
    let mut claims = once_each(&run, &model, &[0, 3]);
    claims.extend(whole(&run));
    claims
}
