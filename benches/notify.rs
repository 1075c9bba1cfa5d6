//! How long after its sending a notification's mark is.
//!
//! `cargo bench --bench notify [-- LAUNCHES]`, 4 unless said: each launch is a small program that sends 250 notifications,
//! each of a stage of its own and without a time of its own, and reads the clock before and after each. Of each mark it
//! prints the time from the sending (the reading before it) to the mark: median, 90th and 99th percentile, largest; and
//! how many marks, with their uncertainty, leave out the sending. What is promised is 1 ms at the 99th percentile with a
//! core free, so the CPUs and the load are printed too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use stagemark::clock::Mono;
use stagemark::event::{Event, What};
use stagemark::run::Run;

/// A run marks at most 256 stages that no stage file knows.
const MESSAGES: u64 = 250;

fn main() {
    if let Some(truth) = std::env::var_os("NOTIFY_TRUTH") {
        return sender(Path::new(&truth));
    }
    let launches: u64 = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(4).max(1);
    let profiler = std::env::var_os("STAGEMARK").unwrap_or_else(|| env!("CARGO_BIN_EXE_stagemark").into());
    let folder = tempfile::tempdir().unwrap();
    println!("{launches} launches, {} CPUs, load {}", cpus(), load());
    let mut distances = Vec::new();
    let (mut missing, mut outside) = (0, 0);
    for launch in 0..launches {
        let out = folder.path().join(format!("run-{launch}"));
        let truth = folder.path().join("truth");
        let mut command = Command::new(&profiler);
        command.args(["run", "--quiet", "--no-output-log", "--stages", "generic", "--out"]).arg(&out);
        command.arg("--").arg(std::env::current_exe().unwrap()).env("NOTIFY_TRUTH", &truth);
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
        let run = Run::load(&out).unwrap();
        let marks: BTreeMap<&str, &Event> = run
            .events
            .iter()
            .filter_map(|event| match &event.what {
                What::Mark(mark) => Some((mark.stage.as_str(), event)),
                _ => None,
            })
            .collect();
        for line in std::fs::read_to_string(&truth).unwrap().lines() {
            let mut words = line.split(' ');
            let stage = words.next().unwrap();
            let mut time = || words.next().unwrap().parse::<i64>().unwrap() - run.meta.start_monotonic_ns as i64;
            let (before, after) = (time(), time());
            let Some(event) = marks.get(stage) else {
                missing += 1;
                continue;
            };
            distances.push(event.at.0 - before);
            let low = event.uncertainty_ns.map(|ns| event.at.0 - ns as i64);
            outside += usize::from(event.at.0 < before || low.is_some_and(|low| low > after));
        }
        std::fs::remove_dir_all(&out).unwrap();
    }
    distances.sort_unstable();
    let at = |percent: usize| distances[(distances.len() * percent).div_ceil(100).max(1) - 1] as f64 / 1e3;
    println!("{} marks, {missing} missing, {outside} that leave their sending out; load {}", distances.len(), load());
    println!(
        "mark − sending: median {:.0} µs, p90 {:.0} µs, p99 {:.0} µs, largest {:.0} µs",
        at(50),
        at(90),
        at(99),
        at(100)
    );
}

/// Sends its messages a few milliseconds apart, at times that fit no tick.
fn sender(truth: &Path) {
    let socket = UnixDatagram::unbound().unwrap();
    socket.connect(std::env::var_os("NOTIFY_SOCKET").unwrap()).unwrap();
    let mut text = String::new();
    for number in 0..MESSAGES {
        std::thread::sleep(Duration::from_micros(2_000 + number * 7_317 % 6_000));
        let message = format!("X_STAGE=n{number}");
        let before = Mono::now();
        socket.send(message.as_bytes()).unwrap();
        let after = Mono::now();
        text.push_str(&format!("n{number} {} {}\n", before.0, after.0));
    }
    std::fs::write(truth, text).unwrap();
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(0, NonZeroUsize::get)
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
