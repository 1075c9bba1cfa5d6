//! Trees of processes: what all of them map, hold and count together.

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB};
use crate::claim::Claim;
use crate::harness::Case;
use crate::profile::{LAST_FAULTS, OWN_FILES, Profile, START_READS, Said, rss_error};

pub const CASES: &[Case] = &[
    Case::new("ranks_of_one_extent", ranks),
    Case::new("ranks_that_touch_nothing", ranks_that_touch_nothing),
    Case::new("short_children_waited_for", short_children),
    Case::new("short_children_reaped_by_the_kernel", unreaped_children),
    Case::new("daemonised_grandchild", daemonised_grandchild),
];

fn sum(run: &Profile, field: impl Fn(&Said) -> u64) -> u64 {
    run.truth.iter().filter(|line| line.kind == "process").map(field).sum()
}

fn ranks(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    let run = bench.loader(&model, "mmap-lazy --touch 1GiB --fork 4 --shared --notify --hold 0.1").run();
    let mut claims = run.mapped("first_response", model.size, 32 * MIB).to_vec();
    claims.push(run.exactly("first_response", "processes", 5));
    claims.push(run.exactly("first_response", "threads", 5));
    // Each rank touched its own share, so each page of the payload is in one resident set at least; around each fault
    // the kernel maps some pages more that are there already (mm/memory.c, do_fault_around).
    let most = 5 * (32 * MIB + OWN_FILES);
    claims.push(run.within("first_response", "rss_file_bytes", 32 * MIB - 5 * rss_error()..=most));
    // The tree's counters are the sum over its processes at their ends.
    let faults = sum(&run, Said::faults);
    claims.push(Claim::between("faults at the end", faults..=faults + 5 * LAST_FAULTS, run.faults_at("exited")));
    let (reads, pipes) = (sum(&run, |line| line.get("read_bytes")), 4 * 4096);
    claims.push(run.within("exited", "rchar_bytes", reads..=reads + START_READS + pipes));
    claims
}

fn ranks_that_touch_nothing(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    let run = bench.loader(&model, "mmap-lazy --touch 0 --advice random --fork 4 --notify --hold 0.1").run();
    let mut claims = run.mapped("module_populated", model.size, 32 * MIB).to_vec();
    claims.push(run.resident("module_populated", 0, 0));
    claims.push(run.resident("first_response", 32 * MIB, 0));
    claims
}

const CHILDREN: &str = "mmap-lazy --short-children 200 --child-bytes 256KiB --notify --hold 0.1";
/// Each child also sends its account to its parent, who reads it: some 8 bytes a field.
const ACCOUNTS: u64 = 200 * 256;

fn short_children(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(8 * MIB, Fill::Sparse).warm();
    let run = bench.loader(&model, CHILDREN).run();
    let children = || run.truth.iter().filter(|line| line.name == "short-child");
    let (bytes, calls) = children().map(Said::reads).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!((bytes, calls), (200 * 256 * 1024, 200));
    let faults = sum(&run, Said::faults);
    vec![
        run.within("first_response", "rchar_bytes", bytes..=bytes + START_READS + ACCOUNTS),
        Claim::between("faults at the end", faults..=faults + 201 * LAST_FAULTS, run.faults_at("exited")),
    ]
}

fn unreaped_children(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(8 * MIB, Fill::Sparse).warm();
    let run = bench.loader(&model, &format!("{CHILDREN} --ignore-sigchld")).run();
    let bytes = 200 * 256 * 1024;
    let warnings = run.warnings();
    // Where no look came while one of them lived, nothing is known of which there would be anything to say.
    let seen = run.run.events("born").len() > 1;
    let told = warnings.contains("ignores SIGCHLD") || warnings.contains("no process of the tree waited for");
    vec![
        // What is counted is what was seen, never more.
        run.within("first_response", "rchar_bytes", 0..=bytes + START_READS + ACCOUNTS),
        Claim::holds("what was lost is told of, if any was seen", told || !seen, format!("{seen}, {told}")),
    ]
}

fn daemonised_grandchild(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    let run = bench.loader(&model, "map-and-clone --double-fork --notify --hold 0.2 --exit-status 7").run();
    let mut claims = run.mapped("first_response", model.size, 32 * MIB).to_vec();
    claims.extend(run.anonymous("module_populated", 32 * MIB));
    // The daemon's parent is gone.
    claims.push(run.exactly("first_response", "processes", 2));
    let faults = run.truth.iter().find(|line| line.name == "loader").unwrap().faults();
    // Its own fork's and the root's faults come to it.
    let most = faults + sum(&run, |_| 0) + 3 * 1_000;
    claims.push(Claim::between("faults at the end", faults..=most, run.faults_at("exited")));
    let status = run.status.map_or_else(|| "none".to_owned(), |status| status.to_string());
    claims.push(Claim::words("the root's status is the run's", "7", status));
    let (speaker, root) = (run.speaker(), run.total().pid);
    claims.push(Claim::holds("another process loads", speaker != root, format!("{speaker}, {root}")));
    claims
}
