//! The facts of shared kernels that a figure could be wrong about: faults are not pages, an exec is a new image, the dead
//! are counted by whoever waits for them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use stagemark_fixtures::models::{self, Fill, TensorSpec};

use crate::bench::{Bench, MIB, Model, PAGE, word};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::profile::{LAST_FAULTS, OWN_FILES, OWN_MEMORY, Profile, START_READS, rss_error, taken_back};

pub const CASES: &[Case] = &[
    Case::new("fewer_faults_than_pages", fewer_faults_than_pages),
    Case::new("exec_starts_a_new_image", exec),
    Case::new("zombie_counted_once", zombie),
    Case::new("orphans_of_ignored_children", ignored_children),
    Case::new("child_by_vfork", vfork),
    Case::new("threads", threads),
    Case::new("main_thread_ends_first", main_thread_ends_first),
    Case::new("two_thousand_mappings", two_thousand_mappings),
    Case::new("tensors_that_share_a_page", shared_pages),
    Case::new("index_with_some_shards_mapped", shards),
    Case::new("sparse_holes", holes),
    Case::new("empty_tensors", empty_tensors),
    Case::new("evicted_between_marks", evicted),
    Case::new("evicted_while_mapped", evicted_while_mapped),
    Case::new("extent_of_forked_mappings", forked),
];

fn run(bench: &Bench, model: &Model, script: &str) -> Profile {
    let script = format!("open f {}\n{script}", word(&model.path));
    bench.acts(&script).artifact(&model.path).payload(model.payload).run()
}

fn fewer_faults_than_pages(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern).warm();
    let run = run(bench, &model, "map m f 0 33558528 shared ro\n mark mapped\n touch m 4096 32M\n mark touched\n");
    let mut claims = run.counters(&["mapped", "touched"]);
    let faults = run.mark("touched").faults() - run.mark("mapped").faults();
    let pages = 32 * MIB / PAGE;
    claims.push(Claim::holds("faults are fewer than pages", faults < pages / 2, format!("{faults} for {pages}")));
    claims.push(run.exactly("touched", "delta_major_faults", 0));
    claims.push(run.exactly("touched", "delta_read_bytes", 0));
    claims
}

fn exec(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    let path = word(&model.path);
    let second = format!("open f {path}\n mark anew\n map m f 0 4M shared ro\n touch m 0 4M\n mark mapped\n");
    let script = bench.script("second", &second);
    let first = format!(
        "map m f 0 33558528 shared ro\n touch m 0 32M\n anon a 16M\n write a 0 16M\n read f 0 8M\n mark full\n exec {}\n",
        word(&script)
    );
    let run = run(bench, &model, &first);
    let mut claims = run.mapped_as_told(&["full", "anew", "mapped"]);
    claims.extend(run.anonymous("full", 16 * MIB));
    // What the first image held is gone; what it counted is not.
    claims.extend(run.anonymous("anew", 0));
    let (full, anew) = (run.mark("full").reads().0, run.mark("anew").reads().0);
    claims.push(run.within("anew", "rchar_bytes", full + anew..=full + anew + 2 * START_READS));
    let faults = run.mark("full").faults();
    // getrusage(2) goes on over an exec, as stat does.
    let (before, after) = (run.mark("anew").faults(), run.line("said", "anew").unwrap().faults());
    assert!(before > faults);
    claims.push(Claim::between("faults at anew", before..=after, run.faults_at("anew")));
    claims.push(run.exactly("mapped", "processes", 1));
    claims
}

/// Reads by children and by the root: what all of them together read.
fn reads(run: &Profile, stage: &str, pipes: u64, processes: u64) -> Claim {
    let mark = run.mark(stage);
    let children = run.truth.iter().filter(|line| line.kind == "process" && line.name == "child" && line.t < mark.t);
    let bytes = children.map(|line| line.reads().0).sum::<u64>() + mark.reads().0;
    run.within(stage, "rchar_bytes", bytes..=bytes + processes * START_READS + pipes)
}

