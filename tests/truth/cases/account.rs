//! The host account of loaders that hold memory in one known way: each byte in one part, once, whoever shares it.

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB, Model, PAGE, word};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::needs::Need;
use crate::profile::{OWN_FILES, OWN_MEMORY, Profile, rss_error, taken_back};

pub const CASES: &[Case] = &[
    Case::new("account_of_copy_on_write_forks", copy_on_write).alone(),
    Case::new("account_of_four_mappers", |bench| four_mappers(bench, false)),
    Case::new("account_of_four_mappers_on_tmpfs", |bench| four_mappers(bench, true)).needs(&[Need::SharedMemory]),
    Case::new("account_of_a_memfd", memfd),
    Case::new("account_of_a_mapping_partly_written", partly_written),
    Case::new("account_of_other_files_used_in_part", other_files),
    Case::new("account_of_page_tables", page_tables),
    Case::new("account_of_locked_memory", locked),
];

/// A part of the account as its bounds.
fn part(run: &Profile, stage: &str, part: &str, truth: std::ops::RangeInclusive<u64>, widest: u64) -> Claim {
    let figure = run.bounds(stage, &format!("{part}_low"), &format!("{part}_high"));
    Claim::between(format!("{part} at {stage}"), truth, figure).widest(widest)
}

/// The sum of all: what the script holds, and what its processes hold of themselves.
fn total(run: &Profile, stage: &str, held: u64, processes: u64, widest: u64) -> Claim {
    let own = processes * (OWN_MEMORY + rss_error()) + OWN_FILES + run.stage(stage).known("page_table_bytes");
    Claim::between(format!("host_bytes at {stage}"), held..=held + own, run.host(stage)).widest(widest)
}

/// What a loader maps of its program and libraries, debug information left out: the high bound of other files, and 10 MiB
/// is what it is.
const MAPPED_FILES: u64 = 16 * MIB;

/// Five walks over it fit into a look's time also where a page takes ten times as long as is usual, as on some virtual
/// machines.
const HEAP: u64 = 64 * MIB;
const MARKS: usize = 12;
/// Children write to some pages of their own between the readings.
const APART: u64 = 2 * MIB;

/// The narrowest of the marks at which all was shared, and how far the bounds of anonymous memory are apart there.
fn narrowest(run: &Profile) -> (String, u64) {
    let width = |stage: &str| {
        let row = run.stage(stage);
        row.known("host_anon_bytes_high") - row.known("host_anon_bytes_low")
    };
    let stages = (0..MARKS).map(|number| format!("shared_{number}"));
    stages.map(|stage| (stage.clone(), width(&stage))).min_by_key(|(_, width)| *width).unwrap()
}

fn copy_on_write(bench: &Bench) -> Vec<Claim> {
    let child = "child\n ready\n await\n end\n";
    let marks: String = (0..MARKS).map(|number| format!("mark shared_{number}\n hold 50\n")).collect();
    let script = format!("anon a 64M\n write a 0 64M\n mark alone\n {}{marks} release\n wait\n", child.repeat(4));
    // Where others have the CPU a look may be cut short before it has read every share, and its high bound is wide; where
    // they have it for most of the time, every look of a run is: then once more.
    let mut runs = (0..4).map(|_| bench.acts(&script).run());
    let mut run = runs.next().unwrap();
    while narrowest(&run).1 > APART {
        let Some(next) = runs.next() else { break };
        run = next;
    }
    let row = run.stage("shared_0");
    let mut claims = vec![
        // Alone in its family, it shares nothing.
        part(&run, "alone", "host_anon_bytes", HEAP..=HEAP + OWN_MEMORY, 0),
        Claim::words("basis at alone", "unshared", run.stage("alone").text("host_basis")),
        run.within("shared_0", "rss_anon_bytes", 5 * HEAP - 5 * rss_error()..=5 * (HEAP + OWN_MEMORY + rss_error())),
        run.exactly("shared_0", "processes", 5),
    ];
    let (narrowest, _) = narrowest(&run);
    for number in 0..MARKS {
        let stage = format!("shared_{number}");
        let widest = if stage == narrowest { APART } else { row.known("rss_anon_bytes") };
        claims.push(part(&run, &stage, "host_anon_bytes", HEAP..=HEAP + 5 * OWN_MEMORY, widest));
    }
    claims.push(Claim::words(format!("basis at {narrowest}"), "pss;", run.stage(&narrowest).text("host_basis")));
    claims.push(run.within(&narrowest, "pss_anon_bytes", HEAP..=HEAP + 5 * OWN_MEMORY));
    claims.push(total(&run, &narrowest, HEAP, 5, MAPPED_FILES + APART));
    claims
}

