//! tests/on_gpu.sh from its beginning to its end, on the stand-in: what it would do on a card, and that its comparison sees
//! what does not agree.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::{PATIENCE, library};
use crate::program;
use crate::support::{finish, folder};

fn script(scratch: &Path) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (libraries, programs) = (scratch.join("lib"), scratch.join("bin"));
    std::fs::create_dir_all(&libraries).unwrap();
    std::fs::create_dir_all(&programs).unwrap();
    for name in ["libnvidia-ml.so.1", "libcuda.so.1"] {
        symlink(library(), libraries.join(name)).unwrap();
    }
    // The script asks it whether there is a card, and for facts that it writes down.
    program::script(&programs.join("nvidia-smi"), "#!/bin/sh\necho a card that is not there\n");
    std::fs::write(scratch.join("devices"), "device GPU-one 80G A%20card\n").unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.arg(root.join("tests/on_gpu.sh")).arg(scratch.join("results"));
    command.env("PATH", path).env("LD_LIBRARY_PATH", libraries).env("STAND_IN_DEVICES", scratch.join("devices"));
    command.env("PYTHONPATH", root.join("tests/suite/devices/dry")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("STAGEMARK", env!("CARGO_BIN_EXE_stagemark")).env("MODEL_MIB", "4");
    command.env("STAGEMARK_SYSFS", scratch.join("no-sys")).env_remove("CUDA_VISIBLE_DEVICES");
    command.env(PATIENCE.0, PATIENCE.1);
    command
}

#[test]
fn the_script_for_a_card_runs_through_on_the_stand_in_and_all_agrees() {
    let scratch = folder();
    let output = finish(&mut script(scratch.path()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // Four sources, six stages each.
    assert!(text.contains("24 of 24 agree"), "{text}");
    assert!(text.contains("copies: 16 of 16 ways are as they should be"), "{text}");
    let copies = std::fs::read_to_string(scratch.path().join("results/copy-paths.txt")).unwrap();
    assert!(copies.contains("cuda:0 A card\n") && copies.contains("A card, nvidia "), "{copies}");
    let card = std::fs::read_to_string(scratch.path().join("results/card.txt")).unwrap();
    assert!(card.contains("a card that is not there") && card.contains("CUDA 12.8"), "{card}");
    // A figure that was not so.
    let stages = scratch.path().join("results/heap/stages.csv");
    let mut reader = csv::Reader::from_path(&stages).unwrap();
    let (header, mut rows) = (reader.headers().unwrap().clone(), Vec::new());
    let column = header.iter().position(|name| name == "device_used_bytes").unwrap();
    for row in reader.records() {
        let row = row.unwrap();
        let is_placed = &row[0] == "gpu_placed";
        rows.push(
            row.iter().enumerate().map(|(at, cell)| if is_placed && at == column { "1" } else { cell }).collect(),
        );
    }
    let mut writer = csv::Writer::from_path(&stages).unwrap();
    writer.write_record(&header).unwrap();
    rows.iter().for_each(|row: &csv::StringRecord| writer.write_record(row).unwrap());
    writer.flush().unwrap();
    let compare = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/compare_device.py");
    let output = finish(Command::new("python3").arg(compare).arg(scratch.path().join("results")));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("heap,gpu_placed,1,") && text.contains("23 of 24 agree"), "{text}");
}

#[test]
fn the_script_says_what_it_lacks() {
    let scratch = folder();
    let mut command = script(scratch.path());
    command.env("STAGEMARK", "/nowhere/stagemark");
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/stagemark is no program"));
    let mut without = Command::new("bash");
    without.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/on_gpu.sh"));
    assert_eq!(finish(&mut without).status.code(), Some(2));
}
