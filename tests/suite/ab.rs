//! Series of runs by the program: the reference loader's ways of loading against each other, at events that they share
//! and at one that they do not.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use stagemark::ab::{ArmEntry, RunEntry, RunState, SCHEMA, Series, SeriesState};
use stagemark::compare::series::order;
use stagemark_fixtures::models::{self, Fill};
use tempfile::TempDir;

use super::support::{ended, eventually, finish, folder, reference_loader, signal, stagemark};

const PAYLOAD: u64 = 16 << 20;

struct Place {
    folder: TempDir,
    model: PathBuf,
}

impl Place {
    fn new() -> Place {
        let folder = folder();
        let model = folder.path().join("model.safetensors");
        models::uniform(&model, PAYLOAD, 8, Fill::Pattern).unwrap();
        Place { folder, model }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("series")
    }

    /// The loader in two ways, so fast that the payload takes a quarter of a second.
    fn arms(&self) -> Vec<String> {
        let [program, verb] = reference_loader();
        let arm = |name: &str, mode: &str| {
            format!("{name}='{program}' {verb} --mode {mode} --pace 64MiB --model '{}'", self.model.display())
        };
        vec!["--arm".into(), arm("lazy", "mmap-lazy"), "--arm".into(), arm("heap", "read-heap")]
    }

