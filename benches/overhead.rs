//! What `stagemark run` costs the command that it runs: the reference loader over a warm 1 GiB file, plain and under the
//! profiler in turn.
//!
//! `cargo bench --bench overhead [-- PAIRS]`, 12 unless said. Of each pair it prints the time that the loader itself
//! recorded from opening its model to its first response, and the ratio of the two; then the median, the smallest and
//! the largest ratio, the same of the processor time that it took meanwhile (in which a busy machine shows less), and
//! how much later it opened its model than without the prefix. It needs 2 GiB of memory.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use stagemark::clock::Mono;

const STAGEMARK: &str = env!("CARGO_BIN_EXE_stagemark");
const BYTES: u64 = 1 << 30;

fn main() {
    let pairs = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(12).max(1);
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.bin");
    let file = File::create(&model).unwrap();
    file.set_len(BYTES).unwrap();
    // In memory from here on: its holes are read into the page cache.
    std::io::copy(&mut File::open(&model).unwrap(), &mut std::io::sink()).unwrap();
    measure("mmap-lazy, all touched under MADV_RANDOM", &["mmap-lazy", "--advice", "random"], &model, pairs);
    measure("read-heap", &["read-heap"], &model, pairs);
}

fn measure(name: &str, mode: &[&str], model: &Path, pairs: usize) {
    println!("{name}: {pairs} pairs, ms from opening to first response");
    let (mut ratios, mut cpu_ratios, mut delays) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Whichever comes first finds the machine as the other left it, so they change places.
        let (plain, under) = if pair % 2 == 0 {
            let plain = load(mode, model, false);
            (plain, load(mode, model, true))
        } else {
            let under = load(mode, model, true);
            (load(mode, model, false), under)
        };
        println!("  plain {:8.2}  under {:8.2}  ratio {:.3}", plain.load, under.load, under.load / plain.load);
        ratios.push(under.load / plain.load);
        cpu_ratios.push(under.cpu / plain.cpu);
        delays.push(under.start - plain.start);
    }
    let [ratio, cpu, delay] = [ratios, cpu_ratios, delays].map(|mut values| {
        values.sort_unstable_by(f64::total_cmp);
        (values[values.len() / 2], values[0], values[values.len() - 1])
    });
    println!("  ratio: median {:.3}, smallest {:.3}, largest {:.3}", ratio.0, ratio.1, ratio.2);
    println!("  ratio of CPU time: median {:.3}, smallest {:.3}, largest {:.3}", cpu.0, cpu.1, cpu.2);
    println!("  opened later by: median {:.1} ms, smallest {:.1}, largest {:.1}", delay.0, delay.1, delay.2);
}

/// Milliseconds.
struct Times {
    /// From the launch to the opening of the model.
    start: f64,
    /// From there to the first response.
    load: f64,
    /// CPU time of the loader in between.
    cpu: f64,
}

fn load(mode: &[&str], model: &Path, profiled: bool) -> Times {
    let folder = tempfile::tempdir().unwrap();
    let truth = folder.path().join("truth");
    let mut command = Command::new(STAGEMARK);
    if profiled {
        command.args(["run", "--quiet", "--out"]).arg(folder.path().join("run")).args(["--", STAGEMARK]);
    }
    command.args(["reference-loader", "--mode"]).args(mode);
    command.args([OsStr::new("--model"), model.as_os_str(), OsStr::new("--truth"), truth.as_os_str()]);
    if mode.contains(&"mmap-lazy") {
        command.args(["--touch", &BYTES.to_string()]);
    }
    let launched = Mono::now();
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let text = std::fs::read_to_string(truth).unwrap();
    let step = |name: &str| {
        let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let line = lines.find(|line| line["name"] == name).unwrap();
        let number = |field: &str| line[field].as_u64().unwrap();
        (Mono(number("t_ns")), number("user_us") + number("system_us"))
    };
    let ((opened, before), (response, after)) = (step("opened"), step("first_response"));
    Times {
        start: opened.since(launched) as f64 / 1e6,
        load: response.since(opened) as f64 / 1e6,
        cpu: (after - before) as f64 / 1e3,
    }
}
