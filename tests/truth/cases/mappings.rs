//! What a process can do with a mapping: cut, move, write, lock, drop.

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB, Model, PAGE, word};
use crate::claim::Claim;
use crate::harness::Case;
use crate::needs::Need;
use crate::profile::{OWN_FILES, OWN_MEMORY, Profile, rss_error};

pub const CASES: &[Case] = &[
    Case::new("private_mapping_partly_written", private_partly_written),
    Case::new("shared_mapping_written", shared_written),
    Case::new("populated_in_part", populated_in_part),
    Case::new("locked_in_part", locked_in_part),
    Case::new("madvise_dontneed", dontneed),
    Case::new("madvise_willneed", willneed),
    Case::new("madvise_random", random),
    Case::new("mremap_grows_and_moves", mremap),
    Case::new("mprotect_splits_a_mapping", mprotect),
    Case::new("munmap_of_a_part", munmap),
    Case::new("mapped_twice_counted_once", mapped_twice),
    Case::new("copy_in_a_memfd", copy_in_a_memfd),
    Case::new("copy_in_shared_memory", copy_in_shared_memory).needs(&[Need::SharedMemory]),
];

/// A script about one model, `f`, which is declared.
fn run(bench: &Bench, model: &Model, script: &str) -> Profile {
    let script = format!("open f {}\n{script}", word(&model.path));
    bench.acts(&script).artifact(&model.path).payload(model.payload).run()
}

/// Files' pages in the resident set at a stage: these, and the program's own.
fn file_backed(run: &Profile, stage: &str, bytes: u64) -> Claim {
    run.within(stage, "rss_file_bytes", bytes.saturating_sub(rss_error())..=bytes + OWN_FILES)
}

fn private_partly_written(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = "map m f 0 33558528 private rw\n advise m 0 33558528 random\n touch m 4096 32M\n mark read\n\
                  write m 4096 8M\n mark written\n";
    let run = run(bench, &model, script);
    let mut claims = run.counters(&["read", "written"]);
    claims.extend(run.mapped_as_told(&["read", "written"]));
    for (stage, copied) in [("read", 0), ("written", 8 * MIB)] {
        assert_eq!(run.mark(stage).get("copied_bytes"), copied);
        // The page cache keeps what the copies were made of.
        claims.push(run.resident(stage, 32 * MIB, 0));
        claims.extend(run.anonymous(stage, copied));
        claims.push(file_backed(&run, stage, 32 * MIB - copied));
    }
    // The truth's own page alone.
    claims.push(run.within("written", "write_bytes", 0..=16 * PAGE));
    claims
}

fn shared_written(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = format!(
        "open g {} rw\n map m g 0 33558528 shared rw\n advise m 0 33558528 random\n write m 4096 8M\n mark written\n",
        word(&model.path)
    );
    let run = run(bench, &model, &script);
    let mut claims = run.counters(&["written"]);
    claims.extend(run.mapped_as_told(&["written"]));
    claims.push(run.resident("written", 8 * MIB, 0));
    claims.extend(run.anonymous("written", 0));
    claims.push(file_backed(&run, "written", 8 * MIB));
    // Counted as each page is dirtied, before anything is written (mm/page-writeback.c, folio_account_dirtied); beside
    // them the truth's own page.
    claims.push(run.within("written", "write_bytes", 8 * MIB..=8 * MIB + 16 * PAGE));
    claims
}

fn populated_in_part(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let run = run(bench, &model, "map m f 4096 8M shared ro populate\n mark populated\n");
    let mut claims = run.counters(&["populated"]);
    claims.extend(run.mapped_as_told(&["populated"]));
    claims.push(run.resident("populated", 8 * MIB, model.read_ahead()));
    claims.push(file_backed(&run, "populated", 8 * MIB));
    claims
}

fn locked_in_part(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = "map m f 0 33558528 shared ro\n advise m 0 33558528 random\n lock m 4096 4M\n mark locked\n\
                  fadvise f 0 33558528 dontneed\n mark evicted\n";
    let run = run(bench, &model, script);
    let mut claims = run.mapped_as_told(&["locked", "evicted"]);
    // What is locked is in, with no page beyond it where read-ahead is off, and eviction leaves it there.
    claims.push(run.resident("locked", 4 * MIB, 0));
    claims.push(run.resident("evicted", 4 * MIB, 0));
    claims.push(file_backed(&run, "evicted", 4 * MIB));
    claims
}

fn dontneed(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = "map m f 0 33558528 private rw\n advise m 0 33558528 random\n touch m 4096 16M\n write m 4096 4M\n\
                  mark touched\n advise m 4096 8M dontneed\n mark dropped\n";
    let run = run(bench, &model, script);
    let mut claims = run.mapped_as_told(&["touched", "dropped"]);
    claims.extend(run.anonymous("touched", 4 * MIB));
    // The process lets go of its page tables and its copies; the page cache keeps the file.
    claims.extend(run.anonymous("dropped", 0));
    claims.push(file_backed(&run, "touched", 12 * MIB));
    claims.push(file_backed(&run, "dropped", 8 * MIB));
    claims.push(run.resident("dropped", 16 * MIB, 0));
    claims
}