fn zombie(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(8 * MIB, Fill::Sparse).warm();
    // The child is over and nobody has waited for it; then somebody has.
    let script = "child\n read f 0 8M\n anon a 8M\n write a 0 8M\n end\n hold 100\n mark zombie\n wait\n mark reaped\n";
    let run = run(bench, &model, script);
    let mut claims = vec![reads(&run, "zombie", 64, 1), reads(&run, "reaped", 64, 1)];
    let faults = run.truth.iter().find(|line| line.name == "child").unwrap().faults();
    for stage in ["zombie", "reaped"] {
        let (before, after) = (run.mark(stage).faults(), run.line("said", stage).unwrap().faults());
        let within = before + faults..=after + faults + LAST_FAULTS;
        claims.push(Claim::between(format!("faults at {stage}"), within, run.faults_at(stage)));
        // It has no memory any more.
        claims.extend(run.anonymous(stage, 0));
    }
    claims
}

fn ignored_children(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(8 * MIB, Fill::Sparse).warm();
    let script = "ignore-children\n child\n read f 0 4M\n ready\n hold 300\n end\n hold 600\n mark lost\n";
    let run = run(bench, &model, script);
    let child = run.truth.iter().find(|line| line.name == "child").unwrap().reads().0;
    let own = run.mark("lost").reads().0;
    vec![
        // It lived for many ticks after its reading: what was seen of it stays.
        run.within("lost", "rchar_bytes", own + child..=own + child + 2 * START_READS),
        Claim::words("the run says what may be missing", "SIGCHLD", run.warnings()),
    ]
}

fn vfork(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(8 * MIB, Fill::Sparse).warm();
    let path = word(&model.path);
    let script = format!("map m f 0 8392704 shared ro\n spawn /bin/cat {path}\n mark read\n");
    let run = run(bench, &model, &script);
    let own = run.mark("read").reads().0;
    let mut claims = run.mapped_as_told(&["read"]);
    // All of the file, and what cat reads of itself and of its locale.
    claims.push(run.within("read", "rchar_bytes", own + model.size..=own + model.size + 2 * START_READS));
    claims
}

fn threads(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(8 * MIB, Fill::Sparse);
    let run = run(bench, &model, "threads 40\n mark threads\n");
    vec![run.exactly("threads", "threads", 41), run.exactly("threads", "processes", 1)]
}

fn main_thread_ends_first(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = "map m f 0 33558528 shared ro\n leave-main\n hold 100\n open f ";
    let script = format!(
        "{script}{}\n map n f 0 16M shared ro\n advise n 0 16M random\n touch n 4096 12M\n anon a 8M\n write a 0 8M\n\
         read f 0 8M\n hold 100\n mark left\n",
        word(&model.path)
    );
    let run = run(bench, &model, &script);
    // What is left is a process whose first thread is a zombie: its own /proc files are empty, its other thread's are not.
    let mut claims = run.mapped("left", model.size, model.payload).to_vec();
    claims.extend(run.anonymous("left", 8 * MIB));
    claims.push(run.within("left", "rss_file_bytes", 12 * MIB - rss_error()..=12 * MIB + OWN_FILES));
    let (mark, said) = (run.mark("left"), run.line("said", "left").unwrap());
    claims.push(Claim::between("faults at left", mark.faults()..=said.faults(), run.faults_at("left")));
    let reads = mark.reads().0;
    claims.push(run.within("left", "rchar_bytes", reads..=reads + 2 * START_READS));
    claims.push(run.exactly("left", "processes", 1));
    claims
}

fn two_thousand_mappings(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    let run = run(bench, &model, "many m f 2000 16K 8K\n mark mapped\n");
    let mut claims = run.mapped_as_told(&["mapped"]);
    claims.push(run.exactly("mapped", "mapped_bytes", 2000 * 8192));
    claims
}

