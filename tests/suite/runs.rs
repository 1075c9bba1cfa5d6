//! Whole runs: the run folder and what is in it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use stagemark_fixtures::models::{self, Fill};
use tempfile::TempDir;

use crate::folder::RunFolder;
use crate::program;
use crate::support::{eventually, finish, reference_loader, signal, stagemark, state_of};

const MIB: u64 = 1 << 20;

/// A scratch folder with a model file in it.
struct Bench {
    scratch: TempDir,
    model: PathBuf,
}

impl Bench {
    fn new(payload: u64) -> Bench {
        let scratch = tempfile::tempdir().unwrap();
        let model = scratch.path().join("model.safetensors");
        models::uniform(&model, payload, 8, Fill::Sparse).unwrap();
        Bench { scratch, model }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// `stagemark run OPTIONS -- COMMAND` in the scratch folder, its run folder being `run`.
    fn run(&self, options: &[&str], command: &[&str]) -> (Output, RunFolder) {
        let out = self.path("run");
        let output = self.command(&out, options, command).output().unwrap();
        (output, RunFolder::at(out))
    }

    fn command(&self, out: &Path, options: &[&str], command: &[&str]) -> Command {
        let mut stagemark = stagemark();
        stagemark.current_dir(self.scratch.path()).args(["run", "--out"]).arg(out).args(options);
        stagemark.arg("--").args(command);
        stagemark
    }

    /// The reference loader's command line on the model.
    fn loader<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        let mut command = reference_loader().to_vec();
        command.extend(["--model", self.model.to_str().unwrap()]);
        command.extend(options);
        command
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_leaves_a_folder_that_says_what_happened() {
    let bench = Bench::new(32 * MIB);
    // Its stages wait to be looked at: else it may be over before any look on a busy machine.
    let (output, run) = bench.run(&[], &bench.loader(&["--mode", "mmap-lazy", "--notify"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in [
        "run.json",
        "samples.csv",
        "detail.csv",
        "events.csv",
        "output.log",
        "stages.csv",
        "timeline.svg",
        "report.html",
    ] {
        assert!(!run.bytes(name).is_empty(), "{name} is empty");
    }
    assert!(run.bytes("timeline.png").starts_with(b"\x89PNG"));

    let meta = run.json();
    assert_eq!(meta["schema"], 1);
    assert_eq!(meta["stages"]["name"], "reference-loader");
    assert_eq!(meta["exit"]["code"], 0);
    assert_eq!(meta["artifacts"][0]["payload_bytes"], 32 * MIB);
    assert_eq!(meta["artifacts"][0]["found"], "command_line");
    assert_eq!(meta["artifacts"][0]["state"], "mapped");
    assert!(meta["cost"]["cpu_ns"].as_u64().unwrap() > 0);
    assert!(meta["host"]["kernel_release"].is_string());

    let mut stages: Vec<String> = run.rows("stages.csv").iter().map(|row| row["stage"].clone()).collect();
    // When all of it is resident depends on what the kernel reads ahead.
    stages.retain(|stage| stage != "fully_resident");
    assert_eq!(stages, ["mapping_available", "module_populated", "first_response", "exited"]);
    let last = run.stage("first_response");
    assert!(last.reached());
    assert_eq!(last.known("payload_bytes"), 32 * MIB);
    assert_eq!(last.known("resident_payload_bytes") + last.known("nonresident_payload_bytes"), 32 * MIB);
    assert_eq!(last.number("device_used_bytes"), None, "no device was looked at");
    assert_eq!(run.largest("mapped_payload_bytes"), Some(32 * MIB));

    let log = text(&run.bytes("output.log"));
    assert!(log.contains("stage first_response"), "{log}");
    assert!(text(&output.stdout).contains("stage first_response"));
}

#[test]
fn the_profiler_accounts_for_itself() {
    let bench = Bench::new(MIB);
    // Its output is a pipe here, so that a pump is among the helpers.
    let (_, run) = bench.run(&["--quiet"], &["sh", "-c", "echo a; sleep 0.2"]);
    let meta = run.json();
    let cost = |name: &str| meta["cost"][name].as_u64().unwrap_or_else(|| panic!("{name}: {}", meta["cost"]));
    assert!(cost("recorder_cpu_ns") > 0);
    assert!(cost("helper_cpu_ns") > 0);
    assert!(cost("cpu_ns") >= cost("recorder_cpu_ns") + cost("helper_cpu_ns"), "{}", meta["cost"]);
    assert!(cost("peak_rss_bytes") > 0 && cost("ticks") > 0);
    // Gathered beside the launch, and there all the same.
    assert_eq!(meta["argv"][0], "sh");
    assert!(meta["host"]["kernel_release"].is_string());
}

#[test]
fn the_same_reports_come_again_byte_for_byte() {
    let bench = Bench::new(16 * MIB);
    let (_, run) = bench.run(&["--quiet"], &bench.loader(&["--mode", "mmap-populate"]));
    let names = ["stages.csv", "timeline.svg", "timeline.png", "report.html"];
    let before = names.map(|name| run.bytes(name));
    names.iter().for_each(|name| std::fs::remove_file(run.path.join(name)).unwrap());
    let again = stagemark().arg("report").arg(&run.path).output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    for (name, before) in names.iter().zip(before) {
        assert!(run.bytes(name) == before, "{name} differs");
    }
    assert!(text(&again.stdout).contains("module_populated"));
}

#[test]
fn other_stages_are_matched_in_what_was_recorded() {
    let bench = Bench::new(8 * MIB);
    let (_, run) = bench.run(&["--quiet"], &["sh", "-c", "echo early; echo the weights are in; exit 3"]);
    let stages = bench.path("mine.toml");
    std::fs::write(
        &stages,
        "name = \"mine\"\nabout = \"a test\"\nstatus = \"unverified\"\n\
         [[stage]]\nname = \"module_populated\"\nwhen = { log = 'weights are in' }\n",
    )
    .unwrap();
    let before = run.bytes("stages.csv");
    let report = |out: &Path| {
        stagemark().arg("report").arg(&run.path).arg("--stages").arg(&stages).arg("--out").arg(out).output().unwrap()
    };
    let out = bench.path("other");
    let made = report(&out);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let stage = RunFolder::at(&out).stage("module_populated");
    assert!(stage.reached());
    assert_eq!(stage.text("evidence"), "log");
    assert_eq!(report(&run.path).status.code(), Some(2), "a run's own reports stay as they are");
    assert_eq!(run.bytes("stages.csv"), before);
}

#[test]
fn matching_again_with_the_same_stages_finds_the_same_marks() {
    let bench = Bench::new(8 * MIB);
    let (_, run) = bench.run(&["--quiet"], &bench.loader(&["--mode", "mmap-lazy"]));
    let out = bench.path("again");
    let made =
        stagemark().arg("report").arg(&run.path).args(["--stages", "reference-loader", "--out"]).arg(&out).output();
    assert!(made.unwrap().status.success());
    let times = |run: &RunFolder| -> Vec<(String, String, String)> {
        let rows = run.rows("stages.csv");
        rows.iter().map(|row| (row["stage"].clone(), row["t_ns"].clone(), row["evidence"].clone())).collect()
    };
    assert_eq!(times(&RunFolder::at(&out)), times(&run));
}

#[test]
fn the_exit_status_is_the_commands_own() {
    let bench = Bench::new(MIB);
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)] {
        let out = bench.path(&format!("run-{status}"));
        let output = bench.command(&out, &["--quiet"], &["sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    }
}

#[test]
fn what_cannot_be_started_leaves_nothing() {
    let bench = Bench::new(MIB);
    let (output, run) = bench.run(&[], &["/nonexistent/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("/nonexistent/program"));
    assert!(!run.path.exists());
    let script = bench.path("script");
    std::fs::write(&script, "").unwrap();
    let (output, _) = bench.run(&[], &[script.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(126));
}

#[test]
fn wrong_usage_is_125_for_run_and_2_elsewhere() {
    let status = |arguments: &[&str]| stagemark().args(arguments).output().unwrap().status.code();
    assert_eq!(status(&["run"]), Some(125));
    assert_eq!(status(&["run", "--bogus", "--", "true"]), Some(125));
    assert_eq!(status(&["run", "--interval", "soon", "--", "true"]), Some(125));
    assert_eq!(status(&["run", "--stages", "no-such-family", "--", "true"]), Some(125));
    assert_eq!(status(&["run", "--stage", "nonsense", "--", "true"]), Some(125));
    assert_eq!(status(&["nonsense"]), Some(2));
    assert_eq!(status(&["report", "/nonexistent"]), Some(2));
    assert_eq!(status(&["run", "--help"]), Some(0));
}

#[test]
fn an_out_folder_with_something_in_it_is_refused_before_the_start() {
    let bench = Bench::new(MIB);
    std::fs::create_dir(bench.path("run")).unwrap();
    std::fs::write(bench.path("run/mine"), "kept").unwrap();
    let (output, _) = bench.run(&[], &["touch", "started"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("not empty"));
    assert!(!bench.path("started").exists());
    assert_eq!(std::fs::read_to_string(bench.path("run/mine")).unwrap(), "kept");
}

#[test]
fn a_folder_that_cannot_be_written_does_not_stop_the_command() {
    let bench = Bench::new(MIB);
    // Nobody, not even root, makes a folder here.
    let mut command = bench.command(Path::new("/proc/stagemark-run"), &[], &["sh", "-c", "echo ran; exit 4"]);
    let output = command.env("TMPDIR", bench.scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(text(&output.stdout), "ran\n");
    assert!(text(&output.stderr).contains("/proc/stagemark-run"), "{}", text(&output.stderr));
}

/// Whoever may write beside the run folder may put a link in its place: what is written then goes to the folder still.
#[test]
fn a_folder_that_is_moved_away_while_the_command_runs_is_written_to_the_end() {
    let bench = Bench::new(MIB);
    let trap = bench.path("trap");
    std::fs::create_dir(&trap).unwrap();
    let script = "mv run moved && ln -s trap run && echo swapped";
    let (output, _) = bench.run(&[], &["sh", "-c", script]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(std::fs::read_dir(&trap).unwrap().count(), 0, "{said}");
    let run = RunFolder::at(bench.path("moved"));
    assert_eq!(run.json()["exit"]["code"], 0);
    for name in ["stages.csv", "timeline.svg", "timeline.png", "report.html"] {
        assert!(bench.path("moved").join(name).is_file(), "{name}: {said}");
    }
    assert!(said.contains("the run folder was moved while the command ran"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("run ") && line.ends_with("/moved")), "{said}");
}

#[test]
fn what_a_killed_profiler_left_is_taken_away_by_the_next() {
    let bench = Bench::new(MIB);
    let temporary = bench.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let sockets = || std::fs::read_dir(&temporary).unwrap().count();
    let start = |out: &str, script: &str| {
        let mut command = bench.command(&bench.path(out), &["--quiet"], &["sh", "-c", script]);
        command.env("TMPDIR", &temporary).env_remove("XDG_RUNTIME_DIR").current_dir(bench.scratch.path());
        command
    };
    let mut first = start("first", "touch started; until [ -e go ]; do sleep 0.02; done; touch over").spawn().unwrap();
    eventually("the command runs", || bench.path("started").exists().then_some(()));
    // One that is heard is left alone.
    assert!(finish(&mut start("second", "true")).status.success());
    assert_eq!(sockets(), 1);
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(sockets(), 1, "nobody was there to take it away");
    assert!(finish(&mut start("third", "true")).status.success());
    assert_eq!(sockets(), 0);
    // It goes on without the profiler, and is not to outlive the test.
    std::fs::write(bench.path("go"), "").unwrap();
    eventually("the command ends", || bench.path("over").exists().then_some(()));
}

#[test]
fn a_full_disk_does_not_stop_the_command_and_the_loss_is_said() {
    let bench = Bench::new(MIB);
    let small = bench.path("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(&small).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        eprintln!("left out: no file system can be mounted here");
        return;
    }
    let script = "i=0; while [ $i -lt 8000 ]; do echo line number $i of many; i=$((i+1)); done; exit 6";
    let out = small.join("run");
    let output = bench.command(&out, &[], &["sh", "-c", script]).output().unwrap();
    let report = stagemark().arg("report").arg(&out).arg("--out").arg(bench.path("elsewhere")).output().unwrap();
    let unmounted = Command::new("umount").arg(&small).status().unwrap();
    assert!(unmounted.success());
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(text(&output.stdout).lines().count(), 8000);
    assert!(text(&output.stderr).contains("could not be written"), "{}", text(&output.stderr));
    assert!(report.status.success(), "what was written is readable: {}", text(&report.stderr));
}

#[test]
fn a_launch_without_an_artifact_has_no_sections_of_zeroes() {
    let bench = Bench::new(MIB);
    let output = stagemark()
        .args(["run", "--stage", "up=log:hi", "--out"])
        .arg(bench.path("run"))
        .args(["--", "sh", "-c", "echo hi; sleep 0.3"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("stage  ") && said.contains("exit: status 0"), "{said}");
    for zero in ["of the payload", "payload in the page cache", "bytes of the artifacts", "source", "\n\n\n"] {
        assert!(!said.contains(zero), "{zero:?} in {said}");
    }
    let over = stagemark().args(["run", "--out"]).arg(bench.path("over")).args(["--", "true"]).output().unwrap();
    let said = text(&over.stderr);
    assert!(said.contains("exit: status 0") && !said.contains("host memory"), "{said}");
}

#[test]
fn a_killed_profiler_leaves_a_readable_run() {
    let bench = Bench::new(16 * MIB);
    // The command goes on for some ticks before it says so.
    let script = "echo begun; sleep 0.3; echo ready; exec sleep 600";
    let mut command = bench.command(&bench.path("run"), &["--quiet"], &["sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let printed = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(printed.map(Result::unwrap).find(|line| line == "ready").as_deref(), Some("ready"));
    child.kill().unwrap();
    child.wait().unwrap();
    let run = RunFolder::at(bench.path("run"));
    let command: i32 = run.events("exec")[0]["pid"].parse().unwrap();
    let alive = Path::new(&format!("/proc/{command}")).exists();
    let _ = Command::new("kill").arg(command.to_string()).status();
    assert!(alive, "the command went on");
    assert!(run.json()["exit"].is_null());
    let report = stagemark().arg("report").arg(&run.path).output().unwrap();
    assert!(report.status.success(), "{}", text(&report.stderr));
    assert!(run.rows("samples.csv").len() > 3);
    assert!(text(&run.bytes("output.log")).contains("begun"));
}

#[test]
fn stages_are_chosen_by_an_exec_deep_in_the_tree() {
    let bench = Bench::new(8 * MIB);
    let script = bench.path("start.sh");
    let loader = bench.loader(&["--mode", "mmap-lazy", "--hold", "until-stdin-closes"]).join(" ");
    program::script(&script, &format!("#!/bin/sh\necho starting\nsh -c '{loader}'\n"));
    let mut command = bench.command(&bench.path("run"), &["--quiet"], &["./start.sh"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let run = RunFolder::at(bench.path("run"));
    // It stays until it was seen.
    eventually("the file is seen mapped", || {
        let events = std::fs::read_to_string(run.path.join("events.csv")).ok()?;
        events.lines().any(|line| line.contains(",mapped,")).then_some(())
    });
    drop(child.stdin.take());
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(run.json()["stages"]["name"], "reference-loader");
    assert!(run.stage("module_populated").reached());
    // Nobody named the file on this command line: it was seen open.
    assert_eq!(run.json()["artifacts"][0]["found"], "discovered");
    assert_eq!(run.json()["artifacts"][0]["resident_at_start_reason"], "discovered after start");
}

#[test]
fn one_off_stages_and_a_stopping_event_that_ends_the_command() {
    let bench = Bench::new(MIB);
    let options = ["--stage", "ready=log:^server (?<what>up)", "--until", "ready", "--then", "stop"];
    let (output, run) = bench.run(&options, &["sh", "-c", "echo server up; exec sleep 600"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let ready = run.stage("ready");
    assert!(ready.reached());
    assert_eq!(ready.text("evidence"), "log");
    assert_eq!(run.json()["exit"]["stopped"], true);
    assert!(!run.json()["warnings"].to_string().contains("--then stop"));
}

#[test]
fn a_stop_that_had_nothing_to_stop_is_told_of() {
    let bench = Bench::new(MIB);
    let options = ["--stage", "ready=log:up", "--then", "stop"];
    let (output, run) = bench.run(&options, &["sh", "-c", "echo up"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(run.stage("ready").reached());
    let warnings = run.json()["warnings"].to_string();
    assert!(warnings.contains("the stopping event, `exited`, did not come before the command's own end"), "{warnings}");
}

#[test]
fn a_mark_from_inside_is_heard_before_the_command_goes_on() {
    let bench = Bench::new(MIB);
    let program = stagemark().get_program().to_str().unwrap().to_owned();
    let script = format!("sh -c '{program} mark warm' && echo after; {program} mark done");
    let (output, run) = bench.run(&[], &["sh", "-c", &script]);
    assert_eq!(text(&output.stdout), "after\n", "{}", text(&output.stderr));
    let (warm, done) = (run.stage("warm"), run.stage("done"));
    assert_eq!(warm.text("evidence"), "notify");
    assert!(warm.known("t_ns") < done.known("t_ns"));
    assert!(warm.known("sampled_ns") >= warm.known("t_ns"));
    assert!(warm.known("sampled_ns") <= done.known("t_ns"), "the mark waited for its sample");
}

#[test]
fn a_bad_artifact_is_a_warning() {
    let bench = Bench::new(MIB);
    let bad = bench.path("bad.safetensors");
    std::fs::write(&bad, [0xff; 64]).unwrap();
    let (output, run) = bench.run(&["--artifact", bad.to_str().unwrap()], &["true"]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("bad.safetensors"), "{}", text(&output.stderr));
    assert!(run.json()["artifacts"][0]["payload_reason"].as_str().unwrap().contains("byte"));
    let missing = bench.path("missing.safetensors");
    let out = bench.path("run-2");
    let output = bench.command(&out, &["--artifact", missing.to_str().unwrap()], &["true"]).output().unwrap();
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("missing.safetensors"));
}

#[test]
fn a_launch_that_opens_no_model_is_told_so() {
    let bench = Bench::new(MIB);
    let (output, run) = bench.run(&[], &["sh", "-c", "echo served elsewhere"]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("no model file was seen opened"), "{}", text(&output.stderr));
    assert_eq!(run.stage("mapping_available").text("status"), "unknown");
}

#[test]
fn secrets_are_in_no_file() {
    let bench = Bench::new(MIB);
    let out = bench.path("run");
    let mut command = bench.command(&out, &[], &["sh", "-c", "true", "--api-key", "verysecret1"]);
    let output = command.env("HF_TOKEN", "verysecret2").output().unwrap();
    assert!(output.status.success());
    for entry in std::fs::read_dir(&out).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!text(&bytes).contains("verysecret"), "{}", path.display());
    }
}

/// The figures of a launch of which a quarter was resident when it "was loaded": 4 GiB mapped, 1 GiB resident, then 4.
#[test]
fn a_quarter_resident_then_all_of_it() {
    const GIB: u64 = 1 << 30;
    let bench = Bench::new(4 * GIB);
    let touch = GIB.to_string();
    let options = ["--mode", "mmap-lazy", "--advice", "random", "--touch", &touch, "--notify"];
    let loader = [bench.loader(&options), vec!["--hold", "until-stdin-closes"]].concat();
    let mut command = bench.command(&bench.path("run"), &["--quiet", "--until", "exited"], &loader);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("stage first_response")));
    let run = RunFolder::at(bench.path("run"));
    // A twentieth may be gone: hosts may evict clean pages on their own.
    let about = |value: u64, wanted: u64| value <= wanted && value >= wanted - wanted / 20;
    eventually("all of it is seen resident", || about(run.latest("resident_payload_bytes")?, 4 * GIB).then_some(()));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let (populated, used) = (run.stage("module_populated"), run.stage("first_response"));
    for (stage, resident) in [(&populated, GIB), (&used, 4 * GIB)] {
        assert_eq!(stage.known("payload_bytes"), 4 * GIB);
        assert_eq!(stage.known("mapped_payload_bytes"), 4 * GIB);
        let seen = stage.known("resident_payload_bytes");
        // The look at a mark may not take long, so that on a busy machine some of it is from before: then it is too low.
        let asked_since_the_mark = stage.known("sampled_ns") - stage.known("resident_stale_ns") >= stage.known("t_ns");
        let name = stage.text("stage");
        assert!(seen <= resident && (about(seen, resident) || !asked_since_the_mark), "{seen} of {resident} at {name}");
        assert_eq!(seen + stage.known("nonresident_payload_bytes"), 4 * GIB);
    }
    assert_eq!(populated.known("mapped_bytes"), used.known("mapped_bytes"));
}

/// `stagemark report` of a run whose files were changed by this.
fn report_after(change: impl FnOnce(&Path)) -> (Output, Bench) {
    let bench = Bench::new(MIB);
    let (_, run) = bench.run(&["--quiet"], &bench.loader(&["--mode", "mmap-lazy"]));
    change(&run.path);
    let output = stagemark().arg("report").arg(&run.path).args(["--out"]).arg(bench.path("again")).output().unwrap();
    (output, bench)
}

fn rewrite(path: &Path, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, change(text)).unwrap();
}

#[test]
fn a_report_of_a_damaged_run_says_what_is_lacking() {
    // A torn last line, as a killed writer leaves it.
    let (output, _) = report_after(|run| rewrite(&run.join("samples.csv"), |text| text[..text.len() - 9].to_owned()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("samples.csv ends in a torn line"), "{}", text(&output.stdout));

    let (output, bench) = report_after(|run| std::fs::remove_file(run.join("events.csv")).unwrap());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("there is no events.csv"), "{}", text(&output.stdout));
    let unmarked = RunFolder::at(bench.path("again")).stage("first_response");
    assert!(!unmarked.reached() && !unmarked.text("reason").is_empty());
}

#[test]
fn what_is_no_run_of_this_version_is_refused_with_a_reason() {
    let refused = |change: &dyn Fn(String) -> String, status: i32, reason: &str| {
        let (output, _) = report_after(|run| rewrite(&run.join("run.json"), change));
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{told}");
        assert!(told.contains("run.json") && told.contains(reason), "{told}");
    };
    // No run at all is wrong usage; a run that this version cannot read cannot be known.
    refused(&|text| text[..text.len() / 2].to_owned(), 2, "EOF");
    refused(&|text| text.replacen("\"schema\": 1", "\"schema\": 2", 1), 3, "schema 2");
}

#[test]
fn every_metric_that_was_absent_has_its_reason_in_the_end() {
    let bench = Bench::new(MIB);
    // Nobody names an artifact, and none is opened: nothing is known of a payload at any time.
    let (_, run) = bench.run(&["--quiet"], &["true"]);
    let meta = run.json();
    let reason = |metric: &str| {
        let absent = meta["absent"].as_array().unwrap().iter().find(|absent| absent["metric"] == metric);
        absent.map(|absent| absent["reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(reason("resident_payload_bytes").as_deref(), Some("no artifact in the set"));
    assert!(reason("device_used_bytes").is_some());
    let rows = run.rows("samples.csv");
    let ever_absent = rows[0].keys().filter(|metric| rows.iter().any(|row| row[*metric].is_empty()));
    let untold: Vec<_> = ever_absent.filter(|metric| reason(metric).is_none()).collect();
    assert!(untold.is_empty(), "absent without a reason: {untold:?}");
    assert_eq!(run.events("exec").len(), 1, "what ended before anybody had looked is known by its command line");
}

/// The pid that a command wrote down.
fn pid_in(path: &Path) -> i32 {
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

#[test]
fn what_outlives_a_stop_is_stopped_too_and_named() {
    let bench = Bench::new(MIB);
    let options = ["--stage", "ready=log:^up", "--until", "ready", "--then", "stop"];
    let (output, run) = bench.run(&options, &["sh", "-c", "sleep 300 & echo $! >pid; echo up; wait"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid = pid_in(&bench.path("pid"));
    eventually("the end of what outlived it", || state_of(pid).is_none_or(|state| state == 'Z').then_some(()));
    let warnings = run.json()["warnings"].to_string();
    assert!(
        warnings.contains(&format!("process {pid} (sleep) outlived the command, and was sent SIGTERM")),
        "{warnings}"
    );
}

#[test]
fn what_outlives_the_command_is_named_and_left_alone() {
    let bench = Bench::new(MIB);
    let script = "setsid sleep 300 >/dev/null 2>&1 & echo $! >pid; exit 7";
    let (output, run) = bench.run(&[], &["sh", "-c", script]);
    let pid = pid_in(&bench.path("pid"));
    let alive = state_of(pid);
    signal(pid, nix::sys::signal::Signal::SIGKILL);
    assert_eq!(output.status.code(), Some(7));
    assert!(alive.is_some_and(|state| state != 'Z'), "{alive:?}");
    let warnings = run.json()["warnings"].to_string();
    assert!(warnings.contains("outlived the command: what it does from then on is not in this run"), "{warnings}");
}

#[test]
fn a_file_that_is_none_is_refused_and_not_waited_for() {
    let bench = Bench::new(MIB);
    bench.run(&[], &bench.loader(&["--mode", "mmap-lazy"]));
    for (name, status) in [("samples.csv", 3), ("run.json", 2)] {
        let path = bench.path("run").join(name);
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let output = finish(stagemark().arg("report").arg(bench.path("run")));
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{name}: {told}");
        assert!(told.contains(name), "{told}");
        assert_eq!(told.matches("not a regular file").count(), 1, "{told}");
    }
}

/// It takes no byte of the disk, and would take all memory.
#[test]
fn a_file_larger_than_any_run_makes_is_refused_and_not_read() {
    let bench = Bench::new(MIB);
    bench.run(&[], &bench.loader(&["--mode", "mmap-lazy"]));
    for (name, status) in [("samples.csv", 3), ("run.json", 2)] {
        let path = bench.path("run").join(name);
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let output = finish(stagemark().arg("findings").arg(bench.path("run")));
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{name}: {told}");
        assert!(told.contains(&format!("{name}: is larger than 4 GiB")), "{told}");
    }
}
