//! Where the data came from, what the CPUs did, and what short-lived children took: the tool's figures held against the
//! reference loader's own account, on real disks, loop devices, tmpfs and FUSE.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde_json::Value;
use stagemark_fixtures::models::{Fill, uniform};
use tempfile::TempDir;

use crate::confine::is_root;
use crate::folder::{RunFolder, Stage};
use crate::support::{finish, reference_loader, stagemark};

const MIB: u64 = 1 << 20;
const TICK_NS: u64 = 10_000_000;

/// A model file in a folder, and where its run goes.
struct Load {
    scratch: TempDir,
    model: PathBuf,
}

impl Load {
    /// A file in `folder` that is on the disk and not in the page cache.
    fn cold(folder: &Path, payload: u64) -> Load {
        let model = folder.join("model.safetensors");
        uniform(&model, payload, 4, Fill::Pattern).unwrap();
        evict(&model);
        Load { scratch: tempfile::tempdir().unwrap(), model }
    }

    fn run(&self, arguments: &str) -> (RunFolder, Output) {
        let out = self.scratch.path().join(arguments.replace([' ', '/'], "_"));
        let mut command = stagemark();
        command.args(["run", "--out"]).arg(&out).arg("--").args(reference_loader());
        command.arg("--model").arg(&self.model).arg("--truth").arg(self.truth());
        command.arg("--mode").args(arguments.split_whitespace());
        let _ = std::fs::remove_file(self.truth());
        let output = finish(&mut command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (RunFolder::at(out), output)
    }

    fn truth(&self) -> PathBuf {
        self.scratch.path().join("truth")
    }

    /// The sum over the accounts of all processes at their ends.
    fn took(&self, field: &str) -> u64 {
        let text = std::fs::read_to_string(self.truth()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["truth"] == "process").map(|line| line[field].as_u64().unwrap()).sum()
    }
}

fn evict(file: &Path) {
    let file = File::open(file).unwrap();
    file.sync_all().unwrap();
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
}

fn warm(file: &Path) {
    std::io::copy(&mut File::open(file).unwrap(), &mut std::io::sink()).unwrap();
}

/// A line of the report that has this in it, to its end.
fn line(output: &Output, part: &str) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    let found = text.lines().position(|line| line.contains(part));
    let found = found.unwrap_or_else(|| panic!("no line {part:?} in:\n{text}"));
    // Its further lines are indented.
    let mut lines = text.lines().skip(found);
    let mut whole = lines.next().unwrap().to_owned();
    lines.take_while(|line| line.starts_with("  ")).for_each(|line| whole.push_str(&format!(" {}", line.trim())));
    whole
}

fn storage(run: &RunFolder) -> Vec<Value> {
    run.json()["storage"].as_array().unwrap().clone()
}

