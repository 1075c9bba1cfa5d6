//! A run beside its truth, and what must hold of every run.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

use crate::bench::{MIB, PAGE};
use crate::claim::{Claim, Figure};
use crate::folder::{Row, RunFolder, Stage};

/// What one part of a process's resident set may be off by: the kernel adds up per-CPU counters that hold back 32 pages
/// each, or twice the number of CPUs if that is more (lib/percpu_counter.c). Kernels that sum them exactly are within it.
pub fn rss_error() -> u64 {
    static ERROR: LazyLock<u64> = LazyLock::new(|| {
        // Those that may ever be there: each has a counter.
        let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        let last = text.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u64>().ok());
        let cpus = last.map_or(64, |last| last + 1);
        cpus * (2 * cpus).max(32) * PAGE
    });
    *ERROR
}

/// What a loader that has started holds beside its payload: its own heap and stack, the C library's data, and what the
/// dynamic linker relocates of its program. 0.8 MiB a process is what it is; some loaders here are of three.
pub const OWN_MEMORY: u64 = 3 * MIB;

/// Bytes that a program reads at its start: the ELF headers of its libraries, and its own /proc/PID/maps, by which the
/// runtime finds the stack's end. 8.9 kB in 14 calls is what it is; the map's length depends on where things lie.
pub const START_READS: u64 = 16 * 1024;
pub const START_READ_CALLS: u64 = 24;

/// What is resident of a loader's own program and libraries: 8.3 MiB is what it is where nothing is optimised.
pub const OWN_FILES: u64 = 12 * MIB;

/// Beside the payload, what a loader's own start may read from storage: its header and its program.
pub const OWN_STORAGE: u64 = 8 * MIB;

/// Faults of a process's own going, after its last word.
pub const LAST_FAULTS: u64 = 64;

/// What of so many clean pages the host itself may have taken back by then: some do so all the time (DAMON's proactive
/// reclaim: 5% of an untouched file in 105 s), and a case takes as long as a busy machine makes it.
pub fn taken_back(bytes: u64) -> u64 {
    bytes / 40
}

/// A tick of CPU accounting (sysconf(_SC_CLK_TCK), 100 on every Linux).
const CLOCK_TICK: u64 = 10_000_000;

/// A line of the truth. Times are since start.
pub struct Said {
    pub kind: String,
    pub name: String,
    pub pid: u64,
    pub t: i64,
    /// By then the line's usage had been read, and not before `t`.
    pub counted: i64,
    pub values: Value,
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

    pub fn get(&self, field: &str) -> u64 {
        self.values[field].as_u64().unwrap_or_else(|| panic!("the truth has no {field}"))
    }

    pub fn faults(&self) -> u64 {
        self.get("minor_faults") + self.get("major_faults")
    }

    /// Bytes and calls of read(2), through the page cache or past it.
    pub fn reads(&self) -> (u64, u64) {
        (self.get("read_bytes") + self.get("direct_bytes"), self.get("read_syscalls") + self.get("direct_syscalls"))
    }
}

/// A row of `samples.csv`.
pub struct Sample(Row);

impl Sample {
    pub fn t(&self) -> i64 {
        self.0["t_ns"].parse().unwrap()
    }

    /// When the look began.
    pub fn began(&self) -> i64 {
        self.t() - self.0["cost_ns"].parse::<i64>().unwrap()
    }

