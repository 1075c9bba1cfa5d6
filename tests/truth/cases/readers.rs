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
