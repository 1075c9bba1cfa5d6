//! The tool's figures held against what the reference loader itself wrote down of its acts.
//!
//! Each bound is as narrow as what is known of the moment allows: a figure was taken somewhere within its sample's look,
//! so the truth's last word before that look and its first one after it are what it must lie between. Where a figure
//! counts more than the truth does (a program's own start, say), the bound says what and how much.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Stdio;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde_json::Value;
use stagemark_fixtures::models::{Fill, uniform};
use tempfile::TempDir;

use crate::folder::{Row, RunFolder, Stage};
use crate::support::{finish, reference_loader, stagemark};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// What a resident set may be off by: the kernel adds up per-CPU counters that hold back 32 pages each, or twice the
/// number of CPUs if that is more (lib/percpu_counter.c). Kernels that sum them exactly are within it.
const RSS_ERROR: u64 = 64 * 32 * PAGE;

/// What a loader that has started holds beside its payload: its own heap and stack, the C library's data. 0.8 MiB is
/// what it is; twice as much is allowed.
const OWN_MEMORY: u64 = 2 * MIB;

/// Bytes that a program reads at its start: the ELF headers of its libraries, and its own /proc/PID/maps, by which the
/// runtime finds the stack's end. 8.9 kB in 14 calls is what it is; the map's length depends on where things lie.
const START_READS: u64 = 16 * 1024;
const START_READ_CALLS: u64 = 24;

/// A tick of CPU accounting (sysconf(_SC_CLK_TCK), 100 on every Linux).
const CLOCK_TICK: u64 = 10_000_000;

/// A scratch folder with a model file in it.
struct Bench {
    scratch: TempDir,
    model: PathBuf,
    payload: u64,
    size: u64,
}

impl Bench {
    /// A file that is on the disk and not in the page cache.
    fn new(payload: u64, fill: Fill) -> Bench {
        let scratch = tempfile::tempdir().unwrap();
        let model = scratch.path().join("model.safetensors");
        let written = uniform(&model, payload, 8, fill).unwrap();
        let file = File::open(&model).unwrap();
        file.sync_all().unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        Bench { scratch, model, payload, size: written.size }
    }

    /// Takes what there is of the file into the page cache.
    fn warm(self) -> Bench {
        std::io::copy(&mut File::open(&self.model).unwrap(), &mut std::io::sink()).unwrap();
        self
    }

    fn command(&self, arguments: &str) -> std::process::Command {
        let mut command = stagemark();
        command.args(["run", "--quiet", "--out"]).arg(self.scratch.path().join("run")).arg("--");
        command.args(reference_loader()).arg("--model").arg(&self.model);
        command.arg("--truth").arg(self.scratch.path().join("truth")).arg("--mode").args(arguments.split_whitespace());
        command
    }

    fn run(&self, arguments: &str) -> Profile {
        let output = finish(&mut self.command(arguments));
        self.profile(output.status.code())
    }

    /// What a run left, checked for what holds of every run.
    fn profile(&self, status: Option<i32>) -> Profile {
        let run = RunFolder::at(self.scratch.path().join("run"));
        let start = run.json()["start_monotonic_ns"].as_u64().unwrap();
        let text = std::fs::read_to_string(self.scratch.path().join("truth")).unwrap();
        let truth = text.lines().map(|line| Said::new(serde_json::from_str(line).unwrap(), start)).collect();
        let samples = run.rows("samples.csv").into_iter().map(Sample).collect();
        let profile = Profile { truth, samples, payload: self.payload, run, status };
        profile.check();
        profile
    }

    /// The most that one read of a mapped or read file brings in beyond what was asked for: a window of read-ahead, and
    /// the next one, which is begun when the first is reached (mm/readahead.c).
    fn read_ahead(&self) -> u64 {
        let device = std::fs::metadata(&self.model).unwrap().dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let text = std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        2 * 1024 * text.map_or(128, |text| text.trim().parse::<u64>().unwrap())
    }
}

/// A line of the truth. Times are since start.
struct Said {
    kind: String,
    name: String,
    pid: u64,
    t: i64,
    /// By then the line's usage had been read, and not before `t`.
    counted: i64,
    values: Value,
}

impl Said {
    fn new(values: Value, start: u64) -> Said {
        let time = |field: &str| values[field].as_u64().unwrap() as i64 - start as i64;
        Said {
            kind: values["truth"].as_str().unwrap().to_owned(),
            name: values["name"].as_str().unwrap().to_owned(),
            pid: values["pid"].as_u64().unwrap(),
            t: time("t_ns"),
            counted: time("counted_ns"),
            values,
        }
    }

