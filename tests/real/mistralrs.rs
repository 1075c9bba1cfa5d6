//! mistral.rs in the process of a script, with safetensors and with GGUF.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Launch, files, here, llama, python, text};

fn launch(artifacts: &[PathBuf], tokenizer: &Path, gguf: Option<&PathBuf>, payload: u64) -> Launch {
    let mut command = Command::new(python("mistralrs"));
    command.arg(here().join("loaders/mistralrs_complete.py")).arg(tokenizer).args(gguf);
    let launch = Launch::of(artifacts, &["--stages", "mistralrs-python"], &command);
    launch.assert_sound("mistralrs-python", payload);
    launch.assert_in_order(&["mapping_available", "module_populated", "first_response", "exited"]);
    launch.assert_in_order(&["load_started", "module_populated"]);
    assert_eq!(launch.run.stage("module_populated").text("evidence"), "log");
    assert!(["not_applicable", "unknown"].contains(&launch.run.stage("gpu_placed").text("status")));
    assert_eq!(launch.run.largest("mapped_payload_bytes"), Some(payload));
    // It works on a copy in float32.
    assert!(launch.at("module_populated", "rss_anon_bytes") >= payload);
    assert!(text(&launch.output.stdout).contains("answer '"));
    launch
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn safetensors_are_mapped_copied_and_let_go() {
    let (models, payload) = llama();
    let directory = models.join("hf");
    let launch = launch(&files(&directory, ".safetensors"), &directory, None, payload.hf);
    launch.assert_in_order(&["mapping_available", "mapping_released", "exited"]);
    assert_eq!(launch.at("first_response", "mapped_payload_bytes"), 0);
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn gguf_stays_mapped() {
    let (models, payload) = llama();
    let gguf = models.join("llama.gguf");
    // The weights beside the tokenizer would be of the set, as they are named.
    let tokenizer = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(models.join("hf").join(name), tokenizer.path().join(name)).unwrap();
    }
    let launch = launch(std::slice::from_ref(&gguf), tokenizer.path(), Some(&gguf), payload.gguf);
    assert_eq!(launch.at("first_response", "mapped_payload_bytes"), payload.gguf);
}
