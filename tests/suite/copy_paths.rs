//! `stagemark copy-paths`: what it measures, what it refuses, and that its tables can be made again.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;
use stagemark_fixtures::models::{self, Fill};

use crate::support::{ended, eventually, finish, folder, signal, stagemark};

const PAYLOAD: u64 = 4 << 20;

fn model(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let path = folder.path().join("model.safetensors");
    models::uniform(&path, PAYLOAD, 8, Fill::Pattern).unwrap();
    path
}

#[test]
fn every_repeat_is_kept_and_the_tables_are_made_again_from_them() {
    let folder = folder();
    let (model, out) = (model(&folder), folder.path().join("out"));
    let mut command = stagemark();
    command.args(["copy-paths", "--repeats", "3", "--ranks", "2", "--tensors", "4", "--out"]).arg(&out).arg(&model);
    let first = finish(&mut command);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let text = String::from_utf8(first.stdout).unwrap();
    assert!(text.contains("4 of 8 tensors, 2 MiB"), "{text}");
    // Long lines are broken.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("host memory · 1 rank") && words.contains("host memory · 2 ranks at once"), "{text}");
    assert!(text.lines().all(|line| line.starts_with('/') || line.chars().count() <= 80), "{text}");
    assert!(words.contains("order: ") && words.contains("came both first and last"), "{text}");

    let file = out.join("copy-paths.json");
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let series = record["places"][0]["series"].as_array().unwrap();
    // Sixteen ways, by one rank and by two.
    assert_eq!(series.len(), 32);
    for series in series.iter().filter(|series| series["refused"].is_null()) {
        let ranks = series["ranks"].as_u64().unwrap();
        // The warm-up, and three repeats.
        assert_eq!(series["passes"].as_array().unwrap().len() as u64, 4 * ranks, "{}", series["way"]);
    }
    let rows = std::fs::read_to_string(out.join("copy-paths.csv")).unwrap();
    let passes: usize = series.iter().map(|series| series["passes"].as_array().unwrap().len()).sum();
    assert_eq!(rows.lines().count(), 1 + passes);
    assert_eq!(std::fs::read(out.join("copy-paths.png")).unwrap()[1..4], *b"PNG");

    let again = finish(stagemark().args(["copy-paths", "--from"]).arg(&file));
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
}

#[test]
fn what_does_not_fit_is_refused_with_the_figure() {
    let folder = folder();
    let model = model(&folder);
    let output = finish(stagemark().args(["copy-paths", "--max-memory", "1 MiB"]).arg(&model));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(output.stdout.is_empty());
    // Each byte twice, once at its destination and once in the page cache, and the largest tensor's buffers.
    let (_, exactly) = said.split_once('(').unwrap();
    let needed: u64 = exactly.split(' ').next().unwrap().parse().unwrap();
    assert!((2 * PAYLOAD..4 * PAYLOAD).contains(&needed), "{said}");
}

#[test]
fn a_place_without_room_is_refused_before_anything_is_copied() {
    let folder = folder();
    let sparse = folder.path().join("large.bin");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
    let raw = format!("raw:{}", sparse.display());
    let model = model(&folder);
    // All payload and one tensor: it does not fit into memory, whatever the place.
    let output = finish(stagemark().args(["copy-paths", &raw, "--on"]).arg(folder.path()));
    assert_eq!(output.status.code(), Some(3));
    // A place that goes away meanwhile: what had been measured elsewhere by then is not lost.
    let (place, out) = (folder.path().join("place"), folder.path().join("out"));
    std::fs::create_dir(&place).unwrap();
    let mut command = stagemark();
    command.args(["copy-paths", "--repeats", "500", "--regime", "heap", "--on"]).arg(&place).arg("--out").arg(&out);
    let mut child =
        command.arg(&model).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("a repeat", || out.join("copy-paths.json").exists().then_some(()));
    std::fs::remove_dir(&place).unwrap();
    assert_eq!(ended(&mut child).code(), Some(3));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--on ") && said.contains("place"), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("failed: --on ") && text.contains("\nheap "), "{text}");
}

/// Before the first place is measured, which may take hours.
#[test]
fn what_is_no_place_for_a_copy_is_wrong_usage() {
    let folder = folder();
    let model = model(&folder);
    let out = folder.path().join("out");
    for (wrong, why) in [(folder.path().join("nowhere"), "No such file"), (model.clone(), "this is no folder")] {
        let mut command = stagemark();
        command.arg("copy-paths").arg(&model).args(["--on"]).arg(folder.path()).arg("--on").arg(&wrong);
        let output = finish(command.arg("--out").arg(&out));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains("--on <DIR>") && said.contains("a folder that is there") && said.contains(why), "{said}");
        assert!(!out.exists());
    }
}

