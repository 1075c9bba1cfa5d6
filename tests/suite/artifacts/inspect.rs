//! What is told of model files. Residency is another matter: here it is given.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stagemark::artifact::Artifact;
use stagemark::inspect::{Resident, inspect_with};
use stagemark_fixtures::models::{self, Fill, TensorSpec};
use tempfile::TempDir;

use super::mixed;

/// Half of what is watched, as if the kernel had said so.
fn half(artifacts: &[Artifact]) -> Vec<Resident> {
    let half = |artifact: &Artifact| Resident {
        bytes: Ok(artifact.watched_ranges().len() / 2),
        by: "cachestat".into(),
        because: "mincore agrees".into(),
    };
    artifacts.iter().map(half).collect()
}

fn told(paths: &[&Path], json: bool) -> (bool, String, String) {
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let understood = inspect_with(&paths, json, half, &mut out, &mut errors).unwrap();
    (understood, String::from_utf8(out).unwrap(), String::from_utf8(errors).unwrap())
}

#[test]
fn json_is_exact() {
    let folder = TempDir::new().unwrap();
    let shards = models::sharded(folder.path(), 2, &mixed(), Fill::Pattern).unwrap();
    let (understood, out, errors) = told(&[folder.path()], true);
    assert!(understood);
    assert_eq!(errors, "");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["files"].as_array().unwrap().len(), 2);
    let first = &answer["files"][0];
    assert_eq!(first["path"], shards[0].path.to_str().unwrap());
    assert_eq!(first["format"], "safetensors");
    assert_eq!(first["size_bytes"], shards[0].size);
    assert_eq!(first["payload_bytes"], 4286);
    assert_eq!(first["overhead_bytes"], shards[0].size - 4286);
    assert_eq!(first["tensors"], 4);
    assert_eq!(first["bytes_by_dtype"], json!({"F32": 4132, "BF16": 154}));
    assert_eq!(first["largest_tensors"].as_array().unwrap().len(), 4);
    let largest = json!({
        "name": "shards.1.embed.weight", "dtype": "F32", "shape": [1000], "bytes": 4000,
        "offset": shards[0].payload[0].start,
    });
    assert_eq!(first["largest_tensors"][0], largest);
    assert_eq!(first["resident_bytes"], 2143);
    assert_eq!(first["resident_of"], "payload");
    assert_eq!(first["resident_by"], "cachestat");
    assert_eq!(answer["total"]["files"], 2);
    assert_eq!(answer["total"]["payload_bytes"], 8572);
    assert_eq!(answer["total"]["resident_payload_bytes"], 4286);
    assert_eq!(answer["total"]["bytes_by_dtype"]["F32"], 8264);
    assert_eq!(answer["warnings"], json!([]));
}

#[test]
fn the_table_has_both_figures() {
    let folder = TempDir::new().unwrap();
    let model = models::uniform(&folder.path().join("m.safetensors"), 4 << 20, 8, Fill::Sparse).unwrap();
    let (understood, out, _) = told(&[&model.path], false);
    assert!(understood);
    let line = |label: &str| {
        let line = out.lines().find(|line| line.trim_start().starts_with(label)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("payload"), "payload 4.00 MiB 4194304");
    assert_eq!(line("dtype"), "dtype 4.00 MiB 4194304 F32");
    assert_eq!(line("largest"), "largest 512 KiB 524288 layers.00000.weight F32 [131072]");
    assert_eq!(out.lines().filter(|line| line.contains("largest")).count(), 5);
    assert_eq!(line("resident"), "resident 2.00 MiB 2097152 50.0% of the payload, by cachestat: mincore agrees");
    assert!(out.contains("In all: 1 file\n"));
    assert!(out.lines().all(|line| line.trim_end() == line));
}

#[test]
fn a_file_that_is_not_understood_is_told_and_makes_the_totals_absent() {
    let folder = TempDir::new().unwrap();
    let good = models::uniform(&folder.path().join("good.safetensors"), 4096, 1, Fill::Sparse).unwrap();
    let bad = folder.path().join("bad.safetensors");
    std::fs::write(&bad, b"\x10\0").unwrap();
    let missing = folder.path().join("missing.gguf");
    let (understood, out, errors) = told(&[&good.path, &bad, &missing], true);
    assert!(!understood);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["files"][1]["payload_bytes"], Value::Null);
    assert!(answer["files"][1]["payload_reason"].as_str().unwrap().contains("at byte 2"));
    assert_eq!(answer["files"][1]["resident_of"], "file");
    assert_eq!(answer["total"]["payload_bytes"], Value::Null);
    assert_eq!(answer["total"]["resident_payload_bytes"], Value::Null);
    assert_eq!(answer["total"]["size_bytes"], good.size + 2);
    let (bad, missing) = (bad.to_str().unwrap(), missing.to_str().unwrap());
    assert!(errors.lines().any(|line| line.starts_with(bad) && line.contains("at byte 2")), "{errors}");
    assert!(errors.lines().any(|line| line.starts_with(missing) && line.contains("No such file")), "{errors}");
    let (understood, out, _) = told(&[Path::new(bad)], false);
    assert!(!understood);
    assert!(out.lines().any(|line| line.contains("payload") && line.contains("unknown") && line.contains("at byte 2")));
}