/// Tensors of 1,000 bytes: four or five to a page, and a header that ends within one.
fn shared_pages(bench: &Bench) -> Vec<Claim> {
    let tensors: Vec<TensorSpec> = (0..1_000).map(|n| TensorSpec::flat(format!("t{n}"), "U8", 1_000, 1)).collect();
    let path = bench.path("small.safetensors");
    let written = models::safetensors(&path, &tensors, Fill::Pattern).unwrap();
    let payload = written.payload_bytes();
    let model = Model { path, size: written.size, payload, start: written.size - payload };
    assert_ne!(model.start % PAGE, 0);
    model.evict();
    let first = model.start / PAGE;
    let script = format!(
        "map m f 0 {} shared ro\n advise m 0 {} random\n touch m {} 1\n mark first\n touch m {} 8192\n mark middle\n\
         touch m {} 1\n mark last\n",
        model.size,
        model.size,
        first * PAGE,
        (first + 10) * PAGE,
        model.size - 1
    );
    let run = run(bench, &model, &script);
    let mut claims = run.mapped_as_told(&["first", "last"]);
    // The first page holds the header's end and the first tensors' beginning, the last one ends with the file.
    let edge = (first + 1) * PAGE - model.start;
    let tail = model.size % PAGE;
    claims.push(run.exactly("first", "resident_payload_bytes", edge));
    claims.push(run.exactly("middle", "resident_payload_bytes", edge + 2 * PAGE));
    claims.push(run.exactly("last", "resident_payload_bytes", edge + 2 * PAGE + tail));
    claims.push(run.exactly("last", "payload_bytes", 1_000_000));
    claims
}

fn shards(bench: &Bench) -> Vec<Claim> {
    let folder = bench.folder("model");
    let tensors = [TensorSpec::flat("a", "F32", 1 << 20, 4), TensorSpec::flat("b", "F32", 1 << 20, 4)];
    let shards = models::sharded(&folder, 4, &tensors, Fill::Pattern).unwrap();
    let shards: Vec<Model> = shards
        .iter()
        .map(|shard| {
            let payload = shard.payload_bytes();
            let model = Model { path: shard.path.clone(), size: shard.size, payload, start: shard.size - payload };
            model.evict();
            model
        })
        .collect();
    let map = |shard: &Model, name: &str| {
        let (path, size) = (word(&shard.path), shard.size);
        format!("open {name} {path}\n map {name} {name} 0 {size} shared ro\n touch {name} 0 {size}\n")
    };
    let script = format!("{} mark one\n {} mark two\n", map(&shards[1], "f"), map(&shards[3], "g"));
    let index = folder.join("model.safetensors.index.json");
    let run = bench.acts(&script).artifact(&index).payload(4 * 8 * MIB).run();
    let mut claims = run.mapped_as_told(&["one", "two"]);
    claims.push(run.exactly("two", "artifacts", 4));
    claims.push(run.exactly("two", "payload_bytes", 32 * MIB));
    claims.push(run.exactly("one", "mapped_payload_bytes", 8 * MIB));
    claims.push(run.exactly("two", "mapped_payload_bytes", 16 * MIB));
    // Of each shard that nobody has touched, the page is resident that its header was read from; tensors begin in it.
    claims.push(run.resident("one", 8 * MIB, 3 * PAGE));
    claims.push(run.resident("two", 16 * MIB, 2 * PAGE));
    let json = run.run.json();
    let states: Vec<&str> =
        json["artifacts"].as_array().unwrap().iter().map(|artifact| artifact["state"].as_str().unwrap()).collect();
    claims.push(Claim::words("states of the shards", "declared mapped declared mapped", states.join(" ")));
    claims
}

fn holes(bench: &Bench) -> Vec<Claim> {
    // 8 MiB of it lie on the disk, in the middle; the rest are holes.
    let model = bench.model(32 * MIB, Fill::Sparse);
    let file = File::options().write(true).open(&model.path).unwrap();
    file.write_all_at(&vec![3; 8 << 20], model.start + 8 * MIB).unwrap();
    drop(file);
    model.evict();
    let run = run(
        bench,
        &model,
        "map m f 0 33558528 shared ro\n advise m 0 33558528 random\n touch m 4096 32M\n mark touched\n",
    );
    let mut claims = run.mapped_as_told(&["touched"]);
    // A hole's pages are in the page cache like any other, and no storage is read for them.
    claims.push(run.resident("touched", 32 * MIB, 0));
    claims.push(run.within("touched", "read_bytes", 8 * MIB..=16 * MIB));
    claims
}