    fn get(&self, field: &str) -> u64 {
        self.values[field].as_u64().unwrap_or_else(|| panic!("the truth has no {field}"))
    }

    fn faults(&self) -> u64 {
        self.get("minor_faults") + self.get("major_faults")
    }

    /// Bytes and calls of read(2), through the page cache or past it.
    fn reads(&self) -> (u64, u64) {
        (self.get("read_bytes") + self.get("direct_bytes"), self.get("read_syscalls") + self.get("direct_syscalls"))
    }
}

/// A row of `samples.csv`.
struct Sample(Row);

impl Sample {
    fn t(&self) -> i64 {
        self.0["t_ns"].parse().unwrap()
    }

    /// When the look began.
    fn began(&self) -> i64 {
        self.t() - self.0["cost_ns"].parse::<i64>().unwrap()
    }

    fn get(&self, metric: &str) -> Option<u64> {
        let text = &self.0[metric];
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    fn known(&self, metric: &str) -> u64 {
        self.get(metric).unwrap_or_else(|| panic!("{metric} is absent at {}", self.t()))
    }

    fn faults(&self) -> u64 {
        self.known("minor_faults") + self.known("major_faults")
    }
}

/// A run beside its truth.
struct Profile {
    run: RunFolder,
    truth: Vec<Said>,
    samples: Vec<Sample>,
    payload: u64,
    status: Option<i32>,
}

const COUNTERS: [&str; 11] = [
    "minor_faults",
    "major_faults",
    "rchar_bytes",
    "read_bytes",
    "wchar_bytes",
    "write_bytes",
    "read_syscalls",
    "cpu_user_ns",
    "cpu_system_ns",
    "perf_page_faults",
    "perf_task_clock_ns",
];

impl Profile {
    /// What must hold of every run, whatever the loader did.
    fn check(&self) {
        self.samples_reconcile();
        self.rows_add_up();
        self.marks_hold();
        self.lives_are_told();
        let total = self.total();
        let exit = &self.run.json()["exit"];
        assert_eq!(exit["code"].as_i64(), self.status.map(i64::from));
        assert!(exit["at"].as_i64().unwrap() >= total.t, "the end is not before the last act");
        assert!(self.run.json()["losses"].as_array().unwrap().is_empty());
    }

    /// Every row of `samples.csv` agrees with itself and with the one before.
    fn samples_reconcile(&self) {
        for pair in self.samples.windows(2) {
            assert!(pair[0].t() < pair[1].t());
            for counter in COUNTERS {
                let (before, after) = (pair[0].get(counter), pair[1].get(counter));
                assert!(after >= before, "{counter} fell from {before:?} to {after:?}");
            }
        }
        for sample in &self.samples {
            let get = |metric| sample.known(metric);
            assert_eq!(get("payload_bytes"), self.payload);
            assert_eq!(get("resident_payload_bytes") + get("nonresident_payload_bytes"), self.payload);
            assert_eq!(get("rss_anon_bytes") + get("rss_file_bytes") + get("rss_shmem_bytes"), get("rss_bytes"));
            assert!(get("mapped_payload_bytes") <= get("mapped_bytes"));
        }
    }

    /// Rows of `stages.csv` stand in the order of marks; deltas add up to the totals; a peak is at least what any
    /// sample of its interval shows.
    fn rows_add_up(&self) {
        let rows: Vec<Stage> = self.run.rows("stages.csv").into_iter().map(Stage::new).collect();
        let reached: Vec<&Stage> = rows.iter().filter(|row| row.reached()).collect();
        let sum =
            |counter: &str| -> Option<u64> { reached.iter().map(|row| row.number(&format!("delta_{counter}"))).sum() };
        let last = reached.last().unwrap();
        for counter in COUNTERS {
            assert_eq!(sum(counter), last.number(counter), "the deltas of {counter}");
        }
        let mut previous: Option<&Stage> = None;
        for row in &reached {
            let begin = previous.map_or(0, |previous| previous.time("t_ns"));
            assert!(row.time("t_ns") >= begin);
            let taken = row.time("sampled_ns");
            for gauge in ["rss_bytes", "rss_anon_bytes", "mapped_bytes", "resident_payload_bytes", "processes"] {
                let largest = |from: i64| {
                    let within = self.samples.iter().filter(|sample| (from..=taken).contains(&sample.t()));
                    within.filter_map(|sample| sample.get(gauge)).max()
                };
                assert_eq!(row.number(&format!("peak_{gauge}_low")), largest(0), "{gauge}");
                let span = row.number(&format!("span_peak_{gauge}_low"));
                assert!(span >= largest(begin), "{gauge}");
                if let Some(previous) = previous {
                    let change = row.number(gauge).unwrap() as i64 - previous.number(gauge).unwrap() as i64;
                    assert_eq!(row.text(&format!("change_{gauge}")), change.to_string());
                }
            }
            let own = self.samples.iter().find(|sample| sample.t() == taken).unwrap();
            for metric in COUNTERS.into_iter().chain(["rss_bytes", "mapped_bytes", "threads"]) {
                assert_eq!(row.number(metric), own.get(metric));
            }
            assert!(row.known("host_bytes_low") <= row.known("host_bytes_high"));
            previous = Some(row);
        }
    }