#[test]
fn a_folder_that_was_made_and_that_nothing_came_into_is_taken_away() {
    let folder = folder();
    let model = model(&folder);
    let before = folder.path().join("before");
    std::fs::create_dir(&before).unwrap();
    let measured = |out: &std::path::Path, options: &[&str]| {
        let mut command = stagemark();
        command.args(["copy-paths", "--repeats", "1", "--regime", "heap"]).args(options).arg("--out").arg(out);
        finish(command.arg(&model)).status.code()
    };
    let inner = before.join("made/inner");
    assert_eq!(measured(&inner, &["--max-memory", "1 MiB"]), Some(3));
    assert!(before.is_dir() && !before.join("made").exists());
    assert_eq!(measured(&before, &["--max-memory", "1 MiB"]), Some(3));
    assert!(before.is_dir(), "it was there before");
    assert_eq!(measured(&inner, &[]), Some(0));
    assert!(inner.join("copy-paths.json").is_file());
}

/// A copy in memory takes memory, of the whole artifact whichever of its tensors are copied.
#[test]
fn a_copy_in_memory_is_bounded_with_the_rest() {
    // The usual place of such a filesystem; where it is none, there is nothing to be seen.
    let shared = std::path::Path::new("/dev/shm");
    let is_memory =
        nix::sys::statfs::statfs(shared).is_ok_and(|of| of.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC);
    if !is_memory {
        return;
    }
    let folder = folder();
    let model = model(&folder);
    let needs = |on: &[&str]| -> u64 {
        let mut command = stagemark();
        command.args(["copy-paths", "--tensors", "1", "--max-memory", "1 KiB"]).arg(&model).args(on);
        let output = finish(&mut command);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        said.split_once('(').unwrap().1.split(' ').next().unwrap().parse().unwrap()
    };
    let copy = needs(&["--on", "/dev/shm"]) - needs(&[]);
    assert_eq!(copy, std::fs::metadata(&model).unwrap().len());
}

/// Many repeats of few ways, into `out`, and where the record of them comes to be.
fn long(model: &std::path::Path, out: &std::path::Path) -> (std::process::Child, std::path::PathBuf) {
    let mut command = stagemark();
    command.args(["copy-paths", "--repeats", "1000", "--regime", "heap", "--regime", "cloned"]).arg(model);
    command.arg("--out").arg(out).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    (command.spawn().unwrap(), out.join("copy-paths.json"))
}

fn record(file: &std::path::Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

fn until_repeated(file: &std::path::Path, repeats: u64) {
    eventually("some repeats", || {
        let record = record(file)?;
        let passes = record["places"][0]["series"][0]["passes"].as_array()?;
        (passes.last()?["repeat"].as_u64()? >= repeats).then_some(())
    });
}

#[test]
fn what_ends_it_leaves_the_repeats_that_were_finished() {
    let folder = folder();
    let (model, out) = (model(&folder), folder.path().join("out"));
    let (mut child, file) = long(&model, &out);
    until_repeated(&file, 3);
    assert_eq!(record(&file).unwrap()["state"], "running");
    signal(child.id() as i32, Signal::SIGINT);
    assert_eq!(ended(&mut child).code(), Some(130));
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "stagemark: ended by SIGINT\n");
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("ended by SIGINT; here is what had been measured by then"), "{text}");
    assert!(words.contains(" of 1000 repeats"), "{text}");
    assert!(!words.contains("no verdict from"), "three are enough: {text}");
    let kept = record(&file).unwrap();
    assert_eq!((&kept["state"], &kept["problem"]), (&"interrupted".into(), &"ended by SIGINT".into()));
    assert!(out.join("copy-paths.csv").is_file() && out.join("copy-paths.png").is_file());
    let again = finish(stagemark().args(["copy-paths", "--from"]).arg(&file));
    assert_eq!((again.status.code(), String::from_utf8(again.stdout).unwrap()), (Some(0), text));

    // A repeat that some ways have and others have not is in no figure of theirs.
    let mut torn = kept;
    let series = torn["places"][0]["series"].as_array_mut().unwrap();
    let mut passes = series[0]["passes"].as_array().unwrap().clone();
    passes.truncate(4);
    for series in series.iter_mut() {
        series["passes"] = passes.clone().into();
    }
    series[0]["passes"].as_array_mut().unwrap().pop();
    std::fs::write(&file, torn.to_string()).unwrap();
    let again = finish(stagemark().args(["copy-paths", "--from"]).arg(&file));
    let text = String::from_utf8(again.stdout).unwrap();
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains("2 of 1000 repeats"), "{text}");
    assert!(text.contains("no verdict from 2 of the 3 repeats"), "{text}");
}