/// Runs a tool; its output, or nothing where it fails, which is said.
fn tool(name: &str, arguments: &[&std::ffi::OsStr]) -> Option<String> {
    match Command::new(name).args(arguments).output() {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(output) => {
            eprintln!("SKIPPED: {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(error) => {
            eprintln!("SKIPPED: {name}: {error}");
            None
        }
    }
}

/// A start that page faults make slow although the whole file is in the page cache: no storage is read, and one core
/// works while the others idle.
#[test]
fn a_load_by_page_faults_is_cores_busy_and_no_storage() {
    let folder = tempfile::tempdir().unwrap();
    let load = Load::cold(folder.path(), 256 * MIB);
    warm(&load.model);
    let (run, output) = load.run("map-and-clone --advice random --pace 512MiB --notify --hold 0.1");
    let row = run.stage("module_populated");
    // A host may evict pages of its own accord, a few megabytes at a time.
    assert!(row.known("read_bytes") < (256 * MIB / 10) as _, "all of it was in the page cache");
    assert_eq!(row.text("data_from_start"), "page_cache");
    assert!(row.text("data_from_start_reason").contains("resident before"), "{}", row.text("data_from_start_reason"));
    let busy: f64 = row.text("span_cores_busy").parse().unwrap();
    // Stages of one moment may stand in another order than they were meant in.
    let rows = run.rows("stages.csv");
    let at = rows.iter().position(|row| row["stage"] == "module_populated").unwrap();
    let length = row.time("sampled_ns") - rows[at - 1]["sampled_ns"].parse::<i64>().unwrap();
    let cpu = row.known("delta_cpu_user_ns") + row.known("delta_cpu_system_ns");
    assert!((busy - cpu as f64 / length as f64).abs() < 0.001, "{busy} by {cpu} in {length}");
    assert!(busy > 0.02 && busy <= 1.1, "one thread, paced, keeps at most one core busy: {busy}");
    let cpus = run.json()["host"]["affinity_cpus"].as_u64().unwrap();
    let told = line(&output, "→ module_populated: ");
    assert!(told.contains(&format!(" of {cpus} cores busy (")), "{told}");
    assert!(told.contains("% system), no disk I/O, data from the page cache, "), "{told}");
    assert!(line(&output, "Cores are those of the launch: ").contains(&cpus.to_string()));
}

#[test]
fn the_disk_is_named_and_gave_what_the_tree_read() {
    let folder = tempfile::tempdir().unwrap();
    let load = Load::cold(folder.path(), 32 * MIB);
    let (run, output) = load.run("mmap-lazy --touch 32MiB --notify --hold 0.1");
    let row = run.stage("module_populated");
    let behind = storage(&run);
    if behind.iter().any(|part| part["counters"].is_null()) {
        eprintln!("SKIPPED: no counters behind {}: {behind:?}", folder.path().display());
        assert_eq!(row.number("storage_read_bytes"), None);
        return;
    }
    assert_eq!(row.text("data_from_start"), "storage", "{}", row.text("data_from_start_reason"));
    // The disk gave at least what came in; others may have asked it too.
    assert!(row.known("storage_read_bytes") >= 31 * MIB, "{}", row.known("storage_read_bytes"));
    assert!(row.known("storage_reads") > 0);
    let chain = behind[0]["chains"][0].as_str().unwrap();
    assert!(line(&output, "storage: ").contains(chain.split_once(' ').unwrap().1), "{chain}");
    for part in behind {
        assert!(part["chains"][0].as_str().unwrap().ends_with(part["name"].as_str().unwrap()), "{part}");
        assert_eq!(part["artifacts"], serde_json::json!([0]));
    }
    let mut own = run.rows("detail.csv").into_iter().filter(|row| row["scope"] == "storage");
    let last = own.rfind(|row| row["id"] == "0" && row["metric"] == "read_bytes").unwrap();
    assert!(last["value"].parse::<u64>().unwrap() >= 31 * MIB);
}

#[test]
fn memory_has_no_storage_behind_it() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: no /dev/shm to write to");
        return;
    };
    let load = Load::cold(folder.path(), 16 * MIB);
    let (run, _) = load.run("read-heap --notify --hold 0.1");
    let row = run.stage("module_populated");
    assert_eq!(storage(&run)[0]["kind"], "memory");
    assert_eq!((row.number("storage_read_bytes"), row.number("storage_busy_ns")), (None, None));
    assert_eq!(row.text("data_from_start"), "page_cache");
    let absent = run.json()["absent"].as_array().unwrap().clone();
    let why = absent.iter().find(|absent| absent["metric"] == "storage_read_bytes").unwrap();
    assert!(why["reason"].as_str().unwrap().contains("memory"), "{why}");
}

/// Undone in the reverse order when it goes.
struct Undo(Vec<Vec<std::ffi::OsString>>);

impl Drop for Undo {
    fn drop(&mut self) {
        for command in self.0.iter().rev() {
            let _ = Command::new(&command[0]).args(&command[1..]).status();
        }
    }
}

#[test]
fn a_loop_device_is_resolved_to_the_disk_below_it() {
    if !is_root("a loop device") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, mounted) = (folder.path().join("image"), folder.path().join("mounted"));
    File::create(&image).unwrap().set_len(96 * MIB).unwrap();
    std::fs::create_dir(&mounted).unwrap();
    let mut undo = Undo(Vec::new());
    let made = tool("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_os_str()]);
    let Some(device) = made.and_then(|_| tool("losetup", &["--find".as_ref(), "--show".as_ref(), image.as_os_str()]))
    else {
        return;
    };
    undo.0.push(vec!["losetup".into(), "--detach".into(), device.clone().into()]);
    if tool("mount", &[device.as_ref(), mounted.as_os_str()]).is_none() {
        return;
    }
    undo.0.push(vec!["umount".into(), mounted.clone().into()]);

    let load = Load::cold(&mounted, 32 * MIB);
    evict(&image);
    let (run, _) = load.run("mmap-lazy --touch 32MiB --notify --hold 0.1");
    let behind = storage(&run);
    let chain = behind[0]["chains"][0].as_str().unwrap();
    let name = device.trim_start_matches("/dev/");
    assert!(chain.contains(&format!("(ext4) → {name} → ")), "{chain}");
    assert_ne!(behind[0]["name"], name, "the device has a file below it: {chain}");
    let row = run.stage("module_populated");
    // The tree read it from the loop device; the disk below gave it, as its image was not in the page cache.
    assert_eq!(row.text("data_from_start"), "storage", "{}", row.text("data_from_start_reason"));
    if behind.iter().all(|part| part["counters"].is_string()) {
        assert!(row.known("storage_read_bytes") >= 30 * MIB, "{}", row.known("storage_read_bytes"));
    }
}

