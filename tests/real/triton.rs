//! Triton Inference Server, whose Python backend maps a model in a process of its own.

use std::process::Command;

use crate::support::{Launch, free_port, made, program, python};

const PAYLOAD: u64 = 128 << 20;

/// What somebody adds who knows what the model is asked; the rest is the bundled file.
const REQUEST: &str = r#"name = "first_response"
after = ["ready"]
when = { http = { url = "http://{host}:{port}/v2/models/stack/infer", exists = "/outputs/0/data",
  json = { inputs = [ { name = "x", datatype = "FP32", shape = [ 1 ], data = [ 1 ] } ] } } }
"#;

#[test]
#[ignore = "needs tests/real/install.sh"]
fn a_model_is_loaded_before_its_weights_are_in_memory() {
    let mebibytes = (PAYLOAD >> 20).to_string();
    let (repository, said) = made("triton", &python("triton"), "make_triton.py", &[&mebibytes]);
    assert_eq!(said.trim(), PAYLOAD.to_string());
    let weights = repository.join("stack/1/weights.npy");
    let stages = repository.with_extension("toml");
    let bundled = include_str!("../../stages/triton.toml");
    let own = bundled.replace("name = \"first_response\"\n", REQUEST);
    assert_ne!(own, bundled);
    std::fs::write(&stages, own).unwrap();

    let server = program("triton", "tritonserver");
    let numpy = python("triton").with_file_name("../lib").canonicalize().unwrap();
    let packages = std::fs::read_dir(numpy).unwrap().map(|entry| entry.unwrap().path().join("site-packages"));
    let packages = packages.into_iter().find(|path| path.join("numpy").exists()).unwrap();
    let mut command = Command::new(&server);
    command.arg("--model-repository").arg(&repository);
    command.arg("--backend-directory").arg(server.with_file_name("../backends").canonicalize().unwrap());
    command.args(["--http-address", "127.0.0.1", "--http-port", &free_port()]);
    command.args(["--allow-grpc", "false", "--allow-metrics", "false"]).env("MODEL_PACKAGES", packages);
    // Its command line names a repository, and what is read of it is the model's own business.
    let named = ["--artifact", weights.to_str().unwrap()];
    let options = ["--stages", stages.to_str().unwrap(), "--until", "first_response", "--then", "stop"];
    let launch = Launch::of(std::slice::from_ref(&weights), &[named.as_slice(), &options].concat(), &command);
    launch.assert_sound("triton", PAYLOAD);
    launch.assert_in_order(&["load_started", "mapping_available", "module_populated", "listening", "ready"]);
    launch.assert_in_order(&["ready", "first_response"]);
    assert!(["not_applicable", "unknown"].contains(&launch.run.stage("gpu_placed").text("status")));
    assert_eq!(launch.mapping_generations().into_iter().min(), Some(1), "the backend's process maps it");
    for stage in ["module_populated", "ready", "first_response"] {
        assert_eq!(launch.at(stage, "mapped_payload_bytes"), PAYLOAD, "{stage}");
    }
    let loaded = launch.at("module_populated", "resident_payload_bytes");
    assert!(loaded < PAYLOAD / 10, "{loaded} bytes are resident when it says that the model is loaded");
    assert!(launch.at("first_response", "resident_payload_bytes") >= PAYLOAD - PAYLOAD / 20);
}