/// As a host does that has no memory left.
#[test]
fn a_measurement_that_is_killed_leaves_them_too() {
    let folder = folder();
    let (model, out) = (model(&folder), folder.path().join("out"));
    let (mut child, file) = long(&model, &out);
    until_repeated(&file, 1);
    signal(child.id() as i32, Signal::SIGKILL);
    ended(&mut child);
    let again = finish(stagemark().args(["copy-paths", "--from"]).arg(&file));
    let text = String::from_utf8(again.stdout).unwrap();
    assert!(text.contains("not finished: it still runs, or was killed"), "{text}");
    assert_eq!(again.status.code(), Some(0));
}

/// `nohup`, and what a shell that reads a script does to what it starts with `&`.
#[test]
fn a_signal_that_is_ignored_ends_nothing() {
    let folder = folder();
    let (model, out) = (model(&folder), folder.path().join("out"));
    let mut command = std::process::Command::new("sh");
    let script = "trap '' INT; exec \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_stagemark"), "copy-paths", "--repeats", "1000"]);
    command.args(["--regime", "heap", "--out"]).arg(&out).arg(&model);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let file = out.join("copy-paths.json");
    until_repeated(&file, 1);
    signal(child.id() as i32, Signal::SIGINT);
    let last = |record: Value| record["places"][0]["series"][0]["passes"].as_array()?.last()?["repeat"].as_u64();
    let before = last(record(&file).unwrap()).unwrap();
    until_repeated(&file, before + 3);
    signal(child.id() as i32, Signal::SIGTERM);
    assert_eq!(ended(&mut child).code(), Some(143));
}

#[test]
fn nothing_that_a_record_names_moves_a_cursor_or_becomes_a_formula() {
    let folder = folder();
    let model = model(&folder);
    let output = finish(
        stagemark().args(["copy-paths", "--json", "--repeats", "1", "--tensors", "1", "--regime", "heap"]).arg(&model),
    );
    let mut record: Value = serde_json::from_slice(&output.stdout).unwrap();
    let acts = "=x\u{1b}[31m\u{202e}\r\n\u{9b}";
    for pass in record["places"][0]["series"][0]["passes"].as_array_mut().unwrap() {
        pass["source"] = acts.into();
    }
    record["places"][0]["directory"] = acts.into();
    record["places"][0]["filesystem"] = acts.into();
    record["artifacts"][0]["path"] = acts.into();
    record["warnings"] = vec![acts].into();
    let (file, out) = (model.with_file_name("record.json"), model.with_file_name("out"));
    std::fs::write(&file, record.to_string()).unwrap();
    let from = |form: &[&str]| {
        let output = finish(stagemark().args(["copy-paths", "--from"]).arg(&file).arg("--out").arg(&out).args(form));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let csv = || std::fs::read_to_string(out.join("copy-paths.csv")).unwrap();
    for text in [from(&[]), from(&["--json"]), csv()] {
        let moves = |c: char| matches!(c, '\u{1b}' | '\u{202e}' | '\u{9b}');
        assert!(!text.contains(moves), "{text:?}");
    }
    assert!(!csv().contains(",=x"), "{}", csv());
}

/// What was measured for minutes would be lost.
#[test]
fn a_folder_that_cannot_be_written_is_told_before_anything_is_measured() {
    let folder = folder();
    let model = model(&folder);
    let begun = model.with_file_name("begun");
    std::fs::write(&begun, "").unwrap();
    let output = finish(stagemark().arg("copy-paths").arg(&model).arg("--out").arg(&begun));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("--out") && output.stdout.is_empty(), "{said}");
}