    /// The process that speaks for the load.
    fn speaker(&self) -> u64 {
        let speaks = |line: &&Said| line.kind == "process" && (line.name == "loader" || line.name == "leader");
        self.truth.iter().find(speaks).expect("a process that tells stages").pid
    }

    fn line(&self, kind: &str, name: &str) -> Option<&Said> {
        let speaker = self.speaker();
        self.truth.iter().find(|line| line.kind == kind && line.name == name && line.pid == speaker)
    }

    fn mark(&self, stage: &str) -> &Said {
        self.line("mark", stage).unwrap_or_else(|| panic!("the loader never came to {stage}"))
    }

    fn total(&self) -> &Said {
        self.truth.iter().find(|line| line.kind == "total").expect("a total")
    }

    /// When a stage's evidence came to be, as the truth brackets it: not before the first, not after the second.
    fn bracket(&self, stage: &str, evidence: &str) -> Option<(i64, i64)> {
        match evidence {
            // The sender's own time.
            "notify" => Some((self.mark(stage).t, self.mark(stage).t)),
            // The line was written after the mark, and before it counted as told.
            "log" => Some((self.mark(stage).t, self.line("said", stage)?.t)),
            // Some process called mmap(2) between the word before and `mapped`.
            "mapping" => {
                let mapped = self.truth.iter().filter(|line| line.name == "mapped").min_by_key(|line| line.t)?;
                let before = self.truth.iter().filter(|line| line.t < mapped.t).map(|line| line.t).max();
                Some((before.unwrap_or(0), mapped.t))
            }
            "exit" => Some((self.total().t, i64::MAX)),
            _ => None,
        }
    }

    /// Every mark's [t − u, t] has room for the truth.
    fn marks_hold(&self) {
        for row in self.run.rows("stages.csv").into_iter().map(Stage::new).filter(Stage::reached) {
            let (stage, evidence) = (row.text("stage"), row.text("evidence"));
            let t = row.time("t_ns");
            let uncertainty = row.number("uncertainty_ns");
            if let Some((earliest, latest)) = self.bracket(stage, evidence) {
                let told = format!("{stage} by {evidence}: {t} − {uncertainty:?}, truth {earliest} to {latest}");
                assert!(t >= earliest, "{told}");
                if let Some(uncertainty) = uncertainty {
                    assert!(t - uncertainty as i64 <= latest, "{told}");
                }
            }
            if evidence == "notify" {
                // A microsecond is what the message can tell.
                assert!(
                    uncertainty.unwrap() <= 1_000 && t - self.mark(stage).t <= 1_000_000,
                    "{stage}: {uncertainty:?}"
                );
            }
        }
    }

    /// Every process that lived for longer than some ticks was seen born and gone, around its own acts.
    fn lives_are_told(&self) {
        const TICKS: i64 = 100_000_000;
        let pids: std::collections::BTreeSet<u64> = self.truth.iter().map(|line| line.pid).collect();
        let root = self.total().pid;
        for pid in pids {
            let acts: Vec<i64> = self.truth.iter().filter(|line| line.pid == pid).map(|line| line.t).collect();
            let (first, last) = (*acts.iter().min().unwrap(), *acts.iter().max().unwrap());
            let told = |kind: &str| {
                let row = self.run.events(kind).into_iter().find(|row| row["pid"] == pid.to_string())?;
                let t: i64 = row["t_ns"].parse().unwrap();
                Some((t, row["uncertainty_ns"].parse::<i64>().ok()))
            };
            if let Some((t, Some(uncertainty))) = told("born") {
                assert!(t - uncertainty <= first, "{pid} was born by its first act");
            }
            if let Some((t, _)) = told("gone") {
                assert!(t >= last, "{pid} was not gone before its last act");
            }
            if pid == root {
                assert!(told("exec").is_some());
            }
            if pid == root || last - first > TICKS {
                assert!(told("born").is_some() && told("gone").is_some(), "{pid} was not seen");
            }
        }
    }