fn empty_tensors(bench: &Bench) -> Vec<Claim> {
    let tensors = [
        TensorSpec::flat("none", "F32", 0, 4),
        TensorSpec::flat("some", "F32", 1 << 20, 4),
        TensorSpec { name: "scalar".into(), dtype: "F32".into(), shape: vec![], length: 4 },
        TensorSpec { name: "flat".into(), dtype: "F32".into(), shape: vec![5, 0, 7], length: 0 },
    ];
    let path = bench.path("empty.safetensors");
    let written = models::safetensors(&path, &tensors, Fill::Pattern).unwrap();
    let payload = written.payload_bytes();
    let model = Model { path, size: written.size, payload, start: written.size - payload };
    model.evict();
    let size = model.size;
    let run = run(bench, &model, &format!("map m f 0 {size} shared ro\n touch m 0 {size}\n mark touched\n"));
    let mut claims = run.mapped_as_told(&["touched"]);
    claims.push(run.exactly("touched", "payload_bytes", 4 * MIB + 4));
    claims.push(run.resident("touched", payload, 0));
    // None at all.
    let path = bench.path("nothing.safetensors");
    models::safetensors(&path, &tensors[..1], Fill::Pattern).unwrap();
    let script = format!("open f {}\n map m f 0 4096 shared ro\n touch m 0 1\n mark touched\n", word(&path));
    let run = bench.acts(&script).artifact(&path).payload(0).run();
    claims.extend(run.mapped("touched", std::fs::metadata(&path).unwrap().len(), 0));
    claims.push(run.exactly("touched", "payload_bytes", 0));
    claims.push(run.exactly("touched", "resident_payload_bytes", 0));
    claims
}

fn evicted(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script =
        "read f 0 33558528\n mark full\n fadvise f 0 33558528 dontneed\n mark empty\n read f 4096 8M\n mark again\n";
    let run = run(bench, &model, script);
    let mut claims = vec![run.resident("full", 32 * MIB, 0)];
    claims.push(run.within("empty", "resident_payload_bytes", 0..=0));
    claims.push(run.resident("again", 8 * MIB, model.read_ahead()));
    // What was read again was read again from storage.
    claims.push(run.within("again", "delta_read_bytes", 8 * MIB..=8 * MIB + model.read_ahead()));
    claims.push(run.within("full", "peak_resident_payload_bytes_low", 32 * MIB - taken_back(32 * MIB)..=32 * MIB));
    let change = run.stage("empty").text("change_resident_payload_bytes").to_owned();
    let fell = change.parse::<i64>().map_or(0, |change| u64::try_from(-change).unwrap_or(0));
    claims.push(Claim::between(
        "fall of resident payload at empty",
        32 * MIB - taken_back(32 * MIB)..=32 * MIB,
        Figure::Exact(fell),
    ));
    claims
}

fn evicted_while_mapped(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = "map m f 0 33558528 shared ro\n advise m 0 33558528 random\n touch m 4096 4M\n read f 16M 8M\n\
                  mark full\n fadvise f 0 33558528 dontneed\n mark evicted\n";
    let run = run(bench, &model, script);
    let mut claims = run.mapped_as_told(&["full", "evicted"]);
    claims.push(run.resident("full", 12 * MIB, model.read_ahead()));
    // What page tables point at stays, and what was only read goes.
    claims.push(run.resident("evicted", 4 * MIB, 0));
    claims
}

fn forked(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    // The child unmaps what it inherited and maps another part; the parent unmaps while the child has it still.
    let script = "map m f 0 16M shared ro\n child\n ready\n await\n end\n child\n unmap m 0 16M\n map n f 24M 4M shared ro\n\
                  ready\n await\n end\n mark three\n unmap m 0 16M\n mark two\n release\n wait\n mark none\n";
    let run = run(bench, &model, script);
    let payload = 20 * MIB - PAGE;
    let mut claims = run.mapped("three", 20 * MIB, payload).to_vec();
    claims.extend(run.mapped("two", 20 * MIB, payload));
    claims.extend(run.mapped("none", 0, 0));
    claims.push(run.exactly("three", "processes", 3));
    claims.push(run.exactly("none", "processes", 1));
    claims.push(run.within("none", "rss_anon_bytes", 0..=OWN_MEMORY));
    claims
}