fn willneed(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    // The call only begins the reading.
    let script = "map m f 0 33558528 shared ro\n mark before\n advise m 4096 8M willneed\n hold 300\n mark after\n";
    let run = run(bench, &model, script);
    let mut claims = run.mapped_as_told(&["before", "after"]);
    claims.push(run.resident("after", 8 * MIB, model.read_ahead()));
    claims.push(run.exactly("before", "resident_payload_bytes", 0));
    // Read for it, and no fault taken: nothing was touched.
    let delta = run.at("after", "delta_read_bytes");
    let most = 8 * MIB + model.read_ahead();
    claims.push(Claim::between("delta_read_bytes at after", 8 * MIB..=most, delta));
    claims.push(Claim::exact("delta_major_faults at after", 0, run.at("after", "delta_major_faults")));
    claims.push(file_backed(&run, "after", 0));
    claims
}

fn random(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    // One page of each 64 KiB.
    let touches: String = (0..512).map(|place| format!("touch m {} 1\n", 4096 + place * 65_536)).collect();
    let script = format!("map m f 0 33558528 shared ro\n advise m 0 33558528 random\n{touches} mark touched\n");
    let run = run(bench, &model, &script);
    let mut claims = run.counters(&["touched"]);
    claims.extend(run.mapped_as_told(&["touched"]));
    claims.push(run.exactly("touched", "resident_payload_bytes", 512 * PAGE));
    claims.push(run.within("touched", "major_faults", 512..=512 + 64));
    claims.push(run.within("touched", "read_bytes", 512 * PAGE..=512 * PAGE + OWN_FILES));
    claims
}

fn mremap(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    let script = "map m f 4096 4M shared ro\n mark small\n move m\n mark moved\n resize m 12M\n mark grown\n\
                  resize m 1M\n mark shrunk\n";
    let run = run(bench, &model, script);
    run.mapped_as_told(&["small", "moved", "grown", "shrunk"])
}

fn mprotect(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    let script = "map m f 0 33558528 private ro\n protect m 8M 4M rw\n protect m 20M 4096 none\n mark split\n\
                  protect m 8M 4M ro\n mark joined\n";
    let run = run(bench, &model, script);
    let mut claims = run.mapped_as_told(&["split", "joined"]);
    // What may not be touched is mapped all the same.
    claims.push(run.exactly("split", "mapped_bytes", model.size));
    claims
}

fn munmap(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = "map m f 0 33558528 shared ro\n advise m 0 33558528 random\n touch m 4096 32M\n mark whole\n\
                  unmap m 8M 4M\n unmap m 20M 4096\n unmap m 0 4096\n mark holes\n unmap m 0 33558528\n mark none\n";
    let run = run(bench, &model, script);
    let mut claims = run.mapped_as_told(&["whole", "holes", "none"]);
    claims.push(run.exactly("holes", "mapped_bytes", model.size - 4 * MIB - 2 * PAGE));
    // Unmapped is not evicted.
    claims.push(run.resident("none", 32 * MIB, 0));
    claims.push(run.exactly("none", "peak_mapped_bytes_low", model.size));
    claims
}

fn mapped_twice(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    let script = "map a f 0 20M shared ro\n map b f 12M 16M private rw\n map c f 30M 4096 shared ro\n\
                  touch a 0 20M\n touch b 0 16M\n mark overlap\n";
    let run = run(bench, &model, script);
    let mut claims = run.mapped_as_told(&["overlap"]);
    claims.push(run.exactly("overlap", "mapped_bytes", 28 * MIB + PAGE));
    // A page that two mappings hold is in the resident set twice, and in the page cache once.
    claims.push(file_backed(&run, "overlap", 36 * MIB));
    claims.push(run.exactly("overlap", "resident_payload_bytes", model.payload));
    claims
}

/// The payload is copied to memory that is of no disk, and the file evicted: what is resident is the file's, and the copy
/// is shared memory.
fn copied(bench: &Bench, model: &Model, target: &str) -> Vec<Claim> {
    let script = format!(
        "{target}\n sendfile f 4096 16M g\n mark copied\n fadvise f 0 33558528 dontneed\n map m g 0 16M shared rw\n\
         touch m 0 16M\n mark evicted\n write m 0 16M\n mark written\n"
    );
    let run = run(bench, model, &script);
    let mut claims = vec![run.resident("copied", 16 * MIB, model.read_ahead())];
    for stage in ["evicted", "written"] {
        claims.push(run.within(stage, "resident_payload_bytes", 0..=model.payload / 100));
        claims.extend(run.mapped(stage, 0, 0));
        claims.push(run.within(stage, "rss_shmem_bytes", 16 * MIB - rss_error()..=16 * MIB + rss_error()));
        claims.push(run.within(stage, "rss_anon_bytes", 0..=OWN_MEMORY));
    }
    // It was written, not mapped: in no resident set yet.
    claims.push(run.within("copied", "rss_shmem_bytes", 0..=rss_error()));
    claims
}

fn copy_in_a_memfd(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    copied(bench, &model, "memfd g 0")
}

fn copy_in_shared_memory(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    copied(bench, &model, &format!("open g {} create", word(folder.path().join("copy"))))
}