    fn stage(&self, stage: &str) -> Stage {
        self.run.stage(stage)
    }

    /// The sample whose values stand at a stage.
    fn sample(&self, stage: &str) -> &Sample {
        let taken = self.stage(stage).time("sampled_ns");
        self.samples.iter().find(|sample| sample.t() == taken).unwrap()
    }

    /// What one process did before a sample's look began, and by its end at the latest.
    fn around(&self, sample: &Sample) -> (Option<&Said>, Option<&Said>) {
        let alone = || self.truth.iter().filter(|line| line.kind != "total");
        (alone().rfind(|line| line.counted <= sample.began()), alone().find(|line| line.t >= sample.t()))
    }

    /// Every sample of a loader that is one process: counters lie between what the loader had at the last word before
    /// the look and at the first word after it.
    fn counters_are_true(&self) {
        assert_eq!(self.truth.iter().map(|line| line.pid).collect::<std::collections::BTreeSet<_>>().len(), 1);
        let mut held = 0;
        for sample in &self.samples {
            let (before, after) = self.around(sample);
            if let Some(before) = before {
                assert!(sample.faults() >= before.faults(), "at {}", sample.t());
                let (bytes, calls) = before.reads();
                assert!(sample.known("rchar_bytes") >= bytes && sample.known("read_syscalls") >= calls);
                for (metric, field) in [("cpu_user_ns", "user_us"), ("cpu_system_ns", "system_us")] {
                    assert!(sample.known(metric) + CLOCK_TICK >= before.get(field) * 1_000, "{metric}");
                }
                held += 1;
            }
            if let Some(after) = after {
                assert!(sample.faults() <= after.faults(), "at {}", sample.t());
                let (bytes, calls) = after.reads();
                assert!(sample.known("rchar_bytes") <= bytes + START_READS);
                assert!(sample.known("read_syscalls") <= calls + START_READ_CALLS);
                for (metric, field) in [("cpu_user_ns", "user_us"), ("cpu_system_ns", "system_us")] {
                    assert!(sample.known(metric) <= after.get(field) * 1_000, "{metric}");
                }
            }
        }
        assert!(held > 0, "no sample was taken after the loader's first word");
        // Its end is the kernel's last word: only the process's own going is added.
        let (ended, total) = (self.sample("exited"), self.total());
        assert!(ended.faults() >= total.faults() && ended.faults() <= total.faults() + 64);
        let (bytes, calls) = total.reads();
        assert!((bytes..bytes + START_READS).contains(&ended.known("rchar_bytes")));
        assert!((calls..calls + START_READ_CALLS).contains(&ended.known("read_syscalls")));
    }

    /// Payload that is resident at a stage: all that was touched, but for what the host evicts by itself (clean pages,
    /// on some hosts, up to 1% in the time of a run), and no more than `beyond` on top.
    fn resident(&self, stage: &str, touched: u64, beyond: u64) {
        let resident = self.stage(stage).known("resident_payload_bytes");
        let least = touched - touched / 100;
        let most = (touched + beyond).min(self.payload);
        assert!((least..=most).contains(&resident), "{stage}: {resident} of {touched} touched, {beyond} beyond");
    }

    /// Anonymous memory at a stage: what was filled, and the loader's own.
    fn anonymous(&self, stage: &str, filled: u64) {
        let anonymous = self.stage(stage).known("rss_anon_bytes") + self.stage(stage).known("swap_bytes");
        let within = filled.saturating_sub(RSS_ERROR)..=filled + OWN_MEMORY + RSS_ERROR;
        assert!(within.contains(&anonymous), "{stage}: {anonymous} of {filled} filled");
        // What the loader must hold lies between the host account's bounds, and the low one misses nothing of it where
        // there is one process.
        let resident = self.stage(stage).known("resident_payload_bytes");
        let row = self.stage(stage);
        if row.known("processes") == 1 {
            assert!(row.known("host_bytes_low") + RSS_ERROR >= filled + resident);
        }
        assert!(
            row.known("host_bytes_low") <= filled + resident + OWN_MEMORY + RSS_ERROR + row.known("page_table_bytes")
        );
        assert!(row.known("host_bytes_high") + RSS_ERROR >= filled + resident);
    }

