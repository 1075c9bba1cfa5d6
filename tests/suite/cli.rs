//! The command line as a newcomer and an ill-wisher meet it: help, wrong usage, what errors say and what they leave.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::support::{finish, folder, stagemark};

/// Runs `stagemark ARGUMENTS` in a folder.
fn in_folder<S: AsRef<OsStr>>(folder: &Path, arguments: &[S]) -> Output {
    finish(stagemark().args(arguments).current_dir(folder).env_remove("STAGEMARK_SOCKET").env_remove("NOTIFY_SOCKET"))
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn bytes(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[test]
fn help_says_what_the_statuses_are() {
    let folder = folder();
    for verb in ["run", "demo", "report", "findings", "inspect", "doctor", "stages", "columns", "mark"] {
        let output = in_folder(folder.path(), &[verb, "--help"]);
        assert_eq!(status(&output), 0);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Exit status: "), "{verb}: {help}");
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{verb}: {help}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

/// Wrong usage of `run` is told before anything is made: status 125, the words, no folder, the command not started.
#[test]
fn wrong_usage_leaves_nothing_behind() {
    let folder = folder();
    let stages = folder.path().join("bad.toml");
    std::fs::write(&stages, "name = 't'\n[[stage]]\nnome = 's'\n").unwrap();
    std::fs::write(folder.path().join("latin.toml"), b"name = 't'\nabout = '\xe4'\n").unwrap();
    std::fs::write(folder.path().join("huge.toml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    std::fs::write(folder.path().join("deep.toml"), format!("name = {}", "[".repeat(500_000))).unwrap();
    let pattern = format!("name = 't'\n[[stage]]\nname = 's'\nwhen = {{ log = '{}' }}\n", "(a{1000}){1000}".repeat(9));
    std::fs::write(folder.path().join("regex.toml"), pattern).unwrap();
    nix::unistd::mkfifo(&folder.path().join("fifo.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let before = folder.path().read_dir().unwrap().count();
    let cases: &[(&[&str], &str)] = &[
        (&["--out", ""], "--out"),
        (&["--out", "bad.toml"], "--out bad.toml: not a folder"),
        (&["--out", "bad.toml/x"], "--out bad.toml/x: not a folder"),
        (&["--stage", "x"], "--stage 'x':1:1: expected NAME=KIND:ARGUMENT"),
        (&["--stage", "x=http:y"], "--stage 'x=http:y':1:8: `url`: expected http://"),
        (&["--stage", "x=device:1"], "stands in a stage file only"),
        (&["--header-env", "STAGEMARK_TEST_UNSET"], "`STAGEMARK_TEST_UNSET` is not set"),
        (&["--workload", "bad.toml"], "bad.toml:1:1: "),
        (&["--concurrency", "2"], "--workload"),
        (&["--stage", "x=log:("], "--stage 'x=log:(':1:7: unclosed group"),
        (&["--stages", "generik"], "did you mean `generic`?"),
        (&["--stages", "."], "--stages .: not a file"),
        (&["--stages", "bad.toml"], "bad.toml:3:1: unknown key `nome`; did you mean `name`?"),
        (&["--stages", "latin.toml"], "latin.toml:2:10: not UTF-8"),
        (&["--stages", "huge.toml"], "--stages huge.toml: larger than a stage file may be"),
        (&["--stages", "deep.toml"], "deep.toml:1:"),
        (&["--stages", "regex.toml"], "regex.toml:4:16: `log`: the pattern is too large"),
        (&["--stages", "fifo.toml"], "--stages fifo.toml: not a file"),
        (
            &["--stages", "generic", "--until", "raedy"],
            "--until raedy: the stage file `generic` has no such stage; did you mean `ready`?",
        ),
        (&["--stages", "generic", "--until", "own"], "`--stage own=notify`"),
        (&["--until", "a b"], "no stage can have that name"),
        (&["--interval", "0ms"], "the shortest tick is 1ms"),
        (&["--interval", "90m"], "the longest tick is 1h"),
        (&["--interval", "20"], "write it like 20ms or 1s"),
        (&["--then", "dance"], "keep"),
    ];
    for (options, words) in cases {
        let output = in_folder(folder.path(), &[&["run"], *options, &["--", "touch", "started"]].concat());
        assert_eq!(status(&output), 125, "{options:?}");
        assert!(said(&output).contains(words), "{options:?}: {}", said(&output));
        assert_eq!(folder.path().read_dir().unwrap().count(), before, "{options:?}");
    }
    let output = in_folder(folder.path(), &["run", "touch", "started"]);
    assert_eq!(status(&output), 125);
    assert!(said(&output).contains("behind `--`"), "{}", said(&output));
}

#[test]
fn a_stopping_event_that_only_a_notification_can_reach_is_a_warning() {
    let folder = folder();
    let line = ["run", "--out", "r", "--until", "rdy", "--", "true"];
    let output = in_folder(folder.path(), &line);
    assert_eq!(status(&output), 0);
    assert!(said(&output).contains("warning: --until rdy: no stage file has"), "{}", said(&output));
    let line = ["run", "--out", "s", "--until", "own", "--stage", "own=notify", "--", "true"];
    let output = in_folder(folder.path(), &line);
    assert!(!said(&output).contains("--until"), "{}", said(&output));
}

/// Arguments are bytes: paths are taken as they are, and text that is none is refused by its flag's name.
#[test]
fn arguments_that_are_no_utf8() {
    let folder = folder();
    let stages = "name = 't'\n[[stage]]\nname = 's'\nwhen = { log = 'a' }\n";
    std::fs::write(folder.path().join(bytes(b"st\xff.toml")), stages).unwrap();
    let line = [
        "run".into(),
        "--quiet".into(),
        "--out".into(),
        bytes(b"r\xff"),
        "--artifact".into(),
        bytes(b"no\xff"),
        "--stages".into(),
        bytes(b"st\xff.toml"),
        "--".into(),
        "printf".into(),
        "%s".into(),
        bytes(b"a\xffb"),
    ];
    let output = in_folder(folder.path(), &line);
    assert_eq!((status(&output), output.stdout.as_slice()), (0, &b"a\xffb"[..]));
    let table = std::fs::read_to_string(folder.path().join(bytes(b"r\xff")).join("stages.csv")).unwrap();
    assert!(table.contains("\ns,reached,"), "{table}");
    for flag in ["--stage", "--until"] {
        let line = ["run".into(), flag.into(), bytes(b"x\xff"), "--".into(), "true".into()];
        let output = in_folder(folder.path(), &line);
        assert_eq!(status(&output), 125);
        let said = said(&output);
        assert!(said.contains(flag) && said.contains("not UTF-8"), "{said}");
    }
    let output = in_folder(folder.path(), &["mark".into(), bytes(b"x\xff")]);
    assert_eq!(status(&output), 2);
    assert!(said(&output).contains("not UTF-8"), "{}", said(&output));
}

#[test]
fn the_run_folder_is_where_it_was_asked_for() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    std::fs::create_dir(folder.path().join("aim")).unwrap();
    symlink("aim", folder.path().join("link")).unwrap();
    for out in ["a/b/c", "empty", "link"] {
        let output = in_folder(folder.path(), &["run", "--quiet", "--out", out, "--", "true"]);
        assert_eq!(status(&output), 0, "{}", said(&output));
        assert!(folder.path().join(out).join("stages.csv").is_file(), "{out}");
    }
    assert!(folder.path().join("aim/run.json").is_file());
    let again = in_folder(folder.path(), &["run", "--out", "empty", "--", "true"]);
    assert_eq!(status(&again), 125);
    assert!(said(&again).contains("--out empty: the folder is not empty: name a new or an empty one"));
}

#[test]
fn a_missing_artifact_is_a_warning() {
    let folder = folder();
    let line = ["run", "--out", "r", "--artifact", "gone.safetensors", "--", "sh", "-c", "exit 7"];
    let output = in_folder(folder.path(), &line);
    assert_eq!(status(&output), 7);
    let said = said(&output);
    assert!(said.contains("gone.safetensors: No such file"), "{said}");
    // At the start, and again at the end with what to do.
    let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(flat.matches("correct the path if it is mistyped").count(), 2, "{said}");
}

#[test]
fn figures_that_nothing_can_have_are_refused_with_their_place() {
    let folder = folder();
    in_folder(folder.path(), &["run", "--quiet", "--out", "one", "--", "sleep", "0.2"]);
    for (file, place) in [("samples.csv", 1), ("detail.csv", 4), ("events.csv", 1)] {
        let path = folder.path().join("one").join(file);
        let whole = std::fs::read_to_string(&path).unwrap();
        let mut row: Vec<&str> = whole.lines().nth(1).unwrap().split(',').collect();
        row[place] = "18446744073709551615";
        std::fs::write(&path, format!("{whole}{}\n", row.join(","))).unwrap();
        let output = in_folder(folder.path(), &["report", "--quiet", "one"]);
        let said = said(&output);
        let line = whole.lines().count() + 1;
        assert_eq!(status(&output), 3, "{said}");
        assert!(said.contains(&format!("{file}: line {line}: the field ")) && said.contains("2^62"), "{said}");
        std::fs::write(&path, whole).unwrap();
    }
}

/// What cannot be reported: no run (2), a run of a later version or with a damaged file (3), another run's folder (2).
#[test]
fn reports_of_what_is_no_good_run() {
    let folder = folder();
    for name in ["one", "two"] {
        in_folder(folder.path(), &["run", "--quiet", "--out", name, "--", "true"]);
    }
    let report = |line: &[&str]| {
        let output = in_folder(folder.path(), &[&["report", "--quiet"], line].concat());
        (status(&output), said(&output))
    };
    let (code, words) = report(&["."]);
    assert!(code == 2 && words.contains("not a run folder: run.json: No such file"), "{words}");
    let (code, words) = report(&["one", "--out", "two"]);
    assert!(code == 2 && words.contains("--out two is the folder of another run"), "{words}");
    assert_eq!(report(&["one", "--out", "one"]).0, 0);
    assert_eq!(report(&["one", "--out", "new/er"]).0, 0);
    let samples = folder.path().join("one/samples.csv");
    let mut damaged = std::fs::read_to_string(&samples).unwrap();
    damaged.push_str("x\u{1b}[2J,0,0\n1,0,0\n");
    std::fs::write(samples, damaged).unwrap();
    let (code, words) = report(&["one"]);
    assert!(code == 3 && words.contains("samples.csv: line "), "{words}");
    assert!(!words.contains('\u{1b}'), "{words:?}");
    let meta = folder.path().join("two/run.json");
    let later = std::fs::read_to_string(&meta).unwrap().replacen("\"schema\": 1,", "\"schema\": 999,", 1);
    std::fs::write(meta, later).unwrap();
    let (code, words) = report(&["two"]);
    assert!(code == 3 && words.contains("of schema 999") && words.contains("newer"), "{words}");
}

#[test]
fn marks_are_for_the_inside_of_a_run() {
    let output = in_folder(Path::new("/"), &["mark", "ready"]);
    assert_eq!(status(&output), 2);
    assert!(said(&output).contains("not inside a `stagemark run`"), "{}", said(&output));
}

/// `stagemark inspect … | head -1`: the reader goes away, which is no error and no panic.
#[test]
fn a_reader_that_leaves_is_no_error() {
    let folder = TempDir::new().unwrap();
    let model = folder.path().join("m.safetensors");
    let specs: Vec<_> = (0..2000)
        .map(|number| stagemark_fixtures::models::TensorSpec::flat(format!("t{number}"), "F32", 1, 4))
        .collect();
    stagemark_fixtures::models::safetensors(&model, &specs, stagemark_fixtures::models::Fill::Sparse).unwrap();
    let script = "set -o pipefail; \"$0\" inspect $(yes \"$1\" | head -50) | head -1";
    let output = finish(Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_stagemark")]).arg(&model));
    assert_eq!(status(&output), 0, "{}", said(&output));
    assert_eq!(output.stdout, [model.as_os_str().as_encoded_bytes(), b"\n"].concat());
    assert_eq!(said(&output), "");
}
