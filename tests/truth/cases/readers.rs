//! Readers that no read(2) shows: io_uring, splice and their kin. What the counters have of them is the kernel's
//! doing, found out by trying on 6.18 and stated here.

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB, Model, word};
use crate::claim::Claim;
use crate::harness::Case;
use crate::needs::Need;
use crate::profile::{OWN_STORAGE, Profile, START_READS};

pub const CASES: &[Case] = &[
    Case::new("io_uring_cold", |bench| io_uring(bench, false)).needs(&[Need::IoUring]),
    Case::new("io_uring_warm", |bench| io_uring(bench, true)).needs(&[Need::IoUring]),
    Case::new("io_uring_direct", io_uring_direct).needs(&[Need::IoUring]),
    // splice(2) adds nothing to rchar, sendfile(2) what it moved (fs/read_write.c, do_sendfile).
    Case::new("splice", |bench| moved(bench, "splice f 4096 32M", 0)),
    Case::new("sendfile", |bench| moved(bench, "open g /dev/null rw\n sendfile f 4096 32M g", 32 * MIB)),
    Case::new("copy_file_range", copy_file_range),
    Case::new("read_ahead_in_flight", read_ahead_in_flight),
];

fn run(bench: &Bench, model: &Model, script: &str) -> Profile {
    let script = format!("open f {}\n{script}\n mark loaded\n", word(&model.path));
    bench.acts(&script).artifact(&model.path).payload(model.payload).run()
}

fn io_uring(bench: &Bench, warm: bool) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let model = if warm { model.warm() } else { model };
    let run = run(bench, &model, "uring f 4096 32M");
    assert_eq!(run.mark("loaded").get("ring_bytes"), 32 * MIB);
    let mut claims = vec![run.resident("loaded", 32 * MIB, 0)];
    claims.extend(run.mapped("loaded", 0, 0));
    claims.push(run.within("loaded", "rchar_bytes", 0..=START_READS));
    let storage = if warm { 0..=OWN_STORAGE } else { 32 * MIB..=32 * MIB + OWN_STORAGE };
    claims.push(run.within("loaded", "read_bytes", storage));
    claims
}

fn io_uring_direct(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = format!("open d {} direct\n uring d 4096 32M", word(&model.path));
    let run = run(bench, &model, &script);
    vec![
        run.resident("loaded", 0, 0),
        run.within("loaded", "rchar_bytes", 0..=START_READS),
        run.within("loaded", "read_bytes", 32 * MIB..=32 * MIB + OWN_STORAGE),
    ]
}

fn moved(bench: &Bench, script: &str, counted: u64) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let run = run(bench, &model, script);
    assert_eq!(run.mark("loaded").get("spliced_bytes"), 32 * MIB);
    let mut claims = vec![run.resident("loaded", 32 * MIB, 0)];
    claims.extend(run.mapped("loaded", 0, 0));
    claims.push(run.within("loaded", "rchar_bytes", counted..=counted + START_READS));
    claims.push(run.within("loaded", "read_bytes", 32 * MIB..=32 * MIB + OWN_STORAGE));
    claims
}

fn copy_file_range(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = format!("open g {} create\n copyrange f 4096 32M g", word(bench.path("copy")));
    let run = run(bench, &model, &script);
    let mut claims = vec![run.resident("loaded", 32 * MIB, 0)];
    claims.push(run.within("loaded", "rchar_bytes", 32 * MIB..=32 * MIB + START_READS));
    claims.push(run.within("loaded", "read_bytes", 32 * MIB..=32 * MIB + OWN_STORAGE));
    claims.push(run.within("loaded", "write_bytes", 32 * MIB..=32 * MIB + OWN_STORAGE));
    claims
}

/// A readahead is begun, and marks come while its pages are still on their way: what is resident is at most what it asked
/// for, never falls, and in the end is all of it.
fn read_ahead_in_flight(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(64 * MIB, Fill::Pattern);
    let script = "mark before\n fadvise f 4096 64M willneed\n mark begun\n hold 1000\n mark settled";
    let run = run(bench, &model, script);
    // The kernel may take a part of so large a wish (mm/readahead.c, force_page_cache_ra).
    let settled = run.stage("settled").known("resident_payload_bytes");
    let storage = run.stage("settled").known("read_bytes");
    vec![
        run.exactly("before", "resident_payload_bytes", 0),
        run.within("begun", "resident_payload_bytes", 0..=settled),
        run.within("settled", "resident_payload_bytes", 4 * MIB..=64 * MIB),
        Claim::between("read_bytes at settled", settled..=settled + OWN_STORAGE, crate::claim::Figure::Exact(storage)),
    ]
}