    fn mapped(&self, stage: &str, bytes: u64, payload: u64) {
        let row = self.stage(stage);
        assert_eq!((row.known("mapped_bytes"), row.known("mapped_payload_bytes")), (bytes, payload), "{stage}");
    }
}

#[test]
fn a_lazy_mapping_is_mapped_at_once_and_resident_as_it_is_touched() {
    for sharing in ["--private", "--shared"] {
        let bench = Bench::new(32 * MIB, Fill::Pattern);
        let profile = bench.run(&format!("mmap-lazy --touch 16MiB --advice random {sharing} --notify --hold 0.1"));
        profile.counters_are_true();
        // Read-ahead is off: each page that is touched comes alone, and the payload begins at a page's edge.
        profile.resident("module_populated", 16 * MIB, 0);
        profile.resident("first_response", 32 * MIB, 0);
        for stage in ["module_populated", "first_response"] {
            profile.mapped(stage, bench.size, 32 * MIB);
            profile.anonymous(stage, 0);
            assert!(
                profile.stage(stage).known("rss_file_bytes") + RSS_ERROR >= profile.mark(stage).get("touched_bytes")
            );
        }
        // Every page came from the disk, through a fault that waited for it.
        let first = profile.stage("first_response");
        assert!(first.known("read_bytes") >= 32 * MIB);
    }
}

#[test]
fn read_ahead_brings_in_more_than_is_touched() {
    let bench = Bench::new(64 * MIB, Fill::Pattern);
    let profile = bench.run("mmap-lazy --touch 8MiB --notify --hold 0.1");
    profile.counters_are_true();
    profile.resident("module_populated", 8 * MIB, bench.read_ahead());
    profile.resident("first_response", 64 * MIB, 0);
    let (populated, first) = (profile.stage("module_populated"), profile.stage("first_response"));
    assert!(populated.known("read_bytes") >= populated.known("resident_payload_bytes"));
    assert!(first.known("read_bytes") >= 64 * MIB);
    // No page is read twice, but for those that the host has evicted meanwhile; beside the payload there are its
    // header and whatever of the loader's own program was not in memory.
    assert!(first.known("read_bytes") <= 64 * MIB + 8 * MIB, "{}", first.known("read_bytes"));
}

#[test]
fn a_populated_mapping_is_resident_from_its_first_moment() {
    // A private mapping that may be written is populated for writing: the kernel copies each of its pages, the header's
    // too (mm/gup.c, populate_vma_page_range).
    for (sharing, copies) in [("--shared", false), ("--private", true)] {
        let bench = Bench::new(32 * MIB, Fill::Pattern);
        let profile = bench.run(&format!("mmap-populate {sharing} --notify --hold 0.1"));
        profile.counters_are_true();
        for stage in ["module_populated", "first_response"] {
            profile.resident(stage, 32 * MIB, 0);
            profile.mapped(stage, bench.size, 32 * MIB);
            profile.anonymous(stage, if copies { bench.size } else { 0 });
        }
        let faults = profile.sample("module_populated").faults();
        let (before, after) = (profile.mark("module_populated").faults(), profile.mark("first_response").faults());
        assert!((before..=after).contains(&faults), "{faults} is not from {before} to {after}");
    }
}

#[test]
fn reading_to_the_heap_is_counted_once_and_held_as_anonymous_memory() {
    let bench = Bench::new(32 * MIB, Fill::Pattern);
    let profile = bench.run("read-heap --notify --hold 0.1");
    profile.counters_are_true();
    for stage in ["module_populated", "first_response"] {
        profile.mapped(stage, 0, 0);
        profile.anonymous(stage, 32 * MIB);
        // The page cache keeps what went through it.
        profile.resident(stage, 32 * MIB, 0);
        let row = profile.stage(stage);
        let (bytes, calls) = profile.mark(stage).reads();
        assert!((bytes..bytes + START_READS).contains(&row.known("rchar_bytes")));
        assert!((calls..calls + START_READ_CALLS).contains(&row.known("read_syscalls")));
        assert!(row.known("read_bytes") >= 32 * MIB, "it was not in the page cache before");
    }
    assert!(!profile.stage("mapping_available").reached());
}

#[test]
fn direct_reads_pass_by_the_page_cache_and_are_counted_by_storage() {
    let bench = Bench::new(32 * MIB, Fill::Pattern);
    let profile = bench.run("odirect --notify --hold 0.1");
    profile.counters_are_true();
    for stage in ["module_populated", "first_response"] {
        profile.mapped(stage, 0, 0);
        profile.anonymous(stage, 32 * MIB);
        profile.resident(stage, 0, 0);
        let direct = profile.mark(stage).get("direct_bytes");
        let read = profile.stage(stage).known("read_bytes");
        // Beside them there are the header and whatever of the loader's own program was not in memory.
        assert!((direct..=direct + 8 * MIB).contains(&read), "{read} of {direct}");
    }
}

#[test]
fn prefetching_reads_first_and_maps_what_is_there() {
    let bench = Bench::new(32 * MIB, Fill::Pattern);
    let profile = bench.run("prefetch-then-map --notify --hold 0.1");
    profile.counters_are_true();
    profile.resident("module_populated", 32 * MIB, 0);
    profile.mapped("module_populated", bench.size, 32 * MIB);
    profile.anonymous("module_populated", 0);
    let (bytes, _) = profile.mark("module_populated").reads();
    assert!(bytes >= 32 * MIB);
    // Nothing but the payload was read twice: the mapping found it in the page cache.
    let read = profile.stage("first_response").known("read_bytes");
    assert!((32 * MIB..=40 * MIB).contains(&read), "{read}");
}

#[test]
fn a_clone_is_held_twice_until_its_mapping_is_dropped() {
    let bench = Bench::new(32 * MIB, Fill::Sparse).warm();
    let kept = bench.run("map-and-clone --notify --hold 0.1");
    kept.counters_are_true();
    kept.mapped("module_populated", bench.size, 32 * MIB);
    kept.anonymous("module_populated", 32 * MIB);
    assert!(kept.stage("module_populated").known("rss_bytes") + RSS_ERROR >= 64 * MIB);
    assert_eq!(kept.stage("first_response").known("read_bytes"), 0, "all of it was in the page cache");

    let bench = Bench::new(32 * MIB, Fill::Sparse).warm();
    let dropped = bench.run("map-and-clone --drop-mapping --notify --hold 0.1");
    dropped.counters_are_true();
    dropped.mapped("module_populated", 0, 0);
    dropped.anonymous("module_populated", 32 * MIB);
    let peak = dropped.stage("first_response").known("peak_mapped_bytes_low");
    assert_eq!(peak, bench.size, "the mapping that was dropped is in the peak");
    assert!(dropped.stage("first_response").known("rss_file_bytes") < 32 * MIB);
    dropped.resident("first_response", 32 * MIB, 0);
}

#[test]
fn a_line_that_comes_early_is_a_mark_with_little_resident() {
    let bench = Bench::new(32 * MIB, Fill::Sparse);
    // A second until it is all there: the line's sample is taken long before.
    let profile = bench.run("log-early --advice random --pace 32MiB --hold 0.1");
    profile.counters_are_true();
    let populated = profile.stage("module_populated");
    assert_eq!(populated.text("evidence"), "log");
    assert_eq!(profile.mark("module_populated").get("touched_bytes"), 0);
    let resident = populated.known("resident_payload_bytes");
    assert!(resident <= 32 * MIB / 2, "{resident}");
    profile.resident("first_response", 32 * MIB, 0);
    // 99% were there when as much was touched: after the early line, and before the truth says that all of it is.
    let full = profile.stage("fully_resident");
    let touched = profile.truth.iter().find(|line| line.name == "really populated").unwrap();
    assert!(full.time("t_ns") > profile.mark("module_populated").t);
    assert!(full.time("t_ns") - full.known("uncertainty_ns") as i64 <= touched.t);
}

#[test]
fn a_silent_loader_shows_what_can_be_seen_from_outside() {
    let bench = Bench::new(32 * MIB, Fill::Pattern);
    let profile = bench.run("silent --pace 64MiB --advice random --hold 0.2");
    profile.counters_are_true();
    let mapping = profile.stage("mapping_available");
    assert_eq!(mapping.text("evidence"), "mapping");
    assert_eq!(mapping.known("mapped_payload_bytes"), 32 * MIB);
    let full = profile.stage("fully_resident");
    let (low, t) = (full.time("t_ns") - full.known("uncertainty_ns") as i64, full.time("t_ns"));
    assert!(low <= profile.mark("module_populated").t && t > profile.line("step", "mapped").unwrap().t);
    profile.resident("fully_resident", 32 * MIB, 0);
    for stage in ["module_populated", "first_response"] {
        let row = profile.stage(stage);
        assert_eq!(row.text("status"), "not_reached");
        assert!(row.text("reason").contains("no line matched"), "{}", row.text("reason"));
        assert_eq!((row.number("t_ns"), row.number("rss_bytes")), (None, None));
    }
}

#[test]
fn ranks_map_one_extent_and_hold_a_resident_set_each() {
    let bench = Bench::new(32 * MIB, Fill::Sparse).warm();
    let profile = bench.run("mmap-lazy --touch 1GiB --fork 4 --shared --notify --hold 0.1");
    let first = profile.stage("first_response");
    profile.mapped("first_response", bench.size, 32 * MIB);
    assert_eq!((first.known("processes"), first.known("threads")), (5, 5));
    // Each rank touched its own share, so each page of the payload is in one resident set at least.
    assert!(first.known("rss_file_bytes") + 5 * RSS_ERROR >= 32 * MIB);
    // The tree's counters are the sum over its processes at their ends.
    let sum = |field: &str| {
        profile.truth.iter().filter(|line| line.kind == "process").map(|line| line.get(field)).sum::<u64>()
    };
    let ended = profile.sample("exited");
    let faults = sum("minor_faults") + sum("major_faults");
    assert!((faults..=faults + 5 * 64).contains(&ended.faults()), "{} of {faults}", ended.faults());
    let (reads, pipes) = (sum("read_bytes"), 4 * 4096);
    assert!((reads..reads + START_READS + pipes).contains(&ended.known("rchar_bytes")));

    let profile = bench_again(&bench, "mmap-lazy --touch 0 --advice random --fork 4 --notify --hold 0.1");
    profile.mapped("module_populated", bench.size, 32 * MIB);
}

/// Another run on the same file.
fn bench_again(bench: &Bench, arguments: &str) -> Profile {
    std::fs::remove_dir_all(bench.scratch.path().join("run")).unwrap();
    std::fs::remove_file(bench.scratch.path().join("truth")).unwrap();
    bench.run(arguments)
}

#[test]
fn short_lived_children_are_counted_once_whoever_reaps_them() {
    let bench = Bench::new(8 * MIB, Fill::Sparse).warm();
    let arguments = "mmap-lazy --short-children 200 --child-bytes 256KiB --notify --hold 0.1";
    let profile = bench.run(arguments);
    let children = || profile.truth.iter().filter(|line| line.name == "short-child");
    let (bytes, calls) = children().map(Said::reads).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!((bytes, calls), (200 * 256 * 1024, 200));
    // Each child also sends its account to its parent, who reads it: some 8 bytes a field.
    let first = profile.stage("first_response");
    let accounts = 200 * 256;
    let read = first.known("rchar_bytes");
    assert!((bytes..bytes + START_READS + accounts).contains(&read), "{read} of {bytes}");
    let faults: u64 = profile.truth.iter().filter(|line| line.kind == "process").map(Said::faults).sum();
    assert!(profile.sample("exited").faults() >= faults);

    let profile = bench_again(&bench, &format!("{arguments} --ignore-sigchld"));
    let read = profile.stage("first_response").known("rchar_bytes");
    assert!(read < bytes + START_READS + accounts, "{read} of {bytes}: what is counted is what was seen, never more");
    let warnings = profile.run.json()["warnings"].to_string();
    // Whether or not any look came while one of them lived.
    assert!(warnings.contains("ignores SIGCHLD"), "{warnings}");
}

#[test]
fn a_daemonised_grandchild_is_followed_and_the_roots_status_is_the_runs() {
    let bench = Bench::new(32 * MIB, Fill::Sparse).warm();
    let profile = bench.run("map-and-clone --double-fork --notify --hold 0.2 --exit-status 7");
    assert_eq!(profile.status, Some(7));
    assert_ne!(profile.speaker(), profile.total().pid, "another process loads");
    profile.mapped("first_response", bench.size, 32 * MIB);
    profile.anonymous("module_populated", 32 * MIB);
    assert_eq!(profile.stage("first_response").known("processes"), 2, "the daemon's parent is gone");
    let faults = profile.truth.iter().find(|line| line.name == "loader").unwrap().faults();
    assert!(profile.sample("exited").faults() >= faults, "the daemon's counters stay");
}

#[test]
fn a_server_is_marked_by_what_it_prints() {
    let bench = Bench::new(16 * MIB, Fill::Sparse);
    let mut command =
        bench.command("mmap-lazy --serve 0 --listen-early --pace 64MiB --touch 16MiB --hold until-stdin-closes");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut talk = Talk { child, truth: bench.scratch.path().join("truth") };
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(talk.child.stdout.take().unwrap()));
    let mut until = |start: &str| {
        let found = lines.by_ref().map(Result::unwrap).find_map(|line| line.strip_prefix(start).map(str::to_owned));
        found.unwrap_or_else(|| panic!("no line {start:?}"))
    };
    let address = until("listening on http://");
    assert!(ask(&address).starts_with("HTTP/1.1 503"));
    until("stage module_populated");
    // The line comes just before the door is opened.
    crate::support::eventually("an answer", || ask(&address).starts_with("HTTP/1.1 200").then_some(()));
    until("stage first_response");
    drop(talk.child.stdin.take());
    lines.for_each(drop);
    let profile = bench.profile(crate::support::ended(&mut talk.child).code());
    let first = profile.stage("first_response");
    assert_eq!(first.text("evidence"), "log");
    // Main and accept; the one that waits for the end of standard input begins just after the mark.
    assert!((2..=3).contains(&first.known("threads")));
    profile.counters_are_true();
}

