//! `--faults`: sampled faults and tensors, held against a loader whose order of touching is known.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde_json::Value;
use stagemark::clock::At;
use stagemark::event::ArtifactId;
use stagemark::probe::fault::Kind;
use stagemark::report::{plot, tensors};
use stagemark::run::Run;
use stagemark::run::faults::{FaultSamples, TensorPlace, Tensors, Touch};
use stagemark_fixtures::models::{Fill, uniform};
use tempfile::TempDir;

use crate::folder::{Row, RunFolder};
use crate::program;
use crate::reports;
use crate::support::{eventually, finish, reference_loader, stagemark};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

struct Bench {
    scratch: TempDir,
    model: PathBuf,
    start: u64,
    size: u64,
}

impl Bench {
    /// A model of eight tensors of 1 MiB, on the disk and out of the page cache as far as the filesystem allows it.
    fn new() -> Bench {
        let scratch = tempfile::tempdir().unwrap();
        let model = scratch.path().join("model.safetensors");
        let written = uniform(&model, 8 * MIB, 8, Fill::Pattern).unwrap();
        let file = File::open(&model).unwrap();
        file.sync_all().unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        Bench { scratch, model, start: written.payload[0].start, size: written.size }
    }

    fn command(&self, options: &[&str], loader: &str) -> Command {
        let mut command = stagemark();
        command.args(["run", "--quiet", "--out"]).arg(self.scratch.path().join("run")).args(options).arg("--");
        command.args(reference_loader()).arg("--model").arg(&self.model);
        command.arg("--truth").arg(self.scratch.path().join("truth")).arg("--mode").args(loader.split_whitespace());
        command
    }

    fn run(&self, options: &[&str], loader: &str) -> RunFolder {
        let output = finish(&mut self.command(options, loader));
        assert!(output.status.success(), "{output:?}");
        self.folder()
    }

    fn folder(&self) -> RunFolder {
        RunFolder::at(self.scratch.path().join("run"))
    }

    /// When the loader wrote a step, since start, and who.
    fn step(&self, name: &str) -> (i64, i64) {
        let start = self.folder().json()["start_monotonic_ns"].as_i64().unwrap();
        let text = std::fs::read_to_string(self.scratch.path().join("truth")).unwrap();
        let line = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).find(|l| l["name"] == name);
        let line = line.unwrap_or_else(|| panic!("the truth has no step {name}"));
        (line["t_ns"].as_i64().unwrap() - start, line["pid"].as_i64().unwrap())
    }
}

/// Whether the run has samples, and of faults in the kernel too; says so where not.
fn sampled(run: &RunFolder) -> bool {
    let samples = &run.json()["faults"];
    if !samples["unavailable"].is_null() || samples["kernel"] != true {
        eprintln!("NOT TESTED: perf events are denied here: {samples}");
        return false;
    }
    assert_eq!(samples["lost_records"], 0);
    true
}

fn number(row: &Row, column: &str) -> i64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is no number: {row:?}"))
}

fn pages(rows: &[&Row]) -> BTreeSet<u64> {
    rows.iter().map(|row| number(row, "offset") as u64 / PAGE).collect()
}

