//! `copy-paths`: what a way is said to copy out of, and what the kernel counted, on each kind of filesystem.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::Value;
use stagemark_fixtures::models::Fill;

use super::filesystems::{OVERLAY, disk};
use crate::bench::{Bench, MIB, Model, PAGE};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::needs::Need;
use crate::support::{finish, stagemark};

pub const CASES: &[Case] = &[
    Case::new("copies_on_ext4", |bench| on_disk(bench, "ext4")).needs(&[Need::Mounts, Need::Program("mkfs.ext4")]),
    Case::new("copies_on_xfs", |bench| on_disk(bench, "xfs")).needs(&[
        Need::Mounts,
        Need::Filesystem("xfs"),
        Need::Program("mkfs.xfs"),
    ]),
    Case::new("copies_on_overlay_lower", |bench| on_overlay(bench, "lower")).needs(OVERLAY),
    Case::new("copies_on_overlay_upper", |bench| on_overlay(bench, "upper")).needs(OVERLAY),
    Case::new("copies_on_tmpfs", on_tmpfs).needs(&[Need::Mounts]),
    Case::new("copied_to_other_filesystems", copied).needs(&[Need::Mounts, Need::Program("mkfs.ext4")]),
];

const PAYLOAD: u64 = 8 * MIB;

/// What `copy-paths` says of an artifact, as JSON.
fn measured(artifact: &Path, options: &[&OsStr]) -> Value {
    let mut command = stagemark();
    command.args(["copy-paths", "--repeats", "2", "--json"]).args(options).arg(artifact);
    let output = finish(&mut command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The passes of a regime at a place, whatever it maps and of all repeats.
fn passes<'v>(place: &'v Value, regime: &str) -> Vec<&'v Value> {
    let series = place["series"].as_array().unwrap().iter();
    let of = series.filter(|series| series["way"]["regime"] == regime);
    of.flat_map(|series| series["passes"].as_array().unwrap()).collect()
}

/// What holds on every filesystem: the class of what is copied out of, the bytes, and the faults of fresh memory.
fn of_every_way(place: &Value) -> Vec<Claim> {
    let mut claims = Vec::new();
    for series in place["series"].as_array().unwrap() {
        let way = &series["way"];
        let name = format!("{} {}", way["regime"].as_str().unwrap(), way["mapped"].as_str().unwrap_or(""));
        if let Some(why) = series["refused"].as_str() {
            // Only this may be impossible, and only where the filesystem has none.
            claims.push(Claim::words(format!("{name} refused"), "O_DIRECT", why));
            continue;
        }
        let out_of_the_file =
            ["first_touch_cold", "first_touch_warm", "prefaulted", "populated"].iter().any(|one| way["regime"] == *one);
        let class = match (out_of_the_file, way["mapped"].as_str()) {
            (true, Some("private")) => "file rw-p",
            (true, Some("shared")) => "file r--s",
            _ => "anonymous rw-p",
        };
        let all = series["passes"].as_array().unwrap();
        let classes: Vec<&str> = all.iter().map(|pass| pass["source"].as_str().unwrap()).collect();
        claims.push(Claim::holds(
            format!("{name} copies out of {class}"),
            classes.iter().all(|one| *one == class),
            classes.join(", "),
        ));
        let compared: Vec<&Value> = all.iter().map(|pass| &pass["verified"]).filter(|one| !one.is_null()).collect();
        let equal = !compared.is_empty() && compared.iter().all(|one| **one == true);
        claims.push(Claim::holds(format!("{name}: the bytes are the file's"), equal, format!("{compared:?}")));
    }
    for regime in ["heap", "cloned"] {
        // Every page of fresh memory is a fault, unless huge ones are given.
        let faults = PAYLOAD / (2 * MIB)..=3 * PAYLOAD / PAGE;
        claims.push(every(format!("minor faults of {regime}"), place, regime, "minor_faults", faults));
    }
    claims
}

/// That a figure of every pass of a regime lies in a range; the figure that does not is shown.
fn every(what: String, place: &Value, regime: &str, figure: &str, truth: RangeInclusive<u64>) -> Claim {
    let of = |pass: &Value| pass["taken"][figure].as_u64().or(pass[figure].as_u64());
    let figures: Option<Vec<u64>> = passes(place, regime).into_iter().map(of).collect();
    let shown = match figures {
        Some(figures) => match figures.iter().find(|figure| !truth.contains(figure)).or(figures.first()) {
            Some(figure) => Figure::Exact(*figure),
            None => Figure::Absent("no pass".into()),
        },
        None => Figure::Absent("null".into()),
    };
    Claim::between(what, truth, shown)
}