#[test]
fn a_fuse_mount_tells_nothing_but_residency() {
    if !is_root("a FUSE mount") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (below, mounted) = (folder.path().join("below"), folder.path().join("mounted"));
    std::fs::create_dir(&below).unwrap();
    std::fs::create_dir(&mounted).unwrap();
    if tool("bindfs", &[below.as_os_str(), mounted.as_os_str()]).is_none() {
        return;
    }
    let _undo = Undo(vec![vec!["umount".into(), mounted.clone().into()]]);
    let load = Load::cold(&mounted, 32 * MIB);
    evict(&below.join("model.safetensors"));
    evict(&load.model);
    let (run, output) = load.run("mmap-lazy --touch 32MiB --notify --hold 0.1");
    let row = run.stage("module_populated");
    assert_eq!(storage(&run)[0]["kind"], "fuse");
    assert!(row.known("read_bytes") < MIB, "the daemon reads: {}", row.known("read_bytes"));
    assert_eq!(row.text("data_from_start"), "unknown");
    assert!(row.text("data_from_start_reason").contains("fuse"), "{}", row.text("data_from_start_reason"));
    assert_eq!(row.number("storage_read_bytes"), None);
    assert!(line(&output, "storage: ").contains("fuse"));
}

#[test]
fn waits_and_pressure_never_fall_and_are_absent_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let load = Load::cold(folder.path(), 8 * MIB);
    let (run, _) = load.run("read-heap --notify --hold 0.2");
    let reasons = run.json()["absent"].as_array().unwrap().clone();
    let rows = run.rows("samples.csv");
    for column in [
        "run_wait_ns",
        "io_wait_ns",
        "pressure_cpu_some_ns",
        "pressure_io_some_ns",
        "pressure_io_full_ns",
        "pressure_memory_some_ns",
        "pressure_memory_full_ns",
        "cgroup_pressure_cpu_some_ns",
        "cgroup_pressure_io_some_ns",
        "cgroup_pressure_memory_some_ns",
        "storage_read_bytes",
    ] {
        // Some are not in every sample.
        let known: Vec<u64> = rows.iter().filter_map(|row| row[column].parse().ok()).collect();
        assert!(known.is_sorted(), "{column}: {known:?}");
        // Why some samples have none is no reason why none has.
        let why = reasons.iter().find(|absent| absent["metric"] == column).map(|absent| absent["reason"].to_string());
        let told = why.is_some_and(|why| !why.contains("closer look at a mark") && !why.contains("dear to read"));
        let at_mark = run.stage("exited").number(column);
        assert_ne!(told, at_mark.is_some(), "{column} is absent without a reason, or known with one");
    }
    let delays = std::fs::read_to_string("/proc/sys/kernel/task_delayacct").unwrap_or_default();
    assert_eq!(run.stage("exited").number("io_wait_ns").is_some(), delays.trim() == "1");
}

/// Two that want one CPU: what the one runs the other waits.
#[test]
fn who_shares_a_cpu_waits_for_it() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("run");
    let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    let script = format!("({burn}) & ({burn}); wait");
    let mut command = stagemark();
    command.args(["run", "--quiet", "--out"]).arg(&out).args(["--", "taskset", "--cpu-list", "0", "sh", "-c", &script]);
    assert!(finish(&mut command).status.success());
    let run = RunFolder::at(out);
    let Some(waited) = run.stage("exited").number("run_wait_ns") else {
        eprintln!("SKIPPED: this kernel keeps no scheduler statistics");
        return;
    };
    let row = run.stage("exited");
    let cpu = row.known("cpu_user_ns") + row.known("cpu_system_ns");
    // Each runs for half of the time and waits for the other half; the last readings before their ends are some ticks
    // old at most on a machine that is busy.
    assert!(waited >= cpu / 4, "{waited} of {cpu}");
}

