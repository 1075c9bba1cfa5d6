//! Python's safetensors and torch, each file loaded by a driver that marks its own stages.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::folder::RunFolder;
use crate::support::{evict, here, made, python, text};

const PAYLOAD: u64 = 256 << 20;
/// Every driver's stages where the file is mapped.
const MAPPED: [&str; 4] = ["module_built", "mapping_available", "module_populated", "first_response"];
/// And where it is read.
const READ: [&str; 3] = ["module_built", "module_populated", "first_response"];

/// The checkpoints, written once for all tests of this process.
fn checkpoint(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let mebibytes = (PAYLOAD >> 20).to_string();
        let (folder, said) = made("checkpoints", &python("torch"), "make_checkpoint.py", &[&mebibytes]);
        assert_eq!(said.trim(), PAYLOAD.to_string());
        folder
    });
    folder.join(name)
}

/// A finished launch of a driver on a cold checkpoint.
struct Launch {
    run: RunFolder,
    output: Output,
    _scratch: TempDir,
}

impl Launch {
    fn of(driver: &str, checkpoint: &Path) -> Launch {
        evict(checkpoint);
        Launch::profiled(checkpoint, [here().join("loaders").join(driver).as_path(), checkpoint])
    }

    fn profiled<'a>(artifact: &Path, arguments: impl IntoIterator<Item = &'a Path>) -> Launch {
        let scratch = tempfile::tempdir().unwrap();
        let out = scratch.path().join("run");
        let mut stagemark = Command::new(env!("CARGO_BIN_EXE_stagemark"));
        stagemark.current_dir(scratch.path()).args(["run", "--quiet", "--out"]).arg(&out);
        stagemark.arg("--artifact").arg(artifact).arg("--stages").arg(here().join("stages.toml"));
        let output = stagemark.arg("--").arg(python("torch")).args(arguments).output().unwrap();
        Launch { run: RunFolder::at(out), output, _scratch: scratch }
    }

    /// What holds for every load that went well: its stages in this order, and sums that reconcile.
    fn assert_sound(&self, stages: &[&str]) {
        assert_eq!(self.output.status.code(), Some(0), "{}", text(&self.output.stderr));
        let meta = self.run.json();
        assert_eq!(meta["exit"]["code"], 0);
        assert_eq!(meta["artifacts"][0]["payload_bytes"], PAYLOAD);
        let at_start = meta["artifacts"][0]["resident_at_start_bytes"].as_u64().expect("residency at start");
        assert!(at_start < PAYLOAD / 20, "not cold: {at_start} bytes were resident at start");

        let rows = self.run.rows("stages.csv");
        let reached: Vec<&str> =
            rows.iter().filter(|row| row["status"] == "reached").map(|row| row["stage"].as_str()).collect();
        assert_eq!(reached, stages);
        let mut last = 0;
        for stage in stages {
            let stage = self.run.stage(stage);
            assert!(stage.known("t_ns") >= last, "{} comes too early", stage.text("stage"));
            last = stage.known("t_ns");
            assert_eq!(stage.known("payload_bytes"), PAYLOAD);
            assert_eq!(stage.known("resident_payload_bytes") + stage.known("nonresident_payload_bytes"), PAYLOAD);
        }
        for stage in ["module_built", "module_populated", "first_response"] {
            assert_eq!(self.run.stage(stage).text("evidence"), "notify");
        }
        // What the loader says of its stages and when is what was marked.
        let stdout = text(&self.output.stdout);
        let told = stdout.lines().filter_map(|line| line.strip_prefix("stage ")?.split_once(" t="));
        for (stage, time) in told {
            let time: u64 = time.replace('.', "").parse().unwrap();
            let mark = meta["start_monotonic_ns"].as_u64().unwrap() + self.at(stage, "t_ns");
            // Printed from a float: rounded by some nanoseconds.
            let earliest = mark - self.at(stage, "uncertainty_ns") - 100;
            assert!(earliest <= time, "{stage}: {time}, {mark}");
            // A mapping may have been seen before the loader spoke of it.
            assert!(time <= mark + 100 || stage == "mapping_available", "{stage}: {time}, {mark}");
        }
        // The answer reached us through the profiler, and it is an answer: a checkpoint was really used.
        let answer = self.answer();
        assert!(answer.is_finite() && answer > 0.0, "{answer}");
    }

    fn answer(&self) -> f64 {
        let stdout = text(&self.output.stdout);
        let answer = stdout.lines().find_map(|line| line.strip_prefix("answer ")).expect("an answer");
        answer.parse().unwrap()
    }

    fn at(&self, stage: &str, metric: &str) -> u64 {
        self.run.stage(stage).known(metric)
    }

    /// How much a figure rose from one stage to another.
    fn growth(&self, metric: &str, from: &str, to: &str) -> u64 {
        self.at(to, metric).saturating_sub(self.at(from, metric))
    }
}

/// A copy is at least the payload, but for counts that the kernel keeps a CPU and sums up late: 64 pages each.
fn is_a_copy(bytes: u64) -> bool {
    bytes >= PAYLOAD - PAYLOAD / 256
}