fn four_mappers(bench: &Bench, in_memory: bool) -> Vec<Claim> {
    let folder = tempfile::tempdir_in(if in_memory { "/dev/shm".into() } else { bench.path("") }).unwrap();
    let model = Model::write(folder.path().join("model.safetensors"), 32 * MIB, Fill::Pattern).warm();
    let (path, size) = (word(&model.path), model.size);
    let child = format!("child\n touch m 0 {size}\n ready\n await\n end\n");
    let script = format!(
        "open f {path}\n map m f 0 {size} shared ro\n touch m 0 {size}\n {} mark mapped\n release\n wait\n",
        child.repeat(3)
    );
    let run = bench.acts(&script).artifact(&model.path).payload(model.payload).run();
    // Clean pages of a disk may be evicted by the host.
    let least = if in_memory { model.payload } else { model.payload - taken_back(model.payload) };
    let each = if in_memory { "rss_shmem_bytes" } else { "rss_file_bytes" };
    vec![
        run.within("mapped", each, 4 * (least - rss_error())..=4 * (model.size + OWN_FILES + rss_error())),
        part(&run, "mapped", "host_payload_bytes", least..=model.payload, 0),
        part(&run, "mapped", "host_artifact_other_bytes", model.start..=model.start, PAGE),
        part(&run, "mapped", "host_shmem_bytes", 0..=0, rss_error()),
        part(&run, "mapped", "host_file_bytes", 0..=OWN_FILES, MAPPED_FILES),
        total(&run, "mapped", least, 4, MAPPED_FILES + 4 * OWN_MEMORY),
    ]
}

fn memfd(bench: &Bench) -> Vec<Claim> {
    let child = "child\n touch m 0 64M\n ready\n await\n end\n";
    let script = format!(
        "memfd g 64M\n map m g 0 64M shared rw\n write m 0 64M\n {} mark mapped\n release\n wait\n\
         unmap m 0 64M\n mark unmapped\n",
        child.repeat(3)
    );
    let run = bench.acts(&script).run();
    vec![
        run.within("mapped", "rss_shmem_bytes", 4 * (64 * MIB - rss_error())..=4 * (64 * MIB + rss_error())),
        part(&run, "mapped", "host_shmem_bytes", 64 * MIB..=64 * MIB, rss_error()),
        run.exactly("mapped", "mapped_shmem_bytes", 64 * MIB),
        // Memory still, and in nobody's resident set: the account says that it has no such part.
        part(&run, "unmapped", "host_shmem_bytes", 0..=0, rss_error()),
    ]
}

