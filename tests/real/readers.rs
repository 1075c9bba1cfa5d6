//! Libraries that read safetensors into memory by threads of their own: fastsafetensors and Run:ai Model Streamer.

use std::process::Command;

use crate::support::{Launch, here, made, python, text};

const PAYLOAD: u64 = 256 << 20;

/// Launches the driver of one of them on a checkpoint that is cold, by its bundled stage file.
fn launch(how: &str, stages: &str, arguments: &[&str]) -> Launch {
    let mebibytes = (PAYLOAD >> 20).to_string();
    let (folder, said) = made("readers", &python("torch"), "make_checkpoint.py", &[&mebibytes]);
    assert_eq!(said.trim(), PAYLOAD.to_string());
    let checkpoint = folder.join("model.safetensors");
    let mut command = Command::new(python("torch"));
    command.arg(here().join("loaders/readers.py")).arg(how).args(arguments).arg(&checkpoint);
    let launch = Launch::of(&[checkpoint], &["--stages", stages], &command);
    launch.assert_sound(stages, PAYLOAD);
    launch.assert_in_order(&["module_populated", "first_response", "exited"]);
    // Nothing is mapped, and that is known.
    assert_eq!(launch.run.stage("mapping_available").text("status"), "not_reached");
    assert_eq!(launch.run.largest("mapped_payload_bytes"), Some(0));
    assert!(["not_applicable", "unknown"].contains(&launch.run.stage("gpu_placed").text("status")));
    assert!(launch.at("module_populated", "rss_anon_bytes") >= PAYLOAD / 10 * 9);
    assert!(launch.at("first_response", "rss_anon_bytes") >= PAYLOAD);
    assert!(launch.at("first_response", "read_bytes") >= PAYLOAD, "it came from storage");
    launch
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn fastsafetensors_is_seen_by_its_memory() {
    let launch = launch("fastsafetensors", "fastsafetensors", &[]);
    assert_eq!(launch.run.stage("module_populated").text("evidence"), "anon");
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn the_streamer_says_that_it_is_done_where_logging_is_set_up() {
    let launch = launch("runai", "runai-streamer", &["--log"]);
    let stderr = text(&launch.output.stderr);
    assert!(stderr.contains("Overall time to stream"), "{stderr}");
    // Memory may have stood still a moment before the line came.
    assert!(["log", "anon"].contains(&launch.run.stage("module_populated").text("evidence")));
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn the_streamer_is_seen_by_its_memory_where_it_is_not() {
    let launch = launch("runai", "runai-streamer", &[]);
    assert_eq!(launch.run.stage("module_populated").text("evidence"), "anon");
}