    fn ab(&self, arguments: &[&str]) -> Output {
        let mut command = stagemark();
        command.args(["ab", "--out"]).arg(self.out()).args(self.arms()).args(arguments);
        finish(&mut command)
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The time of an arm's first run at a stage.
fn time(answer: &Value, stage: &str, arm: usize) -> i64 {
    let stages = answer["stages"].as_array().unwrap();
    let at = stages.iter().find(|of| of["stage"] == stage).unwrap();
    let time = at["figures"].as_array().unwrap().iter().find(|of| of["metric"] == "t_ns").unwrap();
    time["arms"][arm]["runs"][0]["high"].as_i64().unwrap()
}

#[test]
fn a_loader_that_never_maps_is_not_compared_at_the_mapping() {
    let place = Place::new();
    let output = place.ab(&["--runs", "1", "--until", "mapping_available", "--then", "keep"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("heap") && said.contains("mapping_available") && said.contains("module_populated"), "{said}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    // What was run is kept.
    assert_eq!(json(&place.out().join("series.json"))["state"], "done");
    assert!(place.out().join("runs/02-heap/stages.csv").is_file());
    // The page says why, and there are no figures.
    let page = std::fs::read_to_string(place.out().join("compare.html")).unwrap();
    assert!(page.contains("lazy and heap: not compared") && page.contains("mapping_available was not reached by heap"));
    assert!(!page.contains("<section id=\"figures\"") && !place.out().join("compare.csv").exists());
}

#[test]
fn at_shared_events_it_is_judged_and_the_lead_of_the_lazy_one_shrinks() {
    let place = Place::new();
    let vary = ["--vary", "argv", "--vary", "source"];
    let more = ["--runs", "3", "--cache", "cold", "--until", "first_response", "--json", "--identity", "full"];
    let output = place.ab(&[&more[..], &vary[..]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let series = &answer["series"];
    let order: Vec<&str> = series["order"].as_array().unwrap().iter().map(|arm| arm.as_str().unwrap()).collect();
    assert_eq!(order, ["lazy", "heap", "heap", "lazy", "lazy", "heap"]);
    for run in series["runs"].as_array().unwrap() {
        let number = run["number"].as_u64().unwrap();
        let meta = json(&place.out().join(format!("runs/{number:02}-{}/run.json", run["arm"].as_str().unwrap())));
        let condition = &meta["condition"];
        assert_eq!((&condition["asked"], &condition["reached"]), (&"cold".into(), &"artifact-cold".into()));
    }
    let of = series["pairs"].as_array().unwrap().iter().find(|of| of["metric"] == "t_ns").unwrap();
    let against = &of["against"][0];
    assert_eq!((&against["arm"], &against["is_verdict"]), (&"heap".into(), &true.into()), "{against}");
    assert_eq!(against["pairs"].as_array().unwrap().len(), 3);
    let lead = |stage: &str| time(&answer, stage, 1) - time(&answer, stage, 0);
    // At the pace that was asked for, loading takes a quarter of a second, before the one event or the other.
    assert!(lead("module_populated") > 100_000_000, "{}", lead("module_populated"));
    assert!(lead("first_response") < lead("module_populated"), "{answer}");
    let written = json(&place.out().join("series.json"));
    assert_eq!(written["identity"][0]["sha256"].as_str().unwrap().len(), 64);
    for file in ["compare.csv", "compare.svg", "compare.html"] {
        assert!(place.out().join(file).is_file(), "{file}");
    }
    assert_eq!(std::fs::read(place.out().join("compare.json")).unwrap(), output.stdout);
    // The same again from the folder alone.
    let again = finish(stagemark().arg("compare").arg(place.out()).args(["--json", "--identity", "full"]).args(vary));
    assert_eq!(text(&again.stdout), text(&output.stdout));
    // At another event that all share.
    let other = finish(stagemark().arg("compare").arg(place.out()).args(["--at", "module_populated"]).args(vary));
    let told = text(&other.stdout);
    assert!(told.contains("Pair by pair at module_populated, ÷ lazy:"), "{told}");
    assert!(told.contains("different: higher, beyond 1% in every pair (3 pairs)"), "{told}");
}

#[test]
fn warm_runs_begin_warm_and_one_pair_is_no_verdict() {
    let place = Place::new();
    let output =
        place.ab(&["--runs", "1", "--warmup", "1", "--cache", "warm", "--until", "module_populated", "--vary", "argv"]);
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(told.contains("no verdict from fewer than 3 pairs"), "{told}");
    let meta = json(&place.out().join("runs/04-heap/run.json"));
    assert_eq!(meta["condition"]["reached"], "artifact-warm");
    let series = json(&place.out().join("series.json"));
    let warmup: Vec<bool> =
        series["runs"].as_array().unwrap().iter().map(|run| run["warmup"].as_bool().unwrap()).collect();
    assert_eq!(warmup, [true, true, false, false]);
    assert!(said.contains("run 1 of 4: lazy, warm-up: module_populated at "), "{said}");
}

/// A series of shell commands whose stage `done` is a line `done`.
fn shells(folder: &Path, arms: [&str; 2]) -> Command {
    let mut command = stagemark();
    command.args(["ab", "--out", "series", "--stage", "done=log:^done", "--until", "done", "--then", "keep"]);
    for (name, script) in ["A", "B"].iter().zip(arms) {
        command.arg("--arm").arg(format!("{name}=sh -c '{script}'"));
    }
    command.current_dir(folder);
    command
}

#[test]
fn what_belongs_to_a_series_is_run_around_its_runs() {
    let folder = folder();
    let mut command = shells(folder.path(), ["echo done $X; echo out >> o.txt", "echo done $X"]);
    command.args(["--runs", "2", "--env", "A:X=1", "--env", "B:X=2", "--vary", "argv", "--vary", "env"]);
    command.args(["--setup", "echo setup >> log", "--prepare", "rm -f o.txt; echo prepare >> log"]);
    command.args(["--cleanup", "echo cleanup >> log", "--same-output", "stdout", "--same-output", "o.*", "--json"]);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log, "setup\nprepare\nprepare\nprepare\nprepare\ncleanup\n");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let outputs = &answer["series"]["outputs"];
    assert_eq!((&outputs[0]["of"], &outputs[0]["equal"]), (&"stdout".into(), &false.into()), "{outputs}");
    let words = outputs[0]["words"].as_str().unwrap();
    assert!(words.starts_with("different: ") && words.contains("A ×2") && words.contains("B ×2"), "{words}");
    assert_eq!(outputs[1]["equal"], Value::Null);
    assert!(outputs[1]["words"].as_str().unwrap().contains("no such file"), "{outputs}");
    let mut command = shells(folder.path(), ["echo done", "echo done; exit 7"]);
    command.args(["--out", "other", "--setup", "exit 5", "--cleanup", "echo again >> log"]);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(2), "--out twice is wrong usage");
}

/// Every run is watched as was asked, by the options of `stagemark run`; what is wrong with them is told before the first.
#[test]
fn the_runs_are_watched_as_was_asked() {
    let folder = folder();
    let mut command = shells(folder.path(), ["echo done", "echo done"]);
    command.args(["--runs", "1", "--no-output-log", "--interval", "5ms", "--repeat-response", "2", "--vary", "env"]);
    // A variable of each arm's own.
    command.args(["--header-env", "STAGEMARK_TEST_KEY", "--env", "A:STAGEMARK_TEST_KEY=a"]);
    command.args(["--env", "B:STAGEMARK_TEST_KEY=b", "--same-output", "stdout"]);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("output stdout: the same in 2 runs"), "{}", text(&output.stdout));
    for run in ["01-A", "02-B"] {
        let run = folder.path().join("series/runs").join(run);
        assert_eq!(json(&run.join("run.json"))["interval_ns"], 5_000_000);
        assert!(!run.join("output.log").exists());
    }
    for (wrong, words) in [
        (["--workload", "none"], "--workload none: No such file"),
        (["--header-env", "STAGEMARK_TEST_UNSET"], "`STAGEMARK_TEST_UNSET` is not set"),
        (["--stage", "x=log:("], "unclosed group"),
        (["--stages", "generik"], "did you mean `generic`?"),
        (["--stages", "generic"], "--until done2: the stage file `generic` has no such stage"),
        (["--interval", "0ms"], "the shortest tick is 1ms"),
    ] {
        let until = if wrong[1] == "generic" { "done2" } else { "done" };
        let mut command = stagemark();
        command.args(["ab", "--out", "other", "--arm", "A=touch started", "--arm", "B=true", "--until", until]);
        let output = finish(command.args(wrong).current_dir(folder.path()));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {said}");
        assert!(said.contains(words), "{wrong:?}: {said}");
    }
    assert!(!folder.path().join("other").exists() && !folder.path().join("started").exists());
}

#[test]
fn what_fails_is_kept_and_said() {
    let folder = folder();
    let mut command = shells(folder.path(), ["echo done", "echo done; echo broken >&2; exit 7"]);
    command.args(["--runs", "1", "--vary", "argv", "--same-output", "stdout"]);
    let output = finish(&mut command);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "run 2 (B) failed with exit status 7 after the event at which it is compared: broken";
    assert!(told.contains(said), "{told}");
    assert!(told.contains("output stdout: the same in 2 runs: "), "{told}");
    let series = json(&folder.path().join("series/series.json"));
    assert_eq!((&series["runs"][1]["state"], &series["runs"][1]["status"]), (&"failed".into(), &7.into()));
    // A folder that holds something is not written over.
    assert_eq!(finish(&mut shells(folder.path(), ["echo done", "echo done"])).status.code(), Some(2));
    let other = super::support::folder();
    let mut command = shells(other.path(), ["echo done", "echo done"]);
    let output = finish(command.args(["--setup", "exit 5", "--cleanup", "echo cleanup > log"]));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--setup failed with exit status 5"), "{}", text(&output.stderr));
    assert!(other.path().join("log").is_file());
    // All was run and is compared, and the last of its commands failed.
    let other = super::support::folder();
    let mut command = shells(other.path(), ["echo done", "echo done"]);
    let output = finish(command.args(["--runs", "1", "--cleanup", "exit 9"]));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.contains("All 2 runs were made: --cleanup failed with exit status 9"), "{told}");
    // The folder of a series is none of a run.
    let output = finish(stagemark().args(["compare", "series", "series"]).current_dir(other.path()));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it is the folder of a series"), "{}", text(&output.stderr));
}

#[test]
fn an_interrupted_series_keeps_what_was_run() {
    let folder = folder();
    let mut command = shells(folder.path(), ["echo done", "exec sleep 1000"]);
    command.args(["--runs", "2", "--cleanup", "echo cleanup > log"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let events = folder.path().join("series/runs/02-B/events.csv");
    eventually("the second run has begun", || {
        let events = std::fs::read_to_string(&events).ok()?;
        events.contains("exec").then_some(())
    });
    // To the series alone: it hands it on.
    signal(child.id() as i32, Signal::SIGINT);
    assert_eq!(ended(&mut child).code(), Some(130));
    let series = json(&folder.path().join("series/series.json"));
    assert_eq!((&series["state"], &series["problem"]), (&"interrupted".into(), &"ended by SIGINT".into()));
    let states: Vec<&Value> = series["runs"].as_array().unwrap().iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["done", "interrupted"]);
    assert!(folder.path().join("series/runs/02-B/stages.csv").is_file());
    assert!(folder.path().join("log").is_file());
    let again = finish(stagemark().arg("compare").arg(folder.path().join("series")));
    assert_eq!(again.status.code(), Some(3));
    assert!(
        text(&again.stderr).contains("The series ended after 2 of 4 runs: ended by SIGINT"),
        "{}",
        text(&again.stderr)
    );
}

/// A series made of recorded runs, so many of each.
fn recorded(rounds: usize) -> TempDir {
    let folder = folder();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs");
    let arms = ["before", "after"];
    let arm = |name: &str| ArmEntry { name: name.into(), argv: vec!["server".into()], environment: Default::default() };
    let mut series = Series {
        schema: SCHEMA,
        stagemark: "0".into(),
        started: String::new(),
        state: SeriesState::Done,
        problem: None,
        arms: arms.map(arm).into(),
        order: order(2, rounds).into_iter().map(|arm| arms[arm].to_owned()).collect(),
        cache: "as-is".into(),
        until: Some("first_response".into()),
        same_output: Vec::new(),
        identity: Vec::new(),
        runs: Vec::new(),
    };
    for (index, arm) in series.order.iter().enumerate() {
        let entry = RunEntry {
            number: index + 1,
            arm: arm.clone(),
            round: index / 2,
            warmup: false,
            state: RunState::Done,
            status: 0,
            said: None,
            took_ns: 1,
            outputs: Vec::new(),
        };
        let run = folder.path().join(entry.folder());
        std::fs::create_dir_all(&run).unwrap();
        for file in std::fs::read_dir(fixtures.join(format!("pr-{arm}"))).unwrap().flatten() {
            std::fs::copy(file.path(), run.join(file.file_name())).unwrap();
        }
        series.runs.push(entry);
    }
    series.write(folder.path()).unwrap();
    folder
}

#[test]
fn recorded_figures_have_a_verdict_from_three_pairs_on() {
    let told = |folder: &TempDir| {
        let output = finish(stagemark().args(["compare", ".", "--vary", "argv"]).current_dir(folder.path()));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        // Where lines are broken is no matter here.
        text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let one = told(&recorded(1));
    assert!(one.contains("17.7 times faster"), "{one}");
    assert!(one.contains("no verdict from fewer than 3 pairs (1 pair: lower,"), "{one}");
    let folder = recorded(3);
    let three = told(&folder);
    assert!(
        three.contains("after ÷ 0.057 0.057 0.057, median 0.057: different: lower, beyond 1% in every pair (3 pairs)"),
        "{three}"
    );
    assert_eq!(told(&folder), three, "the same folder, the same bytes");
    // The page has the values, the ratios and the verdict, which stands with the figure at the top too.
    let mut command = stagemark();
    command.args(["compare", ".", "--vary", "argv", "--out", "page"]).current_dir(folder.path());
    assert_eq!(finish(&mut command).status.code(), Some(0));
    let page = std::fs::read_to_string(folder.path().join("page/compare.html")).unwrap();
    assert_eq!(page.matches("different: lower, beyond 1% in every pair (3 pairs)").count(), 2, "{page}");
    for told in
        ["before: median of 3 runs", "after ÷ before", "0.057 0.057 0.057, median 0.057", "1184 s, 1184 s, 1184 s"]
    {
        assert!(page.contains(told), "{told}");
    }
    // A run that is not there is said, and nothing is made up for it.
    std::fs::remove_dir_all(folder.path().join("runs/04-before")).unwrap();
    let output = finish(stagemark().args(["compare", "."]).current_dir(folder.path()));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("runs/04-before: not a run folder"), "{}", text(&output.stderr));
}