/// Far from a copy: what an interpreter allocates beside it.
fn is_no_copy(bytes: u64) -> bool {
    bytes < PAYLOAD / 16
}

/// Next to nothing: its headers, and what the kernel reads with them.
fn is_almost_nothing(bytes: u64) -> bool {
    bytes < PAYLOAD / 50
}

/// Practically all of it; hosts may evict clean pages on their own.
fn is_resident(bytes: u64) -> bool {
    bytes >= PAYLOAD - PAYLOAD / 20
}

/// Why this program exists: "populated" is not resident.
#[test]
#[ignore = "needs tests/real/install.sh"]
fn torch_assign_populates_a_module_with_almost_nothing_resident() {
    let launch = Launch::of("torch_assign.py", &checkpoint("model.pt"));
    launch.assert_sound(&MAPPED);
    for stage in ["mapping_available", "module_populated", "first_response"] {
        assert_eq!(launch.at(stage, "mapped_payload_bytes"), PAYLOAD, "{stage}");
    }
    let populated = launch.at("module_populated", "resident_payload_bytes");
    assert!(is_almost_nothing(populated), "{populated} bytes are resident once the module is populated");
    assert!(is_no_copy(launch.growth("rchar_bytes", "module_built", "first_response")), "it is not read(2)");
    assert!(is_resident(launch.at("first_response", "resident_payload_bytes")));
    assert!(is_no_copy(launch.growth("rss_anon_bytes", "module_built", "first_response")));
    assert!(is_resident(launch.growth("rss_file_bytes", "module_populated", "first_response")));
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn torch_mmap_copies_out_of_the_mapping() {
    let launch = Launch::of("torch_mmap.py", &checkpoint("model.pt"));
    launch.assert_sound(&MAPPED);
    for stage in ["mapping_available", "module_populated"] {
        assert_eq!(launch.at(stage, "mapped_payload_bytes"), PAYLOAD, "{stage}");
    }
    let mapped = launch.at("mapping_available", "resident_payload_bytes");
    assert!(mapped < PAYLOAD / 20, "{mapped} bytes are resident once the file is mapped");
    assert!(is_resident(launch.at("module_populated", "resident_payload_bytes")));
    assert!(is_a_copy(launch.growth("rss_anon_bytes", "module_built", "module_populated")));
    // Mapped access is no read(2).
    assert!(is_no_copy(launch.growth("rchar_bytes", "module_built", "first_response")));
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn torch_heap_maps_nothing() {
    let launch = Launch::of("torch_heap.py", &checkpoint("model.pt"));
    launch.assert_sound(&READ);
    assert_eq!(launch.run.stage("mapping_available").text("status"), "not_reached");
    for stage in READ {
        assert_eq!(launch.at(stage, "mapped_payload_bytes"), 0, "{stage}");
    }
    assert_eq!(launch.run.largest("mapped_payload_bytes"), Some(0));
    assert!(is_a_copy(launch.growth("rss_anon_bytes", "module_built", "module_populated")));
    assert!(launch.growth("rchar_bytes", "module_built", "module_populated") >= PAYLOAD);
    assert_eq!(launch.run.json()["artifacts"][0]["state"], "opened");
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn safe_open_keeps_the_weights_where_they_are_mapped() {
    let launch = Launch::of("safetensors_lazy.py", &checkpoint("model.safetensors"));
    launch.assert_sound(&MAPPED);
    for stage in ["mapping_available", "module_populated", "first_response"] {
        // safe_open maps the file twice: the extent is a union.
        assert_eq!(launch.at(stage, "mapped_payload_bytes"), PAYLOAD, "{stage}");
    }
    assert!(is_resident(launch.at("first_response", "resident_payload_bytes")));
    assert!(is_no_copy(launch.growth("rss_anon_bytes", "module_built", "first_response")));
    assert!(is_no_copy(launch.growth("rchar_bytes", "module_built", "first_response")));
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn numpy_load_file_maps_copies_and_lets_go() {
    let launch = Launch::of("safetensors_numpy.py", &checkpoint("model.safetensors"));
    launch.assert_sound(&MAPPED);
    // The mapping lives for the length of one call, in which only an observer can mark it.
    assert_eq!(launch.run.stage("mapping_available").text("evidence"), "mapping");
    assert_eq!(launch.at("module_populated", "peak_mapped_payload_bytes_low"), PAYLOAD);
    for stage in ["module_populated", "first_response"] {
        assert_eq!(launch.at(stage, "mapped_payload_bytes"), 0, "{stage}");
    }
    assert!(is_a_copy(launch.growth("rss_anon_bytes", "module_built", "module_populated")));
    assert!(is_resident(launch.at("module_populated", "resident_payload_bytes")));
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn every_way_of_loading_gives_the_same_answer() {
    let answer = |driver: &str, file: &str| Launch::of(driver, &checkpoint(file)).answer();
    let reference = answer("torch_heap.py", "model.pt");
    assert_eq!(answer("torch_assign.py", "model.pt"), reference);
    assert_eq!(answer("safetensors_lazy.py", "model.safetensors"), reference);
    // numpy adds in another order.
    let numpy = answer("safetensors_numpy.py", "model.safetensors");
    assert!((numpy - reference).abs() < reference.abs() / 1e4, "{numpy} and {reference}");
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn a_loader_that_fails_fails_as_it_does_alone() {
    let missing = checkpoint("missing.pt");
    let driver = here().join("loaders/torch_assign.py");
    let alone = Command::new(python("torch")).arg(&driver).arg(&missing).output().unwrap();
    let launch = Launch::profiled(&missing, [driver.as_path(), &missing]);
    assert_eq!(alone.status.code(), Some(1));
    assert_eq!(launch.output.status.code(), Some(1));
    assert_eq!(launch.output.stderr, alone.stderr, "the traceback comes through as it is");
    let script = "import os, signal, torch; os.kill(os.getpid(), signal.SIGKILL)";
    let launch = Launch::profiled(&checkpoint("model.pt"), [Path::new("-c"), Path::new(script)]);
    assert_eq!(launch.output.status.code(), Some(128 + 9));
    assert_eq!(launch.run.json()["exit"]["signal"], 9);
}

/// One that maps against one that never does: refused at the mapping, judged where both come.
#[test]
#[ignore = "needs tests/real/install.sh"]
fn a_mapped_module_and_a_read_one_are_judged_at_the_events_that_they_share() {
    let checkpoint = checkpoint("model.pt");
    let scratch = tempfile::tempdir().unwrap();
    let arm = |name: &str, driver: &str| {
        let driver = here().join("loaders").join(driver);
        format!("{name}='{}' '{}' '{}'", python("torch").display(), driver.display(), checkpoint.display())
    };
    let mut ab = Command::new(env!("CARGO_BIN_EXE_stagemark"));
    ab.current_dir(scratch.path()).args(["ab", "--out", "series", "--runs", "3", "--cache", "cold", "--json"]);
    ab.arg("--stages").arg(here().join("stages.toml")).arg("--artifact").arg(&checkpoint);
    ab.args(["--vary", "argv", "--vary", "source", "--then", "keep"]);
    ab.arg("--arm").arg(arm("assign", "torch_assign.py")).arg("--arm").arg(arm("heap", "torch_heap.py"));
    let output = crate::support::output_of(&mut ab);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["event"]["stage"], "first_response");
    // Of each arm, what its runs have at a stage.
    let at = |stage: &str, metric: &str, arm: usize| -> Vec<u64> {
        let stages = answer["stages"].as_array().unwrap();
        let figures = &stages.iter().find(|of| of["stage"] == stage).unwrap()["figures"];
        let figure = figures.as_array().unwrap().iter().find(|of| of["metric"] == metric).unwrap();
        figure["arms"][arm]["runs"].as_array().unwrap().iter().map(|run| run["value"].as_u64().unwrap()).collect()
    };
    let resident = |stage: &str, arm: usize| at(stage, "resident_payload_bytes", arm);
    assert!(resident("module_populated", 0).into_iter().all(is_almost_nothing), "the mapped one's lead");
    assert!(resident("module_populated", 1).into_iter().all(is_resident));
    // It is gone when both have answered.
    assert!((0..2).flat_map(|arm| resident("first_response", arm)).all(is_resident));
    let time = answer["series"]["pairs"].as_array().unwrap().iter().find(|of| of["metric"] == "t_ns").unwrap();
    assert_eq!(time["against"][0]["is_verdict"], true);
    let mut at_mapping = Command::new(env!("CARGO_BIN_EXE_stagemark"));
    at_mapping.current_dir(scratch.path()).args(["compare", "series", "--at", "mapping_available"]);
    let refused = crate::support::output_of(&mut at_mapping);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("heap"), "{}", text(&refused.stderr));
}

/// Programs that say nothing of their stages, by the bundled files for them.
#[test]
#[ignore = "needs tests/real/install.sh"]
fn silent_programs_have_the_stages_that_can_be_seen_from_outside() {
    let silent = |stages: &str, file: &str| {
        let checkpoint = checkpoint(file);
        let mut command = Command::new(python("torch"));
        command.arg(here().join("loaders/silent.py")).arg(stages).arg(&checkpoint);
        let launch = crate::support::Launch::of(&[checkpoint], &["--stages", stages], &command);
        launch.assert_sound(stages, PAYLOAD);
        launch.assert_in_order(&["module_populated", "exited"]);
        launch.assert_in_order(&["fully_resident", "exited"]);
        assert!(["not_applicable", "unknown"].contains(&launch.run.stage("gpu_placed").text("status")));
        assert!(!launch.run.stage("first_response").reached(), "nothing told it");
        assert!(launch.at("module_populated", "rss_anon_bytes") >= PAYLOAD / 10 * 9);
        launch
    };
    let torch = silent("torch", "model.pt");
    assert_eq!(torch.run.stage("mapping_available").text("status"), "not_reached", "it is read");
    let safetensors = silent("safetensors", "model.safetensors");
    safetensors.assert_in_order(&["mapping_available", "all_mapped", "mapping_released", "exited"]);
    assert_eq!(safetensors.at("exited", "mapped_payload_bytes"), 0);
}
