//! The ways of loading, each in its purest form: what is mapped, resident, read and held.

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB};
use crate::claim::Claim;
use crate::harness::Case;
use crate::profile::{OWN_FILES, OWN_MEMORY, OWN_STORAGE, START_READ_CALLS, START_READS, rss_error};

pub const CASES: &[Case] = &[
    Case::new("lazy_private_mapping", |bench| lazy_mapping(bench, "--private")),
    Case::new("lazy_shared_mapping", |bench| lazy_mapping(bench, "--shared")),
    Case::new("read_ahead_beyond_what_is_touched", read_ahead),
    Case::new("populated_shared_mapping", |bench| populated(bench, "--shared", false)),
    Case::new("populated_private_mapping", |bench| populated(bench, "--private", true)),
    Case::new("read_to_the_heap", read_to_the_heap),
    Case::new("direct_reads", direct_reads),
    Case::new("prefetch_then_map", prefetch_then_map),
    Case::new("clone_held_twice", clone_held_twice),
    Case::new("clone_mapping_dropped", clone_mapping_dropped),
    Case::new("line_that_comes_early", line_that_comes_early),
    Case::new("silent_loader", silent_loader),
];

const STAGES: [&str; 2] = ["module_populated", "first_response"];

fn lazy_mapping(bench: &Bench, sharing: &str) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let arguments = format!("mmap-lazy --touch 16MiB --advice random {sharing} --notify --hold 0.1");
    let run = bench.loader(&model, &arguments).run();
    let mut claims = run.counters(&STAGES);
    // Read-ahead is off: each page that is touched comes alone, and the payload begins at a page's edge.
    claims.push(run.resident("module_populated", 16 * MIB, 0));
    claims.push(run.resident("first_response", 32 * MIB, 0));
    for stage in STAGES {
        claims.extend(run.mapped(stage, model.size, 32 * MIB));
        claims.extend(run.anonymous(stage, 0));
        let touched = run.mark(stage).get("touched_bytes");
        claims.push(run.within(stage, "rss_file_bytes", touched - rss_error()..=touched + OWN_FILES));
    }
    // Every page came from the disk, through a fault that waited for it.
    claims.push(run.within("first_response", "read_bytes", 32 * MIB..=32 * MIB + OWN_STORAGE));
    claims
}

fn read_ahead(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(64 * MIB, Fill::Pattern);
    let run = bench.loader(&model, "mmap-lazy --touch 8MiB --notify --hold 0.1").run();
    let mut claims = run.counters(&STAGES);
    claims.push(run.resident("module_populated", 8 * MIB, model.read_ahead()));
    claims.push(run.resident("first_response", 64 * MIB, 0));
    let resident = run.stage("module_populated").known("resident_payload_bytes");
    // What is still on its way is counted as read, and not resident yet.
    let most = resident + model.read_ahead() + OWN_STORAGE;
    claims.push(run.within("module_populated", "read_bytes", resident..=most));
    // No page is read twice, but for those that the host has evicted meanwhile.
    claims.push(run.within("first_response", "read_bytes", 64 * MIB..=64 * MIB + OWN_STORAGE));
    claims
}

/// A private mapping that may be written is populated for writing: the kernel copies each of its pages, the header's
/// too (mm/gup.c, populate_vma_page_range).
fn populated(bench: &Bench, sharing: &str, copies: bool) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let run = bench.loader(&model, &format!("mmap-populate {sharing} --notify --hold 0.1")).run();
    let mut claims = run.counters(&STAGES);
    for stage in STAGES {
        claims.push(run.resident(stage, 32 * MIB, 0));
        claims.extend(run.mapped(stage, model.size, 32 * MIB));
        claims.extend(run.anonymous(stage, if copies { model.size } else { 0 }));
    }
    claims
}

fn read_to_the_heap(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let run = bench.loader(&model, "read-heap --notify --hold 0.1").run();
    let mut claims = run.counters(&STAGES);
    for stage in STAGES {
        claims.extend(run.mapped(stage, 0, 0));
        claims.extend(run.anonymous(stage, 32 * MIB));
        // The page cache keeps what went through it.
        claims.push(run.resident(stage, 32 * MIB, 0));
        let (bytes, calls) = run.mark(stage).reads();
        claims.push(run.within(stage, "rchar_bytes", bytes..=bytes + START_READS));
        claims.push(run.within(stage, "read_syscalls", calls..=calls + START_READ_CALLS));
        claims.push(run.within(stage, "read_bytes", 32 * MIB..=32 * MIB + OWN_STORAGE));
    }
    let mapping = run.stage("mapping_available");
    claims.push(Claim::holds("nothing was mapped, and no stage says so", !mapping.reached(), mapping.text("status")));
    claims
}

