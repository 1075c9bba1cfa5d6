//! vLLM on the CPU, to its first completion by HTTP.

use std::process::Command;

use crate::support::{Launch, Payloads, files, free_port, llama, program};

/// What vLLM reaches without a device and without compiling, in this order.
const STAGES: [&str; 8] = [
    "load_started",
    "mapping_available",
    "module_populated",
    "kv_cache_allocated",
    "engine_ready",
    "listening",
    "ready",
    "first_response",
];

fn launch(command: &mut Command) -> (Launch, &'static Payloads) {
    let (models, payload) = llama();
    let shards = files(&models.join("hf"), ".safetensors");
    command.args(["--host", "127.0.0.1", "--port", &free_port()]);
    command.args(["--max-model-len", "512", "--max-num-seqs", "2", "--enforce-eager"]);
    command.env("VLLM_CPU_KVCACHE_SPACE", "1").env("VLLM_HOST_IP", "127.0.0.1").env("VLLM_NO_USAGE_STATS", "1");
    // What the file that is chosen by the command line says, with nothing said here but the end.
    let launch = Launch::of(&shards, &["--until", "first_response", "--then", "stop"], command);
    launch.assert_sound("vllm", payload.hf);
    launch.assert_in_order(&STAGES);
    (launch, payload)
}

fn assert_loaded_in_a_grandchild(launch: &Launch, payload: u64) {
    // The weights' mapping lives in a grandchild, and is gone when it is ready.
    let generations = launch.mapping_generations();
    assert!(generations.contains(&2), "mapped in generations {generations:?}");
    assert!(launch.at("first_response", "peak_mapped_payload_bytes_low") > 0);
    for stage in ["engine_ready", "ready", "first_response"].into_iter().filter(|stage| !launch.was_overtaken(stage)) {
        assert_eq!(launch.at(stage, "mapped_bytes"), 0, "{stage}");
    }
    assert!(launch.at("first_response", "resident_payload_bytes") >= payload - payload / 20);
    assert!(launch.at("first_response", "rss_anon_bytes") >= payload, "it works on a copy");
    assert_eq!(launch.run.json()["artifacts"].as_array().unwrap().len(), 3);
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn serve_loads_in_a_grandchild_and_lets_go() {
    let mut command = Command::new(program("vllm", "vllm"));
    command.arg("serve").arg(llama().0.join("hf"));
    let (launch, payload) = launch(&mut command);
    assert_loaded_in_a_grandchild(&launch, payload.hf);
    // Without a device nothing is placed on one.
    assert!(["not_applicable", "unknown"].contains(&launch.run.stage("gpu_placed").text("status")));
    for stage in ["compiled", "graphs_captured"] {
        assert!(!launch.run.stage(stage).reached(), "{stage} with --enforce-eager");
    }
    launch.assert_answered("first_response", "/choices/0/text");
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn the_server_module_is_known_too() {
    let mut command = Command::new(program("vllm", "python"));
    command.args(["-m", "vllm.entrypoints.openai.api_server", "--model"]).arg(llama().0.join("hf"));
    let (launch, payload) = launch(&mut command);
    assert_loaded_in_a_grandchild(&launch, payload.hf);
}
