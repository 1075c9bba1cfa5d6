//! Where the payload's data came from, and what the CPUs did meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use stagemark_fixtures::models::Fill;

use super::filesystems::{BINDFS, through_fuse};
use crate::bench::{Bench, MIB, Model};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::profile::Profile;

pub const CASES: &[Case] = &[
    Case::new("verdict_cold_mapped", |bench| {
        mapped(&bench.model(PAYLOAD, Fill::Pattern), bench, "storage", "read from storage")
    }),
    Case::new("verdict_warm_mapped", |bench| {
        mapped(&bench.model(PAYLOAD, Fill::Pattern).warm(), bench, "page_cache", "resident before")
    }),
    Case::new("verdict_half_warm_mapped", |bench| {
        mapped(&half_warm(bench.model(PAYLOAD, Fill::Pattern)), bench, "mixed", "part was resident before")
    }),
    Case::new("verdict_cold_read", |bench| read(bench.model(PAYLOAD, Fill::Pattern), bench, "storage")),
    Case::new("verdict_warm_read", |bench| read(bench.model(PAYLOAD, Fill::Pattern).warm(), bench, "page_cache")),
    Case::new("verdict_direct_reads", direct),
    Case::new("verdict_through_fuse", through_a_daemon).needs(BINDFS),
    Case::new("one_core_busy", one_core_busy).alone(),
];

const PAYLOAD: u64 = 32 * MIB;
const STAGE: &str = "module_populated";

fn verdict(run: &Profile, from: &str, why: &str) -> [Claim; 2] {
    let row = run.stage(STAGE);
    let said = |column| format!("<{}>", row.text(column));
    [
        Claim::words("data_from_start", format!("<{from}>"), said("data_from_start")),
        Claim::words("its reason", why, said("data_from_start_reason")),
    ]
}

/// Its first half is in the page cache, and no page more.
fn half_warm(model: Model) -> Model {
    let file = File::open(&model.path).unwrap();
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).unwrap();
    file.read_exact_at(&mut vec![0; 16 << 20], 0).unwrap();
    model
}

fn mapped(model: &Model, bench: &Bench, from: &str, why: &str) -> Vec<Claim> {
    let run = bench.loader(model, "mmap-lazy --touch 32MiB --advice random --shared --notify --hold 0.1").run();
    let mut claims = verdict(&run, from, why).to_vec();
    claims.push(run.resident(STAGE, PAYLOAD, 0));
    claims
}

fn read(model: Model, bench: &Bench, from: &str) -> Vec<Claim> {
    let run = bench.loader(&model, "read-heap --notify --hold 0.1").run();
    verdict(&run, from, "").to_vec()
}

/// Reads past a page cache that has it all: they count as read from storage, and so would those of any other file.
fn direct(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(PAYLOAD, Fill::Pattern).warm();
    let run = bench.loader(&model, "odirect --notify --hold 0.1").run();
    verdict(&run, "unknown", "O_DIRECT").to_vec()
}

fn through_a_daemon(bench: &Bench) -> Vec<Claim> {
    let model = through_fuse(bench);
    // The daemon's own file is warm, or it is not: nobody can tell from here.
    let run = bench.loader(&model, "mmap-lazy --touch 32MiB --shared --notify --hold 0.1").run();
    verdict(&run, "unknown", "fuse").to_vec()
}

/// A clock tick of CPU accounting, in user mode and in the kernel.
const TICKS: u64 = 2 * 10_000_000;

fn one_core_busy(bench: &Bench) -> Vec<Claim> {
    let run = bench.acts("mark begun\n burn 600\n mark burnt\n").run();
    let cpu = |line: &crate::profile::Said| 1_000 * (line.get("user_us") + line.get("system_us"));
    let line = |kind: &str, stage: &str| cpu(run.line(kind, stage).unwrap());
    // Between the samples at both ends it took at least what it took between its words, and at most what with them.
    let least = line("mark", "burnt") - line("said", "begun");
    let most = line("said", "burnt") - line("mark", "begun");
    let length = (run.stage("burnt").time("sampled_ns") - run.stage("begun").time("sampled_ns")) as u64;
    let thousandths = |cpu: u64| cpu * 1_000 / length;
    let busy: f64 = run.stage("burnt").text("span_cores_busy").parse().unwrap();
    let busy = Figure::Exact((busy * 1_000.0).round() as u64);
    vec![
        Claim::holds("it burnt what it was told to", least >= 600_000_000, format!("{least} ns")),
        Claim::between(
            "span_cores_busy at burnt, in thousandths",
            thousandths(least - TICKS)..=thousandths(most + TICKS) + 1,
            busy,
        ),
        run.within("burnt", "threads", 1..=1),
    ]
}