fn direct_reads(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let run = bench.loader(&model, "odirect --notify --hold 0.1").run();
    let mut claims = run.counters(&STAGES);
    for stage in STAGES {
        claims.extend(run.mapped(stage, 0, 0));
        claims.extend(run.anonymous(stage, 32 * MIB));
        claims.push(run.resident(stage, 0, 0));
        let direct = run.mark(stage).get("direct_bytes");
        claims.push(run.within(stage, "read_bytes", direct..=direct + OWN_STORAGE));
    }
    claims
}

fn prefetch_then_map(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let run = bench.loader(&model, "prefetch-then-map --notify --hold 0.1").run();
    let mut claims = run.counters(&STAGES);
    claims.push(run.resident("module_populated", 32 * MIB, 0));
    claims.extend(run.mapped("module_populated", model.size, 32 * MIB));
    claims.extend(run.anonymous("module_populated", 0));
    let (bytes, _) = run.mark("module_populated").reads();
    claims.push(run.within("module_populated", "rchar_bytes", bytes.max(32 * MIB)..=bytes + START_READS));
    // Nothing but the payload was read twice: the mapping found it in the page cache.
    claims.push(run.within("first_response", "read_bytes", 32 * MIB..=32 * MIB + OWN_STORAGE));
    claims
}

fn clone_held_twice(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    let run = bench.loader(&model, "map-and-clone --notify --hold 0.1").run();
    let mut claims = run.counters(&STAGES);
    claims.extend(run.mapped("module_populated", model.size, 32 * MIB));
    claims.extend(run.anonymous("module_populated", 32 * MIB));
    claims.push(run.within(
        "module_populated",
        "rss_bytes",
        64 * MIB - 2 * rss_error()..=64 * MIB + OWN_FILES + OWN_MEMORY,
    ));
    // All of it was in the page cache.
    claims.push(run.exactly("first_response", "read_bytes", 0));
    claims
}

fn clone_mapping_dropped(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    let run = bench.loader(&model, "map-and-clone --drop-mapping --notify --hold 0.1").run();
    let mut claims = run.counters(&STAGES);
    claims.extend(run.mapped("module_populated", 0, 0));
    claims.extend(run.anonymous("module_populated", 32 * MIB));
    // The mapping that was dropped is in the peak.
    claims.push(run.exactly("first_response", "peak_mapped_bytes_low", model.size));
    claims.push(run.within("first_response", "rss_file_bytes", 0..=OWN_FILES));
    claims.push(run.resident("first_response", 32 * MIB, 0));
    claims
}

fn line_that_comes_early(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    // A second until it is all there: the line's sample is taken long before.
    let run = bench.loader(&model, "log-early --advice random --pace 32MiB --hold 0.1").run();
    let mut claims = run.counters(&[]);
    let populated = run.stage("module_populated");
    claims.push(Claim::words("evidence of module_populated", "log", populated.text("evidence")));
    let touched = run.mark("module_populated").get("touched_bytes");
    claims.push(run.within("module_populated", "resident_payload_bytes", touched..=touched + 16 * MIB));
    claims.push(run.resident("first_response", 32 * MIB, 0));
    // 99% were there when as much was touched: after the early line, and before the truth says that all of it is.
    let full = run.stage("fully_resident");
    let touched = run.truth.iter().find(|line| line.name == "really populated").unwrap();
    let (low, t) = (full.time("t_ns") - full.known("uncertainty_ns") as i64, full.time("t_ns"));
    let held = t > run.mark("module_populated").t && low <= touched.t;
    claims.push(Claim::holds("fully_resident is between the line and the truth", held, format!("{low} to {t} ns")));
    claims
}

fn silent_loader(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let run = bench.loader(&model, "silent --pace 64MiB --advice random --hold 0.2").run();
    let mut claims = run.counters(&[]);
    let mapping = run.stage("mapping_available");
    claims.push(Claim::words("evidence of mapping_available", "mapping", mapping.text("evidence")));
    claims.push(run.exactly("mapping_available", "mapped_payload_bytes", 32 * MIB));
    let full = run.stage("fully_resident");
    let (low, t) = (full.time("t_ns") - full.known("uncertainty_ns") as i64, full.time("t_ns"));
    let held = low <= run.mark("module_populated").t && t > run.line("step", "mapped").unwrap().t;
    claims.push(Claim::holds("fully_resident is between the mapping and the end", held, format!("{low} to {t} ns")));
    claims.push(run.resident("fully_resident", 32 * MIB, 0));
    for stage in STAGES {
        claims.push(Claim::absent(format!("rss_bytes at {stage}"), "no line matched", run.at(stage, "rss_bytes")));
    }
    claims
}