#[test]
fn every_page_is_found_in_its_tensor_touched_by_its_process_in_its_order() {
    let bench = Bench::new();
    let run = bench.run(&["--faults=1"], "inherited --advice random");
    if !sampled(&run) {
        return;
    }
    if run.json()["artifacts"][0]["resident_at_start_bytes"].as_u64().is_none_or(|bytes| bytes > 16 * PAGE) {
        eprintln!("NOT TESTED: this filesystem keeps its pages in memory, so that faults map several at once");
        return;
    }
    let ((second_half, parent), (first_half, child)) =
        (bench.step("second half touched"), bench.step("first half touched"));
    let (unmapped, other, again) =
        (bench.step("unmapped").0, bench.step("other memory touched").0, bench.step("module_populated").0);
    let middle = bench.start + 4 * MIB;
    let all = run.rows("faults.csv");
    let between = |from: i64, to: i64, pid: i64, behind: &str| -> Vec<&Row> {
        let is = |row: &&Row| {
            (from..to).contains(&number(row, "t_ns")) && number(row, "pid") == pid && row["behind"] == behind
        };
        all.iter().filter(is).collect()
    };
    assert!(all.iter().all(|row| row["behind"] != "artifact" || [parent, child].contains(&number(row, "pid"))));
    assert!(all.iter().all(|row| row["behind"] != "unknown"), "an address of which nothing was known");

    // The second half, a piece of 1 MiB after the other from the end down, each piece upwards.
    let upper = between(0, second_half, parent, "artifact");
    assert_eq!(pages(&upper), (middle / PAGE..bench.size.div_ceil(PAGE)).collect());
    let pieces: Vec<i64> = upper.iter().map(|row| (number(row, "offset") - middle as i64) / MIB as i64).collect();
    assert!(pieces.is_sorted_by(|a, b| a >= b), "{pieces:?}");
    for piece in 0..4 {
        let own = upper.iter().filter(|row| (number(row, "offset") - middle as i64) / MIB as i64 == piece);
        assert!(own.map(|row| number(row, "offset")).is_sorted());
    }
    // The first half, upwards, by the child through the mapping that it inherited.
    let lower = between(second_half, first_half, child, "artifact");
    assert_eq!(pages(&lower), (bench.start / PAGE..middle / PAGE).collect());
    assert!(lower.is_sorted_by_key(|row| number(row, "offset")));
    assert!(between(second_half, unmapped, parent, "artifact").is_empty());
    // Where the file was mapped lies other memory, then the file again.
    let base = |row: &Row| number(row, "address") - number(row, "offset");
    let old = base(upper[0]);
    assert!(upper.iter().chain(&lower).all(|row| base(row) == old));
    assert!(between(unmapped, other, parent, "artifact").is_empty());
    let there = between(unmapped, other, parent, "anonymous");
    let there = there.iter().filter(|row| (old..old + bench.size as i64).contains(&number(row, "address")));
    assert!(there.count() > 0, "the other memory lies elsewhere");
    let back = between(other, again, parent, "artifact");
    assert!(!back.is_empty() && back.iter().all(|row| base(row) == base(back[0])));

    for row in &all {
        let tensor = match row["offset"].parse::<u64>() {
            Ok(offset) if offset >= bench.start => format!("layers.{:05}.weight", (offset - bench.start) / MIB),
            _ => String::new(),
        };
        assert_eq!(row["tensor"], tensor, "{row:?}");
    }
    every_tensor(&bench, &run, parent, child);
}

fn every_tensor(bench: &Bench, run: &RunFolder, parent: i64, child: i64) {
    let rows = run.rows("tensors.csv");
    assert_eq!(rows.len(), 8);
    let first = |index: usize| number(&rows[index], "first_touched_at_most_ns");
    let order = [7, 6, 5, 4, 0, 1, 2, 3];
    assert!(order.is_sorted_by_key(|&index| first(index)), "{:?}", order.map(first));
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(number(row, "first_touched_pid"), if index < 4 { child } else { parent });
        assert_eq!(number(row, "begin") as u64, bench.start + index as u64 * MIB);
        let samples = number(row, "minor_sampled") + number(row, "major_sampled");
        assert!(samples >= (MIB / PAGE) as i64, "{row:?}");
        assert_eq!(number(row, "faults_estimate"), samples);
    }
    // Where others have the CPU the time for a mark is over before the tensors are come to.
    let mut seen = 0;
    for stage in ["fully_resident", "module_populated", "first_response", "exited"] {
        let resident: Option<Vec<i64>> =
            rows.iter().map(|row| row[&format!("resident_{stage}")].parse().ok()).collect();
        if let Some(resident) = resident {
            seen += 1;
            assert!(resident.iter().all(|bytes| *bytes <= MIB as i64), "{resident:?}");
            // The page cache may lose pages on its own; what is seen there is what is seen of the whole payload.
            let (sum, whole) = (resident.iter().sum::<i64>(), run.stage(stage).known("resident_payload_bytes") as i64);
            assert!((sum - whole).abs() <= 64 * PAGE as i64, "{stage}: {sum} {whole}");
        }
    }
    assert!(seen > 0, "no stage has the residency of every tensor");
    let samples = &run.json()["faults"];
    let listed = run.rows("faults.csv").iter().filter(|row| row["behind"] == "artifact").count() as u64;
    let counted = &samples["artifacts"];
    assert_eq!(counted["minor"].as_u64().unwrap() + counted["major"].as_u64().unwrap(), listed);
    for name in ["touched.svg", "touched.png"] {
        assert!(!run.bytes(name).is_empty());
    }
}

#[test]
fn what_is_read_into_the_heap_touches_no_artifact() {
    let bench = Bench::new();
    let run = bench.run(&["--faults=1"], "read-heap");
    if !sampled(&run) {
        return;
    }
    let samples = &run.json()["faults"];
    assert_eq!((samples["artifacts"]["minor"].as_u64(), samples["artifacts"]["major"].as_u64()), (Some(0), Some(0)));
    // Each page of the buffer, unless the kernel gives huge ones.
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !huge.contains("[always]") {
        assert!(samples["anonymous"]["minor"].as_u64().unwrap() >= 8 * MIB / PAGE, "{samples}");
    }
    let rows = run.rows("faults.csv");
    assert!(rows.iter().any(|row| row["behind"] == "anonymous"));
    assert!(rows.iter().all(|row| row["artifact"].is_empty() && row["tensor"].is_empty()));
    for row in run.rows("tensors.csv") {
        assert_eq!((row["first_touched_at_most_ns"].as_str(), row["minor_sampled"].as_str()), ("", "0"));
    }
    assert!(String::from_utf8(run.bytes("touched.svg")).unwrap().contains("no sampled fault lies in an artifact"));
}

