//! What following a tree costs: the sweep, the process probe and the mapping probe, as CPU time of the thread that does
//! it.
//!
//! `cargo bench --bench tick [-- SECONDS]`: 64 processes of 2,000 mappings each, all of one artifact, at 10 Hz for 20 s;
//! then one such process at 50 Hz, and one of few mappings.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use stagemark::artifact::{Artifact, Found};
use stagemark::clock::Mono;
use stagemark::event::Pid;
use stagemark::launch::Finals;
use stagemark::launch::tree::Tree;
use stagemark::metric::Metric;
use stagemark::probe::mapping::MappingProbe;
use stagemark::probe::process::ProcessProbe;

#[path = "support/mapper.rs"]
mod mapper;

use mapper::PAGE;

const BUDGET: Duration = Duration::from_micros(200);

fn main() {
    if !mapper::is_one() {
        measure();
    }
}

fn measure() {
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(20);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("artifact");
    File::create(&path).unwrap().set_len((2000 * PAGE) as u64).unwrap();
    follow(&path, 64, 2000, Duration::from_millis(100), seconds);
    follow(&path, 1, 2000, Duration::from_millis(20), seconds);
    follow(&path, 1, 2, Duration::from_millis(20), seconds);
}

fn follow(path: &Path, processes: usize, mappings: usize, interval: Duration, seconds: u64) {
    let start = Mono::now();
    let mut command = Command::new(std::env::current_exe().unwrap());
    mapper::prepare(&mut command, processes, mappings, path);
    let mut root = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(root.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();

    let artifacts = [Artifact::open_raw(path, Found::Declared).unwrap()];
    let mask = |argv: &[String]| argv.to_vec();
    let mut tree = Tree::without_orphans(root.id() as Pid, start, Finals::default(), mask);
    let mut process_probe = ProcessProbe::new();
    let mut mapping_probe = MappingProbe::new(|_| false);
    let mut costs = Vec::new();
    let mut parts: [Vec<Duration>; 3] = Default::default();
    let begin = Instant::now();
    let cpu = thread_time();
    let mut last = (None, None);
    for number in 1.. {
        let times = [
            thread_time(),
            {
                tree.sweep(Mono::now());
                thread_time()
            },
            {
                last.0 = process_probe.tick(&mut tree, Mono::now()).values.get(Metric::Processes);
                thread_time()
            },
            {
                let found = mapping_probe.tick(&tree, &artifacts, BUDGET);
                last.1 = found.reading.values.get(Metric::MappedBytes);
                thread_time()
            },
        ];
        for (part, pair) in parts.iter_mut().zip(times.windows(2)) {
            part.push(pair[1] - pair[0]);
        }
        costs.push(times[3] - times[0]);
        let next = begin + interval * number;
        if next >= begin + Duration::from_secs(seconds) {
            break;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let elapsed = begin.elapsed();
    let whole = thread_time() - cpu;
    println!(
        "{processes} processes of {mappings} mappings every {interval:?}: {:.2}% of a core over {} ticks, \
         {} processes and {} bytes mapped at the end",
        100.0 * whole.as_secs_f64() / elapsed.as_secs_f64(),
        costs.len(),
        last.0.unwrap_or_default(),
        last.1.unwrap_or_default(),
    );
    for (name, part) in
        ["tree sweep", "process probe", "mapping probe", "whole tick"].iter().zip(parts.iter_mut().chain([&mut costs]))
    {
        let share = 100.0 * part.iter().sum::<Duration>().as_secs_f64() / elapsed.as_secs_f64();
        part.sort_unstable();
        println!(
            "  {name:14} {share:5.2}% of a core; median {:?}, p99 {:?}, largest {:?}",
            part[part.len() / 2],
            part[part.len() * 99 / 100],
            part[part.len() - 1],
        );
    }
    drop(root.stdin.take());
    root.wait().unwrap();
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}
