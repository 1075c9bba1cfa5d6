//! llama.cpp's server, to its first completion by HTTP, and its command line, to its first output.

use std::path::Path;
use std::process::Command;

use crate::support::{Launch, detail, free_port, llama, program, text};

#[test]
#[ignore = "needs tests/real/install.sh"]
fn the_server_answers_503_until_it_has_loaded() {
    let (models, payload) = llama();
    let model = models.join("llama.gguf");
    let mut command = Command::new(program("llama", "llama-server"));
    command.arg("-m").arg(&model).args(["--host", "127.0.0.1", "--port", &free_port(), "-t", "2"]);
    // Memory for so long a context is made ready before it answers: there is time to see it not ready.
    command.args(["-c", "65536"]);
    let options = ["--until", "first_response", "--then", "stop"];
    let launch = Launch::of(std::slice::from_ref(&model), &options, &command);
    launch.assert_sound("llama-cpp", payload.gguf);
    launch.assert_in_order(&["load_started", "mapping_available", "module_populated", "listening"]);
    launch.assert_in_order(&["module_populated", "ready", "first_response"]);
    assert!(["not_applicable", "unknown"].contains(&launch.run.stage("gpu_placed").text("status")));
    launch.assert_answered("first_response", "/content");

    // Its port opens before its model is there: what it answers then is "not yet".
    let probes = launch.run.events("probe");
    let mut outcomes: Vec<String> = probes.iter().map(|row| detail(row, "outcome")).collect();
    outcomes.dedup();
    assert!(outcomes.iter().any(|outcome| outcome.starts_with("status 503")), "{outcomes:?}");

    // All of it is mapped, shared, and stays so; by MAP_POPULATE it is there when the mapping is.
    let stages = ["module_populated", "ready", "first_response"];
    for stage in stages.into_iter().filter(|stage| !launch.was_overtaken(stage)) {
        assert_eq!(launch.at(stage, "mapped_payload_bytes"), payload.gguf, "{stage}");
        assert!(launch.at(stage, "resident_payload_bytes") >= payload.gguf - payload.gguf / 20, "{stage}");
    }
    let permissions: Vec<String> = launch.run.events("mapped").iter().map(|row| detail(row, "permissions")).collect();
    assert!(permissions.iter().any(|permissions| permissions == "r--s"), "{permissions:?}");
    assert!(launch.at("first_response", "rss_file_bytes") >= payload.gguf - payload.gguf / 20);
}

/// A launch of one of the programs that answer and end, to its end.
fn command_line(program: &Path, arguments: &[&str]) -> Launch {
    let (models, payload) = llama();
    let model = models.join("llama.gguf");
    let mut command = Command::new(program);
    command.arg("-m").arg(&model).args(["-p", "hi", "-n", "2", "-c", "512", "-t", "2"]).args(arguments);
    let launch = Launch::of(std::slice::from_ref(&model), &[], &command);
    launch.assert_sound("llama-cpp-cli", payload.gguf);
    // Soon after its answer it ends: what it held is in the samples before.
    assert_eq!(launch.run.largest("mapped_payload_bytes"), Some(payload.gguf));
    assert!(launch.at("first_response", "resident_payload_bytes") >= payload.gguf - payload.gguf / 20);
    launch
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn the_first_output_is_an_answer_where_the_program_says_what_it_is_at() {
    let launch = command_line(&program("llama", "llama-completion"), &["-no-cnv", "--no-display-prompt"]);
    launch.assert_in_order(&["load_started", "mapping_available", "module_populated", "first_response", "exited"]);
    let printed = text(&launch.output.stdout);
    assert!(!printed.starts_with("hi") && !printed.trim().is_empty(), "{printed}");
}

/// What llama-cli prints first is a spinner, before it has read a byte of the model.
#[test]
#[ignore = "needs tests/real/install.sh"]
fn a_spinner_is_no_answer() {
    let launch = command_line(&program("llama", "llama-cli"), &["--single-turn"]);
    launch.assert_in_order(&["mapping_available", "first_response", "exited"]);
    assert!(text(&launch.output.stdout).trim_start().starts_with("Loading model..."));
    let first = launch.run.stage("first_response");
    assert!(first.text("detail").contains("Generation:"), "{}", first.text("detail"));
}