    pub fn get(&self, metric: &str) -> Option<u64> {
        let text = &self.0[metric];
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    pub fn known(&self, metric: &str) -> u64 {
        self.get(metric).unwrap_or_else(|| panic!("{metric} is absent at {}", self.t()))
    }

    pub fn faults(&self) -> Option<u64> {
        Some(self.get("minor_faults")? + self.get("major_faults")?)
    }
}

/// A run beside its truth.
pub struct Profile {
    pub run: RunFolder,
    pub truth: Vec<Said>,
    pub samples: Vec<Sample>,
    pub status: Option<i32>,
    /// What the profiler said on its standard error, beside what the command did.
    #[allow(dead_code)]
    pub said: String,
    payload: Option<u64>,
}

impl Profile {
    /// What a run left, checked for what holds of every run.
    pub fn load(folder: &Path, truth: &Path, payload: Option<u64>, status: Option<i32>, said: &str) -> Profile {
        let run = RunFolder::at(folder);
        let start = run.json()["start_monotonic_ns"].as_u64().unwrap();
        let text = std::fs::read_to_string(truth).unwrap_or_default();
        let line =
            |line| Said::new(serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")), start);
        let truth = text.lines().map(line).collect();
        let samples = run.rows("samples.csv").into_iter().map(Sample).collect();
        let profile = Profile { truth, samples, payload, run, status, said: said.to_owned() };
        profile.check();
        profile
    }

    /// A stage's row.
    pub fn stage(&self, stage: &str) -> Stage {
        self.run.stage(stage)
    }

    /// The figure of a column of `stages.csv` at a stage.
    pub fn at(&self, stage: &str, column: &str) -> Figure {
        let row = self.stage(stage);
        if !row.reached() {
            return Figure::Absent(format!("{}: {}", row.text("status"), row.text("reason")));
        }
        match row.number(column) {
            Some(value) => Figure::Exact(value),
            None => Figure::Absent(self.reason(column, row.time("sampled_ns"))),
        }
    }

    /// A peak since start, as bounds: `rss_bytes`, …
    #[allow(dead_code)]
    pub fn peak(&self, stage: &str, metric: &str) -> Figure {
        self.bounds(stage, &format!("peak_{metric}_low"), &format!("peak_{metric}_high"))
    }

    /// A peak since the mark before, as bounds.
    #[allow(dead_code)]
    pub fn span_peak(&self, stage: &str, metric: &str) -> Figure {
        self.bounds(stage, &format!("span_peak_{metric}_low"), &format!("span_peak_{metric}_high"))
    }

    /// The host account's total.
    pub fn host(&self, stage: &str) -> Figure {
        self.bounds(stage, "host_bytes_low", "host_bytes_high")
    }

    /// Two columns as the bounds of one figure.
    pub fn bounds(&self, stage: &str, low: &str, high: &str) -> Figure {
        let row = self.stage(stage);
        match (row.number(low), row.number(high)) {
            (None, None) if row.reached() => Figure::Absent(self.reason(low, row.time("sampled_ns"))),
            (None, None) => Figure::Absent(format!("{}: {}", row.text("status"), row.text("reason"))),
            (low, high) => Figure::Bounds(low, high),
        }
    }

    /// Why a metric was absent at a time, by the run's own words.
    pub fn reason(&self, column: &str, t: i64) -> String {
        let prefixes = ["span_peak_", "peak_", "delta_", "change_"];
        let metric = prefixes.into_iter().find_map(|prefix| column.strip_prefix(prefix)).unwrap_or(column);
        let metric = ["_low", "_high"].into_iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
        let names = |name: &str| name == metric;
        let mut last = None;
        for absent in self.run.json()["absent"].as_array().unwrap() {
            if names(absent["metric"].as_str().unwrap()) {
                last = absent["reason"].as_str().map(str::to_owned);
            }
        }
        let mut reason = None;
        for row in self.run.events("absent") {
            let detail: Value = serde_json::from_str(&row["detail"]).unwrap();
            if row["t_ns"].parse::<i64>().unwrap() <= t && names(&row["name"]) {
                reason = detail["reason"].as_str().map(str::to_owned);
            }
        }
        // A reason that changes while the absence goes on is told in run.json alone.
        let reason = match (reason, last) {
            (Some(first), Some(last)) if first != last => Some(format!("{last} (first: {first})")),
            (first, last) => first.or(last),
        };
        reason.unwrap_or_else(|| "no reason is given".to_owned())
    }

    /// All warnings, a line each.
    pub fn warnings(&self) -> String {
        let json = self.run.json();
        let warnings = json["warnings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap_or_default());
        warnings.collect::<Vec<_>>().join("\n")
    }

    /// The sample whose values stand at a stage.
    pub fn sample(&self, stage: &str) -> &Sample {
        let taken = self.stage(stage).time("sampled_ns");
        self.samples.iter().find(|sample| sample.t() == taken).unwrap()
    }

    /// The process that speaks for the load.
    pub fn speaker(&self) -> u64 {
        let speaks = |line: &&Said| line.kind == "process" && (line.name == "loader" || line.name == "leader");
        self.truth.iter().find(speaks).expect("a process that tells stages").pid
    }

    /// The first line of a kind and name, of the process that speaks where it has one.
    pub fn line(&self, kind: &str, name: &str) -> Option<&Said> {
        let speaker = self.speaker();
        let mut lines = self.truth.iter().filter(|line| line.kind == kind && line.name == name);
        lines.clone().find(|line| line.pid == speaker).or_else(|| lines.next())
    }

    /// The truth at a stage.
    pub fn mark(&self, stage: &str) -> &Said {
        self.line("mark", stage).unwrap_or_else(|| panic!("the loader never came to {stage}"))
    }

    /// The sum over all processes, if the loader wrote it.
    pub fn total(&self) -> &Said {
        self.truth.iter().find(|line| line.kind == "total").expect("a total")
    }

    /// What one process did before a sample's look began, and by its end at the latest.
    pub fn around(&self, sample: &Sample) -> (Option<&Said>, Option<&Said>) {
        let alone = || self.truth.iter().filter(|line| line.kind != "total");
        (alone().rfind(|line| line.counted <= sample.began()), alone().find(|line| line.t >= sample.t()))
    }
}

/// Claims that many cases make.
impl Profile {
    /// Of a loader that is one process: at each of these stages, and at the end, its faults and reads lie between what
    /// it had at its last word before the look and at its first one after it. Every other sample is held to the same,
    /// and its CPU time too.
    pub fn counters(&self, stages: &[&str]) -> Vec<Claim> {
        let held = self.samples.iter().filter(|sample| self.sample_is_true(sample)).count();
        assert!(held > 0, "no sample was taken after the loader's first word");
        let mut claims = Vec::new();
        for stage in stages {
            let (before, after) = self.around(self.sample(stage));
            let (Some(before), Some(after)) = (before, after) else { panic!("{stage} has no truth around it") };
            let faults = before.faults()..=after.faults();
            claims.push(Claim::between(format!("faults at {stage}"), faults, self.faults_at(stage)));
            let (bytes, calls) = (before.reads(), after.reads());
            claims.push(Claim::between(
                format!("rchar_bytes at {stage}"),
                bytes.0..=calls.0 + START_READS,
                self.at(stage, "rchar_bytes"),
            ));
            claims.push(Claim::between(
                format!("read_syscalls at {stage}"),
                bytes.1..=calls.1 + START_READ_CALLS,
                self.at(stage, "read_syscalls"),
            ));
        }
        // Its end is the kernel's last word: only the process's own going is added.
        let total = self.total();
        let (bytes, calls) = total.reads();
        let faults = total.faults()..=total.faults() + LAST_FAULTS;
        claims.push(Claim::between("faults at the end", faults, self.faults_at("exited")));
        let (most, most_calls) = (bytes + START_READS, calls + START_READ_CALLS);
        claims.push(Claim::between("rchar_bytes at the end", bytes..=most, self.at("exited", "rchar_bytes")));
        claims.push(Claim::between("read_syscalls at the end", calls..=most_calls, self.at("exited", "read_syscalls")));
        claims
    }

    /// Minor and major faults together: which of the two a fault is, the loader's file and the host's memory decide.
    pub fn faults_at(&self, stage: &str) -> Figure {
        match (self.at(stage, "minor_faults"), self.at(stage, "major_faults")) {
            (Figure::Exact(minor), Figure::Exact(major)) => Figure::Exact(minor + major),
            (Figure::Exact(_), absent) | (absent, _) => absent,
        }
    }

    /// Whether the loader had said anything before the sample; what it said must hold of it.
    fn sample_is_true(&self, sample: &Sample) -> bool {
        let processes: BTreeSet<u64> = self.truth.iter().map(|line| line.pid).collect();
        assert_eq!(processes.len(), 1, "the sum over several processes is not held so");
        let at = sample.t();
        let (before, after) = self.around(sample);
        let faults = sample.faults().expect("faults");
        let times = [("cpu_user_ns", "user_us"), ("cpu_system_ns", "system_us")];
        if let Some(before) = before {
            assert!(faults >= before.faults(), "at {at}");
            let (bytes, calls) = before.reads();
            assert!(sample.known("rchar_bytes") >= bytes && sample.known("read_syscalls") >= calls);
            for (metric, field) in times {
                assert!(sample.known(metric) + CLOCK_TICK >= before.get(field) * 1_000, "{metric} at {at}");
            }
        }
        if let Some(after) = after {
            assert!(faults <= after.faults(), "at {at}");
            let (bytes, calls) = after.reads();
            assert!(sample.known("rchar_bytes") <= bytes + START_READS);
            assert!(sample.known("read_syscalls") <= calls + START_READ_CALLS);
            for (metric, field) in times {
                assert!(sample.known(metric) <= after.get(field) * 1_000, "{metric} at {at}");
            }
        }
        before.is_some()
    }

    /// Payload that is resident at a stage: all that was touched, but for what the host evicts by itself (clean pages,
    /// on some hosts, up to 1% in the time of a run), and no more than `beyond` on top.
    pub fn resident(&self, stage: &str, touched: u64, beyond: u64) -> Claim {
        let most = (touched + beyond).min(self.payload.unwrap_or(u64::MAX));
        let within = touched - taken_back(touched)..=most;
        self.within(stage, "resident_payload_bytes", within)
    }

    /// How old a stage's residency may be by the tool's own word, where its look did not come to all of it.
    fn stale_residency(&self, stage: &str) -> Option<u64> {
        let sampled = self.stage(stage).time("sampled_ns");
        let sample = self.samples.iter().find(|sample| sample.t() == sampled)?;
        let stale = sample.get("resident_stale_ns")?;
        (stale > (sample.t() - sample.began()) as u64).then_some(stale)
    }

    /// Anonymous memory at a stage: what was filled, and the loader's own; and the host account around it.
    pub fn anonymous(&self, stage: &str, filled: u64) -> Vec<Claim> {
        let row = self.stage(stage);
        let anonymous = match (row.number("rss_anon_bytes"), row.number("swap_bytes")) {
            (Some(anonymous), Some(swap)) => Figure::Exact(anonymous + swap),
            _ => self.at(stage, "rss_anon_bytes"),
        };
        let within = filled.saturating_sub(rss_error())..=filled + OWN_MEMORY + rss_error();
        let mut claims = vec![Claim::between(format!("anonymous memory, swap too, at {stage}"), within, anonymous)];
        // What the loader must hold lies between the host account's bounds.
        if let Some(resident) = row.number("resident_payload_bytes") {
            let held = filled + resident;
            let processes = row.known("processes");
            // Its program and libraries are in the account too, as what they are: other file-backed pages.
            let own = processes * (OWN_MEMORY + OWN_FILES + rss_error()) + row.known("page_table_bytes");
            let within = held.saturating_sub(rss_error())..=held + own;
            let files = row.known("rss_file_bytes") + row.known("rss_shmem_bytes");
            // Pages may be shared copy-on-write after a fork: that all of them are is the low bound.
            let shared = row.known("rss_anon_bytes") / processes * (processes - 1);
            let widest = files + own + shared;
            claims.push(Claim::between(format!("host_bytes at {stage}"), within, self.host(stage)).widest(widest));
        }
        claims
    }

    /// Mapped extent at a stage, the whole and its payload: exact bytes.
    pub fn mapped(&self, stage: &str, bytes: u64, payload: u64) -> [Claim; 2] {
        [("mapped_bytes", bytes), ("mapped_payload_bytes", payload)]
            .map(|(column, truth)| Claim::exact(format!("{column} at {stage}"), truth, self.at(stage, column)))
    }

    /// Mapped extent at each mark of a script, as the script has it: exact bytes.
    pub fn mapped_as_told(&self, stages: &[&str]) -> Vec<Claim> {
        let told = |stage: &&str| {
            let mark = self.mark(stage);
            self.mapped(stage, mark.get("mapped_bytes"), mark.get("mapped_payload_bytes"))
        };
        stages.iter().flat_map(told).collect()
    }

    /// A column at a stage within a range.
    pub fn within(&self, stage: &str, column: &str, truth: RangeInclusive<u64>) -> Claim {
        let claim = Claim::between(format!("{column} at {stage}"), truth, self.at(stage, column));
        let is_residency = column.starts_with("resident_payload") && self.stage(stage).reached();
        claim.stale(if is_residency { self.stale_residency(stage) } else { None })
    }

    /// A column at a stage, exactly.
    pub fn exactly(&self, stage: &str, column: &str, truth: u64) -> Claim {
        Claim::exact(format!("{column} at {stage}"), truth, self.at(stage, column))
    }
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

/// The parts of the host account: they do not overlap, and add up to `host_bytes`.
const PARTS: [&str; 7] = [
    "anon_bytes",
    "payload_bytes",
    "artifact_other_bytes",
    "file_bytes",
    "shmem_bytes",
    "page_table_bytes",
    "hugetlb_bytes",
];

/// What must hold of every run, whatever the loader did.
impl Profile {
    fn check(&self) {
        self.samples_reconcile();
        self.rows_add_up();
        let exit = &self.run.json()["exit"];
        // A shell's way to tell of a signal.
        let by_signal = exit["signal"].as_i64().map(|signal| 128 + signal);
        assert_eq!(exit["code"].as_i64().or(by_signal), self.status.map(i64::from));
        assert!(self.run.json()["losses"].as_array().unwrap().is_empty());
        // One that was killed has not told its end.
        if self.truth.iter().any(|line| line.kind == "total") {
            self.marks_hold();
            self.lives_are_told();
            assert!(exit["at"].as_i64().unwrap() >= self.total().t, "the end is not before the last act");
        }
    }

    /// Every row of `samples.csv` agrees with itself and with the one before.
    fn samples_reconcile(&self) {
        for pair in self.samples.windows(2) {
            assert!(pair[0].t() < pair[1].t());
            for counter in COUNTERS {
                if let (Some(before), Some(after)) = (pair[0].get(counter), pair[1].get(counter)) {
                    assert!(after >= before, "{counter} fell from {before} to {after}");
                }
            }
        }
        for sample in &self.samples {
            let sum = |metrics: &[&str]| metrics.iter().map(|metric| sample.get(metric)).sum::<Option<u64>>();
            let payload = sample.get("payload_bytes");
            if self.payload.is_some() {
                assert_eq!(payload, self.payload);
            }
            if let Some(both) = sum(&["resident_payload_bytes", "nonresident_payload_bytes"]) {
                assert_eq!(Some(both), payload, "resident and nonresident payload");
            }
            if let (Some(parts), Some(all)) =
                (sum(&["rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes"]), sample.get("rss_bytes"))
            {
                assert_eq!(parts, all, "the parts of the resident set");
            }
            if let (Some(payload), Some(all)) = (sample.get("mapped_payload_bytes"), sample.get("mapped_bytes")) {
                assert!(payload <= all);
            }
        }
    }

    /// Rows of `stages.csv` stand in the order of marks; deltas add up to the totals; a peak is at least what any
    /// sample of its interval shows.
    fn rows_add_up(&self) {
        let rows: Vec<Stage> = self.run.rows("stages.csv").into_iter().map(Stage::new).collect();
        let reached: Vec<&Stage> = rows.iter().filter(|row| row.reached()).collect();
        let Some(last) = reached.last() else { return };
        let sum =
            |counter: &str| -> Option<u64> { reached.iter().map(|row| row.number(&format!("delta_{counter}"))).sum() };
        for counter in COUNTERS {
            // One that is absent at some mark has no delta there.
            let (deltas, total) = (sum(counter), last.number(counter));
            let add_up = deltas == total || deltas.is_none();
            assert!(add_up, "the deltas of {counter} are {deltas:?} of {total:?}");
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
                // A high-water counter may know of more than any sample saw.
                assert!(row.number(&format!("peak_{gauge}_low")) >= largest(0), "{gauge}");
                assert!(row.number(&format!("span_peak_{gauge}_low")) >= largest(begin), "{gauge}");
                for peak in ["peak", "span_peak"] {
                    let end = |end: &str| row.number(&format!("{peak}_{gauge}_{end}"));
                    assert!(end("high").is_none_or(|high| Some(high) >= end("low")), "{peak} of {gauge}");
                }
                if let Some((now, before)) = previous.and_then(|previous| row.number(gauge).zip(previous.number(gauge)))
                {
                    assert_eq!(row.text(&format!("change_{gauge}")), (now as i64 - before as i64).to_string());
                }
            }
            let own = self.samples.iter().find(|sample| sample.t() == taken).unwrap();
            for metric in COUNTERS.into_iter().chain(["rss_bytes", "mapped_bytes", "threads"]) {
                assert_eq!(row.number(metric), own.get(metric));
            }
            if let (Some(low), Some(high)) = (row.number("host_bytes_low"), row.number("host_bytes_high")) {
                assert!(low <= high);
                let figure = |part: &str, end: &str| row.number(&format!("host_{part}_{end}"));
                // Of a file whose payload is not known, the other bytes are all of it.
                let whole = figure("artifact_other_bytes", "high").is_some();
                let parts =
                    |end: &str| PARTS.map(|part| figure(part, end).or((whole && part == "payload_bytes").then_some(0)));
                // A part that is not known leaves the low bound a bound, and the high one none.
                let least = parts("low").into_iter().flatten().sum::<u64>();
                assert_eq!(
                    (low, Some(high)),
                    (least, parts("high").into_iter().sum()),
                    "the parts of the host account"
                );
            }
            previous = Some(row);
        }
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
                let late = t - self.mark(stage).t;
                assert!(uncertainty.unwrap() <= 1_000 && late <= 1_000_000, "{stage}: {uncertainty:?}, {late} late");
            }
        }
    }

    /// Every process that lived for longer than some ticks was seen born and gone, around its own acts.
    fn lives_are_told(&self) {
        const TICKS: i64 = 100_000_000;
        let pids: BTreeSet<u64> = self.truth.iter().map(|line| line.pid).collect();
        let root = self.total().pid;
        let exit = self.run.json()["exit"]["at"].as_i64().unwrap();
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
                assert!(
                    told("born").is_some(),
                    "process {pid}, which lived {} ms, was not seen",
                    (last - first) / 1_000_000
                );
                // One that nobody waits for may outlive the run by a moment.
                let survives = pid != root && exit - last < TICKS;
                assert!(told("gone").is_some() || survives, "the end of process {pid} was not seen");
            }
        }
    }
}
