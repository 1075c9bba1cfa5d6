//! transformers: from_pretrained and generate, seen from outside.

use std::process::Command;

use crate::support::{Launch, files, here, llama, python, text};

#[test]
#[ignore = "needs tests/real/install.sh"]
fn from_pretrained_then_generate() {
    let (models, payload) = llama();
    let shards = files(&models.join("hf"), ".safetensors");
    let mut command = Command::new(python("torch"));
    command.arg(here().join("loaders/transformers_generate.py")).arg(models.join("hf"));
    let launch = Launch::of(&shards, &["--stages", "transformers", "--until", "first_response"], &command);
    launch.assert_sound("transformers", payload.hf);
    launch.assert_in_order(&["mapping_available", "module_populated", "first_response"]);
    assert_eq!(launch.run.stage("module_populated").text("evidence"), "log");
    assert_eq!(launch.run.stage("first_response").text("evidence"), "notify");
    assert_eq!(launch.run.largest("mapped_payload_bytes"), Some(payload.hf), "all shards are mapped first");
    assert!(text(&launch.output.stdout).contains("answer ["));
}