/// Every kind of short-lived child, a thousand of each: each reads and touches a known amount.
fn children(kind: &str) -> (Load, TempDir, RunFolder, Stage, String) {
    let folder = tempfile::tempdir().unwrap();
    let load = Load::cold(folder.path(), 4 * MIB);
    warm(&load.model);
    let arguments = "mmap-lazy --short-children 1000 --child-bytes 64KiB --child-touch 256KiB --notify --hold 0.1";
    let (run, _) = load.run(&format!("{arguments} {kind}"));
    let row = run.stage("exited");
    let warnings = run.json()["warnings"].to_string();
    let samples = run.rows("samples.csv");
    for counter in ["rchar_bytes", "minor_faults", "cpu_user_ns", "cpu_system_ns", "read_syscalls"] {
        let values: Vec<u64> = samples.iter().map(|row| row[counter].parse().unwrap()).collect();
        assert!(values.is_sorted(), "{counter}");
    }
    (load, folder, run, row, warnings)
}

/// What the loader itself reads: its libraries' headers, and from each child an account of some 8 bytes a field.
const OWN_READS: u64 = 16 * 1024;
const ACCOUNT: u64 = 256;
/// Faults of a process after it wrote down its account: its end.
const LAST_FAULTS: u64 = 24;

/// Whoever reaps them in the end: all that they took is in the counters, once.
fn counted_once(kind: &str, processes: u64) {
    let (load, _folder, _, row, warnings) = children(kind);
    let bytes = load.took("read_bytes");
    let read = row.known("rchar_bytes");
    assert!((bytes..bytes + OWN_READS + processes * ACCOUNT).contains(&read), "{kind}: {read} of {bytes}");
    let faults = load.took("minor_faults") + load.took("major_faults");
    let counted = row.known("minor_faults") + row.known("major_faults");
    // A process that only forks and ends has some faults of its own, which no account tells.
    let between = faults..=faults + 2 * processes * LAST_FAULTS + 200;
    assert!(between.contains(&counted), "{kind}: {counted} of {faults}");
    let cpu_us = load.took("user_us") + load.took("system_us");
    let counted = row.known("cpu_user_ns") + row.known("cpu_system_ns");
    // Children who were waited for are added up exactly; the figure of each orphan is cut to two clock ticks.
    assert!(counted + 2 * TICK_NS * processes >= cpu_us * 1_000, "{kind}: {counted} ns of {cpu_us} µs");
    assert!(!warnings.contains("lack"), "{kind}: nothing is lacking: {warnings}");
}

#[test]
fn a_thousand_children_that_are_waited_for() {
    counted_once("", 1_000);
}

#[test]
fn a_thousand_orphans() {
    if is_root("a zombie's I/O counters") {
        counted_once("--orphan-children", 1_000);
    }
}

#[test]
fn a_thousand_children_that_outlive_their_parents() {
    if is_root("a zombie's I/O counters") {
        counted_once("--outlive-children", 2_000);
    }
}

/// The kernel reaps them, and most live between two looks: what is lacking has stated bounds, which hold and are close.
#[test]
fn a_thousand_children_of_a_parent_that_ignores_sigchld() {
    let (load, _folder, _, row, warnings) = children("--ignore-sigchld");
    let bytes = load.took("read_bytes");
    let read = row.known("rchar_bytes");
    assert!(read <= bytes + OWN_READS + 1_000 * ACCOUNT, "{read} of {bytes}: never more than there was");
    let faults = load.took("minor_faults") + load.took("major_faults");
    let counted = row.known("minor_faults") + row.known("major_faults");
    let lacking = faults.saturating_sub(counted);
    assert!(warnings.contains("ignores SIGCHLD") && warnings.contains("lack, by perf's"), "{warnings}");
    match row.number("unaccounted_faults_low") {
        Some(low) => {
            // No more than there was, the ends of the processes included; and most of it.
            assert!(low <= lacking + 1_000 * LAST_FAULTS, "{low} of {lacking}");
            assert!(low + faults / 10 >= lacking, "{low} of {lacking}");
            assert!(warnings.contains(&format!("at least {low} faults")), "{warnings}");
        }
        None => assert!(warnings.contains("faults that cannot be bounded ("), "{warnings}"),
    }
    let cpu_ns = 1_000 * (load.took("user_us") + load.took("system_us"));
    let counted = row.known("cpu_user_ns") + row.known("cpu_system_ns");
    match row.number("unaccounted_cpu_high_ns") {
        Some(high) => {
            let lacking = cpu_ns.saturating_sub(counted);
            assert!(high >= lacking, "{high} of {lacking}");
            assert!(warnings.contains("at most "), "{warnings}");
        }
        None => assert!(warnings.contains("CPU time that cannot be bounded ("), "{warnings}"),
    }
}
