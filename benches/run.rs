//! What `stagemark run` costs while a launch goes on: the time of each tick as the run itself recorded it, and the
//! processor time of the profiler's process.
//!
//! `cargo bench --bench run [-- TICKS]`, 1,000 unless said: the bundled reference loader with one artifact, fully
//! resident, at the default tick of 20 ms (4 GiB as read ahead, 4 GiB faulted in page by page under MADV_RANDOM, 1 TiB
//! of which next to nothing was touched); then 64 processes of 2,000 mappings each at 10 Hz. It needs 4 GiB of memory
//! for page cache and no disk: what is loaded are the holes of a sparse file.
//!
//! A tick's time includes preemption, so that a busy machine shows in the percentiles; the processor time does not.
//! With STAGEMARK_BENCH_ENFORCE set, exit status 1 says that a tick took more than 0.5 ms at the median or 1.5 ms at the
//! 99th percentile over one process, or that the 64 processes cost more than 5% of a core.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use stagemark::run::Run;

#[path = "support/mapper.rs"]
mod mapper;

use mapper::PAGE;

const STAGEMARK: &str = env!("CARGO_BIN_EXE_stagemark");
const GIB: u64 = 1 << 30;
const TICK: Duration = Duration::from_millis(20);

const MEDIAN_MOST: f64 = 500.0;
const P99_MOST: f64 = 1_500.0;
const SHARE_MOST: f64 = 5.0;

fn main() -> std::process::ExitCode {
    if mapper::is_one() {
        return std::process::ExitCode::SUCCESS;
    }
    let ticks: u32 = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1_000).max(10);
    println!("a tick's time in µs, and the profiler's process as a share of a core, over {ticks} ticks and more");
    println!("{:40} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8}", "", "ticks", "median", "p90", "p99", "max", "share");
    let mut kept = true;
    for (name, bytes, arguments) in [
        ("4 GiB, as read ahead", 4 * GIB, &["--touch", "4GiB"][..]),
        ("4 GiB, faulted in under MADV_RANDOM", 4 * GIB, &["--touch", "4GiB", "--advice", "random"]),
        // Its first use would touch all of it, and waits for a request that never comes.
        ("1 TiB, sparse", 1024 * GIB, &["--touch", "1MiB", "--shared", "--serve", "0"]),
    ] {
        let figures = loader(bytes, arguments, ticks);
        figures.print(name);
        kept &= figures.median <= MEDIAN_MOST && figures.p99 <= P99_MOST;
    }
    let figures = tree(64, 2_000, ticks.div_ceil(5));
    figures.print("64 processes of 2,000 mappings, 10 Hz");
    kept &= figures.share <= SHARE_MOST;
    println!("{}", if kept { "within the bounds" } else { "beyond a bound" });
    let enforced = std::env::var_os("STAGEMARK_BENCH_ENFORCE").is_some();
    std::process::ExitCode::from(u8::from(enforced && !kept))
}

/// Of the steady ticks of one run.
struct Figures {
    ticks: usize,
    median: f64,
    p90: f64,
    p99: f64,
    max: f64,
    /// Percent of a core.
    share: f64,
}

impl Figures {
    fn print(&self, name: &str) {
        let Figures { ticks, median, p90, p99, max, share } = self;
        println!("{name:40} {ticks:>7} {median:8.1} {p90:8.1} {p99:8.1} {max:8.1} {share:7.2}%");
    }
}

/// One artifact of so many bytes, held by one process.
fn loader(bytes: u64, arguments: &[&str], ticks: u32) -> Figures {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.bin");
    File::create(&model).unwrap().set_len(bytes).unwrap();
    let out = folder.path().join("run");
    let mut artifact = std::ffi::OsString::from("raw:");
    artifact.push(&model);
    let mut command = Command::new(STAGEMARK);
    command.args(["run", "--quiet", "--no-output-log", "--stages", "generic", "--out"]).arg(&out);
    command.arg("--artifact").arg(artifact).arg("--").arg(STAGEMARK);
    command.args(["reference-loader", "--mode", "mmap-lazy", "--hold", "until-stdin-closes", "--model"]).arg(&model);
    command.args(arguments);
    let ready = if arguments.contains(&"--serve") { "stage module_populated" } else { "stage first_response" };
    steady(command, ready, &out, TICK, ticks)
}

/// So many processes of so many mappings, all of one artifact.
fn tree(processes: usize, mappings: usize, ticks: u32) -> Figures {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.bin");
    File::create(&model).unwrap().set_len((mappings * PAGE) as u64).unwrap();
    let out = folder.path().join("run");
    let mut artifact = std::ffi::OsString::from("raw:");
    artifact.push(&model);
    let mut command = Command::new(STAGEMARK);
    command
        .args(["run", "--quiet", "--no-output-log", "--stages", "generic", "--interval", "100ms", "--out"])
        .arg(&out);
    command.arg("--artifact").arg(artifact).arg("--").arg(std::env::current_exe().unwrap());
    mapper::prepare(&mut command, processes, mappings, &model);
    steady(command, "ready", &out, Duration::from_millis(100), ticks)
}

/// Runs a command until it has printed `ready`, then for so many ticks more, of which the figures are.
fn steady(mut command: Command, ready: &str, out: &Path, tick: Duration, ticks: u32) -> Figures {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with(ready)), "the command ended before it was ready");
    // Past the closer look at that event.
    std::thread::sleep(tick * 5);
    let (begun, cpu) = (Instant::now(), cpu_of(&child));
    // A busy machine loses ticks.
    std::thread::sleep(tick * (ticks + ticks / 10));
    let (elapsed, cpu) = (begun.elapsed(), cpu_of(&child) - cpu);
    end(child);

    let run = Run::load(out).unwrap();
    // The last of all is the closer look at the end, with nothing left to look at.
    let alive = |sample: &&stagemark::sample::Sample| sample.values.get(stagemark::metric::Metric::Processes) > Some(0);
    let costs = run.samples.iter().rev().filter(alive).skip(2).take(ticks as usize);
    let mut costs: Vec<f64> = costs.map(|sample| sample.cost_ns as f64 / 1e3).collect();
    costs.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| costs[((costs.len() - 1) as f64 * share) as usize];
    Figures {
        ticks: costs.len(),
        median: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: at(1.0),
        share: 100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64(),
    }
}

/// Closes the command's standard input, and ends what does not end by that.
fn end(mut child: Child) {
    drop(child.stdin.take());
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(2) {
            // Passed on to the command.
            kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
            child.wait().unwrap();
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// CPU time of a process, all threads.
fn cpu_of(child: &Child) -> Duration {
    clock_gettime(clock_getcpuclockid(Pid::from_raw(child.id() as i32)).unwrap()).unwrap().into()
}