#[test]
fn only_what_was_asked_for_is_measured_and_other_words_are_wrong_usage() {
    let folder = folder();
    let model = model(&folder);
    let output = finish(stagemark().args(["copy-paths", "--json", "--repeats", "1", "--regime", "heap"]).arg(&model));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    let series = record["places"][0]["series"].as_array().unwrap();
    assert_eq!(series.len(), 1);
    assert_eq!(series[0]["way"]["regime"], "heap");
    for wrong in
        [["--regime", "nonsense"], ["--tensors", "0"], ["--ranks", "0"], ["--repeats", "x"], ["--max-memory", "8"]]
    {
        let output = finish(stagemark().arg("copy-paths").args(wrong).arg(&model));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(finish(stagemark().arg("copy-paths")).status.code(), Some(2));
}

#[test]
fn a_file_that_is_all_payload_is_copied_whole() {
    let folder = folder();
    let path = folder.path().join("weights.bin");
    std::fs::write(&path, vec![7; 300_000]).unwrap();
    let raw = format!("raw:{}", path.display());
    let output = finish(stagemark().args(["copy-paths", "--json", "--repeats", "1", "--regime", "heap", &raw]));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["tensors"].to_string(), r#"{"bytes":300000,"chosen":1,"largest_bytes":300000,"of":1}"#);
    assert_eq!(record["places"][0]["series"][0]["passes"][0]["verified"], true);
}

/// Other bytes than the file's are no measure of a way, and what was copied out of is what it was to be.
#[test]
fn a_way_that_copied_other_bytes_or_out_of_something_else_is_told_of() {
    let folder = folder();
    let model = model(&folder);
    let mut command = stagemark();
    command.args(["copy-paths", "--json", "--repeats", "3", "--regime", "heap", "--regime", "first_touch_warm"]);
    let output = finish(command.arg(&model));
    let mut record: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = model.with_file_name("record.json");
    let told = |record: &Value| {
        std::fs::write(&file, record.to_string()).unwrap();
        let output = finish(stagemark().args(["copy-paths", "--from"]).arg(&file));
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let whole = told(&record);
    assert!(!whole.contains("not of") && !whole.contains("not the file's"), "{whole}");
    for series in record["places"][0]["series"].as_array_mut().unwrap() {
        let is_heap = series["way"]["regime"] == "heap";
        for pass in series["passes"].as_array_mut().unwrap() {
            match is_heap {
                // The fastest by far, and wrong.
                true => (pass["prepare_ns"], pass["copy_ns"], pass["verified"]) = (1.into(), 1.into(), false.into()),
                false => pass["source"] = "anonymous rw-p".into(),
            }
        }
    }
    let text = told(&record);
    assert!(text.contains("heap: the bytes that came were not the file's: it is in no verdict"), "{text}");
    assert!(
        !text.contains("fastest: heap") && !text.contains("fastest, with no difference beyond the spread: heap"),
        "{text}"
    );
    let meant = "first_touch_warm private: copied out of anonymous rw-p, not of file rw-p: the figures are of that";
    assert!(text.contains(meant), "{text}");
}

#[test]
fn what_is_no_record_is_refused() {
    let folder = folder();
    for (name, text) in [("a", "{}"), ("b", "not json"), ("c", "{\"schema\": 99}"), ("d", "{\"schema\": 1}")] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let output = finish(stagemark().args(["copy-paths", "--from"]).arg(&path));
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(&*path.display().to_string()));
    }
}

/// A rank that maps a file which is cut short dies of it alone.
#[test]
fn a_file_that_is_cut_short_is_told_of() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::ExitStatusExt;

    let folder = folder();
    let model = model(&folder);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&model).unwrap();
    let inherited = nix::unistd::dup(&file).unwrap();
    let mut rank = stagemark().arg("copy-paths-rank").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut orders, answers) = (rank.stdin.take().unwrap(), rank.stdout.take().unwrap());
    let mut answers = BufReader::new(answers);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&inherited);
    let setup =
        format!(r#"{{"files":[{fd}],"tensors":[{{"file":0,"offset":0,"length":{PAYLOAD}}}],"destination":"host"}}"#);
    writeln!(orders, "{setup}").unwrap();
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    assert_eq!(line, "\"ready\"\n");
    file.set_len(4096).unwrap();
    writeln!(orders, r#"{{"way":{{"regime":"first_touch_warm","mapped":"shared"}},"verify":false}}"#).unwrap();
    line.clear();
    assert_eq!(answers.read_line(&mut line).unwrap(), 0, "{line}");
    assert_eq!(rank.wait().unwrap().signal(), Some(libc::SIGBUS));
}