fn partly_written(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = format!(
        "open f {}\n map m f 0 33558528 private rw\n touch m 0 33558528\n mark read\n write m 4096 8M\n mark written\n",
        word(&model.path)
    );
    let run = bench.acts(&script).artifact(&model.path).payload(model.payload).run();
    let copied = run.mark("written").get("copied_bytes");
    assert_eq!(copied, 8 * MIB);
    let anonymous = |stage| run.stage(stage).known("host_anon_bytes_low");
    let grown = anonymous("written") - anonymous("read");
    let least = model.payload - taken_back(model.payload);
    let available = run.samples.iter().all(|sample| sample.get("host_available_bytes").is_some());
    vec![
        Claim::holds("every sample has MemAvailable beside it", available, format!("{} samples", run.samples.len())),
        Claim::between("host_anon_bytes grew by", copied - rss_error()..=copied + rss_error(), Figure::Exact(grown)),
        // The page cache keeps the pages that were copied.
        part(&run, "written", "host_payload_bytes", least..=model.payload, 0),
        total(&run, "written", least + copied, 1, MAPPED_FILES),
    ]
}

/// A file that is no artifact, mapped whole by three processes, of which each uses 8 MiB that overlap: 12 MiB in all.
fn other_files(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern).warm();
    let library = bench.path("library.dat");
    std::fs::File::create(&library).unwrap().set_len(256 * MIB).unwrap();
    let maps =
        |file: &str, size: u64| format!("map {file} {file}f 0 {size} shared ro\n advise {file} 0 {size} random\n");
    let child = |from: u64| format!("child\n touch l {from} 8M\n ready\n await\n end\n");
    let script = format!(
        "open mf {}\n open lf {}\n {}{} touch m 0 {}\n touch l 0 8M\n {}{} mark used\n release\n wait\n",
        word(&model.path),
        word(&library),
        maps("m", model.size),
        maps("l", 256 * MIB),
        model.size,
        child(2 * MIB),
        child(4 * MIB),
    );
    // Where others have the CPU a look may be cut short before the tables were walked: then once more.
    let mut runs = (0..4).map(|_| bench.acts(&script).artifact(&model.path).payload(model.payload).run());
    let run =
        runs.find(|run| run.stage("used").number("present_other_file_bytes").is_some()).expect("a look with time");
    let held = 12 * MIB;
    vec![
        run.within("used", "present_other_file_bytes", held..=held + OWN_FILES),
        run.within("used", "mapped_other_file_bytes", 256 * MIB..=256 * MIB + MAPPED_FILES * 2),
        part(&run, "used", "host_file_bytes", held..=held + OWN_FILES, OWN_FILES),
    ]
}

/// One page of each 2 MiB, which is what one page of page tables reaches.
fn page_tables(bench: &Bench) -> Vec<Claim> {
    if PAGE != stagemark::sys::cache::page_size() || cfg!(not(target_arch = "x86_64")) {
        return vec![Claim::holds("page tables of this machine are of another shape", true, "not looked at")];
    }
    let model = bench.model(512 * MIB, Fill::Sparse);
    let touches: String = (0..256).map(|number| format!("touch m {} 1\n", (2 * number + 1) * MIB)).collect();
    let script = format!(
        "open f {}\n map m f 0 512M shared ro\n advise m 0 512M random\n mark before\n {touches} mark touched\n",
        word(&model.path)
    );
    let run = bench.acts(&script).artifact(&model.path).payload(model.payload).run();
    let grown = run.stage("touched").known("page_table_bytes") - run.stage("before").known("page_table_bytes");
    let all = run.stage("touched").known("page_table_bytes");
    vec![
        Claim::between("page_table_bytes grew by", 256 * PAGE..=260 * PAGE, Figure::Exact(grown)),
        part(&run, "touched", "host_page_table_bytes", all..=all, 0),
    ]
}

fn locked(bench: &Bench) -> Vec<Claim> {
    let run = bench.acts("anon a 16M\n write a 0 16M\n mark free\n lock a 0 4M\n mark locked\n").run();
    vec![
        run.exactly("free", "locked_bytes", 0),
        run.exactly("locked", "locked_bytes", 4 * MIB),
        // It is a part of the resident set, and no more memory.
        part(&run, "locked", "host_anon_bytes", 16 * MIB..=16 * MIB + OWN_MEMORY, 0),
        total(&run, "locked", 16 * MIB, 1, MAPPED_FILES),
    ]
}