/// A run that the test talks to; where the test fails, the command is ended, and the run with it.
struct Talk {
    child: std::process::Child,
    truth: PathBuf,
}

impl Drop for Talk {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let text = std::fs::read_to_string(&self.truth).unwrap_or_default();
            let pid = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["pid"].as_i64()).next();
            let loader = pid.map(|pid| nix::unistd::Pid::from_raw(pid as i32));
            let _ = loader.map(|pid| nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn ask(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_port_that_is_only_held_answers_nothing_and_marks_all_the_same() {
    let bench = Bench::new(8 * MIB, Fill::Sparse);
    let profile = bench.run("read-heap --serve 0 --bind-without-listen --hold 0.1 --exit-status 7");
    assert_eq!(profile.status, Some(7));
    assert_eq!(profile.stage("exited").text("detail"), "exit 7");
    for stage in ["module_populated", "first_response"] {
        assert_eq!(profile.stage(stage).text("evidence"), "log");
    }
}

/// Every line of the log was written within its uncertainty, also where the reader of the output lets it wait.
#[test]
fn every_line_was_written_within_its_uncertainty() {
    // 2,000 lines are more than the reader's pipe holds: the rest is held up before anybody has seen it.
    for (lines, stalled) in [(200, false), (2_000, true)] {
        let bench = Bench::new(MIB, Fill::Sparse);
        let mut child = bench
            .command(&format!("mmap-lazy --chatter {lines} --exit-status 3"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        if stalled {
            crate::support::eventually("the loader's last word", || {
                let text = std::fs::read_to_string(bench.scratch.path().join("truth")).ok()?;
                text.contains(r#""truth":"total""#).then_some(())
            });
        }
        crate::support::read_all(std::os::fd::OwnedFd::from(child.stdout.take().unwrap()));
        let profile = bench.profile(crate::support::ended(&mut child).code());
        let start = profile.run.json()["start_monotonic_ns"].as_u64().unwrap() as i64;
        let text = String::from_utf8(profile.run.bytes("output.log")).unwrap();
        let told: Vec<(i64, Option<i64>, i64)> = text.lines().filter_map(|line| told(line, start)).collect();
        assert!(told.len() >= lines);
        for (index, (t, uncertainty, written)) in told.iter().enumerate() {
            assert!(t >= written, "line {index} was read before it was written");
            // It was written by the time at which the next one was begun.
            if let (Some(uncertainty), Some((_, _, next))) = (uncertainty, told.get(index + 1)) {
                assert!(t - uncertainty <= *next, "line {index}: {t} − {uncertainty} is after {next}");
            }
        }
    }
}

/// Of a line of `output.log`: its time, its uncertainty, and the time that the loader put into it.
fn told(line: &str, start: i64) -> Option<(i64, Option<i64>, i64)> {
    let mut fields = line.splitn(5, '\t');
    let (t, uncertainty) = (fields.next()?.parse().unwrap(), fields.next()?.parse().ok());
    let (_, written) = fields.nth(2)?.rsplit_once(" t=")?;
    Some((t, uncertainty, written.replace('.', "").parse::<i64>().unwrap() - start))
}
