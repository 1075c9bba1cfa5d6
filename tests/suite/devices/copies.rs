//! `copy-paths` to devices: calls and bytes, as the stand-in for the CUDA driver counts them.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use stagemark_fixtures::models::{self, Fill};

use super::library;
use crate::support::{children_named, ended, eventually, finish, folder, signal, stagemark};

const PAYLOAD: u64 = 2 << 20;
const TENSORS: u64 = 4;
/// Ways, and passes of each: the warm-up, and two repeats.
const WAYS: u64 = 16;
const PASSES: u64 = 3;
const TWO_CARDS: &str = "device GPU-9c5a1122-3344-5566-7788-99aabbccddee 32G A%20card\n\
                         device GPU-9c5a1122-3344-5566-7788-99aabbccddef 32G Another\n";

struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn with(devices: &str) -> Host {
        let folder = folder();
        std::fs::write(folder.path().join("devices"), devices).unwrap();
        models::uniform(folder.path().join("model.safetensors").as_path(), PAYLOAD, TENSORS as u32, Fill::Pattern)
            .unwrap();
        Host { folder }
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = stagemark();
        command.env("STAND_IN_DEVICES", self.folder.path().join("devices"));
        command.env("STAND_IN_COPIES", self.folder.path().join("copies"));
        command.env_remove("CUDA_VISIBLE_DEVICES").env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        command.args(["copy-paths", "--repeats", "2", "--json", "--cuda-library"]).arg(library()).args(options);
        command.arg(self.folder.path().join("model.safetensors"));
        command
    }

    fn measured(&self, options: &[&str]) -> Value {
        let output = finish(&mut self.command(options));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Bytes of the copies to devices that were not to spoil the destination, and how many.
    fn copies(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(self.folder.path().join("copies")).unwrap();
        let tensor = PAYLOAD / TENSORS;
        let bytes = text.lines().map(|line| line.strip_prefix("cuMemcpyHtoD_v2 ").unwrap().parse::<u64>().unwrap());
        bytes.filter(|bytes| *bytes == tensor).collect()
    }
}

fn destinations(record: &Value) -> Vec<String> {
    let series = record["places"][0]["series"].as_array().unwrap().iter();
    let mut names: Vec<String> = series.map(|series| series["destination"].to_string()).collect();
    names.dedup();
    names
}

#[test]
fn every_device_is_a_destination_and_each_tensor_a_copy() {
    let host = Host::with(TWO_CARDS);
    let record = host.measured(&[]);
    assert_eq!(destinations(&record), [r#"{"cuda":0}"#, r#"{"cuda":1}"#]);
    let devices = record["environment"]["devices"].to_string();
    assert!(devices.contains("cuda:0 A card") && devices.contains("cuda:1 Another"), "{devices}");
    assert_eq!(host.copies().len() as u64, 2 * WAYS * PASSES * TENSORS);
    for series in record["places"][0]["series"].as_array().unwrap() {
        assert!(series["refused"].is_null(), "{series}");
        let passes = series["passes"].as_array().unwrap();
        assert_eq!(passes.len() as u64, PASSES);
        let compared: Vec<&Value> = passes.iter().map(|pass| &pass["verified"]).filter(|one| !one.is_null()).collect();
        assert!(compared.len() == 2 && compared.iter().all(|one| **one == true), "{series}");
    }
}

#[test]
fn one_device_or_host_memory_where_it_is_asked_for() {
    let host = Host::with(TWO_CARDS);
    let record = host.measured(&["--to", "cuda:1", "--to", "host", "--regime", "heap", "--ranks", "2"]);
    assert_eq!(destinations(&record), [r#""host""#, r#"{"cuda":1}"#]);
    // By one rank, and by two at once.
    assert_eq!(host.copies().len() as u64, PASSES * TENSORS * 3);
    let missing = finish(&mut host.command(&["--to", "cuda:7"]));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(3));
    assert!(said.contains("CUDA device 7: CUDA_ERROR_INVALID_DEVICE"), "{said}");
}

#[test]
fn where_no_device_is_found_the_host_is_the_destination_unless_one_was_asked_for() {
    let folder = folder();
    let model = folder.path().join("model.safetensors");
    models::uniform(&model, PAYLOAD, TENSORS as u32, Fill::Pattern).unwrap();
    let ask = |more: &[&str]| {
        let mut command = stagemark();
        command.args([
            "copy-paths",
            "--repeats",
            "1",
            "--regime",
            "heap",
            "--json",
            "--cuda-library",
            "/nowhere/libcuda.so.1",
        ]);
        finish(command.args(more).arg(&model))
    };
    let output = ask(&[]);
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(destinations(&record), [r#""host""#]);
    let output = ask(&["--to", "cuda"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3));
    assert!(said.contains("--to cuda: /nowhere/libcuda.so.1"), "{said}");
}

/// Whoever waits for such a driver can still end it, and no rank is left behind.
#[test]
fn a_driver_that_hangs_holds_up_nobody_who_interrupts() {
    let host = Host::with("device GPU-9c5a1122-3344-5566-7788-99aabbccddee 32G Slow\n hang cuMemAlloc_v2 600s\n");
    let mut child =
        host.command(&[]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The process that asks which devices there are has the same name, and is over by then.
    let rank = eventually("a rank", || {
        let copies = |pid: i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.ends_with("copy-paths-rank\0")
        };
        children_named(child.id() as i32, "copy-paths-rank").into_iter().find(|&pid| copies(pid))
    });
    signal(child.id() as i32, Signal::SIGINT);
    assert_eq!(ended(&mut child).code(), Some(130));
    assert!(!Path::new(&format!("/proc/{rank}")).exists());
    let output = child.wait_with_output().unwrap();
    assert!(output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("ended by SIGINT, before anything was measured"), "{said}");
}

#[test]
fn a_device_without_room_is_told_of() {
    let host =
        Host::with("device GPU-9c5a1122-3344-5566-7788-99aabbccddee 32G Full\n answer cuMemAlloc_v2 OUT_OF_MEMORY\n");
    let output = finish(&mut host.command(&[]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3));
    assert!(said.contains("CUDA device 0: CUDA_ERROR_OUT_OF_MEMORY"), "{said}");
}
