//! What `--faults` adds to `stagemark run`: the reference loader over a warm 1 GiB file, profiled without and with fault
//! samples in turn.
//!
//! `cargo bench --bench faults [-- PAIRS [N]]`, 20 pairs and one sample in 64 unless said. A launch bound by mapped faults
//! (all pages touched under MADV_RANDOM) and one that reads into the heap. For each: the median, the smallest and the
//! largest ratio of the times from opening the model to the first response, the same of the loader's processor time (in
//! which a busy machine shows less), the samples, and what was lost. It needs 2 GiB of memory.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use stagemark::run::Run;

const STAGEMARK: &str = env!("CARGO_BIN_EXE_stagemark");
const BYTES: u64 = 1 << 30;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (pairs, period) = (numbers.next().unwrap_or(20).max(1), numbers.next().unwrap_or(64));
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.bin");
    File::create(&model).unwrap().set_len(BYTES).unwrap();
    // In memory from here on: its holes are read into the page cache.
    std::io::copy(&mut File::open(&model).unwrap(), &mut std::io::sink()).unwrap();
    let touch = BYTES.to_string();
    for (name, mode) in [
        ("mmap-lazy, all touched under MADV_RANDOM", &["mmap-lazy", "--advice", "random", "--touch", &touch][..]),
        ("read-heap", &["read-heap"]),
    ] {
        println!("{name}: {pairs} pairs without and with --faults={period}");
        let (mut times, mut cpus, mut last) = (Vec::new(), Vec::new(), String::new());
        for pair in 0..pairs {
            // Whichever comes first finds the machine as the other left it, so they change places.
            let first = load(mode, &model, (pair % 2 == 1).then_some(period));
            let second = load(mode, &model, (pair % 2 == 0).then_some(period));
            let (without, with) = if pair % 2 == 0 { (first, second) } else { (second, first) };
            times.push(with.time / without.time);
            cpus.push(with.cpu / without.cpu);
            last = with.samples;
        }
        for (what, mut ratios) in [("time", times), ("CPU time", cpus)] {
            ratios.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share) as usize];
            println!(
                "  ratio of {what}: median {:.3}, middle half {:.3} to {:.3}, smallest {:.3}, largest {:.3}",
                at(0.5),
                at(0.25),
                at(0.75),
                at(0.0),
                at(1.0)
            );
        }
        println!("  {last}");
    }
}

/// Milliseconds from opening to the first response.
struct Load {
    time: f64,
    cpu: f64,
    samples: String,
}

fn load(mode: &[&str], model: &Path, period: Option<u64>) -> Load {
    let folder = tempfile::tempdir().unwrap();
    let (truth, out) = (folder.path().join("truth"), folder.path().join("run"));
    let mut command = Command::new(STAGEMARK);
    command.args(["run", "--quiet", "--out"]).arg(&out);
    command.args(period.map(|period| format!("--faults={period}")));
    command.args(["--", STAGEMARK, "reference-loader", "--mode"]).args(mode);
    command.arg("--model").arg(model).arg("--truth").arg(&truth);
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let text = std::fs::read_to_string(truth).unwrap();
    let step = |name: &str| {
        let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let line = lines.find(|line| line["name"] == name).unwrap();
        let number = |field: &str| line[field].as_u64().unwrap() as f64;
        (number("t_ns") / 1e6, (number("user_us") + number("system_us")) / 1e3)
    };
    let ((opened, before), (response, after)) = (step("opened"), step("first_response"));
    let samples = Run::load(&out).unwrap().meta.faults.map_or_else(String::new, |samples| {
        let all = samples.all();
        format!("samples of the last: {} minor, {} major; lost {}", all.minor, all.major, samples.lost_records)
    });
    Load { time: response - opened, cpu: after - before, samples }
}
