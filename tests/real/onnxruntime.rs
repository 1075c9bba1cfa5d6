//! ONNX Runtime, with a model's weights beside it and within it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Launch, here, made, python, text};

const PAYLOAD: u64 = 128 << 20;

fn model(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let mebibytes = (PAYLOAD >> 20).to_string();
        let (folder, said) = made("onnx", &python("onnxruntime"), "make_onnx.py", &[&mebibytes]);
        assert_eq!(said.trim(), PAYLOAD.to_string());
        folder
    });
    folder.join(name)
}

/// Launches the driver on a model of which these files are cold, the model itself first.
fn launch(files: &[&str], arguments: &[&str]) -> Launch {
    let files: Vec<PathBuf> = files.iter().map(|name| model(name)).collect();
    let mut command = Command::new(python("onnxruntime"));
    command.arg(here().join("loaders/onnx_run.py")).arg(&files[0]).args(arguments);
    let launch = Launch::of(&files, &["--stages", "onnxruntime"], &command);
    launch.assert_sound("onnxruntime", PAYLOAD);
    launch.assert_in_order(&["module_populated", "first_response", "exited"]);
    launch.assert_in_order(&["fully_resident", "exited"]);
    assert!(["not_applicable", "unknown"].contains(&launch.run.stage("gpu_placed").text("status")));
    assert_eq!(launch.run.stage("first_response").text("evidence"), "notify");
    let stdout = text(&launch.output.stdout);
    let answer = stdout.lines().find_map(|line| line.strip_prefix("answer ")?.parse::<f64>().ok());
    assert!(answer.is_some_and(|answer| answer > 0.0), "{stdout}");
    launch
}

const EXTERNAL: [&str; 2] = ["external.onnx", "external.onnx.data"];

/// By default the CPU's kernels work on packed copies, and each tensor's mapping is closed when it is packed.
#[test]
#[ignore = "needs tests/real/install.sh"]
fn external_data_is_mapped_packed_and_let_go() {
    let launch = launch(&EXTERNAL, &["--info"]);
    launch.assert_in_order(&["mapping_available", "module_populated", "mapping_released"]);
    assert_eq!(launch.run.stage("module_populated").text("evidence"), "log");
    assert_eq!(launch.run.largest("mapped_payload_bytes"), Some(PAYLOAD));
    assert!(launch.at("first_response", "rss_anon_bytes") >= PAYLOAD);
    assert_eq!(launch.at("mapping_released", "mapped_payload_bytes"), 0);
}

/// Without packing the session is ready and next to nothing of it in memory: the first run pays.
#[test]
#[ignore = "needs tests/real/install.sh"]
fn without_packing_the_session_is_ready_before_its_weights_are_in_memory() {
    let launch = launch(&EXTERNAL, &["--info", "session.disable_prepacking=1"]);
    launch.assert_in_order(&["mapping_available", "module_populated", "first_response"]);
    for stage in ["module_populated", "first_response"] {
        assert_eq!(launch.at(stage, "mapped_payload_bytes"), PAYLOAD, "{stage}");
        assert!(launch.at(stage, "rss_anon_bytes") < PAYLOAD, "{stage}");
    }
    let populated = launch.at("module_populated", "resident_payload_bytes");
    assert!(populated < PAYLOAD / 10, "{populated} bytes are resident when the session is ready");
    assert!(launch.at("first_response", "resident_payload_bytes") >= PAYLOAD - PAYLOAD / 20);
}

/// At its default level it prints nothing: memory shows it, whether the weights were mapped or read.
#[test]
#[ignore = "needs tests/real/install.sh"]
fn a_silent_session_is_seen_by_its_memory() {
    for (files, mapped) in [(&EXTERNAL[..], Some(PAYLOAD)), (&["inline.onnx"], Some(0))] {
        let launch = launch(files, &[]);
        assert_eq!(launch.run.stage("module_populated").text("evidence"), "anon");
        assert!(launch.at("module_populated", "rss_anon_bytes") >= PAYLOAD / 2);
        assert_eq!(launch.run.largest("mapped_payload_bytes"), mapped, "{files:?}");
        assert_eq!(launch.run.stage("mapping_available").reached(), mapped > Some(0), "{files:?}");
        assert!(text(&launch.output.stderr).is_empty(), "{}", text(&launch.output.stderr));
    }
}