#[test]
fn a_file_that_nobody_named_has_its_faults_from_before_it_was_found() {
    let bench = Bench::new();
    // The loader's command line is hidden in a file, so that the model is found as it is mapped.
    let script = bench.scratch.path().join("script");
    let [program, verb] = reference_loader();
    let model = bench.model.display();
    let text = format!("{program} {verb} --model {model} --mode mmap-lazy --touch 8MiB --hold 0.5 --advice random\n");
    std::fs::write(&script, text).unwrap();
    let mut command = stagemark();
    command.args(["run", "--quiet", "--faults=1", "--out"]).arg(bench.scratch.path().join("run"));
    command.args(["--", "sh"]).arg(&script);
    assert!(finish(&mut command).status.success());
    let run = bench.folder();
    if !sampled(&run) {
        return;
    }
    assert_eq!(run.json()["artifacts"][0]["found"], "discovered");
    assert!(run.rows("tensors.csv").iter().all(|row| !row["first_touched_pid"].is_empty()));
    let rows = run.rows("faults.csv");
    let own: Vec<&Row> = rows.iter().filter(|row| row["behind"] == "artifact").collect();
    if own.iter().all(|row| row["kind"] == "minor") {
        eprintln!("NOT TESTED: this filesystem keeps its pages in memory, so that faults map several at once");
        return;
    }
    assert_eq!(pages(&own), (bench.start / PAGE..bench.size.div_ceil(PAGE)).collect());
}

#[test]
fn nothing_is_written_that_was_not_asked_for() {
    let bench = Bench::new();
    let run = bench.run(&[], "mmap-lazy");
    assert!(run.json()["faults"].is_null());
    for name in ["faults.csv", "tensor_layout.csv", "tensor_residency.csv", "tensors.csv", "touched.svg", "touched.png"]
    {
        assert!(!run.path.join(name).exists(), "{name}");
    }
}

#[test]
fn one_in_none_is_wrong_usage_and_one_in_very_many_is_not() {
    for wrong in ["--faults=0", "--faults=-1", "--faults=x", "--faults=1000000001"] {
        let bench = Bench::new();
        let output = finish(&mut bench.command(&[wrong], "mmap-lazy"));
        assert_eq!(output.status.code(), Some(125), "{wrong}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--faults"), "{output:?}");
        assert!(!bench.folder().path.exists());
    }
    let bench = Bench::new();
    let output = finish(&mut bench.command(&["--faults", "7"], "mmap-lazy"));
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("with an equals sign: --faults=7"), "{output:?}");
    let run = bench.run(&["--faults=1000000000"], "read-heap");
    let samples = &run.json()["faults"];
    assert_eq!(samples["asked"], 1_000_000_000);
    assert_eq!(samples["anonymous"]["minor"], 0);
    let bench = Bench::new();
    let run = bench.run(&["--faults"], "mmap-lazy");
    assert_eq!(run.json()["faults"]["asked"], 64);
}

#[test]
fn where_the_events_are_refused_the_run_goes_on_and_says_why() {
    let bench = Bench::new();
    let plain = bench.command(&["--faults=1"], "mmap-lazy --touch 8MiB");
    // Too few descriptors for two events a CPU, and enough for everything else.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 100; exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args());
    let output = finish(&mut command);
    assert!(output.status.success(), "{output:?}");
    let run = bench.folder();
    let samples = &run.json()["faults"];
    let why = samples["unavailable"].as_str().unwrap();
    assert!(why.contains("descriptors"), "{why}");
    assert!(run.rows("faults.csv").is_empty());
    for row in run.rows("tensors.csv") {
        // Where others have the CPU the time for a mark may be over before a tensor is come to.
        assert_ne!(row["resident_first_response"], "0");
        let absent = ["first_touched_at_most_ns", "first_touched_pid", "minor_sampled", "faults_estimate"];
        assert!(absent.iter().all(|column| row[*column].is_empty()), "{row:?}");
    }
    let told = Command::new(env!("CARGO_BIN_EXE_stagemark")).arg("report").arg(&run.path).output().unwrap();
    assert!(String::from_utf8_lossy(&told.stdout).contains("Fault samples: none: "), "{told:?}");
}