#[test]
fn names_cannot_write_to_the_terminal() {
    let folder = TempDir::new().unwrap();
    let specs = [TensorSpec::flat("a\u{1b}[2Jb", "D\u{7}", 8, 1)];
    let model = models::safetensors(&folder.path().join("m\u{1b}[31m.safetensors"), &specs, Fill::Sparse).unwrap();
    let bad = folder.path().join("bad\u{1b}.gguf");
    std::fs::write(&bad, "").unwrap();
    let (_, out, errors) = told(&[&model.path, &bad], false);
    assert!(!out.contains(['\u{1b}', '\u{7}']), "{out:?}");
    assert!(!errors.contains('\u{1b}'), "{errors:?}");
    assert!(out.contains("a\\u{1b}[2Jb"));
}

/// Names as a hostile file has them: the table is fit for a terminal and bounded, the JSON is exact and yet harmless.
#[test]
fn hostile_names_are_harmless_and_exact() {
    let folder = TempDir::new().unwrap();
    let names = [
        "=cmd|' /C calc'!A0".to_owned(),
        "rtl\u{202e}gpj.exe\u{200b}".into(),
        "csi\u{9b}2J\u{7f}\r\n".into(),
        "x".repeat(10_000),
        "模型\u{301}\u{e0041}".into(),
    ];
    let spec = |(index, name): (usize, &String)| TensorSpec::flat(name, format!("{name}{index}"), 8, 1);
    let specs: Vec<TensorSpec> = names.iter().enumerate().map(spec).collect();
    let model = models::safetensors(&folder.path().join("m\u{202e}.safetensors"), &specs, Fill::Sparse).unwrap();
    let (understood, out, errors) = told(&[&model.path], false);
    assert!(understood, "{errors}");
    let acts = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{200b}' | '\u{9b}' | '\u{e0041}');
    assert!(!out.contains(acts), "{out:?}");
    assert!(out.lines().all(|line| line.chars().count() < 300), "{out}");
    let (_, json, _) = told(&[&model.path], true);
    assert!(!json.contains(acts));
    let answer: Value = serde_json::from_str(&json).unwrap();
    let told_names: Vec<&str> =
        answer["files"][0]["largest_tensors"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(told_names, names);
    // In an error too.
    let twice = [specs[3].clone(), specs[3].clone()];
    let bad = models::safetensors(&folder.path().join("bad.safetensors"), &twice, Fill::Sparse).unwrap();
    let (_, _, errors) = told(&[&bad.path], false);
    assert!(errors.contains("two tensors are called \"xxx") && errors.len() < 500, "{errors}");
}

#[test]
fn many_dtypes_are_summed_up() {
    let folder = TempDir::new().unwrap();
    let specs: Vec<TensorSpec> =
        (0..100).map(|index| TensorSpec::flat(format!("t{index}"), format!("D{index}"), 8, 1)).collect();
    let model = models::safetensors(&folder.path().join("m.safetensors"), &specs, Fill::Sparse).unwrap();
    let (_, out, _) = told(&[&model.path], false);
    assert_eq!(out.lines().filter(|line| line.contains("dtype")).count(), 2 * 17);
    assert!(out.contains("672  84 others"), "{out}");
}

#[test]
fn nothing_found_is_no_total() {
    let folder = TempDir::new().unwrap();
    let (understood, out, errors) = told(&[folder.path()], false);
    assert!(!understood);
    assert_eq!(out, "");
    assert!(errors.contains("no model files are in this folder or in its folders"), "{errors}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let folder = TempDir::new().unwrap();
    let model = models::uniform(&folder.path().join("m.safetensors"), 4096, 1, Fill::Sparse).unwrap();
    let paths = [model.path];
    for json in [false, true] {
        assert!(inspect_with(&paths, json, half, &mut Gone, &mut Gone).unwrap());
    }
}

/// Names the file that the child of the test below looks at.
const HUGE: &str = "STAGEMARK_TEST_HUGE";

/// A field of /proc/self/status, in bytes.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_tebibyte_in_20_000_tensors_takes_little_memory() {
    if let Some(path) = std::env::var_os(HUGE) {
        let begin = std::time::Instant::now();
        let (understood, out, _) = told(&[Path::new(&path)], true);
        assert!(understood);
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(answer["total"]["payload_bytes"], 1u64 << 40);
        assert_eq!(answer["total"]["tensors"], 20_000);
        println!("peak {} after {:?}", status("VmHWM:"), begin.elapsed());
        return;
    }
    // In a process of its own, whose high-water mark is not that of the other tests.
    let folder = TempDir::new().unwrap();
    let model = models::uniform(&folder.path().join("m.safetensors"), 1 << 40, 20_000, Fill::Sparse).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "artifacts::inspect::a_tebibyte_in_20_000_tensors_takes_little_memory", "--nocapture"])
        .env(HUGE, &model.path)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{out}{}", String::from_utf8_lossy(&child.stderr));
    let words: Vec<&str> = out.split_whitespace().skip_while(|word| *word != "peak").collect();
    let peak: u64 = words[1].parse().unwrap();
    assert!(peak < 64 << 20, "{peak} bytes");
    eprintln!("{}", words[..4].join(" "));
}
