//! torch.distributed.checkpoint's reader, in two ranks that torchrun starts.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Launch, files, here, made, program, python, text};

const PAYLOAD: u64 = 128 << 20;

/// Launches two ranks of the driver on a checkpoint that is cold.
fn launch(arguments: &[&str]) -> Launch {
    let mebibytes = (PAYLOAD >> 20).to_string();
    let (folder, said) = made("dcp", &python("torch"), "make_dcp.py", &[&mebibytes]);
    assert_eq!(said.trim(), PAYLOAD.to_string());
    let shards: Vec<PathBuf> = files(&folder, ".safetensors");
    assert_eq!(shards.len(), 2);
    let mut command = Command::new(program("torch", "torchrun"));
    command.args(["--nproc-per-node", "2"]).arg(here().join("loaders/dcp_ranks.py")).arg(&folder).args(arguments);
    command.env("OMP_NUM_THREADS", "1");
    let launch = Launch::of(&shards, &["--stages", "torch-dcp"], &command);
    launch.assert_sound("torch-dcp", PAYLOAD);
    launch
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn two_ranks_map_one_checkpoint_once() {
    let launch = launch(&[]);
    launch.assert_in_order(&["module_built", "mapping_available", "module_populated", "first_response"]);

    // Each rank maps each shard, more than once; together they map the checkpoint once.
    let mapped = launch.run.events("mapped");
    for shard in 0..2 {
        let mut ranks: Vec<&str> = mapped
            .iter()
            .filter(|row| row["detail"].contains(&format!("\"artifact\":{shard},")))
            .map(|row| row["pid"].as_str())
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        assert_eq!(ranks.len(), 2, "processes that map shard {shard}: {mapped:?}");
    }
    assert_eq!(launch.mapping_generations().into_iter().min(), Some(1), "the ranks are torchrun's children");
    assert!(launch.at("module_populated", "peak_mapped_payload_bytes_low") > 0);
    assert!(launch.at("module_populated", "peak_mapped_payload_bytes_low") <= PAYLOAD);
    // The reader lets go.
    launch.assert_in_order(&["module_populated", "mapping_released", "exited"]);
    assert_eq!(launch.at("mapping_released", "mapped_payload_bytes"), 0);

    // And each has a copy of its own.
    let ranks = |metric: &str| {
        let rows = launch.run.rows("detail.csv");
        [0, 1].map(|rank: u32| {
            let of = rows.iter().filter(|row| row["scope"] == "rank" && row["id"] == rank.to_string());
            of.filter(|row| row["metric"] == metric).filter_map(|row| row["value"].parse::<u64>().ok()).max()
        })
    };
    assert_eq!(ranks("world_size"), [Some(2), Some(2)]);
    for anonymous in ranks("rss_anon_bytes") {
        assert!(anonymous >= Some(PAYLOAD), "{anonymous:?}");
    }
    let stdout = text(&launch.output.stdout);
    let answers: Vec<&str> =
        stdout.lines().filter_map(|line| line.strip_prefix("answer ")?.split(' ').next()).collect();
    assert_eq!(answers.len(), 2, "{stdout}");
    assert_eq!(answers[0], answers[1]);
}

#[test]
#[ignore = "needs tests/real/install.sh"]
fn silent_ranks_have_the_stages_that_can_be_seen_from_outside() {
    let launch = launch(&["silent"]);
    launch.assert_in_order(&["mapping_available", "module_populated", "exited"]);
    launch.assert_in_order(&["module_populated", "mapping_released", "exited"]);
    assert_eq!(launch.run.stage("module_populated").text("evidence"), "anon");
    assert!(launch.at("module_populated", "rss_anon_bytes") >= 2 * PAYLOAD, "each rank has its copy");
}