#[test]
fn an_ordinary_user_has_the_faults_of_user_mode_and_is_told() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("NOT TESTED: needs root, to be another user");
        return;
    }
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim() != "2" {
        eprintln!("NOT TESTED: kernel.perf_event_paranoid is not 2");
        return;
    }
    let bench = Bench::new();
    let folder = bench.scratch.path();
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
    let program = folder.join("stagemark");
    program::copy(Path::new(env!("CARGO_BIN_EXE_stagemark")), &program);
    let mut command = Command::new(&program);
    command.args(["run", "--quiet", "--faults=1", "--out"]).arg(folder.join("run")).arg("--").arg(&program);
    command.args(["reference-loader", "--mode", "read-heap", "--model"]).arg(&bench.model);
    command.uid(65_534).gid(65_534).current_dir(folder);
    assert!(finish(&mut command).status.success());
    let run = bench.folder();
    let samples = &run.json()["faults"];
    assert!(samples["unavailable"].is_null(), "{samples}");
    assert_eq!(samples["kernel"], false);
    assert!(samples["anonymous"]["minor"].as_u64().unwrap() < 8 * MIB / PAGE, "{samples}");
    let told = Command::new(env!("CARGO_BIN_EXE_stagemark")).arg("report").arg(&run.path).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).replace("\n  ", " ");
    assert!(told.contains("kernel.perf_event_paranoid allows this user no others"), "{told}");
}

#[test]
fn a_killed_run_keeps_its_samples() {
    let bench = Bench::new();
    let mut command = bench.command(&["--faults=1"], "mmap-lazy --touch 8MiB --hold until-stdin-closes");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let run = bench.folder();
    eventually("a fault in an artifact and a tensor's residency", || {
        let text = |name: &str| std::fs::read_to_string(run.path.join(name)).unwrap_or_default();
        let denied = text("run.json").contains("\"unavailable\": \"");
        (denied || text("faults.csv").contains(",artifact\n")).then_some(())?;
        (text("tensor_residency.csv").lines().count() > 8).then_some(())
    });
    child.kill().unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    let report = Command::new(env!("CARGO_BIN_EXE_stagemark")).arg("report").arg(&run.path).output().unwrap();
    assert!(report.status.success(), "{report:?}");
    let rows = run.rows("tensors.csv");
    assert_eq!(rows.len(), 8);
    if run.json()["faults"]["unavailable"].is_null() {
        assert!(rows.iter().any(|row| !row["first_touched_pid"].is_empty()));
    }
}

/// A recorded run with samples made up by a rule: the first tensor by one process in order, the second by another from
/// its end down, the third not at all.
pub fn made_up() -> (Run, stagemark::account::StageTable) {
    let (mut run, table) = reports::load("lazy");
    let size = run.meta.artifacts[0].size_bytes;
    let each = size / 3;
    let artifact = ArtifactId(0);
    let place = |index: u64| TensorPlace {
        name: format!("layers.{index}.weight"),
        dtype: "BF16".to_owned(),
        begin: index * each,
        end: (index + 1) * each,
    };
    let end = run.samples.last().unwrap().t.0;
    let mut touches = Vec::new();
    for step in 0..200u64 {
        let at = |share: u64| At(end / 10 + end * share as i64 / 1000);
        let kind = if step % 8 == 0 { Kind::Major } else { Kind::Minor };
        touches.push(Touch { at: at(step), pid: 100, kind, artifact, offset: each * step / 200 });
        let offset = 2 * each - 1 - each * step / 200;
        touches.push(Touch { at: at(300 + 2 * step), pid: 101, kind: Kind::Minor, artifact, offset });
    }
    touches.sort_by_key(|touch| touch.at);
    let resident = table.reached().filter_map(|row| {
        let tensors = (0..2).map(|tensor| ((artifact, tensor), each / 2 * tensor as u64)).collect();
        Some((row.sampled?, tensors))
    });
    run.tensors = Some(Tensors {
        touches,
        layouts: [(artifact, (0..3).map(place).collect())].into(),
        resident: resident.collect(),
    });
    let mut samples = FaultSamples::asked(64);
    (samples.minor_period, samples.major_period, samples.kernel) = (64, 1, Some(true));
    (samples.artifacts.minor, samples.artifacts.major) = (375, 25);
    samples.other_files.minor = 12;
    samples.anonymous.minor = 40;
    run.meta.faults = Some(samples);
    (run, table)
}

#[test]
fn the_picture_and_the_table_of_a_recorded_run() {
    let (run, table) = made_up();
    let found = run.tensors.as_ref().unwrap();
    reports::golden("lazy.touched.svg", &plot::touched::svg(&run, found, &table).unwrap());
    let mut rows = Vec::new();
    tensors::write(&run, found, &table, &mut rows).unwrap();
    reports::golden("lazy.tensors.csv", &String::from_utf8(rows).unwrap());
    let told = stagemark::report::terminal::text(&run, &table);
    let section = told.lines().skip_while(|line| !line.starts_with("Page faults sampled"));
    let section: Vec<&str> = section.take_while(|line| !line.is_empty()).collect();
    reports::golden("lazy.faults.txt", &(section.join("\n") + "\n"));
}