/// What holds where the page cache can be emptied: a cold pass has storage deliver the tensors, a warm one nothing. A host
/// that evicts clean pages on its own may take a few between.
fn of_storage(place: &Value) -> Vec<Claim> {
    let taken = PAYLOAD / 20;
    let mut claims = vec![
        every("resident before it was cold".into(), place, "first_touch_cold", "resident_before_bytes", 0..=0),
        every("read_bytes when cold".into(), place, "first_touch_cold", "read_bytes", PAYLOAD..=PAYLOAD + 4 * MIB),
    ];
    for regime in ["first_touch_warm", "heap"] {
        let (resident, read) = (PAYLOAD - taken..=PAYLOAD, 0..=taken);
        claims.push(every(format!("resident before {regime}"), place, regime, "resident_before_bytes", resident));
        claims.push(every(format!("read_bytes of {regime}"), place, regime, "read_bytes", read));
    }
    if !passes(place, "direct").is_empty() {
        claims.push(every("read_bytes of direct".into(), place, "direct", "read_bytes", PAYLOAD..=PAYLOAD + MIB));
    }
    claims
}

fn on_disk(bench: &Bench, kind: &str) -> Vec<Claim> {
    let model = Model::write(disk(bench, kind).join("model.safetensors"), PAYLOAD, Fill::Pattern);
    let record = measured(&model.path, &[]);
    let place = &record["places"][0];
    let mut claims = vec![Claim::words("filesystem", kind, place["filesystem"].as_str().unwrap_or_default())];
    claims.extend(of_every_way(place));
    claims.extend(of_storage(place));
    claims
}

fn on_overlay(bench: &Bench, layer: &str) -> Vec<Claim> {
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| bench.folder(name));
    let below = if layer == "upper" { &upper } else { &lower };
    Model::write(below.join("model.safetensors"), PAYLOAD, Fill::Pattern);
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let merged = bench.mount("merged", &["-t", "overlay", "overlay", "-o", &options].map(OsStr::new));
    let record = measured(&merged.join("model.safetensors"), &[]);
    let place = &record["places"][0];
    let mut claims = vec![Claim::words("filesystem", "overlay", place["filesystem"].as_str().unwrap_or_default())];
    claims.extend(of_every_way(place));
    claims.extend(of_storage(place));
    claims
}

fn on_tmpfs(bench: &Bench) -> Vec<Claim> {
    let memory = bench.mount("memory", &["-t", "tmpfs", "tmpfs"].map(OsStr::new));
    let model = Model::write(memory.join("model.safetensors"), PAYLOAD, Fill::Pattern);
    let record = measured(&model.path, &[]);
    let place = &record["places"][0];
    let mut claims = of_every_way(place);
    // It has no storage to be let go to, and is not called cold.
    let all = PAYLOAD..=PAYLOAD;
    claims.push(every(
        "resident when it was to be cold".into(),
        place,
        "first_touch_cold",
        "resident_before_bytes",
        all,
    ));
    claims.push(every("read_bytes of it".into(), place, "first_touch_cold", "read_bytes", 0..=0));
    claims
}

/// A copy is measured on another filesystem, has no name while it is there, and is gone afterwards.
fn copied(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(PAYLOAD, Fill::Pattern);
    let (memory, disk) = (bench.mount("memory", &["-t", "tmpfs", "tmpfs"].map(OsStr::new)), disk(bench, "ext4"));
    let free = |folder: &Path| nix::sys::statvfs::statvfs(folder).unwrap().blocks_free();
    let before = (free(&memory), free(&disk));
    let on = [OsStr::new("--on"), memory.as_os_str(), OsStr::new("--on"), disk.as_os_str()];
    let record = measured(&model.path, &on);
    let filesystems: Vec<&str> =
        record["places"].as_array().unwrap().iter().map(|place| place["filesystem"].as_str().unwrap()).collect();
    let mut claims = vec![Claim::holds(
        "three places",
        filesystems.len() == 3 && filesystems[1..] == ["tmpfs", "ext4"],
        filesystems.join(", "),
    )];
    for place in &record["places"].as_array().unwrap()[1..] {
        claims.extend(of_every_way(place));
    }
    claims.extend(of_storage(&record["places"][2]));
    let left =
        |folder: &Path| std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
    claims.push(Claim::holds("nothing is left behind", left(&memory).is_empty(), format!("{:?}", left(&memory))));
    claims.push(Claim::holds("its space is free again", (free(&memory), free(&disk)) == before, format!("{before:?}")));
    claims
}
