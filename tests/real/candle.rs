//! candle's own examples, built from the sources that it publishes: `mistral` with safetensors, `quantized` with GGUF.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Launch, detail, files, llama, program, text};

/// Launches an example that answers with two tokens at most, and ends.
fn launch(example: &str, artifacts: &[PathBuf], arguments: &[(&str, &Path)], payload: u64) -> Launch {
    let mut command = Command::new(program("candle", example));
    command.args(["--cpu", "--prompt", "hi", "--sample-len", "2"]);
    command.args(arguments.iter().flat_map(|(flag, path)| [Path::new(flag), path]));
    let launch = Launch::of(artifacts, &["--stages", "candle"], &command);
    launch.assert_sound("candle", payload);
    launch.assert_in_order(&["module_populated", "response_finished", "exited"]);
    for stage in ["module_populated", "response_finished"] {
        assert_eq!(launch.run.stage(stage).text("evidence"), "log", "{stage}");
    }
    assert!(["not_applicable", "unknown"].contains(&launch.run.stage("gpu_placed").text("status")));
    let printed = text(&launch.output.stdout);
    assert!(printed.lines().any(|line| line.starts_with("hi") && line.len() > 2), "no answer: {printed}");
    launch
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn safetensors_are_mapped_copied_and_let_go() {
    let (models, payload) = llama();
    let folder = models.join("hf");
    let mut shards = files(&folder, ".safetensors");
    shards.sort();
    let together = shards.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>().join(",");
    let (tokenizer, config) = (folder.join("tokenizer.json"), folder.join("config.json"));
    let arguments: [(&str, &Path); 3] =
        [("--weight-files", Path::new(&together)), ("--tokenizer-file", &tokenizer), ("--config-file", &config)];
    let launch = launch("mistral", &shards, &arguments, payload.hf);
    launch.assert_in_order(&["files_retrieved", "mapping_available", "module_populated"]);
    launch.assert_in_order(&["mapping_available", "mapping_released", "response_finished"]);
    assert_eq!(launch.run.largest("mapped_payload_bytes"), Some(payload.hf));
    let permissions: Vec<String> = launch.run.events("mapped").iter().map(|row| detail(row, "permissions")).collect();
    assert!(permissions.iter().all(|permissions| permissions == "r--s"), "{permissions:?}");
    // Its copy is in float32.
    assert!(launch.at("module_populated", "rss_anon_bytes") >= 2 * payload.hf);
    assert_eq!(launch.at("response_finished", "mapped_payload_bytes"), 0);
}

/// The line that says "loaded" comes when the header has been read.
#[test]
#[ignore = "needs tests/real/install.sh"]
fn gguf_is_read_to_the_heap_after_it_is_said_to_be_loaded() {
    let (models, payload) = llama();
    let model = models.join("llama.gguf");
    let tokenizer = models.join("hf/tokenizer.json");
    let arguments: [(&str, &Path); 2] = [("--model", &model), ("--tokenizer", &tokenizer)];
    let launch = launch("quantized", std::slice::from_ref(&model), &arguments, payload.gguf);
    launch.assert_in_order(&["tensors_listed", "module_populated"]);
    assert_eq!(launch.run.stage("mapping_available").text("status"), "not_reached");
    assert_eq!(launch.run.largest("mapped_payload_bytes"), Some(0));
    assert!(launch.at("tensors_listed", "rss_anon_bytes") < payload.gguf);
    assert!(launch.at("module_populated", "rss_anon_bytes") >= payload.gguf);
}
